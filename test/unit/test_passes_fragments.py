"""Constants of fragments: the literals are the values, rounded to nearest even."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warploom.dialect.isa.form import element_type
from warploom.dialect.isa.row import target
from warploom.dialect.layouts.layout import accumulator
from warploom.dialect.ptx.instruction import InstOp
from warploom.dialect.warp.attributes import FragmentType, float_type
from warploom.passes.to_ptx.emitter import Emitter
from warploom.passes.to_ptx.fragments import FragmentEmitter

WORDS = {"f16": (np.float16, "<u2"), "bf16": (ml_dtypes.bfloat16, "<u2"), "f32": (np.float32, "<u4")}


def literals(element: str, value: float) -> list[str]:
    """What each register of a 16x8 fragment of the constant is set to."""
    emitter = Emitter(target("sm_90"))
    kind = FragmentType.of("acc", 16, 8, float_type(element_type(element)), accumulator(16, 8))
    registers = FragmentEmitter(emitter).constant(kind, value)
    assert len(registers) == kind.registers
    ops = [op for op in emitter.finish() if isinstance(op, InstOp)]
    assert {op.spelling()[0] for op in ops} == {"mov.f32" if element == "f32" else "mov.b32"}
    return [op.spelling()[1].removeprefix("?, ") for op in ops]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("element", WORDS)
@given(value=st.floats(-60000, 60000, width=32))
def test_constants_round_to_nearest_even(element: str, value: float) -> None:
    kind, word = WORDS[element]
    bits = int(np.array(value, np.float32).astype(kind).view(word))
    expected = f"0f{bits:08X}" if element == "f32" else f"0x{bits:04X}{bits:04X}"
    assert literals(element, value) == [expected] * (4 if element == "f32" else 2)


@pytest.mark.parametrize("element", WORDS)
@pytest.mark.parametrize("value", [0.0, -0.0, float("inf"), float("-inf")])
def test_special_constants(element: str, value: float) -> None:
    kind, word = WORDS[element]
    bits = int(np.array(value, np.float32).astype(kind).view(word))
    assert literals(element, value)[0] == (f"0f{bits:08X}" if element == "f32" else f"0x{bits:04X}{bits:04X}")


@pytest.mark.parametrize("element", WORDS)
def test_nan_stays_nan(element: str) -> None:
    kind, word = WORDS[element]
    text = literals(element, float("nan"))[0][2:]
    bits = int(text if element == "f32" else text[:4], 16)
    assert np.isnan(np.array(bits, word).view(kind).astype(np.float64))
