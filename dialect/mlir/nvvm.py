"""`nvvm` as MLIR prints it, which xDSL lacks: one instruction of PTX each, on values of `llvm`."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, f32, i32, i64
from xdsl.dialects.llvm import LLVMPointerType, LLVMStructType
from xdsl.ir import Dialect
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import Pure

from . import nvvm_types as types
from .nvvm_ops import COPIES, EXCHANGES, PLAIN, SEGMENTS, SPECIAL_OPERATIONS, Integer, NvvmOp, operation
from .nvvm_types import ATTRIBUTES, MatrixShapeAttr, ShapeAttr

# Operations of `nvvm`: matrices, products of a warp and of a warpgroup, arithmetic.


ROWS = (
    # Arithmetic.
    operation(
        "rcp.approx.ftz.f",
        "1 / x, to one bit of the last place; what is subnormal is 0.",
        "rcp.approx.ftz.f32 res, arg",
        "$arg attr-dict `:` type($res)",
        arg=operand_def(f32), res=result_def(f32), traits=traits_def(Pure()),
    ),
    operation(
        "prmt",
        "Bytes of two words, each chosen by a nibble.",
        "prmt.b32{mode/default=} res, lo, hi, selector",
        "$mode $selector `,` $lo (`,` $hi^)? attr-dict `:` type($res)",
        lo=operand_def(i32), hi=opt_operand_def(i32), selector=operand_def(i32), mode=prop_def(types.PERMUTE_MODE),
        res=result_def(i32), traits=traits_def(Pure()),
    ),

    # Matrices.
    operation(
        "ldmatrix",
        "Matrices of shared memory, each lane's row at its own address.",
        "ldmatrix.sync.aligned.{shape}.x{num}{layout/row=/col=.trans}.shared.{eltType} (res), [ptr@shared]",
        "$ptr attr-dict `:` functional-type($ptr, $res)",
        ptr=operand_def(LLVMPointerType), num=prop_def(Integer), layout=prop_def(types.MMA_LAYOUT),
        shape=prop_def(MatrixShapeAttr), eltType=prop_def(types.MATRIX_TYPE), res=result_def(),
    ),
    operation(
        "stmatrix",
        "Stores matrices to shared memory, each lane's row at its own address.",
        "stmatrix.sync.aligned.{shape}.x{#sources}{layout/row=/col=.trans}.shared.{eltType} [ptr@shared],"
        " (sources)",
        "$ptr `,` $sources attr-dict `:` type($ptr) `,` type($sources)",
        ptr=operand_def(LLVMPointerType), sources=var_operand_def(i32), layout=prop_def(types.MMA_LAYOUT),
        shape=prop_def(MatrixShapeAttr), eltType=prop_def(types.MATRIX_TYPE),
    ),
    operation(
        "wgmma.wait.group.sync.aligned",
        "Waits until at most `group` groups of products of the warpgroup are under way.",
        "wgmma.wait_group.sync.aligned {group}",
        "$group attr-dict",
        group=prop_def(IntegerAttr[i64]),
    ),
)  # fmt: skip


@irdl_op_definition
class WgmmaMmaAsyncOp(NvvmOp):
    """D = A B + D of a warpgroup, begun: A and B lie in shared memory, `inouts` are the sums in registers."""

    name = "nvvm.wgmma.mma_async"

    inouts = operand_def(LLVMStructType)
    descriptorA = operand_def(i64)  # noqa: N815
    descriptorB = operand_def(i64)  # noqa: N815
    shape = prop_def(ShapeAttr)
    typeA = prop_def(types.WGMMA_TYPE)  # noqa: N815
    typeB = prop_def(types.WGMMA_TYPE)  # noqa: N815
    typeD = prop_def(types.WGMMA_TYPE)  # noqa: N815
    scaleD = prop_def(types.WGMMA_SCALE_OUT)  # noqa: N815
    scaleA = prop_def(types.WGMMA_SCALE_IN)  # noqa: N815
    scaleB = prop_def(types.WGMMA_SCALE_IN)  # noqa: N815
    layoutA = prop_def(types.MMA_LAYOUT)  # noqa: N815
    layoutB = prop_def(types.MMA_LAYOUT)  # noqa: N815
    satfinite = opt_prop_def(types.MMA_OVERFLOW)
    results_ = result_def(LLVMStructType)

    assembly_format = (
        "$descriptorA `,` $descriptorB `,` $inouts `,` $shape `,`"
        " `D` `[` $typeD `,` $scaleD (`,` $satfinite^)? `]` `,`"
        " `A` `[` $typeA `,` $scaleA `,` $layoutA `]` `,`"
        " `B` `[` $typeB `,` $scaleB `,` $layoutB `]`"
        " attr-dict `:` type($inouts) `->` type($results_)"
    )


@irdl_op_definition
class MmaOp(NvvmOp):
    """D = A B + C of one warp by `mma`: each operand's registers one by one."""

    name = "nvvm.mma.sync"

    operandA = var_operand_def()  # noqa: N815
    operandB = var_operand_def()  # noqa: N815
    operandC = var_operand_def()  # noqa: N815
    shape = prop_def(ShapeAttr)
    b1Op = opt_prop_def(types.MMA_BIT_OP)  # noqa: N815
    intOverflowBehavior = opt_prop_def(types.MMA_OVERFLOW)  # noqa: N815
    layoutA = prop_def(types.MMA_LAYOUT)  # noqa: N815
    layoutB = prop_def(types.MMA_LAYOUT)  # noqa: N815
    multiplicandAPtxType = opt_prop_def(types.MMA_TYPE)  # noqa: N815
    multiplicandBPtxType = opt_prop_def(types.MMA_TYPE)  # noqa: N815
    res = result_def(LLVMStructType)

    irdl_options = SEGMENTS
    traits = traits_def(Pure())

    def print(self, printer: Printer) -> None:
        parts = (("A", self.operandA), ("B", self.operandB), ("C", self.operandC))
        for name, values in parts:
            printer.print_string(f" {name}")
            with printer.in_square_brackets():
                printer.print_list(values, printer.print_ssa_value)
        shown = {name: value for name, value in self.properties.items() if name != "operandSegmentSizes"}
        printer.print_op_attributes(dict(sorted((shown | self.attributes).items())))
        printer.print_string(" : ")
        with printer.in_parens():
            printer.print_list([values[0].type for _, values in parts], printer.print_attribute)
        printer.print_string(" -> ")
        printer.print_attribute(self.res.type)

    @classmethod
    def parse(cls, parser: Parser) -> MmaOp:
        def parse_values(name: str) -> list[UnresolvedOperand]:
            parser.parse_keyword(name)
            return parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)

        values = [parse_values(name) for name in "ABC"]
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        place = parser.pos
        kinds = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        if len(kinds) != len(values):
            parser.raise_error("expected a type for each of A, B and C", place)
        parser.parse_punctuation("->")
        result = parser.parse_type()
        operands = [
            [parser.resolve_operand(value, kind) for value in each] for each, kind in zip(values, kinds, strict=True)
        ]
        names = cls.get_irdl_definition().properties
        properties = {name: value for name, value in attributes.items() if name in names}
        extra = {name: value for name, value in attributes.items() if name not in names}
        return cls.build(operands=operands, result_types=[result], properties=properties, attributes=extra)


MATRICES = (*ROWS, WgmmaMmaAsyncOp, MmaOp)


OPERATIONS: list[type[NvvmOp]] = [*SPECIAL_OPERATIONS.values(), *PLAIN, *EXCHANGES, *COPIES, *MATRICES]

NVVM = Dialect("nvvm", [*OPERATIONS], [*ATTRIBUTES])
