"""Sums that CTAs share: `warp.store_part`, `warp.arrive_last`, `warp.add_parts`, and what only some CTAs do, `scf.if`.

A part lies in memory as registers hold it, 16 bytes of thread 0, then of thread 1, and so on, so that every access of a
warp is one of whole lines.
"""

from __future__ import annotations

from typing import NamedTuple

from xdsl.ir import Operation, SSAValue

from ...dialect.warp.attributes import FragmentType, fragment_of
from ...dialect.warp.partial_sums import AddPartsOp, ArriveLastOp, StorePartOp
from ..diagnostics import fail
from .addressing import CHUNK, GlobalMatrix
from .emitter import IndexValue
from .fragments import Fragment, vector
from .kernel import KernelLowering
from .matrix_ops import result_registers
from .registry import lowers
from .scalars import at

ADD = {"f32": "add.rn.f32", "f64": "add.rn.f64", "f16": "add.rn.f16x2", "s32": "add.s32"}
"""How two registers of accumulators are added."""

MOST_UNROLLED = 64
"""Accesses of a lane that stand one after another; more of them, for further parts, are a loop."""


class _Access(NamedTuple):
    """The accesses of one lane to a part: of `together` registers each, `step` bytes from one to the next."""

    matrix: GlobalMatrix
    together: int
    lane_bytes: int
    step: int

    @staticmethod
    def of(lowering: KernelLowering, op: Operation, memory: SSAValue, kind: FragmentType) -> _Access:
        matrix, width = lowering.matrix(op, memory), max(4, kind.bits // 8)
        given, needed = matrix.row_bytes, kind.registers * width * lowering.threads
        if given != needed:
            fail(op, f"expected rows of {needed} bytes, the fragments of {lowering.threads} threads, got {memory.type}")
        together = next(n for n in (CHUNK // width, 2, 1) if kind.registers % n == 0)
        return _Access(matrix, together, together * width, together * width * lowering.threads)

    def emit(self, lowering: KernelLowering, opcode: str, registers: Fragment, slot: IndexValue) -> None:
        """Moves all registers from or to a part."""
        terms = [(slot, self.matrix.row_bytes), (lowering.thread, self.lane_bytes)]
        base, offset = lowering.scalars.address(self.matrix.base, terms)
        wide, data = (f".v{self.together}", vector(self.together)) if self.together > 1 else ("", "?")
        for i, start in enumerate(range(0, len(registers), self.together)):
            some, address = registers[start : start + self.together], at("?", offset + i * self.step)
            form = f"{address}, {data}" if opcode == "st" else f"{data}, {address}"
            operands = (base, *some) if opcode == "st" else (*some, base)
            lowering.emitter.emit(f"{opcode}.global{wide}.{some[0].type}", form, *operands)


@lowers(StorePartOp)
def _store_part(lowering: KernelLowering, op: StorePartOp) -> None:
    kind, held = fragment_of(op.fragment), lowering.fragment(op.fragment)
    lowering.emitter.comment(f"{op.name}: what this CTA has of the sum")
    _Access.of(lowering, op, op.memory, kind).emit(lowering, "st", held, lowering.scalar(op.slot))


@lowers(ArriveLastOp)
def _arrive_last(lowering: KernelLowering, op: ArriveLastOp) -> None:
    emitter, scalars = lowering.emitter, lowering.scalars
    counters, of = lowering.matrix(op, op.counters), lowering.scalar(op.of)
    base, offset = scalars.address(counters.base, [(lowering.scalar(op.number), counters.element_bytes)])
    limit = scalars.subtract(of, 1)
    first, seen, mine, last = (
        emitter.register("pred"), emitter.register("b32"), emitter.register("pred"), emitter.register("pred")
    )  # fmt: skip
    emitter.comment(f"{op.name}: everything is written; thread 0 counts the CTA in, and resets after the last")
    emitter.emit("bar.sync", "0")
    emitter.emit("setp.eq.s32", "?, ?, 0", first, lowering.thread)
    emitter.emit("mov.b32", "?, 0", seen)
    known, operands = (str(limit), ()) if isinstance(limit, int) else ("?", (limit,))
    emitter.emit(
        "atom.acq_rel.gpu.global.inc.u32", f"?, {at('?', offset)}, {known}", seen, base, *operands, guard=first
    )
    emitter.emit("setp.eq.and.s32", f"?, ?, {known}, ?", mine, seen, *operands, first)
    emitter.emit("bar.red.or.pred", "?, 0, ?", last, mine)
    lowering.values[op.last] = last


@lowers(AddPartsOp)
def _add_parts(lowering: KernelLowering, op: AddPartsOp) -> None:
    kind = op.fragment.type
    if kind.element.name not in ADD:
        fail(op, f"{op.name} adds {', '.join(ADD)}, got {kind}")
    held, total = result_registers(lowering, op, op.input, op.fragment)
    lowering.fragments.copy(held, total)
    access, first, count = _Access.of(lowering, op, op.memory, kind), *lowering.indices((op.first, op.count))
    lowering.emitter.comment(f"{op.name}: the parts in their order")
    if isinstance(count, int) and count * (len(total) // access.together) <= MOST_UNROLLED:
        for part in range(count):
            _add(lowering, access, total, lowering.scalars.add(first, part), ADD[kind.element.name])
    else:
        with lowering.emitter.loop():
            counter, _ = lowering.loops.enter(0, 1, [])
            with lowering.loops.turns(counter, 0, count, 1, "part"):
                _add(lowering, access, total, lowering.scalars.add(first, counter), ADD[kind.element.name])
    lowering.values[op.fragment] = total


def _add(lowering: KernelLowering, access: _Access, total: Fragment, slot: IndexValue, add: str) -> None:
    """Adds one part."""
    got = lowering.emitter.registers(total[0].type, len(total))
    access.emit(lowering, "ld", got, slot)
    for result, part in zip(total, got, strict=True):
        lowering.emitter.emit(add, "?, ?, ?", result, result, part)
