"""The K loop in all its forms, run: how warps meet, how far copies run ahead, CTAs that go from tile to tile."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from warploom.runtime import compile
from warploom.runtime.base.errors import CompileError

TILE = {"cta": (64, 64, 32), "warp": (32, 32)}

LOOPS = (
    {"stages": 4, "prefetch": 2},
    {"stages": 4, "ctas": 1},
    {"stages": 2, "ctas": 5, "sync": "barrier"},
    {"stages": 1, "ctas": 2},
    {"stages": 4, "sync": "mbarrier"},
    {"stages": 3, "sync": "mbarrier", "prefetch": 1, "ctas": 3},
    {"stages": 5, "sync": "mbarrier", "prefetch": 3, "ctas": 1},
)

SIZES = ((130, 72, 200), (65, 136, 40), (64, 72, 8), (70, 130, 0))

UNROLLED = (
    {"stages": 4, "unroll": 4},
    {"stages": 4, "unroll": 4, "ctas": 2},
    {"stages": 4, "unroll": 4, "prefetch": 2, "sync": "mbarrier"},
    {"stages": 4, "unroll": 8, "prefetch": 3, "sync": "mbarrier", "ctas": 3},
    {"stages": 4, "unroll": 4, "prefetch": 1, "sync": "mbarrier", "ctas": 1},
)

PLACES = (
    {"cta": (64, 64, 64), "warp": (64, 64), "sliced_k": 4, "stages": 2},
    {"cta": (32, 64, 128), "warp": (16, 64), "sliced_k": 8, "stages": 2},
    {"cta": (16, 16, 256), "warp": (16, 16), "sliced_k": 16, "stages": 2},
    {"cta": (64, 64, 64), "warp": (32, 64), "sliced_k": 2, "split_k": 5, "stages": 2},
    {"cta": (64, 64, 32), "warp": (32, 32), "split_k": 4, "stages": 2},
    {"cta": (128, 64, 64), "warp": (64, 64), "mma": "m64n64k16", "stages": 3},
)


def check(
    size: tuple[int, int, int], target: str = "sm_90a", kind: str = "f16", result: str = "f32", **schedule: Any
) -> None:
    """Runs a product that adds to C, on the interpreter with its checks, and compares it with float64."""
    m, n, k = size
    a, b, c = f"memref<{m}x{k}x{kind}>", f"memref<{k}x{n}x{kind}>", f"memref<{m}x{n}x{result}>"
    text = (
        f"func.func @f(%A: {a}, %B: {b}, %C: {c}) {{\nlinalg.matmul ins(%A, %B : {a}, {b}) outs(%C : {c})\nreturn\n}}"
    )
    rng = np.random.default_rng([*size, schedule["stages"]])
    dtypes = {"f16": np.float16, "f32": np.float32, "i8": np.int8, "i32": np.int32}
    # Numbers of which each type holds all bits, tf32 too.
    x, y, z = (
        (rng.standard_normal(shape) * (32 if kind == "i8" else 1)).astype(np.float16).astype(dtypes[each])
        for shape, each in (((m, k), kind), ((k, n), kind), ((m, n), result))
    )
    expected = x.astype(np.float64) @ y.astype(np.float64) + z
    compile(text, target=target, tf32=True, **(TILE | schedule))(x, y, z, device="interp")
    # A sum of k products of numbers near 1, each rounded to 24 bits.
    np.testing.assert_allclose(z, expected, rtol=0, atol=2**-22 * max(k, 1) ** 0.5 * 16)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("loop", LOOPS, ids=str)
def test_loops(loop: dict[str, Any]) -> None:
    for size in SIZES:
        check(size, **loop)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("loop", UNROLLED, ids=str)
def test_unrolled(loop: dict[str, Any]) -> None:
    for size in ((72, 130, 256),):
        check(size, **loop)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("kind", "result", "depth"), [("i8", "i32", 64), ("f32", "f32", 16)])
def test_other_types(kind: str, result: str, depth: int) -> None:
    """The loop of large products, with K tiles of two steps."""
    unrolled: dict[str, Any] = {"stages": 4, "unroll": 4, "prefetch": 2, "sync": "mbarrier", "ctas": 1}
    rolled: dict[str, Any] = {**unrolled, "unroll": 0}
    check((72, 132, 8 * depth), kind=kind, result=result, cta=(64, 64, depth), **unrolled)
    check((68, 140, 5 * depth + 4), kind=kind, result=result, cta=(64, 64, depth), **rolled)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("columns", [256, 192])
def test_threads_that_copy_several_panels_at_once(columns: int) -> None:
    """Rows along n of 8 and 6 panels of 128 bytes, 16 of them, for 256 and 192 threads."""
    tile: dict[str, Any] = {"cta": (64, columns, 16), "warp": (32, 64 if columns == 256 else 32), "stages": 3}
    for n in (columns, 264):
        check((66, n, 40), kind="f32", **tile)


def test_mbarriers_of_sm_80() -> None:
    check((130, 72, 100), "sm_80", stages=3, sync="mbarrier", ctas=2)


ERRORS = (
    ({"stages": 2, "sync": "mbarrier"}, "sync = mbarrier takes at least 3 stages, got 2"),
    ({"stages": 4, "sync": "latch"}, "sync must be one of barrier, mbarrier, got latch"),
    ({"stages": 4, "prefetch": 4}, "prefetch must be 0 to 3 with 4 stages, got 4"),
    ({"stages": 4, "unroll": 6}, "unroll must be a multiple of the 4 stages, got 6"),
    ({"stages": 4, "unroll": 8}, "unroll: turns of 8 K tiles must divide all of them, got 4"),
    ({"stages": 4, "ctas": 2, "sliced_k": 2}, "ctas must be 0, or more with one slice, got 2 and 2 slices"),
)


@pytest.mark.parametrize(("schedule", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_errors(schedule: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=re.escape(message)):
        check((64, 64, 128), **schedule)


def test_a_target_without_mbarriers() -> None:
    with pytest.raises(CompileError, match="sync = mbarrier: sm_75 has none, sm_80 and later do"):
        check((64, 64, 128), "sm_75", stages=3, sync="mbarrier", mma="m16n8k8")


def test_rows_that_no_copy_moves() -> None:
    with pytest.raises(
        CompileError, match=r"sync = mbarrier: rows of A are no multiple of 4 bytes.*pack = a aligns them"
    ):
        check((64, 64, 127), stages=3, sync="mbarrier")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("size", [(56, 176, 392), (33, 25, 70)])
def test_sums_of_one_product_of_f64_are_awaited_before_the_next_turn(size: tuple[int, int, int]) -> None:
    """ptxas lets the first product of a turn read sums that the last one has not written: so the lane reads one."""
    m, n, k = size
    a, b, c = f"memref<{m}x{k}xf64>", f"memref<{k}x{n}xf64>", f"memref<{m}x{n}xf64>"
    kernel = compile(
        f"""func.func @f(%A: {a}, %B: {b}, %C: {c}) {{
      %zero = arith.constant 0.0 : f64
      linalg.fill ins(%zero : f64) outs(%C : {c})
      linalg.matmul ins(%A, %B : {a}, {b}) outs(%C : {c})
      return
    }}""",
        target="sm_90a",
        cta=(32, 16, 32),
        warp=(16, 8),
        mma="m16n8k8",
        stages=3,
    )
    loop = re.search(r"(?s)loop_(\d):\n(.*)bra loop_\1;", kernel.ptx)
    assert loop is not None
    last = re.findall(r"mma\.sync\S+ \{(%d\d+),[^\n]*\n\s*(.*)\n\s*(.*)\n\s*(.*)\n", loop[2])[-1]
    assert re.fullmatch(rf"mov\.b64 \{{.*\}}, {last[0]};", last[1])
    assert re.fullmatch(r"shfl\.sync\.bfly\.b32 \S+ \S+ 0, 0x1F, 0xFFFFFFFF;", last[2])
    assert last[3].startswith(f"mov.b64 {last[0]}, {{")
    rng = np.random.default_rng(m)
    x, y, z = rng.standard_normal((m, k)), rng.standard_normal((k, n)), np.full((m, n), np.nan)
    kernel(x, y, z, device="interp", checks="all" if k == 70 else ())
    assert (np.abs(z - x @ y) <= (k + 2) * 2.0**-52 * (np.abs(x) @ np.abs(y))).all()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("schedule", PLACES, ids=str)
def test_places_of_a_tile(schedule: dict[str, Any]) -> None:
    """Rows of A that are equal and columns of B that are equal give elements that are equal: no rounding depends on
    where in its tile an element lies. CTAs whose tiles overlap rely on it."""
    m, n, k = 72, 136, 1000
    a, b, d = f"memref<{m}x{k}xf16>", f"memref<{k}x{n}xf16>", f"memref<{m}x{n}xf32>"
    text = f"""func.func @f(%A: {a}, %B: {b}, %D: {d}) {{
        %zero = arith.constant 0.0 : f32
        linalg.fill ins(%zero : f32) outs(%D : {d})
        linalg.matmul ins(%A, %B : {a}, {b}) outs(%D : {d})
        return
    }}"""
    rng = np.random.default_rng(k)
    row, column = (rng.standard_normal(k).astype(np.float16) for _ in "AB")
    got = np.full((m, n), np.nan, np.float32)
    x, y = np.tile(row, (m, 1)), np.tile(column[:, None], (1, n))
    compile(text, target="sm_90a", **schedule)(x, y, got, device="interp")
    assert len(set(got.view(np.uint32).flat)) == 1
    np.testing.assert_allclose(got[0, 0], row.astype(np.float64) @ column, rtol=0, atol=2**-22 * k**0.5 * 16)


BATCHES = (
    {"cta": (64, 64, 64), "warp": (64, 64), "mma": "m64n64k16", "stages": 3, "ctas": 7},
    {"cta": (64, 64, 64), "warp": (64, 64), "mma": "m64n64k16", "stages": 3, "ctas": 2, "cluster": "2,1"},
    {"cta": (64, 64, 32), "warp": (32, 32), "stages": 4, "ctas": 7},
    {"cta": (64, 64, 32), "warp": (32, 32), "stages": 3, "sync": "mbarrier", "ctas": 1},
    {},
)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("schedule", BATCHES, ids=str)
def test_ctas_go_from_one_matrix_of_a_batch_to_the_next(schedule: dict[str, Any]) -> None:
    """Sizes of two loops around the product, one of which B does not have; more tiles than CTAs."""
    a, b, d = "memref<2x3x72x104xf16>", "memref<3x104x136xf16>", "memref<2x3x72x136xf32>"
    text = f"""
        #a = affine_map<(x, y, m, n, k) -> (x, y, m, k)>
        #b = affine_map<(x, y, m, n, k) -> (y, k, n)>
        #d = affine_map<(x, y, m, n, k) -> (x, y, m, n)>
        func.func @f(%A: {a}, %B: {b}, %D: {d}) {{
        linalg.contract indexing_maps = [#a, #b, #d] ins(%A, %B : {a}, {b}) outs(%D : {d})
        return
    }}"""
    rng = np.random.default_rng(5)
    x, y = (rng.standard_normal(shape).astype(np.float16) for shape in ((2, 3, 72, 104), (3, 104, 136)))
    got = rng.standard_normal((2, 3, 72, 136)).astype(np.float32)
    expected = x.astype(np.float64) @ y.astype(np.float64) + got
    compile(text, target="sm_90a", **schedule)(x, y, got, device="interp")
    np.testing.assert_allclose(got, expected, rtol=0, atol=2**-22 * 104**0.5 * 16)


def test_a_batch_counts_as_one_wave_after_another() -> None:
    """The default has as many CTAs as the GPU runs at once, however few tiles a matrix has."""
    kind = "memref<16x1024x1024xbf16>"
    text = f"""func.func @f(%A: {kind}, %B: {kind}, %D: {kind}) {{
        linalg.batch_matmul ins(%A, %B : {kind}, {kind}) outs(%D : {kind})
        return
    }}"""
    assert compile(text, target="sm_90a").launches[0].grid == (132, 1, 1)
