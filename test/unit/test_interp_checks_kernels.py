"""Our own kernels in many shapes and schedules are silent under all checks; bugs in others' kernels are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from seeded_bugs import KERNELS, MATMUL, check_found, edited, line_of, run

from warploom.runtime import compile
from warploom.runtime.interp.machine.memory import Finding

Array = NDArray[Any]

SCHEDULES: list[tuple[tuple[int, int, int], str, dict[str, Any]]] = [
    ((64, 64, 64), "f16", {}),
    ((67, 45, 129), "f16", {}),
    ((67, 45, 129), "bf16", {"pack": "ab"}),
    ((100, 36, 72), "f16", {"stages": 1}),
    ((40, 70, 200), "bf16", {"cta": (32, 32, 32), "warp": (16, 16), "stages": 2}),
    ((96, 136, 104), "f16", {"cta": (64, 64, 32), "warp": (32, 32), "stages": 3}),
    ((64, 128, 160), "f16", {"cta": (64, 64, 64), "warp": (32, 16), "stages": 4, "swizzle": 64}),
    ((128, 64, 96), "f16", {"cta": (64, 64, 32), "warp": (32, 32), "stages": 3, "sliced_k": 2}),
]


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("sizes", "type", "schedule"), SCHEDULES)
def test_our_kernels_are_silent(sizes: tuple[int, int, int], type: str, schedule: dict[str, Any]) -> None:
    m, n, k = sizes
    kernel = compile(MATMUL.format(m=m, n=n, k=k, t=type), **schedule)
    dtype = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}[type]
    random = np.random.default_rng()
    a, b = (random.standard_normal(shape).astype(dtype) for shape in ((m, k), (k, n)))
    c = np.zeros((m, n), np.float32)
    kernel(a, b, c, device="interp", checks="all")
    x, y = a.astype(np.float64), b.astype(np.float64)
    assert np.all(np.abs(c - x @ y) <= 2.0**-18 * (np.abs(x) @ np.abs(y)))


# Other compilers' kernels


def halves(*shape: int) -> Array:
    return np.random.default_rng().standard_normal(shape).astype(np.float16)


def mma_pipeline(text: str) -> tuple[Finding, ...]:
    args = [halves(128, 96), halves(96, 64), np.zeros((128, 64), np.float32), 128, 64, 96]
    return run(text, (1, 2), (128,), args)


def reduce(text: str) -> tuple[Finding, ...]:
    data = np.ones(5000, np.float32)
    return run(text, (4,), (192,), [data, np.zeros(4, np.float32), np.zeros(4, np.float32), 5000])


def histogram(text: str) -> tuple[Finding, ...]:
    data = np.random.default_rng().integers(0, 200, 5000).astype(np.uint8)
    return run(text, (3,), (128,), [data, np.zeros(256, np.uint32), np.full(256, -1, np.int32), 5000])


def transpose(text: str) -> tuple[Finding, ...]:
    return run(text, (2, 3), (32, 8), [np.ones((70, 45), np.float32), np.zeros((45, 70), np.float32), 70, 45])


def triton_matmul_sm80(text: str) -> tuple[Finding, ...]:
    args = [halves(70, 96), halves(96, 100), np.zeros((70, 100), np.float16), 70, 100, 96, 0, 0]
    return run(text, (2, 2), (128,), args, 48 << 10)


def triton_softmax_sm80(text: str) -> tuple[Finding, ...]:
    data = np.ones((5, 200), np.float32)
    return run(text, (5,), (128,), [data, np.zeros_like(data), 200, 0, 0], 1024)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("launch", "old", "new", "which", "check", "at", "nth", "message"),
    [
        (mma_pipeline, "bar.sync", "//", 0, "races", "ldmatrix", 0, "reads what warp"),
        (mma_pipeline, "bar.sync", "//", 1, "races", "cp.async.cg", None, "copies over what warp"),
        (mma_pipeline, "wait_group 1", "wait_group 2", 0, "races", "ldmatrix", 0, "has not been waited for"),
        (mma_pipeline, "wait_group 0", "wait_group 1", 0, "races", "ldmatrix", 0, "has not been waited for"),
        (mma_pipeline, "bar.sync \t0", "bar.sync \t0, 96", 0, "barriers", "bar.sync", 0, "128 threads come to"),
        (reduce, "bar.sync", "//", 0, "races", "ld.shared", 0, "reads what warp"),
        (histogram, "bar.sync", "//", 0, "races", "atom.shared", 0, "updates what warp"),
        (histogram, "bar.sync", "//", 1, "races", "ld.shared", 0, "reads what warp"),
        (transpose, "bar.sync", "//", 0, "races", "ld.shared", 0, "reads what warp"),
        (triton_matmul_sm80, "bar.sync", "//", 0, "races", "st.shared", None, "writes what warp"),
        (triton_matmul_sm80, "bar.sync", "//", 1, "races", "ldmatrix", None, "reads what warp"),
        (triton_softmax_sm80, "bar.sync", "//", 1, "races", "ld.shared", None, "reads what warp"),
    ],
)  # fmt: skip
def test_bugs_in_kernels_of_other_compilers(
    launch: Callable[[str], tuple[Finding, ...]], old: str, new: str, which: int, check: str, at: str, nth: int | None,
    message: str,
) -> None:  # fmt: skip
    text = (KERNELS / f"{launch.__name__}.ptx").read_text()
    findings = launch(edited(text, old, new, which))
    if nth is not None:
        check_found(findings, check, line_of(text, at, nth), message, address=check == "races")
    else:
        lines = [f for f in findings if f.check == check and f.message.startswith(at) and message in f.message]
        assert lines, findings
        assert all(at in text.splitlines()[f.line - 1] for f in lines)


def mma_sparse(text: str, words: Array) -> tuple[Finding, ...]:
    return run(text, (1,), (32,), [halves(16, 16), halves(32, 8), words, np.zeros((16, 8), np.float32)])


def test_metadata_and_selectors_of_sparse_products() -> None:
    """0x4 stores elements 0 and 1 of four; 0x5 would be element 1 twice."""
    text = (KERNELS / "mma_sparse.ptx").read_text()
    words = np.full(32, 0x44444444, np.uint32)
    assert mma_sparse(text, words) == ()
    words[12] = 0x44454444
    line = line_of(text, "mma.sp")
    one = check_found(mma_sparse(text, words), "fault", line, "metadata 0b0101 for chunk 0 of row 11 of A")
    assert (one.cta, one.warp, one.lane) == ((0, 0, 0), 0, 12)
    findings = mma_sparse(edited(text, "%r13, 0x0;", "%r13, 0x2;"), words)
    check_found(findings, "load", line, "operand f: expected 0 or 1, got 0x2", thread=False)


def test_metadata_of_lanes_that_give_none_may_be_anything() -> None:
    """With selector 0, lanes 0 and 1 of four give the metadata; the others' register is not looked at."""
    text = edited((KERNELS / "mma_sparse.ptx").read_text(), "%r13, 0x0;", "%r99, 0x0;")
    text = edited(
        text,
        "\tmma.sp",
        "mov.u32 %r98, %lane; and.b32 %r98, %r98, 2; setp.eq.u32 %p9, %r98, 0; @%p9 mov.u32 %r99, %r13; mma.sp",
    )
    text = edited(text, ".reg .b64", ".reg .b32 %r98, %r99; .reg .pred %p9; .reg .b64").replace("%lane", "%laneid")
    words = np.full(32, 0x44444444, np.uint32)
    assert mma_sparse(text, words) == ()
    wrong = edited(text, "setp.eq.u32 %p9, %r98, 0", "setp.eq.u32 %p9, %r98, 2")
    check_found(mma_sparse(wrong, words), "uninitialised", line_of(text, "mma.sp"), "%r99 is read before it is written")
