"""Products of vectors, and products that maps alone describe: `matvec`, `vecmat`, `dot`, `contract`, run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import CompileError, compile
from warploom.runtime.plan import host
from warploom.runtime.reference import functions as reference

Array = NDArray[Any]

SIZES = {"b": 3, "m": 33, "n": 41, "k": 70}


def draw(*shape: int, dtype: Any = np.float16) -> Array:
    return np.asarray(np.random.default_rng([len(shape), *shape]).standard_normal(shape)).astype(dtype)


def check(text: str, *arrays: Array, launches: int = 1) -> None:
    """Runs a function whose last argument is its result."""
    kernel = compile(text)
    assert len(kernel.launches) == launches
    exact = reference.evaluate(host.choose(parse_mlir(make_context(), text), None), arrays)
    kernel(*arrays, device="interp", checks="all")
    comparison = reference.compare(exact[-1], arrays[-1])
    assert comparison.ok, comparison


def product(name: str, spec: str, attributes: str = "", *, dynamic: bool = False, filled: bool = False) -> str:
    """The named product with operands of the dimensions that an einsum `spec` says."""
    loops = spec.replace("->", ",").split(",")
    shapes = ["".join(f"{'?' if dynamic else SIZES[loop]}x" for loop in names) for names in loops]
    a, b, c = (f"memref<{shape}{kind}>" for shape, kind in zip(shapes, ("f16", "f16", "f32"), strict=True))
    fill = f"%z = arith.constant 0.0 : f32 linalg.fill ins(%z : f32) outs(%C : {c})" if filled else ""
    return f"""func.func @f(%A: {a}, %B: {b}, %C: {c}) {{
      {fill} linalg.{name} {attributes} ins(%A, %B : {a}, {b}) outs(%C : {c}) return }}"""


NAMES = (
    ("matvec", "mk,k->m"),
    ("vecmat", "k,kn->n"),
    ("dot", "k,k->"),
    ("batch_matvec", "bmk,bk->bm"),
    ("batch_vecmat", "bk,bkn->bn"),
)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("name", "spec"), NAMES, ids=[name for name, _ in NAMES])
def test_vectors(name: str, spec: str) -> None:
    """Added to what is there, from zero, and with sizes that only the caller knows: one kernel each."""
    shapes = [tuple(SIZES[loop] for loop in names) for names in spec.replace("->", ",").split(",")]
    for text, start in (
        (product(name, spec), draw(*shapes[2], dtype=np.float32)),
        (product(name, spec, filled=True), np.full(shapes[2], np.nan, np.float32)),
        (product(name, spec, dynamic=True), draw(*shapes[2], dtype=np.float32)),
    ):
        a, b, c = draw(*shapes[0]), draw(*shapes[1]), start
        expected = np.nan_to_num(c) + np.einsum(spec, a.astype(np.float64), b.astype(np.float64))
        check(text, a, b, c)
        np.testing.assert_allclose(c, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("spec", ["mk,kn->mn", "bkm,nbk->bnm", "bmk,k->bm", "k,kn->n", "bmk,nk->bmn"])
def test_contract(spec: str) -> None:
    loops = "".join(sorted(set(spec) - set(",->")))
    names = spec.replace("->", ",").split(",")
    maps = ", ".join(f"affine_map<({', '.join(loops)}) -> ({', '.join(each)})>" for each in names)
    text = product("contract", spec, f"indexing_maps = [{maps}]")
    shapes = [tuple(SIZES[loop] for loop in each) for each in names]
    check(text, draw(*shapes[0]), draw(*shapes[1]), draw(*shapes[2], dtype=np.float32))


def test_a_strided_vector_and_one_that_is_a_column() -> None:
    kinds = (
        "memref<33x70xf16, strided<[80, 1], offset: 8>>",
        "memref<70xf16, strided<[1], offset: 3>>",
        "memref<33xf32>",
    )
    text = f"""func.func @f(%A: {kinds[0]}, %x: {kinds[1]}, %y: {kinds[2]}) {{
      linalg.matvec ins(%A, %x : {kinds[0]}, {kinds[1]}) outs(%y : {kinds[2]}) return }}"""
    a, x = draw(33, 96)[:, 8:88], draw(80)
    memory = np.zeros((33, 80), np.float16)
    memory[...] = a
    y = draw(33, dtype=np.float32)
    expected = y + memory[:, :70].astype(np.float64) @ x[3:73].astype(np.float64)
    compile(text)(memory[:, :70], x[3:73], y, device="interp")
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-4)
    apart = draw(70, 7)[:, 0]
    expected = y + memory[:, :70].astype(np.float64) @ apart.astype(np.float64)
    compile(text.replace("strided<[1], offset: 3>", "strided<[7]>"))(memory[:, :70], apart, y, device="interp")
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-4)


def test_contract_wants_maps() -> None:
    with pytest.raises(CompileError, match=r"expected A to be of rank 0, got rank 2"):
        compile(product("contract", "mk,kn->mn"))
    maps = "indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, k)>, affine_map<(m, n, k) -> (m, n)>]"  # noqa: E501
    with pytest.raises(CompileError, match=r"expected the dimensions of B along loops of their own, got"):
        compile(product("contract", "mk,kk->mn", maps))


def test_a_dot_of_tensors_added_to_one_that_is_given() -> None:
    text = """func.func @f(%x: tensor<70xf16>, %y: tensor<70xf16>, %start: tensor<f32>) -> tensor<f32> {
      %r = linalg.dot ins(%x, %y : tensor<70xf16>, tensor<70xf16>) outs(%start : tensor<f32>) -> tensor<f32>
      return %r : tensor<f32> }"""
    x, y, start = draw(70), draw(70), np.array(2.5, np.float32)
    got = compile(text)(x, y, start, device="interp")
    np.testing.assert_allclose(got, 2.5 + x.astype(np.float64) @ y.astype(np.float64), rtol=1e-5, atol=1e-4)
