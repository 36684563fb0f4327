"""Where the keys of each tile of an attention are whose queries and keys have numbers of documents: a launch before it.

A CTA looks for the least and the largest number of its tile's queries, and then, among all keys, for the first and the
last one whose number is between them. Others have the number of no query of the tile. Numbers may stand in any order;
where those of a document follow each other, little more is left than the documents of the tile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from xdsl.dialects import arith, gpu, memref
from xdsl.dialects.builtin import IndexType, IntegerAttr, MemRefType, StringAttr, i32
from xdsl.ir import Region, SSAValue
from xdsl.ir.affine import AffineMap

from ...dialect.mlir.affine import loops_of
from ...dialect.mlir.gpu import BlockIdOp, ReturnOp, ThreadIdOp
from ...dialect.mlir.subgroup import AllReduceOp, ReductionAttr, ReductionKind
from ...dialect.warp.attention import AttentionOp, M, N
from ...dialect.warp.attributes import COMPUTES
from ..linalg.operand import VectorOperand
from ..patterns import Index, IndexBuilder
from .operands import batch_index
from .tiling import Outliner, kernel_body

THREADS = 256

LEAST, MOST = -(1 << 31), (1 << 31) - 1


class KeySpans(NamedTuple):
    """The first key of each tile of so many `rows`, and where its keys end, for indices of the loops `batch`, of known
    sizes; `documents` are those of the attention."""

    rows: int
    batch: tuple[int, ...]
    sizes: tuple[int, ...]
    queries: int
    keys: int
    outer: int
    documents: tuple[tuple[SSAValue, AffineMap], ...]

    @staticmethod
    def of(op: AttentionOp, rows: int) -> KeySpans | None:
        """Those of an attention; None if its sizes are not known, and all tiles have all keys."""
        documents, sizes = op.keys.documents, op.sizes
        batch = sorted({loop for _, map_ in documents for loop in loops_of(map_) if loop < op.batch})
        static = tuple(sizes[loop] for loop in (*batch, op.batch + M, op.batch + N))
        if min(static) < 1:
            return None
        return KeySpans(rows, tuple(batch), static[:-2], static[-2], static[-1], op.batch, documents)

    @property
    def tiles(self) -> int:
        """Tiles of one matrix."""
        return -(-self.queries // self.rows)

    def read(self, index: IndexBuilder, spans: SSAValue, at: Sequence[Index], tile: Index) -> tuple[SSAValue, SSAValue]:
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
        index.insert(ReturnOp([]))
        kernel = outliner.launch("spans", operands, body, ctas, THREADS)
        kernel.attributes[COMPUTES] = StringAttr("the keys of each tile of an attention, by numbers of documents")
        return spans

    def _compute(self, index: IndexBuilder, arguments: dict[SSAValue, SSAValue], spans: SSAValue) -> None:
        """What a CTA does for its tile."""
        dimension = gpu.DimensionAttr(gpu.DimensionEnum.X)
        cta, thread = index.insert(BlockIdOp(dimension)).result, index.insert(ThreadIdOp(dimension)).result
        at = dict(zip(self.batch, batch_index(index, self.sizes, index.div(cta, self.tiles)), strict=True))
        row = index.mul(index.rem(cta, self.tiles), self.rows)

        def element(index: IndexBuilder, side: int, number: SSAValue) -> SSAValue:
            memory, map_ = self.documents[side]
            places = [at[loop] if loop < self.outer else number for loop in loops_of(map_)]
            return index.insert(memref.LoadOp.get(arguments[memory], index.values(places))).res

        end = index.minimum(index.add(row, self.rows), self.queries)
        with index.loop(index.add(row, thread), end, THREADS, _numbers(index, MOST, LEAST)) as turn:
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
    kinds = (ReductionKind.MINSI, ReductionKind.MAXSI)
    return [
        index.insert(
            AllReduceOp.create(
                operands=[value], result_types=[i32], properties={"op": ReductionAttr(kind)}, regions=[Region()]
            )
        ).result
        for kind, value in zip(kinds, numbers, strict=True)
    ]
