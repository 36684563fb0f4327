"""Integers and floats of few bits as f16 or bf16 in registers, without conversion instructions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import chain, islice
from typing import TypeGuard

from xdsl.ir import Operation, SSAValue

from ...dialect.isa.form import ElementType
from ...dialect.ptx.text.syntax import Immediate
from ...dialect.warp.attributes import memory_of
from ...dialect.warp.convert import ConvertOp
from ...dialect.warp.fragments import ConstantOp, ElementwiseOp, Kind, SubfragmentOp
from ...dialect.warp.memory import EXPONENT, LoadOp
from ...dialect.warp.stored import NIBBLES, SMALLER, StoredIntegers
from .emitter import Emitter, IndexValue, VirtualRegister, word
from .fragments import Fragment, element_bits, only_use_is_here
from .kernel import KernelLowering
from .scalars import Instructions

# An integer without its sign, the top bit turned over, is put into the fraction of a float whose last bit counts ones:
# 0x6400 is 1024 in f16, 0x4300 is 128 in bf16. What is subtracted then takes away that number, the turned bit and the
# zero point at once. bf16 has 7 bits of fraction, and a byte 8: its top bit becomes the last bit of the exponent of
# the number that is subtracted, 128 or 256, of which the half is what the bit counts.
#
# Both halves of a register are converted at once. So elements half a register apart need no moves: a shift brings them
# to the lower end of the halves. The 10 bits of fraction of f16 have room for the two integers of 4 bits of a byte. So
# the upper one needs no shift.
#
# Where four lanes have the same integers of 4 bits and each converts a byte of every word, one `prmt` brings the bytes
# of two words to both halves of a register. What becomes a register then lies in two halves, the second integer 4 bits
# further up, and the factors of the halves differ.

MAGIC = {"f16": (0x6400, 1024), "bf16": (0x4300, 128)}
"""Bits of a float whose last bit counts ones, and its value."""

FRACTION = {"f16": 10, "bf16": 7}
"""Bits of the fraction below the one that counts the value of `MAGIC`."""

E2M1 = 6
"""The last bit of e2m1 without its sign where its exponent is at the end of that of bf16."""

PLACES = 1 << 15 | 0b111 << E2M1
"""The bits of bf16 that all of e2m1 goes to."""

APART = 6
"""How much further to the left the sign moves than the other bits."""

AND_XOR = word(0x6A, 2)
"""The truth table of (a & b) ^ c."""

CHOOSE = word(0xCA, 2)
"""The truth table of (a & b) | (~a & c)."""

FROM_TWO = 0x4000
"""The bit of bf16 that numbers from 2 on have."""

WIDENED_BYTES, WIDENED_BITS, BYTE, NIBBLE_BITS = 4, 32, 8, 4


def _halves_of(low: int, high: int | None = None) -> Immediate:
    """16 bits in each half of a word, the same ones without those of the upper half."""
    return word((low if high is None else high) << 16 | low)


def power_of_two(emitter: Emitter, exponent: VirtualRegister) -> VirtualRegister:
    """A number of type f8E8M0FNU, whose 8 bits a register holds, as the low half of a register in bf16: 255 is NaN."""
    bits = emitter.compute("max.u32", emitter.compute("shl.b32", exponent, 7), 0x40)
    last = emitter.compute("shr.u32", emitter.compute("add.u32", exponent, 1), 8)
    return emitter.compute("add.u32", bits, last)


def byte_of_lane(lowering: KernelLowering, op: ConvertOp) -> IndexValue | None:
    """The byte of a word that a lane converts; None for all of them."""
    return lowering.scalars.mask(lowering.lane, WIDENED_BYTES - 1) if op.by_bytes else None


class Widening:
    """Emits the conversion of registers of integers to registers of two floats each."""

    def __init__(
        self, emitter: Emitter, stored: StoredIntegers, element: ElementType, *, whole: bool = True,
        byte: IndexValue | None = None,
    ) -> None:  # fmt: skip
        """Floats of 4 bits that are not `whole` are 2^-126 of what they are, for `by_powers`. Of each register a lane
        converts the `byte` with that number; all of them without one."""
        self.emitter, self.stored, self.element, self.whole = emitter, stored, element, whole
        self.turned = 1 << stored.element.bits - 1 if stored.element.signed else 0
        self._registers: dict[tuple[int, ...], VirtualRegister] = {}
        self._once = Instructions(emitter)
        self.byte, self.apart = byte, 0 if byte is None else NIBBLE_BITS

    def convert(self, source: Fragment, order: list[int]) -> Fragment:
        """Elements of the registers `source`, in the order of their numbers in `order`."""
        if self.element.bits == BYTE:
            return [self._four(source[at // 8], at % 8) for at in order[::4]]
        return [self._half_apart(*self._halves(source, *order[i : i + 2])) for i in range(0, len(order), 2)]

    def _four(self, register: VirtualRegister, first: int) -> VirtualRegister:
        """Four neighbours from `first` on, integers of 4 bits, as bytes from two tables of eight, by their top bit."""
        chosen = self._down(self.emitter.compute("and.b32", register, word(0x77777777)), 16 if first else 0)
        low, high = (self.emitter.compute("prmt.b32", *map(word, self._table(top)), chosen) for top in (0, 8))
        # A top bit is the sign of a byte, of every second number once it is shifted.
        shifted = self.emitter.compute("shl.b32", register, NIBBLE_BITS)
        tops = self.emitter.compute("prmt.b32", register, shifted, word(0xBFAE if first else 0x9D8C, 4))
        return self.emitter.compute("lop3.b32", tops, high, low, CHOOSE)

    def _table(self, first: int) -> list[int]:
        """The bytes of eight integers from the bits `first` on, in two words."""
        less = self.stored.zero + (16 if first and self.turned else 0)
        every = [element_bits(self.element, number - less) for number in range(first, first + 8)]
        return [int.from_bytes(every[at : at + 4], "little") for at in (0, 4)]

    def scaled(self, pair: VirtualRegister, scales: VirtualRegister) -> VirtualRegister:
        """Two floats times their scales; before sm_90 bf16 has no multiplication, and x * y - 0 is one."""
        if self.element.name == "f16":
            return self.emitter.compute("mul.rn.f16x2", pair, scales)
        return self.emitter.compute("fma.rn.bf16x2", pair, scales, self._number(-0.0))

    def smaller(self, source: Fragment, order: list[int], points: Fragment | None) -> Fragment:
        """Integers less zero points, which those without a sign may have, times `SMALLER`, as bf16. The eight bits at
        the end of bf16 are a number that counts 2^-133: one multiply-add does all the rest."""
        pairs = zip(order[::2], order[1::2], points or [None] * (len(order) // 2), strict=True)
        return [self._smaller(*self._halves(source, first, second), point) for first, second, point in pairs]

    def scaled_at_once(self, steps: Sequence[tuple[Fragment, list[int]]], scales: Fragment) -> Fragment:
        """The same times scales, of all steps of a turn, of the registers and the order of each. Where the least
        integer is a power of two away from zero, its product with a scale is exact, and a multiply-add does all.
        Scales from 2 on do not fit it: a warp that has some multiplies twice."""
        emitter, every = self.emitter, list(dict.fromkeys(scales))
        halves = [self._halves(source, *order[i : i + 2]) for source, order in steps for i in range(0, len(order), 2)]
        pairs = list(zip(halves, scales, strict=True))
        results = [self._smaller(*each, scale=scale) for each, scale in pairs]
        bits = reduce(lambda some, scale: emitter.pure("or.b32", some, scale), every)
        large = emitter.pure("setp.ne.u32", emitter.pure("and.b32", bits, _halves_of(FROM_TWO)), 0)
        with emitter.skipping("scaled", unless=emitter.any(large)):
            for result, (each, scale) in zip(results, pairs, strict=True):
                emitter.emit("mul.rn.bf16x2", result, self._smaller(*each), scale)
        return results

    def _shared(self, *values: float) -> VirtualRegister:
        """A number in both halves of a register, or one in each, which all conversions share."""
        return self.emitter.pure("mov.b32", _halves_of(*(element_bits(self.element, value) for value in values)))

    def _smaller(
        self, register: VirtualRegister, at: int, point: VirtualRegister | None = None,
        scale: VirtualRegister | None = None,
    ) -> VirtualRegister:  # fmt: skip
        place, mask = at % BYTE, (1 << self.stored.element.bits) - 1
        places = dict.fromkeys((place, place + self.apart))
        moved, masks = self._down(register, at - place), [mask << each for each in places]
        if self.turned:
            integers = self._and_xor(moved, masks, [self.turned << each for each in places])
        else:
            integers = self.emitter.compute("and.b32", moved, _halves_of(*masks))
        less = self._shared(-SMALLER * (self.turned + self.stored.zero))
        if point is not None:
            less = self.emitter.pure("mul.rn.bf16x2", point, self._shared(-SMALLER))
        factors = self._shared(*(2.0 ** (133 - each) * SMALLER for each in places))
        if scale is not None:
            less, factors = (self.emitter.pure("mul.rn.bf16x2", scale, each) for each in (less, factors))
        return self.emitter.compute("fma.rn.bf16x2", integers, factors, less)

    def by_powers(self, pairs: Fragment, exponents: Fragment) -> Fragment:
        """Floats that are not whole times powers of two, whose exponents of 8 bits registers hold. Up to 2^0 one
        multiplication does for both. As the product of 2^126 and larger ones does not fit bf16, a warp that has some
        multiplies twice. Both ways are exact."""
        emitter, every = self.emitter, list(dict.fromkeys(exponents))
        factors = {byte: emitter.pure("mad.lo.u32", byte, 0x00800080, 0x3F003F00) for byte in every}
        results = [emitter.compute("mul.rn.bf16x2", pair, factors[e]) for pair, e in zip(pairs, exponents, strict=True)]
        bits = reduce(lambda some, byte: emitter.pure("or.b32", some, byte), every)
        with emitter.skipping("scaled", unless=emitter.any(emitter.pure("setp.gt.u32", bits, 127))):
            powers = {byte: emitter.compute("mov.b32", [self._power(byte)] * 2) for byte in every}
            for result, pair, byte in zip(results, pairs, exponents, strict=True):
                emitter.emit("mul.rn.bf16x2", result, self._whole(pair), powers[byte])
        return results

    def by_powers_at_once(self, steps: Sequence[tuple[Fragment, list[int]]], exponents: Fragment) -> Fragment:
        """The same of all steps of a turn, of the registers and the order of each, with one check before all
        products: a warp with a larger power places its floats again and makes them whole, so that the other way is one
        block of instructions."""
        emitter, every = self.emitter, list(dict.fromkeys(exponents))
        halves = [self._halves(source, *order[i : i + 2]) for source, order in steps for i in range(0, len(order), 2)]
        apart = [(self._apart(register, at), at) for register, at in halves]
        factors = {byte: emitter.compute("mad.lo.u32", byte, 0x00800080, 0x3F003F00) for byte in every}
        bits = emitter.pure("and.b32", reduce(lambda some, byte: emitter.pure("or.b32", some, byte), every), 0x80)
        larger = emitter.any(emitter.pure("setp.ne.u32", bits, 0))
        results, scaled, end = emitter.registers("b32", len(apart)), *map(emitter.fresh_label, ("scaled", "met"))
        with emitter.loop():
            emitter.branch(scaled, unless=larger)
            for byte in every:
                emitter.emit("mov.b32", factors[byte], [self._power(byte)] * 2)
            for result, one, byte in zip(results, apart, exponents, strict=True):
                emitter.emit("mul.rn.bf16x2", result, self._whole(self._placed(*one)), factors[byte])
            emitter.branch(end)
            emitter.label(scaled)
            placed = [self._placed(*one) for one in apart]
            for result, pair, byte in zip(results, placed, exponents, strict=True):
                emitter.emit("mul.rn.bf16x2", result, pair, factors[byte])
            emitter.label(end)
        return results

    def _power(self, exponent: VirtualRegister) -> VirtualRegister:
        return self.emitter.compute("cvt.u16.u32", power_of_two(self.emitter, exponent))

    def _whole(self, pair: VirtualRegister) -> VirtualRegister:
        return self.emitter.compute("mul.rn.bf16x2", pair, self._number(2.0**126))

    def _halves(self, source: Fragment, first: int, second: int) -> tuple[VirtualRegister, int]:
        """A register with two elements half of it apart, and the bit of the first."""
        bits = self.stored.element.bits
        per_register = WIDENED_BITS // bits
        if self.byte is not None:  # of the word, and of its neighbour, in both halves
            of_word, others = divmod(first // per_register, 2)
            taken = self.emitter.pure("mad.lo.u32", self.byte, 0x1111, 0x4040)
            return self._once("prmt.b32", *source[2 * of_word :][:2], taken), others * BYTE
        (at, number), (other, partner) = divmod(first, per_register), divmod(second, per_register)
        if (other, partner) == (at, number + per_register // 2):
            return source[at], number * bits
        return self._gathered(source[at], number * bits, source[other], partner * bits), 0

    def _half_apart(self, register: VirtualRegister, at: int) -> VirtualRegister:
        """Elements at bit `at` of both halves, as floats."""
        place, bits = at % BYTE, self.stored.element.bits
        if self.stored.name == NIBBLES:
            return self._of_floats(register, at)
        if self.apart and self.element.name == "bf16":
            return self.emitter.compute("mul.rn.bf16x2", self._smaller(register, at), self._number(1 / SMALLER))
        if self.element.name == "f16" and (place or self.apart) and place + self.apart + bits <= FRACTION["f16"]:
            return self._scaled_floats(self._down(register, at - place), (place, place + self.apart))
        return self._floats(self._down(register, at))

    def _of_floats(self, register: VirtualRegister, at: int) -> VirtualRegister:
        """4-bit floats at bit `at` of both halves, as bf16: sign, exponent and fraction bit are moved to their places
        in bf16, and multiplied by 2^126, the difference of the exponents' biases."""
        placed = self._placed(self._apart(register, at), at)
        return self._whole(placed) if self.whole else placed

    def _apart(self, register: VirtualRegister, at: int) -> VirtualRegister:
        """Signs of 4-bit floats at bit `at` of both halves and of their neighbours, moved by `APART`: they fit between
        the other bits, so that what follows moves both at once."""
        if at < BYTE:
            signs, others = (self._once("shl.b32", register, by) for by in (BYTE, BYTE - APART))
        else:
            signs, others = register, self._down(register, APART)
        return self._once("lop3.b32", _halves_of(0x7700 >> APART), others, signs, CHOOSE)

    def _placed(self, apart: VirtualRegister, at: int) -> VirtualRegister:
        """Those at bit `at`, in their places in bf16."""
        moved = apart if at % BYTE else self.emitter.compute("shl.b32", apart, NIBBLE_BITS)
        return self.emitter.compute("and.b32", moved, _halves_of(PLACES))

    def _constant(self, *halves: int) -> VirtualRegister:
        """A register with 16 bits in both halves, or with others in each."""
        if halves not in self._registers:
            self._registers[halves] = self.emitter.compute("mov.b32", _halves_of(*halves))
        return self._registers[halves]

    def _number(self, *values: float) -> VirtualRegister:
        return self._constant(*(element_bits(self.element, value) for value in values))

    def _down(self, register: VirtualRegister, by: int) -> VirtualRegister:
        return self._once("shr.b32", register, by) if by else register

    def _gathered(self, low: VirtualRegister, at: int, high: VirtualRegister, place: int) -> VirtualRegister:
        """The element at bit `at` of one register, and that at bit `place` of another, at the ends of two halves."""
        low, high = self._down(low, at % 8), self._down(high, place % 8)
        first, second = at // 8, place // 8 + 4
        return self.emitter.compute("prmt.b32", low, high, word(second * 0x1100 + first * 0x11, 4))

    def _and_xor(self, halves: VirtualRegister, mask: Sequence[int], flipped: Sequence[int]) -> VirtualRegister:
        return self.emitter.compute("lop3.b32", halves, _halves_of(*mask), self._constant(*flipped), AND_XOR)

    def _floats(self, halves: VirtualRegister) -> VirtualRegister:
        """Both halves of a register, whose low bits are integers, as floats."""
        name, bits = self.element.name, self.stored.element.bits
        magic, value = MAGIC[name]
        if bits > FRACTION[name]:
            return self._by_exponent(halves)
        floats = self._and_xor(halves, [(1 << bits) - 1], [magic ^ self.turned])
        return self._less(floats, value + self.turned + self.stored.zero)

    def _scaled_floats(self, halves: VirtualRegister, places: tuple[int, int]) -> VirtualRegister:
        """Both halves of a register, whose bits from a place on are integers, as f16. They stay there, as the fraction
        has room for them: 1024 + 2^place x. The multiply-add that subtracts divides by 2^place too, exactly."""
        (magic, value), mask = MAGIC["f16"], (1 << self.stored.element.bits) - 1
        every = dict.fromkeys(places)
        floats = self._and_xor(halves, [mask << at for at in every], [magic ^ self.turned << at for at in every])
        surplus = [-((value >> at) + self.turned + self.stored.zero) for at in every]
        factors = self._number(*(2.0**-at for at in every))
        return self.emitter.compute("fma.rn.f16x2", floats, factors, self._number(*surplus))

    def _by_exponent(self, halves: VirtualRegister) -> VirtualRegister:
        """Bytes as bf16: 128 and the low seven bits, less 128 or 256 by the top bit."""
        magic, value = MAGIC[self.element.name]
        floats = self._and_xor(halves, [value - 1], [magic])
        # Of those without a sign the top bit is turned over, and counts 128 the other way.
        exponents = self._and_xor(halves, [value], [magic if self.turned else magic ^ value])
        less = self.emitter.compute("fma.rn.bf16x2", exponents, self._number(-1), floats)
        surplus = self.stored.zero - (0 if self.turned else value)
        return self._less(less, surplus) if surplus else less

    def _less(self, pair: VirtualRegister, surplus: int) -> VirtualRegister:
        """Two floats less what they have too much."""
        if self.element.name == "f16":
            return self.emitter.compute("sub.rn.f16x2", pair, self._number(surplus))
        return self.emitter.compute("fma.rn.bf16x2", pair, self._number(1), self._number(-surplus))


# Weights between their conversion and their product.


def is_of_weights(lowering: KernelLowering, op: ElementwiseOp) -> bool:
    """Whether an operation stands between the conversion of integers and their product; it is lowered then."""
    if steps := _scaled_steps(op):
        if op is steps[-1]:
            _scale_at_once(lowering, steps)
        return True
    inputs, element, made = list(map(lowering.fragment, op.inputs)), op.fragment.type.element, op.inputs[0].owner
    less_points = made if isinstance(made, ElementwiseOp) and made.kind.data is Kind.Sub else op
    if (weights := smaller_weights(less_points.inputs[0])) is not None:
        made, integers, less = weights
        # What the integers are less is taken away as they are made smaller, and they are scaled at once.
        if op is not less and not _scaled_steps(op.fragment.get_user_of_unique_use()):
            widening = Widening(lowering.emitter, integers, element, byte=byte_of_lane(lowering, made))
            points = None if less is None else lowering.fragment(less.inputs[1])
            inputs[0] = widening.smaller(inputs[0], made.order, points)
        lowering.values[op.fragment] = inputs[0]
        return True
    if not isinstance(made, ConvertOp) or op.kind.data is not Kind.Mul or made.integers is None:
        return False
    widening = Widening(lowering.emitter, made.integers, element)
    if not multiplies_by_powers(op):
        lowering.values[op.fragment] = list(map(widening.scaled, *inputs))
    elif op is (steps := steps_of(op, multiplies_by_powers))[-1]:
        if len(steps) == 1:
            lowering.values[op.fragment] = widening.by_powers(*inputs)
            return True
        weights, exponents = zip(*(map(lowering.fragment, step.inputs) for step in steps), strict=True)
        orders = [made.order for step in steps if isinstance(made := step.inputs[0].owner, ConvertOp)]
        results = iter(widening.by_powers_at_once(list(zip(weights, orders, strict=True)), [*chain(*exponents)]))
        lowering.values |= {step.fragment: list(islice(results, len(inputs[1]))) for step in steps}
    return True


def scaled_integers(op: Operation) -> tuple[ConvertOp, StoredIntegers] | None:
    """The conversion of integers to bf16 that an operation scales, and these, if they are made smaller before, and the
    least of them is a power of two away from zero, or none: its product with any scale is exact."""
    if not isinstance(op, ElementwiseOp) or op.kind.data is not Kind.Mul:
        return None
    smaller = op.inputs[0].owner
    if not isinstance(smaller, ElementwiseOp) or not only_use_is_here(op.inputs[0], op):
        return None
    made, integers, less = smaller_weights(smaller.inputs[0]) or (None, None, None)
    if made is None or integers is None or less is not None:
        return None
    least = integers.zero - integers.limits[0]
    return None if least & (least - 1) else (made, integers)


def _scaled_steps(op: Operation | None) -> list[ElementwiseOp]:
    """The multiplications of integers by scales in all steps of a turn, if there are several."""
    steps = [] if op is None or scaled_integers(op) is None else steps_of(op, scaled_integers)
    return steps if len(steps) > 1 else []


def _scale_at_once(lowering: KernelLowering, steps: Sequence[ElementwiseOp]) -> None:
    """Integers of all steps of a turn times their scales."""
    (made, integers), *_ = every = [pair for step in steps if (pair := scaled_integers(step)) is not None]
    byte, element = byte_of_lane(lowering, made), steps[0].fragment.type.element
    weights, scales = zip(*(map(lowering.fragment, step.inputs) for step in steps), strict=True)
    orders = [made.order for made, _ in every]
    widening = Widening(lowering.emitter, integers, element, byte=byte)
    results = iter(widening.scaled_at_once(list(zip(weights, orders, strict=True)), [*chain(*scales)]))
    lowering.values |= {step.fragment: list(islice(results, len(of))) for step, of in zip(steps, scales, strict=True)}


def smaller_weights(value: SSAValue) -> tuple[ConvertOp, StoredIntegers, ElementwiseOp | None] | None:
    """A conversion of integers to bf16, these, and what subtracts their zero points, if what is made smaller alone
    reads them."""
    made, times = value.owner, value.get_user_of_unique_use()
    if not isinstance(made, ConvertOp) or made.integers is None or not isinstance(times, ElementwiseOp):
        return None
    less = times if times.kind.data is Kind.Sub and times.inputs[0] is value else None
    if less is not None:
        times = less.fragment.get_user_of_unique_use()
        if not isinstance(times, ElementwiseOp) or made.integers.zero or made.integers.element.signed:
            return None
    factor = times.inputs[-1].owner
    smaller = isinstance(factor, ConstantOp) and factor.value.value.data == SMALLER
    bf16 = times.fragment.type.element.name == "bf16" and times.kind.data is Kind.Mul
    return (made, made.integers, less) if smaller and bf16 else None


def multiplies_by_powers(op: Operation) -> TypeGuard[ElementwiseOp]:
    """Whether an operation multiplies floats of 4 bits by powers of two in registers (`Widening.by_powers`)."""
    if not isinstance(op, ElementwiseOp) or op.kind.data is not Kind.Mul:
        return False
    made, load = (value.owner for value in op.inputs)
    floats = isinstance(made, ConvertOp) and made.integers is not None and made.integers.name == NIBBLES
    exponents = isinstance(load, LoadOp) and memory_of(load.memory).element_type == EXPONENT
    return floats and exponents and only_use_is_here(op.inputs[0], op)


WIDENS = SubfragmentOp, ConvertOp, ElementwiseOp
"""What is done to the weights of a step before they are multiplied."""


def steps_of(op: Operation, multiplies: Callable[[Operation], object]) -> list[ElementwiseOp]:
    """The multiplications of a kind in all steps whose weights are made ready together with those of one."""
    steps = [op]
    while isinstance(before := steps[0].prev_op, WIDENS):
        steps.insert(0, before)
    while isinstance(behind := steps[-1].next_op, WIDENS):
        steps.append(behind)
    return [step for step in steps if isinstance(step, ElementwiseOp) and multiplies(step)]
