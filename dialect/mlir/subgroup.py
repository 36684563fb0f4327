"""What `gpu` has for the threads of a kernel and xDSL lacks: exchanges and reductions of a warp, and `subgroup_mma`.

Operands, properties and text are those of MLIR 22 (`mlir/include/mlir/Dialect/GPU/IR`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import IndexType, IntegerAttr, MemRefType, StringAttr, UnitAttr, VectorType, i1, i32
from xdsl.ir import Attribute, Operation, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    ParamAttrConstraint,
    ParsePropInAttrDict,
    VarConstraint,
    base,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.irdl.declarative_assembly_format import AttributeVariable, irdl_custom_directive
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from .words import BareWordAttr, WordText, words

SHUFFLE = words("gpu.shuffle_mode", "xor up down idx", BareWordAttr)
"""How `gpu.shuffle` chooses the source lane: by exclusive or of the lane number, by an offset, or by index."""

REDUCTION = words(
    "gpu.all_reduce_op", "add mul minui minsi minnumf maxui maxsi maxnumf and or xor minimumf maximumf", BareWordAttr
)
"""The operation of a reduction; xDSL lacks those that name the kind of number."""

ELEMENTWISE = words(
    "gpu.mma_element_wise", "addf mulf subf maxf minf divf addi muli subi divs divu negatef negates extf", BareWordAttr
)
"""The function of a `gpu.subgroup_mma_elementwise`."""


@irdl_attr_definition
class MmaMatrixType(ParametrizedAttribute, TypeAttribute):
    """The matrix of a product, distributed over a warp in an unspecified way: `!gpu.mma_matrix<16x16xf16, "AOp">`."""

    name = "gpu.mma_matrix"

    matrix: VectorType
    operand: StringAttr

    OPERANDS: ClassVar = ("AOp", "BOp", "COp")

    def verify(self) -> None:
        if len(self.matrix.get_shape()) != 2:
            raise VerifyException(f"expected two sizes of a matrix, got {self.matrix}")
        if self.operand.data not in self.OPERANDS:
            raise VerifyException(f"expected an operand of {', '.join(self.OPERANDS)}, got {self.operand.data}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            shape, kind = parser.parse_ranked_shape()
            parser.parse_punctuation(",")
            return VectorType(kind, shape), StringAttr(parser.parse_str_literal())

    def print_parameters(self, printer: Printer) -> None:
        sizes = "x".join(map(str, self.matrix.get_shape()))
        with printer.in_angle_brackets():
            printer.print_string(f"{sizes}x{self.matrix.element_type}, ")
            printer.print_attribute(self.operand)


@irdl_op_definition
class ShuffleOp(IRDLOperation):
    """Each lane gives a number and takes another lane's: `%y, %valid = gpu.shuffle xor %x, %offset, %width : f32`."""

    name = "gpu.shuffle"

    NUMBER: ClassVar = VarConstraint("NUMBER", AnyAttr())

    value = operand_def(NUMBER)
    offset = operand_def(i32)
    width = operand_def(i32)
    mode = prop_def(SHUFFLE)
    shuffleResult = result_def(NUMBER)  # noqa: N815
    valid = result_def(i1)

    assembly_format = "$mode $value `,` $offset `,` $width attr-dict `:` type($value)"


@irdl_op_definition
class SubgroupReduceOp(IRDLOperation):
    """The sum, or another reduction, of a number of each lane of a warp: `gpu.subgroup_reduce add %x : (f32) -> f32`.

    With `cluster(size = 4, stride = 2)` only lanes a stride apart are taken together, so many of them.
    """

    name = "gpu.subgroup_reduce"

    value = operand_def()
    op = prop_def(REDUCTION)
    uniform = opt_prop_def(UnitAttr)
    cluster_size = opt_prop_def(IntegerAttr[i32])
    cluster_stride = prop_def(IntegerAttr[i32], default_value=IntegerAttr(1, i32))
    result = result_def()

    assembly_format = (
        "$op $value (`uniform` $uniform^)?"
        " (`cluster` `(` `size` `=` $cluster_size^ (`,` `stride` `=` $cluster_stride^)? `)`)?"
        " attr-dict `:` functional-type($value, $result)"
    )


@irdl_custom_directive
class ReductionText(WordText):
    """The operation of a reduction, which a body may stand for."""

    WORDS: ClassVar = REDUCTION.WORDS

    attribute: AttributeVariable

    @classmethod
    def attribute_of(cls, word: str) -> Attribute:
        return REDUCTION.of(word)


@irdl_op_definition
class AllReduceOp(IRDLOperation):
    """The reduction of a number of each thread of a CTA, by an operation or a region:
    `gpu.all_reduce add %x uniform {} : (f32) -> f32`."""

    name = "gpu.all_reduce"

    value = operand_def()
    op = opt_prop_def(REDUCTION)
    uniform = opt_prop_def(UnitAttr)
    result = result_def()
    body = region_def()

    custom_directives = (ReductionText,)
    assembly_format = (
        "custom<ReductionText>($op) $value (`uniform` $uniform^)? $body attr-dict `:` functional-type($value, $result)"
    )


@irdl_op_definition
class DynamicSharedMemoryOp(IRDLOperation):
    """All the shared memory that a launch gives a CTA, in bytes."""

    name = "gpu.dynamic_shared_memory"
    assembly_format = "attr-dict `:` type($resultMemref)"

    resultMemref = result_def(MemRefType)  # noqa: N815

    traits = traits_def(Pure())


@irdl_op_definition
class PrintfOp(IRDLOperation):
    """Prints numbers of a thread: `gpu.printf "x = %f\\0A", %x : f32`."""

    name = "gpu.printf"
    assembly_format = "$format attr-dict (`,` $args^ `:` type($args))?"

    format = prop_def(StringAttr)
    args = var_operand_def()


@irdl_op_definition
class SubgroupMmaLoadMatrixOp(IRDLOperation):
    """A warp loads a matrix whose rows (columns, if `transpose`) are `leadDimension` elements apart."""

    name = "gpu.subgroup_mma_load_matrix"
    assembly_format = "$srcMemref `[` $indices `]` attr-dict `:` type($srcMemref) `->` type($res)"

    srcMemref = operand_def(MemRefType)  # noqa: N815
    indices = var_operand_def(IndexType)
    leadDimension = prop_def(IntegerAttr)  # noqa: N815
    transpose = opt_prop_def(UnitAttr)
    res = result_def(MmaMatrixType)

    irdl_options = (ParsePropInAttrDict(),)


@irdl_op_definition
class SubgroupMmaStoreMatrixOp(IRDLOperation):
    """A warp stores a matrix to rows (columns, if `transpose`) that are `leadDimension` elements apart."""

    name = "gpu.subgroup_mma_store_matrix"
    assembly_format = "$src `,` $dstMemref `[` $indices `]` attr-dict `:` type($src) `,` type($dstMemref)"

    src = operand_def(MmaMatrixType)
    dstMemref = operand_def(MemRefType)  # noqa: N815
    indices = var_operand_def(IndexType)
    leadDimension = prop_def(IntegerAttr)  # noqa: N815
    transpose = opt_prop_def(UnitAttr)

    irdl_options = (ParsePropInAttrDict(),)


@irdl_op_definition
class SubgroupMmaComputeOp(IRDLOperation):
    """D = A B + C of one warp."""

    SUM: ClassVar = VarConstraint("SUM", base(MmaMatrixType))

    name = "gpu.subgroup_mma_compute"
    assembly_format = "$opA `,` $opB `,` $opC attr-dict `:` type($opA) `,` type($opB) `->` type($res)"

    opA = operand_def(MmaMatrixType)  # noqa: N815
    opB = operand_def(MmaMatrixType)  # noqa: N815
    opC = operand_def(SUM)  # noqa: N815
    a_transpose = opt_prop_def(UnitAttr)
    b_transpose = opt_prop_def(UnitAttr)
    res = result_def(SUM)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())


@irdl_op_definition
class SubgroupMmaConstantMatrixOp(IRDLOperation):
    """A matrix that is one number everywhere."""

    ELEMENT: ClassVar = VarConstraint("ELEMENT", AnyAttr())

    name = "gpu.subgroup_mma_constant_matrix"
    assembly_format = "$value attr-dict `:` type($res)"

    value = operand_def(ELEMENT)
    res = result_def(ParamAttrConstraint(MmaMatrixType, (VectorType.constr(ELEMENT), AnyAttr())))

    traits = traits_def(Pure())


@irdl_op_definition
class SubgroupMmaElementwiseOp(IRDLOperation):
    """An operation on each element of matrices: `gpu.subgroup_mma_elementwise addf %a, %b : (...) -> ...`."""

    name = "gpu.subgroup_mma_elementwise"

    args = var_operand_def(MmaMatrixType)
    opType = prop_def(ELEMENTWISE)  # noqa: N815
    res = result_def(MmaMatrixType)

    traits = traits_def(Pure())
    assembly_format = "$opType $args attr-dict `:` functional-type($args, $res)"


OPERATIONS: tuple[type[Operation], ...] = (
    ShuffleOp, SubgroupReduceOp, AllReduceOp, DynamicSharedMemoryOp, PrintfOp, SubgroupMmaLoadMatrixOp,
    SubgroupMmaStoreMatrixOp, SubgroupMmaComputeOp, SubgroupMmaConstantMatrixOp, SubgroupMmaElementwiseOp,
)  # fmt: skip
"""Operations of `gpu` that xDSL has not."""

ATTRIBUTES: tuple[type[Attribute], ...] = (SHUFFLE, REDUCTION, ELEMENTWISE, MmaMatrixType)
"""Attributes of `gpu` that xDSL has not."""
