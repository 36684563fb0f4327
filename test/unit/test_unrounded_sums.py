"""Sums of products that ptxas may contract: which, and what `warploom run` says of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from warploom.dialect.ptx.check.registers import UnroundedSum, contractions
from warploom.runtime import load_ptx
from warploom.runtime.cli.command import main

KERNEL = """.version 8.0
.target sm_80
.address_size 64
.visible .entry other() { .reg .f32 %a; mul.f32 %a, %a, %a; add.f32 %a, %a, %a; ret; }
.visible .entry k(.param .u64 p) {
  .reg .b64 %p; .reg .f32 %a<9>; .reg .f64 %d<3>;
  ld.param.u64 %p, [p];
  ld.global.f32 %a1, [%p];
  mul.f32 %a2, %a1, %a1;
  {
    add.f32 %a3, %a1, %a2;
    sub.ftz.f32 %a3, %a2, %a3;
  }
  mul.rn.f32 %a4, %a1, %a1;
  add.f32 %a5, %a4, %a3;
  add.rn.f32 %a5, %a2, %a5;
  mul.f64 %d1, %d2, %d2;
  fma.rn.f32 %a6, %a2, %a2, %a5;
  st.global.f32 [%p], %a6;
  ret;
}
"""


def test_unrounded_products_in_unrounded_sums() -> None:
    assert contractions(load_ptx(KERNEL).syntax, "k") == (UnroundedSum(11, 5, 9), UnroundedSum(12, 5, 9))


@pytest.mark.parametrize("rounded", [False, True])
def test_a_run_says_so_once(rounded: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = KERNEL.replace("mul.f32", "mul.rn.f32").replace("add.f32", "add.rn.f32") if rounded else KERNEL
    path, data = tmp_path / "k.ptx", tmp_path / "x.npy"
    path.write_text(text)
    np.save(data, np.ones(1, np.float32))
    words = ["run", str(path), "--kernel", "k", "--grid", "1", "--block", "1", "--arg", str(data), "--device", "interp"]
    assert main(words) == 0
    said = f"{path}:11:5: note: a GPU may contract this sum with the product of line 9 and round once (2 such sums)"
    assert (said in capsys.readouterr().err) == (not rounded)
