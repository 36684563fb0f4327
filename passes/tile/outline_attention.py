"""`warp.attention` and its gradient in their kernels: operands, the rows of each CTA, and the keys that rows have."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar, NamedTuple, TypeAlias

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import IndexType, IntegerAttr, MemRefType, f32, i32
from xdsl.ir import Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap

from ...dialect.mlir.affine import loops_of, map_along
from ...dialect.mlir.gpu import BlockIdOp, ThreadIdOp
from ...dialect.mlir.gpu_carried import REDUCTION, AllReduceOp
from ...dialect.schedule import Schedule
from ...dialect.warp.attention import INPUTS, AttentionGradientOp, AttentionOp, E, M, N, with_maps
from ...dialect.warp.attributes import fragment_of, in_place_of, memory_of
from ...dialect.warp.elements import IndexOp
from ...dialect.warp.operands import FindGroupOp
from ...dialect.warp.views import MatrixOp
from ..linalg.operand import KernelArgument, VectorOperand
from ..linalg.product import Product, padded
from ..linalg.read_attention import FACTORS, Attention, AttentionGradient
from ..patterns import Index, IndexBuilder
from ..schedule.attention import LANES_OF_ROW, slices_of, values_schedule
from .fragments import below, mapped, until
from .operands import batch_sizes, cta_number, in_matrix, rows_of_group
from .tiling import Inside, Outliner, kernel_body, loops_in_tile


@dataclass(frozen=True)
class TiledRows(ABC):
    """Results along the rows of scores: each CTA computes some rows of each; tiles of one matrix follow each other."""

    read: Attention | AttentionGradient
    schedule: Schedule

    together: ClassVar[int] = 1
    """Matrices whose tiles begin in one order, where some see more keys than others."""

    @property
    def memories(self) -> Sequence[KernelArgument]:
        """The operands of the kernel."""
        return self.read.memories

    @property
    def op(self) -> Operation:
        """The operation that is outlined."""
        return self.read.op

    @property
    @abstractmethod
    def result(self) -> Product:
        """The product of a result."""

    @abstractmethod
    def tile(
        self, index: IndexBuilder, arguments: Mapping[SSAValue, SSAValue], scratch: Sequence[SSAValue] = ()
    ) -> Operation:
        """What a CTA computes, in its kernel; `arguments` stand for the operands."""

    def scratch(self, outliner: Outliner) -> tuple[VectorOperand, ...]:
        """Further memory that the kernel takes: where the keys of each tile are, if numbers of documents tell it."""
        return () if self.spans is None else (VectorOperand("spans", self.spans.emit(outliner)),)

    @property
    def spans(self) -> KeySpans | None:
        """Where the columns of scores are that count for each tile, if numbers of documents tell it."""
        return KeySpans.of(self.read.op, self.schedule.cta[0]) if self.read.op.documents else None

    def ctas(self, index: IndexBuilder, memory: Mapping[SSAValue, SSAValue]) -> Index:
        """How many CTAs there are; `memory` tells sizes that are not known."""
        tiles, batch = self.extents(index, memory)
        return index.mul(reduce(index.mul, batch, tiles), self.schedule.split_k)

    def extents(self, index: IndexBuilder, memory: Mapping[SSAValue, SSAValue]) -> tuple[Index, tuple[Index, ...]]:
        """Tiles of a matrix, and the sizes of the loops that results run along."""
        scores = self.read.scores
        rows = scores.m if scores.is_known("m") else index.dim(memory[scores.a.value], scores.a.loops[0])
        # Of each of several sequences the last tile may have one row.
        ends = self.read.op.keys.ends
        rows = index.add(rows, 0 if ends is None else memory_of(ends).get_shape()[0] * (self.schedule.cta[0] - 1))
        tiles = index.ceildiv(rows, self.schedule.cta[0]) if ends is None else index.div(rows, self.schedule.cta[0])
        return tiles, batch_sizes(index, self.result, memory)

    def turn(self, index: IndexBuilder, number: Index, tiles: Index, batch: Sequence[Index]) -> tuple[Index, Index]:
        """The tile that a CTA computes at its turn, and the number of its matrix, where tiles see more keys than those
        before. Tiles that see most keys take longest, and begin first, of several matrices by turns. Persistent CTAs
        take a tile and its mirror image by turns, so that each gets the same work."""
        if self.schedule.ctas:
            tile, matrix = in_matrix(index, number, tiles) if batch else (number, 0)
            turn = index.div(index.mul(matrix, tiles), self.schedule.ctas)
            mirrored = index.sub(index.sub(index.value(tiles), 1), tile)
            return index.select("eq", index.rem(turn, 2), 0, mirrored, tile), matrix
        sizes = [size for size in batch if isinstance(size, int)]
        matrices = math.prod(sizes) if len(sizes) == len(batch) else 1
        count = next(n for n in range(self.together, 0, -1) if matrices % n == 0)
        place, section = in_matrix(index, number, index.mul(tiles, count)) if batch else (number, 0)
        tile = index.sub(index.sub(index.value(tiles), 1), index.div(place, count))
        return tile, index.add(index.mul(section, count), index.rem(place, count))


@dataclass(frozen=True)
class TiledAttention(TiledRows):
    """An attention: each CTA computes some rows of O."""

    read: Attention

    together: ClassVar[int] = 8
    """H100, e4m3, 16 matrices of 16384 queries and keys, microseconds: 1, 2, 4, 8 and 16 together 1320, 1282, 1256,
    1246, 1242; the CTAs of the last matrix are as long as those of the first. bf16, 64 columns, 4096: 623 to 621."""

    @property
    def result(self) -> Product:
        return self.read.values

    def scratch(self, outliner: Outliner) -> tuple[VectorOperand, ...]:
        """Scratch memory for CTAs that share the keys of a tile: sums, states of rows, and counts of arrivals."""
        of_spans = super().scratch(outliner)
        if self.schedule.split_k == 1:
            return of_spans
        tiles = self.read.tiles(self.schedule.cta[0])
        sums, states = _part_types(self.read, self.schedule, tiles)
        memories = (
            ("sums", outliner.scratch(sums)),
            ("states", outliner.scratch(states)),
            ("counters", outliner.scratch(MemRefType(i32, [tiles]), zeroed=True)),
        )
        return (*of_spans, *(VectorOperand(name, memory) for name, memory in memories))

    def tile(
        self, index: IndexBuilder, arguments: Mapping[SSAValue, SSAValue], scratch: Sequence[SSAValue] = ()
    ) -> Operation:
        operands, cta, parts = self.read.operands, cta_number(index), self.schedule.split_k
        number, part = index.div(cta, parts), index.rem(cta, parts)
        op, count, (tiles, batch) = self.read.op, len(FACTORS), self.extents(index, arguments)
        if op.diagonal is not None and op.ends is None:
            tile, matrix = self.turn(index, number, tiles, batch)
        else:
            tile, matrix = in_matrix(index, number, tiles) if batch else (number, 0)
        sequence, parted = (), ()
        if op.ends is not None:
            group = index.insert(
                FindGroupOp(arguments[op.ends], index.value(tile), self.schedule.cta[0], index.value(1))
            )
            tile, sequence = index.sub(tile, group.first), rows_of_group(index, arguments[op.ends], group.group)
            parted = operands[:count]
        inside = Inside.of(index, op.score, operands, arguments, batch, matrix, sequence, parted)
        row = index.mul(tile, self.schedule.cta[0])
        at = index.unflattened(batch, matrix) if (op.lse, op.sinks) != (None, None) or op.documents else []
        until, first, spans = self._length(index, arguments, batch, matrix), None, self.spans
        if spans is not None:
            first, end = spans.read(index, scratch[0], dict(enumerate(at)), index.div(row, self.schedule.cta[0]))
            until, scratch = index.value(end if until is None else index.minimum(end, until)), scratch[1:]
        documents = tuple(filter(None, (_vector(index, arguments, each, at, N) for each in op.keys.documents)))
        maps = [map_along(count, loops_in_tile(operand, two)) for operand, two in zip(operands, FACTORS, strict=False)]
        tiled = AttentionOp(
            *map(inside.seen, operands[:count]),
            indexing_maps=maps,
            **op.keys._replace(lengths=None, documents=documents).fields(op.scale.value.data),
            **with_maps(
                lse=_vector(index, arguments, op.placed("lse"), at, E, sequence),
                sinks=_vector(index, arguments, op.placed("sinks"), at, E),
            ),
            scores=inside.function(index, op.score, self.read.scores.epilogue_operands, (M, N), count),
            through=inside.function(index, op.function, self.read.values.epilogue_operands, (M, E), count),
            tile=index.values([row] if parts == 1 else [row, number, part]),
            first=first,
            until=until,
            parts=scratch,
        )
        return in_place_of(op, tiled)

    def _length(
        self, index: IndexBuilder, arguments: Mapping[SSAValue, SSAValue], batch: Sequence[Index], matrix: Index
    ) -> SSAValue | None:
        """The number of keys of this CTA's sequence, if memory has it; at least 0."""
        if (lengths := self.read.op.keys.lengths) is None:
            return None
        memory, map_ = lengths
        at = index.unflattened(batch, matrix)
        loaded = index.insert(memref.LoadOp.get(arguments[memory], index.values([at[loop] for loop in loops_of(map_)])))
        length = index.insert(arith.IndexCastOp(loaded.res, IndexType())).result
        return index.value(index.from_zero(length))


def _vector(
    index: IndexBuilder, arguments: Mapping[SSAValue, SSAValue], placed: tuple[SSAValue, AffineMap] | None,
    at: Sequence[Index], column: int, part: Sequence[Index] = (),
) -> tuple[SSAValue, AffineMap] | None:  # fmt: skip
    """Numbers of queries or keys at an index of the batch: a matrix along queries and the loop `column`, whose columns,
    or rows, are all the same, limited to a `part` of its rows."""
    if placed is None:
        return None
    memory, map_ = placed
    loops, outer = loops_of(map_), len(at)
    row, along = (loops.index(outer + loop) if outer + loop in loops else None for loop in (M, N))
    indices = index.values([at[loop] for loop in loops if loop < outer])
    matrix = MatrixOp(arguments[memory], indices, row, along, part=index.values(part))
    return index.insert(matrix).matrix, map_along(len(FACTORS), (M, column))


@dataclass(frozen=True)
class TiledGradient(TiledRows):
    """Gradients: each CTA computes some rows of each result."""

    read: AttentionGradient

    @property
    def result(self) -> Product:
        return next(iter(self.read.sums.values()))

    def tile(
        self, index: IndexBuilder, arguments: Mapping[SSAValue, SSAValue], scratch: Sequence[SSAValue] = ()
    ) -> Operation:
        op, cta, first, until = self.read.op, cta_number(index), None, None
        tiles, batch = self.extents(index, arguments)
        if op.rows == M and op.diagonal is not None:
            tile, matrix = self.turn(index, cta, tiles, batch)
        else:
            tile, matrix = in_matrix(index, cta, tiles) if batch else (cta, 0)
        row, at = index.mul(tile, self.schedule.cta[0]), index.unflattened(batch, matrix)
        if self.spans is not None:
            first, until = self.spans.read(index, scratch[0], dict(zip(self.read.around, at, strict=False)), tile)
        functions = dict[str, SSAValue]()
        for name, function in op.functions.items():
            inputs = [(arguments[value], map_) for value, map_ in function.placed]
            functions[name] = index.insert(function.moved(inputs, op.maps[0].num_dims, 0)).function
        return op.like(
            **{name.lower(): arguments[value] for name, value in zip(INPUTS, op.inputs, strict=True)},
            outputs=[arguments[value] for value in op.outputs],
            documents=[arguments[value] for value in op.documents],
            tile=index.values([row, *at]),
            first=first,
            until=until,
            **functions,
        )


def _part_types(read: Attention, schedule: Schedule, tiles: int) -> tuple[MemRefType, MemRefType]:
    """The memory for partial results of CTAs that share keys, for `tiles` tiles of O: sums of products, and for each
    row the largest score and the sum of exponentials. A row has the registers of all warps."""
    columns = padded(read.values.n)
    (rows, width), slots = values_schedule(schedule, columns).warp, tiles * schedule.split_k
    count = 1 if slices_of(schedule) > 1 else columns // width
    sums = MemRefType(f32, [slots * count, schedule.warps * rows * width])
    return sums, MemRefType(f32, [2 * slots, schedule.warps * LANES_OF_ROW * rows])


THREADS = 256

MIN, MAX = -(1 << 31), (1 << 31) - 1


class KeySpans(NamedTuple):
    """The first key and the end of the keys of each tile of `rows` queries, for indices of the loops `batch` of static
    `sizes`. `documents` are those of queries and keys; of gradients along keys, all of it the other way around."""

    rows: int
    batch: tuple[int, ...]
    sizes: tuple[int, ...]
    queries: int
    keys: int
    outer: int
    documents: tuple[tuple[SSAValue, AffineMap], ...]

    @staticmethod
    def of(op: AttentionOp | AttentionGradientOp, rows: int) -> KeySpans | None:
        """The spans of an attention; None if its sizes are dynamic."""
        documents, sizes, loops = op.keys.documents, op.sizes, (M, N)
        if isinstance(op, AttentionGradientOp) and op.rows == N:
            documents, loops = documents[::-1], (N, M)
        batch = sorted({loop for _, map_ in documents for loop in loops_of(map_) if loop < op.batch})
        static = tuple(sizes[loop] for loop in (*batch, *(op.batch + loop for loop in loops)))
        if min(static) < 1:
            return None
        return KeySpans(rows, tuple(batch), static[:-2], static[-2], static[-1], op.batch, documents)

    @property
    def tiles(self) -> int:
        """Tiles of one matrix."""
        return -(-self.queries // self.rows)

    def read(
        self, index: IndexBuilder, spans: SSAValue, at: Mapping[int, Index], tile: Index
    ) -> tuple[SSAValue, SSAValue]:
        """The first key of a tile, and where its keys end; `at` are the indices of the batch."""
        matrix: Index = 0
        for loop, size in zip(self.batch, self.sizes, strict=True):
            matrix = index.add(index.mul(matrix, size), at[loop])
        number = index.add(index.mul(matrix, self.tiles), tile)
        loads = [index.insert(memref.LoadOp.get(spans, index.values([number, side]))).res for side in range(2)]
        first, end = (index.insert(arith.IndexCastOp(load, IndexType())).result for load in loads)
        return first, end

    def emit(self, outliner: Outliner) -> SSAValue:
        """Launches the kernel: the memory that it writes."""
        ctas = self.tiles * math.prod(self.sizes)
        spans = outliner.scratch(MemRefType(i32, [ctas, 2]))
        memories = list(dict.fromkeys(memory for memory, _ in self.documents))
        operands = [VectorOperand(f"numbers{i}", memory) for i, memory in enumerate(memories)]
        operands.append(VectorOperand("spans", spans))
        index, body, arguments = kernel_body(operands)
        self._compute(index, arguments, arguments[spans])
        computes = "the keys of each tile of an attention, by numbers of documents"
        outliner.launch("spans", operands, body, ctas, THREADS, computes)
        return spans

    def _compute(self, index: IndexBuilder, arguments: dict[SSAValue, SSAValue], spans: SSAValue) -> None:
        """What a CTA does for its tile."""
        cta, thread = index.number(BlockIdOp), index.number(ThreadIdOp)
        at = dict(zip(self.batch, index.unflattened(self.sizes, index.div(cta, self.tiles)), strict=True))
        row = index.mul(index.rem(cta, self.tiles), self.rows)

        def element(index: IndexBuilder, side: int, number: SSAValue) -> SSAValue:
            memory, map_ = self.documents[side]
            places = [at[loop] if loop < self.outer else number for loop in loops_of(map_)]
            return index.insert(memref.LoadOp.get(arguments[memory], index.values(places))).res

        end = index.minimum(index.add(row, self.rows), self.queries)
        with index.loop(index.add(row, thread), end, THREADS, _numbers(index, MAX, MIN)) as turn:
            number = element(turn.index, 0, turn.counter)
            turn.handed = _wider(turn.index, turn.carried, number)
        least, largest = _of_all(index, turn.results)
        # Of a tile without keys the first is behind all, and the end before all.
        with index.loop(thread, self.keys, THREADS, _numbers(index, self.keys, 0)) as turn:
            inside = turn.index
            number = element(inside, 1, turn.counter)
            tests = (arith.CmpiOp(number, least, "sge"), arith.CmpiOp(number, largest, "sle"))
            above, below = (inside.insert(test).result for test in tests)
            both = inside.insert(arith.AndIOp(above, below)).result
            key, behind = (inside.add(turn.counter, i) for i in range(2))
            numbers = (inside.insert(arith.IndexCastOp(inside.value(i), i32)).result for i in (key, behind))
            pairs = zip(_wider(inside, turn.carried, *numbers), turn.carried, strict=True)
            turn.handed = [inside.insert(arith.SelectOp(both, new, old)).result for new, old in pairs]
        span = _of_all(index, turn.results)
        with index.where(index.compare("eq", thread, 0)) as inside:
            for side, value in enumerate(span):
                inside.insert(memref.StoreOp.get(value, spans, inside.values([cta, side])))


def _numbers(index: IndexBuilder, *numbers: int) -> list[SSAValue]:
    return [index.constants.insert(arith.ConstantOp(IntegerAttr(number, i32))).result for number in numbers]


def _wider(index: IndexBuilder, carried: Sequence[SSAValue], *numbers: SSAValue) -> list[SSAValue]:
    """The smaller of the first and the larger of the last numbers."""
    kinds = (arith.MinSIOp, arith.MaxSIOp)
    sides = (numbers[0], numbers[-1])
    return [index.insert(kind(a, b)).result for kind, a, b in zip(kinds, carried, sides, strict=True)]


def _of_all(index: IndexBuilder, numbers: Sequence[SSAValue]) -> list[SSAValue]:
    """The least and the largest number of all threads."""
    kinds = ("minsi", "maxsi")
    return [
        index.insert(
            AllReduceOp.create(
                operands=[value], result_types=[i32], properties={"op": REDUCTION.of(kind)}, regions=[Region()]
            )
        ).results[0]
        for kind, value in zip(kinds, numbers, strict=True)
    ]


OfScores: TypeAlias = Callable[[IndexBuilder, SSAValue], Sequence[SSAValue]]
"""What is made of scores, where the builder is."""

ScorePlace: TypeAlias = tuple[Index, SSAValue, Index]
"""The first row and the first column of a warp's scores, and how many columns of all count."""


class Band(NamedTuple):
    """The band of scores that count: in row r the columns from r - `left` to r + `right`. None stands for no limit."""

    right: int | None
    left: int | None
    schedule: Schedule

    def end(self, index: IndexBuilder, columns: Index, start: Index) -> Index:
        """The end of the columns that count for the rows of a CTA from `start` on, at most `columns`."""
        if self.right is None:
            return columns
        columns, reached = index.values([columns, index.add(start, self.schedule.cta[0] + self.right)])
        return index.insert(arith.MinSIOp(columns, reached, IndexType())).result

    def first(self, index: IndexBuilder, start: Index, least: SSAValue | None) -> Index:
        """The tile with the first column that counts for a row from `start` on; not one before the column `least`."""
        step = self.schedule.cta[1]
        tile = 0 if self.left is None else index.div(index.from_zero(index.sub(start, self.left)), step)
        return tile if least is None else index.add(tile, index.from_zero(index.sub(index.div(least, step), tile)))

    def masked(self, index: IndexBuilder, scores: SSAValue, place: ScorePlace) -> SSAValue:
        """Scores with minus infinity where they do not count. The number of columns is a multiple of a tile's where
        zeros may replace scores beyond the end."""
        return self.either(index, scores, place, lambda _, some: [some])[0]

    def either(self, index: IndexBuilder, scores: SSAValue, place: ScorePlace, then: OfScores) -> Sequence[SSAValue]:
        """What is made of these scores, in a branch of tiles with some that do not count, and in one of others."""
        beyond, (row, at, columns), (rows, width) = list[SSAValue](), place, self.schedule.warp
        last = index.add(at, width)
        if self._ends(columns):
            beyond.append(index.compare("sgt", last, columns))
        if self.right is not None:
            # The last column of the tile against the last that counts for the first row of the warp.
            beyond.append(index.compare("sgt", last, index.add(row, self.right + 1)))
        if self.left is not None:
            # The first column of the tile against the first that counts for the last row of the warp.
            beyond.append(index.compare("slt", at, index.add(row, rows - 1 - self.left)))
        if not beyond:
            return then(index, scores)
        condition, *others = beyond
        for other in others:
            condition = index.insert(arith.OrIOp(condition, other)).result
        return index.either(
            condition,
            lambda inside: then(inside, self._mask(inside, scores, place)),
            lambda inside: then(inside, scores),
        )

    def _ends(self, columns: Index) -> bool:
        """Whether a tile may have columns beyond the last."""
        return not isinstance(columns, int) or columns % self.schedule.cta[1] > 0

    def _mask(self, index: IndexBuilder, scores: SSAValue, place: ScorePlace) -> SSAValue:
        kind, (row, at, columns) = fragment_of(scores), place
        if self._ends(columns):
            scores = until(index, scores, index.sub(at, columns), -math.inf)

        def places(less: int) -> tuple[SSAValue, SSAValue]:
            """The columns of scores counted from the warp's first row, less a number, and their rows."""
            start = index.sub(index.sub(at, index.value(row)), less)
            column = index.insert(IndexOp(1, index.value(start), kind)).result
            return column, index.insert(IndexOp(0, index.value(0), kind)).result

        if self.right is not None:
            of_right = places(self.right + 1)
            scores = mapped(index, lambda x: below(x[1], x[2], x[0], -math.inf), scores, *of_right)
        if self.left is not None:
            of_left = places(-self.left - 1)
            scores = mapped(index, lambda x: below(x[2], x[1], x[0], -math.inf), scores, *of_left)
        return scores
