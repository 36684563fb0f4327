"""`warp-outline` of `warp.attention`: what the kernel sees of its operands, and which rows of O a CTA computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import AffineMapAttr, IndexType, MemRefType, f32, i32
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineMap

from ...dialect.mlir.affine import loops_of, map_along
from ...dialect.schedule import Schedule
from ...dialect.warp.attention import AttentionOp
from ...dialect.warp.attributes import in_place_of
from ...dialect.warp.views import MatrixOp
from ..linalg.operand import KernelArgument, VectorOperand
from ..linalg.product import padded
from ..linalg.read_attention import FACTORS, Attention
from ..patterns import Index, IndexBuilder
from ..schedule.attention import slices_of, state_elements, values_schedule
from .kernel_operands import Inside, loops_in_tile
from .operands import batch_index, batch_sizes, cta_number, in_matrix
from .tiling import Outliner

if TYPE_CHECKING:
    from .key_spans import KeySpans


class TiledAttention(NamedTuple):
    """An attention: each CTA computes some rows of O; tiles of one matrix follow each other."""

    attention: Attention
    schedule: Schedule

    @property
    def op(self) -> AttentionOp:
        return self.attention.op

    @property
    def memories(self) -> Sequence[KernelArgument]:
        return self.attention.memories

    def _extents(self, index: IndexBuilder, memory: Mapping[SSAValue, SSAValue]) -> tuple[Index, tuple[Index, ...]]:
        """Tiles of a matrix, and the sizes of the batch."""
        scores, values = self.attention.scores, self.attention.values
        rows = scores.m if scores.is_known("m") else index.dim(memory[scores.a.value], scores.a.loops[0])
        batch = batch_sizes(index, values, memory)
        return index.ceildiv(rows, self.schedule.cta[0]), batch

    def scratch(self, outliner: Outliner) -> tuple[VectorOperand, ...]:
        """Memory for what CTAs that share the keys of a tile leave: sums, states of rows, and arrivals."""
        spans = self.spans
        of_spans = () if spans is None else (VectorOperand("spans", spans.emit(outliner)),)
        if self.schedule.split_k == 1:
            return of_spans
        tiles = self.attention.tiles(self.schedule.cta[0])
        sums, states = _part_types(self.attention, self.schedule, tiles)
        memories = (
            ("sums", outliner.scratch(sums)),
            ("states", outliner.scratch(states)),
            ("counters", outliner.scratch(MemRefType(i32, [tiles]), zeroed=True)),
        )
        return (*of_spans, *(VectorOperand(name, memory) for name, memory in memories))

    @property
    def spans(self) -> KeySpans | None:
        """Where the keys of each tile are, if numbers of documents tell it."""
        if not self.op.documents:
            return None
        from .key_spans import KeySpans  # with operations that most attentions do not need

        return KeySpans.of(self.op, self.schedule.cta[0])

    def tile(
        self, index: IndexBuilder, arguments: Mapping[SSAValue, SSAValue], scratch: Sequence[SSAValue] = ()
    ) -> Operation:
        operands, cta, parts = self.attention.operands, cta_number(index), self.schedule.split_k
        number, part = index.div(cta, parts), index.rem(cta, parts)
        tiles, batch = self._extents(index, arguments)
        tile, matrix = in_matrix(index, number, tiles) if batch else (number, 0)
        inside = Inside.of(index, self.op.score, operands, arguments, batch, matrix)
        row = index.mul(self._turn(index, tile, tiles, matrix), self.schedule.cta[0])
        op, count = self.op, len(FACTORS)
        at = batch_index(index, batch, matrix) if (op.lse, op.sinks) != (None, None) or op.documents else []
        until, first, spans = self._length(index, arguments, batch, matrix), None, self.spans
        if spans is not None:
            first, end = spans.read(index, scratch[0], at, index.div(row, self.schedule.cta[0]))
            until, scratch = index.value(end if until is None else index.minimum(end, until)), scratch[1:]
        tiled = AttentionOp(
            list(map(inside.seen, operands[:count])),
            [map_along(count, loops_in_tile(operand, two)) for operand, two in zip(operands, FACTORS, strict=False)],
            scale=op.scale.value.data,
            keys=op.keys._replace(lengths=None, documents=self._documents(index, arguments, at)),
            scores=inside.function(index, op.score, self.attention.scores.epilogue_operands, 0, count),
            through=self._through(index, inside, count),
            tile=index.values([row] if parts == 1 else [row, number, part]),
            first=first,
            until=until,
            parts=scratch,
            lse=self._of_rows(index, arguments, op.lse, op.lse_map, at),
            sinks=self._of_rows(index, arguments, op.sinks, op.sinks_map, at),
        )
        return in_place_of(op, tiled)

    def _through(self, index: IndexBuilder, inside: Inside, loops: int) -> SSAValue | None:
        """The function on results, whose columns run along the last loop."""
        if self.op.function is None:
            return None
        inputs = [
            (inside.seen(operand), map_along(loops, ((0, loops - 1)[loop] for loop in loops_in_tile(operand))))
            for operand in self.attention.values.epilogue_operands
        ]
        return index.insert(self.op.function.moved(inputs, loops, inside.batch, inside.numbers)).function

    def _documents(
        self, index: IndexBuilder, arguments: Mapping[SSAValue, SSAValue], at: Sequence[Index]
    ) -> tuple[tuple[SSAValue, AffineMap], ...]:
        """The numbers of documents of queries and keys: matrices whose columns, or rows, are all the same."""
        outer, made = len(at), list[tuple[SSAValue, AffineMap]]()
        for memory, map_ in self.op.keys.documents:
            loops = loops_of(map_)
            row, column = (loops.index(outer + loop) if outer + loop in loops else None for loop in (0, 1))
            indices = index.values([at[loop] for loop in loops if loop < outer])
            view = index.insert(MatrixOp(arguments[memory], indices, row, column)).matrix
            made.append((view, map_along(len(FACTORS), (0, 1))))
        return tuple(made)

    @staticmethod
    def _of_rows(
        index: IndexBuilder,
        arguments: Mapping[SSAValue, SSAValue],
        memory: SSAValue | None,
        map_: AffineMapAttr | None,
        at: Sequence[Index],
    ) -> tuple[SSAValue, AffineMap] | None:
        """Numbers of the rows of this CTA, at an index of the batch: a matrix whose columns are all the same."""
        if memory is None or map_ is None:
            return None
        loops, (m, _, _, e) = loops_of(map_.data), range(len(FACTORS))
        indices = index.values([at[loop] for loop in loops if loop < len(at)])
        row = loops.index(len(at)) if len(at) in loops else None
        return index.insert(MatrixOp(arguments[memory], indices, row, None)).matrix, map_along(len(FACTORS), (m, e))

    def _length(
        self, index: IndexBuilder, arguments: Mapping[SSAValue, SSAValue], batch: Sequence[Index], matrix: Index
    ) -> SSAValue | None:
        """The number of keys of this CTA's sequence, if memory has it; at least 0."""
        if (lengths := self.op.keys.lengths) is None:
            return None
        memory, map_ = lengths
        at = batch_index(index, batch, matrix)
        loaded = index.insert(memref.LoadOp.get(arguments[memory], index.values([at[loop] for loop in loops_of(map_)])))
        length = index.insert(arith.IndexCastOp(loaded.res, IndexType())).result
        return index.value(index.from_zero(length))

    def _turn(self, index: IndexBuilder, tile: Index, tiles: Index, matrix: Index) -> Index:
        """The tile that a CTA computes at its turn.

        Tiles that see most keys take longest, and begin first. Persistent CTAs take a tile and its mirror image by
        turns, so that each gets the same work.
        """
        if self.op.diagonal is None:
            return tile
        last = index.sub(index.sub(index.value(tiles), 1), tile)
        if not self.schedule.ctas:
            return last
        turn = index.div(index.mul(matrix, tiles), self.schedule.ctas)
        return index.where_equal(index.rem(turn, 2), 0, last, tile)

    def ctas(self, index: IndexBuilder, memory: Mapping[SSAValue, SSAValue]) -> Index:
        tiles, batch = self._extents(index, memory)
        return index.mul(reduce(index.mul, batch, tiles), self.schedule.split_k)


def _part_types(read: Attention, schedule: Schedule, tiles: int) -> tuple[MemRefType, MemRefType]:
    """The memory for partial results of CTAs that share keys, for `tiles` tiles of O: sums of products, and for each
    row the largest score and the sum of exponentials. A row has the registers of all warps."""
    columns = padded(read.values.n)
    (rows, width), slots = values_schedule(schedule, columns).warp, tiles * schedule.split_k
    count = 1 if slices_of(schedule) > 1 else columns // width
    sums = MemRefType(f32, [slots * count, schedule.warps * rows * width])
    return sums, MemRefType(f32, [2 * slots, schedule.warps * state_elements(rows)])
