"""Graphs that inductor compiles, with calls of our kernels among its own: `torch.ops.warploom.region`. inductor plans
the memory of the graph, fuses what is between the products, writes one flat program of all launches, and captures it in
CUDA graphs where that is asked for. A compiled part is one call in that program."""

from __future__ import annotations

import logging
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from threading import Thread
from typing import Any, NamedTuple, TypeAlias, cast
from unittest.mock import patch

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from .attention import arguments_of, simplify_masks
from .builder import CONVERSIONS
from .clusters import Cluster, is_product
from .experts import SORTS
from .graphs import recorded
from .options import ATTENTIONS, FLEXIBLE, GRADIENTS, aten, is_attention
from .part import REGIONS, MemoryOrder, Region, regions_in, warploom
from .views import VIEWS, has_no_gaps, hint, is_tensor, order_of, transpose_pads


def _prepare() -> None:
    """Does what the first call need not wait for: digests of sources, which keys of torch's cache have, take 0.5 s."""
    import_module("torch._inductor.codecache").torch_key()
    import_module("torch._inductor.runtime.triton_compat").triton_key()
    with suppress(ImportError):
        import_module("cuda.bindings.driver")


if find_spec("triton") is not None:  # before the first call, as torch.compile imports it for its own backend
    import_module("torch._inductor.compile_fx")
    Thread(target=_prepare, daemon=True).start()


log = logging.getLogger(__name__)


class GraphParts(NamedTuple):
    """The compiled parts that a graph of inductor calls, whether it is the forward, the backward or the inference
    graph, why it may not be recorded as a CUDA graph, whether it draws random numbers, and in training the results that
    users see. A graph has them as an attribute, so that those that torch keeps on disk have them too."""

    regions: tuple[Region, ...]
    name: str
    obstacle: str
    draws: bool
    shown: tuple[int, ...] | None


Say: TypeAlias = Callable[[str], object]

PARTS: ContextVar[tuple[GraphParts, Say] | None] = ContextVar("parts", default=None)
"""The parts of the graph that is being compiled, and what is told whether it is recorded; None where it is not ours."""


def compile_whole(
    module: GraphModule, examples: Sequence[Any], replace: Callable[[GraphModule, str], Say], mode: str | None,
    key: str,
) -> Callable[..., Any]:  # fmt: skip
    """A graph compiled by inductor; `replace` puts calls of compiled parts into each graph of ATen operations, of which
    it is told whether it is the forward, the backward or the inference graph. `key` is of what it does with a graph:
    torch's cache of graphs with their gradients is asked before anything is traced, unless the key is empty."""
    inductor: Any = import_module("torch._inductor")
    compiler: Any = import_module("torch._inductor.compile_fx")
    functorch: Any = import_module("torch._functorch.config")
    autograd: Any = import_module("torch._functorch.aot_autograd")
    pool: Any = import_module("torch._inductor.async_compile")
    threads, capture = inductor.config.compile_threads, autograd.aot_stage1_graph_capture
    _teach_inductor()

    def captured(*args: Any, **settings: Any) -> Any:
        """Torch's cache has no such graph: processes start that compile for triton, or this one compiles all of it."""
        inductor.config.compile_threads = threads
        pool.maybe_warm_pool()
        return capture(*args, **settings)

    def compile_inner(graph: GraphModule, inputs: Sequence[Any], *args: Any, **settings: Any) -> Any:
        name = "backward" if settings.get("is_backward") else "inference" if settings.get("is_inference") else "forward"
        say = replace(graph, name)
        visible = graph.graph.output_node().meta.get("user_visible_output_idxs", ()) if name == "forward" else ()
        parts, draws = tuple(regions_in(graph)), any(map(_draws, graph.graph.nodes))
        shown = None if name == "inference" else (*visible,)
        why = f"mode {mode!r} is inductor's" if mode else why_launched(graph)
        token = PARTS.set((GraphParts(parts, name, why, draws, shown), say))
        # What is made of parameters alone, such as norms' factors, is one kernel for several of our parts. Of changing
        # sizes inductor may refuse one ("Dynamic shape on reduction dimension is not supported", torch 2.13).
        sizes = (n for one in inputs for n in (one.shape if isinstance(one, torch.Tensor) else (one,)))
        is_joined = name == "inference" and not any(isinstance(n, torch.SymInt) for n in sizes)
        try:
            with inductor.config.patch({"combo_kernels": True} if is_joined else {}):
                return compiler.compile_fx_inner(graph, inputs, *args, **settings)
        finally:
            PARTS.reset(token)

    patches: dict[str, Any] = inductor.list_mode_options(mode) if mode else {}
    patches["aot_inductor.metadata"] = {**inductor.config.aot_inductor.metadata, "warploom": key}  # in torch's keys
    patches["joint_custom_post_pass"] = inductor.config.joint_custom_post_pass or _pads_once()
    asked = functorch.patch(enable_autograd_cache=functorch.enable_autograd_cache and bool(key))
    looked_up = patch.object(autograd, "aot_stage1_graph_capture", captured)
    with asked, looked_up, inductor.config.patch(compile_threads=1):  # what the cache has needs no processes
        return compiler.compile_fx(module, examples, inner_compile=compile_inner, config_patches=patches)


@cache
def _teach_inductor() -> None:
    """How a call of a compiled part is written, and what is done with a graph before it is called."""
    lowering: Any = import_module("torch._inductor.lowering")
    lowering.register_lowering(warploom.region.default, type_promotion_kind=None)(_call)
    kind: Any = import_module("torch._inductor.output_code").CompiledFxGraph
    make, complete = kind.__init__, kind.post_compile

    def made(graph: Any, *args: Any, **settings: Any) -> None:
        make(graph, *args, **settings)
        graph.warploom = (PARTS.get() or (None,))[0]

    def completed(graph: Any, *args: Any) -> None:
        found: GraphParts | None = getattr(graph, "warploom", None)
        parts, say = PARTS.get() or (found, partial(log.info, f"warploom: {found and found.name} graph: %s"))
        _complete(graph, parts, say, partial(complete, graph, *args)) if parts else complete(graph, *args)

    kind.__init__, kind.post_compile = made, completed


def _complete(graph: Any, parts: GraphParts, say: Say, complete: Callable[[], None]) -> None:
    """Gives a compiled graph its parts, and what records it in CUDA graphs; `complete` is torch's."""
    compiler: Any = import_module("torch._inductor.compile_fx")
    kernels: Any = import_module("torch._inductor.select_algorithm").extern_kernels
    devices = [*graph.device_idxs] if {*graph.device_types} == {"cuda"} else []
    for kept in parts.regions:
        region = REGIONS.setdefault(kept.name, kept)  # or another process compiled it
        setattr(kernels, kept.name, region.into if len(region.layout.results) == 1 else region)
    options = {"draws": parts.draws, "say": say}
    trees, compiler.cudagraphify = compiler.cudagraphify, partial(recorded, compiler.cudagraphify, **options)
    try:
        complete()
    finally:
        compiler.cudagraphify = trees
    why = parts.obstacle or graph.disabled_cudagraphs_reason
    if why or len(devices) != 1:
        if not graph.fx_kwargs.get("cudagraphs"):  # or inductor records it
            say(f"not recorded: {why or 'its tensors are not on one GPU'}")
        return
    plain, static = graph.current_callable, graph.fx_kwargs.get("static_input_idxs") or ()
    told = {"mutated_input_idxs": graph.mutated_input_idxs, "device_index": devices[0]}
    graph.current_callable = recorded(None, plain, static, parts.shown, **options, **told)


def _draws(node: Node) -> bool:
    """Whether a node draws random numbers, as dropout does."""
    seeded = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    return seeded and bool(not is_attention(node) or arguments_of(node).get("dropout_p"))


WITHOUT_WAITING = frozenset(
    {aten._grouped_mm.default, aten.cumsum.default, aten.topk.default, aten.convolution_backward.default}
    | {operator.getitem, *SORTS, *ATTENTIONS, *GRADIENTS}
)
"""What torch computes for inductor without waiting for the GPU, among others, as `histc` between two numbers."""


def why_launched(module: GraphModule) -> str:
    """Why a graph is not known to wait neither for the GPU nor for other processes, "" if it is. A recording that fails
    leaves the generator of random numbers as if it were being recorded."""
    lowering: Any = import_module("torch._inductor.lowering")
    utilities: Any = import_module("torch._inductor.utils")
    calls = [node for node in module.graph.nodes if node.op == "call_function"]
    kernels = lowering.lowerings.keys() - lowering.fallbacks | WITHOUT_WAITING
    waiting = [n for n in calls if (n.target not in kernels or "c10d" in str(n.target)) and not _counts_between(n)]
    own = (REGIONS[str(node.args[1])] for node in calls if node.target is warploom.region.default)
    if not all(type(region) is Region for region in own):
        return "option 'check' waits for the GPU"
    node = next(iter(waiting), None) or utilities.get_first_incompatible_cudagraph_node(module)
    return f"{node.target} may wait for the GPU, or for other processes" if node else ""


def _counts_between(node: Node) -> bool:
    """Whether a node counts elements between two numbers, and so does not read between which they lie."""
    return node.target is aten.histc.default and len({*cast("Sequence[float]", node.args[2:4])}) > 1


@cache
def _pads_once() -> Any:
    """A pass on a graph with its gradients: inductor pads matrices of odd sizes for each product that reads them, and
    here products of a matrix and of its transpose read one padded form. Masks that follow from no input go before the
    passes are cut apart."""
    passes: Any = import_module("torch._inductor.custom_graph_pass")
    patterns: Any = import_module("torch._inductor.pattern_matcher")

    class PadsOnce(passes.CustomGraphPass):
        def __call__(self, graph: Graph) -> None:
            patterns.stable_topological_sort(graph)  # torch's patterns leave nodes before what they read
            transpose_pads(graph)
            simplify_masks(graph)

        def uuid(self) -> object:
            return "warploom: pads once, masks"

    return PadsOnce()


def _call(inputs: Sequence[Any], name: str) -> list[Any]:
    """The call in inductor's IR. Operands get the memory order of the kernel. A single result is a buffer of inductor,
    several are allocated by the call."""
    ir: Any = import_module("torch._inductor.ir")
    virtualized: Any = import_module("torch._inductor.virtualized")
    operands, realized = list[Any](), ir.ExternKernel.realize_input
    for x, order in zip(inputs, REGIONS[name].layout.orders, strict=True):  # its producer writes it so, or it is copied
        laid_out = ir.ExternKernel.require_exact_strides(realized(x), order.strides(x.get_size()))
        operands.append(realized(laid_out))
    called = {"inputs": operands, "python_kernel_name": f"extern_kernels.{name}"}
    likes = virtualized.V.graph.current_node.meta["val"]
    lying = [[ir.convert_shape_to_inductor(x) for x in (like.shape, like.stride())] for like in likes]
    layouts = [ir.FixedLayout(x.device, x.dtype, *sizes) for x, sizes in zip(likes, lying, strict=True)]
    if len(layouts) == 1:
        return [ir.TensorBox.create(ir.ExternKernelOut(layout=layouts[0], **called))]
    packed = ir.ExternKernelAlloc(layout=ir.MultiOutputLayout(device=likes[0].device), **called)
    packed.outputs = [ir.MultiOutput(layout, packed, [(list, at)]) for at, layout in enumerate(layouts)]
    return [ir.TensorBox.create(out) for out in packed.outputs]


# Whether a part of a graph runs as our kernel or is left to inductor: on a GPU both are measured, equal parts once.
#
# What inductor would do for a product is torch's own kernel, and then what follows it in a kernel of its own. That is
# measured for the product, and reckoned by the bytes that fusion saves for the rest, as inductor may fuse it further.

MARGIN, LESS = 0.97, 25.0
"""Our kernel takes at most this part of inductor's time, or so many microseconds less, so that equal ones are left to
inductor."""

BANDWIDTH, LAUNCH = 2.6e6, 2.0
"""Bytes that pointwise kernels move in a microsecond on an H100, what copies reach there; and microseconds from the end
of a kernel to the next one's start, with their ramps."""

ROUNDS, EACH, MAX_SETS, ROTATED, SLEEP, MOST = 5, 6, 8, 1 << 27, 2_000_000, 100_000_000
"""Times that calls are measured, calls each time, and sets of operands, of so many bytes at most: more than L2 has, so
that inputs of the graph, which are weights, are not read from it. Cycles that the GPU waits: first, most."""

BRIEF, MAX_ROUNDS, SEEN, ALIKE = 300.0, 20, 3, 1.02
"""Microseconds of calls that are timed as one. The most times that calls are measured, as they are until the shortest
time was seen so often, that of others being within this factor: what else runs on the GPU takes turns with them."""


MEASURED: dict[tuple[str, int], tuple[bool, str]] = {}
"""What was judged, by the name of a part and the bytes that fusion saves."""


def judged(cluster: Cluster, region: Region) -> tuple[bool, str]:
    """Whether a part of a graph runs as a kernel of ours, and the measured times. On the CPU, where these are
    interpreted, each does, and so does FlexAttention, of which torch has no kernel before inductor writes one."""
    for node in (*cluster.inputs, *cluster.results):  # a size that depends on data is an UnsupportedError
        _bytes(node)
    if cluster.last.meta["val"].device.type != "cuda" or str(cluster.core.target) in FLEXIBLE:
        return True, ""
    saved, launches = _saved(cluster)
    if (key := (region.name, int(saved))) not in MEASURED:
        MEASURED[key] = _judged(cluster, region, saved / BANDWIDTH + launches * LAUNCH)
    return MEASURED[key]


def _judged(cluster: Cluster, region: Region, rest: float) -> tuple[bool, str]:
    ours, products = _measured(cluster, region)
    theirs = products + rest
    reckoned = f" and {rest:.1f} us for what follows" if rest else ""
    text = f"measured {ours:.1f} us, torch's kernel {products:.1f} us{reckoned}"
    return ours <= max(MARGIN * theirs, theirs - LESS), text


def _saved(cluster: Cluster) -> tuple[float, int]:
    """Bytes that inductor moves in addition when a cluster is its own, and kernels that it launches."""
    if cluster.joined:
        saved, launches = zip(*map(_saved, cluster.joined), strict=True)
        return sum(saved), sum(launches)
    converted = [node for node in cluster.weights if node.target in CONVERSIONS]
    read = {x for node in cluster.weights for x in node.all_input_nodes}.difference(cluster.weights)
    weights = float(sum(map(_bytes, [*converted, *read])))
    if cluster.last is cluster.core or is_attention(cluster.core):
        return weights, len(converted)
    # What our kernel reads beside the operands of products, the kernel that follows them reads.
    of_products = {x for node in (*cluster.products, *cluster.weights) for x in node.all_input_nodes}
    side_bytes = sum(_bytes(node) for node in cluster.inputs if node not in of_products)
    intermediate, result = float(sum(map(_bytes, cluster.products))) + side_bytes, _bytes(cluster.last)
    users = _users(cluster.last)
    if not _fused(users):
        return weights + intermediate + result, len(converted) + 1
    # What inductor fuses on with the user of the result: it reads the product there, and stores the result for others.
    stored = 2.0 if len(users) == 1 else 1.0
    return weights + intermediate + result - stored * result, len(converted)


def _bytes(node: Node) -> int:
    example = node.meta["val"]
    return math.prod(map(hint, example.shape)) * example.element_size()


def _users(node: Node) -> list[Node]:
    """What reads the result of a node, through views."""
    users = [_users(user) if user.target in VIEWS else [user] for user in node.users]
    return [user for several in users for user in several]


def _fused(users: Sequence[Node]) -> set[Node]:
    """Those users of a result that inductor computes in one kernel with it. It calls other kernels for products, and
    what waits for these is another kernel too: a residual is added behind the products of its block. Sums of columns,
    such as gradients of biases, read what it has stored."""
    apart = list(filter(_is_apart, users))
    late = set(apart)
    while apart:
        fresh = {*apart.pop().users} - late
        late |= fresh
        apart += fresh
    return {*users} - late


def _is_apart(node: Node) -> bool:
    """Whether inductor calls a kernel that it does not write for a node, or one that reduces dimensions other than the
    last one."""
    if node.target is aten.sum.dim_IntList:
        rank = node.all_input_nodes[0].meta["val"].dim()
        return not any(d % rank == rank - 1 for d in cast("Sequence[int]", node.args[1]) or range(rank))
    others = (aten.convolution.default, warploom.region.default)
    return node.op != "call_function" or is_product(node) or is_attention(node) or node.target in others


def _measured(cluster: Cluster, region: Region) -> tuple[float, float]:
    """Microseconds of our kernel, and of torch's for the products alone."""
    product, products = cluster.core, cluster.products or (cluster.core,)
    dispatch: Any = import_module("torch.utils._python_dispatch")
    device = cluster.last.meta["val"].device
    plain = torch.autocast("cuda", enabled=False)
    with dispatch._disable_current_modes(), torch.no_grad(), plain, torch.cuda.device(device):
        operands = [x for each in products for x in each.all_input_nodes if is_tensor(x)]
        nodes = list(dict.fromkeys([*cluster.inputs, *operands]))
        size = sum(map(_bytes, nodes))
        computed = {n: _drawn(n.meta["val"], padded(n.meta["val"])) for n in nodes if n.op != "placeholder"}
        if product.target is aten._grouped_mm.default:  # each row of any group, for equal ones have no half empty tiles
            (ends,) = (n for n in nodes if n.meta["val"].dtype == torch.int32)
            a, b = (n.meta["val"] for n in product.all_input_nodes[:2])
            count = hint(ends.meta["val"].shape[0])
            groups = torch.randint(count, (hint(a.shape[0 if b.dim() == 3 else 1]),), device=device)
            computed[ends] = torch.bincount(groups, minlength=count).cumsum(0).int()
        count = max(1, min(MAX_SETS, ROTATED // max(1, size)))
        sets = [{n: computed[n] if n in computed else _drawn(n.meta["val"]) for n in nodes} for _ in range(count)]
        orders = tuple(zip(cluster.inputs, region.layout.orders, strict=True))
        arguments = [[_lying(tensors[n], order) for n, order in orders] for tensors in sets]
        theirs = [[_call_of(each, tensors) for tensors in sets] for each in products]
        first, *others = _times([[partial(region, *operands) for operands in arguments], *theirs])
    operands = zip(cluster.inputs, arguments[0], strict=True)
    copied = [n for n, x in operands if x is not sets[0][n] and _lies_already(n, cluster)]
    return first + sum(2 * _bytes(n) / BANDWIDTH + LAUNCH for n in copied), sum(others)


PADDED, LINE = 1024, 128
"""Strides of more elements than this are multiples of so many bytes in what inductor computes."""


def padded(example: torch.Tensor) -> list[int]:
    """The strides that inductor gives a tensor that it computes."""
    strides, step, line = [hint(x) for x in example.stride()], 1, LINE // example.element_size()
    for d in reversed(order_of(example).order if has_no_gaps(example) else ()):
        strides[d] = -(-step // line) * line if step > PADDED else step
        step = strides[d] * hint(example.shape[d])
    return strides


def _lies_already(node: Node, cluster: Cluster) -> bool:
    """Whether inductor copies an operand that lies in another way, for it is an input or others read it, too."""
    while node.target in VIEWS:
        node = node.all_input_nodes[0]
    return node.op == "placeholder" or not {*_users(node)}.issubset(cluster.nodes)


def _call_of(node: Node, tensors: Mapping[Node, torch.Tensor]) -> Callable[[], object]:
    """The call of a node with these tensors."""
    args, kwargs = map_arg((node.args, node.kwargs), lambda x: tensors.get(x, x.meta.get("val")))
    return partial(cast("Any", node.target), *args, **kwargs)


def _lying(tensor: torch.Tensor, order: MemoryOrder) -> torch.Tensor:
    """The tensor, or one of its sizes that lies as a kernel takes it: inductor copies inputs of a graph to such, and
    has others written so."""
    return tensor if order.holds(tensor.shape, tensor.stride()) else _drawn(tensor, order.strides(tensor.shape))


def _drawn(example: torch.Tensor, strides: Sequence[Any] = ()) -> torch.Tensor:
    """A tensor of random elements, zeros of integers, with the shape of an example, and its strides or others."""
    sizes, steps = (list(map(hint, each)) for each in (example.shape, strides or example.stride()))
    return import_module("torch._dynamo.testing").rand_strided(sizes, steps, example.dtype, example.device)


def _times(contenders: Sequence[Sequence[Callable[[], object]]]) -> list[float]:
    """The shortest time of a call of each in microseconds, by turns; where one is seldom seen, the mean."""
    for call in (call for calls in contenders for call in calls):
        call()
    seen, sleep, turn, settled = [list[float]() for _ in contenders], SLEEP, 0, False
    while turn < ROUNDS or (turn < MAX_ROUNDS and not settled):
        for calls, times in zip(contenders, seen, strict=True):
            spans, waited = _spans(calls, min(times, default=0.0), sleep)
            if waited and sleep < MOST:  # the GPU, for the host
                sleep *= 2
                break
            times += spans
        else:
            turn += 1
            settled = all(sorted(x)[min(SEEN, len(x)) - 1] <= ALIKE * min(x) for x in seen)
    return [min(x) if settled else sum(x) / len(x) for x in seen]


def _spans(calls: Sequence[Callable[[], object]], least: float, sleep: int) -> tuple[list[float], bool]:
    """Microseconds of a call, where as few as take `BRIEF` are timed together; whether the GPU waited for the host."""
    cuda: Any = torch.cuda
    count = max(EACH, len(calls))
    together = min(count, math.ceil(BRIEF / least)) if least else count
    marks = [*range(0, count, together), count]
    events = [cuda.Event(enable_timing=True) for _ in marks]
    cuda._sleep(sleep)
    events[0].record()
    for (begin, end), event in zip(pairwise(marks), events[1:], strict=True):
        for number in range(begin, end):
            calls[number % len(calls)]()
        event.record()
    waited = events[0].query()
    events[-1].synchronize()
    spans = zip(pairwise(marks), pairwise(events), strict=True)
    return [1e3 * a.elapsed_time(b) / (end - begin) for (begin, end), (a, b) in spans], waited
