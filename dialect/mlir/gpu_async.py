"""What a host does with memory of a device, in MLIR's text: `gpu.wait`, `alloc`, `dealloc`, `memcpy`, `memset`.

Each may be `async` and wait for tokens: `%m, %t = gpu.alloc async [%0] (%n) : memref<?xf32>`.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IndexType, MemRefType, UnitAttr
from xdsl.dialects.gpu import AsyncTokenType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    opt_result_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator

Tokens = tuple[list[SSAValue], list[Attribute]]
"""What an operation waits for, and the type of its own token, if it makes one."""


def _parse_tokens(parser: Parser) -> Tokens:
    token = [AsyncTokenType()] if parser.parse_optional_keyword("async") else []
    waits = parser.parse_optional_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)
    return [parser.resolve_operand(wait, AsyncTokenType()) for wait in waits or ()], list(token)


def _print_tokens(printer: Printer, waits: Sequence[SSAValue], token: SSAValue | None) -> None:
    if token is not None:
        printer.print_string(" async")
    if waits:
        printer.print_string(" ")
        with printer.in_square_brackets():
            printer.print_list(waits, printer.print_ssa_value)


class _AsyncOp(IRDLOperation):
    """An operation of operands that may wait for tokens, and make one: all operands behind its name, then all types."""

    asyncDependencies = var_operand_def(AsyncTokenType)  # noqa: N815
    asyncToken = opt_result_def(AsyncTokenType)  # noqa: N815

    @classmethod
    def parse(cls, parser: Parser) -> _AsyncOp:
        waits, token = _parse_tokens(parser)
        operands = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        values = parser.resolve_operands(operands, types, parser.pos)
        return cls.build(operands=[waits, *values], result_types=[token], attributes=attributes)

    def print(self, printer: Printer) -> None:
        _print_tokens(printer, self.asyncDependencies, self.asyncToken)
        operands = self.operands[len(self.asyncDependencies) :]
        printer.print_string(" ")
        printer.print_list(operands, printer.print_ssa_value)
        printer.print_op_attributes(self.attributes, reserved_attr_names=("operandSegmentSizes",))
        printer.print_string(" : ")
        printer.print_list([operand.type for operand in operands], printer.print_attribute)


@irdl_op_definition
class WaitOp(_AsyncOp):
    """Waits for tokens, on the host or as a token: `%t = gpu.wait async [%a, %b]`."""

    name = "gpu.wait"

    @classmethod
    def parse(cls, parser: Parser) -> WaitOp:
        waits, token = _parse_tokens(parser)
        return cls.build(operands=[waits], result_types=[token], attributes=parser.parse_optional_attr_dict())

    def print(self, printer: Printer) -> None:
        _print_tokens(printer, self.asyncDependencies, self.asyncToken)
        printer.print_op_attributes(self.attributes)


@irdl_op_definition
class AllocOp(_AsyncOp):
    """Memory of the device: `gpu.alloc host_shared (%n)[%s] : memref<?xf32>`."""

    name = "gpu.alloc"
    asyncDependencies = var_operand_def(AsyncTokenType)  # noqa: N815
    hostShared = opt_prop_def(UnitAttr)  # noqa: N815
    dynamicSizes = var_operand_def(IndexType)  # noqa: N815
    symbolOperands = var_operand_def(IndexType)  # noqa: N815
    result = result_def(MemRefType)
    asyncToken = opt_result_def(AsyncTokenType)  # noqa: N815
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    @classmethod
    def parse(cls, parser: Parser) -> AllocOp:
        waits, token = _parse_tokens(parser)
        shared = parser.parse_optional_keyword("host_shared") is not None
        delimiters = (parser.Delimiter.PAREN, parser.Delimiter.SQUARE)
        given = [
            parser.parse_optional_comma_separated_list(each, parser.parse_unresolved_operand) for each in delimiters
        ]
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        sizes = [[parser.resolve_operand(size, IndexType()) for size in each or ()] for each in given]
        return cls.build(
            operands=[waits, *sizes],
            result_types=[parser.parse_type(), token],
            attributes=attributes,
            properties={"hostShared": UnitAttr()} if shared else {},
        )

    def print(self, printer: Printer) -> None:
        _print_tokens(printer, self.asyncDependencies, self.asyncToken)
        printer.print_string(" host_shared " if self.hostShared is not None else " ")
        with printer.in_parens():
            printer.print_list(self.dynamicSizes, printer.print_ssa_value)
        if self.symbolOperands:
            with printer.in_square_brackets():
                printer.print_list(self.symbolOperands, printer.print_ssa_value)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.result.type)


@irdl_op_definition
class DeallocOp(_AsyncOp):
    """Frees memory of the device: `gpu.dealloc async [%t] %m : memref<8xf32>`."""

    name = "gpu.dealloc"
    asyncDependencies = var_operand_def(AsyncTokenType)  # noqa: N815
    buffer = operand_def(MemRefType)
    irdl_options = (AttrSizedOperandSegments(),)


@irdl_op_definition
class MemcpyOp(_AsyncOp):
    """Copies memory: `gpu.memcpy async [%t] %to, %from : memref<8xf32>, memref<8xf32>`."""

    name = "gpu.memcpy"
    asyncDependencies = var_operand_def(AsyncTokenType)  # noqa: N815
    dst = operand_def(MemRefType)
    src = operand_def(MemRefType)
    irdl_options = (AttrSizedOperandSegments(),)


@irdl_op_definition
class MemsetOp(_AsyncOp):
    """Sets all elements of memory: `gpu.memset async [%t] %m, %x : memref<8xf32>, f32`."""

    name = "gpu.memset"
    asyncDependencies = var_operand_def(AsyncTokenType)  # noqa: N815
    dst = operand_def(MemRefType)
    value = operand_def(Attribute)
    irdl_options = (AttrSizedOperandSegments(),)


class _OnMemory(IRDLOperation):
    value = operand_def(Attribute)
    assembly_format = "$value attr-dict `:` type($value)"


@irdl_op_definition
class HostRegisterOp(_OnMemory):
    """Lets the device access memory of the host: `gpu.host_register %m : memref<*xf32>`."""

    name = "gpu.host_register"


@irdl_op_definition
class HostUnregisterOp(_OnMemory):
    """Ends that: `gpu.host_unregister %m : memref<*xf32>`."""

    name = "gpu.host_unregister"


@irdl_op_definition
class YieldOp(IRDLOperation):
    """The end of a body: `gpu.yield %x : f32`."""

    name = "gpu.yield"
    values = var_operand_def(Attribute)
    traits = traits_def(IsTerminator())
    assembly_format = "attr-dict ($values^ `:` type($values))?"


OPERATIONS = (WaitOp, AllocOp, DeallocOp, MemcpyOp, MemsetOp, HostRegisterOp, HostUnregisterOp, YieldOp)
