"""Large products whose rows begin anywhere, from copies with aligned rows. Here, small ones count as large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from warploom.passes.schedule import version
from warploom.runtime import Kernel, compile

TYPES = {
    "bf16": ml_dtypes.bfloat16, "f8E4M3FN": ml_dtypes.float8_e4m3fn, "i8": "i1", "ui8": "u1", "f16": "f2", "f32": "f4",
    "f64": "f8", "i32": "i4",
}  # fmt: skip
ANYWHERE = ", strided<[?, 1], offset: ?>"
SIZES = {"m": 70, "n": 51, "k": 45, "0": 1}
LEAST = 1 << 10


@pytest.fixture(autouse=True)
def _few_products_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "LEAST_PACKED", LEAST)


@dataclass(frozen=True)
class Case:
    """D = A B, plus the matrices and vectors that are added: loops of each, those of known size, the layout in memory,
    and the launches that it takes."""

    element: str
    result: str
    target: str
    a: str = "mk"
    b: str = "kn"
    known: str = ""
    layout: str = ""
    added: tuple[str, ...] = ()
    onto_d: bool = False
    launches: int = 6

    def memory(self, loops: str, element: str, layout: str = "") -> str:
        sizes = ["1" if loop == "0" else str(SIZES[loop]) if loop in self.known else "?" for loop in loops]
        return f"memref<{'x'.join(sizes)}x{element}{layout}>"

    @property
    def text(self) -> str:
        a, b = (self.memory(loops, self.element, self.layout) for loops in (self.a, self.b))
        d = self.memory("mn", self.result, self.layout)
        more = [self.memory(loops, self.result) for loops in self.added]
        arguments = [f"%A: {a}", f"%B: {b}", *(f"%X{i}: {kind}" for i, kind in enumerate(more)), f"%D: {d}"]
        maps = [f"affine_map<(m, n, k) -> ({', '.join(loops)})>" for loops in (self.a, self.b, "mn")]
        whole = self.result == "i32"
        fill = "" if self.onto_d else f"linalg.fill ins(%zero : {self.result}) outs(%D : {d})"
        cast = "unsigned" if self.element[0] == "u" else "signed"
        product = (
            f"linalg.contract indexing_maps = [{', '.join(maps)}] {{cast = #linalg.type_fn<cast_{cast}>}} "
            f"ins(%A, %B : {a}, {b}) outs(%D : {d})"
        )
        sums: list[str] = []
        for i, (loops, kind) in enumerate(zip(self.added, more, strict=True)):
            along = [f"affine_map<(m, n) -> ({', '.join(loops)})>", "affine_map<(m, n) -> (m, n)>"]
            sums.append(
                f"""linalg.generic {{indexing_maps = [{", ".join(along)}], iterator_types = ["parallel", "parallel"]}}
                    ins(%X{i} : {kind}) outs(%D : {d}) {{
                ^bb0(%x: {self.result}, %d: {self.result}):
                  %s = arith.{"addi" if whole else "addf"} %x, %d : {self.result}
                  linalg.yield %s : {self.result}
                }}"""
            )
        return f"""func.func @f({", ".join(arguments)}) {{
          %zero = arith.constant {"0" if whole else "0.0"} : {self.result}
          {fill}
          {product}
          {" ".join(sums)}
          return
        }}"""

    def compiled(self) -> Kernel:
        return compile(self.text, target=self.target, tf32=self.element == "f32")


def drawn(rng: np.random.Generator, shape: tuple[int, ...], element: str) -> Any:
    if "i" in element:
        return rng.integers(0 if element[0] == "u" else -9, 9, shape).astype(TYPES[element])
    return rng.standard_normal(shape).astype(TYPES[element])


CASES = [
    Case("bf16", "bf16", "sm_90a", layout=ANYWHERE),
    Case("bf16", "f32", "sm_90a", added=("mn", "n"), launches=10),
    Case("f16", "f32", "sm_90a", added=("nm", "0n", "m"), launches=10),
    Case("f16", "f32", "sm_80", onto_d=True, launches=8),
    Case("f16", "f16", "sm_75", a="km", b="nk"),
    Case("bf16", "bf16", "sm_120a", known="nk"),
    Case("f32", "f32", "sm_90a", b="nk"),
    Case("f32", "f32", "sm_80", launches=1),
    Case("f64", "f64", "sm_90a", launches=1),
    Case("f8E4M3FN", "f32", "sm_90a", b="nk", layout=ANYWHERE),
    Case("i8", "i32", "sm_80", b="nk", added=("n",), launches=8),
    Case("ui8", "i32", "sm_80", b="nk", launches=1),
]


def along(loops: str, array: Any, first: str) -> Any:
    """A float64 array with the loop `first`, if it has it, as its rows."""
    values = array.astype(np.float64)
    if len(loops) == 1:
        return values[:, None] if loops == first else values
    return values if loops[0] in (first, "0") else values.T


def bound(case: Case) -> float:
    """Of the sum of all magnitudes: the result's rounding, or that of what is multiplied or summed."""
    coarse = {"f32": 2.0**-9, "f8E4M3FN": 2.0**-11}.get(case.element, 0.0)
    return max(coarse, {"bf16": 2.0**-8, "f16": 2.0**-10, "f32": 2.0**-17, "f64": 2.0**-46, "i32": 0.0}[case.result])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_copies_give_the_product(case: Case) -> None:
    """Elements of four bytes and more gain by it only where warpgroups multiply; constants of `arith` have no sign."""
    rng, kernel = np.random.default_rng(7), case.compiled()
    lie = [(case.a, case.element), (case.b, case.element), *((x, case.result) for x in case.added), ("mn", case.result)]
    a, b, *more, d = (drawn(rng, tuple(SIZES[loop] for loop in loops), kind) for loops, kind in lie)
    if not case.onto_d:
        d[...] = 77 if case.result == "i32" else np.nan
    terms = [along(*pair, "m") for pair in zip(case.added, more, strict=True)] + [d.astype(np.float64)] * case.onto_d
    x, y = along(case.a, a, "m"), along(case.b, b, "k")
    assert len(kernel.called_with(a, b, *more, d).launches) == case.launches
    kernel(a, b, *more, d, device="interp", checks="all")
    expected, size = x @ y, np.abs(x) @ np.abs(y)
    for term in terms:
        expected, size = expected + term, size + np.abs(term)
    assert (np.abs(d.astype(np.float64) - expected) <= bound(case) * size).all()


def test_each_call_has_copies_of_its_size() -> None:
    kernel = Case("bf16", "f32", "sm_90a").compiled()
    rng = np.random.default_rng(8)
    for m, n, k in ((70, 51, 45), (65, 33, 17), (131, 70, 9), (70, 51, 45)):
        a, b, d = drawn(rng, (m, k), "bf16"), drawn(rng, (k, n), "bf16"), np.full((m, n), np.nan, np.float32)
        kernel(a, b, d, device="interp")
        x, y = a.astype(np.float64), b.astype(np.float64)
        assert (np.abs(d - x @ y) <= (k + 3) * 2.0**-23 * (np.abs(x) @ np.abs(y))).all()


@pytest.mark.parametrize(("m", "k", "launches"), [(64, 100, 1), (65, 1, 1), (65, 100, 6)])
def test_small_products_take_any_rows(m: int, k: int, launches: int) -> None:
    """And those of a few rows, where copying B takes longer than reading it."""
    n = 15
    assert (m * n * k >= LEAST) == (k > 1)
    a, b, d = np.zeros((m, k), TYPES["bf16"]), np.zeros((k, n), TYPES["bf16"]), np.zeros((m, n), np.float32)
    assert len(Case("bf16", "f32", "sm_90a").compiled().called_with(a, b, d).launches) == launches


def test_a_matrix_in_two_places_is_not_copied() -> None:
    """As both factors it would be rounded along other loops in each."""
    text = """func.func @f(%A: memref<?x?xbf16>, %D: memref<?x?xf32>) {
      %zero = arith.constant 0.0 : f32
      linalg.fill ins(%zero : f32) outs(%D : memref<?x?xf32>)
      linalg.matmul ins(%A, %A : memref<?x?xbf16>, memref<?x?xbf16>) outs(%D : memref<?x?xf32>)
      return
    }"""
    kernel = compile(text, target="sm_90a")
    a, d = drawn(np.random.default_rng(9), (67, 67), "bf16"), np.full((67, 67), np.nan, np.float32)
    assert len(kernel.called_with(a, d).launches) == 1
    kernel(a, d, device="interp")
    x = a.astype(np.float64)
    assert (np.abs(d - x @ x) <= 70 * 2.0**-23 * (np.abs(x) @ np.abs(x))).all()
