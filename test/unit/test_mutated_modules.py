"""Modules with mistakes: whatever one changes in a module, it is lowered, or an error names the line."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from samples import FULL
from xdsl.utils.exceptions import DiagnosticException, ParseError

from warploom.passes.opt import main

INPUTS = sorted((Path(__file__).parents[1] / "filecheck").rglob("*.mlir"))
MUTANTS = 150 if FULL else 75
NUMBER = re.compile(r"(?<![\w%#.])\d+(?!\w)|(?<=[<x])\d+(?=x)")
NUMBERS = ("0", "1", "2", "3", "7", "8", "13", "16", "17", "33", "64", "100", "255", "4096", "-1", "5000000000")
TYPES = ("f16", "bf16", "f32", "f64", "i1", "i4", "i8", "i32", "i64", "ui8", "index", "tf32", "f8E4M3FN", "f4E2M1FN")
TYPE = re.compile(rf"(?<=x)({'|'.join(TYPES)})\b|\b({'|'.join(TYPES)})\b")
PARTS = re.compile(r"\w+ = [^,{}<>\n]+,? ?|\b(true|false|unit)\b|\bd\d|[<>\[\]{}():,]")


def _replaced(text: str, pattern: re.Pattern[str], choices: tuple[str, ...], rng: random.Random) -> str:
    """The text with one match of a pattern replaced by another one, or by a choice if there are any."""
    matches = list(pattern.finditer(text))
    if not matches:
        return text
    at = rng.choice(matches)
    return text[: at.start()] + rng.choice(choices or [*(m.group() for m in matches), ""]) + text[at.end() :]


def mutate(text: str, rng: random.Random) -> str:
    """One small change: a number, a type, a value, an attribute, a line less or twice."""
    lines = text.split("\n")
    match rng.randrange(7):
        case 0 | 1:
            return _replaced(text, NUMBER, NUMBERS, rng)
        case 2:
            return _replaced(text, TYPE, TYPES, rng)
        case 3:
            return _replaced(text, re.compile(r"%\w+"), (), rng)
        case 4:
            return _replaced(text, PARTS, (), rng)
        case 5:
            del lines[rng.randrange(len(lines))]
        case _:
            lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
    return "\n".join(lines)


def chunk(rng: random.Random) -> tuple[str, str]:
    """A module of the tests, without its comments, and a pipeline that one of them runs it through."""
    while True:
        text = rng.choice(INPUTS).read_text()
        pipelines = re.findall(r"-p '([^']+)'|-p \"([^\"]+)\"|-p (\S+)", text)
        part = rng.choice(text.split("// -----"))
        module = "\n".join(line for line in part.splitlines() if not line.strip().startswith("//"))
        if "func" in module and len(module) < 6000:
            whole = f"warploom{{target={rng.choice(('sm_80', 'sm_89', 'sm_90a', 'sm_100a'))}}}"
            return module, rng.choice([whole, *("".join(each) for each in pipelines)])


def test_a_module_with_mistakes_is_lowered_or_refused_at_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = random.randrange(1 << 30)
    rng, path, refused = random.Random(seed), tmp_path / "module.mlir", 0
    for number in range(MUTANTS):
        module, pipeline = chunk(rng)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            module = mutate(module, rng)
        path.write_text(module)
        try:
            main(["--debug", "-p", pipeline, str(path), "-o", str(tmp_path / "out")])
        except (ParseError, DiagnosticException, SystemExit):
            refused += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}, mutant {number}, -p {pipeline}:\n{module}") from error
    capsys.readouterr()
    assert refused > MUTANTS // 2
