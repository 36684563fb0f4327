"""What `gpu` has for the threads of a kernel and xDSL lacks: exchanges and reductions of a warp, and `subgroup_mma`.

Operands, properties and text are those of MLIR 22 (`mlir/include/mlir/Dialect/GPU/IR`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import (
    FunctionType,
    IndexType,
    IntegerAttr,
    MemRefType,
    StringAttr,
    UnitAttr,
    VectorType,
    i1,
    i32,
)
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import Attribute, Operation, ParametrizedAttribute, SpacedOpaqueSyntaxAttribute, SSAValue, TypeAttribute
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
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
from xdsl.parser import AttrParser, Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.str_enum import StrEnum


class ShuffleMode(StrEnum):
    """How `gpu.shuffle` chooses the source lane: by exclusive or of the lane number, by an offset down or up, or by
    index."""

    XOR = "xor"
    UP = "up"
    DOWN = "down"
    IDX = "idx"


@irdl_attr_definition
class ShuffleModeAttr(EnumAttribute[ShuffleMode], SpacedOpaqueSyntaxAttribute):
    name = "gpu.shuffle_mode"


class ReductionKind(StrEnum):
    """The operation of `gpu.subgroup_reduce`; xDSL lacks those that name the kind of number."""

    ADD = "add"
    MUL = "mul"
    MINUI = "minui"
    MINSI = "minsi"
    MINNUMF = "minnumf"
    MAXUI = "maxui"
    MAXSI = "maxsi"
    MAXNUMF = "maxnumf"
    AND = "and"
    OR = "or"
    XOR = "xor"
    MINIMUMF = "minimumf"
    MAXIMUMF = "maximumf"


@irdl_attr_definition
class ReductionAttr(EnumAttribute[ReductionKind], SpacedOpaqueSyntaxAttribute):
    name = "gpu.all_reduce_op"


class MmaElementwise(StrEnum):
    """The function of a `gpu.subgroup_mma_elementwise`."""

    ADDF = "addf"
    MULF = "mulf"
    SUBF = "subf"
    MAXF = "maxf"
    MINF = "minf"
    DIVF = "divf"
    ADDI = "addi"
    MULI = "muli"
    SUBI = "subi"
    DIVS = "divs"
    DIVU = "divu"
    NEGATEF = "negatef"
    NEGATES = "negates"
    EXTF = "extf"


@irdl_attr_definition
class MmaElementwiseAttr(EnumAttribute[MmaElementwise], SpacedOpaqueSyntaxAttribute):
    name = "gpu.mma_element_wise"


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


class _WordFirst(IRDLOperation):
    """An operation whose text begins with a word: `gpu.shuffle xor %x, ...`."""

    def _print_word(self, printer: Printer, word: str) -> None:
        printer.print_string(f" {word} ")


@irdl_op_definition
class ShuffleOp(IRDLOperation):
    """Each lane gives a number and takes another lane's: `%y, %valid = gpu.shuffle xor %x, %offset, %width : f32`."""

    name = "gpu.shuffle"

    NUMBER: ClassVar = VarConstraint("NUMBER", AnyAttr())

    value = operand_def(NUMBER)
    offset = operand_def(i32)
    width = operand_def(i32)
    mode = prop_def(ShuffleModeAttr)
    shuffleResult = result_def(NUMBER)  # noqa: N815
    valid = result_def(i1)

    assembly_format = "$mode $value `,` $offset `,` $width attr-dict `:` type($value)"


@irdl_op_definition
class SubgroupReduceOp(_WordFirst):
    """The sum, or another reduction, of a number of each lane of a warp: `gpu.subgroup_reduce add %x : (f32) -> f32`.

    With `cluster(size = 4, stride = 2)` only lanes a stride apart are taken together, so many of them.
    """

    name = "gpu.subgroup_reduce"

    value = operand_def()
    op = prop_def(ReductionAttr)
    uniform = opt_prop_def(UnitAttr)
    cluster_size = opt_prop_def(IntegerAttr)
    cluster_stride = prop_def(IntegerAttr, default_value=IntegerAttr(1, i32))
    result = result_def()

    @classmethod
    def parse(cls, parser: Parser) -> SubgroupReduceOp:
        properties: dict[str, Attribute] = {"op": ReductionAttr(parser.parse_str_enum(ReductionKind))}
        source = parser.parse_unresolved_operand()
        if parser.parse_optional_keyword("uniform") is not None:
            properties["uniform"] = UnitAttr()
        properties["cluster_stride"] = IntegerAttr(1, i32)
        if parser.parse_optional_keyword("cluster") is not None:
            with parser.in_parens():
                properties |= cls._parse_cluster(parser)
        attributes = parser.parse_optional_attr_dict()
        operand, result = _parse_unary_type(parser, source)
        return cls.create(operands=[operand], result_types=[result], properties=properties, attributes=attributes)

    @staticmethod
    def _parse_cluster(parser: Parser) -> dict[str, Attribute]:
        properties: dict[str, Attribute] = {}
        parser.parse_keyword("size")
        parser.parse_punctuation("=")
        properties["cluster_size"] = IntegerAttr(parser.parse_integer(), i32)
        if parser.parse_optional_punctuation(",") is not None:
            parser.parse_keyword("stride")
            parser.parse_punctuation("=")
            properties["cluster_stride"] = IntegerAttr(parser.parse_integer(), i32)
        return properties

    def print(self, printer: Printer) -> None:
        self._print_word(printer, self.op.data.value)
        printer.print_ssa_value(self.value)
        if self.uniform is not None:
            printer.print_string(" uniform")
        if self.cluster_size is not None:
            stride = self.cluster_stride.value.data
            printer.print_string(f" cluster(size = {self.cluster_size.value.data}")
            printer.print_string(f", stride = {stride})" if stride != 1 else ")")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(FunctionType.from_lists([self.value.type], [self.result.type]))


@irdl_op_definition
class AllReduceOp(_WordFirst):
    """The reduction of a number of each thread of a CTA, by an operation or a region:
    `gpu.all_reduce add %x uniform {} : (f32) -> f32`."""

    name = "gpu.all_reduce"

    value = operand_def()
    op = opt_prop_def(ReductionAttr)
    uniform = opt_prop_def(UnitAttr)
    result = result_def()
    body = region_def()

    @classmethod
    def parse(cls, parser: Parser) -> AllReduceOp:
        properties: dict[str, Attribute] = {}
        if (word := parser.parse_optional_str_enum(ReductionKind)) is not None:
            properties["op"] = ReductionAttr(word)
        source = parser.parse_unresolved_operand()
        if parser.parse_optional_keyword("uniform") is not None:
            properties["uniform"] = UnitAttr()
        body = parser.parse_region()
        attributes = parser.parse_optional_attr_dict()
        operand, result = _parse_unary_type(parser, source)
        return cls.create(
            operands=[operand], result_types=[result], properties=properties, attributes=attributes, regions=[body]
        )

    def print(self, printer: Printer) -> None:
        self._print_word(printer, "" if self.op is None else self.op.data.value)
        printer.print_ssa_value(self.value)
        printer.print_string(" " if self.uniform is None else " uniform ")
        printer.print_region(self.body, print_empty_block=False)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(FunctionType.from_lists([self.value.type], [self.result.type]))


def _parse_unary_type(parser: Parser, source: UnresolvedOperand) -> tuple[SSAValue, Attribute]:
    """The operand, and the type of the result, that `: (f32) -> f32` says."""
    parser.parse_punctuation(":")
    kind = parser.parse_type()
    if not isinstance(kind, FunctionType) or len(kind.inputs) != 1 or len(kind.outputs) != 1:
        parser.raise_error("expected the types of one operand and one result")
    return parser.resolve_operand(source, kind.inputs.data[0]), kind.outputs.data[0]


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

    name = "gpu.subgroup_mma_constant_matrix"

    value = operand_def()
    res = result_def(MmaMatrixType)

    traits = traits_def(Pure())

    @classmethod
    def parse(cls, parser: Parser) -> SubgroupMmaConstantMatrixOp:
        source = parser.parse_unresolved_operand()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        kind = parser.parse_type()
        if not isinstance(kind, MmaMatrixType):
            parser.raise_error("expected the type of a matrix")
        operand = parser.resolve_operand(source, kind.matrix.element_type)
        return cls.create(operands=[operand], result_types=[kind], attributes=attributes)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.value)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.res.type)


@irdl_op_definition
class SubgroupMmaElementwiseOp(IRDLOperation):
    """An operation on each element of matrices: `gpu.subgroup_mma_elementwise addf %a, %b : (...) -> ...`."""

    name = "gpu.subgroup_mma_elementwise"

    args = var_operand_def(MmaMatrixType)
    opType = prop_def(MmaElementwiseAttr)  # noqa: N815
    res = result_def(MmaMatrixType)

    traits = traits_def(Pure())
    assembly_format = "$opType $args attr-dict `:` functional-type($args, $res)"


OPERATIONS: tuple[type[Operation], ...] = (
    ShuffleOp, SubgroupReduceOp, AllReduceOp, DynamicSharedMemoryOp, PrintfOp, SubgroupMmaLoadMatrixOp,
    SubgroupMmaStoreMatrixOp, SubgroupMmaComputeOp, SubgroupMmaConstantMatrixOp, SubgroupMmaElementwiseOp,
)  # fmt: skip
"""Operations of `gpu` that xDSL has not."""

ATTRIBUTES: tuple[type[Attribute], ...] = (ShuffleModeAttr, ReductionAttr, MmaElementwiseAttr, MmaMatrixType)
"""Attributes of `gpu` that xDSL has not."""
