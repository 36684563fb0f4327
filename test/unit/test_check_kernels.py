"""`check_ptx` on PTX that nvcc and Triton made: silent on it as it is, and not on one planted error in each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from warploom.runtime import check_ptx

FOLDER = Path(__file__).parent.parent / "data" / "kernels"
KERNELS = sorted(FOLDER.glob("*.ptx"))

PLANTED = {
    # What is there, what is put in its place, and a part of the complaint.
    "wmma_gemm": (r"row\.row\.m16n16k16\.f32\.f32", "row.row.m16n16k8.f32.f32", "nearest are wmma.mma.sync.aligned"),
    "mma_pipeline": (r"m16n8k16\.row\.col\.f32\.f16\.f16", "m16n8k16.row.col.f32.f16.bf16", "nearest are mma.sync"),
    "mma_int8": (r"(\.s32\.s8\.s8\.s32 \{)%r\d+, ", r"\1", r"operand d: expected 4 x .s32, got 3"),
    "mma_sparse": (r", 0x0;", ", 0x7;", "operand f: expected 0 or 1, got 0x7"),
    "triton_matmul_sm80": (
        r"ldmatrix\.sync\.aligned\.m8n8\.x4",
        "ldmatrix.sync.aligned.m8n8.x8",
        "nearest are ldmatrix",
    ),
}


@pytest.mark.parametrize("path", KERNELS, ids=lambda p: p.stem)
def test_nothing_is_said_of_a_right_file(path: Path) -> None:
    assert check_ptx(path.read_text()) == []


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_error_is_found_at_its_line(name: str) -> None:
    diagnostic, wrong, complaint = PLANTED[name]
    text = (FOLDER / f"{name}.ptx").read_text()
    planted, count = re.subn(diagnostic, wrong, text, count=1)
    assert count == 1
    line = next(i for i, (a, b) in enumerate(zip(text.splitlines(), planted.splitlines(), strict=True), 1) if a != b)
    diagnostics = check_ptx(planted)
    assert len(diagnostics) == 1
    assert abs(diagnostics[0].line - line) <= 1
    assert complaint in diagnostics[0].message


@pytest.mark.parametrize("path", [p for p in KERNELS if "mma" in p.stem or "matmul" in p.stem], ids=lambda p: p.stem)
def test_an_older_target_lacks_the_matrix_instructions(path: Path) -> None:
    diagnostics = check_ptx(path.read_text(), target="sm_70")
    assert any("needs sm_" in d.message for d in diagnostics) or path.stem == "wmma_gemm"
