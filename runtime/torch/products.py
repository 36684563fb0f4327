"""Products of matrices and convolutions, with what ATen's operations add, scale and round."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple, TypeAlias, cast

import torch
from torch.fx import Graph, Node
from xdsl.dialects import arith
from xdsl.dialects import tensor as tensors
from xdsl.dialects.arith import FastMathFlagsAttr
from xdsl.dialects.builtin import IndexType, IntegerAttr, TensorType, i64
from xdsl.dialects.linalg.ops import FillOp
from xdsl.dialects.utils import FastMathFlag
from xdsl.ir import Attribute, BlockArgument, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap

from ...dialect.mlir.affine import product_body
from ...dialect.mlir.contraction import METADATA, ContractOp, MatmulOp
from ...dialect.warp.matmul import FASTMATH
from ...passes.patterns import IndexBuilder
from .builder import (
    FunctionBuilder,
    TensorOperand,
    accumulator,
    contraction,
    is_pointwise,
    plain,
    plus,
    pointwise,
    tensor_type,
)
from .options import aten
from .part import warploom
from .scalars import HALVES, Lowering, UnsupportedError, Value, constant, element_of, shape_of
from .views import FIRST, LAST, has_channels_last, is_row_major, reordered, replace_by, reshape, unsqueezed

G, M, N, K = range(4)
"""The loops of a product with groups."""

OF_ROWS, OF_K = ((M, K), (G, K, N), (M, N)), ((M, K), (K, N), (G, M, N))
"""The loops of A, B and the result, where the rows of A belong to groups, and where those along k do."""


def grouped_mm(
    builder: FunctionBuilder, like: torch.Tensor, a: Value, b: Value, offs: Value | None = None,
    bias: Value | None = None, out_dtype: object = None,
) -> Value:  # fmt: skip
    """The product of each group: of its rows of A with a B of its own, or of its part of k."""
    if offs is None or bias is not None or len(a.shape) != 2:
        raise UnsupportedError("expected a matrix A with offsets, and no bias")
    loops, grouped = (OF_ROWS, M) if len(b.shape) > len(a.shape) else (OF_K, K)
    extents = (offs.shape[0], a.shape[0], b.shape[-1], a.shape[1])
    shape = tuple(extents[loop] for loop in loops[2])
    result = TensorOperand(plain(builder.empty(shape, like.dtype), shape, like.dtype), loops[2])
    operands = [builder.operand(value, own, extents) for value, own in zip((a, b), loops, strict=False)]
    start = builder.insert(constant(0, element_of(like.dtype))).result
    with IndexBuilder(builder).loop(0, builder.index(extents[G]), 1, [builder.index(0), result.value.tensor]) as turn:
        (first, carried), insert = turn.carried, turn.index.insert
        last = insert(tensors.ExtractOp(offs.tensor, [turn.counter], offs.tensor.type.element_type)).result
        stop = insert(arith.IndexCastOp(last, IndexType())).result
        places = {G: (turn.counter, 1), grouped: (first, insert(arith.SubiOp(stop, first)).result)}

        def part(of: SSAValue, along: tuple[int, ...]) -> tensors.ExtractSliceOp:
            kind = cast("TensorType[Attribute]", of.type)
            ends = [places.get(loop, (0, size)) for loop, size in zip(along, kind.get_shape(), strict=True)]
            offsets, sizes = zip(*ends, strict=True)
            own = tensor_type([n for n, loop in zip(sizes, along, strict=True) if loop], kind.element_type)
            return insert(tensors.ExtractSliceOp(of, offsets, sizes, [1] * len(along), own))

        inputs = [part(operand.value.tensor, operand.loops).result for operand in operands]
        taken = part(carried, result.loops)
        out = insert(FillOp([start], [taken.result], [taken.result.type])).results[0]
        inside = [[loop - 1 for loop in operand.loops if loop] for operand in (*operands, result)]
        made = insert(contraction(ContractOp, inputs, out, inside, {})).results[0]
        put = tensors.InsertSliceOp.build(
            operands=[made, carried, taken.offsets, taken.sizes, taken.strides],
            properties={name: taken.properties[name] for name in ("static_offsets", "static_sizes", "static_strides")},
            result_types=[carried.type],
        )
        turn.handed = [stop, insert(put).result]
    return plain(turn.results[1], shape, like.dtype)


def check_precision(operands: Sequence[torch.Tensor], *, drops_bits: bool) -> None:
    """Refuses products of f32 that may not drop bits; UnsupportedError saying how to allow it."""
    if not drops_bits and all(x.dtype == torch.float32 for x in operands):
        raise UnsupportedError(
            "tensor cores multiply f32 as tf32, without 13 bits of each operand; to allow that, "
            "torch.set_float32_matmul_precision('high') or options={'tf32': True}"
        )


def multiply(builder: FunctionBuilder, a: Value, b: Value, *, approximate: bool = False) -> Value:
    """The product of the last two dimensions of each, (..., m, k) and (..., k, n), with sums that are not rounded;
    dimensions before these are broadcast. A vector is a matrix of one row or column that the result lacks."""
    count = max(len(a.shape), len(b.shape), 2) - 2
    around, m, n = BATCH[:count], "m" * (len(a.shape) > 1), "n" * (len(b.shape) > 1)
    first, second = f"{around[count + 2 - len(a.shape) :]}{m}k", f"{around[count + 2 - len(b.shape) :]}k{n}"
    a, b = (builder.dense(x) if None in x.dims[-2:] else x for x in (a, b))
    flags = {FASTMATH: FastMathFlagsAttr([FastMathFlag.APPROX_FUNC])} if approximate else {}
    return contract(builder, a, b, f"{first},{second}->{around}{m}{n}", accumulator(a, b), flags=flags)


def contract(
    builder: FunctionBuilder, a: Value, b: Value, loops: str, dtype: torch.dtype, order: Sequence[int] | None = None,
    flags: Mapping[str, Attribute] = {},
) -> Value:  # fmt: skip
    """Products that are summed along the loops that the result lacks, as `einsum` names them, where a size of 1 is
    broadcast; the result lies in memory in an order, by default its own."""
    first, second, along = re.split(",|->", loops)
    extents = dict(sorted(zip(second + first, b.shape + a.shape, strict=True), key=lambda each: each[1] != 1))
    every = [*dict.fromkeys(along + first)]
    sizes = tuple(extents[loop] for loop in every)
    of_a, of_b = (list(map(every.index, own)) for own in (first, second))
    covered = {*builder.along(a, of_a, sizes).values(), *builder.along(b, of_b, sizes).values()}
    if repeated := {*range(len(every))} - covered:  # which no memory runs along
        of_a = [*sorted(repeated.difference(of_a)), *of_a]
        a = builder.copied(a, tuple(sizes[loop] for loop in of_a))
    operands = builder.operand(a, of_a, sizes), builder.operand(b, of_b, sizes)
    return builder.product(ContractOp, operands, sizes[: len(along)], dtype, flags, order)


def _contract(
    builder: FunctionBuilder, like: torch.Tensor, a: Value, b: Value, loops: str, order: Sequence[int], **_: object
) -> Value:
    return contract(builder, a, b, loops, like.dtype, order or None)


def _product(
    factors: int, builder: FunctionBuilder, like: torch.Tensor, *operands: object, beta: float = 1, alpha: float = 1,
    **_: object,
) -> Value:  # fmt: skip
    """alpha times the product of the last operands plus beta times the one before these, rounded once: of two factors,
    or of the values and the metadata of a sparse matrix and another, to which a number for each row is added. Floats of
    two types stay with torch, which refuses them when it runs."""
    if not like.shape:
        raise UnsupportedError("the product of two vectors is one number, which no kernel here returns")
    values = [x for x in operands if isinstance(x, Value)]
    kinds = {x.dtype for x in values[-DENSE:]}
    if factors == DENSE and len(kinds) > 1 and min(kind.itemsize for kind in kinds) > 1:
        raise UnsupportedError(f"products of {' and '.join(sorted(map(str, kinds)))} are not lowered")
    product = (multiply if factors == DENSE else _sparse_product)(builder, *values[-factors:])
    added = [x if factors == DENSE else unsqueezed(x, 1) for x in values[:-factors]]
    return plus(builder, like.dtype, product, added[0] if added else None, beta, alpha)


def _linear(
    builder: FunctionBuilder, like: torch.Tensor, x: Value, weight: Value, bias: Value | None = None,
    activation: str = "none",
) -> Value:  # fmt: skip
    """activation(x W^T + bias), rounded before the activation and behind it, on rows of x."""
    turned = replace(weight, dims=weight.dims[::-1], shape=weight.shape[::-1])
    rows = reshape(builder, x, (math.prod(x.shape[:-1]), x.shape[-1])) if len(x.shape) > 2 else x
    result = plus(builder, like.dtype, multiply(builder, rows, turned), bias)
    if activation != "none":
        target, kwargs = ACTIVATIONS[activation]
        result = pointwise(builder, result.shape, like.dtype, target, (result,), kwargs)
    return reshape(builder, result, shape_of(like))


def _scaled_matmul(
    builder: FunctionBuilder, like: torch.Tensor, a: Value, b: Value, scale_a: Value, scale_b: Value,
    bias: Value | None = None, scale_result: Value | torch.dtype | None = None, out_dtype: object = None,
    use_fast_accum: bool = False,
) -> Value:  # fmt: skip
    """A B * scale_a * scale_b + bias: scales of f32, one for each matrix, or for each row of A and column of B. With
    `use_fast_accum` the instruction may add up short sums."""
    if isinstance(scale_result, Value):  # in whose place our own operator has the type of the result
        raise UnsupportedError("a scale of the result is not lowered")
    scales = [replace(x, dims=(), shape=()) if x.shape in ((), (1,), (1, 1)) else x for x in (scale_a, scale_b)]
    for scale in scales:
        if scale.dtype != torch.float32 or scale.shape not in ((), (a.shape[0], 1), (1, b.shape[1])):
            raise UnsupportedError("expected scales of f32, one for a matrix or one for each row of A and column of B")
    return plus(builder, like.dtype, multiply(builder, a, b, approximate=use_fast_accum), bias, 1, *scales)


def _sparse_product(builder: FunctionBuilder, values: Value, metadata: Value, b: Value) -> Value:
    """A product whose A is sparse: the metadata is named by its place among the function's arguments."""
    if not isinstance(metadata.tensor, BlockArgument) or not values.plain:
        raise UnsupportedError("expected values and metadata row by row, as they were compressed")
    extents = values.shape[0], b.shape[1]
    operands = TensorOperand(values, (0, 2)), builder.operand(b, (2, 1), (*extents, b.shape[0]))
    number = IntegerAttr(metadata.tensor.index, i64)
    return builder.product(MatmulOp, operands, extents, accumulator(values, b), {METADATA: number})


IMAGES, FILTER, RESULT = range(3)

LOOPS = {
    (True, False): ("nyxgc", "gfhwc", "nijgf"),
    (True, True): ("nyxg", "hwg", "nijg"),
    (False, False): ("ngcyx", "gfchw", "ngfij"),
    (False, True): ("ngyx", "ghw", "ngij"),
}
"""The loops that the dimensions of images, a filter and the result run along, by whether channels are the last
dimension in memory, and whether each has a filter of its own: images n, groups g, channels c and features f of a group,
pixels i and j of the result, y and x of the images, taps h and w."""

Moves: TypeAlias = Sequence[tuple[int, int, int]]
"""Along both dimensions, how many pixels of the images one of the result is, how many a tap, and the first one's."""


@dataclass(frozen=True)
class WindowSums:
    """Products of two of images, a filter and a result, summed over the loops that the third lacks."""

    builder: FunctionBuilder
    dtype: torch.dtype
    groups: int
    alone: bool
    last: bool = True
    back: bool = False
    """Whether the filter's features are the channels of the images, as in a transposed convolution."""

    def summed(
        self, a: tuple[int, Value], b: tuple[int, Value], moves: Moves, of: int, shape: tuple[int, ...]
    ) -> Value:
        """The sums of a shape, of two tensors in which groups and channels are one dimension."""
        along = [self._loops(x) for x in (a[0], b[0], of)]
        operands = [
            reshape(self.builder, value, self._split(value.shape, loops))
            for (_, value), loops in zip((a, b), along, strict=False)
        ]
        out = self.builder.filled(self._split(shape, along[2]), self.dtype, 0)
        order = [*along[2], *(loop for loop in "hwcnij" if loop in along[1] and loop not in along[2])]
        dims = {loop: AffineDimExpr(number) for number, loop in enumerate(order)}
        pixels = zip("yx", "ij", "hw", moves, strict=True)
        places = {y: dims[i] * step + dims[h] * tap + first for y, i, h, (step, tap, first) in pixels}
        maps = [AffineMap(len(dims), 0, tuple({**dims, **places}[loop] for loop in loops)) for loops in along]
        body = product_body([value.tensor.type.element_type for value in (*operands, out)])
        summed = range(len(along[2]), len(order))
        total = self.builder.nest([operand.tensor for operand in operands], out, body, maps, summed)
        return reshape(self.builder, total, shape)

    def _loops(self, tensor: int) -> str:
        loops = LOOPS[self.last, self.alone][tensor]
        swapped = str.maketrans("cf", "fc") if self.back and tensor == FILTER else {}
        return loops.translate(swapped if self.groups > 1 else {**swapped, ord("g"): None})

    def _split(self, shape: tuple[int, ...], loops: str) -> tuple[int, ...]:
        """A shape with groups and channels as dimensions of their own, where there are both."""
        if len(loops) == len(shape):
            return shape
        at = loops.index("g")
        return (*shape[:at], self.groups, shape[at] // self.groups, *shape[at + 1 :])


def _check_images(x: Value, steps: Sequence[int]) -> None:
    if len(steps) != 2 or not all(isinstance(n, int) for n in x.shape):
        raise UnsupportedError("expected images of static sizes with two dimensions of pixels")


def convolution(
    builder: FunctionBuilder, like: torch.Tensor, x: Value, weight: Value, bias: Value | None, steps: Sequence[int],
    padding: Sequence[int], dilations: Sequence[int], transposed: bool, added: Sequence[int], groups: int,
) -> Value:  # fmt: skip
    """A convolution of images with the channels last in memory, or first, with its bias, rounded once."""
    _check_images(x, steps)
    if transposed:
        return _transposed(builder, like, x, weight, bias, steps, padding, dilations, groups)
    last, alone = has_channels_last(like), 1 < groups == x.shape[1] == weight.shape[0]
    order = LAST if last else [*range(len(LAST))]
    images = builder.dense(reordered(x, order))
    if any(padding):
        around = [0, *padding, 0] if last else [0, 0, *padding]
        images = builder.padded(images, around, around)
    sizes = zip(like.shape[2:], weight.shape[2:], dilations, strict=True)
    for at, (pixels, count, dilation) in enumerate(sizes, 1 if last else 2):
        if pixels == 1 and images.shape[at] > (reach := (count - 1) * dilation + 1):
            images = builder.sliced(images, at, 0, reach, 1)
    of_taps = ([2, 3, 0] if last else [0, 2, 3]) if alone else order
    taps = builder.dense(reordered(weight, of_taps))
    shape = tuple(like.shape[d] for d in order)
    moves = [(step, dilation, 0) for step, dilation in zip(steps, dilations, strict=True)]
    window = WindowSums(builder, accumulator(x, weight), groups, alone, last)
    total = window.summed((IMAGES, images), (FILTER, taps), moves, RESULT, shape)
    if bias is not None and not last:
        bias = replace(bias, dims=(*bias.dims, None, None), shape=(*bias.shape, 1, 1))
    made = plus(builder, like.dtype, total, bias)
    return reordered(made, FIRST) if last else made


class Phase(NamedTuple):
    """Every so many pixels along a dimension of a transposed convolution, from one on, and what they read: the taps
    (the first, how many, how far apart), and for each pixel the place of the first tap, and how far the next is back.
    """

    first: int
    pixels: int
    taps: tuple[int, int, int]
    place: int
    back: int

    @staticmethod
    def of(first: int, size: int, taps: int, step: int, padding: int, dilation: int) -> Phase:
        """Pixels `first + i * step` sum over the taps t of which the step divides `first + padding - t * dilation`."""
        own = [t for t in range(taps) if (first + padding - t * dilation) % step == 0]
        tap, by = own[0] if own else 0, own[1] - own[0] if len(own) > 1 else 1
        place, pixels = (first + padding - tap * dilation) // step, len(range(first, size, step))
        return Phase(first, pixels, (tap, len(own), by), place, by * dilation // step)


def _transposed(
    builder: FunctionBuilder, like: torch.Tensor, x: Value, weight: Value, bias: Value | None, steps: Sequence[int],
    padding: Sequence[int], dilations: Sequence[int], groups: int,
) -> Value:  # fmt: skip
    """A transposed convolution, the gradient of the images of another one: a convolution for each phase of its pixels,
    of the taps that meet in these."""
    n, channels, *size = cast("tuple[int, ...]", shape_of(like))
    alone = 1 < groups == x.shape[1] == channels
    images, taps = builder.dense(reordered(x, LAST)), builder.dense(reordered(weight, [2, 3, 0] if alone else LAST))
    window, shape = WindowSums(builder, accumulator(x, weight), groups, alone, back=True), (n, *size, channels)
    result = plain(builder.empty(shape, like.dtype), shape, like.dtype)
    dimensions = [
        [Phase.of(first, count, tap, step, by, dilation) for first in range(step) if first < count]
        for count, tap, step, by, dilation in zip(size, weight.shape[2:], steps, padding, dilations, strict=True)
    ]
    for phases in product(*dimensions):
        part = plus(builder, like.dtype, _phase(window, images, taps, phases, channels), bias)
        if max(steps) == 1:
            return reordered(part, FIRST)
        offsets, sizes = [0, *(phase.first for phase in phases), 0], cast("tuple[int, ...]", part.shape)
        put = tensors.InsertSliceOp.from_static_parameters(part.tensor, result.tensor, offsets, sizes, [1, *steps, 1])
        result = replace(result, tensor=builder.insert(put).result)
    return reordered(result, FIRST)


def _phase(window: WindowSums, images: Value, taps: Value, phases: Sequence[Phase], channels: int) -> Value:
    """The sums of the pixels of a phase, of images and a filter with the channels last."""
    n, h, w, _ = cast("tuple[int, ...]", images.shape)
    shape, builder = (n, *(phase.pixels for phase in phases), channels), window.builder
    if not all(phase.taps[1] for phase in phases):
        return builder.filled(shape, window.dtype, 0)
    for at, phase in enumerate(phases, 0 if window.alone else 1):  # a filter for each channel has no features
        first, many, by = phase.taps
        taps = builder.sliced(taps, at, first, many, by)
    low = [max(0, phase.back * (phase.taps[1] - 1) - phase.place) for phase in phases]
    high = [max(0, phase.place + phase.pixels - size) for phase, size in zip(phases, (h, w), strict=True)]
    if any((*low, *high)):
        images = builder.padded(images, [0, *low, 0], [0, *high, 0])
    moves = [(1, -phase.back, phase.place + by) for phase, by in zip(phases, low, strict=True)]
    return window.summed((IMAGES, images), (FILTER, taps), moves, RESULT, shape)


def filter_gradient(
    builder: FunctionBuilder, like: torch.Tensor, slope: Value, x: Value, shape: Sequence[int], steps: Sequence[int],
    padding: Sequence[int], dilations: Sequence[int], groups: int,
) -> Value:  # fmt: skip
    """The gradient of the filter of a convolution of images, of a shape, for that of its result."""
    _check_images(x, steps)
    images, slopes = (builder.dense(reordered(value, LAST)) for value in (x, slope))
    features, channels, *taps = shape
    if any(padding):
        images = builder.padded(images, [0, *padding, 0], [0, *padding, 0])
    alone = 1 < groups == x.shape[1] == features
    moves = [(step, dilation, 0) for step, dilation in zip(steps, dilations, strict=True)]
    window = WindowSums(builder, accumulator(x, slope), groups, alone)
    own = (*taps, features) if alone else (features, *taps, channels)
    total = window.summed((IMAGES, images), (RESULT, slopes), moves, FILTER, own)
    total = builder.converted(total, like.dtype)
    return replace(total, dims=(2, None, 0, 1), shape=(features, 1, *taps)) if alone else reordered(total, FIRST)


BATCH = "abcdefgh"
"""Loops around a product."""

DENSE, SPARSE = 2, 3
"""How many tensors a product is of."""

ACTIVATIONS: Mapping[str, Any] = {
    "none": None,
    "relu": (aten.relu.default, {}),
    "gelu": (aten.gelu.default, {}),
    "gelu_tanh": (aten.gelu.default, {"approximate": "tanh"}),
    "silu": (aten.silu.default, {}),
    "sigmoid": (aten.sigmoid.default, {}),
    "tanh": (aten.tanh.default, {}),
}
"""What can follow `torch.ops.warploom.linear` in its kernel, by name: an operation of ATen and its options."""

_PLAIN = (
    *(aten.mm.default, aten.bmm.default, aten.mm.dtype, aten.bmm.dtype, aten.mv.default, aten.dot.default),
    *(aten.matmul.default, aten.addmm.default, aten.addmm.dtype, aten.addmv.default, aten.baddbmm.default),
    aten._int_mm.default,
)

SEMI_STRUCTURED = {aten._sparse_semi_structured_mm.default: 0, aten._sparse_semi_structured_addmm.default: 1}
"""torch's products of a sparse matrix, and which argument its stored elements are; the metadata is the next one."""

PRODUCTS: Mapping[object, Lowering] = {
    **dict.fromkeys((*_PLAIN, warploom.matmul.default), partial(_product, DENSE)),
    **dict.fromkeys((*SEMI_STRUCTURED, warploom.sparse_matmul.default), partial(_product, SPARSE)),
    **dict.fromkeys((aten.linear.default, warploom.linear.default), _linear),
    **dict.fromkeys((aten._scaled_mm.default, warploom.scaled_matmul.default), _scaled_matmul),
    aten._grouped_mm.default: grouped_mm,
    aten.convolution.default: convolution,
    warploom.filter_gradient.default: filter_gradient,
    warploom.contract.default: _contract,
}
"""Operations that multiply matrices."""


SWAPPED = [0, 2, 1]
"""The order of (batch, channels, places) with the channels last, and back."""


def sequences_as_images(graph: Graph) -> None:
    """Makes convolutions of sequences, in place, those of an image whose rows they are, with the channels last, which
    kernels here are for. What is computed of the result alone, such as gelu, is computed there. cuDNN moves the
    channels of sequences last and back, and has slow kernels for groups."""
    for node in graph.find_nodes(op="call_function", target=aten.convolution.default):
        if _is_of_sequences(node):
            *_, last = followers = [node, *_followers(node)]
            back = is_row_major(last.meta["val"])
            if back or is_row_major(last.meta["val"], SWAPPED):
                replace_by(graph, last, partial(_of_images, followers, back), *node.all_input_nodes)
    graph.eliminate_dead_code()


def _is_of_sequences(node: Node) -> bool:
    """Whether a convolution is of sequences of static sizes, of 16-bit floats whose channels fill 16 bytes or have a
    filter each."""
    weight: Any = node.args[1]
    sizes, (_, channels, *taps), like = shape_of(node.meta["val"]), shape_of(weight.meta["val"]), node.meta["val"]
    alone = channels == 1 and node.args[8] == sizes[1]
    return len(taps) == 1 and not node.args[6] and like.dtype in HALVES and (alone or channels % 8 == 0)


def _followers(node: Node) -> Iterator[Node]:
    """The pointwise operations behind a node that read nothing else, one behind the other."""
    while len(node.users) == 1:
        (node,) = node.users
        if not (is_pointwise(node.target) and len(node.all_input_nodes) == 1 and node.meta["val"].dtype in HALVES):
            return
        yield node


def _of_images(nodes: Sequence[Node], back: bool, x: torch.Tensor, weight: torch.Tensor, *bias: torch.Tensor) -> Any:
    """What a convolution of sequences and what follows it compute, by images; `back` moves channels first."""
    _, _, _, steps, padding, dilations, *_, groups = cast("Any", nodes[0].args)
    image = aten.clone(x.permute(SWAPPED), memory_format=torch.contiguous_format)[None].permute(FIRST)
    moves = [1, *steps], [0, *padding], [1, *dilations]
    taps = aten.clone(weight.unsqueeze(2), memory_format=torch.channels_last)
    image = aten.convolution(image, taps, *(bias or [None]), *moves, False, [0, 0], groups)
    image = image.contiguous(memory_format=torch.channels_last)
    for node in nodes[1:]:
        image = cast("Any", node.target)(*(image if isinstance(one, Node) else one for one in node.args), **node.kwargs)
    rows = image.permute(LAST).squeeze(0).permute(SWAPPED)
    return aten.clone(rows, memory_format=torch.contiguous_format) if back else rows
