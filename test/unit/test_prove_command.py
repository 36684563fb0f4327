"""`warploom prove`, `warploom compile --prove`, and mutants of what is proven."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path

import pytest
from prove_mutants import PRODUCT, SOURCES, mutants, verdict

from warploom.runtime import Kernel, compile
from warploom.runtime.cli.command import main

ADD = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry twice(.param .u64 x, .param .u64 y) {
  .reg .b32 %r<4>; .reg .f32 %f<4>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd4, %r1, 4;
  add.s64 %rd1, %rd1, %rd4; add.s64 %rd2, %rd2, %rd4;
  ld.global.f32 %f1, [%rd1];
  add.f32 %f2, %f1, %f1;
  st.global.f32 [%rd2], %f2;
  ret;
}
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("twice.ptx").write_text(ADD)
    Path("product.mlir").write_text(PRODUCT)
    Path("doubled.ptx").write_text(ADD.replace("add.f32 %f2, %f1, %f1", "mul.f32 %f2, %f1, 0f40000000"))
    Path("thrice.ptx").write_text(ADD.replace("add.f32 %f2, %f1, %f1", "mul.f32 %f2, %f1, 0f40400000"))


ONE = ["--grid", "1", "--block", "32", "--in", "x=random:f32:32", "--in", "y=random:f32:32"]
OTHER = ["--other-grid", "1", "--other-block", "32"]


def test_a_function_is_compiled_and_proven(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", "product.mlir", "--target", "sm_80"]) == 0
    assert "product.mlir: proven: for %A: 24x40xbf16" in capsys.readouterr().out


def test_compile_writes_what_is_proven(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "product.mlir", "--target", "sm_80", "--prove", "-o", "product.ptx"]) == 0
    assert "proven" in capsys.readouterr().err
    assert Path("product.ptx").read_text().startswith(".version")
    assert main(["compile", "product.mlir", "--emit", "mlir", "--prove"]) == 1
    assert "--prove has no effect on --emit mlir" in capsys.readouterr().err


def test_kernels_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", "twice.ptx", "--against", "doubled.ptx", *ONE, *OTHER]) == 0
    assert main(["prove", "twice.ptx", "--against", "thrice.ptx", *ONE, *OTHER, "--json"]) == 1
    *_, line = capsys.readouterr().out.splitlines()
    record = json.loads(line)
    assert record["outcome"] == "refuted"
    assert record["differences"][0] == {
        "argument": "y",
        "index": [0],
        "count": 32,
        "reason": record["differences"][0]["reason"],
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["twice.ptx"], "give a file with --against"),
        (["twice.ptx", "--against", "doubled.ptx"], "a kernel is launched with --grid"),
        (["twice.ptx", "--against", "doubled.ptx", *ONE], "a kernel is launched with --other-grid"),
        (["twice.ptx", "--against", "doubled.ptx", "--in", "x"], "expected NAME=WORD:TYPE:SIZES"),
        (
            ["twice.ptx", "--against", "doubled.ptx", *ONE, "--other-grid", "a", "--other-block", "32"],
            "expected one to",
        ),
    ],
)
def test_what_is_missing_is_said(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", *words]) == 1
    assert message in capsys.readouterr().err


@cache
def compiled(name: str) -> Kernel:
    text, options = SOURCES[name]
    return compile(text, **options)  # pyright: ignore[reportArgumentType]


@pytest.mark.sampled(180)
@pytest.mark.parametrize("number", range(60))
@pytest.mark.parametrize("name", SOURCES)
def test_no_mutant_is_proven_wrongly(name: str, number: int) -> None:
    kernel = compiled(name)
    mutant, ptx = next(mutants(name, kernel.ptx, random.Random(number)))
    outcome, why = verdict(SOURCES[name][0], kernel, ptx)
    assert outcome not in ("wrong", "refused", "undecided"), f"{mutant}: {why}"


def test_the_order_of_sums(capsys: pytest.CaptureFixture[str]) -> None:
    Path("one.mlir").write_text(PRODUCT.replace("24x40xbf16", "1x40xbf16").replace("24x24xf32", "1x24xf32"))
    ask = ["prove", "product.mlir", "--target", "sm_80", "--order", "C[0,5]", "--against", "one.mlir"]
    assert main(ask) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "C[0, 5] ="
    assert lines[-3].endswith("16 products A[0, 0] * B[0, 5], ..., A[0, 15] * B[15, 5], and")
    assert lines[-1] == "the same instructions in the same order for all outputs that both have: the same bits"
    arrays = ["--in", "x=random:f32:32", "--in", "y=zeros:f32:32", "--grid", "1", "--block", "32"]
    others = ["--other-grid", "1", "--other-block", "32"]
    assert main(["prove", "twice.ptx", "--order", "y[3]", "--against", "doubled.ptx", *arrays, *others]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "y[3] =", "  add.f32: x[3], x[3]",
        "another order of sums; the other kernel computes", "y[0] =", "  mul.f32: x[0], 2",
    ]  # fmt: skip


def test_what_has_no_order(capsys: pytest.CaptureFixture[str]) -> None:
    Path("sums.ptx").write_text(ADD.replace("st.global.f32", "red.global.add.f32"))
    arrays = ["--in", "x=random:f32:32", "--in", "y=zeros:f32:32", "--grid", "1", "--block", "32"]
    assert main(["prove", "sums.ptx", "--order", "y[3]", *arrays]) == 1
    assert "a sum in memory (add.f32) has no order of its own" in capsys.readouterr().err
    assert main(["prove", "twice.ptx", "--order", "y(3)", *arrays]) == 1
    assert "--order: expected an element such as C[0,0], got 'y(3)'" in capsys.readouterr().err
