"""ptxas as a judge: which statements of a list it takes, for a target and a PTX version."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from warploom.dialect.isa.row import NEWEST, Target, Version

_WHEEL = Path(sysconfig.get_path("purelib")) / "nvidia/cu13/bin/ptxas"
PTXAS = str(_WHEEL) if _WHEEL.exists() else shutil.which("ptxas")

CURRENT: Version = NEWEST
"""The PTX version of the pinned assembler."""

_REGISTERS = """
.reg .b32 %r<40>; .reg .f32 %f<40>; .reg .f64 %d<40>; .reg .s32 %s<40>; .reg .u16 %h<8>; .reg .b64 %p;
"""

_CHUNK = 2000
"""Statements in one file: enough that starting ptxas costs little."""


class UnblamedError(Exception):
    """ptxas failed without naming a line: some instructions are expanded to PTX of its own, and that did not parse."""


def errors(statements: Sequence[str], target: Target, version: Version, registers: str = _REGISTERS) -> dict[int, str]:
    """What ptxas finds wrong with statements that stand in one kernel: its message, by their number.

    Statements that stand after a rejected one can be missing, or blamed for what is not their fault.

    Raises:
        UnblamedError: if it fails without saying which statement is at fault.
    """
    head = (
        f".version {version[0]}.{version[1]}\n.target {target}\n.address_size 64\n.visible .entry k() {{{registers}\n"
    )
    text = head + "\n".join(statements) + "\nret;\n}\n"
    command = [str(PTXAS), "-arch", target.name, "/dev/stdin", "-o", "/dev/null"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    output = done.stderr + done.stdout
    first = head.count("\n") + 1
    messages: dict[int, str] = {}
    for line, message in re.findall(r"/dev/stdin, line (\d+); (?:error|fatal)\s*: (.*)", output):
        messages.setdefault(int(line) - first, message)
    if done.returncode and not messages:
        raise UnblamedError(f"ptxas for {target}, PTX {version}: {output[:2000]}")
    return messages


def _taken(
    numbers: Sequence[int], statements: Sequence[str], target: Target, version: Version, registers: str
) -> set[int]:
    """The statements left when all that were blamed have been put aside, and ptxas takes the rest as a whole."""
    left = list(numbers)
    while left:
        try:
            messages = errors([statements[n] for n in left], target, version, registers)
        except UnblamedError:
            half = len(left) // 2
            parts = (left[:half], left[half:]) if half else ()
            return {n for part in parts for n in _taken(part, statements, target, version, registers)}
        if not messages:
            break
        left = [n for i, n in enumerate(left) if i not in messages]
    return set(left)


def accepted(
    statements: Sequence[str], target: Target, version: Version = CURRENT, rounds: int = 1, registers: str = _REGISTERS
) -> set[int]:
    """The numbers of the statements that ptxas takes.

    A rejected statement can take its neighbour down, so what was put aside is tried again in another order, until
    `rounds` tries in a row save none.
    """
    shuffle = random.Random(len(statements))
    taken: set[int] = set()
    idle = 0
    while idle < rounds:
        rest = [n for n in range(len(statements)) if n not in taken]
        shuffle.shuffle(rest)
        saved: set[int] = set()
        for start in range(0, len(rest), _CHUNK):
            saved |= _taken(rest[start : start + _CHUNK], statements, target, version, registers)
        taken |= saved
        idle = 0 if saved else idle + 1
    return taken
