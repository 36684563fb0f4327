"""`warp.convert_layout`: fragments in another layout, within registers, between lanes, or by way of scratch memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...dialect.isa.matrix_moves import MOVMATRIX
from ...dialect.layouts.layout import LANES, Bit, Layout
from ...dialect.warp.attributes import FragmentType, fragment_of
from ...dialect.warp.conversion_steps import LANE_BITS, MoveMatrices, PermuteElements, Rename, Shuffles, Step, Trip
from ...dialect.warp.convert import BANKS, WIDEST, ConvertLayoutOp
from ..diagnostics import fail
from .addressing import SharedTile
from .emitter import WARP, At, IndexValue, VirtualRegister
from .fragments import REGISTER_BITS, Fragment, gather, put_together
from .kernel import KernelLowering, lowers
from .memory import offsets, side_by_side
from .products import own
from .scalars import runs


@lowers(ConvertLayoutOp)
def _convert_layout(lowering: KernelLowering, op: ConvertLayoutOp) -> None:
    if op.scratch is not None:
        lowering.values[op.fragment] = _through_scratch(lowering, op, lowering.tile(op, op.scratch))
        return
    conversion, target = op.conversion(), lowering.target
    wide = op.fragment.type.bits > REGISTER_BITS
    fits = (
        conversion_
        for conversion_ in conversion.routes
        if conversion_.sm <= target.sm and (conversion_.is_free or not wide)
        if not any(isinstance(step, Trip) for step in conversion_.steps)
    )
    conversion_ = next(fits, None)
    if conversion_ is None:
        fail(op, f"expected a way between the layouts that {target} has, got {conversion}")
    if any(isinstance(step, Shuffles | MoveMatrices) for step in conversion_.steps):
        lowering.emitter.comment(f"{op.name}: {conversion_}")
    source_registers, kind = lowering.fragment(op.input), op.fragment.type
    result: dict[int, VirtualRegister] = {}
    for source, target in zip(op.registers(fragment_of(op.input)), op.registers(kind), strict=True):
        registers = [source_registers[number] for number in source]
        for step in conversion_.steps:
            registers = _step(lowering, op, step, registers)
        result |= dict(zip(target, registers, strict=True))
    registers = [result[number] for number in sorted(result)]
    alone = op.input.has_one_use() or not any(register in source_registers for register in registers)
    if not alone:
        registers = own(lowering, op.fragment, registers)
    lowering.values[op.fragment] = registers


def _step(lowering: KernelLowering, op: ConvertLayoutOp, step: Step, registers: Fragment) -> Fragment:
    if isinstance(step, Rename):
        return [registers[source] for source in step.sources]
    if isinstance(step, PermuteElements):
        return _permute(lowering, step, registers, op.fragment.type.bits)
    if isinstance(step, Shuffles):
        return _shuffles(lowering, step, registers)
    if not isinstance(step, MoveMatrices):
        fail(op, f"expected a step within registers, got: {step}")
    return [lowering.emitter.compute(MOVMATRIX.spelling, register) for register in registers]


def _permute(lowering: KernelLowering, step: PermuteElements, registers: Fragment, bits: int) -> Fragment:
    """Elements to other places of their lane."""

    def source(address: int) -> int | None:
        position = 0
        for i, bit in enumerate(step.sources):
            if address >> i & 1:
                if bit is None:
                    return None
                position |= 1 << bit
        return position

    result: Fragment = []
    for first in range(0, 1 << len(step.sources), REGISTER_BITS):
        wanted = [source(first + at) for at in range(0, REGISTER_BITS, bits)]
        places = [(at // REGISTER_BITS, at % REGISTER_BITS // bits) for at in wanted if at is not None]
        result.append(gather(lowering.emitter, registers, places, bits))
    return result


def _shuffles(lowering: KernelLowering, step: Shuffles, registers: Fragment) -> Fragment:
    """Each round sends one register of each lane. The lane may decide which register is sent, and where it is kept."""
    received: list[VirtualRegister] = []
    for turn in step.rounds:
        sent = _of_lane(lowering, [registers[number] for number in turn.send])
        if turn.free:
            received.append(sent)
            continue
        received.append(_shuffle(lowering, sent, turn.source))
    rounds = {(lane, kept): i for i, turn in enumerate(step.rounds) for lane, kept in enumerate(turn.keep)}
    return [_of_lane(lowering, [received[rounds[lane, n]] for lane in range(LANES)]) for n in range(len(received))]


def _shuffle(lowering: KernelLowering, sent: VirtualRegister, source: Sequence[int]) -> VirtualRegister:
    """Lane l gets what lane `source[l]` sends; lanes are sent to an affine function of their number."""
    constant, s = source[0], lowering.scalars
    images = [source[1 << bit] ^ constant for bit in range(LANE_BITS)]
    if images == [1 << bit for bit in range(LANE_BITS)]:
        return lowering.emitter.compute("shfl.sync.bfly.b32", sent, constant, *WARP, type=sent.type)
    number: IndexValue = constant
    for bit, image in enumerate(images):
        number = s.xor(number, s.multiply(s.bits(lowering.lane, bit, 1, 0), image))
    return lowering.emitter.compute("shfl.sync.idx.b32", sent, number, *WARP, type=sent.type)


def _of_lane(lowering: KernelLowering, choices: Sequence[VirtualRegister]) -> VirtualRegister:
    """One of several registers, selected by the lower bits of the lane's number."""
    if len(choices) == 1:
        return choices[0]
    half = len(choices) // 2
    if all(low is high for low, high in zip(choices[:half], choices[half:], strict=True)):
        return _of_lane(lowering, choices[:half])
    low, high = _of_lane(lowering, choices[:half]), _of_lane(lowering, choices[half:])
    upper = lowering.scalars.compare("ne", lowering.scalars.bits(lowering.lane, half.bit_length() - 1, 1, 0), 0)
    return lowering.fragments.select(upper, [high], [low])[0]


# Fragments in another layout by way of scratch memory, of which each warp has a row.
#
# A base tile of the result lies row by row, tile after tile, so that lanes read 16 bytes each and 128 together.
# What is written row by row would meet at banks: lanes that differ in a bit of the row that stands above the lowest
# 128 bytes. Each such bit is XORed into a bit of the address that no other lane's bit uses, of those that neither a
# lane's write nor its read of neighbours covers. Reads then have the same 128 bytes in another order.

WARP_BITS = 5
BANK_BITS = BANKS.bit_length() - 1
WORD_ADDRESS_BITS = 2


@dataclass(frozen=True)
class Places:
    """The address of an element in a warp's scratch memory: the address bit of each bit of its row and column in a base
    tile of the result, and the further address bit that it flips, if any."""

    source: FragmentType
    result: FragmentType

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return self.source.bits // 8

    def natural(self, bit: Bit) -> int:
        """The bit of the address, row by row."""
        before = self.result.layout.data.columns if bit.axis == "r" else 1
        return (self.size * before).bit_length() - 1 + bit.number

    @staticmethod
    def together(kind: FragmentType) -> int:
        """Elements of one access of a lane."""
        return min(side_by_side(kind.layout.data), WIDEST * 8 // kind.bits)

    @cached_property
    def moved(self) -> Mapping[Bit, int]:
        """The bits of the row that are exclusive-ored into other address bits, and these bits."""
        wide = [(self.together(kind) * self.size).bit_length() - 1 for kind in (self.source, self.result)]
        # So many lanes are served at once that they fill the banks.
        lanes = self.source.layout.data.lane[: BANK_BITS - max(WORD_ADDRESS_BITS, wide[0])]
        taken = {self.natural(bit) for bit in lanes}
        free = (bit for bit in range(max(*wide, WORD_ADDRESS_BITS), BANK_BITS) if bit not in taken)
        return dict(zip((bit for bit in lanes if self.natural(bit) >= BANK_BITS), free, strict=False))

    def of_lanes(self, kind: FragmentType) -> int:
        """The bits of the address that depend on the lane."""
        lanes = kind.layout.data.lane
        return sum(1 << bit for bit in {*map(self.natural, lanes), *(self.moved[b] for b in lanes if b in self.moved)})

    def offset(self, row: int, along: int) -> tuple[int, int]:
        """The place of an element in bytes: what is XORed into the place of the lane, and what is added."""
        layout, size = self.result.layout.data, self.size
        (i, row), (j, along) = divmod(row, layout.rows), divmod(along, layout.columns)
        tile = ((i * self.result.tiles[1] + j) * layout.rows * layout.columns * size) >> len(layout.warp)
        inside = (row * layout.columns + along) * size
        changed = inside
        for bit, place in self.moved.items():
            changed ^= ((row if bit.axis == "r" else along) >> bit.number & 1) << place
        low = changed % BANKS
        return low, tile + changed - low


class ScratchRow:
    """Emits the accesses of one operation to the row of scratch memory that the executing warp has."""

    def __init__(self, lowering: KernelLowering, tile: SharedTile, places: Places) -> None:
        self.lowering, self.tile, self.places = lowering, tile, places
        emitter, s = lowering.emitter, lowering.scalars
        # Copies of what is known from the start keep the addresses here; outside they would hold registers in the K
        # loop.
        self.lane, thread = (emitter.compute("mov.b32", register) for register in (lowering.lane, lowering.thread))
        self.lane.bound, thread.bound = lowering.lane.bound, lowering.thread.bound
        self.base = s.multiply(s.shift_right(thread, WARP_BITS), tile.columns * tile.element_bytes)

    def places_of(self, kind: FragmentType, registers: Fragment) -> Iterator[tuple[Fragment, At]]:
        """The registers of a fragment that one access moves, and where."""
        s, lane_bits = self.lowering.scalars, self.places.of_lanes(kind)
        mine, start = self.lowering.addressing.shared_bytes_at(
            self.tile.offset, s.sum(self.base, self._lane(kind.layout.data))
        )
        places = list(offsets(kind, self.places.together(kind)))
        each = len(registers) // len(places)
        for number, place in enumerate(places):
            low, high = self.places.offset(*place)
            # Each warp's part starts at a multiple of the banks, so that bits can be turned in the address itself.
            turned = low & lane_bits
            address = self.lowering.emitter.pure("xor.b32", mine, turned) if turned else mine
            yield registers[number * each :][:each], At(address, start + high + (low & ~lane_bits))

    def _lane(self, layout: Layout) -> IndexValue:
        s, places = self.lowering.scalars, self.places
        plain = s.sum(*(s.bits(self.lane, *run) for run in runs([places.natural(bit) for bit in layout.lane])))
        changed = [places.moved.get(bit) for bit in layout.lane]
        return s.xor(plain, s.sum(0, *(s.bits(self.lane, *run) for run in runs(changed))))


def _through_scratch(lowering: KernelLowering, op: ConvertLayoutOp, tile: SharedTile) -> Fragment:
    """Converts a layout through shared memory: each lane stores, waits for the warp, and loads its new elements."""
    source, result, emitter = fragment_of(op.input), op.fragment.type, lowering.emitter
    emitter.settle()
    places = Places(source, result)
    row = ScratchRow(lowering, tile, places)
    emitter.emit("bar.warp.sync", -1)
    emitter.comment(f"{op.name}: {source.shape[0]}x{source.shape[1]} {source.element.name} to be read by other lanes")
    for registers, place in row.places_of(source, lowering.fragment(op.input)):
        emitter.store("shared", registers, place)
    emitter.emit("bar.warp.sync", -1)
    loaded = lowering.fresh(result)
    alone = places.together(result) * result.bits < REGISTER_BITS
    pieces = [emitter.register("b16") for _ in range(2 * len(loaded))] if alone else loaded
    for registers, place in row.places_of(result, pieces):
        emitter.load("shared", registers, place)
    if alone:
        put_together(emitter, pieces, loaded)
    return loaded
