"""Regions on one element, and the loops that index it: `warp.pointwise`, `warp.index`, `warp.gelu`; and who has an
epilogue of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    ShapedType,
    StringAttr,
    TensorType,
    UnitAttr,
    f32,
    i32,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, ParametrizedAttribute, Region, SSAValue, TypeAttribute
from xdsl.ir.affine import AffineDimExpr, AffineMap
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.irdl.declarative_assembly_format import (
    CustomDirective,
    ParsingState,
    PrintingState,
    RegionVariable,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.rewriter import Rewriter
from xdsl.traits import IsolatedFromAbove, IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa
from xdsl.utils.type import get_element_type_or_self

from ..mlir.affine import allows, loops_of, may_be_alike
from ..mlir.words import irdl_op_definition
from .attributes import FragmentType, memory_of
from .op_shapes import WarpOp, is_pure

# The loops of a product, m, n and k by number, and which of them the dimensions of operands run along.

M, N, K = 0, 1, 2
"""The loops of a product, by number."""

OPERAND_LOOPS = ((M, K), (K, N), (M, N))
"""The loops that the rows and the columns of A, B, and C or D run along, when nothing is transposed; the loops of a
batch come before these, and behind those of a batch the ones that are summed over beside k."""

DEFAULT_MAPS = tuple(AffineMap(3, 0, tuple(map(AffineDimExpr, loops))) for loops in OPERAND_LOOPS)


def shape_of(operand: SSAValue) -> tuple[int, ...]:
    """The shape of memory or of a tensor; none of a number."""
    return operand.type.get_shape() if isinstance(operand.type, ShapedType) else ()


def element_type(operand: SSAValue) -> TypeAttribute:
    """The type of the elements of memory or of a tensor, or of a number."""
    kind = operand.type
    kind = get_element_type_or_self(kind) if isa(kind, MemRefType[Attribute] | TensorType[Attribute]) else kind
    if not isinstance(kind, TypeAttribute):
        raise VerifyException(f"expected elements of a type, got {kind}")
    return kind


class LoopSizes:
    """The sizes of loops, collected from the shapes of operands; -1 where no operand knows one. `names` are names of
    loops for errors. By default they are d0, d1 and so on."""

    def __init__(self, names: Mapping[int, str] | None = None) -> None:
        self._names, self._loop_sizes = names or {}, dict[int, tuple[str, int]]()

    def add(self, name: str, operand: SSAValue, along: Sequence[int], shape: Sequence[int] | None = None) -> None:
        """Records the sizes of the loops that the dimensions of an operand run along. `shape` replaces the operand's
        own. Raises VerifyException if the number of dimensions differs, or another operand implies another size of a
        loop."""
        sizes = shape_of(operand) if shape is None else shape
        if len(sizes) != len(along):
            raise VerifyException(f"expected {name} of rank {len(along)}, got {operand.type}")
        for loop, size in ((loop, size) for loop, size in zip(along, sizes, strict=True) if loop >= 0):
            other, size_before = self._loop_sizes.get(loop, (name, -1))
            if size_before != size and min(size_before, size) >= 0:
                axis = self._names.get(loop, f"d{loop}")
                raise VerifyException(f"expected {other} and {name} to agree on {axis}, got {size_before} and {size}")
            if size_before < 0:
                self._loop_sizes[loop] = name, size

    def __getitem__(self, loop: int) -> int:
        return self._loop_sizes[loop][1]


def verify_along(name: str, map_: AffineMap, loops: int, along: Sequence[int], symbols: Collection[int] = ()) -> None:
    """Checks that the map of an operand runs along some of the loops in `along`, and some of the `symbols`. Raises
    VerifyException if it has other loops, or one twice."""
    loops_ = loops_of(map_)
    if map_.num_dims != loops or len(set(loops_)) != len(loops_) or not set(loops_) <= {*along, *symbols}:
        listed = ", ".join(f"d{loop}" for loop in sorted(along))
        listed += ", each once" * (len(set(loops_)) != len(loops_))
        raise VerifyException(f"expected {name} to be indexed by some of {listed}, got {map_}")


def companion_loops(map_: AffineMap, own: int, outer: int) -> tuple[int, ...]:
    """The loops of the operands that are read with A or B: those before m or n, their own one, and k."""
    return (*(loop for loop in loops_of(map_) if loop < outer), outer + own, outer + K)


def loops_around(
    name: str, loops: tuple[int, int], map_: AffineMap, outer: int, inner: int = len(OPERAND_LOOPS)
) -> list[int]:
    """The `outer` loops of an operand that also runs along two of the `inner` loops. Raises VerifyException if its map
    has other loops, or one twice."""
    of_map, own = loops_of(map_), [outer + loop for loop in loops]
    around = [loop for loop in of_map if 0 <= loop < outer]
    wrong = map_.num_dims != outer + inner or map_.num_symbols or outer < 0
    if wrong or sorted(set(of_map)) != sorted([*around, *own]) or len(set(of_map)) != len(of_map):
        raise VerifyException(f"expected {name} to be indexed by d{own[0]} and d{own[1]}, got {map_}")
    return around


def verify_map(name: str, loops: tuple[int, int], map_: AffineMap, outer: int, batch: int) -> None:
    """Checks the map of an operand that runs along two `loops` of the product, behind `outer` others. The first `batch`
    of these are parallel, and D runs along no others. Raises VerifyException if the map has other loops, or one twice;
    or if A or B lacks a loop that is summed."""
    before = loops_around(name, loops, map_, outer)
    if name == "D" and sorted(before) != list(range(batch)):
        raise VerifyException(f"expected D to be indexed by the first loops, those of the batch, got {map_}")
    if name != "D" and (missing := set(range(batch, outer)).difference(before)):
        raise VerifyException(f"expected {name} to be indexed by d{min(missing)}, which D is not, got {map_}")


# Regions that say what happens to one element: the bodies of `warp.map` and `warp.pointwise`.
#
# Such a region has one block. It takes an element of each input, does `arith` and `math` on scalars, and ends with
# `warp.yield` of the element of the result. It sees nothing from outside: constants are made inside, and everything
# else is an input.


@irdl_op_definition
class YieldOp(WarpOp):
    """Ends a region on elements, and yields the element of each result: `warp.yield %y : bf16`."""

    name = "warp.yield"

    elements = var_operand_def()

    traits = traits_def(IsTerminator(), Pure())
    assembly_format = "$elements attr-dict `:` type($elements)"

    def __init__(self, *elements: SSAValue):
        super().__init__(elements)


def yielded(region: Region) -> SSAValue:
    """The element that a verified region of one result yields."""
    return _terminator(region).elements[0]


def all_yielded(region: Region) -> Sequence[SSAValue]:
    """The elements that a verified region yields, one for each result."""
    return _terminator(region).elements


def _terminator(region: Region) -> YieldOp:
    last = region.block.last_op if len(region.blocks) == 1 else None
    if not isinstance(last, YieldOp):
        raise VerifyException("expected one block that ends with warp.yield")
    return last


def verify_elements(region: Region, inputs: Sequence[Attribute], *results: Attribute) -> None:
    """Checks a region on elements of these types. Raises VerifyException if it takes or yields others, or does more
    than compute."""
    end, expected = _terminator(region), list(inputs)
    got = [argument.type for argument in region.block.args]
    if got != expected:
        raise VerifyException(f"expected a region on elements ({listed_types(expected)}), got ({listed_types(got)})")
    made = [element.type for element in end.elements]
    if made != list(results):
        what = "an element of type" if len(results) == 1 else "elements of types"
        raise VerifyException(
            f"expected warp.yield of {what} {listed_types(results)}, got {listed_types(made) or 'none'}"
        )
    for op in region.block.ops:
        if op is not end and not only_computes(op):
            raise VerifyException(f"expected arithmetic on elements and warp.yield, got {op.name}")


def only_computes(op: Operation) -> bool:
    """Whether an operation computes values and has no other effect."""
    return bool(op.results) and not op.regions and is_pure(op)


@irdl_custom_directive
class ElementRegion(CustomDirective):
    """The text of a region on elements: `(%x: f32, %y: f16) {`, the body, and `}`."""

    body: RegionVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        arguments = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_argument)
        self.body.set(state, parser.parse_region(arguments))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        region = self.body.get(op)
        with printer.in_parens():
            printer.print_list(region.block.args, printer.print_block_argument)
        printer.print_string(" ")
        printer.print_region(region, print_entry_block_args=False)


def is_approximate(op: Operation) -> bool:
    """Whether an operation of a region may be approximate: `fastmath<afn>`."""
    return allows(op.properties.get("fastmath"), "afn")


def listed_types(types: Sequence[object]) -> str:
    """Types as messages list them."""
    return ", ".join(map(str, types))


@irdl_op_definition
class IndexOp(WarpOp):
    """The index of an element along a loop of the product: `%row = warp.index 0 : i32`.

    It is used in the region of `warp.pointwise`. The loop must be one that indexes D, for a product, or the scores, for
    attention.

    Of a fragment, it is the index of each element along its rows, loop 0, or along its columns, loop 1, counted from
    a start::

        %j = warp.index 1 from %start : !warp.fragment<acc, 16x64xi32, [c1 c2 r0 r1 r2 | c0 r3]>

    With a `step`, it is that of the first of so many elements, for a start that is a multiple of them. With `below`, so
    many elements from the first on have indices below 0, and count as -1.
    """

    name = "warp.index"

    loop = prop_def(IntegerAttr[i64])
    start = opt_operand_def(IndexType())
    step = opt_prop_def(IntegerAttr[i64])
    below = opt_prop_def(IntegerAttr[i64])
    result = result_def()

    traits = traits_def(Pure())
    assembly_format = "$loop (`from` $start^)? attr-dict `:` type($result)"

    def __init__(
        self, loop: int, start: SSAValue | None = None, fragment: FragmentType | None = None, *, step: int = 1,
        below: int = 0,
    ):  # fmt: skip
        """`fragment` has the layout of the result, of any elements."""
        kind = i32 if fragment is None else fragment.with_element(i32)
        numbers = {"step": step if step > 1 else None, "below": below if below > 0 else None}
        super().__init__(loop, start, result=kind, **numbers)

    def verify_(self) -> None:
        kind = self.result.type
        if isinstance(kind, FragmentType) != (self.start is not None) or (not self.start and (self.step or self.below)):
            raise VerifyException(f"expected a start of the elements of a fragment, and of no other, got {kind}")
        if (kind.element_type if isinstance(kind, FragmentType) else kind) != i32:
            raise VerifyException(f"expected elements of i32, got {kind}")
        if isinstance(kind, FragmentType) and self.number not in (0, 1):
            raise VerifyException(f"expected 0, the loop along rows, or 1, that along columns, got {self.number}")

    @property
    def number(self) -> int:
        """The number of the loop."""
        return self.loop.value.data


def verify_indices(block: Block, along: Sequence[int]) -> None:
    """Checks that a region uses the indices of those loops only along which its elements run. Raises VerifyException if
    it uses another one."""
    for op in block.ops:
        if isinstance(op, IndexOp) and op.number not in along:
            loops = ", ".join(map(str, along))
            raise VerifyException(f"expected the index of a loop that elements run along, {loops}, got {op.number}")


GELUS = ("tanh", "erf", "silu", "erf_gradient")
"""The functions of `warp.gelu`: a gelu, exact or by tanh; a silu, with the logistic function in place of the normal
distribution's; the derivative of a gelu by erf."""


@irdl_op_definition
class GeluOp(WarpOp):
    """x times the normal distribution function of x, exactly or as `tanh` approximates it::

        %y = warp.gelu "erf" %x : f32      // x (1 + erf(x / sqrt(2))) / 2
        %y = warp.gelu "tanh" %x : f32     // x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
        %y = warp.gelu "silu" %x : f32     // x / (1 + exp(-x))
        %y = warp.gelu "erf_gradient" %x : f32  // (1 + erf(x / sqrt(2))) / 2 + x exp(-x^2 / 2) / sqrt(2 pi)

    With `approximate`, the error is at most 1e-3 of |x|.

    `warp-raise-gelu` replaces the operations of a gelu by this operation. D. Hendrycks and K. Gimpel, "Gaussian error
    linear units (GELUs)", 2016.
    """

    name = "warp.gelu"

    by = prop_def(StringAttr)
    x = operand_def(f32)
    approximate = opt_prop_def(UnitAttr)
    y = result_def(f32)

    traits = traits_def(Pure())
    assembly_format = "$by $x attr-dict `:` type($y)"

    def verify_(self) -> None:
        if self.by.data not in GELUS:
            raise VerifyException(f'expected a gelu by {" or ".join(GELUS)}, got "{self.by.data}"')


@irdl_attr_definition
class PointwiseType(ParametrizedAttribute, TypeAttribute):
    """A function of elements, with its operands, which `warp.pointwise` defines: `!warp.pointwise`."""

    name = "warp.pointwise"


@irdl_op_definition
class PointwiseOp(WarpOp):
    """A function of an element of a result and of one element of each operand. Another operation applies it to each
    element::

        %gelu = warp.pointwise %bias maps [affine_map<(m, n, k) -> (n)>] : memref<320xf32> (%x: f32, %b: f32) {
          %sum = arith.addf %x, %b : f32
          %y = arith.truncf %sum : f32 to bf16
          warp.yield %y : bf16
        }
        warp.matmul bf16 x bf16 %A, %B init 0.0 : f32 into %D through %gelu : memref<...>, memref<...>, memref<...>

    Of a product by two matrices (`warp.paired`) the function takes an element of each first.

    The function is the epilogue of a `warp.matmul` or a `warp.epilogue`, or changes the scores of a `warp.attention`.
    An operand is memory that is indexed by the loops of the elements, or a number, whose map has no results.
    """

    name = "warp.pointwise"

    inputs = var_operand_def()
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr], default_value=ArrayAttr[AffineMapAttr]([]))
    body = region_def()
    function = result_def(PointwiseType())

    traits = traits_def(Pure(), IsolatedFromAbove())
    custom_directives: ClassVar = (ElementRegion,)
    assembly_format = (
        "($inputs^)? (`maps` $indexing_maps^)? attr-dict (`:` type($inputs)^)? custom<ElementRegion>($body)"
    )

    def __init__(self, inputs: Sequence[tuple[SSAValue, AffineMap]], body: Region):
        """`inputs` are operands with their maps."""
        super().__init__([value for value, _ in inputs], [map_ for _, map_ in inputs], body)

    @property
    def placed(self) -> list[tuple[SSAValue, AffineMap]]:
        """The operands with their maps."""
        return list(zip(self.inputs, (attribute.data for attribute in self.indexing_maps), strict=True))

    @property
    def products(self) -> int:
        """The number of products among the function's arguments; they precede the operands."""
        return len(self.body.block.args) - len(self.inputs)

    @property
    def argument_type(self) -> Attribute:
        """The element type of the function's argument."""
        return self.body.block.args[0].type

    def moved(
        self,
        inputs: Sequence[tuple[SSAValue, AffineMap]],
        loops: int,
        outer: int | Sequence[int],
        numbers: Mapping[int, SSAValue] | None = None,
    ) -> PointwiseOp:
        """The same function of other operands, for an operation of so many loops. The first `outer` loops are removed;
        or `outer` has the new number of each. `numbers` are the indices of the removed loops, which become operands."""
        body, indices = self.body.clone(), numbers or {}
        arguments = {loop: body.block.insert_arg(i32, len(body.block.args)) for loop in indices}
        for op in [op for op in body.block.ops if isinstance(op, IndexOp)]:
            if op.number in arguments:
                Rewriter.replace_op(op, [], [arguments[op.number]])
            else:
                Rewriter.replace_op(op, IndexOp(op.number - outer if isinstance(outer, int) else outer[op.number]))
        moved_op = PointwiseOp([*inputs, *((value, AffineMap(loops, 0, ())) for value in indices.values())], body)
        moved_op.function.name_hint, moved_op.location = self.function.name_hint, self.location
        return moved_op

    def verify_(self) -> None:
        if len(self.indexing_maps) != len(self.inputs):
            count = len(self.indexing_maps)
            raise VerifyException(f"expected a map of each of {len(self.inputs)} operands, got {count}")
        if len(self.body.blocks) != 1 or not self.body.blocks[0].args:
            raise VerifyException("expected a region of one block that takes an element")
        if self.products not in (1, 2):
            raise VerifyException(f"expected a function of one element or of two, got {self.products}")
        elements = [self.argument_type] * self.products
        verify_elements(self.body, [*elements, *map(element_type, self.inputs)], yielded(self.body).type)

    def verify_use(self, what: str, made: Attribute, loops: int, along: Sequence[int], sizes: LoopSizes) -> None:
        """Checks the function where it is used to make elements of type `made`, along some loops of an operation.
        `what` is the word for its operands in errors. Raises VerifyException if it makes another type, or if its
        operands or indices run along other loops."""
        if (yielded_type := yielded(self.body).type) != made:
            raise VerifyException(f"expected elements of {made} from {self.name}, got {yielded_type}")
        verify_indices(self.body.block, along)
        for number, (value, map_) in enumerate(self.placed):
            verify_along(f"{what} {number}", map_, loops, along)
            sizes.add(f"{what} {number}", value, loops_of(map_))


def pointwise_of(value: SSAValue | None) -> PointwiseOp | None:
    """The operation that defines a function of elements; None without a function. Raises VerifyException for a function
    that another operation defines."""
    if value is None:
        return None
    if isinstance(value.owner, PointwiseOp):
        return value.owner
    raise VerifyException("expected a function of elements from warp.pointwise, got a block argument")


def with_functions(op: Operation) -> list[Operation]:
    """The operation, after the functions of elements that it uses and that are in no block yet."""
    functions = [value.owner for value in op.operands if isinstance(value.owner, PointwiseOp)]
    return [*(each for each in functions if each.parent is None), op]


# What `warp.matmul` and `warp.epilogue` share: C, D, and the epilogue that makes the elements of D.


class WithEpilogue(WarpOp):
    """An operation whose function `through` computes the stored elements of `d` from those of a product."""

    c = opt_operand_def(MemRefType)
    d = operand_def(MemRefType)
    through = opt_operand_def(PointwiseType())

    @property
    def epilogue(self) -> PointwiseOp | None:
        """The function of the epilogue; None without one."""
        return pointwise_of(self.through)

    @property
    def placed_operands(self) -> list[tuple[SSAValue, AffineMap]]:
        """The operands of the epilogue, with the loops that they run along."""
        return [] if self.epilogue is None else self.epilogue.placed

    @property
    def epilogue_operands(self) -> list[SSAValue]:
        """The operands of the epilogue."""
        return [value for value, _ in self.placed_operands]

    @property
    def product_type(self) -> TypeAttribute:
        """The type to which the product is rounded: that of D, or that of the epilogue's argument."""
        kind = memory_of(self.d).element_type if self.epilogue is None else self.epilogue.argument_type
        if not isinstance(kind, TypeAttribute):
            raise VerifyException(f"expected elements of a type, got {kind}")
        return kind

    def verify_stored(self, loops: int, along: Sequence[int], sizes: LoopSizes) -> None:
        """Checks C, D and the epilogue. C must have the shape of D, which runs along some of the `loops`. Raises
        VerifyException if the shapes differ, or the epilogue makes another type or has operands along other loops."""
        if self.c is not None and not may_be_alike(memory_of(self.c).get_shape(), memory_of(self.d).get_shape()):
            raise VerifyException(f"expected C of the shape of D, got {self.c.type} and {self.d.type}")
        if self.epilogue is not None:
            self.epilogue.verify_use("epilogue operand", memory_of(self.d).element_type, loops, along, sizes)
