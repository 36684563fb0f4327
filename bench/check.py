"""How many instructions a second `check_ptx` reads and checks, and what a spelling costs that no row has.

    python bench/check.py --instructions 40000 --json out.json

The file is every matrix instruction that sm_120a has, in turn. Registers are drawn at random, so that nearly every
operand text is new; with `repeated` they are those of a compiler that uses few, so that texts come back. The refused
spellings are misspelt qualifiers and misspelt opcodes, each of them once.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from itertools import count, cycle, islice
from pathlib import Path
from string import ascii_lowercase

from warploom.dialect.isa.form import Form
from warploom.dialect.isa.row import ADDRESS, CONSTANT, SCALAR, SELECTOR, TARGETS
from warploom.dialect.ptx.instructions import FAMILIES
from warploom.runtime import check_ptx

LETTERS = {"f32": "f", "f64": "d"}
DECLARED = {"r": "b32", "f": "f32", "d": "f64", "p": "b64"}
REGISTERS = 64
REFUSED = 1000

TARGET = TARGETS["sm_120a"]
FORMS = [form for forms in FAMILIES.values() for form in forms() if form.unavailable(TARGET, (9, 0)) is None]

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
    forms, numbers = islice(cycle(FORMS), instructions), drawn()
    return HEAD + "".join(statement(form, count() if repeated else numbers) for form in forms) + "ret;\n}\n"


def rate(ptx: str, instructions: int, repeats: int) -> float:
    """Instructions a second, the best of some runs."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        diagnostics = check_ptx(ptx)
        best = min(best, time.perf_counter() - start)
        if diagnostics:
            raise SystemExit(f"a legal instruction was refused: {diagnostics[0]}")
    return instructions / best


def misspelt(count: int) -> str:
    """A kernel of spellings that no row has, each once: qualifiers that do not exist, and opcodes."""
    source = random.Random(0)
    words = ["".join(source.choices(ascii_lowercase, k=5)) for _ in range(count)]
    patterns = ("fma.rn.{}.f32", "ld.global.{}.u32", "mma.sync.aligned.m16n8k16.row.col.{}.f16.f16.f32", "{}.u32")
    lines = [f"{pattern.format(word)} %r0, %r1;\n" for pattern, word in zip(cycle(patterns), words)]
    return HEAD + "".join(lines) + "ret;\n}\n"


def refused(count: int) -> float:
    """Milliseconds that a refused spelling takes: the errors name the nearest, which is found once for each."""
    ptx = misspelt(count)
    check_ptx(HEAD + "ret;\n}\n")
    start = time.perf_counter()
    diagnostics = check_ptx(ptx)
    seconds = time.perf_counter() - start
    if len(diagnostics) != count:
        raise SystemExit(f"expected {count} refused spellings, got {len(diagnostics)}")
    return 1e3 * seconds / count


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
    results["refused"] = refused(REFUSED)
    print(f"{'refused':14} {results['refused']:8.2f} ms for a spelling")
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
