"""`warploom check --runnable`: what the interpreter would refuse, before anything is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from warploom.runtime.cli.command import main

UNRUNNABLE = """.version 8.6
.target sm_90a
.address_size 64
.func helper() { .reg .b32 %r;
  mov.u32 %r, %envreg3;
  ret; }
.visible .entry fine() { ret; }
.visible .entry first() { .reg .b32 %r<3>; .reg .b64 %rd<3>;
  call helper;
  mov.u32 %r1, %pm0;
  mov.u32 %r2, %nosuch;
  ret; }
.visible .entry second() {
  call helper;
  call outside;
  ret; }
.extern .func outside();
"""


def test_check_says_what_the_interpreter_would_refuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In all kernels and what they call, each statement once; what is no PTX is not said twice."""
    path = tmp_path / "k.ptx"
    path.write_text(UNRUNNABLE)
    assert main(["check", str(path)]) == 1
    plain = capsys.readouterr().out
    assert main(["check", str(path), "--runnable"]) == 1
    full = capsys.readouterr().out
    assert [line.removeprefix(f"{path}:").split(" error: ")[0] for line in full.splitlines()] == [
        "5:3:", "10:3:", "11:3:", "15:3:",
    ]  # fmt: skip
    assert plain.splitlines() == [line for line in full.splitlines() if "nosuch" in line or "outside" in line]
    assert "cannot be interpreted: mov.u32: register %envreg3 is not declared (kernel first)" in full
    assert "call: 'outside' is not declared" in full


@pytest.mark.parametrize("file", ["structs", "printing", "recursion", "softmax"])
def test_kernels_that_run_are_runnable(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[1] / f"data/kernels/{file}.ptx"
    assert main(["check", str(path), "--runnable"]) == 0
    assert capsys.readouterr().out == ""
