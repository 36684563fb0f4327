"""Elementwise operations on tensors: computed where an operation reads them, for each result, and for each part."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import prod

from xdsl.builder import Builder
from xdsl.dialects import tensor
from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import IntegerType, ModuleOp, TensorType, UnitAttr, f64, i1, i64
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import FillOp, GenericOp, IndexOp, YieldOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from ...dialect.mlir.affine import Nest, NestAccess, generic, is_plain, loops_of
from ...dialect.warp.attributes import UNUSED
from ...dialect.warp.elements import element_type, only_computes, shape_of
from ...dialect.warp.op_shapes import is_pure
from ..diagnostics import remark
from ..patterns import IndexBuilder, apply_patterns, computed_from, erase_unused, is_unused, rewrite_pattern
from .constants import COVERED, number_for_input
from .contraction import adds_products
from .moved_operands import Movement, collapse_behind
from .operand import groups_of
from .reshapes import LinalgBuilder, expand


def covers(op: tensor.InsertSliceOp) -> bool:
    """Whether an insertion is the first of some that fill all of a tensor without contents: parts of a concatenation,
    or those of every so many elements along each dimension."""
    if COVERED in op.attributes:
        return True
    puts, last = list[tensor.InsertSliceOp](), op
    while isinstance(last, tensor.InsertSliceOp) and (not puts or last.dest is puts[-1].result):
        puts.append(last)
        last = next((use.operation for use in last.result.uses), None)
    numbers = [[[*each.iter_values()] for each in (put.static_offsets, put.static_sizes, put.static_strides)]
               for put in puts]  # fmt: skip
    offsets, sizes, strides = zip(*numbers, strict=True)
    steps = strides[0]
    apart = all(each == steps for each in strides) and len({*map(tuple, offsets)}) == len(puts)
    first = all(0 <= at < step for each in offsets for at, step in zip(each, steps, strict=True))
    shape = shape_of(op.result)
    return apart and first and min(*shape, *chain(*sizes)) >= 0 and sum(map(prod, sizes)) == prod(shape)


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


MAX = 4
"""Tensors behind one another that an operation is computed for one by one."""


def _elementwise(op: object) -> Nest | None:
    """The nest of an operation that computes each element of one new tensor once, in order; None for other
    operations."""
    if not isinstance(op, GenericOp) or len(op.results) != 1 or not isinstance(op.outputs[0].owner, tensor.EmptyOp):
        return None
    nest = Nest.of(op)
    in_order = nest.writes[0].loops == tuple(range(nest.loops)) and not nest.summed and not nest.indices
    reads = all(len(set(read.loops)) == len(read.loops) and min(read.loops, default=0) >= 0 for read in nest.reads)
    static = min(shape_of(op.results[0]), default=0) > 0
    return nest if in_order and reads and static and not nest.writes[0].element.uses else None


def _on_part(
    op: GenericOp, inputs: Sequence[SSAValue], shape: Sequence[int], before: Operation | None = None
) -> SSAValue:
    """The operation on parts of its inputs, with a result of the given shape."""
    make = LinalgBuilder(op, before)
    empty = make.empty(TensorType(element_type(op.results[0]), shape))
    return make.computed(inputs, empty, Nest.of(op).maps, op.body.clone())


@rewrite_pattern
def compute_on_parts(op: GenericOp, rewriter: PatternRewriter) -> None:
    """Replaces an elementwise operation on tensors behind one another by one on each."""
    nest = _elementwise(op)
    if Movement.of(op.results[0]) is not None:  # what reads it can read it before, where it is narrower
        return
    for read in nest.reads if nest is not None else ():
        joined = read.value.owner
        if nest is None or not isinstance(joined, tensor.ConcatOp) or len(joined.inputs) > MAX:
            continue
        loop, start, parts = read.loops[joined.dim.value.data], 0, list[SSAValue]()
        for source in joined.inputs:
            size = shape_of(source)[joined.dim.value.data]
            inputs = list[SSAValue]()
            for other in nest.reads:
                if other.value is joined.result and other.loops == read.loops:
                    inputs.append(source)
                elif loop in other.loops:
                    inputs.append(_slice(other.value, other.loops.index(loop), start, size, rewriter))
                else:
                    inputs.append(other.value)
            shape = list(shape_of(op.results[0]))
            shape[loop] = size
            parts.append(_on_part(op, inputs, shape))
            start += size
        kind = TensorType(element_type(op.results[0]), shape_of(op.results[0]))
        rewriter.replace(op, tensor.ConcatOp(parts, loop, kind))
        if not joined.result.uses:
            rewriter.erase(joined)
        return


def _slice(value: SSAValue, dimension: int, start: int, size: int, rewriter: PatternRewriter) -> SSAValue:
    shape = shape_of(value)
    offsets = [start if d == dimension else 0 for d in range(len(shape))]
    sizes = [size if d == dimension else each for d, each in enumerate(shape)]
    return rewriter.insert(tensor.ExtractSliceOp.from_static_parameters(value, offsets, sizes)).result


@rewrite_pattern
def compute_slice(op: tensor.ExtractSliceOp, rewriter: PatternRewriter) -> None:
    """Replaces a slice of an elementwise result by the operation on slices, if the rest is unused, or is converted."""
    source, offsets = op.source.owner, list(op.static_offsets.iter_values())
    sizes, steps = list(op.static_sizes.iter_values()), list(op.static_strides.iter_values())
    nest, users = _elementwise(source), [use.operation for use in op.source.uses]
    plain = not any((op.offsets, op.sizes, op.strides)) and len(op.result.type.get_shape()) == len(sizes)
    if nest is None or not isinstance(source, GenericOp) or not plain:
        return
    converts = (moved := Movement.of(op.source)) is not None and moved.extension is not None
    if not converts and not all(isinstance(user, tensor.ExtractSliceOp) for user in users):
        return
    inputs = list[SSAValue]()
    for read in nest.reads:
        first, count, step = ([numbers[loop] for loop in read.loops] for numbers in (offsets, sizes, steps))
        if count == list(shape_of(read.value)):
            inputs.append(read.value)
            continue
        part = tensor.ExtractSliceOp.from_static_parameters(read.value, first, count, step)
        inputs.append(rewriter.insert(part).result)
    rewriter.replace(op, [], [_on_part(source, inputs, sizes, op)])
    if not source.results[0].uses:
        rewriter.erase(source)


@rewrite_pattern
def reduce_parts(op: GenericOp, rewriter: PatternRewriter) -> None:
    """Reduces rows part after part where slices are equal parts of them, as halves of a head are that is normed and
    turned: parts that lie side by side are then one row of a kernel."""
    along = (nest := Nest.of(op)).loops - 1
    in_order = len(op.results) == 1 and [read.loops for read in nest.reads] == [tuple(range(nest.loops))]
    if not in_order or list(nest.summed) != [along] or nest.combination is None or nest.indices:
        return
    value, result = op.inputs[0], op.outputs[0]
    if size := _size_of_parts(value, along):
        for start in range(0, shape_of(value)[along], size):
            part = _slice(value, along, start, size, rewriter)
            result = LinalgBuilder(op).computed([part], result, nest.maps, op.body.clone(), [along])
        rewriter.replace(op, [], [result])


def _size_of_parts(value: SSAValue, dimension: int) -> int:
    """The size of the few equal parts along a dimension that slices take of what elementwise operations make a value
    of, in its shape; 0 if there are none."""
    shape, sizes, values = shape_of(value), set[int](), [value]
    for source in values:
        slices = (use.operation for use in source.uses if isinstance(use.operation, tensor.ExtractSliceOp))
        taken = ((x.static_sizes.get_values(), x.static_strides.get_values()) for x in slices)
        sizes |= {cut[dimension] for cut, steps in taken if steps[dimension] == 1} - {shape[dimension]}
        nest = _elementwise(source.owner)
        alike = (read.value for read in (nest.reads if nest is not None else ()) if shape_of(read.value) == shape)
        values += dict.fromkeys(each for each in alike if each not in values)
    size = sizes.pop() if len(sizes) == 1 else 0
    return size if size > 0 and shape[dimension] in range(2 * size, MAX * size + 1, size) else 0


@rewrite_pattern
def read_known_sizes(op: tensor.ConcatOp, rewriter: PatternRewriter) -> None:
    """Makes a concatenation read a tensor of known sizes, not what only forgets them."""
    for number, value in enumerate(op.operands):
        cast = value.owner
        if isinstance(cast, tensor.CastOp) and min(shape_of(cast.source), default=0) >= 0:
            op.operands[number] = cast.source
            rewriter.has_done_action = True


@rewrite_pattern
def join_concatenations(op: tensor.ConcatOp, rewriter: PatternRewriter) -> None:
    """Makes the parts of a concatenation parts of another one along the same dimension, which alone reads it."""
    for number, value in enumerate(op.inputs):
        inner = value.owner
        if isinstance(inner, tensor.ConcatOp) and inner.dim == op.dim and value.has_one_use():
            parts = [*op.inputs[:number], *inner.inputs, *op.inputs[number + 1 :]]
            rewriter.replace(op, tensor.ConcatOp(parts, op.dim.value.data, op.result.type))
            rewriter.erase(inner)
            return


PARTS = convert_behind_reshape, collapse_behind, compute_on_parts, compute_slice, reduce_parts, join_concatenations


def compute_parts(module: ModuleOp) -> None:
    """Applies the patterns to a module, in place, as often as they apply."""
    apply_patterns((read_known_sizes,), module)
    while apply_patterns(PARTS, module):
        pass
