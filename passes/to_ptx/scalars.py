"""Arithmetic of one thread: of indices, folded while it is emitted, and of elements.

Indices are 32-bit; a memref that needs more is refused. Addresses in global memory are 64-bit, in shared memory 32-bit.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from math import gcd

from ...dialect.ptx.rows.arithmetic import COMPARISONS
from ...dialect.ptx.text.syntax import Immediate, Register
from .emitter import At, Condition, Emitter, IndexValue, VirtualRegister, floating, single

WORD = (1 << 32) - 1

WIDE_OFFSET = 1 << 23
"""Byte offsets from here on are added to the address; smaller ones go into the instruction, in 24 bits."""


def divisor_of(value: IndexValue) -> int:
    """A known divisor of a value; 0 for the value zero."""
    return abs(value) if isinstance(value, int) else value.divisor


def common_divisor(values: Iterable[IndexValue]) -> int:
    """A number that divides each of the values, and so their sum."""
    return gcd(*map(divisor_of, values))


def split(value: IndexValue) -> tuple[VirtualRegister | None, int]:
    """The value as register + constant."""
    if isinstance(value, int):
        return None, value
    return (value, 0) if value.base is None else (value.base, value.offset)


class Scalars:
    """Index, address and predicate arithmetic over an emitter."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter, self._pure = emitter, emitter.pure

    def special(self, name: str, bound: int) -> VirtualRegister:
        """A special register such as %tid.x, smaller than `bound`."""
        register = self._pure("mov.u32", Register(name))
        register.bound = bound
        return register

    def add(self, a: IndexValue, b: IndexValue) -> IndexValue:
        if isinstance(a, int):
            a, b = b, a
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if b == 0:
            return a
        base, offset = split(a)
        if isinstance(b, int) and base is not None and offset:
            return self.add(base, b + offset)
        result = self._pure("add.s32", a, b)
        result.divisor = gcd(divisor_of(a), divisor_of(b))
        if isinstance(b, int) and isinstance(a, VirtualRegister):
            result.base, result.offset = a, b
        return result

    def sum(self, *values: IndexValue) -> IndexValue:
        """The sum, what changes in inner loops added last."""
        return reduce(self.add, sorted(values, key=lambda v: v.level if isinstance(v, VirtualRegister) else -1))

    def subtract(self, a: IndexValue, b: IndexValue) -> IndexValue:
        return self.add(a, -b) if isinstance(b, int) else self._pure("sub.s32", a, b)

    def multiply(self, a: IndexValue, factor: IndexValue) -> IndexValue:
        if isinstance(a, int):
            a, factor = factor, a
        if isinstance(a, int) or factor == 0:
            return a * factor if isinstance(a, int) and isinstance(factor, int) else 0
        if factor == 1:
            return a
        bits = 64 if a.type == "b64" else 32
        if isinstance(factor, int) and factor > 0 and factor.bit_count() == 1:
            result = self._pure(f"shl.b{bits}", a, factor.bit_length() - 1)
        else:
            result = self._pure(f"mul.lo.s{bits}", a, factor)
        if isinstance(factor, int):
            result.divisor = a.divisor * abs(factor)
            result.bound = None if a.bound is None or factor < 0 else (a.bound - 1) * factor + 1
        return result

    def quotient(self, a: IndexValue, by: IndexValue) -> IndexValue:
        """Unsigned a / by."""
        if isinstance(a, int) and isinstance(by, int):
            return a // by
        if by == 1:
            return a
        if isinstance(by, int) and by.bit_count() == 1 and isinstance(a, VirtualRegister):
            return self.shift_right(a, by.bit_length() - 1)
        return self._pure("div.u32", a, by)

    def remainder(self, a: IndexValue, by: IndexValue) -> IndexValue:
        """Unsigned a % by."""
        if isinstance(a, int) and isinstance(by, int):
            return a % by
        if isinstance(by, int) and by.bit_count() == 1 and isinstance(a, VirtualRegister):
            return self.mask(a, by - 1)
        result = self._pure("rem.u32", a, by)
        result.bound = by if isinstance(by, int) else None
        return result

    def shift_right(self, a: VirtualRegister, count: int) -> IndexValue:
        if count == 0:
            return a
        result = self._pure("shr.u32", a, count)
        result.bound = None if a.bound is None else ((a.bound - 1) >> count) + 1
        result.divisor = a.divisor >> count if a.divisor % (1 << count) == 0 else 1
        return 0 if result.bound == 1 else result

    def mask(self, a: IndexValue, bits: int) -> IndexValue:
        """a & bits, for a mask of low bits."""
        if isinstance(a, int):
            return a & bits
        if a.bound is not None and a.bound <= bits + 1:
            return a
        if a.divisor % (bits + 1) == 0:
            return 0
        result = self._pure("and.b32", a, bits)
        result.bound, result.divisor = bits + 1, gcd(a.divisor, bits + 1)
        return result

    def bits(self, a: IndexValue, start: int, count: int, to: int) -> IndexValue:
        """Bits start .. start+count-1 of `a`, moved to bit `to`."""
        if isinstance(a, int):
            return (a >> start & ((1 << count) - 1)) << to
        return self.multiply(self.mask(self.shift_right(a, start), (1 << count) - 1), 1 << to)

    def xor(self, a: IndexValue, b: IndexValue) -> IndexValue:
        if isinstance(a, int):
            a, b = b, a
        if isinstance(a, int) and isinstance(b, int):
            return a ^ b
        return a if b == 0 else self._pure("xor.b32", a, b)

    def minimum(self, a: IndexValue, b: IndexValue, *, signed: bool = False) -> IndexValue:
        """The smaller, as unsigned numbers unless `signed`."""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        result = self._pure("min.s32" if signed else "min.u32", *((b, a) if isinstance(a, int) else (a, b)))
        result.divisor = gcd(divisor_of(a), divisor_of(b))
        return result

    def compare(self, predicate: str, a: IndexValue, b: IndexValue, *, signed: bool = True) -> Condition:
        """A predicate register for a comparison such as "lt", or the result if it is constant."""
        if isinstance(a, int) and isinstance(b, int):
            return COMPARISONS[predicate](*((a, b) if signed else (a & WORD, b & WORD)))
        kind = "s32" if signed else "u32"
        if isinstance(a, int):
            mirrored = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
            return self._pure(f"setp.{mirrored.get(predicate, predicate)}.{kind}", b, a)
        return self._pure(f"setp.{predicate}.{kind}", a, b)

    def both(self, a: Condition, b: Condition) -> Condition:
        """The conjunction of two predicates."""
        if isinstance(a, bool):
            return b if a else False
        if isinstance(b, bool):
            return a if b else False
        return a if a is b else self._pure("and.pred", a, b)

    def either(self, a: Condition, b: Condition) -> Condition:
        """The disjunction of two predicates."""
        if isinstance(a, bool) or isinstance(b, bool):
            constant, other = (a, b) if isinstance(a, bool) else (b, a)
            return True if constant else other
        return a if a is b else self._pure("or.pred", a, b)

    def differ(self, a: Condition, b: Condition) -> Condition:
        """The exclusive or of two predicates."""
        if isinstance(a, bool) and isinstance(b, bool):
            return a != b
        if isinstance(a, bool):
            a, b = b, a
        if isinstance(a, VirtualRegister) and isinstance(b, bool):
            return self._pure("not.pred", a) if b else a
        return False if a is b else self._pure("xor.pred", a, b)

    def bitwise_and(self, a: IndexValue, b: IndexValue) -> IndexValue:
        """a & b."""
        return a & b if isinstance(a, int) and isinstance(b, int) else self._pure("and.b32", a, b)

    def select(self, condition: Condition, yes: IndexValue, no: IndexValue) -> IndexValue:
        if isinstance(condition, bool):
            return yes if condition else no
        return self._pure("selp.b32", yes, no, condition)

    def offset64(self, base: VirtualRegister, index: IndexValue, scale: IndexValue) -> VirtualRegister:
        """base + index * scale, as a 64-bit address; both factors are signed."""
        if isinstance(index, int):
            index, scale = scale, index
        if isinstance(index, int) and isinstance(scale, int):
            return base if index * scale == 0 else self._pure("add.s64", base, index * scale)
        return self._pure("add.s64", base, self._pure("mul.wide.s32", index, scale))

    def offset_far(self, base: VirtualRegister, index: IndexValue, stride: IndexValue, bits: int) -> VirtualRegister:
        """base + index * stride elements of `bits` bits; the offset, and a stride in a register, have 64 bits."""
        if isinstance(index, int) and isinstance(stride, int):
            return self.offset64(base, index * stride * bits // 8, 1)
        wide = index if isinstance(index, int) else self._pure("cvt.u64.u32", index)
        scale = stride * bits // 8 if isinstance(stride, int) else self._scaled64(stride, bits)
        if isinstance(scale, int):
            wide, scale = scale, wide
        if wide == 0:
            return base
        return self._pure("add.s64", base, self._pure("mul.lo.s64", scale, wide))

    def product64(self, factors: Sequence[IndexValue]) -> IndexValue:
        """The product of 32-bit factors in 64 bits; one register at least is among them."""
        total: IndexValue = math.prod(f for f in factors if isinstance(f, int))
        for factor in (f for f in factors if isinstance(f, VirtualRegister)):
            divisor = divisor_of(total) * factor.divisor
            wide = self._pure("cvt.u64.u32", factor)
            wide = wide if total == 1 else self._pure("mul.lo.s64", wide, total)
            wide.divisor = divisor
            total = wide
        return total

    def _scaled64(self, elements: VirtualRegister, bits: int) -> VirtualRegister:
        """Elements of `bits` bits in bytes; of less than a byte there must be whole bytes."""
        if bits < 8:
            return self._pure("shr.u64", elements, (8 // bits).bit_length() - 1)
        return elements if bits == 8 else self._pure("mul.lo.s64", elements, bits // 8)

    def bytes_of(self, elements: IndexValue, bits: int) -> IndexValue:
        """Elements of `bits` bits in bytes, in 32 bits."""
        if isinstance(elements, int):
            return elements * bits // 8
        narrow = self._pure("cvt.u32.u64", elements)
        narrow.divisor = elements.divisor
        return self.multiply(narrow, bits // 8) if bits >= 8 else self.quotient(narrow, 8 // bits)

    def address(self, base: VirtualRegister, terms: Sequence[tuple[IndexValue, IndexValue]]) -> At:
        """base + the sum of index * scale over the terms. What does not change in the loop is added first, so that it
        is added outside; constants stay apart. Wide ones are added last, where the address is used: outside they would
        hold a register each for as long as the loop runs."""
        offset = 0
        parts: list[tuple[VirtualRegister, IndexValue]] = []
        for index, scale in terms:
            register, constant = split(index)
            if isinstance(scale, int):
                offset += constant * scale
            elif constant:
                parts.append((scale, constant))
            if register is not None and scale != 0:
                parts.append((register, scale))
        parts.sort(key=lambda part: max(p.level for p in part if isinstance(p, VirtualRegister)))
        address = reduce(lambda at, part: self.offset64(at, *part), parts, base)
        return At(self.offset64(address, offset, 1)) if abs(offset) >= WIDE_OFFSET else At(address, offset)


def runs(places: Sequence[int | None]) -> Iterator[tuple[int, int, int]]:
    """(first bit, count, place of the first) of each run of bits with consecutive places; None marks a dropped bit."""
    start = 0
    while start < len(places):
        place, count = places[start], 1
        while place is not None and start + count < len(places) and places[start + count] == place + count:
            count += 1
        if place is not None:
            yield start, count, place
        start += count


Operand = VirtualRegister | Immediate | int
"""A register, or a literal."""

XORSIGN_SM = 86
"""The first target with `min.xorsign.abs` (PTX ISA 9.7.3.11)."""


def double(value: float) -> Operand:
    """An f64 as a literal."""
    return floating(struct.unpack("<Q", struct.pack("<d", value))[0], 64)


class Instructions:
    """Emits instructions on single elements. An instruction with equal operands is emitted once."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self._registers: dict[tuple[str, str, tuple[Operand, ...]], VirtualRegister] = {}

    def __call__(self, opcode: str, *operands: Operand, type: str = "") -> VirtualRegister:
        """The register that an instruction without effects sets; of `type`, as for `Emitter.compute`."""
        key = opcode, type, operands
        if key not in self._registers:
            self._registers[key] = self.emitter.compute(opcode, *operands, type=type)
        return self._registers[key]

    # f32

    def add(self, a: Operand, b: Operand) -> VirtualRegister:
        return self("add.rn.f32", a, b)

    def mul(self, a: Operand, b: Operand) -> VirtualRegister:
        return self("mul.rn.f32", a, b)

    def fma(self, a: Operand, b: Operand, c: Operand) -> VirtualRegister:
        return self("fma.rn.f32", a, b, c)

    def neg(self, a: Operand) -> VirtualRegister:
        return self("neg.f32", a)

    def polynomial(self, x: Operand, coefficients: Sequence[float]) -> VirtualRegister:
        """Horner's scheme in f32; coefficients from the constant one on."""
        *rest, last = map(single, coefficients)
        result: Operand = last
        for coefficient in reversed(rest):
            result = self.fma(result, x, coefficient)
        return result if isinstance(result, VirtualRegister) else self("mov.f32", result)

    def clamp(self, x: Operand, low: float, high: float, sm: int) -> VirtualRegister:
        """x between two bounds; NaN stays NaN."""
        if sm >= 80:
            return self("min.NaN.f32", self("max.NaN.f32", x, single(low)), single(high))
        bounded = self("min.f32", self("max.f32", x, single(low)), single(high))
        return self("selp.f32", x, bounded, self("setp.nan.f32", x, x))

    def within(self, x: Operand, limit: float, sm: int) -> VirtualRegister:
        """x between -limit and limit; NaN stays NaN."""
        if sm < XORSIGN_SM:
            return self.clamp(x, -limit, limit, sm)
        # The smaller of both magnitudes, with the sign of x.
        return self("min.NaN.xorsign.abs.f32", x, single(limit))

    def reciprocal(self, q: Operand) -> VirtualRegister:
        """1 / q, correctly rounded, for a normal q whose reciprocal is one. One step of Newton's from a guess within a
        unit in the last place, which PTX ISA 9.7.3.13 promises of the approximation, rounds correctly whatever the
        guess was (P. Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", 1990), but
        where the fraction of q is all ones: there the guess must be the upper one of two, as it is on an H200."""
        guess = self("rcp.approx.ftz.f32", q)
        return self.fma(self.fma(self.neg(q), guess, single(1.0)), guess, guess)

    # Bits

    def bits(self, a: Operand) -> VirtualRegister:
        return self("mov.b32", a)

    def of_bits(self, a: Operand) -> VirtualRegister:
        return self("mov.b32", a, type="f32")
