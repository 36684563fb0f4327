"""Modules of kernels in `gpu`, and `gpu.launch`: a kernel whose body stands where it is launched. Source: MLIR 22,
`mlir/include/mlir/Dialect/GPU/IR/{GPUOps,CompilationAttrs,GPUDeviceMappingAttr}.td`."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import gpu
from xdsl.dialects.builtin import ArrayAttr, IndexType, IntegerAttr, MemRefType, SymbolRefAttr, i32, i64
from xdsl.dialects.gpu import AsyncTokenType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation, opt_prop_def
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    ParsingState,
    PrintingState,
    TypeDirective,
    VariadicOperandVariable,
    irdl_custom_directive,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from .upstream import BodyText, declared, parse_assignment, print_assignment, print_listed
from .words import irdl_op_definition


@irdl_custom_directive
class ListText(CustomDirective):
    """A list of attributes in brackets, or nothing."""

    attribute: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        listed = parser.parse_optional_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_attribute)
        if listed is not None:
            self.attribute.set(state, ArrayAttr(listed))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        self.attribute.print(printer, state, op)


@irdl_op_definition
class ModuleOp(gpu.ModuleOp):
    """Kernels that are loaded together: `gpu.module @kernels [#nvvm.target] { ... }`."""

    name = "gpu.module"
    custom_directives = (ListText, BodyText)
    assembly_format = (
        "$sym_name (` ` `<` $offloadingHandler^ `>`)? custom<ListText>($targets)"
        " attr-dict-with-keyword custom<BodyText>($body)"
    )

    targets = opt_prop_def(ArrayAttr)
    offloadingHandler = opt_prop_def()  # noqa: N815

    verify_ = Operation.verify_
    """The definition alone is verified, for the inherited verifier does not know targets."""


DIMENSIONS = 3
ATTRIBUTIONS = "workgroup_attributions"
"""The attribute that says how many of what follows the arguments of a body is memory of the CTA."""

SYMBOLS = ("module", "function")
"""Attributes that name what the kernel of a launch is to be, and what it is in."""

WHERE = ("blocks", "threads", "clusters")
"""What the numbers of a body count, and the sizes of a launch, in the order of the body's arguments and operands."""


@irdl_op_definition
class LaunchOp(gpu.LaunchOp):
    """A launch with its body: `gpu.launch blocks(%b, ...) in (%g = %n, ...) threads(%t, ...) in (%s = %m, ...) {...}`.
    The body's arguments are the three indices of its CTA and of its thread, and the sizes of the grid and of a CTA.
    With clusters, the indices and sizes of those follow. Then comes memory by `workgroup(...)` and `private(...)`."""

    name = "gpu.launch"

    @property
    def sizes(self) -> Sequence[SSAValue]:
        """The sizes of the grid and of a CTA, and of a cluster where there are clusters."""
        clusters = (self.clusterSizeX, self.clusterSizeY, self.clusterSizeZ)
        return (
            *(self.gridSizeX, self.gridSizeY, self.gridSizeZ, self.blockSizeX, self.blockSizeY, self.blockSizeZ),
            *(size for size in clusters if size is not None),
        )

    def verify_(self) -> None:
        if not self.body.blocks or not self.body.blocks[0].ops:
            raise VerifyException("expected a body with operations")
        kinds, numbers = self.body.blocks[0].arg_types, 2 * len(self.sizes)
        if kinds[:numbers] != (IndexType(),) * numbers or not all(isinstance(k, MemRefType) for k in kinds[numbers:]):
            raise VerifyException(f"expected a body of {numbers} indices and then memory, got {len(kinds)} arguments")

    @classmethod
    def parse(cls, parser: Parser) -> LaunchOp:
        is_async = parser.parse_optional_keyword("async") is not None
        waits = parser.parse_optional_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)
        clusters = parser.parse_optional_keyword("clusters") is not None
        parts = [_parse_sizes(parser)] if clusters else []
        for word in WHERE[:2]:
            parser.parse_keyword(word)
            parts.append(_parse_sizes(parser))
        parts = [*parts[clusters:], *parts[:clusters]]
        shared: list[SSAValue] = []
        if parser.parse_optional_keyword("dynamic_shared_memory_size") is not None:
            shared = [parser.resolve_operand(parser.parse_unresolved_operand(), i32)]
        names: dict[str, Attribute] = {}
        for word in SYMBOLS:
            if parser.parse_optional_keyword(word) is not None:
                with parser.in_parens():
                    names[word] = SymbolRefAttr(parser.parse_symbol_name())
        workgroup, private = (parse_memory(parser, keyword) for keyword in ("workgroup", "private"))
        first = [*parts[0][0], *parts[1][0], *parts[0][1], *parts[1][1]]
        last = [argument for part in parts[2:] for arguments in part[:2] for argument in arguments]
        body = parser.parse_region([*(a.resolve(IndexType()) for a in (*first, *last)), *workgroup, *private])
        attributes: dict[str, Attribute] = {ATTRIBUTIONS: IntegerAttr(len(workgroup), i64)} if workgroup else {}
        attributes |= names | parser.parse_optional_attr_dict()
        sizes = [[parser.resolve_operand(size, IndexType())] for part in parts for size in part[2]]
        tokens = [parser.resolve_operand(wait, gpu.AsyncTokenType()) for wait in waits or ()]
        return cls.build(
            operands=[tokens, *sizes, *([] for _ in range(3 * DIMENSIONS - len(sizes))), shared],
            result_types=[[gpu.AsyncTokenType()] if is_async else []],
            attributes=attributes,
            regions=[body],
        )

    def print(self, printer: Printer) -> None:
        _print_tokens(printer, self.asyncToken is not None, self.asyncDependencies)
        arguments, sizes = list(self.body.blocks[0].args), self.sizes
        parts = {
            "blocks": (arguments[0:3], arguments[6:9], sizes[0:3]),
            "threads": (arguments[3:6], arguments[9:12], sizes[3:6]),
        }
        if len(sizes) > 2 * DIMENSIONS:
            parts = {"clusters": (arguments[12:15], arguments[15:18], sizes[6:9]), **parts}
        for word, part in parts.items():
            _print_sizes(printer, word, part)
        if self.dynamicSharedMemorySize is not None:
            printer.print_string(" dynamic_shared_memory_size ")
            printer.print_ssa_value(self.dynamicSharedMemorySize)
        for word in SYMBOLS:
            if (name := self.attributes.get(word)) is not None:
                print_listed(printer, word, [name], printer.print_attribute)
        print_memory(printer, self, 2 * len(sizes))
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)
        printer.print_op_attributes(self.attributes, reserved_attr_names=(ATTRIBUTIONS, *SYMBOLS))


TerminatorOp = declared(gpu.TerminatorOp, "gpu.terminator", "attr-dict", "The end of the body of a launch.")


Part = tuple[list[Parser.UnresolvedArgument], list[Parser.UnresolvedArgument], list[UnresolvedOperand]]
"""The names of three numbers and of three sizes, and the operands that the sizes are."""


def _parse_sizes(parser: Parser) -> Part:
    """`(%x, %y, %z) in (%sx = %a, %sy = %b, %sz = %c)`."""
    position = parser.pos
    numbers = parser.parse_comma_separated_list(
        parser.Delimiter.PAREN, lambda: parser.parse_argument(expect_type=False)
    )
    parser.parse_keyword("in")
    sizes = parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: parse_assignment(parser))
    if (len(numbers), len(sizes)) != (DIMENSIONS, DIMENSIONS):
        parser.raise_error(f"expected 3 numbers and 3 sizes, got {len(numbers)} and {len(sizes)}", position)
    return numbers, [name for name, _ in sizes], [size for _, size in sizes]


def parse_memory(parser: Parser, keyword: str) -> Sequence[Parser.Argument]:
    """Parses memory attributions: `workgroup(%x : memref<32xf32, 3>)`."""
    if parser.parse_optional_keyword(keyword) is None:
        return ()
    return parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_argument)


def attributions(op: IRDLOperation, first: int) -> tuple[Sequence[SSAValue], Sequence[SSAValue]]:
    """Memory of the CTA and of a thread that the body of a kernel has, from this argument on."""
    values, count = op.regions[0].blocks[0].args[first:], op.attributes.get(ATTRIBUTIONS)
    split = count.value.data if isinstance(count, IntegerAttr) else 0
    return values[:split], values[split:]


def print_memory(printer: Printer, op: IRDLOperation, first: int) -> None:
    """Prints the memory of a body: ` workgroup(%x : memref<32xf32, 3>)`."""
    for keyword, values in zip(("workgroup", "private"), attributions(op, first), strict=True):
        if values:
            print_listed(printer, keyword, values, lambda value: print_typed(printer, value))


def _print_sizes(
    printer: Printer, word: str, part: tuple[Sequence[SSAValue], Sequence[SSAValue], Sequence[SSAValue]]
) -> None:
    numbers, names, sizes = part
    print_listed(printer, word, numbers, printer.print_ssa_value)
    print_listed(printer, "in ", zip(names, sizes, strict=True), lambda pair: print_assignment(printer, pair))


def print_typed(printer: Printer, value: SSAValue) -> None:
    """A value with its type: `%x : memref<32xf32, 3>`."""
    printer.print_ssa_value(value)
    printer.print_string(" : ")
    printer.print_attribute(value.type)


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
        _print_tokens(printer, bool(self.token.get(op)), self.waits.get(op))


def _print_tokens(printer: Printer, is_async: bool, waits: Sequence[SSAValue]) -> None:
    """Prints whether an operation creates a token, and those that it waits for: ` async [%t]`."""
    if is_async:
        printer.print_string(" async")
    if waits:
        printer.print_string(" ")
        with printer.in_square_brackets():
            printer.print_list(waits, printer.print_ssa_value)
