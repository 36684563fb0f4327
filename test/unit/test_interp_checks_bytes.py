"""Which bytes of a register count as unwritten: those that an instruction makes of bytes that nobody has written."""

from __future__ import annotations

import pytest
from interpreted import program

from warploom.runtime.interp import InterpreterError

HEAD = """.shared .align 16 .b8 place[128]; .local .align 16 .b8 own[16]; .reg .b16 %w<4>; .reg .b32 %u<4>;
.reg .f32 %g<4>; mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 16; cvt.u16.u32 %w1, %r1; mov.b32 %u1, {%w1, %w2};
mov.b32 %u2, {%w2, %w1}; cvt.rn.f32.u32 %g1, %r1;"""
"""The low half of `%u1` and the high half of `%u2` are written; `%w2`, `%g2` and `%u3` are not."""

MADE = {
    "mov.b32 %r2, %u1;": 0b1100,
    "mov.b32 %r2, {%w2, %w1};": 0b0011,
    "mov.b32 {%w3, _}, %u1; mov.b32 %r2, {%w3, %w3};": 0,
    "mov.b32 {_, %w3}, %u1; mov.b32 %r2, {%w3, %w1};": 0b0011,
    "and.b32 %r2, %u1, %u2;": 0b0101,  # bytes 1 and 3 of the thread's number are zeros
    "and.b32 %r2, %u1, 0x00FF00FF;": 0b0100,
    "or.b32 %r2, %u1, %r1;": 0b1100,
    "not.b32 %r2, %u2;": 0b0011,
    "xor.b32 %r2, %u3, %r1;": 0b1111,
    "xor.b32 %r2, %u1, %u2; xor.b32 %r2, %r2, %u2;": 0b1111,
    "bfi.b32 %r2, %r1, %u1, 8, 8;": 0b1100,
    "lop3.b32 %r2, %u1, %r1, 0x80008000, 0xf8;": 0b1100,
    "shl.b32 %r2, %u2, 8;": 0b0110,
    "shr.b32 %r2, %u1, 8;": 0b0110,
    "shr.u32 %r2, %u1, 4;": 0b1110,
    "shr.u32 %r2, %u1, 40;": 0,
    "shr.s32 %r2, %u1, 8;": 0b1110,
    "shr.u32 %r2, %u1, %r1;": 0b1111,
    "add.u32 %r2, %u1, 1;": 0b1100,
    "sub.s32 %r2, %u2, %r1;": 0b1111,
    "mul.lo.u32 %r2, %u1, 3;": 0b1111,
    "add.f16x2 %r2, %u1, %u1;": 0b1100,
    "min.f16x2 %r2, %u2, %r1;": 0b0011,
    "fma.rn.f16x2 %r2, %u2, %r1, %u3;": 0b1111,
    "add.f32 %g3, %g1, %g2; mov.b32 %r2, %g3;": 0b1111,
    "prmt.b32 %r2, %u1, %r1, 0x7120;": 0b0010,
    "prmt.b32 %r2, %u1, %r1, %r1;": 0b0001,
    "selp.b32 %r2, %u1, %u1, %p1;": 0b1100,
    "setp.eq.u32 %p2, %u3, 0; selp.b32 %r2, %r1, %r1, %p2;": 0b1111,
    "cvt.u16.u32 %w3, %u1; cvt.u32.u16 %r2, %w3;": 0,
    "cvt.u16.u32 %w3, %u2; cvt.u32.u16 %r2, %w3;": 0b0011,
    "cvt.s16.s32 %w3, %u1; cvt.s32.s16 %r2, %w3;": 0,
    "cvt.rn.f16x2.f32 %r2, %g2, %g1;": 0b1100,
    "cvt.rn.satfinite.e5m2x2.f32 %w3, %g2, %g1; cvt.rn.f16x2.e5m2x2 %r2, %w3;": 0b1100,
    "cvt.rn.satfinite.e4m3x2.f16x2 %w3, %u2; mov.b32 %r2, {%w3, %w1};": 0b0001,
    "shfl.sync.bfly.b32 %r2, %u1, 1, 31, -1;": 0b1100,
    "st.local.u16 [own], %w1; ld.local.u32 %r2, [own];": 0b1100,
    "st.local.u32 [own], %r1; ld.local.u8 %r2, [own];": 0,
    "ld.local.u8 %r2, [own];": 0b1111,
}
"""What makes `%r2`, and which of its bytes are unwritten then."""


def told(body: str, store: str) -> bool:
    """Whether a store is found to write what nobody has written."""
    text = f"{HEAD}\n{body}\nmov.u32 %r4, place;\n{store}"
    try:
        program(text).launch("k", (1, 1, 1), (32, 1, 1), [], checks="uninitialised")
    except InterpreterError as error:
        return {finding.check for finding in error.findings} == {"uninitialised"}
    return False


@pytest.mark.sampled(8)
@pytest.mark.parametrize("body", MADE)
def test_bytes_are_followed(body: str) -> None:
    bytes_told = [told(body, f"prmt.b32 %r3, %r2, 0, 0x444{i}; st.shared.b8 [%r4], %r3;") for i in range(4)]
    assert bytes_told == [bool(MADE[body] >> i & 1) for i in range(4)]


@pytest.mark.parametrize(
    ("store", "expected"),
    [("b8 [%r4], %u1", False), ("u16 [%r4], %u1", False), ("b32 [%r4], %u1", True), ("u16 [%r4], %u2", True),
     ("v2.u16 [%r4], {%u1, %u1}", False), ("v2.b32 [%r4], {%r1, %u1}", True), ("b8 [%u1], %r1", True)],
)  # fmt: skip
def test_a_store_takes_the_bytes_of_its_type(store: str, expected: bool) -> None:
    assert told("", f"st.shared.{store};") == expected
