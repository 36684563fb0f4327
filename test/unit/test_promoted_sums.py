"""Sums of 8-bit floats: in f32 by default, as far as the instruction goes; short ones where something allows them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from problems import problem
from products import Product, Types

from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import CompileError, Kernel, compile
from warploom.runtime.cuda import ptxas
from warploom.runtime.plan import host
from warploom.runtime.reference import functions as reference
from warploom.runtime.reference.product import bound_text

E4M3 = Types("f8E4M3FN", "f8E4M3FN", "f32")
TILE: dict[str, Any] = {"cta": (64, 64, 128), "mma": "m64n64k32"}
K_TILE, INSTRUCTION, KEPT = 128, 32, 13


def product(size: tuple[int, int, int], types: Types = E4M3, form: str = "cleared", **schedule: Any) -> Product:
    return Product(types, form, "A Bt", size, schedule)


def bound(a: Any, b: Any) -> Any:
    """The error of promoted sums: within a K tile each of its instructions may cut every term, those before it too,
    `KEPT` bits below the largest; sums of K tiles are rounded to f32."""
    a, b = np.abs(a.astype(np.float64)), np.abs(b.astype(np.float64))
    total, cut = np.zeros((a.shape[0], b.shape[1])), np.zeros((a.shape[0], b.shape[1]))
    for start in range(0, a.shape[1], K_TILE):
        part = a[:, start : start + K_TILE] @ b[start : start + K_TILE]
        cut += (K_TILE // INSTRUCTION) * (INSTRUCTION + 1) * part * 2.0**-KEPT
        total += part
    return cut + total * (a.shape[1] // K_TILE + 2) * 2.0**-23


def test_promoted_sums_are_nearer() -> None:
    size = (64, 64, 2048)
    errors: list[float] = []
    for promote in ("none", "f32"):
        case = product(size, **TILE, promote=promote)
        instance = problem(case, 5)
        case.compile("sm_90a")(*instance.arguments, device="interp")
        a, b, c = instance.arguments
        exact = a.astype(np.float64) @ b.astype(np.float64).T
        errors.append(float(np.linalg.norm(c - exact) / np.linalg.norm(exact)))
        if promote == "f32":
            assert np.all(np.abs(c - exact) <= bound(a, b.T))
    fast, promoted = errors
    assert promoted < fast / 4


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("form", "types"),
    [
        ("added", E4M3),
        ("residual", Types("f8E5M2", "f8E4M3FN", "bf16")),
        ("sparse", Types("f8E4M3FN", "f8E4M3FN", "f16")),
    ],
)
def test_in_other_forms(form: str, types: Types) -> None:
    deep = 64 if form == "sparse" else 32
    case = product((144, 208, 416), types, form, cta=(128, 128, 128), mma=f"m64n128k{deep}", ctas=2, promote="f32")
    instance = problem(case, 3)
    case.compile("sm_90a")(*instance.arguments, device="interp", checks="all")
    assert instance.wrong() == ""


def test_the_tile_follows() -> None:
    (promoted,) = product((4096, 4096, 4096)).compile("sm_90a").schedule
    (fast,) = product((4096, 4096, 4096), promote="none").compile("sm_90a").schedule
    assert promoted is not None
    assert fast is not None
    assert (promoted.promote, fast.promote) == ("f32", "none")
    assert fast.mma.n > 192 >= promoted.mma.n


BODY = """func.func @f(%A: memref<{m}x{k}xf8E4M3FN>, %B: memref<{n}x{k}xf8E4M3FN>, %C: memref<{m}x{n}x{kind}>) {{
  linalg.generic {{indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
      affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%A, %B : memref<{m}x{k}xf8E4M3FN>, memref<{n}x{k}xf8E4M3FN>) outs(%C : memref<{m}x{n}x{kind}>) {attribute} {{
  ^bb0(%a: f8E4M3FN, %b: f8E4M3FN, %c: {kind}):
    %x = arith.extf %a : f8E4M3FN to {kind}
    %y = arith.extf %b : f8E4M3FN to {kind}
    %p = arith.mulf %x, %y {product} : {kind}
    %s = arith.addf %c, %p {total} : {kind}
    linalg.yield %s : {kind}
  }}
  return
}}"""


def text(m: int, n: int, k: int, kind: str = "f32", *, total: str = "", product: str = "", attribute: str = "") -> str:
    return BODY.format(m=m, n=n, k=k, kind=kind, total=total, product=product, attribute=attribute)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("options", "short"),
    [
        ({}, False),
        ({"total": "fastmath<contract>", "product": "fastmath<contract>"}, False),
        ({"total": "fastmath<reassoc,nnan,ninf,nsz,arcp,contract>"}, False),
        ({"product": "fastmath<fast>"}, False),
        ({"total": "fastmath<afn>"}, True),
        ({"total": "fastmath<fast>", "product": "fastmath<fast>"}, True),
        ({"attribute": "attrs = {warp.fastmath = #arith.fastmath<afn>}"}, True),
    ],
)
def test_what_allows_short_sums(options: dict[str, str], short: bool) -> None:
    """An addition that may be approximate, and no flag that allows another order or one rounding for two."""
    (warps,) = compile(text(48, 40, 96, **options), target="sm_89").schedule
    (groups,) = compile(text(2048, 2048, 1024, **options), target="sm_90a").schedule
    assert warps is not None
    assert groups is not None
    assert warps.fp8_as == ("none" if short else "f16")
    assert groups.together > 1
    assert groups.promote == ("none" if short else "f32")


def test_a_schedule_takes_back_what_an_addition_allows() -> None:
    module = text(2048, 2048, 1024, total="fastmath<afn>")
    (promoted,) = compile(module, target="sm_90a", promote="f32").schedule
    (plain,) = compile(text(48, 40, 96, total="fastmath<afn>"), target="sm_89", fp8_as="f16").schedule
    assert promoted is not None
    assert plain is not None
    assert (promoted.promote, plain.fp8_as) == ("f32", "f16")


def test_a_single_k_tile_is_not_multiplied_by_warpgroups() -> None:
    """Promotion would leave its short sums as they are; of fragments, f16 products are added in f32."""
    (one,) = compile(text(2048, 2048, 128), target="sm_90a").schedule
    (two,) = compile(text(2048, 2048, 160), target="sm_90a").schedule
    (short,) = compile(text(2048, 2048, 128, total="fastmath<afn>"), target="sm_90a").schedule
    assert [s is not None and s.together > 1 for s in (one, two, short)] == [False, True, True]


def checked(text: str, kernel: Kernel, arrays: list[Any]) -> tuple[reference.Comparison, str]:
    """How a result compares with float64 by the bound of a schedule, and the bound in words."""
    accumulator = reference.accumulator_of(kernel.schedule, kernel.target)
    *inputs, result = arrays
    zeros = [*inputs, np.zeros_like(result)]
    exact = reference.evaluate(host.choose(parse_mlir(make_context(), text), "f"), zeros, accumulator)[2]
    return reference.compare(exact, result), bound_text(exact.history, accumulator.unit)


def result(kernel: Kernel, a: Any, b: Any, kind: str) -> Any:
    c = np.zeros((a.shape[0], b.shape[0]), kind)
    kernel(a, b, c, device="interp")
    return c


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_the_check_tells_short_sums_from_those_in_f32(kind: str) -> None:
    """On sm_89, at K = 96: the default is within the bound of f32 sums, short sums are beyond it but within theirs."""
    random, dtype = np.random.default_rng(7), {"f32": "f4", "f16": "f2"}[kind]
    a, b = (random.standard_normal(shape).astype(ml_dtypes.float8_e4m3fn) for shape in ((33, 96), (40, 96)))
    plain, fast = text(33, 40, 96, kind), text(33, 40, 96, kind, total="fastmath<afn>")
    default, short = (compile(t, target="sm_89") for t in (plain, fast))
    chosen = compile(plain, target="sm_89", fp8_as="none")
    right, cut = result(default, a, b, dtype), result(short, a, b, dtype)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    magnitude = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)).T
    rounding = 2.0**-11 * np.abs(exact) if kind == "f16" else 0.0
    assert np.all(np.abs(right - exact) <= 98 * 2.0**-23 * magnitude * 1.001 + rounding)
    error, bound = checked(plain, default, [a, b, right])
    assert error.ok
    assert "(K + 2) 2^-23 (|C| + |A| |B|), K = 96" in bound
    error, bound = checked(fast, short, [a, b, cut])
    assert error.ok
    assert "(K + 2) 2^-13 (|C| + |A| |B|), K = 96" in bound
    np.testing.assert_array_equal(result(chosen, a, b, dtype), cut)
    assert checked(plain, default, [a, b, cut])[0].outside > (100 if kind == "f32" else 0)


@pytest.mark.slow
def test_the_bound_of_promoted_sums() -> None:
    """Sums of one K tile are short: many equal terms, whose cut sums drift, tell that from all of K."""
    random = np.random.default_rng(8)
    a, b = (random.uniform(1.0, 1.875, (64, 20480)).astype(ml_dtypes.float8_e4m3fn) for _ in range(2))
    options: dict[str, Any] = {"target": "sm_90a", "split_k": 1, **TILE}
    long = text(64, 64, 20480)
    promoted, fast = compile(long, **options), compile(long, **options, promote="none")
    right, cut = (result(kernel, a, b, "f4") for kernel in (promoted, fast))
    error, bound = checked(long, promoted, [a, b, right])
    assert error.ok
    assert "(K + 2) 2^-23 (|C| + |A| |B|) + 130 2^-13 |A| |B|, K = 20480" in bound
    assert checked(long, promoted, [a, b, cut])[0].outside == 64 * 64
    assert checked(long, fast, [a, b, cut])[0].ok


@pytest.mark.skipif(ptxas.find() is None, reason="ptxas is not installed (extra: test)")
def test_the_assembler_repairs_nothing() -> None:
    kernel = product((4096, 4096, 4096), promote="f32", cta=(128, 192, 128), mma="m64n192k32").compile("sm_90a")
    (used,) = ptxas.assemble(kernel.ptx, "sm_90a").values()
    assert (used.spills, used.stack, used.registers) == (0, 0, 168)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            product((256, 256, 256), mma="m64n256k32"),
            "has room for 64x192 of both, got mma = m64n256k32; use fewer columns, or promote = none for",
        ),
        (product((256, 256, 256), promote="f32", mma="m16n8k32"), "promote = f32 is for products of warpgroups, got"),
        (
            product((256, 256, 256), Types("bf16", "bf16", "f32"), promote="f32"),
            "is for 8-bit floats accumulated in f32",
        ),
        (
            Product(E4M3, "cleared", "A B", (256, 256, 256), {"in_registers": "b"}),
            "in_registers = b: sums of 8-bit floats would be short; promote = none, or fastmath<afn> on the addition",
        ),
        (product((256, 256, 256), promote="f16"), "promote must be one of none, f32, got f16"),
    ],
)
def test_what_does_not_fit_is_refused(case: Product, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        case.compile("sm_90a")
