"""The float64 reference and its bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.func import FuncOp

from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime.arguments.arrays import DTYPES, integer_limits
from warploom.runtime.base.errors import HostError
from warploom.runtime.cli.command import main
from warploom.runtime.numerics.floats import Array
from warploom.runtime.plan import host
from warploom.runtime.reference.functions import compare, evaluate, poison
from warploom.runtime.reference.product import ACCUMULATORS

M, N, K = 5, 7, 9


def function(text: str) -> FuncOp:
    return host.choose(parse_mlir(make_context(), text, "r.mlir"), None)


def product(c: str = "f32", *, fill: bool = False) -> FuncOp:
    operand = "bf16" if c == "bf16" else "f16"
    a, b = f"memref<{M}x{K}x{operand}>", f"memref<{K}x{N}x{operand}>"
    cleared = f"%z = arith.constant 0.0 : {c} linalg.fill ins(%z : {c}) outs(%C : memref<{M}x{N}x{c}>)" if fill else ""
    return function(
        f"func.func @f(%A: {a}, %B: {b}, %C: memref<{M}x{N}x{c}>) {{ {cleared}"
        f" linalg.matmul ins(%A, %B : {a}, {b}) outs(%C : memref<{M}x{N}x{c}>) return }}"
    )


def draw(*shape: int, dtype: Any = np.float16) -> Array:
    return np.random.default_rng(1).standard_normal(shape).astype(dtype)


def arrays(c: Any = np.float32) -> list[Array]:
    return [draw(M, K), draw(K, N), draw(M, N, dtype=c)]


def exact(a: Array, b: Array) -> Array:
    return a.astype(np.float64) @ b.astype(np.float64)


def test_matmul_adds_to_what_c_holds() -> None:
    a, b, c = arrays()
    expected = evaluate(product(), [a, b, c])[2]
    np.testing.assert_array_equal(expected.value, c.astype(np.float64) + exact(a, b))


def test_fill_forgets_poison() -> None:
    a, b, c = arrays()
    c[:] = poison(c.dtype)
    np.testing.assert_array_equal(evaluate(product(fill=True), [a, b, c])[2].value, exact(a, b))


def test_transposed_operands() -> None:
    a, b = f"memref<{K}x{M}xf16>", f"memref<{N}x{K}xf16>"
    maps = "affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>"
    f = function(
        f"func.func @f(%A: {a}, %B: {b}, %C: memref<{M}x{N}xf32>) {{ linalg.matmul indexing_maps = [{maps}]"
        f" ins(%A, %B : {a}, {b}) outs(%C : memref<{M}x{N}xf32>) return }}"
    )
    x, y, c = draw(K, M), draw(N, K), np.zeros((M, N), np.float32)
    np.testing.assert_allclose(evaluate(f, [x, y, c])[2].value, exact(x.T, y.T), rtol=1e-14)


@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_a_correct_result_is_within_its_bound_and_a_wrong_one_is_not(kind: str) -> None:
    a, b, c = arrays(DTYPES[kind])
    expected = evaluate(product(kind), [a, b, c])[2]
    good = expected.value.astype(DTYPES[kind])
    comparison = compare(expected, good)
    assert comparison.ok
    assert 0 <= comparison.share <= 1
    bad = good.copy()
    bad[3, 4] += DTYPES[kind].type(0.25)
    wrong = compare(expected, bad)
    assert (wrong.ok, wrong.outside, wrong.worst) == (False, 1, (3, 4))
    assert wrong.absolute == pytest.approx(0.25, rel=1e-2)


def test_poison_left_behind_is_outside() -> None:
    a, b, c = arrays()
    expected = evaluate(product(fill=True), [a, b, c])[2]
    result = expected.value.astype(np.float32)
    result[0, 0] = np.nan
    assert compare(expected, result).outside == 1


def test_overflow_of_the_output_type_is_an_infinity() -> None:
    a, b = np.full((M, K), 300, np.float16), np.full((K, N), 300, np.float16)
    expected = evaluate(product("f16"), [a, b, np.zeros((M, N), np.float16)])[2]
    assert compare(expected, np.full((M, N), np.inf, np.float16)).ok
    assert not compare(expected, np.full((M, N), -np.inf, np.float16)).ok


def test_infinite_inputs_ask_for_their_infinity() -> None:
    a, b, c = arrays()
    a[0, 0], b[0] = np.inf, np.abs(b[0]) + np.float16(1)
    expected = evaluate(product(), [a, b, c])[2]
    result = expected.value.astype(np.float32)
    assert (result[0] == np.inf).all()
    assert compare(expected, result).ok
    result[0] = 1
    assert compare(expected, result).outside == N


def test_nan_inputs_ask_for_nan() -> None:
    a, b, c = arrays()
    a[0, 0] = np.nan
    expected = evaluate(product(), [a, b, c])[2]
    result = expected.value.astype(np.float32)
    assert compare(expected, result).ok
    result[0] = 1
    assert compare(expected, result).outside == N


def test_f16_accumulators_have_the_wider_bound() -> None:
    narrow, wide = (
        evaluate(product("f16"), arrays(np.float16), ACCUMULATORS[kind])[2].error for kind in ("f32", "f16")
    )
    assert (wide > 1000 * narrow).all()


def test_errors_of_a_first_product_reach_a_second() -> None:
    kind = "memref<4x4xf16>"
    f = function(
        f"func.func @f(%A: {kind}, %B: {kind}, %C: {kind}, %D: {kind}) {{"
        f" linalg.matmul ins(%A, %B : {kind}, {kind}) outs(%C : {kind})"
        f" linalg.matmul ins(%C, %B : {kind}, {kind}) outs(%D : {kind}) return }}"
    )
    a, b, c, d = (draw(4, 4) for _ in range(4))
    references = evaluate(f, [a, b, c, d])
    first = (c.astype(np.float64) + exact(a, b)).astype(np.float16)
    second = (d.astype(np.float64) + exact(first, b)).astype(np.float16)
    assert compare(references[2], first).ok
    assert compare(references[3], second).ok
    assert (references[3].error > 0.25 * references[2].stored().error.max()).all()


def test_operations_without_a_meaning_are_named() -> None:
    f = function(
        "func.func @f(%A: memref<4xf32>) { %i = arith.constant 0 : index\n"
        " %x = memref.load %A[%i] : memref<4xf32> return }"
    )
    with pytest.raises(HostError, match=r"r.mlir:2:2: no float64 reference for memref.load"):
        evaluate(f, [np.zeros(4, np.float32)])


@pytest.mark.parametrize("kind", DTYPES)
def test_every_type_has_a_poison(kind: str) -> None:
    value = np.full(3, poison(DTYPES[kind]), DTYPES[kind]).astype(np.float64)
    limits = integer_limits(DTYPES[kind])
    if kind in ("f6E2M3FN", "f6E3M2FN", "f4E2M1FN"):
        limits = (float(ml_dtypes.finfo(DTYPES[kind]).min),) * 2
    assert np.isnan(value).all() if limits is None else np.isin(value, limits).all() and value.all()


def test_bf16_rounds_its_interval() -> None:
    a, b, c = arrays(ml_dtypes.bfloat16)
    low, high = evaluate(product("bf16"), [a, b, c])[2].interval()
    assert (low <= high).all()


WIDER = [
    # types, option, what the bound is said to be
    ("i8 i8 i32", False, "exact, modulo 2^32"),
    ("f8E4M3FN f8E4M3FN f32", False, "(K + 2) 2^-23 (|C| + |A| |B|), K = 33"),
    ("f64 f64 f64", False, "(K + 2) 2^-52 "),
    ("f32 f32 f32", True, "(K + 2) 2^-23 (|C| + |A| |B|) + 2^-9 |A| |B|"),
    ("bf16 bf16 f32", True, "(K + 2) 2^-23 (|C| + |A| |B|), K = 33"),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("types", "tf32", "bound"), WIDER)
def test_check_knows_every_type(
    types: str, tf32: bool, bound: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, c = types.split()
    path = tmp_path / "product.mlir"
    path.write_text(
        f"func.func @f(%A: memref<21x33x{a}>, %B: memref<33x17x{b}>, %C: memref<21x17x{c}>) {{\n"
        f"linalg.matmul ins(%A, %B : memref<21x33x{a}>, memref<33x17x{b}>) outs(%C : memref<21x17x{c}>)\nreturn\n}}"
    )
    options = ["--in", "C=zeros", "--device", "interp", "--check", *(["--tf32"] if tf32 else [])]
    assert main(["run", str(path), *options]) == 0
    assert f"within the bound {bound}" in capsys.readouterr().out


CHAIN = """func.func @f(%A: memref<9x21xf16>, %B: memref<21x15xf16>, %T: memref<9x15xf16>, %D: memref<15x7xf16>,
             %E: memref<9x7xf32>, %F: memref<9x7xf16>) {
  linalg.matmul ins(%A, %B : memref<9x21xf16>, memref<21x15xf16>) outs(%T : memref<9x15xf16>)
  linalg.matmul ins(%T, %D : memref<9x15xf16>, memref<15x7xf16>) outs(%E : memref<9x7xf32>)
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                  iterator_types = ["parallel", "parallel"]} ins(%E : memref<9x7xf32>) outs(%F : memref<9x7xf16>) {
    ^bb0(%x: f32, %y: f16):
      %c = arith.constant 3.0 : f32
      %m = arith.mulf %x, %c : f32
      %t = arith.truncf %m : f32 to f16
      linalg.yield %t : f16
  }
  return
}"""


def test_check_says_what_the_bound_went_through(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "chain.mlir"
    path.write_text(CHAIN)
    options = [f"--in={name}=zeros" for name in "TE"]
    assert main(["run", str(path), *options, "--device", "interp", "--check"]) == 0
    lines = {line.split()[1]: line for line in capsys.readouterr().out.split("\n") if line.startswith("check")}
    bound = "within the bound (K + 2) 2^-23 (|C| + |A| |B|), K = "
    assert lines["%T"].endswith(f"{bound}21, rounded once to the output's type")
    assert lines["%E"].endswith(f"{bound}21 and 15, carried through 2 products in a chain, each rounded to its type")
    carried = "carried through 2 products in a chain and 2 elementwise operations"
    assert lines["%F"].endswith(f"{bound}21 and 15, {carried}, each rounded to its type")


def test_check_of_elementwise_operations_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "alone.mlir"
    body = CHAIN[CHAIN.index("  linalg.generic") :]
    path.write_text(f"func.func @f(%E: memref<9x7xf32>, %F: memref<9x7xf16>) {{\n{body}")
    assert main(["run", str(path), "--device", "interp", "--check"]) == 0
    out = capsys.readouterr().out
    assert "within the bound the errors of 2 elementwise operations, each rounded to its type" in out
