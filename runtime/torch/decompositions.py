"""Operations of torch as others that have a form here: torch's decompositions, and our own where it has none."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from threading import RLock
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from .options import aten, decompositions, prims, pytree

_torchs: Any = import_module("torch._decomp.decompositions")
COMPOSITE = """
native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward native_batch_norm
_native_batch_norm_legit _native_batch_norm_legit_no_training native_batch_norm_backward _softmax _log_softmax
_softmax_backward_data _log_softmax_backward_data _fused_rms_norm _fused_rms_norm_backward unbind mean var_mean
var stack arange triu tril logsumexp t transpose detach _unsafe_view new_full select_scatter
select_backward zeros zeros_like new_zeros ones ones_like new_ones floor_divide _safe_softmax embedding
index_select index_copy index_fill _unsafe_index pixel_shuffle all std std_mean linalg_vector_norm norm mse_loss
mse_loss_backward smooth_l1_loss smooth_l1_loss_backward nll_loss_forward nll_loss_backward slice_backward
huber_loss huber_loss_backward glu glu_backward hardswish hardswish_backward hardsigmoid hardsigmoid_backward
log_sigmoid_forward log_sigmoid_backward elu_backward hardtanh_backward leaky_relu_backward mish_backward
softplus_backward _prelu_kernel _prelu_kernel_backward binary_cross_entropy binary_cross_entropy_backward
binary_cross_entropy_with_logits soft_margin_loss soft_margin_loss_backward nll_loss2d_forward nll_loss2d_backward
leaky_relu _weight_norm_interface fill masked_fill addr reflection_pad1d reflection_pad2d reflection_pad3d
replication_pad1d replication_pad2d replication_pad3d new_empty pixel_unshuffle nansum roll _unsafe_masked_index
"""
"""Operations that are taken apart before, beside those that torch takes apart for export."""


def _by_torch(operator: Any, *args: Any) -> Any:
    """What torch's own decomposition of an operation computes."""
    return decompositions([operator])[operator](*args)


def _wide(value: torch.Tensor) -> torch.Tensor:
    """The value in f32, or in a wider type that it has."""
    return value.to(torch.promote_types(value.dtype, torch.float32))


MANY_IMAGES, READ_PIXELS, MAX_ROW = 8, 1024, 163840
"""Images for which a group norm spreads its weights over pixels, which rows of a group in one kernel read with them; of
fewer images, what divides the pixels of a channel whose weights are read where they are, and the longest row (H200, two
images of 640 channels, 64x64, with SiLU: 16.3 us and 11.6; one of 512, 128x128, rows of 262144: 23.0 and 25.3)."""


def _group_norm(value: torch.Tensor, weight: Any, bias: Any, *sizes: Any) -> tuple[torch.Tensor, ...]:
    """What `aten.native_group_norm` computes, of rows of a group each; `sizes` are n, c, h * w, groups and epsilon."""
    n, c, pixels, groups, epsilon = sizes
    wide = _wide(value)
    each, static = c // groups, all(isinstance(size, int) for size in (n, c, pixels))
    rows = wide.reshape(n, groups, each * pixels)
    spread = static and (n >= MANY_IMAGES or (pixels % READ_PIXELS == 0 and each * pixels <= MAX_ROW))
    variance, mean = torch.var_mean(rows, -1, correction=0)
    scale = torch.rsqrt(variance + epsilon)
    shape, of_weights = ((each * pixels,),) * 2 if spread else ((each, pixels), (each, 1))
    of_rows = n, groups, *[1] * len(shape)
    normal = ((rows if spread else wide.reshape(n, groups, *shape)) - mean.view(of_rows)) * scale.view(of_rows)
    for combine, x in ((torch.mul, weight), (torch.add, bias)):
        if x is not None:
            own = x.view(1, groups, each, 1).expand(1, groups, each, pixels if spread else 1)
            normal = combine(normal, own.reshape(1, groups, *of_weights))
    return normal.to(value.dtype).view(value.shape), mean.to(value.dtype), scale.to(value.dtype)


def _batch_norm(value: torch.Tensor, *others: Any) -> tuple[torch.Tensor, ...]:
    """What `aten._native_batch_norm_legit_functional` computes, with the mean and the deviation that are saved in f32:
    torch's decomposition rounds them on the CPU, and few pixels of a channel have a gradient that cancels but for that.
    """
    result, *saved = _by_torch(aten._native_batch_norm_legit_functional.default, _wide(value), *others)
    return result.to(value.dtype), *saved


def _rms_norm(*args: Any) -> torch.Tensor:
    """What `aten.rms_norm` computes: torch 2.11 exports its fused form for a GPU, and takes that apart no more."""
    return _by_torch(aten._fused_rms_norm.default, *(*args, None, None)[:4])[0]


def _norm_backward(operator: Any, statistics: int, *args: Any) -> Any:
    """The gradients of a norm, of rows in two dimensions, so that sums over rows are along one. `statistics` operands
    behind the sizes have an element for each row."""
    _, value, sizes, *_ = args
    if len(sizes) != 1 or value.dim() < 3 or not all(isinstance(size, int) and size for size in value.shape):
        return _by_torch(operator, *args)
    of_rows = {0, 1, *range(3, 3 + statistics)}
    flat = (x.reshape(-1, *x.shape[value.dim() - 1 :]) if i in of_rows else x for i, x in enumerate(args))
    first, *rest = _by_torch(operator, *flat)
    return None if first is None else first.view(value.shape), *rest


def _group_norm_backward(*args: Any) -> tuple[Any, ...]:
    """What `aten.native_group_norm_backward` computes, of rows of the pixels of a channel; the sums are of f32."""
    slopes, value, mean, scale, weight, n, c, pixels, groups, wanted = args
    wide = (_wide(x.reshape(n, c, pixels)) for x in (slopes, value))
    others = (None if x is None else _wide(x) for x in (mean, scale, weight))
    first, *sums = _by_torch(aten.native_group_norm_backward.default, *wide, *others, n, c, pixels, groups, wanted)
    first = None if first is None else first.view(n, groups, c // groups, pixels).to(value.dtype).view(value.shape)
    return first, *(None if x is None else x.to(value.dtype) for x in sums)


def _variance(value: torch.Tensor, dims: Sequence[int] | None, correction: float = 1, **_: object) -> torch.Tensor:
    """What `prims.var` computes: the mean of squared distances from the mean; the divisor is less by `correction`."""
    axes = list(range(value.dim()) if dims is None else dims[: value.dim()])
    less = int(correction) if correction == int(correction) else correction
    count = max(0, math.prod(value.shape[d] for d in axes) - less)
    # Not `value - mean`, which norms subtract too: what two kernels read is stored.
    # Not `/ count`, which torch writes as operations on tensors where sizes are dynamic.
    # Dimensions with a gap between them, as images and pixels of a channel, lie apart in memory. Squares about the mean
    # of those behind the gap are made where they are read for that mean, and squares of the means are added.
    first = max((d for d in axes if d - 1 not in axes), default=0) if value.is_contiguous() else 0
    inner, outer = [d for d in axes if d >= first], [d for d in axes if d < first]
    means = value.mean(inner, keepdim=True)
    squares = (means - value).square()
    if outer:
        between = (means - means.mean(outer, keepdim=True)).square() * math.prod(value.shape[d] for d in inner)
        squares = squares.sum(inner, keepdim=True) + between
    return prims.div(squares.sum(axes), count)


def _at_places(
    made: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], value: torch.Tensor, dim: int, places: torch.Tensor
) -> Any:
    """What is made of a tensor and of which elements are at the places along a dimension, if there is one for each
    index of the others."""
    axis = dim % max(1, value.dim())
    if not value.is_floating_point() or places.shape != (*value.shape[:axis], 1, *value.shape[axis + 1 :]):
        return NotImplemented
    along = torch.arange(value.shape[axis], dtype=torch.int32, device=value.device)
    return made(value, along.view(-1, *[1] * (value.dim() - axis - 1)) == places.to(torch.int32))


def _gathered(value: torch.Tensor, dim: int, places: torch.Tensor, **_: object) -> Any:
    """One element of each row as a sum whose other terms are 0; of a number, as of a row of one."""
    if not value.dim():
        return value.view(1).gather(0, places.view(1)).view(())
    return _at_places(lambda x, there: torch.where(there, x, 0).sum(dim, keepdim=True), value, dim, places)


def _scatter(value: torch.Tensor, dim: int, places: torch.Tensor, number: float) -> Any:
    """A number in the place of one element of each row."""
    return _at_places(lambda x, there: torch.where(there, number, x).contiguous(), value, dim, places)


def _constant_pad(value: torch.Tensor, pads: Sequence[int], number: float = 0) -> torch.Tensor:
    """What `aten.constant_pad_nd` computes; negative numbers are of elements that are left out."""
    for axis, before, after in zip(reversed(range(value.dim())), pads[::2], pads[1::2], strict=False):
        first, last = max(0, -before), max(0, -after)
        kept = value.narrow(axis, first, value.shape[axis] - first - last)
        shape, more = list(value.shape), (max(0, before), max(0, after))
        around = [value.new_full([*shape[:axis], n, *shape[axis + 1 :]], number) for n in more]
        value = torch.cat([x for x in (around[0], kept, around[1]) if x is kept or x.shape[axis]], axis)
    return value


def _borders_backward(turned: bool, slope: torch.Tensor, value: torch.Tensor, pads: Sequence[int]) -> torch.Tensor:
    """The gradient of borders: what is between them, and each border turned over onto what it reflects, or else added
    up onto the edge that it repeats."""
    total = _wide(slope)
    for axis, first, last in zip(reversed(range(value.dim())), pads[::2], pads[1::2], strict=False):
        n, place = value.shape[axis], [0, 0] * (value.dim() - axis - 1)
        parts = [_constant_pad(total, [*place, -first, -last])]
        for start, count, before in ((0, first, int(turned)), (n + first, last, n - 1 - last * turned)):
            if count > 0:
                border = total.narrow(axis, start, count)
                border = _flip(border, [axis]) if turned else border.sum(axis, keepdim=True)
                parts.append(_constant_pad(border, [*place, before, n - before - border.shape[axis]]))
        total = sum(parts[1:], parts[0])
    return total.to(slope.dtype)


def _lying_as(value: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    """What takes the place of a tensor, in the order of its memory, on which views of it rely."""
    strides = [n if isinstance(n, int) else n.node.hint or math.inf for n in cast("Any", value.stride())]
    order = sorted(range(value.dim()), key=lambda d: -strides[d])
    return made.permute(order).contiguous().permute([order.index(d) for d in range(value.dim())])


def _slice_scatter(value: torch.Tensor, source: torch.Tensor, *args: Any) -> Any:
    if "//" in str(source.shape):  # torch's form, which asks whether there are elements, contradicts what it knows
        return NotImplemented
    try:
        return _lying_as(value, _by_torch(aten.slice_scatter.default, value, source, *args))
    except GuardOnDataDependentSymNode:  # an end that depends on data
        return NotImplemented


def _flip(value: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    made = value
    for dim in dims if value.dim() else ():
        made = made.index_select(dim, torch.arange(value.shape[dim] - 1, -1, -1, device=value.device))
    return _lying_as(value, made) if dims and value.dim() else value.clone()


def _copy(value: torch.Tensor, other: torch.Tensor, *_: object) -> torch.Tensor:
    return _lying_as(value, other.to(value.device).to(value.dtype).expand(value.shape).clone())  # it may be a result


MAX_PLACED = 1 << 16
"""Comparisons of places that are put with those that there are, at most: what is left to torch's kernel otherwise."""


def _index_put(value: torch.Tensor, indices: Sequence[Any], source: torch.Tensor, accumulate: bool = False) -> Any:
    """Elements put at places along neighbouring dimensions: of each place, the last of the elements that are put there,
    which comparisons find, or what was there."""
    along = [d for d, each in enumerate(indices) if each is not None]
    first, last = along[0], along[-1]
    sizes: Any = value.shape
    places: Sequence[torch.Tensor] = cast("Any", torch).broadcast_tensors(*(indices[d].to(value.device) for d in along))
    shape: Any = places[0].shape
    size, count = math.prod(sizes[first : last + 1]), math.prod(shape)
    static = all(isinstance(n, int) for n in (*sizes, *shape)) and 0 < size * count <= MAX_PLACED
    if accumulate or not static or len(along) != last - first + 1 or any(x.dtype.itemsize < 4 for x in places):
        return NotImplemented
    place = torch.zeros_like(places[0], dtype=torch.int32)
    for d, index in zip(along, places, strict=True):
        place = place * sizes[d] + torch.where(index < 0, index + sizes[d], index).to(torch.int32)
    there = torch.arange(size, dtype=torch.int32, device=value.device)[:, None] == place.reshape(1, count)
    numbers = torch.where(there, torch.arange(count, dtype=torch.float32, device=value.device), -1.0).amax(1)
    put = source.to(value.device).expand((*sizes[:first], *shape, *sizes[last + 1 :]))
    put = put.reshape(*sizes[:first], count, *sizes[last + 1 :])
    moved = put.index_select(first, numbers.clamp(min=0).to(torch.int32))
    replaced = (numbers >= 0).view(size, *[1] * (len(sizes) - last - 1))
    return _lying_as(value, torch.where(replaced, moved, value.reshape(moved.shape)).view(sizes))


def _convolution_backward(slope: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, *options: Any) -> Any:
    """Gradients of images, filter, bias as an operation each: a convolution or transposed one, one of ours, a sum."""
    _, steps, padding, dilations, transposed, more, groups, wanted = options
    shape = cast("Any", x.shape)
    if len(shape) != 4 or not all(isinstance(n, int) for n in shape) or max(more) >= min(steps):
        return NotImplemented
    padding = [*padding] * (2 // len(padding))  # one number where a layer says "valid"
    sizes = zip(shape[2:], slope.shape[2:], weight.shape[2:], steps, padding, dilations, strict=True)
    added = [n - (m - 1) * step + 2 * around - (taps - 1) * by - 1 for n, m, taps, step, around, by in sizes]
    own: Any = torch.ops.warploom
    moves, (small, large) = (steps, padding, dilations), (x, slope) if transposed else (slope, x)
    of_images = (slope, weight, None, *moves, not transposed, [0, 0] if transposed else added, groups)
    return (
        aten.convolution(*of_images) if wanted[0] else None,
        own.filter_gradient(small, large, weight.shape, *moves, groups) if wanted[1] else None,
        slope.sum((0, 2, 3)) if wanted[2] else None,
    )


MAX_CHOSEN, LONGEST_CHOICE = 16, 1024
"""Elements of each row that are chosen one after another; and the rows' length, which a warp holds: what is left to
torch's kernels otherwise, as each choice reads the row."""


def _topk(value: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The largest elements of each row, and their places: k times the first place of the largest one that follows. NaN
    is above infinity, as which the largest finite f32 counts too. Choices other than of a few largest ones of short
    rows stay as they are."""
    length: Any = value.shape[dim]  # a symbol, where it is dynamic
    row = dim % max(1, value.dim()) == value.dim() - 1
    short = isinstance(length, int) and length <= LONGEST_CHOICE
    fits = largest and short and 0 < k <= MAX_CHOSEN and value.dtype.itemsize <= 4 and value.is_floating_point()
    if not (row and fits):
        return NotImplemented
    wide, places = value.float(), torch.arange(length, device=value.device, dtype=torch.float32)
    finite = wide.clamp(max=torch.finfo(torch.float32).max)
    order, chosen = torch.where(wide == wide, finite, math.inf), list[tuple[torch.Tensor, torch.Tensor]]()
    follows = torch.ones_like(order)
    for _ in range(k):
        maximum = torch.where(follows != 0, order, -math.inf).amax(-1, keepdim=True)
        candidates = torch.where(follows != 0, torch.where(order == maximum, places, length), length)
        place = candidates.amin(-1, keepdim=True)
        own = torch.where(places == place, wide, -math.inf).amax(-1, keepdim=True)
        chosen.append((own.to(value.dtype), place.to(torch.int32).to(torch.int64)))
        follows = torch.where(order == maximum, (places > place).float(), (order < maximum).float())
    return tuple(torch.cat(each, -1) for each in zip(*chosen, strict=True))


MAX_COUNTED = 1 << 24
"""Places that f32 tells apart."""


def _first(extreme: Callable[..., torch.Tensor], value: torch.Tensor, dim: int, keepdim: bool = False) -> Any:
    """The `extreme` of each row, and the first of its places; NaN is before all numbers, as in `aten.max.dim`."""
    length: Any = value.shape[dim] if value.dim() else None
    if not (isinstance(length, int) and 0 < length <= MAX_COUNTED and value.dtype != torch.float64):
        return NotImplemented
    chosen, behind = extreme(value, dim, keepdim=True), [1] * (value.dim() - dim % value.dim() - 1)
    along = torch.arange(length, device=value.device, dtype=torch.float32).view(-1, *behind)
    place = torch.where((value == chosen) | (value != value), along, length).amin(dim, keepdim=True)
    results = chosen, place.to(torch.int32).to(torch.int64)
    return results if keepdim else tuple(x.squeeze(dim) for x in results)


def _first_place(
    extreme: Callable[..., torch.Tensor], value: torch.Tensor, dim: int | None = None, keepdim: bool = False
) -> Any:
    """What `aten.argmax` computes: the first place of the `extreme` of each row, or of all elements."""
    found = _first(extreme, value.reshape(-1) if dim is None else value, dim or 0, keepdim)
    if found is NotImplemented:
        return found
    return found[1].view([1] * value.dim()) if dim is None and keepdim else found[1]


def _encoder_layer(x: torch.Tensor, width: int, heads: int, *others: Any) -> Any:
    """What `aten._transformer_encoder_layer_fwd` computes, without a mask and of dense tensors."""
    qkv, qkv_bias, out, out_bias, gelu, first, epsilon, *weights, up, up_bias, down, down_bias = others[:15]
    if x.is_nested or others[15:16] not in ((), (None,)):
        return NotImplemented
    functional: Any = torch.nn.functional

    def attended(y: torch.Tensor) -> torch.Tensor:
        q, k, v = functional.linear(y, qkv, qkv_bias).unflatten(-1, (3, heads, -1)).transpose(1, -2).unbind(2)
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)
        return functional.linear(mixed, out, out_bias)

    def forward(y: torch.Tensor) -> torch.Tensor:
        inner = functional.linear(y, up, up_bias)
        return functional.linear(functional.gelu(inner) if gelu else torch.relu(inner), down, down_bias)

    for branch, weight, bias in ((attended, *weights[:2]), (forward, *weights[2:])):
        norm = partial(functional.layer_norm, normalized_shape=(width,), weight=weight, bias=bias, eps=epsilon)
        x = x + branch(norm(x)) if first else norm(x + branch(x))
    return x


def _broadcast(value: torch.Tensor, shape: Sequence[int], dimensions: Sequence[int]) -> torch.Tensor:
    """A view of torch's references as views of ATen, without which torch traces no region again (`invoke_subgraph`)."""
    for at in range(len(shape)):
        value = value if at in dimensions else value.unsqueeze(at)
    return value.expand(shape)


OWN: Mapping[Any, Callable[..., Any]] = {
    prims.broadcast_in_dim.default: _broadcast,
    aten.rms_norm.default: _rms_norm,
    prims.var.default: _variance,
    aten.gather.default: _gathered,
    aten.scatter.value: _scatter,
    aten.slice_scatter.default: _slice_scatter,
    aten.constant_pad_nd.default: _constant_pad,
    aten.flip.default: _flip,
    aten.repeat.default: lambda *args: _by_torch(aten.repeat.default, *args).contiguous(),
    aten.max.default: torch.amax,
    aten.min.default: torch.amin,
    aten.max.dim: partial(_first, torch.amax),
    aten.min.dim: partial(_first, torch.amin),
    aten.argmax.default: partial(_first_place, torch.amax),
    aten.argmin.default: partial(_first_place, torch.amin),
    aten.index_put.default: _index_put,
    aten.convolution_backward.default: _convolution_backward,
    aten.copy.default: _copy,
    aten.native_group_norm.default: _group_norm,
    aten.native_group_norm_backward.default: _group_norm_backward,
    aten.native_layer_norm_backward.default: partial(_norm_backward, aten.native_layer_norm_backward.default, 2),
    aten._fused_rms_norm_backward.default: partial(_norm_backward, aten._fused_rms_norm_backward.default, 1),
    aten._weight_norm_interface_backward.default: aten._weight_norm_differentiable_backward.default,
    **{
        getattr(aten, f"{kind}_pad{rank}d_backward").default: partial(_borders_backward, kind == "reflection")
        for kind in ("reflection", "replication")
        for rank in (1, 2, 3)
    },
    aten.topk.default: _topk,
    aten._native_batch_norm_legit_functional.default: _batch_norm,
    aten._transformer_encoder_layer_fwd.default: _encoder_layer,
}
"""Decompositions in the place of torch's, or where it has none."""


def _of_integers(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: NotImplemented if x.is_floating_point() else function(x)


def _sign(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, 1, torch.where(x < 0, -1, 0)).to(x.dtype)


def _remainder(value: Any, by: Any) -> torch.Tensor:
    """The remainder with the sign of the divisor."""
    rest = torch.fmod(value, by)
    if not rest.dtype.is_signed:  # a negative number wraps around
        return rest
    return torch.where((rest != 0) & ((rest < 0) != (by < 0)), rest + by, rest)


PRIMITIVES: Mapping[Any, Callable[..., Any]] = {
    prims.sign.default: _sign,
    prims.signbit.default: _of_integers(lambda x: x < 0),
    prims.neg.default: _of_integers(lambda x: 0 - x),
    prims.abs.default: _of_integers(lambda x: torch.maximum(x, 0 - x) if x.dtype.is_signed else x),
    prims.bitwise_not.default: _of_integers(lambda x: x ^ (True if x.dtype == torch.bool else -1)),
    prims.remainder.default: _remainder,
}
"""What `torch.ops.prims` has, and `math` in kernels has not, in other operations of it."""


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """A product of a recurrent net, in f32, of a state that is rounded to the type of the weights."""
    return _wide(torch.nn.functional.linear(x.to(weight.dtype), weight, bias))


def _layers(helper: Callable[..., Any], *arguments: Any) -> Any:
    """Layers of a recurrent net, each rounded, with dropout between them, which torch's form leaves out."""
    *others, dropout, train, both, first, layer = arguments
    dtype, calls = pytree.tree_leaves(others[1])[0].dtype, iter(range((others[4] - 1) * (1 + both)))

    def rounded(*args: Any, **kwargs: Any) -> Any:
        result, final = pytree.tree_map(partial(torch.Tensor.to, dtype=dtype), layer(*args, **kwargs))
        return torch.nn.functional.dropout(result, dropout, train and next(calls, None) is not None), final

    return helper(*others, 0.0, train, both, first, rounded)


_TRACING = RLock()  # one thread at a time replaces what torch's forms of recurrent nets call


@contextmanager
def recurrent(helper: Callable[..., Any] = _torchs._rnn_helper) -> Generator[None]:
    """While a graph is traced, gates and states of recurrent nets are f32 between steps, as in cuDNN's kernels. A state
    that each step rounds is 1.2 times as far from float64, with gates that are rounded too 1.5 times."""
    functions = SimpleNamespace(**{**vars(torch.nn.functional), "linear": _linear})
    with _TRACING, patch.multiple(_torchs, F=functions, _rnn_helper=partial(_layers, helper)):
        yield


def simpler() -> dict[Any, Any]:
    """Decompositions of operations that torch's default decompositions for export keep."""
    table = decompositions([getattr(aten, name) for name in COMPOSITE.split() if hasattr(aten, name)])
    # Of these, torch's forms of other overloads keep dimensions by a view that export does not know.
    of_overloads = [k for k in table if str(k).startswith(("aten.var", "aten.std")) and "correction" not in str(k)]
    return {**{k: v for k, v in table.items() if k not in of_overloads}, **OWN}
