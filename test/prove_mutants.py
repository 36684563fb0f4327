"""Kernels with a bug in one place, and whether proofs tell them from the kernels that they were made of.

    python test/prove_mutants.py [--count 100] [--seed N] [--verbose]

A mutant has another register, constant, offset, predicate, layout or operation somewhere, or lacks an instruction, and
is a program. One that is proven has to compute the function: on numbers that the proof has not seen, small and large,
it leaves the words that the kernel leaves or, where it rounds otherwise, results within the bound of float64. Others
are refuted, by an output or because the run fails, or stay undecided; these are printed with the reason.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from multiprocessing import Pool

import numpy as np

from warploom.runtime import Kernel, WarploomError, compile, load_ptx, prove
from warploom.runtime.kernel.lowering import parse, without_tensors
from warploom.runtime.plan import host
from warploom.runtime.proof.counterexample import TINY
from warploom.runtime.proof.question import PARTLY, PROVEN, REFUTED
from warploom.runtime.reference import functions as reference
from warploom.runtime.reference.inputs import arrays

PRODUCT = """
func.func @product(%A: memref<24x40xbf16>, %B: memref<40x24xbf16>, %C: memref<24x24xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%C : memref<24x24xf32>)
  linalg.matmul ins(%A, %B : memref<24x40xbf16>, memref<40x24xbf16>) outs(%C : memref<24x24xf32>)
  return
}
"""
SOFTMAX = """
func.func @softmax(%X: memref<9x72xf32>, %Y: memref<9x72xf32>) {
  linalg.softmax dimension(1) ins(%X : memref<9x72xf32>) outs(%Y : memref<9x72xf32>)
  return
}
"""
SOURCES = {"product": (PRODUCT, {"target": "sm_80", "cta": "16,16,16", "warp": "16,16", "stages": "2"}),
           "softmax": (SOFTMAX, {"target": "sm_80"})}  # fmt: skip
STEPS = 5_000

_STATEMENT = re.compile(r"^\s+(@!?%\w+ )?[a-z][\w.:]* [^;]*;$")
_SWAPS = (("add.", "sub."), ("max.", "min."), (".trans", ""), ("setp.lt", "setp.le"), ("setp.ge", "setp.gt"),
          (".row.col", ".row.col"), ("mul.rn", "add.rn"), ("setp.ne", "setp.eq"), ("wide.u32", "wide.s32"),
          ("bf16.bf16", "f16.f16"))  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A change of one line of a kernel."""

    source: str
    line: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.source}:{self.line}: {self.before.strip()} -> {self.after.strip() or 'nothing'}"


def mutants(source: str, ptx: str, pick: random.Random) -> Iterator[tuple[Mutant, str]]:
    """Changed texts without end."""
    lines = ptx.splitlines()
    places = [i for i, line in enumerate(lines) if _STATEMENT.match(line) and "bra" not in line]
    while True:
        at = pick.choice(places)
        after = pick.choice((_register, _literal, _guard, _operation, _dropped))(lines[at], lines, pick)
        if after != lines[at]:
            changed = "\n".join([*lines[:at], after, *lines[at + 1 :]]) + "\n"
            if _is_program(changed, source):
                yield Mutant(source, at + 1, lines[at], after), changed


def _is_program(ptx: str, kernel: str) -> bool:
    """Whether the PTX can be run at all: its registers are declared, and its operands are legal."""
    try:
        load_ptx(ptx).program.kernel(kernel)
    except WarploomError:
        return False
    return True


def _register(line: str, lines: list[str], pick: random.Random) -> str:
    """Another register of the kind in place of one."""
    matches = list(re.finditer(r"%([a-z]+)(\d+)", line))
    if not matches:
        return line
    match = pick.choice(matches)
    near = max(0, int(match[2]) + pick.choice((-2, -1, 1, 2)))
    return f"{line[: match.start()]}%{match[1]}{near}{line[match.end() :]}"


def _literal(line: str, lines: list[str], pick: random.Random) -> str:
    """Another number in place of a literal or an offset."""
    matches = list(re.finditer(r"(?<![\w%.])-?\d+(?![\w.])|(?<=\+)\d+", line))
    if not matches:
        return line
    match = pick.choice(matches)
    number = int(match[0])
    other = pick.choice((number + 1, number * 2, number - 4, number + 16, 0))
    return f"{line[: match.start()]}{other}{line[match.end() :]}"


def _guard(line: str, lines: list[str], pick: random.Random) -> str:
    """A predicate negated, or left out."""
    match = re.match(r"(\s+)@(!?)(%\w+) (.*)", line)
    if match is None:
        return line
    return (
        f"{match[1]}{match[4]}" if pick.random() < 0.5 else f"{match[1]}@{'' if match[2] else '!'}{match[3]} {match[4]}"
    )


def _operation(line: str, lines: list[str], pick: random.Random) -> str:
    """Another operation or layout."""
    fitting = [(a, b) for pair in _SWAPS for a, b in (pair, pair[::-1]) if a and a in line]
    if not fitting:
        return line
    before, after = pick.choice(fitting)
    return line.replace(before, after, 1)


def _dropped(line: str, lines: list[str], pick: random.Random) -> str:
    return ""


def verdict(text: str, kernel: Kernel, ptx: str) -> tuple[str, str]:
    """What a proof says of other PTX of a kernel, "wrong" for a proof of what computes something else; and why."""
    mutant = replace(kernel, ptx=ptx)
    try:
        proof = prove(mutant, text, explain=False, max_steps=STEPS)
    except WarploomError as error:
        return "refused", str(error)
    if proof.outcome not in (PROVEN, PARTLY):
        fails = "refuted: the run fails" if proof.text.startswith("the run fails") else "refuted"
        return fails if proof.outcome == REFUTED else "undecided", proof.text
    return equality(text, kernel, mutant), ""


def equality(text: str, kernel: Kernel, mutant: Kernel) -> str:
    """Whether a mutant leaves the same words as the kernel on fresh numbers, or else is within the bound of float64."""
    module = parse(text, "<mlir>")
    without_tensors(module)
    function = host.choose(module, kernel.function.name)
    same = True
    for seed, factor in ((4321, 1), (4322, 1), (4323, 5), (4324, 40)):
        operands = arrays(kernel.function, [], seed)
        before = [array if not array.ndim else array * array.dtype.type(factor) for array in operands]
        left, expected = [array.copy() for array in before], [array.copy() for array in before]
        kernel(*expected, device="interp", max_steps=STEPS)
        try:
            mutant(*left, device="interp", max_steps=STEPS)
        except WarploomError:
            return "wrong"
        if all(left[i].tobytes() == expected[i].tobytes() for i in kernel.function.written):
            continue
        same = False
        exact = reference.evaluate(function, before, reference.accumulator_of(kernel.schedule, kernel.target))
        within = [replace(of, error=of.error + TINY) for of in exact]
        if not all(reference.compare(within[i], np.asarray(left[i])).ok for i in kernel.function.written):
            return "wrong"
    return "equivalent: the same words" if same else "equivalent: within rounding"


def verdicts(count: int, seed: int, jobs: int = 1) -> Iterator[tuple[Mutant, tuple[str, str]]]:
    """What becomes of so many mutants of each source, and why."""
    tasks: list[list[tuple[Mutant, str, Kernel, str]]] = []
    for name, (text, options) in SOURCES.items():
        kernel = compile(text, **options)  # pyright: ignore[reportArgumentType]
        made = mutants(name, kernel.ptx, random.Random(seed))
        tasks.append([(mutant, text, kernel, ptx) for mutant, ptx in islice(made, count)])
    with Pool(jobs, maxtasksperchild=16) as pool:
        yield from pool.imap_unordered(_verdict, chain.from_iterable(zip(*tasks, strict=True)))


def _verdict(task: tuple[Mutant, str, Kernel, str]) -> tuple[Mutant, tuple[str, str]]:
    mutant, text, kernel, ptx = task
    return mutant, verdict(text, kernel, ptx)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100, metavar="N", help="mutants of each kernel")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="judge so many at once")
    parser.add_argument("--verbose", action="store_true", help="print what is refuted, too")
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    for mutant, (verdict, why) in verdicts(args.count, args.seed, args.jobs):
        counts[verdict] += 1
        if args.verbose or not verdict.startswith("refuted"):
            print(f"{verdict}: {mutant}{f': {why.splitlines()[0]}' if why else ''}", flush=True)
    print(", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
