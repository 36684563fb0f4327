"""Two products of one A, and what is done to their results, become one; so do those of groups, by `warp-group`.
Front ends write the product of experts as a loop over these, whose turns multiply the rows from the end of the last
group on (docs/experts.md). A host that ran it would wait for the end of each group, which memory of the device has."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType, ModuleOp, i32
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import VerifyException

from ...dialect.isa import wgmma
from ...dialect.isa.row import Target
from ...dialect.isa.tensor_product import in_tensor_memory
from ...dialect.isa.wgmma import UNIT
from ...dialect.mlir.affine import loops_of, map_along
from ...dialect.warp.attention import AttentionOp
from ...dialect.warp.attributes import BYTE, memory_of, target_of
from ...dialect.warp.cta import DisjointOp
from ...dialect.warp.elements import IndexOp, M, N, PointwiseOp, with_functions
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.op_shapes import is_pure
from ...dialect.warp.operands import PairedOp, lie_alike
from ..diagnostics import chose, remark
from ..patterns import apply_patterns, constant_value, rewrite_pattern, slice_of
from .elementwise import FUSE, fuse, fuse_epilogue, producers, read_elementwise
from .memory_uses import NotFusedError, check_unshared, decline
from .operand import drop_unused, kept_dimensions, part_of, users_of
from .pages import Gathered, rows_of
from .product import read

# Two products of one A: `gate = A B1`, `up = A B2`, and an operation that reads an element of each, such as
# `silu(gate) * up`. One product of both reads A once, and writes and reads neither of the two results. A warp, or a
# warpgroup, has the sums of both for its elements.

HALF = 16
"""Bits of the elements that are multiplied so."""


def objection(first: MatmulOp, second: MatmulOp, target: Target | None, apart: int = 0) -> str:
    """Why two products are not one; "" if they are. The matrix of the second may begin columns `apart`."""
    pair = first, second
    same = [(one.a, one.maps, one.multiplied, one.words, one.product_type, one.init, one.ends) for one in pair]
    if same[0] != same[1] or not lie_alike(memory_of(first.b), memory_of(second.b)):
        return "they multiply other operands than one A and matrices that lie alike, or start from other numbers"
    plain = first.c is None and first.products + second.products == 2 and not any(first.forms)
    if not plain or not _of_rows(first):
        return "they start from C, are batches, or of operands that are more than matrices"
    if min(*memory_of(first.a).get_shape(), *memory_of(first.b).get_shape()) < 0:
        return "sizes are not known"
    product = read(first)
    if product.a.element.bits != HALF:
        return f"expected elements of {HALF} bits, got {' x '.join(first.multiplied)}"
    if target is None or not any(row.runs_on(target) for row in _of_warpgroups(first)):
        return ""
    odd = next((o for o in (product.a, product.b, read(second).b) if o.pitch_bits % (BYTE * UNIT)), None)
    if odd is None and not product.b.transposed and apart * product.b.memory_bits % (BYTE * UNIT):
        odd = product.b
    return "" if odd is None else f"rows of {odd.type}, or of a half, are no multiples of {UNIT} bytes"


def _of_warpgroups(op: MatmulOp) -> list[wgmma.Wgmma]:
    """The instructions of warpgroups that multiply the types of a product."""
    return [row for row in wgmma.dense_rows() if [row.a.name, row.b.name] == [*op.multiplied]]


def _of_rows(op: MatmulOp) -> bool:
    """Whether a product is a single one, or of groups of its rows."""
    return not op.outer or op.grouped == M


@rewrite_pattern
def fuse_pair(op: LinalgStructuredOperation, rewriter: PatternRewriter) -> None:
    """Merges two products of one A and the elementwise operation that reads both results into one product."""
    elementwise = read_elementwise(op)
    matches = [] if elementwise is None else producers(elementwise, limit=2)
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


@rewrite_pattern
def split_columns(op: MatmulOp, rewriter: PatternRewriter) -> None:
    """Splits a product into two, if the halves of its columns are views that one elementwise operation reads. Models
    store two weights as one matrix so."""
    halves = _halves(op)
    readers = [_readers(half.result) for half in halves or ()]
    if halves is None or readers[0].isdisjoint(readers[1]):  # no operation reads both
        return
    builder, (rows, columns) = Builder(InsertPoint.before(op)), halves[0].result.type.get_shape()
    if objection(op, op, target_of(op), columns):
        return
    made = [memref.AllocOp([], [], MemRefType(memory_of(op.d).element_type, [rows, columns])) for _ in halves]
    along = loops_of(op.maps[1]).index(op.outer + N)
    shape = [columns if d == along else size for d, size in enumerate(memory_of(op.b).get_shape())]
    starts = [[number * columns if d == along else 0 for d in range(len(shape))] for number in range(len(halves))]
    products = [
        op.like(b=builder.insert(part_of(op.b, first, shape)).result, d=alloc.memref)
        for first, alloc in zip(starts, made, strict=True)
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
    plain = op.c is None and op.epilogue is None and isinstance(op.d.owner, memref.AllocOp)
    if not plain or not _of_rows(op):
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


def _readers(memory: SSAValue) -> set[Operation]:
    """The elementwise operations that read memory, and those that read results of these, and so on."""
    readers, memories = set[Operation](), [memory]
    for each in memories:
        for user in users_of(each):
            elementwise = read_elementwise(user)
            if elementwise is None or each not in elementwise.read:
                continue
            readers.add(user)
            if isinstance(elementwise.output.owner, memref.AllocOp) and elementwise.output not in memories:
                memories.append(elementwise.output)
    return readers


def fuse_results(module: ModuleOp) -> None:
    """Moves elementwise operations on the results of products, and of two products of one A, into these."""
    apply_patterns([split_columns], module)
    apply_patterns([fuse_pair, fuse_epilogue], module)


ALLOWED_IN_GROUPS = (memref.LoadOp, memref.SubviewOp, PointwiseOp, scf.YieldOp, DisjointOp)
"""What may stand beside the product of a group, and values that are computed."""


class GroupLoop(NamedTuple):
    """A loop over groups: its operation, the ends of the groups, the first row of one, and how many it has."""

    op: scf.ForOp
    ends: SSAValue
    start: SSAValue
    rows: SSAValue

    @staticmethod
    def of(loop: scf.ForOp, load: memref.LoadOp) -> GroupLoop:
        """The loop, in each turn of which the end of a group is loaded. Raises NotFusedError if it does not go from the
        first group to the last, or hands on anything but their ends."""
        number, *carried = loop.body.block.args
        kind, last = memory_of(load.memref), loop.body.block.last_op
        if kind.element_type != i32 or kind.get_num_dims() != 1 or list(load.indices) != [number]:
            decline("expected a load of the end of each turn's group, from a vector of i32")
        if [constant_value(v) for v in loop.operands[:3]] != [0, *kind.get_shape(), 1]:
            decline(f"expected a turn for each of the {kind.get_shape()[0]} ends, from 0 on by 1")
        stops = [use.operation.results[0] for use in load.res.uses if isinstance(use.operation, arith.IndexCastOp)]
        handed = [] if last is None else list(last.operands)
        if len(carried) != 1 or constant_value(loop.iter_args[0]) != 0 or handed != stops or loop.results[0].uses:
            decline("expected each group to begin where the one before ends, the first one with row 0")
        sizes = [op for op in loop.body.block.ops if isinstance(op, arith.SubiOp) and op.rhs is carried[0]]
        if len(sizes) != 1 or [sizes[0].lhs] != stops:
            decline("expected the difference of a group's end and its first row, once")
        return GroupLoop(loop, load.memref, carried[0], sizes[0].result)

    def along(self, value: SSAValue, map_: AffineMap) -> tuple[SSAValue, AffineMap]:
        """The memory that an operand is a slice of, and the loops of its dimensions; the first one is the loop over
        groups. Raises NotFusedError for a slice that is neither the rows of a group nor the element at its number."""
        loops, view = [loop + 1 for loop in loops_of(map_)], value.owner
        if not self.is_inside(value):
            return value, map_along(map_.num_dims + 1, loops)
        dense = isinstance(view, memref.SubviewOp) and set(view.static_strides.get_values()) == {1}
        if not isinstance(view, memref.SubviewOp) or not dense or self.is_inside(view.source):
            decline(f"expected operands that are parts of memory outside of the loop, got {value.type}")
        offsets, sizes, _ = slice_of(view, lambda value: value)
        static = [size if isinstance(size, int) else DYNAMIC_INDEX for size in sizes]
        own, along = dict(zip(kept_dimensions(static, memory_of(value).get_shape()), loops, strict=True)), list[int]()
        for dimension, part in enumerate(zip(offsets, sizes, strict=True)):
            plain = part == (0, memory_of(view.source).get_shape()[dimension])
            if part == (self.op.body.block.args[0], 1) and dimension not in own:
                along.append(0)
            elif dimension in own and (plain or part == (self.start, self.rows)):
                along.append(own[dimension])
            else:
                decline(f"expected the rows of a group, or what belongs to one, got a part of {view.source.type}")
        return view.source, map_along(map_.num_dims + 1, along)

    def parted(self, value: SSAValue, map_: AffineMap) -> set[int]:
        """The loops along which a part of an operand has the rows of a group."""
        shape = memory_of(value).get_shape() if isinstance(value.owner, memref.SubviewOp) else ()
        sizes = zip(loops_of(map_), shape, strict=False)
        return {loop for loop, size in sizes if size == DYNAMIC_INDEX and self.is_inside(value)}

    def is_inside(self, value: SSAValue) -> bool:
        """Whether a value is made in the loop."""
        owner = value.owner
        return (owner if isinstance(value, BlockArgument) else getattr(owner, "parent", None)) is self.op.body.block


def grouped_attention(loop: GroupLoop, op: AttentionOp) -> AttentionOp:
    """The attention of all sequences. Raises NotFusedError if not all its queries and keys are those of one, or its
    region or sinks go along them."""
    batch, side_operands = op.batch, [*op.function_operands, *op.documents]
    side_operands += [value for value in (op.lengths, op.sinks) if value is not None]
    lse = [] if op.lse is None or op.lse_map is None else [(op.lse, op.lse_map.data)]
    operands = [*zip(op.matrices, op.maps, strict=True), *lse]
    for value, map_ in operands:
        if loop.parted(value, map_) != {batch + M, batch + N}.intersection(loops_of(map_)):
            decline(f"expected Q, K, V and O to have the rows of the sequence, got {value.type}")
        if loops_of(map_)[-1] in (batch + M, batch + N) and (value, map_) not in lse:
            decline(f"expected rows of Q, K, V and O side by side, got {value.type}")
    if any(loop.is_inside(value) for value in side_operands):
        decline("a sequence has a region, lengths, documents or sinks of its own")
    along = [loop.along(*operand) for operand in operands]
    # No operand has anything for each sequence.
    if any(0 in loops_of(map_) for _, map_ in along):
        decline("expected no part of an operand that belongs to one sequence")
    maps = [map_along(map_.num_dims - 1, (at - 1 for at in loops_of(map_))) for _, map_ in along]
    return op.like(
        **dict(zip((*"qkvo", "lse"), (value for value, _ in along), strict=False)),
        **dict(zip(("indexing_maps", "lse_map"), (maps[:4], *maps[4:]), strict=False)),
        **{name: each.moved(each.placed, op.maps[0].num_dims, 0).function for name, each in op.functions.items()},
        ends=loop.ends,
    )


def grouped(loop: GroupLoop, product: MatmulOp) -> MatmulOp:
    """The product of all groups. Raises NotFusedError if neither its rows nor its k belong to groups."""
    if product.outer or any(product.forms):
        decline("expected the product of two matrices in memory for each group")
    c = product.d if product.c is None else product.c
    operands = [*zip((*product.matrices, c, product.d), (*product.maps, product.maps[2]), strict=True)]
    operands += product.placed_operands
    rows = loop.parted(*operands[0])
    for value, map_ in operands:
        if len(rows) != 1 or loop.parted(value, map_) != rows.intersection(loops_of(map_)):
            decline(f"expected all operands to have the rows of the group, got {value.type}")
    function = product.epilogue
    if function is not None and any(isinstance(op, IndexOp) for op in function.walk()):
        decline("the epilogue asks where an element lies in its group")
    (a, map_a), (b, map_b), (c, _), (d, map_d), *others = [loop.along(value, map_) for value, map_ in operands]
    return product.like(
        a=a,
        b=b,
        d=d,
        c=None if product.c is None else c,
        through=None if function is None else function.moved(others, map_d.num_dims, -1).function,
        indexing_maps=(map_a, map_b, map_d),
        ends=loop.ends,
    )


@rewrite_pattern
def group_products(op: scf.ForOp, rewriter: PatternRewriter) -> None:
    """A loop over groups of rows: one product with groups."""
    loads = [o for o in op.body.block.ops if isinstance(o, memref.LoadOp)]
    products = [o for o in op.body.block.ops if isinstance(o, MatmulOp | AttentionOp)]
    if not loads or not products:
        return
    others = [
        o.name for o in op.body.block.ops if not (o is products[0] or is_pure(o) or isinstance(o, ALLOWED_IN_GROUPS))
    ]
    try:
        if others or len(loads) != 1:
            decline(f"expected a load and a product in the loop, got also {', '.join(others) or loads[1].name}")
        loop, product = GroupLoop.of(op, loads[0]), products[0]
        made = grouped(loop, product) if isinstance(product, MatmulOp) else grouped_attention(loop, product)
        for each in with_functions(made):
            each.verify()
    except (NotFusedError, VerifyException) as declined:
        remark(op, GroupPass.name, f"the loop over groups stays: {declined}")
        return
    chose(op, GroupPass.name, f"the loop is {made.name} of groups that end where {loads[0].memref.type} says")
    rewriter.replace(op, with_functions(made), [None] * len(op.results))
    check_unshared(made)


@rewrite_pattern
def name_rows(op: MatmulOp, rewriter: PatternRewriter) -> None:
    """Lets a product of groups read the rows of A, which an operation gathers, where they are. Threads copy such rows;
    tensor copies, which warpgroups read tiles from, take neighbouring ones. There the gathering operation stays: it
    takes about one percent of the time of a product of 4096 columns (H100)."""
    plain, target = op.grouped == M and not any(op.forms), target_of(op)
    gathered = Gathered.of(op, op.a, rows_of) if plain else None
    if gathered is None:
        return
    rows, reason = _of_warpgroups(op), gathered.objection(op, op.a)
    if target is None or any(row.runs_on(target) or in_tensor_memory(row, target) for row in rows):
        reason = f"{target} reads neighbouring ones"
    if reason:
        remark(gathered.gather, GroupPass.name, f"an operation of its own gathers rows: {reason}")
        gathered.view.erase()
        return
    chose(op, GroupPass.name, "it reads rows of A where a table says")
    gathered.replace(op, op.a)
    rewriter.has_done_action = True


class GroupPass(ModulePass):
    """Replaces a loop over groups of rows, whose ends are in memory, by one product with groups. Each iteration
    multiplies the rows of a group by a B of its own, or sums them to a D of its own. Elementwise operations on the
    results of all groups become part of the product. Where threads copy tiles, an operation that gathers the rows of A
    becomes a view. A loop over sequences, of which each attends to itself, becomes one attention."""

    name = "warp-group"
    needs: ClassVar = ("scf.for",)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if apply_patterns([group_products], op):
            fuse_results(op)
            apply_patterns([name_rows], op)
