"""The backend `warploom` of `torch.compile`.

torch captures graphs of ATen operations, forward and backward; of these, products of matrices with the pointwise
operations behind them become kernels, and the rest stays with torch: eager, or inductor.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

import torch
from torch.fx import GraphModule, Node

from ..errors import ArgumentError, WarploomError
from ..kernel import Kernel
from .fusion import Cluster, clusters, why_left, with_weights
from .options import BackendOptions, read
from .region import Region, RegionText, check_precision, kernel_for, write
from .report import CompiledPart, Explanation, LeftPart, place_of
from .rest import hand_over
from .sinking import is_tensor, sink_views
from .types import UnsupportedError
from .views import SPLITS, VIEWS

log = logging.getLogger(__name__)

Callee: TypeAlias = Callable[..., Any]


def warploom(
    module: GraphModule,
    examples: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callee:
    """The backend function: `torch.compile(..., backend="warploom", options={...})` calls it with each graph.
    `BackendOptions` describes the options.

    Raises:
        ArgumentError: for an unknown option, or a mode.
    """
    if mode is not None:
        raise ArgumentError(f"the backend warploom has no modes, got {mode!r}; it takes options")
    chosen = read(options)
    common: Any = import_module("torch._dynamo.backends.common")
    compilers = {
        f"{short}_compiler": partial(compile_graph, name=name, options=chosen)
        for short, name in (("fw", "forward"), ("bw", "backward"), ("inference", "inference"))
    }
    return common.aot_autograd(**compilers)(module, examples)


def compile_graph(module: GraphModule, examples: Sequence[Any], *, name: str, options: BackendOptions) -> Callee:
    """A graph of ATen operations as a function that takes a list of its inputs."""
    guards: Any = import_module("torch._guards")
    aot: Any = import_module("torch._functorch.aot_autograd")
    mode = guards.detect_fake_mode(examples)
    if mode is not None:
        sink_views(module.graph, mode)
    explanation = replace_clusters(module, name, options)
    _report(explanation, options)
    module.recompile()
    if options.rest == "inductor":
        hand_over(module)
    return aot.make_boxed_func(module.forward)


def replace_clusters(module: GraphModule, name: str, options: BackendOptions) -> Explanation:
    """Puts a call of a kernel in the place of each cluster that can be compiled, in place."""
    compiled: list[CompiledPart] = []
    reasons: dict[Node, str] = {}
    found = list(clusters(module.graph))
    taken = {node for cluster in found for node in cluster.nodes}
    for number, cluster in enumerate(found):
        for part in dict.fromkeys((with_weights(cluster, taken), cluster, cluster.product)):
            try:
                written, kernel = _compiled(part, options)
            except (UnsupportedError, WarploomError) as error:
                reasons |= dict.fromkeys(part.nodes, str(error))
                continue
            compiled.append(_part(part, written, kernel))
            _replace(module, part, Region(written, kernel), f"warploom_{number}")
            break
        else:
            _check_schedule(cluster.product, options, reasons)
    module.graph.eliminate_dead_code()
    left = [_left(node, reasons) for node in module.graph.nodes if _computes(node)]
    return Explanation(name, tuple(compiled), tuple(left), options.rest)


def _check_schedule(product: Cluster, options: BackendOptions, reasons: Mapping[Node, str]) -> None:
    """Refuses fields of a schedule without which a product would have been compiled.

    Raises:
        ArgumentError: naming the fields, the operation and why it cannot have them.
    """
    if not options.schedule:
        return
    try:
        _compiled(product, replace(options, schedule={}))
    except (UnsupportedError, WarploomError):
        return
    (node,) = product.nodes
    fields = ", ".join(f"{name}={value}" for name, value in options.schedule.items())
    place = f" ({at})" if (at := place_of(node)) else ""
    reason = reasons[node].removeprefix("schedule: ")
    raise ArgumentError(f"option 'schedule': {node.target}{place} cannot have {fields}: {reason}")


def _compiled(cluster: Cluster, options: BackendOptions) -> tuple[RegionText, Kernel]:
    examples: list[torch.Tensor] = [node.meta["val"] for node in cluster.product.inputs]
    check_precision(examples, drops_bits=options.drops_bits)
    written = write(cluster.nodes, cluster.inputs)
    kernel = kernel_for(written.text, cluster.last.meta["val"].device, options)
    if cluster.weights and not all(kernel.schedules.values()):
        raise UnsupportedError("kernels do not convert this operand while they load it")
    return written, kernel


def _replace(module: GraphModule, cluster: Cluster, region: Region, name: str) -> None:
    module.add_submodule(name, region)
    with module.graph.inserting_before(cluster.last):
        call = module.graph.call_module(name, cluster.inputs)
    call.meta = dict(cluster.last.meta)
    cluster.last.replace_all_uses_with(call)
    for node in reversed(cluster.nodes):
        module.graph.erase_node(node)


def _part(cluster: Cluster, written: RegionText, kernel: Kernel) -> CompiledPart:
    described = tuple(f"@{name}: {schedule or 'elementwise'}" for name, schedule in kernel.schedules.items())
    names = tuple(node.name for node in cluster.nodes)
    return CompiledPart(names, tuple(str(node.target) for node in cluster.nodes), written.text, described)


def _computes(node: Node) -> bool:
    several = isinstance(node.meta.get("val"), tuple | list) and node.target not in SPLITS
    one = is_tensor(node) and node.target not in (*VIEWS, operator.getitem)
    return node.op == "call_function" and (one or several)


def _left(node: Node, reasons: Mapping[Node, str]) -> LeftPart:
    reason = reasons[node] if node in reasons else why_left(node)
    return LeftPart(node.name, str(node.target), reason.removeprefix(f"{node.target}: "), place_of(node))


def _report(explanation: Explanation, options: BackendOptions) -> None:
    log.info("%s", explanation)
    for part in explanation.compiled:
        log.debug("%s:\n%s", ", ".join(part.nodes), part.mlir)
    if callable(options.explain):
        options.explain(explanation)
    elif options.explain:
        print(explanation)


torch_backend = warploom

__all__ = ["compile_graph", "torch_backend", "warploom"]
