"""Sums over warps that share a tile: `warp.sum_sliced_k`.

Every warp writes to shared memory the parts of its fragment that other slices get, 16 bytes a lane at a time so that no
two lanes meet in a bank, and after a barrier adds to its own part what they wrote.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...dialect.warp.attributes import fragment_of
from ...dialect.warp.sliced_k import LANES, SumSlicedKOp
from ..diagnostics import fail
from .addressing import CHUNK, SharedTile
from .emitter import IndexValue, VirtualRegister
from .fragments import Fragment, vector
from .kernel import KernelLowering
from .registry import lowers
from .scalars import at

ADD = {"f32": "add.rn.f32", "f64": "add.rn.f64", "f16": "add.rn.f16x2", "s32": "add.s32"}
"""How two registers of accumulators are added."""

WARP_BITS = 5


@dataclass
class SlicedSum:
    """The parts of `slices` slices of `positions` warps each, in rows of scratch memory."""

    lowering: KernelLowering
    tile: SharedTile
    slices: int
    registers: int
    """Registers of a part."""
    width: int
    """Bytes of a register."""

    def __post_init__(self) -> None:
        s = self.lowering.scalars
        self.positions = self.lowering.threads // LANES // self.slices
        warp = s.shift_right(self.lowering.thread, WARP_BITS)
        self.slice, self.position = s.quotient(warp, self.positions), s.remainder(warp, self.positions)
        self.together = next(n for n in (CHUNK // self.width, 2, 1) if self.registers % n == 0)

    def place(self, receiver: IndexValue, slot: IndexValue) -> tuple[VirtualRegister, int]:
        """Where this lane's first registers of a part lie, in the row of the warp of slice `receiver`."""
        s, part = self.lowering.scalars, self.registers * LANES * self.width
        warp = s.add(s.multiply(receiver, self.positions), self.position)
        row = s.multiply(warp, self.tile.stage_bytes // self.tile.rows)
        lane = s.multiply(self.lowering.lane, self.together * self.width)
        return self.lowering.addressing.plain(self.tile, s.sum(row, s.multiply(slot, part), lane))

    def send(self, held: Fragment) -> None:
        """Writes the parts of the other slices, each to the row of the warp that gets it."""
        s = self.lowering.scalars
        for receiver in range(self.slices):
            mine = s.compare("ne", self.slice, receiver)
            # The receiver leaves out its own place among the slices.
            slot = s.subtract(self.slice, s.select(s.compare("gt", self.slice, receiver), 1, 0))
            place = self.place(receiver, 0 if self.slices == 2 else slot)
            self._move("st", held[receiver * self.registers :][: self.registers], place, mine)

    def receive(self, own: Fragment, add: str) -> Fragment:
        """The sum of this slice's part over all slices."""
        emitter = self.lowering.emitter
        for slot in range(self.slices - 1):
            got = emitter.registers(own[0].type, len(own))
            self._move("ld", got, self.place(self.slice, slot), True)
            total = emitter.registers(own[0].type, len(own))
            for result, a, b in zip(total, own, got, strict=True):
                emitter.emit(add, "?, ?, ?", result, a, b)
            own = total
        return own

    def own(self, held: Fragment) -> Fragment:
        """The registers of the part that this slice gets."""
        chosen, emitter = held[: self.registers], self.lowering.emitter
        for number in range(1, self.slices):
            here = self.lowering.scalars.compare("eq", self.slice, number)
            if not isinstance(here, VirtualRegister):
                continue
            other, result = held[number * self.registers :], emitter.registers(held[0].type, self.registers)
            for to, yes, no in zip(result, other, chosen, strict=False):
                emitter.emit(f"selp.{to.type}", "?, ?, ?, ?", to, yes, no, here)
            chosen = result
        return chosen

    def _move(
        self, opcode: str, registers: Fragment, place: tuple[VirtualRegister, int], taken: VirtualRegister | bool
    ) -> None:
        base, offset = place
        count, guard = self.together, taken if isinstance(taken, VirtualRegister) else None
        wide = f".v{count}" if count > 1 else ""
        for start in range(0, len(registers), count):
            address = at("?", offset + start // count * LANES * count * self.width)
            some, data = registers[start : start + count], vector(count) if count > 1 else "?"
            form = f"{address}, {data}" if opcode == "st" else f"{data}, {address}"
            operands = (base, *some) if opcode == "st" else (*some, base)
            self.lowering.emitter.emit(f"{opcode}.shared{wide}.{some[0].type}", form, *operands, guard=guard)


@lowers(SumSlicedKOp)
def lower(lowering: KernelLowering, op: SumSlicedKOp) -> None:
    """Emits a `warp.sum_sliced_k`.

    Raises a located diagnostic for elements that are no accumulators, or another number of warps than the memory has.
    """
    whole, part, tile = fragment_of(op.input), fragment_of(op.part), lowering.tile(op, op.scratch)
    if whole.element.name not in ADD:
        fail(op, f"{op.name} adds {', '.join(ADD)}, got {whole.element.name}")
    if tile.rows * LANES != lowering.threads:
        fail(op, f"expected a row of memory for each of {lowering.threads // LANES} warps, got {op.scratch.type}")
    lowering.emitter.comment(f"sum over {op.slices} slices")
    held = lowering.fragment(op.input)
    exchange = SlicedSum(lowering, tile, op.slices, part.registers, max(4, whole.bits // 8))
    exchange.send(held)
    lowering.emitter.emit("bar.sync", "0")
    lowering.values[op.part] = exchange.receive(exchange.own(held), ADD[whole.element.name])
