"""Small drawn `linalg` programs, compiled and run on the interpreter, against an evaluator of their own.

    python test/linalg_programs.py                       # 2,000 programs
    python test/linalg_programs.py --count 100 --seed 7 --kinds rows
    python test/linalg_programs.py --only 1000045 --kinds rows   # one program, by its number: text, and what is wrong

A program is drawn as data (`program_generator`), printed as MLIR (`program_tree`), and evaluated from the same data
in numpy, with a rounding wherever the program has one (`program_evaluator`, `program_values`). No code is shared with
compiler and runtime. The script prints the seed, how many programs were refused and why, and each program whose
result is wrong, or which ends in anything but a result or one located error; it exits with 1 if there is any.

`--plant` tests the comparison itself: it leaves roundings out of the evaluation, one at a time, and counts how many of
the results that this changes are found to be wrong.
"""

from __future__ import annotations

import argparse
import re
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from program_evaluator import Evaluator
from program_generator import DTYPES, KINDS, Generator, values_of
from program_tree import Elementwise, Product, Program, Reduction
from program_values import Reals, Values, rounded

from warploom.runtime import WarploomError, compile

SPREAD = 1_000_003
"""Seeds of programs lie apart, so that two seeds draw different programs."""


@dataclass(frozen=True)
class Outcome:
    """What became of a program: "right", "refused" with the reason, or "wrong" with what is wrong."""

    number: int
    kind: str
    reason: str = ""
    text: str = ""


def outcome(number: int, kinds: Sequence[str] = KINDS) -> Outcome:
    """Draws, compiles, runs and compares one program."""
    generator = Generator(number, kinds)
    program = generator.generate()
    arrays, text = generator.arrays(), program.text()
    try:
        kernel = compile(text, program.target, tf32=program.tf32, cache=False)
    except WarploomError as error:
        message = str(error)
        located = re.match(r"\S+:\d+:\d+: error: ", message)
        return Outcome(number, "refused" if located else "wrong", message.split("\n")[0], text)
    except Exception:
        return Outcome(number, "wrong", traceback.format_exc(), text)
    try:
        results = _run(kernel, program, arrays)
    except Exception:
        return Outcome(number, "wrong", traceback.format_exc(), text)
    expected = Evaluator(program).evaluate({n: values_of(a, program.inputs[n].type) for n, a in arrays.items()})
    for array, result in zip(program.outputs, results, strict=True):
        if what_differs := difference(expected[array.name], result):
            return Outcome(number, "wrong", f"{array.name}: {what_differs}", f"// {program.target}\n{text}")
    return Outcome(number, "right")


def _run(kernel: Any, program: Program, arrays: dict[str, Any]) -> list[Any]:
    """The results; memory that is written starts with numbers that mean nothing."""
    copies = {name: array.copy() for name, array in arrays.items()}
    if program.tensors:
        results = kernel(*copies.values(), device="interp")
        return list(results) if isinstance(results, tuple) else [results]
    for name, array in program.written().items():
        words = np.random.default_rng(1).integers(0, 256, (*program.shape(array), DTYPES[array.type].itemsize))
        copies[name] = words.astype(np.uint8).view(DTYPES[array.type])[..., 0]
    kernel(*copies.values(), device="interp")
    return [copies[program.memory(a)] for a in program.outputs]


def difference(expected: Values, result: Any) -> str:
    """Where a result is not among those that are right; "" if it is."""
    values = np.asarray(result).astype(np.float64 if isinstance(expected, Reals) else np.int64)
    if values.shape != expected.shape:
        return f"expected the shape {expected.shape}, got {values.shape}"
    right = expected.holds(values)
    if right.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~right)[0])
    nan = " or NaN" if isinstance(expected, Reals) and expected.nan[at] else ""
    low, high = expected.low[at], expected.high[at]
    wanted = f"{low!r}" if low == high else f"between {low!r} and {high!r}"
    return f"{int((~right).sum())} of {right.size} wrong; at {at} expected {wanted}{nan}, got {values[at]!r}"


def planted(number: int, kinds: Sequence[str] = KINDS) -> tuple[int, int]:
    """How many roundings of a program matter when they are left out, and how many of these the comparison finds."""
    generator = Generator(number, kinds)
    program = generator.generate()
    inputs = {n: values_of(a, program.inputs[n].type) for n, a in generator.arrays().items()}
    expected = Evaluator(program).evaluate(inputs)
    matter = noticed = 0
    for place in roundings(program):
        changed = Evaluator(program, dropped=place).evaluate(inputs)
        for array in program.outputs:
            right, other = expected[array.name], changed[array.name]
            if isinstance(right, Reals) and isinstance(other, Reals):
                matter += _differ(right, other)
                noticed += not (right.holds(_middle(other)).all())
    return matter, noticed


def _middle(values: Reals) -> Any:
    with np.errstate(all="ignore"):
        middle = np.where(
            np.isfinite(values.low) & np.isfinite(values.high), (values.low + values.high) / 2, values.low
        )
    return rounded(middle, values.type)


def _differ(a: Reals, b: Reals) -> bool:
    """Whether the middles of two results differ."""
    return not np.array_equal(_middle(a), _middle(b), equal_nan=True)


def roundings(program: Program) -> Iterator[tuple[int, int]]:
    """The places of `truncf` in a program but for those of which an operation's result is rounded as it is stored."""
    for number, statement in enumerate(program.statements):
        if isinstance(statement, Elementwise | Reduction | Product):
            body = statement.body
            for i, step in enumerate(body.steps):
                if step.name == "arith.truncf" and len(body.arguments) + i != body.result:
                    yield number, i


def reason_of(message: str) -> str:
    """A refusal without its place, names and numbers."""
    return re.sub(r"'[^']*'|@\w+|%\w+|\d+", "_", re.sub(r"^\S+?:\d+:\d+: error: ", "", message))[:140]


def report(outcomes: Iterator[Outcome], *, refused: bool) -> bool:
    """Prints what is wrong as it is found, then the counts; whether nothing is wrong."""
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for outcome in outcomes:
        counts[outcome.kind] += 1
        if sum(counts.values()) % 100 == 0:
            print(f"{sum(counts.values())} programs", file=sys.stderr, flush=True)
        if outcome.kind == "refused":
            reasons[reason_of(outcome.reason)] += 1
            if refused:
                print(f"program {outcome.number} refused: {outcome.reason}\n{outcome.text}", flush=True)
        if outcome.kind == "wrong":
            print(f"program {outcome.number}: {outcome.reason}\n{outcome.text}", flush=True)
    total = sum(counts.values())
    print(f"{total} programs: {counts['right']} right, {counts['refused']} refused, {counts['wrong']} wrong")
    for reason, count in reasons.most_common():
        print(f"{count:5} refused: {reason}")
    return not counts["wrong"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--only", type=int, help="one program, by its number")
    parser.add_argument("--refused", action="store_true", help="print the programs that are refused")
    parser.add_argument("--plant", action="store_true", help="leave roundings out, and count how many are found")
    options = parser.parse_args()
    first = options.seed * SPREAD
    numbers = [options.only] if options.only is not None else range(first, first + options.count)
    if options.only is not None:
        print(Generator(options.only, options.kinds).generate().text())
    print(f"seed {options.seed}, programs {numbers[0]} to {numbers[-1]}", flush=True)
    if options.plant:
        matter, noticed = map(sum, zip(*(planted(n, options.kinds) for n in numbers), strict=True))
        print(f"{matter} roundings change a result when they are left out, of which {noticed} are found")
        return 0
    if options.jobs == 1:
        return 0 if report(map(partial(outcome, kinds=options.kinds), numbers), refused=options.refused) else 1
    with ProcessPoolExecutor(options.jobs) as pool:
        outcomes = pool.map(partial(outcome, kinds=options.kinds), numbers, chunksize=8)
        return 0 if report(outcomes, refused=options.refused) else 1


if __name__ == "__main__":
    sys.exit(main())
