"""What the rows of `mma` and `mma.sp` share: the shape, the four matrices, the qualifiers.

Source: PTX ISA 9.7.14.1 to 9.7.14.3.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from ..layouts.layout import Layout, accumulator, multiplicand
from .block_scale import BlockScale
from .form import VECTOR, Form, FormOperand, register_type
from .targets import Specific
from .types import ElementType

KIND_F8F6F4, KIND_MXF8F6F4, KIND_MXF4, KIND_MXF4NVF4 = "f8f6f4", "mxf8f6f4", "mxf4", "mxf4nvf4"

IN_BYTES = (KIND_F8F6F4, KIND_MXF8F6F4)
"""Kinds whose 4-bit and 6-bit elements lie each in a byte of its own (9.7.14.5.14)."""

SM_120: Specific = (("sm_120a", (8, 7)), ("sm_120f", (8, 8)))
"""Where `.kind`, `.block_scale` and the 4-bit and 6-bit types run (9.7.14.5.14 and 9.7.14.6.3, Target ISA Notes)."""


class Shape(NamedTuple):
    """M x N x K of one instruction: A is m x k, B is k x n, C and D are m x n."""

    m: int
    n: int
    k: int

    @staticmethod
    def parse(text: str) -> Shape:
        """Reads `m16n8k16`.

        Raises:
            ValueError: if the text is not of that form.
        """
        match = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", text)
        if match is None:
            raise ValueError(f"expected a shape such as m16n8k16, got '{text}'")
        return Shape(*map(int, match.groups()))

    def __str__(self) -> str:
        return f"m{self.m}n{self.n}k{self.k}"


@cache
def fragment_layout(role: str, m: int, n: int, k: int, bits: int) -> Layout:
    """The layout of a dense operand whose elements take `bits` bits (ISA 9.7.14.5.2 to 9.7.14.5.13)."""
    if role == "a":
        return multiplicand(m, k, bits)
    if role == "b":
        return multiplicand(n, k, bits).transposed()
    return accumulator(m, n)


class ProductForm(Form):
    """D = A * B + C by one warp, A dense or sparse.

    `kind` is the `.kind` of the narrow floating-point types or "", `scale` their block scaling.
    """

    __slots__ = ()

    shape: Shape
    a: ElementType
    b: ElementType
    c: ElementType
    d: ElementType
    satfinite: bool
    kind: str
    scale: BlockScale | None

    def check_registers(self) -> None:
        """Raises ValueError if an operand does not fill whole registers."""
        for role in "abcd":
            held = self.layout(role).elements * self.container_bits(role)
            if held == 0 or held % max(32, self.element(role).bits):
                raise ValueError(f"{self.spelling}: {role} does not fill whole registers")

    def layout(self, role: str) -> Layout:
        """The fragment layout of operand "a", "b", "c" or "d"."""
        raise TypeError(f"{type(self).__name__} has no layouts")

    def element(self, role: str) -> ElementType:
        """The element type of operand "a", "b", "c" or "d"."""
        return self.a if role == "a" else self.b if role == "b" else self.c if role == "c" else self.d

    def container_bits(self, role: str) -> int:
        """How many bits of a register an element takes: 8 for the 4-bit and 6-bit types of some kinds."""
        return 8 if self.kind in IN_BYTES and role in "ab" else self.element(role).bits

    @property
    def operand_bits(self) -> int:
        """How many bits of a register an element of A or B takes: of both the same."""
        return self.container_bits("a")

    def registers(self, role: str) -> int:
        """Registers per lane that operand "a", "b", "c" or "d" takes: 64-bit ones for f64, else 32-bit."""
        return self.layout(role).elements * self.container_bits(role) // max(32, self.element(role).bits)

    def register_type(self, role: str) -> str:
        """The type of those registers, as the text gives it: `b32`, `f16x2`, `bf16x2`, `f32`, `f64` or `s32`."""
        return register_type(self.element(role))

    @property
    def fragments(self) -> tuple[FormOperand, ...]:
        """The operands d, a, b, c."""
        return tuple(FormOperand(role, VECTOR, self.register_type(role), self.registers(role)) for role in "dabc")

    @property
    def qualifiers(self) -> str:
        """The part of the spelling from `.satfinite` or `.kind` to the types, of the scales too."""
        before = ".satfinite" if self.satfinite else ""
        if self.kind:
            before += f".kind::{self.kind}"
        after = ""
        if self.scale:
            before, after = before + self.scale.qualifiers, f".{self.scale.type.name}"
        return f"{before}.{self.d.name}.{self.a.name}.{self.b.name}.{self.c.name}{after}"
