"""Fragments in memory as registers hold them: `warp.store_registers`, `warp.load_registers`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...dialect.layouts.layout import LANES
from ...dialect.warp.attributes import SHARED_SPACE, FragmentType, fragment_of, memory_of, memory_space
from ...dialect.warp.registers import LoadRegistersOp, StoreRegistersOp, register_bytes, together
from .fragments import Fragment
from .kernel import KernelLowering
from .memory import memory_name
from .operands import At
from .registry import lowers


class _Vectors(NamedTuple):
    """The vectors of one lane: how many registers each has, and where the first and the next ones lie."""

    space: str
    each: int
    first: At
    step: int

    @staticmethod
    def of(lowering: KernelLowering, op: StoreRegistersOp | LoadRegistersOp, kind: FragmentType) -> _Vectors:
        s, (row, column), count = lowering.scalars, lowering.indices((op.row, op.column)), together(kind)
        lane_bytes = count * register_bytes(kind)
        if memory_space(memory_of(op.memory)) == SHARED_SPACE:
            tile = lowering.tile(op, op.memory)
            start = s.multiply(row, tile.stage_bytes // tile.rows), s.multiply(column, tile.element_bytes)
            place = lowering.addressing.plain(tile, s.sum(*start, s.multiply(lowering.lane, lane_bytes)))
            return _Vectors("shared", count, place, LANES * lane_bytes)
        matrix = lowering.matrix(op, op.memory)
        terms = [(row, matrix.row_bytes), (column, matrix.element_bytes), (lowering.lane, lane_bytes)]
        return _Vectors("global", count, s.address(matrix.base, terms), LANES * lane_bytes)

    def each_of(self, registers: Fragment) -> Iterator[tuple[Fragment, At]]:
        """The registers of each vector, and where it lies."""
        for i, start in enumerate(range(0, len(registers), self.each)):
            yield registers[start : start + self.each], self.first.behind(i * self.step)


def _comment(lowering: KernelLowering, op: StoreRegistersOp | LoadRegistersOp, kind: FragmentType, way: str) -> None:
    place = "shared memory" if memory_space(memory_of(op.memory)) == SHARED_SPACE else memory_name(op.memory)
    lowering.emitter.comment(f"{op.name}: registers of {kind.role.data} {kind.shape[0]}x{kind.shape[1]} {way} {place}")


@lowers(StoreRegistersOp)
def _store(lowering: KernelLowering, op: StoreRegistersOp) -> None:
    _comment(lowering, op, fragment_of(op.fragment), "to")
    taken = True if op.taken is None else lowering.predicate(op.taken)
    vectors = _Vectors.of(lowering, op, fragment_of(op.fragment))
    for registers, place in vectors.each_of(lowering.fragment(op.fragment)):
        lowering.emitter.store(vectors.space, registers, place, guard=taken)


@lowers(LoadRegistersOp)
def _load(lowering: KernelLowering, op: LoadRegistersOp) -> None:
    _comment(lowering, op, op.fragment.type, "from")
    into = lowering.result(op.fragment)
    vectors = _Vectors.of(lowering, op, op.fragment.type)
    for registers, place in vectors.each_of(into):
        lowering.emitter.load(vectors.space, registers, place)
    lowering.values[op.fragment] = into
