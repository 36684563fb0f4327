"""What an elementwise operation makes of integers of few bits: `(q - z) s`, read from its body."""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, IntegerType
from xdsl.ir import BlockArgument, Operation, SSAValue

from .elementwise import Elementwise

BITS = (4, 8)
"""Widths of integers that products convert."""

CASTS = (arith.ExtFOp, arith.TruncFOp)
SIGNED = (arith.ExtSIOp, arith.SIToFPOp)
UNSIGNED = (arith.ExtUIOp, arith.UIToFPOp)


@dataclass
class Dequantised:
    """Input `weights` of an operation, integers of the ISA's type `stored`, less `zero`, times the inputs `scales` and
    the numbers `factors`. `objection` says why products do not convert them so."""

    weights: int = -1
    stored: str = ""
    zero: int = 0
    scales: list[int] = field(default_factory=list[int])
    factors: list[float] = field(default_factory=list[float])
    objection: str = ""


class _Reader:
    """Reads one body, from what it yields back to the integers."""

    def __init__(self, made: Elementwise) -> None:
        self.made, self.found = made, Dequantised()

    def read(self) -> Dequantised | None:
        """None for a body that makes no float of integers of few bits."""
        last = self.made.body.last_op
        if last is None or not self._scaled(last.operands[0]) or self.found.weights < 0:
            return None
        return self.found

    def _scaled(self, value: SSAValue) -> bool:
        """Reads what is multiplied, on the way to the integers."""
        match value.owner:
            case arith.ExtFOp() | arith.TruncFOp() as cast:
                return self._scaled(cast.operands[0])
            case arith.MulfOp() as product:
                sides = product.lhs, product.rhs
                inner = [side for side in sides if self._has_integers(side)]
                if len(inner) != 1:
                    return False
                outer = next(side for side in sides if side is not inner[0])
                return self._scale(outer) and self._scaled(inner[0])
            case arith.SubfOp() as difference if self._has_integers(difference.lhs):
                self._point(difference.rhs)
                return self._converted(difference.lhs)
            case _:
                return self._converted(value)

    def _scale(self, value: SSAValue) -> bool:
        while isinstance(value.owner, arith.ExtFOp):
            value = value.owner.input
        owner = value.owner
        if isinstance(owner, arith.ConstantOp) and isinstance(owner.value, FloatAttr):
            self.found.factors.append(owner.value.value.data)
        elif (number := self._input(value)) is not None:
            self.found.scales.append(number)
        else:
            self.found.objection = "its scale is computed"
        return True

    def _converted(self, value: SSAValue) -> bool:
        while isinstance(value.owner, CASTS):
            value = value.owner.operands[0]
        cast = value.owner
        if not isinstance(cast, arith.SIToFPOp | arith.UIToFPOp):
            return False
        return self._integer(cast.input, isinstance(cast, arith.UIToFPOp))

    def _integer(self, value: SSAValue, unsigned: bool) -> bool:
        """Reads integers: an argument, extended or not, less a zero point."""
        owner = value.owner
        if unsigned and isinstance(owner, arith.SubiOp | arith.ExtSIOp):
            self.found.objection = f"it converts what {owner.name} gives as unsigned"
        if isinstance(owner, arith.SubiOp) and self._has_integers(owner.lhs):
            self._point(owner.rhs)
            if not isinstance(owner.lhs.owner, arith.ExtSIOp | arith.ExtUIOp):
                self.found.objection = "its zero point is subtracted in as many bits, and may pass them"
            value, owner = owner.lhs, owner.lhs.owner
        if isinstance(owner, arith.ExtSIOp | arith.ExtUIOp):
            unsigned, value = isinstance(owner, arith.ExtUIOp), owner.input
        number, kind = self._input(value), value.type
        if number is None or not isinstance(kind, IntegerType) or kind.bitwidth not in BITS:
            return False
        self.found.weights, self.found.stored = number, f"{'u' if unsigned else 's'}{kind.bitwidth}"
        return True

    def _point(self, value: SSAValue) -> None:
        """Reads a zero point: a constant, extended or converted."""
        while isinstance(owner := value.owner, (*CASTS, *SIGNED, *UNSIGNED)):
            value = owner.operands[0]
        constant = owner.value if isinstance(owner, arith.ConstantOp) else None
        number = constant.value.data if isinstance(constant, IntegerAttr | FloatAttr) else 0.5
        if number != int(number):
            self.found.objection = "its zero point is no whole constant"
        self.found.zero = int(number)

    def _has_integers(self, value: SSAValue) -> bool:
        """Whether a value is made of integers of few bits from memory."""
        if isinstance(value, BlockArgument):
            kind = value.type
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


def dequantised(made: Elementwise) -> Dequantised | None:
    """How an operation converts integers; None if it does not, or makes something else of them."""
    reader = _Reader(made)
    found = reader.read()
    if found is None or found.objection:
        return found
    bits = int(found.stored[1:])
    low, high = (0, (1 << bits) - 1) if found.stored[0] == "u" else (-(1 << bits - 1), (1 << bits - 1) - 1)
    if not low <= found.zero <= high:
        found.objection = f"its zero point is none of {found.stored}, {found.zero}"
    return found
