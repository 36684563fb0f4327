"""`scf.forall` with what it puts together, and indices of `affine` as one number, which xDSL 0.74 lacks; `tensor.pad`
whose result is of known size. Source: MLIR, the dialects `scf`, `tensor` and `affine`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Self, cast

from xdsl.dialects import affine, scf, tensor
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AffineMapAttr,
    ArrayAttr,
    DenseArrayBase,
    IndexType,
    IntegerType,
    TensorType,
    UnitAttr,
    i64,
)
from xdsl.dialects.utils.dynamic_index_list import (
    DynamicIndexList,
    parse_dynamic_index_list_without_types,
    print_dynamic_index_list,
)
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
)
from xdsl.irdl import (
    IRDLOperation,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    ParsingState,
    PrintingState,
    VariadicOperandVariable,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, NoTerminator, Pure
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


@irdl_custom_directive
class SizesText(CustomDirective):
    """Sizes in parentheses, numbers or values: `(%n, 48)`."""

    values: VariadicOperandVariable
    numbers: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        values, numbers = parse_dynamic_index_list_without_types(
            parser, DYNAMIC_INDEX, delimiter=parser.Delimiter.PAREN
        )
        self.values.set(state, values)
        self.numbers.set(state, DenseArrayBase.from_list(i64, numbers))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        numbers = cast("DenseArrayBase[IntegerType]", self.numbers.get(op)).get_values()
        values, paren = self.values.get(op), Parser.Delimiter.PAREN
        print_dynamic_index_list(printer, DYNAMIC_INDEX, values, numbers, delimiter=paren)


def _product(a: AffineExpr, b: AffineExpr) -> AffineExpr:
    """xDSL multiplies, divides and takes remainders by constants only."""
    return a * b if isinstance(b, AffineConstantExpr) else AffineBinaryOpExpr(AffineBinaryOpKind.Mul, a, b)


class _OfSizes(IRDLOperation, ABC):
    """What both operations have: the sizes of all dimensions, of which that of the outermost may be left out."""

    static_basis = prop_def(DenseArrayBase.constr(i64))

    custom_directives: ClassVar = (SizesText,)
    traits = traits_def(Pure())

    @property
    @abstractmethod
    def indices(self) -> int:
        """How many there are."""

    @property
    @abstractmethod
    def map(self) -> AffineMapAttr:
        """The results, of the operands. Indices are inside of their dimensions."""

    def _map(self, results: Sequence[AffineExpr]) -> AffineMapAttr:
        return AffineMapAttr(AffineMap(len(self.operands), 0, tuple(results)))

    def _strides(self) -> list[AffineExpr]:
        """How many elements lie between neighbours along each dimension."""
        sizes: Sequence[int] = self.static_basis.get_values()
        number, strides = len(self.operands), list[AffineExpr]([AffineConstantExpr(1)])
        for size in reversed(sizes[len(sizes) + 1 - self.indices :]):
            number -= size == DYNAMIC_INDEX
            extent = AffineDimExpr(number) if size == DYNAMIC_INDEX else AffineConstantExpr(size)
            strides.insert(0, _product(strides[0], extent))
        return strides

    def verify_(self) -> None:
        sizes: Sequence[int] = self.static_basis.get_values()
        if len(sizes) not in (self.indices - 1, self.indices) or not sizes:
            raise VerifyException(f"expected sizes of {self.indices} dimensions, got {len(sizes)}")
        before = self.indices + 1 - len(self.results)  # operands and results are the indices and one number
        if (values := sizes.count(DYNAMIC_INDEX)) != (got := len(self.operands) - before):
            raise VerifyException(f"expected {values} sizes as values, got {got}")


@irdl_op_definition
class DelinearizeIndexOp(_OfSizes):
    """A number as indices of dimensions: `%i:2 = affine.delinearize_index %n into (4, 8) : index, index`."""

    name = "affine.delinearize_index"
    assembly_format = (
        "$linear_index `into` custom<SizesText>($dynamic_basis, $static_basis) attr-dict `:` type($multi_index)"
    )

    linear_index = operand_def(IndexType())
    dynamic_basis = var_operand_def(IndexType())
    multi_index = var_result_def(IndexType())

    @property
    def indices(self) -> int:
        return len(self.multi_index)

    @property
    def map(self) -> AffineMapAttr:
        number, strides, kind = AffineDimExpr(0), self._strides(), AffineBinaryOpKind
        inner = (AffineBinaryOpExpr(kind.Mod, number, outer) for outer in strides)
        pairs = zip((number, *inner), strides, strict=False)
        return self._map([AffineBinaryOpExpr(kind.FloorDiv, each, stride) for each, stride in pairs])


@irdl_op_definition
class LinearizeIndexOp(_OfSizes):
    """Indices of dimensions as a number: `%n = affine.linearize_index disjoint [%i, %j] by (4, 8) : index`."""

    name = "affine.linearize_index"
    assembly_format = (
        "(`disjoint` $disjoint^)? ` ` `[` $multi_index `]` `by` custom<SizesText>($dynamic_basis, $static_basis)"
        " attr-dict `:` type($linear_index)"
    )

    multi_index = var_operand_def(IndexType())
    dynamic_basis = var_operand_def(IndexType())
    disjoint = opt_prop_def(UnitAttr)
    linear_index = result_def(IndexType())

    @property
    def indices(self) -> int:
        return len(self.multi_index)

    @property
    def map(self) -> AffineMapAttr:
        terms = (_product(AffineDimExpr(number), stride) for number, stride in enumerate(self._strides()))
        return self._map([sum(terms, AffineConstantExpr(0))])


@irdl_op_definition
class MaxOp(affine.MinOp):
    """The largest result of a map: `affine.max affine_map<(d0) -> (d0, 3)>(%n)`."""

    name = "affine.max"

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        smallest = super().parse(parser)
        return cls(smallest.arguments, smallest.map)


AFFINE = extended(affine.Affine, (DelinearizeIndexOp, LinearizeIndexOp, MaxOp))


@irdl_op_definition
class GenerateOp(IRDLOperation):
    """A tensor whose elements a region computes of their indices."""

    name = "tensor.generate"

    sizes = var_operand_def(IndexType)
    body = region_def("single_block")
    result = result_def(TensorType)

    assembly_format = "$sizes $body attr-dict `:` type($result)"


class WhileOp(scf.WhileOp):
    """As xDSL's, which takes other types than its regions pass on, or fails."""

    def verify_(self) -> None:
        carried, left = tuple(self.arguments.types), tuple(self.res.types)
        for block, taken, passed in zip(
            (self.before_region.block, self.after_region.block), (carried, left), (left, carried), strict=True
        ):
            values = () if block.last_op is None else block.last_op.operands
            values = values[isinstance(block.last_op, scf.ConditionOp) :]
            if (tuple(a.type for a in block.args), tuple(v.type for v in values)) != (taken, passed):
                kinds = [", ".join(map(str, types)) for types in (taken, passed)]
                raise VerifyException(f"expected a region of scf.while that takes {kinds[0]} and passes on {kinds[1]}")


TENSOR = extended(tensor.Tensor, (ExpandShapeOp, PadOp, ReshapeOp, ParallelInsertSliceOp, GenerateOp))
SCF = extended(scf.Scf, (ForallOp, InParallelOp, WhileOp))
