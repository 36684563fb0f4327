"""Row reductions, softmax, layer norm and RMS norm as kernels of their own, against float64 with its bound."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from attentions import Attention
from xdsl.dialects.builtin import ModuleOp

from warploom.passes.linalg.bufferize import BufferizePass
from warploom.passes.tile import row_shares
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import Kernel, compile
from warploom.runtime.arguments.arrays import DTYPES
from warploom.runtime.plan import host
from warploom.runtime.reference.functions import compare, evaluate

POISON = 99
TARGETS = ("sm_90a", "sm_80", "sm_120a")


def softmax(shape: Sequence[int], kind: str, *, tensors: bool = False) -> str:
    x = f"{'x'.join(map(str, shape))}x{kind}"
    if tensors:
        return f"""func.func @f(%x: tensor<{x}>) -> tensor<{x}> {{
  %e = tensor.empty() : tensor<{x}>
  %r = linalg.softmax dimension({len(shape) - 1}) ins(%x : tensor<{x}>) outs(%e : tensor<{x}>) -> tensor<{x}>
  return %r : tensor<{x}>
}}"""
    return f"""func.func @f(%x: memref<{x}>, %y: memref<{x}>) {{
  linalg.softmax dimension({len(shape) - 1}) ins(%x : memref<{x}>) outs(%y : memref<{x}>)
  return
}}"""


def reduced(rows: int, length: int, kind: str, by: str, start: str) -> str:
    return f"""func.func @f(%x: memref<{rows}x{length}x{kind}>, %y: memref<{rows}x{kind}>) {{
  %start = arith.constant {start} : {kind}
  linalg.fill ins(%start : {kind}) outs(%y : memref<{rows}x{kind}>)
  linalg.reduce ins(%x : memref<{rows}x{length}x{kind}>) outs(%y : memref<{rows}x{kind}>) dimensions = [1]
    (%a: {kind}, %b: {kind}) {{
      %r = arith.{by} %a, %b : {kind}
      linalg.yield %r : {kind}
    }}
  return
}}"""


NORMS = """
#mn = affine_map<(m, n) -> (m, n)>
#m = affine_map<(m, n) -> (m)>
#n = affine_map<(m, n) -> (n)>
#row = affine_map<(m) -> (m)>
func.func @f(%x: memref<{m}x{n}x{t}>, %w: memref<{n}x{t}>, %b: memref<{n}xf32>, %s: f32, %y: memref<{m}x{n}x{t}>) {{
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %length = arith.constant {length}.0 : f32
{sizes}
  %mean = memref.alloc({rows}) : memref<{m}xf32>
  %total = memref.alloc({rows}) : memref<{m}xf32>
  %apart = memref.alloc({both}) : memref<{m}x{n}xf32>
{first}
  linalg.fill ins(%zero : f32) outs(%total : memref<{m}xf32>)
  linalg.generic {{indexing_maps = [#mn, #m], iterator_types = ["parallel", "reduction"]}}
      ins(%apart : memref<{m}x{n}xf32>) outs(%total : memref<{m}xf32>) {{
  ^bb0(%a: f32, %old: f32):
    %0 = arith.mulf %a, %a : f32
    %r = arith.addf %old, %0 : f32
    linalg.yield %r : f32
  }}
  linalg.generic {{indexing_maps = [#row], iterator_types = ["parallel"]}} outs(%total : memref<{m}xf32>) {{
  ^bb0(%sum: f32):
    %0 = arith.divf %sum, %length : f32
    %1 = arith.addf %0, %s : f32
    %r = math.rsqrt %1 : f32
    linalg.yield %r : f32
  }}
  linalg.generic {{indexing_maps = [#mn, #m, #n, #n, #mn], iterator_types = ["parallel", "parallel"]}}
      ins(%apart, %total, %w, %b : memref<{m}x{n}xf32>, memref<{m}xf32>, memref<{n}x{t}>, memref<{n}xf32>)
      outs(%y : memref<{m}x{n}x{t}>) {{
  ^bb0(%a: f32, %scale: f32, %weight: {t}, %bias: f32, %old: {t}):
    %0 = arith.mulf %a, %scale : f32
    %1 = arith.extf %weight : {t} to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %2, %bias : f32
    %r = arith.truncf %3 : f32 to {t}
    linalg.yield %r : {t}
  }}
  return
}}
"""

APART = """  linalg.generic {{indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]}}
      ins(%x : memref<{m}x{n}x{t}>) outs(%apart : memref<{m}x{n}xf32>) {{
  ^bb0(%a: {t}, %old: f32):
    %r = arith.extf %a : {t} to f32
    linalg.yield %r : f32
  }}
"""

LESS_MEAN = """  linalg.fill ins(%zero : f32) outs(%mean : memref<{m}xf32>)
  linalg.generic {{indexing_maps = [#mn, #m], iterator_types = ["parallel", "reduction"]}}
      ins(%apart : memref<{m}x{n}xf32>) outs(%mean : memref<{m}xf32>) {{
  ^bb0(%a: f32, %old: f32):
    %r = arith.addf %a, %old : f32
    linalg.yield %r : f32
  }}
  linalg.generic {{indexing_maps = [#m, #mn], iterator_types = ["parallel", "parallel"]}}
      ins(%mean : memref<{m}xf32>) outs(%apart : memref<{m}x{n}xf32>) {{
  ^bb0(%sum: f32, %a: f32):
    %0 = arith.divf %sum, %length : f32
    %r = arith.subf %a, %0 : f32
    linalg.yield %r : f32
  }}
"""

SIZES = """  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %rows = memref.dim %x, %c0 : memref<?x?x{t}>
  %columns = memref.dim %x, %c1 : memref<?x?x{t}>"""


def norm(rows: int, length: int, kind: str, *, mean: bool, dynamic: bool = False) -> str:
    """A layer norm, or, without the mean, an RMS norm."""
    m, n = ("?", "?") if dynamic else (rows, length)
    first = (APART + LESS_MEAN if mean else APART).format(m=m, n=n, t=kind)
    text = NORMS.format(
        m=m,
        n=n,
        t=kind,
        length=length,
        first=first,
        sizes=SIZES.format(t=kind) if dynamic else "",
        rows="%rows" if dynamic else "",
        both="%rows, %columns" if dynamic else "",
    )
    return (
        text if mean else text.replace(f"  %mean = memref.alloc({'%rows' if dynamic else ''}) : memref<{m}xf32>\n", "")
    )


def arrays_of(kernel: Kernel, sizes: Sequence[Sequence[int]]) -> list[Any]:
    """Arguments, of which the last is poisoned; a number is small."""
    random, arrays = np.random.default_rng(), list[Any]()
    for parameter, shape in zip(kernel.function.parameters, sizes, strict=True):
        value = random.standard_normal(shape) if shape else np.array(1e-5)
        arrays.append(value.astype(DTYPES[parameter.element]))
    arrays[-1][...] = POISON
    return arrays


def check(text: str, *sizes: Sequence[int], target: str = "sm_90a", kernels: int = 1, cache: bool = True) -> list[Any]:
    """Runs a function under all checks, and holds its last argument against float64."""
    kernel = compile(text, target, cache=cache)
    assert len(kernel.launches) == kernels
    arrays = arrays_of(kernel, sizes)
    wanted = evaluate(host.choose(_on_memory(text), None), [array.copy() for array in arrays])[-1]
    kernel(*arrays, device="interp", checks="all")
    comparison = compare(wanted, arrays[-1])
    assert comparison.ok, comparison
    return arrays


def _on_memory(text: str) -> ModuleOp:
    module = parse_mlir(make_context(), text)
    BufferizePass().apply(make_context(), module)
    return module


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((5, 7), "f16"),
        ((33, 256), "bf16"),
        ((3, 1), "f16"),
        ((1, 300), "f32"),
        ((300, 3), "bf16"),
        ((2, 4, 65), "f32"),
        ((37,), "f32"),
    ],
    ids=str,
)
def test_softmax(shape: tuple[int, ...], kind: str) -> None:
    check(softmax(shape, kind, tensors=kind == "bf16"), shape, shape, target=TARGETS[len(shape) - 1])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("by", "start"),
    [
        ("addf", "0.0"),
        ("mulf", "1.0"),
        ("maximumf", "0xFF800000"),
        ("maxnumf", "-3.4e38"),
        ("minimumf", "0x7F800000"),
        ("minnumf", "3.4e38"),
    ],
)
def test_row_reductions(by: str, start: str) -> None:
    check(reduced(37, 130, "f32", by, start), (37, 130), (37,))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("size", "mean", "dynamic"), [((20, 72), False, False), ((9, 33), True, False), ((5, 40), False, True)], ids=str
)
def test_norms(size: tuple[int, int], mean: bool, dynamic: bool) -> None:
    rows, length = size
    text = norm(rows, length, "f16" if mean else "bf16", mean=mean, dynamic=dynamic)
    check(text, size, (length,), (length,), (), size)


def test_a_sum_that_is_read_along_and_across_rows_stays_in_memory() -> None:
    """Each sum is an element of a row, and the rows are summed too: nothing but memory has all of them."""
    text = """
    func.func @f(%X: memref<2x2x24xf32>, %Y: memref<2x24xf32>) {
      %zero = arith.constant 0.0 : f32
      %S = memref.alloc() : memref<2x24xf32>
      %T = memref.alloc() : memref<24xf32>
      linalg.fill ins(%zero : f32) outs(%S : memref<2x24xf32>)
      linalg.reduce { arith.addf } ins(%X : memref<2x2x24xf32>) outs(%S : memref<2x24xf32>) dimensions = [1]
      linalg.fill ins(%zero : f32) outs(%T : memref<24xf32>)
      linalg.reduce { arith.addf } ins(%S : memref<2x24xf32>) outs(%T : memref<24xf32>) dimensions = [0]
      linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (c)>,
                                       affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]}
          ins(%S, %T : memref<2x24xf32>, memref<24xf32>) outs(%Y : memref<2x24xf32>) {
      ^bb0(%s: f32, %t: f32, %y: f32):
        %0 = arith.subf %s, %t : f32
        linalg.yield %0 : f32
      }
      return
    }"""
    check(text, (2, 2, 24), (2, 24), kernels=3)


def test_rows_that_warps_share() -> None:
    check(norm(2, 1100, "bf16", mean=True), (2, 1100), (1100,), (1100,), (), (2, 1100))


def test_rows_that_ctas_of_a_cluster_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of more than 65536 elements are, in CTAs of two warps."""
    monkeypatch.setattr(row_shares, "CLUSTER_WARPS", 2)
    monkeypatch.setattr(row_shares, "LONG_ROW", 2)
    kernel = compile(softmax((2, 4200), "bf16"), "sm_90a", cache=False)
    assert ".reqnctapercluster 4" in kernel.ptx
    check(softmax((2, 4200), "bf16"), (2, 4200), (2, 4200), cache=False)


def test_rows_longer_than_registers_hold() -> None:
    check(softmax((1, 33000), "f16"), (1, 33000), (1, 33000), target="sm_80")


def test_rows_are_taken_together_with_what_is_there() -> None:
    text = reduced(5, 40, "f32", "addf", "0.0")
    check(text.replace("  linalg.fill", "  // linalg.fill"), (5, 40), (5,))
    check(reduced(3, 4200, "f32", "maximumf", "0.25"), (3, 4200), (3,))


def test_a_sum_without_dimensions() -> None:
    text = """func.func @f(%x: tensor<70x1xf32>) -> tensor<f32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x1xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<1x1xf32>) -> tensor<1x1xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(k, n) -> (k, n)>, affine_map<(k, n) -> (0, n)>],
                       iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<70x1xf32>) outs(%i : tensor<1x1xf32>) {
  ^bb0(%a: f32, %old: f32):
    %sum = arith.addf %a, %old : f32
    linalg.yield %sum : f32
  } -> tensor<1x1xf32>
  %y = tensor.collapse_shape %r [] : tensor<1x1xf32> into tensor<f32>
  return %y : tensor<f32>
}"""
    x, y = np.random.default_rng(0).standard_normal((70, 1)).astype(np.float32), np.full((), POISON, np.float32)
    compile(text, target="sm_90a")(x, y, device="interp")
    assert abs(y - x.astype(np.float64).sum()) <= 70 * 2**-24 * np.abs(x).sum()


def test_maxima_are_nan_where_the_operation_says_so() -> None:
    for by, wanted in (("maximumf", np.nan), ("maxnumf", 3.0)):
        kernel = compile(reduced(3, 50, "f32", by, "0xFF800000"))
        x, y = np.ones((3, 50), np.float32), np.zeros(3, np.float32)
        x[1, 7], x[1, 8] = np.nan, 3
        kernel(x, y, device="interp")
        np.testing.assert_array_equal(y, [1, wanted, 1])


@pytest.mark.parametrize(("columns", "start"), [(2, -np.inf), (50, -np.inf), (64, -6e4), (2100, -6e4)])
def test_a_row_of_nothing_but_nan_is_the_start_of_its_largest_number(columns: int, start: float) -> None:
    """And so is one whose numbers are all below it."""
    kernel = compile(reduced(3, columns, "f32", "maxnumf", "0xFF800000" if np.isinf(start) else str(start)))
    x, y = np.full((3, columns), np.nan, np.float32), np.zeros(3, np.float32)
    x[0, -1], x[1] = 3, -1e35
    kernel(x, y, device="interp")
    np.testing.assert_array_equal(y, np.array([3, max(start, -1e35), start], np.float32))


def test_rows_of_part_of_a_matrix_in_place() -> None:
    kind = "memref<6x10xf32, strided<[32, 1], offset: 3>>"
    text = f"""func.func @f(%x: {kind}) {{
      linalg.softmax dimension(1) ins(%x : {kind}) outs(%x : {kind})
      return
    }}"""
    memory = np.random.default_rng().standard_normal((7, 32)).astype(np.float32)
    before, view = memory.copy(), memory.reshape(-1)[3 : 3 + 6 * 32].reshape(6, 32)[:, :10]
    exact = view.astype(np.float64)
    compile(text)(view, device="interp", checks="all")
    e = np.exp(exact - exact.max(1, keepdims=True))
    np.testing.assert_allclose(view, e / e.sum(1, keepdims=True), rtol=1e-6)
    before.reshape(-1)[3 : 3 + 6 * 32].reshape(6, 32)[:, :10] = view
    np.testing.assert_array_equal(memory, before)


def test_rows_of_a_product() -> None:
    text = """func.func @f(%a: memref<40x32xf16>, %b: memref<32x70xf16>, %y: memref<40x70xf32>) {
  %zero = arith.constant 0.0 : f32
  %t = memref.alloc() : memref<40x70xf32>
  linalg.fill ins(%zero : f32) outs(%t : memref<40x70xf32>)
  linalg.matmul ins(%a, %b : memref<40x32xf16>, memref<32x70xf16>) outs(%t : memref<40x70xf32>)
  linalg.softmax dimension(1) ins(%t : memref<40x70xf32>) outs(%y : memref<40x70xf32>)
  return
}"""
    check(text, (40, 32), (32, 70), (40, 70), kernels=2)


def test_attention_that_is_not_fused_is_right() -> None:
    """Its scores are a result too: two products, and the softmax between them by itself."""
    asked = Attention((20, 33, 32, 16), batch=(), on_memory=True)
    kind = "memref<20x33xf32>"
    text = asked.mlir.replace("%O: memref", f"%S: {kind}, %O: memref", 1)
    text = text.replace("  return", f"  linalg.copy ins(%t2 : {kind}) outs(%S : {kind})\n  return")
    check(text, (20, 32), (33, 32), (33, 16), (20, 33), (20, 16), kernels=4)


@pytest.mark.parametrize("largest", [9e-41, 3e-39, 1e-30])
def test_rows_are_divided_by_numbers_whose_reciprocal_is_infinite(largest: float) -> None:
    """Each row by its largest absolute value."""
    text = """func.func @f(%x: memref<3x40xbf16>, %y: memref<3x40xf16>) {
  %zero = arith.constant 0.0 : f32
  %t = memref.alloc() : memref<3xf32>
  linalg.fill ins(%zero : f32) outs(%t : memref<3xf32>)
  linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m)>], iterator_types = ["parallel", "reduction"]}
      ins(%x : memref<3x40xbf16>) outs(%t : memref<3xf32>) {
  ^bb0(%a: bf16, %old: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = math.absf %0 : f32
    %r = arith.maximumf %old, %1 : f32
    linalg.yield %r : f32
  }
  linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%x, %t : memref<3x40xbf16>, memref<3xf32>) outs(%y : memref<3x40xf16>) {
  ^bb0(%a: bf16, %s: f32, %old: f16):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.divf %0, %s : f32
    %2 = arith.truncf %1 : f32 to f16
    linalg.yield %2 : f16
  }
  memref.dealloc %t : memref<3xf32>
  return
}"""  # noqa: E501
    x = (np.random.default_rng().uniform(-1, 1, (3, 40)) * largest).astype(ml_dtypes.bfloat16)
    y = np.full((3, 40), np.nan, np.float16)
    compile(text)(x, y, device="interp")
    wide = x.astype(np.float32)
    np.testing.assert_array_equal(y, (wide / np.abs(wide).max(1, keepdims=True)).astype(np.float16))


LARGE = np.array((5, 4 + 2**32, 5 + 2**32, 7, -100, -101, -(2**40), 2**40, 2**31, -(2**31) - 1, -1, 2**32 - 1, 2,
                  2**63 - 1, -(2**63)))  # fmt: skip


def compared(predicate: str, one: Any, other: Any) -> Any:
    """What `arith.cmpi` of integers of 64 bits is."""
    kind = np.uint64 if predicate[0] == "u" else np.int64
    order = getattr(operator, predicate[-2:])
    return order(np.asarray(one, np.int64).astype(kind), np.asarray(other, np.int64).astype(kind))


def check_chosen(body: str, chosen: Callable[[Any], Any], number: int = 0) -> None:
    """That a kernel of one launch sums the elements of rows where `%is`, which `body` makes of the integers `%label`
    and `%s`, of 64 bits."""
    text = f"""func.func @f(%x: memref<37x100xf32>, %l: memref<37xi64>, %y: memref<37xf32>, %s: i64) {{
  linalg.generic {{indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m)>, affine_map<(m, n) -> (m)>],
                  iterator_types = ["parallel", "reduction"]}}
      ins(%x, %l : memref<37x100xf32>, memref<37xi64>) outs(%y : memref<37xf32>) {{
  ^bb0(%a: f32, %label: i64, %old: f32):
    %zero = arith.constant 0.0 : f32
    {body}
    %kept = arith.select %is, %a, %zero : f32
    %sum = arith.addf %kept, %old : f32
    linalg.yield %sum : f32
  }}
  return
}}"""
    random = np.random.default_rng()
    x, labels = random.standard_normal((37, 100)).astype(np.float32), np.resize(random.permutation(LARGE), 37)
    kernel, y = compile(text, "sm_90a", cache=False), np.zeros(37, np.float32)
    assert len(kernel.launches) == 1
    kernel(x, labels, y, number, device="interp", checks="all")
    is_ = chosen(labels)
    terms = np.where(is_ if is_.ndim == 2 else is_[:, None], x, 0).astype(np.float64)
    assert np.all(np.abs(y - terms.sum(1)) <= 100 * 2.0**-24 * np.abs(terms).sum(1))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("predicate", "number"),
    [("eq", 5), ("ne", -1), ("sgt", 7), ("slt", -100), ("sle", 2**31 - 2), ("sge", 2**40), ("ult", 3), ("uge", 9)],
)
def test_integers_of_64_bits_are_compared_with_all_of_their_bits(predicate: str, number: int) -> None:
    compare = f"%is = arith.cmpi {predicate}, %label, %c : i64"
    check_chosen(f"%c = arith.constant {number} : i64\n{compare}", lambda x: compared(predicate, x, number))
    check_chosen(compare.replace("%c", "%s"), lambda x: compared(predicate, x, number), number)


def test_a_low_word_is_compared_as_it_is() -> None:
    """Beside all bits, too."""
    low = """%five = arith.constant 5 : i32
    %low = arith.trunci %label : i64 to i32
    %is = arith.cmpi eq, %low, %five : i32"""
    check_chosen(low, lambda x: x.astype(np.int32) == 5)
    both = """%wide = arith.constant 5 : i64
    %all = arith.cmpi eq, %label, %wide : i64
    %is = arith.xori %same, %all : i1"""
    check_chosen(low.replace("%is", "%same") + both, lambda x: (x.astype(np.int32) == 5) ^ (x == 5))


COMPUTED: dict[str, Callable[[Any, Any], Any]] = {
    "addi": np.add,
    "subi": np.subtract,
    "muli": np.multiply,
    "andi": np.bitwise_and,
    "xori": np.bitwise_xor,
    "maxsi": np.maximum,
    "minsi": np.minimum,
    "minui": lambda a, b: np.minimum(a.astype(np.uint64), b.astype(np.uint64)).astype(np.int64),
    "shrsi": lambda a, b: np.where(b.astype(np.uint64) < 64, a >> (b & 63), 0),
}
"""Operations on integers of 64 bits; a shift is by 0 to 63."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(6))
def test_integers_of_64_bits_are_computed_with_all_of_their_bits(seed: int) -> None:
    """Chains of operations on labels, indices, constants and a number, whose result is compared, or its low word."""
    random = np.random.default_rng(seed)
    number = int(random.choice(LARGE))
    values = {"%label": None, "%s": number, "%column": np.arange(100), "%c": 3, "%large": 2**33 + 5}
    lines = [f"{name} = arith.constant {values[name]} : i64" for name in ("%c", "%large")]
    lines += ["%i = linalg.index 1 : index", "%column = arith.index_cast %i : index to i64"]
    names, steps = list(values), list[tuple[str, str, str, str]]()
    for step in range(5):
        name, first = str(random.choice(list(COMPUTED))), names[-1] if step else "%label"
        second = "%c" if name == "shrsi" else str(random.choice(names))
        steps.append((f"%t{step}", name, first, second))
        lines.append(f"%t{step} = arith.{name} {first}, {second} : i64")
        names.append(f"%t{step}")
    predicate = str(random.choice(["eq", "slt", "sge", "ult", "ugt"]))
    other = str(random.choice(names[:-1]))
    compare = f"%is = arith.cmpi {predicate}, %t4, {other} : i64"
    low = f"""%low = arith.trunci %t4 : i64 to i32
    %same = arith.trunci {other} : i64 to i32
    %is = arith.cmpi slt, %low, %same : i32"""

    def made(labels: Any) -> list[Any]:
        known = {**values, "%label": labels[:, None]}
        for result, name, first, second in steps:
            with np.errstate(over="ignore"):
                known[result] = COMPUTED[name](*(np.asarray(known[x], np.int64) for x in (first, second)))
        return [np.broadcast_to(known[x], (37, 100)) for x in ("%t4", other)]

    check_chosen("\n".join((*lines, compare)), lambda x: compared(predicate, *made(x)), number)
    check_chosen("\n".join((*lines, low)), lambda x: np.less(*(y.astype(np.int32) for y in made(x))), number)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("times", [1, 3])
def test_a_sum_of_one_element_is_added_to_what_was_there(times: int) -> None:
    """In rows of several warps, of which a register is compared with a label of 64 bits."""
    columns, labels = 3001, np.concatenate((LARGE, [0, 999, 2998, 2999, 3000, 3001, 2**32, 2**64 // 3 - 2**63]))
    kind = f"memref<{len(labels)}"
    text = f"""func.func @f(%x: {kind}x{columns}xf32>, %l: {kind}xi64>, %y: {kind}xf32>) {{
  linalg.generic {{indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m)>, affine_map<(m, n) -> (m)>],
                  iterator_types = ["parallel", "reduction"]}}
      ins(%x, %l : {kind}x{columns}xf32>, {kind}xi64>) outs(%y : {kind}xf32>) {{
  ^bb0(%a: f32, %label: i64, %old: f32):
    %zero = arith.constant 0.0 : f32
    %i = linalg.index 1 : index
    %column = arith.index_cast %i : index to i64
    %times = arith.constant {times} : i64
    %place = arith.muli %label, %times : i64
    %is = arith.cmpi eq, %column, %place : i64
    %kept = arith.select %is, %a, %zero : f32
    %sum = arith.addf %kept, %old : f32
    linalg.yield %sum : f32
  }}
  return
}}"""
    random = np.random.default_rng()
    x, before = (random.standard_normal((len(labels), n)).astype(np.float32) for n in (columns, 1))
    kernel, y = compile(text, "sm_90a", cache=False), before[:, 0].copy()
    kernel(x, labels, y, device="interp", checks="all")
    assert kernel.ptx.count("setp.eq.s64") == 1
    with np.errstate(over="ignore"):
        chosen = (labels * times)[:, None] == np.arange(columns)
    exact = np.where(chosen, x, 0).astype(np.float64).sum(1) + before[:, 0]
    assert np.all(np.abs(y - exact) <= 2.0**-23 * np.abs(exact))


STARTED = """#p = affine_map<(m, n) -> (m, n)>
#r = affine_map<(m, n) -> (m)>
func.func @f(%x: tensor<7x70xf32>, %s: tensor<7xf32>) -> (tensor<7x70xf32>, tensor<7xf32>) {
  %m = linalg.generic {indexing_maps = [#p, #r], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<7x70xf32>) outs(%s : tensor<7xf32>) {
  ^bb0(%a: f32, %b: f32):
    %0 = arith.maximumf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<7xf32>
  %e = tensor.empty() : tensor<7x70xf32>
  %y = linalg.generic {indexing_maps = [#p, #r, #p], iterator_types = ["parallel", "parallel"]}
      ins(%x, %m : tensor<7x70xf32>, tensor<7xf32>) outs(%e : tensor<7x70xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %0 = arith.subf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<7x70xf32>
  return %y, %m : tensor<7x70xf32>, tensor<7xf32>
}"""


def test_what_a_reduction_starts_with_is_another_result_of_the_rows() -> None:
    rng = np.random.default_rng()
    x, s = rng.standard_normal((7, 70)).astype(np.float32), rng.uniform(1, 4, 7).astype(np.float32)
    largest = np.maximum(x.max(1), s)
    kernel = compile(STARTED, cache=False)
    y, m = kernel(x, s, device="interp", checks="all")
    assert len(kernel.launches) == 1
    np.testing.assert_array_equal(m, largest)
    np.testing.assert_array_equal(y, x - largest[:, None])


OVERWRITTEN = """#p = affine_map<(m, n) -> (m, n)>
#r = affine_map<(m, n) -> (m)>
func.func @f(%x: memref<7x70xf32>, %s: memref<7xf32>, %y: memref<7x70xf32>) {
  linalg.generic {indexing_maps = [#p, #r], iterator_types = ["parallel", "reduction"]}
      ins(%x : memref<7x70xf32>) outs(%s : memref<7xf32>) {
  ^bb0(%a: f32, %b: f32):
    %0 = arith.maximumf %a, %b : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#p, #r, #p], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : memref<7x70xf32>, memref<7xf32>) outs(%y : memref<7x70xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %0 = arith.subf %a, %b : f32
    linalg.yield %0 : f32
  }
  return
}"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("length", [70, 5000])
def test_what_a_reduction_starts_with_is_overwritten_and_read_along_the_rows(length: int) -> None:
    text = OVERWRITTEN.replace("7x70", f"7x{length}")
    rng = np.random.default_rng()
    x, s = rng.standard_normal((7, length)).astype(np.float32), rng.uniform(1, 4, 7).astype(np.float32)
    largest, y = np.maximum(x.max(1), s), np.zeros_like(x)
    compile(text, cache=False)(x, s, y, device="interp", checks="all")
    np.testing.assert_array_equal(s, largest)
    np.testing.assert_array_equal(y, x - largest[:, None])


UPDATED = """func.func @f(%x: memref<3x8x1xf32>, %s: memref<1x8xf32>) {
  linalg.generic {indexing_maps = [affine_map<(m, u, k) -> (k, m, u)>, affine_map<(m, u, k) -> (u, m)>],
      iterator_types = ["parallel", "parallel", "reduction"]} ins(%x : memref<3x8x1xf32>) outs(%s : memref<1x8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %0 = arith.addf %b, %a : f32
    linalg.yield %0 : f32
  }
  return
}"""


def test_a_sum_of_unit_loops_that_is_updated_in_place() -> None:
    """Views of one matrix are one operand, so that each element is read by the lane that writes it."""
    rng = np.random.default_rng()
    x, s = rng.integers(-9, 9, (3, 8, 1)).astype(np.float32), rng.integers(-9, 9, (1, 8)).astype(np.float32)
    summed = s + x.sum(0).T
    compile(UPDATED, cache=False)(x, s, device="interp", checks="all")
    np.testing.assert_array_equal(s, summed)
