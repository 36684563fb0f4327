"""Pages whose commands are run as they are printed: what is in their blocks, and what running them prints."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

from warploom.passes import opt
from warploom.runtime.cli import command

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Block:
    """A code block: its language, the rest of the line, the text."""

    language: str
    name: str
    text: str


def blocks(page: str) -> Iterator[Block]:
    """The code blocks of a page, in order."""
    for indent, language, name, text in re.findall(
        r"^( *)```(\w+) *(.*?)\n(.*?)^ *```$", page, re.DOTALL | re.MULTILINE
    ):
        yield Block(language, name, re.sub(rf"^{indent}", "", text, flags=re.MULTILINE))


def walk(page: str, replaced: dict[str, str]) -> int:
    """Runs the blocks of a page in the current folder, and holds what they print to the blocks of text behind them.

    A block with a name is a file. What the commands in `replaced` print is given. Returns how many commands there are.
    """
    printed, ran = "", 0
    for block in blocks(page):
        if block.language != "text":
            assert "error:" not in printed, f"no block shows this error:\n{printed}"
        if block.name:
            Path(block.name).write_text(block.text)
        elif block.language == "sh":
            commands = block.text.replace("\\\n", " ").splitlines()
            printed = "".join(run(line, replaced) for line in commands)
            ran += len(commands)
        elif block.language == "python":
            printed = execute(block.text)
            ran += 1
        elif block.language == "text" and printed:
            missing_blocks = missing(block.text, printed)
            assert missing_blocks is None, f"expected a line such as\n{missing_blocks}\nin\n{printed}"
            printed = ""
    assert "error:" not in printed, f"no block shows this error:\n{printed}"
    return ran


def run(line: str, replaced: dict[str, str]) -> str:
    """What a command prints, on both outputs; those of this package run within this process."""
    program, _, file = line.partition(" > ")
    if program in replaced:
        if file:
            Path(file).write_text(replaced[program])
        return "" if file else replaced[program]
    name, *words = shlex.split(line, comments=True)
    if name not in ("warploom", "warploom-opt"):
        done = subprocess.run(line, shell=True, capture_output=True, text=True, check=True)
        return done.stdout + done.stderr
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out), suppress(SystemExit):
        (command.main if name == "warploom" else opt.main)(words)
    return out.getvalue()


def execute(text: str) -> str:
    """What Python prints."""
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile(text, "<page>", "exec"), {})
    return out.getvalue()


def missing(expected: str, printed: str) -> str | None:
    """The first line expected that is not printed behind those before it; `...` stands for anything."""
    lines = iter(printed.splitlines())
    for line in expected.splitlines():
        pattern = ".*".join(map(re.escape, line.split("...")))
        if not any(re.fullmatch(pattern, one) for one in lines):
            return line
    return None


def folder() -> Path:
    """The current folder, with what pages name by the path in the repository."""
    here = Path.cwd()
    os.symlink(ROOT / "examples", here / "examples")
    return here
