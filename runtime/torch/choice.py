"""Whether a part of a graph runs as our kernel or is left to inductor: on a GPU both are measured, equal parts once.

What inductor would do for a product is torch's own kernel, and then what follows it in a kernel of its own. That is
measured for the product, and reckoned by the bytes that fusion saves for the rest, as inductor may fuse it further.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from .attention import is_attention
from .builder import CONVERSIONS
from .clusters import Cluster, is_product
from .options import aten
from .part import Region
from .products import warploom
from .views import VIEWS, hint, is_tensor

MARGIN = 0.97
"""Our kernel takes at most this part of inductor's time, so that equal ones are left to inductor."""

BANDWIDTH = 2.6e6
"""Bytes that pointwise kernels move in a microsecond on an H100: what copies reach there."""

LAUNCH = 2.0
"""Microseconds from the end of a kernel to the next one's start, with their ramps."""

ROTATED = 1 << 27
"""Bytes of operands that calls take turns among, so that inputs of the graph, which are weights, are not read from L2:
more than it has."""

ROUNDS, EACH, MOST_SETS = 5, 6, 8
"""Times that calls are measured, calls each time, and sets of operands."""

SLEEP = 2_000_000
"""Cycles that the GPU waits while the host enqueues calls."""


class Judgement(NamedTuple):
    """Whether a part runs as our kernel, and the measured times behind that."""

    ours: bool
    text: str


OURS = Judgement(True, "")

MEASURED: dict[tuple[str, int], Judgement] = {}
"""Judgements by the name of a part and the bytes that fusion saves."""


def judged(cluster: Cluster, region: Region) -> Judgement:
    """Whether a part of a graph is left to inductor. On the CPU, where our kernels are interpreted, none is."""
    if cluster.last.meta["val"].device.type != "cuda":
        return OURS
    saved, launches = _saved(cluster)
    key = region.name, int(saved)
    if key not in MEASURED:
        MEASURED[key] = _judged(cluster, region, saved / BANDWIDTH + launches * LAUNCH)
    return MEASURED[key]


def _judged(cluster: Cluster, region: Region, rest: float) -> Judgement:
    ours, product = _measured(cluster, region)
    theirs = product + rest
    reckoned = f" and {rest:.1f} us for what follows" if rest else ""
    text = f"measured {ours:.1f} us, torch's kernel {product:.1f} us{reckoned}"
    return Judgement(ours <= MARGIN * theirs, text)


def _saved(cluster: Cluster) -> tuple[float, int]:
    """Bytes that inductor moves in addition when a cluster is its own, and kernels that it launches."""
    converted = [node for node in cluster.weights if node.target in CONVERSIONS]
    weights = float(sum(_bytes(node) + _bytes(node.all_input_nodes[0]) for node in converted))
    if cluster.last is cluster.core or is_attention(cluster.core):
        return weights, len(converted)
    intermediate, result = _bytes(cluster.core), _bytes(cluster.last)
    users = _users(cluster.last)
    if not any(map(_is_fused, users)):
        return weights + 2.0 * intermediate, len(converted) + 1
    # What inductor fuses on with the user of the result: it reads the product there, and stores the result for others.
    stored = 2.0 if len(users) == 1 else 1.0
    return weights + 2.0 * intermediate - stored * result, len(converted)


def _bytes(node: Node) -> int:
    example = node.meta["val"]
    return math.prod(map(hint, example.shape)) * example.element_size()


def _users(node: Node) -> list[Node]:
    """What reads the result of a node, through views."""
    users = [_users(user) if user.target in VIEWS else [user] for user in node.users]
    return [user for several in users for user in several]


def _is_fused(node: Node) -> bool:
    """Whether inductor computes a node in one kernel with what is before it: it calls other kernels for these."""
    others = (aten.convolution.default, warploom.region.default)
    return node.op == "call_function" and not (is_product(node) or is_attention(node) or node.target in others)


def _measured(cluster: Cluster, region: Region) -> tuple[float, float]:
    """Microseconds of our kernel, and of torch's for the product alone."""
    product = cluster.core
    dispatch: Any = import_module("torch.utils._python_dispatch")
    device = cluster.last.meta["val"].device
    plain = torch.autocast("cuda", enabled=False)
    with dispatch._disable_current_modes(), torch.no_grad(), plain, torch.cuda.device(device):
        nodes = list(dict.fromkeys([*cluster.inputs, *(x for x in product.all_input_nodes if is_tensor(x))]))
        size = sum(map(_bytes, nodes))
        computed = {n: _drawn(n.meta["val"]) for n in nodes if n.op != "placeholder"}
        if product.target is aten._grouped_mm.default:  # where groups end: equally far apart
            (ends,) = (n for n in nodes if n.meta["val"].dtype == torch.int32)
            rows, count = (hint(n.meta["val"].shape[0]) for n in (product.all_input_nodes[0], ends))
            computed[ends] = torch.linspace(rows / count, rows, count, device=device).int()
        count = max(1, min(MOST_SETS, ROTATED // size))
        sets = [{n: computed[n] if n in computed else _drawn(n.meta["val"]) for n in nodes} for _ in range(count)]
        ours = [partial(region, *(tensors[n] for n in cluster.inputs)) for tensors in sets]
        theirs = [partial(_called, product, tensors) for tensors in sets]
        first, second = _times([ours, theirs])
    return first, second


def _called(node: Node, tensors: dict[Node, torch.Tensor]) -> object:
    """What torch computes for a node."""
    args, kwargs = map_arg((node.args, node.kwargs), lambda x: tensors.get(x, x.meta.get("val")))
    target: Any = node.target
    return target(*args, **kwargs)


def _drawn(example: torch.Tensor) -> torch.Tensor:
    """A tensor of random elements that lies as an example."""
    sizes, strides = [hint(x) for x in example.shape], [hint(x) for x in example.stride()]
    tensor = torch.empty_strided(sizes, strides, dtype=example.dtype, device=example.device)
    span = 1 + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
    memory = tensor.as_strided((span,), (1,))
    draw = torch.randn(span, device=example.device)
    memory.copy_(draw if example.dtype.is_floating_point else draw > 0)
    return tensor


def _times(contenders: Sequence[Sequence[Callable[[], object]]]) -> list[float]:
    """The median time of a call of each in microseconds; they take turns."""
    cuda: Any = torch.cuda
    for calls in contenders:
        for call in calls:
            call()
    times = [list[float]() for _ in contenders]
    for _ in range(ROUNDS):
        for calls, one in zip(contenders, times, strict=True):
            begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
            cuda._sleep(SLEEP)
            begin.record()
            for number in range(max(EACH, len(calls))):
                calls[number % len(calls)]()
            end.record()
            end.synchronize()
            one.append(1e3 * begin.elapsed_time(end) / max(EACH, len(calls)))
    return [statistics.median(one) for one in times]
