"""Accumulators on their way to memory: vectors, `warp.map`, `warp.reduce`."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import cast

from xdsl.dialects.builtin import IntegerType, f16
from xdsl.ir import Attribute, BlockArgument, SSAValue

from ...dialect.isa.form import FP8, ElementType
from ...dialect.layouts.layout import Layout, column
from ...dialect.warp.attributes import FragmentType, fragment_of, known_element, memory_of
from ...dialect.warp.convert import IDENTITIES, ROW_BITS, ConvertOp, ReduceOp, ScanOp, column_of
from ...dialect.warp.elements import GeluOp, IndexOp, YieldOp
from ...dialect.warp.fragments import ElementwiseOp, alike
from ...dialect.warp.memory import EXPONENT, POINT, LoadOp
from ...dialect.warp.rows import MapOp
from ...dialect.warp.stored import EXPONENTS
from ...dialect.warp.warpgroup import WgmmaOp
from ..diagnostics import fail
from .addressing import Position, SharedPlace
from .elements import EIGHT, NARROW, EightBits, Elements, HeldElement, elements_per_register, ptx_type_of
from .emitter import WARP, ScalarOperand, VirtualRegister, single, word
from .fragments import (
    PAIRED,
    Fragment,
    carried_into,
    element_bits,
    elementwise_opcode,
    literal,
    per_register,
    register_type,
)
from .functions import TOGETHER
from .kernel import KernelLowering, lowers
from .memory import offsets
from .products import check_computed, own
from .scalars import common_divisor
from .widening import Widening, byte_of_lane, multiplies_by_powers, power_of_two, smaller_weights, steps_of

# Vectors in shared memory: `along` of `warp.load`.


def load_line(lowering: KernelLowering, op: LoadOp, axis: str) -> None:
    """Reads a fragment whose rows, or columns, are all the same, from a line of a tile along `axis`."""
    kind = fragment_of(op.fragment)
    if kind.bits not in (16, 32, 64):
        fail(op, f"{op.name} of a vector of {kind.element.name} is not lowered; elements of 16, 32 and 64 bits are")
    place = lowering.shared_place(op, op.memory, op.indices)
    line = _Line(lowering, kind.layout.data, axis, place, swapped=op.swapped is not None)
    along = [0 if axis == POINT[0] else place[axis == "c"] for place in offsets(kind, 1)]
    if memory_of(op.memory).element_type == EXPONENT:
        if not all(multiplies_by_powers(use.operation) for use in op.fragment.uses):
            fail(op, "a vector of powers of two is lowered where only floats of 4 bits are multiplied by it")
        registers = line.words(along[::2], "b32")
    else:
        registers = line.halves(along) if kind.bits == 16 else line.words(along, register_type(kind.element))
    lowering.values[op.fragment] = own(lowering, op.fragment, registers)


class _Line:
    """Loads elements of a row of a tile in shared memory, or of a column if the tile is transposed: each once, by their
    offset from the lane's own position."""

    def __init__(
        self, lowering: KernelLowering, layout: Layout, axis: str, place: SharedPlace, *, swapped: bool
    ) -> None:
        self.lowering, self.place, self.swapped = lowering, place, swapped
        self.start = place.row if swapped else place.column
        holder = lowering.addressing.holder(layout)
        self.lane = lowering.addressing.from_bits(holder, layout.lane + layout.warp, axis)
        even = axis == "c" and layout.element[:1] == (column(0),)
        self.pairs = even and common_divisor((self.lane, self.start)) % 2 == 0 and not swapped
        """Whether elements at even offsets move together with the next ones."""

    def words(self, along: Sequence[int], type: str) -> Fragment:
        """A register for each offset, the same one for equal offsets."""
        step = 2 if self.pairs else 1
        by_offset: dict[int, VirtualRegister] = {}
        for first in dict.fromkeys(offset - offset % step for offset in along):
            registers = self.lowering.emitter.registers(type, step)
            self._load(registers, first, type)
            by_offset |= dict(zip(range(first, first + step), registers, strict=True))
        return [by_offset[offset] for offset in along]

    def halves(self, along: Sequence[int]) -> Fragment:
        """A register for each pair of offsets of 16-bit elements, the same one for equal pairs."""
        emitter, twos = self.lowering.emitter, list(zip(along[::2], along[1::2], strict=True))
        by_offsets: dict[tuple[int, int], VirtualRegister] = {}
        single = {} if self.pairs else dict(zip(along, self.words(along, "b16"), strict=True))
        for two in dict.fromkeys(twos):
            if self.pairs:
                by_offsets[two] = emitter.register("b32")
                self._load([by_offsets[two]], two[0], "b32")
            else:
                by_offsets[two] = emitter.compute("mov.b32", [single[offset] for offset in two])
        return [by_offsets[two] for two in twos]

    def _load(self, registers: Fragment, offset: int, type: str) -> None:
        """Loads elements from an offset on, side by side."""
        tile, stage, *place = self.place
        along = Position.of(self.lane, self.start, offset)
        row, column = (Position.of(0, at, 0) for at in place)
        where = (along, column) if self.swapped else (row, along)
        at = self.lowering.addressing.shared(tile, stage, *where)
        self.lowering.emitter.load("shared", registers, at, "u8" if tile.element_bytes == 1 else type)


# Elements


class ElementPacking:
    """Elements out of and into the registers of fragments, for one operation."""

    def __init__(self, lowering: KernelLowering) -> None:
        self.emitter, self.elements = lowering.emitter, Elements(lowering.emitter, lowering.target)
        self._halves: dict[VirtualRegister, Fragment] = {}

    def every(self, kind: ElementType, registers: Fragment) -> list[HeldElement]:
        """All elements of registers that are full of them."""
        return [self.element(kind, registers, n) for n in range(len(registers) * max(1, 32 // kind.bits))]

    def element(self, kind: ElementType, registers: Fragment, number: int) -> HeldElement:
        """Element number `number` of a fragment of these."""
        each, i = max(1, 32 // kind.bits), self.elements.emit
        register, place = registers[number // each], number % each
        if each == 1:
            return HeldElement(register)
        if not kind.is_float:
            return HeldElement(i("bfe.s32", register, place * kind.bits, kind.bits))
        if kind.name == "bf16":
            # The bits of a bf16 are the upper half of the same f32.
            bits = i("and.b32", register, word(0xFFFF0000)) if place else i("shl.b32", register, 16)
            return HeldElement(i.of_bits(bits))
        if kind.name == EXPONENTS:
            bits = power_of_two(self.emitter, i("bfe.u32", register, place * kind.bits, kind.bits))
            return HeldElement(i.of_bits(i("shl.b32", bits, 16)))
        if kind.bits == 8:
            # As f16, which represents both exactly.
            pair, place = self._half(register, place // 2), place % 2
            register = i(f"cvt.rn.f16x2.{kind.name}{PAIRED}", pair)
        return HeldElement(i("cvt.f32.f16", self._half(register, place)))

    def _half(self, register: VirtualRegister, place: int) -> VirtualRegister:
        if register not in self._halves:
            self._halves[register] = self.emitter.halves(register)
        return self._halves[register][place]

    def pack_all(self, kind: Attribute, elements: Sequence[HeldElement]) -> Fragment:
        """Registers full of elements."""
        each = elements_per_register(kind)
        return [self.pack(kind, elements[n : n + each]) for n in range(0, len(elements), each)]

    def pack(self, kind: Attribute, elements: Sequence[HeldElement]) -> VirtualRegister:
        """A register full of elements, the first lowest."""
        i, name, values = self.elements.emit, str(kind), [element.word for element in elements]
        if len(values) == 1:
            return self.emitter.compute(f"mov.{ptx_type_of(kind)}", values[0])
        if isinstance(kind, IntegerType):
            words = list(values)
            if len(words) == 8:  # of 4 bits: bytes first
                words = [i("bfi.b32", b, a, 4, 4) for a, b in zip(words[::2], words[1::2], strict=True)]
            while len(words) > 2:
                words = [i("prmt.b32", a, b, word(0x0040, 4)) for a, b in zip(words[::2], words[1::2], strict=True)]
            return i("prmt.b32", *words, word(0x5410, 4))
        if name in EIGHT:
            return self._bytes(EIGHT[name], elements)
        if self.emitter.has(paired := f"cvt.rn.{name}{PAIRED}.f32"):
            return self.emitter.compute(paired, values[1], values[0])
        return self.emitter.compute("mov.b32", [i(f"cvt.rn.{name}.f32", value) for value in values])

    def _bytes(self, kind: EightBits, elements: Sequence[HeldElement]) -> VirtualRegister:
        opcode, i = f"cvt.rn.satfinite.{kind.name}x2.f32", self.elements.emit
        beyond = [None if one.clamped else self.elements.overflows(one.word, kind) for one in elements]
        values = [one.word for one in elements]
        if not kind.has_infinity:
            values = [
                value if over is None else i("selp.f32", single(math.nan), value, over)
                for value, over in zip(values, beyond, strict=True)
            ]
        halves = [i(opcode, high, low) for low, high in zip(values[::2], values[1::2], strict=True)]
        packed = self.emitter.compute("mov.b32", halves)
        for place, over in enumerate(beyond):
            if kind.has_infinity and over is not None:
                # The bits of infinity are one more than those of the largest number.
                packed = i("add.u32", packed, i("selp.b32", 1 << 8 * place, 0, over))
        return packed


@lowers(MapOp)
def _map(lowering: KernelLowering, op: MapOp) -> None:
    kind, block = op.fragment.type, op.body.block
    packing = ElementPacking(lowering)
    elements = packing.elements
    used = [(value, argument) for value, argument in zip(op.inputs, block.args, strict=True) if argument.uses]
    if ptx_type_of(kind.element_type) in ("", "pred"):
        fail(op, f"{op.name} to elements of {kind.element_type} is not lowered")
    if (column := _repeated(op)) is not None:
        registers = lowering.fragment(column)
        repeated = [registers[place] for place in _places(fragment_of(column), kind)]
        lowering.values[op.fragment] = own(lowering, op.fragment, repeated)
        return
    places = {value: _places(value.type, kind) for value, _ in used if isinstance(value.type, FragmentType)}
    each, result, elements_ = per_register(kind), dict[int, VirtualRegister](), dict[int, HeldElement]()

    def arguments(number: int) -> dict[SSAValue, HeldElement]:
        elements: dict[SSAValue, HeldElement] = {}
        for value, argument in used:
            if isinstance(value.type, FragmentType):
                element = packing.element(value.type.element, lowering.fragment(value), places[value][number])
                elements[argument] = element
            else:
                elements[argument] = HeldElement(lowering.number(value))
        return elements

    for group in _groups(op, each * kind.registers):
        for number, element in zip(group, elements.apply(op.body, [arguments(n) for n in group]), strict=True):
            rounds = str(kind.element_type) in (*NARROW, *EIGHT)  # the packing instruction does
            elements_[number] = element if rounds else elements.rounded(element)
            of_register = range(number - number % each, number - number % each + each)
            if all(other in elements_ for other in of_register):
                result[number // each] = packing.pack(kind.element_type, [elements_[other] for other in of_register])
    registers = [result[number] for number in range(kind.registers)]
    summed = isinstance(op.fragment.get_user_of_unique_use(), WgmmaOp)
    if summed and (carried := carried_into(op.fragment, in_place=True)) is not None:
        # Sums stay where the loop carries them: ptxas would let those of another product have the same registers, and
        # move all of them in each turn.
        lowering.fragments.copy(registers, lowering.fragment(carried))
        registers = lowering.fragment(carried)
    lowering.values[op.fragment] = registers


def _repeated(op: MapOp) -> SSAValue | None:
    """The column whose elements a map repeats as they are, which takes no instruction; None of other maps."""
    end = op.body.block.first_op
    made = end.elements[0] if isinstance(end, YieldOp) else None
    column = op.inputs[made.index] if isinstance(made, BlockArgument) else None
    is_column = column is not None and isinstance(column.type, FragmentType) and column.type.bits in ROW_BITS
    return column if is_column else None


def _places(kind: FragmentType, result: FragmentType) -> Sequence[int]:
    """Which element of an input goes with each element of a result: the same, or in a column the one of its row."""
    if alike(kind, result):
        return range(per_register(result) * result.registers)
    of_row = {row: number for number, row in enumerate(_rows(kind))}
    return [of_row[row] for row in _rows(result)]


def _groups(op: MapOp, count: int) -> list[list[int]]:
    """Elements computed together: of a gelu several of one row, so that a row does not depend on another."""
    if not any(isinstance(one, GeluOp) for one in op.body.block.ops):
        return [[number] for number in range(count)]
    rows: dict[int, list[int]] = {}
    for number, (row, _) in enumerate(offsets(op.fragment.type, 1)):
        rows.setdefault(row, []).append(number)
    return [row[n : n + TOGETHER] for row in rows.values() for n in range(0, len(row), TOGETHER)]


# Other types of elements: `warp.convert`.


@lowers(ConvertOp)
def _convert(lowering: KernelLowering, op: ConvertOp) -> None:
    """Integers by their bits; floats by way of f32, which has all values of 16-bit types, and 8-bit ones as f16, which
    has theirs."""
    source, to, registers = fragment_of(op.input), op.fragment.type, lowering.fragment(op.input)
    if (stored := op.integers) is not None:
        lowering.emitter.comment(f"{op.name}: {stored.name} to {to.element.name}")
        use = next((use.operation for use in op.fragment.uses if isinstance(use.operation, ElementwiseOp)), op)
        powers = multiplies_by_powers(use)
        if smaller_weights(op.fragment) is None and not (powers and len(steps_of(use, multiplies_by_powers)) > 1):
            byte = byte_of_lane(lowering, op)
            widening = Widening(lowering.emitter, stored, to.element, whole=not powers, byte=byte)
            registers = widening.convert(registers, op.order)
    elif op.exponents is not None and op.factor is not None:
        lowering.emitter.comment(f"{op.name}: powers of {source.shape[0]}x{source.shape[1]}")
        registers = _Powers(lowering, op, op.exponents, op.factor.value.data).registers
    elif source == to:
        registers = own(lowering, op.fragment, registers)
    elif source.element.name in FP8 and to.element.name == "f16":
        lowering.emitter.comment(f"{op.name}: {source.element.name} to f16")
        registers = lowering.fragments.halves(registers, source.element)
    else:
        if source.element.name == "f32" and to.element.name in FP8:
            lowering.emitter.comment(f"{op.name}: f32 to {to.element.name}")
        else:
            check_computed(op, to.element)
            check_computed(op, source.element)
        packing = ElementPacking(lowering)
        elements = [replace(element, clamped=True) for element in packing.every(source.element, registers)]
        if to.element.name == "f32":
            registers = cast("Fragment", [element.word for element in elements])
        else:
            registers = packing.pack_all(to.element_type, elements)
    lowering.values[op.fragment] = registers


# Rows of fragments taken together, and the numbers of their elements: `warp.reduce`, `warp.index`.


def _rows(kind: FragmentType) -> list[int]:
    """The row of each register of a lane, from the row of its first one."""
    return [row for row, _ in offsets(kind, 1)]


@lowers(ReduceOp)
def _reduce(lowering: KernelLowering, op: ReduceOp) -> None:
    if not isinstance(op.input.type, FragmentType):
        fail(op, f"{op.name} of {op.input.type} stands in the region of warp.rows; kernels reduce rows of fragments")
    source, registers, emitter = op.input.type, lowering.fragment(op.input), lowering.emitter
    emitter.comment(f"{op.name}: {op.kind.data} of rows of {source.shape[0]}x{source.shape[1]}")
    opcode = elementwise_opcode(op.kind.data, source.element)
    if not op.positive:
        lowering.values[op.result] = _reduced(lowering, op, opcode, registers)
        return
    # Bits of f32 are in the order of integers if one is above zero; ptxas makes one instruction of two such maxima.
    words = [emitter.compute("mov.b32", register) for register in registers]
    largest = _reduced(lowering, op, "max.s32", words, ways=3)
    reduced = [emitter.compute("mov.b32", each, type="f32") for each in largest]
    signs = functools.reduce(partial(emitter.compute, "or.b32"), largest)
    negative = emitter.compute("setp.lt.s32", signs, 0)
    with emitter.skipping("skipped", unless=emitter.compute("vote.sync.any.pred", negative, WARP[1])):
        for register, number in zip(reduced, _reduced(lowering, op, opcode, registers), strict=True):
            emitter.move(register, number)
    lowering.values[op.result] = reduced


def _reduced(
    lowering: KernelLowering, op: ReduceOp, opcode: str, registers: Fragment, ways: int = 2
) -> list[VirtualRegister]:
    """The registers of each row as one, then with those of other lanes."""
    source, result, by_row = fragment_of(op.input), fragment_of(op.result), dict[int, Fragment]()
    for row, register in zip(_rows(source), registers, strict=True):
        by_row.setdefault(row, []).append(register)
    reduced = [_together(lowering, opcode, by_row[row], ways) for row in _rows(result)]
    for bit, (before, after) in enumerate(zip(source.layout.data.lane, result.layout.data.lane, strict=True)):
        if before.axis == "c" and after.axis == "x":
            reduced = [_exchanged(lowering, opcode, register, 1 << bit) for register in reduced]
    return reduced


def _together(lowering: KernelLowering, opcode: str, registers: Fragment, ways: int) -> VirtualRegister:
    """All registers as one: the first half (or third) with the second one and so on, until one is left."""
    while len(registers) > 1:
        part = -(-len(registers) // ways)
        taken = [registers[number::part] for number in range(part)]
        registers = [functools.reduce(partial(lowering.emitter.compute, opcode), each) for each in taken]
    return registers[0]


def _exchanged(lowering: KernelLowering, opcode: str, register: VirtualRegister, distance: int) -> VirtualRegister:
    """A register combined with that of the lane whose number differs in one bit."""
    return lowering.emitter.compute(opcode, register, _shuffled(lowering, "bfly", register, distance, *WARP))


def _shuffled(
    lowering: KernelLowering, mode: str, register: VirtualRegister, *operands: ScalarOperand
) -> VirtualRegister:
    """A register of another lane, of 32 or 64 bits."""
    emitter = lowering.emitter
    words, is_wide = [register], register.type == "f64"
    if is_wide:
        words = emitter.registers("b32", 2)
        emitter.emit("mov.b64", words, register)
    others = [emitter.compute(f"shfl.sync.{mode}.b32", each, *operands, type=each.type) for each in words]
    return emitter.compute("mov.b64", others, type="f64") if is_wide else others[0]


@lowers(ScanOp)
def _scan(lowering: KernelLowering, op: ScanOp) -> None:
    if not isinstance(op.input.type, FragmentType):
        fail(op, f"{op.name} of {op.input.type} stands in the region of warp.rows; kernels scan rows of fragments")
    kind, registers, emitter, s = op.input.type, lowering.fragment(op.input), lowering.emitter, lowering.scalars
    emitter.comment(f"{op.name}: {op.kind.data} of rows of {kind.shape[0]}x{kind.shape[1]}")
    combined = partial(emitter.compute, elementwise_opcode(op.kind.data, kind.element))
    lanes = [(at, bit.number) for at, bit in enumerate(kind.layout.data.lane) if bit.axis == "c"]
    first, near = lanes[0] if lanes else (0, kind.shape[1].bit_length())
    column, identity = s.bits(lowering.lane, first, len(lanes), 0), literal(kind, IDENTITIES[op.kind.data])
    last = s.add(lowering.lane, s.multiply(s.subtract((1 << len(lanes)) - 1, column), 1 << first))

    def behind(register: VirtualRegister, distance: int) -> VirtualRegister:
        """What a lane so many before has, the identity in lanes that have none."""
        other = _shuffled(lowering, "up", register, distance << first, 0, WARP[1])
        return emitter.compute(f"selp.{other.type}", other, identity, emitter.pure("setp.ge.s32", column, distance))

    places, scanned = list(offsets(kind, 1)), dict[int, VirtualRegister]()
    before = dict(zip(_rows(column_of(kind)), lowering.fragment(op.start), strict=True)) if op.start else {}
    runs = dict[tuple[int, int], list[int]]()
    for number in sorted(range(len(places)), key=lambda number: places[number]):
        row, at = places[number]
        runs.setdefault((row, at >> near), []).append(number)
    for (row, _), run in runs.items():
        own = [*itertools.accumulate((registers[number] for number in run), combined)]
        total, starts = own[-1], [before[row]] if row in before else []
        for bit in range(len(lanes)):
            total = combined(total, behind(total, 1 << bit))
        starts += [behind(total, 1)] if lanes else []
        start = functools.reduce(combined, starts) if starts else None
        scanned |= {n: each if start is None else combined(start, each) for n, each in zip(run, own, strict=True)}
        whole = _shuffled(lowering, "idx", total, last, *WARP) if lanes else total
        before[row] = combined(before[row], whole) if row in before else whole
    lowering.values[op.result] = [scanned[number] for number in range(len(places))]


# Powers of two as bytes: `warp.convert` with `powers`.

POLYNOMIAL = (0.23842562, 0.70344624, 1.00044323)
"""2^f for f in [-1/2, 1/2], the highest power of f first: the smallest relative error, 0.0018."""

BY_POLYNOMIAL, OF_REGISTERS = (1, 4, 6), 8
"""Which of so many registers of powers a polynomial makes."""

SHIFT = 11.0
"""What is added to exponents of f16, so that none above 0 is of a power that e4m3 has."""


class _Powers:
    """The registers of powers."""

    def __init__(self, lowering: KernelLowering, op: ConvertOp, exponents: SSAValue, factor: float) -> None:
        self.emitter, kind, column = lowering.emitter, fragment_of(op.input), lowering.fragment(exponents)
        self.elements, self.factor = lowering.fragment(op.input), single(factor)
        self.places = _places(fragment_of(exponents), kind)
        shifted = [self.emitter.compute("add.rn.f32", each, single(SHIFT)) for each in column]
        numbers = (1024.0, -1024.0, *(c * 2.0 ** (15 - SHIFT) for c in POLYNOMIAL))
        words = (word(0x00010001 * element_bits(known_element(f16), each)) for each in numbers)
        self.magic, self.less, *self.polynomial = (self.emitter.compute("mov.b32", twice) for twice in words)
        places = range(0, len(self.elements), 2)
        chosen = [at for at in places if at // 4 % OF_REGISTERS in BY_POLYNOMIAL]
        # What is f16 first takes half the registers.
        pairs = {at: self._pair(at, shifted) for at in chosen}
        self.registers: Fragment = []
        for first in places[::2]:
            halves = [self._power(pairs[n]) if n in pairs else self._exact(n, column) for n in (first, first + 2)]
            self.registers.append(self.emitter.compute("mov.b32", halves))

    def _exponents(self, at: int, columns: Fragment) -> Fragment:
        """The exponents of two neighbours of a row."""
        emit = partial(self.emitter.compute, "fma.rn.f32")
        return [emit(self.elements[k], self.factor, columns[self.places[k]]) for k in (at, at + 1)]

    def _pair(self, at: int, shifted: Fragment) -> VirtualRegister:
        """The exponents of two numbers, shifted; 0 for those below."""
        low, high = self._exponents(at, shifted)
        return self.emitter.compute("cvt.rn.relu.f16x2.f32", high, low)

    def _exact(self, at: int, column: Fragment) -> VirtualRegister:
        """Two numbers by `ex2.approx`, rounded."""
        low, high = (self.emitter.compute("ex2.approx.ftz.f32", each) for each in self._exponents(at, column))
        return self.emitter.compute("cvt.rn.satfinite.e4m3x2.f32", high, low)

    def _power(self, shifted: VirtualRegister) -> VirtualRegister:
        """Two numbers by the polynomial: z = n + f, and 2^z is 2^f times the f16 whose exponent has the bits of n."""
        i, (second, first, one) = self.emitter.compute, self.polynomial
        # The last bits of 1024 + z are those of n.
        bits = i("add.rn.f16x2", shifted, self.magic)
        fraction = i("sub.rn.f16x2", shifted, i("add.rn.f16x2", bits, self.less))
        scale = i("shl.b32", i("and.b32", bits, word(0x001F001F)), 10)
        mantissa = i("fma.rn.f16x2", fraction, i("fma.rn.f16x2", fraction, second, first), one)
        return i("cvt.rn.satfinite.e4m3x2.f16x2", i("mul.rn.f16x2", mantissa, scale))


@lowers(IndexOp)
def _index(lowering: KernelLowering, op: IndexOp) -> None:
    if op.start is None:
        fail(op, f"{op.name} without a start is that of an element, in a region")
    kind, s, loop = fragment_of(op.result), lowering.scalars, op.number
    own_place = lowering.addressing.lane_position(kind.layout.data)[loop]
    first, emitter = s.sum(own_place, lowering.scalar(op.start)), lowering.emitter
    numbers: dict[int, VirtualRegister] = {}
    step, below = (1 if op.step is None else op.step.value.data), (0 if op.below is None else op.below.value.data)
    size, registers = kind.layout.data.extent("rc"[loop]), list[VirtualRegister]()
    for place in offsets(kind, 1):
        offset = place[loop] - place[loop] % step
        if offset not in numbers:
            if offset - offset % size + size <= below:
                numbers[offset] = emitter.compute("mov.b32", -1)
            elif isinstance(first, VirtualRegister):
                numbers[offset] = emitter.compute("add.s32", first, offset)
            else:
                numbers[offset] = emitter.compute("mov.b32", first + offset)
        registers.append(numbers[offset])
    lowering.values[op.result] = own(lowering, op.result, registers)
