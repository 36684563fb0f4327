"""`warp-bufferize`: functions on tensors become functions on memory, and their results arguments that are written.

MLIR's one-shot bufferisation decides the same for programs of any shape; here a function is one block of structured
operations, so that one rule does: a result that is returned goes into an argument of its own, behind the others, and
what is on the way to it, being needed nowhere else, into the same memory. Everything else gets memory of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Attribute
from xdsl.passes import ModulePass

from ..patterns import apply_patterns
from .generalize import GENERALIZED, generalize


def bufferize(module: ModuleOp) -> None:
    """Bufferises every function of a module that has tensors; the others stay as they are.

    Raises a located diagnostic for operations on tensors that are no structured ones of `linalg`.
    """
    for function in [op for op in module.ops if isinstance(op, func.FuncOp) and not op.is_declaration]:
        if any(isinstance(kind, TensorType) for kind in _types(function)):
            from .tensor_function import TensorFunction  # 6 ms, with xDSL's dialect of tensors

            if len(function.body.blocks) == 1:
                _simplify(function)
            TensorFunction(function).rewrite()


def _simplify(function: func.FuncOp) -> None:
    """Makes operations of several results one for each, and lets products read what was moved for them."""
    from . import diamonds, moved_operands, several_results, unit_dimensions

    apply_patterns((several_results.OneResultEach(),), function)
    several_results.drop_unused(function.body.block)
    for pattern in (*unit_dimensions.PATTERNS, *moved_operands.PATTERNS, diamonds.FuseDiamond()):
        apply_patterns((pattern,), function)
    several_results.drop_unused(function.body.block)


def _types(function: func.FuncOp) -> Iterator[Attribute]:
    yield from (a.type for block in function.body.blocks for a in block.args)
    yield from (r.type for op in function.body.walk() for r in op.results)


class BufferizePass(ModulePass):
    """Converts functions on tensors to functions on memory; each result becomes an additional argument after the
    others.

    The pass first inlines calls of functions of the module, and replaces composite operations by the operations that
    they stand for.
    """

    name = "warp-bufferize"
    needs: ClassVar = (*GENERALIZED, "tensor")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        generalize(op)
        bufferize(op)
