"""The interpreter and the GPU give the same words."""

from __future__ import annotations

import bitwise
import pytest

from warploom.runtime.cuda.driver import GpuDevice

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("case", list(bitwise.cases()), ids=str)
def test_interpreter_and_gpu_agree(case: bitwise.Case, device: GpuDevice) -> None:
    if device.sm != bitwise.SM_90:
        pytest.skip(f"the interpreter is held against sm_90 only, this is {device}")
    outcome = bitwise.compare(case, device.target)
    assert outcome.different == 0, f"{outcome.different} of {outcome.words} words differ, the first {outcome.first}"
