"""`warploom compile`, the named pipelines of `warploom-opt`, and what both say of themselves."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from warploom.dialect.ptx.printer import PtxTarget
from warploom.dialect.schedule import FIELDS
from warploom.passes import opt
from warploom.passes.pipeline import PARTS, STANDARD, lower
from warploom.passes.universe import WARPLOOM_UNIVERSE, make_context, parse_mlir
from warploom.runtime import compile
from warploom.runtime.cli.command import main
from warploom.runtime.cuda import ptxas

PRODUCT = """\
func.func @product(%A: memref<20x24xf16>, %B: memref<24x12xf16>, %C: memref<20x12xf32>) {
  linalg.matmul ins(%A, %B : memref<20x24xf16>, memref<24x12xf16>) outs(%C : memref<20x12xf32>)
  return
}
"""
TENSORS = """\
func.func @product(%A: tensor<20x24xf16>, %B: tensor<24x12xf16>, %C: tensor<20x12xf32>) -> tensor<20x12xf32> {
  %D = linalg.matmul ins(%A, %B : tensor<20x24xf16>, tensor<24x12xf16>) outs(%C : tensor<20x12xf32>)
    -> tensor<20x12xf32>
  return %D : tensor<20x12xf32>
}
"""
STRATEGY = """\
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%module: !transform.any_op) {
    %products = transform.structured.match ops{["linalg.matmul"]} in %module : (!transform.any_op) -> !transform.any_op
    %fields = transform.param.constant #warp.schedule<cta = 16x8x48, stages = 3> -> !transform.any_param
    transform.annotate %products "warp.schedule" = %fields : !transform.any_op, !transform.any_param
    transform.yield
  }
}
"""


def through(text: str, pipeline: str) -> str:
    """The PTX that passes make of text."""
    ctx, out = make_context(), StringIO()
    module = parse_mlir(ctx, text)
    lower(module, ctx, pipeline)
    PtxTarget().emit(ctx, module, out)
    return out.getvalue()


Compile = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Compile:
    def call(*arguments: object) -> tuple[int, str, str]:
        try:
            code = main(["compile", *map(str, arguments)])
        except SystemExit as stop:
            code = int(str(stop.code))
        sys.stdout.flush()
        out, error = capfd.readouterr()
        return code, out, error

    return call


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "product.mlir"
    path.write_text(PRODUCT)
    return path


class TestCompile:
    def test_ptx(self, run: Compile, path: Path, tmp_path: Path) -> None:
        expected = compile(PRODUCT).ptx
        assert run(path) == (0, expected, "")
        assert run(path, "-o", tmp_path / "a.ptx") == (0, "", "")
        assert (tmp_path / "a.ptx").read_text() == expected

    def test_options(self, run: Compile, path: Path) -> None:
        assert run(path, "--target", "sm_80", "--schedule", "stages=2")[1] == compile(PRODUCT, "sm_80", stages=2).ptx

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("level", ["ptx", "json", "mlir"])
    def test_another_target_than_the_file_s_is_said(self, run: Compile, path: Path, level: str) -> None:
        path.write_text(f"builtin.module attributes {{warp.target = #warp.target<sm_80>}} {{\n{PRODUCT}}}\n")
        code, text, error = run(path, "--emit", level, "--target", "sm_86")
        assert (code, error) == (0, f"{path}: note: the module says sm_80; --target compiles it for sm_86\n")
        assert "sm_86" in text
        assert run(path, "--emit", level, "--target", "sm_80")[2] == ""

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("how", [lambda out: ["--emit", "json"], lambda out: ["-o", out]])
    def test_json(self, run: Compile, path: Path, tmp_path: Path, how: Any) -> None:
        out = tmp_path / "a.json"
        code, text, _ = run(path, *how(out))
        document = json.loads(text or out.read_text())
        assert (code, document["ptx"], document["target"]) == (0, compile(PRODUCT).ptx, "sm_90a")
        assert [p["name"] for p in document["function"]["parameters"]] == ["A", "B", "C"]
        (launch,) = document["plan"]["launches"]
        assert (launch["kernel"], launch["arguments"]) == ("product", [0, 1, 2])

    def test_mlir_is_what_the_last_pass_takes(self, run: Compile, path: Path) -> None:
        code, text, _ = run(path, "--emit", "mlir", "--target", "sm_89", "--schedule", "stages=2")
        assert (code, "warp.mma" in text, "warp.offset" in text) == (0, True, True)
        assert through(text, "convert-warp-to-ptx") == compile(PRODUCT, "sm_89", stages=2).ptx

    @pytest.mark.parametrize("emit", ["mlir", "ptx"])
    def test_a_strategy(self, run: Compile, path: Path, tmp_path: Path, emit: str) -> None:
        (tmp_path / "strategy.mlir").write_text(STRATEGY)
        code, text, _ = run(path, "--emit", emit, "--target", "sm_80", "--transform", tmp_path / "strategy.mlir")
        assert (code, "cta = 16x8x48" in text, "stages = 3" in text) == (0, True, True)
        ptx = through(text, "convert-warp-to-ptx") if emit == "mlir" else text
        assert ptx == compile(PRODUCT, "sm_80", strategy=STRATEGY).ptx

    def test_linalg_is_on_memrefs(self, run: Compile, path: Path) -> None:
        path.write_text(TENSORS)
        code, text, _ = run(path, "--emit", "linalg")
        assert (code, "tensor" in text, "linalg.matmul" in text) == (0, False, True)
        assert compile(text).ptx == compile(TENSORS).ptx

    def test_cubin(self, run: Compile, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        if ptxas.find() is None:
            pytest.skip("no ptxas")
        assert run(path, "-o", tmp_path / "a.cubin") == (0, "", "")
        assert (tmp_path / "a.cubin").read_bytes().startswith(b"\x7fELF")
        monkeypatch.setattr(ptxas, "find", lambda: None)
        code, _, error = run(path, "-o", tmp_path / "b.cubin")
        assert (code, error.startswith("error: ptxas was not found")) == (1, True)
        assert not (tmp_path / "b.cubin").exists()

    @pytest.mark.parametrize(
        ("arguments", "code", "message"),
        [
            (["nowhere.mlir"], 1, "error: nowhere.mlir: No such file or directory\n"),
            (["a.ptx"], 1, "error: a.ptx: expected a file ending in .mlir, or - for standard input\n"),
            (["{path}", "-o", "/no/such/a.ptx"], 1, "error: /no/such/a.ptx: No such file or directory\n"),
            (["{path}", "--function", "f"], 1, "error: no function @f in the module; it has @product\n"),
            (["{path}", "--schedule", "x"], 1, "error: --schedule: expected key=value, such as stages=4"),
            (["{path}", "--emit", "mlir", "--target", "sm_1"], 1, "error: unknown target 'sm_1'; known targets"),
            (["{path}", "--tuned", "nope.json"], 1, "error: tuned: nope.json: No such file or directory"),
            (["{path}", "--transform", "nope.mlir"], 1, "error: nope.mlir: No such file or directory"),
            (["{path}", "--transform", ""], 2, "argument --transform: expected a value, got nothing"),
            (["{path}", "--emit", "linalg", "--transform", "a.mlir"], 1, "--transform has no effect on --emit linalg"),
            (["{path}", "--emit", "llvm"], 2, "invalid choice: 'llvm'"),
            (["{path}", "-o", "x.foo"], 1, "-o x.foo: expected a name ending in .mlir, .ptx, .cubin, .json, or --emit"),
            (["{path}", "-o", "x.PTX"], 1, "-o x.PTX: expected a name ending in .mlir, .ptx, .cubin, .json, or --emit"),
            (["{path}", "-o", "x.ptx", "--emit", "json"], 1, "-o x.ptx: the ending is not that of --emit json, .json"),
            (["{path}", "-o", "x.json", "--emit", "linalg"], 1, "the ending is not that of --emit linalg, .mlir"),
            (
                ["{path}", "--emit", "linalg", "--tf32"],
                1,
                "--tf32 has no effect on --emit linalg: it is for",
            ),
            (["{path}", "--emit", "linalg", "--schedule", "stages=2"], 1, "--schedule has no effect on --emit linalg"),
            (["{path}", "--emit", "linalg", "--target", "sm_80"], 1, "--target has no effect on --emit linalg"),
            (["{path}", "--emit", "mlir", "--function", "product"], 1, "--function has no effect on --emit mlir: all"),
        ],
    )
    def test_misuse(self, run: Compile, path: Path, arguments: list[str], code: int, message: str) -> None:
        status, out, error = run(*(word.format(path=path) for word in arguments))
        assert (status, out, message in error) == (code, "", True)

    @pytest.mark.parametrize(
        ("name", "emit", "start"),
        [
            ("a", [], ".version"),
            ("a.txt", ["--emit", "ptx"], ".version"),
            ("a.mlir", [], "builtin.module"),
            ("a.mlir", ["--emit", "linalg"], "builtin.module"),
            ("a.json", ["--emit", "json"], "{"),
        ],
    )
    def test_the_ending_and_the_level(
        self, run: Compile, path: Path, tmp_path: Path, name: str, emit: list[str], start: str
    ) -> None:
        out = tmp_path / "made" / name
        out.parent.mkdir()
        assert run(path, "-o", out, *emit) == (0, "", "")
        assert out.read_text().startswith(start)

    def test_a_dash_is_standard_output(
        self, run: Compile, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert run(path, "-o", "-") == (0, compile(PRODUCT).ptx, "")
        assert not (tmp_path / "-").exists()

    def test_no_machine_code_on_a_terminal(self, run: Compile, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        code, _, error = run(path, "--emit", "cubin")
        assert (code, error) == (
            1, "error: --emit cubin writes machine code, which is no text; give a file with -o\n"
        )  # fmt: skip


class TestPipelines:
    def test_the_parts_are_the_whole(self) -> None:
        parts = [PARTS[name] for name in ("schedule", "tile", "finish")]
        assert ",".join(part.of(STANDARD) for part in parts) == STANDARD

    def test_each_runs(self) -> None:
        pipeline = "warploom-schedule{target=sm_80 stages=2},warploom-tile,warploom-finish"
        assert through(PRODUCT, pipeline) == compile(PRODUCT, "sm_80", stages=2).ptx

    def test_the_driver_names_their_passes(self, capsys: pytest.CaptureFixture[str], path: Path) -> None:
        opt.main([str(path), "-p", "warploom-schedule,warploom-tile", "--print-between-passes"])
        out = capsys.readouterr()
        for name in ("warp-set-target", "warp-schedule", "warp-persist"):
            assert name in out.out + out.err

    def test_a_module_that_is_not_lowered_hints_at_the_name(
        self, capsys: pytest.CaptureFixture[str], path: Path
    ) -> None:
        with pytest.raises(SystemExit):
            opt.main([str(path), "-t", "ptx"])
        assert "run the standard pipeline first, -p warploom" in capsys.readouterr().err


class TestHelp:
    def test_schedule(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit, match="0"):
            opt.main(["--help-schedule"])
        lines = capsys.readouterr().out.split("\n")
        for name in FIELDS:
            assert sum(line.startswith(f"  {name}=") for line in lines) == 1
        assert "  stages=N" in lines
        assert "  sync=barrier or mbarrier (default barrier)" in lines
        assert max(map(len, lines)) <= 120

    def test_each_pass_is_a_sentence(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit, match="0"):
            opt.main(["--list-passes"])
        listed = re.findall(r"^(\S+)\n((?:    \S.*\n)+)", capsys.readouterr().out, re.MULTILINE)
        assert [name for name, _ in listed] == list(WARPLOOM_UNIVERSE.all_passes)
        for name, text in listed:
            words = " ".join(text.split())
            assert words[0].isupper(), name
            assert words[-1] in ".;", name

    @pytest.mark.parametrize("flag", ["--version", "-v"])
    def test_version(self, capsys: pytest.CaptureFixture[str], flag: str) -> None:
        opt.main([flag])
        with pytest.raises(SystemExit, match="0"):
            main([flag])
        ours, theirs = capsys.readouterr().out.splitlines()
        assert ours.startswith("warploom-opt ")
        assert theirs.startswith("warploom ")
        assert ours.endswith(theirs.partition(" ")[2])
        assert " on xDSL 0.74" in ours
