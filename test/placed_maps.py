"""A kernel that copies a box of a tensor into two CTAs, by a tensor map that lies in any of many places."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from warploom.runtime import Struct, TensorMap

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


def kernel(mask: int = 3, size: int = 512) -> str:
    """The kernel for a mask of CTAs, whose barriers await `size` bytes."""
    stores = " ".join(f"ld.shared.b32 %t, [%x+{i}]; st.global.b32 [%out+{i}], %t;" for i in range(0, 512, 128))
    return KERNEL.replace("STORES", stores).replace("MASK", str(mask)).replace("BYTES", str(size))


OTHER = TensorMap(TENSOR + 1, (8, 32), swizzle=64)
WANTED = TensorMap(TENSOR, (8, 32), swizzle=64)


class Fields(ctypes.Structure):
    _fields_: ClassVar = [("n", ctypes.c_int32), ("pad", ctypes.c_int8 * 188), ("map", ctypes.c_uint8 * 128)]


PLACES: dict[str, tuple[str, str, Callable[[TensorMap], object]]] = {
    "behind a pointer": (".u64 map", "ld.param.u64 %map, [map];", lambda it: it),
    "first of several in memory": (".u64 map", "ld.param.u64 %map, [map];", lambda it: (it, OTHER)),
    "second of several in memory": (
        ".u64 map",
        "ld.param.u64 %map, [map]; add.u64 %map, %map, 128;",
        lambda it: (OTHER, it),
    ),
    "in a struct in memory": (
        ".u64 map",
        "ld.param.u64 %map, [map]; add.u64 %map, %map, 192;",
        lambda it: Struct(bytes(320), maps={192: it}),
    ),
    "in a tuple": (
        ".align 64 .b8 map[384]",
        "mov.b64 %map, map; cvta.param.u64 %map, %map; add.u64 %map, %map, 192;",
        lambda it: (np.int32(7), OTHER, it, bytes(64)),
    ),
    "in a struct": (
        ".align 128 .b8 map[320]",
        "mov.b64 %map, map; cvta.param.u64 %map, %map; add.u64 %map, %map, 192;",
        lambda it: Struct(bytes(range(64)) * 5, {8: TENSOR}, maps={192: it}),
    ),
    "in a field of a struct": (
        ".align 64 .b8 map[320]",
        "mov.b64 %map, map; cvta.param.u64 %map, %map; add.u64 %map, %map, 192;",
        lambda it: Struct(Fields(), maps={"map": it}),
    ),
    "behind a pointer in a struct": (
        ".align 8 .b8 map[24]",
        "ld.param.u64 %map, [map+8];",
        lambda it: Struct(bytes(24), {0: TENSOR, 8: it}),
    ),
    "behind a pointer to a struct with a pointer": (
        ".u64 map",
        "ld.param.u64 %map, [map]; ld.global.u64 %map, [%map+16]; add.u64 %map, %map, 128;",
        lambda it: Struct(bytes(24), {16: (OTHER, it)}),
    ),
}
"""A parameter, how a kernel finds the map in it, and what is passed for it to give the kernel a map."""


def placed(place: str) -> str:
    """The kernel, with the map in a place of `PLACES`."""
    declaration, arguments, _ = PLACES[place]
    text = kernel().replace(".align 64 .b8 map[128]", declaration)
    return text.replace("mov.b64 %map, map; cvta.param.u64 %map, %map;", arguments)
