"""Approximate functions of f32 for recording: words of all exponents, of those near 0, and of special values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from captured import Random, Words

COUNT = 4096
"""Words of each instruction."""

THREADS = 128

NAMES = ("ex2", "lg2", "rcp", "rsqrt", "sqrt")
_SPECIAL = np.array(
    [
        0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x3F7FFFFF, 0x3F800001, 0x40000000, 0x40800000, 0x42FC0000, 0x42FFFFFF,
        0x43000000, 0x43150000, 0x7E800000, 0x7E800001, 0x7F000000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000,
    ],
    np.uint32,
)  # fmt: skip


@dataclass(frozen=True)
class FunctionCase:
    """An instruction of one or two operands."""

    opcode: str

    @property
    def name(self) -> str:
        return self.opcode

    @property
    def operands(self) -> int:
        return 2 if self.opcode.startswith("div") else 1


def cases() -> Iterator[FunctionCase]:
    """Every approximation whose bits the interpreter has."""
    for ftz in ("", ".ftz"):
        yield from (FunctionCase(f"{name}.approx{ftz}.f32") for name in NAMES)
        yield from (FunctionCase(f"div.{mode}{ftz}.f32") for mode in ("approx", "full"))


def arguments(case: FunctionCase) -> Words:
    """(operands, COUNT): special values of both signs, any words, and words near 1."""
    random, shape = Random(case.name), (case.operands, COUNT)
    words = random.bits(shape, 32).astype(np.uint32)
    exponent = (np.uint64(97) + random.below(shape, 38)) << np.uint64(23)
    near = (random.bits(shape, 1) << np.uint64(31) | exponent | random.bits(shape, 23)).astype(np.uint32)
    words[:, 1::2] = near[:, 1::2]
    special = np.concatenate([_SPECIAL, _SPECIAL | np.uint32(1 << 31)])
    for i, row in enumerate(words):
        row[: special.size] = np.roll(special, i)
    return words


def kernel(case: FunctionCase) -> str:
    """A kernel `k` of one CTA: the arguments, one operand behind the other, and where the results go."""
    loads = "\n".join(f"ld.global.f32 %x{i}, [%in+{4 * COUNT * i}];" for i in range(case.operands))
    operands = ", ".join(f"%x{i}" for i in range(case.operands))
    return f""".version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 words, .param .u64 answers)
{{
    .reg .b32 %t; .reg .b64 %in, %out, %at; .reg .f32 %x<2>, %y; .reg .pred %p;
    mov.u32 %t, %tid.x; mul.wide.u32 %at, %t, 4;
    ld.param.u64 %in, [words]; ld.param.u64 %out, [answers]; add.s64 %in, %in, %at; add.s64 %out, %out, %at;
LOOP:
    {loads}
    {case.opcode} %y, {operands};
    st.global.f32 [%out], %y;
    add.s64 %in, %in, {4 * THREADS}; add.s64 %out, %out, {4 * THREADS}; add.u32 %t, %t, {THREADS};
    setp.lt.u32 %p, %t, {COUNT}; @%p bra LOOP;
    ret;
}}
"""


def answer(case: FunctionCase, launch: Any) -> Words:
    """The results, by `launch(text, arguments)`, with CTAs of 128 threads."""
    got = np.full(COUNT, 0xDEADBEEF, np.uint32)
    launch(kernel(case), [arguments(case), got])
    return got
