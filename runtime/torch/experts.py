"""What takes the place of choices, sorts and sums by index in graphs that inductor compiles, as routers and experts use
them: short rows are chosen from where they are computed, places are counted, and sums are read."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import Any, cast

import torch
from torch.fx import Graph, Node

from .decompositions import OWN
from .options import aten, numbered, prims
from .scalars import HALVES
from .views import VIEWS, called, replace_by

SORTS, FLOOR = frozenset({aten.sort.default, aten.sort.stable}), {"rounding_mode": "floor"}

PART, MAX_EXPERTS = 128, 256
"""Places that are ranked among each other, and the longest rows that they are places of."""


def order_by_counts(length: int, chosen: torch.Tensor) -> torch.Tensor:
    """The stable order of numbers less than `length`: each goes behind all smaller ones, and behind equal ones of parts
    before and of its own."""
    count = chosen.shape[0]
    parts = aten.constant_pad_nd(chosen, (0, -count % PART), length).view(-1, PART)
    every, numbers, inner = (numbered(n, chosen.device, torch.int64) for n in (count, length, PART))
    counts = (parts == numbers.view(-1, 1, 1)).sum(-1, dtype=torch.int32)
    until = counts.cumsum(1, dtype=torch.int32)
    totals = until.select(1, -1)
    starts = until - counts + (totals.cumsum(0, dtype=torch.int32) - totals).unsqueeze(1)
    equal = (parts.unsqueeze(2) == parts.unsqueeze(1)) & (inner < inner.view(-1, 1))
    ranks = equal.sum(-1, dtype=torch.int32).flatten().narrow(0, 0, count)
    places = aten.index(starts, [chosen, every.div(PART, rounding_mode="floor")]) + ranks
    return aten.index_put(torch.empty_like(chosen), [_converted(places, torch.int64)], every)


def repeated_rows(rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Rows that each go to as many places."""
    repeated = rows.unsqueeze(1).expand(-1, len(places) // len(rows), *rows.shape[1:]).flatten(0, 1)
    return aten.index_put(torch.empty_like(repeated), [places], repeated)


def _converted(x: Any, dtype: torch.dtype = torch.float32) -> Any:
    return prims.convert_element_type(x, dtype)


def sums_at(places: Sequence[None], before: torch.Tensor, rows: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Sums of rows by index, in f32; `places` are dimensions before it."""
    return _converted(aten.index_put(_converted(before), [*places, index], _converted(rows), True), before.dtype)


def sums_of_rows(before: torch.Tensor, rows: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Sums of as many rows each, which lie in an order, in f32."""
    count, sums = order.shape[0], before.shape[0]
    places = aten.index_put(torch.empty_like(order), [order], numbered(count, order.device, torch.int64))
    each = aten.index.Tensor(rows, [places.view(sums, count // sums)])
    return _converted(_converted(before) + aten.sum.dim_IntList(_converted(each), [1]), before.dtype)


def choose_largest(graph: Graph) -> None:
    """Chooses the largest elements of short rows on a GPU, in place, where the rows are computed: torch's kernels take
    two launches, and longer."""
    inductor: Any = import_module("torch._inductor.decomposition")
    for node in graph.find_nodes(op="call_function", target=aten.topk.default):
        rows: Any = node.args[0].meta["val"]
        choose = partial(OWN[node.target], **dict(zip(("k", "dim", "largest"), node.args[1:], strict=False)))
        with rows.fake_mode:
            fits = rows.is_cuda and choose(rows) is not NotImplemented and rows.shape[-1] <= MAX_EXPERTS
        if fits:
            replace_by(graph, node, choose, node.args[0], table=inductor.select_decomp_table())


def sums_in_f32(graph: Graph) -> None:
    """Replaces sums of rows by index of 16-bit floats on a GPU, in place, by those of f32, rounded once: inductor adds
    f32 in its own kernels, with what is around, and calls a slower one of torch's for others. Where each sum has
    the same number of rows, as for experts, each sum reads its rows in place of rows being added to sums."""
    for node in graph.find_nodes(op="call_function", target=aten.index_add.default):
        example: torch.Tensor = node.meta["val"]
        if example.dtype in HALVES and example.is_cuda and not node.kwargs:
            before, dimension, index, rows = node.args
            permutation, places = _permutation(node), [None] * (dimension % example.dim())
            summed = sums_of_rows if permutation else partial(sums_at, places)
            replace_by(graph, node, summed, before, rows, permutation or index)


def _permutation(node: Node) -> Node | None:
    """The order of all rows that sums by index are of, if the index is `order // count` and each sum has `count` rows:
    tokens that several experts compute, sorted by these."""
    before, dimension, quotient, rows = cast("Any", node.args)
    if quotient.target is not aten.div.Tensor_mode or quotient.kwargs != FLOOR or dimension:
        return None
    order, count = quotient.args
    sums, summed = before.meta["val"].shape[0], rows.meta["val"].shape[0]
    sort = order.all_input_nodes[0] if order.target is operator.getitem and order.args[1] == 1 else order
    shapes = [(summed,), (sums * count,)] if isinstance(count, int) and isinstance(sums, int) else []
    return order if sort.target in SORTS and shapes == [tuple(order.meta["val"].shape)] * 2 else None


def count_orders(graph: Graph) -> None:
    """Orders places that `topk` chose in short rows, in place, by counting, as for experts: torch's kernels sort 64
    bits of each. Rows that such an order repeats are written where they go, if products read them: what else does, is
    computed where they are read. Of unknown sizes bytes are sorted."""
    for node in [n for n in graph.nodes if n.target in SORTS]:
        source, chosen = node.args[0], node.args[0].meta["val"]
        users = {user.args[1]: user for user in node.users if user.users}
        while source.target in VIEWS:
            source = source.all_input_nodes[0]
        topk = source.args[0] if source.target is operator.getitem and source.args[1] == 1 else source
        if topk.target is not aten.topk.default or not chosen.is_cuda or chosen.dim() != 1 or 1 not in users:
            continue
        length = topk.args[0].meta["val"].shape[(*topk.args, -1)[2]]
        if not isinstance(length, int) or length > MAX_EXPERTS:
            continue
        count, descends = chosen.shape[0], any((*node.args[2:], node.kwargs.get("descending")))
        if isinstance(count, int) and count and not descends:
            node.append(users[1])
            order = replace_by(graph, users[1], partial(order_by_counts, length), node.args[0])
            (places,) = order.args[1]
            if 0 in users:
                replace_by(graph, users[0], repeated_rows, node.args[0], places)
            for rows in [*_multiplied(order, count)]:
                replace_by(graph, rows, repeated_rows, rows.args[0], places)
        elif 0 not in users:
            with graph.inserting_before(node):
                node.update_arg(0, called(graph, prims.convert_element_type.default, node.args[0], torch.uint8))
            node.meta["val"] = (node.args[0].meta["val"], node.meta["val"][1])


def _multiplied(order: Any, count: int) -> Iterator[Any]:
    """What reads rows in an order of `count` places that repeats them, where products alone read that."""
    for floor in [user for user in order.users if user.kwargs == FLOOR and isinstance(user.args[1], int)]:
        for rows in floor.users:
            reads = rows.target is aten.index.Tensor and rows.args[1] == [floor]
            multiplied = {user.target for user in rows.users} == {aten._grouped_mm.default}
            if reads and multiplied and rows.args[0].meta["val"].shape[0] * floor.args[1] == count:
                yield rows
