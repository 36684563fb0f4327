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


def outcome(*refused: str) -> verdicts.Outcome:
    """A file of 10,000 instructions, in which we refuse each opcode for its address."""
    found = verdicts.Outcome("a", 10000)
    for line, opcode in enumerate(refused):
        message = f"{opcode}: expected an address that is a multiple of 4 bytes, got 1"
        why = verdicts.reason(opcode, message, "sm_90")
        (found.refused if why is None else found.listed).append((line, f"{opcode} %r1, [%r2];", why or message))
    return found


def test_a_refusal_needs_a_reason() -> None:
    """A suite fails on a kind that is not listed, and on too many that are; it prints the reasons."""
    listed = verdicts.Report([outcome("ld.global.b32")])
    assert listed.passed
    assert listed.refused == 1e-4
    assert any("faults on every GPU" in line for line in listed.text())
    assert not verdicts.Report([outcome("atom.global.add.u32")]).passed
    assert not verdicts.Report([outcome(*["ld.global.b32"] * 6)]).passed
    assert "0.0600% refused" in next(verdicts.Report([outcome(*["ld.global.b32"] * 6)]).text())


def test_what_the_text_does_not_have_is_a_reason_on_its_targets() -> None:
    opcode = "mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e4m3.e5m2.f32"
    why = verdicts.reason(opcode, "needs sm_120a", "sm_100a")
    assert why is not None
    assert "9.7.14.5.14: Support for .kind" in why
    assert verdicts.reason(opcode, "needs sm_120a", "sm_90") is None


@pytest.mark.skipif(verdicts.PTXAS is None, reason="needs ptxas")
def test_a_refused_statement_leaves_the_braces_of_its_block() -> None:
    body = ".visible .entry k() {\n{\n.reg .b32 %r<4>;\nadd.u31 %r1, %r2, %r3;}\nadd.u32 x, y, z;\nret;\n}\n"
    text = (HEAD + body).split("\n")
    found, skipped = verdicts.verdict(text, verdicts.owners(text), "sm_90")
    assert (sorted(found), skipped) == ([6, 7], "")
