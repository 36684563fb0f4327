"""Elements that change lanes by way of memory: `warp.convert_layout` with scratch, and schedules with `staging`."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from single_warp import ELEMENTS, run

from warploom.dialect.isa.form import BY_MLIR_NAME
from warploom.dialect.layouts.layout import Layout
from warploom.dialect.warp.attributes import FragmentType, type_of_element
from warploom.dialect.warp.convert import in_lines
from warploom.runtime import CompileError, Kernel, compile

DTYPES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "f64": np.float64, "i8": np.int8, "i32": np.int32
}  # fmt: skip
PAIRS = "c1 c2 r0 r1 r2 | c0 r3"

EXCHANGE = """
    %s = memref.alloc() : memref<1x{words}xf32, 3>
    %x = warp.load %X[%z, %z] {{in_bounds = [true, true]}} : $X -> {before}
    %y = warp.convert_layout %x via %s : {before} via memref<1x{words}xf32, 3> to {after}
    %again = warp.convert_layout %y via %s : {after} via memref<1x{words}xf32, 3> to {after}
    warp.store %again, %Y[%z, %z] {{in_bounds = [true, true]}} : {after}, $Y"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64], ids=str)
@pytest.mark.parametrize("shape", [(16, 8), (16, 16), (16, 64), (32, 32), (16, 48), (8, 128)], ids=str)
def test_an_exchange_moves_every_element(shape: tuple[int, int], dtype: Any) -> None:
    rows, columns = shape
    kind = BY_MLIR_NAME[ELEMENTS[np.dtype(dtype).name]]
    layout = Layout.parse(PAIRS if rows > 8 else "c1 c2 r0 r1 r2 | c0")
    before = FragmentType.of("acc", rows, columns, type_of_element(kind), layout)
    after = before.with_layout(in_lines(before))
    words = max(32, rows * columns * kind.bits // 32)
    x = np.arange(rows * columns).reshape(shape).astype(dtype)
    y = np.full_like(x, -1)
    run("sm_80", EXCHANGE.format(words=words, before=before, after=after), X=x, Y=y)
    np.testing.assert_array_equal(y, x)


def test_lanes_along_rows() -> None:
    wide = FragmentType.of("acc", 16, 64, type_of_element(BY_MLIR_NAME["f32"]), Layout.parse(PAIRS))
    assert str(in_lines(wide)) == "c2 c3 c4 c5 r0 | c0 c1 r1 r2 r3"
    narrow = FragmentType.of("acc", 16, 8, type_of_element(BY_MLIR_NAME["f16"]), Layout.parse(PAIRS))
    assert str(in_lines(narrow)) == "c2 r0 r1 r2 r3 | c0 c1"
    assert str(in_lines(wide, aligned=2)) == "c1 c2 c3 c4 c5 | c0 r0 r1 r2 r3"
    assert str(in_lines(wide, aligned=1)) == "c0 c1 c2 c3 c4 | c5 r0 r1 r2 r3"


def product(size: tuple[int, int, int], types: str, *, filled: bool = False, **schedule: Any) -> Kernel:
    """C += A B, or C = A B."""
    (m, n, k), (element, out) = size, types.split()
    a, b, c = f"memref<{m}x{k}x{element}>", f"memref<{k}x{n}x{element}>", f"memref<{m}x{n}x{out}>"
    fill = f"%z = arith.constant 0.0 : {out} linalg.fill ins(%z : {out}) outs(%C : {c})" if filled else ""
    return compile(
        f"func.func @f(%A: {a}, %B: {b}, %C: {c}) {{ {fill} "
        f"linalg.matmul ins(%A, %B : {a}, {b}) outs(%C : {c}) return }}",
        tf32=element == "f32",
        **schedule,
    )


def check(size: tuple[int, int, int], types: str, **schedule: Any) -> Kernel:
    """Runs a product with every check of the interpreter and compares it with float64."""
    kernel, rng = product(size, types, **schedule), np.random.default_rng(size)
    (m, n, k), (element, out) = size, types.split()

    def draw(rows: int, columns: int, kind: str) -> Any:
        values = rng.integers(-100, 100, (rows, columns)) if kind[0] == "i" else rng.standard_normal((rows, columns))
        return values.astype(DTYPES[kind])

    a, b, c = draw(m, k, element), draw(k, n, element), draw(m, n, out)
    expected = a.astype(float) @ b.astype(float) + c.astype(float)
    kernel(a, b, c, device="interp", checks="all")
    bound = {"i32": 0, "f64": 1e-12, "f32": 1e-2 if element == "f32" else 1e-3, "bf16": 2.0**-8, "f16": 2.0**-11}[out]
    assert (np.abs(c.astype(float) - expected) <= bound * np.abs(expected) + 10 * bound).all()
    return kernel


TILES = {"cta": (64, 64, 32), "warp": (32, 32), "stages": 2}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("types", ["bf16 bf16", "bf16 f32", "f16 f16", "f32 f32", "f64 f64", "i8 i32"])
@pytest.mark.parametrize("staging", [16, 32])
def test_strips(types: str, staging: int) -> None:
    """Edges along rows and columns; rows of D of whole 16 bytes, and odd ones."""
    for size in ((70, 88, 40), (33, 67, 5), (65, 70, 20)):
        check(size, types, **TILES, staging=staging)


SCHEDULES: tuple[dict[str, Any], ...] = (
    {"cta": (64, 96, 32), "warp": (32, 48), "stages": 3},
    {"cta": (64, 64, 64), "warp": (64, 32), "stages": 2, "sliced_k": 2},
    {"cta": (64, 64, 32), "warp": (32, 32), "stages": 4, "sync": "mbarrier", "prefetch": 2, "ctas": 2},
    {"cta": (64, 64, 32), "warp": (32, 32), "stages": 2, "split_k": 2},
)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_strips_beside_other_choices(schedule: dict[str, Any]) -> None:
    for types in ("bf16 bf16", "f16 f32"):
        check((100, 136, 128), types, **schedule, staging=16)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("types", ["bf16 bf16", "bf16 f32", "f64 f64", "i8 i32"])
def test_no_lanes_meet_at_a_bank(types: str) -> None:
    kernel = product((64, 64, 32), types, **TILES, staging=16)
    (m, n, k), (element, out) = (64, 64, 32), types.split()
    arrays = [np.ones(s, DTYPES[t]) for s, t in (((m, k), element), ((k, n), element), ((m, n), out))]
    (launch,) = kernel(*arrays, device="interp", report=True).reports
    strips = [access for access in launch.shared if access.opcode.startswith(("ld.shared.v", "st.shared"))]
    assert {"load", "store"} == {access.kind for access in strips}
    assert sum(access.extra for access in strips) == 0
    stores = [access for access in launch.global_ if access.kind == "store"]
    assert sum(access.sectors for access in stores) == m * n * arrays[2].itemsize // 32


@pytest.mark.parametrize(("columns", "most"), [(197, 2 * 3), (198, 5), (196, 5)])
def test_rows_of_d_that_are_no_lines_are_stored_by_neighbours(columns: int, most: int) -> None:
    """128 bytes of a row that begin anywhere lie in five sectors, their halves in three each. The last of two tiles is
    moved back inside D."""
    kernel = product((128, columns, 20), "bf16 bf16", filled=True, cta=(64, 128, 32), warp=(32, 64), staging=16)
    arrays = [np.ones(s, DTYPES["bf16"]) for s in ((128, 20), (20, columns), (128, columns))]
    (launch,) = kernel(*arrays, device="interp", report=True).reports
    assert sum(access.sectors for access in launch.global_ if access.kind == "store") <= 128 * 4 * most


@pytest.mark.parametrize(
    ("size", "schedule", "most"),
    [
        ((150, 197, 72), {"cta": (128, 64, 64), "mma": "m64n64k16", "ctas": 2}, 2 * 3),
        ((96, 350, 136), {"cta": (64, 96, 64), "mma": "m64n96k16", "cluster": (1, 2)}, 3),
        ((70, 260, 264), {"cta": (64, 128, 64), "mma": "m64n128k16", "warp": (64, 128)}, 5),
    ],
    ids=str,
)
def test_warpgroups_store_rows_that_no_tensor_copy_can(
    size: tuple[int, int, int], schedule: dict[str, Any], most: int
) -> None:
    """A panel of a row, 64 or 32 elements, lies in no more than so many sectors."""
    (m, n, k), width = size, 32 if schedule["cta"][1] % 64 else 64
    kernel = compile(
        f"func.func @f(%A: memref<{m}x{k}xbf16>, %B: memref<{n}x{k}xbf16>, %D: memref<{m}x{n}xbf16>) {{ "
        f"%z = arith.constant 0.0 : bf16 linalg.fill ins(%z : bf16) outs(%D : memref<{m}x{n}xbf16>) "
        f"linalg.matmul_transpose_b ins(%A, %B : memref<{m}x{k}xbf16>, memref<{n}x{k}xbf16>) "
        f"outs(%D : memref<{m}x{n}xbf16>) return }}",
        target="sm_90a", sync="mbarrier", stages=3, staging=64, **schedule,
    )  # fmt: skip
    rng = np.random.default_rng(size)
    a, b = (rng.standard_normal((rows, k)).astype(DTYPES["bf16"]) for rows in (m, n))
    d = np.full((m, n), np.nan, DTYPES["bf16"])
    (launch,) = kernel(a, b, d, device="interp", checks="all", report=True).reports
    expected = a.astype(float) @ b.astype(float).T
    assert (np.abs(d.astype(float) - expected) <= 2.0**-8 * np.abs(expected) + 2.0**-4).all()
    sectors = sum(access.sectors for access in launch.global_ if access.kind == "store")
    tiles = [-(-extent // step) * step for extent, step in zip((m, n), schedule["cta"][:2], strict=True)]
    assert sectors <= tiles[0] * tiles[1] // width * most


def default(target: str, types: str, size: int, *, filled: bool = False) -> int:
    (schedule,) = product((size, size, size), types, filled=filled, target=target).schedule
    assert schedule is not None
    return schedule.staging


def test_strips_by_default_where_they_pay() -> None:
    """Where lines are not filled, C is added to odd rows or stages leave no room, lanes store what they hold."""
    assert default("sm_90", "bf16 f32", 4096) == default("sm_90", "bf16 bf16", 4096) == 16
    assert default("sm_80", "bf16 bf16", 4096, filled=True) == default("sm_80", "bf16 f32", 4096) == 16
    assert default("sm_120a", "bf16 bf16", 4096) == 0
    assert default("sm_90", "f16 f32", 64) == 0
    assert default("sm_90", "bf16 bf16", 516) == default("sm_90", "bf16 f32", 518, filled=True) == 0
    assert default("sm_90", "bf16 bf16", 516, filled=True) == default("sm_80", "f16 f16", 516, filled=True) == 16


ERRORS = (
    ("f16 f32", {"staging": 24}, "staging must be 0 or a power of two that divides a warp tile's 32 rows, got 24"),
    ("f16 f32", {"staging": 64}, "staging must be 0 or a power of two that divides a warp tile's 32 rows, got 64"),
    ("f16 f32", {"staging": -16}, "staging must be 0 or a power of two that divides a warp tile's 32 rows, got -16"),
    ("f16 f32", {"staging": 8}, "staging must be a multiple of the 16 rows of a base tile, got 8"),
)


@pytest.mark.parametrize(("types", "schedule", "message"), ERRORS, ids=[message for _, _, message in ERRORS])
def test_errors(types: str, schedule: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=re.escape(message)):
        product((64, 64, 64), types, **TILES, **schedule)


def narrowed(schedule: dict[str, Any]) -> Kernel:
    """C = the sums' low bytes, of a product of 72x88x64."""
    a, b, total, narrow = "memref<72x64xi8>", "memref<64x88xi8>", "memref<72x88xi32>", "memref<72x88xi8>"
    same = "affine_map<(m, n) -> (m, n)>"
    text = f"""func.func @f(%A: {a}, %B: {b}, %C: {narrow}) {{
      %T = memref.alloc() : {total}
      %zero = arith.constant 0 : i32
      linalg.fill ins(%zero : i32) outs(%T : {total})
      linalg.matmul ins(%A, %B : {a}, {b}) outs(%T : {total})
      linalg.generic {{indexing_maps = [{same}, {same}], iterator_types = ["parallel", "parallel"]}}
        ins(%T : {total}) outs(%C : {narrow}) {{
      ^bb0(%x: i32, %old: i8):
        %y = arith.trunci %x : i32 to i8
        linalg.yield %y : i8
      }}
      return
    }}"""
    return compile(text, **schedule)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("schedule", [TILES | {"staging": 16}, TILES | {"staging": 32}, {}], ids=str)
def test_bytes_are_made_of_sums_that_changed_lanes(schedule: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((72, 64), (64, 88)))
    c = np.full((72, 88), -1, np.int8)
    narrowed(schedule)(a, b, c, device="interp", checks="all")
    np.testing.assert_array_equal(c, (a.astype(np.int32) @ b.astype(np.int32)).astype(np.int8))
