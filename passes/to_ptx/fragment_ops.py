"""Operations on fragments: `warp.constant`, `warp.elementwise`, `warp.convert`, `warp.convert_layout`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.ir import Operation

from ...dialect.conversions.steps import LANE_BITS, MoveMatrices, PermuteElements, Rename, Shuffles, Step, Trip, Way
from ...dialect.isa.families import MOVMATRIX
from ...dialect.isa.form import FP8, ElementType
from ...dialect.layouts.layout import LANES, Bit, Layout
from ...dialect.ptx.text.syntax import Immediate
from ...dialect.warp.attributes import FragmentType, fragment_of
from ...dialect.warp.fragments import BANKS, WIDEST, ConstantOp, ConvertLayoutOp, ConvertOp, ElementwiseOp, Kind
from ...dialect.warp.mma import MmaOp
from ...dialect.warp.stored import NIBBLES, StoredIntegers
from ..diagnostics import fail
from .addressing import SharedTile
from .emitter import WARP, At, EmittedOperand, Emitter, IndexValue, VirtualRegister, word
from .fragments import REGISTER_BITS, Fragment, element_bits, gather
from .kernel import KernelLowering, lowers
from .memory import offsets, side_by_side
from .scalars import runs

# Integers of 8 and 4 bits as f16 or bf16 in registers, exactly, without conversion instructions.
#
# An integer without its sign, the top bit turned over, is put into the fraction of a float whose last bit counts ones:
# 0x6400 is 1024 in f16, 0x4300 is 128 in bf16. What is subtracted then takes away that number, the turned bit and the
# zero point at once. bf16 has 7 bits of fraction, and a byte 8: its top bit becomes the last bit of the exponent of
# the number that is subtracted, 128 or 256, of which the half is what the bit counts.
#
# Both halves of a register are converted at once. So elements half a register apart need no moves: a shift brings them
# to the lower end of the halves. The 10 bits of fraction of f16 have room for the two integers of 4 bits of a byte. So
# the upper one needs no shift.

MAGIC = {"f16": (0x6400, 1024), "bf16": (0x4300, 128)}
"""Bits of a float whose last bit counts ones, and its value."""

FRACTION = {"f16": 10, "bf16": 7}
"""Bits of the fraction below the one that counts the value of `MAGIC`."""

AND_XOR = word(0x6A, 2)
"""The truth table of (a & b) ^ c."""

CHOOSE = word(0xCA, 2)
"""The truth table of (a & b) | (~a & c)."""

WIDENED_BITS, SHORT, BYTE, NIBBLE_BITS = 32, 16, 8, 4


def _twice(half: int) -> Immediate:
    """16 bits in both halves of a word."""
    return word(half << 16 | half)


class Widening:
    """Emits the conversion of registers of integers to registers of two floats each."""

    def __init__(self, emitter: Emitter, stored: StoredIntegers, element: ElementType, *, late: bool = False) -> None:
        """`late` converts a register where an instruction first reads it, which is between products."""
        self.emitter, self.stored, self.element = emitter, stored, element
        self._emit = self._late if late else emitter.compute
        self.turned = 1 << stored.element.bits - 1 if stored.element.signed else 0
        self._known: dict[int, VirtualRegister] = {}
        self._shifted: dict[tuple[VirtualRegister, int], VirtualRegister] = {}

    def convert(self, source: Fragment, order: list[int]) -> Fragment:
        """Elements of the registers `source`, in the order of their numbers in `order`."""
        if self.element.bits == BYTE:
            return [self._four(source[at // 8], at % 8) for at in order[::4]]
        return [self._pair(source, *order[i : i + 2]) for i in range(0, len(order), 2)]

    def _four(self, register: VirtualRegister, first: int) -> VirtualRegister:
        """Four neighbours from number `first` on, integers of 4 bits, as bytes from two tables of eight: those without
        the top bit, and those with it."""
        chosen = self._down(self._emit("and.b32", register, word(0x77777777)), 16 if first else 0)
        low, high = (self._emit("prmt.b32", *map(word, self._table(top)), chosen) for top in (0, 8))
        # A top bit is the sign of a byte, of every second number once it is shifted.
        shifted = self._emit("shl.b32", register, NIBBLE_BITS)
        tops = self._emit("prmt.b32", register, shifted, word(0xBFAE if first else 0x9D8C, 4))
        return self._emit("lop3.b32", tops, high, low, CHOOSE)

    def _table(self, first: int) -> list[int]:
        """The bytes of eight integers from the bits `first` on, in two words."""
        less = self.stored.zero + (16 if first and self.turned else 0)
        every = [element_bits(self.element, number - less) for number in range(first, first + 8)]
        return [int.from_bytes(every[at : at + 4], "little") for at in (0, 4)]

    def scaled(self, pair: VirtualRegister, scales: VirtualRegister) -> VirtualRegister:
        """Two floats times their scales; before sm_90 bf16 has no multiplication, and x * y - 0 is one."""
        if self.element.name == "f16":
            return self._emit("mul.rn.f16x2", pair, scales)
        return self._emit("fma.rn.bf16x2", pair, scales, self._number(-0.0))

    def _pair(self, source: Fragment, first: int, second: int) -> VirtualRegister:
        bits = self.stored.element.bits
        per_register = WIDENED_BITS // bits
        (at, number), (other, partner) = divmod(first, per_register), divmod(second, per_register)
        if (other, partner) == (at, number + per_register // 2):
            return self._half_apart(source[at], number * bits)
        return self._floats(self._gathered(source[at], number * bits, source[other], partner * bits))

    def _half_apart(self, register: VirtualRegister, at: int) -> VirtualRegister:
        """Elements at bit `at` of both halves, as floats."""
        place, bits = at % BYTE, self.stored.element.bits
        if self.stored.name == NIBBLES:
            return self._of_floats(register, at)
        if self.element.name == "f16" and place and place + bits <= FRACTION["f16"]:
            return self._scaled_floats(self._down(register, at - place), place)
        return self._floats(self._down(register, at))

    def _of_floats(self, register: VirtualRegister, at: int) -> VirtualRegister:
        """4-bit floats at bit `at` of both halves, as bf16: sign, exponent and fraction bit are moved to their places
        in bf16, and multiplied by 2^126, the difference of the exponents' biases."""
        top = self._emit("shl.b32", register, SHORT - at - NIBBLE_BITS) if at + NIBBLE_BITS < SHORT else register
        rest = self._emit("shr.b32", self._emit("and.b32", top, _twice(0x7000)), 6)
        return self._emit("mul.rn.bf16x2", self._and_xor_of(top, 0x8000, rest), self._number(2.0**126))

    def _and_xor_of(self, halves: VirtualRegister, mask: int, flipped: VirtualRegister) -> VirtualRegister:
        return self._emit("lop3.b32", halves, _twice(mask), flipped, AND_XOR)

    def _late(self, opcode: str, *sources: EmittedOperand) -> VirtualRegister:
        result = self.emitter.register("b32")
        self.emitter.defer(result, (opcode, (result, *sources)))
        return result

    def _constant(self, half: int) -> VirtualRegister:
        """A register with 16 bits in both halves."""
        if half not in self._known:
            self._known[half] = self.emitter.compute("mov.b32", _twice(half))
        return self._known[half]

    def _number(self, value: float) -> VirtualRegister:
        return self._constant(element_bits(self.element, value))

    def _down(self, register: VirtualRegister, by: int) -> VirtualRegister:
        if not by:
            return register
        if (register, by) not in self._shifted:
            self._shifted[register, by] = self._emit("shr.b32", register, by)
        return self._shifted[register, by]

    def _gathered(self, low: VirtualRegister, at: int, high: VirtualRegister, place: int) -> VirtualRegister:
        """The element at bit `at` of one register, and that at bit `place` of another, at the ends of two halves."""
        low, high = self._down(low, at % 8), self._down(high, place % 8)
        first, second = at // 8, place // 8 + 4
        return self._emit("prmt.b32", low, high, word(second * 0x1100 + first * 0x11, 4))

    def _and_xor(self, halves: VirtualRegister, mask: int, flipped: int) -> VirtualRegister:
        return self._and_xor_of(halves, mask, self._constant(flipped))

    def _floats(self, halves: VirtualRegister) -> VirtualRegister:
        """Both halves of a register, whose low bits are integers, as floats."""
        name, bits = self.element.name, self.stored.element.bits
        magic, value = MAGIC[name]
        if bits > FRACTION[name]:
            return self._by_exponent(halves)
        floats = self._and_xor(halves, (1 << bits) - 1, magic ^ self.turned)
        return self._less(floats, value + self.turned + self.stored.zero)

    def _scaled_floats(self, halves: VirtualRegister, place: int) -> VirtualRegister:
        """Both halves of a register, whose bits from `place` on are integers, as f16.

        They stay there, as the fraction has room for them: 1024 + 2^place x. The multiply-add that subtracts divides by
        2^place too, exactly.
        """
        magic, value = MAGIC["f16"]
        floats = self._and_xor(halves, (1 << self.stored.element.bits) - 1 << place, magic ^ self.turned << place)
        surplus = (value >> place) + self.turned + self.stored.zero
        return self._emit("fma.rn.f16x2", floats, self._number(2.0**-place), self._number(-surplus))

    def _by_exponent(self, halves: VirtualRegister) -> VirtualRegister:
        """Bytes as bf16: 128 and the low seven bits, less 128 or 256 by the top bit."""
        magic, value = MAGIC[self.element.name]
        floats = self._and_xor(halves, value - 1, magic)
        # Of those without a sign the top bit is turned over, and counts 128 the other way.
        exponents = self._and_xor(halves, value, magic if self.turned else magic ^ value)
        less = self._emit("fma.rn.bf16x2", exponents, self._number(-1), floats)
        surplus = self.stored.zero - (0 if self.turned else value)
        return self._less(less, surplus) if surplus else less

    def _less(self, pair: VirtualRegister, surplus: int) -> VirtualRegister:
        """Two floats less what they have too much."""
        if self.element.name == "f16":
            return self._emit("sub.rn.f16x2", pair, self._number(surplus))
        return self._emit("fma.rn.bf16x2", pair, self._number(1), self._number(-surplus))


# Arithmetic on fragments: `warp.constant`, `warp.elementwise`, `warp.convert`.


@lowers(ConstantOp)
def _constant(lowering: KernelLowering, op: ConstantOp) -> None:
    lowering.values[op.fragment] = lowering.fragments.constant(fragment_of(op.fragment), op.value.value.data)


@lowers(ElementwiseOp)
def _elementwise(lowering: KernelLowering, op: ElementwiseOp) -> None:
    inputs = [lowering.fragment(v) for v in op.inputs]
    kind, element = op.kind.data, op.fragment.type.element
    if isinstance(made := op.inputs[0].owner, ConvertOp) and kind is Kind.Mul and made.integers is not None:
        scale = Widening(lowering.emitter, made.integers, element, late=_between_products(op, made.integers)).scaled
        lowering.values[op.fragment] = list(map(scale, *inputs))
        return
    if not (kind is Kind.Add and element.name in ("f64", "s32")):
        _computes(op, element)
    into = lowering.result(op.fragment, in_place=True)
    lowering.fragments.elementwise(kind, element, inputs, into)
    lowering.values[op.fragment] = into


@lowers(ConvertOp)
def _convert(lowering: KernelLowering, op: ConvertOp) -> None:
    source, to = fragment_of(op.input), op.fragment.type
    if (stored := op.integers) is not None:
        lowering.emitter.comment(f"{op.name}: {stored.name} to {to.element.name}")
        use = next((use.operation for use in op.fragment.uses if isinstance(use.operation, ElementwiseOp)), op)
        convert = Widening(lowering.emitter, stored, to.element, late=_between_products(use, stored)).convert
        lowering.values[op.fragment] = convert(lowering.fragment(op.input), op.order)
        return
    if source.element.name in FP8 and to.element.name == "f16":
        lowering.emitter.comment(f"{op.name}: {source.element.name} to f16")
    elif source.element.name == "f32" and to.element.name in FP8:
        lowering.emitter.comment(f"{op.name}: f32 to {to.element.name}")
    else:
        _computes(op, to.element)
        _computes(op, source.element)
    lowering.values[op.fragment] = lowering.fragments.convert(lowering.fragment(op.input), source, to)


def _between_products(op: ConvertOp | ElementwiseOp, stored: StoredIntegers) -> bool:
    """Whether integers are converted one register after the other, where products of fragments read them.

    Of bytes that is faster, of 4 bits slower (H200, 16x8192x8192: 21.1 microseconds for 21.4, 14.7 for 14.6).
    """
    return stored.element.bits == BYTE and all(isinstance(use.operation, MmaOp) for use in op.fragment.uses)


def _computes(op: Operation, element: ElementType) -> None:
    if element.name not in ("f16", "bf16", "f32"):
        fail(op, f"{op.name} is lowered for f16, bf16 and f32, got {element.name}")


# Fragments in another layout: what `warp.convert_layout` becomes, step by step of the way that is cheapest.


@lowers(ConvertLayoutOp)
def _convert_layout(lowering: KernelLowering, op: ConvertLayoutOp) -> None:
    if op.scratch is not None:
        lowering.values[op.fragment] = _through_scratch(lowering, op, lowering.tile(op, op.scratch))
        return
    conversion, target = op.conversion(), lowering.target
    wide = op.fragment.type.bits > REGISTER_BITS
    fits = (
        conversion_
        for conversion_ in conversion.ways
        if conversion_.sm <= target.sm and _stays(conversion_) and (conversion_.is_free or not wide)
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
        from .epilogue import own  # with operations that most products do not need

        registers = own(lowering, op.fragment, registers)
    lowering.values[op.fragment] = registers


def _stays(conversion: Way) -> bool:
    """Whether all of it happens in registers."""
    return not any(isinstance(step, Trip) for step in conversion.steps)


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
    return [
        _of_lane(lowering, [received[rounds[lane, number]] for lane in range(LANES)]) for number in range(len(received))
    ]


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
        """The place of an element, in bytes: a part that is XORed into the place of the lane, and a part that is
        added."""
        layout, size = self.result.layout.data, self.size
        (i, row), (j, along) = divmod(row, layout.rows), divmod(along, layout.columns)
        tile = (i * self.result.tiles[1] + j) * layout.rows * layout.columns * size
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
        for moved, (row, along) in self._groups(kind, registers):
            low, high = self.places.offset(row, along)
            # Each warp's part starts at a multiple of the banks, so that bits can be turned in the address itself.
            turned = low & lane_bits
            address = self.lowering.emitter.pure("xor.b32", mine, turned) if turned else mine
            yield moved, At(address, start + high + (low & ~lane_bits))

    def _groups(self, kind: FragmentType, registers: Fragment) -> Iterator[tuple[Fragment, tuple[int, int]]]:
        """The registers that one access moves, and the row and column that it adds to those of the lane."""
        places = list(offsets(kind, self.places.together(kind)))
        each = len(registers) // len(places)
        for number, place in enumerate(places):
            yield registers[number * each :][:each], place

    def _lane(self, layout: Layout) -> IndexValue:
        """The offset of a lane's first element."""
        s, places = self.lowering.scalars, self.places
        plain = s.sum(*(s.bits(self.lane, *run) for run in runs([places.natural(bit) for bit in layout.lane])))
        changed = [places.moved.get(bit) for bit in layout.lane]
        return s.xor(plain, s.sum(0, *(s.bits(self.lane, *run) for run in runs(changed))))


def _through_scratch(lowering: KernelLowering, op: ConvertLayoutOp, tile: SharedTile) -> Fragment:
    """Converts a layout through shared memory: each lane stores its elements, waits for the warp, and loads its new
    ones."""
    source, result, emitter = fragment_of(op.input), op.fragment.type, lowering.emitter
    emitter.settle()
    row = ScratchRow(lowering, tile, Places(source, result))
    emitter.emit("bar.warp.sync", -1)
    emitter.comment(f"{op.name}: {source.shape[0]}x{source.shape[1]} {source.element.name} to be read by other lanes")
    for registers, place in row.places_of(source, lowering.fragment(op.input)):
        emitter.store("shared", registers, place)
    emitter.emit("bar.warp.sync", -1)
    loaded = lowering.fresh(result)
    for registers, place in row.places_of(result, loaded):
        emitter.load("shared", registers, place)
    return loaded
