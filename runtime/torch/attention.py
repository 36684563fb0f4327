"""Attention: operations of ATen that compute softmax(scale Q K^T + mask) V, or its gradients, as traced functions of
simpler ones, and the masks that they need not read."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeAlias, cast

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx.node import map_arg

from .options import (
    ATTENTIONS,
    FLEXIBLE,
    SEQUENCES,
    aten,
    expression,
    is_attention,
    is_gradient,
    is_operator,
    numbered,
    pytree,
    traced,
)
from .part import warploom
from .scalars import HALVES, UnsupportedError, shape_of
from .views import hint, is_tensor


def most_kernels(node: Node) -> int:
    """How many kernels a fused attention has at most, without those that look for the keys of each tile: of gradients
    one for sums of rows, and one for each result; of sequences one for the numbers of sequences each of queries and of
    keys; of gradients of FlexAttention one for the logarithms."""
    own = arguments_of(node)
    numbers = len({own["cu_seq_q"], own["cu_seq_k"]}) if str(node.target) in SEQUENCES else 0
    return (4 + ("joint" in own) if is_gradient(node) else 1) + numbers


def results_of(node: Node) -> tuple[Node, ...]:
    """The results of attention that are used, in order, without the state of dropout: the first two are none."""
    if isinstance(node.meta["val"], torch.Tensor):
        return (node,)
    count = len(node.meta["val"]) if is_gradient(node) else 2
    users: list[Any] = [user for user in node.users if user.target is operator.getitem and user.users]
    return tuple(sorted((user for user in users if user.args[1] < count), key=lambda user: user.args[1]))


def arguments_of(node: Node) -> dict[str, Any]:
    """The arguments of attention by the names of its schema, without the state of dropout."""
    target: Any = node.target
    if str(target) in FLEXIBLE:
        graphs: Any = node.graph.owning_module
        named = dict(zip(FLEXIBLE[str(target)], cast("Any", node.args), strict=True))
        own = {**named, "mask_mod": named["block_mask"][-1]}
        read = ((name, x) for name, x in own.items() if name in (*FUNCTIONS, *READ))
        return {name: getattr(graphs, x.target) if name in FUNCTIONS else x for name, x in read}
    schema = target._schema.arguments
    passed = {**dict(zip((each.name for each in schema), node.args, strict=False)), **node.kwargs}
    own = {each.name.rstrip("_"): passed.get(each.name, each.default_value) for each in schema}
    return {name: own[name] for name in READ if name in own}


READ = (
    *("query", "key", "value", "attn_mask", "attn_bias", "grad_out", "out", "logsumexp", "lse"),
    *("dropout_p", "is_causal", "scale"),
    *("cu_seq_q", "cu_seq_k", "window_size", "seqused_k", "block_table"),
    *("grad_logsumexp", "buffers", "mask_buffers"),
)
"""Names of the arguments on which results depend where nothing is dropped."""

FUNCTIONS = "score_mod", "joint", "mask_mod"
"""Functions of FlexAttention: that of a score, the gradient of its argument for that of its result, and whether a key
counts. What blocks a mask has follows from the last, as in eager mode."""


Results: TypeAlias = Sequence[Callable[[], torch.Tensor]]
"""What computes each result of an operation."""


def taken_apart(node: Node) -> tuple[Graph, Sequence[Node]]:
    """What computes those results of an attention, or of its gradients, that are used, in simpler operations: a graph,
    and the nodes that its inputs are. An UnsupportedError if it is not lowered."""
    own, likes = arguments_of(node), pytree.tree_leaves(node.meta["val"])
    operands = [x for x in dict.fromkeys(pytree.tree_leaves(own)) if is_tensor(x)]
    used: list[Any] = [0] if len(likes) == 1 else [user.args[1] for user in results_of(node)]
    if own.get("dropout_p"):
        raise UnsupportedError("dropout is not lowered")
    if "mask_mod" in own and _is_constant(own["mask_mod"]):
        blocks: Any = node.args[FLEXIBLE[str(node.target)].index("block_mask")]
        if blocks[3].meta["val"].shape[-2:] != (1, 1):
            raise UnsupportedError("blocks of keys without a function that says which keys count are not lowered")

    def computed(*tensors: torch.Tensor) -> list[torch.Tensor]:
        values = dict(zip(operands, tensors, strict=True))
        each: Any = map_arg(cast("Any", own), lambda x: values.get(x, x.meta.get("val")))
        results = (_of_sequences if str(node.target) in SEQUENCES else _of_heads)(each, likes, is_gradient(node))
        if max(used) >= len(results):
            raise UnsupportedError("the gradient of a mask is not lowered")
        return [results[at]() for at in used]

    with likes[0].fake_mode, torch.no_grad():
        return traced(computed, [x.meta["val"] for x in operands], {}), operands


def _of_heads(own: Mapping[str, Any], likes: Sequence[torch.Tensor], trains: bool) -> Results:
    attention = _Attention(own, trains)
    if not trains:
        return attention.results(likes)
    return attention.gradients(own["grad_out"], own["out"], own["logsumexp"], likes, own.get("grad_logsumexp"))


def _of_sequences(own: Mapping[str, Any], likes: Sequence[torch.Tensor], trains: bool) -> Results:
    """What computes attention of (tokens, heads, columns), where a query sees the keys of its own sequence, and the
    logarithms of sums, of (heads, tokens); or the gradients."""
    ends, window = (own["cu_seq_q"], own["cu_seq_k"]), tuple(own["window_size"] or (-1, -1))
    causal = bool(own["is_causal"]) or window == (-1, 0)
    if own.get("seqused_k") is not None or own.get("block_table") is not None or window not in ((-1, -1), (-1, 0)):
        raise UnsupportedError("windows, pages and lengths of sequences that follow one another are not lowered")
    if causal and ends[0] is not ends[1]:
        raise UnsupportedError("a causal mask of sequences that have other keys than queries is not lowered")
    tokens = own["query"].shape[0], own["key"].shape[0]
    if tokens[0] == 1:
        raise UnsupportedError("a sequence of one query among others is not lowered")
    heads = {x: own[x].unsqueeze(0).permute(SEQUENCE) for x in ("query", "key", "value", "grad_out", "out") if x in own}
    attention = _Attention({**heads, "is_causal": causal, "scale": own["scale"]}, trains)
    of_rows = warploom.begun(ends[0], tokens[0])
    attention.numbers = [of_rows, of_rows if ends[0] is ends[1] else warploom.begun(ends[1], tokens[1])]
    of_heads = [like.unsqueeze(0).permute(SEQUENCE) if like.dim() > 2 else like.unsqueeze(0) for like in likes]
    if not trains:
        result, logarithm = attention.results(of_heads)
        return [lambda: result().permute(SEQUENCE).squeeze([0]), lambda: logarithm().squeeze([0])]
    made = attention.gradients(heads["grad_out"], heads["out"], own["lse"].unsqueeze(0), of_heads)
    return [lambda gradient=gradient: gradient().permute(SEQUENCE).squeeze([0]) for gradient in made]


SEQUENCE = (0, 2, 1, 3)
"""The dimensions of (batch, heads, rows, columns) as those of sequences that follow one another, and back."""


class _Attention:
    """Scores scale Q K^T + mask of (batch, heads, rows, columns), and what is computed of them; several heads of Q may
    share one of K and V.

    A letter names a loop: the batch, heads of K, heads of Q in a group that shares one, rows of Q, rows of K, the depth
    of Q and K, columns of V (`e`). Tensors run along the loops with more than one index, so that products are of these.
    """

    def __init__(self, own: Mapping[str, Any], trains: bool) -> None:
        q, k, v = (own[name] for name in ("query", "key", "value"))
        self.mask, self.causal = own.get("attn_mask", own.get("attn_bias")), bool(own.get("is_causal"))
        if q.dim() != 4:
            raise UnsupportedError(f"attention of {q.dim()} dimensions is not lowered; 4 are")
        if self.causal and q.shape[2] == 1:
            raise UnsupportedError("attention of one query to its first key alone is not lowered")
        (batch, heads, _, depth), (batches, shared, *_) = shape_of(q), shape_of(k)
        if heads != shared and not (isinstance(heads, int) and isinstance(shared, int) and heads % shared == 0):
            raise UnsupportedError(f"attention of {heads} heads that share {shared} is not lowered")
        if not isinstance(depth, int):
            raise UnsupportedError("attention of heads of dynamic size is not lowered")
        self.half, self.wide = v.dtype, torch.float64 if v.dtype == torch.float64 else torch.float32
        self.scale, self.device = depth**-0.5 if own["scale"] is None else own["scale"], q.device
        group = 1 if heads == shared else heads // shared
        self.sizes = {"b": q.shape[0], "h": k.shape[1], "g": group, "r": q.shape[2], "k": k.shape[2]}
        # Of the loops around the keys those with more than one index; of those that rows of Q run along, one at least.
        loops = "".join(x for x in "bhgr" if expression(self.sizes[x]) != 1 or (trains and x == "r"))
        self.loops = loops if {*"rg"} & {*loops} else f"{loops}r"
        self.of_keys = "".join(x for x in "bh" if x in self.loops)
        self.q, self.k, self.v = self.of_rows(q, "d"), self._along(k, "bhkd"), self._along(v, "bhke")
        self.numbers: Sequence[torch.Tensor] = ()
        """Numbers of the sequences of rows of Q, and of keys, of which each row sees its own."""
        buffers = {"mask_mod": "mask_buffers"}
        functions = (x for x in FUNCTIONS if x in own and not (x == "mask_mod" and _is_constant(own[x])))
        self.functions = {x: _Function(own[x], own[buffers.get(x, "buffers")], self) for x in functions}
        if self.functions and batch != batches:
            raise UnsupportedError("sequences of Q that share K and V are not lowered")

    @property
    def masked(self) -> bool:
        """Whether a row may have no keys, but for functions: by a mask, or as a sequence without keys has queries."""
        return self.mask is not None or len({*map(id, self.numbers)}) > 1

    def results(self, likes: Sequence[torch.Tensor]) -> Results:
        """What computes softmax(scores) V, and the logarithm of the sum of each row, in memory as tensors are."""
        scores = self._scores(self._product)
        largest = scores.amax(-1)
        above = (scores - largest.unsqueeze(-1)).exp()
        total = above.sum(-1)

        def result() -> torch.Tensor:
            weights = above / total.unsqueeze(-1)
            if self.masked or "mask_mod" in self.functions:  # a row without keys is 0, as in eager mode
                weights = weights.masked_fill(largest.unsqueeze(-1).expand_as(weights) == -math.inf, 0.0)
            return self._sum(weights, self.v, f"{self.loops}k,{self.of_keys}ke->{self.loops}e", likes[0])

        def logarithm() -> torch.Tensor:
            self._check_rows(likes[1])
            order = _order(likes[1], self.loops)
            written = largest.permute(order) + total.permute(order).log()
            if self.masked:  # 0 of a row without keys, with which gradients are 0, torch's own too
                written = written.masked_fill(largest.permute(order) == -math.inf, 0.0)
            if self.functions:
                written = written * (1 / math.log(2))
            made = self._joined(written.permute([order.index(d) for d in range(len(order))]), self.loops)
            return made.unsqueeze(3) if likes[1].dim() > 3 else made  # as cuDNN's are

        return [result, logarithm]

    def gradients(
        self, slope: torch.Tensor, out: torch.Tensor, logarithm: torch.Tensor, likes: Sequence[torch.Tensor],
        of_logarithm: torch.Tensor | None = None,
    ) -> Results:  # fmt: skip
        """What computes the gradients of Q, K and V for that of the result, and of the logarithm of base 2, in memory
        as tensors are: the sums of the exponentials of scores are computed before, the scores again."""
        self._check_rows(logarithm)
        logarithm = logarithm.squeeze([3]) if logarithm.dim() > 3 else logarithm
        if self.functions:  # of base 2 before; 0 of a row without keys, whose weights are 0 with any number
            logarithm = (logarithm * math.log(2)).masked_fill(logarithm == -math.inf, 0.0)
        delta = (slope.to(self.wide) * out.to(self.wide)).sum(-1)
        if of_logarithm is not None:
            delta = delta - of_logarithm * (1 / math.log(2))
        rows, loops, of_keys = self.of_rows(slope, "e"), self.loops, self.of_keys
        product = self._product
        weights = (self._scores(product) - self.of_rows(logarithm).unsqueeze(-1)).exp()
        slopes = warploom.contract(rows, self.v, f"{loops}e,{of_keys}ke->{loops}k", [], dtype=self.wide)
        scaled = weights * (slopes - self.of_rows(delta).unsqueeze(-1))
        if joint := self.functions.get("joint"):
            scaled = joint(scaled, score=product * self.scale)
        scaled = scaled * self.scale
        return [
            lambda: self._sum(scaled, self.k, f"{loops}k,{of_keys}kd->{loops}d", likes[0]),
            lambda: self._sum(scaled, self.q, f"{loops}k,{loops}d->{of_keys}kd", likes[1]),
            lambda: self._sum(weights, rows, f"{loops}k,{loops}e->{of_keys}ke", likes[2]),
        ]

    def _check_rows(self, logarithm: torch.Tensor) -> None:
        if expression(logarithm.shape[2]) != expression(self.sizes["r"]):
            raise UnsupportedError("sums of rows that torch pads to a multiple are not lowered")

    @property
    def _product(self) -> torch.Tensor:
        return warploom.contract(self.q, self.k, f"{self.loops}d,{self.of_keys}kd->{self.loops}k", [], dtype=self.wide)

    def _scores(self, product: torch.Tensor) -> torch.Tensor:
        """scale Q K^T, with a mask added or where it is true, and minus infinity where a key comes after the query."""
        scores = product * self.scale
        if self.mask is not None:
            mask = self.of_places(self.mask)
            is_bool = mask.dtype == torch.bool
            scores = torch.where(mask, scores, -math.inf) if is_bool else scores + mask.to(self.wide)
        if self.causal:
            scores = scores.masked_fill(self.index("k") > self.index("r"), -math.inf)
        if score := self.functions.get("score_mod"):
            scores = score(score=scores)
        if kept := self.functions.get("mask_mod"):
            scores = torch.where(kept(), scores, -math.inf)
        if self.numbers:
            of_rows, of_keys = self.numbers
            scores = scores.masked_fill(of_rows.unsqueeze(1) != of_keys.unsqueeze(0), -math.inf)
        return scores

    def index(self, *loops: str) -> torch.Tensor:
        """The index along a loop, as scores are broadcast with it; of a head, of their shape, by those of its group and
        in it."""
        index: Any = aten.full([], 0, dtype=torch.int32, device=self.device)
        for loop in filter(f"{self.loops}k".__contains__, loops):
            own = numbered(self.sizes[loop], self.device, torch.int32)
            for _ in f"{self.loops}k".partition(loop)[2]:
                own = own.unsqueeze(-1)
            index = self.expanded(index) * self.sizes[loop] + self.expanded(own) if index.dim() else own
        return index

    def expanded(self, x: torch.Tensor) -> torch.Tensor:
        """In the shape of scores: what has a dimension of one element is not computed with them."""
        return x.expand([self.sizes[loop] for loop in f"{self.loops}k"])

    def of_places(self, x: torch.Tensor) -> torch.Tensor:
        """A mask of (batch, heads, rows, keys), or what is broadcast to that, along the loops of scores."""
        batch, shared, group, rows = (self.sizes[loop] for loop in "bhgr")
        return self.of_rows(x.expand(batch, shared * group, rows, x.shape[-1]), "k")

    def of_rows(self, x: torch.Tensor, columns: str = "") -> torch.Tensor:
        """(batch, heads, rows, columns), or (batch, heads, rows), along the loops of Q."""
        if "h" in self.loops and "g" in self.loops:
            return self._along(cast("Any", x).unflatten(1, (self.sizes["h"], self.sizes["g"])), f"bhgr{columns}")
        return self._along(x, f"b{'g' if 'g' in self.loops else 'h'}r{columns}")

    def _along(self, x: torch.Tensor, loops: str) -> torch.Tensor:
        """A tensor without dimensions of one element that are no loops."""
        ones = [d for d, loop in enumerate(loops) if loop not in f"{self.loops}kde"]
        return x.squeeze(ones) if ones else x

    def _sum(self, a: torch.Tensor, b: torch.Tensor, loops: str, like: torch.Tensor) -> torch.Tensor:
        """A product of 16-bit floats as (batch, heads, rows, columns), in memory as a tensor is."""
        if like.stride()[3] != 1:
            raise UnsupportedError("a result whose columns are apart is not lowered")
        along = loops.partition("->")[2]
        return self._joined(warploom.contract(a.to(self.half), b, loops, _order(like, along), dtype=like.dtype), along)

    def _joined(self, out: torch.Tensor, along: str) -> torch.Tensor:
        """A result along some loops as (batch, heads, rows, columns), or (batch, heads, rows)."""
        if "h" in along and "g" in along:
            at = along.index("h")
            out, along = out.flatten(at, at + 1), along.replace("g", "")
        for at, loops in enumerate(("b", "hg", "rk")):
            out = out if {*loops} & {*along} else out.unsqueeze(at)
        return out


class _Function(Interpreter):
    """A function of FlexAttention, computed of all scores at once; floats are f32, however torch traced them."""

    def __init__(self, module: GraphModule, buffers: Sequence[Any], attention: _Attention) -> None:
        super().__init__(module)
        self.buffers, self.attention, self.extra_traceback = buffers, attention, False
        self.places: Sequence[torch.Tensor] = ()

    def __call__(self, *slopes: torch.Tensor, score: torch.Tensor | None = None) -> torch.Tensor:
        """What it is of scores, where it reads them, and of the gradient of its result."""
        self.places = [self.attention.expanded(self.attention.index(*loops)) for loops in ("b", "hg", "r", "k")]
        scores = [] if score is None else [score]
        made = pytree.tree_leaves(self.run(*scores, *self.places, *slopes, *self.buffers))
        result, *others = (x for x in made if x is not None)
        if others:
            raise UnsupportedError("the gradient of a tensor that scores are a function of is not lowered")
        return result

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Computes an operation; a tensor with dimensions is read at the batch, the head, the query, the key alone."""
        if target is aten.index.Tensor:
            return self._read(*args)
        read = [x for x in pytree.tree_leaves((args, kwargs)) if any(x is buffer for buffer in self.buffers)]
        if any(not isinstance(x, torch.Tensor) or x.dim() for x in read):
            raise UnsupportedError(ELSEWHERE)
        args, kwargs = pytree.tree_map(_widened, (args, kwargs))
        return target(*args, **kwargs)

    def _read(self, buffer: Any, at: Sequence[Any]) -> torch.Tensor:
        """A tensor at some of the places, as it is broadcast to scores."""
        where = [place for x in at for place, index in enumerate(self.places) if x is index]
        sizes, own = self.attention.sizes, getattr(buffer, "shape", ())
        expected = [(sizes["b"], sizes["h"] * sizes["g"], sizes["r"], sizes["k"])[place] for place in where]
        if len({*where}) < len(at) or list(map(expression, own)) != list(map(expression, expected)):
            raise UnsupportedError(ELSEWHERE)
        if buffer.dtype == torch.int64:
            raise UnsupportedError("scores are a function of integers of 64 bits; of those of 32 they may be")
        buffer = buffer.permute(sorted(range(len(where)), key=where.__getitem__))
        for place in {*range(4)}.difference(where):
            buffer = buffer.unsqueeze(place)
        return self.attention.of_places(buffer)


def _is_constant(function: GraphModule) -> bool:
    """Whether it is the same everywhere, as a mask is that leaves all keys."""
    return not any(node.users for node in function.graph.find_nodes(op="placeholder"))


ELSEWHERE = "scores are a function of a tensor that is not read at each of their places"


def _widened(x: Any) -> Any:
    """A tensor, or a type, of which 16-bit floats are f32."""
    if isinstance(x, torch.Tensor):
        return x.to(torch.float32) if x.dtype in HALVES else x
    return torch.float32 if isinstance(x, torch.dtype) and x in HALVES else x


def _order(like: torch.Tensor, along: str) -> list[int]:
    """The places of loops in the order of a result's memory, where heads and rows may change places."""
    rows_first = hint(like.shape[2]) > 1 and hint(like.stride()[2]) > hint(like.stride()[1])
    return [along.index(loop) for loop in ("brkhgde" if rows_first else "bhgrkde") if loop in along]


# Masks and copies that attention of inference need not read.

MAX_ELEMENTS = 1 << 26
"""Elements of a tensor that is computed to know a mask."""

DROPS = -65504.0
"""What torch adds for cuDNN where a mask is false, in bf16 -65536; other masks have less there."""

MASKS = "attn_mask", "attn_bias"
"""What operations call them."""


def simplify_masks(graph: Graph) -> None:
    """Removes masks, in place, that keep all keys, and makes attention causal whose mask is just that: a kernel then
    reads no mask, and no keys that it drops. Masks that follow from an input stay."""
    modes, attentions = import_module("torch.utils._python_dispatch"), list(filter(is_attention, graph.nodes))
    with modes._disable_current_modes(), torch.no_grad():
        values = _fixed(graph, (x for node in attentions for x in map(arguments_of(node).get, MASKS)))
        kinds = {node: _kind(mask) for node, mask in values.items()}
    for node in attentions:
        own = arguments_of(node)
        name = next((n for n in MASKS if own.get(n) in kinds), "")
        if not name or own["is_causal"] or len(kept := shape_of(own[name].meta["val"])) < 2:
            continue
        rows, keys = (shape_of(own[n].meta["val"])[-2] for n in ("query", "key"))
        if (keeps := kinds[own[name]]) == "all" or (keeps == "causal" and kept[-2:] == (rows, keys) and rows == keys):
            schema = node.target._schema.arguments
            passed = {each.name: x for each, x in zip(schema, node.args, strict=False)} | node.kwargs
            passed |= {name: None, "is_causal": keeps == "causal"}
            node.args = tuple(passed.get(each.name, each.default_value) for each in schema if not each.kwarg_only)
            node.kwargs = {each.name: passed[each.name] for each in schema if each.kwarg_only and each.name in passed}
    graph.eliminate_dead_code()


def read_in_place(graph: Graph) -> None:
    """Removes copies of keys and values, in place, where attention can read what is copied: rows without gaps."""
    for node in graph.nodes:
        for x in (arguments_of(node)[name] for name in ("key", "value") if node.target in ATTENTIONS):
            if x.target is aten.clone.default and x.args[0].meta["val"].stride()[-1] == 1:
                node.replace_input_with(x, x.args[0])
    graph.eliminate_dead_code()


def _fixed(graph: Graph, masks: Iterable[object]) -> dict[Node, torch.Tensor]:
    """The values of those masks that follow from no input."""
    values, read = dict[Node, torch.Tensor](), {x for x in masks if isinstance(x, Node)}
    sought = {*read}
    for node in reversed(graph.nodes):
        read.update(node.all_input_nodes if node in read else ())
    for node in graph.nodes:
        if node in read and _is_fixed(node) and values.keys() >= {*node.all_input_nodes}:
            args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
            of_module = node.op == "get_attr"  # a number that torch made a tensor of
            values[node] = getattr(graph.owning_module, node.target) if of_module else node.target(*args, **kwargs)
    return {node: x for node, x in values.items() if node in sought}


def _kind(mask: torch.Tensor) -> str:
    """Whether a mask keeps all keys, or those of causal attention, or "" for others: it is true where it keeps a key,
    or is a number that is added, of which those up to `DROPS` drop a key."""
    mask = mask.as_strided([n if step else 1 for n, step in zip(mask.shape, mask.stride(), strict=True)], mask.stride())
    kept = mask if mask.dtype == torch.bool else mask == 0
    if bool(kept.all()):
        return "all"
    dropped = ~kept if mask.dtype == torch.bool else mask <= DROPS
    is_causal = bool((kept | dropped).all()) and bool((kept == torch.ones_like(kept).tril()).all())
    return "causal" if is_causal else ""


def _is_fixed(node: Node) -> bool:
    """Whether a node is a constant, or an operation that makes one tensor of static size without random numbers."""
    if node.op == "get_attr":
        return type(getattr(node.graph.owning_module, str(node.target), None)) is torch.Tensor
    if not (node.op == "call_function" and is_operator(node.target) and is_tensor(node)):
        return False
    sizes = shape_of(node.meta["val"])
    random = torch.Tag.nondeterministic_seeded in cast("Any", node.target).tags
    is_small = node.target is aten.expand.default or node.meta["val"].numel() <= MAX_ELEMENTS
    return not random and all(isinstance(n, int) for n in sizes) and is_small
