"""What an elementwise operation makes of integers, or floats, of few bits: `(q - z) s`, read from its body."""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    AnyFloat,
    BFloat16Type,
    Float16Type,
    Float32Type,
    Float64Type,
    FloatAttr,
    IntegerAttr,
    IntegerType,
)
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from ...dialect.mlir.generic import may_scale_sums
from ...dialect.warp.attributes import element_row
from ...dialect.warp.stored import NIBBLES
from .elementwise import Elementwise

# What an elementwise operation makes of integers of few bits: `(q - z) s`, read from its body.
#
# `q - z` has 9 bits, so f16, bf16 and wider types have it exactly. Of a scale of 16 bits f32 has the product exactly
# too: its rounding to 16 bits, and a multiplication in 16 bits, are then one rounding of the exact product.

BITS = (4, 8)
"""Widths of integers that products convert."""

CASTS = (arith.ExtFOp, arith.TruncFOp)
EXACT = (Float16Type, BFloat16Type, Float32Type, Float64Type)
"""Types that have integers of 9 bits."""
SIGNED = (arith.ExtSIOp, arith.SIToFPOp)
UNSIGNED = (arith.ExtUIOp, arith.UIToFPOp)


@dataclass
class Dequantised:
    """Input `weights` of an operation, integers of the ISA's type `stored`, less `zero` or input `points`, times the
    inputs `scales` and the numbers `factors`. `objection` says why products do not convert them so, `roundings` which
    types the element is rounded to, in order, where nothing allows to leave that out."""

    weights: int = -1
    stored: str = ""
    zero: int = 0
    points: int = -1
    scales: list[int] = field(default_factory=list[int])
    factors: list[float] = field(default_factory=list[float])
    roundings: list[Attribute] = field(default_factory=list[Attribute])
    objection: str = ""


class _Reader:
    """Reads one body, from what it yields back to the integers."""

    def __init__(self, made: Elementwise) -> None:
        self.made, self.how = made, Dequantised()
        self.after = 0
        """How many roundings come after the first multiplication: those before it are of integers, and exact."""

    def read(self) -> Dequantised | None:
        """None for a body that makes no float of integers of few bits."""
        last = self.made.body.last_op
        if last is None or not self._scaled(last.operands[0]):
            return None
        self.how.roundings = self.how.roundings[len(self.how.roundings) - self.after :]
        return self.how

    def _scaled(self, value: SSAValue) -> bool:
        """Reads what is multiplied, on the way to the integers, and what is subtracted from these as floats."""
        while True:
            match value.owner:
                case arith.ExtFOp() | arith.TruncFOp() as cast:
                    self._round(cast)
                    value = cast.operands[0]
                case arith.MulfOp() as product if self._has_integers(product.lhs) != self._has_integers(product.rhs):
                    sides = product.lhs, product.rhs
                    value, scale = sides if self._has_integers(product.lhs) else sides[::-1]
                    self._round(product)
                    self.after = len(self.how.roundings)
                    self._scale(scale)
                case arith.SubfOp() as difference if self._has_integers(difference.lhs):
                    self._point(difference.rhs)
                    return self._converted(difference.lhs)
                case _:
                    return self._converted(value)

    def _round(self, op: Operation) -> None:
        """Notes the rounding of an operation, if its flags do not allow to leave it out."""
        self._exact(op.results[0])
        if not isinstance(op, arith.ExtFOp) and not may_scale_sums(op):
            self.how.roundings.insert(0, op.results[0].type)

    def _scale(self, value: SSAValue) -> None:
        while isinstance(value.owner, arith.ExtFOp):
            value = value.owner.input
        owner = value.owner
        if isinstance(owner, arith.ConstantOp) and isinstance(owner.value, FloatAttr):
            self.how.factors.append(owner.value.value.data)
        elif (number := self._input(value)) is not None:
            self.how.scales.append(number)
        else:
            self.how.objection = "its scale is computed"

    def _converted(self, value: SSAValue) -> bool:
        while isinstance(value.owner, CASTS):
            self._exact(value)
            value = value.owner.operands[0]
        cast = value.owner
        if _is_nibble(value) and (number := self._input(value)) is not None:
            self.how.weights, self.how.stored = number, NIBBLES
            return True
        self._exact(value)
        if not isinstance(cast, arith.SIToFPOp | arith.UIToFPOp):
            return False
        return self._integer(cast.input, isinstance(cast, arith.UIToFPOp))

    def _exact(self, value: SSAValue) -> None:
        if not isinstance(value.type, EXACT):
            self.how.objection = f"they become {value.type} on the way"

    def _integer(self, value: SSAValue, unsigned: bool) -> bool:
        """Reads integers: an argument, extended or not, less a zero point."""
        owner = value.owner
        if unsigned and isinstance(owner, arith.SubiOp | arith.ExtSIOp):
            self.how.objection = f"it converts what {owner.name} gives as unsigned"
        if isinstance(owner, arith.SubiOp) and self._has_integers(owner.lhs):
            self._point(owner.rhs)
            if not isinstance(owner.lhs.owner, arith.ExtSIOp | arith.ExtUIOp):
                self.how.objection = "its zero point is subtracted in as many bits, and may pass them"
            value, owner = owner.lhs, owner.lhs.owner
        if isinstance(owner, arith.ExtSIOp | arith.ExtUIOp):
            unsigned, value = isinstance(owner, arith.ExtUIOp), owner.input
        number, kind = self._input(value), value.type
        if number is None or not isinstance(kind, IntegerType) or kind.bitwidth not in BITS:
            return False
        self.how.weights, self.how.stored = number, f"{'u' if unsigned else 's'}{kind.bitwidth}"
        return True

    def _point(self, value: SSAValue) -> None:
        """Reads a zero point: a constant, extended or converted, or a float of memory."""
        if isinstance(value.type, AnyFloat) and (number := self._input(value)) is not None:
            self.how.points = number
            return
        while isinstance(owner := value.owner, (*CASTS, *SIGNED, *UNSIGNED)):
            value = owner.operands[0]
        constant = owner.value if isinstance(owner, arith.ConstantOp) else None
        number = constant.value.data if isinstance(constant, IntegerAttr | FloatAttr) else 0.5
        if number != int(number):
            self.how.objection = "its zero point is no whole constant"
        self.how.zero = int(number)

    def _has_integers(self, value: SSAValue) -> bool:
        """Whether a value is made of integers, or floats, of few bits from memory."""
        if isinstance(value, BlockArgument):
            kind = value.type
            if _is_nibble(value):
                return value.owner is self.made.body
            return value.owner is self.made.body and isinstance(kind, IntegerType) and kind.bitwidth in BITS
        owner = value.owner
        if not isinstance(owner, Operation) or owner.parent is not self.made.body:
            return False
        return any(map(self._has_integers, owner.operands))

    def _input(self, value: SSAValue) -> int | None:
        """Which input of the operation a value is."""
        if isinstance(value, BlockArgument) and value.owner is self.made.body:
            return value.index
        captured = value in self.made.captured
        return next((i for i, given in enumerate(self.made.inputs) if captured and given is value), None)


def _is_nibble(value: SSAValue) -> bool:
    """Whether a value is a float of 4 bits."""
    return (row := element_row(value.type)) is not None and row.name == NIBBLES


def dequantised(made: Elementwise) -> Dequantised | None:
    """How an operation converts integers; None if it does not, or makes something else of them."""
    reader = _Reader(made)
    found = reader.read()
    if found is None or found.objection:
        return found
    if found.stored == NIBBLES:
        return found
    bits = int(found.stored[1:])
    low, high = (0, (1 << bits) - 1) if found.stored[0] == "u" else (-(1 << bits - 1), (1 << bits - 1) - 1)
    if not low <= found.zero <= high:
        found.objection = f"its zero point is none of {found.stored}, {found.zero}"
    return found
