"""What the table says of an instruction before it is made: is it legal, since when, what does it set.

The operands are a form, text with `?` for each register, and the types of these registers, as `ptx.inst` has them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import count
from typing import NamedTuple

from ..isa.targets import Target, Version
from .instructions import find
from .rows.grammar import Row
from .special import SPECIAL_REGISTERS, VARYING
from .text.operands import OperandError, OperandReader
from .text.syntax import Operand, Register, is_call, members
from .types import bits_of
from .verifier import TypeOf, fitting, type_of_result, unknown


class InstructionError(Exception):
    """An instruction that PTX does not have, and why."""


class UnavailableError(InstructionError):
    """An instruction, or a special register, that a target does not have."""

    def __init__(self, what: str, needs: str, target: Target) -> None:
        super().__init__(f"{what}, which needs {needs}; the target is {target}")


class InstructionFacts(NamedTuple):
    """An opcode with operands of certain kinds. `since` is the first PTX version in which the target has it.

    A `pure` instruction has no effects, and its result follows from its operands alone. `limited` says that not every
    literal will do where one stands.
    """

    opcode: str
    since: Version
    pure: bool
    limited: bool


@lru_cache(65536)
def facts_of(opcode: str, form: str, types: tuple[str, ...], target: Target) -> InstructionFacts:
    """The facts of an instruction whose n-th register has the n-th type.

    Raises:
        InstructionError: if PTX has no such instruction.
        UnavailableError: if the target does not have it.
    """
    try:
        operands, type_of = read_form(opcode, form, types)
    except OperandError as error:
        raise InstructionError(f"{opcode}: {error}") from None
    found = fitting(opcode, operands, type_of)
    if isinstance(found, str):
        raise InstructionError(found)
    rows = [row for row, _ in found]
    special = [o.name for operand in operands for o in members(operand) if isinstance(o, Register)]
    since = max((_since(opcode, rows, target), *(_special_since(n, target) for n in special if n in SPECIAL_REGISTERS)))
    pure = all(row.pure for row in rows) and VARYING.isdisjoint(special)
    limited = any("(" in slot.kind or slot.kind == "flag" for row in rows for slot in row.slots)
    return InstructionFacts(opcode, since, pure, limited)


def _since(opcode: str, rows: Sequence[Row], target: Target) -> Version:
    versions = [since for row in rows if (since := row.since(target)) is not None and not _gone(row, target)]
    if not versions:
        older = rows[0].removed(target)
        wanted = rows[0].requirement() if older is None else "a version before PTX {}.{}".format(*older)
        raise UnavailableError(opcode, wanted, target)
    return min(versions)


def _gone(row: Row, target: Target) -> bool:
    """Whether no PTX version that knows the target has it for that."""
    end = row.removed(target)
    return end is not None and target.ptx >= end


def _special_since(name: str, target: Target) -> Version:
    special = SPECIAL_REGISTERS[name]
    if target.sm < special.sm:
        raise UnavailableError(name, f"sm_{special.sm} or later", target)
    return special.ptx


@lru_cache(4096)
def has(target: Target, opcode: str) -> bool:
    """Whether a target has an instruction, in some PTX version."""
    return any(row.since(target) is not None for row, _ in find(opcode))


@lru_cache(4096)
def result_type(opcode: str) -> str:
    """The type of a register for what an instruction sets: "b32" where it sets an s32 or two f16.

    Raises:
        InstructionError: if PTX has no such instruction, or none that sets one value.
    """
    types = {type for row, bindings in find(opcode) if (type := type_of_result(row, bindings)) is not None}
    if len(types) != 1:
        raise InstructionError(
            f"{opcode} sets no value, or values of several types" if find(opcode) else unknown(opcode)
        )
    return storage(*types)


def storage(type: str) -> str:
    """The type of the register that holds a value of an instruction's type: bits where PTX computes with several."""
    return type if type in ("pred", "f32", "f64") else f"b{max(16, bits_of(type))}"


_NUMBERED = re.compile(r"\?")


def read_form(opcode: str, form: str, types: Sequence[str]) -> tuple[tuple[Operand, ...], TypeOf]:
    """The operands of a form, its registers numbered, and what gives their types.

    Raises:
        OperandError: if the form is not a list of operands.
    """
    numbers = count()
    text = _NUMBERED.sub(lambda _: f"%{next(numbers)}", form)
    reader = OperandReader()
    operands = reader.read_call(text) if is_call(opcode) else reader.read(text)

    def type_of(register: Register) -> str | None:
        number = register.name[1:].partition(".")[0]
        return types[int(number)] if number.isdigit() else None

    return operands, type_of
