"""Products of warpgroups with B in registers, converted on its way there: right against float64 over sizes that are
multiples of nothing, in every form of the result, and silent under the checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from warploom.dialect.schedule import Schedule
from warploom.runtime import CompileError, compile

Array = NDArray[Any]

CHECKS = "races,uninitialised,barriers,bounds,wgmma"

FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}
LIMITS = {"s8": (-128, 128), "u8": (0, 256)}

BIASED = """ epilogue(%x: f32, %b: {out}, %s: f32, %r: {out}) {{
  %wide = arith.extf %b : {out} to f32
  %0 = arith.addf %x, %wide : f32
  %1 = arith.mulf %0, %s : f32
  %old = arith.extf %r : {out} to f32
  %2 = arith.addf %1, %old : f32
  %y = arith.truncf %2 : f32 to {out}
  warp.yield %y : {out}
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
        given = " ".join(f"{name}={value}" for name, value in self.schedule.items())
        return f"{self.float_} {self.stored} {lies} {self.out} {self.start} {given}"

    @property
    def b(self) -> str:
        _, n, k = self.shape
        return f"memref<{n}x{k}xi8>" if self.along_k else f"memref<{k}x{n}xi8>"

    @property
    def mlir(self) -> str:
        m, n, k = self.shape
        a, d = f"memref<{m}x{k}x{self.float_}>", f"memref<{m}x{n}x{self.out}>"
        epilogue, kinds, maps, operands = "", "", "", ""
        if self.start == "biased":
            epilogue, operands = BIASED.format(out=self.out), " with %bias, %scales, %D"
            kinds = f", memref<{n}x{self.out}>, memref<{m}xf32>, {d}"
            maps = "".join(f", affine_map<(m, n, k) -> ({along})>" for along in ("n", "m", "m, n"))
        init = "plus %D" if self.start == "added" else f"init 0.0 : {'f32' if epilogue else self.out}"
        beside = f"%bias: memref<{n}x{self.out}>, %scales: memref<{m}xf32>, " if epilogue else ""
        more = f"{d}, " if self.start == "added" else ""
        return f"""func.func @f(%A: {a}, %B: {self.b}, {beside}%D: {d}) {{
  %W = warp.stored %B as {self.stored} minus {self.zero} : {self.b}
  warp.matmul {self.float_} x {self.float_} %A, %W {init} into %D{operands}
      maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> {"(n, k)" if self.along_k else "(k, n)"}>,
            affine_map<(m, n, k) -> (m, n)>{maps}]
      : {a}, !warp.operand<{self.b}>, {more}{d}{kinds}{epilogue}
  return
}}"""


def tile(m: int, columns: int, rows: int = 0, depth: int = 64, **options: Any) -> dict[str, Any]:
    """A schedule in tiles of `rows` rows, or one instruction's."""
    return {"cta": (rows or m, columns, depth), "mma": f"m64n{m}k16", "in_registers": "b", **options}


CASES = [
    Case("bf16", "s8", True, "bf16", (77, 144, 144), tile(64, 128), zero=-5),
    Case("bf16", "u8", False, "bf16", (40, 208, 72), tile(32, 128), zero=3),
    Case("f16", "u8", True, "f32", (45, 70, 208), tile(32, 64, depth=128), start="added"),
    Case("f16", "s8", False, "f32", (45, 80, 136), tile(32, 64, depth=128), start="added"),
    Case("bf16", "s8", True, "bf16", (100, 136, 80), tile(96, 128), start="biased"),
    Case("f16", "s8", False, "f16", (100, 80, 72), tile(48, 64, 96), start="biased"),
    Case("f16", "u8", False, "f16", (83, 80, 72), tile(40, 64, staging=0), start="biased"),
    Case("bf16", "u8", True, "bf16", (33, 83, 144), tile(32, 64)),  # rows of D that lanes store
    Case("bf16", "s8", True, "f32", (72, 72, 272), tile(64, 64, split_k=2), zero=7),
    Case("bf16", "s8", False, "bf16", (72, 160, 136), tile(32, 64, ctas=2)),
    Case("bf16", "s8", True, "bf16", (40, 128, 144), tile(32, 64, cluster=(1, 2))),
    Case("bf16", "s8", False, "f32", (64, 80, 136), tile(32, 64, cluster=(2, 1))),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_products_are_right_and_silent(case: Case) -> None:
    (m, n, k), rng, kind = case.shape, np.random.default_rng(), FLOATS[case.out]
    a = rng.standard_normal((m, k)).astype(FLOATS[case.float_])
    weights = rng.integers(*LIMITS[case.stored], (k, n))
    bias, scales = rng.standard_normal(n).astype(kind), rng.standard_normal(m).astype(np.float32)
    old = rng.standard_normal((m, n)).astype(kind)
    d = np.full((m, n), np.nan, kind) if case.start == "zero" else old.copy()
    kernel = compile(case.mlir, "sm_90a", cache=False, **case.schedule)
    held = np.ascontiguousarray((weights.T if case.along_k else weights).astype(np.uint8).view(np.int8))
    beside = (bias, scales) if case.start == "biased" else ()
    kernel(a, held, *beside, d, device="interp", checks=CHECKS)
    exact = a.astype(np.float64) @ (weights - case.zero)
    if case.start == "biased":
        exact = (exact + bias.astype(np.float64)) * scales[:, None] + old
    elif case.start == "added":
        exact = exact + old
    bound = {"f32": 1e-6, "f16": 2**-10, "bf16": 2**-7}[case.out]
    np.testing.assert_allclose(d.astype(np.float64), exact, rtol=bound, atol=bound * np.abs(exact).max())


def chosen(case: Case, **options: Any) -> Schedule:
    (schedule,) = compile(case.mlir, "sm_90a", cache=False, **options).schedule
    assert schedule is not None
    return schedule


@pytest.mark.parametrize(
    ("case", "tile"),
    [
        (Case("bf16", "s8", True, "bf16", (256, 8192, 8192)), (256, 64)),
        (Case("bf16", "s8", False, "bf16", (512, 8192, 8192)), (256, 128)),
        (Case("bf16", "s8", False, "bf16", (64, 8192, 8192)), (64, 64)),
        (Case("bf16", "s8", True, "bf16", (64, 8192, 8192)), None),  # too few rows for B along K
        (Case("bf16", "s8", False, "bf16", (256, 1024, 1024)), None),  # too little to multiply
        (Case("bf16", "s8", True, "bf16", (256, 8192, 8200)), None),  # rows that no tensor copy moves
    ],
    ids=str,
)
def test_what_the_model_chooses(case: Case, tile: tuple[int, int] | None) -> None:
    schedule = chosen(case)
    assert schedule.tile.exchanged == (tile is not None)
    assert tile in (None, schedule.tile.cta[:2])


SMALL = Case("f16", "s8", True, "f16", (64, 64, 64))


@pytest.mark.parametrize(
    ("case", "given", "message"),
    [
        (SMALL, tile(64, 64, warp=(64, 32)), "tiles must be multiples of the instruction m64n64k16 of the transpose"),
        (SMALL, tile(64, 64, depth=32), "K tiles of warpgroups are multiples of 128 bytes, got 32 elements"),
        (SMALL, tile(64, 64, staging=32), "staging = 32: a warpgroup stages 64 rows of D"),
        (SMALL, tile(64, 64, consumers="pingpong"), "consumers = pingpong: with B in registers none take turns"),
        (SMALL, tile(64, 64, pack="a"), "pack = a: B in registers takes operands as they lie"),
        (SMALL, {"mma": "m16n8k16", "in_registers": "b"}, "in_registers = b is for warpgroups, got mma = m16n8k16"),
        (Case("f16", "s8", True, "f16", (64, 64, 72)), tile(64, 64), "B must have rows that are multiples of 16 bytes"),
    ],
)
def test_what_does_not_fit_is_refused(case: Case, given: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        compile(case.mlir, "sm_90a", cache=False, **given)
