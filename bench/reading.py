"""Kernels that only read memory, which no product of as many bytes outruns, and one that does nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warploom.runtime import load_ptx

THREADS, LOADS = 256, 8
"""Threads of a CTA that loads to registers, and how many loads of 16 bytes each has on the way at once."""

COPY_BYTES, STAGES = 32 << 10, 6
"""Bytes of a bulk copy to shared memory, and how many of them a CTA, alone on its SM, has on the way."""

CTAS = 128
"""CTAs that ask for bulk copies."""

WHOLE = CTAS * COPY_BYTES
"""Bytes of which what is read must be a multiple."""

NOTHING = "nothing"
"""The name of the kernel that does nothing."""

_HEADER = """.version 8.5
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 tiles[];
.visible .entry reads(.param .u64 from, .param .u64 into)
{
    .reg .pred %p<2>; .reg .b32 %r<64>; .reg .b64 %d<8>;
    ld.param.u64 %d0, [from]; ld.param.u64 %d1, [into]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x;
"""


def by_loads() -> str:
    """Each thread loads `LOADS` pieces of 16 bytes at once, and stores only what no operand adds up to."""
    lines = [f"mad.lo.u32 %r2, %r1, {THREADS * LOADS}, %r0;", "mul.wide.u32 %d2, %r2, 16;", "add.u64 %d3, %d0, %d2;"]
    for i in range(LOADS):
        registers = ", ".join(f"%r{4 + 4 * i + j}" for j in range(4))
        lines.append(f"ld.global.L1::no_allocate.v4.b32 {{{registers}}}, [%d3+{16 * THREADS * i}];")
    lines += ["mov.b32 %r3, 0;", *(f"xor.b32 %r3, %r3, %r{4 + i};" for i in range(4 * LOADS))]
    lines += ["setp.eq.u32 %p0, %r3, 0x12345678;", "@%p0 st.global.b32 [%d1], %r3;", "ret;", "}"]
    return _HEADER + "\n".join(lines)


def by_bulk_copies(pieces: int) -> str:
    """One thread of a CTA asks for `pieces` copies of `COPY_BYTES`, `STAGES` of them at once."""
    ring = STAGES * COPY_BYTES
    lines = ["setp.ne.u32 %p0, %r0, 0;", "@%p0 ret;", "mov.u32 %r2, tiles;"]
    lines += [f"mul.wide.u32 %d2, %r1, {pieces * COPY_BYTES};", "add.u64 %d3, %d0, %d2;"]
    lines += [f"mbarrier.init.shared.b64 [%r2+{ring + 8 * i}], 1;" for i in range(STAGES)]
    lines += ["fence.mbarrier_init.release.cluster;"]
    for i in range(pieces + STAGES):
        stage, turn = i % STAGES, i // STAGES
        if i >= STAGES:
            wait = f"mbarrier.try_wait.parity.shared.b64 %p1, [%r2+{ring + 8 * stage}], {(turn - 1) % 2};"
            lines += [f"wait{i}: {wait}", f"@!%p1 bra wait{i};"] if i - STAGES < pieces else []
        if i < pieces:
            lines += [
                f"mbarrier.arrive.expect_tx.shared.b64 _, [%r2+{ring + 8 * stage}], {COPY_BYTES};",
                f"add.u32 %r3, %r2, {stage * COPY_BYTES};",
                f"add.u32 %r4, %r2, {ring + 8 * stage};",
                f"add.u64 %d4, %d3, {i * COPY_BYTES};",
                f"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%d4], {COPY_BYTES}, [%r4];",
            ]
    return _HEADER + "\n".join([*lines, "ret;", "}"])


def calls(memory: Any, into: Any) -> dict[str, Callable[[], object]]:
    """By name, what reads `memory`, a multiple of `WHOLE` bytes: by loads, by copies, not at all."""
    count = memory.numel() * memory.element_size()
    loaded = load_ptx(by_loads())
    sizes = THREADS * LOADS * 16
    pieces = count // WHOLE
    copied = load_ptx(by_bulk_copies(pieces))
    nothing = load_ptx(_HEADER + "ret;\n}")
    shared = STAGES * (COPY_BYTES + 8)

    def launch(module: Any, ctas: int, threads: int, shared: int = 0) -> Callable[[], object]:
        return lambda: module.launch(
            "reads", grid=(ctas, 1, 1), block=(threads, 1, 1), args=[memory, into], shared=shared, device="cuda"
        )

    return {
        NOTHING: launch(nothing, CTAS, THREADS),
        "loads": launch(loaded, count // sizes, THREADS),
        "bulk copies": launch(copied, CTAS, 32, shared),
    }
