"""Products of single bits at default schedules against ptxas: they assemble on each target, and nothing spills."""

from __future__ import annotations

import os

import pytest

from warploom.runtime import compile, ptxas

pytestmark = pytest.mark.skipif(
    ptxas.find() is None and not os.environ.get("CI"), reason="ptxas is not installed (extra: test)"
)

SIZES = ((1, 1, 8), (100, 77, 56), (1000, 1000, 1000), (4096, 4096, 4096))
ALONG_K = "maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]"


def assemble(text: str, target: str) -> None:
    for used in ptxas.assemble(compile(text, target=target).ptx, target).values():
        assert used.spills == used.stack == 0
        assert 0 < used.registers <= 255


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a"])
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_bits(target: str, m: int, n: int, k: int) -> None:
    op = "xor" if target == "sm_75" or k % 16 else "and"
    a, b, c = f"memref<{m}x{k}xi1>", f"memref<{n}x{k}xi1>", f"memref<{m}x{n}xi32>"
    text = f"warp.matmul {op} b1 x b1 %A, %B init 0 : i32 into %C {ALONG_K} : {a}, {b}, {c}"
    assemble(f"func.func @f(%A: {a}, %B: {b}, %C: {c}) {{\n{text}\nreturn\n}}", target)


NARROW = (("f4E2M1FN", "f8E4M3FN"), ("f6E3M2FN", "f6E2M3FN"), ("f4E2M1FN", "f4E2M1FN"))


@pytest.mark.parametrize("types", NARROW, ids="-".join)
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_narrow_floats(types: tuple[str, str], m: int, n: int, k: int) -> None:
    a, b, c = f"memref<{m}x{k}x{types[0]}>", f"memref<{n}x{k}x{types[1]}>", f"memref<{m}x{n}xbf16>"
    text = f"linalg.matmul_transpose_b ins(%A, %B : {a}, {b}) outs(%C : {c})"
    assemble(f"func.func @f(%A: {a}, %B: {b}, %C: {c}) {{\n{text}\nreturn\n}}", "sm_120a")
