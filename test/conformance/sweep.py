"""Statements near every row, on every target that ptxas has, judged by ptxas and by us.

    python test/conformance/sweep.py [--count 3000] [--seed 1] [--targets sm_75,...] [--jobs 2] [--seconds S] [--out F]
        [--operands]

Of each instruction that a row has, one place is changed: a qualifier is dropped, doubled, exchanged with another or
replaced; an operand is dropped, doubled, exchanged, added, or of another kind, type or count. Each target has as many
statements of each family (the first word of the opcode) as of any other, four of five in the newest PTX version, the
others in one that the target began with, or later. With `--operands` an operand has registers of another type, or
literals in their place: one, or all of a vector. The exit status is 1 if we and ptxas differ without a reason
(`refused.py`).
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
import resource
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing import Pool
from pathlib import Path
from typing import TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from assembler import PTXAS
from mutations import split
from ptx_rows import BY_SPELLING, DECLARATIONS, SYMBOLS, WIDE, instructions
from ptx_rows import operand as fitting
from refused import fault, reason

from warploom.dialect.isa.row import NEWEST, TARGETS, Target, Version
from warploom.dialect.ptx.check.module import check_text
from warploom.dialect.ptx.instructions import every_row
from warploom.dialect.ptx.text.syntax import REGISTER_BITS

LOWEST = TARGETS["sm_75"]
CHUNK = 100
"""Statements that ptxas reads at once: after an error of syntax it looks no further, and is started again."""
MEMORY, SECONDS = 1 << 30, 30
"""What one run of ptxas may take: some mistakes make it ask for memory without end."""
EARLIER = tuple(sorted({t.ptx for t in TARGETS.values()} | {(9, minor) for minor in range(NEWEST[1])}))

OPERANDS = (
    *("%b32_1", "%b64_1", "%pred_1", "!%pred_2", "%f32_1", "%f64_1", "%u16_1", "%b16_2", "%s32_3", "%u8_1", "%b128_1"),
    *("0", "1", "3", "-1", "16", "1024", "0f3F800000", "4294967296", "_", "%tid.x", "smem", "LABEL", "%u32_1|%pred_1"),
    *("[%b64_2]", "[%b32_2]", "[%b64_2+16]", "[smem]", "[smem+4]", "[0]", "{%b32_1}", "{%b32_1, %b32_2}", "{_}"),
    *("{%b32_1, %b32_2, %b32_3, %b32_4}", "{%f32_1, %f32_2}", "{%b64_1, %b64_2}", "{%b16_1, %b16_2}", "{1, 2}"),
    *("[%b64_6, {%b32_1}]", "[%b64_6, {%b32_1, %b32_2}]", "{%b32_1, %b32_2, %b32_3, %b32_4, %b32_5, %b32_6}"),
)


@dataclass(frozen=True)
class Difference:
    """A statement on which the two disagree; `why` is what explains it."""

    target: str
    version: Version
    statement: str
    taken: bool
    """Whether we take it."""
    message: str
    why: str


@cache
def families() -> dict[str, list[str]]:
    """Statements of every row by the first word of the opcode; matrix instructions among them."""
    by_family: defaultdict[str, list[str]] = defaultdict(list)
    for row in every_row():
        by_family[row.root] += [
            apart(line) for line in instructions(row, row.samples()) if not OF_FUNCTIONS.match(line)
        ]
    for form in BY_SPELLING.values():
        words = [fitting(every_row()[0], slot, number) for number, slot in enumerate(form.operands)]
        by_family[form.spelling.partition(".")[0]].append(f"{form.spelling} {', '.join(words)};")
    return {family: lines for family, lines in by_family.items() if lines}


def apart(line: str) -> str:
    """A statement whose operands share no registers, which ptxas wants of some that have several results."""
    if not re.match(r"tcgen05\.ld|sp(de)?compress", line):
        return line
    numbers = itertools.count()
    return re.sub(r"%b32_\d+", lambda _: f"%b32_{next(numbers)}", line)


OF_FUNCTIONS = re.compile(r"(ld|st)\.(\w+\.)*param::func|st\.(\w+\.)*param\.")
"""What is for functions alone."""


@cache
def words_of(family: str) -> tuple[str, ...]:
    words = {word for line in families()[family] for word in line.partition(" ")[0].rstrip(";").split(".")[1:]}
    return tuple(sorted(words | {"b32", "f16", "global", "bogus"}))


REGISTER = re.compile(r"%([a-z]+\d*(?:x2)?)_(\d+)")
LITERALS = (
    *("0", "1", "-1", "16", "65536", "4294967296", "18446744073709551616", "1.5", "0f3F800000", "0d3FF0000000000000"),
    *("WARP_SZ", "_", "%tid.x", "%clock64", "smem", "smem+4", "LABEL", "!%pred_1", "0x10U"),
)


def varied(line: str, _: str, pick: random.Random) -> tuple[str, str]:
    """A statement of which one operand has registers of another type, or literals for one of them or all."""
    opcode, _, rest = line.rstrip(";").partition(" ")
    operands = split(rest)
    if not operands:
        return "as it is", line
    at = pick.randrange(len(operands))
    places = [match.span() for match in REGISTER.finditer(operands[at])] or [(0, len(operands[at]))]
    if pick.random() < 0.5:
        operands[at] = REGISTER.sub(rf"%{pick.choice(tuple(REGISTER_BITS))}_\2", operands[at])
    else:
        literal = pick.choice(LITERALS)
        for start, end in reversed(pick.choice((places[:1], places[-1:], places))):
            operands[at] = operands[at][:start] + literal + operands[at][end:]
    return "operand varied", f"{opcode} {', '.join(operands)};"


def changed(line: str, family: str, pick: random.Random) -> tuple[str, str]:
    """A statement with one change: the kind, and the statement."""
    opcode, _, rest = line.rstrip(";").partition(" ")
    root, *words = opcode.split(".")
    operands = split(rest)
    kinds = ["as it is", "qualifier added", "operand added", "operand added"]
    kinds += [f"qualifier {how}" for how in ("dropped", "doubled", "replaced", "replaced")] if words else []
    kinds += ["qualifiers exchanged"] if len(words) > 1 else []
    kinds += ["operand dropped", "operand doubled", *["operand replaced"] * 3] if operands else []
    kinds += ["operands exchanged"] if len(operands) > 1 else []
    kind = pick.choice(kinds)
    of, *how = kind.split()
    some, new = (words, words_of(family)) if of.startswith("qualifier") else (operands, OPERANDS)
    at, other = pick.randrange(max(1, len(some))), pick.randrange(max(1, len(some)))
    match how[-1]:
        case "dropped":
            del some[at]
        case "doubled":
            some.insert(at, some[at])
        case "exchanged":
            some[at], some[other] = some[other], some[at]
        case "added":
            some.insert(pick.randrange(len(some) + 1), pick.choice(new))
        case "replaced":
            braced = re.fullmatch(r"([\[{])(.*)[\]}]", some[at])
            if braced and pick.random() < 0.5:
                inner = split(braced[2])
                place = pick.randrange(len(inner))
                inner[place : place + 1] = pick.choice(([], [inner[place]] * 2, [pick.choice(OPERANDS[:24])]))
                some[at] = some[at][0] + ", ".join(inner) + some[at][-1]
            else:
                some[at] = pick.choice(new)
        case _:
            pass
    return kind, f"{'.'.join((root, *words))} {', '.join(operands)}".rstrip() + ";"


Change: TypeAlias = Callable[[str, str, random.Random], tuple[str, str]]


def candidates(target: Target, count: int, seed: int, change: Change) -> dict[Version, list[tuple[str, str]]]:
    """Kinds of changes and statements by PTX version, each once."""
    pick = random.Random(f"{seed} {target}")
    roots, drawn = sorted(families()), dict[str, tuple[Version, str]]()
    later = [version for version in EARLIER if version >= target.ptx] or [NEWEST]
    for number in range(2 * count):
        family = roots[number % len(roots)]
        kind, line = change(pick.choice(families()[family]), family, pick)
        drawn.setdefault(line, (NEWEST if pick.random() < 0.8 else pick.choice(later), kind))
        if len(drawn) == count:
            break
    by_version: defaultdict[Version, list[tuple[str, str]]] = defaultdict(list)
    for line, (version, kind) in drawn.items():
        by_version[version].append((kind, line))
    return by_version


def kernel(lines: Sequence[str], target: Target, version: Version) -> tuple[str, int]:
    """A kernel of these statements, each in a line of its own, and the first line."""
    head = (
        f".version {version[0]}.{version[1]}\n.target {target}\n.address_size 64\n.visible .entry k(.param .b64 p) {{\n"
    )
    head += re.sub(r"<\d+>", "<320>", DECLARATIONS) + (WIDE if version >= (8, 3) else "") + SYMBOLS
    return head + "\n".join(lines) + "\nLABEL:\nret;\n}\n", head.count("\n") + 1


def ours(lines: Sequence[str], target: Target, version: Version) -> dict[int, str]:
    """Our message for each statement that `warploom check` refuses."""
    text, first = kernel(lines, target, version)
    return {diagnostic.line - first: diagnostic.message for diagnostic in reversed(check_text(text).diagnostics)}


def blamed(lines: Sequence[str], target: Target, version: Version) -> dict[int, str]:
    """Messages of one run of ptxas by the number of the statement; -1 where it names none."""
    text, first = kernel(lines, target, version)
    command = [str(PTXAS), "-c", "-O0", "-arch", target.name, "/dev/stdin", "-o", "/dev/null"]
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, timeout=SECONDS,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {-1: CRASHED}
    if not done.returncode:
        return {}
    said = done.stderr + done.stdout
    messages: dict[int, str] = {}
    for line, message in re.findall(r"line (\d+); (?:error|fatal)\s*: (.*)", said):
        messages.setdefault(int(line) - first, CRASHED if "Internal compiler error" in message else message)
    inside = {number: message for number, message in messages.items() if 0 <= number < len(lines)}
    crashed = done.returncode < 0 or "error" not in said or re.search(r"Memory allocation|Internal compiler", said)
    return inside or {-1: CRASHED if crashed else said.strip()[-200:]}


CRASHED = "ptxas ends without a word"


def refused(lines: Sequence[str], target: Target, version: Version) -> dict[int, str]:
    """The statements that ptxas refuses, with its message: what it blames is put aside, until it takes the rest."""
    left, errors = list(range(len(lines))), dict[int, str]()
    while left and (messages := blamed([lines[n] for n in left], target, version)):
        if -1 in messages:
            if len(left) == 1:
                return errors | {left[0]: messages[-1]}
            half = len(left) // 2
            for part in (left[:half], left[half:]):
                more = refused([lines[n] for n in part], target, version)
                errors |= {part[n]: message for n, message in more.items()}
            return errors
        errors |= {left[n]: message for n, message in messages.items()}
        left = [number for n, number in enumerate(left) if n not in messages]
    return errors


@dataclass(frozen=True)
class Task:
    """Statements of one target and version."""

    target: Target
    version: Version
    lines: tuple[str, ...]
    until: float


def judged(task: Task) -> tuple[int, int, list[Difference]]:
    """How many statements were judged, how many of them without a verdict of ptxas, and where the two differ."""
    if time.time() > task.until:
        return 0, 0, []
    mine = ours(task.lines, task.target, task.version)
    theirs: dict[int, str] = {}
    for some in (sorted(mine), [n for n in range(len(task.lines)) if n not in mine]):  # ptxas need not read these twice
        messages = refused([task.lines[n] for n in some], task.target, task.version)
        theirs |= {some[n]: message for n, message in messages.items()}
    crashed = sum(message == CRASHED for message in theirs.values())
    differences: list[Difference] = []
    for number, line in enumerate(task.lines):
        taken = number not in mine
        if taken != (number in theirs):
            continue
        alone = refused([line], task.target, task.version).get(0, "")
        if taken == bool(alone) and alone != CRASHED:
            opcode, said = line.rstrip(";").partition(" ")[0], alone or mine[number]
            why = fault(opcode, said) if taken else reason(opcode, said, task.target.name)
            differences.append(Difference(task.target.name, task.version, line, taken, said, why or ""))
    return len(task.lines), crashed, differences


def tasks(targets: Sequence[Target], count: int, seed: int, until: float, change: Change) -> Iterator[Task]:
    """Pieces of all targets in turn, so that every target has its share when the time is over."""
    pieces: list[list[Task]] = []
    for target in targets:
        groups: defaultdict[tuple[Version, bool], list[str]] = defaultdict(list)
        for version, some in candidates(target, count, seed, change).items():
            for _, line in some:
                groups[version, "cta_group::2" in line].append(line)  # ptxas refuses a function that mixes them
        pieces.append([
            Task(target, version, tuple(lines[start : start + CHUNK]), until)
            for (version, _), lines in groups.items()
            for start in range(0, len(lines), CHUNK)
        ])  # fmt: skip
    for number in range(max(map(len, pieces))):
        yield from (some[number] for some in pieces if number < len(some))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=3000, help="statements for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--targets", default=",".join(t.name for t in TARGETS.values() if t.sm >= LOWEST.sm))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1e9, help="start nothing after so long")
    parser.add_argument("--operands", action="store_true", help="change registers and literals of operands alone")
    parser.add_argument("--out", type=Path, help="where all differences are written, a line each")
    args = parser.parse_args()
    if PTXAS is None:
        print("not judged: ptxas is not here; the package nvidia-cuda-nvcc brings it")
        return 1
    targets = [TARGETS[name] for name in args.targets.split(",")]
    done = crashed = 0
    each, reasons, examples = Counter[str](), Counter[str](), dict[str, str]()
    listed: list[str] = []
    with Pool(args.jobs) as pool:
        change = varied if args.operands else changed
        work = list(tasks(targets, args.count, args.seed, time.time() + args.seconds, change))
        for task, (number, without, messages) in zip(work, pool.imap(judged, work), strict=True):
            done, crashed = done + number, crashed + without
            each[task.target.name] += number
            for d in messages:
                reasons[d.why] += 1
                listed.append(f"{d.target}\t{d.statement}\t{'' if d.taken else 'ours: '}{d.message}\t{d.why}\n")
                examples.setdefault(d.why, f"{d.target}: {d.statement[:200]}")
                if not d.why:
                    print(f"{d.target} {d.version[0]}.{d.version[1]}: {d.statement}", flush=True)
                    print(f"    {'we take it; ptxas' if d.taken else 'ptxas takes it; we'}: {d.message}", flush=True)
    if args.out:
        args.out.write_text("".join(sorted(listed)))
    unexplained = reasons.pop("", 0)
    for why, number in reasons.most_common():
        print(f"{number:5} {why}\n        e.g. {examples[why]}")
    print(f"seed {args.seed}: {done} statements on {len(+each)} targets ({min(each.values())} to {max(each.values())})")
    print(f"{crashed} without a verdict of ptxas, {reasons.total()} explained differences of {len(reasons)} kinds")
    print(f"{unexplained} unexplained differences")
    return 1 if unexplained or not done else 0


if __name__ == "__main__":
    sys.exit(main())
