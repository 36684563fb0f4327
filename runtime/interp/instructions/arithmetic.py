"""Instructions that exist for integers and for floats: the type decides which decoder goes on."""

from __future__ import annotations

import numpy as np

from ..decode import Context, opcode
from ..machine.state import Action
from . import carry, floating, integer
from .words import FLOATS, Modifiers


def _is_float(m: Modifiers) -> bool:
    return bool(m.words) and m.words[-1] in FLOATS


@opcode("add", "sub")
def add_sub(ctx: Context, m: Modifiers) -> Action:
    """Sum and difference."""
    if "cc" in m.words:
        return carry.add_sub(ctx, m)
    if _is_float(m):
        return floating.binary(ctx, m)
    return integer.add_sub(ctx, m, np.add if m.root == "add" else np.subtract)


@opcode("mul")
def mul(ctx: Context, m: Modifiers) -> Action:
    """Product."""
    return floating.binary(ctx, m) if _is_float(m) else integer.multiply(ctx, m)


@opcode("mad")
def mad(ctx: Context, m: Modifiers) -> Action:
    """Product and sum; of floats, the same as fma."""
    if "cc" in m.words:
        return carry.multiply_add(ctx, m)
    return floating.fma(ctx, m) if _is_float(m) else integer.multiply_add(ctx, m)


@opcode("div")
def div(ctx: Context, m: Modifiers) -> Action:
    """Quotient."""
    if _is_float(m):
        return floating.divide(ctx, m)
    return integer.binary(ctx, integer.integer_type(m), integer.quotient)


@opcode("min", "max")
def min_max(ctx: Context, m: Modifiers) -> Action:
    """The smaller, the larger."""
    return floating.minimum_maximum(ctx, m) if _is_float(m) else integer.minimum_maximum(ctx, m)


@opcode("abs", "neg")
def abs_neg(ctx: Context, m: Modifiers) -> Action:
    """Magnitude and negation."""
    return floating.absolute_negative(ctx, m) if _is_float(m) else integer.absolute_negative(ctx, m)
