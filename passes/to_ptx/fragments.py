"""Fragments in registers: constants, arithmetic, conversion, products.

A fragment is a list of registers per lane: one `.f32` for each f32 element, one `.f64` for each of f64, one `.b32` for
each pair of 16-bit elements, the first in the low half, or for as many others as fill it; base tile after base tile,
row by row of tiles.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import NamedTuple

from ...dialect.isa.types import ElementType
from ...dialect.ptx.text.syntax import Immediate
from ...dialect.warp.attributes import FragmentType
from ...dialect.warp.elementwise import Kind
from ...dialect.warp.product import ProductOp
from .emitter import Emitter
from .operands import EmittedOperand, VirtualRegister, floating, word

Fragment = list[VirtualRegister]

UPPER = word(0xFFFF0000)
"""The mask of the upper half of a register."""

PAIRED = "x2"
"""In an opcode: it works on two 16-bit elements at once."""


def register_type(element: ElementType) -> str:
    """The PTX type of the registers that hold elements of this type in a fragment."""
    return element.name if element.name in ("f32", "f64") else "b32"


def per_register(type: FragmentType) -> int:
    """How many elements of a fragment one register holds."""
    return max(1, 32 // type.bits)


class TrailingOperand(NamedTuple):
    """What a product takes after A, B and C, for each of the instruction's tiles of A or of B."""

    of_tiles: Sequence[Sequence[EmittedOperand]]
    of_b: bool = False


class FragmentEmitter:
    """Emits what `warp.mma`, `warp.constant`, `warp.elementwise` and `warp.convert` mean for one lane."""

    def __init__(self, emitter: Emitter, *, serpentine: bool = True) -> None:
        """`serpentine`: products go back and forth along the rows of base tiles."""
        self.emitter, self.serpentine = emitter, serpentine

    def fresh(self, type: FragmentType) -> Fragment:
        """Registers for a fragment."""
        return self.emitter.registers(register_type(type.element), type.registers)

    def constant(self, type: FragmentType, value: float) -> Fragment:
        number = literal(type, value)
        return [self.emitter.compute(f"mov.{register_type(type.element)}", number) for _ in range(type.registers)]

    def copy(self, source: Fragment, into: Fragment) -> None:
        for a, b in zip(source, into, strict=True):
            if a is not b:
                self.emitter.move(b, a)

    def select(self, condition: VirtualRegister | bool, yes: Fragment, no: Fragment) -> Fragment:
        """One fragment or the other; registers of its own where it is not known which."""
        if isinstance(condition, bool):
            return yes if condition else no
        return [self.emitter.compute(f"selp.{a.type}", a, b, condition) for a, b in zip(yes, no, strict=True)]

    def multiply(
        self, op: ProductOp, a: Fragment, b: Fragment, c: Fragment, d: Fragment, extras: Sequence[TrailingOperand] = ()
    ) -> Fragment:
        """D = A * B + C, one instruction for each triple of base tiles; D and C may be the same registers.

        Returns the registers that the last instruction sets.
        """
        row, last = op.row, d
        of_a, of_b, of_c = op.origins()
        # Tiles are found by where they begin, for the operands may number rows, columns and k otherwise.
        first, second, third = ({at: i for i, at in enumerate(tiles)} for tiles in (of_a, of_b, of_c))
        down, across = (list(dict.fromkeys(where)) for where in ((m for m, _ in of_a), (n for _, n in of_b)))
        deep = list(dict.fromkeys(k for _, k in of_a))
        na, nb, nc, nd = (row.registers(role) for role in "abcd")
        for step, k in enumerate(deep):
            source, n = (c, nc) if step == 0 else (d, nd)
            for i, m in enumerate(down):
                held_a = first[m, k]
                for j in reversed(across) if self.serpentine and i % 2 else across:
                    held_b, tile = second[k * op.SPARSITY, j], third[m, j]
                    trailing = (extra.of_tiles[held_b if extra.of_b else held_a] for extra in extras)
                    last = d[tile * nd : (tile + 1) * nd]
                    self.emitter.emit(
                        row.spelling,
                        last,
                        a[held_a * na : (held_a + 1) * na],
                        b[held_b * nb : (held_b + 1) * nb],
                        source[tile * n : (tile + 1) * n],
                        *(operand for operands in trailing for operand in operands),
                    )
        return last

    def narrowing(self, element: ElementType) -> str:
        """The instruction that rounds f32 to a 16-bit type on this target, two numbers at once where there is one."""
        paired = f"cvt.rn.{element.name}{PAIRED}.f32"
        return paired if self.emitter.has(paired) else f"cvt.rn.{element.name}.f32"

    def elementwise(self, kind: Kind, element: ElementType, inputs: list[Fragment], into: Fragment) -> None:
        """Computes into registers, which may be those of an input."""
        opcode = elementwise_opcode(kind, element)
        for registers in zip(into, *inputs, strict=True):
            self.emitter.emit(opcode, *registers)

    def convert(self, source: Fragment, type: FragmentType, to: FragmentType) -> Fragment:
        """Converts by way of f32, which holds every 16-bit type exactly; 8-bit floats to f16, exactly too."""
        if type == to:
            same = self.fresh(to)
            self.copy(source, same)
            return same
        if type.bits == 8:
            return self._halves(source, type.element)
        wide = source if type.element.name == "f32" else self._widen(source, type.element)
        return wide if to.element.name == "f32" else self._narrow(wide, to.element)

    def _widen(self, source: Fragment, element: ElementType) -> Fragment:
        result: Fragment = []
        for pair in source:
            if element.name == "bf16":
                # The bits of a bf16 are the upper half of the same f32.
                words = self.emitter.compute("shl.b32", pair, 16), self.emitter.compute("and.b32", pair, UPPER)
                result += [self.emitter.compute("mov.b32", bits, type="f32") for bits in words]
            else:
                result += [self.emitter.compute("cvt.f32.f16", half) for half in self.emitter.halves(pair)]
        return result

    def _halves(self, source: Fragment, element: ElementType) -> Fragment:
        """8-bit floats as f16: two registers of each."""
        result: Fragment = []
        for packed in source:
            pairs = self.emitter.registers("b16", 2)
            for i, into in enumerate(wide := self.emitter.registers("b32", 2)):
                both = "mov.b32", (pairs, packed)
                self.emitter.defer(into, both, (widening(element), (into, pairs[i])))
            result += wide
        return result

    def _narrow(self, source: Fragment, element: ElementType) -> Fragment:
        result: Fragment = []
        for low, high in zip(source[::2], source[1::2], strict=True):
            if PAIRED in (opcode := self.narrowing(element)):
                result.append(self.emitter.compute(opcode, high, low))
            else:
                halves = [self.emitter.compute(opcode, value) for value in (low, high)]
                result.append(self.emitter.compute("mov.b32", halves))
        return result


def widening(element: ElementType) -> str:
    """The instruction that makes f16 of two 8-bit floats."""
    return f"cvt.rn.f16x2.{element.name}{PAIRED}"


SPELLINGS = {Kind.Maximum: "max.NaN", Kind.Minimum: "min.NaN"}
"""Instructions that are called otherwise than what they do."""


def elementwise_opcode(kind: Kind, element: ElementType) -> str:
    """The instruction that does an operation on one register of elements."""
    type = element.name if element.bits >= 32 else f"{element.name}x2"
    rounded = "rn." if element.is_float and kind in (Kind.Add, Kind.Sub, Kind.Mul) else ""
    return f"{SPELLINGS.get(kind, str(kind))}.{rounded}{type}"


def literal(type: FragmentType, value: float) -> Immediate:
    """A register full of one value, as a literal."""
    element, bits = type.element, element_bits(type.element, value)
    if element.name == "e2m1" and type.bits > element.bits:
        bits <<= 2  # PTX ISA 9.7.14.5.14: e2m1 lies in the middle of its byte.
    if element.name == "f32":
        return floating(bits)
    if element.name == "f64":
        return floating(bits, 64)
    return word(sum(bits << place for place in range(0, 32, type.bits)))


NARROW = {
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "e3m2": "float6_e3m2fn",
    "e2m3": "float6_e2m3fn",
    "e2m1": "float4_e2m1fn",
    "ue8m0": "float8_e8m0fnu",
}
"""What `ml_dtypes` calls the narrow floating-point types."""


def element_bits(element: ElementType, value: float) -> int:
    """The bits of one element, rounded to nearest even."""
    if not element.is_float:
        return int(value) & ((1 << element.bits) - 1)
    if element.name in NARROW:
        import ml_dtypes
        import numpy as np

        return int(np.array([value], getattr(ml_dtypes, NARROW[element.name])).view(np.uint8)[0])
    if element.name in ("f16", "f64"):
        return _bits(value, *{"f16": ("<e", "<H"), "f64": ("<d", "<Q")}[element.name])
    if element.name == "bf16":
        return _bits(_as_bf16(value), "<f", "<I") >> 16
    return _bits(value, "<f", "<I")


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
