"""Products of single bits and of narrow floats at default schedules against ptxas: they assemble, and nothing spills.

A sample has each operation, each target and each size; `make conformance` takes all of their combinations.
"""

from __future__ import annotations

import os
from itertools import product

import pytest
from samples import every

from warploom.runtime import compile
from warploom.runtime.cuda import ptxas

pytestmark = pytest.mark.skipif(
    ptxas.find() is None and not os.environ.get("CI"), reason="ptxas is not installed (extra: test)"
)

SIZES = ((1, 1, 8), (100, 77, 56), (1000, 1000, 1000), (4096, 4096, 4096))
ALONG_K = "maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]"


def assemble(text: str, target: str) -> None:
    for used in ptxas.assemble(compile(text, target=target).ptx, target).values():
        assert used.spills == used.stack == 0
        assert 0 < used.registers <= 255


BITS = [("sm_75", "xor"), *product(("sm_80", "sm_90a", "sm_100a", "sm_120a"), ("xor", "and"))]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("size", "bits"), every([*product(SIZES[1:], BITS)], 4))
def test_bits(size: tuple[int, int, int], bits: tuple[str, str]) -> None:
    (m, n, k), (target, op) = size, bits
    a, b, c = f"memref<{m}x{k}xi1>", f"memref<{n}x{k}xi1>", f"memref<{m}x{n}xi32>"
    text = f"warp.matmul {op} b1 x b1 %A, %B init 0 : i32 into %C {ALONG_K} : {a}, {b}, {c}"
    assemble(f"func.func @f(%A: {a}, %B: {b}, %C: {c}) {{\n{text}\nreturn\n}}", target)


NARROW = (("f4E2M1FN", "f8E4M3FN"), ("f6E3M2FN", "f6E2M3FN"), ("f4E2M1FN", "f4E2M1FN"))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("types", NARROW, ids="-".join)
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_narrow_floats(types: tuple[str, str], m: int, n: int, k: int) -> None:
    a, b, c = f"memref<{m}x{k}x{types[0]}>", f"memref<{n}x{k}x{types[1]}>", f"memref<{m}x{n}xbf16>"
    text = f"linalg.matmul_transpose_b ins(%A, %B : {a}, {b}) outs(%C : {c})"
    assemble(f"func.func @f(%A: {a}, %B: {b}, %C: {c}) {{\n{text}\nreturn\n}}", "sm_120a")


SCALED = (
    ("mxf8f6f4", "f8E4M3FN", "f8E4M3FN", "f8E8M0FNU", 32),
    ("mxf8f6f4", "f8E5M2", "f4E2M1FN", "f8E8M0FNU", 32),
    ("mxf4", "f4E2M1FN", "f4E2M1FN", "f8E8M0FNU", 32),
    ("mxf4nvf4", "f4E2M1FN", "f4E2M1FN", "f8E8M0FNU", 32),
    ("mxf4nvf4", "f4E2M1FN", "f4E2M1FN", "f8E4M3FN", 16),
)
PTX = {"f8E4M3FN": "e4m3", "f8E5M2": "e5m2", "f4E2M1FN": "e2m1"}


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("size", "form"), every([*product(SIZES, SCALED)], 3))
def test_scaled_products(size: tuple[int, int, int], form: tuple[str, str, str, str, int]) -> None:
    (m, n, k), (kind, a_kind, b_kind, scale, block) = size, form
    a, b, c = f"memref<{m}x{k}x{a_kind}>", f"memref<{n}x{k}x{b_kind}>", f"memref<{m}x{n}xf32>"
    of_a, of_b = (f"memref<{rows}x{-(-k // block)}x{scale}>" for rows in (m, n))
    types = f"{PTX[a_kind]} x {PTX[b_kind]}"
    forms = f"%a = warp.scaled %A, %SA : {a}, {of_a}\n%b = warp.scaled %B, %SB : {b}, {of_b}"
    text = f"{forms}\nwarp.matmul {kind} {types} %a, %b init 0.0 : f32 into %C {ALONG_K}"
    kinds = ", ".join(f"!warp.operand<{kind}>" for kind in (a, b))
    arguments = f"%A: {a}, %B: {b}, %SA: {of_a}, %SB: {of_b}, %C: {c}"
    assemble(f"func.func @f({arguments}) {{\n{text} : {kinds}, {c}\nreturn\n}}", "sm_120a")
