"""Approximate functions for recording: special values, words of all exponents and of those near 0; of 16 bits all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from captured import Random, Words

COUNT = 4096
"""Words of each instruction."""

THREADS = 128

NAMES = ("ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos")
NARROW = ("ex2.approx.f16", "ex2.approx.ftz.bf16", "tanh.approx.f16", "tanh.approx.bf16")
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

    @property
    def packed(self) -> bool:
        """Whether a word has two arguments of 16 bits."""
        return self.opcode.endswith("x2")

    @property
    def count(self) -> int:
        """Words of arguments."""
        return 1 << 15 if self.packed else COUNT


def cases() -> Iterator[FunctionCase]:
    """Every approximation whose bits the interpreter has."""
    for ftz in ("", ".ftz"):
        yield from (FunctionCase(f"{name}.approx{ftz}.f32") for name in NAMES)
        yield from (FunctionCase(f"div.{mode}{ftz}.f32") for mode in ("approx", "full"))
    yield FunctionCase("tanh.approx.f32")
    yield from (FunctionCase(f"{opcode}x2") for opcode in NARROW)


def arguments(case: FunctionCase) -> Words:
    """(operands, count): special values of both signs, any words, and words near 1; of 16 bits all, in pairs."""
    if case.packed:
        return np.arange(1 << 16, dtype=np.uint16).view(np.uint32)[None]
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
    loads = "\n".join(f"ld.global.b32 %x{i}, [%in+{4 * case.count * i}];" for i in range(case.operands))
    operands = ", ".join(f"%x{i}" for i in range(case.operands))
    return f""".version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 words, .param .u64 answers)
{{
    .reg .b32 %t; .reg .b64 %in, %out, %at; .reg .b32 %x<2>, %y; .reg .pred %p;
    mov.u32 %t, %tid.x; mul.wide.u32 %at, %t, 4;
    ld.param.u64 %in, [words]; ld.param.u64 %out, [answers]; add.s64 %in, %in, %at; add.s64 %out, %out, %at;
LOOP:
    {loads}
    {case.opcode} %y, {operands};
    st.global.b32 [%out], %y;
    add.s64 %in, %in, {4 * THREADS}; add.s64 %out, %out, {4 * THREADS}; add.u32 %t, %t, {THREADS};
    setp.lt.u32 %p, %t, {case.count}; @%p bra LOOP;
    ret;
}}
"""


def answer(case: FunctionCase, launch: Any) -> Words:
    """The results, by `launch(text, arguments)`, with CTAs of 128 threads."""
    got = np.full(case.count, 0xDEADBEEF, np.uint32)
    launch(kernel(case), [arguments(case), got])
    return got
