"""check_ptx: every error with its place, none where there is none."""

from __future__ import annotations

import pytest

from warploom.runtime import Diagnostic, WarploomError, check_ptx

PTX = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a)
{
  .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %rd<2>; .reg .pred %p;
  BODY
  ret;
}
"""
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, A, {%r4, %r5}, {%f0, %f1, %f2, %f3};"


def check(body: str, target: str | None = None) -> list[Diagnostic]:
    return check_ptx(PTX.replace("BODY", body), target)


def test_correct_text_has_no_diagnostics() -> None:
    assert check(MMA.replace("A", "{%r0, %r1, %r2, %r3}") + " { .reg .f64 %r0; add.f64 %r0, %r0, %r0; }") == []


@pytest.mark.parametrize(
    ("body", "line", "column", "message"),
    [
        ("add.f32 %f0, %f1", 7, 3, "is not an operand"),
        (MMA.replace("A", "{%r0, %r1}"), 7, 3, "operand a: expected 4 x .f16x2, got 2"),
        (
            MMA.replace("A", "%r0").replace("k16", "k17"),
            7,
            3,
            "is not a PTX instruction known here; the nearest are mma",
        ),
        ("add.s32 %r0, %r1;\n    add.f32 %f0, %f1, %r2;", 7, 3, "expected 3 operands"),
        ("{ add.f32 %f0, %f1, %p; }", 7, 5, "got .pred"),
        ("add.s32 _, %r1, %r2;", 7, 3, "operand d: the result cannot be discarded"),
        ("add.s32 %r1, %r2, _;", 7, 3, "operand b: '_' discards a result, it cannot be read"),
        ("setp.eq.s32 _|_, %r1, %r2;", 7, 3, "operand d: one of the two results must be kept"),
        ("lop3.or.b32 %r0|_, %r1, %r2, %r3, 1, %p;", 7, 3, "the predicate after '|' cannot be discarded"),
        ("ld.v2.u32 {_, _}, [%rd0];", 7, 3, "operand d: one of the 2 elements must be kept"),
        (
            "createpolicy.fractional.L2::evict_last.b64 %rd0, 0.0;",
            7,
            3,
            "operand a: expected a number above 0 and at most 1, got 0.0",
        ),
    ],
)
def test_errors_are_placed(body: str, line: int, column: int, message: str) -> None:
    first = check(body)[0]
    assert (first.line, first.column) == (line, column)
    assert message in first.message


@pytest.mark.parametrize(
    ("operands", "target", "message"),
    [
        ("[%rd0], [%rd1], 8, 9", "sm_80", "operand s: expected a number from 0 to 8, got 9"),
        ("[%rd0], [%rd1], 16, 17", "sm_80", "operand s: expected a number from 0 to 16, got 17"),
        ("[%rd0], %rd1, 8, 9", "sm_80", "operand b: expected an address in brackets"),
        ("[%rd0], [%rd1]", "sm_80", "expected 3 to 4 operands (a, b, n, s), got 2"),
        ("[%rd0], [%rd1], 8, 8", "sm_75", "needs sm_80 or later"),
    ],
)
def test_of_several_rows_the_nearest_is_reported(operands: str, target: str, message: str) -> None:
    (diagnostic,) = check(f"cp.async.ca.shared.global {operands};", target)
    assert diagnostic.message.startswith(f"cp.async.ca.shared.global: {message}")


def test_every_error_is_found() -> None:
    assert [(d.line, d.column) for d in check("add.s32 %r0, %r1;\n    add.f32 %f0, %f1, %p;")] == [(7, 3), (8, 5)]


def test_the_target_is_the_files_or_the_callers() -> None:
    body = MMA.replace("A", "{%r0, %r1, %r2, %r3}")
    assert check(body) == []
    assert "needs sm_80 or later, the module's target is sm_75" in check(body, "sm_75")[0].message


def test_an_unknown_target() -> None:
    with pytest.raises(WarploomError, match="unknown target 'sm_1'"):
        check("", "sm_1")


def test_an_unknown_word_is_an_error_that_names_the_nearest() -> None:
    assert "'fmaa.rn.f32' is not a PTX instruction known here; the nearest are fma" in check("fmaa.rn.f32;")[0].message
    assert "the nearest are add.rn.f32" in check("add.rn.f31 %f0, %f1, %f2;")[0].message


def test_diagnostics_print_as_compilers_do() -> None:
    assert Diagnostic(3, 5, "no").show("a.ptx") == "a.ptx:3:5: error: no"
    assert check("fmaa.rn.f32;")[0].severity == "error"
