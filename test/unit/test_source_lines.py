"""Lines of the source beside those of the PTX: what `.loc` says, in findings, schedules, traces and reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from warploom.dialect.ptx.parser import parse_ptx
from warploom.dialect.ptx.text.source_lines import SourceLines
from warploom.runtime import check_ptx, load_ptx
from warploom.runtime.interp import InterpreterError

SAMPLE = Path(__file__).parents[1] / "data" / "ptx" / "sample.ptx"

TEXT = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .b32 %t, %v, %w; .reg .b64 %out, %x; .shared .align 4 .b8 tile[256];
    mov.u32 %t, %tid.x;
    .loc 1 12 5
    shl.b32 %w, %t, 2; mov.u32 %v, tile; add.u32 %w, %w, %v;
    st.shared.u32 [%w], %t;
    .loc 1 14 3 .loc 2 40 9, function_name $L__name, inlined_at 1 14 3
    xor.b32 %w, %w, 128;
    .loc 2 44 1, function_name $L__name+8, inlined_at 2 40 9
    ld.shared.u32 %v, [%w];
    .loc 1 15 0
    ld.param.u64 %out, [out]; mul.wide.u32 %x, %t, 4; add.s64 %out, %out, %x;
    st.global.u32 [%out], %v;
    ret;
}
.file 1 "/home/me/kernel.py"
.file 2 "tile.h"
.section .debug_str
{
$L__name:
.b8 101,120,99,104,97,110,103,101
.b8 95,90,78,51,116,115,111,52,112,101,101,114,69,118,0
}
"""
"""The name is `exchange_ZN3tso4peerEv`, of which the part from byte 8 on is mangled."""


def launch(**options: Any) -> object:
    return load_ptx(TEXT, "k.ptx").launch(
        "k", (1, 1, 1), (64, 1, 1), [np.full(64, 9, np.uint32)], device="interp", **options
    )  # fmt: skip


def test_lines_of_a_compiled_kernel() -> None:
    """Inlined code has its function, and the outermost line that it was inlined at."""
    lines = SourceLines(parse_ptx(SAMPLE.read_text(encoding="utf-8"), "sample.ptx"))
    assert lines.note_at(30) == ""
    assert lines.note_at(40) == "sample.cu:11 in scaled"
    assert lines.note_at(147) == "cuda_pipeline_helpers.h:203 in cp_async, inlined at sample.cu:17"
    place = lines.at(147)
    assert place is not None
    assert (place.file, place.line, place.column) == ("cuda_pipeline_helpers.h", 203, 23)
    assert (
        lines.annotated("line 40 and lines 40, at line 30")
        == "line 40 (sample.cu:11 in scaled) and lines 40, at line 30"
    )


def test_names_and_places_of_inlined_code() -> None:
    lines = SourceLines(parse_ptx(TEXT, "k.ptx"))
    assert [lines.note_at(n) for n in (7, 10, 17)] == ["", "/home/me/kernel.py:12", "/home/me/kernel.py:15"]
    assert lines.note_at(12).startswith("tile.h:40 in exchange_ZN3tso4peerEv, inlined at /home/me/kernel.py:14")
    assert lines.note_at(14) == "tile.h:44 in peer, inlined at /home/me/kernel.py:14"
    assert SourceLines(parse_ptx(TEXT.split("    .loc")[0] + "ret; }", "k.ptx")).annotated("line 7") == "line 7"


def test_findings_name_both_lines() -> None:
    with pytest.raises(InterpreterError) as caught:
        launch(checks="all-orders")
    (finding,) = caught.value.findings
    assert finding.source == "tile.h:44 in peer, inlined at /home/me/kernel.py:14"
    assert "writes at line 10 (/home/me/kernel.py:12), and nothing orders them" in finding.message
    assert f"({finding.source}, kernel k, CTA (0, 0, 0)" in str(finding)


def test_what_is_refused_names_both_lines() -> None:
    (problem,) = check_ptx(TEXT.replace("xor.b32", "xor.f32"))
    assert problem.source == "tile.h:40 in exchange_ZN3tso4peerEv, inlined at /home/me/kernel.py:14"
    assert problem.show("k.ptx").endswith(f" ({problem.source})")


def test_faults_name_both_lines() -> None:
    with pytest.raises(InterpreterError, match=r"out of bounds.*\(/home/me/kernel.py:15, kernel k"):
        load_ptx(TEXT, "k.ptx").launch("k", (1, 1, 1), (64, 1, 1), [np.zeros(3, np.uint32)], device="interp")


def test_reports_and_traces_name_both_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from warploom.runtime.cli.command import main

    file = tmp_path / "k.ptx"
    file.write_text(TEXT.replace("xor.b32 %w, %w, 128;", "bar.sync 0; xor.b32 %w, %w, 128;"), encoding="utf-8")
    words = ["run", str(file), "--grid", "1", "--block", "64", "--arg", "zeros:u32:64", "--device", "interp"]
    assert main([*words, "--report", "--trace", str(tmp_path / "k.json")]) == 0
    assert "tile.h:44 in peer, inlined at /home/me/kernel.py:14" in capsys.readouterr().out
    assert '"source":"/home/me/kernel.py:15"' in (tmp_path / "k.json").read_text(encoding="utf-8")


def test_our_own_ptx_names_lines_of_the_mlir(capsys: pytest.CaptureFixture[str]) -> None:
    """With `lines`; without, the text is as it was."""
    from warploom.passes.opt import main

    source = Path(__file__).parents[2] / "examples" / "matmul_bias_gelu.mlir"
    main([str(source), "-p", "warploom", "-t", "ptx"])
    plain = capsys.readouterr().out
    main([str(source), "-p", "warploom", "-t", "ptx{lines=true}"])
    text = capsys.readouterr().out
    added = [line for line in text.splitlines() if line.strip().startswith((".loc", ".file"))]
    assert [line for line in text.splitlines() if line not in added] == plain.splitlines()
    assert f'.file 1 "{source}"' in added
    mlir = source.read_text(encoding="utf-8").splitlines()
    lines = SourceLines(parse_ptx(text, "gelu.ptx"))
    of = {opcode: lines.at(text[: text.index(opcode)].count("\n") + 1) for opcode in ("mma.sync", "ldmatrix.sync")}
    assert all(place is not None and "linalg.matmul" in mlir[place.line - 1] for place in of.values())
    sums = next(i for i, line in enumerate(mlir, 1) if "arith.addf %x, %b" in line)
    assert any(line.strip().startswith(f".loc 1 {sums} ") for line in added)
