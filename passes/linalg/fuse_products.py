"""`warp-fuse-epilogue`: elementwise operations become part of products, two products of one A become one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import memref
from xdsl.dialects.arith import DivfOp, FastMathFlagsAttr
from xdsl.dialects.builtin import MemRefType, ModuleOp
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.utils import FastMathFlag
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.isa import wgmma
from ...dialect.isa.row import Target
from ...dialect.isa.wgmma import UNIT
from ...dialect.mlir.affine import loops_of
from ...dialect.warp.attributes import BYTE, memory_of, target_of
from ...dialect.warp.elements import N
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.operands import PairedOp, lie_alike
from ..diagnostics import chose, remark
from ..patterns import apply_patterns
from .elementwise import read_elementwise
from .fuse_epilogue import FUSE, FuseEpilogue, fuse, producers
from .operand import drop_unused, users_of
from .product import read
from .raise_matmul import raise_products

# Two products of one A: `gate = A B1`, `up = A B2`, and an operation that reads an element of each, such as
# `silu(gate) * up`. One product of both reads A once, and writes and reads neither of the two results. That takes
# warpgroups, which have sums of as many columns in their registers.

HALF = 16
"""Bits of the elements that are multiplied so."""


def objection(first: MatmulOp, second: MatmulOp, target: Target | None) -> str:
    """Why two products are not one; "" if they are."""
    same = [(one.a, one.maps, one.multiplied, one.words, one.product_type, one.init) for one in (first, second)]
    if same[0] != same[1] or not lie_alike(memory_of(first.b), memory_of(second.b)):
        return "they multiply other operands than one A and matrices that lie alike, or start from other numbers"
    if first.c is not None or first.outer or first.products + second.products > 2 or any(first.forms):
        return "they start from C, are batches, or of operands that are more than matrices"
    if min(*memory_of(first.a).get_shape(), *memory_of(first.b).get_shape()) < 0:
        return "sizes are not known"
    product = read(first)
    rows = (row for row in wgmma.rows() if [row.a.name, row.b.name] == [*first.multiplied])
    if target is None or product.a.element.bits != HALF or not any(row.runs_on(target) for row in rows):
        return f"{target} has no wgmma of elements of {HALF} bits for {' x '.join(first.multiplied)}"
    if not product.b.transposed:
        return f"expected k along the rows of memory of both, got {product.b.type}"
    odd = next((o for o in (product.a, product.b) if o.pitch_bits % (BYTE * UNIT)), None)
    return "" if odd is None else f"rows of {odd.type} are no multiples of {UNIT} bytes"


class FusePair(RewritePattern):
    """Merges two products of one A and the elementwise operation that reads both results into one product."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: LinalgStructuredOperation, rewriter: PatternRewriter) -> None:
        elementwise = read_elementwise(op)
        matches = [] if elementwise is None else producers(elementwise, most=2)
        if len(matches) != 2:
            return
        second, first = matches
        if reason := objection(first.product, second.product, target_of(op)):
            if first.product.a == second.product.a:
                remark(op, FUSE, f"the two products of one A that it reads are not one: {reason}")
            return
        fuse([first, second], PairedOp(first.product.b, second.product.b))
        chose(op, FUSE, f"{op.name} and two products of one A are one product")
        rewriter.has_done_action = True


class SplitColumns(RewritePattern):
    """Splits a product into two, if the halves of its columns are views that one elementwise operation reads. Models
    store two weights as one matrix so."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: MatmulOp, rewriter: PatternRewriter) -> None:
        halves = _halves(op)
        if halves is None or not _meet(*halves) or objection(op, op, target_of(op)):
            return
        builder, (rows, columns) = Builder(InsertPoint.before(op)), halves[0].result.type.get_shape()
        made = [memref.AllocOp([], [], MemRefType(memory_of(op.d).element_type, [rows, columns])) for _ in halves]
        along = loops_of(op.maps[1]).index(op.outer + N)
        shape = [columns if d == along else size for d, size in enumerate(memory_of(op.b).get_shape())]
        products = [
            op.like(b=_part(builder, op.b, along, number * columns, shape), d=alloc.memref)
            for number, alloc in enumerate(made)
        ]
        Rewriter.insert_op([*made, *products], InsertPoint.before(op))
        freed = [use.operation for use in op.d.uses if isinstance(use.operation, memref.DeallocOp)]
        for half, alloc in zip(halves, made, strict=True):
            half.result.replace_all_uses_with(alloc.memref)
            for each in freed:
                Rewriter.insert_op(memref.DeallocOp.get(alloc.memref), InsertPoint.before(each))
            Rewriter.erase_op(half)
        memory = op.d
        Rewriter.erase_op(op)
        drop_unused(memory)


def _halves(op: MatmulOp) -> list[memref.SubviewOp] | None:
    """The views of the left and the right half of the columns of a product's result, if nothing else reads it."""
    if op.outer or op.c is not None or not isinstance(op.d.owner, memref.AllocOp) or op.epilogue is not None:
        return None
    users = {use.operation for use in op.d.uses} - {op}
    views = [user for user in users if isinstance(user, memref.SubviewOp)]
    if len(views) != 2 or not all(isinstance(user, memref.SubviewOp | memref.DeallocOp) for user in users):
        return None
    rows, columns = memory_of(op.d).get_shape()
    views.sort(key=lambda view: list(view.static_offsets.iter_values())[-1])
    for number, view in enumerate(views):
        offsets, sizes, strides = (
            list(a.iter_values()) for a in (view.static_offsets, view.static_sizes, view.static_strides)
        )
        if (offsets, sizes, strides) != ([0, number * columns // 2], [rows, columns // 2], [1, 1]) or columns % 2:
            return None
    return views


def _meet(first: memref.SubviewOp, second: memref.SubviewOp) -> bool:
    """Whether one operation reads both views, directly or through an elementwise operation on a view."""
    readers = [_readers(view.result) for view in (first, second)]
    return bool(readers[0] & readers[1])


def _readers(memory: SSAValue) -> set[Operation]:
    """The elementwise operations that read memory, and those that read the results of these."""
    readers: set[Operation] = set()
    for user in users_of(memory):
        elementwise = read_elementwise(user)
        if elementwise is None or memory not in elementwise.read:
            continue
        readers.add(user)
        if isinstance(elementwise.output.owner, memref.AllocOp):
            readers |= {other for other in users_of(elementwise.output) if other is not user}
    return readers


def _part(builder: Builder, matrix: SSAValue, along: int, start: int, shape: list[int]) -> SSAValue:
    """Some rows or columns of a matrix in memory, from one on."""
    offsets = [start if d == along else 0 for d in range(len(shape))]
    return builder.insert(
        memref.SubviewOp.from_static_parameters(matrix, memory_of(matrix), offsets, shape, [1] * len(shape))
    ).result


# `warp-fuse-epilogue`: the pass.


class ApproximateEpilogue(RewritePattern):
    """Allows approximate functions and quotients in an epilogue, in addition to its fastmath flags."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: MatmulOp, rewriter: PatternRewriter) -> None:
        for inner in () if op.epilogue is None else op.epilogue.body.block.ops:
            flags = inner.properties.get("fastmath")
            if isinstance(flags, FastMathFlagsAttr) and (inner.name.startswith("math.") or isinstance(inner, DivfOp)):
                inner.properties["fastmath"] = FastMathFlagsAttr([*flags.data, FastMathFlag.APPROX_FUNC])


@dataclass(frozen=True)
class FuseEpiloguePass(ModulePass):
    """Moves elementwise operations of `linalg` on the result of a product into its epilogue.

    With `approximate`, epilogues use the GPU's approximate instructions, as if each operation had `fastmath<afn>`.
    Products still in `linalg` are raised first.
    """

    name = FUSE
    needs: ClassVar = ("linalg.*",)

    approximate: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        raise_products(op)
        apply_patterns([SplitColumns()], op)
        apply_patterns([FusePair(), FuseEpilogue()], op)
        if self.approximate:
            apply_patterns([ApproximateEpilogue()], op)
