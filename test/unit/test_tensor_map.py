"""Tensor maps: what they say, what they refuse, and copies into several CTAs of a cluster.

Which bytes a copy moves is held against silicon's in `test_replay.py`.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from warploom.dialect.isa.tensor_map import SIZE, TensorMapError, TensorMapFields
from warploom.runtime import ArgumentError, TensorMap, WarploomError, load_ptx

TENSOR = np.arange(40 * 64, dtype=np.float16).reshape(40, 64)

KERNEL = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out) .reqnctapercluster 2, 1, 1
{
    .shared .align 1024 .b8 box[1024]; .shared .align 8 .b64 done;
    .reg .b32 %t, %x, %cta, %rank; .reg .b64 %out, %map, %at; .reg .pred %first, %p, %issue; .reg .b16 %mask;
    mov.u32 %t, %tid.x; setp.eq.u32 %first, %t, 0; mov.u32 %rank, %cluster_ctarank;
    mov.b64 %map, map; cvta.param.u64 %map, %map; ld.param.u64 %out, [out];
    @%first mbarrier.init.shared::cta.b64 [done], 1;
    @%first fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [done], BYTES;
    setp.eq.u32 %issue, %rank, 1; and.pred %issue, %issue, %first; mov.b16 %mask, MASK;
    @%issue cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
        [box], [%map, {16, 3}], [done], %mask;
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p, [done], 0;
    @!%p bra WAIT;
    mov.u32 %cta, %ctaid.x; shl.b32 %cta, %cta, 10; shl.b32 %x, %t, 2; add.u32 %cta, %cta, %x;
    cvt.u64.u32 %at, %cta; add.s64 %out, %out, %at;
    mov.u32 %rank, box; add.u32 %x, %rank, %x;
    STORES
    ret;
}
"""


def run(mask: int = 3, size: int = 512) -> np.ndarray:
    stores = " ".join(f"ld.shared.b32 %t, [%x+{i}]; st.global.b32 [%out+{i}], %t;" for i in range(0, 512, 128))
    text = KERNEL.replace("STORES", stores).replace("MASK", str(mask)).replace("BYTES", str(size))
    out = np.full((2, 512), np.nan, np.float16)
    box = TensorMap(TENSOR, (8, 32), swizzle=64)
    load_ptx(text).launch("k", grid=(2, 1, 1), block=(32, 1, 1), args=[box, out], device="interp", max_steps=100_000)
    return out


def test_a_box_goes_to_every_cta_of_the_mask() -> None:
    box = TENSOR[3:11, 16:48]
    for got in run():
        units = got[:256].reshape(8, 4, 8)
        for row in range(8):
            for unit in range(4):
                # the unit's number is changed by bits 7 and 8 of its address: two rows of 64 bytes make 128
                assert np.array_equal(units[row, unit ^ (row // 2 & 3)], box[row, 8 * unit : 8 * unit + 8])


def test_a_mask_without_a_cta_leaves_it_waiting() -> None:
    with pytest.raises(WarploomError, match=r"deadlock|waits"):
        run(mask=2)


def test_a_mask_beyond_the_cluster_is_refused() -> None:
    with pytest.raises(WarploomError, match=r"expected a mask of the 2 CTAs of the cluster, got 0x4"):
        run(mask=4)


def test_the_driver_s_limits_are_checked_before_it_sees_them() -> None:
    wide = np.zeros((8, 24), np.uint8)
    cases: list[tuple[Any, Any, dict[str, Any], str]] = [
        (TENSOR, (8,), {}, "box: expected 2 numbers for 2 dimensions, got 1"),
        (TENSOR, 8, {}, "expected box to be a sequence of integers, got 8"),
        (TENSOR, (8, 32.0), {}, r"expected box to be a sequence of integers, got \(8, 32.0\)"),
        (TENSOR, (8, 32), {"element_strides": "11"}, "expected element_strides to be a sequence of integers, got '11'"),
        (TENSOR, (257, 32), {}, "box: expected 1 to 256 along dimension 1, got 257"),
        (TENSOR, (8, 4), {}, "a multiple of 16 bytes along the fastest dimension, got 4 elements of 2 bytes; 8"),
        (TENSOR, (8, 64), {"swizzle": 64}, "expected at most 64 bytes along the fastest dimension.*got 128; 32"),
        (TENSOR, (8, 32), {"swizzle": 48}, "a swizzle of 0, 32, 64 or 128 bytes, got 0 and 48"),
        (TENSOR, (8, 32), {"element_strides": (9, 1)}, "steps: expected 1 to 8 along dimension 1, got 9"),
        (TENSOR, (8, 32), {"fill": "one"}, "expected fill to be 'zero' or 'nan', got 'one'"),
        (TENSOR, (8, 32), {"type": "f32"}, "elements of f32 have 4 bytes, those of 40x64xf16 2"),
        (TENSOR, (8, 32), {"type": "s4"}, "a tensor map has no elements of type s4; known: u8"),
        (TENSOR, (8, 32), {"l2_promotion": 32}, "l2_promotion to be 0, 64, 128 or 256, got 32"),
        (TENSOR[:, ::2], (8, 16), {}, "the last dimension of .* must be contiguous, got a stride of 4 bytes"),
        (wide, (4, 16), {}, "strides: expected a multiple of 16 bytes below 2\\^40 along dimension 1, got 24"),
        (wide.view(np.int32), (4, 4), {"fill": "nan"}, "strides"),
        (np.zeros((8, 16), np.int32), (4, 4), {"fill": "nan"}, "only floating-point types are filled .*, got s32"),
    ]  # fmt: skip
    for tensor, box, more, message in cases:
        with pytest.raises(ArgumentError, match=message):
            TensorMap(tensor, box, **more)


def test_a_parameter_of_another_size_takes_none() -> None:
    text = KERNEL.replace("map[128]", "map[64]").replace("STORES", "")
    with pytest.raises(ArgumentError, match=r"a tensor map takes a parameter of 128 bytes at a multiple of 64"):
        load_ptx(text).launch("k", (2, 1, 1), (32, 1, 1), [TensorMap(TENSOR, (8, 32)), TENSOR], device="interp")


def test_the_bytes_are_those_of_the_driver() -> None:
    """A map of rank 2, bf16, rows of 8192 bytes, box 128 x 64, swizzle 128, as the driver of an H200 encodes it."""
    fields = TensorMap(np.zeros((1000, 4096), np.uint16), (128, 64), swizzle=128, type="bf16").fields(0x7F0000001000)
    head = struct.unpack("<16I", fields.encode()[:64])
    assert head[:4] == (0x1000, 0x7F00, 1 << 4 | 10 << 7 | 3 << 13, 8192 >> 4)
    assert head[8:10] == (4095, 999)
    assert (head[13] >> 24, head[14] & 0xFF) == (63, 127)
    assert TensorMapFields.decode(fields.encode()) == fields
    assert fields.moved_bytes == 128 * 128


def test_bytes_that_are_no_map_are_refused() -> None:
    with pytest.raises(TensorMapError, match="expected 128 bytes of a tensor map, got 64"):
        TensorMapFields.decode(bytes(64))
    with pytest.raises(TensorMapError, match="the bytes are no tensor map: their third word is 0xffffffff"):
        TensorMapFields.decode(b"\xff" * SIZE)


def test_interleaved_tensors_are_refused_when_they_are_copied() -> None:
    tensor = np.zeros((4, 40, 8), np.float16)
    text = KERNEL.replace("STORES", "").replace("MASK", "3").replace("BYTES", "512")
    text = text.replace(".2d.", ".3d.").replace("{16, 3}", "{0, 0, 0}")
    box = TensorMap(tensor, (2, 8, 8), interleave=16)
    with pytest.raises(WarploomError, match="copies no interleaved tensors; the map has an interleave of 16 bytes"):
        load_ptx(text).launch("k", (2, 1, 1), (32, 1, 1), [box, np.zeros(8)], device="interp")
