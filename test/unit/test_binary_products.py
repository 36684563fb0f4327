"""Products of single bits: compiled, run on the interpreter, and counted by numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.runtime import ArgumentError, CompileError, compile
from warploom.runtime.cli.command import main

Bits = NDArray[np.bool_]
Size = tuple[int, int, int]

OPS = {"xor": np.bitwise_xor, "and": np.bitwise_and}
ALONG_K = "maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]"
SIZES: list[Size] = [(1, 1, 8), (16, 8, 0), (37, 75, 264), (1, 300, 1), (129, 65, 1000), (300, 1, 131), (64, 96, 512)]


def matmul(size: Size, op: str, start: str = "init 0 : i32") -> str:
    """A function of one product; rows that end within a byte are padded to whole ones."""
    m, n, k = size
    pad = f", strided<[{-(-k // 8) * 8}, 1]>" if k % 8 else ""
    a, b, c = f"memref<{m}x{k}xi1{pad}>", f"memref<{n}x{k}xi1{pad}>", f"memref<{m}x{n}xi32>"
    of_c = f" plus {c}" if start.startswith("plus") else ""
    return f"""func.func @f(%A: {a}, %B: {b}, %C: {c}) {{
      warp.matmul {op} b1 x b1 %A, %B {start} into %C {ALONG_K} : {a}, {b}, {c}{of_c}
      return
    }}"""


def draw(size: Size, seed: int = 0) -> tuple[Bits, Bits]:
    rng, (m, n, k) = np.random.default_rng((*size, seed)), size
    return rng.integers(0, 2, (m, k)).astype(bool), rng.integers(0, 2, (n, k)).astype(bool)


def count(op: str, a: Bits, b: Bits) -> NDArray[np.int64]:
    """The ones in each pair of rows, from words of 64 bits; independent of how kernels read bytes."""
    words = [np.packbits(np.pad(x, ((0, 0), (0, -x.shape[1] % 64))), axis=1).view(np.uint64) for x in (a, b)]
    return np.bitwise_count(OPS[op](words[0][:, None], words[1][None])).sum(-1, dtype=np.int64)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_counts_are_exact(size: Size, op: str) -> None:
    a, b = draw(size)
    c = np.full((size[0], size[1]), -1, np.int32)
    compile(matmul(size, op))(a, b, c, device="interp")
    np.testing.assert_array_equal(c, count(op, a, b))


TILES: list[dict[str, Any]] = [
    {"cta": (64, 64, 512), "warp": (32, 32), "stages": 3},
    {"cta": (32, 16, 256), "warp": (16, 8), "mma": "m16n8k128", "stages": 2, "pack": "ab"},
    {"cta": (32, 32, 128), "warp": (16, 16), "mma": "m8n8k128", "stages": 1},
    {"cta": (64, 64, 256), "warp": (32, 32), "stages": 4, "sync": "mbarrier", "pack": "ab"},
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("schedule", TILES, ids=lambda s: s.get("mma", f"{s['stages']} stages"))
def test_any_schedule_adds_to_what_c_holds(schedule: dict[str, Any]) -> None:
    size = (97, 75, 1000)
    a, b = draw(size)
    start = np.random.default_rng(1).integers(-99, 99, (97, 75), dtype=np.int32)
    c = start.copy()
    compile(matmul(size, "xor", "plus %C"), **schedule)(a, b, c, device="interp", checks="all")
    np.testing.assert_array_equal(c, start + count("xor", a, b))


def test_a_short_k_takes_the_shallow_instruction() -> None:
    for k, shape in ((8, "m16n8k128"), (128, "m16n8k128"), (136, "m16n8k256")):
        (schedule,) = compile(matmul((64, 64, k), "and")).schedule
        assert schedule is not None
        assert str(schedule.mma) == shape


def test_targets() -> None:
    """The xor is older than the and."""
    assert (
        "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc"
        in compile(matmul((64, 64, 512), "xor"), target="sm_75").ptx
    )
    with pytest.raises(CompileError, match="sm_75 has no mma for b1 x b1 accumulated in s32; sm_80 and later have one"):
        compile(matmul((64, 64, 512), "and"), target="sm_75")


def test_an_epilogue_sees_the_counts() -> None:
    """The agreement of +-1 codes: k - 2 * distance."""
    a, b = draw((40, 24, 200))
    kinds = "memref<40x200xi1>, memref<24x200xi1>, memref<40x24xi32>"
    text = f"""func.func @f(%A: memref<40x200xi1>, %B: memref<24x200xi1>, %C: memref<40x24xi32>) {{
      %agreement = warp.pointwise (%x: i32) {{
        %two = arith.constant 2 : i32
        %k = arith.constant 200 : i32
        %twice = arith.muli %x, %two : i32
        %y = arith.subi %k, %twice : i32
        warp.yield %y : i32
      }}
      warp.matmul xor b1 x b1 %A, %B init 0 : i32 into %C through %agreement {ALONG_K} : {kinds}
      return
    }}"""
    c = np.full((40, 24), -1, np.int32)
    compile(text)(a, b, c, device="interp")
    signs = [np.where(x, -1, 1) for x in (a, b)]
    np.testing.assert_array_equal(c, signs[0] @ signs[1].T)


def test_a_batch() -> None:
    maps = ", ".join(f"affine_map<(b, m, n, k) -> {axes}>" for axes in ("(b, m, k)", "(n, k)", "(b, m, n)"))
    kinds = "memref<3x20x72xi1>, memref<9x72xi1>, memref<3x20x9xi32>"
    a_kind, b_kind, c_kind = kinds.split(", ")
    text = f"""func.func @f(%A: {a_kind}, %B: {b_kind}, %C: {c_kind}) {{
      warp.matmul and b1 x b1 %A, %B init 7 : i32 into %C maps [{maps}] : {kinds}
      return
    }}"""
    a, b = (np.random.default_rng(5).integers(0, 2, shape).astype(bool) for shape in ((3, 20, 72), (9, 72)))
    c = np.full((3, 20, 9), -1, np.int32)
    compile(text)(a, b, c, device="interp")
    np.testing.assert_array_equal(c, 7 + a.astype(np.int32) @ b.T.astype(np.int32))


def test_linalg_multiplies_bits_by_and() -> None:
    text = """func.func @f(%A: memref<20x64xi1>, %B: memref<9x64xi1>, %C: memref<20x9xi32>) {
      linalg.matmul_transpose_b ins(%A, %B : memref<20x64xi1>, memref<9x64xi1>) outs(%C : memref<20x9xi32>)
      return
    }"""
    a, b = draw((20, 9, 64))
    c = np.zeros((20, 9), np.int32)
    compile(text)(a, b, c, device="interp")
    np.testing.assert_array_equal(c, count("and", a, b))


def test_bytes_that_are_packed_already() -> None:
    a, b = draw((20, 9, 100))
    kernel = compile(matmul((20, 9, 100), "xor"))
    expected = count("xor", a, b)
    packed = [np.packbits(x, axis=1, bitorder="little") for x in (a, b)]
    for first in (packed[0], packed[0].view(np.int8)):
        c = np.full((20, 9), -1, np.int32)
        kernel(first, packed[1], c, device="interp")
        np.testing.assert_array_equal(c, expected)
    with pytest.raises(
        ArgumentError, match=r"argument 0 \(%A\): expected 20x100xi1, strided<\[104, 1\]>, got 20x88xi1"
    ):
        kernel(packed[0][:, :11].copy(), packed[1], c, device="interp")


def test_sizes_that_are_not_known_are_promised_to_be_whole_bytes() -> None:
    kinds = "memref<?x?xi1>, memref<?x?xi1>, memref<?x?xi32>"
    promise = "{warp.divisible = 8 : index}"
    text = f"""func.func @f(%A: memref<?x?xi1> {promise}, %B: memref<?x?xi1> {promise}, %C: memref<?x?xi32>) {{
      warp.matmul xor b1 x b1 %A, %B init 0 : i32 into %C {ALONG_K} : {kinds}
      return
    }}"""
    kernel = compile(text)
    for size in ((37, 75, 264), (5, 130, 8)):
        a, b = draw(size)
        c = np.full(size[:2], -1, np.int32)
        kernel(a, b, c, device="interp")
        np.testing.assert_array_equal(c, count("xor", a, b))
    with pytest.raises(CompileError, match=r"rows of whole bytes, 8 elements each; warp\.divisible = 8 promises them"):
        compile(text.replace(promise, ""))


def test_parts_of_k_are_whole_bytes() -> None:
    size = (24, 16, 4096)
    a, b = draw(size)
    c = np.full(size[:2], -1, np.int32)
    compile(matmul(size, "and"), split_k=4)(a, b, c, device="interp")
    np.testing.assert_array_equal(c, count("and", a, b))
    with pytest.raises(CompileError, match="split_k = 4: parts of K = 1000 would end within a byte"):
        compile(matmul((24, 16, 1000), "and"), split_k=4)


def test_rows_are_whole_bytes() -> None:
    text = matmul((16, 8, 53), "and").replace(", strided<[56, 1]>", "")
    with pytest.raises(
        CompileError, match=r"rows of whole bytes, 8 elements each, got 53 1-bit elements; strided<\[56"
    ):
        compile(text)


def test_bits_lie_along_k() -> None:
    text = matmul((16, 16, 64), "and").replace(ALONG_K, "").replace("memref<16x64xi1>", "memref<64x64xi1>")
    with pytest.raises(CompileError, match="expected B of b1 with neighbours along k side by side in memory"):
        compile(text.replace("memref<16x16xi32>", "memref<64x64xi32>"))


def test_the_command_draws_bits_and_compares_exactly(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "examples/binary_matmul.mlir", "--device", "interp", "--check"]) == 0
    assert "largest error 0 absolute" in capsys.readouterr().out
