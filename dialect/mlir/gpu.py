"""`gpu` as MLIR prints it: kernels, their modules and their launches, and the numbers of their threads. Operands,
properties and text are those of MLIR 22 (`mlir/include/mlir/Dialect/GPU/IR`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, cast

from xdsl.dialects import gpu
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    FunctionType,
    IndexType,
    IntegerAttr,
    MemRefType,
    SymbolRefAttr,
    UnitAttr,
    i32,
    i64,
)
from xdsl.dialects.gpu import AsyncTokenType
from xdsl.ir import Attribute, BlockArgument, Dialect, Operation, SSAValue
from xdsl.irdl import (
    AnyOf,
    IRDLOperation,
    VarConstraint,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
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
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from .upstream import BodyText, declared, parse_assignment, print_assignment, print_listed
from .words import irdl_op_definition, words

# Modules of kernels, and `gpu.launch`: a kernel whose body stands where it is launched.


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


# Kernels and their launches; the numbers of threads.

KNOWN_SIZES = ("known_block_size", "known_grid_size")
"""Attributes of a function that MLIR writes without `gpu.` since version 20."""


ADDRESS_SPACE = words("gpu.address_space", "global workgroup private")
"""`#gpu.address_space<workgroup>`: what upstream lowers to the number of the address space in PTX."""


@irdl_op_definition
class FuncOp(gpu.FuncOp):
    """A function of a GPU, most often a kernel: `gpu.func @f(%A: memref<4x4xf32>) kernel attributes {...} { ... }`."""

    name = "gpu.func"

    arg_attrs = opt_prop_def(ArrayAttr[DictionaryAttr])

    def verify_(self) -> None:
        if not self.body.blocks:
            raise VerifyException("expected a body, got a declaration")
        wanted, got = self.function_type.inputs.data, self.body.blocks[0].arg_types
        memory = got[len(wanted) :]
        if got[: len(wanted)] != wanted or not all(isinstance(kind, MemRefType) for kind in memory):
            raise VerifyException(
                "expected the arguments of the function type, then memory by workgroup(...) and private(...)"
            )
        if self.kernel is not None and self.function_type.outputs.data:
            raise VerifyException("expected a kernel to return nothing")

    @classmethod
    def parse(cls, parser: Parser) -> FuncOp:
        name = parser.parse_symbol_name()
        pairs = parser.parse_comma_separated_list(
            parser.Delimiter.PAREN, lambda: (parser.parse_argument(), parser.parse_optional_attr_dict())
        )
        arguments = [argument for argument, _ in pairs]
        results: Sequence[Attribute] = ()
        if parser.parse_optional_punctuation("->"):
            types = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
            results = types or (parser.parse_type(),)
        workgroup, private = (parse_memory(parser, keyword) for keyword in ("workgroup", "private"))
        kernel = parser.parse_optional_keyword("kernel") is not None
        attributes = parser.parse_optional_attr_dict_with_keyword(("sym_name", "function_type", "kernel"))
        body = parser.parse_region([*arguments, *workgroup, *private])
        properties: dict[str, Attribute] = {
            "function_type": FunctionType.from_lists([argument.type for argument in arguments], results)
        }
        if any(argument_attributes for _, argument_attributes in pairs):
            properties["arg_attrs"] = ArrayAttr(DictionaryAttr(argument_attributes) for _, argument_attributes in pairs)
        if kernel:
            properties["kernel"] = UnitAttr()
        discardable = {} if attributes is None else dict(attributes.data)
        discardable = {f"gpu.{name}" if name in KNOWN_SIZES else name: value for name, value in discardable.items()}
        if workgroup:
            discardable[ATTRIBUTIONS] = IntegerAttr(len(workgroup), i64)
        return cls.create(regions=[body], properties=properties, attributes={"sym_name": name, **discardable})

    def _print_argument(self, printer: Printer, argument: BlockArgument) -> None:
        printer.print_block_argument(argument)
        if self.arg_attrs is not None:
            printer.print_op_attributes(self.arg_attrs.data[argument.index].data)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        with printer.in_parens():
            arguments = self.body.blocks[0].args[: len(self.function_type.inputs)]
            printer.print_list(arguments, lambda argument: self._print_argument(printer, argument))
        if results := self.function_type.outputs.data:
            print_listed(printer, "-> ", results, printer.print_attribute)
        print_memory(printer, self, len(self.function_type.inputs))
        if self.kernel is not None:
            printer.print_string(" kernel")
        names = {f"gpu.{name}": name for name in KNOWN_SIZES}
        shown = {names.get(name, name): value for name, value in self.attributes.items()}
        printer.print_op_attributes(shown, reserved_attr_names=("sym_name", ATTRIBUTIONS), print_keyword=True)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False, print_empty_block=False)


ReturnOp = declared(gpu.ReturnOp, "gpu.return", "attr-dict ($args^ `:` type($args))?", "The end of a function.")


@irdl_custom_directive
class SizeText(CustomDirective):
    """The type of the sizes of a launch, which is left out for `index`."""

    types: TypeDirective

    def parse(self, parser: Parser, state: ParsingState) -> None:
        typed = parser.parse_optional_punctuation(":") is not None
        self.types.set(state, (parser.parse_type() if typed else IndexType(),))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        if self.types.get(op) != (IndexType(),):
            printer.print_string(" :")
            self.types.print(printer, state, op)


@irdl_custom_directive
class ArgumentsText(CustomDirective):
    """`args(%A : memref<4xf32>)`: the arguments of a kernel, each with its type."""

    values: VariadicOperandVariable
    types: TypeDirective

    def parse(self, parser: Parser, state: ParsingState) -> None:
        def argument() -> tuple[UnresolvedOperand, Attribute]:
            value = parser.parse_unresolved_operand()
            parser.parse_punctuation(":")
            return value, parser.parse_type()

        has_arguments = parser.parse_optional_keyword("args") is not None
        pairs = parser.parse_comma_separated_list(parser.Delimiter.PAREN, argument) if has_arguments else []
        self.values.set(state, [value for value, _ in pairs])
        self.types.set(state, [kind for _, kind in pairs])

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        if values := self.values.get(op):
            print_listed(printer, "args", values, lambda value: print_typed(printer, value))


SIZE = VarConstraint("SIZE", AnyOf.get(IndexType, i32, i64))
"""The type of the sizes of a launch."""

LaunchFuncOp = declared(
    gpu.LaunchFuncOp, "gpu.launch_func",
    "custom<AsyncDependencies>(type($asyncToken), $asyncDependencies)"
    " (` ` `<` $asyncObject^ `:` type($asyncObject) `>`)? qualified($kernel)"
    " (`clusters` `in` ` ` `(` $clusterSizeX^ `,` $clusterSizeY `,` $clusterSizeZ `)`)?"
    " `blocks` `in` ` ` `(` $gridSizeX `,` $gridSizeY `,` $gridSizeZ `)`"
    " `threads` `in` ` ` `(` $blockSizeX `,` $blockSizeY `,` $blockSizeZ `)` custom<SizeText>(type($gridSizeX))"
    " (`dynamic_shared_memory_size` $dynamicSharedMemorySize^)?"
    " custom<ArgumentsText>($kernelOperands, type($kernelOperands)) attr-dict",
    """A launch: `gpu.launch_func @kernels::@f blocks in (%x, %y, %z) threads in (%t, %u, %v) args(%A : memref<4xf32>)`.

    What else may stand there: `async [%token]` and `<%stream : i64>` before the kernel, `clusters in (...)` behind it,
    `dynamic_shared_memory_size %bytes` before the arguments.
    """,
    **{f"{what}Size{x}": operand_def(SIZE) for what in ("grid", "block") for x in "XYZ"},
    **{f"clusterSize{x}": opt_operand_def(SIZE) for x in "XYZ"},
    custom_directives=(AsyncDependencies, SizeText, ArgumentsText),
)  # fmt: skip

BarrierOp = declared(
    gpu.BarrierOp, "gpu.barrier", "(`memfence` $address_spaces^)? attr-dict",
    "All threads of a CTA meet, with accesses to all memory in order; `memfence` names spaces that must be.",
    address_spaces=opt_prop_def(ArrayAttr), verify_=Operation.verify_,  # xDSL's allows no properties
)  # fmt: skip
DynamicSharedMemoryOp = declared(
    IRDLOperation, "gpu.dynamic_shared_memory", "attr-dict `:` type($resultMemref)",
    "All the shared memory that a launch gives a CTA, in bytes.", resultMemref=result_def(MemRefType),
    traits=traits_def(Pure()),
)  # fmt: skip


X, Z = gpu.DimensionAttr(gpu.DimensionEnum.X), gpu.DimensionAttr(gpu.DimensionEnum.Z)
"""The dimension along which the kernels of this project have their threads and their CTAs; that of parts of K."""


class ThreadNumber(IRDLOperation):
    """A number of threads, or of one, with an optional upper bound, which xDSL's definition lacks."""

    upper_bound = opt_prop_def(IntegerAttr[IndexType])
    result = result_def(IndexType)

    def verify_(self) -> None:
        """Replaces the verifier of xDSL's definition."""


class NumberAlong(ThreadNumber):
    """Such a number along one dimension of a launch: `gpu.block_id x`."""

    dimension = prop_def(gpu.DimensionAttr)


NumberOp = TypeVar("NumberOp", bound=ThreadNumber)

_BOUND = "(`upper_bound` $upper_bound^)? attr-dict"


def _number(base: type[NumberOp], text: str, parent: type[IRDLOperation], summary: str) -> type[NumberOp]:
    """xDSL's operation with a bound. Patterns for it match this one too."""
    both = cast("type[NumberOp]", type(parent.__name__, (base, parent), {}))
    return declared(both, parent.name, text, summary)


_ALONG = f"$dimension {_BOUND}"
BlockIdOp = _number(NumberAlong, _ALONG, gpu.BlockIdOp, "The number of a CTA in the grid.")
ThreadIdOp = _number(NumberAlong, _ALONG, gpu.ThreadIdOp, "The number of a thread in its CTA.")
BlockDimOp = _number(NumberAlong, _ALONG, gpu.BlockDimOp, "The threads of a CTA.")
GridDimOp = _number(NumberAlong, _ALONG, gpu.GridDimOp, "The CTAs of the grid.")
GlobalIdOp = _number(NumberAlong, _ALONG, gpu.GlobalIdOp, "The number of a thread in the grid.")
LaneIdOp = _number(ThreadNumber, _BOUND, gpu.LaneIdOp, "The number of a lane in its warp: `gpu.lane_id`.")

_TYPED = f"{_BOUND} `:` type($result)"
SubgroupIdOp = _number(
    ThreadNumber, _TYPED, gpu.SubgroupIdOp, "The number of a warp in its CTA: `gpu.subgroup_id : index`."
)
NumSubgroupsOp = _number(ThreadNumber, _TYPED, gpu.NumSubgroupsOp, "The warps of a CTA: `gpu.num_subgroups : index`.")
SubgroupSizeOp = _number(ThreadNumber, _TYPED, gpu.SubgroupSizeOp, "The lanes of a warp: `gpu.subgroup_size : index`.")


def _of_clusters(name: str, what: str) -> type[NumberAlong]:
    return declared(NumberAlong, f"gpu.{name}", _ALONG, f"{what} along a dimension.", traits=traits_def(Pure()))


ClusterBlockIdOp = _of_clusters("cluster_block_id", "The number of a CTA in its cluster")
CLUSTERS = (
    ClusterBlockIdOp,
    _of_clusters("cluster_id", "The number of a cluster in the grid"),
    _of_clusters("cluster_dim", "The clusters of a grid"),
    _of_clusters("cluster_dim_blocks", "The CTAs of a cluster"),
)


OPERATIONS: tuple[type[Operation], ...] = (
    FuncOp, ReturnOp, LaunchOp, TerminatorOp, LaunchFuncOp, BarrierOp, SubgroupIdOp, BlockIdOp, ThreadIdOp,
    BlockDimOp, GridDimOp, GlobalIdOp, LaneIdOp, NumSubgroupsOp, SubgroupSizeOp, DynamicSharedMemoryOp, ModuleOp,
    *CLUSTERS,
)  # fmt: skip

GPU = Dialect(
    "gpu", list(OPERATIONS), [*(kind for kind in gpu.GPU.attributes if kind is not gpu.AllReduceOpAttr), ADDRESS_SPACE]
)
"""What kernels and their launches have; `gpu_carried` has the rest."""
