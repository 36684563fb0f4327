"""`scf.forall` with what it puts together, which xDSL 0.74 lacks, and `tensor.pad` whose result is of known size.

Source: MLIR, the dialects `scf` and `tensor`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self, cast

from xdsl.dialects import scf, tensor
from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, DenseArrayBase, IndexType, TensorType, i64
from xdsl.dialects.utils.dynamic_index_list import (
    DynamicIndexList,
    parse_dynamic_index_list_without_types,
    print_dynamic_index_list,
)
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, NoTerminator
from xdsl.utils.exceptions import VerifyException

from .upstream import extended, parse_assignment, print_assignment, print_listed
from .words import irdl_op_definition


class PadOp(tensor.PadOp):
    """xDSL's `tensor.pad`, of which it has all but a check: amounts may be unknown where the result's size is not."""

    @classmethod
    def around(cls, source: SSAValue, low: Sequence[int], high: Sequence[int], number: SSAValue) -> Self:
        """A number so many times before and behind a tensor along each dimension, whose sizes are static where it is
        padded."""
        body = Block([tensor.YieldOp(number)], arg_types=[IndexType()] * len(low))
        kind = cast("TensorType[Attribute]", source.type)
        sizes = [sum(each) for each in zip(low, kind.get_shape(), high, strict=True)]
        return cls(source, [], [], Region(body), low, high, TensorType(kind.element_type, sizes))

    def verify_(self) -> None:
        rank = self.result.type.get_num_dims()
        counts = [len(self.static_low), len(self.static_high), len(self.region.block.args)]
        if counts != [rank] * 3:
            raise VerifyException(f"expected as many amounts, and indices in the region, as dimensions, got {counts}")


class ExpandShapeOp(tensor.ExpandShapeOp):
    """xDSL's `tensor.expand_shape`, whose verifier expects a group of dimensions for a tensor of rank 0 too."""

    def verify_(self) -> None:
        kind, sizes = self.src.type, self.static_output_shape.iter_values()
        if not isinstance(kind, TensorType) or len(kind.shape) or any(size != 1 for size in sizes):
            super().verify_()


class ReshapeOp(tensor.ReshapeOp):
    """xDSL's `tensor.reshape`, whose verifier multiplies sizes that are not known."""

    def verify_(self) -> None:
        kinds = [value.type for value in (self.source, self.result)]
        if all(isinstance(kind, TensorType) and min(kind.get_shape(), default=0) >= 0 for kind in kinds):
            super().verify_()


@irdl_op_definition
class ParallelInsertSliceOp(IRDLOperation):
    """Inserts a slice that an iteration of `scf.forall` computed into a shared tensor."""

    name = "tensor.parallel_insert_slice"

    source = operand_def(TensorType)
    dest = operand_def(TensorType)
    offsets = var_operand_def(IndexType)
    sizes = var_operand_def(IndexType)
    strides = var_operand_def(IndexType)
    static_offsets = prop_def(DenseArrayBase.constr(i64))
    static_sizes = prop_def(DenseArrayBase.constr(i64))
    static_strides = prop_def(DenseArrayBase.constr(i64))

    assembly_format = (
        "$source `into` $dest ``"
        "custom<DynamicIndexList>($offsets, $static_offsets)"
        "custom<DynamicIndexList>($sizes, $static_sizes)"
        "custom<DynamicIndexList>($strides, $static_strides)"
        "attr-dict `:` type($source) `into` type($dest)"
    )
    custom_directives = (DynamicIndexList,)


@irdl_op_definition
class InParallelOp(IRDLOperation):
    """The end of an iteration of `scf.forall`. It inserts slices into the shared tensors."""

    name = "scf.forall.in_parallel"

    region = region_def("single_block")
    traits = traits_def(IsTerminator(), NoTerminator())
    assembly_format = "$region attr-dict"


BOUNDS = ("lower", "upper", "step")


@irdl_op_definition
class ForallOp(IRDLOperation):
    """Loops whose turns run in any order, and share tensors::

    %r = scf.forall (%i, %j) in (%n, 3) shared_outs(%o = %init) -> (tensor<64x48xf32>) {...}
    scf.forall (%i) = (0) to (%n) step (16) {...} {mapping = [#gpu.block<x>]}
    """

    name = "scf.forall"

    lower = var_operand_def(IndexType())
    upper = var_operand_def(IndexType())
    step = var_operand_def(IndexType())
    outputs = var_operand_def(TensorType)
    static_lower = prop_def(DenseArrayBase.constr(i64), prop_name="staticLowerBound")
    static_upper = prop_def(DenseArrayBase.constr(i64), prop_name="staticUpperBound")
    static_step = prop_def(DenseArrayBase.constr(i64), prop_name="staticStep")
    mapping = opt_prop_def(ArrayAttr)
    res = var_result_def(TensorType)
    region = region_def("single_block")

    LISTS: ClassVar = {name: f"static{name.capitalize()}{'' if name == 'step' else 'Bound'}" for name in BOUNDS}

    def bound(self, name: str) -> list[int | SSAValue]:
        """The bounds `name` of all loops, constants as numbers."""
        dynamic, static = iter(getattr(self, name)), getattr(self, f"static_{name}").get_values()
        return [next(dynamic) if number == DYNAMIC_INDEX else number for number in static]

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        paren = parser.Delimiter.PAREN
        indices = parser.parse_comma_separated_list(paren, lambda: parser.parse_argument(expect_type=False))
        arguments = [index.resolve(IndexType()) for index in indices]
        lists: dict[str, tuple[Sequence[SSAValue], Sequence[int]]] = {}

        def bounds(name: str) -> None:
            values, numbers = parse_dynamic_index_list_without_types(parser, DYNAMIC_INDEX, delimiter=paren)
            lists[name] = parser.resolve_operands(values, [IndexType()] * len(values), parser.pos), numbers

        if parser.parse_optional_keyword("in"):
            lists["lower"], lists["step"] = ([], [0] * len(indices)), ([], [1] * len(indices))
            bounds("upper")
        else:
            for name, word in zip(BOUNDS, ("=", "to", "step"), strict=True):
                parser.parse_characters(word)
                bounds(name)
        outputs: Sequence[SSAValue] = ()
        kinds: Sequence[Attribute] = ()
        if parser.parse_optional_keyword("shared_outs"):
            start = parser.pos
            pairs = parser.parse_comma_separated_list(paren, lambda: parse_assignment(parser))
            parser.parse_punctuation("->")
            kinds = parser.parse_comma_separated_list(paren, parser.parse_type)
            outputs = parser.resolve_operands([value for _, value in pairs], kinds, start)  # pyright: ignore[reportArgumentType]
            arguments += [argument.resolve(kind) for (argument, _), kind in zip(pairs, kinds, strict=True)]
        region = parser.parse_region(arguments)
        if not isinstance(region.block.last_op, InParallelOp):
            region.block.add_op(InParallelOp(regions=[Region(Block())]))
        allowed, parser.ctx.allow_unregistered = parser.ctx.allow_unregistered, True  # what others map loops to
        attributes = dict(parser.parse_optional_attr_dict())
        parser.ctx.allow_unregistered = allowed
        return cls(
            operands=[*(lists[name][0] for name in BOUNDS), outputs],
            properties={
                "mapping": attributes.pop("mapping", None),
                **{cls.LISTS[name]: DenseArrayBase.from_list(i64, lists[name][1]) for name in BOUNDS},
            },
            attributes=attributes,
            result_types=[kinds],
            regions=[region],
        )

    def print(self, printer: Printer) -> None:
        rank = len(self.static_upper)
        indices, shared = self.region.block.args[:rank], self.region.block.args[rank:]
        plain = self.bound("lower") == [0] * rank and self.bound("step") == [1] * rank
        print_listed(printer, "", indices, printer.print_ssa_value)
        for name, word in (("upper", "in"),) if plain else zip(BOUNDS, ("=", "to", "step"), strict=True):
            printer.print_string(f" {word} ")
            static = getattr(self, f"static_{name}").get_values()
            print_dynamic_index_list(
                printer, DYNAMIC_INDEX, getattr(self, name), static, delimiter=Parser.Delimiter.PAREN
            )
        if shared:
            pairs = zip(shared, self.outputs, strict=True)
            print_listed(printer, "shared_outs", pairs, lambda pair: print_assignment(printer, pair))
            print_listed(printer, "-> ", self.res.types, printer.print_attribute)
        printer.print_string(" ")
        ends = isinstance(last := self.region.block.last_op, InParallelOp) and bool(last.region.block.first_op)
        printer.print_region(self.region, print_entry_block_args=False, print_block_terminators=ends)
        mapping = {} if self.mapping is None else {"mapping": self.mapping}
        printer.print_op_attributes({**mapping, **self.attributes})


TENSOR = extended(tensor.Tensor, (ExpandShapeOp, PadOp, ReshapeOp, ParallelInsertSliceOp))
SCF = extended(scf.Scf, (ForallOp, InParallelOp))
