"""Operations that read, combine and write back as one. Source: PTX ISA 9.7.13.5 to 9.7.13.8."""

from __future__ import annotations

from collections.abc import Iterator

from ...isa.targets import Version
from .grammar import Need, Row, row
from .memory import HINT, HINTED, SHARED_WINDOWS

_SCOPES = "{.cta,.cluster,.gpu,.sys}"
_SHARED = ".{shared,shared::cta,shared::cluster}"

LATER = (
    *(Need(word, (6, 0), 70) for word in ("relaxed", "acquire", "release", "acq_rel")),
    *(Need(word, (5, 0), 60) for word in ("cta", "gpu", "sys")),
    Need("cluster", (7, 8), 90),
    *SHARED_WINDOWS,
    HINTED,
    Need("sys b128", (8, 4), 90),
)

_OPERATIONS: tuple[tuple[str, Version, int], ...] = (
    (".O{and,or,xor}.T{b32}", (2, 0), 20),
    (".O{and,or,xor}.T{b64}", (3, 1), 32),
    (".O{add}.T{u32,s32,u64,f32}", (2, 0), 20),
    (".O{add}.T{f64}", (5, 0), 60),
    (".O{add}.noftz.T{f16x2}", (6, 2), 60),
    (".O{add}.noftz.T{f16}", (6, 3), 70),
    (".O{add}.noftz.T{bf16,bf16x2}", (7, 8), 90),
    (".O{inc,dec}.T{u32}", (2, 0), 20),
    (".O{min,max}.T{u32,s32}", (2, 0), 20),
    (".O{min,max}.T{u64,s64}", (3, 1), 32),
)
"""What `atom` and `red` both do."""

_EXCHANGES: tuple[tuple[str, Version, int], ...] = (
    (".O{exch}.T{b32,b64}", (2, 0), 20),
    (".O{exch}.T{b128}", (8, 3), 90),
)

_VECTORS = (
    ".O{add}.V{v2,v4}.T{f32}",
    ".O{add,min,max}.noftz.V{v2,v4,v8}.T{f16,bf16}",
    ".O{add,min,max}.noftz.V{v2,v4}.T{f16x2,bf16x2}",
)


def _operations(root: str, order: str, result: str, section: str) -> Iterator[Row]:
    for words, ptx, sm in _OPERATIONS + (_EXCHANGES if root == "atom" else ()):
        for space, hint in ((f"{{P=.global}}{HINT}", ", H?c:b64"), (f".P{_SHARED[1:]}", "")):
            spelling = f"{root}{order}{_SCOPES}{space}{words}"
            # ptxas 13.0 fails, without a message, on a discarded result of bf16.
            found = result.replace("_", "") if "bf16" in words else result
            yield row(spelling, f"{found}a:[], b:T{hint}", section, ptx=ptx, sm=sm, meaning="atomic", needs=LATER)
    for words in _VECTORS:
        spelling = f"{root}{order}{_SCOPES}{{P=.global}}{words}{HINT}"
        operands = f"{result.replace('T_', 'V*T')}a:[], b:V*T, H?c:b64"
        yield row(spelling, operands, section, ptx=(8, 1), sm=90, meaning="atomic", needs=LATER)


def _exchanges() -> Iterator[Row]:
    """Compare and swap."""
    spaces = "{P=.global,.shared,.shared::cta,.shared::cluster}"
    for types, ptx, sm in (("b32,b64", (2, 0), 20), ("b16", (6, 3), 70), ("b128", (8, 3), 90)):
        yield row(
            f"atom{_SEMANTICS}{_SCOPES}{spaces}.O{{cas}}.T{{{types}}}",
            "d:T_, a:[], b:T, c:T",
            "9.7.13.5",
            ptx=ptx,
            sm=sm,
            meaning="atomic",
            needs=LATER,
        )


_SEMANTICS = "{.relaxed,.acquire,.release,.acq_rel}"

ROWS = (
    # 9.7.13.5  atom
    *_operations("atom", _SEMANTICS, "d:T_, ", "9.7.13.5"),
    *_exchanges(),
    # 9.7.13.6  red
    *_operations("red", "{.relaxed,.release}", "", "9.7.13.6"),
)
