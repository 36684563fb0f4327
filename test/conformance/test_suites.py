"""The scripts that judge foreign PTX: what they read of the sources, and that both kinds of disagreement are found."""

from __future__ import annotations

from pathlib import Path

import cutlass_suite
import llvm_suite
import pytest
import verdicts

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"


def test_run_lines_are_read(tmp_path: Path) -> None:
    test = tmp_path / "a.ll"
    test.write_text(
        "; RUN: llc < %s -mtriple=nvptx64 -mcpu=sm_80 \\\n; RUN:   -mattr=+ptx70 | FileCheck %s\n"
        "; RUN: %if ptxas %{ llc < %s -mcpu=sm_80 -mattr=+ptx70 -mtriple=nvptx64 | %ptxas-verify %}\n"
        "; RUN: not llc < %s -mcpu=sm_20\n; RUN: llc %s -filetype=null\n; RUN: opt %s -S\n"
    )
    (command,) = set(llvm_suite.commands(test))
    assert command.arguments == ("-mattr=+ptx70", "-mcpu=sm_80", "-mtriple=nvptx64")
    script = tmp_path / "b.py"
    script.write_text("# RUN: %python %s --ptx=60 > %t.ll\n# RUN: llc < %t.ll -mcpu=sm_70 | FileCheck %t.ll\n")
    (made,) = set(llvm_suite.commands(script))
    assert (made.script, made.arguments) == (("--ptx=60",), ("-mcpu=sm_70",))


def test_inline_assembly_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.hpp").write_text(
        '// asm("no");\nvoid f() { asm volatile("{\\n.reg .pred p;\\n" /* here */ "setp.ne.b32 p, %1, 0;\\n}"\n'
        ': "=r"(a[i ? 1 : 2]) : "r"(std::min(b, c)), "n"(int(N)) : "memory"); asm(NAME "x"); }\n'
    )
    snippet, why = cutlass_suite.snippets(tmp_path)
    assert isinstance(snippet, cutlass_suite.Snippet)
    assert (snippet.where, snippet.constraints) == ("a.hpp:2", ("r", "r", "n"))
    assert why == "the text is made by macros"
    text = cutlass_suite.kernel(snippet, 3, "1")
    assert "setp.ne.b32 p, %rz1, 0;" in text
    assert ".reg .b32 %rz0; .reg .b32 %rz1; \n" in text


@pytest.mark.skipif(verdicts.PTXAS is None, reason="needs ptxas")
def test_both_kinds_of_disagreement_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    body = ".visible .entry k() {\n.reg .b32 %r<4>;\nadd.u32 %r1, %r2, %r3;\nadd.u31 %r1,\n  %r2, %r3;\nret;\n}\n"
    case = verdicts.Case("a", HEAD + body, "sm_90")
    both = verdicts.compare(case)
    assert (both.instructions, both.taken, both.refused, both.skipped) == (3, [], [], "")

    class Silent:
        diagnostics: tuple[()] = ()
        unmodelled: dict[str, int] = {}  # noqa: RUF012

    monkeypatch.setattr(verdicts, "check_text", lambda text: Silent)
    (taken,) = verdicts.compare(case).taken
    assert taken[:2] == (7, "add.u31 %r1, %r2, %r3;")
    from warploom.runtime import Diagnostic

    monkeypatch.setattr(Silent, "diagnostics", (Diagnostic(6, 1, "no"), Diagnostic(8, 3, "no")))
    (refused,) = verdicts.compare(case).refused
    assert refused == (6, "add.u32 %r1, %r2, %r3;", "no")


def test_what_is_not_judged() -> None:
    assert verdicts.unjudged(HEAD.replace("9.0", "9.9")) == "PTX 9.9 is newer than ptxas"
    assert verdicts.unjudged(HEAD.replace("64", "32")) == "32-bit addresses, which ptxas no longer takes"
    assert verdicts.unjudged("") == "no .version or .target"
    assert verdicts.unjudged(HEAD) == ""
    assert [verdicts.arch_for(HEAD.replace("sm_90", t)) for t in ("sm_20", "sm_101a", "sm_90")] == [
        "sm_75", "sm_110a", "sm_90",
    ]  # fmt: skip


def test_a_suite_without_its_source_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(verdicts.UnavailableError, match="is neither a checkout of LLVM"):
        llvm_suite.tests(tmp_path)
    with pytest.raises(verdicts.UnavailableError, match="is neither a checkout of CUTLASS"):
        cutlass_suite.headers(tmp_path)
    with pytest.raises(verdicts.UnavailableError, match="git clone of file"):
        llvm_suite.clone(f"file://{tmp_path}/none", "x", tmp_path / "to")
