"""Rows of conversions. Source: PTX ISA 9.7.9.21 (`cvt`), 9.7.9.22 (`cvt.pack`).

The rows bind all that decides the result: the rounding (`ROUND`, of a whole number `WHOLE`), `FTZ`, `SAT`, `RELU`,
`FINITE` (.satfinite), and the types `D` and `S`. Of bf16, ptxas takes more than the text has; the rows have that
too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ...isa.families import BLACKWELL, blackwell
from ...isa.row import Specific, Version
from .arithmetic import RUBIN
from .grammar import PatternRow, pure, row

_INT = "u8,u16,u32,u64,s8,s16,s32,s64"
_ROUND, _ANY_ROUND = "ROUND{rn,rz,rm,rp}", "{ROUND=.rn,.rz,.rm,.rp}"
_WHOLE, _ANY_WHOLE = "WHOLE{rni,rzi,rmi,rpi}", "{WHOLE=.rni,.rzi,.rmi,.rpi}"
_FTZ, _SAT, _RELU, _FINITE = "{FTZ=.ftz}", "{SAT=.sat}", "{RELU=.relu}", "FINITE{satfinite}"
_MAY = "{FINITE=.satfinite}"
_FP8, _FP6, _FP4 = "e4m3x2,e5m2x2", "e2m3x2,e3m2x2", "e2m1x2"


_FIXED: Specific = tuple((f"sm_{sm}a", (9, 1)) for sm in (100, 103, 107, 110, 120, 121))
"""Where there is `.s2f6x2`."""

_RUBIN: Specific = (("sm_107a", (9, 4)),)
"""Where it is made by rounding towards zero."""

_SCALED = ".SCALE{scaled::n2::ue8m0}"
"""Two powers of two, one for each number."""

_STOCHASTIC: Specific = (("sm_100a", (8, 7)), ("sm_103a", (8, 8)), ("sm_107a", (9, 4)))
"""Where there is `.rs`."""


def _clamping() -> Iterator[tuple[str, str]]:
    """Each integer type with the types that have values outside of it. Only these conversions have `.sat`."""

    def bounds(type: str) -> tuple[int, int]:
        bits = int(type[1:])
        return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if type[0] == "s" else (0, 2**bits - 1)

    types = _INT.split(",")
    for to in types:
        low, high = bounds(to)
        yield to, ",".join(of for of in types if bounds(of)[0] < low or bounds(of)[1] > high)


_CVT = "9.7.9.21"


def _rubin_conversions() -> Iterator[PatternRow]:
    """What the family of sm_107 has since PTX 9.4: rounding towards zero, no negative zero, one scale, ue5m3."""
    halves = ("f32", "f16x2", "bf16x2")
    scaled = ".SCALE{scaled::n1::ue8m0}"
    for s in halves:
        operands = "d:D, a:S, b:S" if s == "f32" else "d:D, a:S"
        narrow, fine = f"D{{{_FP8},{_FP6},{_FP4}}}.S{{{s}}}", f"D{{ue5m3x2}}.S{{{s}}}"
        for words, more in (
            (f".ROUND{{rz}}.{_FINITE}{_RELU}.{narrow}", ""),
            (f".ROUND{{rn,rz}}.{_FINITE}{_RELU}{_ZERO}.{narrow}", ""),
            (f".ROUND{{rn,rz}}.{_FINITE}{_RELU}{{ZERO=.pzo}}{scaled}.{narrow}", ", e:ue8m0"),
            (f".ROUND{{rn,rz,rp}}{_MAY}.{fine}", ""),
            (f".ROUND{{rn,rz}}{_MAY}{scaled}.{fine}", ", e:ue8m0"),
        ):
            yield _of_rubin(words, f"{operands}{more}", "cvt.unsigned" if fine in words else "cvt.narrow")
    for words, operands, meaning in (
        (".rn.D{f16x2}.S{ue5m3x2}", "d:D, a:S", "cvt.widen"),
        (".rn{FINITE=.satfinite}.D{bf16x2}.S{ue5m3x2}", "d:D, a:S", "cvt.widen"),
        (f".rn{_MAY}{_SCALED}.D{{bf16x2}}.S{{ue5m3x2}}", "d:D, a:S, e:ue8m0x2", "cvt.widen"),
        (f".ROUND{{rn,rz}}{_MAY}{_RELU}{_ZERO}.D{{tf32}}.S{{f32}}", "d:D, a:S", "cvt.tf32"),
        *(
            (f".ROUND{{rn,rz}}{_MAY}{_RELU}{_ZERO}.D{{{to}}}.S{{f32}}", operands, meaning)
            for to, operands, meaning in (
                ("f16", "d:D, a:S", "cvt.float"),
                ("bf16", "d:D, a:S", "cvt.float"),
                ("f16x2", "d:D, a:S, b:S", "cvt.pair"),
                ("bf16x2", "d:D, a:S, b:S", "cvt.pair"),
            )
        ),
        (f".ROUND{{rm,rp}}{_ZERO}.D{{f16}}.S{{f32}}", "d:D, a:S", "cvt.float"),
        (f".ROUND{{rm,rp}}{_FTZ}{_ZERO}.D{{bf16}}.S{{f32}}", "d:D, a:S", "cvt.float"),
        (f".ROUND{{rn,rz}}.FTZ{{ftz}}{_ZERO}.D{{bf16}}.S{{f32}}", "d:D, a:S", "cvt.float"),
    ):
        yield _of_rubin(words, operands, meaning)


_ZERO = ".ZERO{pzo}"
"""No result is -0."""


def _cvt(
    words: str, operands: str, meaning: str, ptx: Version = (1, 0), sm: int = 0, only: Specific = ()
) -> PatternRow:
    return row(f"cvt{words}", operands, _CVT, ptx, sm, meaning, only)


def _of_rubin(words: str, operands: str, meaning: str) -> PatternRow:
    return _cvt(words, operands, meaning, (9, 4), 107, RUBIN)


_CONVERSION_ROWS = (
    # 9.7.9.21  between integers
    _cvt(f".D{{{_INT}}}.S{{{_INT}}}", "d:D+, a:S+%", "cvt.integer"),
    *(_cvt(f".SAT{{sat}}.D{{{d}}}.S{{{s}}}", "d:D+, a:S+%", "cvt.integer") for d, s in _clamping()),
    # floats to integers
    _cvt(f".{_WHOLE}{_FTZ}{{.sat}}.D{{{_INT}}}.S{{f32}}", "d:D+, a:S", "cvt.to_integer"),
    _cvt(f".{_WHOLE}{{.sat}}.D{{{_INT}}}.S{{f16,f64}}", "d:D+, a:S", "cvt.to_integer"),
    _cvt(f".{_WHOLE}.D{{{_INT}}}.S{{bf16}}", "d:D, a:S", "cvt.to_integer", (7, 8), 90),
    # integers to floats
    _cvt(f".{_ROUND}{_SAT}.D{{f16,f64}}.S{{{_INT}}}", "d:D, a:S+", "cvt.from_integer"),
    _cvt(f".{_ROUND}{{.ftz}}{_SAT}.D{{f32}}.S{{{_INT}}}", "d:D, a:S+", "cvt.from_integer"),
    _cvt(f".{_ROUND}.D{{bf16}}.S{{{_INT}}}", "d:D, a:S", "cvt.from_integer", (7, 8), 90),
    # between floats
    *(
        _cvt(spelling, "d:D, a:S", "cvt.float", ptx, sm)
        for spelling, ptx, sm in (
            (f".{_ROUND}{_FTZ}{_SAT}.D{{f32}}.S{{f64}}", (1, 0), 0),
            (f"{_FTZ}{_SAT}.D{{f64}}.S{{f32}}", (1, 0), 0),
            (f"{_ANY_WHOLE}{_FTZ}{_SAT}.D{{f32}}.S{{f32}}", (1, 0), 0),
            (f"{_ANY_WHOLE}{_SAT}.D{{f64}}.S{{f64}}", (1, 0), 0),
            (f"{_ANY_WHOLE}{_SAT}.D{{f16}}.S{{f16}}", (1, 0), 0),
            (f"{_FTZ}{_SAT}.D{{f32}}.S{{f16}}", (1, 0), 0),
            (f"{_SAT}.D{{f64}}.S{{f16}}", (1, 0), 0),
            (f".{_ROUND}{_FTZ}{_SAT}.D{{f16}}.S{{f32}}", (1, 0), 0),
            (f".{_ROUND}{_SAT}.D{{f16}}.S{{f64}}", (1, 0), 0),
            (".ROUND{rn,rz}.RELU{relu}.D{f16}.S{f32}", (7, 0), 80),
            (f".ROUND{{rn,rz}}{_RELU}.D{{bf16}}.S{{f32}}", (7, 0), 80),
            (f".ROUND{{rm,rp}}{_FTZ}.D{{bf16}}.S{{f32}}", (7, 0), 80),
            (".ROUND{rn,rz}.FTZ{ftz}.D{bf16}.S{f32}", (7, 0), 80),
            (f".ROUND{{rn,rz}}.{_FINITE}.D{{f16}}.S{{f32}}", (8, 1), 0),
            (f".ROUND{{rn,rz}}.{_FINITE}.RELU{{relu}}.D{{f16}}.S{{f32}}", (8, 1), 80),
            (f".ROUND{{rn,rz}}.{_FINITE}{_RELU}.D{{bf16}}.S{{f32}}", (8, 1), 80),
            (f"{_ANY_ROUND}.D{{f32}}.S{{bf16}}", (7, 1), 80),
            (f"{_ANY_ROUND}.FTZ{{ftz}}.D{{f32}}.S{{bf16}}", (7, 8), 90),
            (f"{_ANY_ROUND}.D{{f64}}.S{{bf16}}", (7, 8), 90),
            (f"{_ANY_ROUND}.D{{f16}}.S{{bf16}}", (7, 8), 90),
            (f"{_ANY_ROUND}.D{{bf16}}.S{{f16}}", (7, 8), 90),
            (f".{_ROUND}.D{{bf16}}.S{{f64}}", (7, 8), 90),
            (f"{_ANY_WHOLE}.D{{bf16}}.S{{bf16}}", (7, 8), 90),
        )
    ),
    # two f32 to a pair of halves
    *(
        _cvt(f".ROUND{{{modes}}}{rest}.D{{{to}}}.S{{f32}}", operands, "cvt.pair", ptx, sm, only)
        for to in ("f16x2", "bf16x2")
        for modes, rest, operands, ptx, sm, only in (
            ("rn,rz", _RELU, "d:D, a:S, b:S", (7, 0), 80, ()),
            ("rn,rz", f".{_FINITE}{_RELU}", "d:D, a:S, b:S", (8, 1), 80, ()),
            ("rs", f"{_RELU}{_MAY}", "d:D, a:S, b:S, r:rbits", (8, 7), 100, _STOCHASTIC),
        )
    ),
    # tf32
    *(
        _cvt(f".ROUND{{{rest}.D{{tf32}}.S{{f32}}", "d:D, a:S", "cvt.tf32", ptx, sm)
        for rest, ptx, sm in (
            ("rna}", (7, 0), 80),
            (f"rn,rz}}{_RELU}", (7, 8), 90),
            (f"rna}}.{_FINITE}", (8, 1), 80),
            (f"rn,rz}}.{_FINITE}{_RELU}", (8, 6), 100),
        )
    ),
    # pairs of 8, 6 and 4 bits, and of scales
    *(
        _cvt(f".ROUND{{rn}}.{_FINITE}{_RELU}.D{{{d}}}.S{{{s}}}", operands, "cvt.narrow", ptx, sm, only)
        for d, s, operands, ptx, sm, only in (
            (_FP8, "f32", "d:D, a:S, b:S", (8, 1), 89, ()),
            (_FP8, "f16x2", "d:D, a:S", (8, 1), 89, ()),
            (f"{_FP6},{_FP4}", "f32", "d:D, a:S, b:S", (8, 6), 100, BLACKWELL),
            (f"{_FP6},{_FP4}", "f16x2", "d:D, a:S", (9, 1), 100, blackwell((9, 1))),
            (f"{_FP8},{_FP6},{_FP4}", "bf16x2", "d:D, a:S", (9, 1), 100, blackwell((9, 1))),
        )
    ),
    *_rubin_conversions(),
    # 9.7.9.21  numbers of 8 bits, 6 of them behind the point
    *(
        _cvt(
            f".ROUND{{{mode}}}{finite}{_RELU}{scale}.D{{{d}}}.S{{{s}}}",
            operands + more,
            "cvt.fixed" if d == "s2f6x2" else "cvt.widen",
            only[0][1],
            100,
            only,
        )
        for mode, d, s, operands, finite, only in (
            ("rn", "s2f6x2", "f32", "d:D, a:S, b:S", ".FINITE{satfinite}", _FIXED),
            ("rn", "s2f6x2", "bf16x2", "d:D, a:S", ".FINITE{satfinite}", _FIXED),
            ("rn", "bf16x2", "s2f6x2", "d:D, a:S", "{FINITE=.satfinite}", _FIXED),
            ("rz", "s2f6x2", "f32", "d:D, a:S, b:S", ".FINITE{satfinite}", _RUBIN),
            ("rz", "s2f6x2", "bf16x2", "d:D, a:S", ".FINITE{satfinite}", _RUBIN),
        )
        for scale, more in (("", ""), (_SCALED, ", e:ue8m0x2"))
    ),
    *(
        _cvt(f".ROUND{{rz,rp}}{_MAY}.D{{ue8m0x2}}.S{{{s}}}", operands, "cvt.scale", (8, 6), 100, BLACKWELL)
        for s, operands in (("f32", "d:D, a:S, b:S"), ("bf16x2", "d:D, a:S"))
    ),
    _cvt(f".rn{_RELU}.D{{f16x2}}.S{{{_FP8}}}", "d:D, a:S", "cvt.widen", (8, 1), 89),
    _cvt(f".rn{_RELU}.D{{f16x2}}.S{{{_FP6},{_FP4}}}", "d:D, a:S", "cvt.widen", (8, 6), 100, BLACKWELL),
    *(
        _cvt(
            f".rn{_RELU}{_MAY}{scale}.D{{bf16x2}}.S{{{_FP8},{_FP6},{_FP4}}}",
            f"d:D, a:S{more}",
            "cvt.widen",
            (9, 2),
            100,
            blackwell((9, 2)),
        )
        for scale, more in (("", ""), (_SCALED, ", e:ue8m0x2"))
    ),
    _cvt(".rn.D{bf16x2}.S{ue8m0x2}", "d:D, a:S", "cvt.widen", (8, 6), 100, BLACKWELL),
    _cvt(
        f".rs.satfinite{_RELU}.D{{e4m3x4,e5m2x4,e2m3x4,e3m2x4,e2m1x4}}.S{{f32}}",
        "d:D, a:4*S, r:rbits",
        "cvt.four",
        (8, 7),
        100,
        _STOCHASTIC,
    ),
    # 9.7.9.22  cvt.pack
    *(
        row(f"cvt.pack.sat.D{{{types}}}.s32{above}", f"d:b32, a:s32, b:s32{more}", "9.7.9.22", (6, 5), sm, "cvt.pack")
        for types, above, more, sm in (
            ("u16,s16", "", "", 72),
            ("u8,s8", ".b32", ", c:b32", 72),
            ("u4,s4,u2,s2", ".b32", ", c:b32", 75),
        )
    ),
)

_FUNDAMENTAL = re.compile(r"cvt.*\.D\{([usf]\d+(x2)?[,}])+\.S\{([usf]\d+[,}])+")


def _widened(line: PatternRow) -> PatternRow:
    """The row with registers that may be wider than its types. Only bf16, tf32 and narrow floats do not allow that
    (9.4.1)."""
    if not _FUNDAMENTAL.fullmatch(line.pattern):
        return line
    return replace(line, notation=re.sub(r":([DS])(?=,|$)", r":\1+", line.notation))


CONVERSION_ROWS = pure(map(_widened, _CONVERSION_ROWS))
