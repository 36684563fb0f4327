"""Rows of the dense warp-level multiply-accumulate instruction, `mma.sync`.

To add a shape, add a row: verifier, fragment types, spelling, parser, interpreter and tables follow.
Source: PTX ISA 9.7.14.5.14 (mma), with the fragments of 9.7.14.5.1 to 9.7.14.5.13.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from ..layout import Layout, accumulator, multiplicand
from .targets import Target, Version
from .types import ElementType, element_type


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


@dataclass(frozen=True, slots=True)
class Mma:
    """One form of `mma.sync`: D = A * B + C by one warp.

    `ptx` and `sm` are the first PTX version and the lowest target number that have it.
    """

    shape: Shape
    a: ElementType
    b: ElementType
    c: ElementType
    d: ElementType
    ptx: Version
    sm: int
    section: str

    def __post_init__(self) -> None:
        for role, kind in (("a", self.a), ("b", self.b), ("c", self.c), ("d", self.d)):
            registers = self.registers(role)
            if self.layout(role).elements * kind.bits != registers * 32:
                raise ValueError(f"{self.spelling}: {role} does not fill whole registers")

    @property
    def spelling(self) -> str:
        """The PTX opcode with all its qualifiers."""
        types = ".".join(t.name for t in (self.d, self.a, self.b, self.c))
        return f"mma.sync.aligned.{self.shape}.row.col.{types}"

    def layout(self, role: str) -> Layout:
        """The fragment layout of operand "a", "b", "c" or "d"."""
        m, n, k = self.shape
        if role == "a":
            return multiplicand(m, k, self.a.bits)
        if role == "b":
            return multiplicand(n, k, self.b.bits).transposed()
        return accumulator(m, n)

    def element(self, role: str) -> ElementType:
        """The element type of operand "a", "b", "c" or "d"."""
        return {"a": self.a, "b": self.b, "c": self.c, "d": self.d}[role]

    def registers(self, role: str) -> int:
        """32-bit registers per lane that operand "a", "b", "c" or "d" takes."""
        return self.layout(role).elements * self.element(role).bits // 32

    def runs_on(self, target: Target) -> bool:
        return target.sm >= self.sm


def _forms(shape: str, operands: str, accumulators: str, *, ptx: Version, sm: int, section: str) -> tuple[Mma, ...]:
    """Rows of one shape: every multiplicand type (A and B alike) with every accumulator type (C and D alike)."""
    return tuple(
        Mma(Shape.parse(shape), t, t, acc, acc, ptx, sm, section)
        for t, acc in product(map(element_type, operands.split()), map(element_type, accumulators.split()))
    )


ROWS: tuple[Mma, ...] = (
    # 9.7.14.5.7  m16n8k8
    *_forms("m16n8k8", "f16", "f16 f32", ptx=(6, 5), sm=75, section="9.7.14.5.7"),
    *_forms("m16n8k8", "bf16", "f32", ptx=(7, 0), sm=80, section="9.7.14.5.7"),
    # 9.7.14.5.8  m16n8k16, floating point
    *_forms("m16n8k16", "f16", "f16 f32", ptx=(7, 0), sm=80, section="9.7.14.5.8"),
    *_forms("m16n8k16", "bf16", "f32", ptx=(7, 0), sm=80, section="9.7.14.5.8"),
)

BY_SPELLING = {row.spelling: row for row in ROWS}

Key = tuple[Shape, str, str, str, str]
BY_KEY: dict[Key, Mma] = {(r.shape, r.a.name, r.b.name, r.c.name, r.d.name): r for r in ROWS}


def find(shape: Shape, a: str, b: str, c: str, d: str) -> Mma | None:
    """The row with this shape and these element types, if the ISA has it."""
    return BY_KEY.get((shape, a, b, c, d))


def nearest(shape: Shape, a: str, b: str, c: str, d: str, count: int = 3) -> tuple[Mma, ...]:
    """The rows most like a form that does not exist, for error messages: best first."""

    def distance(r: Mma) -> tuple[int, int]:
        types = sum(x.name != y for x, y in zip((r.a, r.b, r.c, r.d), (a, b, c, d), strict=True))
        return types + 2 * (r.shape != shape), abs(r.shape.k - shape.k)

    return tuple(sorted(ROWS, key=distance)[:count])
