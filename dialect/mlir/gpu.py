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
    UnitAttr,
    i32,
    i64,
)
from xdsl.ir import Attribute, BlockArgument, Dialect, Operation
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

from .launch import (
    ATTRIBUTIONS,
    AsyncDependencies,
    LaunchOp,
    ModuleOp,
    TerminatorOp,
    parse_memory,
    print_memory,
    print_typed,
)
from .upstream import declared, print_listed
from .words import irdl_op_definition, words

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
