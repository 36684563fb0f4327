"""Products in loops and conditions of the host: launches of each turn, with parts of memory that follow from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from warploom.runtime import CompileError, HostError, compile
from warploom.runtime.cli.command import main

LOOP = """func.func @f(%A: memref<{n}x20x24xf16>, %B: memref<24x12xf16>, %C: memref<{n}x20x12xf32>) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %step = arith.constant {step} : index
  %z = arith.constant 2.0 : f32
  %n = memref.dim %A, %c0 : memref<{n}x20x24xf16>
  %last = arith.subi %n, %c1 : index
  scf.for %i = %c0 to %n step %step {{
    %a = memref.subview %A[%i, 0, 0] [1, 20, 24] [1, 1, 1]
      : memref<{n}x20x24xf16> to memref<20x24xf16, strided<[24, 1], offset: ?>>
    %j = arith.subi %last, %i : index
    %c = memref.subview %C[%j, 0, 0] [1, 20, 12] [1, 1, 1]
      : memref<{n}x20x12xf32> to memref<20x12xf32, strided<[12, 1], offset: ?>>
    %first = arith.cmpi ult, %i, %c1 : index
    scf.if %first {{
      linalg.fill ins(%z : f32) outs(%c : memref<20x12xf32, strided<[12, 1], offset: ?>>)
    }}
    linalg.matmul ins(%a, %B : memref<20x24xf16, strided<[24, 1], offset: ?>>, memref<24x12xf16>)
      outs(%c : memref<20x12xf32, strided<[12, 1], offset: ?>>)
  }}
  return
}}
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("n", "step"), [("3", 1), ("?", 1), ("3", 2)])
def test_a_loop_over_matrices_of_a_batch(n: str, step: int) -> None:
    rng = np.random.default_rng()
    a, b = rng.standard_normal((3, 20, 24)).astype(np.float16), rng.standard_normal((24, 12)).astype(np.float16)
    c = rng.standard_normal((3, 20, 12)).astype(np.float32)
    wanted = c.astype(np.float64)
    for i in range(0, 3, step):
        wanted[2 - i] = (2.0 if i == 0 else wanted[2 - i]) + a[i].astype(np.float64) @ b.astype(np.float64)
    compile(LOOP.format(n=n, step=step), target="sm_80", cache=False)(a, b, c, device="interp")
    np.testing.assert_allclose(c, wanted, rtol=1e-5, atol=1e-5)


def test_the_check_runs_loops_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "loop.mlir"
    path.write_text(LOOP.format(n="2", step=1))
    assert main(["run", str(path), "--device", "interp", "--check"]) == 0
    assert "within the bound" in capsys.readouterr().out


def test_a_loop_without_a_step_is_refused() -> None:
    with pytest.raises(HostError, match=r"scf.for: expected a step of 1 or more, got 0"):
        compile(LOOP.format(n="3", step=0), target="sm_80", cache=False)


def test_loops_that_hand_on_values_are_refused() -> None:
    text = """func.func @f(%A: memref<20x24xf16>, %B: memref<24x12xf16>, %C: memref<20x12xf32>) {
      %c0 = arith.constant 0 : index
      %c4 = arith.constant 4 : index
      %r = scf.for %i = %c0 to %c4 step %c4 iter_args(%x = %c0) -> (index) {
        linalg.matmul ins(%A, %B : memref<20x24xf16>, memref<24x12xf16>) outs(%C : memref<20x12xf32>)
        scf.yield %x : index
      }
      return }"""
    message = (
        r":5:9: error: expected the product in a func.func, or in scf.for and scf.if that carry no values, got it in"
    )
    with pytest.raises(CompileError, match=message):
        compile(text, cache=False)
