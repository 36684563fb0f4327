"""The interpreter runs, or refuses with its line, every instruction that the dialect's rows spell."""

from __future__ import annotations

import re
from random import Random
from typing import cast

import pytest
from ptx_rows import DECLARATIONS, SYMBOLS, WIDE, instructions, shuffled
from samples import FULL

from warploom.dialect.index import MEANINGS as HOMES
from warploom.dialect.ptx.instructions import FAMILIES, every_row, find
from warploom.dialect.ptx.parser import parse_ptx
from warploom.runtime.interp import InterpreterError, load
from warploom.runtime.interp.machine.decode import MEANINGS, REFUSED, meaning_of

HEAD = ".version 9.5\n.target sm_100a\n.address_size 64\n.visible .entry k(.param .b64 p) {\n"
HEAD += DECLARATIONS + WIDE + SYMBOLS
DECODED = [row for row in every_row() if row.means not in REFUSED]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("meaning", REFUSED)
def test_what_is_refused_has_its_reason(meaning: str) -> None:
    for line in (line for row in every_row() if row.means == meaning for line in instructions(row, row.samples()[:1])):
        with pytest.raises(InterpreterError, match=re.escape(REFUSED[meaning])):
            load(parse_ptx(f"{HEAD}{line}\nLABEL: ret; }}\n"))


def test_every_row_is_decoded() -> None:
    """In one kernel, so that the first that is not supported would be named. Of each row one of its spellings, and its
    last one in another order below, where not all are asked for."""
    lines = [line for row in DECODED for line in instructions(row, row.samples()[: None if FULL else 1])]
    assert len(lines) > (1900 if FULL else 400)
    load(parse_ptx(HEAD + "\n".join(lines) + "\nLABEL: ret; }\n"))


def test_every_row_has_one_meaning() -> None:
    matrices = [row for forms in FAMILIES.values() for row, _ in find(forms()[0].spelling)]
    names = {row.means for row in (*every_row(), *matrices)} - {*REFUSED}
    for name in names:
        assert meaning_of(name).__module__ == f"warploom.{HOMES[name]}"
    assert set(MEANINGS) == names


def test_every_row_is_decoded_in_another_order() -> None:
    lines: list[str] = []
    for line in (line for row in DECODED for line in instructions(row, row.samples()[-1:])):
        opcode, _, rest = line.partition(" ")
        lines.append(f"{shuffled(opcode.rstrip(';'), Random(0))} {rest or ';'}")
    load(parse_ptx(HEAD + "\n".join(lines) + "\nLABEL: ret; }\n"))


def test_a_row_whose_meaning_is_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of a row which another package adds, or of a new one before `make index`."""
    monkeypatch.delitem(cast("dict[str, str]", HOMES), "bmsk")
    monkeypatch.delitem(MEANINGS, "bmsk", raising=False)
    text = f"{HEAD}bmsk.clamp.b32 %b32_0, %b32_0, 3;\nret; }}\n"
    with pytest.raises(InterpreterError, match=r"k.ptx:\d+:1: error: bmsk.clamp.b32: not supported: no module has the"):
        load(parse_ptx(text, "k.ptx"), "k.ptx")


def test_operands_that_the_row_refuses() -> None:
    text = f"{HEAD}bmsk.clamp.b32 %b32_0, %b64_0, 3;\nret; }}\n"
    with pytest.raises(InterpreterError, match=r"k.ptx:\d+:1: error: bmsk.clamp.b32: operand a: expected a register"):
        load(parse_ptx(text, "k.ptx"), "k.ptx")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("root", sorted({row.root for row in every_row()} - {"call"}))
def test_a_misspelt_qualifier_has_its_line(root: str) -> None:
    rows = [row for row in every_row() if row.root == root]
    line = next(line for row in rows for line in instructions(row, row.samples()))
    opcode, _, operands = line.partition(" ")
    wrong = f"{opcode}.frobnicated {operands}".replace(" ;", ";") if operands else f"{opcode.rstrip(';')}.frobnicated;"
    number = HEAD.count("\n") + 1
    with pytest.raises(InterpreterError, match=rf"k.ptx:{number}:1: error: .*frobnicated"):
        load(parse_ptx(f"{HEAD}{wrong}\nLABEL: ret; }}\n", "k.ptx"), "k.ptx")
