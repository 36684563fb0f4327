"""Graphs of ATen operations as functions of `linalg` on tensors; `torch_to_linalg`."""

from __future__ import annotations

import inspect
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType, MethodType
from typing import Any, cast

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import map_arg
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from ..base.errors import ArgumentError, CompileError
from ..base.explanation import place_of
from .attention import Results, is_attention
from .attention import lower as lower_attention
from .builder import PLACES, FunctionBuilder, is_pointwise, pointwise
from .convolutions import gradients as convolution_gradients
from .options import aten, decompositions, leaves, prims
from .products import PRODUCTS
from .scalars import RULES, Body, ElementValue, Lowering, UnsupportedError, Value, element_of, shape_of
from .views import SPLITS, VIEWS, part_of_split, unsqueezed


def _constant(number: float | None = None) -> Lowering:
    """A tensor of one number: by default that of the last argument."""

    def handler(builder: FunctionBuilder, like: torch.Tensor, *args: object, **_: object) -> Value:
        value = args[-1] if number is None else number
        if not isinstance(value, int | float):
            raise UnsupportedError("a tensor filled with a number that is not known is not lowered")
        return builder.filled(shape_of(like), like.dtype, value)

    return handler


def _counted(builder: FunctionBuilder, like: torch.Tensor, start: Any, _: Any, step: Any = 1, **__: object) -> Value:
    """Integers that follow each other in steps."""
    if not (isinstance(start, int) and isinstance(step, int)):
        raise UnsupportedError("only known integers are counted from, and in steps of known integers")

    def body(inside: Body, _: Sequence[ElementValue]) -> ElementValue:
        return RULES["add"](inside, [RULES["mul"](inside, [inside.index(0), step]), start])

    return builder.converted(builder.generic([], shape_of(like), torch.int32, body), like.dtype)


def _axes(dims: Sequence[int] | int | None, rank: int) -> list[int]:
    asked = [dims] if isinstance(dims, int) else dims
    return sorted(d % rank for d in asked) if asked and rank else list(range(rank))


def _with_reduced_axes(value: Value, axes: Sequence[int], keepdim: bool) -> Value:
    """A reduced value, with dimensions of size 1 in place of the reduced ones if `keepdim`."""
    for axis in axes if keepdim else ():
        value = unsqueezed(value, axis)
    return value


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The type that sums of a type are kept in until they are rounded once."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _reduced(
    builder: FunctionBuilder, rule: str, start: float, value: Value, dims: Sequence[int] | int | None, keepdim: bool
) -> Value:
    """A value reduced along some dimensions, or all."""
    axes = _axes(dims, len(value.shape))
    if not axes:
        return value
    reduced = builder.reduce(value, axes, start, lambda body, elements: RULES[rule](body, list(elements)))
    return _with_reduced_axes(reduced, axes, keepdim)


def _reduction(rule: str, start: float) -> Lowering:
    """A sum, a maximum, a minimum."""

    def handler(
        builder: FunctionBuilder, like: torch.Tensor, value: Value, dims: Sequence[int] | int | None = None,
        keepdim: bool = False, **_: object,
    ) -> Value:  # fmt: skip
        computed = builder.converted(value, _wide(like.dtype) if rule == "add" else like.dtype)
        return builder.converted(_reduced(builder, rule, start, computed, dims, keepdim), like.dtype)

    return handler


def _averaged(builder: FunctionBuilder, value: Value, dims: Any, keepdim: bool, correction: float = 0) -> Value:
    """The sum along some dimensions over the number of elements, less `correction`."""
    sizes = [value.shape[axis] for axis in _axes(dims, len(value.shape))]
    if not all(isinstance(size, int) for size in sizes):
        raise UnsupportedError("a mean along a dimension of unknown size is not lowered")
    count = math.prod(cast("list[int]", sizes)) - correction
    total, factor = _reduced(builder, "add", 0.0, value, dims, keepdim), 1 / count if count > 0 else math.inf
    return builder.generic([total], total.shape, total.dtype, lambda body, x: RULES["mul"](body, [x[0], factor]))


def _mean(
    builder: FunctionBuilder, like: torch.Tensor, value: Value, dims: Any = None, keepdim: bool = False, **_: object
) -> Value:
    mean = _averaged(builder, builder.converted(value, _wide(like.dtype)), dims, keepdim)
    return builder.converted(mean, like.dtype)


def _variance(
    builder: FunctionBuilder, like: torch.Tensor, value: Value, dims: Sequence[int] | None, correction: float = 1,
    **_: object,
) -> Value:  # fmt: skip
    """The mean of squared distances from the mean; the divisor is less by `correction`."""
    wide = builder.converted(value, _wide(value.dtype))
    mean = _averaged(builder, wide, dims, keepdim=True)

    def squared(body: Body, elements: Sequence[ElementValue]) -> ElementValue:
        distance = RULES["sub"](body, list(elements))
        return RULES["mul"](body, [distance, distance])

    squares = builder.generic([wide, mean], value.shape, wide.dtype, squared)
    return builder.converted(_averaged(builder, squares, dims, keepdim=False, correction=correction), like.dtype)


def _at_places(builder: FunctionBuilder, value: Value, dim: int, places: Value, other: float, *, chosen: bool) -> Value:
    """Elements where a number takes the place of others: of those at the places along a dimension, one for each index
    of the other dimensions, or if these are `chosen`, of all but those."""
    axis = dim % len(value.shape)
    if places.shape != tuple(1 if d == axis else size for d, size in enumerate(value.shape)):
        raise UnsupportedError(f"expected one place along dimension {dim} of {value.shape}, got {places.shape}")

    def body(inside: Body, elements: Sequence[ElementValue]) -> ElementValue:
        is_there = RULES["eq"](inside, [inside.index(axis), elements[1]])
        choices = [elements[0], other] if chosen else [inside.number(other, elements[0].type), elements[0]]
        return RULES["where"](inside, [is_there, *choices])

    return builder.generic([value, builder.converted(places, torch.int32)], value.shape, value.dtype, body)


def _gather(builder: FunctionBuilder, like: torch.Tensor, value: Value, dim: int, places: Value, **_: object) -> Value:
    """One element of each row: a sum whose other terms are 0."""
    terms = _at_places(builder, value, dim, places, 0.0, chosen=True)
    return _reduction("add", 0.0)(builder, like, terms, dim, True)


def _scatter(builder: FunctionBuilder, like: torch.Tensor, value: Value, dim: int, places: Value, number: Any) -> Value:
    """A number in the place of one element of each row."""
    if not isinstance(number, int | float):
        raise UnsupportedError("only a number is put in the place of elements")
    return _at_places(builder, value, dim, places, number, chosen=False)


CONSTANTS: Mapping[object, Lowering] = {
    **dict.fromkeys((aten.full.default, aten.full_like.default, aten.scalar_tensor.default), _constant()),
    **dict.fromkeys((aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default), _constant(0)),
    **dict.fromkeys((aten.ones.default, aten.ones_like.default, aten.new_ones.default), _constant(1)),
    aten.arange.start_step: _counted,
}
"""Tensors of one number, or of their places."""

REDUCTIONS: Mapping[object, Lowering] = {
    aten.sum.dim_IntList: _reduction("add", 0.0),
    aten.sum.default: _reduction("add", 0.0),
    prims.sum.default: _reduction("add", 0.0),
    aten.amax.default: _reduction("maximum", -math.inf),
    aten.amin.default: _reduction("minimum", math.inf),
    aten.any.dim: _reduction("bitwise_or", 0),
    aten.any.default: _reduction("bitwise_or", 0),
    aten.mean.dim: _mean,
    aten.mean.default: _mean,
    prims.var.default: _variance,
    aten.gather.default: _gather,
}
"""Operations that take elements along some dimensions together."""

REPLACED: Mapping[object, Lowering] = {aten.scatter.value: _scatter}
"""Operations that replace some elements."""


HANDLERS: Mapping[object, Lowering] = {**VIEWS, **PRODUCTS, **REDUCTIONS, **CONSTANTS, **REPLACED}


@dataclass
class Importer:
    """Nodes of a graph as operations of a function. `values` are what they compute, `attentions` what writes each
    result of these."""

    builder: FunctionBuilder = field(default_factory=FunctionBuilder)
    values: dict[Node, Value] = field(default_factory=dict[Node, Value])
    attentions: dict[Node, Results] = field(default_factory=dict[Node, Results])

    def argument(self, node: Node, name: str) -> None:
        """Makes the result of a node an argument of the function."""
        example = node.meta["val"]
        self.values[node] = self.builder.argument(name, shape_of(example), example.dtype)

    def run(self, node: Node) -> None:
        """Appends the lowering of a node.

        Raises:
            UnsupportedError: naming the operation, if it is not lowered.
        """
        if node.op != "call_function":
            raise UnsupportedError(f"{node.op} {node.target} is not lowered")
        if node.target is aten.convolution_backward.default:
            self.attentions[node] = self._convolution_gradients(node)
            return
        if is_attention(node):
            self.attentions[node] = lower_attention(self.builder, node, self.values)
            if isinstance(node.meta["val"], torch.Tensor):
                self.values[node] = self.attentions[node][0]()
            return
        if not isinstance(node.meta.get("val"), torch.Tensor):  # a size, which is read from the results that it is of
            return
        if node.target is operator.getitem:
            self.values[node] = self._part(*node.args)
            return
        args, kwargs = map_arg((node.args, node.kwargs), lambda x: cast("Any", self.values).get(x, x.meta.get("val")))
        try:
            self._lower(node, args, kwargs)
        except UnsupportedError as error:
            raise UnsupportedError(f"{node.target}: {error}") from error

    def _convolution_gradients(self, node: Node) -> Results:
        args = map_arg(node.args, lambda x: cast("Any", self.values)[x])
        like, _, bias = node.meta["val"]
        own = convolution_gradients(self.builder, like, *cast("Any", args))
        return [*own, lambda: _reduction("add", 0.0)(self.builder, bias, cast("Any", args)[0], [0, 2, 3])]

    def _part(self, source: Any, index: Any) -> Value:
        """One result of an operation with several results."""
        if source in self.attentions:
            return cast("Any", self.attentions[source])[index]()
        if source.target not in SPLITS:
            raise UnsupportedError(f"{source.target}: there is no form of it in linalg here")
        value, _, *dim = source.args
        return part_of_split(self.builder, self.values[value], source.meta["val"], index, *dim, **source.kwargs)

    def _lower(self, node: Node, args: Any, kwargs: dict[str, Any]) -> None:
        like = node.meta["val"]
        element_of(like.dtype)
        if (handler := HANDLERS.get(node.target)) is not None:
            options = {k: v for k, v in kwargs.items() if k not in PLACES}
            self.values[node] = handler(self.builder, like, *args, **options)
        elif is_pointwise(node.target):
            self.values[node] = pointwise(self.builder, shape_of(like), like.dtype, node.target, args, kwargs)
        else:
            raise UnsupportedError("there is no form of it in linalg here")

    def module(self, name: str, nodes: Iterable[Node]) -> ModuleOp:
        """A module with a function that returns the results of `nodes`: each tensor once, and no argument."""
        results: list[SSAValue] = []
        for node in nodes:
            value = self.values[node]
            copied = not value.plain or value.tensor in (*self.builder.block.args, *results)
            results.append((self.builder.copied(value) if copied else value).tensor)
        return self.builder.module(name, results)


COMPOSITE = (
    *("native_layer_norm", "native_layer_norm_backward", "native_group_norm", "native_group_norm_backward"),
    *("_native_batch_norm_legit", "_native_batch_norm_legit_no_training", "native_batch_norm_backward"),
    *("_native_batch_norm_legit_functional", "native_batch_norm"),
    *("_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"),
    *("_fused_rms_norm", "_fused_rms_norm_backward"),
    *("unbind", "var_mean", "var", "stack", "triu", "tril", "nll_loss_forward", "nll_loss_backward", "logsumexp"),
)
"""Operations that are taken apart before, beside those that torch takes apart for export."""


def _group_norm(value: torch.Tensor, weight: Any, bias: Any, *sizes: Any) -> tuple[torch.Tensor, ...]:
    """What `aten.native_group_norm` computes, of rows of a group each; `sizes` are n, c, h * w, groups and epsilon."""
    n, c, _, groups, epsilon = sizes
    wide = value.float() if value.dtype.itemsize < torch.float32.itemsize else value
    variance, mean = torch.var_mean(wide.reshape(n, groups, -1), -1, correction=0)
    scale = torch.rsqrt(variance + epsilon)
    normal = (wide.reshape(n, groups, c // groups, -1) - mean[..., None, None]) * scale[..., None, None]
    normal = normal if weight is None else normal * weight.view(1, groups, -1, 1)
    normal = normal if bias is None else normal + bias.view(1, groups, -1, 1)
    return normal.to(value.dtype).view(value.shape), mean.to(value.dtype), scale.to(value.dtype)


def _batch_norm(value: torch.Tensor, *others: Any) -> tuple[torch.Tensor, ...]:
    """What `aten._native_batch_norm_legit_functional` computes, with the mean and the deviation that are saved in f32:
    torch's decomposition rounds them on the CPU, and few pixels of a channel have a gradient that cancels but for that.
    """
    wide = value.float() if value.dtype.itemsize < torch.float32.itemsize else value
    operator = aten._native_batch_norm_legit_functional.default
    result, *saved = decompositions([operator])[operator](wide, *others)
    return result.to(value.dtype), *saved


def _slice_backward(grad: torch.Tensor, sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Any:
    """The gradient of a slice: the gradient between zeros. For other steps than 1, torch's own decomposition."""
    if step != 1:
        return NotImplemented
    axis = dim % len(sizes)
    first = min(start + sizes[axis] if start < 0 else start, sizes[axis])
    shape, counts = list(grad.shape), (first, sizes[axis] - first - grad.shape[axis])
    before, after = (grad.new_zeros([*shape[:axis], count, *shape[axis + 1 :]]) for count in counts)
    return torch.cat([before, grad, after], axis)


def _select_backward(grad: torch.Tensor, sizes: Sequence[int], dim: int, index: int) -> Any:
    axis = dim % len(sizes)
    at = index % sizes[axis]
    return _slice_backward(grad.unsqueeze(axis), sizes, axis, at, at + 1, 1)


def _nll_loss(value: torch.Tensor, target: torch.Tensor, weight: Any, reduction: int, ignored: int) -> Any:
    """What `aten.nll_loss_forward` computes, which counts labels as floats where it takes their mean."""
    if weight is not None or value.dim() != 2 or not reduction:
        operator = aten.nll_loss_forward.default
        return decompositions([operator])[operator](value, target, weight, reduction, ignored)
    places = torch.where(target != ignored, target, 0).unsqueeze(1)
    losses = torch.where(target != ignored, -value.gather(1, places).squeeze(1), 0)
    total, count = losses.sum(), (target != ignored).float().sum().to(value.dtype)
    return (total / count if reduction == 1 else total), count


MOST_CHOSEN = 16
"""Elements of each row that are chosen one after another."""


def _topk(value: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The largest elements of each row, and their places: k times the first place of the largest one that
    follows. NaN counts as infinity. Choices other than of a few largest ones of the last dimension stay as they are."""
    length, row = value.shape[dim], dim % max(1, value.dim()) == value.dim() - 1
    if not (largest and row and 0 < k <= MOST_CHOSEN and value.dtype.itemsize <= 4 and value.is_floating_point()):
        return NotImplemented
    wide, places = value.float(), torch.arange(length, device=value.device, dtype=torch.float32)
    order, chosen = torch.where(wide == wide, wide, math.inf), list[tuple[torch.Tensor, torch.Tensor]]()
    follows = torch.ones_like(order)
    for _ in range(k):
        most = torch.where(follows != 0, order, -math.inf).amax(-1, keepdim=True)
        candidates = torch.where(follows != 0, torch.where(order == most, places, length), length)
        place = candidates.amin(-1, keepdim=True)
        own = torch.where(places == place, wide, -math.inf).amax(-1, keepdim=True)
        chosen.append((own.to(value.dtype), place.to(torch.int32).to(torch.int64)))
        follows = torch.where(order == most, (places > place).float(), (order < most).float())
    return tuple(torch.cat(each, -1) for each in zip(*chosen, strict=True))


def _encoder_layer(x: torch.Tensor, width: int, heads: int, *others: Any) -> Any:
    """What `aten._transformer_encoder_layer_fwd` computes, without a mask and of dense tensors."""
    qkv, qkv_bias, out, out_bias, gelu, first, epsilon, *weights, up, up_bias, down, down_bias = others[:15]
    if x.is_nested or others[15:16] not in ((), (None,)):
        return NotImplemented
    functional: Any = torch.nn.functional

    def attended(y: torch.Tensor) -> torch.Tensor:
        q, k, v = functional.linear(y, qkv, qkv_bias).unflatten(-1, (3, heads, -1)).transpose(1, -2).unbind(2)
        return functional.linear(
            functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2), out, out_bias
        )

    def forward(y: torch.Tensor) -> torch.Tensor:
        inner = functional.linear(y, up, up_bias)
        return functional.linear(functional.gelu(inner) if gelu else torch.relu(inner), down, down_bias)

    for branch, weight, bias in ((attended, *weights[:2]), (forward, *weights[2:])):
        norm = partial(functional.layer_norm, normalized_shape=(width,), weight=weight, bias=bias, eps=epsilon)
        x = x + branch(norm(x)) if first else norm(x + branch(x))
    return x


def simpler() -> dict[Any, Any]:
    """Decompositions of operations that torch's default decompositions for export keep."""
    table = decompositions([getattr(aten, name) for name in COMPOSITE if hasattr(aten, name)])
    own = {"slice_backward": _slice_backward, "select_backward": _select_backward, "native_group_norm": _group_norm}
    own |= {"topk": _topk, "nll_loss_forward": _nll_loss}
    own |= {"_transformer_encoder_layer_fwd": _encoder_layer, "_native_batch_norm_legit_functional": _batch_norm}
    return table | {getattr(aten, name).default: function for name, function in own.items() if hasattr(aten, name)}


WHOLE = tuple(getattr(aten, x).default for x in ("matmul", "mv", "dot", "addmv", "scaled_dot_product_attention"))
"""Products and attention, which torch would write as copies and others, or as sums."""


def torch_to_linalg(
    function: Callable[..., object], *examples: torch.Tensor, dynamic: Sequence[Mapping[int, str] | None] = ()
) -> str:
    """Export the graph of a function, or a `torch.nn.Module`, as MLIR text: a module of one `func.func` of `linalg` on
    tensors, which upstream's `mlir-opt` reads too. Its arguments are the parameters and buffers of the module, and then
    the tensors of a call, all in row-major order. A bool is one byte.

    `examples` are tensors with which the function can be called. Their shapes and types become those of the MLIR
    function. `dynamic` names the dynamic dimensions of each example: `dynamic=({0: "batch"},)`.

    Raises:
        CompileError: naming the line of the function and the operation, if the importer has no `linalg` for an
        operation, or if torch cannot export the function.
    """
    if not callable(cast("object", function)):
        raise ArgumentError(f"expected a function or a torch.nn.Module, got {type(function).__name__}")
    for position, example in enumerate(examples):
        if not isinstance(cast("object", example), torch.Tensor):
            raise ArgumentError(f"example {position}: expected a tensor, got {type(example).__name__}")
    program = _exported(function, examples, dynamic)
    importer, names = Importer(), _names(function, program)
    name = getattr(function, "__name__", type(function).__name__)
    for node in program.graph.nodes:
        if node.op != "output":
            _run(importer, node, names)
    return _text(importer, name, program.graph.output_node())


def _names(function: Callable[..., object], program: ExportedProgram) -> dict[str, str]:
    """What the function calls its arguments, by the names of the graph's."""
    if isinstance(function, torch.nn.Module):
        return {}
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # what is built in need not tell
        return {}
    names = [p.name for p in parameters if p.kind in kinds]
    return dict(zip(map(str, program.graph_signature.user_inputs), names, strict=False))


def _run(importer: Importer, node: Node, names: Mapping[str, str]) -> None:
    try:
        if node.op == "placeholder":
            importer.argument(node, names.get(node.name) or node.name)
        else:
            importer.run(node)
    except UnsupportedError as error:
        place = place_of(node)
        raise CompileError(f"{place}: {error}" if place else str(error)) from error


def _text(importer: Importer, name: str, output: Node) -> str:
    returned = [x for x in leaves(output.args) if isinstance(x, Node)]
    tensors = [node for node in returned if isinstance(node.meta.get("val"), torch.Tensor)]
    if not tensors or len(tensors) != len(leaves(output.args)):
        raise CompileError(f"@{name}: expected a function that returns tensors")
    try:
        return str(importer.module(re.sub(r"\W", "_", name), returned)) + "\n"
    except UnsupportedError as error:
        raise CompileError(f"@{name}: {error}") from error


def decomposed(program: ExportedProgram) -> ExportedProgram:
    """A program in operations that have a form here, where they have one."""
    table: dict[Any, Any] = {**torch.export.default_decompositions(), **simpler()}
    return cast("Any", program).run_decompositions({k: v for k, v in table.items() if k not in WHOLE})


def _exported(
    function: Callable[..., object], examples: Sequence[torch.Tensor], dynamic: Sequence[Mapping[int, str] | None]
) -> ExportedProgram:
    module = function if isinstance(function, torch.nn.Module) else _Wrapped(function)
    names = {n for sizes in dynamic for n in (sizes or {}).values()}
    dims = {n: torch.export.Dim(n, min=2) for n in names}
    shapes = tuple({d: dims[n] for d, n in (s or {}).items()} for s in (*dynamic, *[None] * len(examples)))
    try:
        program = torch.export.export(
            module,
            tuple(examples),
            dynamic_shapes=(shapes[: len(examples)],) if isinstance(module, _Wrapped) else shapes[: len(examples)],
        )
        return decomposed(program)
    except Exception as error:
        raise CompileError(f"torch.export: {str(error).strip() or type(error).__name__}") from error


class _Wrapped(torch.nn.Module):
    """A function as a module for `torch.export`."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self._function = _named_forward(function)

    def forward(self, *examples: torch.Tensor) -> object:
        return self._function(*examples)


def _named_forward(function: Callable[..., object]) -> Callable[..., object]:
    """The function with a code object called `forward`, for torch records source lines of that name only."""
    if isinstance(function, MethodType):
        return MethodType(_named_forward(function.__func__), function.__self__)
    if not isinstance(function, FunctionType):
        return function
    code = function.__code__.replace(co_name="forward")
    named = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    named.__kwdefaults__ = function.__kwdefaults__
    return named
