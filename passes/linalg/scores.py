"""What scores of an attention are, as an expression of the product of Q and K: a scale, a diagonal, and the rest."""

from __future__ import annotations

import math
from dataclasses import replace

from xdsl.dialects.arith import CMPI_COMPARISON_OPERATIONS
from xdsl.dialects.builtin import IntegerAttr

from .element_expressions import ElementExpression

QUERY, KEY, DEPTH, COLUMN = "m", "n", "d", "e"
"""The names of loops; those of the batch are numbers."""


def masked(x: ElementExpression) -> tuple[ElementExpression, int | None]:
    """Scores without the mask that leaves out what is right of a diagonal, and which diagonal that is."""
    if x.is_op("arith.select"):
        condition, yes, no = x.operands
        right = _right_of(condition)
        if right is not None:
            kept, gone, diagonal = (no, yes, right[0]) if right[1] else (yes, no, right[0])
            if gone.number == -math.inf:
                return kept, diagonal
    if x.is_op("arith.addf"):
        for rest, mask in (x.operands, x.operands[::-1]):
            kept, diagonal = masked(mask)
            if diagonal is not None and kept.number == 0:
                return rest, diagonal
    if x.is_op("arith.mulf"):
        for rest, factor in (x.operands, x.operands[::-1]):
            kept, diagonal = masked(rest)
            if diagonal is not None and factor.number is not None and factor.number > 0:
                return replace(x, operands=(kept, factor)), diagonal
    return x, None


def _right_of(condition: ElementExpression) -> tuple[int, bool] | None:
    """The diagonal c of a comparison that holds for n > m + c, or for all others; True for the first."""
    if not condition.is_op("arith.cmpi") or condition.op is None:
        return None
    predicate = condition.op.properties["predicate"]
    name = CMPI_COMPARISON_OPERATIONS[predicate.value.data] if isinstance(predicate, IntegerAttr) else ""
    sides = [_linear(side) for side in condition.operands]
    if None in sides or name[1:] not in ("gt", "ge", "lt", "le"):
        return None
    (m1, n1, c1), (m2, n2, c2) = (side for side in sides if side is not None)
    m, n, c = m1 - m2, n1 - n2, c1 - c2  # the comparison of m' m + n' n + c with 0
    if (m, n) == (1, -1):
        m, n, c, name = -m, -n, -c, name[0] + {"g": "l", "l": "g"}[name[1]] + name[2]
    if (m, n) != (-1, 1):
        return None
    # n > m - c, or one more where it may be equal
    if name[1] == "g":
        return -c - (name[2] == "e"), True
    return -c - (name[2] == "t"), False


def _linear(side: ElementExpression) -> tuple[int, int, int] | None:
    """(m, n, 1) coefficients of an index."""
    if side.kind == "index":
        return {QUERY: (1, 0, 0), KEY: (0, 1, 0)}.get(str(side.name))
    if side.kind == "constant" and isinstance(side.number, int):
        return 0, 0, side.number
    if side.is_op("arith.index_cast", "arith.extsi", "arith.trunci"):
        return _linear(side.operands[0])
    if side.is_op("arith.addi", "arith.subi"):
        a, b = (_linear(operand) for operand in side.operands)
        sign = 1 if side.is_op("arith.addi") else -1
        if a is not None and b is not None:
            return a[0] + sign * b[0], a[1] + sign * b[1], a[2] + sign * b[2]
    return None


def scaled(x: ElementExpression) -> tuple[ElementExpression, float]:
    """Scores without a constant that multiplies or divides them, and the constant."""
    if x.is_op("arith.mulf"):
        for rest, factor in (x.operands, x.operands[::-1]):
            if factor.number is not None:
                inner, scale = scaled(rest)
                return inner, scale * factor.number
    if x.is_op("arith.divf") and (divisor := x.operands[1].number):
        inner, scale = scaled(x.operands[0])
        return inner, scale / divisor
    return x, 1.0
