"""Every way to write a product, from MLIR to what the interpreter leaves in memory, against numpy in float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from warploom.dialect.ptx.ops import print_ptx
from warploom.dialect.ptx.printer import ptx_module
from warploom.passes.pipeline import lower, standard_pipeline
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import ArgumentError, HostError, Kernel, compile
from warploom.runtime.numerics.floats import Array
from warploom.runtime.plan import host
from warploom.runtime.reference import functions as reference

SIZES = ((33, 17, 45), (16, 8, 16), (1, 1, 1), (70, 40, 0), (5, 130, 7))
"""(m, n, k), odd ones and an empty sum."""


def fresh(*shape: int, seed: int = 0, dtype: object = np.float16) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)  # pyright: ignore[reportCallIssue, reportArgumentType]


def check(kernel: Kernel, text: str, *arrays: Array, expected: Array, output: int = -1) -> None:
    """Runs the kernel: the output must be `expected` within the bound of f32 accumulation, and within that of the
    float64 reference."""
    exact = reference.evaluate(host.choose(parse_mlir(make_context(), text), kernel.function.name), arrays)
    kernel(*arrays, device="interp")
    result = arrays[output]
    np.testing.assert_allclose(result, expected, rtol=1e-3 if result.dtype == np.float16 else 1e-4, atol=1e-3)
    comparison = reference.compare(exact[range(len(arrays))[output]], result)
    assert comparison.ok, comparison


def double(array: Array) -> Array:
    return array.astype(np.float64)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", ["matmul_transpose_a", "matmul_transpose_b"])
def test_transposed_names(name: str, size: tuple[int, int, int]) -> None:
    m, n, k = size
    turned_a = name.endswith("a")
    a, b = fresh(*((k, m) if turned_a else (m, k)), seed=1), fresh(*((k, n) if turned_a else (n, k)), seed=2)
    c = fresh(m, n, seed=3, dtype=np.float32)
    types = [f"memref<{x.shape[0]}x{x.shape[1]}xf16>" for x in (a, b)]
    text = f"""func.func @f(%A: {types[0]}, %B: {types[1]}, %C: memref<{m}x{n}xf32>) {{
      linalg.{name} ins(%A, %B : {", ".join(types)}) outs(%C : memref<{m}x{n}xf32>) return }}"""
    expected = double(c) + (double(a).T @ double(b) if turned_a else double(a) @ double(b).T)
    check(compile(text), text, a, b, c, expected=expected)


TWO = """
func.func @first(%A: memref<20x24xf16>, %B: memref<24x12xf16>, %C: memref<20x12xf32>) {
  linalg.matmul ins(%A, %B : memref<20x24xf16>, memref<24x12xf16>) outs(%C : memref<20x12xf32>)
  return
}
func.func @second(%A: memref<20x24xf16>, %B: memref<24x24xf16>, %T: memref<20x24xf16>, %C: memref<20x24xf16>) {
  %z = arith.constant 0.0 : f16
  linalg.fill ins(%z : f16) outs(%T : memref<20x24xf16>)
  linalg.matmul ins(%A, %B : memref<20x24xf16>, memref<24x24xf16>) outs(%T : memref<20x24xf16>)
  linalg.matmul_transpose_b ins(%T, %B : memref<20x24xf16>, memref<24x24xf16>) outs(%C : memref<20x24xf16>)
  return
}
"""


def test_one_function_of_several() -> None:
    kernel = compile(TWO, name="first")
    a, b, c = fresh(20, 24), fresh(24, 12), fresh(20, 12, dtype=np.float32)
    check(kernel, TWO, a, b, c, expected=double(c) + double(a) @ double(b))
    with pytest.raises(HostError, match=r"got 2 \(@first, @second\); name one"):
        compile(TWO)


def test_several_products_in_one_function() -> None:
    kernel = compile(TWO, name="second")
    assert [launch.kernel for launch in kernel.launches] == ["second", "second_1"]
    a, b, t, c = fresh(20, 24), fresh(24, 24), np.full((20, 24), np.nan, np.float16), fresh(20, 24, seed=4)
    first = (double(a) @ double(b)).astype(np.float16)
    before = c.copy()
    kernel(a, b, t, c, device="interp")
    np.testing.assert_allclose(t, first, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(c, double(before) + double(t) @ double(b).T, rtol=1e-3, atol=5e-2)


def test_the_kernels_of_all_functions_are_in_one_module() -> None:
    ctx = make_context()
    module = parse_mlir(ctx, TWO)
    lower(module, ctx, standard_pipeline("sm_90a"))
    text = print_ptx(ptx_module(module))
    assert [text.count(f".entry {name}(") for name in ("first", "second", "second_1")] == [1, 1, 1]


# Batches


@dataclass(frozen=True)
class Batch:
    """A batched product: its name in `linalg`, and the loops along the dimensions of A and B."""

    name: str
    a: str
    b: str

    def text(self, sizes: dict[str, int]) -> str:
        shapes = ["x".join(str(sizes[loop]) for loop in loops) for loops in (self.a, self.b, "bmn")]
        a, b, c = (f"memref<{shape}x{kind}>" for shape, kind in zip(shapes, ("f16", "f16", "f32"), strict=True))
        maps = ", ".join(f"affine_map<(b, m, n, k) -> ({', '.join(loops)})>" for loops in (self.a, self.b, "bmn"))
        indexing = "" if "_transpose" in self.name else f"indexing_maps = [{maps}]"
        return f"""func.func @f(%A: {a}, %B: {b}, %C: {c}) {{
          linalg.{self.name} {indexing} ins(%A, %B : {a}, {b}) outs(%C : {c}) return }}"""


BATCHES = (
    Batch("batch_matmul", "bmk", "bkn"),
    Batch("batch_matmul_transpose_a", "bkm", "bkn"),
    Batch("batch_matmul_transpose_b", "bmk", "bnk"),
    Batch("batch_matmul", "bkm", "nk"),
    Batch("batch_matmul", "mk", "bkn"),
)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("size", [(3, 33, 17, 45), (1, 16, 8, 16), (5, 4, 3, 0), (2, 40, 136, 24)], ids=str)
@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_batches(batch: Batch, size: tuple[int, int, int, int]) -> None:
    sizes = dict(zip("bmnk", size, strict=True))
    a, b = (fresh(*(sizes[loop] for loop in loops), seed=i) for i, loops in enumerate((batch.a, batch.b)))
    c = fresh(*size[:3], seed=3, dtype=np.float32)
    expected = double(c) + np.einsum(f"{batch.a},{batch.b}->bmn", double(a), double(b))
    text = batch.text(sizes)
    check(compile(text), text, a, b, c, expected=expected)


# Views


def view(array: Array, strides: tuple[int, ...], offset: int = 0) -> Array:
    """A copy of an array with these strides in elements, in the midst of NaNs that nobody may read."""
    extent = offset + 1 + sum((n - 1) * s for n, s in zip(array.shape, strides, strict=True))
    memory = np.full(extent + 64, np.nan, array.dtype)
    view: Array = np.ndarray(array.shape, array.dtype, memory.data, offset * array.itemsize,
                             [s * array.itemsize for s in strides])  # fmt: skip
    view[...] = array
    return view


Place = tuple[tuple[int, int], int]

VIEWS: tuple[tuple[Place, Place, Place], ...] = (
    (((48, 1), 0), ((24, 1), 0), ((32, 1), 0)),
    (((51, 1), 3), ((17, 1), 8), ((19, 1), 1)),
    (((1, 40), 0), ((1, 45), 0), ((17, 1), 0)),
    (((45, 1), 0), ((1, 56), 16), ((1, 33), 0)),
    (((1, 33), 5), ((17, 1), 0), ((1, 37), 2)),
)
"""(strides, offset) of A, B and C in elements."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("places", VIEWS, ids=str)
def test_strided_operands(places: tuple[Place, Place, Place]) -> None:
    m, n, k = 33, 17, 45
    arrays = [fresh(m, k, seed=1), fresh(k, n, seed=2), fresh(m, n, seed=3, dtype=np.float32)]
    kinds: list[str] = []
    for array, (strides, offset) in zip(arrays, places, strict=True):
        element = "f16" if array.dtype == np.float16 else "f32"
        shape = "x".join(map(str, array.shape))
        kinds.append(f"memref<{shape}x{element}, strided<[{strides[0]}, {strides[1]}], offset: {offset}>>")
    text = f"""func.func @f(%A: {kinds[0]}, %B: {kinds[1]}, %C: {kinds[2]}) {{
      linalg.matmul ins(%A, %B : {kinds[0]}, {kinds[1]}) outs(%C : {kinds[2]}) return }}"""
    a, b, c = (view(array, *place) for array, place in zip(arrays, places, strict=True))
    expected = double(c) + double(a) @ double(b)
    check(compile(text), text, a, b, c, expected=expected)
    memory = np.asarray(c.base)
    assert np.isnan(memory).sum() == memory.size - c.size


def test_a_batch_of_strided_matrices_in_any_order() -> None:
    kinds = ("memref<33x3x45xf16, strided<[141, 47, 1]>>", "memref<45x3x17xf16>", "memref<3x33x17xf32>")
    maps = "affine_map<(b, m, n, k) -> (m, b, k)>, affine_map<(b, m, n, k) -> (k, b, n)>, affine_map<(b, m, n, k) -> (b, m, n)>"  # noqa: E501
    text = f"""func.func @f(%A: {kinds[0]}, %B: {kinds[1]}, %C: {kinds[2]}) {{
      warp.matmul f16 x f16 %A, %B plus %C into %C maps [{maps}] : {", ".join(kinds)} plus {kinds[2]} return }}"""
    a, b = view(fresh(33, 3, 45), (141, 47, 1)), fresh(45, 3, 17, seed=2)
    c = fresh(3, 33, 17, dtype=np.float32)
    expected = double(c) + np.einsum("mbk,kbn->bmn", double(a), double(b))
    compile(text)(a, b, c, device="interp")
    np.testing.assert_allclose(c, expected, rtol=1e-4, atol=1e-3)


def test_arguments_lie_as_their_types_say() -> None:
    kind = "memref<8x8xf16, strided<[16, 1]>>"
    text = f"""func.func @f(%A: {kind}, %B: memref<8x8xf16>, %C: memref<8x8xf16>) {{
      linalg.matmul ins(%A, %B : {kind}, memref<8x8xf16>) outs(%C : memref<8x8xf16>) return }}"""
    kernel, square = compile(text), np.zeros((8, 8), np.float16)
    message = r"argument 0 \(%A\): expected 8x8xf16, strided<\[16, 1\]>, got strides of \(16, 2\) bytes"
    with pytest.raises(ArgumentError, match=message):
        kernel(square, square, square.copy(), device="interp")
    both = np.zeros((8, 16), np.float16)
    kernel(both[:, :8], square, np.ascontiguousarray(both[:, 8:]), device="interp")


# linalg.generic

FLOAT_BODY = """^bb0(%x: f16, %y: f16, %z: f32):
  %0 = arith.extf %y : f16 to f32
  %1 = arith.extf %x : f16 to f32
  %2 = arith.mulf %0, %1 : f32
  %3 = arith.addf %2, %z : f32
  linalg.yield %3 : f32"""


def generic(spec: str, loops: str, sizes: dict[str, int], body: str, kinds: tuple[str, str, str]) -> str:
    """A `linalg.generic` written like an einsum, over loops in the order given."""
    dimensions = spec.replace("->", ",").split(",")
    types = [f"memref<{''.join(f'{sizes[d]}x' for d in names)}{kind}>" for names, kind in zip(
        dimensions, kinds, strict=True)]  # fmt: skip
    maps = ", ".join(f"affine_map<({', '.join(loops)}) -> ({', '.join(names)})>" for names in dimensions)
    iterators = ", ".join(f'"{"parallel" if loop in dimensions[-1] else "reduction"}"' for loop in loops)
    return f"""func.func @f(%A: {types[0]}, %B: {types[1]}, %C: {types[2]}) {{
      linalg.generic {{indexing_maps = [{maps}], iterator_types = [{iterators}]}}
        ins(%A, %B : {types[0]}, {types[1]}) outs(%C : {types[2]}) {{ {body} }} return }}"""


@pytest.mark.sampled(16)
@pytest.mark.parametrize(
    ("spec", "loops"),
    [
        ("mk,kn->mn", "mnk"),
        ("km,nk->mn", "kmn"),
        ("mk,kn->nm", "mnk"),
        ("kn,mk->mn", "nkm"),
        ("bhmk,bhnk->bhmn", "bhmnk"),
        ("bmhk,bnhk->bhmn", "bhmnk"),
        ("bmk,kn->bmn", "bmnk"),
        ("mk,bhkn->hmbn", "mbhnk"),
    ],
)
@pytest.mark.parametrize("k", [0, 21])
def test_generic_contractions(spec: str, loops: str, k: int) -> None:
    sizes = {"b": 2, "h": 3, "m": 19, "n": 33, "k": k}
    names = spec.replace("->", ",").split(",")
    shapes = [tuple(sizes[d] for d in dimensions) for dimensions in names]
    text = generic(spec, loops, sizes, FLOAT_BODY, ("f16", "f16", "f32"))
    a, b, c = fresh(*shapes[0]), fresh(*shapes[1], seed=2), fresh(*shapes[2], seed=3, dtype=np.float32)
    expected = double(c) + np.einsum(spec, double(a), double(b))
    check(compile(text), text, a, b, c, expected=expected)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("signs", [("s", "s"), ("u", "u"), ("s", "u"), ("u", "s")], ids="".join)
@pytest.mark.parametrize("swapped", [False, True])
def test_generic_products_of_integers_of_either_sign(signs: tuple[str, str], swapped: bool) -> None:
    sizes = {"m": 35, "n": 24, "k": 70}
    extend = [f"arith.ext{sign}i" for sign in signs]
    product = "%2 = arith.muli %1, %0 : i32" if swapped else "%2 = arith.muli %0, %1 : i32"
    body = f"""^bb0(%x: i8, %y: i8, %z: i32): %0 = {extend[0]} %x : i8 to i32
      %1 = {extend[1]} %y : i8 to i32 {product} %3 = arith.addi %z, %2 : i32 linalg.yield %3 : i32"""
    text = generic("mk,nk->mn", "mnk", sizes, body, ("i8", "i8", "i32"))
    random = np.random.default_rng(3)
    a, b = (random.integers(-128, 128, shape, np.int8) for shape in ((35, 70), (24, 70)))
    c = random.integers(-(2**31), 2**31, (35, 24), np.int32)
    read = [x.view(np.uint8) if sign == "u" else x for x, sign in zip((a, b), signs, strict=True)]
    exact = c.astype(np.int64) + read[0].astype(np.int64) @ read[1].astype(np.int64).T
    expected = exact.astype(np.int32)
    reference_found = reference.evaluate(host.choose(parse_mlir(make_context(), text), "f"), [a, b, c])[2]
    np.testing.assert_array_equal(reference_found.value.astype(np.int64), expected)
    compile(text)(a, b, c, device="interp")
    np.testing.assert_array_equal(c, expected)


# Sizes that only the caller knows

ANY = """func.func @f(%A: memref<?x?xf16>{0}, %B: memref<?x?xf16>{0}, %C: memref<?x?xf32>{0}) {{
  linalg.matmul ins(%A, %B : memref<?x?xf16>, memref<?x?xf16>) outs(%C : memref<?x?xf32>) return }}"""


@pytest.fixture(scope="module")
def any_size() -> Kernel:
    return compile(ANY.format(""), cta=(32, 32, 32), stages=2)


@pytest.mark.parametrize("size", [*SIZES, (100, 77, 53)], ids=str)
def test_one_kernel_for_all_sizes(any_size: Kernel, size: tuple[int, int, int]) -> None:
    m, n, k = size
    a, b, c = fresh(m, k), fresh(k, n, seed=2), fresh(m, n, seed=3, dtype=np.float32)
    check(any_size, ANY.format(""), a, b, c, expected=double(c) + double(a) @ double(b))


def test_the_default_schedule_for_all_sizes() -> None:
    a, b, c = fresh(140, 45), fresh(45, 261, seed=2), fresh(140, 261, seed=3, dtype=np.float32)
    text = ANY.format("")
    check(compile(text), text, a, b, c, expected=double(c) + double(a) @ double(b))


def test_promised_divisors_widen_accesses() -> None:
    text = ANY.format(" {warp.divisible = 8 : i64}")
    kernel = compile(text, cta=(32, 32, 32), stages=2)
    assert "cp.async.cg." in kernel.ptx
    assert "cp.async.cg." not in compile(ANY.format(""), cta=(32, 32, 32), stages=2).ptx
    a, b, c = fresh(33, 72), fresh(72, 40, seed=2), fresh(33, 40, seed=3, dtype=np.float32)
    check(kernel, text, a, b, c, expected=double(c) + double(a) @ double(b))
    message = r"argument 1 \(%B\): warp.divisible promises extents and strides that are multiples of 8, got 41"
    with pytest.raises(ArgumentError, match=message):
        kernel(a, fresh(72, 41), fresh(33, 41, dtype=np.float32), device="interp")


def test_sizes_must_agree(any_size: Kernel) -> None:
    message = (
        r"argument 1 \(%B\): expected 5 along dimension 0, as argument 0 \(%A\) has along dimension 1, got 6x7xf16"
    )
    with pytest.raises(ArgumentError, match=message):
        any_size(fresh(4, 5), fresh(6, 7), fresh(4, 7, dtype=np.float32), device="interp")
    with pytest.raises(ArgumentError, match=r"argument 0 \(%A\): expected \?x\?xf16, got 4xf16"):
        any_size(fresh(4), fresh(6, 7), fresh(4, 7, dtype=np.float32), device="interp")


def test_an_empty_result_is_not_launched(any_size: Kernel) -> None:
    c = np.empty((0, 7), np.float32)
    any_size(fresh(0, 5), fresh(5, 7), c, device="interp")


def test_tensor_maps_of_memory_without_elements() -> None:
    """By warpgroups: no rows launch nothing, and an empty sum leaves what C starts from."""
    kinds = "memref<?x?xf16>", "memref<?x256xf16>", "memref<?x256xf32>"
    text = f"""func.func @f(%A: {kinds[0]} {{warp.divisible = 8}}, %B: {kinds[1]}, %C: {kinds[2]}) {{
      linalg.matmul ins(%A, %B : {kinds[0]}, {kinds[1]}) outs(%C : {kinds[2]}) return }}"""
    kernel = compile(text, target="sm_90a", mma="m64n256k16")
    assert "wgmma" in kernel.ptx
    kernel(fresh(0, 72), fresh(72, 256), np.empty((0, 256), np.float32), device="interp")
    c = fresh(3, 256, dtype=np.float32)
    expected = c.copy()
    kernel(fresh(3, 0), fresh(0, 256), c, device="interp")
    assert np.array_equal(c, expected)


def test_dynamic_batches_and_strides() -> None:
    kinds = ("memref<?x?x?xf16>", "memref<?x16x?xf16, strided<[?, 1, ?], offset: ?>>", "memref<?x?x16xf32>")
    text = f"""func.func @f(%A: {kinds[0]}, %B: {kinds[1]}, %C: {kinds[2]}) {{
      linalg.batch_matmul_transpose_b ins(%A, %B : {kinds[0]}, {kinds[1]}) outs(%C : {kinds[2]}) return }}"""
    kernel = compile(text, cta=(32, 16, 16))
    for batch, m, k in ((3, 33, 45), (1, 16, 0), (2, 5, 100)):
        a, c = fresh(batch, m, k), fresh(batch, m, 16, seed=3, dtype=np.float32)
        b = view(fresh(batch, 16, k, seed=2), (19 * k + 7, 1, 19), 3)
        check(kernel, text, a, b, c, expected=double(c) + np.einsum("bmk,bnk->bmn", double(a), double(b)))
