"""Products whose rows begin anywhere: the GPU gives the interpreter's words. Here, small ones count as large."""

from __future__ import annotations

from dataclasses import replace

import bitwise
import numpy as np
import pytest
from unaligned import CASES, Case

from warploom.passes.schedule import version
from warploom.runtime.cuda.driver import GpuDevice

pytestmark = pytest.mark.gpu

ON_SM_90 = [
    *(case for case in CASES if case.target == "sm_90a"),
    *(replace(case, target="sm_90") for case in CASES if case.target == "sm_80"),
]


@pytest.mark.parametrize("case", ON_SM_90, ids=str)
def test_interpreter_and_gpu_agree(case: Case, device: GpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    if device.sm != bitwise.SM_90:
        pytest.skip(f"the interpreter is held against sm_90 only, this is {device}")
    monkeypatch.setattr(version, "COPIED_DEPTH", 40)
    monkeypatch.setattr(version, "MIN_PACKED", 1 << 10)
    kernel = case.compiled()
    *operands, here = case.operands(np.random.default_rng())
    there = here.copy()
    kernel(*operands, here, device="interp")
    kernel(*operands, there, device="cuda")
    np.testing.assert_array_equal(bitwise.words(here), bitwise.words(there))
