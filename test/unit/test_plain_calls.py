"""Calling kernels by name, with outputs left out; kernels that are shown, copied and pickled."""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom.runtime
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import ArgumentError, CompileError, Kernel, WarploomError, compile
from warploom.runtime.kernel.module import LaunchPlace
from warploom.runtime.numerics.floats import Array


def matmul(m: str, n: str, k: str, *, fill: bool = True, c: str = "f32", layout: str = "") -> str:
    cleared = f"%z = arith.constant 0.0 : {c} linalg.fill ins(%z : {c}) outs(%C : memref<{m}x{n}x{c}{layout}>)"
    return f"""func.func @product(%A: memref<{m}x{k}xf16>, %B: memref<{k}x{n}xf16>, %C: memref<{m}x{n}x{c}{layout}>) {{
      {cleared if fill else ""}
      linalg.matmul ins(%A, %B : memref<{m}x{k}xf16>, memref<{k}x{n}xf16>) outs(%C : memref<{m}x{n}x{c}{layout}>)
      return
    }}"""


M, N, K = 19, 13, 27


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return compile(matmul(str(M), str(N), str(K)))


@pytest.fixture(scope="module")
def dynamic() -> Kernel:
    return compile(matmul("?", "?", "?", fill=False))


def operands(m: int = M, n: int = N, k: int = K) -> tuple[Array, Array]:
    random = np.random.default_rng((m, n, k))
    return random.standard_normal((m, k)).astype(np.float16), random.standard_normal((k, n)).astype(np.float16)


def check(c: Array, a: Array, b: Array, start: Array | float = 0.0) -> None:
    """Within the bound of f32 accumulation in any order, against float64."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    assert np.all(np.abs(c - (start + a @ b)) <= (a.shape[1] + 2) * 2.0**-23 * (np.abs(a) @ np.abs(b) + np.abs(start)))


class TestCalls:
    def test_an_output_left_out_is_returned(self, kernel: Kernel) -> None:
        a, b = operands()
        for c in (kernel(a, b, device="interp"), kernel(B=b, A=a, device="interp"), kernel(a, B=b, device="interp")):
            assert (type(c), c.dtype, c.shape) == (np.ndarray, np.float32, (M, N))
            check(c, a, b)

    def test_with_every_argument_it_says_where_it_ran(self, kernel: Kernel) -> None:
        a, b = operands()
        for call in ((lambda c: kernel(a, b, c, device="interp")), (lambda c: kernel(C=c, A=a, B=b, device="interp"))):
            c = np.full((M, N), np.nan, np.float32)
            assert isinstance(call(c), LaunchPlace)
            check(c, a, b)

    @pytest.mark.parametrize(
        "form", [lambda c: c, lambda c: [c], lambda c: {"C": c}, lambda c: {"%C": c}, lambda c: {2: c}]
    )
    def test_out(self, kernel: Kernel, form: Any) -> None:
        a, b = operands()
        c = np.full((M, N), np.nan, np.float32)
        assert kernel(a, b, out=form(c), device="interp") is c
        check(c, a, b)

    def test_what_is_added_to_starts_as_zeros(self, dynamic: Kernel) -> None:
        for sizes in ((5, 9, 17), (33, 1, 8)):
            a, b = operands(*sizes)
            check(dynamic(a, b, device="interp"), a, b)
            start = np.random.default_rng(2).standard_normal(sizes[:2]).astype(np.float32)
            c = start.copy()
            assert dynamic(a, b, out=c, device="interp") is c
            check(c, a, b, start)

    @pytest.mark.parametrize(
        ("a", "got"),
        [
            (np.zeros(27, np.float16), r"\?x\?xf16, got 27xf16"),
            (np.zeros((1, 5, 27), np.float16), r"\?x\?xf16, got 1x5x27xf16"),
            (np.float16(3), r"\?x\?xf16: expected a numpy array or .*, got float16"),
            (None, r"\?x\?xf16: expected a numpy array or .*, got NoneType"),
            (np.zeros((5, 27), ">f2"), r"\?x\?xf16: expected elements in the byte order of this machine"),
        ],
    )
    def test_an_argument_that_tells_no_extents_is_named(self, dynamic: Kernel, a: object, got: str) -> None:
        with pytest.raises(ArgumentError, match=rf"^argument 0 \(%A\): expected {got}"):
            dynamic(a, operands()[1], device="interp")

    def test_launches_depend_on_every_argument(self, dynamic: Kernel) -> None:
        with pytest.raises(ArgumentError, match=r"@product\(.*\): expected 3 arguments, got 2"):
            dynamic.called_with(*operands())

    def test_results_of_functions_on_tensors(self) -> None:
        text = """func.func @two(%A: tensor<19x27xf16>, %B: tensor<27x13xf16>)
            -> (tensor<19x13xf32>, tensor<19x13xbf16>) {
          %z = arith.constant 0.0 : f32
          %e = tensor.empty() : tensor<19x13xf32>
          %f = linalg.fill ins(%z : f32) outs(%e : tensor<19x13xf32>) -> tensor<19x13xf32>
          %p = linalg.matmul ins(%A, %B : tensor<19x27xf16>, tensor<27x13xf16>) outs(%f : tensor<19x13xf32>)
            -> tensor<19x13xf32>
          %h = tensor.empty() : tensor<19x13xbf16>
          %q = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
            iterator_types = ["parallel", "parallel"]} ins(%p : tensor<19x13xf32>) outs(%h : tensor<19x13xbf16>) {
            ^bb0(%x: f32, %y: bf16):
              %t = arith.truncf %x : f32 to bf16
              linalg.yield %t : bf16
          } -> tensor<19x13xbf16>
          return %p, %q : tensor<19x13xf32>, tensor<19x13xbf16>
        }"""
        a, b = operands()
        p, q = compile(text)(a, b, device="interp")
        check(p, a, b)
        assert np.array_equal(q, p.astype(ml_dtypes.bfloat16))

    def test_rows_apart(self) -> None:
        kernel = compile(matmul(str(M), str(N), str(K), layout=", strided<[40, 1]>"))
        a, b = operands()
        c = kernel(a, b, device="interp")
        assert c.strides == (160, 4)
        check(c, a, b)

    @pytest.mark.parametrize(
        ("args", "named", "message"),
        [
            ([0], {}, r"@product\(.*\): expected 3 arguments, got 1; missing: argument 1 \(%B\)"),
            ([], {"B": 1}, r"expected 3 arguments, got 1; missing: argument 0 \(%A\)"),
            ([0], {"A": 1}, r"@product\(.*\): argument 0 \(%A\) is given twice"),
            ([0, 1], {"D": 1}, r"no argument 'D'; there are 0 or %A, 1 or %B, 2 or %C"),
            ([0, 1, 2, 3], {}, "expected 3 arguments, got 4"),
            ([0, 1], {"out": [1, 2]}, r"out: expected an array for each output .*\(argument 2 \(%C\)\), got 2"),
            ([0, 1], {"out": {"A": 1}}, r"out: argument 0 \(%A\) of @product.* is no output"),
            ([0, 1, 2], {"out": 2}, r"out: expected an array for each output that is not given \(none\), got 1"),
            ([0, 1, 2], {"out": {"C": 2}}, r"argument 2 \(%C\) is given twice"),
            (["a", "b"], {}, r"argument 0 \(%A\): expected 19x27xf16: expected a numpy array"),
            ([*operands()], {"report": True}, r"a call with every argument returns a report; pass argument 2 \(%C\)"),
        ],
    )
    def test_misuse(self, kernel: Kernel, args: list[object], named: dict[str, Any], message: str) -> None:
        with pytest.raises(ArgumentError, match=message):
            kernel(*args, device="interp", **named)

    def test_an_extent_that_nothing_tells(self) -> None:
        text = """func.func @f(%A: memref<?xf32>, %C: memref<?x?xf32>) {
          linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
            iterator_types = ["parallel", "parallel"]} ins(%A : memref<?xf32>) outs(%C : memref<?x?xf32>) {
            ^bb0(%x: f32, %y: f32):
              linalg.yield %x : f32
          }
          return
        }"""
        kernel = compile(text)
        with pytest.raises(ArgumentError, match=r"argument 1 \(%C\): nothing tells the extents of \?x\?xf32; pass the"):
            kernel(np.zeros(3, np.float32), device="interp")


COMPUTED = {
    "as many rows as two arguments": (
        """%r = tensor.concat dim(0) %x, %y : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  return %r : tensor<?x4xf32>""",
        lambda x, y, _: np.concatenate([x, y]),
    ),
    "two rows less": (
        """%m = tensor.dim %x, %c0 : tensor<?x4xf32>
  %k = arith.subi %m, %c2 : index
  %s = tensor.extract_slice %x[1, 0] [%k, 4] [1, 1] : tensor<?x4xf32> to tensor<?x4xf32>
  %e = tensor.empty(%k) : tensor<?x4xf32>
  %r = linalg.abs ins(%s : tensor<?x4xf32>) outs(%e : tensor<?x4xf32>) -> tensor<?x4xf32>
  return %r : tensor<?x4xf32>""",
        lambda x, *_: np.abs(x[1:-1]),
    ),
    "rows of zeros around": (
        """%m = tensor.dim %y, %c0 : tensor<?x4xf32>
  %r = tensor.pad %x low[1, 0] high[%m, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %z : f32
  } : tensor<?x4xf32> to tensor<?x4xf32>
  return %r : tensor<?x4xf32>""",
        lambda x, y, _: np.pad(x, [(1, len(y)), (0, 0)]),
    ),
    "all elements": (
        """%r = tensor.collapse_shape %x [[0, 1]] : tensor<?x4xf32> into tensor<?xf32>
  return %r : tensor<?xf32>""",
        lambda x, *_: x.reshape(-1),
    ),
    "as many rows as an index": (
        """%r = tensor.extract_slice %x[1, 0] [%n, 4] [1, 1] : tensor<?x4xf32> to tensor<?x4xf32>
  return %r : tensor<?x4xf32>""",
        lambda x, _, n: x[1 : 1 + n],
    ),
}
"""Results of sizes that are computed: the body of a function, and what numpy makes of its arguments."""


@pytest.mark.parametrize("name", COMPUTED)
def test_extents_that_are_computed(name: str) -> None:
    body, reference = COMPUTED[name]
    kernel = compile(
        f"""func.func @f(%x: tensor<?x4xf32>, %y: tensor<?x4xf32>, %n: index) -> {body.rpartition(": ")[2]} {{
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %z = arith.constant 0.0 : f32
  {body}
}}"""
    )
    for rows in (5, 7):
        x, y, n = np.random.rand(rows, 4).astype(np.float32) - 0.5, np.ones((3, 4), np.float32), 2
        expected = reference(x, y, n)
        np.testing.assert_array_equal(kernel(x, y, n, device="interp"), expected)
        for size in (len(expected) - 1, len(expected) + 1):
            result = np.zeros((size, *expected.shape[1:]), np.float32)
            with pytest.raises(ArgumentError, match=rf"argument 3 \(%r\): expected {len(expected)}x.*, got {size}x"):
                kernel(x, y, n, result, device="interp")


class Foreign:
    """A tensor of another library, over a numpy array; it stands for torch's and jax's in what is used of those."""

    device = "somewhere"

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack__(self, **_: object) -> object:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def zero_(self) -> Foreign:
        self.array[...] = 0
        return self


def foreign(library: str) -> Any:
    return type("Tensor", (Foreign,), {"__module__": f"{library}.inner"})


class TestLibraries:
    @pytest.mark.parametrize("fill", [True, False])
    def test_torch(self, monkeypatch: pytest.MonkeyPatch, kernel: Kernel, fill: bool) -> None:
        tensor = foreign("torch")

        def empty_strided(shape: Any, strides: Any, *, dtype: Any, device: str, requires_grad: bool) -> Foreign:
            assert (shape, strides, dtype, device, requires_grad) == ((M, N), [N, 1], np.float32, "somewhere", False)
            return tensor(np.full(shape, np.nan, dtype))

        fake: Any = SimpleNamespace(Tensor=(), empty_strided=empty_strided, float32=np.float32)
        monkeypatch.setitem(sys.modules, "torch", fake)
        a, b = operands()
        called = kernel if fill else compile(matmul(str(M), str(N), str(K), fill=False))
        c = called(tensor(a), b, device="interp")
        assert type(c) is tensor
        check(c.array, a, b)

    def test_jax(self, monkeypatch: pytest.MonkeyPatch, kernel: Kernel) -> None:
        tensor, fake = foreign("jaxlib"), ModuleType("jax")
        fake.numpy = SimpleNamespace(asarray=tensor)  # pyright: ignore[reportAttributeAccessIssue]
        monkeypatch.setitem(sys.modules, "jax", fake)
        a, b = operands()
        c = kernel(tensor(a), tensor(b), device="interp")
        assert type(c) is tensor
        check(c.array, a, b)

    def test_one_that_is_not_known(self, kernel: Kernel) -> None:
        a, b = operands()
        with pytest.raises(ArgumentError, match=r"argument 2 \(%C\): no arrays of tensorflow are made; pass the out"):
            kernel(foreign("tensorflow")(a), b, device="interp")


class TestSources:
    def test_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "a.mlir"
        path.write_text(matmul("8", "8", "8"))
        kernels = compile(path), compile(str(path)), compile(path.read_text()), compile(path.read_text() + "// a.mlir")
        assert len({kernel.ptx for kernel in kernels}) == 1
        assert [kernel.name for kernel in kernels] == [str(path), str(path), "<mlir>", "<mlir>"]

    def test_a_file_that_is_wrong(self, tmp_path: Path) -> None:
        with pytest.raises(WarploomError, match=r"^nowhere\.mlir: No such file or directory$"):
            compile("nowhere.mlir")
        path = tmp_path / "a.mlir"
        path.write_text("\n !")
        with pytest.raises(CompileError, match=rf"^{path}:2:2: error: "):
            compile(path)
        path.write_bytes(b"ML\xefR")
        with pytest.raises(WarploomError, match=rf"^{path}: expected MLIR text, got MLIR bytecode"):
            compile(path)

    def test_a_module(self) -> None:
        module = parse_mlir(make_context(), matmul("8", "8", "8"))
        assert compile(module).name == "<mlir>"


class TestKernelsAsValues:
    def test_repr(self, kernel: Kernel) -> None:
        shown = repr(kernel)
        assert shown.startswith(
            "<Kernel @product(%A: 19x27xf16, %B: 27x13xf16, %C: 19x13xf32) for sm_90a: 1 launch, cta"
        )
        assert len(shown) < 300

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda k: pickle.loads(pickle.dumps(k))])
    def test_copies(self, kernel: Kernel, dynamic: Kernel, copied: Any) -> None:
        a, b = operands()
        _ = kernel.binary
        for one in (kernel, dynamic):
            other = copied(one)
            assert other == one
            assert {other, one} == {one}
            check(other(a, b, device="interp"), a, b)

    def test_what_there_is(self) -> None:
        assert {*warploom.runtime.__all__} == {name for name in dir(warploom.runtime) if not name.startswith("__")}
