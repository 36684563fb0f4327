"""Products of every type and form: the interpreter and the GPU leave the same words everywhere."""

from __future__ import annotations

import bitwise
import forms
import numpy as np
import pytest

from warploom.runtime.cuda.driver import GpuDevice

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("form", list(forms.forms()), ids=str)
def test_interpreter_and_gpu_agree(form: forms.Form | forms.OfProduct, device: GpuDevice) -> None:
    if device.sm != bitwise.SM_90:
        pytest.skip(f"the interpreter is held against sm_90 only, this is {device}")
    kernel = form.compile(device.target)
    here, there = form.arrays(kernel), form.arrays(kernel)
    kernel(*here, device="interp")
    kernel(*there, device="cuda")
    for i in sorted(kernel.function.written):
        differing = np.argwhere(bitwise.words(here[i]) != bitwise.words(there[i]))
        assert not len(differing), f"argument {i}: {len(differing)} of {here[i].size} words differ, at {differing[0]}"
