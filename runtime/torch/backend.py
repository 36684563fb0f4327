"""The backend `warploom` of `torch.compile`: what is compiled together, and who runs the rest."""

from __future__ import annotations

import logging
import operator
import pickle
from base64 import b85encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from itertools import islice
from os import PathLike
from typing import Any, TypeAlias, cast

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from ..base.errors import ArgumentError, WarploomError
from ..base.explanation import CompiledPart, Explanation, LeftPart
from ..kernel.kernel import Kernel
from .attention import arguments_of, most_kernels, read_in_place, simplify_masks
from .clusters import Cluster, clusters, cones, is_product, joined, narrowed, why_left, with_weights
from .decompositions import recurrent, simpler
from .experts import choose_largest, count_orders, sums_in_f32
from .importer import CONSTANTS, ImportedRegion, compile_together, decomposed, kernel_for, region_of, write
from .inductor import compile_whole, judged
from .options import ATTENTIONS, FLEXIBLE, BackendOptions, aten, expression, is_attention, place_of, pytree, read
from .part import KERNELS_FILE, REGIONS, Region, regions_in
from .part import warploom as warploom_operators
from .products import check_precision, sequences_as_images
from .scalars import HALVES, UnsupportedError
from .views import SPLITS, VIEWS, has_channels_last, is_tensor, sink_views

log = logging.getLogger(__name__)

Callee: TypeAlias = Callable[..., Any]


def warploom(
    module: GraphModule, examples: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Callee:
    """The backend function: `torch.compile(..., backend="warploom", options={...})` calls it with each graph.
    `BackendOptions` describes the options.

    Raises:
        ArgumentError: for an unknown option, or a mode.
    """
    chosen = read(options)
    if chosen.rest_for(examples) == "inductor":
        key = "" if log.isEnabledFor(logging.INFO) else chosen.key
        replace_in = partial(_replace_for_inductor, options=chosen)
        with recurrent():
            return compile_whole(module, examples, replace_in, mode or chosen.mode, key)
    if mode or chosen.mode:
        raise ArgumentError(
            f"mode {mode or chosen.mode!r} is one of inductor's, which runs the rest of a graph on a GPU where triton "
            "is installed, or with options={'rest': 'inductor'}; here the rest is eager"
        )
    common: Any = import_module("torch._dynamo.backends.common")
    names = {"fw": "forward", "bw": "backward", "inference": "inference"}
    compilers = {f"{key}_compiler": partial(compile_graph, name=names[key], options=chosen) for key in names}
    cut = import_module("torch._functorch.partitioners").min_cut_rematerialization_partition
    settings = {"decompositions": simpler(), "partition_fn": cut, "keep_inference_input_mutations": True}
    with recurrent():
        return common.aot_autograd(**compilers, **settings)(module, examples)


def _replace_in(module: GraphModule, name: str, *, options: BackendOptions, rest: str) -> Explanation:
    """Puts calls of compiled parts into a graph of ATen operations, of which `rest` compiles the others, and reports
    them, and into the graphs that its operations call, such as branches, which are reported before."""
    for body in _bodies(module):
        _replace_in(body, name, options=options, rest=rest)
    of_attention = (simplify_masks, read_in_place) if any(map(is_attention, module.graph.nodes)) else ()
    for rewrite in (*of_attention, sequences_as_images) if name == "inference" else ():
        rewrite(module.graph)
    sink_views(module.graph, inference=name == "inference")
    if rest == "inductor":
        for rewrite in (sums_in_f32, count_orders, choose_largest):
            rewrite(module.graph)
    explanation = replace_clusters(module, name, options, rest)
    module.recompile()
    log.info("%s", explanation)
    log.debug("%s", "\n".join(f"{', '.join(part.nodes)}:\n{part.mlir}" for part in explanation.compiled))
    if callable(options.explain):
        options.explain(explanation)
    elif options.explain:
        print(explanation.table if options.explain == "table" else explanation)
    return explanation


def _replace_for_inductor(module: GraphModule, name: str, *, options: BackendOptions) -> Callable[[str], None]:
    """Does so for inductor. Returns what is told how calls of the graph run."""
    explanation = _replace_in(module, name, options=options, rest="inductor")

    def say(text: str) -> None:
        explanation.calls.append(text)
        log.info(line := f"warploom: {name} graph: {text}")
        if options.explain and not callable(options.explain):
            print(line)

    return say


def compile_graph(module: GraphModule, examples: Sequence[Any], *, name: str, options: BackendOptions) -> Callee:
    """A graph of ATen operations as a function of a list of inputs. Parts that are not compiled stay eager."""
    fx: Any = import_module("torch.fx.graph")
    # Takes a list and empties it, so that a tensor is freed behind its last use.
    module.graph.set_codegen(fx._BoxedCodeGen())
    _replace_in(module, name, options=options, rest="eager")
    call: Any = partial(module.forward)
    call._boxed_call = True
    return call


def replace_clusters(module: GraphModule, name: str, options: BackendOptions, rest: str) -> Explanation:
    """Replaces each cluster that compiles by a call of its kernel, in place. `rest` is the backend of the other
    nodes."""
    replacing = _Replacing(module.graph, options, rest, name)
    order = {node: number for number, node in enumerate(module.graph.nodes)}
    places = {node.name: number for node, number in order.items()}
    widest = list(clusters(module.graph))
    taken = {node for cluster in widest for node in cluster.nodes}
    grown = [narrowed(cluster) if rest == "inductor" else cluster for cluster in widest]
    first = [with_weights(cluster, taken) for cluster in grown]
    together = joined(first, order)
    choices = list[list[Cluster]]()
    for part, cluster in zip(first, grown, strict=True):
        single = replace(cluster, nodes=tuple(n for n in cluster.nodes if n not in cluster.products[1:]))
        choices.append(list(dict.fromkeys([together.get(part, part), part, cluster, single, cluster.product])))
    for parts in replacing.each_of(choices):
        _check_schedule(parts[-1], options, replacing.reasons)
    if rest == "eager":  # inductor fuses what is between the products with less on the host
        replacing.options = replace(options, schedule={})  # whose fields are of products and attention
        expected, largest = set(replacing.gone), list[Sequence[Cluster]]()
        for node in filter(_computes, reversed(module.graph.nodes)):
            for part in () if node in expected else islice(cones(node, expected, order), 1):
                largest.append((part,))
                expected.update(part.nodes)
        replacing.each_of(largest)
        for node in reversed(module.graph.nodes):
            if _computes(node) and node not in replacing.gone:
                next(filter(replacing.replaced, cones(node, replacing.gone, order)), None)  # the first that compiles
    module.graph.eliminate_dead_code()
    left = list[LeftPart]()
    for node in filter(_computes, module.graph.nodes):
        reason = (replacing.reasons.get(node) or why_left(node, rest)).removeprefix(f"{node.target}: ")
        left.append(LeftPart(node.name, str(node.target), reason, place_of(node)))
    compiled = sorted(replacing.compiled, key=lambda part: places[part.nodes[0]])
    return Explanation(name, tuple(compiled), tuple(left), rest)


@dataclass
class _Replacing:
    """Puts calls of kernels in the place of parts of a graph; `gone` are the nodes that were replaced, `reasons` say
    why others could not be."""

    graph: Graph
    options: BackendOptions
    rest: str
    name: str
    compiled: list[CompiledPart] = field(default_factory=list[CompiledPart])
    reasons: dict[Node, str] = field(default_factory=dict[Node, str])
    gone: set[Node] = field(default_factory=set[Node])
    written: dict[str, ImportedRegion] = field(default_factory=dict[str, ImportedRegion])
    """Parts of the graph by their structure."""

    def each_of(self, choices: Sequence[Sequence[Cluster]]) -> list[Sequence[Cluster]]:
        """Replaces of each list of parts the first that compiles and is not slower than torch's kernels. The first of
        all lists are compiled together, then the second of those that are left, and so on. Returns the lists that are
        left."""
        left = list(choices)
        for number in range(max(map(len, choices), default=0)):
            turn, first = [parts[number] for parts in left if number < len(parts)], dict[str, Cluster]()
            for part in filter(self._is_left, turn):
                with suppress(UnsupportedError, WarploomError):
                    first.setdefault(self._written(part).text, part)

            def measure(text: str, first: Mapping[str, Cluster] = first) -> None:
                with suppress(UnsupportedError, WarploomError):
                    self._chosen(first[text])

            if first:
                regions = [self._written(part) for part in first.values()]
                compile_together(regions, turn[0].last.meta["val"].device, self.options, measure)
            done = set(filter(self.replaced, turn))
            left = [parts for parts in left if done.isdisjoint(parts)]
        return left

    def _is_left(self, part: Cluster) -> bool:
        """Whether none of its nodes is gone with another part, as one of two products that others gate is."""
        return self.gone.isdisjoint(part.nodes)

    def _written(self, part: Cluster) -> ImportedRegion:
        if (key := part.structure) not in self.written:
            self.written[key] = _written(part, self.options)
        return self.written[key]

    def _chosen(self, part: Cluster) -> tuple[Cluster, Region, str]:
        """A part with the inputs of which it reads the sizes, its compiled form, and the measured times; an
        UnsupportedError with these where inductor is faster."""
        part = replace(part, sizes=(written := self._written(part)).sizes)
        region = region_of(written, _compiled(part, written, self.options), part.label)
        faster, text = judged(part, region) if self.rest == "inductor" else (True, "")
        if not faster:
            raise UnsupportedError(text)
        return part, region, text

    def replaced(self, part: Cluster) -> bool:
        """Replaces a part, unless it does not compile or is slower than torch's kernels, or is gone with another."""
        if not self._is_left(part):
            return self.gone.issuperset(part.nodes)
        try:
            part, region, text = self._chosen(part)
        except (UnsupportedError, WarploomError) as error:
            self.reasons |= dict.fromkeys(part.nodes, str(error))
            return False
        region.name = f"{region.name}_{self.name}{len(self.compiled)}"  # packed parameters are each call's own
        kernels = tuple(f"@{name}: {schedule or 'elementwise'}" for name, schedule in region.kernel.schedules.items())
        nodes = (part.core,) if is_attention(part.core) else part.nodes
        names, operators = zip(*((node.name, str(node.target)) for node in nodes), strict=True)
        described = names, operators, self._written(part).text, kernels, text, part.label, place_of(part.last)
        self.compiled.append(CompiledPart(*described))
        self.gone |= {*part.nodes}
        _replace(self.graph, part, ComparedPart(region, part) if self.options.check else region)
        return True


APART = {torch.bfloat16: 2.0**-5, torch.float16: 2.0**-8, torch.float32: 2.0**-14, torch.float64: 2.0**-40}
"""How far a result may be from eager mode's, of the largest element: some roundings, and sums in another order."""

TF32, EXPONENT, OF_EXPONENT = 2.0**-7, 2.0**-6, 2.0**-18
"""The same for products of f32, which drop 13 bits of each operand; and how far logarithms of sums may be at most, and
how far in addition, of the largest: gradients raise them to a power again, where a distance becomes a factor."""

OF_EAGER = 4
"""How far a result may be from eager mode's where terms cancel, of eager mode's own distance from float64."""


class ComparedPart(Region):
    """A compiled part that raises an error if a result differs from what eager mode computes of the same tensors."""

    def __init__(self, region: Region, part: Cluster) -> None:
        super().__init__(region.layout, region.kernel, region.name, region.label)
        self.place, self._inputs, self._results = place_of(part.last), part.inputs, part.results
        self._multiplies, self._attends = is_product(part.core), part.core.target in ATTENTIONS
        self._calls = [(node, node.target, node.args, node.kwargs) for node in part.nodes]  # the graph loses them

    def run(self, inputs: tuple[torch.Tensor, ...], outs: Sequence[torch.Tensor], *, holds: bool = True) -> None:
        """Computes the results in `outs`, and compares them."""
        super().run(inputs, outs, holds=holds)
        for at, (out, expected) in enumerate(zip(outs, self._eager(inputs), strict=True)):
            ours, theirs = out.detach().double(), expected.detach().double()
            share = TF32 if self._multiplies and out.dtype == torch.float32 else APART.get(out.dtype, 0.0)
            finite = theirs[theirs.isfinite()].abs()
            largest = float(finite.max()) if finite.numel() else 0.0
            bound = share * largest
            if self._attends and out.dtype == torch.float32:
                bound = min(bound, EXPONENT + OF_EXPONENT * largest)
            try:
                torch.testing.assert_close(ours, theirs, rtol=0.0, atol=bound, equal_nan=True)
            except AssertionError as error:
                with suppress(AssertionError, RuntimeError):  # also of what torch does not compute in float64
                    wide = self._eager(tuple(x.double() if x.is_floating_point() else x for x in inputs), wide=True)
                    bound = OF_EAGER * float((wide[at].detach() - theirs).abs().nan_to_num(0, 0, 0).max())
                    torch.testing.assert_close(ours, theirs, rtol=0.0, atol=bound, equal_nan=True)
                    continue
                place = f" ({self.place})" if self.place else ""
                raise WarploomError(f"check: {self.label}{place} is not what eager mode computes. {error}") from error

    def _eager(self, inputs: tuple[torch.Tensor, ...], wide: bool = False) -> list[torch.Tensor]:
        """The results in eager mode, or those of a graph whose floats are all of 64 bits."""

        def widened(dtype: torch.dtype) -> torch.dtype:
            return torch.float64 if wide and dtype.is_floating_point else dtype

        values: dict[Node, Any] = dict(zip(self._inputs, inputs, strict=True))
        pairs = [pair for node, x in values.items() for pair in zip(node.meta["val"].shape, x.shape, strict=True)]
        sizes = {expression(symbol): size for symbol, size in pairs if not isinstance(symbol, int)}

        def resolved(node: Node) -> Any:
            if isinstance(node.meta["val"], torch.Tensor) and node not in values:  # the state of dropout
                return torch.zeros(node.meta["val"].shape, dtype=node.meta["val"].dtype, device=inputs[0].device)
            size = values[node] if node in values else expression(node.meta["val"])
            return int(size.subs(sizes)) if hasattr(size, "subs") else size

        with torch.no_grad(), torch.autocast(inputs[0].device.type, enabled=False):
            for node, target, args, kwargs in self._calls:
                args, kwargs = pytree.tree_map_only(torch.dtype, widened, map_arg((args, kwargs), resolved))
                values[node] = cast("Any", target)(*args, **kwargs)
        return [values[node] for node in self._results]


def _check_schedule(product: Cluster, options: BackendOptions, reasons: Mapping[Node, str]) -> None:
    """Refuses fields of a schedule without which a product would have been compiled, by an ArgumentError."""
    if not options.schedule:
        return
    try:
        plain = replace(options, schedule={})
        _compiled(product, _written(product, plain), plain)
    except (UnsupportedError, WarploomError):
        return
    node = product.core
    fields = ", ".join(f"{name}={value}" for name, value in options.schedule.items())
    place = f" ({at})" if (at := place_of(node)) else ""
    reason = reasons[node].removeprefix("schedule: ")
    raise ArgumentError(f"option 'schedule': {node.target}{place} cannot have {fields}: {reason}")


def _written(cluster: Cluster, options: BackendOptions) -> ImportedRegion:
    core, convolves = cluster.core, (aten.convolution.default, warploom_operators.filter_gradient.default)
    if core.target in convolves and not has_channels_last(core.meta["val"], core.all_input_nodes[0].meta["val"]):
        raise UnsupportedError(
            "expected images of static sizes, with the channels last in memory "
            "(model.to(memory_format=torch.channels_last)): launches that move them there are slower"
        )
    if is_product(core):
        check_precision([node.meta["val"] for node in cluster.product.inputs], drops_bits=options.drops_bits)
    elif is_attention(core) and (dtype := arguments_of(core)["query"].meta["val"].dtype) not in HALVES:
        raise UnsupportedError(f"attention is compiled of bf16 and f16, not of {dtype}")
    elif options.check and str(core.target) in FLEXIBLE:
        raise UnsupportedError("option 'check' has nothing to compare it with: eager mode runs no traced functions")
    return write(cluster.name, cluster.nodes, cluster.inputs, cluster.results)


def _compiled(cluster: Cluster, written: ImportedRegion, options: BackendOptions) -> Kernel:
    kernel = kernel_for(written, cluster.last.meta["val"].device, options)
    kernels = [name for name in kernel.schedules if "_spans" not in name]
    if is_attention(cluster.core) and len(kernels) > most_kernels(cluster.core):
        raise UnsupportedError("the compiler does not fuse what this attention makes of its scores")
    if len(cluster.products) > 1 and len(kernel.schedules) > 1:
        raise UnsupportedError("the compiler does not fuse the products of one matrix")
    if cluster.weights and not all(kernel.schedules.values()):
        raise UnsupportedError("kernels do not convert this operand while they load it")
    return kernel


def _replace(graph: Graph, cluster: Cluster, region: Region) -> None:
    results = cluster.results
    for part in cluster.joined:
        _move([x for x in part.inputs if x is not part.core.args[-2]], cluster.core)
    with graph.inserting_before(cluster.core if len(results) > 1 else cluster.last):
        REGIONS[region.name] = region
        call = graph.call_function(warploom_operators.region.default, (list(cluster.inputs), region.name))
        call.meta = {**cluster.last.meta, "val": tuple(node.meta["val"] for node in results)}
        for number, node in enumerate(results):
            part = graph.call_function(operator.getitem, (call, number))
            part.meta = dict(node.meta)
            node.replace_all_uses_with(part)
    for state in set(cluster.core.users).difference(results) if is_attention(cluster.core) else ():
        with graph.inserting_before(state):  # of dropout, of which there is none
            like = state.meta["val"]
            options = {"dtype": like.dtype, "device": like.device}
            state.replace_all_uses_with(graph.call_function(aten.full.default, (list(like.shape), 0), options))
        graph.erase_node(state)
    for node in reversed(cluster.nodes):
        if not node.users:
            graph.erase_node(node)


def _move(views: Iterable[Node], before: Node) -> None:
    """Moves views of inputs of the graph before a node that they come after."""
    for view in views:
        if before < view:
            _move(view.all_input_nodes, before)
            before.prepend(view)


def _bodies(module: GraphModule) -> list[GraphModule]:
    """The graphs that operations of a graph call: branches, bodies of loops, and regions, not functions of scores."""
    attributes = {node: getattr(module, str(node.target), None) for node in module.graph.find_nodes(op="get_attr")}
    called = (body for node, body in attributes.items() if not any(map(is_attention, node.users)))
    return [body for body in dict.fromkeys(called) if isinstance(body, GraphModule)]


def _computes(node: Node) -> bool:
    if any(x.op == "get_attr" and "val" not in x.meta for x in node.all_input_nodes) and not is_attention(node):
        return False
    several = isinstance(node.meta.get("val"), tuple | list) and node.target not in SPLITS
    one = is_tensor(node) and node.target not in (*VIEWS, *CONSTANTS, operator.getitem)
    return node.op == "call_function" and node.target is not warploom_operators.region.default and (one or several)


def torch_save(program: ExportedProgram, path: str | PathLike[str], **options: Any) -> Explanation:
    """Compiles a program of `torch.export.export` for inference and writes it with its kernels to a file for
    `torch_load`. Parts that are not compiled stay eager. `options` are those of the backend.

    Raises:
        ArgumentError: for an option that the backend does not have, or what is no exported program.
    """
    if not isinstance(cast("object", program), ExportedProgram):
        raise ArgumentError(f"expected a program of torch.export.export, got {type(program).__name__}")
    chosen, program = read(options), decomposed(program)
    explanation = _replace_in(program.graph_module, "inference", options=chosen, rest="eager")
    returned: Any = program.graph_module.graph.output_node().args[0]
    for output, node in zip(program.graph_signature.output_specs, returned, strict=True):
        if isinstance(node, Node):
            cast("Any", output.arg).name = node.name
    regions = regions_in(program.graph_module)
    torch.export.save(program, path, extra_files={KERNELS_FILE: b85encode(pickle.dumps(regions)).decode()})
    return explanation


torch_backend = warploom

__all__ = ["compile_graph", "torch_backend", "torch_save", "warploom"]
