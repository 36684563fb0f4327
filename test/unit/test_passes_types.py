"""Products of every element type that is lowered, whichever way A and B lie: compiled and run on the interpreter."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.runtime import ArgumentError, CompileError, compile

Matrix = NDArray[Any]

NUMPY: dict[str, Any] = {
    "i4": ml_dtypes.int4,
    "i8": np.int8,
    "i32": np.int32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
}
UNSIGNED = "{cast = #linalg.type_fn<cast_unsigned>}"


def matmul(size: tuple[int, int, int], types: str, lies: str, attributes: str = "") -> str:
    """A function of one product; `lies` says "A B", with a t behind what is stored transposed."""
    (m, n, k), (a, b, c) = size, types.split()
    at, bt = (name.endswith("t") for name in lies.split())
    kinds = (
        f"memref<{k}x{m}x{a}>" if at else f"memref<{m}x{k}x{a}>",
        f"memref<{n}x{k}x{b}>" if bt else f"memref<{k}x{n}x{b}>",
        f"memref<{m}x{n}x{c}>",
    )
    maps = ", ".join(
        f"affine_map<(m, n, k) -> {axes}>"
        for axes in ("(k, m)" if at else "(m, k)", "(n, k)" if bt else "(k, n)", "(m, n)")
    )
    return f"""func.func @f(%A: {kinds[0]}, %B: {kinds[1]}, %C: {kinds[2]}) {{
      linalg.matmul indexing_maps = [{maps}] {attributes} ins(%A, %B : {kinds[0]}, {kinds[1]}) outs(%C : {kinds[2]})
      return
    }}"""


def draw(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> Matrix:
    if kind == "i4":
        return rng.integers(-8, 8, shape).astype(NUMPY[kind])
    if kind.startswith("i"):
        return rng.integers(-(1 << 7), 1 << 7, shape).astype(NUMPY[kind])
    return rng.standard_normal(shape).astype(NUMPY[kind])


def run(size: tuple[int, int, int], types: str, lies: str, **options: Any) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """A and B as they are multiplied, C as it was, and what the kernel made of it."""
    (m, n, k), (a_kind, b_kind, c_kind) = size, types.split()
    rng = np.random.default_rng()
    kernel = compile(matmul(size, types, lies, options.pop("attributes", "")), **options)
    a, b, c = draw(rng, (m, k), a_kind), draw(rng, (k, n), b_kind), draw(rng, (m, n), c_kind)
    first, second = (
        np.ascontiguousarray(x.T) if name.endswith("t") else x for x, name in zip((a, b), lies.split(), strict=True)
    )
    result = c.copy()
    kernel(first, second, result, device="interp")
    return a, b, c, result


LIES = ("A Bt", "A B", "At Bt", "At B")
SIZES = ((1, 1, 1), (37, 75, 53))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("lies", LIES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_integers_are_exact(size: tuple[int, int, int], lies: str) -> None:
    a, b, c, result = run(size, "i8 i8 i32", lies)
    np.testing.assert_array_equal(result, c + a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("lies", LIES)
def test_unsigned_integers_are_exact(lies: str) -> None:
    a, b, c, result = run((37, 41, 53), "i8 i8 i32", lies, attributes=UNSIGNED)
    wide = (x.view(np.uint8).astype(np.int32) for x in (a, b))
    np.testing.assert_array_equal(result, c + next(wide) @ next(wide))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("lies", LIES)
def test_four_bits_are_exact(lies: str) -> None:
    """Two elements share a byte, so rows are even."""
    a, b, c, result = run((38, 66, 130), "i4 i4 i32", lies)
    np.testing.assert_array_equal(result, c + a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("lies", LIES)
def test_four_bits_are_packed_to_aligned_rows(lies: str) -> None:
    a, b, c, result = run((38, 66, 130), "i4 i4 i32", lies, pack="ab")
    np.testing.assert_array_equal(result, c + a.astype(np.int32) @ b.astype(np.int32))


def test_odd_rows_of_four_bits_are_padded_to_whole_bytes() -> None:
    rng = np.random.default_rng(33)
    a, b = (rng.integers(-8, 8, shape).astype(ml_dtypes.int4) for shape in ((17, 33), (9, 33)))
    text = matmul((17, 9, 33), "i4 i4 i32", "A Bt").replace("x33xi4>", "x33xi4, strided<[34, 1]>>")
    c = np.zeros((17, 9), np.int32)
    compile(text)(a, b, c, device="interp")
    np.testing.assert_array_equal(c, a.astype(np.int32) @ b.astype(np.int32).T)


def test_rows_of_four_bits_are_whole_bytes() -> None:
    text = matmul((16, 8, 33), "i4 i4 i32", "A Bt")
    with pytest.raises(CompileError, match="expected rows of whole bytes, 2 elements each"):
        compile(text)
    kernel = compile(matmul((16, 8, 32), "i4 i4 i32", "A Bt"))
    a, b = np.zeros((16, 33), ml_dtypes.int4), np.zeros((8, 32), ml_dtypes.int4)
    with pytest.raises(ArgumentError, match=r"argument 0 \(%A\): expected 16x32xi4, got 16x33xi4"):
        kernel(a, b, np.zeros((16, 8), np.int32), device="interp")


FLOATS = [
    # types, the error of each operand, the error of each of K + 2 sums, both relative
    ("f32 f32 f32", 2.0**-10, 2.0**-23),
    ("f64 f64 f64", 0.0, 2.0**-52),
    ("f8E4M3FN f8E4M3FN f32", 0.0, 2.0**-13),
    ("f8E4M3FN f8E5M2 bf16", 0.0, 2.0**-13),
    ("f8E5M2 f8E4M3FN f16", 0.0, 2.0**-13),
]


@pytest.mark.sampled(18)
@pytest.mark.parametrize("lies", LIES)
@pytest.mark.parametrize(("types", "operand", "sum"), FLOATS, ids=[types for types, *_ in FLOATS])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_floats(size: tuple[int, int, int], types: str, operand: float, sum: float, lies: str) -> None:
    """Within the error of the operands, of the sums, and of rounding to C."""
    a, b, c, result = run(size, types, lies, tf32=True)
    x, y, z = (m.astype(np.float64) for m in (a, b, c))
    exact, magnitude = z + x @ y, np.abs(z) + np.abs(x) @ np.abs(y)
    stored = {"f32": 2.0**-24, "f64": 2.0**-53, "bf16": 2.0**-8, "f16": 2.0**-11}[types.split()[2]]
    bound = magnitude * (2.1 * operand + (size[2] + 2) * sum) + np.abs(exact) * stored + 2.0**-24
    assert (np.abs(result.astype(np.float64) - exact) <= bound).all()


@pytest.mark.sampled(12)
@pytest.mark.parametrize("lies", LIES)
@pytest.mark.parametrize(
    ("types", "schedule"),
    [
        ("f8E4M3FN f8E4M3FN f32", {}),
        (
            "f8E5M2 f8E4M3FN f32",
            {"cta": (64, 64, 64), "warp": (32, 32), "stages": 3, "sync": "mbarrier", "prefetch": 2},
        ),
        ("f8E5M2 f8E5M2 f32", {"cta": (64, 64, 64), "warp": (32, 32), "mma": "m16n8k16", "stages": 1}),
    ],
    ids=["default", "mbarriers", "half steps"],
)
def test_widened(schedule: dict[str, Any], types: str, lies: str) -> None:
    """8-bit floats multiplied as f16: sums as exact as those of f16, where the instruction's own keep 13 bits."""
    size = (100, 72, 132)
    a, b, c, result = run(size, types, lies, target="sm_90", **schedule)
    x, y, z = (m.astype(np.float64) for m in (a, b, c))
    bound = (np.abs(z) + np.abs(x) @ np.abs(y)) * (size[2] + 2) * 2.0**-23
    assert (np.abs(result - (z + x @ y)) <= bound).all()


def test_what_is_widened_where() -> None:
    text = matmul((64, 64, 64), "f8E4M3FN f8E4M3FN f32", "A Bt")
    chosen = [compile(text, target=target).schedule[0] for target in ("sm_89", "sm_90", "sm_100a", "sm_120a")]
    assert [s and s.fp8_as for s in chosen] == ["f16", "f16", "f16", "none"]
    asked = compile(text, target="sm_120a", fp8_as="f16").ptx
    assert "cvt.rn.f16x2.e4m3x2" in asked
    assert "e4m3.e4m3" not in asked
    for target in ("sm_89", "sm_90"):
        assert "e4m3.e4m3" in compile(text, target=target, fp8_as="none").ptx
    with pytest.raises(CompileError, match=r"fp8_as = f16: operands that are dense 8-bit floats.*not those of s8 x s8"):
        compile(matmul((64, 64, 64), "i8 i8 i32", "A B"), fp8_as="f16")
    with pytest.raises(CompileError, match="sm_80 has no mma for e4m3 x e4m3 accumulated in f32; sm_89 and later"):
        compile(text, target="sm_80", fp8_as="f16")


TILES = [
    ("i8 i8 i32", "sm_80", (64, 64, 64), (32, 32), "m16n8k32"),
    ("i8 i8 i32", "sm_75", (64, 64, 32), (32, 64), "m8n8k16"),
    ("f8E4M3FN f8E4M3FN f32", "sm_89", (64, 64, 64), (32, 64), "m16n8k32"),
    ("f32 f32 f32", "sm_80", (64, 64, 32), (32, 32), "m16n8k8"),
    ("f32 f32 f32", "sm_80", (32, 32, 8), (16, 16), "m16n8k4"),
    ("f64 f64 f64", "sm_80", (32, 64, 16), (32, 32), "m8n8k4"),
    ("f64 f64 f64", "sm_90", (32, 64, 32), (16, 32), "m16n8k4"),
    ("f64 f64 f64", "sm_90", (32, 64, 16), (32, 16), "m16n8k8"),
]


@pytest.mark.sampled(30)
@pytest.mark.parametrize("lies", LIES)
@pytest.mark.parametrize(("types", "target", "cta", "warp", "mma"), TILES)
def test_every_instruction(
    types: str, target: str, cta: tuple[int, ...], warp: tuple[int, ...], mma: str, lies: str
) -> None:
    """Pipelined, with edges on all sides."""
    a, b, c, result = run(
        (97, 75, 130), types, lies, tf32=True, target=target, cta=cta, warp=warp, mma=mma, stages=3
    )  # fmt: skip
    x, y, z = (m.astype(np.float64) for m in (a, b, c))
    exact, error = z + x @ y, np.abs(x) @ np.abs(y)
    assert (np.abs(result.astype(np.float64) - exact) <= (0 if types.startswith("i") else 1e-2) * error).all()


def test_f32_is_multiplied_as_tf32_only_if_asked() -> None:
    text = matmul((16, 16, 16), "f32 f32 f32", "A B")
    assert "tf32" in compile(text, tf32=True).ptx
    with pytest.raises(CompileError, match=r"no instruction multiplies f32 x f32 with all bits.*tf32=true"):
        compile(text)
