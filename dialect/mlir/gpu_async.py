"""What a host does with memory of a device, in MLIR's text: `gpu.wait`, `alloc`, `memcpy`, sparse matrices of cuSPARSE.

Each may be `async` and wait for tokens: `%m, %t = gpu.alloc async [%0] (%n) : memref<?xf32>`. Sparse matrices are read
and printed. Source: MLIR 22, `mlir/include/mlir/Dialect/GPU/IR/GPUOps.td`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from xdsl.dialects.builtin import IndexType, MemRefType, UnitAttr, i32
from xdsl.dialects.gpu import AsyncTokenType
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import (
    AttrSizedOperandSegments,
    AttrSizedResultSegments,
    IRDLOperation,
    irdl_attr_definition,
    operand_def,
    opt_prop_def,
    opt_result_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.irdl.declarative_assembly_format import (
    CustomDirective,
    ParsingState,
    PrintingState,
    TypeDirective,
    VariadicOperandVariable,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator

from .upstream import declared
from .words import BareWordAttr, words


@irdl_custom_directive
class AsyncDependencies(CustomDirective):
    """`async [%t]`: whether an operation makes a token, and the tokens that it waits for."""

    token: TypeDirective
    waits: VariadicOperandVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        self.token.set(state, (AsyncTokenType(),) if parser.parse_optional_keyword("async") is not None else ())
        waits = parser.parse_optional_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)
        self.waits.set(state, waits or ())
        self.waits.set_types(state, (AsyncTokenType(),) * len(waits or ()))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        if self.token.get(op):
            printer.print_string(" async")
        if waits := self.waits.get(op):
            printer.print_string(" ")
            with printer.in_square_brackets():
                printer.print_list(waits, printer.print_ssa_value)


class _AsyncOp(IRDLOperation):
    """An operation that may wait for tokens, and make one."""

    custom_directives = (AsyncDependencies,)


def _handle(name: str) -> type[ParametrizedAttribute]:
    members = {"name": f"gpu.sparse.{name}_handle", "__module__": __name__, "__doc__": f"A handle of cuSPARSE: {name}."}
    return irdl_attr_definition(type(name, (ParametrizedAttribute, TypeAttribute), members))


MATRIX, DENSE, PRODUCT = map(_handle, ("spmat", "dntensor", "spgemmop"))

TRANSPOSE = words("gpu.mat_transpose_mode", "NON_TRANSPOSE TRANSPOSE CONJUGATE_TRANSPOSE", BareWordAttr)
PRUNE = words("gpu.prune_2to4_spmat_flag", "NONE PRUNE_ONLY PRUNE_AND_CHECK", BareWordAttr)
STEP = words("gpu.spgemm_work_estimation_or_compute_kind", "WORK_ESTIMATION COMPUTE", BareWordAttr)

ATTRIBUTES = (MATRIX, DENSE, PRODUCT, TRANSPOSE, PRUNE, STEP)

_HANDLES = {MATRIX: "spmat spmatA spmatB spmatC", DENSE: "dnTensor dnX dnY dnmatA dnmatB dnmatC", PRODUCT: "desc"}
_SIZES = "rows cols nnz brows bcols bnnz rBlockSize cBlockSize bufferSz"

_FIELDS: Mapping[str, object] = {
    **{name: operand_def(kind()) for kind, names in _HANDLES.items() for name in names.split()},
    **{name: operand_def(IndexType()) for name in _SIZES.split()},
    **{name: prop_def(TRANSPOSE, default_value=TRANSPOSE.of("NON_TRANSPOSE")) for name in ("modeA", "modeB")},
    "devIndex": operand_def(i32),
    "value": operand_def(),
    "dims": var_operand_def(IndexType),
    "buffers": var_operand_def(MemRefType),
    "dynamicSizes": var_operand_def(IndexType()),
    "symbolOperands": var_operand_def(IndexType()),
    "hostShared": opt_prop_def(UnitAttr),
    "computeType": prop_def(Attribute),
    "kind": prop_def(STEP),
    "pruneFlag": prop_def(PRUNE),
}
"""What a name in a text is; others are operands that are memory."""


def _row(name: str, text: str, summary: str, **results: object) -> type[IRDLOperation]:
    """An operation by its text behind its tokens; operands stand in the order of the text, but for `desc`."""
    names = sorted(set(re.findall(r"\$(\w+)", text)) - results.keys(), key=lambda n: (n != "desc", text.index(f"${n}")))
    fields = {each: _FIELDS.get(each) or operand_def(MemRefType) for each in names}
    options = [AttrSizedOperandSegments(as_property=True)] if {"dims", "buffers", "dynamicSizes"} & set(names) else []
    options += [AttrSizedResultSegments(as_property=True)] if "bufferSzs" in results else []
    return declared(
        _AsyncOp, f"gpu.{name}", f"custom<AsyncDependencies>(type($asyncToken), $asyncDependencies) {text}", summary,
        asyncDependencies=var_operand_def(AsyncTokenType), **fields, **results,
        asyncToken=opt_result_def(AsyncTokenType), irdl_options=tuple(options),
    )  # fmt: skip


def _typed(*names: str) -> str:
    """Operands, and behind them their types."""
    return f"{' `,` '.join(f'${n}' for n in names)} attr-dict `:` {' `,` '.join(f'type(${n})' for n in names)}"


def _matrix(name: str, sizes: str, memory: str) -> type[IRDLOperation]:
    """A sparse matrix that is made of sizes and memory."""
    operands = " `,` ".join(f"${n}" for n in sizes.split())
    return _row(name, f"{operands} `,` {_typed(*memory.split())}", "A sparse matrix.", spmat=result_def(MATRIX()))


_MODES = "{} (` ` `{{` $modeA^ `}}`)? `,` {} (` ` `{{` $modeB^ `}}`)? `,` {}"
_SPMV, _SPMM = "$spmatA (` ` `{` $modeA^ `}`)? `,` $dnX `,` $dnY", _MODES.format("$spmatA", "$dnmatB", "$dnmatC")
_SDDMM = _MODES.format("$dnmatA", "$dnmatB", "$spmatC")
_SPGEMM = f"{_MODES.format('$spmatA', '$spmatB', '$spmatC')} `,` $desc"
_BUFFER, _INTO = "`,` $buffer attr-dict `:` type($buffer)", "`into` $computeType"
_SIZE = {"bufferSz": result_def(IndexType())}

OPERATIONS = (
    _row("wait", "attr-dict", "Waits for tokens, on the host or as a token."),
    _row(
        "alloc",
        "(` ` `host_shared` $hostShared^)? ` ` `(` $dynamicSizes `)` (`` `[` $symbolOperands^ `]`)? attr-dict"
        " `:` type($result)",
        "Memory of the device.", result=result_def(MemRefType),
    ),
    _row("dealloc", _typed("buffer"), "Frees memory of the device."),
    _row("memcpy", _typed("dst", "src"), "Copies memory."),
    _row("memset", _typed("dst", "value"), "Sets all elements of memory."),
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
    _row("set_csr_pointers", f"$spmat `,` {_typed('positions', 'coordinates', 'values')}", "Gives it memory."),
    declared(IRDLOperation, "gpu.set_default_device", "attr-dict $devIndex", "The device of what follows.",
             devIndex=operand_def(i32)),
    *(
        declared(IRDLOperation, f"gpu.host_{name}", _typed("value"), summary, value=operand_def())
        for name, summary in (("register", "Lets the device access memory of the host."), ("unregister", "Ends that."))
    ),
    declared(
        IRDLOperation, "gpu.yield", "attr-dict ($values^ `:` type($values))?", "The end of a body.",
        values=var_operand_def(), traits=traits_def(IsTerminator()),
    ),
)  # fmt: skip
