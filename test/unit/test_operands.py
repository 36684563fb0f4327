"""Operands of emitted instructions: their text, and what of them decides whether an instruction takes them."""

from __future__ import annotations

import pytest

from warploom.dialect.ptx.text.syntax import Address, Register, Symbol
from warploom.passes.to_ptx.emitter import (
    SINK,
    At,
    Both,
    EmittedOperand,
    TensorBox,
    VirtualRegister,
    single,
    word,
    write,
)

A, B, P = VirtualRegister("b32"), VirtualRegister("b64"), VirtualRegister("pred")

SPELLED: list[tuple[EmittedOperand, str, list[VirtualRegister]]] = [
    (A, "?", [A]),
    (-3, "-3", []),
    (At(B), "[?]", [B]),
    (At(B, 16), "[?+16]", [B]),
    (At(B, 8).behind(-24), "[?+-16]", [B]),
    ([A, A, B], "{?, ?, ?}", [A, A, B]),
    ([A], "{?}", [A]),
    ((0, 1), "{0, 1}", []),
    (Both(SINK, P), "_|?", [P]),
    (TensorBox(B, (A, 0)), "[?, {?, 0}]", [B, A]),
    (SINK, "_", []),
    (Symbol("tile"), "tile", []),
    (Address(Symbol("size")), "[size]", []),
    (Register("%tid.x"), "%tid.x", []),
    (word(255), "0x000000FF", []),
    (word(0x5410, 4), "0x5410", []),
    (single(1.0), "0f3F800000", []),
]


@pytest.mark.parametrize(("operand", "text", "registers"), SPELLED)
def test_text(operand: EmittedOperand, text: str, registers: list[VirtualRegister]) -> None:
    written = write([operand])
    assert (written.form, list(written.registers)) == (text, registers)


def test_operands_follow_each_other() -> None:
    written = write([A, At(B, 4), [A, A], 7])
    assert written.form == "?, [?+4], {?, ?}, 7"
    assert written.registers == (A, B, A, A)


def test_kinds_are_those_of_types_and_not_of_values() -> None:
    other = VirtualRegister("b32")
    assert write([A, 3, At(B)]).kinds == write([other, 4, At(B, 8)]).kinds
    assert write([Symbol("a")]).kinds == write([Symbol("b")]).kinds
    assert write([word(1)]).kinds == write([5]).kinds
    vectors: list[EmittedOperand] = [[A], [B], [A, A], (0,), TensorBox(B, (A,)), TensorBox(B, (1,))]
    others: list[EmittedOperand] = [A, B, At(A), At(B), 3, single(1.0), SINK, Symbol("a"), Both(SINK, P)]
    different = [*vectors, *others, Address(Symbol("a")), Register("%tid.x"), Register("%tid.y")]
    kinds = [write([operand]).kinds for operand in different]
    assert len(set(kinds)) == len(different)


def test_registers_among_numbers_are_arguments_of_a_call() -> None:
    written = write([(A, 0)])
    assert (written.form, written.registers) == ("(?, 0)", (A,))


def test_text_is_no_operand() -> None:
    with pytest.raises(TypeError, match="expected an operand of an instruction"):
        write(["%r1"])  # pyright: ignore[reportArgumentType]
