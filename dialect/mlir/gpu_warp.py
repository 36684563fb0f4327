"""What the threads of a kernel do together in `gpu`: exchanges and reductions of a warp, and `subgroup_mma`.

Source: MLIR 22, `mlir/include/mlir/Dialect/GPU/IR/GPUOps.td`.
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

from .upstream import declared
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


@irdl_custom_directive
class ReductionText(WordText):
    """The operation of a reduction, which a body may stand for."""

    WORDS: ClassVar = REDUCTION.WORDS

    attribute: AttributeVariable

    @classmethod
    def attribute_of(cls, word: str) -> Attribute:
        return REDUCTION.of(word)


# Exchanges and reductions of threads.

_NUMBER = VarConstraint("NUMBER", AnyAttr())

ShuffleOp = declared(
    IRDLOperation, "gpu.shuffle", "$mode $value `,` $offset `,` $width attr-dict `:` type($value)",
    "Each lane gives a number and takes another lane's: `%y, %valid = gpu.shuffle xor %x, %offset, %width : f32`.",
    value=operand_def(_NUMBER), offset=operand_def(i32), width=operand_def(i32), mode=prop_def(SHUFFLE),
    shuffleResult=result_def(_NUMBER), valid=result_def(i1),
)  # fmt: skip
SubgroupReduceOp = declared(
    IRDLOperation, "gpu.subgroup_reduce",
    "$op $value (`uniform` $uniform^)? (`cluster` `(` `size` `=` $cluster_size^ (`,` `stride` `=` $cluster_stride^)?"
    " `)`)? attr-dict `:` functional-type($value, $result)",
    """The sum, or another reduction, of a number of each lane of a warp: `gpu.subgroup_reduce add %x : (f32) -> f32`.

    With `cluster(size = 4, stride = 2)` only lanes a stride apart are taken together, so many of them.
    """,
    value=operand_def(), op=prop_def(REDUCTION), uniform=opt_prop_def(UnitAttr),
    cluster_size=opt_prop_def(IntegerAttr[i32]),
    cluster_stride=prop_def(IntegerAttr[i32], default_value=IntegerAttr(1, i32)), result=result_def(),
)  # fmt: skip
AllReduceOp = declared(
    IRDLOperation, "gpu.all_reduce",
    "custom<ReductionText>($op) $value (`uniform` $uniform^)? $body attr-dict `:` functional-type($value, $result)",
    """The reduction of a number of each thread of a CTA, by an operation or a region:
    `gpu.all_reduce add %x uniform {} : (f32) -> f32`.""",
    value=operand_def(), op=opt_prop_def(REDUCTION), uniform=opt_prop_def(UnitAttr), result=result_def(),
    body=region_def(), custom_directives=(ReductionText,),
)  # fmt: skip
PrintfOp = declared(
    IRDLOperation, "gpu.printf", "$format attr-dict (`,` $args^ `:` type($args))?",
    'Prints numbers of a thread: `gpu.printf "x = %f\\0A", %x : f32`.', format=prop_def(StringAttr),
    args=var_operand_def(),
)  # fmt: skip


# Matrices of a warp. With `transpose`, what is said of rows is said of columns.

_PLACE = {
    "indices": var_operand_def(IndexType), "leadDimension": prop_def(IntegerAttr),
    "transpose": opt_prop_def(UnitAttr), "irdl_options": (ParsePropInAttrDict(),),
}  # fmt: skip
_SUM, _ELEMENT = VarConstraint("SUM", base(MmaMatrixType)), VarConstraint("ELEMENT", AnyAttr())

SubgroupMmaLoadMatrixOp = declared(
    IRDLOperation, "gpu.subgroup_mma_load_matrix",
    "$srcMemref `[` $indices `]` attr-dict `:` type($srcMemref) `->` type($res)",
    "A warp loads a matrix whose rows are `leadDimension` elements apart.", srcMemref=operand_def(MemRefType), **_PLACE,
    res=result_def(MmaMatrixType),
)  # fmt: skip
SubgroupMmaStoreMatrixOp = declared(
    IRDLOperation, "gpu.subgroup_mma_store_matrix",
    "$src `,` $dstMemref `[` $indices `]` attr-dict `:` type($src) `,` type($dstMemref)",
    "A warp stores a matrix to rows that are `leadDimension` elements apart.", src=operand_def(MmaMatrixType),
    dstMemref=operand_def(MemRefType), **_PLACE,
)  # fmt: skip
SubgroupMmaComputeOp = declared(
    IRDLOperation, "gpu.subgroup_mma_compute",
    "$opA `,` $opB `,` $opC attr-dict `:` type($opA) `,` type($opB) `->` type($res)", "D = A B + C of one warp.",
    opA=operand_def(MmaMatrixType), opB=operand_def(MmaMatrixType), opC=operand_def(_SUM),
    a_transpose=opt_prop_def(UnitAttr), b_transpose=opt_prop_def(UnitAttr), res=result_def(_SUM),
    irdl_options=(ParsePropInAttrDict(),), traits=traits_def(Pure()),
)  # fmt: skip
SubgroupMmaConstantMatrixOp = declared(
    IRDLOperation, "gpu.subgroup_mma_constant_matrix", "$value attr-dict `:` type($res)",
    "A matrix that is one number everywhere.", value=operand_def(_ELEMENT), traits=traits_def(Pure()),
    res=result_def(ParamAttrConstraint(MmaMatrixType, (VectorType.constr(_ELEMENT), AnyAttr()))),
)  # fmt: skip
SubgroupMmaElementwiseOp = declared(
    IRDLOperation, "gpu.subgroup_mma_elementwise", "$opType $args attr-dict `:` functional-type($args, $res)",
    "An operation on each element of matrices: `gpu.subgroup_mma_elementwise addf %a, %b : (...) -> ...`.",
    args=var_operand_def(MmaMatrixType), opType=prop_def(ELEMENTWISE), res=result_def(MmaMatrixType),
    traits=traits_def(Pure()),
)  # fmt: skip


OPERATIONS: tuple[type[Operation], ...] = (
    ShuffleOp, SubgroupReduceOp, AllReduceOp, PrintfOp, SubgroupMmaLoadMatrixOp, SubgroupMmaStoreMatrixOp,
    SubgroupMmaComputeOp, SubgroupMmaConstantMatrixOp, SubgroupMmaElementwiseOp,
)  # fmt: skip

ATTRIBUTES: tuple[type[Attribute], ...] = (SHUFFLE, REDUCTION, ELEMENTWISE, MmaMatrixType)
