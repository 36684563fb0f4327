"""The operators `torch.ops.warploom`: kernels for the tensors of a call, derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding
from torch.fx import Graph, Node

from ..base.errors import ArgumentError, CompileError
from .builder import name_of
from .importer import kernel_for, region_of, write
from .options import BackendOptions, aten, compressed, metadata_shape
from .part import LIBRARY, Region, library, warploom
from .products import ACTIVATIONS, BATCH, check_precision
from .scalars import UnsupportedError

SMALL = 64
"""Up to so many rows a kernel is made for their number; one of more rows serves any number of them."""


class TensorLayout(NamedTuple):
    """What a kernel depends on of a tensor; with `dynamic`, the first size is not part of it but an example."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dynamic: bool = False

    @staticmethod
    def of(tensor: Tensor, rows: bool) -> TensorLayout:
        """The layout of a tensor, of any number of rows where these are those of the result, and many."""
        shape = tuple(tensor.shape)
        if not rows or shape[0] <= SMALL or not tensor.is_contiguous():
            return TensorLayout(tensor.dtype, shape, tensor.stride())
        example = (SMALL + 1, *shape[1:])
        return TensorLayout(tensor.dtype, example, torch.empty(example, device="meta").stride(), dynamic=True)


def _computed(target: Any, *args: Any, rows: int | None = None) -> Tensor:
    """What an operator computes of tensors on the CPU or a GPU, in one kernel; CompileError if it is not lowered for
    these. `rows` is the number of an argument whose first size is the number of the result's rows."""
    tensors = [x for x in args if isinstance(x, Tensor)]
    key = tuple(TensorLayout.of(x, i == rows) if isinstance(x, Tensor) else x for i, x in enumerate(args))
    options = BackendOptions()
    try:
        check_precision(tensors, drops_bits=options.drops_bits)
        return _region(target, key, tuple(x.device for x in tensors), options.drops_bits)(*tensors)[0]
    except (UnsupportedError, CompileError) as error:
        raise CompileError(f"{target}: {str(error).removeprefix(f'{target}: ')}") from error


@cache
def _region(target: Any, key: Sequence[Any], devices: Sequence[torch.device], tf32: bool) -> Region:
    fake: Any = import_module("torch._subclasses.fake_tensor")
    symbolic: Any = import_module("torch.fx.experimental.symbolic_shapes")
    graph, mode = Graph(), fake.FakeTensorMode(shape_env=symbolic.ShapeEnv())

    def placed(layout: TensorLayout) -> Node:
        kinds = [symbolic.DimDynamic.STATIC] * len(layout.shape)
        kinds[:1] = [symbolic.DimDynamic.DYNAMIC] if layout.dynamic else kinds[:1]
        node = graph.placeholder("input")
        example = torch.empty_strided(layout.shape, layout.strides, dtype=layout.dtype, device="meta")
        node.meta["val"] = mode.from_tensor(example, symbolic_context=symbolic.StatelessSymbolicContext(kinds))
        return node

    args = [placed(x) if isinstance(x, TensorLayout) else x for x in key]
    node = graph.call_function(target, tuple(args))
    with mode:
        node.meta["val"] = target(*(x.meta["val"] if isinstance(x, Node) else x for x in args))
    name = f"{name_of(target)}_{str(node.meta['val'].dtype).removeprefix('torch.')}"
    written = write(name, [node], [x for x in args if isinstance(x, Node)], [node])
    return region_of(written, kernel_for(written, devices[0], BackendOptions(tf32=tf32)))


FROM_INPUT = ("gelu", "gelu_tanh", "silu")
"""Activations whose derivative needs what they are of; that of others needs their result."""

DERIVATIVES = {
    "relu": partial(aten.threshold_backward, threshold=0),
    "sigmoid": aten.sigmoid_backward,
    "tanh": aten.tanh_backward,
    "gelu": aten.gelu_backward,
    "gelu_tanh": partial(aten.gelu_backward, approximate="tanh"),
    "silu": aten.silu_backward,
}
"""Derivatives of activations, of the gradient and one tensor more."""


def _matmul(a: Tensor, b: Tensor) -> Tensor:
    """The product of the last two dimensions, (..., m, k) and (..., k, n); those before them are broadcast."""
    return _computed(warploom.matmul.default, a, b, rows=0 if a.dim() == b.dim() == 2 else None)


def _like_matmul(a: Tensor, b: Tensor) -> Tensor:
    if a.dim() < 2 or b.dim() < 2:
        raise ArgumentError(f"expected matrices, got tensors of {a.dim()} and {b.dim()} dimensions")
    return torch.empty_like(torch.matmul(a, b))


def _matmul_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
    a, b, _ = ctx.saved_tensors
    of_a, of_b = ctx.needs_input_grad
    return (
        warploom.matmul(grad, b.mT).sum_to_size(a.shape) if of_a else None,
        warploom.matmul(a.mT, grad).sum_to_size(b.shape) if of_b else None,
    )


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none") -> Tensor:
    """activation(x W^T + bias) of (..., k), (n, k) and (n). The derivative computes x W^T + bias again where the
    activation's needs it: for gelu and silu."""
    rows = x.reshape(-1, x.shape[-1])
    result = _computed(warploom.linear.default, rows, weight, bias, activation, rows=0)
    return result.view(*x.shape[:-1], weight.shape[0])


def _like_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none") -> Tensor:
    if activation not in ACTIVATIONS:
        raise ArgumentError(f"expected an activation of {', '.join(ACTIVATIONS)}, got {activation!r}")
    return torch.empty_like(torch.nn.functional.linear(x, weight, bias))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.activation = next((x for x in inputs if isinstance(x, str)), "none")
    tensors = [x for x in inputs if not isinstance(x, str)]
    ctx.save_for_backward(*tensors, None if ctx.activation in ("none", *FROM_INPUT) else output)


def _linear_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, bias, output = ctx.saved_tensors
    if ctx.activation in DERIVATIVES:
        of = warploom.linear(x, weight, bias) if ctx.activation in FROM_INPUT else output
        grad = DERIVATIVES[ctx.activation](grad, of)
    rows, inner = grad.reshape(-1, grad.shape[-1]), x.reshape(-1, x.shape[-1])
    needed: tuple[bool, ...] = ctx.needs_input_grad  # of the arguments given: torch leaves out defaults at the end
    of_x, of_weight, of_bias, _ = (*needed, False, False)[:4]
    first = warploom.matmul(rows, weight).view(x.shape) if of_x else None
    second = warploom.matmul(rows.mT, inner) if of_weight else None
    return (first, second, rows.sum(0) if of_bias else None, None)[: len(needed)]


def _like_scaled(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None = None,
    out_dtype: torch.dtype = torch.bfloat16,
) -> Tensor:  # fmt: skip
    return a.new_empty((a.shape[0], b.shape[1]), dtype=out_dtype)


def _like_sparse(values: Tensor, metadata: Tensor, b: Tensor) -> Tensor:
    return b.new_empty((values.shape[0], b.shape[1]))


def _like_compressed(dense: Tensor) -> tuple[Tensor, Tensor]:
    rows, columns = dense.shape
    words = dense.new_empty(metadata_shape(rows, columns, dense.dtype), dtype=torch.int32)
    return dense.new_empty((rows, columns // 2)), words


OPERATORS: Mapping[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "matmul": (_matmul, _like_matmul),
    "linear": (_linear, _like_linear),
    "scaled_matmul": (partial(_computed, warploom.scaled_matmul.default), _like_scaled),
    "sparse_matmul": (partial(_computed, warploom.sparse_matmul.default), _like_sparse),
    "compress": (compressed, _like_compressed),
}
"""What each operator does, and what its result is like."""


def _autocast(operator: Any, device: str, key: str, *args: Any, **kwargs: Any) -> Any:
    """Calls an operator with its operands on a device converted to the type of the autocast that it is called in."""
    core: Any = cast(Any, torch)._C
    modes: Any = import_module("torch.amp.autocast_mode")
    args, kwargs = modes._cast((args, kwargs), device, torch.get_autocast_dtype(device))
    with core._ExcludeDispatchKeyGuard(core.DispatchKeySet(getattr(core.DispatchKey, key))):
        return operator(*args, **kwargs)


for device, key in (("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA")):
    LIBRARY.impl("matmul", partial(_autocast, warploom.matmul, device, key), key)
    LIBRARY.impl("linear", partial(_autocast, warploom.linear, device, key), key)
for name, (function, like) in OPERATORS.items():
    library.register_kernel(f"warploom::{name}", ("cpu", "cuda"), function)
    library.register_fake(f"warploom::{name}", like)
library.register_autograd("warploom::matmul", _matmul_backward, setup_context=_keep)
library.register_autograd("warploom::linear", _linear_backward, setup_context=_keep)

torch_operators = warploom
"""`torch.ops.warploom`, with its meaning."""


Sharding: TypeAlias = tuple[Sequence[Any], Sequence[Any]]
"""Placements of the results, and of the arguments, None for those that are no tensors."""


def _by_loops(result: str, *operands: str | None, sums: bool = True) -> list[Sharding]:
    """An operator whose tensors run along loops, of which each dimension is named by a letter: whole, or by one loop. A
    loop that the result lacks leaves sums to be added, if `sums`; a dimension called `.` is whole. None is an argument
    that is no tensor."""

    def placed(tensor: str | None, loop: str, otherwise: Any) -> Any:
        return None if tensor is None else Shard(tensor.index(loop)) if loop in tensor else otherwise

    shardings: list[Sharding] = [([Replicate()], [placed(x, " ", Replicate()) for x in operands])]
    for loop in dict.fromkeys("".join(x or "" for x in operands).replace(".", "")):
        other = Replicate() if loop in result else Partial()
        if sums or loop in result:
            shardings.append(([placed(result, loop, other)], [placed(x, loop, other) for x in operands]))
    return shardings


def _shard_matmul(a: Any, b: Any) -> list[Sharding]:
    """By what is around the products, by rows of A, by columns of B, or along k."""
    count, sizes = max(a.ndim, b.ndim) - 2, (x.shape[:-2][::-1] for x in (a, b))
    apart = {count - 1 - d for d, (m, n) in enumerate(zip(*sizes, strict=False)) if m != n}
    around = "".join("." if d in apart else BATCH[d] for d in range(count))
    first, second = (around[len(around) - x.ndim + 2 :] for x in (a, b))
    return _by_loops(f"{around}mn", f"{first}mk", f"{second}kn")


def _shard_linear(x: Any, weight: Any, bias: Any = None, activation: str = "none") -> list[Sharding]:
    """By any dimension of x but the last, by rows of the weight (columns of the result), or along the last of x."""
    rows, added = BATCH[: x.ndim - 1], None if bias is None else "n"
    return _by_loops(f"{rows}n", f"{rows}k", "nk", added, None, sums=activation == "none")


def _scaled(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None, out_dtype: Any = None) -> list[Sharding]:
    """By rows of A with their scales, or by columns of B with theirs."""
    rows = "m." if scale_a.ndim == 2 and scale_a.shape[0] == a.shape[0] != 1 else ""
    columns = ".n" if scale_b.ndim == 2 and scale_b.shape[1] == b.shape[1] != 1 else ""
    return _by_loops("mn", "m.", ".n", rows, columns, None if bias is None else "n", None)


RULES: Sequence[tuple[Any, Callable[..., list[Sharding]]]] = (
    (warploom.matmul.default, _shard_matmul),
    (warploom.linear.default, _shard_linear),
    (warploom.scaled_matmul.default, _scaled),
    (warploom.sparse_matmul.default, lambda *_: _by_loops(".n", "..", "..", ".n")),  # by columns of B
)


def register_torch_sharding() -> None:
    """Register the sharding rules with `torch.distributed.tensor`, so that the operators accept a `DTensor`."""
    for operator, rule in RULES:
        register_sharding(operator)(rule)
