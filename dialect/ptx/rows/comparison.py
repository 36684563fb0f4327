"""Comparison and selection. Source: PTX ISA 9.7.6, 9.7.7 (half)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from ...isa.targets import Version
from .grammar import Row, pure, row

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


def _setp(comparisons: str, types: str, ftz: str, section: str, ptx: Version = (1, 0), sm: int = 0) -> tuple[Row, Row]:
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
) -> tuple[Row, Row]:
    """`set` plain, and combined with a predicate."""
    end = f"{ftz}.D{{{results}}}.T{{{types}}}"
    return (
        row(f"set.IS{{{comparisons}}}{end}", "d:D, a:T, b:T", section, ptx=ptx, sm=sm),
        row(f"set.IS{{{comparisons}}}{_BOOLEAN}{end}", "d:D, a:T, b:T, c:!pred", section, ptx=ptx, sm=sm),
    )


_ROWS = (
    # 9.7.6.1  set
    *_set(_BITS, "b16,b32,b64", "", "9.7.6.1"),
    *_set(_SIGNED, "s16,s32,s64", "", "9.7.6.1"),
    *_set(_UNSIGNED, "u16,u32,u64", "", "9.7.6.1"),
    *_set(_FLOAT, "f32", "{FTZ=.ftz}", "9.7.6.1"),
    *_set(_FLOAT, "f64", "", "9.7.6.1"),
    # 9.7.6.2  setp
    *_setp(_BITS, "b16,b32,b64", "", "9.7.6.2"),
    *_setp(_SIGNED, "s16,s32,s64", "", "9.7.6.2"),
    *_setp(_UNSIGNED, "u16,u32,u64", "", "9.7.6.2"),
    *_setp(_FLOAT, "f32", "{FTZ=.ftz}", "9.7.6.2"),
    *_setp(_FLOAT, "f64", "", "9.7.6.2"),
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
    # 9.7.7.2  setp, half
    *_setp(_FLOAT, "f16", "{FTZ=.ftz}", "9.7.7.2", ptx=(4, 2), sm=53),
    *_setp(_FLOAT, "f16x2", "{FTZ=.ftz}", "9.7.7.2", ptx=(4, 2), sm=53),
    *_setp(_FLOAT, "bf16", "", "9.7.7.2", ptx=(7, 8), sm=90),
    *_setp(_FLOAT, "bf16x2", "", "9.7.7.2", ptx=(7, 8), sm=90),
)

ROWS = pure(_ROWS)
