"""Attention: operations of ATen that compute softmax(scale Q K^T + mask) V, or its gradients, as contractions and what
is between them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, cast

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from xdsl.dialects import arith
from xdsl.dialects.builtin import i32
from xdsl.dialects.linalg.ops import IndexOp

from ...dialect.mlir.contraction import ContractOp
from .builder import FunctionBuilder, TensorOperand, compute
from .options import aten, pytree
from .scalars import HALVES, RULES, Body, ElementValue, Size, UnsupportedError, Value, shape_of
from .views import expanded, reordered, reshape, unsqueezed

KINDS = ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")

ATTENTIONS = frozenset(
    {aten.scaled_dot_product_attention.default, *(getattr(aten, f"_scaled_dot_product_{k}").default for k in KINDS)}
)
"""Operations that are attention. All but the first have several results: the attention, for each row the logarithm of
the sum of the exponentials of its scores, and the state of dropout."""

GRADIENTS = frozenset(getattr(aten, f"_scaled_dot_product_{kind}_backward").default for kind in KINDS)
"""Operations that compute the gradients of Q, K, V and a mask."""

SEQUENCES = "torch_attn._varlen_attn.default", "torch_attn._varlen_attn_backward.default"
"""Attention of sequences that follow one another, whose ends are in memory, and its gradients; torch has them once a
module is imported."""

FLEXIBLE = {
    "flex_attention": ("query", "key", "value", "score_mod", "block_mask", "scale", "", "buffers", "mask_buffers"),
    "flex_attention_backward": (
        *("query", "key", "value", "out", "logsumexp", "grad_out", "grad_logsumexp", "score_mod", "joint"),
        *("block_mask", "scale", "", "buffers", "mask_buffers"),
    ),
}
"""FlexAttention and its gradients, with the names of their arguments: functions of a score and its place are graphs of
their own. Logarithms are those of base 2."""

Results: TypeAlias = Sequence[Callable[[], Value]]
"""What writes each result of an operation."""


def is_attention(node: Node) -> bool:
    """Whether a node is attention, or computes its gradients."""
    attention = node.target in ATTENTIONS or is_gradient(node) or str(node.target) in (*SEQUENCES, *FLEXIBLE)
    return node.op == "call_function" and attention


def is_gradient(node: Node) -> bool:
    """Whether a node computes the gradients of an attention."""
    return node.target in GRADIENTS or str(node.target) in (SEQUENCES[1], "flex_attention_backward")


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


def lower(builder: FunctionBuilder, node: Node, values: Mapping[Node, Value]) -> Results:
    """What computes the results of an attention, or of its gradients; UnsupportedError if that is not lowered."""
    own: Any = map_arg(cast("Any", arguments_of(node)), cast("Any", values).__getitem__)
    if own.get("dropout_p"):
        raise UnsupportedError("dropout is not lowered")
    if str(node.target) in SEQUENCES:
        return _of_sequences(builder, own, node.meta["val"], trains=is_gradient(node))
    attention, likes = _Attention(builder, own, trains=is_gradient(node)), node.meta["val"]
    blocks: Any = node.args[FLEXIBLE[str(node.target)].index("block_mask")] if attention.functions else None
    if blocks and "mask_mod" not in attention.functions and blocks[3].meta["val"].shape[-2:] != (1, 1):
        raise UnsupportedError("blocks of keys without a function that says which keys count are not lowered")
    if is_gradient(node):
        made = attention.gradients(own["grad_out"], own["out"], own["logsumexp"], likes, own.get("grad_logsumexp"))
        if len(made) in [user.args[1] for user in results_of(node)]:
            raise UnsupportedError("the gradient of a mask is not lowered")
        return made
    return attention.results([likes] if isinstance(likes, torch.Tensor) else likes)


def _of_sequences(
    builder: FunctionBuilder, own: Mapping[str, Any], likes: Sequence[torch.Tensor], *, trains: bool
) -> Results:
    """What writes attention of (tokens, heads, columns), where a query sees the keys of its own sequence, and the
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
    matrices = [name for name in ("query", "key", "value", "grad_out", "out") if name in own]
    heads = {name: reordered(unsqueezed(own[name], 0), (0, 2, 1, 3)) for name in matrices}
    attention = _Attention(builder, {**heads, "is_causal": causal, "scale": own["scale"]}, trains=trains)
    of_rows = _begun(builder, ends[0], tokens[0])
    attention.numbers = [of_rows, of_rows if ends[0] is ends[1] else _begun(builder, ends[1], tokens[1])]
    tensors = (like.unsqueeze(0) for like in likes)
    of_heads = [like.transpose(1, 2) if len(like.shape) > len(SEQUENCE) else like for like in tensors]
    if not trains:
        result, logarithm = attention.results(of_heads)
        return [lambda: reordered(result(), SEQUENCE), lambda: reordered(logarithm(), (1, 2))]
    made = attention.gradients(heads["grad_out"], heads["out"], unsqueezed(own["lse"], 0), of_heads)
    return [lambda gradient=gradient: reordered(gradient(), SEQUENCE) for gradient in made]


def _begun(builder: FunctionBuilder, starts: Value, tokens: Size) -> Value:
    """How many of the sequences that start somewhere have begun at each token."""

    def counted(inside: Body, elements: Sequence[ElementValue]) -> ElementValue:
        begun = RULES["le"](inside, [elements[0], inside.index(0)])
        return RULES["add"](inside, [inside.convert(begun, torch.int32), elements[1]])

    return builder.reduce(expanded(starts, (tokens, starts.shape[0])), [1], 0, counted)


SEQUENCE = (2, 1, 3)
"""The dimensions of (batch, heads, rows, columns) as those of sequences that follow one another."""

HEADS = 1
"""The dimension of heads in (batch, heads, rows, columns)."""

BATCH, SHARED, SHARING, ROW, KEY, DEPTH, COLUMN = range(7)
"""Loops: the batch, heads of K, heads of Q that share one, rows of Q, rows of K, columns of Q and K, columns of V."""


class _Attention:
    """Scores scale Q K^T + mask of (batch, heads, rows, columns), and what is computed of them; several heads of Q may
    share one of K and V."""

    def __init__(self, builder: FunctionBuilder, own: Mapping[str, Any], *, trains: bool) -> None:
        q, k, v = (own[name] for name in ("query", "key", "value"))
        mask, self.causal = own.get("attn_mask", own.get("attn_bias")), bool(own.get("is_causal"))
        if len(q.shape) != 4:
            raise UnsupportedError(f"attention of {len(q.shape)} dimensions is not lowered; 4 are")
        if self.causal and q.shape[2] == 1:
            raise UnsupportedError("attention of one query to its first key alone is not lowered")
        heads, shared = q.shape[HEADS], k.shape[HEADS]
        if heads != shared and not (isinstance(heads, int) and isinstance(shared, int) and heads % shared == 0):
            raise UnsupportedError(f"attention of {heads} heads that share {shared} is not lowered")
        if not isinstance(q.shape[3], int):
            raise UnsupportedError("attention of heads of dynamic size is not lowered")
        self.builder, self.half = builder, v.dtype
        self.wide = torch.float64 if v.dtype == torch.float64 else torch.float32
        self.scale = q.shape[3] ** -0.5 if own["scale"] is None else own["scale"]
        sharing = 1 if heads == shared else heads // shared
        self.sizes: tuple[Size, ...] = (q.shape[0], shared, sharing, q.shape[2], *k.shape[2:], v.shape[3])
        # Of the loops around the keys those with more than one index; of those that rows of Q run along, one at least.
        loops = tuple(d for d in range(KEY) if self.sizes[d] != 1 or (trains and d == ROW))
        self.loops = loops if ROW in loops or SHARING in loops else (*loops, ROW)
        self.around, self.of_keys = (*self.loops, KEY), tuple(d for d in (BATCH, SHARED) if d in self.loops)
        self.q, self.k, self.v = self._of_heads(q, DEPTH), self._of_keys(k, DEPTH), self._of_keys(v, COLUMN)
        self.mask: Value | None = mask
        self.numbers: Sequence[Value] = ()
        """Numbers of the sequences of rows of Q, and of keys, of which each row sees its own."""
        buffers = {"mask_mod": "mask_buffers"}
        self.functions = {x: _Function(self, own[x], own[buffers.get(x, "buffers")]) for x in FUNCTIONS if x in own}
        if self.functions and self.functions["mask_mod"].constant:
            del self.functions["mask_mod"]
        if self.functions and q.shape[0] != k.shape[0]:
            raise UnsupportedError("sequences of Q that share K and V are not lowered")

    def results(self, likes: Sequence[torch.Tensor]) -> Results:
        """What writes softmax(scores) V, and the logarithm of the sum of each row, in memory as tensors are."""
        scores = self._scores(self._product(self.q, self.k, self.around, self.wide))
        largest = self._reduced("maximum", scores, -math.inf)
        above = self._computed("exp", self._computed("sub", scores, largest))
        total = self._reduced("add", above, 0.0)

        def with_keys(inside: Body, x: Sequence[ElementValue]) -> ElementValue:
            """A weight, or 0 where the largest score is minus infinity: of a row without keys, as in eager mode."""
            return RULES["where"](inside, [RULES["eq"](inside, [x[1], -math.inf]), 0.0, x[0]])

        def result() -> Value:
            weights = self._computed("div", above, total)
            if self.mask is not None or "mask_mod" in self.functions:
                rows = [weights, unsqueezed(largest, len(largest.shape))]
                weights = self.builder.generic(rows, weights.shape, weights.dtype, with_keys)
            weights = self.builder.converted(weights, self.half)
            return self._sum(TensorOperand(weights, self.around), self.v, (*self.loops, COLUMN), likes[0])

        def logarithm() -> Value:
            order = _order(likes[1], self.loops)
            ordered = [reordered(value, order) for value in (largest, total)]
            self._check_rows(shape_of(likes[1]))
            written = self._computed("add", ordered[0], self._computed("log", ordered[1]))
            if self.functions:
                written = self._computed("mul", written, 1 / math.log(2))
            return self._joined(written, [self.loops[at] for at in order], shape_of(likes[1]))

        return [result, logarithm]

    def gradients(
        self, slope: Value, out: Value, logarithm: Value, likes: Sequence[torch.Tensor],
        of_logarithm: Value | None = None,
    ) -> Results:  # fmt: skip
        """What writes the gradients of Q, K and V for that of the result, and of the logarithm of base 2, in memory as
        tensors are: the sums of the exponentials of scores are computed before, the scores again."""
        self._check_rows(logarithm.shape)

        def natural(inside: Body, x: Sequence[ElementValue]) -> ElementValue:
            """Of base 2 before; 0 of a row without keys, whose weights are 0 with any number."""
            empty = RULES["eq"](inside, [x[0], -math.inf])
            return RULES["where"](inside, [empty, 0.0, RULES["mul"](inside, [x[0], math.log(2)])])

        if self.functions:
            logarithm = self.builder.generic([logarithm], logarithm.shape, logarithm.dtype, natural)
        logs, rows = self._of_heads(reordered(logarithm, range(3))).value, self._of_heads(slope, COLUMN)

        weighed = self._computed("mul", *(self.builder.converted(x, self.wide) for x in (slope, out)))
        of_rows = self._reduced("add", weighed, 0.0)
        if of_logarithm is not None:
            of_rows = self._computed("sub", of_rows, self._computed("mul", of_logarithm, 1 / math.log(2)))
        delta = self._of_heads(of_rows).value
        product = self._product(self.q, self.k, self.around, self.wide)
        weights = self._computed("exp", self._computed("sub", self._scores(product), logs))
        slopes = self._computed("sub", self._product(rows, self.v, self.around, self.wide), delta)
        scaled = self._sloped(product, self._computed("mul", weights, slopes))
        p, ds = (TensorOperand(self.builder.converted(x, self.half), self.around) for x in (weights, scaled))
        return [
            lambda: self._sum(ds, self.k, (*self.loops, DEPTH), likes[0]),
            lambda: self._sum(ds, self.q, (*self.of_keys, KEY, DEPTH), likes[1]),
            lambda: self._sum(p, rows, (*self.of_keys, KEY, COLUMN), likes[2]),
        ]

    def _check_rows(self, shape: tuple[Size, ...]) -> None:
        if shape[2] != self.sizes[ROW]:
            raise UnsupportedError("sums of rows that torch pads to a multiple are not lowered")

    def _computed(self, rule: str, first: Value, *others: Value | float) -> Value:
        """A primitive operation on elements of values and numbers, of the type and shape of the first. A value with a
        dimension less has a number for each row."""
        tensors, rank = [first, *(x for x in others if isinstance(x, Value))], len(first.shape)
        values = [x if len(x.shape) == rank else unsqueezed(x, rank - 1) for x in tensors]
        numbers = [x for x in others if not isinstance(x, Value)]
        return self.builder.generic(values, first.shape, first.dtype, lambda body, x: RULES[rule](body, [*x, *numbers]))

    def _reduced(self, rule: str, value: Value, start: float) -> Value:
        return self.builder.reduce(value, [len(value.shape) - 1], start, RULES[rule])

    def _of_heads(self, value: Value, *columns: int) -> TensorOperand:
        """(batch, heads, rows, columns) along the loops of Q, or (batch, heads, rows)."""
        rows = reordered(_split(self.builder, value, self.sizes[SHARED:ROW]), [*self.loops, *([4] if columns else [])])
        return TensorOperand(rows, (*self.loops, *columns))

    def _of_keys(self, value: Value, column: int) -> TensorOperand:
        """(batch, heads, rows, columns) along the loops of K."""
        return TensorOperand(reordered(value, [*self.of_keys, 2, 3]), (*self.of_keys, KEY, column))

    def _product(
        self, a: TensorOperand, b: TensorOperand, along: Sequence[int], dtype: torch.dtype,
        order: Sequence[int] | None = None,
    ) -> Value:  # fmt: skip
        """A product with the loops `along`, summed over the other loops of A."""
        loops = [*along, *(loop for loop in a.loops if loop not in along)]
        extents = tuple(self.sizes[loop] for loop in loops)
        operands = [self.builder.operand(value, [loops.index(x) for x in own], extents) for value, own in (a, b)]
        return self.builder.product(ContractOp, operands, extents[: len(along)], dtype, {}, order)

    def _sum(self, a: TensorOperand, b: TensorOperand, along: Sequence[int], like: torch.Tensor) -> Value:
        """The product along some loops as (batch, heads, rows, columns), in memory as a tensor is."""
        if like.stride()[3] != 1:
            raise UnsupportedError("a result whose columns are apart is not lowered")
        out = self._product(a, b, along, like.dtype, _order(like, along))
        return self._joined(out, along, shape_of(like))

    def _joined(self, out: Value, along: Sequence[int], shape: tuple[Size, ...]) -> Value:
        """A result along some loops as (batch, heads, rows, columns), or (batch, heads, rows)."""
        places = dict(zip(along, out.dims, strict=True))
        full, at = out.full, places.get(SHARED)
        if at is not None and SHARING in places:
            heads = math.prod(full.shape[at : at + 2])
            full = reshape(self.builder, full, (*full.shape[:at], heads, *full.shape[at + 2 :]))
            places = {loop: d if d is None or d <= at else d - 1 for loop, d in places.items() if loop != SHARING}
        heads, rows = (places.get(first, places.get(second)) for first, second in ((SHARED, SHARING), (ROW, KEY)))
        dims = (places.get(BATCH), heads, rows, places.get(DEPTH, places.get(COLUMN)))
        return replace(full, dims=dims[: len(shape)], shape=shape)

    def _sloped(self, product: Value, weighed: Value) -> Value:
        """The gradient of Q K^T for that of the scores."""
        if (joint := self.functions.get("joint")) is None:
            return self._computed("mul", weighed, self.scale)

        def body(inside: Body, elements: Sequence[ElementValue]) -> ElementValue:
            score, slope, *loaded = elements
            slope = joint(inside, [RULES["mul"](inside, [score, self.scale]), slope], loaded)
            return RULES["mul"](inside, [slope, self.scale])

        return self.builder.generic([product, weighed, *joint.loaded.values()], weighed.shape, weighed.dtype, body)

    def _scores(self, scores: Value) -> Value:
        """scale Q K^T, with a mask added or where it is true, and minus infinity where a key comes after the query."""
        functions = [self.functions[x] for x in ("score_mod", "mask_mod") if x in self.functions]
        masks = [] if self.mask is None else [self._mask(self.mask)]

        def body(inside: Body, elements: Sequence[ElementValue]) -> ElementValue:
            score = RULES["mul"](inside, [elements[0], self.scale])
            for mask, other in zip(masks, elements[1:], strict=False):
                if mask.dtype == torch.bool:
                    score = RULES["where"](inside, [other, score, -math.inf])
                else:
                    score = RULES["add"](inside, [score, inside.convert(other, scores.dtype)])
            if self.causal and ROW in self.loops:
                row, column = (inside.insert(IndexOp(self.around.index(loop))).result for loop in (ROW, KEY))
                after = ElementValue(inside.insert(arith.CmpiOp(column, row, "sgt")).result)
                score = RULES["where"](inside, [after, -math.inf, score])
            loaded = list(elements[1 + len(masks) :])
            for function in functions:
                own = [loaded.pop(0) for _ in function.loaded]
                made = function(inside, [score][: len(function.arguments)], own)
                score = made if function.arguments else RULES["where"](inside, [made, score, -math.inf])
            if self.numbers:
                score = RULES["where"](inside, [RULES["ne"](inside, elements[-2:]), -math.inf, score])
            return score

        numbers = [self.along(value, [place]) for place, value in enumerate(self.numbers, 2)]
        buffers = [value for function in functions for value in function.loaded.values()]
        return self.builder.generic([scores, *masks, *buffers, *numbers], scores.shape, scores.dtype, body)

    def at(self, inside: Body, place: int) -> ElementValue:
        """Appends the number of a batch, a head, a query or a key."""
        loops = ((BATCH,), (SHARED, SHARING), (ROW,), (KEY,))[place]
        numbers = [inside.index(self.around.index(loop)) for loop in loops if loop in self.around]
        if len(numbers) > 1:
            return RULES["add"](inside, [RULES["mul"](inside, [numbers[0], self.sizes[SHARING]]), numbers[1]])
        return numbers[0] if numbers else inside.number(0, i32)

    def along(self, value: Value, places: Sequence[int]) -> Value:
        """A tensor whose dimensions run along a batch, heads, queries or keys, as one along the loops of scores."""
        batch, shared, sharing, rows, keys = self.sizes[: KEY + 1]
        sizes, own = (batch, shared * sharing, rows, keys), dict(zip(places, value.dims, strict=True))
        if value.dtype == torch.int64:
            raise UnsupportedError("scores are a function of integers of 64 bits; of those of 32 they may be")
        if len(own) < len(places) or any(value.shape[d] != sizes[place] for d, place in enumerate(places)):
            raise UnsupportedError("scores are a function of a tensor that is not read at each of their places")
        return self._mask(replace(value, dims=tuple(own.get(place) for place in range(4)), shape=sizes))

    def _mask(self, mask: Value) -> Value:
        """A mask along the loops of scores."""
        batch, shared, sharing, rows = self.sizes[:KEY]
        full = expanded(mask, (batch, shared * sharing, rows, mask.shape[-1]))
        return reordered(_split(self.builder, full, (shared, sharing)), [*self.loops, 4])


class _Function:
    """A function of FlexAttention: what it reads of tensors, along the loops of scores, by the nodes of its graph."""

    def __init__(self, attention: _Attention, module: GraphModule, buffers: Sequence[Any]) -> None:
        self.attention, self.graph = attention, module.graph
        inputs = self.graph.find_nodes(op="placeholder")
        count = len(inputs) - len(buffers)
        first = int(count > 4)  # of a score, and behind the place the gradient of a result
        self.arguments, self.places = inputs[:first] + inputs[first + 4 : count], inputs[first : first + 4]
        self.result, *others = (x for x in pytree.tree_leaves(self.graph.output_node().args) if x is not None)
        if others:
            raise UnsupportedError("the gradient of a tensor that scores are a function of is not lowered")
        self.loaded = dict[Node, Value]()
        self.constant = not any(node.users for node in inputs)
        """Whether it is the same everywhere, as a mask is that leaves all keys."""
        for node, buffer in zip(inputs[count:], buffers, strict=True):
            for read in [node] if isinstance(buffer, Value) and not buffer.shape else node.users:
                at: Any = read.args[1] if read.target is aten.index.Tensor else () if read is node else None
                if not isinstance(buffer, Value) or at is None or not all(x in self.places for x in at):
                    raise UnsupportedError("scores are a function of a tensor that is not read at each of their places")
                self.loaded[read] = attention.along(buffer, [self.places.index(x) for x in at])

    def __call__(self, inside: Body, arguments: Sequence[ElementValue], loaded: Sequence[ElementValue]) -> ElementValue:
        """Appends the function; floats are f32, however torch traced them."""
        computed = dict(zip(self.arguments, arguments, strict=True))
        for node, element in zip(self.loaded, loaded, strict=True):
            computed[node] = inside.convert(element, _widened(node))
        computed |= {node: self.attention.at(inside, at) for at, node in enumerate(self.places) if node.users}
        for node in self.graph.nodes:
            if node not in computed and node.op == "call_function":
                examples = {x: torch.empty_like(x.meta["val"], dtype=_widened(x)) for x in node.all_input_nodes}
                args, kwargs = map_arg((node.args, node.kwargs), examples.__getitem__)
                elements = [computed[x] for x in pytree.tree_leaves((node.args, node.kwargs)) if isinstance(x, Node)]
                number = self.attention.builder.number
                computed[node] = compute(node.target, args, kwargs, inside, elements, _widened(node), number)
        return computed[self.result]


def _widened(node: Node) -> torch.dtype:
    """The type that an element of a function is computed in."""
    dtype = node.meta["val"].dtype
    return torch.float32 if dtype in HALVES else dtype


def _split(builder: FunctionBuilder, value: Value, split: tuple[Size, ...]) -> Value:
    """Splits the heads into two dimensions: the heads of K and V, and the heads that share one of them."""
    place, heads = value.dims[HEADS], (*value.shape[:HEADS], *split, *value.shape[HEADS + 1 :])
    if split[1] == 1 or place is None:
        return replace(value, dims=(*value.dims[: HEADS + 1], None, *value.dims[HEADS + 1 :]), shape=heads)
    full = value.full
    tensor = reshape(builder, full, (*full.shape[:place], *split, *full.shape[place + 1 :]))
    moved = [d if d is None else d + (d > place) for d in value.dims]
    dims = (*moved[:HEADS], place, place + 1, *moved[HEADS + 1 :])
    return replace(tensor, dims=dims, shape=heads)


def _order(like: torch.Tensor, along: Sequence[int]) -> list[int]:
    """The places of loops in the order of a result's memory, where heads and rows may change places."""
    strides = like.stride()
    rows_first = like.shape[2] > 1 and strides[2] > strides[1]
    order = (BATCH, ROW, KEY, SHARED, SHARING) if rows_first else (BATCH, SHARED, SHARING, ROW, KEY)
    return [along.index(loop) for loop in (*order, DEPTH, COLUMN) if loop in along]
