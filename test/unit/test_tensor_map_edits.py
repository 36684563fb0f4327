"""Tensor maps that a kernel changes: each field against a map that was made with it, and copies that use the result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from seeded_bugs import check_found, edited, line_of

from warploom.dialect.isa.tensor_map import ELEMENTS, SIZE, TensorMapFields, edits
from warploom.runtime import TensorMap, load_ptx
from warploom.runtime.interp import InterpreterError

F16, BF16, TF32 = (next(e for e in ELEMENTS if e.name == name) for name in ("f16", "bf16", "tf32"))
MAP = TensorMapFields(0x7F0000001000, F16, (64, 48, 40, 30, 20), (1 << 38, 256, 512, 1024), (8, 7, 6, 5, 4), (1,) * 5)


def changed(data: bytes, field: str, ordinal: int, value: int) -> bytes:
    words = np.frombuffer(data, np.uint32).copy()
    for edit in edits(field, ordinal, value):
        words[edit.byte // 4] = int(words[edit.byte // 4]) & ~edit.mask | edit.bits
    return words.tobytes()


def at(values: tuple[int, ...], ordinal: int, value: int) -> tuple[int, ...]:
    return (*values[:ordinal], value, *values[ordinal + 1 :])


@pytest.mark.parametrize(
    ("field", "ordinal", "value", "fields"),
    [
        ("global_address", 0, 0x1234567890, {"address": 0x1234567890}),
        ("elemtype", 0, 10, {"element": BF16}),
        ("elemtype", 0, 11, {"element": TF32}),
        ("swizzle_mode", 0, 2, {"swizzle": 64}),
        ("interleave_layout", 0, 1, {"interleave": 16}),
        ("fill_mode", 0, 1, {"nan_fill": True}),
        *(("box_dim", i, 16, {"box": at((8, 7, 6, 5, 4), i, 16)}) for i in range(5)),
        *(("global_dim", i, 1 << 32, {"sizes": at(MAP.sizes, i, 1 << 32)}) for i in range(5)),
        *(("element_stride", i, 8, {"steps": at(MAP.steps, i, 8)}) for i in range(5)),
        *(("global_stride", i, (1 << 39) + 16, {"strides": at(MAP.strides, i, (1 << 39) + 16)}) for i in range(4)),
    ],
)
def test_a_field_that_is_replaced_is_that_of_the_new_map(
    field: str, ordinal: int, value: int, fields: dict[str, Any]
) -> None:
    assert changed(MAP.encode(), field, ordinal, value) == replace(MAP, **fields).encode()


def test_a_rank_is_one_less() -> None:
    flat = TensorMapFields(0, F16, (64, 48), (256,), (8, 7), (1, 1)).encode()
    deep = TensorMapFields.decode(changed(flat, "rank", 0, 2))
    assert deep.sizes == (64, 48, 1)


KERNEL = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 p, .param .u64 q, .param .u64 out, .param .u64 own) {
.shared .align 1024 .b8 tile[1024]; .shared .align 128 .b8 mine[128]; .shared .align 8 .b64 done;
.reg .pred %first, %p; .reg .b32 %t, %x, %y; .reg .b64 %map, %q, %out, %own, %at;
mov.u32 %t, %tid.x; setp.eq.u32 %first, %t, 0; ld.param.u64 %q, [q]; ld.param.u64 %out, [out]; ld.param.u64 %own, [own];
mov.u32 %x, mine; shl.b32 %y, %t, 2; add.u32 %x, %x, %y; mov.b64 %map, map; cvta.param.u64 %map, %map;
cvt.u64.u32 %at, %y; add.s64 %at, %map, %at; ld.b32 %y, [%at]; st.shared.b32 [%x], %y; bar.warp.sync -1;
@%first tensormap.replace.tile.global_address.shared::cta.b1024.b64 [mine], %q;
@%first tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [mine], 1, 5;
@%first tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [mine], 0, 96;
bar.warp.sync -1;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%own], [mine], 128;
fence.proxy.tensormap::generic.acquire.gpu [%own], 128;
@%first mbarrier.init.shared::cta.b64 [done], 1; @%first fence.mbarrier_init.release.cluster; bar.warp.sync -1;
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [done], 512;
@%first cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%own, {8, 1}], [done];
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p, [done], 0; @!%p bra WAIT;
mov.u32 %x, tile; shl.b32 %y, %t, 4; add.u32 %x, %x, %y; cvt.u64.u32 %at, %y; add.s64 %out, %out, %at;
ld.shared.v4.b32 {%t, %t, %t, %y}, [%x]; st.global.b32 [%out+12], %y;
ld.shared.v4.b32 {%t, %t, %y, %x}, [%x]; st.global.b32 [%out+8], %y;
ret; }
"""


def run(text: str, **options: Any) -> np.ndarray:
    """The third and fourth words of each 16 bytes of a box of the second tensor, through a map made for the first."""
    p, q = (np.arange(12 * 48, dtype=np.float16).reshape(12, 48) + first for first in (0, 1000))
    out, own = np.zeros((8, 32), np.float16), np.zeros(SIZE + 64, np.uint8)
    args = [TensorMap(p, (8, 32)), p, q, out, own[:SIZE]]
    load_ptx(text, "k.ptx").launch("k", 1, 32, args, device="interp", **options)
    return out


def test_a_map_of_another_tensor_made_in_the_kernel() -> None:
    got = run(KERNEL, checks=("races", "barriers")).reshape(8, 4, 8)
    q = np.zeros((9, 48), np.float16)
    q[:5] = np.arange(5 * 48).reshape(5, 48) + 1000
    expected = q[1:9, 8:40].reshape(8, 4, 8)
    assert np.array_equal(got[:, :, 4:], expected[:, :, 4:])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("b64 [mine], 0, 96", "b64 [mine], 4, 96", r"k.ptx:12:\d+: error: .*strides 0 to 3, got number 4"),
        ("[mine], 1, 5", "[mine+4], 1, 5", r"k.ptx:11:\d+: error: .* is not a multiple of 16"),
        ("[mine], %q", "[mine+16], %q", "a tensor map lies at a multiple of 64 bytes"),
    ],
)
def test_edits_that_make_no_map(old: str, new: str, message: str) -> None:
    with pytest.raises(InterpreterError, match=message):
        run(edited(KERNEL, old, new))


ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%own], 128;"
RELEASE = "fence.proxy.tensormap::generic.release.gpu;"
USE = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier"


def check_map(text: str, line: int, side: str) -> None:
    """The copy lacks one side of a fence behind the store at a line."""
    with pytest.raises(InterpreterError) as caught:
        run(text, checks="races")
    message = f"uses the tensor map that CTA (0, 0, 0), warp 0, lane 0 writes at line {line}, and no "
    message += f"fence.proxy.tensormap::generic.{side} is between them; byte 0 of argument 4"
    check_found(caught.value.findings, "races", line_of(text, USE), message)


def test_a_map_that_nobody_acquires() -> None:
    check_map(edited(KERNEL, ACQUIRE, ""), line_of(KERNEL, "tensormap.cp_fenceproxy"), "acquire")
    elsewhere = edited(
        edited(KERNEL, ACQUIRE, f"add.s64 %at, %own, 64; {ACQUIRE}"), "acquire.gpu [%own]", "acquire.gpu [%at]"
    )
    check_map(elsewhere, line_of(KERNEL, "tensormap.cp_fenceproxy"), "acquire")


def test_a_map_that_is_changed_in_global_memory() -> None:
    """Its edits need a release; what lies before them does not help."""
    edit = "@%first tensormap.replace.tile.fill_mode.global.b1024.b32 [%own], 0;"
    right = edited(KERNEL, ACQUIRE, f"{edit} {RELEASE} {ACQUIRE}")
    assert np.array_equal(run(right, checks="races"), run(KERNEL))
    line = line_of(KERNEL, ACQUIRE)
    for fences in (f"{edit} {ACQUIRE}", f"{RELEASE} {edit} {ACQUIRE}"):
        check_map(edited(KERNEL, ACQUIRE, fences), line, "release")
    check_map(edited(KERNEL, ACQUIRE, f"{ACQUIRE} {edit} {RELEASE}"), line, "acquire")


def test_a_map_that_is_used_before_it_is_copied() -> None:
    copy = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%own], [mine], 128;"
    with pytest.raises(InterpreterError, match=r"k.ptx:18:\d+: error: .*box: expected a multiple of 16 bytes"):
        run(edited(KERNEL, copy, ""))
