"""Products of experts: rows of groups whose ends the device has, and the gradient of their weights."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from products import GATE

from warploom.passes.diagnostics import remarks
from warploom.passes.tile import expand
from warploom.runtime import CompileError, Kernel, compile

pytestmark = pytest.mark.sampled(2)
"""Of the cases of each test, one in two: what they share, compiling and interpreting, is most of their time."""

Array = NDArray[Any]

T, E, K, N = 100, 4, 72, 136

LOOP = """#n = affine_map<(m, n) -> (n)>
#m = affine_map<(m, n) -> (m)>
#mn = affine_map<(m, n) -> (m, n)>
#a = affine_map<(m, n, k) -> {a}>
#b = affine_map<(m, n, k) -> {b}>
#c = affine_map<(m, n, k) -> (m, n)>
func.func @experts(%A: memref<100x72x{t}>, %B: memref<{whole_b}x{t}>, %ends: memref<4xi32>, %S: memref<4x136xf32>,
                   %R: memref<100xf32>, %D: memref<{whole_d}xf32>) {{
  %c0 = arith.constant {first} : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  scf.for %e = %c0 to %c4 step %c1 iter_args(%start = %c0) -> (index) {{
    %last = memref.load %ends[%e] : memref<4xi32>
    %stop = arith.index_cast %last : i32 to index
    %rows = arith.subi %stop, %start : index
    %a = memref.subview %A[%start, 0] [%rows, 72] [1, 1]
      : memref<100x72x{t}> to memref<?x72x{t}, strided<[72, 1], offset: ?>>
    %b = memref.subview %B{part_b} [1, 1{one}]
      : memref<{whole_b}x{t}> to memref<{seen_b}x{t}, strided<[{step}, 1], offset: ?>>
    %d = memref.subview %D{part_d} : memref<{whole_d}xf32> to memref<{seen_d}xf32, strided<[136, 1], offset: ?>>
    linalg.fill ins(%zero : f32) outs(%d : memref<{seen_d}xf32, strided<[136, 1], offset: ?>>)
    linalg.matmul indexing_maps = [#a, #b, #c]
      ins(%a, %b : memref<?x72x{t}, strided<[72, 1], offset: ?>>, memref<{seen_b}x{t}, strided<[{step}, 1], offset: ?>>)
      outs(%d : memref<{seen_d}xf32, strided<[136, 1], offset: ?>>)
    {epilogue}
    scf.yield %stop : index
  }}
  return
}}
"""

SCALED = """%s = memref.subview %S[%e, 0] [1, 136] [1, 1]
      : memref<4x136xf32> to memref<136xf32, strided<[1], offset: ?>>
    %r = memref.subview %R[%start] [%rows] [1] : memref<100xf32> to memref<?xf32, strided<[1], offset: ?>>
    linalg.generic {indexing_maps = [#n, #m, #mn], iterator_types = ["parallel", "parallel"]}
        ins(%s, %r : memref<136xf32, strided<[1], offset: ?>>, memref<?xf32, strided<[1], offset: ?>>)
        outs(%d : memref<?x136xf32, strided<[136, 1], offset: ?>>) {
    ^bb0(%x: f32, %w: f32, %sum: f32):
      %0 = arith.addf %sum, %x : f32
      %1 = arith.mulf %0, %w : f32
      linalg.yield %1 : f32
    }"""


def forward(type: str, *, transposed: bool, epilogue: str = "", first: int = 0) -> str:
    """The rows of each expert times its weights, (k, n) or (n, k)."""
    rows, columns = (N, K) if transposed else (K, N)
    return LOOP.format(
        t=type, a="(m, k)", b="(n, k)" if transposed else "(k, n)", whole_b=f"4x{rows}x{columns}", one=", 1",
        part_b=f"[%e, 0, 0] [1, {rows}, {columns}]", seen_b=f"{rows}x{columns}", step=columns, whole_d="100x136",
        part_d="[%start, 0] [%rows, 136] [1, 1]", seen_d="?x136", epilogue=epilogue, first=first,
    )  # fmt: skip


def gradient(type: str) -> str:
    """For each expert the sum over its rows."""
    return LOOP.format(
        t=type, a="(k, m)", b="(k, n)", whole_b="100x136", one="", part_b="[%start, 0] [%rows, 136]", seen_b="?x136",
        step=N, whole_d="4x72x136", part_d="[%e, 0, 0] [1, 72, 136] [1, 1, 1]", seen_d="72x136", epilogue="", first=0,
    )  # fmt: skip


def drawn(rng: np.random.Generator) -> list[int]:
    """Ends of groups, some of which are empty; rows behind the last belong to none."""
    ends = sorted(rng.integers(0, T, E))
    ends[1] = ends[2]
    return [int(end) for end in ends]


def spans(ends: list[int]) -> list[slice]:
    """The rows of each group."""
    return [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]


def operands(rng: np.random.Generator, dtype: Any, ends: list[int], *shapes: tuple[int, ...]) -> list[Array]:
    """Random arrays, whose rows that no expert has are no numbers."""
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    for array in arrays:
        if array.shape[0] == T:
            array[ends[-1] :] = np.nan
    return arrays


SHARED_TAIL = {"cta": "64x64x64", "ctas": 7, "split_k": 2}
"""Of the tiles that 7 CTAs have left, two parts of K each, where no more than three are left."""

CASES = [
    ("bf16", "sm_90a", {}),
    ("f16", "sm_90a", {"ctas": 2, "staging": 0}),
    ("bf16", "sm_80", {}),
    ("bf16", "sm_90a", SHARED_TAIL),
    ("bf16", "sm_90a", {"cta": "64x64x64", "cluster": "1x2", "ctas": 4}),
]
DTYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("type", "target", "schedule"), CASES)
def test_rows_of_experts(type: str, target: str, schedule: dict[str, Any]) -> None:
    rng = np.random.default_rng()
    transposed = bool(rng.integers(2))
    text = forward(type, transposed=transposed, epilogue=SCALED)
    if rng.integers(2):
        text = text.replace("100x", "?x")  # as many tokens as the call has
    kernel = compile(text, target=target, cache=False, **schedule)
    ends = drawn(rng)
    a, b = operands(rng, DTYPES[type], ends, (T, K), (E, N, K) if transposed else (E, K, N))
    s, r = (rng.standard_normal(shape).astype(np.float32) for shape in ((E, N), (T,)))
    d = np.full((T, N), np.nan, np.float32)
    kernel(a, b, np.array(ends, np.int32), s, r, d, device="interp", checks="all")
    for expert, rows in enumerate(spans(ends)):
        x, y = a[rows].astype(np.float64), b[expert].astype(np.float64)
        y = y.T if transposed else y
        wanted = (x @ y + s[expert]) * r[rows, None]
        bound = ((K + 3) * 2.0**-23 * (np.abs(x) @ np.abs(y) + np.abs(s[expert]))) * np.abs(r[rows, None]) + 2.0**-140
        assert np.all(np.abs(d[rows] - wanted) <= bound)
    assert np.isnan(d[ends[-1] :]).all()


UPDATED = """  linalg.generic {indexing_maps = [#mn], iterator_types = ["parallel", "parallel"]}
      outs(%D : memref<100x136xf32>) {
  ^bb0(%x: f32):
    %y = arith.mulf %x, %x : f32
    linalg.yield %y : f32
  }
  return"""


def test_rows_behind_the_last_group_are_updated_in_place() -> None:
    """What the caller has there is part of the result, so that the operation stays apart."""
    rng = np.random.default_rng()
    text = forward("f16", transposed=False).replace("  return", UPDATED)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((T, K), (E, K, N)))
    s, r, d = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((E, N), (T,), (T, N)))
    wanted, ends = d.astype(np.float64), drawn(rng)
    for expert, rows in enumerate(spans(ends)):
        wanted[rows] = a[rows].astype(np.float64) @ b[expert].astype(np.float64)
    compile(text, target="sm_80", cache=False)(a, b, np.array(ends, np.int32), s, r, d, device="interp")
    np.testing.assert_array_equal(d, wanted**2)


def test_clusters_are_of_tiles_of_one_group() -> None:
    """They copy B to each other, which is another one where the next rows are of the next group."""
    with pytest.raises(CompileError, match="cluster = 2x1: tiles of rows one after another may be of two groups"):
        compile(forward("bf16", transposed=False, epilogue=SCALED), target="sm_90a", cta="64x64x64", cluster="2x1")


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("type", "target", "schedule"),
    [("f16", "sm_90a", {"ctas": 3}), ("bf16", "sm_80", {}), ("f16", "sm_90a", {"cta": "64x64x64", "cluster": "2x1"})],
)
def test_gradient_of_weights(type: str, target: str, schedule: dict[str, Any]) -> None:
    rng = np.random.default_rng()
    kernel, ends = compile(gradient(type), target=target, cache=False, **schedule), drawn(rng)
    a, b = operands(rng, DTYPES[type], ends, (T, K), (T, N))
    d = np.full((E, K, N), np.nan, np.float32)
    unused = np.zeros((E, N), np.float32), np.zeros(T, np.float32)
    kernel(a, b, np.array(ends, np.int32), *unused, d, device="interp", checks="all")
    for expert, rows in enumerate(spans(ends)):
        x, y = a[rows].astype(np.float64).T, b[rows].astype(np.float64)
        assert np.all(np.abs(d[expert] - x @ y) <= (T + 2) * 2.0**-23 * (np.abs(x) @ np.abs(y)))


GATED = """%g, %u = {views}
  linalg.generic {indexing_maps = [#mn, #mn, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : {half}0>>, {half}72>>) outs(%G : memref<100x72xf32>) {
  ^bb0(%x: f32, %y: f32, %old: f32):
{body}
    linalg.yield %r : f32
  }
  return
}"""


def gated() -> str:
    """SiLU of the first half of the columns of each group's product, times the second half."""
    half = "memref<100x72xf32, strided<[144, 1], offset: "
    text = forward("bf16", transposed=False).replace("136", "144")
    memory_type = "memref<100x144xf32>"
    text = text.replace(f"%D: {memory_type}) {{", f"%G: memref<100x72xf32>) {{\n  %D = memref.alloc() : {memory_type}")
    views = "\n  ".join(
        f"%{name} = memref.subview %D[0, {at}] [100, 72] [1, 1] : {memory_type} to {half}{at}>>"
        for name, at in (("g", 0), ("u", 72))
    )
    return text.rpartition("  return")[0] + GATED.replace("%g, %u = {views}", views).replace("{half}", half).replace(
        "{body}", GATE
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_a_gate_is_in_the_product(target: str) -> None:
    """Both sums of an element are in one lane: sums of K products in f32, and a SiLU within 2e-6."""
    rng = np.random.default_rng()
    kernel, ends = compile(gated(), target=target, cache=False), drawn(rng)
    assert kernel.ptx.count(".entry") == 1
    a, b = operands(rng, ml_dtypes.bfloat16, ends, (T, K), (E, K, 144))
    d = np.full((T, 72), np.nan, np.float32)
    unused = np.zeros((E, 144), np.float32), np.zeros(T, np.float32)
    kernel(a, b, np.array(ends, np.int32), *unused, d, device="interp", checks="all")
    for expert, rows in enumerate(spans(ends)):
        x, y = a[rows].astype(np.float64), b[expert].astype(np.float64)
        (g, u), (dg, du) = (np.split(p, 2, 1) for p in (x @ y, np.abs(x) @ np.abs(y) * (K + 2) * 2.0**-23))
        silu = g / (1 + np.exp(-g))
        bound = 1.1 * dg * np.abs(u) + np.abs(silu) * du + np.abs(silu * u) * 2e-6 + 2.0**-140
        assert np.all(np.abs(d[rows] - silu * u) <= bound)
    assert np.isnan(d[ends[-1] :]).all()


@pytest.mark.sampled(16)
@pytest.mark.parametrize("ctas", [5, 2, 3, 8])
def test_parts_of_the_tiles_that_are_left(ctas: int) -> None:
    """As many parts of K as let all CTAs have one: K / 64 = 6 K tiles, up to four parts."""
    rng, k = np.random.default_rng(), 328
    text = forward("bf16", transposed=False).replace("72", str(k)).replace("100x", "?x")
    kernel = compile(text, target="sm_90a", cache=False, cta="64x64x64", ctas=ctas, split_k=4)
    ends = drawn(rng)
    a, b = operands(rng, ml_dtypes.bfloat16, ends, (T, k), (E, k, N))
    unused, results = (np.zeros((E, N), np.float32), np.zeros(T, np.float32)), list[Array]()
    for _ in range(2):
        results.append(np.full((T, N), np.nan, np.float32))
        kernel(a, b, np.array(ends, np.int32), *unused, results[-1], device="interp", checks="all")
    np.testing.assert_array_equal(results[0], results[1])
    for expert, rows in enumerate(spans(ends)):
        x, y = a[rows].astype(np.float64), b[expert].astype(np.float64)
        assert np.all(np.abs(results[0][rows] - x @ y) <= (k + 5) * 2.0**-23 * (np.abs(x) @ np.abs(y)))
    assert np.isnan(results[0][ends[-1] :]).all()


@pytest.mark.parametrize("schedule", [{"ctas": 3}, {"cta": "64x64x64", "ctas": 2}, SHARED_TAIL])
def test_a_search_goes_on_from_the_last_group(schedule: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expand, "MANY_GROUPS", E - 1)
    rng = np.random.default_rng()
    kernel, ends = compile(forward("bf16", transposed=True), target="sm_90a", cache=False, **schedule), drawn(rng)
    assert "while_" in kernel.ptx
    a, b = operands(rng, ml_dtypes.bfloat16, ends, (T, K), (E, N, K))
    unused, d = (np.zeros((E, N), np.float32), np.zeros(T, np.float32)), np.full((T, N), np.nan, np.float32)
    kernel(a, b, np.array(ends, np.int32), *unused, d, device="interp", checks="all")
    for expert, rows in enumerate(spans(ends)):
        x, y = a[rows].astype(np.float64), b[expert].astype(np.float64).T
        assert np.all(np.abs(d[rows] - x @ y) <= (K + 3) * 2.0**-23 * (np.abs(x) @ np.abs(y)))
    assert np.isnan(d[ends[-1] :]).all()


def test_ends_are_read_behind_the_launches_that_write_them() -> None:
    """A kernel that may begin before the launch ahead has ended waits for it first."""
    kernel = compile(forward("bf16", transposed=False), target="sm_90a", cache=False)
    assert 0 < kernel.ptx.index("griddepcontrol.wait;") < kernel.ptx.index("ld.global")


def test_one_launch_without_a_wait() -> None:
    kernel: Kernel = compile(forward("bf16", transposed=False), target="sm_90a", cache=False)
    assert kernel.ptx.count(".entry") == 1


def test_a_loop_that_is_no_product_of_groups_stays() -> None:
    with remarks() as made, pytest.raises(CompileError, match=r"got it in scf\.for"):
        compile(forward("bf16", transposed=False, first=1), target="sm_90a", cache=False)
    assert any("the loop over groups stays: expected a turn for each of the 4 ends" in str(one) for one in made)


def test_a_loop_that_hands_on_a_tensor() -> None:
    kernel = compile(
        """func.func @f(%A: tensor<20x24xf16>, %B: tensor<24x12xf16>, %C: tensor<20x12xf32>) -> tensor<20x12xf32> {
          %c0 = arith.constant 0 : index
          %c1 = arith.constant 1 : index
          %c3 = arith.constant 3 : index
          %r = scf.for %i = %c0 to %c3 step %c1 iter_args(%x = %C) -> (tensor<20x12xf32>) {
            %y = linalg.matmul ins(%A, %B : tensor<20x24xf16>, tensor<24x12xf16>)
              outs(%x : tensor<20x12xf32>) -> tensor<20x12xf32>
            scf.yield %y : tensor<20x12xf32>
          }
          return %r : tensor<20x12xf32> }""",
        target="sm_80",
        cache=False,
    )
    rng = np.random.default_rng()
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((20, 24), (24, 12)))
    c, d = rng.standard_normal((20, 12)).astype(np.float32), np.full((20, 12), np.nan, np.float32)
    kernel(a, b, c, d, device="interp")
    np.testing.assert_allclose(d, c + 3 * (a.astype(np.float64) @ b.astype(np.float64)), rtol=1e-4, atol=1e-4)


NEW = """func.func @experts(%A: tensor<100x72xbf16>, %B: tensor<{b}xbf16>, %ends: tensor<4xi32>) -> tensor<{d}xbf16> {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  %all = tensor.empty() : tensor<{d}xbf16>
  %end, %D = scf.for %e = %c0 to %c4 step %c1 iter_args(%start = %c0, %old = %all) -> (index, tensor<{d}xbf16>) {{
    %last = tensor.extract %ends[%e] : tensor<4xi32>
    %stop = arith.index_cast %last : i32 to index
    %rows = arith.subi %stop, %start : index
    %a = tensor.extract_slice %A[%start, 0] [%rows, 72] [1, 1] : tensor<100x72xbf16> to tensor<?x72xbf16>
    %b = tensor.extract_slice %B{of_b} : tensor<{b}xbf16> to tensor<{seen_b}xbf16>
    %none = tensor.empty({size}) : tensor<{seen_d}xf32>
    %empty = linalg.fill ins(%zero : f32) outs(%none : tensor<{seen_d}xf32>) -> tensor<{seen_d}xf32>
    %sums = linalg.matmul indexing_maps = [{a}, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%a, %b : tensor<?x72xbf16>, tensor<{seen_b}xbf16>) outs(%empty : tensor<{seen_d}xf32>)
        -> tensor<{seen_d}xf32>
    %new = tensor.empty({size}) : tensor<{seen_d}xbf16>
    %d = linalg.generic {{indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>],
        iterator_types = ["parallel", "parallel"]}}
        ins(%sums : tensor<{seen_d}xf32>) outs(%new : tensor<{seen_d}xbf16>) {{
    ^bb0(%x: f32, %before: bf16):
      %r = arith.truncf %x : f32 to bf16
      linalg.yield %r : bf16
    }} -> tensor<{seen_d}xbf16>
    %next = tensor.insert_slice %d into %old{of_d} : tensor<{seen_d}xbf16> into tensor<{d}xbf16>
    scf.yield %stop, %next : index, tensor<{d}xbf16>
  }}
  return %D : tensor<{d}xbf16>
}}"""


@pytest.mark.parametrize("of_weights", [False, True])
def test_new_tensors_that_a_loop_puts_into_its_result(of_weights: bool) -> None:
    """One kernel, of rows and of the gradient of weights: no part of the result is taken before it is written."""
    row, one = "[%start, 0] [%rows, 136] [1, 1]", "[%e, 0, 0] [1, 72, 136] [1, 1, 1]"
    d, b = ("4x72x136", "100x136") if of_weights else ("100x136", "4x72x136")
    seen_d, seen_b = ("72x136", "?x136") if of_weights else ("?x136", "72x136")
    of_d, of_b, size = (one, row, "") if of_weights else (row, one, "%rows")
    a = f"affine_map<(m, n, k) -> ({'k, m' if of_weights else 'm, k'})>"
    kernel = compile(
        NEW.format(a=a, b=b, d=d, seen_b=seen_b, seen_d=seen_d, of_b=of_b, of_d=of_d, size=size), target="sm_80"
    )
    rng = np.random.default_rng()
    ends = drawn(rng)
    x, y = operands(rng, DTYPES["bf16"], ends, (T, K), (T, N) if of_weights else (E, K, N))
    made = np.full((E, K, N) if of_weights else (T, N), np.nan, DTYPES["bf16"])
    kernel(x, y, np.array(ends, np.int32), made, device="interp", checks="all")
    for expert, rows in enumerate(spans(ends)):
        p, q = x[rows].astype(np.float64), y[rows if of_weights else expert].astype(np.float64)
        p, at = (p.T, expert) if of_weights else (p, rows)
        exact, most = p @ q, np.abs(p) @ np.abs(q)
        assert np.all(
            np.abs(made[at].astype(np.float64) - exact) <= (T + 2) * 2.0**-23 * most + 2.0**-8 * np.abs(exact)
        )
    assert of_weights or np.isnan(made[ends[-1] :].astype(np.float32)).all()
    assert len(kernel.launches) == 1


NAMED = """#i = affine_map<(m, k) -> (m)>
#ik = affine_map<(m, k) -> (m, k)>
func.func @experts(%X: memref<{x}x72x{t}>, %places: memref<{rows}x{index}>, %B: memref<4x72x136x{t}>,
                   %ends: memref<4xi32>, %S: memref<4x136xf32>, %R: memref<{rows}xf32>, %D: memref<{rows}x136xf32>) {{
  %A = memref.alloc({size}) : memref<{rows}x72x{t}>
  linalg.generic {{indexing_maps = [#i, #ik], iterator_types = ["parallel", "parallel"]}}
      ins(%places : memref<{rows}x{index}>) outs(%A : memref<{rows}x72x{t}>) {{
  ^bb0(%r: {index}, %old: {t}):
    %at = arith.index_cast %r : {index} to index
    %k = linalg.index 1 : index
    %x = memref.load %X[%at, %k] : memref<{x}x72x{t}>
    linalg.yield %x : {t}
  }}
"""


def named(type: str, index: str, *, rows: str = "100", x: str = "50", epilogue: str = SCALED) -> str:
    """Rows of experts that are rows of X, whose numbers are in memory; an epilogue weights each with its token's."""
    text, is_static = forward(type, transposed=False, epilogue=epilogue), rows != "?"
    size = "" if is_static else "%tokens"
    head = NAMED.format(t=type, index=index, rows=rows, x=x, size=size)
    if not is_static:
        head = head.replace("  %A =", "  %zeroth = arith.constant 0 : index\n  %tokens = memref.dim %places, %zeroth : "
                            f"memref<?x{index}>\n  %A =")  # fmt: skip
        text = text.replace("100x", "?x")
    maps, _, body = text.partition("func.func")
    return maps + head + body.partition("{\n")[2]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("target", "entries"), [("sm_80", 1), ("sm_120", 1), ("sm_90a", 2)])
@pytest.mark.parametrize(
    ("type", "index", "rows", "width"), [("bf16", "i64", "100", 96), ("bf16", "i64", "100", K), ("f16", "i32", "?", K)]
)
def test_rows_that_a_table_names(target: str, entries: int, type: str, index: str, rows: str, width: int) -> None:
    """`warp-group` lets threads copy such rows, or their first columns; for tensor copies an operation gathers them
    before."""
    rng = np.random.default_rng()
    tokens, of_x = (int(rng.integers(1, 60)), "?") if width == K else (50, "50")
    text = named(type, index, rows=rows, x=of_x).replace(f"memref<{of_x}x72xbf16>", f"memref<{of_x}x{width}xbf16>")
    with remarks() as made:
        kernel = compile(text, target=target, cache=False)
    assert kernel.ptx.count(".entry") == entries
    assert any("an operation of its own gathers rows" in str(one) for one in made) == (entries == 2)
    ends = drawn(rng)
    x, b = (rng.standard_normal(shape).astype(DTYPES[type]) for shape in ((tokens, width), (E, K, N)))
    places = rng.integers(0, tokens, T).astype({"i32": np.int32, "i64": np.int64}[index])
    s, r = (rng.standard_normal(shape).astype(np.float32) for shape in ((E, N), (T,)))
    d = np.full((T, N), np.nan, np.float32)
    kernel(x, places, b, np.array(ends, np.int32), s, r, d, device="interp", checks="all")
    for expert, group in enumerate(spans(ends)):
        a, y = x[places[group], :K].astype(np.float64), b[expert].astype(np.float64)
        bound = ((K + 3) * 2.0**-23 * (np.abs(a) @ np.abs(y) + np.abs(s[expert]))) * np.abs(r[group, None]) + 2.0**-140
        assert np.all(np.abs(d[group] - (a @ y + s[expert]) * r[group, None]) <= bound)
    assert np.isnan(d[ends[-1] :]).all()


FILLED = "  %none = arith.constant 0.0 : bf16\n  linalg.fill ins(%none : bf16) outs(%X : memref<50x72xbf16>)\n"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("entries", [2, 3])
def test_rows_that_are_overwritten_are_gathered_before(entries: int) -> None:
    """The product writes what they are read from, or a kernel before it."""
    if entries == 3:
        text = named("bf16", "i32").replace("  %c1 = arith", f"{FILLED}  %c1 = arith")
    else:
        text = named("bf16", "i32", x="100", epilogue="").replace("136", "72").replace("f32", "bf16")
        text = text.replace("memref.subview %D[", "memref.subview %X[")
    with remarks() as made:
        kernel = compile(text, target="sm_80", cache=False)
    assert kernel.ptx.count(".entry") == entries
    assert any("what it reads may be overwritten" in str(one) for one in made)
