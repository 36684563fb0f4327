"""Matrix descriptors whose byte offsets do not fit what tensor copies wrote, by kernels of one product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray
from seeded_bugs import check_found, line_of

from warploom.dialect.isa.wgmma import M, MatrixDescriptor
from warploom.runtime import TensorMap, load_ptx
from warploom.runtime.interp import InterpreterError
from warploom.runtime.interp.machine.memory import Finding

K, DEPTH = 16, 64
COPY = "cp.async.bulk.tensor.{}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
PRODUCT = "wgmma.mma_async"


@dataclass(frozen=True)
class Operand:
    """A matrix (m or n, k), the map by which it is copied, where each box begins, and how a product reads it."""

    matrix: NDArray[np.float16]
    map: TensorMap
    boxes: Sequence[tuple[int, ...]]
    how: MatrixDescriptor
    along_mn: bool = False

    @property
    def box_bytes(self) -> int:
        return self.map.fields(0).moved_bytes

    def wrong(self, **offsets: int) -> Operand:
        return replace(self, how=replace(self.how, **offsets))


def operand(mn: int, along_mn: bool, swizzle: int) -> Operand:
    """Of random small integers, in boxes as wide as the swizzle, or 16 bytes."""
    inner = (swizzle or 16) // 2
    matrix = np.random.default_rng().integers(-4, 5, (mn, DEPTH)).astype(np.float16)
    source, rows = (np.ascontiguousarray(matrix.T), DEPTH) if along_mn else (matrix, mn)
    boxes = [(first, 0) for first in range(0, source.shape[1], inner)]
    between = rows * inner * 2
    leading, stride = (between, 8 * swizzle) if along_mn else (16, 8 * swizzle)
    if not swizzle:
        leading, stride = (128, between) if along_mn else (between, 128)
    return Operand(matrix, TensorMap(source, (rows, inner), swizzle=swizzle), boxes,
                   MatrixDescriptor(0, leading, stride, swizzle), along_mn)  # fmt: skip


def text(a: Operand, b: Operand) -> str:
    """D (64, n) = the first 16 columns of A by those of B, which lies behind A."""
    n, size = b.matrix.shape[0], a.box_bytes * len(a.boxes)
    d, transposed = ", ".join(f"%f{i}" for i in range(n // 2)), f"{a.along_mn:d}, {b.along_mn:d}"
    copies = "\n".join(
        f"@%first {COPY.format(len(at))} [tiles+{base + i * one.box_bytes}], "
        f"[%m{name}, {{{', '.join(map(str, at))}}}], [full];"
        for name, one, base in (("a", a, 0), ("b", b, size)) for i, at in enumerate(one.boxes)
    )  # fmt: skip
    words = [replace(one.how, address=base).encode() for one, base in ((a, 0), (b, size))]
    stores = "\n".join(
        f"st.global.f32 [%o+{4 * (8 * (i // 4) + i % 2 + 8 * n * (i // 2 % 2))}], %f{i};" for i in range(n // 2)
    )
    total = size + b.box_bytes * len(b.boxes)
    return f""".version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 ma[128], .param .align 64 .b8 mb[128], .param .u64 o) .reqntid 128
{{
    .reg .f32 %f<{n // 2}>; .reg .b64 %ma, %mb, %da, %db, %o, %x; .reg .b32 %t, %a, %b, %w, %l; .reg .pred %first, %p;
    .shared .align 1024 .b8 tiles[{total}]; .shared .align 8 .b64 full;
    mov.u32 %t, %tid.x; setp.eq.u32 %first, %t, 0;
    mov.b64 %ma, ma; cvta.param.u64 %ma, %ma; mov.b64 %mb, mb; cvta.param.u64 %mb, %mb;
    @%first mbarrier.init.shared::cta.b64 [full], 1; @%first fence.mbarrier_init.release.cluster;
    bar.sync 0;
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], {total};
{copies}
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p, [full], 0; @!%p bra WAIT;
    mov.u32 %a, tiles; shr.u32 %a, %a, 4; cvt.u64.u32 %x, %a; add.s64 %da, %x, {words[0]}; add.s64 %db, %x, {words[1]};
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n{n}k16.f32.f16.f16 {{{d}}}, %da, %db, 0, 1, 1, {transposed};
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
    shr.u32 %w, %t, 5; and.b32 %l, %t, 31; shr.u32 %a, %l, 2; mad.lo.u32 %a, %w, 16, %a; mul.lo.u32 %a, %a, {4 * n};
    and.b32 %b, %l, 3; mad.lo.u32 %a, %b, 8, %a; cvt.u64.u32 %x, %a; ld.param.u64 %o, [o]; add.s64 %o, %o, %x;
{stores}
}}
"""


def run(a: Operand, b: Operand) -> tuple[Finding, ...]:
    """What all checks find; if nothing, D is right."""
    d = np.full((M, b.matrix.shape[0]), np.nan, np.float32)
    try:
        result = load_ptx(text(a, b), "k.ptx").launch("k", 1, 128, [a.map, b.map, d], device="interp", checks="all")
    except InterpreterError as error:
        return error.findings
    if not result.notes:
        np.testing.assert_array_equal(d, a.matrix[:, :K].astype(float) @ b.matrix[:, :K].astype(float).T)
    return result.notes


@pytest.mark.parametrize("along_mn", [False, True])
@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_right_offsets(swizzle: int, along_mn: bool) -> None:
    assert run(operand(M, along_mn, swizzle), operand(64 if along_mn else 40, along_mn, swizzle)) == ()


FIRST = "goes from row 0, byte 0"


@pytest.mark.parametrize(
    ("along_mn", "swizzle", "offsets", "message"),
    [
        (False, 128, {"stride": 512}, f"its stride byte offset of 512 {FIRST} to row 4, byte 0 of what the"),
        (False, 128, {"stride": 16}, f"its stride byte offset of 16 {FIRST} to row 0, byte 16 of"),
        (False, 64, {"stride": 1024}, f"its stride byte offset of 1024 {FIRST} to row 16, byte 0 of"),
        (False, 32, {"stride": 2048}, f"{FIRST} of what the tensor copy at line 13 writes to row 0, byte 0 of what the "
                                      "tensor copy at line 14 writes"),
        (True, 128, {"stride": 2048}, f"its stride byte offset of 2048 {FIRST} to row 16, byte 0 of"),
        (True, 64, {"leading": 2048}, f"its leading byte offset of 2048 {FIRST} to row 32, byte 0 of"),
        (True, 32, {"leading": 2064}, "byte 16 of what the tensor copy at line 14 writes"),
        (False, 0, {"leading": 128}, "overlap: its leading byte offset is 128, its stride byte offset 128"),
        (True, 0, {"stride": 0}, "overlap: its leading byte offset is 128, its stride byte offset 0"),
    ],
)  # fmt: skip
def test_offsets_that_do_not_fit_the_boxes(along_mn: bool, swizzle: int, offsets: dict[str, int], message: str) -> None:
    """They are right where that is what is meant, so they are notes."""
    right = operand(M, along_mn, swizzle)
    notes = run(right.wrong(**offsets), right)
    ptx = text(right, right)
    assert check_found(notes, "wgmma", line_of(ptx, PRODUCT), message, address=True).severity == "note"
    assert len(notes) == 1


def test_an_offset_that_leaves_for_another_tensor() -> None:
    a, b = operand(M, False, 128), operand(M, False, 128)
    findings, line = run(a.wrong(stride=2048), b), line_of(text(a, b), PRODUCT)
    assert check_found(findings, "wgmma", line, f"2048 {FIRST} to row 16", address=True).severity == "error"


def test_a_leading_offset_that_the_swizzle_ignores() -> None:
    a, b = operand(M, False, 128), operand(24, False, 128)
    assert run(a.wrong(leading=0), b.wrong(leading=4096)) == ()


def test_pixels_of_a_larger_box() -> None:
    """8 x 8 of 10 x 12 pixels: behind eight pixels those of the next row of the image follow."""
    image = np.random.default_rng().integers(-4, 5, (10, 12, DEPTH)).astype(np.float16)
    boxes, how = TensorMap(image, (10, 12, DEPTH), swizzle=128), MatrixDescriptor(0, 16, 12 * 128, 128)
    assert run(Operand(image[:8, :8].reshape(M, DEPTH), boxes, [(0, 0, 0)], how), operand(8, False, 64)) == ()
