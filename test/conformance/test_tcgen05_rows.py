"""Rows of `tcgen05` and spellings near them: our verdict is that of ptxas on each target that may have them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import assembler
import pytest
from mutations import split
from ptx_rows import shuffled
from refused import fault, reason
from samples import FULL

from warploom.dialect.isa.row import ADDRESS, CONSTANT, DESCRIPTOR, PREDICATE, TARGETS, VECTOR, Slot, Target, Version
from warploom.dialect.ptx.instructions import every_row
from warploom.dialect.ptx.rows.grammar import PatternRow
from warploom.dialect.ptx.text.reader import OperandError, OperandReader
from warploom.dialect.ptx.text.syntax import Register
from warploom.dialect.ptx.verifier import TargetContext, resolve
from warploom.runtime.cuda.ptxas import version

_ASSEMBLER = tuple(map(int, (version() or "0.0").split(".")[:2]))
VERSION: Version = (9, _ASSEMBLER[1]) if _ASSEMBLER >= (13, 0) else (8, 8)
"""The newest that the assembler knows."""

pytestmark = pytest.mark.skipif(assembler.PTXAS is None, reason="ptxas is not installed (extra: test)")

TESTED: list[Target] = [
    t
    for t in TARGETS.values()
    if ((t.sm in (100, 103, 107, 110) and t.suffix) or t.name in ("sm_100", "sm_120a")) and t.ptx <= VERSION
]
SAMPLE = 250
"""Statements for each target, where not all are judged."""

OURS = [row for row in every_row() if row.root == "tcgen05"]
WORDS = sorted({word for row in OURS for text in row.spellings() for word in text.split(".")[1:]})


def operand(slot: Slot) -> str:
    """An operand that fits a slot."""
    if slot.kind == ADDRESS:
        return "[%r1]" if slot.type == "tensor" else "[%rd1]"
    if slot.kind == VECTOR:
        first = 4 if slot.name == "dv" else 0
        return "{" + ", ".join(f"%r{first + i}" for i in range(slot.count)) + "}"
    if slot.kind == CONSTANT:
        return "1"
    if slot.kind == PREDICATE:
        return "%p1"
    if slot.written:
        return "%r131"
    return "%rd2" if slot.kind == DESCRIPTOR else {"u16": "%h1", "b64": "%rd3"}.get(slot.type, "%r2")


def plain(row: PatternRow) -> Iterator[str]:
    """Every spelling of a row, with its operands, and with those that may be left out."""
    for spelling in row.spellings():
        bindings = row.match(spelling)
        assert bindings is not None, spelling
        slots = row.signatures_of(bindings)[0]
        yield f"{spelling} {', '.join(map(operand, slots))};".replace(" ;", ";")
        if slots and slots[-1].optional:
            yield f"{spelling} {', '.join(map(operand, slots[:-1]))};"


OPERANDS = ("%r130", "%rd3", "%p1", "!%p1", "%f1", "%h1", "0", "1", "16", "48", "-1", "96", "1024", "[%r3]", "[%rd3]",
            "[%r1+4]", "{%r1}", "{%r1, %r2}", "{%r1, %r2, %r3, %r4}", "{%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}",
            "{%f1}", "{1}", "[s]", "[0]", "0f3F800000", "_", "{_}", "%tid.x", "%s1", "%d1")  # fmt: skip
"""`%r130` is none of the 128 results of a load, from which what it reduces them to is apart (ptxas)."""


def near(statement: str, choose: random.Random) -> str:
    """A statement with one thing changed."""
    opcode, _, rest = statement.rstrip(";").partition(" ")
    words, operands = opcode.split("."), split(rest)
    at = choose.randrange(1, len(words))
    match choose.randrange(9):
        case 0:
            words.pop(at)
        case 1:
            words.insert(at, words[at])
        case 2:
            words[at] = choose.choice(WORDS)
        case 3:
            words.insert(at + 1, choose.choice(WORDS))
        case 4:
            words = shuffled(opcode, choose).split(".")
        case 5 if operands:
            operands.pop(choose.randrange(len(operands)))
        case 6:
            operands.insert(choose.randrange(len(operands) + 1), choose.choice(OPERANDS))
        case _ if operands:
            operands[choose.randrange(len(operands))] = choose.choice(OPERANDS)
        case _:
            pass
    return f"{'.'.join(words)} {', '.join(operands)};".replace(" ;", ";")


_TYPES = {"r": "b32", "rd": "b64", "p": "pred", "f": "f32", "h": "b16", "s": "s32", "d": "f64"}
REGISTERS = " ".join(f".reg .{type} %{name}<132>;" for name, type in _TYPES.items()) + " .shared .align 8 .b64 s;"


def type_of(register: Register) -> str | None:
    """The types of the registers declared above."""
    return _TYPES.get(register.name.strip("%0123456789"))


def ours(statements: Sequence[str], target: Target) -> dict[int, str]:
    """What our verifier says of those that it refuses, by their numbers."""
    context = TargetContext(VERSION, (target.name,))
    refused: dict[int, str] = {}
    for number, line in enumerate(statements):
        opcode, _, rest = line.rstrip(";").partition(" ")
        try:
            found = resolve(opcode, OperandReader().read(rest), type_of, context, lambda _: "shared")
        except OperandError as error:
            found = str(error)
        if isinstance(found, str):
            refused[number] = found
    return refused


def theirs(statements: Sequence[str], target: Target) -> set[int]:
    """The numbers of those that ptxas takes; it refuses a function that mixes CTA groups."""
    taken: set[int] = set()
    for group in (True, False):
        some = [n for n, line in enumerate(statements) if ("cta_group::2" in line) == group]
        taken |= {
            some[i] for i in assembler.accepted([statements[n] for n in some], target, VERSION, registers=REGISTERS)
        }
    return taken


def complaint(statement: str, target: Target) -> str:
    """What ptxas says of a statement that it does not take."""
    try:
        return " ".join(assembler.errors([statement], target, VERSION, REGISTERS).values())
    except assembler.UnblamedError as error:
        return str(error)


def candidates(target: Target) -> list[str]:
    """Spellings of the rows and, for each, about two that are near."""
    choose = random.Random(target.name)
    spellings = [text for row in OURS for text in plain(row)]
    many = [*spellings, *(near(choose.choice(spellings), choose) for _ in range(2 * len(spellings)))]
    return many if FULL else choose.sample(many, SAMPLE)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("target", TESTED, ids=str)
def test_our_verdict_is_that_of_ptxas(target: Target) -> None:
    statements = candidates(target)
    refused, judge = ours(statements, target), theirs(statements, target)
    more = [line for n, line in enumerate(statements) if n not in refused and n not in judge]
    assert not [line for line in more if fault(line.partition(" ")[0], complaint(line, target)) is None]
    taken = [(statements[n].rstrip(";").partition(" ")[0], refused[n], n) for n in sorted(judge & refused.keys())]
    assert not [statements[n] for opcode, message, n in taken if reason(opcode, message, target.name) is None]
