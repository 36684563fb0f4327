"""Elementwise operations that belong to no product: run on the interpreter with its checks, against numpy."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.passes.linalg.product import PTX_NAME
from warploom.passes.tile import elementwise_kernel
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import CompileError, Kernel, compile
from warploom.runtime.arguments.arrays import DTYPES
from warploom.runtime.plan import host
from warploom.runtime.reference import functions as reference

Array = NDArray[Any]

SHAPES = ((33, 17), (64, 128), (1, 5), (7, 1), (3, 5, 7), (2, 40, 64), (300,), (9, 2, 1, 4))
TYPES = ("f16", "f32", "f64", "i8", "i32", "bf16", "f8E4M3FN")


def memref(shape: tuple[int, ...], kind: str) -> str:
    return f"memref<{''.join(f'{size}x' for size in shape)}{kind}>"


def draw(shape: tuple[int, ...], kind: str = "f32", seed: int = 0) -> Array:
    values = np.random.default_rng([seed, *shape]).standard_normal(shape) * 10
    return np.asarray(values).astype(DTYPES[kind])


def poisoned(shape: tuple[int, ...], kind: str = "f32") -> Array:
    return np.full(shape, reference.poison(DTYPES[kind]), DTYPES[kind])


def check(text: str, *arrays: Any, launches: int | None = None, **options: Any) -> Kernel:
    """Runs a function and holds every array that it writes against its float64 reference."""
    kernel = compile(text, **options)
    function = host.choose(parse_mlir(make_context(), text), kernel.function.name)
    exact = reference.evaluate(function, [np.asarray(array) for array in arrays])
    kernel(*arrays, device="interp", checks="all")
    for position in kernel.function.written:
        comparison = reference.compare(exact[position], arrays[position])
        assert comparison.ok, (kernel.function.parameters[position].name, comparison)
    assert launches is None or len(kernel.launches) == launches
    return kernel


@pytest.mark.sampled(12)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_copies_of_every_type(shape: tuple[int, ...]) -> None:
    for kind in TYPES:
        memory = memref(shape, kind)
        x, y = draw(shape, kind), poisoned(shape, kind)
        compile(f"""func.func @f(%X: {memory}, %Y: {memory}) {{
          linalg.copy ins(%X : {memory}) outs(%Y : {memory}) return }}""")(x, y, device="interp", checks="all")
        np.testing.assert_array_equal(x, y)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("shape", [(33, 17), (64, 128), (1, 40), (40, 1)], ids=str)
def test_transposes_of_every_type(shape: tuple[int, int]) -> None:
    for kind in TYPES:
        source, target = memref(shape, kind), memref(shape[::-1], kind)
        x, y = draw(shape, kind), poisoned(shape[::-1], kind)
        compile(f"""func.func @f(%X: {source}, %Y: {target}) {{
          linalg.transpose ins(%X : {source}) outs(%Y : {target}) permutation = [1, 0] return }}""")(
            x, y, device="interp", checks="all"
        )
        np.testing.assert_array_equal(x.T, y)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("shape", "moved", "loads", "stores"),
    [
        ((72, 104), "movmatrix", "v4.b32", "v4.b32"),
        ((66, 104), "st.shared", "v4.b32", "b32"),
        ((72, 66), "st.shared", "b32", "b32"),
        ((33, 41), "st.shared", "b16", "b16"),
        ((20, 64), "", "b16", "v2.b32"),
        ((131, 77), "st.shared", "b16", "b16"),
    ],
    ids=str,
)
def test_elements_of_16_bits_are_transposed_through_registers_or_shared_memory(
    shape: tuple[int, int], moved: str, loads: str, stores: str
) -> None:
    """By accesses as wide as each side allows."""
    source, target = memref(shape, "f16"), memref(shape[::-1], "f16")
    x, y = draw(shape, "f16"), poisoned(shape[::-1], "f16")
    kernel = compile(f"""func.func @f(%X: {source}, %Y: {target}) {{
      linalg.transpose ins(%X : {source}) outs(%Y : {target}) permutation = [1, 0] return }}""")
    kernel(x, y, device="interp", checks="all")
    np.testing.assert_array_equal(x.T, y)
    assert {*re.findall(r"    (movmatrix|shfl\.sync|st\.shared)\.", kernel.ptx)} == {*filter(None, [moved])}
    assert {*re.findall(r"ld\.global\.(\S+)", kernel.ptx)} == {loads}
    assert {*re.findall(r"st\.global\.(\S+)", kernel.ptx)} == {stores}


@pytest.mark.parametrize(
    ("shape", "permutation", "ends"),
    [
        ((802, 72), (1, 0), "b32"),
        ((777, 65), (1, 0), "b16"),
        ((1000, 67), (1, 0), "b32"),
        ((2, 786, 72), (0, 2, 1), "b32"),
        ((770, 2, 64), (1, 2, 0), "b32"),
    ],
    ids=str,
)
def test_long_rows_that_begin_anywhere_are_stored_by_whole_sectors(
    shape: tuple[int, ...], permutation: tuple[int, ...], ends: str
) -> None:
    """But at their ends; of two matrices that are added, too."""
    turned = tuple(shape[d] for d in permutation)
    source, target, loops = memref(shape, "f16"), memref(turned, "f16"), ", ".join("ijk"[: len(shape)])
    along = ", ".join("ijk"[permutation.index(d)] for d in range(len(shape)))
    x, z, y = draw(shape, "f16"), draw(shape, "f16"), poisoned(turned, "f16")
    kernel = compile(f"""func.func @f(%X: {source}, %Z: {source}, %Y: {target}) {{
      linalg.generic {{indexing_maps = [affine_map<({loops}) -> ({along})>, affine_map<({loops}) -> ({along})>,
                                       affine_map<({loops}) -> ({loops})>],
                      iterator_types = [{", ".join(['"parallel"'] * len(shape))}]}}
      ins(%X, %Z : {source}, {source}) outs(%Y : {target}) {{
      ^bb0(%x: f16, %z: f16, %y: f16):
        %r = arith.addf %x, %z : f16
        linalg.yield %r : f16
      }}
      return }}""")
    kernel(x, z, y, device="interp", checks="all")
    np.testing.assert_array_equal(y, (x + z).transpose(permutation))
    assert {*re.findall(r"st\.global\.(\S+)", kernel.ptx)} == {"v2.b32", ends}


def test_large_matrices_are_transposed_through_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although `movmatrix` could: the rows of this one begin within sectors. Smaller ones are as before."""
    source, target = memref((1032, 72), "f16"), memref((72, 1032), "f16")
    text = f"""func.func @f(%X: {source}, %Y: {target}) {{
      linalg.transpose ins(%X : {source}) outs(%Y : {target}) permutation = [1, 0] return }}"""
    assert "movmatrix" in compile(text, cache=False).ptx
    monkeypatch.setattr(elementwise_kernel, "LARGE", 1032 * 72)
    kernel = compile(text, cache=False)
    x, y = draw((1032, 72), "f16"), poisoned((72, 1032), "f16")
    kernel(x, y, device="interp", checks="all")
    np.testing.assert_array_equal(x.T, y)
    assert "movmatrix" not in kernel.ptx
    assert "st.global.v2.b32" in kernel.ptx


@pytest.mark.parametrize("permutation", [(0, 2, 1), (1, 0, 2), (2, 0, 1), (2, 1, 0)], ids=str)
def test_permutations(permutation: tuple[int, ...]) -> None:
    shape = (5, 6, 35)
    turned = tuple(shape[d] for d in permutation)
    source, target = memref(shape, "f16"), memref(turned, "f16")
    x, y = draw(shape, "f16"), poisoned(turned, "f16")
    compile(f"""func.func @f(%X: {source}, %Y: {target}) {{ linalg.transpose
      ins(%X : {source}) outs(%Y : {target}) permutation = [{", ".join(map(str, permutation))}] return }}""")(
        x, y, device="interp", checks="all"
    )
    np.testing.assert_array_equal(x.transpose(permutation), y)


@pytest.mark.parametrize(("rows", "tile"), [(32, "8x32"), (64, "16x32")])
def test_every_warp_has_elements_of_a_small_plane(rows: int, tile: str) -> None:
    """Of 32 columns: lanes have less of a row before a warp has nothing."""
    kernel = compile(f"""func.func @f(%X: memref<3x{rows}x32xf16>, %C: memref<3x32xf16>, %Y: memref<3x{rows}x32xf16>) {{
      linalg.generic {{indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>, affine_map<(a, b, c) -> (a, c)>,
                                       affine_map<(a, b, c) -> (a, b, c)>],
                      iterator_types = ["parallel", "parallel", "parallel"]}}
      ins(%X, %C : memref<3x{rows}x32xf16>, memref<3x32xf16>) outs(%Y : memref<3x{rows}x32xf16>) {{
      ^bb0(%x: f16, %c: f16, %y: f16):
        %r = arith.addf %x, %c : f16
        linalg.yield %r : f16
      }}
      return }}""")
    assert f"tiles of {tile} for each warp" in kernel.ptx
    x, c, y = draw((3, rows, 32), "f16"), draw((3, 32), "f16"), poisoned((3, rows, 32), "f16")
    kernel(x, c, y, device="interp", checks="all")
    np.testing.assert_array_equal(y, x + c[:, None])


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("shape", "moved"), [((2, 48, 80), 48), ((1, 33, 32), 12), ((1, 160, 72), 12)], ids=str)
def test_bytes_are_transposed_within_lanes(shape: tuple[int, int, int], moved: int) -> None:
    """Where rows of both sides are whole units of 16 bytes; elsewhere bytes are only put together to words."""
    source, target = memref(shape, "i8"), memref((shape[0], *shape[:0:-1]), "i8")
    x, y = draw(shape, "i8"), poisoned((shape[0], *shape[:0:-1]), "i8")
    kernel = compile(
        f"""func.func @f(%X: {source}, %Y: {target}) {{
      linalg.transpose ins(%X : {source}) outs(%Y : {target}) permutation = [0, 2, 1] return }}""",
        "sm_90a",
    )
    kernel(x, y, device="interp", checks="all")
    np.testing.assert_array_equal(x.transpose(0, 2, 1), y)
    assert kernel.ptx.count("prmt.b32") == moved


def test_integers_of_either_sign() -> None:
    text = """func.func @f(%X: memref<33x17xi8>, %Z: memref<33x17xi8>, %Y: memref<33x17xi32>) {
      linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>,
                      affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
        ins(%X, %Z : memref<33x17xi8>, memref<33x17xi8>) outs(%Y : memref<33x17xi32>) {
      ^bb0(%x: i8, %z: i8, %old: i32):
        %0 = arith.extsi %x : i8 to i32
        %1 = arith.extui %z : i8 to i32
        %2 = arith.muli %0, %1 : i32
        linalg.yield %2 : i32
      } return }"""
    x, z = (np.random.default_rng(i).integers(-128, 128, (33, 17), np.int8) for i in range(2))
    y = poisoned((33, 17), "i32")
    compile(text)(x, z, y, device="interp", checks="all")
    np.testing.assert_array_equal(y, x.astype(np.int32) * z.view(np.uint8))


@pytest.mark.parametrize(("extend", "dtype"), [("extui i8", "u1"), ("extui i16", "u2"), ("extsi i16", "i2")])
def test_integers_keep_their_low_bits(extend: str, dtype: str) -> None:
    (name, kind), memory = extend.split(), memref((5, 9), "i32")
    text = f"""func.func @f(%X: {memory}, %Y: {memory}) {{
      linalg.generic {{indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>],
                      iterator_types = ["parallel", "parallel"]}} ins(%X : {memory}) outs(%Y : {memory}) {{
      ^bb0(%x: i32, %old: i32):
        %0 = arith.trunci %x : i32 to {kind}
        %1 = arith.muli %0, %0 : {kind}
        %2 = arith.{name} %1 : {kind} to i32
        linalg.yield %2 : i32
      }}
      return
    }}"""
    x, y = np.random.default_rng(0).integers(-(2**31), 2**31, (5, 9)).astype(np.int32), poisoned((5, 9), "i32")
    compile(text)(x, y, device="interp", checks="all")
    np.testing.assert_array_equal(y, x.astype(dtype) * x.astype(dtype))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("x", "y"), [("%E_0", "%E_1"), ("%E", "%E_size0"), ("%a.b", "%a-b")])
def test_names_that_are_one_in_ptx(x: str, y: str) -> None:
    """MLIR's values may share a name but for the number behind it, may be called as a size is in PTX, and have `.`."""
    body = f"""func.func @f({x}: memref<?x9xf32>, {y}: memref<9xf16>, %Y: memref<?x9xf32>) {{
      linalg.generic {{indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>,
          affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}}
          ins({x}, {y} : memref<?x9xf32>, memref<9xf16>) outs(%Y : memref<?x9xf32>) {{
      ^bb0(%e: f32, %v: f16, %old: f32):
        %0 = arith.extf %v : f16 to f32
        %1 = arith.addf %e, %0 : f32
        linalg.yield %1 : f32
      }}
      return
    }}"""
    a, b, c = draw((5, 9)), draw((9,), "f16"), poisoned((5, 9))
    kernel = compile(body)
    kernel(a, b, c, device="interp", checks="all")
    np.testing.assert_array_equal(c, a + b)
    names = re.findall(r"\.param .* ([\w$.-]+)[,\n]", kernel.ptx)
    assert len(names) == len(set(names)) == 5
    assert all(PTX_NAME.fullmatch(name) for name in names)


def test_fills() -> None:
    text = """func.func @f(%A: memref<33x17xf16>, %B: memref<5x7x3xi8>, %C: memref<64xf8E5M2>, %s: f32,
                           %D: memref<9x6xf32>, %E: memref<12x12xbf16>) {
      %half = arith.constant -1.5 : f16
      %seven = arith.constant 7 : i8
      %eighth = arith.constant 0.125 : f8E5M2
      %third = arith.constant 0.1 : f32
      linalg.fill ins(%half : f16) outs(%A : memref<33x17xf16>)
      linalg.fill ins(%seven : i8) outs(%B : memref<5x7x3xi8>)
      linalg.fill ins(%eighth : f8E5M2) outs(%C : memref<64xf8E5M2>)
      linalg.fill ins(%s : f32) outs(%D : memref<9x6xf32>)
      linalg.fill ins(%third : f32) outs(%E : memref<12x12xbf16>)
      return
    }"""
    a, b, c = poisoned((33, 17), "f16"), poisoned((5, 7, 3), "i8"), poisoned((64,), "f8E5M2")
    d, e = poisoned((9, 6)), poisoned((12, 12), "bf16")
    kernel = compile(text)
    assert kernel.function.filled == {0, 1, 2, 4, 5}
    kernel(a, b, c, 2.5, d, e, device="interp", checks="all")
    for array, value in ((a, -1.5), (b, 7), (c, 0.125), (d, 2.5), (e, ml_dtypes.bfloat16(0.1))):
        assert (array == array.dtype.type(value)).all()


def generic(maps: str, loops: str, kinds: str, shapes: list[tuple[int, ...]], body: str) -> str:
    """A `linalg.generic` from inputs to the last memory; `maps` are the loops of each, as in "mn,n->mn"; 0 for one that
    is always 0."""
    names = maps.replace("->", ",").split(",")
    memories = [memref(shape, kind) for shape, kind in zip(shapes, kinds.split(), strict=True)]
    spelled = ", ".join(f"affine_map<({', '.join(loops)}) -> ({', '.join(each)})>" for each in names)
    arguments = ", ".join(f"%x{i}: {memory}" for i, memory in enumerate(memories))
    elements = ", ".join(f"%e{i}: {kind}" for i, kind in enumerate(kinds.split()))
    inputs = f"ins({', '.join(f'%x{i}' for i in range(len(names) - 1))} : {', '.join(memories[:-1])})"
    iterators = ", ".join('"parallel"' for _ in loops)
    return f"""func.func @f({arguments}) {{
      linalg.generic {{indexing_maps = [{spelled}], iterator_types = [{iterators}]}}
        {inputs if len(names) > 1 else ""} outs(%x{len(names) - 1} : {memories[-1]}) {{ ^bb0({elements}): {body} }}
      return }}"""


SUM = """%0 = arith.mulf %e0, %e1 : f32
         %1 = arith.addf %0, %e2 : f32
         linalg.yield %1 : f32"""


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "maps",
    [
        "mn,n,m->mn",
        "mn,nm,m->mn",
        "nm,nm,->mn",
        "n,m,->mn",
        ",,->mn",
        "mn,mn,mn->mn",
        "mn,mn,nm->nm",
        "0n,m0,00->mn",
        "bmn,bn,mb->bmn",
        "bnm,b,mnb->bmn",
        "nbm,bm,n->bmn",
        "b,b,b->b",
    ],
)
def test_maps(maps: str) -> None:
    sizes = {"b": 3, "m": 21, "n": 40, "0": 1}
    names = maps.replace("->", ",").split(",")
    loops = "".join(sorted(set("".join(names)) - {"0"}))
    shapes = [tuple(sizes[loop] for loop in each) for each in names]
    arrays = [draw(shape, seed=i) for i, shape in enumerate(shapes[:-1])]
    text = generic(maps, loops, "f32 f32 f32 f32", shapes, SUM)
    check(text, *arrays, poisoned(shapes[-1]), launches=1)


def test_types_meet() -> None:
    body = """%0 = arith.extf %e0 : f16 to f32
      %1 = arith.sitofp %e1 : i8 to f32
      %2 = arith.mulf %0, %1 : f32
      %3 = math.tanh %2 : f32
      %4 = arith.truncf %3 : f32 to bf16
      linalg.yield %4 : bf16"""
    for n in (40, 41):
        shapes = [(37, n), (n, 37), (37, n)]
        text = generic("mn,nm->mn", "mn", "f16 i8 bf16", shapes, body)
        check(text, draw(shapes[0], "f16"), draw(shapes[1], "i8"), poisoned(shapes[2], "bf16"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "source", "kind", "values"),
    [
        ("sitofp", "i32", "f16", [2049, 2051, -(2**24) - 2**13 - 1, 65519, 65520, -(2**31)]),
        ("uitofp", "i32", "f16", [2049, 2051, 65519, 65520, -1, -(2**31)]),
        ("sitofp", "i32", "bf16", [2**24 + 2**16 + 1, -(2**30) - 2**22 - 1, 2**31 - 1, 257, -(2**31), 3]),
        ("uitofp", "i32", "bf16", [2**31 - 2**30 + 2**22 + 1, -1, -(2**31), 257, 259, 3]),
        ("truncf", "f64", "bf16", [1 + 2**-8 + 2**-40, 1 + 2**-8, -1 - 2**-8 - 2**-50, 3.39e38, np.inf, np.nan]),
        ("truncf", "f64", "f16", [1 + 2**-11 + 2**-40, 65519.999999, 65520.0, 2**-25 + 2**-60, np.inf, np.nan]),
    ],
    ids=str,
)
def test_sixteen_bits_are_rounded_once(name: str, source: str, kind: str, values: list[float]) -> None:
    """By way of f32, halfway cases would be rounded twice."""
    body = f"%0 = arith.{name} %e0 : {source} to {kind}\nlinalg.yield %0 : {kind}"
    x, y = np.array([values], DTYPES[source]), poisoned((1, 6), kind)
    compile(generic("mn->mn", "mn", f"{source} {kind}", [x.shape, y.shape], body))(x, y, device="interp")
    read = [Fraction(v) if np.isfinite(v) else v for v in x.ravel().tolist()]
    if name == "uitofp":
        read = [v % 2**32 for v in read]
    np.testing.assert_array_equal(y.astype(np.float64).ravel(), [nearest(v, kind) for v in read])


def nearest(value: Fraction | float, kind: str) -> float:
    """A number rounded to nearest even, by comparing it with all finite numbers of a type of 16 bits."""
    if isinstance(value, float):
        return value
    words = np.arange(1 << 16, dtype=np.uint16).view(DTYPES[kind]).astype(np.float64)
    numbers = np.unique(words[np.isfinite(words)])
    beyond = 2 * numbers[-1] - numbers[-2]
    at = int(np.clip(np.searchsorted(numbers, float(value)), 1, len(numbers) - 1))
    near = [*numbers[max(at - 2, 0) : at + 2], beyond, -beyond]
    even = {float(n): int(np.array(n).astype(DTYPES[kind]).view(np.uint16)) % 2 for n in near if abs(n) < beyond}
    best = min(near, key=lambda n: (abs(Fraction(float(n)) - value), even.get(float(n), 0)))
    return float(best) if abs(best) < beyond else float(np.copysign(np.inf, best))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("n", [40, 3])
@pytest.mark.parametrize("kind", ["f8E4M3FN", "f8E5M2", "f8E8M0FNU"])
def test_every_number_of_eight_bits_is_read(kind: str, n: int) -> None:
    """As it is, and transposed, with NaN and infinities, rounded to f16; on rows that fill no register too."""
    x = np.resize(np.arange(256, dtype=np.uint8), (100, n)).view(DTYPES[kind])
    for maps, t in (("mn->mn", x), ("nm->mn", np.ascontiguousarray(x.T))):
        y = poisoned((100, n), "f16")
        body = f"%0 = arith.extf %e0 : {kind} to f16\nlinalg.yield %0 : f16"
        compile(generic(maps, "mn", f"{kind} f16", [t.shape, y.shape], body))(t, y, device="interp", checks="all")
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(y, x.astype(np.float32).astype(np.float16))
    wide, body = poisoned((100, n), "f64"), f"%0 = arith.extf %e0 : {kind} to f64\nlinalg.yield %0 : f64"
    compile(generic("mn->mn", "mn", f"{kind} f64", [x.shape, x.shape], body))(x, wide, device="interp")
    np.testing.assert_array_equal(wide, x.astype(np.float64))


def test_the_old_elements_are_read_where_they_are_used() -> None:
    body = "%0 = arith.addi %e0, %e1 : i32 linalg.yield %0 : i32"
    x, y = draw((23, 29), "i32"), draw((23, 29), "i32", 1)
    expected = x + y
    check(generic("mn->mn", "mn", "i32 i32", [(23, 29), (23, 29)], body), x, y)
    np.testing.assert_array_equal(y, expected)


def test_accesses_are_as_wide_as_memory_allows() -> None:
    body = "%0 = arith.extf %e0 : f16 to f32 %1 = arith.addf %0, %e1 : f32 linalg.yield %1 : f32"
    aligned = compile(generic("mn,n->mn", "mn", "f16 f32 f32", [(64, 128), (128,), (64, 128)], body)).ptx
    assert "ld.global.v2.b32" in aligned  # four of 16 bits: as many as one access of what is stored takes
    assert "ld.global.v4.f32" in aligned
    assert "st.global.v4.f32" in aligned
    assert "// linalg.generic, tiles of" in aligned
    assert "@%p" not in aligned
    odd = compile(generic("mn->mn", "mn", "f32 f32", [(33, 17), (33, 17)], "linalg.yield %e0 : f32")).ptx
    assert ".v2." not in odd


STRIDED = """func.func @f(%X: memref<9x12xf32, strided<[15, 1], offset: 3>>, %Y: memref<9x12xf32, strided<[2, 20]>>) {
  linalg.copy ins(%X : memref<9x12xf32, strided<[15, 1], offset: 3>>) outs(%Y : memref<9x12xf32, strided<[2, 20]>>)
  return
}"""


def test_strides_of_all_kinds_and_nothing_beside_them() -> None:
    memory = np.full(9 * 15 + 3, np.nan, np.float32)
    x: Array = np.ndarray((9, 12), np.float32, memory.data, 12, (60, 4))
    x[...] = draw((9, 12))
    scratch = np.full(12 * 20, np.nan, np.float32)
    y: Array = np.ndarray((9, 12), np.float32, scratch.data, 0, (8, 80))
    compile(STRIDED)(x, y, device="interp", checks="all")
    np.testing.assert_array_equal(x, y)
    assert np.isnan(scratch).sum() == scratch.size - y.size


@pytest.mark.sampled(2)
@pytest.mark.parametrize("divisor", [1, 8])
def test_sizes_that_only_the_caller_knows(divisor: int) -> None:
    attribute = f" {{warp.divisible = {divisor} : i64}}"
    kinds = ("memref<?x?xf16>", "memref<?xf16>", "memref<?x?xf32, strided<[?, 1], offset: ?>>")
    text = f"""func.func @f(%X: {kinds[0]}{attribute}, %v: {kinds[1]}{attribute}, %Y: {kinds[2]}{attribute}) {{
      linalg.generic {{indexing_maps = [affine_map<(m, n) -> (n, m)>, affine_map<(m, n) -> (n)>,
                                        affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}}
        ins(%X, %v : {kinds[0]}, {kinds[1]}) outs(%Y : {kinds[2]}) {{
      ^bb0(%a: f16, %b: f16, %old: f32):
        %0 = arith.subf %a, %b : f16
        %1 = arith.extf %0 : f16 to f32
        linalg.yield %1 : f32
      }} return }}"""
    kernel = compile(text)
    assert ("st.global.v4" in kernel.ptx) == (divisor == 8)
    for m, n in ((40, 24), (8, 200), (0, 8)):
        x, v, y = draw((n, m), "f16"), draw((n,), "f16"), poisoned((m, n))
        kernel(x, v, y, device="interp")
        np.testing.assert_array_equal(y, (x.T - v).astype(np.float32))


CHAIN = """
#mn = affine_map<(m, n) -> (m, n)>
#nm = affine_map<(m, n) -> (n, m)>
func.func @f(%A: memref<20x24xf32>, %B: memref<24x33xbf16>, %D: memref<20x9xbf16>, %T: memref<20x33xf32>,
             %C: memref<33x9xf32>) {
  %z = arith.constant 0.0 : f32
  %narrow = memref.alloc() : memref<20x24xbf16>
  linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%A : memref<20x24xf32>) outs(%narrow : memref<20x24xbf16>) {
  ^bb0(%x: f32, %old: bf16):
    %0 = arith.maximumf %x, %z : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  }
  linalg.fill ins(%z : f32) outs(%T : memref<20x33xf32>)
  linalg.matmul ins(%narrow, %B : memref<20x24xbf16>, memref<24x33xbf16>) outs(%T : memref<20x33xf32>)
  %turned = memref.alloc() : memref<33x20xbf16>
  linalg.generic {indexing_maps = [#nm, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%T : memref<20x33xf32>) outs(%turned : memref<33x20xbf16>) {
  ^bb0(%x: f32, %old: bf16):
    %0 = arith.negf %x : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  }
  linalg.fill ins(%z : f32) outs(%C : memref<33x9xf32>)
  linalg.matmul ins(%turned, %D : memref<33x20xbf16>, memref<20x9xbf16>) outs(%C : memref<33x9xf32>)
  memref.dealloc %turned : memref<33x20xbf16>
  return
}"""


def test_before_between_and_after_products() -> None:
    arrays = [draw((20, 24)), draw((24, 33), "bf16"), draw((20, 9), "bf16")]
    kernel = check(CHAIN, *arrays, poisoned((20, 33)), poisoned((33, 9)), launches=4)
    assert [launch.kernel for launch in kernel.launches] == ["f", "f_1", "f_2", "f_3"]


HEAD = "func.func @f(%X: memref<4x4xf32>, %Y: memref<4x4xf32>, %Z: memref<4x4xi4>) {\n"
MAPS = '{indexing_maps = [affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}'  # noqa: E501


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            f"linalg.generic {MAPS} ins(%Y : memref<4x4xf32>) outs(%Y : memref<4x4xf32>) {{\n"
            "^bb0(%a: f32, %b: f32): linalg.yield %a : f32 }",
            r":2:\d+: error: linalg.generic reads its own output in another order than it writes it",
        ),
        (
            "%z = arith.constant 1 : i4 linalg.fill ins(%z : i4) outs(%Z : memref<4x4xi4>)",
            r":2:\d+: error: linalg.fill on elements of i4 has no kernel of its own; floats of 8, 16, 32 and 64 bits, "
            "and integers of 8 and 32 bits have",
        ),
        (
            "%z = arith.constant 1 : i32 linalg.fill ins(%z : i32) outs(%Y : memref<4x4xf32>)",
            r":2:\d+: error: linalg.fill from i32 to f32 is not lowered",
        ),
    ],
)
def test_what_is_refused(body: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        compile(HEAD + body + "\nreturn }")


@pytest.mark.parametrize("name", ["maximumf", "minimumf", "maxnumf", "minnumf"])
def test_extremes_of_doubles(name: str) -> None:
    """NaN is kept by maximumf and minimumf alone, which know the sign of zero too."""
    kind = "memref<8x64xf64>"
    text = f"""func.func @f(%A: {kind}, %B: {kind}, %C: {kind}) {{
      linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>,
          affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}}
          ins(%A, %B : {kind}, {kind}) outs(%C : {kind}) {{
      ^bb0(%a: f64, %b: f64, %c: f64):
        %0 = arith.{name} %a, %b : f64
        linalg.yield %0 : f64
      }}
      return }}"""
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 5e-324, -1e300])
    a, b = np.repeat(special, 64).reshape(8, 64), np.tile(special, 64).reshape(8, 64)
    c = np.full((8, 64), 7.0)
    compile(text, target="sm_80", cache=False)(a, b, c, device="interp")
    choose = {"maximumf": np.maximum, "minimumf": np.minimum, "maxnumf": np.fmax, "minnumf": np.fmin}[name]
    np.testing.assert_array_equal(c, choose(a, b))
    if name.endswith("imumf"):
        zeros = (a == 0) & (b == 0)
        either, both = np.signbit(a) | np.signbit(b), np.signbit(a) & np.signbit(b)
        wanted = both if name == "maximumf" else either
        np.testing.assert_array_equal(np.signbit(c)[zeros], wanted[zeros])
