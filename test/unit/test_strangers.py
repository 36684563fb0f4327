"""What somebody new to the package passes by mistake: one error that says what was expected, never a traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from warploom.runtime import (
    ArgumentError,
    WarploomError,
    check_ptx,
    compile,
    compress,
    explain,
    load_kernels,
    load_ptx,
    prune,
    torch_to_linalg,
)
from warploom.runtime.cli.command import main

EXAMPLES = Path(__file__).parents[2] / "examples"
MATMUL = EXAMPLES / "matmul.mlir"
TRANSPOSE = EXAMPLES / "transpose.ptx"
EMPTY_FUNCTION = "func.func @f() { return }"
BRANCH = "func.func @f() {\n  cf.br ^end\n^end:\n  return\n}"


@pytest.mark.parametrize(
    ("function", "given", "message"),
    [
        (compile, None, "expected MLIR text, the path of a file, or a module of xDSL, got NoneType"),
        (compile, b"func.func", "expected MLIR text, the path of a file, or a module of xDSL, got bytes"),
        (compile, "", "<mlir>:1:1: error: expected MLIR, got no text"),
        (compile, str(EXAMPLES), f"{EXAMPLES}: Is a directory"),
        (compile, EMPTY_FUNCTION, "@f launches no kernel: there is no product and no elementwise operation in it"),
        (compile, BRANCH, "@f: expected a function of one block; scf.for and scf.if replace branches"),
        (load_kernels, 4, "expected MLIR text, the path of a file, or a module of xDSL, got int"),
        (load_kernels, EXAMPLES / "nope.mlir", f"{EXAMPLES}/nope.mlir: No such file or directory"),
        (load_ptx, None, "expected the text or the path of a .ptx file, got NoneType"),
        (load_ptx, "nope.ptx", "nope.ptx: No such file or directory"),
        (check_ptx, 3, "expected the text or the path of a .ptx file, got int"),
        (explain, None, "expected a number, bytes or a string, got NoneType"),
        (prune, "a", "expected a numpy array, got str"),
        (compress, None, "expected a numpy array, got NoneType"),
        (torch_to_linalg, None, "expected a function or a torch.nn.Module, got NoneType"),
    ],
)
def test_values_of_another_kind(function: Callable[[Any], object], given: object, message: str) -> None:
    with pytest.raises(WarploomError) as caught:
        function(given)
    assert str(caught.value) == message


def test_a_target_is_a_name() -> None:
    with pytest.raises(
        WarploomError, match=r"^unknown target '90' \(a target is written like sm_90a\); known targets: "
    ):
        compile(MATMUL, target=cast("str", 90))


def test_ptx_is_text_or_a_path(tmp_path: Path) -> None:
    renamed = tmp_path / "kernel.txt"
    renamed.write_text(TRANSPOSE.read_text())
    for given in (TRANSPOSE, str(TRANSPOSE), str(renamed), TRANSPOSE.read_text()):
        assert list(load_ptx(given).kernels) == ["transpose"]
        assert check_ptx(given) == []
    renamed.write_text("hello")
    with pytest.raises(WarploomError, match=f"^{renamed}:1:1: error: expected a directive"):
        load_ptx(renamed)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"args": None}, "kernel transpose: expected a list of arguments, got NoneType"),
        ({"shared": "a"}, "kernel transpose: expected bytes of shared memory from 0 on, got 'a'"),
        ({"checks": 3}, "expected checks among races, uninitialised, barriers, bounds, wmma, wgmma and all, got 3"),
        ({"args": [np.zeros((64, 64), object)] * 2},
         "kernel transpose: argument 0 (.u64 x): expected numbers, got 64x64xobject"),
    ],
)  # fmt: skip
def test_launches_of_ptx(given: dict[str, Any], message: str) -> None:
    x = np.zeros((64, 64), np.float32)
    with pytest.raises(ArgumentError) as caught:
        load_ptx(TRANSPOSE).launch("transpose", **{"grid": 1, "block": 32, "args": [x, x], "device": "interp", **given})
    assert str(caught.value) == message


def test_a_target_in_quotes() -> None:
    with pytest.raises(
        WarploomError, match=r'expected warp\.target = #warp\.target<sm_90a> or another GPU, got "sm_80"'
    ):
        compile(f'module attributes {{warp.target = "sm_80"}} {{\n{MATMUL.read_text()}\n}}')


def test_an_argument_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(MATMUL), "--device", "interp", "--in", "0=zeros", "--in", "A=ones"]) == 1
    assert capsys.readouterr().err == "error: --in: argument 0 (%A) is given twice\n"


@pytest.mark.parametrize("command", ["run", "check", "compile", "cache", "explain", "isa", "layout", "tune"])
def test_each_command_says_its_version(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("warploom ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": {"stagez": 2}}, "option 'schedule': unknown schedule option 'stagez'; known: cta, "),
        ({"schedule": {"stages": "x"}}, "option 'schedule': schedule option stages: expected one number, got 'x'"),
        ({"tuned": "/nope.json"}, "option 'tuned': /nope.json: no such file"),
        ({"target": 90}, "option 'target': unknown target '90'"),
    ],
)
def test_options_of_the_backend(options: dict[str, Any], message: str) -> None:
    from warploom.runtime.torch_frontend.options import read

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
