"""Products of warpgroups with A or B in registers, converted or transposed on its way there: right over sizes that are
multiples of nothing, in every form of the result, and silent under the checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from problems import problem
from products import Product, Types

from warploom.dialect.schedule import Schedule
from warploom.passes.diagnostics import remarks
from warploom.runtime import CompileError, compile

Array = NDArray[Any]

CHECKS = "races,uninitialised,barriers,bounds,wgmma"

FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}
LIMITS = {"s8": (-128, 128), "u8": (0, 256), "s4": (-8, 8), "u4": (0, 16)}

BIASED = """
  linalg.generic {{indexing_maps = [#mn, #n, #m, #mn], iterator_types = ["parallel", "parallel"]}}
      ins(%T, %bias, %scales : {t}, memref<{n}x{out}>, memref<{m}xf32>) outs(%D : {d}) {{
  ^bb0(%x: f32, %b: {out}, %s: f32, %r: {out}):
    %wide = arith.extf %b : {out} to f32
    %0 = arith.addf %x, %wide : f32
    %1 = arith.mulf %0, %s : f32
    %old = arith.extf %r : {out} to f32
    %2 = arith.addf %1, %old : f32
    %y = arith.truncf %2 : f32 to {out}
    linalg.yield %y : {out}
  }}"""
"""A vector along columns, one along rows, and a matrix."""


@dataclass(frozen=True)
class Case:
    """A product of floats and integers, n x k in memory where they lie along K, else k x n, stored as `out`."""

    float_: str
    stored: str
    along_k: bool
    out: str
    shape: tuple[int, int, int]
    schedule: dict[str, Any] = field(default_factory=dict[str, Any])
    zero: int = 0
    start: str = "zero"

    def __str__(self) -> str:
        lies = "nk" if self.along_k else "kn"
        fields = " ".join(f"{name}={value}" for name, value in self.schedule.items())
        return f"{self.float_} {self.stored} {lies} {self.out} {self.start} {fields}"

    @property
    def b(self) -> str:
        (_, n, k), kind = self.shape, f"i{self.stored[1]}"
        return f"memref<{n}x{k}x{kind}>" if self.along_k else f"memref<{k}x{n}x{kind}>"

    @property
    def mlir(self) -> str:
        m, n, k = self.shape
        a, d, t = f"memref<{m}x{k}x{self.float_}>", f"memref<{m}x{n}x{self.out}>", f"memref<{m}x{n}xf32>"
        biased, axes = self.start == "biased", "(n, k)" if self.along_k else "(k, n)"
        into, kind = ("%T", t) if biased else ("%D", d)
        start = "plus %D" if self.start == "added" else f"init 0.0 : {'f32' if biased else self.out}"
        parameters = f"%bias: memref<{n}x{self.out}>, %scales: memref<{m}xf32>, " if biased else ""
        return f"""#mn = affine_map<(m, n) -> (m, n)>
#n = affine_map<(m, n) -> (n)>
#m = affine_map<(m, n) -> (m)>
func.func @f(%A: {a}, %B: {self.b}, {parameters}%D: {d}) {{
  {f"%T = memref.alloc() : {t}" if biased else ""}
  %W = warp.stored %B as {self.stored} minus {self.zero} : {self.b}
  warp.matmul {self.float_} x {self.float_} %A, %W {start} into {into}
      maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> {axes}>, affine_map<(m, n, k) -> (m, n)>]
      : {a}, !warp.operand<{self.b}>, {kind}{f" plus {d}" if self.start == "added" else ""}
  {BIASED.format(t=t, d=d, m=m, n=n, out=self.out) if biased else ""}
  return
}}"""


def tile(m: int, columns: int, rows: int = 0, depth: int = 64, **options: Any) -> dict[str, Any]:
    """A schedule in tiles of `rows` rows, or one instruction's."""
    return {"cta": (rows or m, columns, depth), "mma": f"m64n{m}k16", "in_registers": "b", **options}


CASES = [
    Case("bf16", "s8", True, "bf16", (70, 80, 80), tile(64, 128), zero=-5),
    Case("bf16", "u8", False, "bf16", (40, 208, 72), tile(32, 128), zero=3),
    Case("f16", "u8", True, "f32", (45, 70, 208), tile(32, 64, depth=128), start="added"),
    Case("f16", "s8", False, "f32", (45, 80, 136), tile(32, 64, depth=128), start="added"),
    Case("bf16", "s8", True, "bf16", (100, 72, 80), tile(96, 64), start="biased"),
    Case("f16", "s8", False, "f16", (100, 80, 72), tile(48, 64, 96), start="biased"),
    Case("f16", "u8", False, "f16", (83, 80, 72), tile(40, 64, staging=0), start="biased"),
    Case("bf16", "u8", True, "bf16", (33, 83, 144), tile(32, 64)),  # rows of D that lanes store
    Case("bf16", "s8", True, "f32", (72, 72, 272), tile(64, 64, split_k=2), zero=7),
    Case("bf16", "s8", False, "bf16", (72, 160, 136), tile(32, 64, ctas=2)),
    Case("bf16", "s8", True, "bf16", (40, 128, 144), tile(32, 64, cluster=(1, 2))),
    Case("bf16", "s8", False, "f32", (64, 80, 136), tile(32, 64, cluster=(2, 1))),
    Case("bf16", "s4", True, "bf16", (45, 72, 160), tile(32, 64), zero=-3),
    Case("f16", "u4", True, "f16", (45, 136, 224), tile(32, 128, depth=128), zero=9, start="biased"),
]


@pytest.mark.sampled(24)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_products_are_right_and_silent(case: Case) -> None:
    (m, n, k), rng, kind = case.shape, np.random.default_rng(), FLOATS[case.out]
    a = rng.standard_normal((m, k)).astype(FLOATS[case.float_])
    weights = rng.integers(*LIMITS[case.stored], (k, n))
    bias, scales = rng.standard_normal(n).astype(kind), rng.standard_normal(m).astype(np.float32)
    old = rng.standard_normal((m, n)).astype(kind)
    d = np.full((m, n), np.nan, kind) if case.start == "zero" else old.copy()
    kernel = compile(case.mlir, "sm_90a", cache=False, **case.schedule)
    packed = np.ascontiguousarray(weights.T if case.along_k else weights).astype(np.uint8)
    packed = packed if case.stored[1] == "8" else packed[:, ::2] & 15 | packed[:, 1::2] << 4
    operands = (bias, scales) if case.start == "biased" else ()
    kernel(a, packed.view(np.int8), *operands, d, device="interp", checks=CHECKS)
    exact = a.astype(np.float64) @ (weights - case.zero)
    if case.start == "biased":
        exact = (exact + bias.astype(np.float64)) * scales[:, None] + old
    elif case.start == "added":
        exact = exact + old
    bound = {"f32": 1e-6, "f16": 2**-10, "bf16": 2**-7}[case.out]
    np.testing.assert_allclose(d.astype(np.float64), exact, rtol=bound, atol=bound * np.abs(exact).max())


TF32, E4M3 = Types("f32", "f32", "f32"), Types("f8E4M3FN", "f8E4M3FN", "bf16")
MIXED = Types("f8E5M2", "f8E4M3FN", "f32")


def along_m(m: int, n: int, k: int, **options: Any) -> dict[str, Any]:
    """A schedule with A in registers, in tiles of K of 128 bytes."""
    return {"cta": (m, n, 4 * k), "mma": f"m64n{n}k{k}", "in_registers": "a", **options}


TRANSPOSED = [
    Product(TF32, "cleared", "A B", (45, 136, 72), tile(32, 128, depth=32) | {"mma": "m64n32k8"}),
    Product(TF32, "gelu by tanh", "A B", (45, 72, 72), tile(32, 64, staging=0) | {"mma": "m64n32k8"}),
    Product(E4M3, "residual", "A B", (45, 80, 144), tile(32, 64, depth=128, promote="none") | {"mma": "m64n32k32"}),
    Product(MIXED, "added", "A B", (45, 80, 144), tile(32, 64, depth=128, promote="none") | {"mma": "m64n32k32"}),
    Product(Types("i8", "i8", "i32"), "batch", "A B", (45, 80, 144), tile(32, 64, depth=128) | {"mma": "m64n32k32"}),
    Product(TF32, "cleared", "At Bt", (136, 45, 72), along_m(128, 32, 8)),
    Product(TF32, "residual", "At Bt", (72, 45, 72), along_m(64, 32, 8, staging=0)),
    Product(E4M3, "gelu by tanh", "At Bt", (144, 72, 144), along_m(128, 64, 32, ctas=2, promote="none")),
    Product(MIXED, "added", "At Bt", (80, 45, 144), along_m(64, 32, 32, promote="none")),
    Product(Types("i8", "i8", "i32"), "batch", "At Bt", (80, 45, 144), along_m(64, 32, 32)),
]


BOTH = [
    Product(TF32, "cleared", "At B", (72, 48, 72), along_m(64, 32, 8, transpose="b")),
    Product(
        E4M3,
        "cleared",
        "At B",
        (48, 144, 144),
        tile(32, 64, depth=128, transpose="a", promote="none") | {"mma": "m64n32k32"},
    ),
]


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("product", "launches"), [*((product, 1) for product in TRANSPOSED), *((product, 2) for product in BOTH)], ids=str
)
def test_an_operand_that_does_not_lie_along_k_is_transposed_in_registers(product: Product, launches: int) -> None:
    """Of two such operands, the other one is transposed by a launch."""
    kernel, instance = product.compile("sm_90a"), problem(product, 3)
    assert len(kernel.launches) == launches
    kernel(*instance.arguments, device="interp", checks=CHECKS)
    assert instance.wrong() == ""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("lies", "size", "in_registers", "transpose"),
    [
        ("At Bt", (1024, 2048, 4096), "a", "none"),
        ("At B", (1024, 4096, 2048), "b", "a"),
        ("At B", (4096, 1024, 2048), "a", "b"),
        ("At B", (2048, 2048, 2048), "b", "a"),
        ("A Bt", (2048, 2048, 2048), "none", "none"),
    ],
)
def test_the_smaller_of_two_operands_is_transposed(
    lies: str, size: tuple[int, int, int], in_registers: str, transpose: str
) -> None:
    schedule = Product(TF32, "cleared", lies, size).compile("sm_90a").schedule[-1]
    assert schedule is not None
    assert (schedule.in_registers, schedule.transpose) == (in_registers, transpose)


def test_a_stays_in_shared_memory_beside_what_would_spill() -> None:
    schedule = Product(TF32, "gelu by tanh", "At Bt", (2048, 2048, 2048)).compile("sm_90a").schedule[-1]
    assert schedule is not None
    assert (schedule.in_registers, schedule.transpose) == ("none", "a")


@pytest.mark.parametrize(
    ("lies", "schedule", "message"),
    [
        ("At Bt", along_m(64, 64, 32, transpose="a"), "transpose = a: A in registers takes operands as they lie"),
        ("At B", along_m(64, 64, 32, transpose="none"), "B of e4m3 must lie along k; or transpose it"),
        (
            "A Bt",
            along_m(64, 64, 32),
            "cannot multiply this product with in_registers = a: A of e4m3 along k is multiplied where it lies",
        ),
        ("At Bt", along_m(64, 64, 32, padded="d"), "padded = d: A in registers takes operands as they lie"),
        (
            "At Bt",
            {"mma": "m16n8k32", "in_registers": "a"},
            "in_registers = a is for products of warpgroups",
        ),
    ],
)
def test_what_does_not_fit_a_in_registers_is_refused(lies: str, schedule: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        Product(E4M3, "cleared", lies, (128, 128, 256), {"promote": "none", **schedule}).compile("sm_90a")


def test_a_remark_says_why_a_is_not_changed_in_registers() -> None:
    with remarks() as log:
        Product(E4M3, "cleared", "At Bt", (1032, 1024, 1024)).compile("sm_90a")
    said = [line for line in log if "warpgroups do not change A in registers" in line]
    assert len(said) == 1
    assert "A must have rows that are multiples of 16 bytes" in said[0]


def chosen(case: Case, **options: Any) -> Schedule:
    (schedule,) = compile(case.mlir, "sm_90a", cache=False, **options).schedule
    assert schedule is not None
    return schedule


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("case", "tile"),
    [
        (Case("bf16", "s8", True, "bf16", (256, 8192, 8192)), (256, 64)),
        (Case("bf16", "s8", False, "bf16", (512, 8192, 8192)), (256, 128)),
        (Case("bf16", "s8", False, "bf16", (64, 8192, 8192)), (64, 64)),
        (Case("bf16", "u4", True, "bf16", (64, 8192, 8192)), (64, 128)),  # in parts of K
        (Case("bf16", "u4", False, "bf16", (256, 8192, 8192)), None),  # which is not built
        (Case("bf16", "s8", True, "bf16", (64, 8192, 8192)), None),  # too few rows for B along K
        (Case("bf16", "s8", False, "bf16", (256, 1024, 1024)), None),  # too little to multiply
        (Case("bf16", "s8", True, "bf16", (256, 8192, 8200)), None),  # rows that no tensor copy moves
    ],
    ids=str,
)
def test_what_the_model_chooses(case: Case, tile: tuple[int, int] | None) -> None:
    schedule = chosen(case)
    assert schedule.exchanged == (tile is not None)
    assert tile in (None, schedule.cta[:2])


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (Case("bf16", "u4", False, "bf16", (256, 8192, 8192)), "integers of 4 bits in rows along n are not converted"),
        (Case("bf16", "s8", True, "bf16", (256, 8192, 8200)), "B must have rows that are multiples of 16 bytes"),
        (Case("bf16", "s8", True, "bf16", (256, 8192, 8192)), ""),
        (Case("bf16", "u4", False, "bf16", (16, 8192, 8192)), ""),  # too few rows for it to matter
    ],
    ids=str,
)
def test_a_remark_says_why_b_is_not_changed_so(case: Case, reason: str) -> None:
    with remarks() as log:
        compile(case.mlir, "sm_90a", cache=False)
    said = [line for line in log if "warpgroups do not change B in registers" in line]
    assert bool(said) == bool(reason)
    assert all(reason in line for line in said)


SMALL = Case("f16", "s8", True, "f16", (64, 64, 64))


@pytest.mark.parametrize(
    ("case", "schedule", "message"),
    [
        (SMALL, tile(64, 64, warp=(64, 32)), "cta and warp must be multiples of mma = m64n64k16 of the transpose"),
        (SMALL, tile(64, 64, depth=32), "K tiles of warpgroups are multiples of 128 bytes, got 32 elements"),
        (SMALL, tile(64, 64, staging=32), "staging = 32: a warpgroup stages 64 rows of D"),
        (SMALL, tile(64, 64, consumers="pingpong"), "consumers = pingpong: with B in registers none take turns"),
        (SMALL, tile(64, 64, pack="a"), "pack = a: B in registers takes operands as they lie"),
        (
            SMALL,
            {"mma": "m16n8k16", "in_registers": "b"},
            "in_registers = b is for products of warpgroups",
        ),
        (Case("f16", "s8", True, "f16", (64, 64, 72)), tile(64, 64), "B must have rows that are multiples of 16 bytes"),
    ],
)
def test_what_does_not_fit_is_refused(case: Case, schedule: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        compile(case.mlir, "sm_90a", cache=False, **schedule)


def test_sums_of_b_in_registers_are_not_promoted() -> None:
    """Each step's products are added to one sum."""
    schedule = tile(32, 64, depth=128) | {"mma": "m64n32k32", "promote": "f32"}
    with pytest.raises(
        CompileError, match="in_registers = b: sums of 8-bit floats would be short; promote = none, or fastmath"
    ):
        Product(E4M3, "cleared", "A B", (45, 80, 144), schedule).compile("sm_90a")
