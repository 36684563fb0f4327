"""`gpu` as MLIR prints it: xDSL's dialect, with the text of kernels, their modules and their launches."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import gpu
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    FunctionType,
    IndexType,
    IntegerAttr,
    MemRefType,
    SymbolNameConstraint,
    SymbolRefAttr,
    UnitAttr,
    i32,
    i64,
)
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import Attribute, BlockArgument, Dialect, Operation, SSAValue
from xdsl.irdl import (
    AnyOf,
    IRDLOperation,
    attr_def,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_attr_def,
    opt_operand_def,
    opt_prop_def,
    opt_result_def,
    prop_def,
    region_def,
    result_def,
    var_operand_def,
)
from xdsl.parser import AttrParser, Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.str_enum import StrEnum

from . import gpu_async, launch, subgroup
from .launch import ATTRIBUTIONS, DIMENSIONS, LaunchOp, TerminatorOp, parse_memory, print_typed
from .upstream import declared

KNOWN_SIZES = ("known_block_size", "known_grid_size")
"""Attributes of a function that MLIR writes without `gpu.` since version 20."""


class AddressSpace(StrEnum):
    """The address space of a kernel's memref."""

    GLOBAL = "global"
    WORKGROUP = "workgroup"
    PRIVATE = "private"


@irdl_attr_definition
class AddressSpaceAttr(EnumAttribute[AddressSpace]):
    """`#gpu.address_space<workgroup>`: what upstream lowers to the number of the address space in PTX."""

    name = "gpu.address_space"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> AddressSpace:
        with parser.in_angle_brackets():
            return parser.parse_str_enum(AddressSpace)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.data.value)


SIZE = AnyOf.get(IndexType, i32, i64)
"""What a size of a launch may be."""


@irdl_op_definition
class FuncOp(gpu.FuncOp):
    """A function of a GPU, most often a kernel: `gpu.func @f(%A: memref<4x4xf32>) kernel attributes {...} { ... }`."""

    name = "gpu.func"

    body = region_def()
    sym_name = attr_def(SymbolNameConstraint())
    function_type = prop_def(FunctionType)
    kernel = opt_prop_def(UnitAttr)
    arg_attrs = opt_prop_def(ArrayAttr[DictionaryAttr])
    known_block_size = opt_attr_def(DenseArrayBase.constr(i32), attr_name="gpu.known_block_size")
    known_grid_size = opt_attr_def(DenseArrayBase.constr(i32), attr_name="gpu.known_grid_size")

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
        results = _parse_results(parser)
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
            printer.print_string(" -> ")
            with printer.in_parens():
                printer.print_list(results, printer.print_attribute)
        memory = self.body.blocks[0].args[len(self.function_type.inputs) :]
        count = self.attributes.get(ATTRIBUTIONS)
        split = count.value.data if isinstance(count, IntegerAttr) else 0
        for keyword, values in (("workgroup", memory[:split]), ("private", memory[split:])):
            if values:
                printer.print_string(f" {keyword}")
                with printer.in_parens():
                    printer.print_list(values, lambda value: print_typed(printer, value))
        if self.kernel is not None:
            printer.print_string(" kernel")
        names = {f"gpu.{name}": name for name in KNOWN_SIZES}
        shown = {names.get(name, name): value for name, value in self.attributes.items()}
        printer.print_op_attributes(shown, reserved_attr_names=("sym_name", ATTRIBUTIONS), print_keyword=True)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False, print_empty_block=False)


def _parse_results(parser: Parser) -> Sequence[Attribute]:
    if parser.parse_optional_punctuation("->") is None:
        return ()
    return parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type) or (
        parser.parse_type(),
    )


@irdl_op_definition
class ReturnOp(gpu.ReturnOp):
    """The end of a function: `gpu.return`."""

    name = "gpu.return"
    assembly_format = "attr-dict ($args^ `:` type($args))?"

    args = var_operand_def()


@irdl_op_definition
class LaunchFuncOp(gpu.LaunchFuncOp):
    """A launch: `gpu.launch_func @kernels::@f blocks in (%x, %y, %z) threads in (%t, %u, %v) args(%A : memref<4xf32>)`.

    What else may stand there: `async [%token]` and `<%stream : i64>` before the kernel, `clusters in (...)` behind it,
    `dynamic_shared_memory_size %bytes` before the arguments.
    """

    name = "gpu.launch_func"

    asyncDependencies = var_operand_def(gpu.AsyncTokenType)  # noqa: N815
    gridSizeX = operand_def(SIZE)  # noqa: N815
    gridSizeY = operand_def(SIZE)  # noqa: N815
    gridSizeZ = operand_def(SIZE)  # noqa: N815
    blockSizeX = operand_def(SIZE)  # noqa: N815
    blockSizeY = operand_def(SIZE)  # noqa: N815
    blockSizeZ = operand_def(SIZE)  # noqa: N815
    clusterSizeX = opt_operand_def(SIZE)  # noqa: N815
    clusterSizeY = opt_operand_def(SIZE)  # noqa: N815
    clusterSizeZ = opt_operand_def(SIZE)  # noqa: N815
    dynamicSharedMemorySize = opt_operand_def(i32)  # noqa: N815
    kernelOperands = var_operand_def()  # noqa: N815
    asyncObject = opt_operand_def()  # noqa: N815
    asyncToken = opt_result_def(gpu.AsyncTokenType)  # noqa: N815
    kernel = prop_def(SymbolRefAttr)

    @classmethod
    def parse(cls, parser: Parser) -> LaunchFuncOp:
        is_async = parser.parse_optional_keyword("async") is not None
        operand, brackets = parser.parse_unresolved_operand, parser.Delimiter.SQUARE
        waits = parser.parse_optional_comma_separated_list(brackets, operand) or []
        stream = _stream(parser)
        kernel = _symbol(parser)
        clusters = _sizes(parser, "clusters", optional=True)
        blocks, threads = _sizes(parser, "blocks"), _sizes(parser, "threads")
        kind = parser.parse_type() if parser.parse_optional_punctuation(":") else IndexType()
        shared = _shared(parser)
        arguments = _typed(parser, parser.Delimiter.PAREN) if parser.parse_optional_keyword("args") else []
        attributes = parser.parse_optional_attr_dict()
        sizes = [[parser.resolve_operand(size, kind)] for size in (*blocks, *threads)]
        cluster = [[parser.resolve_operand(size, kind)] for size in clusters] or [[], [], []]
        tokens = [parser.resolve_operand(wait, gpu.AsyncTokenType()) for wait in waits]
        return cls.build(
            operands=[tokens, *sizes, *cluster, shared, arguments, stream],
            result_types=[[gpu.AsyncTokenType()] if is_async else []],
            properties={"kernel": kernel},
            attributes=attributes,
        )

    def print(self, printer: Printer) -> None:
        if self.asyncToken is not None:
            printer.print_string(" async")
        if self.asyncDependencies:
            printer.print_string(" ")
            with printer.in_square_brackets():
                printer.print_list(self.asyncDependencies, printer.print_ssa_value)
        if self.asyncObject is not None:
            printer.print_string(" ")
            with printer.in_angle_brackets():
                print_typed(printer, self.asyncObject)
        printer.print_string(" ")
        printer.print_attribute(self.kernel)
        if self.clusterSizeX is not None and self.clusterSizeY is not None and self.clusterSizeZ is not None:
            _print_sizes(printer, "clusters", (self.clusterSizeX, self.clusterSizeY, self.clusterSizeZ))
        _print_sizes(printer, "blocks", (self.gridSizeX, self.gridSizeY, self.gridSizeZ))
        _print_sizes(printer, "threads", (self.blockSizeX, self.blockSizeY, self.blockSizeZ))
        if self.gridSizeX.type != IndexType():
            printer.print_string(" : ")
            printer.print_attribute(self.gridSizeX.type)
        if self.dynamicSharedMemorySize is not None:
            printer.print_string(" dynamic_shared_memory_size ")
            printer.print_ssa_value(self.dynamicSharedMemorySize)
        if self.kernelOperands:
            printer.print_string(" args")
            with printer.in_parens():
                printer.print_list(self.kernelOperands, lambda value: print_typed(printer, value))
        printer.print_op_attributes(self.attributes)


def _symbol(parser: Parser) -> SymbolRefAttr:
    position, kernel = parser.pos, parser.parse_attribute()
    if not isinstance(kernel, SymbolRefAttr):
        parser.raise_error(f"expected the name of a kernel, as @kernels::@f, got {kernel}", position)
    return kernel


def _stream(parser: Parser) -> list[SSAValue]:
    """`<%stream : i64>`, the object that a launch is queued on."""
    position = parser.pos
    objects = _typed(parser, parser.Delimiter.ANGLE)
    if len(objects) > 1:
        parser.raise_error(f"expected one object to queue the launch on, got {len(objects)}", position)
    return objects


def _typed(parser: Parser, delimiter: Parser.Delimiter) -> list[SSAValue]:
    """Values in brackets, each with its type; none where there is no bracket."""

    def value() -> SSAValue:
        operand = parser.parse_unresolved_operand()
        parser.parse_punctuation(":")
        return parser.resolve_operand(operand, parser.parse_type())

    return parser.parse_optional_comma_separated_list(delimiter, value) or []


def _sizes(parser: Parser, what: str, *, optional: bool = False) -> list[UnresolvedOperand]:
    """`blocks in (%x, %y, %z)`."""
    if optional and parser.parse_optional_keyword(what) is None:
        return []
    if not optional:
        parser.parse_keyword(what, f" before the sizes: {what} in (%x, %y, %z)")
    parser.parse_keyword("in")
    position = parser.pos
    sizes = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_unresolved_operand)
    if len(sizes) != DIMENSIONS:
        parser.raise_error(f"expected {DIMENSIONS} sizes of {what}, got {len(sizes)}", position)
    return sizes


def _shared(parser: Parser) -> list[SSAValue]:
    if parser.parse_optional_keyword("dynamic_shared_memory_size") is None:
        return []
    return [parser.resolve_operand(parser.parse_unresolved_operand(), i32)]


def _print_sizes(printer: Printer, what: str, sizes: Sequence[SSAValue]) -> None:
    printer.print_string(f" {what} in ")
    with printer.in_parens():
        printer.print_list(sizes, printer.print_ssa_value)


@irdl_op_definition
class BarrierOp(gpu.BarrierOp):
    """All threads of a CTA meet: `gpu.barrier`."""

    name = "gpu.barrier"
    assembly_format = "attr-dict"


class _Bounded(IRDLOperation):
    """An index of a thread with an optional upper bound, which xDSL's definition lacks."""

    upper_bound = opt_prop_def(IntegerAttr[IndexType])
    result = result_def(IndexType)

    def verify_(self) -> None:
        """Replaces the verifier of xDSL's definition."""


class _AlongDimension(_Bounded):
    """Such a number along one dimension of a launch."""

    assembly_format = "$dimension (`upper_bound` $upper_bound^)? attr-dict"

    dimension = prop_def(gpu.DimensionAttr)


@irdl_op_definition
class BlockIdOp(_AlongDimension, gpu.BlockIdOp):
    """The number of a CTA in the grid along one dimension: `gpu.block_id x`."""

    name = "gpu.block_id"


@irdl_op_definition
class ThreadIdOp(_AlongDimension, gpu.ThreadIdOp):
    """The number of a thread in its CTA along one dimension: `gpu.thread_id x`."""

    name = "gpu.thread_id"


@irdl_op_definition
class BlockDimOp(_AlongDimension, gpu.BlockDimOp):
    """The threads of a CTA along one dimension: `gpu.block_dim x`."""

    name = "gpu.block_dim"


@irdl_op_definition
class GridDimOp(_AlongDimension, gpu.GridDimOp):
    """The CTAs of the grid along one dimension: `gpu.grid_dim x`."""

    name = "gpu.grid_dim"


@irdl_op_definition
class GlobalIdOp(_AlongDimension, gpu.GlobalIdOp):
    """The number of a thread in the grid along one dimension: `gpu.global_id x`."""

    name = "gpu.global_id"


CLUSTERS = tuple(
    declared(
        _Bounded, f"gpu.{name}", "$dimension (`upper_bound` $upper_bound^)? attr-dict", f"{what} along a dimension.",
        dimension=prop_def(gpu.DimensionAttr),
    )
    for name, what in (
        ("cluster_id", "The number of a cluster in the grid"), ("cluster_dim", "The clusters of a grid"),
        ("cluster_block_id", "The number of a CTA in its cluster"), ("cluster_dim_blocks", "The CTAs of a cluster"),
    )
)  # fmt: skip


@irdl_op_definition
class LaneIdOp(_Bounded, gpu.LaneIdOp):
    """The number of a lane in its warp: `gpu.lane_id`."""

    name = "gpu.lane_id"
    assembly_format = "(`upper_bound` $upper_bound^)? attr-dict"


@irdl_op_definition
class SubgroupIdOp(_Bounded, gpu.SubgroupIdOp):
    """The number of a warp in its CTA: `gpu.subgroup_id : index`."""

    name = "gpu.subgroup_id"
    assembly_format = "(`upper_bound` $upper_bound^)? attr-dict `:` type($result)"


@irdl_op_definition
class NumSubgroupsOp(_Bounded, gpu.NumSubgroupsOp):
    """The warps of a CTA: `gpu.num_subgroups : index`."""

    name = "gpu.num_subgroups"
    assembly_format = "(`upper_bound` $upper_bound^)? attr-dict `:` type($result)"


@irdl_op_definition
class SubgroupSizeOp(_Bounded, gpu.SubgroupSizeOp):
    """The lanes of a warp: `gpu.subgroup_size : index`."""

    name = "gpu.subgroup_size"
    assembly_format = "(`upper_bound` $upper_bound^)? attr-dict `:` type($result)"


OPERATIONS: tuple[type[Operation], ...] = (
    FuncOp, ReturnOp, LaunchOp, TerminatorOp, LaunchFuncOp, BarrierOp, SubgroupIdOp, BlockIdOp, ThreadIdOp,
    BlockDimOp, GridDimOp, GlobalIdOp, LaneIdOp, NumSubgroupsOp, SubgroupSizeOp, *subgroup.OPERATIONS,
    *gpu_async.OPERATIONS, *launch.MODULES, *CLUSTERS,
)  # fmt: skip

GPU = Dialect(
    "gpu",
    [*(op for op in gpu.GPU.operations if op.name not in {own.name for own in OPERATIONS}), *OPERATIONS],
    [
        *(a for a in gpu.GPU.attributes if a is not gpu.AllReduceOpAttr),
        AddressSpaceAttr,
        *subgroup.ATTRIBUTES,
        *launch.ATTRIBUTES,
    ],
)
"""xDSL's `gpu` with these in place of its own; patterns written for xDSL's match them too."""
