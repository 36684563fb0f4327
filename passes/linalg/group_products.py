"""`warp-group`: a loop over groups of rows, around one product, becomes one product with groups.

Front ends write the product of experts as a loop over these, whose turns multiply the rows from the end of the last
group on::

    scf.for %e = %c0 to %experts step %c1 iter_args(%start = %c0) -> (index) {
      %last = memref.load %ends[%e] : memref<8xi32>
      %stop = arith.index_cast %last : i32 to index
      %rows = arith.subi %stop, %start : index
      %a = memref.subview %A[%start, 0] [%rows, 512] [1, 1] : ...
      %b = memref.subview %B[%e, 0, 0] [1, 512, 256] [1, 1, 1] : ...
      %d = memref.subview %D[%start, 0] [%rows, 256] [1, 1] : ...
      linalg.matmul ins(%a, %b : ...) outs(%d : ...)
      scf.yield %stop : index
    }

A host that ran it would wait for the ends of each group. They are in memory of the device, so the kernel reads them.
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
from ...dialect.warp.assumptions import DisjointOp
from ...dialect.warp.attributes import in_place_of, memory_of
from ...dialect.warp.elements import IndexOp, PointwiseOp, with_functions
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.op_shapes import is_pure
from ..builder import constant_value
from ..diagnostics import chose, remark
from ..patterns import PatternPass
from .element_expressions import NotFusedError, decline
from .operand import kept_dimensions
from .overlap import check_product

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
        rows = [
            op.result
            for op in loop.body.block.ops
            if isinstance(op, arith.SubiOp) and list(op.operands) == [*stops, *carried]
        ]
        if len(rows) != 1:
            decline("expected the difference of a group's end and its first row, once")
        return GroupLoop(loop, load.memref, carried[0], rows[0])

    def along(self, value: SSAValue, map_: AffineMap) -> tuple[SSAValue, AffineMap]:
        """The memory that an operand is a part of, and the loops that its dimensions run along, the first of which is
        over groups.

        Raises:
            NotFusedError: for another part than the rows of a group, or what it has at its number.
        """
        loops, view = [loop + 1 for loop in loops_of(map_)], value.owner
        if not self.is_inside(value):
            return value, map_along(map_.num_dims + 1, loops)
        if not isinstance(view, memref.SubviewOp) or self.is_inside(view.source):
            decline(f"expected operands that are parts of memory outside of the loop, got {value.type}")
        offsets = _mixed(view.static_offsets.get_values(), view.offsets)
        sizes = _mixed(view.static_sizes.get_values(), view.sizes)
        known = [size if isinstance(size, int) else DYNAMIC_INDEX for size in sizes]
        own, found = dict(zip(kept_dimensions(known, memory_of(value).get_shape()), loops, strict=True)), list[int]()
        for dimension, part in enumerate(zip(offsets, sizes, strict=True)):
            plain = part == (0, memory_of(view.source).get_shape()[dimension])
            if part == (self.op.body.block.args[0], 1) and dimension not in own:
                found.append(0)
            elif dimension in own and (plain or part == (self.start, self.rows)):
                found.append(own[dimension])
            else:
                decline(f"expected the rows of a group, or what belongs to one, got a part of {view.source.type}")
        return view.source, map_along(map_.num_dims + 1, found)

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
    """Numbers, of which those that are not known are values in order."""
    dynamic = iter(values)
    return [next(dynamic) if number == DYNAMIC_INDEX else number for number in numbers]


def grouped(loop: GroupLoop, product: MatmulOp) -> MatmulOp:
    """The product of all groups.

    Raises:
        NotFusedError: if it is none whose rows, or those along k, are the groups'.
    """
    if product.outer or any(product.forms):
        decline("expected the product of two matrices in memory for each group")
    of_d = zip([product.d] if product.c is None else [product.c, product.d], [product.maps[2]] * 2, strict=False)
    operands = [*zip(product.matrices, product.maps[:2], strict=True), *of_d, *product.placed_operands]
    placed = [loop.along(value, map_) for value, map_ in operands if isinstance(value.type, memref.MemRefType)]
    parted = [loop.parted(value, map_) for value, map_ in operands]
    rows = parted[0]
    for (value, map_), own in zip(operands, parted, strict=True):
        if own != rows.intersection(loops_of(map_)):
            decline(f"expected all operands to have the rows of the group, got {value.type}")
    function = product.epilogue
    if function is not None and any(isinstance(op, IndexOp) for op in function.walk()):
        decline("the epilogue asks where an element lies in its group")
    (a, map_a), (b, map_b), *rest = placed
    d, map_d = rest[0] if product.c is None else rest[1]
    beside = [
        loop.along(value, map_)
        if isinstance(value.type, memref.MemRefType)
        else (value, map_along(map_.num_dims + 1, ()))
        for value, map_ in product.placed_operands
    ]
    made = MatmulOp(
        *(a, b, d, product.multiplied),
        c=None if product.c is None else rest[0][0],
        init=product.init,
        maps=(map_a, map_b, map_d),
        through=None if function is None else function.moved(beside, map_d.num_dims, -1).function,
        words=product.words,
        ends=loop.ends,
    )
    return in_place_of(product, made)


class GroupProducts(RewritePattern):
    """A loop over groups of rows: one product with groups."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: scf.ForOp, rewriter: PatternRewriter) -> None:
        loads = [one for one in op.body.block.ops if isinstance(one, memref.LoadOp)]
        products = [one for one in op.body.block.ops if isinstance(one, MatmulOp)]
        if not loads or not products:
            return
        try:
            if len(loads) != 1 or len(products) != 1:
                decline(f"expected one load and one product in the loop, got {len(loads)} and {len(products)}")
            if other := next(
                (
                    one
                    for one in op.body.block.ops
                    if not (one is products[0] or is_pure(one) or isinstance(one, BESIDE))
                ),
                None,
            ):
                decline(f"expected nothing but a product in the loop, got {other.name}")
            made = grouped(GroupLoop.of(op, loads[0]), products[0])
            for each in with_functions(made):
                each.verify()
        except (NotFusedError, VerifyException) as declined:
            remark(op, GroupPass.name, f"the loop over groups stays: {declined}")
            return
        for each in with_functions(made):
            Rewriter.insert_op(each, InsertPoint.before(op))
        check_product(made, made)
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
