"""Tensor copies that reduce, against numpy; and matrices that begin inside the pattern of their swizzle.

No GPU has confirmed these words: `test/gpu/capture.py --set reductions` and `--set offsets` record them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import captured_tensors
import captured_warpgroups
import ml_dtypes
import numpy as np
import pytest
from capture_replay import TARGET, interpreted, warpgroup_answers
from captured_tensors import TensorCase, array, inputs
from captured_warpgroups import OffsetCase
from numpy.typing import NDArray

from warploom.dialect.isa.row import target
from warploom.runtime import TensorMap, load_ptx
from warploom.runtime.interp import InterpreterError

Words = NDArray[Any]
DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}


def added(old: Words, new: Words) -> Words:
    """Rounded once; f32 flushes subnormals, before and after."""
    if old.dtype != np.float32:
        return (
            old + new if old.dtype.kind in "iu" else (old.astype(np.float64) + new.astype(np.float64)).astype(old.dtype)
        )
    old, new = (np.where(np.abs(x) < 2.0**-126, np.copysign(np.float32(0), x), x) for x in (old, new))
    total = old + new
    return np.where(np.abs(total) < 2.0**-126, np.copysign(np.float32(0), total), total)


def smaller(sign: int) -> Callable[[Words, Words], Words]:
    """The lesser, or the greater, of two: a NaN is left out, and -0 is less than +0."""

    def choose(old: Words, new: Words) -> Words:
        if old.dtype.kind in "iu":
            return np.minimum(old, new) if sign > 0 else np.maximum(old, new)
        a, b = (sign * x.astype(np.float64) for x in (old, new))
        first = (a < b) | ((a == b) & (np.signbit(a) >= np.signbit(b))) | np.isnan(b)
        return np.where(first, old, new)

    return choose


JUDGES: dict[str, Callable[[Words, Words], Words]] = {
    "add": added,
    "min": smaller(1),
    "max": smaller(-1),
    "inc": lambda old, new: np.where(old >= new, 0, old + 1).astype(old.dtype),
    "dec": lambda old, new: np.where((old == 0) | (old > new), new, old - 1).astype(old.dtype),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def typed(case: TensorCase, words: Words) -> Words:
    bitwise = case.store in ("and", "or", "xor")
    kind = f"u{case.size}" if bitwise or case.type[0] == "u" else DTYPES.get(case.type, f"i{case.size}")
    return words.view(kind)


@pytest.mark.parametrize("case", list(captured_tensors.reductions()), ids=lambda case: f"{case.store}.{case.type}")
def test_reductions(case: TensorCase) -> None:
    assert isinstance(case.box, tuple)
    memory, (rows, columns), (top, left) = inputs(case).view(np.uint8), case.box, case.start
    box = np.empty((rows, columns * case.size), np.uint8)
    for row in range(rows):
        for first in range(0, columns * case.size, 16):
            place = case.at + row * max(columns * case.size, case.swizzle) + first
            place ^= (place >> 7 & (7 if case.swizzle else 0)) << 4
            box[row, first : first + 16] = memory[place : place + 16]
    tensor = array(case)
    old = typed(case, tensor[top : top + rows, left : left + columns].copy())
    new = typed(case, box.view(tensor.dtype))[: old.shape[0], : old.shape[1]]
    with np.errstate(all="ignore"):
        expected = JUDGES[case.store](old, new)
    base = tensor.base if tensor.base is not None else tensor
    got = captured_tensors.answer(case, interpreted).reshape(base.view(np.uint8).shape)
    result = typed(case, np.ascontiguousarray(got).view(tensor.dtype)[top : top + rows, left : left + columns].copy())
    nan = np.isnan(expected.astype(np.float64)) if expected.dtype.kind not in "iu" else np.zeros(expected.shape, bool)
    same = result.view(f"u{case.size}") == expected.view(f"u{case.size}")
    assert (same | (nan & np.isnan(result.astype(np.float64)))).all()
    changed = np.ascontiguousarray(base).view(np.uint8).reshape(got.shape) != got
    size = case.size
    changed[top : top + rows, left * size : (left + columns) * size] = False
    assert not changed.any()


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ("min", "min takes u32, s32, u64, s64, f16, bf16, the map has f32"),
        ("xor", "xor takes u32, s32, u64, the map has f32"),
    ],
)
def test_a_type_that_an_operation_does_not_take(operation: str, message: str) -> None:
    case = next(c for c in captured_tensors.reductions() if c.store == operation)
    tensor = np.zeros((9, 16), np.float32)
    text = ".version 8.6\n.target sm_90a\n.address_size 64\n" + captured_tensors.kernel(case)
    args = [TensorMap(tensor, (6, 8)), inputs(case), inputs(case)]
    with pytest.raises(InterpreterError, match=message):
        load_ptx(text).launch("k", (1, 1, 1), (128, 1, 1), args, device="interp")


OFFSETS = list(captured_warpgroups.offset_cases(target(TARGET)))


@pytest.mark.parametrize("case", [case for case in OFFSETS if not case.base_offset][::3], ids=lambda case: case.name)
def test_a_matrix_inside_its_pattern_is_read_by_its_address(case: OffsetCase) -> None:
    """The swizzle goes by the bits of the address."""
    result = warpgroup_answers(case, 1).view(np.float32)
    plain = OffsetCase(case.row, False, case.swizzle, pattern_row=case.pattern_row)
    drawn = captured_warpgroups.matrices(case, captured_warpgroups.Random(case.name), 1)
    a, b = ((drawn[r][0].astype(np.uint16).view(ml_dtypes.bfloat16)).astype(np.float64) for r in "ab")
    c = drawn["c"][0].astype(np.uint32).view(np.float32).astype(np.float64)
    places = plain.row.layout("d").positions(64, 8)
    expected = (a @ b.T + c)[places[..., 0], places[..., 1]].T.reshape(-1)
    bound = (np.abs(a) @ np.abs(b).T + np.abs(c))[places[..., 0], places[..., 1]].T.reshape(-1) * 2.0**-20
    assert (np.abs(result.reshape(-1) - expected) <= bound).all()


ROWS = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .align 64 .b8 from[128], .param .align 64 .b8 to[128], .param .align 16 .b8 rows[32])
{
.reg .b32 %r<12>; .reg .b64 %q<4>; .reg .pred %p;
.shared .align 128 .b8 tile[512];
.shared .align 8 .b64 object;
mov.u32 %r8, tile; mov.u32 %r9, object;
mov.b64 %q0, from; cvta.param.u64 %q0, %q0; mov.b64 %q1, to; cvta.param.u64 %q1, %q1;
ld.param.v4.u32 {%r0, %r1, %r2, %r3}, [rows]; ld.param.v4.u32 {%r4, %r5, %r6, %r7}, [rows+16];
mbarrier.init.shared.b64 [%r9], 1;
fence.proxy.async;
mbarrier.arrive.expect_tx.shared.b64 _, [%r9], 512;
cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes
  [%r8], [%q0, {8, %r0, %r1, %r2, %r3}], [%r9];
WAIT: mbarrier.try_wait.parity.shared.b64 %p, [%r9], 0;
@!%p bra WAIT;
cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%q1, {0, %r4, %r5, %r6, %r7}], [%r8];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
ret;
}
"""


@pytest.mark.parametrize("swizzle", [0, 64, 128])
def test_rows_are_gathered_and_scattered(swizzle: int) -> None:
    """Rows beside the tensor are zeros when they are read, and are not written."""
    a, b = np.random.default_rng(3).standard_normal((9, 64)).astype(np.float32), np.zeros((6, 40), np.float32)
    box = swizzle // 4 or 32
    come, go = (7, 0, 9, -1), (5, 2, 6, 0)
    text = ROWS.replace("512", str(16 * box))
    maps = [TensorMap(x, (1, box), swizzle=swizzle) for x in (a, b)]
    load_ptx(text).launch("k", 1, 1, [*maps, np.array([*come, *go], np.int32).tobytes()], device="interp", checks="all")
    read = [a[row, 8 : 8 + box] if 0 <= row < 9 else np.zeros(box, np.float32) for row in come]
    wanted = np.zeros_like(b)
    for row, values in zip(go, read, strict=True):
        if row < 6:
            wanted[row, :box] = values
    assert np.array_equal(b, wanted)


def test_a_map_of_several_rows_gathers_nothing() -> None:
    maps = [TensorMap(np.zeros((9, 64), np.float32), (2, 32))] * 2
    with pytest.raises(InterpreterError, match="a copy of rows takes a box of one row, the tensor map has 2"):
        load_ptx(ROWS).launch("k", 1, 1, [*maps, bytes(32)], device="interp")
