"""Warpgroups: products that complete when they are waited for, their groups, and what is wrong with them.

What they compute is held against silicon's words in `test_replay.py`.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.dialect.isa.row import target
from warploom.dialect.isa.wgmma import DescriptorError, MatrixDescriptor, rows
from warploom.runtime import WarploomError, load_ptx

N = 16
D = "{" + ", ".join(f"%f{i}" for i in range(N // 2)) + "}"
A = MatrixDescriptor(0, 128, 256).encode()
B = MatrixDescriptor(2048, 128, 256).encode()
BYTES = 2048 + N * 32
PRODUCT = "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16"
COMMIT, FENCE = "wgmma.commit_group.sync.aligned;", "wgmma.fence.sync.aligned;"


def wait(count: int) -> str:
    return f"wgmma.wait_group.sync.aligned {count};"


def product(scale_d: str = "1", a: str = "%q0", b: str = "%q1", d: str = D) -> str:
    return f"{PRODUCT} {d}, {a}, {b}, {scale_d}, 1, 1, 0, 0;"


def kernel(*body: str, threads: int = 128) -> str:
    """Copies shared memory from `image`, runs the body, and stores eight accumulators of each thread."""
    copies = [f"@%p0 ld.global.b32 %r1, [%q2+{i}];\n@%p0 st.shared.b32 [%r2+{i}], %r1;" for i in range(0, BYTES, 512)]
    stores = [f"st.global.f32 [%q3+{4 * i * threads}], %f{i};" for i in range(N // 2)]
    return f""".version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 image, .param .u64 answers)
{{
    .reg .f32 %f<16>; .reg .b32 %r<4>; .reg .b64 %q<6>; .reg .pred %p<2>;
    .shared .align 1024 .b8 memory[{BYTES}];
    ld.param.u64 %q2, [image]; ld.param.u64 %q3, [answers];
    mov.u32 %r0, %tid.x; mul.wide.u32 %q4, %r0, 4; add.s64 %q2, %q2, %q4; add.s64 %q3, %q3, %q4;
    mov.u32 %r1, memory; shl.b32 %r2, %r0, 2; add.u32 %r2, %r2, %r1;
    setp.lt.u32 %p0, %r0, 128;
    {" ".join(copies)}
    mov.f32 %f0, 0f3F800000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
    mov.f32 %f4, %f0; mov.f32 %f5, %f0; mov.f32 %f6, %f0; mov.f32 %f7, %f0;
    mov.b64 %q0, {A}; mov.b64 %q1, {B};
    fence.proxy.async; bar.sync 0;
    {chr(10).join(body)}
    {chr(10).join(stores)}
    ret;
}}
"""


def operands(seed: int = 3) -> tuple[NDArray[np.float16], NDArray[np.float16], NDArray[np.uint8]]:
    """A (64 x 16), B (16 x n), and shared memory with both, K-major without a swizzle."""
    random = np.random.default_rng(seed)
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((64, 16), (N, 16)))
    image = np.zeros(BYTES, np.uint8)
    for matrix, word in ((a, A), (b, B)):
        how = MatrixDescriptor.decode(word)
        mn, k = np.arange(len(matrix))[:, None], np.arange(16)[None]
        places = how.swizzled(how.offset(mn, k, 2, along_mn=False) + how.address)
        image.view(np.float16)[places // 2] = matrix
    return a, b.T, image


def run(text: str, image: NDArray[np.uint8], threads: int = 128) -> NDArray[np.float64]:
    """D as a matrix (64, n)."""
    words = np.full((N // 2, threads), np.nan, np.float32)
    load_ptx(text).launch("k", grid=(1, 1, 1), block=(threads, 1, 1), args=[image, words], device="interp")
    row = next(r for r in rows() if r.spelling == PRODUCT)
    places = row.layout("d").positions(64, N)
    result = np.full((64, N), np.nan)
    result[places[..., 0], places[..., 1]] = words[:, :128].T
    return result


def test_a_product_adds_to_what_is_there() -> None:
    a, b, image = operands()
    expected = a.astype(np.float64) @ b.astype(np.float64)
    for scale_d, c in (("1", 1.0), ("0", 0.0), ("%p0", 1.0), ("!%p0", 0.0)):
        result = run(kernel(FENCE, product(scale_d), COMMIT, wait(0)), image)
        assert np.abs(result - expected - c).max() < 16 * 2.0**-20


def test_results_come_with_the_wait_that_covers_them() -> None:
    """Two groups on the same accumulators: after `wait_group 1` the first is there and the second is not."""
    a, b, image = operands()
    once = a.astype(np.float64) @ b.astype(np.float64)
    body = [FENCE, product(), COMMIT, product(), COMMIT]
    for waits, times in (([], 0), ([wait(2)], 0), ([wait(1)], 1), ([wait(0)], 2), ([wait(1), wait(0)], 2)):
        result = run(kernel(*body, *waits), image)
        assert np.abs(result - 1 - times * once).max() < 16 * 2.0**-19


def test_a_product_that_is_not_committed_is_not_waited_for() -> None:
    _, _, image = operands()
    assert (run(kernel(FENCE, product(), wait(0)), image) == 1).all()


def test_shared_memory_is_read_as_late_as_it_may_be() -> None:
    _, _, image = operands()
    over = ["mov.b32 %r1, 0;", *(f"st.shared.b32 [%r2+{i}], %r1;" for i in range(0, BYTES, 512)), "bar.sync 0;"]
    result = run(kernel(FENCE, product(), COMMIT, *over, wait(0)), image)
    assert (result == 1).all()


def test_two_warpgroups_each_have_their_own() -> None:
    a, b, image = operands()
    body = (FENCE, "@%p0 bra SECOND;", product(), "SECOND:", product(), COMMIT, wait(0))
    result = run(kernel(*body, threads=256), image, 256)
    assert np.abs(result - 1 - a.astype(np.float64) @ b.astype(np.float64)).max() < 16 * 2.0**-20


WRONG = {
    "takes warpgroups of 4 warps; the CTA has 2 warps": (64, (product(),)),
    "must be executed by all 4 warps of a warpgroup; warp 2 takes no part": (
        128, ("setp.lt.u32 %p1, %r0, 64;", "@%p1 bra ON;", "exit;", "ON:", product()),
    ),
    "must be executed by all lanes of a warp together; lane 1 takes no part": (
        128, ("setp.ne.u32 %p1, %r0, 65;", f"@%p1 {product()}"),
    ),
    "operand a must be the same in all threads of a warpgroup": (
        128, ("cvt.u64.u32 %q4, %r0;", "add.s64 %q0, %q0, %q4;", product(), COMMIT, wait(0)),
    ),
    "the matrix descriptor reaches byte 0xbff of shared memory, which has 2560 bytes": (
        128, ("add.s64 %q1, %q1, 32;", product(), COMMIT, wait(0)),
    ),
    "bits 0x4000 of the matrix descriptor .* mean nothing": (
        128, ("or.b64 %q1, %q1, 16384;", product(), COMMIT, wait(0)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_is_said_with_its_line(message: str) -> None:
    threads, body = WRONG[message]
    with pytest.raises(WarploomError, match=rf"error: wgmma.mma_async[^:]*: .*{message}"):
        run(kernel(*body, threads=threads), operands()[2], threads)


def test_other_targets_refuse_it() -> None:
    with pytest.raises(WarploomError, match="needs sm_90a"):
        run(kernel(product()).replace(".target sm_90a", ".target sm_90"), operands()[2])


def test_descriptors_are_words_and_back() -> None:
    how = MatrixDescriptor(0x1000, 16, 1024, 128)
    assert how.encode() == 0x4000004000010000 | 0x100
    assert MatrixDescriptor.decode(how.encode()) == how
    for values, message in (
        ((8, 16, 32), "address: expected a multiple of 16 bytes below 262144, got 8"),
        ((0, 16, 1 << 18), "stride: expected a multiple of 16"),
        ((0, 0, 0, 96), "expected a swizzle of 0, 32, 64 or 128 bytes, got 96"),
        ((0, 0, 0, 0, 8), "expected a base offset from 0 to 7, got 8"),
    ):
        with pytest.raises(DescriptorError, match=message):
            MatrixDescriptor(*values)


def test_swizzled_matrices_have_each_byte_once() -> None:
    for swizzle in (32, 64, 128):
        how = MatrixDescriptor(0, 16, 8 * swizzle, swizzle)
        mn, k = np.arange(64)[:, None], np.arange(swizzle // 2)[None]
        places = how.swizzled(how.offset(mn, k, 2, along_mn=False))
        assert sorted(places.reshape(-1).tolist()) == list(range(0, 64 * swizzle, 2))


def test_fragments_are_those_of_the_formulas() -> None:
    """Thread t, element i of D: row 16w + g + 8 (i / 2 mod 2), column 8 (i / 4) + 2q + i mod 2 (ISA 9.7.15.5.1.1)."""
    row = next(r for r in rows() if r.shape.n == 24 and r.a.name == "bf16" and not r.granularity)
    places = row.layout("d").positions(64, 24)
    t, i = np.arange(128)[:, None], np.arange(12)[None]
    w, g, q = t // 32, t % 32 // 4, t % 4
    assert (places[..., 0] == 16 * w + g + 8 * (i // 2 % 2)).all()
    assert (places[..., 1] == 8 * (i // 4) + 2 * q + i % 2).all()
    a = row.layout("a").positions(64, 16)
    e = np.arange(8)[None]
    assert (a[..., 0] == 16 * w + g + 8 * (e // 2 % 2)).all()
    assert (a[..., 1] == 2 * q + e % 2 + 8 * (e // 4)).all()
    assert str(row.layout("d")) == "c1 c2 r0 r1 r2 | c0 r3 | r4 r5"
    assert target("sm_90a").name == "sm_90a"
