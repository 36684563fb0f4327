"""`warp.attention` and its gradient as passes that lower them read them, their products; loops exchanged before that.
Heads that share K and V become the rows of one tile, parts of columns a loop of the batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from xdsl.dialects import memref
from xdsl.dialects.builtin import AffineMapAttr, FloatAttr, IntegerAttr, MemRefType, f32, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.pattern_rewriter import PatternRewriter

from ...dialect.mlir.affine import loops_of, map_along, strides_of
from ...dialect.warp.attention import HALVES, INPUTS, ROWS, AttentionGradientOp, AttentionOp, D, E, M, N
from ...dialect.warp.attributes import element_name, memory_of
from ...dialect.warp.elements import PointwiseOp
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.operands import drop_forms
from ...dialect.warp.views import MatrixOp, PagedOp
from ..patterns import rewrite_pattern
from .operand import KernelArgument, Spread, VectorOperand, drop_unused, each_once, expand, numbered, root
from .product import Product, read

FACTORS = ((M, D), (D, N), (N, E), (M, E))
"""The loops that Q, K, V and O run along, as A of Q K^T, B of it, B of P V and D of that do."""

KEYS_OF_BYTES = (0, 2, 3, 1)
"""What becomes of the bits of a key's number, so that a lane has P of bytes as operand A where it has scores."""


class Attention(NamedTuple):
    """The two products of an attention: scores = Q K^T, with the region on scores as its epilogue, and O = P V. Scores
    and P are in no memory: what stands for them there is an allocation in no block."""

    op: AttentionOp
    scores: Product
    values: Product

    @staticmethod
    def of(op: AttentionOp) -> Attention:
        """Reads a verified operation. Raises a located diagnostic for layouts that are not lowered."""
        half, sizes = memory_of(op.v).element_type, op.sizes
        m, n, d, e = (op.batch + loop for loop in (M, N, D, E))
        outer = tuple(range(op.batch))
        q, k, v, o = map(loops_of, op.maps)

        def moved(function: PointwiseOp | None, every: Sequence[int]) -> SSAValue | None:
            """A function, in a product over these loops."""
            order = [every.index(loop) if loop in every else 0 for loop in range(op.maps[0].num_dims)]
            return None if function is None else _exchanged(function, order).function

        inner, of_inner = [sizes[loop] for loop in (*outer, m, n)], (*outer, m, n)
        every, of_values = (*outer, m, n, d), (*outer, m, e, n)
        s, p = Along("S", _nowhere(f32, inner), of_inner), Along("P", _nowhere(half, inner), of_inner)
        to, through = Along("O", op.o, o), moved(op.function, of_values)
        scores = _product(op, Along("Q", op.q, q), Along("K", op.k, k), s, every, moved(op.score, every))
        return Attention(op, scores, _product(op, p, Along("V", op.v, v), to, of_values, through))

    @property
    def operands(self) -> tuple[KernelArgument, ...]:
        """Q, K, V, O and the operands of the regions on scores and on results."""
        scores, values = self.scores, self.values
        matrices = (scores.a, scores.b, values.b, values.d)
        return (*matrices, *scores.epilogue_operands, *values.epilogue_operands)

    def tiles(self, rows: int) -> int:
        """The number of tiles of `rows` rows of O; its sizes must be known."""
        return -(-self.scores.m // rows) * math.prod(self.values.batch)

    @property
    def memories(self) -> tuple[KernelArgument, ...]:
        """The operands of the kernel: each memory once."""
        op, (q, k, v, o, *of_scores) = self.op, self.operands
        memories = [_in_memory(operand) for operand in (q, k, v)]
        extra = [("lengths", op.lengths), ("sinks", op.sinks), *zip(("of_m", "of_n"), op.documents, strict=False)]
        named = [*(("pages", view.table) for view in self.paged), *extra, ("ends", op.ends)]
        vectors = [VectorOperand(name, value) for name, value in named if value is not None]
        lse = [] if op.lse is None else [VectorOperand("lse", op.lse)]
        return each_once((*memories, *of_scores, *vectors, o, *lse))

    @property
    def paged(self) -> list[PagedOp]:
        """The views of pages that K and V are."""
        return [view for operand in (self.op.k, self.op.v) if isinstance(view := operand.owner, PagedOp)]

    @property
    def page_rows(self) -> int:
        """Rows of the smallest page of K and V; a number larger than any tile without pages."""
        return min((view.rows for view in self.paged), default=1 << 31)

    @property
    def keys_differ(self) -> bool:
        """Whether keys begin or end at other places for each tile than a diagonal says."""
        op = self.op
        return op.window is not None or bool(op.documents) or (op.lengths, op.ends) != (None, None)


def _in_memory(operand: KernelArgument) -> KernelArgument:
    """The kernel argument for K or V. For a view of pages it is the memory of all pages."""
    view = operand.value.owner
    return VectorOperand(operand.name, view.memory, divisor=operand.divisor) if isinstance(view, PagedOp) else operand


class AttentionGradient(NamedTuple):
    """The products of gradients whose rows are queries (dQ), or keys (dK, dV). With rows r and columns c, those of
    `scores` are S = Q K^T, or its transpose K Q^T, and those of `slopes` are dO V^T, or V dO^T; none if dV is the only
    result. `sums` are the results by name: dS K; dS^T Q and P^T dO. The loops of all begin with those of the batch, in
    the order of `around`: the first `outer` are those that results run along, the others are summed over."""

    op: AttentionGradientOp
    scores: Product
    slopes: Product | None
    sums: dict[str, Product]
    around: tuple[int, ...]
    outer: int

    @staticmethod
    def of(op: AttentionGradientOp) -> AttentionGradient:
        """Reads a verified operation. Raises a located diagnostic for layouts that are not lowered."""
        half, sizes = memory_of(op.q).element_type, op.sizes
        gradients, batch = op.gradients, op.batch
        outer = tuple(sorted(loop for loop in loops_of(gradients[0].map) if loop < batch))
        around = (*outer, *(loop for loop in range(batch) if loop not in outer))
        every = zip(INPUTS, op.inputs[:4], map(loops_of, op.maps), strict=False)
        q, k, v, do = (Along(*each) for each in every)
        m, n, d, e = (batch + loop for loop in (M, N, D, E))
        (r, c), factors = ((m, n), ((q, k), (do, v))) if op.rows == M else ((n, m), ((k, q), (v, do)))
        inner = (*around, r, c)
        shape = [sizes[loop] for loop in inner]
        in_f32, in_half = (Along("S", _nowhere(kind, shape), inner) for kind in (f32, half))
        scores = _product(op, *factors[0], in_f32, (*around, r, c, d))
        slopes, sums = None, dict[str, Product]()
        if any(gradient.name != "dV" for gradient in gradients):
            slopes = _product(op, *factors[1], in_f32, (*around, r, c, e))
        for name, memory, map_ in gradients:
            column, b = (e, do) if name == "dV" else (d, factors[0][1])
            to = Along(name, memory, loops_of(map_))
            sums[name] = _product(op, in_half, b, to, (*around, r, column, c))
        return AttentionGradient(op, scores, slopes, sums, around, len(outer))

    @property
    def of_queries(self) -> tuple[Spread, Spread]:
        """lse and delta."""
        op = self.op
        lse, delta = (self._spread(*each) for each in zip(ROWS, op.inputs[4:], op.maps[4:], strict=False))
        return lse, delta

    def operands(self, name: str) -> list[Spread | VectorOperand]:
        """What the function of this name reads: numbers, and memory along rows, columns and the batch."""
        placed = [(f"{name}{i}", *each) for i, each in enumerate(self.op.functions[name].placed)]
        return [
            self._spread(*each) if isinstance(each[1].type, MemRefType) else VectorOperand(*each[:2], "")
            for each in placed
        ]

    @property
    def documents(self) -> list[Spread]:
        """The numbers of the documents of queries and of keys, if there are any."""
        return [self._spread(f"of_{name}", *each) for name, each in zip("mn", self.op.keys.documents, strict=False)]

    def _spread(self, name: str, value: SSAValue, map_: AffineMap) -> Spread:
        """A vector along the queries or the keys, or a matrix, and loops of the batch."""
        loops, batch, rows = loops_of(map_), self.op.batch, self.op.rows
        row, column = (loops.index(batch + x) if batch + x in loops else None for x in (rows, M + N - rows))
        return Spread(name, value, (row, column), tuple(self.around.index(loop) for loop in loops if loop < batch))

    @property
    def memories(self) -> tuple[KernelArgument, ...]:
        """The operands of the kernel: each memory once."""
        op, products = self.op, (self.scores, self.slopes, *self.sums.values())
        matrices = {each.value: each for product in products if product is not None for each in (product.a, product.b)}
        named = zip(INPUTS, op.inputs, strict=False)
        inputs = [matrices.get(value) or VectorOperand(name, value) for name, value in named]
        inputs += [VectorOperand(each.name, each.value) for each in self.documents]
        inputs += [each for name in op.functions for each in self.operands(name)]
        return each_once((*inputs, *(product.d for product in self.sums.values())))


def _nowhere(kind: Attribute, shape: Sequence[int]) -> SSAValue:
    """An allocation outside of any block, which stands for a matrix that is never in memory."""
    return memref.AllocOp([], [], MemRefType(kind, shape)).memref


class Along(NamedTuple):
    """A matrix of a product: its name, its memory, and the loops that its dimensions run along."""

    name: str
    value: SSAValue
    loops: Sequence[int]


def _product(
    op: AttentionOp | AttentionGradientOp, a: Along, b: Along, to: Along, loops: Sequence[int],
    through: SSAValue | None = None,
) -> Product:  # fmt: skip
    """A product of an attention over these loops, m, n and k the last, of which the sums start from zero."""
    half = memory_of(op.v).element_type
    names = [element_name(half) or str(half)] * 2
    maps = [map_along(len(loops), map(loops.index, each.loops)) for each in (a, b, to)]
    made = MatmulOp(a.value, b.value, to.value, names, init=FloatAttr(0.0, f32), maps=maps, through=through)
    made.location = op.location
    product = read(made)
    matrices = zip((product.a, product.b, product.d), (a, b, to), strict=True)
    a_, b_, d_ = (replace(operand, name=each.name) for operand, each in matrices)
    return replace(product, a=a_, b=b_, d=d_)


@rewrite_pattern
def pack_heads(op: AttentionOp, rewriter: PatternRewriter) -> None:
    """Exchanges the loop over the only query of an attention with the longest one over heads that share K and V. A
    diagonal would be of queries, as numbers of documents are: they stay as they are, and so does their attention."""
    sizes, query = op.sizes, op.batch + M
    of_keys = {loop for map_ in op.maps[1:3] for loop in loops_of(map_)}
    heads = [loop for loop in range(op.batch) if loop not in of_keys and sizes[loop] > 1]
    if op.tile or sizes[query] != 1 or op.diagonal is not None or op.window is not None or not heads:
        return
    if op.lse is not None or op.documents:
        return
    head = max(heads, key=sizes.__getitem__)
    order = list(range(op.maps[0].num_dims))
    order[head], order[query] = query, head
    maps = [map_along(len(order), (order[loop] for loop in loops_of(map_))) for map_ in op.maps]
    _renumber(op, op.matrices, maps, order, rewriter)


@rewrite_pattern
def split_values(op: AttentionOp, rewriter: PatternRewriter) -> None:
    """Makes a loop of the batch over parts of V's columns, and of O's, where a lane has no registers for all of them. K
    and V of one latent matrix are 576 and 512 columns: the CTAs of both parts multiply Q and K."""
    columns, last = op.sizes[op.batch + E], op.batch + E
    parts = -(-columns // MAX_COLUMNS)
    along = () if op.function is None else (loop for _, map_ in op.function.placed for loop in loops_of(map_))
    if op.tile or parts < 2 or columns % parts or op.lse is not None:
        return
    if last in along or not all(strides_of(memory_of(value)) for value in (op.v, op.o)):
        return
    order = [*range(op.batch), *range(op.batch + 1, last + 2)]

    def moved(map_: AffineMap) -> AffineMap:
        return map_along(len(order) + 1, (order[loop] for loop in loops_of(map_)))

    matrices, maps = list(op.matrices), list(map(moved, op.maps))
    for number in (2, 3):
        loops, shape = loops_of(op.maps[number]), memory_of(matrices[number]).get_shape()
        sizes = [[parts, size // parts] if loop == last else [size] for loop, size in zip(loops, shape, strict=True)]
        paged = matrices[number].owner
        split = _split_pages(paged, sizes) if isinstance(paged, PagedOp) else [expand(matrices[number], sizes)]
        matrices[number] = [rewriter.insert(each) for each in split][-1].results[0]
        at, places = loops.index(last), list(loops_of(maps[number]))
        maps[number] = map_along(len(order) + 1, (*places[:at], op.batch, *places[at:]))
    values = op.v
    _renumber(op, matrices, maps, order, rewriter)
    drop_unused(values)


def _split_pages(view: PagedOp, sizes: Sequence[Sequence[int]]) -> list[memref.ExpandShapeOp | PagedOp]:
    """A view of pages with each dimension split into several of these sizes; that of keys is not."""
    shape, dims = memory_of(view.memory).get_shape(), numbered(sizes)
    parts = [sizes[d] if len(sizes[d]) > 1 else [size] for d, size in zip(view.loops, shape, strict=True)]
    split, places = expand(view.memory, parts), numbered(parts)
    page, slot = (None if d is None else places[d][0] for d in view.dimensions)
    along, of_table = ([new for d in old for new in dims[d]] for old in (view.loops, view.table_along.get_values()))
    return [split, PagedOp(split.result, view.table, along, of_table, page or 0, slot)]


MAX_COLUMNS, MAX_DEPTH = 256, 640
"""Columns of V, padded, that a kernel multiplies together: a lane has registers for its part of O; of Q and K."""

PANEL = 64
"""Columns of a tile that lie together in shared memory: a line of 16-bit elements."""


@rewrite_pattern
def values_of_keys(op: AttentionOp, rewriter: PatternRewriter) -> None:
    """Marks an attention whose V is columns of K, of which a CTA then has one tile for both products."""
    if not op.tile and op.of_keys is None and (first := _first_of_keys(op)) is not None:
        op.of_keys = IntegerAttr(first, i64)
        rewriter.notify_op_modified(op)


def _first_of_keys(op: AttentionOp) -> int | None:
    """The column of K that V begins with; None where V is something else, or is not whole lines of a tile of K."""
    kinds, depth, columns = [memory_of(op.k), memory_of(op.v)], op.batch + D, op.batch + E
    begins, every = [kind.get_offset() for kind in kinds], [strides_of(kind) for kind in kinds]
    tables = {view.table if isinstance(view := value.owner, PagedOp) else None for value in (op.k, op.v)}
    if (
        root(op.k) is not root(op.v)
        or len(tables) > 1
        or None in begins
        or None in every
        or not isinstance(kinds[1].element_type, HALVES)
    ):
        return None
    maps = zip(op.maps[1:3], every, strict=True)
    of_k, of_v = (dict(zip(loops_of(map_), steps or (), strict=True)) for map_, steps in maps)
    first, width, end = (begins[1] or 0) - (begins[0] or 0), op.sizes[columns], op.sizes[depth]
    steps_along, parts = (of_k.pop(depth), of_v.pop(columns)), [loop for loop in of_v if loop not in of_k]
    if any(of_v.pop(loop) != width for loop in parts) or len(parts) > 1 or of_v != of_k or steps_along != (1, 1):
        return None
    last = end - width * math.prod(op.sizes[loop] for loop in parts)
    apart = all(not step or step >= end for step in of_k.values() if step is not None)
    return first if apart and first % PANEL == width % PANEL == 0 <= first <= last else None


def _renumber(
    op: AttentionOp, matrices: Sequence[SSAValue], maps: Sequence[AffineMap], order: Sequence[int],
    rewriter: PatternRewriter,
) -> None:  # fmt: skip
    """Replaces an attention by one on `matrices`, with its loops renumbered. `order` maps old loop numbers to new
    ones."""

    def moved(map_: AffineMapAttr | None) -> AffineMap | None:
        return None if map_ is None else map_along(maps[0].num_dims, (order[loop] for loop in loops_of(map_.data)))

    functions = op.functions
    new = op.like(
        **dict(zip("qkvo", matrices, strict=True)),
        indexing_maps=maps,
        lengths_map=moved(op.lengths_map),
        sinks_map=moved(op.sinks_map),
        documents_maps=list(map(moved, op.documents_maps or ())),
        **{name: rewriter.insert(_exchanged(function, order)).function for name, function in functions.items()},
    )
    rewriter.replace(op, new)
    drop_forms([function.function for function in functions.values()])


def _exchanged(score: PointwiseOp, order: Sequence[int]) -> PointwiseOp:
    """A function of elements with its loops renumbered by `order`."""
    loops = max(order) + 1
    placed = [(value, map_along(loops, (order[loop] for loop in loops_of(map_)))) for value, map_ in score.placed]
    return score.moved(placed, loops, order)


def erase_pages(values: Sequence[SSAValue]) -> None:
    """Erases views of pages, and matrices of them, that no operation of the module uses."""
    memories = [value.owner.memory for value in values if isinstance(value.owner, MatrixOp)]
    for op in dict.fromkeys(value.owner for value in (*values, *memories)):
        paged = op.memory.owner if isinstance(op, MatrixOp) else op
        users = [use.operation for result in op.results for use in result.uses] if isinstance(op, Operation) else []
        if isinstance(op, MatrixOp | PagedOp) and isinstance(paged, PagedOp) and not any(user.parent for user in users):
            # What was read of the attention may still know of them.
            op.detach()
            op.erase(safe_erase=False)
