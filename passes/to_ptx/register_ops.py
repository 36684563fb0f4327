"""Fragments in memory as registers hold them: `warp.store_registers`, `warp.load_registers`."""

from __future__ import annotations

from typing import NamedTuple

from ...dialect.layouts.layout import LANES
from ...dialect.warp.attributes import SHARED_SPACE, FragmentType, fragment_of, memory_of, memory_space
from ...dialect.warp.registers import LoadRegistersOp, StoreRegistersOp, register_bytes, together
from .emitter import VirtualRegister
from .fragments import Fragment, vector
from .kernel import KernelLowering
from .memory import memory_name
from .registry import lowers
from .scalars import at


class _Vectors(NamedTuple):
    """The vectors of one lane: how many registers each has, and where the first and the next ones lie."""

    space: str
    each: int
    base: VirtualRegister
    offset: int
    step: int

    @staticmethod
    def of(lowering: KernelLowering, op: StoreRegistersOp | LoadRegistersOp, kind: FragmentType) -> _Vectors:
        s, (row, column), count = lowering.scalars, lowering.indices((op.row, op.column)), together(kind)
        lane_bytes = count * register_bytes(kind)
        if memory_space(memory_of(op.memory)) == SHARED_SPACE:
            tile = lowering.tile(op, op.memory)
            start = s.multiply(row, tile.stage_bytes // tile.rows), s.multiply(column, tile.element_bytes)
            place = lowering.addressing.plain(tile, s.sum(*start, s.multiply(lowering.lane, lane_bytes)))
            return _Vectors("shared", count, *place, LANES * lane_bytes)
        matrix = lowering.matrix(op, op.memory)
        terms = [(row, matrix.row_bytes), (column, matrix.element_bytes), (lowering.lane, lane_bytes)]
        return _Vectors("global", count, *s.address(matrix.base, terms), LANES * lane_bytes)

    def emit(
        self, lowering: KernelLowering, opcode: str, registers: Fragment, taken: VirtualRegister | bool = True
    ) -> None:
        if taken is False:
            return
        guard = taken if isinstance(taken, VirtualRegister) else None
        wide, data = (f".v{self.each}", vector(self.each)) if self.each > 1 else ("", "?")
        for i, start in enumerate(range(0, len(registers), self.each)):
            some, place = registers[start : start + self.each], at("?", self.offset + i * self.step)
            form = f"{place}, {data}" if opcode == "st" else f"{data}, {place}"
            operands = (self.base, *some) if opcode == "st" else (*some, self.base)
            lowering.emitter.emit(f"{opcode}.{self.space}{wide}.{some[0].type}", form, *operands, guard=guard)


def _comment(lowering: KernelLowering, op: StoreRegistersOp | LoadRegistersOp, kind: FragmentType, way: str) -> None:
    place = "shared memory" if memory_space(memory_of(op.memory)) == SHARED_SPACE else memory_name(op.memory)
    lowering.emitter.comment(f"{op.name}: registers of {kind.role.data} {kind.shape[0]}x{kind.shape[1]} {way} {place}")


@lowers(StoreRegistersOp)
def _store(lowering: KernelLowering, op: StoreRegistersOp) -> None:
    _comment(lowering, op, fragment_of(op.fragment), "to")
    taken = True if op.taken is None else lowering.predicate(op.taken)
    _Vectors.of(lowering, op, fragment_of(op.fragment)).emit(lowering, "st", lowering.fragment(op.fragment), taken)


@lowers(LoadRegistersOp)
def _load(lowering: KernelLowering, op: LoadRegistersOp) -> None:
    _comment(lowering, op, op.fragment.type, "from")
    into = lowering.result(op.fragment)
    _Vectors.of(lowering, op, op.fragment.type).emit(lowering, "ld", into)
    lowering.values[op.fragment] = into
