"""`batch_invariant`: a row of a result has the same words whatever other rows are computed with it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from attentions import Attention
from products import Product, Types

from warploom.dialect.isa.form import Shape
from warploom.dialect.schedule import Schedule, ScheduleError
from warploom.runtime import Kernel

N, K, MAX = 40, 320, 150
"""Columns and rows that are no multiples of a tile; rows of A of whole 16 bytes."""

BF16, INVARIANT = ml_dtypes.bfloat16, {"batch_invariant": True}

CASES: dict[str, tuple[Types, str, Any, Any, str]] = {
    "bf16": (Types("bf16", "bf16", "bf16"), "cleared", BF16, BF16, "m64n40k16"),
    "bf16 added": (Types("bf16", "bf16", "f32"), "added", BF16, np.float32, "m64n40k16"),
    "f16 gelu": (Types("f16", "f16", "f16"), "gelu by tanh", np.float16, np.float16, "m64n40k16"),
    "tf32": (Types("f32", "f32", "f32"), "cleared", np.float32, np.float32, "m64n40k8"),
    "e4m3": (Types("f8E4M3FN", "f8E4M3FN", "f32"), "cleared", ml_dtypes.float8_e4m3fn, np.float32, ""),
}
"""Types, form, those of numpy for A and D, and an instruction of warpgroups that makes the same sums as fragments do;
those of 8-bit floats differ, so that all are by warpgroups."""


def last_row(kernel: Kernel, operands: list[Any], output: Any, rows: int) -> bytes:
    """The words of the last of so many rows, which the first operand and the output have."""
    out, (a, *others) = output[-rows:].copy(), operands
    kernel(a[-rows:].copy(), *others, out, device="interp")
    return out[-1].tobytes()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", CASES)
def test_words_of_a_row_are_those_of_every_batch(case: str) -> None:
    types, form, kind, out, mma = CASES[case]
    draw = np.random.default_rng(30)
    a, b, c = (draw.standard_normal(shape) for shape in ((MAX, K), (N, K), (MAX, N)))
    by, words = set[int](), set[bytes]()
    for rows, asked in ((1, {}), (17, {}), (MAX, {"mma": mma} if mma else {})):
        kernel = Product(types, form, "A Bt", (rows, N, K), INVARIANT | asked).compile("sm_90a")
        by |= {schedule.together for schedule in kernel.schedule if schedule is not None}
        words.add(last_row(kernel, [a.astype(kind), b.astype(kind)], c.astype(out), rows))
    assert len(words) == 1
    assert by == ({1, 4} if mma else {4})


def test_without_it_parts_of_k_make_other_words() -> None:
    """The sums of two parts of K are not those of one: what the option is for."""
    draw, words = np.random.default_rng(31), list[bytes]()
    operands = [draw.standard_normal(shape).astype(BF16) for shape in ((1, K), (N, K))]
    for parts in (1, 2):
        asked = {"mma": "m16n8k16", "cta": (16, 8, 32), "split_k": parts}
        kernel = Product(Types("bf16", "bf16", "f32"), "cleared", "A Bt", (1, N, K), asked).compile("sm_90a")
        words.append(last_row(kernel, operands, np.zeros((1, N), np.float32), 1))
    assert words[0] != words[1]


def test_an_attention_is_by_the_same_instruction_for_any_number_of_queries() -> None:
    draw, words = np.random.default_rng(32), set[bytes]()
    q, k, v = (draw.standard_normal(shape).astype(np.float16) for shape in ((90, 64), (100, 64), (100, 64)))
    for queries in (3, 90):
        kernel = Attention((queries, 100, 64, 64), batch=(1,), on_memory=True).compile("sm_90a", **INVARIANT)
        output = np.zeros((1, queries, 64), np.float16)
        kernel(q[None, -queries:].copy(), k[None], v[None], output, device="interp")
        words.add(output[0, -1].tobytes())
    assert len(words) == 1


@pytest.mark.parametrize("name", ["sliced_k", "split_k"])
def test_cuts_of_k_are_refused(name: str) -> None:
    schedule = Schedule(cta=(16, 16, 64), warp=(16, 16), mma=Shape(16, 8, 16), stages=2, batch_invariant="True")
    with pytest.raises(ScheduleError, match="batch_invariant takes sums in one order"):
        schedule.with_fields(**{name: 2})
