"""What somebody new to the package passes by mistake: one error that says what was expected, never a traceback."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from warploom.dialect.isa.row import TARGETS
from warploom.passes.pipeline import lower
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import (
    ArgumentError,
    CompileError,
    WarploomError,
    check_ptx,
    compile,
    compress,
    explain,
    load_kernels,
    load_ptx,
    prune,
    torch_load,
    torch_save,
    torch_to_linalg,
)
from warploom.runtime.cli.command import main

EXAMPLES = Path(__file__).parents[2] / "examples"
MATMUL = EXAMPLES / "matmul.mlir"
TRANSPOSE = EXAMPLES / "transpose.ptx"
EMPTY_FUNCTION = "func.func @f() { return }"
BRANCH = "func.func @f() {\n  cf.br ^end\n^end:\n  return\n}"


@pytest.mark.parametrize(
    ("function", "value", "message"),
    [
        (compile, None, "expected MLIR text, the path of a file, or a module of xDSL, got NoneType"),
        (compile, b"func.func", "expected MLIR text, the path of a file, or a module of xDSL, got bytes"),
        (compile, "", "<mlir>:1:1: error: expected MLIR, got no text"),
        (compile, str(EXAMPLES), f"{EXAMPLES}: Is a directory"),
        (compile, EMPTY_FUNCTION, "@f launches no kernel: there is no product and no elementwise operation in it"),
        (compile, BRANCH, "@f: expected one block; scf.for and scf.if replace branches"),
        (load_kernels, 4, "expected MLIR text, the path of a file, or a module of xDSL, got int"),
        (load_kernels, EXAMPLES / "nope.mlir", f"{EXAMPLES}/nope.mlir: No such file or directory"),
        (load_ptx, None, "expected the text or the path of a .ptx file, got NoneType"),
        (load_ptx, "nope.ptx", "nope.ptx: No such file or directory"),
        (check_ptx, 3, "expected the text or the path of a .ptx file, got int"),
        (explain, None, "expected a number, bytes or a string, got NoneType"),
        (prune, "a", "expected a numpy array, got str"),
        (compress, None, "expected a numpy array, got NoneType"),
        (torch_to_linalg, None, "expected a function or a torch.nn.Module, got NoneType"),
        (partial(torch_save, path="nope.pt2"), 3, "expected a program of torch.export.export, got int"),
        (torch_load, "nope.pt2", "nope.pt2: no such file, or not one that torch_save wrote"),
    ],
)
def test_values_of_another_kind(function: Callable[[Any], object], value: object, message: str) -> None:
    with pytest.raises(WarploomError) as caught:
        function(value)
    assert str(caught.value) == message


def test_a_target_is_a_name() -> None:
    with pytest.raises(
        WarploomError, match=r"^unknown target '90' \(a target is written like sm_90a\); known targets: "
    ):
        compile(MATMUL, target=cast("str", 90))


def test_ptx_is_text_or_a_path(tmp_path: Path) -> None:
    renamed = tmp_path / "kernel.txt"
    renamed.write_text(TRANSPOSE.read_text())
    for source in (TRANSPOSE, str(TRANSPOSE), str(renamed), TRANSPOSE.read_text()):
        assert list(load_ptx(source).kernels) == ["transpose"]
        assert check_ptx(source) == []
    renamed.write_text("hello")
    with pytest.raises(WarploomError, match=f"^{renamed}:1:1: error: expected a directive"):
        load_ptx(renamed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"arch": "sm_9"}, f"arch: unknown target 'sm_9'; known targets: {', '.join(TARGETS)}"),
        (
            {"arch": 90},
            f"arch: unknown target '90' (a target is written like sm_90a); known targets: {', '.join(TARGETS)}",
        ),
        ({"max_steps": "a"}, "expected max_steps to be an integer from 1 on, got 'a'"),
        ({"args": None}, "kernel transpose: expected a list of arguments, got NoneType"),
        ({"shared": "a"}, "kernel transpose: expected bytes of shared memory from 0 on, got 'a'"),
        ({"checks": 3},
         "expected checks among races, uninitialised, barriers, bounds, wmma, wgmma, tensor, all-orders, strict and "
         "all, got 3"),
        ({"args": [np.zeros((64, 64), object)] * 2},
         "kernel transpose: argument 0 (.u64 x): expected an array of numbers, got one of Python objects"),
    ],
)  # fmt: skip
def test_launches_of_ptx(arguments: dict[str, Any], message: str) -> None:
    x = np.zeros((64, 64), np.float32)
    with pytest.raises(ArgumentError) as caught:
        load_ptx(TRANSPOSE).launch(
            "transpose", **{"grid": 1, "block": 32, "args": [x, x], "device": "interp", **arguments}
        )
    assert str(caught.value) == message


def test_a_target_in_quotes() -> None:
    with pytest.raises(
        WarploomError, match=r'expected warp\.target = #warp\.target<sm_90a> or another GPU, got "sm_80"'
    ):
        compile(f'module attributes {{warp.target = "sm_80"}} {{\n{MATMUL.read_text()}\n}}')


def test_an_argument_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(MATMUL), "--device", "interp", "--in", "0=zeros", "--in", "A=ones"]) == 1
    assert capsys.readouterr().err == "error: --in: argument 0 (%A) is given twice\n"


def test_text_that_cannot_be_read() -> None:
    with pytest.raises(CompileError, match=r"^<mlir>: nested too deeply$"):
        compile("module {" * 3000 + "}" * 3000)
    with pytest.raises(CompileError, match="cannot read this: this is not something the operation accepts here"):
        compile(MATMUL.read_text().replace("linalg.fill ins", "linalg.fill in"))
    with pytest.raises(WarploomError, match=r"^'a\\x00.mlir': embedded null"):
        compile("a\0.mlir")


def test_a_number_of_processes_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPLOOM_CORES", "many")
    array = np.zeros((64, 64), np.float32)
    with pytest.raises(WarploomError, match="WARPLOOM_CORES: expected a number of processes from 1 on, got 'many'"):
        load_ptx(TRANSPOSE).launch("transpose", (2, 2), (32, 8), [array, array.copy()], device="interp")


def test_modules_of_ptx_are_shown_and_pickled() -> None:
    module = load_ptx(TRANSPOSE)
    assert repr(module) == f"<PtxModule {TRANSPOSE} for sm_80: transpose>"
    _ = module.program  # what is decoded stays behind
    assert pickle.loads(pickle.dumps(module)).text == module.text


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("words", "file", "start"),
    [
        (["compile", "-"], MATMUL, ".version"),
        (["compile", "-", "--emit", "linalg"], MATMUL, "builtin.module"),
        (["tune", "-", "--list"], MATMUL, "256x320x192 f16"),
        (["check", "-"], TRANSPOSE, ""),
    ],
)
def test_standard_input(
    words: list[str], file: Path, start: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(file.read_bytes())))
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(start)
    assert start or not printed


def test_ptx_on_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def call(*words: str, text: str = TRANSPOSE.read_text()) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(text.encode())))
        code = main(words)
        out, error = capsys.readouterr()
        return code, out, error

    x = "random:f32:64x64"
    launch = ["--grid", "2,2", "--block", "32,8", "--arg", x, "--arg", "zeros:f32:64x64", "--device", "interp"]
    for text in (TRANSPOSE.read_text(), "/* of\nanother */ // compiler\n" + TRANSPOSE.read_text()):
        code, out, error = call("run", "-", *launch, "--target", "sm_90a", text=text)
        assert (code, error) == (0, "")
        assert out.startswith("kernel   transpose of -, for sm_80, as sm_90a runs it\n")
    assert call("run", "-") == (1, "", "error: -: a kernel is launched with --grid and --block, such as --grid 4,1,1\n")
    assert call("compile", "-")[2].startswith("error: -: expected MLIR, got PTX; ")


def test_ptx_in_place_of_mlir(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.mlir"
    path.write_text(TRANSPOSE.read_text())
    expected = f"{path}: expected MLIR, got PTX; load_ptx, and `warploom run` of a .ptx file, launch PTX"
    for words in (["run"], ["run", "--grid", "1", "--block", "1"], ["compile"]):
        assert main([words[0], str(path), *words[1:]]) == 1
        assert capsys.readouterr().err == f"error: {expected}\n"
    with pytest.raises(CompileError, match=r"^<mlir>: expected MLIR, got PTX; "):
        compile(TRANSPOSE.read_text())


def test_a_cache_that_is_no_folder(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WARPLOOM_CACHE", str(MATMUL))
    assert main(["cache"]) == 0
    assert "nothing is kept: this is no folder\n" in capsys.readouterr().out


@pytest.mark.sampled(2)
@pytest.mark.parametrize("module", ["warploom", "warploom.passes"])
def test_a_closed_standard_output_is_an_error(module: str) -> None:
    words = ["cache"] if module == "warploom" else [str(MATMUL)]
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", module, *words]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: writing the output: Bad file descriptor\n")


@pytest.mark.parametrize("command", ["run", "check", "compile", "cache", "explain", "isa", "layout", "tune"])
def test_each_command_says_its_version(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("warploom ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"schedule": {"stagez": 2}},
            "option 'schedule': unknown schedule option 'stagez', did you mean 'stages'? known: cta, ",
        ),
        ({"schedule": {"stages": "x"}}, "option 'schedule': schedule option stages: expected one number, got 'x'"),
        ({"tuned": "/nope.json"}, "option 'tuned': /nope.json: no such file"),
        ({"target": 90}, "option 'target': unknown target '90'"),
    ],
)
def test_options_of_the_backend(options: dict[str, Any], message: str) -> None:
    from warploom.runtime.torch.options import read

    with pytest.raises(ArgumentError) as caught:
        read(options)
    assert str(caught.value).startswith(message)


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
def test_functions_of_torch_that_return_no_tensors() -> None:
    import torch

    with pytest.raises(WarploomError, match="expected a function that returns tensors"):
        torch_to_linalg(lambda a: a.sum().item(), torch.ones(3, 4))
    with pytest.raises(ArgumentError, match=r"^example 1: expected a tensor, got int$"):
        torch_to_linalg(lambda a, b: a * b, torch.ones(3, 4), cast("torch.Tensor", 4))


MANY = """
func.func @twice(%x: i32) -> i32 {
  %0 = arith.addi %x, %x : i32
  return %0 : i32
}
func.func private @scale(%A: memref<9x7xf16>) {
  linalg.exp ins(%A : memref<9x7xf16>) outs(%A : memref<9x7xf16>)
  return
}
func.func @product(%A: memref<9x7xf16>, %B: memref<7x5xf16>, %C: memref<9x5xf32>) {
  call @scale(%A) : (memref<9x7xf16>) -> ()
  linalg.matmul ins(%A, %B : memref<9x7xf16>, memref<7x5xf16>) outs(%C : memref<9x5xf32>)
  return
}
func.func @wrong(%A: memref<9x7xf16>, %B: memref<7x5xbf16>, %C: memref<9x5xf32>) {
  linalg.matmul ins(%A, %B : memref<9x7xf16>, memref<7x5xbf16>) outs(%C : memref<9x5xf32>)
  return
}
"""


def test_a_named_function_is_compiled_without_the_others() -> None:
    kernel = compile(MANY, name="product", cache=False)
    assert kernel.ptx.count(".entry") == len(kernel.launches) == 2
    rng = np.random.default_rng(71)
    a, b = (rng.uniform(-1, 1, shape).astype(np.float16) for shape in ((9, 7), (7, 5)))
    exact = np.exp(a.astype(np.float64)).astype(np.float16).astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(kernel(a, b, device="interp", checks="all"), exact, rtol=0, atol=2e-2)
    with pytest.raises(WarploomError, match="no mma multiplies f16 x bf16"):
        compile(MANY, name="wrong", cache=False)


def test_functions_of_numbers_stay_beside_kernels() -> None:
    ctx = make_context()
    module = parse_mlir(ctx, MANY[: MANY.index("func.func @wrong")])
    lower(module, ctx, "warploom{target=sm_80}")
    assert "func.func @twice(%x: i32) -> i32" in str(module)
    assert "ptx.func entry visible @product" in str(module)
