"""Proofs of compiled kernels: what holds is proven, what does not is refuted and named."""

import re
from dataclasses import replace

import numpy as np
import pytest

from warploom.runtime import KernelLaunch, compile, load_ptx, prove
from warploom.runtime.proof import field
from warploom.runtime.proof.values import codes_of, planes_of

PRODUCT = """
func.func @matmul(%A: memref<{m}x{k}x{t}>, %B: memref<{k}x{n}x{t}>, %C: memref<{m}x{n}xf32>) {{
  %zero = arith.constant 0.000000e+00 : f32
  linalg.fill ins(%zero : f32) outs(%C : memref<{m}x{n}xf32>)
  linalg.matmul ins(%A, %B : memref<{m}x{k}x{t}>, memref<{k}x{n}x{t}>) outs(%C : memref<{m}x{n}xf32>)
  return
}}
"""


def product(m: int, n: int, k: int, t: str) -> str:
    return PRODUCT.format(m=m, n=n, k=k, t=t)


def test_the_fields_keep_their_identities():
    generator = np.random.default_rng(3)
    a, b = (field.drawn(generator, (9,)) for _ in range(2))
    product, total = field.multiply(field.exp(a), field.exp(b)), field.exp(field.add(a, b))
    assert np.array_equal(product.key, total.key)
    assert (field.multiply(a, field.reciprocal(a)).residues == 1).all()
    minus = field.erf(field.negate(a))
    assert np.array_equal(field.add(minus, field.erf(a)).residues, np.zeros((4, 9)))
    for p, q in zip(field.PRIMES, field.ORDERS, strict=True):
        assert p == 2 * q + 1
        assert p < 1 << 30
        assert all(pow(base, n - 1, n) == 1 for n in (p, q) for base in (2, 3, 5, 7, 11, 13))


def test_constants_are_taken_for_what_they_round():
    scaled = float(np.float32(1.4426950408889634 * 0.125))
    parts = zip(field.constant(0.125), field.constant(field.LOG2_E), field.MODULI, strict=True)
    expected = [a * b % int(m) for a, b, m in parts]
    assert list(field.constant(scaled)) == expected
    assert field.constant(float(np.float32(1 / 72))) == tuple(pow(72, -1, int(m)) for m in field.MODULI)


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_codes_come_back_from_planes(width: int):
    index = np.array([0, 1, 77, 123456])
    found = codes_of(planes_of(index, width))
    assert np.array_equal(found.value, index)
    assert not found.mixed.any()


@pytest.mark.parametrize(
    ("t", "target"), [("f16", "sm_80"), ("bf16", "sm_80"), ("f8E4M3FN", "sm_89"), ("f16", "sm_90a")]
)
def test_products_are_proven(t: str, target: str):
    text = product(40, 56, 80, t)
    proof = prove(compile(text, target), text)
    assert proof, proof
    assert "2240 outputs are equal" in proof.text
    assert proof.compared == ()


def test_a_missing_product_is_named():
    text = product(40, 56, 72, "f16")
    kernel = compile(text, "sm_80")
    copies = [line for line in kernel.ptx.splitlines() if "cp.async.cg" in line]
    shorter = re.sub(r"16, %r\d+;$", "16, 14;", copies[5])
    assert shorter != copies[5]
    proof = prove(replace(kernel, ptx=kernel.ptx.replace(copies[5], shorter)), text)
    assert proof.outcome == "refuted"
    assert proof.differences[0].reason == "lacks A[8, 71] * B[71, 0]"


ADD = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 x, .param .u64 y, .param .u64 z) {{
  .reg .b32 %r<8>; .reg .f32 %f<8>; .reg .b64 %rd<8>; .reg .pred %p;
  ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u64 %rd3, [z];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd4, %r1, 4;
  add.s64 %rd1, %rd1, %rd4; add.s64 %rd2, %rd2, %rd4; add.s64 %rd3, %rd3, %rd4;
  ld.global.f32 %f1, [%rd1]; ld.global.f32 %f2, [%rd2];
  {body}
  st.global.f32 [%rd3], %f3;
  ret;
}}
"""


def launch(body: str) -> KernelLaunch:
    return KernelLaunch(load_ptx(ADD.format(body=body)), "add", 1, 32, ["x", "y", "z"])


ARRAYS = {name: np.random.default_rng(1).standard_normal(32).astype(np.float32) for name in "xyz"}


def test_two_kernels_are_compared():
    one = launch("add.f32 %f3, %f1, %f2;")
    assert prove(one, launch("fma.rn.f32 %f3, %f2, 0f3F800000, %f1;"), ARRAYS)
    other = prove(one, launch("sub.f32 %f3, %f1, %f2;"), ARRAYS)
    assert other.outcome == "refuted"
    assert other.differences[0].argument == "z"
    assert other.differences[0].count == 32


def test_a_branch_on_data_is_no_proof():
    proof = prove(
        launch("setp.lt.f32 %p, %f1, %f2; mov.f32 %f3, %f1; @%p bra L; mov.f32 %f3, %f2; L:"), launch(""), ARRAYS
    )
    assert proof.outcome == "undecided"
    assert "bra: data decides a branch (%p)" in proof.text


def test_an_address_of_data_is_no_proof():
    body = "cvt.rni.u32.f32 %r2, %f1; and.b32 %r2, %r2, 0; cvt.u64.u32 %rd5, %r2; "
    body += "add.s64 %rd3, %rd3, %rd5; mov.f32 %f3, %f1;"
    proof = prove(launch("mov.f32 %f3, %f1;"), launch(body), ARRAYS)
    assert proof
    dependent = body.replace("%r2, 0;", "%r2, 4;")
    proof = prove(launch("mov.f32 %f3, %f1;"), launch(dependent), ARRAYS)
    assert proof.outcome == "undecided"
    assert "data decides an address (%rd3)" in proof.text
