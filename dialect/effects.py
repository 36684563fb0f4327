"""What operations do to memory, with what xDSL 0.74 leaves unsaid of `arith`."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.ir import Operation
from xdsl.traits import MemoryEffectKind, get_effects, is_side_effect_free


def is_pure(op: Operation) -> bool:
    """Whether an operation neither reads nor writes memory."""
    return is_side_effect_free(op) or isinstance(op, arith.RemUIOp | arith.ExtSIOp)


def only_reads(op: Operation) -> bool:
    """Whether all that an operation may do to memory is to read it."""
    effects = get_effects(op)
    return is_pure(op) or (effects is not None and all(effect.kind == MemoryEffectKind.READ for effect in effects))
