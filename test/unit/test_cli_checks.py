"""`warploom run --check=...`: names, findings, exit codes, and `--check` alone as it always was."""

from __future__ import annotations

from pathlib import Path

import pytest
from seeded_bugs import MATMUL, edited, line_of, pipelined

from warploom.runtime.cli.command import main
from warploom.runtime.interp.watch.checks import CHECKS

ROOT = Path(__file__).parents[2]


pytestmark = pytest.mark.usefixtures("nothing_but_python")


def ptx(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "kernel.ptx"
    file.write_text(text, encoding="utf-8")
    arrays = ("random:f16:64x128", "random:f16:128x64", "zeros:f32:64x64")
    launch = ["run", str(file), "--grid", "4", "--block", "128", "--shared", "12288", "--device", "interp"]
    return [*launch, *(word for array in arrays for word in ("--arg", array))]


def mlir(tmp_path: Path) -> str:
    file = tmp_path / "matmul.mlir"
    file.write_text(MATMUL.format(m=33, n=24, k=40, t="f16"), encoding="utf-8")
    return str(file)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("where", [0, 1])
def test_check_alone_compares_wherever_it_stands(
    where: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [mlir(tmp_path), "--device", "interp"]
    words.insert(where, "--check")
    assert main(["run", *words]) == 0
    out = capsys.readouterr().out
    assert "against float64" in out
    assert "nothing found" not in out


def test_both_kinds_of_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--check=all,float64", mlir(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "against float64" in out
    assert "races, uninitialised, barriers, bounds, wmma, wgmma, tensor: nothing found" in out
    assert main(["run", mlir(tmp_path), "--check=races", "--check=wmma"]) == 0
    out = capsys.readouterr().out
    assert "against float64" not in out
    assert "races, wmma: nothing found" in out


def test_findings_are_listed_and_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = edited(pipelined(), "bar.sync 0;", "")
    text = edited(text, "ld.global.v2.f32 {%f2, %f3}, [%rd13+2048];", "")
    assert main(ptx(tmp_path, text)) == 0
    capsys.readouterr()
    assert main([*ptx(tmp_path, text), "--check=races,uninit"]) == 1
    errors = capsys.readouterr().err.splitlines()
    load = line_of(text, "ldmatrix.sync.aligned")
    multiply = line_of(text, "mma.sync.aligned")
    file = tmp_path / "kernel.ptx"
    assert any(line.startswith(f"{file}:{load}:5: error: ldmatrix") and "race in shared" in line for line in errors)
    assert any(line.startswith(f"{file}:{multiply}:5: error: mma") and "%f2 is read before" in line for line in errors)
    assert all(": error: " in line and "kernel matmul, CTA (" in line for line in errors)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--check"], "--check is for functions of .mlir files"),
        (["--check=speed"], "expected checks among"),
        (["--check="], "expected checks among"),
        (["--check=all", "--device", "cuda"], "is made by the interpreter; use --device interp"),
    ],
)
def test_what_is_refused(words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ptx(tmp_path, pipelined()), *words]) == 1
    assert message in capsys.readouterr().err


def test_a_fault_comes_after_the_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = edited(pipelined(), "bar.sync 0;", "")
    text = edited(text, "[%rd13+2080], {%f6", "[%rd13+20000000], {%f6")
    assert main([*ptx(tmp_path, text), "--check=all"]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert "race in shared memory" in errors[0]
    assert "global access out of bounds" in errors[-1]


def test_the_page_shows_what_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "checks.md").read_text(encoding="utf-8")
    text = (ROOT / "examples" / "transpose.ptx").read_text(encoding="utf-8")
    (tmp_path / "transpose.ptx").write_text(text.replace("bar.sync 0;", ""), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    command = "run transpose.ptx --grid 2,2 --block 32,8 --arg random:f32:64x64 --arg zeros:f32:64x64 --check=all"
    assert f"warploom {command}\n" in page
    assert main(command.split()) == 1
    first, *others = capsys.readouterr().err.splitlines()
    assert f"```text\n{first}\n```" in page
    assert len(others) == 3
    for name in CHECKS:
        assert f"\n### {name}\n" in page


def test_the_page_on_all_orders_shows_what_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "all-orders.md").read_text(encoding="utf-8")
    text = (ROOT / "examples" / "ring.ptx").read_text(encoding="utf-8")
    (tmp_path / "ring.ptx").write_text(text.replace("[empty], 64", "[empty], 32"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    command = "run ring.ptx --grid 1 --block 96 --check=all-orders"
    assert f"warploom {command}\n" in page
    assert main([*command.split(), "--device", "interp"]) == 1
    shown = page.partition("```text\n")[2].partition("```")[0]
    assert shown in capsys.readouterr().err
    replay = "run ring.ptx --grid 1 --block 96 --replay --trace ring.svg"
    assert f"warploom {replay}\n" in page
    assert main([*replay.split(), "--device", "interp"]) == 1
    captured = capsys.readouterr()
    assert page.split("```text\n")[2].partition(" ...")[0] in captured.err
    assert "to ring.svg" in captured.out
    assert (tmp_path / "ring.svg").exists()
    (tmp_path / "ring.ptx").write_text(text, encoding="utf-8")
    assert main([*command.split(), "--device", "interp"]) == 0
    assert "all-orders: nothing found" in capsys.readouterr().out


SAME = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x) {
.reg .b64 %rd; .reg .b32 %r; .reg .pred %p;
ld.param.u64 %rd, [x]; mov.u32 %r, 3;
st.global.u32 [%rd], %r;
mov.u32 %r, 0;
LOOP: add.u32 %r, %r, 1; setp.ne.u32 %p, %r, 99; @%p bra LOOP;
ret; }"""


def test_notes_are_printed_and_are_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "same.ptx"
    file.write_text(SAME)
    launch = ["run", str(file), "--grid", "2", "--block", "64", "--arg", "zeros:i32:4", "--device", "interp"]
    assert main([*launch, "--check=races"]) == 0
    shown = capsys.readouterr()
    assert f"{file}:7:1: note: st.global.u32: race in global memory: writes what CTA" in shown.err
    assert "the value is the same" in shown.err
    assert "races: 1 notes" in shown.out
    assert main([*launch, "--check=barriers"]) == 0
    assert "barriers: nothing found" in capsys.readouterr().out


def test_steps_can_be_limited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "endless.ptx"
    file.write_text(SAME.replace("setp.ne.u32 %p, %r, 99", "setp.ne.u32 %p, %r, 0"))
    launch = ["run", str(file), "--grid", "1", "--block", "32", "--arg", "zeros:i32:4"]
    assert main([*launch, "--max-steps", "5000"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"{file}:9:")
    assert error.count("\n") == 1
    assert "the launch took more than 5000 steps" in error
    assert "If this is no endless loop, a larger --max-steps lets it go on" in error
    file.write_text(SAME)
    assert main([*launch, "--max-steps", "5000"]) == 0
    with pytest.raises(SystemExit):
        main([*launch, "--max-steps", "0"])
    assert "--max-steps: expected a number from 1 on, got '0'" in capsys.readouterr().err
    assert main([*launch, "--max-steps", "5000", "--device", "cuda"]) == 1
    assert "--max-steps counts what the interpreter executes" in capsys.readouterr().err
    assert main(["run", mlir(tmp_path), "--max-steps", "50"]) == 1
    assert "the launch took more than 50 steps" in capsys.readouterr().err
