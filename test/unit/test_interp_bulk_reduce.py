"""`cp.reduce.async.bulk`: many bytes of shared memory combined with as many in global memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from interpreted import Array, program

from warploom.runtime.interp import InterpreterError

GENERATOR = np.random.default_rng(33)
COPY = "cp.reduce.async.bulk.global.shared::cta.bulk_group"
PARAMETERS = ".param .u64 source, .param .u64 out, .param .u32 bytes"
STAGE = """.shared .align 16 .b8 stage[256]; mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [source]; ld.param.u64 %rd2, [out];
    ld.param.u32 %r2, [bytes]; mul.wide.u32 %rd3, %r1, 8; add.u64 %rd3, %rd1, %rd3; ld.global.u64 %rd4, [%rd3];
    mov.u32 %r3, stage; shl.b32 %r4, %r1, 3; add.u32 %r4, %r3, %r4; st.shared.u64 [%r4], %rd4; bar.sync 0;
    setp.ne.u32 %p0, %r1, 0; @%p0 exit; mov.u64 %rd5, 0;"""


def combined(operation: str, old: Array, new: Array, size: int = 160, hint: str = "") -> Array:
    """The old words after a copy of `size` of the 256 bytes of new ones onto them."""
    out, policy = old.copy(), ", %rd5" if hint else ""
    body = f"{STAGE} {COPY}{hint}.{operation} [%rd2], [%r3], %r2{policy}; cp.async.bulk.commit_group;"
    program(f"{body} cp.async.bulk.wait_group 0;", PARAMETERS).launch("k", (1, 1, 1), (32, 1, 1), [new, out, size])
    return out


Judge = Callable[[Any, Any], Any]
INTEGERS: dict[str, Judge] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "min": np.minimum,
    "max": np.maximum,
    "add": np.add,
    "inc": lambda old, new: np.where(old >= new, 0, old + 1),
    "dec": lambda old, new: np.where((old == 0) | (old > new), new, old - 1),
}


@pytest.mark.parametrize(
    "operation",
    [
        "and.b32",
        "or.b64",
        "xor.b32",
        "inc.u32",
        "dec.u32",
        "min.s32",
        "max.u64",
        "min.s64",
        "add.u32",
        "add.s32",
        "add.u64",
    ],
)
def test_integers(operation: str) -> None:
    name, _, type = operation.partition(".")
    dtype = np.dtype(f"{'i' if type[0] == 's' else 'u'}{int(type[1:]) // 8}")
    old, new = (GENERATOR.integers(0, 256, 256, np.uint8).view(dtype) for _ in range(2))
    old[:3], new[:3] = [0, 5, 7], [4, 5, 3]
    changed = 160 // dtype.itemsize
    expected = [*INTEGERS[name](old[:changed], new[:changed]).astype(dtype), *old[changed:]]
    assert combined(operation, old, new).tolist() == expected


@pytest.mark.parametrize(
    ("operation", "dtype"),
    [
        ("add.f32", np.float32),
        ("add.f64", np.float64),
        ("add.noftz.f16", np.float16),
        ("add.noftz.bf16", ml_dtypes.bfloat16),
    ],
)
def test_floats(operation: str, dtype: Any) -> None:
    count = 256 // np.dtype(dtype).itemsize
    old, new = (GENERATOR.standard_normal(count).astype(dtype) for _ in range(2))
    changed = 160 // np.dtype(dtype).itemsize
    sums = (old.astype(np.float64) + new.astype(np.float64)).astype(dtype)
    expected = np.concatenate([sums[:changed], old[changed:]])
    got = combined(operation, old, new, hint=".L2::cache_hint")
    np.testing.assert_array_equal(got.view(np.uint8), expected.view(np.uint8))


def test_what_is_refused() -> None:
    words = np.zeros(64, np.uint32)
    with pytest.raises(InterpreterError, match="expected a size that is a multiple of 16, got 20"):
        combined("add.u32", words, words.copy(), 20)
    with pytest.raises(InterpreterError, match=r"add\.s64"):
        combined("add.s64", words, words.copy())
    fixed = words.copy()
    fixed.flags.writeable = False
    body = f"{STAGE} {COPY}.add.u32 [%rd2], [%r3], %r2;"
    with pytest.raises(InterpreterError, match="which is read-only"):
        program(body, PARAMETERS).launch("k", (1, 1, 1), (32, 1, 1), [words, fixed, 64])
