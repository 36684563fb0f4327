"""`warp-fold-fill`: a constant fill right before a product becomes the product's initial value."""

from xdsl.context import Context
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, MemRefType, ModuleOp
from xdsl.dialects.linalg.ops import CopyOp, FillOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.effects import is_pure
from ...dialect.warp.attributes import in_place_of
from ...dialect.warp.disjoint import DisjointOp
from ...dialect.warp.matmul import MatmulOp
from ..diagnostics import remark
from .raise_matmul import raise_products
from .views import root


def _constant(value: SSAValue) -> FloatAttr | IntegerAttr | None:
    owner = value.owner
    if isinstance(owner, arith.ConstantOp) and isinstance(owner.value, FloatAttr | IntegerAttr):
        return owner.value
    return None


def _next_effect(op: Operation) -> Operation | None:
    """The next operation in the block that may touch memory."""
    following = op.next_op
    while following is not None and (is_pure(following) or isinstance(following, DisjointOp)):
        following = following.next_op
    return following


def _fold(fill: FillOp) -> None:
    value, product, filled = _constant(fill.inputs[0]), _next_effect(fill), fill.outputs[0]
    if fill.results:
        return
    if not isinstance(product, MatmulOp):
        _decline(fill, filled, product)
    elif value is None:
        _decline(fill, filled, None, "what it fills with is no constant")
    elif _overwrites(product, filled):
        _start(product, init=value)
        Rewriter.erase_op(fill)


def _fold_copy(copy: CopyOp) -> None:
    """A copy to what a product then adds to: the product starts from what is copied."""
    product, source, copied = _next_effect(copy), copy.inputs[0], copy.outputs[0]
    if copy.results:
        return
    if not isinstance(product, MatmulOp):
        return _decline(copy, copied, product)
    if source.type != copied.type:
        return _decline(copy, copied, None, f"it copies {source.type} to {copied.type}")
    if root(source) == root(copied):
        return _decline(copy, copied, None, "it copies within one memory")
    if _overwrites(product, copied) and isinstance(copied.type, MemRefType):
        wider = product.d.owner
        if isinstance(wider, memref.ExpandShapeOp) and wider.src == copied:
            shaped = wider.clone({copied: source})
            Rewriter.insert_op(shaped, InsertPoint.before(product))
            source = shaped.result
        if source.type == product.d.type:
            _start(product, c=source)
            Rewriter.erase_op(copy)
    return None


def _decline(op: Operation, memory: SSAValue, between: Operation | None, reason: str = "") -> None:
    """Says why a fill or a copy stays, if a product behind it adds to the same memory."""
    following = op.next_op
    while following is not None and not (isinstance(following, MatmulOp) and _overwrites(following, memory)):
        following = following.next_op
    if following is not None:
        why = reason or f"{between.name if between else 'nothing'} stands between them"
        remark(op, FoldFillPass.name, f"it is not folded into the product that adds to what it writes: {why}")


def _overwrites(product: MatmulOp, memory: SSAValue) -> bool:
    """Whether a product adds to all of a memory, and reads it nowhere else."""
    return product.c == product.d and _reshaped(product.d) == memory and memory not in map(root, product.factors)


def _reshaped(value: SSAValue) -> SSAValue:
    """The memory that a value is another shape of."""
    while isinstance(value.owner, memref.ExpandShapeOp):
        value = value.owner.src
    return value


def _start(product: MatmulOp, *, init: FloatAttr | IntegerAttr | None = None, c: SSAValue | None = None) -> None:
    """Lets a product start from another value."""
    started = MatmulOp(
        product.a,
        product.b,
        product.d,
        product.multiplied,
        c=c,
        init=init,
        maps=product.maps,
        through=product.through,
        words=product.words,
    )
    Rewriter.replace_op(product, in_place_of(product, started), [])


class FoldFillPass(ModulePass):
    """Folds `linalg.fill` with a constant, or `linalg.copy`, into the product that follows it on the same memref.

    No operation between the two may touch memory. Products still in `linalg` are raised first.
    """

    name = "warp-fold-fill"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        raise_products(op)
        for fill in [o for o in op.walk() if isinstance(o, FillOp)]:
            _fold(fill)
        for copy in [o for o in op.walk() if isinstance(o, CopyOp)]:
            _fold_copy(copy)
