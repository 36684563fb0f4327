"""Rows of arithmetic, logic, comparison and selection. Source: PTX ISA 9.7.1 to 9.7.8, 9.7.18."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ...isa.row import Specific, Version
from .grammar import PatternRow, alike, pure, row

# Integer arithmetic, logic and shifts. Source: PTX ISA 9.7.1, 9.7.2, 9.7.8.

_PACKED: Specific = (("sm_107f", (9, 4)), ("sm_120f", (9, 2)))
"""Where bytes are added, and unsigned sums clamped."""

RUBIN: Specific = (("sm_107f", (9, 4)),)
"""What the family of sm_107 alone has."""

of_rubin = partial(row, ptx=(9, 4), sm=107, only=RUBIN)
_of_packed = partial(row, ptx=(9, 2), sm=107, only=_PACKED)

_BYTES = (
    # 9.7.1  Four bytes at a time
    *alike({"add": "9.7.1.1", "sub": "9.7.1.2"}, _of_packed("{SAT=.sat}.T{u8x4,s8x4}", "d:T, a:T, b:T")),
    _of_packed("add.SAT{sat}.T{u16x2,s16x2}", "d:T, a:T, b:T", "9.7.1.1"),
    _of_packed("add.SAT{sat}.T{u32}", "d:T, a:T, b:T", "9.7.1.1"),
    _of_packed("neg.T{s8x4}", "d:T, a:T", "9.7.1.11", meaning="neg.packed"),
    *alike(
        {"min": "9.7.1.12", "max": "9.7.1.13"},
        _of_packed(".T{u8x4,s8x4}", "d:T, a:T, b:T"),
        _of_packed(".RELU{relu}.T{s8x4}", "d:T, a:T, b:T"),
    ),
)

_ARITHMETIC = (
    # 9.7.1  Integer arithmetic
    row("add.T{u16,u32,u64,s16,s32,s64}", "d:T, a:T, b:T", "9.7.1.1"),
    row("add.SAT{sat}.T{s32}", "d:T, a:T, b:T", "9.7.1.1"),
    row("add.T{u16x2,s16x2}", "d:T, a:T, b:T", "9.7.1.1", ptx=(8, 0), sm=90),
    row("sub.T{u16,u32,u64,s16,s32,s64}", "d:T, a:T, b:T", "9.7.1.2"),
    row("sub.SAT{sat}.T{s32}", "d:T, a:T, b:T", "9.7.1.2"),
    row("mul.PART{lo,hi}.T{u16,u32,u64,s16,s32,s64}", "d:T, a:T, b:T", "9.7.1.3"),
    row("mul.PART{wide}.T{u16,u32,s16,s32}", "d:2T, a:T, b:T", "9.7.1.3"),
    row("mad.PART{lo,hi}.T{u16,u32,u64,s16,s32,s64}", "d:T, a:T, b:T, c:T", "9.7.1.4"),
    row("mad.PART{wide}.T{u16,u32,s16,s32}", "d:2T, a:T, b:T, c:2T", "9.7.1.4"),
    row("mad.PART{hi}.SAT{sat}.T{s32}", "d:T, a:T, b:T, c:T", "9.7.1.4"),
    row("clmad.PART{lo,hi}.T{u64}", "d:T, a:T, b:T, c:T", "9.7.1.5", ptx=(9, 3), sm=80, text=(9, 4)),
    row("mul24.PART{lo,hi}.T{u32,s32}", "d:T, a:T, b:T", "9.7.1.5"),
    row("mad24.PART{lo,hi}.T{u32,s32}", "d:T, a:T, b:T, c:T", "9.7.1.6"),
    row("mad24.PART{hi}.SAT{sat}.T{s32}", "d:T, a:T, b:T, c:T", "9.7.1.6"),
    row("sad.T{u16,u32,u64,s16,s32,s64}", "d:T, a:T, b:T, c:T", "9.7.1.7"),
    row("div.T{u16,u32,u64,s16,s32,s64}", "d:T, a:T, b:T", "9.7.1.8"),
    row("rem.T{u16,u32,u64,s16,s32,s64}", "d:T, a:T, b:T", "9.7.1.9"),
    row("abs.T{s16,s32,s64}", "d:T, a:T", "9.7.1.10"),
    row("neg.T{s16,s32,s64}", "d:T, a:T", "9.7.1.11"),
    *alike(
        {"min": "9.7.1.12", "max": "9.7.1.13"},
        row(".T{u16,u32,u64,s16,s32,s64}", "d:T, a:T, b:T"),
        row(".T{u16x2,s16x2}", "d:T, a:T, b:T", ptx=(8, 0), sm=90),
        row(".RELU{relu}.T{s16x2,s32}", "d:T, a:T, b:T", ptx=(8, 0), sm=90),
    ),
    row("popc.T{b32,b64}", "d:u32, a:T", "9.7.1.14", ptx=(2, 0), sm=20),
    row("clz.T{b32,b64}", "d:u32, a:T", "9.7.1.15", ptx=(2, 0), sm=20),
    row("bfind{SHIFT=.shiftamt}.T{u32,u64,s32,s64}", "d:u32, a:T", "9.7.1.16", ptx=(2, 0), sm=20),
    row("fns.T{b32}", "d:T, a:T, b:T, c:T", "9.7.1.17", ptx=(6, 0), sm=30),
    row("brev.T{b32,b64}", "d:T, a:T", "9.7.1.18", ptx=(2, 0), sm=20),
    row("bfe.T{u32,u64,s32,s64}", "d:T, a:T, b:u32(0..255), c:u32(0..255)", "9.7.1.19", ptx=(2, 0), sm=20),
    row("bfi.T{b32,b64}", "d:T, a:T, b:T, c:u32(0..255), n:u32(0..255)", "9.7.1.20", ptx=(2, 0), sm=20),
    row("bmsk.RANGE{clamp,wrap}.b32", "d:b32, a:u32, b:u32", "9.7.1.22", ptx=(7, 6), sm=70),
    row("szext.RANGE{clamp,wrap}.T{u32,s32}", "d:T, a:T, b:u32", "9.7.1.21", ptx=(7, 6), sm=70),
    row("dp2a.HALF{lo,hi}.A{u32,s32}.B{u32,s32}", "d:s32, a:A, b:B, c:s32", "9.7.1.24", ptx=(5, 0), sm=61),
    row("dp4a.A{u32,s32}.B{u32,s32}", "d:s32, a:A, b:B, c:s32", "9.7.1.23", ptx=(5, 0), sm=61),
)


def _carries(root: str, section: int, ptx: Version, sm: int = 0, part: str = "") -> Iterator[PatternRow]:
    """What gives a carry, and what takes one; ptxas takes more of the latter than the text has."""
    operands = f"d:T, a:T, b:T{', c:T' if part else ''}"
    gives, takes = f"{root}{part}.CC{{cc}}", f"{root}c{part}{{CC=.cc}}"
    for head, number, meaning in ((gives, section, f"{root}.cc"), (takes, section + 1, f"{root}c")):
        for types, since in (("u32,s32", ptx), ("u64,s64", (4, 3))):
            yield row(f"{head}.T{{{types}}}", operands, f"9.7.2.{number}", since, sm, meaning)
    for words in (f"{part}.T{{u16,s16}}", f"{part.replace('lo,', '')}.sat.T{{s32}}"):
        yield row(f"{root}c{words}", operands, f"9.7.2.{section + 1}", ptx, sm, "carry.untold")


_CARRY = (
    # 9.7.2  Extended-precision integer arithmetic
    *_carries("add", 1, (1, 2)),
    *_carries("sub", 3, (3, 0)),
    *_carries("mad", 5, (3, 0), 20, ".PART{lo,hi}"),
)

_LOGIC = (
    # 9.7.8  Logic and shift
    *alike({"and": "9.7.8.1", "or": "9.7.8.2", "xor": "9.7.8.3"}, row(".T{b16,b32,b64,pred}", "d:T, a:T, b:T")),
    row("not.T{b16,b32,b64,pred}", "d:T, a:T", "9.7.8.4"),
    row("cnot.T{b16,b32,b64}", "d:T, a:T", "9.7.8.5"),
    row("lop3.T{b32}", "d:T_, a:T, b:T, c:T, n:imm", "9.7.8.6", ptx=(4, 3), sm=50),
    row("lop3.OP{and,or}.T{b32}", "d||p:T_, a:T, b:T, c:T, n:imm, q:!pred", "9.7.8.6", ptx=(8, 2), sm=70),
    row("shf.TO{l,r}.RANGE{clamp,wrap}.T{b32}", "d:T, a:T, b:T, c:u32", "9.7.8.7", ptx=(3, 1), sm=32),
    row("shl.T{b16,b32,b64}", "d:T, a:T, b:u32", "9.7.8.8"),
    row("shr.T{b16,b32,b64,u16,u32,u64,s16,s32,s64}", "d:T, a:T, b:u32", "9.7.8.9"),
)

INTEGER_ROWS = (*pure((*_ARITHMETIC, *_BYTES)), *_CARRY, *pure(_LOGIC))


# Floating-point arithmetic. Source: PTX ISA 9.7.3 (single and double), 9.7.4 (half), 9.7.5 (mixed precision).

_FLOATING_ROWS = (
    # 9.7.3  f32 and f64
    row(
        "testp.TEST{finite,infinite,number,notanumber,normal,subnormal}.T{f32,f64}",
        "d:pred, a:T",
        "9.7.3.1",
        ptx=(2, 0),
        sm=20,
    ),
    row("copysign.T{f32,f64}", "d:T, a:T, b:T", "9.7.3.2", ptx=(2, 0), sm=20),
    *alike(
        {"add": "9.7.3.3", "sub": "9.7.3.4", "mul": "9.7.3.5"},
        row("{ROUND=.rn,.rz,.rm,.rp}{FTZ=.ftz}{SAT=.sat}.T{f32}", "d:T, a:T, b:T", sm=20),
        row("{ROUND=.rn,.rz,.rm,.rp}.T{f64}", "d:T, a:T, b:T", sm=20),
        row("{ROUND=.rn,.rz,.rm,.rp}{FTZ=.ftz}.T{f32x2}", "d:T, a:T, b:T", ptx=(8, 6), sm=100),
    ),
    row("fma.ROUND{rn,rz,rm,rp}{FTZ=.ftz}{SAT=.sat}.T{f32}", "d:T, a:T, b:T, c:T", "9.7.3.6", ptx=(2, 0), sm=20),
    row("fma.ROUND{rn,rz,rm,rp}.T{f64}", "d:T, a:T, b:T, c:T", "9.7.3.6", ptx=(1, 4), sm=20),
    row("fma.ROUND{rn,rz,rm,rp}{FTZ=.ftz}.T{f32x2}", "d:T, a:T, b:T, c:T", "9.7.3.6", ptx=(8, 6), sm=100),
    row("mad.ROUND{rn,rz,rm,rp}{FTZ=.ftz}{SAT=.sat}.T{f32}", "d:T, a:T, b:T, c:T", "9.7.3.7", ptx=(2, 0), sm=20),
    row("mad.ROUND{rn,rz,rm,rp}.T{f64}", "d:T, a:T, b:T, c:T", "9.7.3.7", ptx=(1, 4), sm=20),
    row("div.MODE{approx,full}{FTZ=.ftz}.T{f32}", "d:T, a:T, b:T", "9.7.3.8", ptx=(1, 4)),
    row("div.ROUND{rn,rz,rm,rp}{FTZ=.ftz}.T{f32}", "d:T, a:T, b:T", "9.7.3.8", ptx=(1, 4), sm=20),
    row("div.ROUND{rn,rz,rm,rp}.T{f64}", "d:T, a:T, b:T", "9.7.3.8", ptx=(1, 4), sm=20),
    *alike({"abs": "9.7.3.9", "neg": "9.7.3.10"}, row("{FTZ=.ftz}.T{f32}", "d:T, a:T"), row(".T{f64}", "d:T, a:T")),
    *alike(
        {"min": "9.7.3.11", "max": "9.7.3.12"},
        row("{FTZ=.ftz}.T{f32}", "d:T, a:T, b:T"),
        row("{FTZ=.ftz}.NAN{NaN}.T{f32}", "d:T, a:T, b:T", ptx=(7, 0), sm=80),
        row("{FTZ=.ftz}{NAN=.NaN}.SIGN{xorsign}.ABS{abs}.T{f32}", "d:T, a:T, b:T", ptx=(7, 2), sm=86),
        row("{FTZ=.ftz}{NAN=.NaN}{ABS=.abs}.T{f32}", "d:T, a:T, b:T, c:T", ptx=(8, 8), sm=100),
        row(".T{f64}", "d:T, a:T, b:T"),
    ),
    row("rcp.approx{FTZ=.ftz}.T{f32}", "d:T, a:T", "9.7.3.13", ptx=(1, 4)),
    row("rcp.ROUND{rn,rz,rm,rp}{FTZ=.ftz}.T{f32}", "d:T, a:T", "9.7.3.13", ptx=(1, 4), sm=20),
    row("rcp.ROUND{rn,rz,rm,rp}.T{f64}", "d:T, a:T", "9.7.3.13", ptx=(1, 4), sm=20),
    row("rcp.approx.FTZ{ftz}.T{f64}", "d:T, a:T", "9.7.3.14", ptx=(2, 1), sm=20),
    row("sqrt.approx{FTZ=.ftz}.T{f32}", "d:T, a:T", "9.7.3.15", ptx=(1, 4)),
    row("sqrt.ROUND{rn,rz,rm,rp}{FTZ=.ftz}.T{f32}", "d:T, a:T", "9.7.3.15", ptx=(1, 4), sm=20),
    row("sqrt.ROUND{rn,rz,rm,rp}.T{f64}", "d:T, a:T", "9.7.3.15", ptx=(1, 4), sm=20),
    row("rsqrt.approx{FTZ=.ftz}.T{f32}", "d:T, a:T", "9.7.3.16", ptx=(1, 4)),
    row("rsqrt.approx.T{f64}", "d:T, a:T", "9.7.3.16", ptx=(1, 4), sm=20),
    row("rsqrt.approx.FTZ{ftz}.T{f64}", "d:T, a:T", "9.7.3.17", ptx=(4, 0), sm=20),
    row("sin.approx{FTZ=.ftz}.T{f32}", "d:T, a:T", "9.7.3.18", ptx=(1, 4)),
    row("cos.approx{FTZ=.ftz}.T{f32}", "d:T, a:T", "9.7.3.19", ptx=(1, 4)),
    *alike({"sin": "9.7.3.18", "cos": "9.7.3.19"}, row(".approx.UNIT{2pi}.FTZ{ftz}.T{f32}", "d:T, a:T", ptx=(9, 5))),
    row("lg2.approx{FTZ=.ftz}.T{f32}", "d:T, a:T", "9.7.3.20", ptx=(1, 4)),
    row("ex2.approx{FTZ=.ftz}.T{f32}", "d:T, a:T", "9.7.3.21", ptx=(1, 4)),
    row("tanh.approx.T{f32}", "d:T, a:T", "9.7.3.22", ptx=(7, 0), sm=75),
    # 9.7.5  f32 with operands of 16 bits
    *(
        row(f"{root}{words}.D{{f32}}.T{{f16,bf16}}", operands, section, (8, 6), 100, f"{root}.mixed")
        for root, words, operands, section in (
            ("add", "{ROUND=.rn,.rz,.rm,.rp}{SAT=.sat}", "d:D, a:T, c:D", "9.7.5.1"),
            ("sub", "{ROUND=.rn,.rz,.rm,.rp}{SAT=.sat}", "d:D, a:T, c:D", "9.7.5.2"),
            ("fma", ".ROUND{rn,rz,rm,rp}{SAT=.sat}", "d:D, a:T, b:T, c:D", "9.7.5.3"),
        )
    ),
    # 9.7.4  f16, bf16 and their pairs
    *alike(
        {"add": "9.7.4.1", "sub": "9.7.4.2", "mul": "9.7.4.3"},
        row("{ROUND=.rn}{FTZ=.ftz}{SAT=.sat}.T{f16,f16x2}", "d:T, a:T, b:T", ptx=(4, 2), sm=53),
        row("{ROUND=.rn}.T{bf16,bf16x2}", "d:T, a:T, b:T", ptx=(7, 8), sm=90),
    ),
    row("fma.ROUND{rn}{FTZ=.ftz}{SAT=.sat}.T{f16,f16x2}", "d:T, a:T, b:T, c:T", "9.7.4.4", ptx=(4, 2), sm=53),
    row("fma.ROUND{rn}{FTZ=.ftz}.RELU{relu}.T{f16,f16x2}", "d:T, a:T, b:T, c:T", "9.7.4.4", ptx=(7, 0), sm=80),
    row("fma.ROUND{rn}{RELU=.relu}.T{bf16,bf16x2}", "d:T, a:T, b:T, c:T", "9.7.4.4", ptx=(7, 0), sm=80),
    row(
        "fma.ROUND{rn}.oob{RELU=.relu}.T{f16,f16x2,bf16,bf16x2}", "d:T, a:T, b:T, c:T", "9.7.4.4", (8, 1), 90, "fma.oob"
    ),
    *(
        row(f"fma.ROUND{{rz,rm,rp}}{words}.T{{bf16,bf16x2}}", "d:T, a:T, b:T, c:T", "9.7.4.4", ptx, sm, "fma.untold")
        for words, ptx, sm in (("{RELU=.relu}", (7, 0), 80), (".oob{RELU=.relu}", (8, 1), 90))
    ),
    row("neg{FTZ=.ftz}.T{f16,f16x2}", "d:T, a:T", "9.7.4.5", ptx=(6, 0), sm=53),
    row("neg.T{bf16,bf16x2}", "d:T, a:T", "9.7.4.5", ptx=(7, 0), sm=80),
    row("abs{FTZ=.ftz}.T{f16,f16x2}", "d:T, a:T", "9.7.4.6", ptx=(6, 5), sm=53),
    row("abs.T{bf16,bf16x2}", "d:T, a:T", "9.7.4.6", ptx=(7, 0), sm=80),
    *alike(
        {"min": "9.7.4.7", "max": "9.7.4.8"},
        row("{FTZ=.ftz}{NAN=.NaN}.T{f16,f16x2}", "d:T, a:T, b:T", ptx=(7, 0), sm=80),
        row("{FTZ=.ftz}{NAN=.NaN}.SIGN{xorsign}.ABS{abs}.T{f16,f16x2}", "d:T, a:T, b:T", ptx=(7, 2), sm=86),
        row("{NAN=.NaN}.T{bf16,bf16x2}", "d:T, a:T, b:T", ptx=(7, 0), sm=80),
        row("{NAN=.NaN}.SIGN{xorsign}.ABS{abs}.T{bf16,bf16x2}", "d:T, a:T, b:T", ptx=(7, 2), sm=86),
    ),
    row("tanh.approx.T{f16,f16x2}", "d:T, a:T", "9.7.4.9", ptx=(7, 0), sm=75),
    row("tanh.approx.T{bf16,bf16x2}", "d:T, a:T", "9.7.4.9", ptx=(7, 8), sm=90),
    row("ex2.approx.T{f16,f16x2}", "d:T, a:T", "9.7.4.10", ptx=(7, 0), sm=75),
    row("ex2.approx.FTZ{ftz}.T{bf16,bf16x2}", "d:T, a:T", "9.7.4.10", ptx=(7, 8), sm=90),
)

_PAIRS = "f16x2,bf16x2"
_SMALL = "e4m3x4,e5m2x4,e2m3x4,e3m2x4,e2m1x4,e2m1p4x4,ue8m0x4"
_FOURS: Specific = (("sm_100a", (9, 4)), ("sm_103a", (9, 4)))
_FULL = "f32x2"

_MIXED_ROWS = (
    # 9.7.5  Pairs of one width with pairs of another
    *(
        of_rubin(spelling, operands, section, meaning=meaning)
        for root, section in (("add", "9.7.5.1"), ("sub", "9.7.5.2"))
        for spelling, operands, meaning in (
            (f"{root}{{ROUND=.rn,.rz,.rm,.rp}}.D{{{_FULL}}}.T{{{_PAIRS}}}.C{{{_FULL}}}", "d:D, a:T, c:C",
             f"{root}.mixed"),
            (f"{root}.ROUND{{rz}}.FTZ{{ftz}}.D{{f16x2}}.T{{{_FULL}}}.C{{{_FULL}}}", "d:D, a:T, c:C", f"{root}.down"),
            (f"{root}.ROUND{{rz}}.D{{bf16x2}}.T{{{_FULL}}}.C{{{_FULL}}}", "d:D, a:T, c:C", f"{root}.down"),
        )
    ),
    *(
        of_rubin(spelling, operands, "9.7.5.4", meaning=meaning, text=(9, 4))
        for spelling, operands, meaning in (
            (f"mul.ROUND{{rz}}.FTZ{{ftz}}.D{{f16x2}}.T{{{_FULL}}}.C{{{_FULL}}}", "d:D, a:T, c:C", "mul.down"),
            (f"mul.ROUND{{rz}}.D{{bf16x2}}.T{{{_FULL}}}.C{{{_FULL}}}", "d:D, a:T, c:C", "mul.down"),
            ("mul.D{f16x2}.T{f16x2}.C{bf16x2}", "d:D, a:T, c:C", "mul.halves"),
            ("mul.D{bf16x2}.T{bf16x2}.C{f16x2}", "d:D, a:T, c:C", "mul.halves"),
        )
    ),
    of_rubin(f"fma.ROUND{{rn,rz,rm,rp}}.D{{{_FULL}}}.T{{{_PAIRS}}}.B{{{_FULL}}}.C{{{_FULL}}}", "d:D, a:T, b:B, c:C",
             "9.7.5.3", meaning="fma.mixed"),
    # 9.7.6 of PTX 9.4  Floats of 8, 6 and 4 bits, four at a time
    *(
        row(f"{root}{{.rn}}{{.satfinite}}.D{{e4m3x4,e5m2x4}}{types}", operands, section, ptx=(9, 4), sm=100,
            only=_FOURS, meaning="fours", text=(9, 4))
        for root, types, operands, section in (
            ("add", f".A{{{_SMALL}}}", "d:D, a:A, c:D", "9.7.6.1"),
            ("sub", f".A{{{_SMALL}}}", "d:D, a:A, c:D", "9.7.6.2"),
            ("mul", f".A{{{_SMALL}}}.B{{{_SMALL}}}", "d:D, a:A, b:B", "9.7.6.3"),
            ("fma", f".A{{{_SMALL}}}.B{{{_SMALL}}}", "d:D, a:A, b:B, c:D", "9.7.6.4"),
        )
    ),
)  # fmt: skip

FLOATING_ROWS = pure(r if r.meaning else replace(r, meaning=f"{r.root}.float") for r in (*_FLOATING_ROWS, *_MIXED_ROWS))
"""The names of what they mean differ from those of the integer instructions with the same first word."""


# Comparison and selection. Source: PTX ISA 9.7.6, 9.7.7 (half).

COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
"""What the words compute of numbers, or of arrays of them."""
UNSIGNED: Mapping[str, Callable[[Any, Any], Any]] = {
    "lo": operator.lt,
    "ls": operator.le,
    "hi": operator.gt,
    "hs": operator.ge,
}
"""Further words, for unsigned numbers alone."""

_BITS = "eq,ne"
_SIGNED = ",".join(COMPARISONS)
_UNSIGNED = ",".join((_SIGNED, *UNSIGNED))
_FLOAT = f"{_SIGNED},equ,neu,ltu,leu,gtu,geu,num,nan"
_BOOLEAN = ".OP{and,or,xor}"
_COMPARED = (
    (_BITS, "b16,b32,b64", ""),
    (_SIGNED, "s16,s32,s64", ""),
    (_UNSIGNED, "u16,u32,u64", ""),
    (_FLOAT, "f32", "{FTZ=.ftz}"),
    (_FLOAT, "f64", ""),
)
"""The comparisons of each class of types, and whether they flush subnormal numbers."""


def _setp(
    comparisons: str, types: str, ftz: str, section: str, ptx: Version = (1, 0), sm: int = 0
) -> tuple[PatternRow, PatternRow]:
    """`setp` plain, and combined with a third predicate; of numbers of 16 bits it has no second result."""
    plain, combined = f"setp.IS{{{comparisons}}}", f"setp.IS{{{comparisons}}}{_BOOLEAN}"
    half, packed = section == "9.7.7.2", types.endswith("x2")
    two = "d||q_:pred_" if packed else "d:pred_" if half else "d|q_:pred_"
    return (
        row(f"{plain}{ftz}.T{{{types}}}", f"{two}, a:T, b:T", section, ptx=ptx, sm=sm),
        row(f"{combined}{ftz}.T{{{types}}}", f"{two}, a:T, b:T, c:!pred", section, ptx=ptx, sm=sm),
    )


def _set(
    comparisons: str,
    types: str,
    ftz: str,
    section: str,
    results: str = "u32,s32,f32",
    ptx: Version = (1, 0),
    sm: int = 0,
) -> tuple[PatternRow, PatternRow]:
    """`set` plain, and combined with a predicate."""
    end = f"{ftz}.D{{{results}}}.T{{{types}}}"
    return (
        row(f"set.IS{{{comparisons}}}{end}", "d:D, a:T, b:T", section, ptx=ptx, sm=sm),
        row(f"set.IS{{{comparisons}}}{_BOOLEAN}{end}", "d:D, a:T, b:T, c:!pred", section, ptx=ptx, sm=sm),
    )


_COMPARISON_ROWS = (
    # 9.7.6.1  set
    *(line for words, types, ftz in _COMPARED for line in _set(words, types, ftz, "9.7.6.1")),
    *(
        of_rubin(f"set.IS{{{comparisons}}}.T{{{types}}}", "d:T, a:T, b:T", "9.7.6.1", meaning="set.packed")
        for comparisons, types in ((_SIGNED, "s8x4,s16x2"), (_UNSIGNED, "u8x4,u16x2"))
    ),
    # 9.7.6.2  setp
    *(line for words, types, ftz in _COMPARED for line in _setp(words, types, ftz, "9.7.6.2")),
    # 9.7.6.3  selp
    row("selp.T{b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64}", "d:T, a:T, b:T, c:!pred", "9.7.6.3"),
    # 9.7.6.4  slct
    row("slct.T{b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64}.C{s32}", "d:T, a:T, b:T, c:C", "9.7.6.4"),
    row("slct{FTZ=.ftz}.T{b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64}.C{f32}", "d:T, a:T, b:T, c:C", "9.7.6.4"),
    # 9.7.7.1  set, half
    *_set(_FLOAT, "f16", "{FTZ=.ftz}", "9.7.7.1", "f16", (4, 2), 53),
    *_set(_FLOAT, "f16", "{FTZ=.ftz}", "9.7.7.1", "u16,s16,u32,s32", (6, 5), 53),
    *_set(_FLOAT, "f16x2", "{FTZ=.ftz}", "9.7.7.1", "f16x2", (4, 2), 53),
    *_set(_FLOAT, "f16x2", "{FTZ=.ftz}", "9.7.7.1", "u32,s32", (6, 5), 53),
    *_set(_FLOAT, "bf16", "", "9.7.7.1", "bf16,u16,s16,u32,s32", (7, 8), 90),
    *_set(_FLOAT, "bf16x2", "", "9.7.7.1", "bf16x2,u32,s32", (7, 8), 90),
    *_set(_FLOAT, "f16", "", "9.7.7.1", "bf16", (7, 8), 90),
    *(
        line
        for result, ptx, sm in (("f16", (4, 2), 53), ("bf16", (7, 8), 90))
        for words, types, ftz in _COMPARED
        for line in _set(words, types, ftz if result == "f16" else "", "9.7.7.1", result, ptx, sm)
    ),
    # 9.7.7.2  setp, half
    *_setp(_FLOAT, "f16", "{FTZ=.ftz}", "9.7.7.2", ptx=(4, 2), sm=53),
    *_setp(_FLOAT, "f16x2", "{FTZ=.ftz}", "9.7.7.2", ptx=(4, 2), sm=53),
    *_setp(_FLOAT, "bf16", "", "9.7.7.2", ptx=(7, 8), sm=90),
    *_setp(_FLOAT, "bf16x2", "", "9.7.7.2", ptx=(7, 8), sm=90),
)

COMPARISON_ROWS = pure(_COMPARISON_ROWS)


# Video instructions: integers of parts of registers, one or several at a time. Source: PTX ISA 9.7.18.

_TYPES = ".D{u32,s32}.A{u32,s32}.B{u32,s32}"
_SAT = "{SAT=.sat}"
_COMPARE = f".CMP{{{','.join(COMPARISONS)}}}"


def _scalar(name: str, spelling: str, result: str, section: str) -> Iterator[PatternRow]:
    """One number: alone, in part of d beside the rest of c, or combined with c."""
    for operands, end in (
        (f"d:{result}, a:A@1, b:B@1", ""),
        (f"d:{result}@1, a:A@1, b:B@1, c:{result}", ""),
        (f"d:{result}, a:A@1, b:B@1, c:{result}", ".OP{add,min,max}"),
    ):
        yield row(f"{name}{spelling}{end}", operands, section, ptx=(2, 0), sm=20, meaning=f"video.{name}")


def _packed(name: str, parts: int, spelling: str, result: str, section: str) -> PatternRow:
    """A video instruction on 2 or 4 parts. The other parts of d come from c; with `.add` the result is summed with
    c."""
    operands = f"d:{result}@{parts}, a:A@{parts}, b:B@{parts}, c:{result}^"
    return row(f"{name}{parts}{spelling}", operands, section, ptx=(3, 0), sm=30, meaning=f"video.{name}{parts}")


_VIDEO_ROWS = (
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

VIDEO_ROWS = pure(_VIDEO_ROWS)
