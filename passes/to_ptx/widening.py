"""Integers of 8 and 4 bits as f16 or bf16 in registers, exactly, without conversion instructions.

An integer without its sign, the top bit turned over, is put into the fraction of a float whose last bit counts ones:
0x6400 is 1024 in f16, 0x4300 is 128 in bf16, 0x4B000000 is 2^23 in f32. What is subtracted then takes away that number,
the turned bit and the zero point at once. bf16 has 7 bits of fraction, and a byte 8: bytes go by way of f32.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...dialect.isa.types import ELEMENT_TYPES, ElementType
from ...dialect.warp.stored import StoredIntegers
from .emitter import Emitter, VirtualRegister
from .fragments import Fragment, element_bits

MAGIC = {"f16": (0x6400, 1024), "bf16": (0x4300, 128)}
"""Bits of a float whose last bit counts ones, and its value."""

WIDE, WIDE_VALUE = 0x4B000000, 1 << 23
"""The same of f32."""


class Widening:
    """Emits the conversion of registers of integers to registers of two floats each, in the same order."""

    def __init__(self, emitter: Emitter, stored: StoredIntegers, element: ElementType) -> None:
        self.emitter, self.stored, self.element = emitter, stored, element
        self.turned = 1 << stored.element.bits - 1 if stored.element.signed else 0
        self._known: dict[int, VirtualRegister] = {}

    def convert(self, source: Fragment) -> Fragment:
        """All elements."""
        if self.stored.element.bits == 4:
            each = self._nibbles
        else:
            each = self._halves if self.element.name == "f16" else self._words
        return [register for packed in source for register in each(self._positive(packed))]

    def _emit(self, opcode: str, form: str, *operands: VirtualRegister, type: str = "b32") -> VirtualRegister:
        into = self.emitter.register(type)
        self.emitter.emit(opcode, f"?, {form}", into, *operands)
        return into

    def _constant(self, word: int) -> VirtualRegister:
        if word not in self._known:
            self._known[word] = self._emit("mov.b32", f"0x{word:08X}")
        return self._known[word]

    def _positive(self, packed: VirtualRegister) -> VirtualRegister:
        """The integers from 0 on: those with a sign with their top bit turned over."""
        if not self.turned:
            return packed
        bits = self.stored.element.bits
        mask = sum(self.turned << place for place in range(0, 32, bits))
        return self._emit("xor.b32", f"?, 0x{mask:08X}", packed)

    def _less(self, pair: VirtualRegister) -> VirtualRegister:
        """Two floats less what they have too much."""
        name, (_, value) = self.element.name, MAGIC[self.element.name]
        surplus = value + self.turned + self.stored.zero
        if name == "f16":
            bits = element_bits(self.element, surplus)
            return self._emit("sub.rn.f16x2", "?, ?", pair, self._constant(bits << 16 | bits))
        one, bits = (element_bits(self.element, number) for number in (1, -surplus))
        factors = self._constant(one << 16 | one), self._constant(bits << 16 | bits)
        return self._emit("fma.rn.bf16x2", "?, ?, ?", pair, *factors)

    def _nibbles(self, packed: VirtualRegister) -> Iterator[VirtualRegister]:
        """Pairs of neighbours: bytes of the register, and of what is shifted by four bits, hold one of each."""
        magic, _ = MAGIC[self.element.name]
        shifted = self._emit("shr.b32", "?, 4", packed)
        for i in range(4):
            both = self._emit("prmt.b32", f"?, ?, 0x{i + 4:X}{i + 4:X}{i:X}{i:X}", packed, shifted)
            # (both & mask) | magic: 0xEA is the truth table of a & b | c.
            word = self._emit("lop3.b32", "?, 0x000F000F, ?, 0xEA", both, self._constant(magic << 16 | magic))
            yield self._less(word)

    def _halves(self, packed: VirtualRegister) -> Iterator[VirtualRegister]:
        """Bytes as the low halves of f16."""
        magic, _ = MAGIC["f16"]
        for first in (0, 2):
            selector = f"0x5{first + 1}5{first}"  # byte 5 is the upper one of the magic half
            yield self._less(self._emit("prmt.b32", f"?, ?, {selector}", packed, self._constant(magic << 16 | magic)))

    def _words(self, packed: VirtualRegister) -> Iterator[VirtualRegister]:
        """Bytes as the low bits of f32, which has no more of them than bf16 once the surplus is gone."""
        surplus = WIDE_VALUE + self.turned + self.stored.zero
        found: list[VirtualRegister] = []
        for i in range(4):
            word = self._emit("prmt.b32", f"?, ?, 0x744{i}", packed, self._constant(WIDE))
            wide = self._emit("mov.b32", "?", word, type="f32")
            bits = element_bits(ELEMENT_TYPES["f32"], surplus)
            less = self._emit("sub.rn.f32", f"?, 0f{bits:08X}", wide, type="f32")
            found.append(self._emit("mov.b32", "?", less))
        for low, high in ((found[0], found[1]), (found[2], found[3])):
            yield self._emit("prmt.b32", "?, ?, 0x7632", low, high)
