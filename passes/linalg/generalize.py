"""What is written in several ways made one, before anything else looks at it.

Calls of functions of the module are replaced by what these do; `linalg.broadcast`, `linalg.reduce` and `memref.copy`
become `linalg.generic` and `linalg.copy`, `linalg.softmax` four of the former; a constant tensor of one value becomes
a number or `linalg.fill`, `tensor.pad` that and a `tensor.insert_slice`, `tensor.concat` several of these,
`bufferization.alloc_tensor` a `tensor.empty` or a copy, `linalg.pack` and `linalg.unpack` a `linalg.transpose` of
another shape.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from xdsl.builder import Builder
from xdsl.dialects import arith, func, math, memref, tensor
from xdsl.dialects.bufferization import AllocTensorOp
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    IndexType,
    IntegerType,
    MemRefType,
    ModuleOp,
    StringAttr,
    TensorType,
    UnitAttr,
    f32,
    i32,
    i64,
)
from xdsl.dialects.linalg.ops import BroadcastOp, CopyOp, TransposeOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from ...dialect.mlir.affine import arithmetic, converted, generic, map_along
from ...dialect.mlir.generic import SoftmaxOp, TensorOrMemory
from ...dialect.mlir.linalg_ops import PackOp, ReduceOp, UnPackOp
from ...dialect.mlir.upstream import IndexCastUIOp
from ...dialect.warp.elements import element_type, shape_of
from .. import pipeline
from ..diagnostics import fail
from ..patterns import apply_patterns, mixed, rewrite_pattern
from .constants import COVERED, contents, is_splat, spread_number
from .functions import EXPANDED, ExpandFunction
from .operand import numbered
from .tensors import LinalgBuilder, collapse, expand

TENSORS = (
    "bufferization.alloc_tensor", "tensor.pad", "tensor.concat", "tensor.splat", "linalg.pack", "linalg.unpack",
)  # fmt: skip
"""Operations on tensors that become others here."""

HOSTED = (
    "affine.apply", "affine.min", "affine.max", "affine.delinearize_index", "affine.linearize_index", "scf.forall",
    "tensor.generate", "memref.transpose",
)  # fmt: skip
"""What front ends write that is expanded here."""

GENERALIZED = (
    *(kind.name for kind in (func.CallOp, BroadcastOp, ReduceOp, SoftmaxOp, IndexCastUIOp)),
    *(kind.name for kind in (memref.CopyOp, memref.GetGlobalOp)),
    *EXPANDED,
    *HOSTED,
    *TENSORS,
    "tensor.arith",
)
"""What is rewritten, or checked, beside constants, by names that `pipeline.contents` gives a module: nothing waits for
the dialects of these, 7 ms."""


def generalize(module: ModuleOp, kept: Collection[str] = ()) -> None:
    """Rewrites a module in place, but for functions that are `kept` by name. Raises a located diagnostic for a call
    that cannot be replaced."""
    if any(isinstance(op, func.CallOp) for op in module.walk()):
        _inline(module)
    patterns: list[RewritePattern] = [broadcast, reduce, copy_memory, check_global, spread_constant]
    names = pipeline.contents(module)
    if IndexCastUIOp.name in names:
        patterns.append(cast_unsigned)
    if SoftmaxOp.name in names:
        patterns.append(decompose_softmax)
    if not names.isdisjoint(HOSTED):
        from .front_ends import expand_affine, generate, run_in_turn, see_transposed

        patterns += [expand_affine, generate, run_in_turn, see_transposed]
    if "tensor.arith" in names:
        from .front_ends import apply_to_elements

        patterns.append(apply_to_elements)
    if "tensor.concat" in names:
        from .front_ends import compute_parts

        compute_parts(module)
    if not names.isdisjoint(TENSORS):
        patterns += PATTERNS
    apply_patterns(patterns, module)
    if not names.isdisjoint(EXPANDED):
        apply_patterns((ExpandFunction(kept=kept),), module)


def _inline(module: ModuleOp) -> None:
    """Replaces every call by the body of its function, and drops private functions that were there to be called. Those
    of other modules, which have no body, stay for what no pass lowers."""
    functions = {op.sym_name.data: op for op in module.ops if isinstance(op, func.FuncOp)}
    for name in functions:
        _inline_calls(name, functions, ())
    for function in functions.values():
        if function.sym_visibility == StringAttr("private") and function.body.blocks:
            Rewriter.erase_op(function)


def _inline_calls(name: str, functions: dict[str, func.FuncOp], callers: tuple[str, ...]) -> None:
    for call in [op for op in functions[name].walk() if isinstance(op, func.CallOp)]:
        callee = call.callee.string_value()
        if callee in (*callers, name):
            fail(call, f"@{callee} calls itself, by way of @{name}")
        if callee not in functions or len(functions[callee].body.blocks) != 1:
            fail(call, f"expected @{callee} to be a function of the module with one block")
        _inline_calls(callee, functions, (*callers, name))
        _replace_call(call, functions[callee].body.block)


def _replace_call(call: func.CallOp, body: Block) -> None:
    mapped: dict[SSAValue, SSAValue] = dict(zip(body.args, call.arguments, strict=True))
    builder = Builder(InsertPoint.before(call))
    for op in body.ops:
        if isinstance(op, func.ReturnOp):
            Rewriter.replace_op(call, [], [mapped[value] for value in op.operands])
            return
        copy = op.clone(mapped)
        copy.location = op.location
        builder.insert(copy)


@rewrite_pattern
def broadcast(op: BroadcastOp, rewriter: PatternRewriter) -> None:
    """Replaces a broadcast by a copy along loops that its input lacks."""
    rank, added = len(shape_of(op.init)), op.dimensions.get_values()
    maps = [map_along(rank, (d for d in range(rank) if d not in added)), AffineMap.identity(rank)]
    made = LinalgBuilder(op).computed([op.input], op.init, maps, lambda element, _: element)
    rewriter.replace(op, [], [made] if op.results else [])


@rewrite_pattern
def cast_unsigned(op: IndexCastUIOp, rewriter: PatternRewriter) -> None:
    """Replaces a cast of an integer without a sign; of 32 bits and more an index has its bits."""
    kind, value = op.input.type, op.input
    if isinstance(kind, IntegerType) and kind.bitwidth < i32.bitwidth:
        value = rewriter.insert(arith.ExtUIOp(value, i32)).result
    rewriter.replace(op, arith.IndexCastOp(value, op.result.type))


@rewrite_pattern
def reduce(op: ReduceOp, rewriter: PatternRewriter) -> None:
    """Replaces a `linalg.reduce` by a generic over all dimensions."""
    maps, reduced = [map_.data for map_ in op.get_indexing_maps()], op.dimensions.get_values()
    body = op.detach_region(op.body)
    rewriter.replace(op, generic(op, op.inputs, op.outputs, body, maps, reduced, op.result_types))


@rewrite_pattern
def copy_memory(op: memref.CopyOp, rewriter: PatternRewriter) -> None:
    """Replaces a copy of memory by one of `linalg`."""
    if element_type(op.source) == IndexType():
        fail(op, f"{op.name} of indices is not lowered; of floats and integers it is")
    rewriter.replace(op, CopyOp([op.source], [op.destination], []), [])


@rewrite_pattern
def check_global(op: memref.GetGlobalOp, rewriter: PatternRewriter) -> None:
    """Raises a located diagnostic for memory of the module that is no constant."""
    if isinstance(reason := contents(op), str):
        fail(op, f"{op.name}: {reason}")


@rewrite_pattern
def spread_constant(op: arith.ConstantOp, rewriter: PatternRewriter) -> None:
    """Replaces a constant tensor of one value by a number, or by tensors that are filled with it."""
    value = op.value
    if isinstance(value, DenseIntOrFPElementsAttr) and isinstance(value.type, TensorType) and is_splat(value):
        spread_number(op, value)
        rewriter.has_done_action = True


@rewrite_pattern
def fill_allocated(op: AllocTensorOp, rewriter: PatternRewriter) -> None:
    """Replaces `bufferization.alloc_tensor` by an empty tensor, or by a copy of the tensor that it names."""
    kind = op.tensor.type
    if not isa(kind, TensorType[Attribute]):
        fail(op, f"expected a tensor of known rank, got {kind}")
    make = LinalgBuilder(op)
    made = make.empty(kind, list(op.dynamic_sizes) if op.copy is None else make.unknown_sizes(op.copy))
    if op.copy is not None:
        made = make.insert(CopyOp([op.copy], [made], [kind])).results[0]
    rewriter.replace(op, [], [made])


@rewrite_pattern
def fill_padded(op: tensor.PadOp, rewriter: PatternRewriter) -> None:
    """Replaces a padded tensor by a larger one, filled with a value, into which the source is put. Raises a located
    diagnostic for a value that depends on where it is."""
    value, source, make = _padding(op, rewriter), op.source.type, LinalgBuilder(op)
    if not isa(source, TensorType[Attribute]):
        fail(op, f"expected a tensor of known rank, got {source}")
    low, high = mixed(op.static_low, op.low), mixed(op.static_high, op.high)
    sizes: list[SSAValue] = []
    for dimension, size in enumerate(op.result.type.get_shape()):
        if size < 0:
            ends = make.add(make.dim(op.source, dimension), low[dimension])
            sizes.append(make.value(make.add(ends, high[dimension])))
    rewriter.replace(op, [], [_padded(make, op, value, op.source, sizes, low)])


def _padded(
    make: LinalgBuilder,
    op: tensor.PadOp | PackOp,
    value: SSAValue,
    source: SSAValue,
    sizes: Sequence[SSAValue],
    low: Sequence[int | SSAValue],
    shape: Sequence[int] | None = None,
) -> SSAValue:
    """A tensor filled with `value`, into which the source is inserted at the offsets `low`. It has the type of the
    result, or the given shape."""
    kind = op.result.type if shape is None else TensorType(op.result.type.element_type, shape)
    return _put(make, source, make.filled(kind, value, sizes), low).result


def _put(
    make: LinalgBuilder, source: SSAValue, into: SSAValue, offsets: Sequence[int | SSAValue]
) -> tensor.InsertSliceOp:
    """Inserts all of a tensor into another."""
    inner = shape_of(source)
    put = tensor.InsertSliceOp.build(
        operands=[source, into, [a for a in offsets if not isinstance(a, int)], make.unknown_sizes(source), []],
        properties={
            "static_offsets": _static([a if isinstance(a, int) else DYNAMIC_INDEX for a in offsets]),
            "static_sizes": _static([size if size >= 0 else DYNAMIC_INDEX for size in inner]),
            "static_strides": _static([1] * len(inner)),
        },
        result_types=[into.type],
    )
    return make.insert(put)


def _static(numbers: Sequence[int]) -> DenseArrayBase[IntegerType]:
    return DenseArrayBase.from_list(i64, numbers)


def _padding(op: tensor.PadOp, rewriter: PatternRewriter) -> SSAValue:
    """The value around the source: one from outside of the region, or a constant of it."""
    last = op.region.block.last_op
    if isinstance(last, tensor.YieldOp) and len(last.operands) == 1:
        value = last.operands[0]
        inside = value.owner
        if inside is op.region.block or (isinstance(inside, Operation) and inside.parent is op.region.block):
            if isinstance(inside, arith.ConstantOp):
                return rewriter.insert(inside.clone()).result
        else:
            return value
    fail(op, "expected tensor.pad with one value, the same everywhere; another is not lowered")


class TiledShape:
    """The shape of a packed tensor with the tile sizes of each dimension next to its number of tiles. `groups` lists
    the dimensions that belong to each dimension of the tensor, `whole` is the tensor's shape padded to whole tiles, and
    `order` maps the packed dimensions to this shape. Raises a located diagnostic for dynamic sizes."""

    def __init__(self, op: PackOp | UnPackOp) -> None:
        if min(*op.plain.get_shape(), *op.tiled.get_shape(), *op.tiles.values()) < 0:
            fail(op, f"{op.name} of dynamic sizes is not lowered; known sizes are")
        self.extents = [-(-n // op.tiles.get(d, 1)) * op.tiles.get(d, 1) for d, n in enumerate(op.plain.get_shape())]
        parts = [[size // op.tiles[d], op.tiles[d]] if d in op.tiles else [size] for d, size in enumerate(self.extents)]
        self.shape = [size for part in parts for size in part]
        self.groups = numbered(parts)
        self.order = [*(self.groups[d][0] for d in op.order), *(self.groups[d][1] for d in op.tiles)]


@rewrite_pattern
def pack(op: PackOp, rewriter: PatternRewriter) -> None:
    """Replaces a tensor in tiles by padding, another shape, and a transposition."""
    tiling, value = TiledShape(op), op.source
    if tiling.extents != list(op.plain.get_shape()) and op.padding_value is not None:
        low = [0] * len(tiling.extents)
        value = _padded(LinalgBuilder(op), op, op.padding_value, value, [], low, tiling.extents)
    cut = rewriter.insert(expand(value, tiling.groups, tiling.shape))
    rewriter.replace(op, TransposeOp(cut.result, op.dest, _static(tiling.order)))


@rewrite_pattern
def unpack(op: UnPackOp, rewriter: PatternRewriter) -> None:
    """Replaces `linalg.unpack` by a transposition, a reshape and a slice."""
    tiling, make, shape = TiledShape(op), LinalgBuilder(op), op.plain.get_shape()
    back = _static([tiling.order.index(d) for d in range(len(tiling.shape))])
    empty = make.empty(TensorType(op.plain.element_type, tiling.shape))
    turned = make.insert(TransposeOp(op.source, empty, back))
    padded: SSAValue = make.insert(collapse(turned.results[0], tiling.groups, tiling.extents)).result
    if tiling.extents != list(shape):
        part = tensor.ExtractSliceOp.from_static_parameters(padded, [0] * len(shape), list(shape))
        padded = rewriter.insert(part).result
    rewriter.replace(op, [], [padded])


@rewrite_pattern
def concatenate(op: tensor.ConcatOp, rewriter: PatternRewriter) -> None:
    """Replaces a concatenation by insertions into one tensor."""
    kind, along, make = op.result.type, op.dim.value.data, LinalgBuilder(op)
    starts: list[int | SSAValue] = [0]
    for source in op.inputs:
        starts.append(make.add(starts[-1], make.dim(source, along)))
    extents = [starts[-1] if d == along else make.dim(op.inputs[0], d) for d in range(len(kind.get_shape()))]
    unknown = [make.value(extent) for extent, size in zip(extents, kind.get_shape(), strict=True) if size < 0]
    value = make.empty(kind, unknown)
    for source, start in zip(op.inputs, starts, strict=False):
        put = _put(make, source, value, [start if d == along else 0 for d in range(len(extents))])
        put.attributes[COVERED] = UnitAttr()
        value = put.result
    rewriter.replace(op, [], [value])


@rewrite_pattern
def fill_splat(op: tensor.SplatOp, rewriter: PatternRewriter) -> None:
    """Replaces a tensor of one number by a filled one."""
    rewriter.replace(op, [], [LinalgBuilder(op).filled(op.result.type, op.input, op.dynamicSizes)])


PATTERNS = (fill_allocated, fill_padded, fill_splat, pack, unpack, concatenate)


# `linalg.softmax` as four `linalg.generic`: the largest of each row, the exponentials, their sum, the quotients.
#
# What the operation computes between its input and its result has no type in the IR. It is f32 for elements of 16 bits,
# so that a result is rounded once.


@rewrite_pattern
def decompose_softmax(op: SoftmaxOp, rewriter: PatternRewriter) -> None:
    """Replaces one softmax, as MLIR's `softmax` decomposes by its own interface; of 16 bits in f32."""
    kind, along = op.input.type, op.dimension.value.data
    if not isa(kind, TensorOrMemory) or not isinstance(element := kind.element_type, AnyFloat):
        fail(op, f"expected a tensor or memory of floating-point numbers, got {kind}")
    wide: AnyFloat = f32 if element.bitwidth < f32.bitwidth else element
    make, every = LinalgBuilder(op), AffineMap.identity(rank := kind.get_num_dims())
    row = map_along(rank, kept := [d for d in range(rank) if d != along])

    def like(dimensions: Iterable[int]) -> tuple[Attribute, list[SSAValue]]:
        """A type with these dimensions of the input, and the sizes that it does not tell."""
        sizes = [make.dim(op.input, d) for d in dimensions]
        of_kind = TensorType if isinstance(kind, TensorType) else MemRefType
        shape = [size if isinstance(size, int) else DYNAMIC_INDEX for size in sizes]
        return of_kind(wide, shape), [size for size in sizes if not isinstance(size, int)]

    def reduced(start: float, value: SSAValue, combine: Callable[[SSAValue, SSAValue], SSAValue]) -> SSAValue:
        of_rows, sizes = like(kept)
        return make.computed([value], make.filled(of_rows, start, sizes), [every, row], combine, [along])

    largest = reduced(float("-inf"), op.input, lambda x, m: arith.MaximumfOp(converted(x, wide), m).result)
    powers = make.computed(
        (op.input, largest),
        make.empty(*like(range(rank))),
        (every, row, every),
        lambda x, m, _: math.ExpOp(arith.SubfOp(converted(x, wide), m)).result,
    )
    sums = reduced(0.0, powers, partial(arithmetic, "add"))
    quotients = make.computed(
        (powers, sums), op.output, (every, row, every), lambda x, s, _: converted(arith.DivfOp(x, s).result, element)
    )
    rewriter.replace(op, [], [quotients] if op.results else [])
