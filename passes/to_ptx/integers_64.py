"""Operations on integers of 64 bits, as indices of tensors are: each is one `.b64` register."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, IntegerType
from xdsl.ir import Operation

from ...dialect.warp.attributes import type_name
from ..diagnostics import fail
from .functions import Instructions, Operand

SAME = {
    "arith.addi": "add.s64",
    "arith.subi": "sub.s64",
    "arith.muli": "mul.lo.s64",
    "arith.divsi": "div.s64",
    "arith.divui": "div.u64",
    "arith.remsi": "rem.s64",
    "arith.remui": "rem.u64",
    "arith.maxsi": "max.s64",
    "arith.maxui": "max.u64",
    "arith.minsi": "min.s64",
    "arith.minui": "min.u64",
    "arith.andi": "and.b64",
    "arith.ori": "or.b64",
    "arith.xori": "xor.b64",
}
"""Instructions whose operands and result are all such numbers."""

SHIFTS = {"arith.shli": "shl.b64", "arith.shrsi": "shr.s64", "arith.shrui": "shr.u64"}
"""Shifts, by a number of 32 bits that is at least 64 where more is asked for."""

FLOATS: Mapping[str, tuple[str, str]] = {
    "arith.sitofp": ("cvt.rn", "s64"),
    "arith.uitofp": ("cvt.rn", "u64"),
    "arith.fptosi": ("cvt.rzi", "s64"),
    "arith.fptoui": ("cvt.rzi", "u64"),
}
"""Conversions from and to floats."""


def lower(i: Instructions, op: Operation, values: Sequence[Operand]) -> Operand:
    """What an operation makes of elements of which some, or its result, have 64 bits: of narrower integers as they are
    held, sign-extended. A result of less than 32 bits is the low bits of what is returned.

    Raises a located diagnostic for one that is not lowered.
    """
    if op.name in SAME:
        return i(SAME[op.name], *values)
    if op.name in SHIFTS:
        return i(SHIFTS[op.name], values[0], i("cvt.u32.u64", i("min.u64", values[1], 64)))
    if op.name in FLOATS:
        (rounding, kind), source = FLOATS[op.name], type_name(op.operands[0].type)
        types = [type_name(op.results[0].type), kind] if op.name.endswith("tofp") else [kind, source]
        return i(".".join((rounding, *types)), values[0])
    match op:
        case arith.CmpiOp():
            name = arith.CMPI_COMPARISON_OPERATIONS[op.predicate.value.data]
            sign = "u" if name.startswith("u") else "s"
            return i(f"setp.{name.removeprefix(sign)}.{sign}64", *values)
        case arith.ConstantOp() if isinstance(op.value, IntegerAttr):
            return op.value.value.data
        case arith.ExtSIOp() | arith.ExtUIOp():
            return _extended(i, op, values[0])
        case arith.TruncIOp() if _width(op.result.type) == 1:
            return i("setp.ne.s64", i("and.b64", values[0], 1), 0)
        case arith.TruncIOp():
            return i("cvt.u32.u64", values[0])
        case _:
            fail(op, f"{op.name} of integers of 64 bits is not lowered")


def _width(kind: object) -> int:
    return kind.bitwidth if isinstance(kind, IntegerType) else 0


def _extended(i: Instructions, op: arith.ExtSIOp | arith.ExtUIOp, value: Operand) -> Operand:
    """A narrower integer with 64 bits."""
    signed, width = isinstance(op, arith.ExtSIOp), _width(op.input.type)
    if width == 1:
        return i("selp.b64", -1 if signed else 1, 0, value)
    if signed:
        return i("cvt.s64.s32", value)
    return i("cvt.u64.u32", value if width == 32 else i("and.b32", value, (1 << width) - 1))
