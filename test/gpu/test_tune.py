"""Searching for a schedule on the GPU itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from warploom.runtime import compile
from warploom.runtime.cli.tune_report import tune
from warploom.runtime.cuda.driver import GpuDevice, gpu
from warploom.runtime.kernel.lowering import parse

TEXT = """func.func @f(%A: memref<1000x200xf16>, %B: memref<200x300xf16>, %C: memref<1000x300xf32>) {
  linalg.matmul ins(%A, %B : memref<1000x200xf16>, memref<200x300xf16>) outs(%C : memref<1000x300xf32>)
  return
}"""


@pytest.mark.gpu
def test_tune(device: GpuDevice, tmp_path: Path) -> None:
    file = tmp_path / "tuned.json"
    results = tune(parse(TEXT), gpu(), file, limit=6)
    assert all(r.problem == "" for r in results), results
    assert all(r.microseconds is not None and 1 < r.microseconds < 10_000 for r in results)
    assert compile(TEXT, target=device.target, tuned=file).schedule[0] == results[0].schedule
    assert all(r.remembered for r in tune(parse(TEXT), gpu(), file, limit=6))
