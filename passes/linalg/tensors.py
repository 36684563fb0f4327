"""Operations on tensors: how they are built, and elementwise ones computed where an operation reads them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects import memref, tensor
from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    IntegerType,
    MemRefType,
    ModuleOp,
    TensorType,
    UnitAttr,
    f32,
    f64,
    i1,
    i32,
    i64,
)
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import FillOp, GenericOp, IndexOp, TransposeOp, YieldOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from ...dialect.mlir.affine import (
    EXTENSIONS,
    Nest,
    NestAccess,
    arithmetic,
    generic,
    is_plain,
    loops_of,
    number_of,
    weighted,
)
from ...dialect.warp.attributes import UNUSED
from ...dialect.warp.elements import element_type, only_computes, shape_of
from ...dialect.warp.op_shapes import is_pure
from ..diagnostics import remark
from ..patterns import (
    IndexBuilder,
    LocatedRewriter,
    apply_patterns,
    computed_from,
    erase_unused,
    is_unused,
    rewrite_pattern,
)
from .constants import number_for_input
from .contraction import adds_products
from .operand import Groups, groups_of, reassociation

Reshape = tensor.CollapseShapeOp | tensor.ExpandShapeOp


def collapse(value: SSAValue, groups: Groups, sizes: Sequence[int]) -> tensor.CollapseShapeOp:
    """A tensor with one dimension for each group."""
    kind = TensorType(element_type(value), sizes)
    return tensor.CollapseShapeOp.build(
        operands=[value], properties={"reassociation": reassociation(groups)}, result_types=[kind]
    )


def expand(
    value: SSAValue, groups: Groups, sizes: Sequence[int], unknown: Sequence[SSAValue] = ()
) -> tensor.ExpandShapeOp:
    """A tensor with several dimensions for each. `unknown` are the sizes that are not known, below 0."""
    kind = TensorType(element_type(value), sizes)
    shape = [size if size >= 0 else DYNAMIC_INDEX for size in sizes]
    return tensor.ExpandShapeOp(value, unknown, reassociation(groups), shape, kind)


BodyBuilder: TypeAlias = (
    Region | Callable[[SSAValue, SSAValue], SSAValue] | Callable[[SSAValue, SSAValue, SSAValue], SSAValue]
)
"""What makes an element: of those of one or two inputs, and of what it is put into; of more as a function of any."""


class LinalgBuilder(IndexBuilder):
    """Builds operations of `linalg` for another one, whose location they have, `before` it or what is named: on
    tensors, or on memory."""

    def __init__(self, op: Operation, before: Operation | None = None) -> None:
        super().__init__(LocatedRewriter(op, before))
        self.op = op

    def empty(self, kind: Attribute, sizes: Sequence[SSAValue] = ()) -> SSAValue:
        """A tensor, or memory, without contents. `sizes` are those that the type does not tell."""
        if isa(kind, MemRefType[Attribute]):
            return self.insert(memref.AllocOp(sizes, [], kind)).memref
        return self.insert(tensor.EmptyOp(sizes, kind)).tensor

    def filled(self, kind: Attribute, number: SSAValue | float, sizes: Sequence[SSAValue] = ()) -> SSAValue:
        """The same, filled with a number."""
        empty = self.empty(kind, sizes)
        if not isinstance(number, SSAValue):
            number = self.insert(number_of(element_type(empty), number)).result
        results = [] if isinstance(kind, MemRefType) else [kind]
        made = self.insert(FillOp([number], [empty], results))
        return made.results[0] if results else empty

    def computed(
        self,
        inputs: Sequence[SSAValue],
        into: SSAValue,
        maps: Sequence[AffineMap],
        body: BodyBuilder,
        summed: Collection[int] = (),
    ) -> SSAValue:
        """What a body makes of elements of inputs, and of what it is put into."""
        if not isinstance(body, Region):
            block = Block(arg_types=map(element_type, (*inputs, into)))
            with ImplicitBuilder(block):
                YieldOp(body(*block.args))
            body = Region(block)
        results = [] if isinstance(into.type, MemRefType) else [into.type]
        made = self.insert(generic(self.op, inputs, [into], body, maps, summed, results))
        return made.results[0] if results else into

    def elementwise(self, inputs: Sequence[SSAValue], kind: Attribute, body: BodyBuilder) -> SSAValue:
        """A tensor of which each element is made of one of each input, of tensors of its shape."""
        into = self.empty(kind, self.unknown_sizes(inputs[0]))
        return self.computed(inputs, into, [AffineMap.identity(len(shape_of(into)))] * (len(inputs) + 1), body)


def moves(op: Operation) -> bool:
    """Whether an operation may move the elements of a tensor, and do nothing more than extend them."""
    if isinstance(op, GenericOp):
        return len(op.inputs) == 1 and isinstance(op.body.block.first_op, (YieldOp, *EXTENSIONS))
    return isinstance(op, TransposeOp | Reshape)


def maker_of(op: LinalgStructuredOperation, number: int, *, counts: bool = False) -> GenericOp | None:
    """The elementwise operation that makes an input, of nothing but its own inputs, and of indices if it `counts`; None
    where another one does."""
    maker = op.inputs[number].owner
    if not isinstance(maker, GenericOp) or len(maker.results) != 1:
        return None
    nest = Nest.of(maker)
    plain = nest.is_elementwise and is_plain(nest.writes[0].map) and not nest.writes[0].element.uses
    besides = (YieldOp, IndexOp) if counts else YieldOp
    return maker if plain and all(only_computes(op) or isinstance(op, besides) for op in nest.body.ops) else None


def fused(op: LinalgStructuredOperation, number: int, maker: LinalgStructuredOperation) -> GenericOp | None:
    """An operation that computes one of its inputs, which an elementwise operation makes, itself; an element that both
    read is read once. None if no operand would tell the length of some loop."""
    outer, inner = Nest.of(op), Nest.of(maker)
    replaced, written = outer.reads[number], inner.writes[0].loops
    at = [replaced.map.results[written.index(loop)] for loop in range(inner.loops)]
    moved = (read._replace(map=read.map.replace_dims_and_symbols(at, [], outer.loops, 0)) for read in inner.reads)
    block, mapped = Block(), dict[SSAValue, SSAValue]()
    arguments = dict[tuple[SSAValue, AffineMap], SSAValue]()

    def add_argument(access: NestAccess) -> SSAValue:
        mapped[access.element] = block.insert_arg(access.element.type, len(block.args))
        return mapped[access.element]

    for read in (*outer.reads[:number], *moved, *outer.reads[number + 1 :]):
        key = read.value, read.map
        arguments[key] = mapped[read.element] = arguments.get(key) or add_argument(read)
    for each in outer.writes:
        add_argument(each)
    maps = [*(map_ for _, map_ in arguments), *(access.map for access in outer.writes)]
    if not {loop for map_ in maps for loop in loops_of(map_)} >= set(range(outer.loops)):
        return None
    index = IndexBuilder(Builder(InsertPoint.at_end(block)))
    for inside in inner.body.ops:
        if isinstance(inside, YieldOp):
            mapped[replaced.element] = mapped.get(inside.operands[0], inside.operands[0])
        elif isinstance(inside, IndexOp):
            place = index.evaluated(at[inside.dim.value.data], lambda loop: index.insert(IndexOp(loop)).result)
            mapped[inside.result] = index.value(place)
        else:
            index.insert(inside.clone(mapped)).location = inside.location
    for inside in outer.body.ops:
        index.insert(inside.clone(mapped)).location = inside.location
    inputs = [value for value, _ in arguments]
    return generic(op, inputs, list(op.outputs), Region(block), maps, outer.summed, op.result_types)


@rewrite_pattern
def compute_where_read(op: GenericOp, rewriter: PatternRewriter) -> None:
    """Fuses `generic(generic(x))` of one shape into one operation on x; the element between them keeps its type. A
    filled tensor becomes its constant."""
    for number, value in enumerate(op.inputs if _is_in_order(op) else ()):
        producer, made = value.owner, None
        if isinstance(producer, FillOp) and isinstance(producer.inputs[0].owner, ConstantOp) and len(op.inputs) > 1:
            made = number_for_input(op, number, producer.inputs[0].owner)
        elif (maker := maker_of(op, number)) is not None and value.has_one_use() and _is_in_order(maker):
            same = op.indexing_maps.data[number] == maker.indexing_maps.data[-1]
            made = fused(op, number, maker) if same else None
        if made is not None and isinstance(producer, GenericOp | FillOp):
            _replace(rewriter, op, made, producer)
            return


def _replace(rewriter: PatternRewriter, op: GenericOp, made: GenericOp, producer: GenericOp | FillOp) -> None:
    """Replaces an operation by a fused one, and erases producers that become unused."""
    rewriter.replace(op, made)
    erase_unused(op for op in (producer, producer.outputs[0].owner) if isinstance(op, Operation))


def _is_in_order(op: GenericOp) -> bool:
    """Whether an operation makes a new tensor, element by element in the order of its loops."""
    nest = Nest.of(op)
    in_order = not nest.summed and nest.writes[0].loops == tuple(range(nest.loops))
    return in_order and isinstance(op.outputs[0].owner, tensor.EmptyOp)


FEW_BITS = 8
"""Of integers that products convert while they load them, at most."""


@rewrite_pattern
def convert_behind_reshape(op: tensor.ExpandShapeOp, rewriter: PatternRewriter) -> None:
    """Converts integers of few bits, and what slices are taken of, in the shape in which the result is read:
    `expand(generic(q))` becomes `generic(expand(q))`, which is then computed where groups along a row are scaled."""
    maker = op.src.owner
    if not isinstance(maker, GenericOp) or not op.src.has_one_use() or len(maker.operands) != 2:
        return
    (value,), (map_, written) = maker.inputs, maker.indexing_maps.data
    kind, result = value.type, op.result.type
    few = isa(kind, TensorType[IntegerType]) and kind.element_type.bitwidth <= FEW_BITS
    sliced = all(isinstance(use.operation, tensor.ExtractSliceOp) for use in op.result.uses)
    if not ((few or sliced) and isa(kind, TensorType[Attribute]) and _is_in_order(maker)):
        return
    if map_ != written or op.dynamic_output_shape or not isa(result, TensorType):
        return
    moved = rewriter.insert(expand(value, groups_of(op), result.get_shape())).result
    made = LinalgBuilder(maker, before=op).elementwise([moved], result, maker.body.clone())
    rewriter.replace(op, [], [made])
    rewriter.erase(maker)


def fuse_elementwise(module: ModuleOp) -> None:
    """Applies the patterns to a module, in place, as often as they apply."""
    while apply_patterns((compute_where_read, convert_behind_reshape), module):
        pass


WIDE = (f64, i64, i1)
LARGEST_BODY = 48
"""Operations of a body; elements that are read several times are computed as often."""


@rewrite_pattern
def fuse_wide(op: GenericOp, rewriter: PatternRewriter) -> None:
    """Computes tensors of f64, i64 or i1 inside the elementwise operations that read them. Front ends use such types
    between two tensors."""
    number = 0
    while op.results and number < len(op.inputs) and not adds_products(op):
        kind = element_type(op.inputs[number])
        maker = maker_of(op, number, counts=kind == i64)
        wide = kind in WIDE
        bodies = (*maker.body.block.ops, *op.body.block.ops) if wide and maker is not None else ()
        made = fused(op, number, maker) if maker is not None and 0 < len(bodies) <= LARGEST_BODY else None
        number += made is None
        if made is not None:
            rewriter.replace(op, made)
            op = made


@rewrite_pattern
def fuse_diamond(op: GenericOp, rewriter: PatternRewriter) -> None:
    """Puts the body of an elementwise operation into the only one that reads its result, if that reads a tensor
    which the former is made of, too. A front end writes `silu(x)` as `s = sigmoid(x)` and `x * s`, or a gelu as ten
    operations. As one operation it reads `x` once, and where `x` is a product's result it can be part of the
    product."""
    number = 0
    while number < len(op.inputs):
        maker = maker_of(op, number) if _closes(op, number) else None
        made = None if maker is None else fused(op, number, maker)
        number = 0 if made is not None else number + 1
        if made is not None and maker is not None:
            _replace(rewriter, op, made, maker)
            op = made


def _closes(op: GenericOp, number: int) -> bool:
    """Whether an input of an elementwise operation is made for it alone, of something that it reads too; or one of an
    operation that goes along rows and writes an element in each turn."""
    nest = Nest.of(op)
    if nest.summed and nest.writes[0].loops == tuple(range(nest.loops)):
        return op.inputs[number].has_one_use()
    plain = len(op.results) == 1 and nest.is_elementwise
    return plain and not _read_before(op, number).isdisjoint(op.inputs)


def _read_before(op: GenericOp, number: int) -> set[SSAValue]:
    """What the elementwise operations read that make an input, and nothing else, one after another."""
    maker = maker_of(op, number) if op.inputs[number].has_one_use() else None
    numbers = () if maker is None else range(len(maker.inputs))
    return {value for n in numbers if maker is not None for value in (maker.inputs[n], *_read_before(maker, n))}


def drop_unused(block: Block, function: Operation | None = None) -> None:
    """Erases pure operations of a block whose results are unused. In a function, a remark tells of each."""
    for op in reversed(list(block.ops)):
        computes = isinstance(op, LinalgStructuredOperation)
        if (computes or is_pure(op)) and is_unused(op):
            if computes and function is not None:
                remark(op, "warp-bufferize", f"nobody uses the result of {op.name}; it is not computed")
                function.attributes[UNUSED] = UnitAttr()
            Rewriter.erase_op(op)


@rewrite_pattern
def one_result_each(op: GenericOp, rewriter: PatternRewriter) -> None:
    """Splits an operation with several results into one operation for each used result. A maximum with its index
    becomes a maximum if only that is used. It leaves an operation in which one of two results depends on the running
    value of the other."""
    used = [number for number, result in enumerate(op.results) if result.uses]
    if len(op.results) < 2 or any(_depends(Nest.of(op), number) for number in used):
        return
    values: list[SSAValue | None] = []
    for number, result in enumerate(op.results):
        values.append(rewriter.insert(_alone(op, number)).results[0] if result.uses else None)
    rewriter.replace(op, [], values)


def _depends(nest: Nest, number: int) -> bool:
    """Whether a result depends on what another one has so far."""
    needed = computed_from([nest.yielded[number]])
    return any(access.element in needed for other, access in enumerate(nest.writes) if other != number)


def _alone(op: GenericOp, number: int) -> GenericOp:
    """A copy of an operation that computes one of its results."""
    nest = Nest.of(op)
    needed = computed_from([nest.yielded[number]])
    kept = [n for n, access in enumerate(nest.reads) if access.element in needed]
    told = {loop for n in kept for loop in loops_of(nest.reads[n].map)} | set(nest.writes[number].loops)
    if not told >= set(range(nest.loops)):
        kept = list(range(len(nest.reads)))
    body = op.body.clone()
    block, end = body.block, body.block.last_op
    if end is not None:
        end.operands = [end.operands[number]]
    erase_unused(reversed(list(block.ops)))
    used = {*kept, len(nest.reads) + number}
    for argument in reversed(list(block.args)):
        if argument.index not in used:
            block.erase_arg(argument)
    maps = [nest.reads[n].map for n in kept] + [nest.writes[number].map]
    inputs, kinds = [op.inputs[n] for n in kept], [op.results[number].type]
    summed = [loop for loop in nest.summed if loop not in nest.writes[number].loops]
    return generic(op, inputs, [op.outputs[number]], body, maps, summed, kinds)


def _starts(op: Operation, number: int) -> bool:
    """Whether an operand is what an operation starts from."""
    return isinstance(op, LinalgStructuredOperation) and number >= len(op.inputs)


@rewrite_pattern
def fill_for_each(op: FillOp, rewriter: PatternRewriter) -> None:
    """Gives each operation that starts from a filled tensor a fill of its own, so that its sums can start from the
    constant, and one that does not read it the tensor before it is filled."""
    uses, empty = list(op.results[0].uses) if op.results else [], op.outputs[0].owner
    for use in uses:
        if _starts(user := use.operation, use.index) and not user.regions[0].block.args[use.index].uses:
            user.operands[use.index] = op.outputs[0]
    starts = [use for use in op.results[0].uses if _starts(use.operation, use.index)] if uses else []
    if not isinstance(empty, tensor.EmptyOp) or len(uses) < 2:
        return
    for use in starts:
        make, sizes = LinalgBuilder(op, before=use.operation), empty.dynamic_sizes
        use.operation.operands[use.index] = make.filled(empty.tensor.type, op.inputs[0], sizes)
    rewriter.has_done_action = True


@rewrite_pattern
def add_start(op: LinalgStructuredOperation, rewriter: PatternRewriter) -> None:
    """Makes a product that accumulates into a bias start from zero, and adds the bias behind it. The epilogue of the
    product then does that, and writes the result once."""
    if len(op.results) != 1 or len(op.outputs) != 1:
        return
    start, kind = op.outputs[0], op.results[0].type
    bias, body, exact = start.owner, weighted(op.body.block), element_type(start) in (f32, i32)
    if body is None or not body.is_plain or not isinstance(bias, GenericOp) or not exact:
        return
    empty = bias.outputs[0].owner
    if not Nest.of(bias).is_elementwise or not isa(kind, TensorType[Attribute]):
        return
    if not isinstance(empty, tensor.EmptyOp) or empty.tensor.type != kind:
        return
    make, product = LinalgBuilder(op), op.clone()
    product.operands[len(op.inputs)] = make.filled(kind, 0, empty.dynamic_sizes)
    inputs, last = [make.insert(product).results[0], start], make.empty(kind, empty.dynamic_sizes)
    maps = [AffineMap.identity(len(kind.get_shape()))] * 3
    rewriter.replace(op, [], [make.computed(inputs, last, maps, lambda a, b, _: arithmetic("add", a, b))])
