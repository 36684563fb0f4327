"""PTX changed in one place, judged by ptxas and by us: types, qualifiers, operands, counts, addresses, declarations.

    python test/conformance/mutations.py [--count 2000] [--seed N] [--jobs 2] [--out report.txt]

The texts are those of the corpus (nvcc, Triton, CuTe), of `test/data`, and of our own compiler; each is cut to one of
its kernels. The seed is printed.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing import Pool
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from corpus.store import ARCHIVE, Store
from refused import reason
from verdicts import UnavailableError, arch_for, ptxas, publish, require_ptxas, unjudged

from warploom.dialect.ptx.check.module import check_text
from warploom.dialect.ptx.instructions import every_row
from warploom.dialect.ptx.text.syntax import REGISTER_BITS

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "test" / "data"
LONGEST = 40_000
"""Characters of a kernel; longer ones say nothing new and cost ptxas seconds."""
MAX_TAKEN = 0.002
"""The part of the mutants that we may take and ptxas refuses."""

Pick = random.Random
TYPES = (*REGISTER_BITS, "bf16", "bf16x2", "tf32", "f32x2", "u16x2", "e4m3x2", "e5m2", "s4", "b1", "b1024", "f8")
_TYPE = re.compile(r"pred|[busf]\d+(x\d)?|t?b?f\d+(x2)?|e\dm\d(x\d)?")
_ENTRY = re.compile(r"^[ \t]*(?:\.visible\s+|\.weak\s+)?\.entry\s+([\w$]+)", re.MULTILINE)
_STATEMENT = re.compile(
    r"^(?P<indent>[ \t]*)(?P<guard>@!?%?\w+\s+)?(?P<opcode>[a-z]\w*(?:(?:\.|::)\w+)*)(?P<operands>[ \t]+[^;\n]*)?;",
    re.MULTILINE,
)
_DECLARATION = re.compile(r"^[ \t]*\.(?:reg|shared|global|const|local|extern|visible|weak)\b[^\n{}()]*;", re.MULTILINE)
_PARAMETER = re.compile(r"\.param\s+[^,()\n]*")
_DIRECTIVE = re.compile(
    r"^[ \t]*\.(?:maxntid|reqntid|minnctapersm|maxnreg|reqnctapercluster|explicitcluster|maxclusterrank"
    r"|version|target|address_size|pragma)\b[^\n{]*",
    re.MULTILINE,
)
_LABEL = re.compile(r"^[ \t]*\$?[\w$]+:", re.MULTILINE)


@dataclass(frozen=True)
class Mutant:
    """A text that differs from one of the corpus in one place: the kind of change, what stood there, what stands."""

    name: str
    kind: str
    before: str
    after: str
    text: str


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """Every text of one kernel, by name."""
    by_name = dict(Store(ARCHIVE).texts)
    for path in sorted((*DATA.glob("kernels/*.ptx"), *DATA.glob("ptx/*.ptx"), *DATA.glob("pins/*.ptx"))):
        by_name[path.name] = path.read_text()
    cut = ((f"{name}:{kernel}", text) for name, source in sorted(by_name.items()) for kernel, text in kernels(source))
    return tuple((name, text) for name, text in cut if len(text) <= LONGEST and not unjudged(text))


def kernels(text: str) -> Iterator[tuple[str, str]]:
    """A module without the bodies of its other kernels, for each of its kernels."""
    entries = [(m[1], m.start(), _end(text, m.end())) for m in _ENTRY.finditer(text)]
    for kernel, _, _ in entries:
        cut = text
        for name, start, end in reversed(entries):
            if name != kernel:
                cut = cut[:start] + cut[end:]
        yield (
            kernel,
            re.sub(r"^[ \t]*(//.*|\.loc\b.*|\.file\b.*)?\n|[ \t]*//.*$", "", _sections(cut), flags=re.MULTILINE),
        )


def _sections(text: str) -> str:
    """A text without what is for debuggers."""
    return re.sub(r"^[ \t]*\.section[^{]*\{[^}]*\}", "", text, flags=re.MULTILINE)


def _end(text: str, start: int) -> int:
    """Where the body that opens after a place ends."""
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.end()
    return len(text)


# Operands


def split(text: str) -> list[str]:
    """Operands, split at the commas outside of brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "{[(") - (c in "}])")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts] if text.strip() else []


IMMEDIATES = (
    *("0", "1", "-1", "3", "7", "16", "33", "128", "65536", "0xEEEEEEEE", "-2147483649", "4294967296", "1.5"),
    *("0f3F800000", "0d3FF0000000000000", "0x1p3", "08", "WARP_SZ", "1U"),
)
OFFSETS = ("1", "-4", "4096", "2147483647", "4294967296", "%r1", "1.5", "-", "")
NAMED = ("%tid.x", "%clock64", "%laneid", "%ctaid", "%smid.x", "%nothing", "nothing", "_", "%envreg3", "%tid")


def registers(text: str) -> dict[str, str]:
    """One declared register of each type that a text declares, and one of each that it does not: names by type."""
    types: dict[str, str] = {}
    for match in re.finditer(r"\.reg\s+\.(\w+)\s+([%\w$]+?)(?:<(\d+)>)?;", text):
        number = max(int(match[3] or 1) - 1, 0)
        types.setdefault(match[1], f"{match[2]}{number}" if match[3] else match[2])
    return types


def symbols(text: str) -> list[str]:
    """Variables, parameters and functions that a text names."""
    return re.findall(r"\.(?:b|u|s|f)\d+\s+([A-Za-z_$][\w$]*)", text) or ["nothing"]


def another(text: str, pick: Pick) -> tuple[str, str]:
    """A register of some type, and the declaration that the text lacks for it."""
    type = pick.choice(list(REGISTER_BITS))
    types = registers(text)
    if type in types and pick.random() < 0.5:
        return types[type], ""
    return f"%mutant_{type}", f".reg .{type} %mutant_{type};"


def operand(old: str, text: str, pick: Pick) -> tuple[str, str, str]:
    """Something else where an operand stood: what kind of change, the new operand, a declaration for it."""
    register, declared = another(text, pick)
    inner = old.strip("{}[]")
    address = old.startswith("[")
    choices: list[tuple[str, str, str]] = [
        ("register of another type", register, declared),
        ("literal", pick.choice(IMMEDIATES), ""),
        ("name", pick.choice((*NAMED, *symbols(text))), ""),
        ("brackets", inner if address else f"[{inner}]", ""),
        ("braces", inner if old.startswith("{") else "{" + inner + "}", ""),
        ("sign", f"-{old}" if pick.random() < 0.5 else f"!{old}", ""),
        ("pair", f"{old}|{register}" if "|" not in old else old.partition("|")[0], declared),
        ("part", f"{old}.{pick.choice('xyzwabh')}", ""),
    ]
    if address:
        base, _, offset = inner.partition("+")
        space = pick.choice(symbols(text))
        moved = f"[{register}{'+' + offset if offset else ''}]"
        choices = [
            *choices[:5],
            *[("base", moved, declared)] * 2,
            ("base symbol", f"[{space}]", ""),
            ("base symbol", f"[{space}+{pick.choice(('4', '16', '-4'))}]", ""),
            ("base literal", f"[{pick.choice(IMMEDIATES)}]", ""),
            ("offset", f"[{base}+{pick.choice(OFFSETS)}]", ""),
        ]
    if old.startswith("{"):
        items = split(inner)
        at = pick.randrange(max(1, len(items)))
        before, behind = items[:at], items[at + 1 :]
        choices += [
            (kind, "{" + ", ".join(new) + "}", more)
            for kind, new, more in (
                ("element dropped", [*before, *behind], ""),
                ("element doubled", [*before, *items[at : at + 1], *items[at:]], ""),
                ("element of another type", [*before, register, *behind], declared),
                ("element literal", [*before, pick.choice(IMMEDIATES), *behind], ""),
                ("element discarded", [*before, "_", *behind], ""),
                ("elements repeated", [items[0]] * len(items), ""),
            )
        ]
    return pick.choice(choices)


# Opcodes


_MATRIX_WORDS = (
    "sync aligned row col m16n8k16 m16n8k8 m8n8k4 m64n16k16 m64n8k8 m16n16k16 f16 bf16 tf32 s8 u8 s4 f32 f64 s32 "
    "satfinite sp xor popc trans x1 x2 x4 m8n8 shared global shared::cta load mma a b c"
)


@cache
def vocabulary() -> dict[str, tuple[str, ...]]:
    """Qualifiers of the rows by the first word of the opcode."""
    words: defaultdict[str, set[str]] = defaultdict(set)
    for row in every_row():
        for sample in row.samples():
            root, *rest = sample.split(".")
            words[root].update(rest)
    for root in ("mma", "wgmma", "wmma", "ldmatrix", "stmatrix"):
        words[root].update(_MATRIX_WORDS.split())
    return {root: tuple(sorted(each)) for root, each in words.items()}


def opcode(old: str, pick: Pick) -> tuple[str, str]:
    """An opcode changed in one word: what kind of change, and the new opcode."""
    root, *words = old.split(".")
    near = vocabulary().get(root) or vocabulary()["ld"]
    types = [i for i, word in enumerate(words) if _TYPE.fullmatch(word)]
    kinds = ["qualifier added", "root"]
    kinds += ["type", "type", "type", "type"] if types else []
    kinds += ["qualifier dropped", "qualifier doubled", "qualifier replaced", "qualifier misspelt"] if words else []
    kinds += ["qualifiers exchanged"] if len(words) > 1 else []
    kind = pick.choice(kinds)
    at = pick.randrange(len(words)) if words else 0
    if kind == "type":
        at = pick.choice(types)
        words[at] = pick.choice([type for type in TYPES if type != words[at]])
    elif kind == "qualifier added":
        words.insert(pick.randrange(len(words) + 1), pick.choice(near))
    elif kind == "qualifier dropped":
        del words[at]
    elif kind == "qualifier doubled":
        words.insert(at, words[at])
    elif kind == "qualifier replaced":
        words[at] = pick.choice(near)
    elif kind == "qualifier misspelt":
        words[at] = pick.choice((words[at] + "x", words[at][:-1] or "q", "bogus", words[at].upper(), "v3", "v8"))
    elif kind == "qualifiers exchanged":
        other = pick.randrange(len(words))
        words[at], words[other] = words[other], words[at]
    else:
        root = pick.choice((root[:-1] or "q", root + "s", *pick.sample(list(vocabulary()), 2)))
    return kind, ".".join((root, *words))


# Changes of a text


def statements(text: str) -> list[re.Match[str]]:
    """The instructions of a text that stand in one line."""
    return [m for m in _STATEMENT.finditer(text) if ".callprototype" not in m[0] and ".branchtargets" not in m[0]]


def instruction(text: str, pick: Pick) -> tuple[str, str, str, str]:
    """A change of one instruction: its kind, the instruction before and after, the text after."""
    by_root: defaultdict[str, list[re.Match[str]]] = defaultdict(list)
    for match in statements(text):
        by_root[match["opcode"].partition(".")[0]].append(match)
    match = pick.choice(by_root[pick.choice(sorted(by_root))])  # else mov and add are most of what is tried
    guard, name, rest = match["guard"] or "", match["opcode"], (match["operands"] or "").strip()
    operands, declared = split(rest), ""
    draw = pick.random()
    if draw < 0.40 or (not operands and draw < 0.92):
        kind, name = opcode(name, pick)
    elif draw < 0.72:
        at = pick.randrange(len(operands))
        kind, operands[at], declared = operand(operands[at], text, pick)
    elif draw < 0.92:
        at, other = pick.randrange(len(operands)), pick.randrange(len(operands))
        kind = pick.choice(("operand dropped", "operand doubled", "operands exchanged", "operand added"))
        if kind == "operand dropped":
            del operands[at]
        elif kind == "operand doubled":
            operands.insert(at, operands[at])
        elif kind == "operand added":
            new, declared = another(text, pick)
            operands.insert(at, pick.choice((new, pick.choice(IMMEDIATES))))
        else:
            operands[at], operands[other] = operands[other], operands[at]
    else:
        kind = "guard"
        new, declared = another(text, pick)
        guard = "" if guard and pick.random() < 0.3 else f"@{pick.choice(('', '!'))}{new} "
    after = f"{guard}{name} {', '.join(operands)}".rstrip() + ";"
    if declared:
        after = f"{declared} {after}"
    return kind, match[0].strip(), after, text[: match.start()] + match["indent"] + after + text[match.end() :]


def declaration(text: str, pick: Pick) -> tuple[str, str, str, str]:
    """A change of a declaration of registers, variables or parameters."""
    match = pick.choice([*_DECLARATION.finditer(text), *_PARAMETER.finditer(text)])
    old = match[0]
    statement = old.rstrip().endswith(";")
    type = pick.choice((*REGISTER_BITS, "bf16", "texref", "samplerref", "q32"))
    count = pick.choice(("0", "1", "3", "-1", "64", "1000000000000"))
    alignment = pick.choice(("0", "1", "3", "8", "256", "-4"))
    changes = {
        "declared type": re.sub(_DECLARED, f".{type}", old),
        "declared count": re.sub(r"<\d+>", f"<{count}>", re.sub(r"\[\d*\]", f"[{count}]", old)),
        "declared vector": re.sub(f"({_DECLARED})", r".v" + pick.choice("234") + r" \1", old),
        "alignment": re.sub(r"\.align\s+\d+", f".align {alignment}", old)
        if ".align" in old
        else re.sub(rf"({_SPACE})", rf"\1 .align {alignment}", old),
        "space": re.sub(_SPACE, f".{pick.choice(SPACES)}", old, count=1),
        "declaration dropped": "" if statement else ".param .u64 dropped",
        "declaration doubled": f"{old}{' ' if statement else ', '}{old}",
        "name": re.sub(r"([%$\w]+)((?:<\d+>)?(?:\[\d*\])?;?)$", r"\1z\2", old),
        "initialiser": old.rstrip(";") + f" = {pick.choice(IMMEDIATES)}" + (";" if statement else ""),
    }
    kind = pick.choice(["declared type", *changes])
    after = changes[kind]
    return kind, old.strip(), after.strip(), text[: match.start()] + after + text[match.end() :]


SPACES = ("shared", "global", "const", "local", "reg", "param")
_DECLARED = r"\.(?:pred|[busf]\d+(?:x2)?)\b"
_SPACE = r"\.(?:param|shared|global|const|local|reg)\b"
DIRECTIVES = (
    *(".maxntid 128", ".maxntid 32, 4, 1", ".maxntid 0", ".reqntid 128", ".reqntid 64, 2", ".reqntid 1, 2, 3, 4"),
    *(".reqntid", ".minnctapersm 2", ".maxnctapersm 2", ".maxnreg 64", ".maxnreg 0", ".maxclusterrank 8"),
    *(".reqnctapercluster 2", ".reqnctapercluster 2, 1, 1", ".reqnctapercluster 0", ".explicitcluster"),
    *(".blocksareclusters", ".noreturn", ".bogus 3", '.pragma "nounroll";'),
)


def directive(text: str, pick: Pick) -> tuple[str, str, str, str]:
    """A directive changed, dropped, doubled or added."""
    matches = list(_DIRECTIVE.finditer(text))
    draw = pick.random()
    if draw < 0.5:
        body = re.compile(r"\{").search(text, next(_ENTRY.finditer(text)).end())
        at = body.start() if body else len(text)
        new = pick.choice(DIRECTIVES)
        more = f" {pick.choice(DIRECTIVES)}" if pick.random() < 0.4 else ""
        return "directive added", "", new + more, f"{text[:at]}{new}{more}\n{text[at:]}"
    match = pick.choice(matches)
    old = match[0]
    numbers = re.findall(r"\d+", old)
    if draw < 0.65:
        kind, after = "directive dropped", ""
    elif draw < 0.75:
        kind, after = "directive doubled", f"{old}\n{old}"
    else:
        number = pick.choice(numbers or ["x"])
        kind, after = "directive changed", old.replace(number, pick.choice(("0", "1", "2", "7", "80", "999", "-1")), 1)
    return kind, old.strip(), after.strip(), text[: match.start()] + after + text[match.end() :]


def label(text: str, pick: Pick) -> tuple[str, str, str, str]:
    """A label dropped, doubled or renamed; a statement dropped or doubled."""
    lines = [*_LABEL.finditer(text), *pick.sample(statements(text), 1)]
    match = pick.choice(lines)
    old = match[0]
    kind, after = pick.choice((("dropped", ""), ("doubled", f"{old}\n{old}"), ("unfinished", old[:-1])))
    return f"line {kind}", old.strip(), after.strip(), text[: match.start()] + after + text[match.end() :]


CHANGES = ((instruction, 0.80), (declaration, 0.10), (directive, 0.07), (label, 0.03))


def mutants(count: int, seed: int) -> list[Mutant]:
    """So many mutants, each different from its text."""
    pick = Pick(seed)
    changes, weights = [change for change, _ in CHANGES], [weight for _, weight in CHANGES]
    made: list[Mutant] = []
    while len(made) < count:
        name, text = pick.choice(texts())
        (change,) = pick.choices(changes, weights)
        kind, before, after, mutated = change(text, pick)
        if mutated != text:
            made.append(Mutant(name, kind, before, after, mutated))
    return made


# Verdicts


@dataclass(frozen=True)
class Verdict:
    """What the two say of a mutant: their messages, "" where they take it. `listed` is why we refuse on purpose."""

    mutant: Mutant
    theirs: str
    ours: str
    listed: str = ""
    failed: bool = False
    """Whether ptxas ended without a verdict, or does not know the PTX version."""

    @property
    def taken(self) -> bool:
        """We take what ptxas refuses."""
        return not self.failed and bool(self.theirs) and not self.ours

    @property
    def refused(self) -> bool:
        """We refuse what ptxas takes, and nothing says why."""
        return not self.failed and not self.theirs and bool(self.ours) and not self.listed


_MESSAGE = re.compile(r"(?:error|fatal)\s*: (.*)")
_CRASHED = re.compile(r"Internal|longer than|Unsupported \.version|no error, but a crash")


def judge(mutant: Mutant) -> Verdict:
    """What ptxas and we say."""
    arch = arch_for(mutant.text) or "sm_90a"
    output, failed = ptxas(mutant.text, arch)
    theirs = next(iter(_MESSAGE.findall(output)), f"no error, but a crash: {output.strip()}") if failed else ""
    diagnostics = check_text(mutant.text).diagnostics
    ours = diagnostics[0].message if diagnostics else ""
    opcode = re.match(r"'?([a-z][\w.:]*?)(?:'|: )", ours)
    listed = (reason(opcode[1] if opcode else "", ours, arch) or "") if ours and not failed else ""
    return Verdict(mutant, theirs, ours, listed, failed and bool(_CRASHED.match(theirs)))


def verdicts(made: Sequence[Mutant], jobs: int) -> list[Verdict]:
    """All of them, in so many processes."""
    if jobs == 1:
        return [judge(mutant) for mutant in made]
    with Pool(jobs) as pool:
        return pool.map(judge, made, chunksize=8)


def report(outcomes: Sequence[Verdict], seed: int) -> Iterator[str]:
    """The counts, and every difference by class."""
    taken, refused = [v for v in outcomes if v.taken], [v for v in outcomes if v.refused]
    both = sum(bool(v.theirs) and bool(v.ours) for v in outcomes)
    yield (
        f"seed {seed}: {len(outcomes)} mutants, {both} refused by both, {len(taken)} taken that ptxas refuses "
        f"({len(taken) / len(outcomes):.2%}), {len(refused)} refused that ptxas takes, "
        f"{sum(bool(v.listed) for v in outcomes)} refused with a reason, "
        f"{sum(v.failed for v in outcomes)} without a verdict"
    )
    for title, some in (
        ("taken that ptxas refuses", taken),
        ("refused that ptxas takes", refused),
        ("refused with a reason", [v for v in outcomes if v.listed]),
        ("without a verdict of ptxas", [v for v in outcomes if v.failed]),
    ):
        classes: defaultdict[str, list[Verdict]] = defaultdict(list)
        for v in some:
            message = v.listed or (v.theirs if v.taken or v.failed else v.ours)
            classes[re.sub(r"'[^']*'|%[\w.]+|\b\d+\b", "#", message)[:160]].append(v)
        yield f"\n== {title}: {len(some)} in {len(classes)} classes"
        for message, each in sorted(classes.items(), key=lambda item: -len(item[1])):
            yield f"{len(each):4} {message}"
            for v in each[:6]:
                yield f"       {v.mutant.name} [{v.mutant.kind}] {v.mutant.before[:150]}  ->  {v.mutant.after[:200]}"
                if v.refused:
                    yield f"           {v.ours[:200]}"
    kinds = Counter(v.mutant.kind for v in outcomes)
    yield "\n== kinds of change: " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())


def passed(outcomes: Sequence[Verdict]) -> bool:
    """Whether next to nothing is taken that ptxas refuses, and nothing refused that it takes, without a reason."""
    judged = [v for v in outcomes if not v.failed]
    taken = sum(v.taken for v in judged)
    return bool(judged) and taken <= MAX_TAKEN * len(judged) and not any(v.refused for v in judged)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "mutations.txt")
    args = parser.parse_args()
    try:
        require_ptxas()
    except UnavailableError as error:
        print(error)
        return 1
    seed = random.SystemRandom().randrange(1 << 30) if args.seed is None else args.seed
    outcomes = verdicts(mutants(args.count, seed), args.jobs)
    publish(list(report(outcomes, seed)), args.out, everything=False)
    return 0 if passed(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
