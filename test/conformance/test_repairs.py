"""What `warploom check` says ptxas repairs, ptxas says too."""

from __future__ import annotations

import re
import subprocess

import pytest
from assembler import PTXAS
from repaired import KERNEL, REPAIRED
from seeded_bugs import edited

pytestmark = pytest.mark.skipif(PTXAS is None, reason="needs ptxas")


SILENT = ("C7519",)
"""What ptxas 13.0 repaired with a warning, and 13.5 repairs, or leaves, without one."""


def said(text: str) -> str:
    """What ptxas tells of a text that it takes."""
    command = [str(PTXAS), "-arch", "sm_90a", "/dev/stdin", "-o", "/dev/null"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def test_nothing_is_repaired_in_the_right_kernel() -> None:
    assert said(KERNEL) == ""


@pytest.mark.parametrize("name", REPAIRED)
def test_ptxas_repairs_it(name: str) -> None:
    change = REPAIRED[name]
    told = said(edited(KERNEL, change.old, change.new))
    repaired = set(re.findall(r"\((C75\d\d)\)", told))
    if change.code in SILENT:
        assert repaired == set()
        return
    assert repaired == ({change.code} if change.code else set())
    if change.code == "C7517":
        assert f"in around line {change.line} " in told
