"""Kernels on tensor memory: one product, and its operands in shared memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from warploom.dialect.isa.tensor_product import SharedDescriptor

REGISTERS = ".reg .pred %p<8>; .reg .b32 %r<300>; .reg .b64 %q<32>; .reg .f32 %f<8>;"


def registers(count: int, first: int = 32) -> str:
    """A vector of registers."""
    return "{" + ", ".join(f"%r{first + i}" for i in range(count)) + "}"


@dataclass
class Kernel:
    """A CTA of four warps: an image of shared memory, columns of tensor memory, what thread 0 issues, and the results.

    `issue` and `read` are statements; `%r1` is the address of the columns, `%r2` with the lanes of the warp, `%r3` the
    object that products arrive at, `%r4` shared memory. Of what is read `stored` registers come out,
    with `halves` those of the first half of each warp.
    """

    image: NDArray[np.uint8]
    issue: list[str]
    columns: int = 128
    before: list[str] = field(default_factory=list[str])
    outputs: int = 64
    read: list[str] | None = None
    target: str = "sm_100a"
    version: str = "8.8"
    group: int = 1
    stored: int = 0
    halves: bool = False
    parts: dict[str, str] = field(default_factory=dict[str, str])

    def text(self) -> str:
        """The module. `parts` replaces statements by their text."""
        size = self.image.size // self.group
        read = self.read or [f"tcgen05.ld.sync.aligned.32x32b.x{self.outputs}.b32 {registers(self.outputs)}, [%r2];"]
        guard = "@%p6 " if self.halves else ""
        stores = [f"{guard}st.global.b32 [%q3+{4 * i}], %r{32 + i};" for i in range(self.stored or self.outputs)]
        if self.halves:
            stores.insert(0, "and.b32 %r8, %r10, 16; setp.eq.u32 %p6, %r8, 0;")
        g = f"cta_group::{self.group}"
        pair = self.group == 2
        rank = "mov.u32 %r9, %cluster_ctarank;" if pair else "mov.u32 %r9, 0;"
        meet = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" if pair else "bar.sync 0;"
        multicast = ".multicast::cluster" if pair else ""
        body = f""".version {self.version}
.target {self.target}
.address_size 64
.visible .entry k(.param .u64 image, .param .u64 answers){" .reqnctapercluster 2" if pair else ""}
{{
{REGISTERS}
.shared .align 1024 .b8 memory[{size}];
.shared .align 8 .b64 object;
.shared .align 4 .b32 slot;
ld.param.u64 %q2, [image];
ld.param.u64 %q3, [answers];
{rank}
mov.u32 %r10, %tid.x;
mul.lo.u32 %r11, %r9, {size};
shl.b32 %r12, %r10, 4;
add.u32 %r11, %r11, %r12;
cvt.u64.u32 %q4, %r11;
add.s64 %q2, %q2, %q4;
mov.u32 %r4, memory;
add.u32 %r12, %r12, %r4;
mov.u32 %r3, object;
mov.u32 %r13, 0;
COPY:
setp.ge.u32 %p1, %r13, {size // 2048};
@%p1 bra COPIED;
ld.global.v2.b64 {{%q5, %q6}}, [%q2];
st.shared.v2.b64 [%r12], {{%q5, %q6}};
add.s64 %q2, %q2, 2048;
add.u32 %r12, %r12, 2048;
add.u32 %r13, %r13, 1;
bra COPY;
COPIED:
shr.u32 %r5, %r10, 5;
setp.ne.u32 %p2, %r5, 0;
setp.eq.u32 %p3, %r10, 0;
@%p2 bra ALLOCATED;
tcgen05.alloc.{g}.sync.aligned.shared::cta.b32 [slot], {self.columns};
tcgen05.relinquish_alloc_permit.{g}.sync.aligned;
ALLOCATED:
@%p3 mbarrier.init.shared.b64 [%r3], 1;
@%p3 fence.mbarrier_init.release.cluster;
fence.proxy.async;
tcgen05.fence::before_thread_sync;
{meet}
tcgen05.fence::after_thread_sync;
ld.shared.b32 %r1, [slot];
shl.b32 %r6, %r5, 21;
add.u32 %r2, %r1, %r6;
shl.b32 %r7, %r9, 7;
add.u32 %r7, %r7, %r10;
mul.wide.u32 %q7, %r7, {4 * self.outputs};
add.s64 %q3, %q3, %q7;
{chr(10).join(self.before)}
or.b32 %r7, %r9, %r10;
setp.eq.u32 %p4, %r7, 0;
@!%p4 bra ISSUED;
{chr(10).join(self.issue)}
mov.b16 %h0, 3;
tcgen05.commit.{g}.mbarrier::arrive::one.shared::cluster{multicast}.b64 [%r3]{", %h0" if pair else ""};
ISSUED:
WAIT:
mbarrier.try_wait.parity.shared.b64 %p5, [%r3], 0;
@!%p5 bra WAIT;
tcgen05.fence::after_thread_sync;
{chr(10).join(read)}
tcgen05.wait::ld.sync.aligned;
{chr(10).join(stores)}
tcgen05.fence::before_thread_sync;
{meet}
@%p2 bra FREED;
tcgen05.dealloc.{g}.sync.aligned.b32 %r1, {self.columns};
FREED:
ret;
}}
"""
        body = body.replace(REGISTERS, REGISTERS + " .reg .b16 %h<4>;")
        for old, new in self.parts.items():
            if old not in body:
                raise ValueError(f"the kernel has no '{old}'")
            body = body.replace(old, new)
        return body

    def run(self, checks: str | None = "all") -> NDArray[np.uint32]:
        """The words that each thread brings: (threads, outputs)."""
        from warploom.runtime import load_ptx

        words = np.full((self.group * 128, self.outputs), 0xFFFFFFFF, np.uint32)
        load_ptx(self.text()).launch("k", grid=(self.group, 1, 1), block=(128, 1, 1), args=[self.image, words],
                                     device="interp", checks=() if checks is None else checks)  # fmt: skip
        return words


def put(image: NDArray[np.uint8], matrix: NDArray[np.generic], word: int, *, along_mn: bool = False) -> None:
    """Writes a matrix (mn, k) into shared memory, as a descriptor says."""
    how = SharedDescriptor.decode(word)
    mn, k = np.arange(len(matrix))[:, None], np.arange(matrix.shape[1])[None]
    size = matrix.dtype.itemsize
    places = how.swizzled(how.offset(mn, k, size, along_mn=along_mn) + how.address)
    image.view(f"u{size}")[places // size] = matrix.view(f"u{size}")


# Operands, and what they stand for.

Floats = NDArray[np.float64]

FORMATS = {"e4m3": (4, 3), "e5m2": (5, 2), "e2m3": (2, 3), "e3m2": (3, 2), "e2m1": (2, 1), "ue4m3": (4, 3)}


def value(name: str, code: int) -> float:
    """What a word of a type of at most 8 bits stands for; NaN for what is no finite number."""
    if name == "ue8m0":
        return 2.0 ** (code - 127) if code < 255 else float("nan")
    if name[1:] == "8":
        return code - 256 * (name[0] == "s" and code > 127)
    exponent, mantissa = FORMATS[name]
    bias, size = (1 << exponent - 1) - 1, code & (1 << exponent + mantissa) - 1
    e, f = size >> mantissa, size & (1 << mantissa) - 1
    top = (1 << exponent) - 1
    if (name == "e5m2" and e == top) or (name.endswith("e4m3") and e == top and f == 7):
        return float("nan")
    number = (f / (1 << mantissa) + (e > 0)) * 2.0 ** (max(e, 1) - bias)
    return -number if code >> exponent + mantissa else number


def padded(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Groups of 16 elements of `bits` bits, each padded to 16 bytes."""
    ones = (codes[..., None] >> np.arange(bits)) & 1
    groups = ones.reshape(len(codes), -1, 16 * bits)
    packed = np.packbits(groups, axis=-1, bitorder="little")
    return np.pad(packed, ((0, 0), (0, 0), (0, 16 - packed.shape[-1]))).reshape(len(codes), -1)


def halved(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Two elements of 4 bits in each byte."""
    return (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)


def close(result: NDArray[np.generic], a: Floats, b: Floats, c: float = 2.0**-22) -> None:
    """Within the bound of a truncated sum."""
    exact, size = a @ b.T, np.abs(a) @ np.abs(b.T)
    assert np.isfinite(exact).all()
    assert (np.abs(result.astype(np.float64) - exact) <= c * size + 1e-30).all()
    assert np.abs(exact).max() > 0
