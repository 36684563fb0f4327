"""Constant expressions: their values, what ptxas gives them, and text that is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warploom.dialect.ptx.text.operands import ConstantError, evaluate, spelled

VALUES = {
    "1<<4": 16, "(1 << 4)": 16, "~1": -2, "-(3)": -3, "7/2": 3, "-7/2": -3, "(-8)>>1": -4, "1U-2": -1,
    "0xffffffffffffffff>>4": 1152921504606846975, "(1U-2)/2": 9223372036854775807, "-1<1U": 0, "3?7:9": 7,
    "6&3|8^1": 11, "2*3+4<<1": 20, "(.u64)-1>>60": 15, "(.s64)0xffffffffffffffff>>60": -1, "1?2:0?3:4": 2,
    "-1>>63": -1, "0x8000000000000000>>63": 1, "1<<63>>63": -1, "(1<<63)/2": -4611686018427387904, "1<<64": 1,
    "1<<70": 64, "010+1": 9, "0b11+1": 4, "7 - 2 - 1": 4, "- -3": 3, "~0>>60": 15, "1<2<3": 1, "1<<-1": -(1 << 63),
    "-5U/2": 9223372036854775805, "-7 % 3": 0, "(0?1U:-1)>>63": -1, "(-1+0U)>>63": 1, "(-8&-1)>>62": -1,
    "1.5>1.0": 1, "WARP_SZ*2": 64, "5&&0": 0, "1||0": 1, "!5": 0, "+(5)": 5,
}  # fmt: skip
"""What ptxas 13.0.88 makes of each as the initialiser of a `.u64`, read as a signed number."""


@pytest.mark.parametrize("text", VALUES)
def test_values_are_those_of_ptxas(text: str) -> None:
    assert (int(evaluate(text)) - VALUES[text]) % (1 << 64) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1/0", "'1/0' divides by zero"),
        ("7 % (2-2)", "divides by zero"),
        ("1.5+2", "has a float where an integer is expected"),
        ("!1.0", "has a float where an integer is expected"),
        ("1.0<<2.0", "has floats on both sides of <<"),
        ("09+1", "'09' begins with 0, so it is octal, and has digits beyond 7"),
        ("(5,6)", "is not a constant expression"),
        ("(1", "is not a constant expression"),
        ("1 2", "is not a constant expression"),
        ("1?2", "is not a constant expression"),
        ("", "is not a constant expression"),
        ("(" * 3000 + "1", "nests too deeply"),
    ],
)
def test_what_is_none(text: str, message: str) -> None:
    with pytest.raises(ConstantError) as error:
        evaluate(text)
    assert message in str(error.value)


def test_floats() -> None:
    assert evaluate("1.0/4.0") == 0.25
    assert evaluate("-(1.5)*2.0-.5") == -3.5
    assert spelled(evaluate("1.0/0.0")) == "0d7FF0000000000000"
    assert spelled(0.25) == "0.25"
    assert evaluate("-0d3FF0000000000000 * 2.0") == -2.0


WORDS = st.integers(-(2**63), 2**63 - 1)


@given(WORDS, WORDS, st.sampled_from(["+", "-", "*", "&", "|", "^"]))
def test_signed_arithmetic_wraps_at_64_bits(a: int, b: int, sign: str) -> None:
    exact = {"+": a + b, "-": a - b, "*": a * b, "&": a & b, "|": a | b, "^": a ^ b}[sign]
    assert (int(evaluate(f"({a}) {sign} ({b})")) - exact) % (1 << 64) == 0
    assert int(spelled(evaluate(f"({a}) {sign} ({b})"))) in range(-(2**63), 2**63)
