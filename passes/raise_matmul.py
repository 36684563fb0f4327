"""`warp-raise-matmul`: every way to write a matrix product in `linalg` becomes `warp.matmul`."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import IntegerAttr, MemRefType, ModuleOp
from xdsl.dialects.linalg.ops import MatmulOp as LinalgMatmulOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

from ..dialect.isa.types import ElementType
from ..dialect.linalg import METADATA
from ..dialect.warp.attributes import element_row, memory_of
from ..dialect.warp.matmul import MatmulOp
from .diagnostics import fail


def raise_products(module: Operation) -> None:
    """Raises every product below an operation; errors name the operation they are about."""
    for op in [o for o in module.walk() if isinstance(o, LinalgMatmulOp)]:
        _replace(op, _matmul(op))


def _matmul(op: LinalgMatmulOp) -> MatmulOp:
    a, b = op.inputs
    (c,) = op.outputs
    types = [_element(op, name, value).name for name, value in zip("ABC", (a, b, c), strict=True)]
    maps = [attribute.data for attribute in op.get_indexing_maps()]
    return MatmulOp(a, b, c, types[:2], e=_metadata(op), c=c, maps=maps)


def _metadata(op: LinalgMatmulOp) -> SSAValue | None:
    """The metadata of a sparse A, which an attribute names by its number among the function's arguments."""
    named = op.attributes.pop(METADATA, None)
    if named is None:
        return None
    function = op.parent_op()
    arguments = function.body.block.args if isinstance(function, func.FuncOp) else ()
    number = named.value.data if isinstance(named, IntegerAttr) else -1
    if not 0 <= number < len(arguments) or not isinstance(arguments[number].type, MemRefType):
        fail(op, f"expected {METADATA} to be the number of an argument of the function, a memref, got {named}")
    return arguments[number]


def _element(op: Operation, name: str, value: SSAValue) -> ElementType:
    if not isinstance(value.type, MemRefType):
        fail(op, f"expected {name} to be a memref, got {value.type}; bufferize tensors first")
    kind = memory_of(value).element_type
    element = element_row(kind)
    if element is None:
        fail(op, f"expected {name} of f16, bf16 or f32, got {kind}")
    return element


def _replace(op: Operation, raised: MatmulOp) -> None:
    """Puts the raised product in place of an operation, with its place in the file and its attributes."""
    raised.location = op.location
    raised.attributes |= op.attributes
    try:
        raised.verify()
    except VerifyException as error:
        fail(op, str(error))
    Rewriter.replace_op(op, raised, [])


@dataclass(frozen=True)
class RaiseMatmulPass(ModulePass):
    """Replaces every `linalg.matmul` on memrefs by a `warp.matmul`."""

    name = "warp-raise-matmul"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        raise_products(op)
