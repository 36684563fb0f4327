"""How many instructions a second `check_ptx` reads and checks.

    python bench/check.py --instructions 40000 --json out.json

The file is every matrix instruction of its target in turn. Registers are drawn at random, so that nearly every operand
text is new; with `repeated` they are those of a compiler that uses few, so that texts come back.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from itertools import count, cycle, islice
from pathlib import Path

from warploom.dialect.isa.families import BY_SPELLING
from warploom.dialect.isa.form import ADDRESS, CONSTANT, SCALAR, SELECTOR, Form
from warploom.dialect.isa.targets import named
from warploom.runtime import check_ptx

LETTERS = {"f32": "f", "f64": "d"}
DECLARED = {"r": "b32", "f": "f32", "d": "f64", "p": "b64"}
REGISTERS = 64

TARGET = "sm_120a"
HEAD = f".version 9.0\n.target {TARGET}\n.address_size 64\n.visible .entry k()\n{{\n" + "".join(
    f".reg .{type} %{letter}<{REGISTERS}>;\n" for letter, type in DECLARED.items()
)


def statement(form: Form, numbers: Iterator[int]) -> str:
    """One instruction of a form, its registers numbered by `numbers`."""
    fixed = {ADDRESS: "[%p0]", CONSTANT: "0", SELECTOR: "{0, 1}"}
    texts: list[str] = []
    for operand in form.operands:
        letter = LETTERS.get(operand.type, "r")
        registers = [f"%{letter}{next(numbers) % REGISTERS}" for _ in range(operand.count)]
        text = registers[0] if operand.kind == SCALAR else "{" + ", ".join(registers) + "}"
        texts.append(fixed.get(operand.kind, text))
    return f"{form.spelling} {', '.join(texts)};\n"


def drawn() -> Iterator[int]:
    """Random register numbers, the same in each run."""
    source = random.Random(0)
    while True:
        yield source.randrange(REGISTERS)


def text(instructions: int, *, repeated: bool) -> str:
    """A kernel of so many instructions."""
    legal = [form for form in BY_SPELLING.values() if form.runs_on(named(TARGET))]
    forms, numbers = islice(cycle(legal), instructions), drawn()
    return HEAD + "".join(statement(form, count() if repeated else numbers) for form in forms) + "ret;\n}\n"


def rate(ptx: str, instructions: int, repeats: int) -> float:
    """Instructions a second, the best of some runs."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        found = check_ptx(ptx)
        best = min(best, time.perf_counter() - start)
        if found:
            raise SystemExit(f"a legal instruction was refused: {found[0]}")
    return instructions / best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instructions", type=int, default=40000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = {
        name: rate(text(options.instructions, repeated=name == "repeated"), options.instructions, options.repeats)
        for name in ("new operands", "repeated")
    }
    for name, value in results.items():
        print(f"{name:14} {value:8.0f} instructions/s")
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
