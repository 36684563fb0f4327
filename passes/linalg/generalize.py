"""What is written in several ways made one, before anything else looks at it.

Calls of functions of the module are replaced by what these do; `linalg.broadcast`, `linalg.reduce` and `memref.copy`
become `linalg.generic` and `linalg.copy`, `linalg.softmax` four of the former; a constant tensor of one value becomes
a number or `linalg.fill`, `tensor.pad` that and a `tensor.insert_slice`, `bufferization.alloc_tensor` a `tensor.empty`
or a copy, `linalg.pack` and `linalg.unpack` a `linalg.transpose` of another shape.
"""

from __future__ import annotations

from xdsl.builder import Builder
from xdsl.dialects import arith, func, memref
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    DenseIntOrFPElementsAttr,
    MemRefType,
    ModuleOp,
    StringAttr,
    TensorType,
)
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.dialects.linalg.ops import BroadcastOp, CopyOp, GenericOp, ReduceOp, YieldOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.mlir.generic import SoftmaxOp
from ..diagnostics import fail
from .constants import contents, is_splat, spread_number

NEW_TENSORS = ("bufferization.alloc_tensor", "tensor.pad")

TILES = ("linalg.pack", "linalg.unpack")

GENERALIZED = (
    *(kind.name for kind in (func.CallOp, BroadcastOp, ReduceOp, SoftmaxOp, memref.CopyOp, memref.GetGlobalOp)),
    *NEW_TENSORS,
    *TILES,
)
"""What is rewritten, or checked, beside constants. Names are enough to see that a module has no tensors, and is not
to wait for the dialects of these: 7 ms."""


def is_generalized(op: Operation) -> bool:
    """Whether something else comes to stand for an operation."""
    constant = isinstance(op, arith.ConstantOp) and isinstance(op.result.type, TensorType)
    return constant or op.name in GENERALIZED


def generalize(module: ModuleOp) -> None:
    """Rewrites a module in place. Raises a located diagnostic for a call that cannot be replaced."""
    if any(isinstance(op, func.CallOp) for op in module.walk()):
        _inline(module)
    for op in [op for op in module.walk() if is_generalized(op)]:
        match op:
            case BroadcastOp():
                _broadcast(op)
            case ReduceOp():
                _reduce(op)
            case SoftmaxOp():
                from .decompose_softmax import decompose

                decompose(op)
            case Operation(name=name) if name in NEW_TENSORS:
                from .new_tensors import replace

                replace(op)
            case Operation(name=name) if name in TILES:
                from .packs import replace as replace_tiles

                replace_tiles(op)
            case memref.GetGlobalOp() if isinstance(reason := contents(op), str):
                fail(op, f"{op.name}: {reason}")
            case memref.CopyOp():
                copy = CopyOp([op.source], [op.destination], [])
                copy.location = op.location
                Rewriter.replace_op(op, copy, [])
            case arith.ConstantOp(value=DenseIntOrFPElementsAttr() as value) if is_splat(value):
                spread_number(op, value)
            case _:
                pass


def _inline(module: ModuleOp) -> None:
    """Replaces every call by the body of its function, and drops private functions that were there to be called."""
    functions = {op.sym_name.data: op for op in module.ops if isinstance(op, func.FuncOp)}
    for name in functions:
        _inline_calls(name, functions, ())
    for function in functions.values():
        if function.sym_visibility == StringAttr("private"):
            Rewriter.erase_op(function)


def _inline_calls(name: str, functions: dict[str, func.FuncOp], callers: tuple[str, ...]) -> None:
    for call in [op for op in functions[name].walk() if isinstance(op, func.CallOp)]:
        callee = call.callee.string_value()
        if callee in (*callers, name):
            fail(call, f"@{callee} calls itself, by way of @{name}")
        if callee not in functions or len(functions[callee].body.blocks) != 1:
            fail(call, f"expected @{callee} to be a function of the module with one block")
        _inline_calls(callee, functions, (*callers, name))
        _replace_call(call, functions[callee].body.block)


def _replace_call(call: func.CallOp, body: Block) -> None:
    known: dict[SSAValue, SSAValue] = dict(zip(body.args, call.arguments, strict=True))
    builder = Builder(InsertPoint.before(call))
    for op in body.ops:
        if isinstance(op, func.ReturnOp):
            Rewriter.replace_op(call, [], [known[value] for value in op.operands])
            return
        copy = op.clone(known)
        copy.location = op.location
        builder.insert(copy)


def _broadcast(op: BroadcastOp) -> None:
    added = set(op.dimensions.get_values())
    init = op.init.type
    rank = len(init.get_shape()) if isinstance(init, MemRefType | TensorType) else 0
    kept = tuple(AffineDimExpr(d) for d in range(rank) if d not in added)
    maps = [AffineMap(rank, 0, kept), AffineMap.identity(rank)]
    arguments = [argument.type for argument in op.hidden_region.block.args]
    block = Block(arg_types=arguments)
    block.add_op(YieldOp(block.args[0]))
    generic = GenericOp(
        [op.input],
        [op.init],
        Region(block),
        ArrayAttr(map(AffineMapAttr, maps)),
        ArrayAttr([IteratorTypeAttr.parallel()] * rank),
        [result.type for result in op.results],
    )
    generic.location = op.location
    Rewriter.replace_op(op, generic, generic.results)


def _reduce(op: ReduceOp) -> None:
    """Reductions of some dimensions: loops over all, of which the result is indexed by the others."""
    kind = op.input.type
    if not isinstance(kind, MemRefType | TensorType):
        fail(op, f"expected a tensor or memory to reduce, got {kind}")
    rank, reduced = kind.get_num_dims(), set(op.dimensions.get_values())
    kept = [d for d in range(rank) if d not in reduced]
    maps = AffineMap.identity(rank), AffineMap(rank, 0, tuple(map(AffineDimExpr, kept)))
    iterators = [IteratorTypeAttr.reduction() if d in reduced else IteratorTypeAttr.parallel() for d in range(rank)]
    generic = GenericOp(
        [op.input],
        [op.init],
        op.detach_region(op.region),
        ArrayAttr(map(AffineMapAttr, maps)),
        ArrayAttr(iterators),
        [result.type for result in op.results],
    )
    generic.location = op.location
    Rewriter.replace_op(op, generic, generic.results)
