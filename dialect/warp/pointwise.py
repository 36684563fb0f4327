"""`warp.pointwise`: what becomes of each element of a product, for the operations that take such a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, i32
from xdsl.ir import Attribute, Operation, ParametrizedAttribute, Region, SSAValue, TypeAttribute
from xdsl.ir.affine import AffineMap
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.rewriter import Rewriter
from xdsl.traits import IsolatedFromAbove, Pure
from xdsl.utils.exceptions import VerifyException

from .elements import ElementRegion, verify_elements, yielded
from .indices import IndexOp, verify_indices
from .loops import LoopSizes, element_type, loops_of, verify_along


@irdl_attr_definition
class PointwiseType(ParametrizedAttribute, TypeAttribute):
    """A function of elements, with its operands, which `warp.pointwise` defines: `!warp.pointwise`."""

    name = "warp.pointwise"


@irdl_op_definition
class PointwiseOp(IRDLOperation):
    """A function of an element of a result and of one element of each operand. Another operation applies it to each
    element::

        %gelu = warp.pointwise %bias maps [affine_map<(m, n, k) -> (n)>] : memref<320xf32> (%x: f32, %b: f32) {
          %sum = arith.addf %x, %b : f32
          %y = arith.truncf %sum : f32 to bf16
          warp.yield %y : bf16
        }
        warp.matmul bf16 x bf16 %A, %B init 0.0 : f32 into %D through %gelu : memref<...>, memref<...>, memref<...>

    The function is the epilogue of a `warp.matmul` or a `warp.epilogue`, or changes the scores of a `warp.attention`.
    An operand is memory that is indexed by the loops of the elements, or a number, whose map has no results.
    """

    name = "warp.pointwise"

    inputs = var_operand_def()
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr], default_value=ArrayAttr[AffineMapAttr]([]))
    body = region_def()
    function = result_def(PointwiseType())

    traits = traits_def(Pure(), IsolatedFromAbove())
    custom_directives: ClassVar = (ElementRegion,)
    assembly_format = (
        "($inputs^)? (`maps` $indexing_maps^)? attr-dict (`:` type($inputs)^)? custom<ElementRegion>($body)"
    )

    def __init__(self, inputs: Sequence[tuple[SSAValue, AffineMap]], body: Region):
        """`inputs` are operands with their maps."""
        super().__init__(
            operands=[[value for value, _ in inputs]],
            properties={"indexing_maps": ArrayAttr([AffineMapAttr(map_) for _, map_ in inputs])},
            regions=[body],
            result_types=[PointwiseType()],
        )

    @property
    def placed(self) -> list[tuple[SSAValue, AffineMap]]:
        """The operands with their maps."""
        return list(zip(self.inputs, (attribute.data for attribute in self.indexing_maps), strict=True))

    @property
    def taken(self) -> Attribute:
        """The type of the element that the function takes."""
        return self.body.block.args[0].type

    def moved(
        self,
        inputs: Sequence[tuple[SSAValue, AffineMap]],
        loops: int,
        outer: int,
        numbers: Mapping[int, SSAValue] | None = None,
    ) -> PointwiseOp:
        """The same of other operands, in an operation of so many loops, where the first `outer` ones are left out.

        `numbers` are the indices along those, which become operands.
        """
        body, given = self.body.clone(), numbers or {}
        arguments = {loop: body.block.insert_arg(i32, len(body.block.args)) for loop in given}
        for op in [op for op in body.block.ops if isinstance(op, IndexOp)]:
            if op.number in arguments:
                Rewriter.replace_op(op, [], [arguments[op.number]])
            else:
                Rewriter.replace_op(op, IndexOp(op.number - outer))
        found = PointwiseOp([*inputs, *((value, AffineMap(loops, 0, ())) for value in given.values())], body)
        found.function.name_hint, found.location = self.function.name_hint, self.location
        return found

    def verify_(self) -> None:
        if len(self.indexing_maps) != len(self.inputs):
            count = len(self.indexing_maps)
            raise VerifyException(f"expected a map of each of {len(self.inputs)} operands, got {count}")
        if len(self.body.blocks) != 1 or not self.body.blocks[0].args:
            raise VerifyException("expected a region of one block that takes an element")
        verify_elements(self.body, [self.taken, *map(element_type, self.inputs)], yielded(self.body).type)

    def verify_use(self, what: str, made: Attribute, loops: int, along: Sequence[int], sizes: LoopSizes) -> None:
        """Checks the function where it makes elements of a type, which run along some of so many loops.

        `what` is what its operands are called in errors.

        Raises:
            VerifyException: if it makes others, or its operands, or the indices that it takes, run along other loops.
        """
        if (found := yielded(self.body).type) != made:
            raise VerifyException(f"expected elements of {made} from {self.name}, got {found}")
        verify_indices(self.body.block, along)
        for number, (value, map_) in enumerate(self.placed):
            verify_along(f"{what} {number}", map_, loops, along)
            sizes.add(f"{what} {number}", value, loops_of(map_))


def pointwise_of(value: SSAValue | None) -> PointwiseOp | None:
    """The operation that makes a function of elements; None where there is no function.

    Raises:
        VerifyException: for a function that is made elsewhere.
    """
    if value is None:
        return None
    if isinstance(value.owner, PointwiseOp):
        return value.owner
    raise VerifyException("expected a function of elements from warp.pointwise, got a block argument")


def with_functions(op: Operation) -> list[Operation]:
    """An operation behind the functions of elements that it takes, of those that stand nowhere yet."""
    found = [value.owner for value in op.operands if isinstance(value.owner, PointwiseOp)]
    return [*(each for each in found if each.parent is None), op]
