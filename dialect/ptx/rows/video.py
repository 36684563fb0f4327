"""Video instructions: integers of parts of registers, one or several at a time. Source: PTX ISA 9.7.18."""

from __future__ import annotations

from collections.abc import Iterator

from .comparison import COMPARISONS
from .grammar import Row, pure, row

_TYPES = ".D{u32,s32}.A{u32,s32}.B{u32,s32}"
_SAT = "{SAT=.sat}"
_COMPARE = f".CMP{{{','.join(COMPARISONS)}}}"


def _scalar(name: str, spelling: str, result: str, section: str) -> Iterator[Row]:
    """One number: alone, in part of d beside the rest of c, or combined with c."""
    for operands, end in (
        (f"d:{result}, a:A@1, b:B@1", ""),
        (f"d:{result}@1, a:A@1, b:B@1, c:{result}", ""),
        (f"d:{result}, a:A@1, b:B@1, c:{result}", ".OP{add,min,max}"),
    ):
        yield row(f"{name}{spelling}{end}", operands, section, ptx=(2, 0), sm=20, meaning=f"video.{name}")


def _packed(name: str, parts: int, spelling: str, result: str, section: str) -> Row:
    """2 or 4 numbers: in parts of d beside those of c or, with `.add`, summed with c."""
    operands = f"d:{result}@{parts}, a:A@{parts}, b:B@{parts}, c:{result}"
    return row(f"{name}{parts}{spelling}", operands, section, ptx=(3, 0), sm=30, meaning=f"video.{name}{parts}")


_ROWS = (
    # 9.7.18.1  one number
    *(
        each
        for name in ("vadd", "vsub", "vabsdiff", "vmin", "vmax")
        for each in _scalar(name, _TYPES + _SAT, "D", "9.7.18.1.1")
    ),
    *(
        each
        for name in ("vshl", "vshr")
        for each in _scalar(name, f".D{{u32,s32}}.A{{u32,s32}}.B{{u32}}{_SAT}.MODE{{clamp,wrap}}", "D", "9.7.18.1.2")
    ),
    row(
        f"vmad{_TYPES}{{PO=.po}}{_SAT}{{SCALE=.shr7,.shr15}}",
        "d:D, a:A@1, b:B@1, c:D",
        "9.7.18.1.3",
        ptx=(2, 0),
        sm=20,
        meaning="video.vmad",
    ),
    *_scalar("vset", f".A{{u32,s32}}.B{{u32,s32}}{_COMPARE}", "u32", "9.7.18.1.4"),
    # 9.7.18.2  two halves, four bytes
    *(
        _packed(name, parts, _TYPES + end, "D", f"9.7.18.2.{parts - 1}")
        for parts in (2, 4)
        for name in ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax")
        for end in (_SAT, ".OP{add}")
    ),
    *(
        _packed("vset", parts, f".A{{u32,s32}}.B{{u32,s32}}{_COMPARE}{{OP=.add}}", "u32", f"9.7.18.2.{parts}")
        for parts in (2, 4)
    ),
)

ROWS = pure(_ROWS)
