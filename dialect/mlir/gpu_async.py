"""What a host does with memory of a device, in MLIR's text: `gpu.wait`, `alloc`, `dealloc`, `memcpy`, `memset`.

Each may be `async` and wait for tokens: `%m, %t = gpu.alloc async [%0] (%n) : memref<?xf32>`. Source: MLIR
22, `mlir/include/mlir/Dialect/GPU/IR/GPUOps.td`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from xdsl.dialects.builtin import IndexType, MemRefType, UnitAttr, i32
from xdsl.dialects.gpu import AsyncTokenType
from xdsl.irdl import (
    AttrSizedOperandSegments,
    AttrSizedResultSegments,
    IRDLOperation,
    operand_def,
    opt_prop_def,
    opt_result_def,
    result_def,
    traits_def,
    var_operand_def,
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


@irdl_custom_directive
class AsyncDependencies(CustomDirective):
    """`async [%t]`: whether an operation creates a token, and the tokens that it waits for."""

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
    """An operation that may wait for tokens and may create one."""

    custom_directives = (AsyncDependencies,)


def row(name: str, text: str, summary: str, kinds: Mapping[str, object], **results: object) -> type[IRDLOperation]:
    """An operation by its text behind its tokens; operands stand in the order of the text, but for `desc`."""
    names = sorted(set(re.findall(r"\$(\w+)", text)) - results.keys(), key=lambda n: (n != "desc", text.index(f"${n}")))
    fields = {each: kinds.get(each) or operand_def(MemRefType) for each in names}
    options = [AttrSizedOperandSegments(as_property=True)] if {"dims", "buffers", "dynamicSizes"} & set(names) else []
    options += [AttrSizedResultSegments(as_property=True)] if "bufferSzs" in results else []
    return declared(
        _AsyncOp, f"gpu.{name}", f"custom<AsyncDependencies>(type($asyncToken), $asyncDependencies) {text}", summary,
        asyncDependencies=var_operand_def(AsyncTokenType), **fields, **results,
        asyncToken=opt_result_def(AsyncTokenType), irdl_options=tuple(options),
    )  # fmt: skip


def typed(*names: str) -> str:
    """The assembly format of operands followed by their types."""
    return f"{' `,` '.join(f'${n}' for n in names)} attr-dict `:` {' `,` '.join(f'type(${n})' for n in names)}"


_KINDS: Mapping[str, object] = {
    "value": operand_def(),
    "dynamicSizes": var_operand_def(IndexType()),
    "symbolOperands": var_operand_def(IndexType()),
    "hostShared": opt_prop_def(UnitAttr),
}
"""What a name in a text is; others are operands that are memory."""


OPERATIONS = (
    row("wait", "attr-dict", "Waits for tokens, on the host or as a token.", _KINDS),
    row(
        "alloc",
        "(` ` `host_shared` $hostShared^)? ` ` `(` $dynamicSizes `)` (`` `[` $symbolOperands^ `]`)? attr-dict"
        " `:` type($result)",
        "Memory of the device.", _KINDS, result=result_def(MemRefType),
    ),
    row("dealloc", typed("buffer"), "Frees memory of the device.", _KINDS),
    row("memcpy", typed("dst", "src"), "Copies memory.", _KINDS),
    row("memset", typed("dst", "value"), "Sets all elements of memory.", _KINDS),
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
