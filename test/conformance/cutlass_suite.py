"""Inline assembly of CUTLASS, or of cccl: each `asm` statement in a kernel of its own, judged by ptxas and by us.

    python test/conformance/cutlass_suite.py [--source CUTLASS] [--jobs 2] [--out report.txt]

`--source` is a checkout of CUTLASS or cccl or a git directory of one; without it CUTLASS is cloned from GitHub.
Operands become registers of what their constraint says; each constant that the C++ code computes becomes one of some
numbers, so that ptxas takes the statement.

The exit status is 0 if the suite passes, and 1 if it does not, or cannot be run.
"""

from __future__ import annotations

import argparse
import itertools
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import verdicts
from assembler import CURRENT
from llvm_suite import BUILD, clone, extract
from verdicts import Case, Report, UnavailableError

REPOSITORY = "https://github.com/NVIDIA/cutlass"
FOLDER = "include"
CCCL = "libcudacxx/include/cuda/__ptx"
TARGETS = ("sm_75", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_107a", "sm_110f", "sm_120a")
VERSION = f"{CURRENT[0]}.{CURRENT[1]}"
TYPES = {"r": "b32", "f": "f32", "d": "f64", "l": "b64", "h": "b16", "q": "b128"}
"""The register of each constraint of CUDA's inline assembly."""
CONSTANTS = ("0", "1", "2", "4", "8", "16", "32", "64", "128")
KERNELS = 100
"""Kernels in one file."""


@dataclass(frozen=True)
class Snippet:
    """An `asm` statement: its text with `%0`, `%1`, ... and the constraint of each operand."""

    where: str
    text: str
    constraints: tuple[str, ...]


def headers(source: Path | None) -> Path:
    """The folder of the headers.

    Raises:
        UnavailableError: if it is not at `source`, or cannot be cloned.
    """
    if source is None:
        return clone(REPOSITORY, FOLDER, BUILD / "cutlass-clone")
    if (source / FOLDER / "cute").exists():
        return source / FOLDER
    if (source / CCCL).exists():
        return source / CCCL
    if (source / "HEAD").exists() or (source / ".git").exists():
        cute = ["git", "-C", str(source), "cat-file", "-e", f"HEAD:{FOLDER}/cute"]
        there = not subprocess.run(cute, capture_output=True, check=False).returncode
        return extract(source, FOLDER, BUILD / "cutlass") if there else extract(source, CCCL, BUILD / "cccl")
    raise UnavailableError(f"{source} is neither a checkout of CUTLASS or cccl nor a git directory of one")


_ASM = re.compile(r"\basm\b\s*(?:volatile|__volatile__)?\s*\(")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


def snippets(folder: Path) -> Iterator[Snippet | str]:
    """The `asm` statements of all headers; for one that cannot be read as text, why."""
    for path in sorted(p for p in folder.rglob("*") if p.suffix in (".h", ".hpp", ".cuh", ".inl")):
        text = _COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else "\n" * m[0].count("\n"), path.read_text())
        for match in _ASM.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield _snippet(f"{path.relative_to(folder)}:{line}", _arguments(text, match.end()))


def _arguments(text: str, start: int) -> list[str]:
    """What stands between the parentheses, split at the colons outside of strings and parentheses."""
    parts, depth, at, position = list[str](), 1, start, start
    while depth and position < len(text):
        if text[position] == '"' and (string := _STRING.match(text, position)):
            position = string.end()
            continue
        if text.startswith("::", position) and depth == 1 and not text[position - 1].isalnum():
            parts += [text[at:position], ""]
            at = position = position + 2
            continue
        if text[position] == ":" and depth == 1 and text[position + 1] != ":" and text[position - 1] != ":":
            parts.append(text[at:position])
            at = position + 1
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        position += 1
    return [*parts, text[at : position - 1]]


def _snippet(where: str, parts: list[str]) -> Snippet | str:
    code = "".join(_STRING.findall(parts[0]))
    if _STRING.sub("", parts[0]).strip():
        return "the text is made by macros"
    constraints = [c for part in parts[1:3] for c in re.findall(r'"([=+]?\w)"\s*\(', part)]
    text = code.replace("\\n", "\n").replace("\\t", "\t").replace("\\r", "").replace('\\"', '"')
    if not text.strip():
        return "the text is empty"
    letters = tuple(c.lstrip("=+") for c in constraints)
    if not set(letters) <= TYPES.keys() | {"n"}:
        return f"a constraint of {', '.join(sorted(set(letters) - TYPES.keys()))}"
    return Snippet(where, text, letters)


def kernel(snippet: Snippet, number: int, constants: Sequence[str]) -> str:
    """The statement as a kernel, on one line for each of its own; `constants` are those of its `"n"` operands."""
    values = iter(constants)
    operands = [next(values) if c == "n" else f"%{c}z{n}" for n, c in enumerate(snippet.constraints)]

    def operand(match: re.Match[str]) -> str:
        if match[1] == "%":
            return "%"
        return operands[int(match[1])] if int(match[1]) < len(operands) else match[0]

    declared = "".join(
        f".reg .{TYPES[letter]} %{letter}z{place}; "
        for place, letter in enumerate(snippet.constraints)
        if letter != "n"
    )
    body = re.sub(r"%(%|\d+)", operand, snippet.text).strip()
    body = "\n".join(line.strip() for line in body.split("\n") if line.strip())
    if body[-1] not in ";}":
        body += ";"
    return f".visible .entry k{number}()\n{{\n{declared}\n{{\n{body}\n}}\nret;\n}}\n"


def head(target: str) -> str:
    return f".version {VERSION}\n.target {target}\n.address_size 64\n"


def assignments(count: int) -> list[tuple[str, ...]]:
    """The constants that are tried for `count` operands: the same for all, then every mixture of 0 and 1."""
    same = [(constant,) * count for constant in CONSTANTS]
    return list(dict.fromkeys([*same, *itertools.product("01", repeat=count)]))


def chosen(snippets: Sequence[Snippet]) -> list[tuple[str, ...] | None]:
    """For each snippet the first constants with which ptxas takes it on some GPU; None where it never does.

    One call of ptxas tries all snippets that are left, each with its next constants.
    """
    tried = [assignments(snippet.constraints.count("n")) for snippet in snippets]
    constants: list[tuple[str, ...] | None] = [None] * len(snippets)
    for turn in range(max(map(len, tried), default=0)):
        for target in reversed(TARGETS):
            left = [n for n, kept in enumerate(constants) if kept is None and turn < len(tried[n])]
            kernels = [kernel(snippets[n], n, tried[n][turn]) for n in left]
            for place in verdicts.accepted(head(target), kernels, target):
                constants[left[place]] = tried[left[place]][turn]
    return constants


def cases(snippets: Sequence[Snippet], constants: Sequence[tuple[str, ...]]) -> Iterator[Case]:
    """The snippets on each target, `KERNELS` in a file."""
    for target in TARGETS:
        for start in range(0, len(snippets), KERNELS):
            part = range(start, min(start + KERNELS, len(snippets)))
            kernels = [kernel(snippets[n], n - start, constants[n]) for n in part]
            yield Case(f"{target} {snippets[start].where}", head(target) + "".join(kernels), target)


def judged(folder: Path, jobs: int) -> tuple[Report, list[str]]:
    """The verdicts on the statements of a folder of headers; and the report's text.

    A statement that ptxas takes on no GPU, whatever its constants, is left out: it is not one of PTX that ptxas knows.
    """
    distinct: dict[tuple[str, tuple[str, ...]], Snippet] = {}
    failed: Counter[str] = Counter()
    for snippet in snippets(folder):
        if isinstance(snippet, str):
            failed[snippet] += 1
        else:
            distinct.setdefault((snippet.text, snippet.constraints), snippet)
    constants = chosen(list(distinct.values()))
    taken = [(snippet, of) for snippet, of in zip(distinct.values(), constants, strict=True) if of is not None]
    refused = [snippet for snippet, of in zip(distinct.values(), constants, strict=True) if of is None]
    report = verdicts.run(list(cases([s for s, _ in taken], [of for _, of in taken])), jobs)
    lines = [f"{len(taken)} of {len(distinct)} snippets on {len(TARGETS)} GPUs", *report.text()]
    lines += [f"\n== ptxas takes them on no GPU: {len(refused)}"]
    lines += [f"      {s.where}: {' '.join(s.text.split())[:150]}" for s in refused]
    lines += [f"\n== not read: {sum(failed.values())}"] + [f"{n:5} {why}" for why, n in failed.most_common()]
    return report, lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=BUILD / "cutlass.txt")
    parser.add_argument("--all", action="store_true", help="print the whole report")
    options = parser.parse_args()
    try:
        verdicts.require_ptxas()
        folder = headers(options.source)
    except UnavailableError as error:
        raise SystemExit(f"not judged: {error}") from error
    report, lines = judged(folder, options.jobs)
    verdicts.publish(lines, options.out, everything=options.all)
    verdicts.conclude(report)


if __name__ == "__main__":
    main()
