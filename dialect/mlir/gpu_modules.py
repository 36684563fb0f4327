"""Modules of kernels in `gpu`, what they become, and what loops are mapped to: `gpu.module`, `gpu.binary`, attributes.

Source: MLIR 22, `mlir/include/mlir/Dialect/GPU/IR/{GPUOps,CompilationAttrs,GPUDeviceMappingAttr}.td`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from xdsl.dialects import gpu
from xdsl.dialects.builtin import ArrayAttr, StringAttr, SymbolNameConstraint
from xdsl.ir import Attribute, Block, ParametrizedAttribute
from xdsl.irdl import IRDLOperation, irdl_attr_definition, irdl_op_definition, opt_prop_def, prop_def, region_def
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer

from .upstream import declared


@irdl_op_definition
class ModuleOp(gpu.ModuleOp):
    """Kernels that are loaded together: `gpu.module @kernels [#nvvm.target] { ... }`."""

    name = "gpu.module"
    body = region_def("single_block")
    sym_name = prop_def(SymbolNameConstraint())
    targets = opt_prop_def(ArrayAttr)
    offloadingHandler = opt_prop_def()  # noqa: N815

    def verify_(self) -> None:
        """Nothing more than the definition; what would be inherited knows of no targets."""

    @classmethod
    def parse(cls, parser: Parser) -> ModuleOp:
        properties: dict[str, Attribute] = {"sym_name": parser.parse_symbol_name()}
        handler = parser.parse_optional_comma_separated_list(parser.Delimiter.ANGLE, parser.parse_attribute)
        if handler:
            properties["offloadingHandler"] = handler[0]
        targets = parser.parse_optional_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_attribute)
        if targets is not None:
            properties["targets"] = ArrayAttr(targets)
        attributes = parser.parse_optional_attr_dict_with_keyword()
        body = parser.parse_region()
        if not body.blocks:
            body.add_block(Block())
        return cls.create(regions=[body], properties=properties, attributes=attributes.data if attributes else {})

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        if self.offloadingHandler is not None:
            printer.print_string(" ")
            with printer.in_angle_brackets():
                printer.print_attribute(self.offloadingHandler)
        if self.targets is not None:
            printer.print_string(" ")
            printer.print_attribute(self.targets)
        printer.print_op_attributes(self.attributes, print_keyword=True)
        printer.print_string(" ")
        printer.print_region(self.body)


class _CarriedAttr(ParametrizedAttribute):
    """An attribute that is kept as it is written."""

    text: StringAttr

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        depth, start = 0, parser.pos
        while True:
            token = parser._current_token  # pyright: ignore[reportPrivateUsage]
            depth += (token.text in OPENING) - (token.text in CLOSING)
            if not depth:
                break
            parser._consume_token()  # pyright: ignore[reportPrivateUsage]
        if token.text in CLOSING:
            parser._consume_token()  # pyright: ignore[reportPrivateUsage]
            text = parser.lexer.input.content[start : token.span.end]
            return (StringAttr(re.sub(r'("(?:[^"\\]|\\.)*")|\s+', lambda part: part[1] or " ", text)),)
        return (StringAttr(""),)

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string(self.text.data)


OPENING, CLOSING = ("<", "(", "[", "{"), (">", ")", "]", "}")


def _carried(name: str) -> type[ParametrizedAttribute]:
    members: dict[str, object] = {
        "name": f"gpu.{name}",
        "__module__": __name__,
        "__annotations__": {"text": StringAttr},
    }
    members["__doc__"] = f"`#gpu.{name}`, as it is written."
    return irdl_attr_definition(type(name, (_CarriedAttr,), members))


ATTRIBUTES = tuple(
    map(_carried, ("object", "select_object", "kernel_table", "kernel_metadata", "block", "warpgroup",
                   "warp", "thread", "lane", "memory_space", "mask"))
)  # fmt: skip
"""Compiled kernels, and what loops are mapped to."""

BinaryOp = declared(
    IRDLOperation, "gpu.binary", "$sym_name (` ` `<` $offloadingHandler^ `>`)? attr-dict $objects",
    "What kernels have been compiled to.", sym_name=prop_def(SymbolNameConstraint()),
    offloadingHandler=opt_prop_def(), objects=prop_def(ArrayAttr),
)  # fmt: skip


def assembly(target: Attribute, ptx: str) -> Attribute:
    """PTX as the object of a `gpu.binary`: `#gpu.object<#nvvm.target<chip = "sm_80">, assembly = "...">`."""
    escaped = re.sub(r"[^ !#-\[\]-~]", lambda part: f"\\{ord(part[0]):02X}", ptx)
    return ATTRIBUTES[0].new([StringAttr(f'<{target}, assembly = "{escaped}">')])


OPERATIONS = (ModuleOp, BinaryOp)
