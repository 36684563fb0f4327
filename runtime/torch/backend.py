"""The backend `warploom` of `torch.compile`: what is compiled together, and what inductor takes."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

import torch
from torch.fx import Graph, GraphModule, Node

from ..base.errors import ArgumentError, WarploomError
from ..kernel.kernel import Kernel
from .builder import CONVERSIONS, is_pointwise, obstacle
from .mutations import reinplace
from .options import BackendOptions, CompiledPart, Explanation, LeftPart, place_of, read
from .products import PRODUCTS
from .region import ImportedRegion, Region, check_precision, kernel_for, write
from .scalars import ELEMENTS, UnsupportedError, shape_of
from .torch_api import aten
from .views import SPLITS, VIEWS, is_row_major, is_tensor, sink_views

# Which nodes of a graph are compiled together: a product, pointwise operations on its result alone, and before it the
# conversion of 8-bit weights that it alone multiplies.

NARROW = frozenset({torch.float8_e4m3fn, torch.float8_e5m2})
"""Types that numbers are not converted to in kernels, for targets before sm_89 cannot."""

STORED = frozenset({torch.int8, torch.uint8})
MULTIPLIED = frozenset({torch.bfloat16, torch.float16})
"""Types of weights in memory that a kernel converts while it loads them, and those that it converts them to."""

TURNS = frozenset({aten.t.default, aten.permute.default, aten.transpose.int, aten.numpy_T.default})


@dataclass(frozen=True)
class Cluster:
    """Nodes in the order of the graph; the last one's result is used elsewhere. `weights` are those of them that
    convert an operand of the product."""

    nodes: tuple[Node, ...]
    weights: tuple[Node, ...] = ()

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Nodes whose tensors the cluster reads."""
        operands = (x for node in self.nodes for x in node.all_input_nodes if is_tensor(x) and x not in self.nodes)
        return tuple(dict.fromkeys(operands))

    @property
    def product(self) -> Cluster:
        """The product alone."""
        return Cluster((next(filter(is_product, self.nodes)),))

    @property
    def last(self) -> Node:
        return self.nodes[-1]


def is_product(node: Node) -> bool:
    """Whether a node multiplies matrices."""
    return node.op == "call_function" and node.target in PRODUCTS


def clusters(graph: Graph) -> Iterator[Cluster]:
    """The clusters of a graph, each with as many nodes as it can have; none has a node of another."""
    order = {node: number for number, node in enumerate(graph.nodes)}
    taken: set[Node] = set()
    for node in graph.nodes:
        if is_product(node) and node not in taken:
            members = _grown(node, taken)
            taken |= members
            yield Cluster(tuple(sorted(members, key=order.__getitem__)))


def with_weights(cluster: Cluster, taken: Collection[Node]) -> Cluster:
    """The cluster with the nodes that convert its operands from 8-bit integers, none of which is taken."""
    (product,) = cluster.product.nodes
    conversions = [node for operand in product.all_input_nodes for node in _converting(operand, taken)]
    weights = tuple(dict.fromkeys(conversions))
    return Cluster((*weights, *cluster.nodes), weights)


def _converting(node: Node, taken: Collection[Node]) -> list[Node]:
    """What makes floats of 8-bit integers for one node alone: a conversion, with arithmetic and turns behind it."""
    if node.op != "call_function" or not is_tensor(node) or len(node.users) != 1 or node in taken:
        return []
    operands = [x for x in node.all_input_nodes if is_tensor(x)]
    if node.target in CONVERSIONS:
        (source,) = operands
        kinds = source.meta["val"].dtype, node.meta["val"].dtype
        return [node] if kinds[0] in STORED and kinds[1] in MULTIPLIED and not obstacle(node) else []
    if node.target in TURNS:
        before = _converting(operands[0], taken)
    elif is_pointwise(node.target) and _takes_tensors_on(node, node.meta["val"].device) and not obstacle(node):
        same = [x for x in operands if shape_of(x.meta["val"]) == shape_of(node.meta["val"])]
        before = [n for x in same for n in _converting(x, taken)]
    else:
        return []
    return [*before, node] if before else []


def _grown(product: Node, taken: set[Node]) -> set[Node]:
    members, last = {product}, product
    while len(last.users) == 1:
        user = next(iter(last.users))
        if user in taken or not follows(user, product):
            break
        members |= {user, *_operand_chain(user, members | taken)}
        last = user
    return members


def follows(node: Node, product: Node) -> bool:
    """Whether a node computes each element of its result where a product computes one."""
    result, other = node.meta.get("val"), product.meta["val"]
    if node.op != "call_function" or not is_pointwise(node.target) or not isinstance(result, torch.Tensor):
        return False
    if shape_of(result) != shape_of(other) or result.dtype not in ELEMENTS or result.dtype in NARROW:
        return False
    place = result.device == other.device and is_row_major(result)
    return place and _takes_tensors_on(node, other.device) and not obstacle(node)


def why_left(node: Node) -> str:
    """Why a node is in no cluster."""
    if is_product(node):
        return "its result has no elements"
    if not is_pointwise(node.target):
        return reason_for(node.target)
    dtype = node.meta["val"].dtype
    if dtype in NARROW:
        return f"conversions to {dtype} are left to torch, for targets before sm_89 have none"
    return obstacle(node) or "it follows no product that is compiled"


OTHERS: Mapping[str, str] = {
    "conv": "a convolution",
    "_scaled_dot_product": "attention as one operation",
    "_grouped_mm": "products of groups",
    "_scaled_grouped_mm": "products of groups",
}
"""Work for tensor cores that graphs keep, by how the names of its operations begin."""


def reason_for(target: object) -> str:
    """Why an operation that is neither a product nor pointwise is left."""
    name = str(target).removeprefix("aten.")
    for start, what in OTHERS.items():
        if name.startswith(start):
            return f"{what} has no form here; written as products of matrices it is compiled"
    return "it is neither a product of matrices nor a pointwise operation"


def _takes_tensors_on(node: Node, device: torch.device) -> bool:
    """Whether what a node takes beside tensors on a device, or numbers in them, is known while compiling."""
    return all(is_tensor(x) and x.meta["val"].device == device for x in node.all_input_nodes)


def _operand_chain(node: Node, others: set[Node]) -> Sequence[Node]:
    """Pointwise operations that only another operand of a node takes."""
    chain: list[Node] = []
    for operand in node.all_input_nodes:
        if operand not in others and len(operand.users) == 1 and follows(operand, node):
            chain += [operand, *_operand_chain(operand, others)]
    return chain


# What is not compiled, handed to inductor.


class _Compiled(torch.nn.Module):
    """A compiled function as a module."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *inputs: object) -> object:
        return self._function(*inputs)


def hand_over(module: GraphModule) -> None:
    """Lets inductor compile each part of a graph between calls of kernels, in place.

    Parts that compute nothing, but views and sizes, stay as they are.
    """
    split: Any = import_module("torch.fx.passes.split_module")
    inductor: Any = import_module("torch._inductor")
    part_of: dict[Node, int] = {}
    number = 0
    for node in module.graph.nodes:
        if node.op == "call_module":
            number += 1
            part_of[node] = number
            number += 1
        else:
            part_of[node] = number
    parts = split.split_module(module, module, part_of.__getitem__, keep_original_order=True)
    for node in parts.graph.nodes:
        if node.op == "call_module":
            part = parts.get_submodule(node.target)
            if any(n.op == "call_function" and is_tensor(n) and n.target not in VIEWS for n in part.graph.nodes):
                examples = [n.meta["val"] for n in part.graph.nodes if n.op == "placeholder"]
                with _apart():
                    parts.set_submodule(node.target, _Compiled(inductor.compile(part, examples)))
    for name, part in parts.named_children():
        module.add_submodule(name, part)
    module.graph = parts.graph


@contextmanager
def _apart() -> Generator[None]:
    """A compilation within another, which must not take the strides of its results for those of the outer graph."""
    guards: Any = import_module("torch._guards")
    if guards.TracingContext.try_get() is None:
        yield
        return
    with guards.TracingContext.patch(output_strides=None):
        yield


# The backend `warploom` of `torch.compile`.
#
# torch captures graphs of ATen operations, forward and backward; of these, products of matrices with the pointwise
# operations behind them become kernels, and the rest stays with torch: eager, or inductor.

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
    partitioners: Any = import_module("torch._functorch.partitioners")
    aot = common.aot_autograd(
        **compilers,
        partition_fn=partitioners.min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    return aot(module, examples)


def compile_graph(module: GraphModule, examples: Sequence[Any], *, name: str, options: BackendOptions) -> Callee:
    """A graph of ATen operations as a function that takes a list of its inputs."""
    guards: Any = import_module("torch._guards")
    fx: Any = import_module("torch.fx.graph")
    mode = guards.detect_fake_mode(examples)
    if mode is not None:
        sink_views(module.graph, mode)
    explanation = replace_clusters(module, name, options)
    _report(explanation, options)
    module.recompile()
    if options.rest == "inductor":
        hand_over(module)
    # Takes a list and empties it, so that a tensor is freed behind its last use.
    module.graph.set_codegen(fx._BoxedCodeGen())
    module.recompile()
    return _boxed(module.forward)


def _boxed(function: Callee) -> Callee:
    """A function of a list as torch calls the functions that backends return."""

    def call(args: list[Any]) -> Any:
        return function(args)

    call._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]
    return call


def replace_clusters(module: GraphModule, name: str, options: BackendOptions) -> Explanation:
    """Puts a call of a kernel in the place of each cluster that can be compiled, in place."""
    compiled: list[CompiledPart] = []
    reasons: dict[Node, str] = {}
    grown = list(clusters(module.graph))
    taken = {node for cluster in grown for node in cluster.nodes}
    for number, cluster in enumerate(grown):
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
    reinplace(module.graph)
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


def _compiled(cluster: Cluster, options: BackendOptions) -> tuple[ImportedRegion, Kernel]:
    examples: list[torch.Tensor] = [node.meta["val"] for node in cluster.product.inputs]
    check_precision(examples, drops_bits=options.drops_bits)
    written = write(cluster.nodes, cluster.inputs)
    kernel = kernel_for(written.module, cluster.last.meta["val"].device, options)
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


def _part(cluster: Cluster, written: ImportedRegion, kernel: Kernel) -> CompiledPart:
    described = tuple(f"@{name}: {schedule or 'elementwise'}" for name, schedule in kernel.schedules.items())
    names = tuple(node.name for node in cluster.nodes)
    return CompiledPart(names, tuple(str(node.target) for node in cluster.nodes), str(written.module), described)


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
