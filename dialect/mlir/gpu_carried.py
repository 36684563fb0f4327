"""Operations of `gpu` that few modules have, loaded when the first of them is met: what a host does with memory of a
device, what the threads of a warp do together, compiled kernels, and sparse matrices. Each of the host's may be `async`
and wait for tokens, as `%m, %t = gpu.alloc async [%0] (%n) : memref<?xf32>`.

Source: MLIR 22, `mlir/include/mlir/Dialect/GPU/IR/GPUOps.td`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import (
    I32,
    I64,
    ArrayAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    StringAttr,
    SymbolNameConstraint,
    UnitAttr,
    VectorType,
    i1,
    i32,
)
from xdsl.dialects.gpu import AsyncTokenType
from xdsl.ir import Attribute, Operation, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import (
    AnyAttr,
    AttrSizedOperandSegments,
    AttrSizedResultSegments,
    IRDLOperation,
    ParamAttrConstraint,
    ParsePropInAttrDict,
    VarConstraint,
    base,
    irdl_attr_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    opt_result_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.irdl.declarative_assembly_format import AttributeVariable, irdl_custom_directive
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from .gpu import AsyncDependencies
from .upstream import declared, typed
from .words import BareWordAttr, WordText, carried, defined, words

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


# Sparse matrices, and what a host does with memory of a device.


class _Handle(ParametrizedAttribute, TypeAttribute):
    """What cuSPARSE keeps of an object."""


def _handle(name: str) -> type[ParametrizedAttribute]:
    return defined(_Handle, f"gpu.sparse.{name}_handle", f"A handle of cuSPARSE: {name}.")


MATRIX, DENSE, PRODUCT = map(_handle, ("spmat", "dntensor", "spgemmop"))

TRANSPOSE = words("gpu.mat_transpose_mode", "NON_TRANSPOSE TRANSPOSE CONJUGATE_TRANSPOSE", BareWordAttr)
PRUNE = words("gpu.prune_2to4_spmat_flag", "NONE PRUNE_ONLY PRUNE_AND_CHECK", BareWordAttr)
STEP = words("gpu.spgemm_work_estimation_or_compute_kind", "WORK_ESTIMATION COMPUTE", BareWordAttr)

_HANDLES = {MATRIX: "spmat spmatA spmatB spmatC", DENSE: "dnTensor dnX dnY dnmatA dnmatB dnmatC", PRODUCT: "desc"}
_SIZES = "rows cols nnz brows bcols bnnz rBlockSize cBlockSize bufferSz"

_KINDS: Mapping[str, object] = {
    **{name: operand_def(kind()) for kind, names in _HANDLES.items() for name in names.split()},
    **{name: operand_def(IndexType()) for name in _SIZES.split()},
    **{name: prop_def(TRANSPOSE, default_value=TRANSPOSE.of("NON_TRANSPOSE")) for name in ("modeA", "modeB")},
    **{name: var_operand_def(IndexType) for name in ("dims", "dynamicSizes", "symbolOperands")},
    "value": operand_def(),
    "hostShared": opt_prop_def(UnitAttr),
    "buffers": var_operand_def(MemRefType),
    "computeType": prop_def(Attribute),
    "kind": prop_def(STEP),
    "pruneFlag": prop_def(PRUNE),
}
"""What a name in a text is; others are operands that are memory."""


def _row(name: str, text: str, summary: str, **results: object) -> type[IRDLOperation]:
    """An operation by its text behind its tokens; operands stand in the order of the text, but for `desc`."""
    names = dict.fromkeys(name for name in re.findall(r"\$(\w+)", text) if name not in results)
    names = sorted(names, key=lambda name: name != "desc")
    fields = {each: _KINDS.get(each) or operand_def(MemRefType) for each in names}
    options = [AttrSizedOperandSegments(as_property=True)] if {"dims", "buffers", "dynamicSizes"} & set(names) else []
    options += [AttrSizedResultSegments(as_property=True)] if "bufferSzs" in results else []
    return declared(
        IRDLOperation, f"gpu.{name}",
        f"custom<AsyncDependencies>(type($asyncToken), $asyncDependencies) {text}", summary,
        asyncDependencies=var_operand_def(AsyncTokenType), **fields, **results,
        asyncToken=opt_result_def(AsyncTokenType), irdl_options=tuple(options),
        custom_directives=(AsyncDependencies,),
    )  # fmt: skip


def _matrix(name: str, sizes: str, memory: str) -> type[IRDLOperation]:
    """An operation that creates a sparse matrix from sizes and memory."""
    operands = " `,` ".join(f"${n}" for n in sizes.split())
    return _row(name, f"{operands} `,` {typed(*memory.split())}", "A sparse matrix.", spmat=result_def(MATRIX()))


_MODES = "{} (` ` `{{` $modeA^ `}}`)? `,` {} (` ` `{{` $modeB^ `}}`)? `,` {}"
_SPMV, _SPMM = "$spmatA (` ` `{` $modeA^ `}`)? `,` $dnX `,` $dnY", _MODES.format("$spmatA", "$dnmatB", "$dnmatC")
_SDDMM = _MODES.format("$dnmatA", "$dnmatB", "$spmatC")
_SPGEMM = f"{_MODES.format('$spmatA', '$spmatB', '$spmatC')} `,` $desc"
_BUFFER, _INTO = "`,` $buffer attr-dict `:` type($buffer)", "`into` $computeType"
_SIZE = {"bufferSz": result_def(IndexType())}

HOST = (
    _row("wait", "attr-dict", "Waits for tokens, on the host or as a token."),
    _row(
        "alloc",
        "(` ` `host_shared` $hostShared^)? ` ` `(` $dynamicSizes `)` (`` `[` $symbolOperands^ `]`)? attr-dict"
        " `:` type($result)",
        "Memory of the device.", result=result_def(MemRefType),
    ),
    _row("dealloc", typed("buffer"), "Frees memory of the device."),
    _row("memcpy", typed("dst", "src"), "Copies memory."),
    _row("memset", typed("dst", "value"), "Sets all elements of memory."),
    declared(IRDLOperation, "gpu.set_default_device", "attr-dict $devIndex", "The device of what follows.",
             devIndex=operand_def(i32)),
    *(
        declared(IRDLOperation, f"gpu.host_{name}", typed("value"), summary, value=operand_def())
        for name, summary in (("register", "Lets the device access memory of the host."), ("unregister", "Ends that."))
    ),
    declared(
        IRDLOperation, "gpu.yield", "attr-dict ($values^ `:` type($values))?", "The end of a body.",
        values=var_operand_def(), traits=traits_def(IsTerminator()),
    ),
)  # fmt: skip


# Compiled kernels, and what loops are mapped to.

TEXTS = tuple(
    carried(f"gpu.{name}") for name in (
        "object", "select_object", "kernel_table", "kernel_metadata", "block", "warpgroup", "warp", "thread", "lane",
        "memory_space", "mask",
    )
)  # fmt: skip

BinaryOp = declared(
    IRDLOperation, "gpu.binary", "$sym_name (` ` `<` $offloadingHandler^ `>`)? attr-dict $objects",
    "What kernels have been compiled to.", sym_name=prop_def(SymbolNameConstraint()),
    offloadingHandler=opt_prop_def(), objects=prop_def(ArrayAttr),
)  # fmt: skip


def assembly(target: Attribute, ptx: str) -> Attribute:
    """PTX as the object of a `gpu.binary`: `#gpu.object<#nvvm.target<chip = "sm_80">, assembly = "...">`."""
    escaped = re.sub(r"[^ !#-\[\]-~]", lambda part: f"\\{ord(part[0]):02X}", ptx)
    return TEXTS[0].of(f'<{target}, assembly = "{escaped}">')


# Sparse matrices and parts of kernels, which nothing here lowers.

_SAME = VarConstraint("SAME", AnyAttr())
_AT = {"indices": var_operand_def(IndexType())}

BROADCAST = words("gpu.broadcast", "first_active_lane specific_lane", BareWordAttr)

OPERATIONS: tuple[type[Operation], ...] = (
    ShuffleOp, SubgroupReduceOp, AllReduceOp, PrintfOp, SubgroupMmaLoadMatrixOp, SubgroupMmaStoreMatrixOp,
    SubgroupMmaComputeOp, SubgroupMmaConstantMatrixOp, SubgroupMmaElementwiseOp,
    *HOST,
    BinaryOp,
    _row("create_dn_tensor", "$memref `,` $dims attr-dict `:` type($dims) `into` type($memref)", "A dense tensor.",
         dnTensor=result_def(DENSE())),
    _row("destroy_dn_tensor", "$dnTensor attr-dict", "Frees a dense tensor."),
    _matrix("create_coo", "rows cols nnz", "rowIdxs colIdxs values"),
    _matrix("create_coo_aos", "rows cols nnz", "idxs values"),
    _matrix("create_csr", "rows cols nnz", "rowPos colIdxs values"),
    _matrix("create_csc", "rows cols nnz", "colPos rowIdxs values"),
    _matrix("create_bsr", "brows bcols bnnz rBlockSize cBlockSize", "bRowPos bColIdxs values"),
    _row("create_2to4_spmat", "` ` `{` $pruneFlag `}` $rows `,` $cols `,` $memref attr-dict `:` type($memref)",
         "A matrix of which two elements of four are zero.", spMat=result_def(MATRIX())),
    _row("destroy_sp_mat", "$spmat attr-dict", "Frees a sparse matrix."),
    _row("spmv_buffer_size", f"{_SPMV} attr-dict {_INTO}", "The bytes that `spmv` needs.", **_SIZE),
    _row("spmv", f"{_SPMV} {_BUFFER} {_INTO}", "A sparse matrix times a vector."),
    _row("spmm_buffer_size", f"{_SPMM} attr-dict `:` type($bufferSzs) {_INTO}", "The bytes that `spmm` needs.",
         bufferSzs=var_result_def(IndexType)),
    _row("spmm", f"{_SPMM} `,` $buffers attr-dict `:` type($buffers) {_INTO}", "A sparse matrix times a dense one."),
    _row("sddmm_buffer_size", f"{_SDDMM} attr-dict {_INTO}", "The bytes that `sddmm` needs.", **_SIZE),
    _row("sddmm", f"{_SDDMM} {_BUFFER} {_INTO}", "Elements of a product, where a sparse matrix has any."),
    _row("spgemm_create_descr", "attr-dict", "What products of sparse matrices keep.", desc=result_def(PRODUCT())),
    _row("spgemm_destroy_descr", "$desc attr-dict", "Frees that."),
    _row(
        "spgemm_work_estimation_or_compute",
        f"` ` `{{` $kind `}}` {_SPGEMM} `,` $bufferSz `,` $buffer attr-dict `:` $computeType `into` type($buffer)",
        "The bytes that a product of sparse matrices needs, or the product.", bufferSzNew=result_def(IndexType()),
    ),
    _row("spgemm_copy", f"{_SPGEMM} attr-dict `:` $computeType", "Takes such a product."),
    _row("spmat_get_size", "$spmat attr-dict", "The sizes of a sparse matrix.",
         **{name: result_def(IndexType()) for name in ("rows", "cols", "nnz")}),
    _row("set_csr_pointers", f"$spmat `,` {typed('positions', 'coordinates', 'values')}", "Gives it memory."),
    declared(
        IRDLOperation, "gpu.rotate", "$value `,` $offset `,` $width attr-dict `:` type($value)",
        "Each lane takes the number of the lane `offset` further, of `width` lanes.", value=operand_def(_SAME),
        offset=prop_def(IntegerAttr[I32]), width=prop_def(IntegerAttr[I32]), rotateResult=result_def(_SAME),
        valid=result_def(i1), traits=traits_def(Pure()),
    ),
    declared(
        IRDLOperation, "gpu.subgroup_broadcast", "$src `,` $broadcast_type ($lane^)? attr-dict `:` type($src)",
        "The number of one lane, in all.", src=operand_def(_SAME), lane=opt_operand_def(i32),
        broadcast_type=prop_def(BROADCAST), result=result_def(_SAME),
    ),
    declared(
        IRDLOperation, "gpu.subgroup_mma_extract_thread_local",
        "$matrix `[` $indices `]` attr-dict `:` type($matrix) `->` type($res)", "A number that a lane holds.",
        matrix=operand_def(MmaMatrixType), **_AT, res=result_def(), traits=traits_def(Pure()),
    ),
    declared(
        IRDLOperation, "gpu.subgroup_mma_insert_thread_local",
        "$value `,` $matrix `[` $indices `]` attr-dict `:` type($value) `,` type($matrix) `->` type($res)",
        "Changes a number that a lane holds.", value=operand_def(), matrix=operand_def(MmaMatrixType), **_AT,
        res=result_def(MmaMatrixType), traits=traits_def(Pure()),
    ),
    declared(
        IRDLOperation, "gpu.warp_execute_on_lane_0",
        "`(` $laneid `)` `[` $warp_size `]` (`args` `(` $args^ `:` type($args) `)`)? (`->` `(` type($results_)^ `)`)?"
        " $body attr-dict",
        "Operations of one lane on vectors of the warp, of which each lane has a part.",
        laneid=operand_def(IndexType()),
        warp_size=prop_def(IntegerAttr[I64]), args=var_operand_def(), results_=var_result_def(), body=region_def(),
    ),
)  # fmt: skip

ATTRIBUTES: tuple[type[Attribute], ...] = (
    SHUFFLE, REDUCTION, ELEMENTWISE, MmaMatrixType, *TEXTS, MATRIX, DENSE, PRODUCT, TRANSPOSE, PRUNE, STEP, BROADCAST,
)  # fmt: skip
