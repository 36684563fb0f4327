"""Views: how elements of a tensor lie, other orders and shapes of them, and views behind what follows them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import takewhile
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg
from xdsl.dialects.tensor import ConcatOp

from .builder import FunctionBuilder, is_pointwise, name_of, plain, tensor_type
from .options import aten, expression, is_operator, prims, pytree, sympy, traced
from .part import MemoryOrder, row_major
from .scalars import ELEMENTS, Lowering, Size, UnsupportedError, Value, element_of, shape_of

Max: Any = import_module("torch.utils._sympy.functions").Max


def order_of(tensor: torch.Tensor) -> MemoryOrder:
    """The order that a tensor of a graph has; row-major if its elements lie with gaps, so that they must be copied."""
    sizes, strides = _placed(tensor)
    moving = [d for d in range(len(sizes)) if sizes[d] != 1 and strides[d] != 0]
    order = MemoryOrder(tuple(sorted(moving, key=lambda d: -hint(tensor.stride()[d], UNKNOWN))), len(sizes))
    in_order = order.order == tuple(d for d in range(len(sizes)) if sizes[d] != 1)
    return row_major(len(sizes)) if in_order or not order.holds(sizes, strides) else order


def has_no_gaps(tensor: torch.Tensor) -> bool:
    """Whether a kernel can take a tensor of a graph without a copy."""
    return order_of(tensor).holds(*_placed(tensor))


def sized_input(graph: Graph, size: Size, device: torch.device) -> Node | None:
    """A tensor among the inputs of a graph that has a size along a dimension, and that a kernel takes as it lies."""
    tensors = [(node, node.meta["val"]) for node in graph.find_nodes(op="placeholder") if is_tensor(node)]
    sized = [(node, x) for node, x in tensors if size in shape_of(x) and x.device == device and x.dtype in ELEMENTS]
    return next((node for node, x in sized if has_no_gaps(x)), None)


def is_row_major(tensor: torch.Tensor, order: Sequence[int] | None = None) -> bool:
    """Whether a tensor of a graph is contiguous, or is so with its dimensions in an order."""
    return MemoryOrder(tuple(order or range(tensor.dim())), tensor.dim()).holds(*_placed(tensor))


def _placed(tensor: torch.Tensor) -> tuple[tuple[Size, ...], tuple[Size, ...]]:
    """The sizes and the strides of a tensor of a graph, as if it had elements: Max(1, n) in a stride is n."""
    strides: Any = list(map(expression, tensor.stride()))
    for at, stride in enumerate(strides):
        for bound in () if isinstance(stride, int) else [x for x in stride.atoms(Max) if x.args[0] == 1]:
            strides[at] = strides[at].subs(bound, bound.func(*bound.args[1:]))
    return shape_of(tensor), tuple(strides)


def hint(size: Any, unknown: int | None = None) -> int:
    """A size, or an example of it: `unknown` for one that depends on data, without which it is an UnsupportedError."""
    hint = size if isinstance(size, int) else size.node.hint
    if (hint := unknown if hint is None else hint) is None:
        raise UnsupportedError(f"the size {size} depends on data")
    return int(hint)


UNKNOWN = 10007
"""The first of the numbers that stand for sizes that are not known: larger than known places, and odd."""


def shown(
    target: Any, builder: FunctionBuilder, like: torch.Tensor, value: Value, *args: object, part: int | None = None,
    **kwargs: object,
) -> Value:  # fmt: skip
    """What an operation shows of a tensor in another order, repeated, or in part, by the strides that torch gives it;
    `part` is the number of one of several results."""
    by_size: dict[Size, int] = {}
    place = args[1] if target in (aten.select.int, aten.slice.Tensor) and len(args) > 1 else None
    if not isinstance(place, int | None):
        raise UnsupportedError("a place that is not known is not lowered")

    def number(size: Size) -> int:
        size = expression(size) if isinstance(size, torch.SymInt) else size
        return size if isinstance(size, int) else by_size.setdefault(size, UNKNOWN + 2 * len(by_size))

    sizes, strides = [number(size) for size in value.shape], [3]  # a new last dimension has stride 1
    for size in reversed(sizes[1:]):
        strides.insert(0, strides[0] * (size + 1))  # no other dimension has a multiple of it that is smaller
    unknown = UnsupportedError("a part at places, or along a dimension, of unknown size is not lowered")
    if sizes and strides[0] * sizes[0] >= 1 << 63:  # strides of so many unknown sizes have no form
        raise unknown
    example = torch.empty_strided(sizes, strides[: len(sizes)], device="meta")
    args, kwargs = pytree.tree_map_only(torch.SymInt, number, (args, kwargs))
    try:
        results = target(example, *args, **kwargs)
        seen: torch.Tensor = results if part is None else results[part]
    except (IndexError, RuntimeError, ValueError) as error:  # symbols of which torch alone knows how they compare
        raise unknown from error
    shape, offset = shape_of(like), int(seen.storage_offset())
    if [*seen.shape] != [number(size) for size in shape]:
        raise unknown
    dims: list[int | None] = [None] * len(shape)
    counted_back = place is not None and place < 0
    for d, (size, stride) in enumerate(zip(sizes, strides, strict=False)):
        first, offset = divmod(offset, stride)
        along = [r for r, s in enumerate(seen.stride()) if stride <= s < stride * size or s == stride]
        count, step = (shape[along[0]], seen.stride()[along[0]] // stride) if along else (1, 1)
        if (first, step) != (0, 1) or count != value.shape[d]:
            from_end = first > 0 and counted_back and not isinstance(value.shape[d], int)
            value = _part(builder, value, d, value.shape[d] + (first - size) if from_end else first, count, step)
        for r in along[:1]:  # a new dimension has the stride of one behind it that has one element
            dims[r] = value.dims[d]
    return replace(value, dims=tuple(dims), shape=shape)


def reordered(value: Value, order: Sequence[int]) -> Value:
    """The value with its dimensions in an order. Dimensions that `order` lacks have size 1, and are removed."""
    dims, shape = tuple(value.dims[d] for d in order), tuple(value.shape[d] for d in order)
    return replace(value, dims=dims, shape=shape)


def unsqueezed(value: Value, at: int) -> Value:
    """The value with one more dimension, of size 1."""
    dims, shape = (*value.dims[:at], None, *value.dims[at:]), (*value.shape[:at], 1, *value.shape[at:])
    return replace(value, dims=dims, shape=shape)


def _reshape(builder: FunctionBuilder, like: torch.Tensor, value: Value, *_: object, **__: object) -> Value:
    return reshape(builder, value, shape_of(like))


def reshape(builder: FunctionBuilder, value: Value, shape: tuple[Size, ...]) -> Value:
    """The value in another shape, its elements in row-major order; UnsupportedError for sizes of which the one do not
    visibly divide the others."""
    if shape == value.shape:
        return value
    groups = _groups(value.shape, shape)
    if not value.plain and (placed := _in_memory(value, shape, groups)) is not None:
        sizes, dims = placed
        return replace(reshape(builder, value.full, sizes), dims=dims, shape=shape)
    value = builder.dense(value)
    middle = tuple(math.prod(value.shape[d] for d in before) for before, _ in groups)
    if middle != value.shape:
        value = builder.reshaped(value, middle, [before for before, _ in groups])
    return value if middle == shape else builder.reshaped(value, shape, [after for _, after in groups])


def _in_memory(
    value: Value, shape: tuple[Size, ...], groups: Sequence[tuple[range, range]]
) -> tuple[tuple[Size, ...], tuple[int | None, ...]] | None:
    """The sizes of a value's tensor, and its dimensions along that, where the value has another shape: each run of
    dimensions that become others lies together in memory. None if one does not, so that it must be copied."""
    runs, sizes, dims = dict[int, list[int]](), list[Size](), dict[int, int]()
    for before, after in groups:
        own = [d for d in map(value.dims.__getitem__, before) if d is not None]
        repeated = any(value.dims[at] is None and value.shape[at] != 1 for at in before)
        if own and (repeated or own != [own[0] + at for at in range(len(own))]):
            return None
        if own:
            runs |= {d: [] for d in own} | {own[0]: [at for at in after if shape[at] != 1] or [after[0]]}
    for d in range(len(value.full.shape)):
        dims |= {at: len(sizes) + number for number, at in enumerate(runs.get(d, []))}
        sizes += [shape[at] for at in runs[d]] if d in runs else [1]
    return (tuple(sizes), tuple(map(dims.get, range(len(shape))))) if groups else None


def _groups(before: tuple[Size, ...], after: tuple[Size, ...]) -> list[tuple[range, range]]:
    """The smallest runs of dimensions of two shapes that hold equally many elements; none of the runs is empty, unless
    one of the shapes has no dimensions."""
    if not before or not after:
        return []
    groups: list[tuple[range, range]] = []
    start = other = i = j = 0
    while i < len(before) and j < len(after):
        start, other, i, j = i, j, i + 1, j + 1
        left, right = before[start], after[other]
        while left != right:
            grow_left = _divides(left, right)
            if grow_left and i < len(before):
                left, i = left * before[i], i + 1
            elif not grow_left and j < len(after):
                right, j = right * after[j], j + 1
            else:
                raise UnsupportedError(f"a view of {before} as {after} is not lowered")
        groups.append((range(start, i), range(other, j)))
    return [*groups[:-1], (range(start, len(before)), range(other, len(after)))]


def _divides(left: Size, right: Size) -> bool:
    """Which of two numbers of elements is to grow: whether the first is the smaller one."""
    if isinstance(left, int) and isinstance(right, int):
        return left < right
    quotient: Any = sympy.sympify(right) / sympy.sympify(left)
    return bool(quotient > 1) if quotient.is_number else sympy.denom(quotient) == 1


def _part(builder: FunctionBuilder, value: Value, at: int, start: Size, count: Size, step: int) -> Value:
    """Some of the elements along one dimension."""
    dimension = value.dims[at]
    shape = (*value.shape[:at], count, *value.shape[at + 1 :])
    if dimension is None:
        return replace(value, shape=shape)
    part = builder.sliced(value.full, dimension, start, count, step)
    return replace(value, tensor=part.tensor, shape=shape)


def _concatenated(builder: FunctionBuilder, like: torch.Tensor, values: Sequence[Value], dimension: int = 0) -> Value:
    """Concatenates tensors. Empty tensors of any shape are dropped."""
    parts = [value for value in values if value.shape != (0,)]
    tensors = [builder.dense(builder.converted(value, like.dtype)).tensor for value in parts]
    kind = tensor_type(shape_of(like), element_of(like.dtype))
    op = builder.insert(ConcatOp(tensors, dimension % like.dim(), kind))
    return plain(op.result, shape_of(like), like.dtype)


SPLITS = frozenset({aten.split.Tensor, aten.split_with_sizes.default, aten.chunk.default})
"""Operations with several results, each a part of their operand."""


SHOWN = (
    *(aten.permute.default, aten.expand.default, aten.unsqueeze.default, aten.squeeze.dims, aten.slice.Tensor),
    *(aten.squeeze.default, aten.squeeze.dim, aten.select.int, prims.broadcast_in_dim.default),
)
"""Operations whose result torch writes as strides of their operand."""

RESHAPES = frozenset({aten.view.default, aten.reshape.default})


def _same(builder: FunctionBuilder, like: torch.Tensor, value: Value, **_: object) -> Value:
    """A copy, or the tensor itself: values are never written to."""
    return value


VIEWS: Mapping[object, Lowering] = {
    **dict.fromkeys((aten.clone.default, aten.alias.default, aten.lift_fresh_copy.default), _same),
    **{target: partial(shown, target) for target in SHOWN},
    **dict.fromkeys(RESHAPES, _reshape),
    aten.cat.default: _concatenated,
}
"""What shows the elements of a tensor otherwise."""


def unpacking(node: Node) -> list[Any]:
    """The nodes that take two integers of 4 bits from each byte of a tensor, the lower bits first, up to a node, from
    the first one on, which takes the bytes; empty where a node is the last of no such."""
    joined: Any = node.all_input_nodes[0] if node.target in RESHAPES else node
    parts: Any = joined.args[0] if joined.target is aten.cat.default else ()
    halves = [x.args[0] for x in parts if x.target is aten.unsqueeze.default]
    names = [name_of(x.target) for x in halves if is_operator(x.target)]
    if names != ["bitwise_and", "__rshift__"] or len(parts) > 2:
        return []
    low, high = halves
    packed, shape = low.args[0], _shape(low)
    places = {d % (len(shape) + 1) for d in (*(x.args[1] for x in parts), *joined.args[1:])}
    whole_bytes = low.args[1:] == (15,) and high.args == (packed, 4) and {*packed.users} == {*halves}
    in_order = places == {len(shape)} and _shape(node) == (*shape[:-1], 2 * shape[-1])
    fits = packed.meta["val"].dtype == torch.uint8 and is_row_major(packed.meta["val"])
    return list(dict.fromkeys([*halves, *parts, joined, node])) if whole_bytes and in_order and fits else []


def is_tensor(value: object) -> bool:
    """Whether an argument is a node that computes a tensor."""
    return isinstance(value, Node) and isinstance(value.meta.get("val"), torch.Tensor)


def sink_views(graph: Graph, *, inference: bool = False) -> None:
    """Moves views in a graph behind pointwise operations, in place, and makes equal ones one. In `inference`, 1x1
    convolutions become products, and orders of images are moved too."""
    _merge_rows(graph)
    _join_reshapes(graph)
    for node in [node for node in graph.nodes if node.op == "call_function"]:
        if inference and node.target is aten.convolution.default:
            _convolved(graph, node)
        elif is_pointwise(node.target) and not (inference and _sink(graph, node)):
            sink_view(graph, node)
    graph.eliminate_dead_code()
    _join_reshapes(graph)


def _merge_rows(graph: Graph) -> None:
    """Makes the rows of A one dimension, in place, in products with one matrix: kernels then need not end a tile with
    each of the others. Exported programs have such products, graphs with gradients have none."""
    for node in graph.find_nodes(op="call_function", target=aten.matmul.default):
        (a, b), (*rows, depth) = node.args, _shape(node.args[0])
        sizes = _known((*rows, _shape(b)[-1]))
        merges = isinstance(depth, int) and sizes.count(-1) < 2 and is_row_major(a.meta["val"])
        if len(rows) > 1 and len(_shape(b)) == 2 and merges:
            replace_by(graph, node, partial(_product_of_rows, depth, sizes), a, b)


def _product_of_rows(depth: int, sizes: Sequence[int], a: Any, b: Any) -> Any:
    return aten.mm(aten.reshape(a, [-1, depth]), b).view(sizes)


def _known(shape: Sequence[Size]) -> list[int]:
    """Sizes as a reshape takes them, -1 for one that is not known."""
    return [size if isinstance(size, int) else -1 for size in shape]


def _join_reshapes(graph: Graph) -> None:
    """Makes reshapes of a tensor to one shape one, so that products of them have the same operand, and none of those to
    its own shape."""
    first = dict[tuple[Node, tuple[Size, ...]], Node]()
    for node in [n for n in graph.nodes if n.op == "call_function" and n.target in RESHAPES]:
        source, shape = node, _shape(node)
        while source.op == "call_function" and source.target in RESHAPES:
            source = source.args[0]
        same = source if _shape(source) == shape else first.setdefault((source, shape), node)
        if same is not node and all(user.op != "output" for user in node.users):
            node.replace_all_uses_with(same)
            graph.erase_node(node)


def sink_view(graph: Graph, node: Node) -> None:
    """Moves the view of an operand that has the shape of the result behind a pointwise operation."""
    operands = [x for x in node.all_input_nodes if is_tensor(x)]
    view = next((x for x in operands if x.target in RESHAPES and _shape(x) == _shape(node)), None)
    if view is None:
        return
    inner, outer = _shape(view.all_input_nodes[0]), _shape(view)
    # How many of the last dimensions they share, where the others of the tensor are one.
    common = sum(takewhile(bool, map(operator.eq, reversed(inner), reversed(outer))))
    if len(inner) - common > 1 or not common or (sizes := _known(inner)).count(-1) > 1:
        return

    def moved(x: Node) -> Node | None:
        if not is_tensor(x) or len(_shape(x)) <= common:
            return x
        if _shape(x) != outer or not (x.target in RESHAPES or is_row_major(x.meta["val"])):
            return None
        if x.target in RESHAPES and _shape(source := x.all_input_nodes[0]) == inner:
            return source
        return called(graph, aten.reshape.default, x, sizes)

    _computed_before(graph, node, moved, (aten.view.default, view.args[1]))


def _computed_before(
    graph: Graph, node: Node, moved: Callable[[Node], Node | None], view: tuple[Any, Any]
) -> Node | None:
    """Computes a pointwise operation of operands without a view, which becomes one of its result. `moved` makes such an
    operand, or None if it has no form without a copy. Returns the operation; None if it stays, as ordered copies do."""
    if not is_tensor(node) or any(isinstance(x, Node | torch.memory_format) for x in node.kwargs.values()):
        return None
    with graph.inserting_before(node):
        own = {x: moved(x) for x in node.all_input_nodes}
        if None in own.values():  # what was made for the other operands has no users
            return None
        computed = called(graph, node.target, *map_arg(node.args, own.__getitem__), **node.kwargs)
        back = called(graph, view[0], computed, view[1])
    take_place(graph, node, (computed, back))
    return computed


def transpose_pads(graph: Graph) -> None:
    """Makes pads of transposed matrices transposes of pads, in place, with four sizes each, so that pads of a matrix
    and of its transpose are equal, and computed once."""
    for node in graph.find_nodes(op="call_function", target=aten.constant_pad_nd.default):
        source, pads, *value = node.args
        turned, pads = False, [*pads, 0, 0][:4]
        while source.target is aten.permute.default and list(source.args[1]) == [1, 0]:
            source, turned, pads = source.args[0], not turned, [*pads[2:], *pads[:2]]
        if node.meta["val"].dim() == 2 and [source, pads] != [*node.args[:2]]:
            with graph.inserting_before(node):
                fresh = [called(graph, node.target, source, pads, *value)]
                fresh += [called(graph, aten.permute.default, fresh[0], [1, 0])] if turned else []
            take_place(graph, node, fresh)


def replace_by(
    graph: Graph, node: Node, function: Callable[..., Any], *sources: Node, table: Mapping[Any, Any] | None = None
) -> Any:
    """Puts what a function of torch computes of nodes in the place of one, or of each of its results; `table` has
    decompositions. Returns the last of the new nodes."""
    with sources[0].meta["val"].fake_mode:
        traced_graph = traced(function, [x.meta["val"] for x in sources], {**(table or {})})
    copies = dict(zip(traced_graph.find_nodes(op="placeholder"), sources, strict=True))
    with graph.inserting_before(node):
        results: Any = graph.graph_copy(traced_graph, copies)
    fresh = [x for x in copies.values() if x not in sources]
    if is_tensor(node):
        take_place(graph, node, fresh)
    else:
        for part in [*node.users]:
            part.replace_all_uses_with(results[part.args[1]])
    return fresh[-1]


def take_place(graph: Graph, node: Node, fresh: Sequence[Node]) -> None:
    """The last of new nodes in the place of one, with what torch knows of where it comes from."""
    for one in fresh:
        one.meta = {**node.meta, "val": one.meta["val"]}
    node.replace_all_uses_with(fresh[-1], delete_user_cb=lambda user: user not in fresh)
    if not node.users:
        graph.erase_node(node)


def _shape(node: Any) -> tuple[Size, ...]:
    return shape_of(node.meta["val"])


def called(graph: Graph, target: Any, *args: Any, **kwargs: Any) -> Node:
    """A new node, with an example of what it computes."""
    node = graph.call_function(target, args, kwargs)
    examples: Any = map_arg(args, lambda x: x.meta["val"])
    with next(filter(is_tensor, node.all_input_nodes)).meta["val"].fake_mode:
        node.meta["val"] = target(*examples, **kwargs)
    return node


# Images with the channels last in memory: convolutions of single pixels as products, and orders of dimensions moved
# behind the pointwise operations that follow them, so that these are computed where the product is:
# relu(permute(view(mm), (0, 3, 1, 2)) * scale[:, None, None]) becomes permute(view(relu(mm * scale)), (0, 3, 1, 2)).

LAST, FIRST = [0, 2, 3, 1], [0, 3, 1, 2]
"""Orders of (batch, channels, rows, columns) with the channels last, and back."""


def has_channels_last(*images: torch.Tensor) -> bool:
    """Whether tensors are images of static sizes whose channels lie together."""
    return all(x.dim() == 4 and all(isinstance(n, int) for n in shape_of(x)) and is_row_major(x, LAST) for x in images)


def _convolved(graph: Graph, node: Node) -> None:
    """Makes the result of a convolution with the channels last an order of one that has them as its last dimension, of
    single pixels that of a product."""
    if not has_channels_last(*(x.meta["val"] for x in (*node.all_input_nodes[:2], node))):
        return
    options = [list(o) if isinstance(o, Sequence) else o for o in node.args[3:]]
    if options == [[1, 1], [0, 0], [1, 1], False, [0, 0], 1] and _shape(node.args[1])[2:] == (1, 1):
        replace_by(graph, node, _product_of_pixels, *node.all_input_nodes)
        return
    with graph.inserting_before(node.next):
        rows = called(graph, aten.permute.default, node, LAST)
        take_place(graph, node, [rows, called(graph, aten.permute.default, rows, FIRST)])


def _product_of_pixels(images: Any, weight: Any, *bias: Any) -> Any:
    (batch, depth, *pixels), channels = images.shape, weight.shape[0]
    rows = aten.reshape(images.permute(LAST), [-1, depth])
    operands = *bias, rows, aten.reshape(weight, [channels, depth]).permute(1, 0)
    return (aten.addmm if bias else aten.mm)(*operands).view(batch, *pixels, channels).permute(FIRST)


def _sink(graph: Graph, node: Node) -> bool:
    """Moves the order of an image with the channels last behind a pointwise operation; whether there was one."""
    shape = _shape(node) if all(map(is_tensor, (node, *node.all_input_nodes))) else None
    if shape is None or not any(_is_first(x) and _shape(x) == shape for x in node.all_input_nodes):
        return False

    def moved(x: Node) -> Node | None:
        own, count = _shape(x), math.prod(_shape(x))
        if own == shape and is_row_major(x.meta["val"], LAST):
            return x.all_input_nodes[0] if _is_first(x) else called(graph, aten.permute.default, x, LAST)
        if own != shape and (count == 1 or (len(own) >= 3 and count == own[-3] == shape[1])):
            return called(graph, aten.reshape.default, x, [] if count == 1 else [count])
        return None

    computed = _computed_before(graph, node, moved, (aten.permute.default, FIRST))
    if computed is not None:
        sink_view(graph, computed)
    return computed is not None


def _is_first(node: Any) -> bool:
    """Whether an image with its channels first is an order of one with these last."""
    return node.target is aten.permute.default and list(node.args[1]) == FIRST
