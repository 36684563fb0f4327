"""`warp-fold-fill`: a constant fill right before a product becomes the product's initial value."""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr, ModuleOp
from xdsl.dialects.linalg.ops import FillOp, MatmulOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.traits import is_side_effect_free

INITIAL_VALUE = "warp.init"
"""The discardable attribute of a product whose output starts as this constant instead of what memory holds."""


def _constant(value: SSAValue) -> FloatAttr | None:
    owner = value.owner
    if isinstance(owner, arith.ConstantOp) and isinstance(owner.value, FloatAttr):
        return owner.value
    return None


def _overwrites(op: MatmulOp, fill: FillOp) -> bool:
    """Whether `op` accumulates into what `fill` fills, and reads it nowhere else."""
    output = fill.outputs[0]
    return op.outputs[0] == output and output not in op.inputs


def _next_effect(op: Operation) -> Operation | None:
    """The next operation in the block that may touch memory."""
    following = op.next_op
    while following is not None and is_side_effect_free(following):
        following = following.next_op
    return following


def _fold(fill: FillOp) -> None:
    value, product = _constant(fill.inputs[0]), _next_effect(fill)
    if value is None or fill.results or not isinstance(product, MatmulOp) or product.results:
        return
    if _overwrites(product, fill):
        product.attributes[INITIAL_VALUE] = value
        fill.detach()
        fill.erase()


@dataclass(frozen=True)
class FoldFillPass(ModulePass):
    """Folds `linalg.fill` with a constant into the `linalg.matmul` that follows it on the same memref.

    Nothing that touches memory may stand between the two. Sets `warp.init` on the product and erases the fill.
    """

    name = "warp-fold-fill"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for fill in [o for o in op.walk() if isinstance(o, FillOp)]:
            _fold(fill)
