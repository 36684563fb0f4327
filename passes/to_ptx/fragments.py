"""Fragments in registers: constants, arithmetic, conversion, products.

A fragment is a list of registers per lane: one `.f32` for each f32 element, one `.b32` for each pair of
16-bit elements, the lower in the low half; base tile after base tile, row by row of tiles.
"""

from __future__ import annotations

import math
import struct

from ...dialect.isa.targets import Target
from ...dialect.isa.types import ElementType
from ...dialect.warp.attributes import FragmentType
from ...dialect.warp.elementwise import Kind
from ...dialect.warp.mma import MmaOp
from .emitter import Emitter, Register

Fragment = list[Register]

PAIRED = "x2"
"""In an opcode: it works on two 16-bit elements at once."""


def register_type(element: ElementType) -> str:
    """The PTX type of the registers that hold elements of this type in a fragment."""
    return "f32" if element.name == "f32" else "b32"


def per_register(element: ElementType) -> int:
    return 32 // element.bits


def vector(count: int) -> str:
    """The operand form of `count` registers in braces."""
    return "{" + ", ".join("?" * count) + "}"


class Fragments:
    """Emits what `warp.mma`, `warp.constant`, `warp.elementwise` and `warp.convert` mean for one lane."""

    def __init__(self, emitter: Emitter, target: Target) -> None:
        self.emitter, self.target = emitter, target

    def fresh(self, type: FragmentType) -> Fragment:
        """Registers for a fragment."""
        return self.emitter.registers(register_type(type.element), type.registers)

    def constant(self, type: FragmentType, value: float) -> Fragment:
        registers = self.fresh(type)
        opcode, text = (
            ("mov.f32", _f32(value)) if type.element.name == "f32" else ("mov.b32", _pair(value, type.element))
        )
        for register in registers:
            self.emitter.emit(opcode, f"?, {text}", register)
        return registers

    def copy(self, source: Fragment, into: Fragment) -> None:
        for a, b in zip(source, into, strict=True):
            if a is not b:
                self.emitter.emit("mov.f32" if b.type == "f32" else "mov.b32", "?, ?", b, a)

    def multiply(self, op: MmaOp, a: Fragment, b: Fragment, accumulators: Fragment) -> None:
        """Adds A * B to the accumulators in place, one instruction for each triple of base tiles."""
        row = op.row
        type_a, type_b, _ = op.fragments
        (down, deep), (_, across) = type_a.tiles, type_b.tiles
        na, nb, nc = (row.registers(role) for role in "abc")
        form = ", ".join(vector(n) for n in (nc, na, nb, nc))
        for k in range(deep):
            for i in range(down):
                first = (i * deep + k) * na
                # Going back and forth lets the next instruction reuse the B fragment of the last one.
                for j in range(across) if i % 2 == 0 else reversed(range(across)):
                    c = accumulators[(i * across + j) * nc :][:nc]
                    second = (k * across + j) * nb
                    self.emitter.emit(row.spelling, form, *c, *a[first : first + na], *b[second : second + nb], *c)

    def narrowing(self, element: ElementType) -> str:
        """The instruction that rounds f32 to a 16-bit type on this target: of two numbers at once from sm_80 on."""
        return f"cvt.rn.{element.name}{PAIRED if self.target.sm >= 80 else ''}.f32"

    def elementwise(self, kind: Kind, type: FragmentType, inputs: list[Fragment]) -> Fragment:
        result, opcode = self.fresh(type), elementwise_opcode(kind, type.element)
        form = ", ".join("?" * (1 + len(inputs)))
        for registers in zip(result, *inputs, strict=True):
            self.emitter.emit(opcode, form, *registers)
        return result

    def convert(self, source: Fragment, type: FragmentType, to: FragmentType) -> Fragment:
        """Converts by way of f32, which holds every 16-bit type exactly."""
        if type == to:
            same = self.fresh(to)
            self.copy(source, same)
            return same
        wide = source if type.element.name == "f32" else self._widen(source, type.element)
        return wide if to.element.name == "f32" else self._narrow(wide, to.element)

    def _widen(self, source: Fragment, element: ElementType) -> Fragment:
        result: Fragment = []
        for pair in source:
            low, high = self.emitter.registers("f32", 2)
            if element.name == "bf16":
                # The bits of a bf16 are the upper half of the same f32.
                shifted, masked = self.emitter.registers("b32", 2)
                self.emitter.emit("shl.b32", "?, ?, 16", shifted, pair)
                self.emitter.emit("and.b32", "?, ?, 0xFFFF0000", masked, pair)
                self.emitter.emit("mov.b32", "?, ?", low, shifted)
                self.emitter.emit("mov.b32", "?, ?", high, masked)
            else:
                halves = self.emitter.registers("b16", 2)
                self.emitter.emit("mov.b32", "{?, ?}, ?", *halves, pair)
                self.emitter.emit("cvt.f32.f16", "?, ?", low, halves[0])
                self.emitter.emit("cvt.f32.f16", "?, ?", high, halves[1])
            result += [low, high]
        return result

    def _narrow(self, source: Fragment, element: ElementType) -> Fragment:
        result: Fragment = []
        for low, high in zip(source[::2], source[1::2], strict=True):
            pair = self.emitter.register("b32")
            if PAIRED in (opcode := self.narrowing(element)):
                self.emitter.emit(opcode, "?, ?, ?", pair, high, low)
            else:
                halves = self.emitter.registers("b16", 2)
                for half, value in zip(halves, (low, high), strict=True):
                    self.emitter.emit(opcode, "?, ?", half, value)
                self.emitter.emit("mov.b32", "?, {?, ?}", pair, *halves)
            result.append(pair)
        return result


def elementwise_opcode(kind: Kind, element: ElementType) -> str:
    """The instruction that does an operation on one register of elements."""
    type = "f32" if element.name == "f32" else f"{element.name}x2"
    rounded = "rn." if kind in (Kind.Add, Kind.Sub, Kind.Mul) else ""
    return f"{kind}.{rounded}{type}"


def _f32(value: float) -> str:
    return f"0f{_bits(value, '<f', '<I'):08X}"


def _pair(value: float, element: ElementType) -> str:
    """Two 16-bit copies of a value in a 32-bit literal, rounded to nearest even."""
    bits = _bits(value, "<e", "<H") if element.name == "f16" else _bits(_as_bf16(value), "<f", "<I") >> 16
    return f"0x{bits:04X}{bits:04X}"


def _bits(value: float, format: str, word: str) -> int:
    """The bits of a value in a format of `struct`; an infinity where it is too large."""
    try:
        packed = struct.pack(format, value)
    except OverflowError:
        packed = struct.pack(format, math.copysign(math.inf, value))
    return struct.unpack(word, packed)[0]


def _as_bf16(value: float) -> float:
    """The value rounded to the 8 significant bits of a bf16, or to its least subnormal, 2^-133."""
    if not math.isfinite(value):
        return value
    quantum = max(math.frexp(value)[1] - 8, -133)
    return math.copysign(math.ldexp(round(math.ldexp(value, -quantum)), quantum), value)
