"""`warp-group`: a loop over groups of rows, around one product, becomes one product with groups.

Front ends write the product of experts as a loop over these, whose turns multiply the rows from the end of the last
group on (docs/experts.md). A host that ran it would wait for the end of each group, which memory of the device has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import DYNAMIC_INDEX, i32
from xdsl.ir import BlockArgument, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import VerifyException

from ...dialect.mlir.affine import loops_of, map_along
from ...dialect.warp.attributes import in_place_of, memory_of
from ...dialect.warp.cta import DisjointOp
from ...dialect.warp.elements import IndexOp, PointwiseOp, with_functions
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.op_shapes import is_pure
from ..diagnostics import chose, remark
from ..patterns import PatternPass, constant_value
from .element_expressions import NotFusedError, decline
from .elementwise import check_unshared
from .operand import kept_dimensions

BESIDE = (memref.LoadOp, memref.SubviewOp, PointwiseOp, scf.YieldOp, DisjointOp)
"""What may stand beside the product of a group, and values that are computed."""


class GroupLoop(NamedTuple):
    """A loop over groups: its operation, the ends of the groups, the first row of one, and how many it has."""

    op: scf.ForOp
    ends: SSAValue
    start: SSAValue
    rows: SSAValue

    @staticmethod
    def of(loop: scf.ForOp, load: memref.LoadOp) -> GroupLoop:
        """The loop, in each turn of which the end of a group is loaded.

        Raises:
            NotFusedError: if it does not go from the first group to the last, or hands on anything but their ends.
        """
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
        groups.

        Raises:
            NotFusedError: for a slice that is neither the rows of a group nor the element at its number.
        """
        loops, view = [loop + 1 for loop in loops_of(map_)], value.owner
        if not self.is_inside(value):
            return value, map_along(map_.num_dims + 1, loops)
        dense = isinstance(view, memref.SubviewOp) and set(view.static_strides.get_values()) == {1}
        if not isinstance(view, memref.SubviewOp) or not dense or self.is_inside(view.source):
            decline(f"expected operands that are parts of memory outside of the loop, got {value.type}")
        offsets = _mixed(view.static_offsets.get_values(), view.offsets)
        sizes = _mixed(view.static_sizes.get_values(), view.sizes)
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


def _mixed(numbers: Sequence[int], values: Sequence[SSAValue]) -> list[int | SSAValue]:
    """The numbers, with a value of `values` in the place of each dynamic one."""
    dynamic = iter(values)
    return [next(dynamic) if number == DYNAMIC_INDEX else number for number in numbers]


def grouped(loop: GroupLoop, product: MatmulOp) -> MatmulOp:
    """The product of all groups.

    Raises:
        NotFusedError: if neither its rows nor its k belong to groups.
    """
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
    made = MatmulOp(
        *(a, b, d, product.multiplied),
        c=None if product.c is None else c,
        init=product.init,
        maps=(map_a, map_b, map_d),
        through=None if function is None else function.moved(others, map_d.num_dims, -1).function,
        words=product.words,
        ends=loop.ends,
    )
    return in_place_of(product, made)


class GroupProducts(RewritePattern):
    """A loop over groups of rows: one product with groups."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: scf.ForOp, rewriter: PatternRewriter) -> None:
        loads = [o for o in op.body.block.ops if isinstance(o, memref.LoadOp)]
        products = [o for o in op.body.block.ops if isinstance(o, MatmulOp)]
        if not loads or not products:
            return
        others = [o.name for o in op.body.block.ops if not (o is products[0] or is_pure(o) or isinstance(o, BESIDE))]
        try:
            if others or len(loads) != 1:
                decline(f"expected a load and a product in the loop, got also {', '.join(others) or loads[1].name}")
            made = grouped(GroupLoop.of(op, loads[0]), products[0])
            for each in with_functions(made):
                each.verify()
        except (NotFusedError, VerifyException) as declined:
            remark(op, GroupPass.name, f"the loop over groups stays: {declined}")
            return
        for each in with_functions(made):
            Rewriter.insert_op(each, InsertPoint.before(op))
        check_unshared(made)
        chose(op, GroupPass.name, f"the loop is a product of {memory_of(made.d)} in {loads[0].memref.type} groups")
        rewriter.erase(op)
        rewriter.has_done_action = True


class GroupPass(PatternPass):
    """Replaces a loop over groups of rows, whose ends memory has, by one product with groups. Each turn of the loop
    multiplies the rows of a group with a B of its own, or makes a D of its own of them.
    """

    name = "warp-group"
    needs: ClassVar = ("scf.for",)
    patterns = (GroupProducts,)
