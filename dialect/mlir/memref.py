"""`memref` as MLIR prints it: xDSL's dialect, with the text of the operations that it has none for."""

from __future__ import annotations

from xdsl.dialects import memref
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    IntegerAttr,
    MemRefType,
    StringAttr,
    SymbolNameConstraint,
    TensorType,
    UnitAttr,
    UnrankedMemRefType,
    i64,
)
from xdsl.ir import Attribute, Dialect
from xdsl.irdl import base, irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.hints import isa


@irdl_op_definition
class CopyOp(memref.CopyOp):
    """Copies the elements of one memref to another of the same shape."""

    name = "memref.copy"
    assembly_format = "$source `,` $destination attr-dict `:` type($source) `to` type($destination)"

    source = operand_def(MemRefType)
    destination = operand_def(MemRefType)


@irdl_op_definition
class CastOp(memref.CastOp):
    """The same memory, of which more or less is known."""

    name = "memref.cast"
    assembly_format = "$source attr-dict `:` type($source) `to` type($dest)"

    source = operand_def(base(MemRefType) | base(UnrankedMemRefType))
    dest = result_def(base(MemRefType) | base(UnrankedMemRefType))


@irdl_op_definition
class GlobalOp(memref.GlobalOp):
    """Memory of the module: `memref.global "private" constant @bias : memref<4xf32> = dense<[1.0, 2.0, 3.0, 4.0]>`."""

    name = "memref.global"

    sym_name = prop_def(SymbolNameConstraint())
    sym_visibility = prop_def(StringAttr)
    type = prop_def(MemRefType)
    initial_value = prop_def(base(UnitAttr) | base(DenseIntOrFPElementsAttr))
    constant = opt_prop_def(UnitAttr)
    alignment = opt_prop_def(IntegerAttr[i64])

    @classmethod
    def parse(cls, parser: Parser) -> GlobalOp:
        visibility = parser.parse_optional_str_literal() or "public"
        constant = parser.parse_optional_keyword("constant") is not None
        name = parser.parse_symbol_name()
        parser.parse_punctuation(":")
        position, kind = parser.pos, parser.parse_type()
        if not isa(kind, MemRefType[Attribute]):
            parser.raise_error(f"expected the type of memory, got {kind}", position)
        value: Attribute = UnitAttr()
        if parser.parse_optional_punctuation("=") and not parser.parse_optional_keyword("uninitialized"):
            parser.parse_keyword("dense")
            value = parser.parse_dense_int_or_fp_elements_attr(TensorType(kind.element_type, kind.get_shape()))  # pyright: ignore[reportArgumentType]
        properties = {"sym_name": name, "type": kind, "initial_value": value, "sym_visibility": StringAttr(visibility)}
        attributes = parser.parse_optional_attr_dict()
        inherent = {name: attributes.pop(name) for name in ("alignment",) if name in attributes}
        inherent |= {"constant": UnitAttr()} if constant else {}
        return cls.create(properties=properties | inherent, attributes=attributes)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_string_literal(self.sym_visibility.data)
        printer.print_string(" constant " if self.constant is not None else " ")
        printer.print_symbol_name(self.sym_name.data)
        printer.print_string(" : ")
        printer.print_attribute(self.type)
        printer.print_string(" = ")
        if isinstance(self.initial_value, DenseIntOrFPElementsAttr):
            self.initial_value.print_without_type(printer)
        else:
            printer.print_string("uninitialized")
        aligned = {} if self.alignment is None else {"alignment": self.alignment}
        printer.print_op_attributes(self.attributes | aligned)


_OWN = (memref.CopyOp, memref.CastOp, memref.GlobalOp)

MEMREF = Dialect(
    "memref",
    [*(op for op in memref.MemRef.operations if op not in _OWN), CopyOp, CastOp, GlobalOp],
    list(memref.MemRef.attributes),
)
"""xDSL's `memref` with these in place of its own; patterns written for xDSL's match them too."""
