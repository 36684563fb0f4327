"""What is written in several ways made one, before anything else looks at it.

Calls of functions of the module are replaced by what these do; `linalg.broadcast`, `linalg.reduce` and `memref.copy`
become `linalg.generic` and `linalg.copy`, `linalg.softmax` four of the former; a constant tensor of one value becomes
a number or `linalg.fill`, `tensor.pad` that and a `tensor.insert_slice`, `tensor.concat` several of these,
`bufferization.alloc_tensor` a `tensor.empty` or a copy, `linalg.pack` and `linalg.unpack` a `linalg.transpose` of
another shape.
"""

from __future__ import annotations

from xdsl.builder import Builder
from xdsl.dialects import arith, func, memref
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    MemRefType,
    ModuleOp,
    StringAttr,
    TensorType,
)
from xdsl.dialects.linalg.ops import BroadcastOp, CopyOp, ReduceOp, YieldOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.mlir.affine import map_along
from ...dialect.mlir.generic import SoftmaxOp
from ...dialect.nest import generic
from ...dialect.warp.elements import shape_of
from ..diagnostics import fail
from ..patterns import apply_patterns
from .constants import contents, is_splat, spread_number

TENSORS = ("bufferization.alloc_tensor", "tensor.pad", "tensor.concat", "linalg.pack", "linalg.unpack")
"""What `tensors.py` replaces."""

GENERALIZED = (
    *(kind.name for kind in (func.CallOp, BroadcastOp, ReduceOp, SoftmaxOp, memref.CopyOp, memref.GetGlobalOp)),
    *TENSORS,
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
    patterns: list[RewritePattern] = [Broadcast(), Reduce(), CopyMemory(), CheckGlobal(), SpreadConstant()]
    names = {op.name for op in module.walk()}
    if SoftmaxOp.name in names:
        from .decompose_softmax import DecomposeSoftmax

        patterns.append(DecomposeSoftmax())
    if "tensor.concat" in names:
        from .concatenations import compute_parts

        compute_parts(module)
    if not names.isdisjoint(TENSORS):
        from .tensors import PATTERNS

        patterns += PATTERNS
    apply_patterns(patterns, module)


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


class Broadcast(RewritePattern):
    """Replaces a broadcast by a copy along loops that its input lacks."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: BroadcastOp, rewriter: PatternRewriter) -> None:
        rank, added = len(shape_of(op.init)), op.dimensions.get_values()
        maps = [map_along(rank, (d for d in range(rank) if d not in added)), AffineMap.identity(rank)]
        block = Block(arg_types=[argument.type for argument in op.hidden_region.block.args])
        block.add_op(YieldOp(block.args[0]))
        rewriter.replace(op, generic(op, [op.input], [op.init], Region(block), maps, results=op.result_types))


class Reduce(RewritePattern):
    """Replaces a reduction of some dimensions by loops over all, of which the result is indexed by the others."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReduceOp, rewriter: PatternRewriter) -> None:
        if not isinstance(op.input.type, MemRefType | TensorType):
            fail(op, f"expected a tensor or memory to reduce, got {op.input.type}")
        rank, reduced = len(shape_of(op.input)), op.dimensions.get_values()
        maps = [AffineMap.identity(rank), map_along(rank, (d for d in range(rank) if d not in reduced))]
        body = op.detach_region(op.region)
        rewriter.replace(op, generic(op, [op.input], [op.init], body, maps, reduced, op.result_types))


class CopyMemory(RewritePattern):
    """Replaces a copy of memory by one of `linalg`."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: memref.CopyOp, rewriter: PatternRewriter) -> None:
        copy = CopyOp([op.source], [op.destination], [])
        copy.location = op.location
        rewriter.replace(op, copy, [])


class CheckGlobal(RewritePattern):
    """Raises a located diagnostic for memory of the module that is no constant."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: memref.GetGlobalOp, rewriter: PatternRewriter) -> None:
        if isinstance(reason := contents(op), str):
            fail(op, f"{op.name}: {reason}")


class SpreadConstant(RewritePattern):
    """Replaces a constant tensor of one value by a number, or by tensors that are filled with it."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: arith.ConstantOp, rewriter: PatternRewriter) -> None:
        if isinstance(op.value, DenseIntOrFPElementsAttr) and is_splat(op.value):
            spread_number(op, op.value)
            rewriter.has_done_action = True
