"""The judge: a sample of the set of candidates, its limits, its command, and its server."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judge.candidates import Case, files, functions, kernels

from warploom.runtime import ArgumentError, Launching, judge
from warploom.runtime.cli.command import main
from warploom.runtime.cuda import ptxas
from warploom.runtime.interp.watch.checks import ALL_ORDERS, CHECKS
from warploom.runtime.oracle.candidate import dimensions, evaluate

SAMPLED = (
    "product: split", "softmax: online", "axpy: rows", "half: tiles", "product: zeros", "product: two calls",
    "product: buffer", "product: connects", "product: greedy", "product: calls the reference", "softmax: by address",
    "product: frames", "product: in a thread", "product: judges itself", "product: answers", "product: by samples",
    "product: destination", "product: processes", "complex: another imaginary part", "long: the last bit",
    "norm: f16 inputs", "double: f32 for f64", "scan: sum in blocks of 8", "axpy: leaves one row",
)  # fmt: skip
KERNELS = ("kernel: bf16", "bf16 kernel: elements left out", "one stage kernel: no barriers of one stage",
           "grid stride kernel: results kept", "file: imports", "file: other process")  # fmt: skip


@pytest.mark.parametrize("case", [c for c in functions() if c.name in SAMPLED], ids=lambda case: case.name)
def test_functions(case: Case) -> None:
    assert not case.problem()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", KERNELS)
def test_kernels(name: str, tmp_path: Path) -> None:
    (case,) = (c for c in (*kernels(tmp_path), *files(tmp_path)) if c.name == name)
    assert not case.problem()


def test_all_codes_are_explained() -> None:
    root = Path(__file__).parents[2]
    explained = set(re.findall(r"^\| `([a-z-]+)` \|", (root / "docs" / "judge.md").read_text(), re.MULTILINE))
    nodes = [n for file in (root / "runtime" / "oracle").glob("*.py") for n in ast.walk(ast.parse(file.read_text()))]
    written = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    made = {
        str(n.args[0].value)
        for n in nodes
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in ("JudgeFinding", "note")
        if isinstance(n.args[0], ast.Constant)
    }
    of_checks = {f"check-{name}" for name in (*CHECKS, ALL_ORDERS, "fault", "load")}
    assert sorted((made | of_checks) - explained) == []
    assert sorted(explained - written - of_checks) == []


def test_an_endless_candidate_ends() -> None:
    def endless(x: Any) -> Any:
        while True:
            pass

    verdict = judge(endless, lambda x: x + 1, inputs=["x=random:f32:8"], seconds=0.5)
    assert verdict.codes == ["time-limit"]


def test_what_a_kernel_accesses(tmp_path: Path) -> None:
    source, ptx, launch = import_module("judge.candidates").own("f16")
    (tmp_path / "k.ptx").write_text(ptx)
    (tmp_path / "f.mlir").write_text(source)
    verdict = judge(tmp_path / "k.ptx", tmp_path / "f.mlir", launch=launch, proof=False)
    assert verdict.accesses == {
        "A": {"read": 1920, "written": 0, "of": 1920},
        "B": {"read": 1920, "written": 0, "of": 1920},
        "C": {"read": 0, "written": 2304, "of": 2304},
    }
    assert verdict.counts is not None
    assert verdict.counts["multiply_adds"] == 32 * 32 * 48


def test_sizes_in_launches() -> None:
    assert dimensions("cdiv(M, 16),N // 2", {"M": 33, "N": 8}) == (3, 4)
    with pytest.raises(ArgumentError, match="cannot read 'P \\+ 1'"):
        evaluate("P + 1", {"M": 2})


FILE = "import numpy as np\ndef reference(x):\n    return np.maximum(x, 0)\n"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.py").write_text(FILE)
    (tmp_path / "good.py").write_text(FILE.replace("reference", "candidate"))
    (tmp_path / "bad.py").write_text(FILE.replace("reference", "candidate").replace("np.maximum(x, 0)", "abs(x)"))
    options = [str(tmp_path / "r.py"), "--in", "x=random:f32:{N}", "--size", "N=7", "--size", "N=40"]
    assert main(["judge", str(tmp_path / "good.py"), *options]) == 0
    assert "good.py: passes: 8 calls compared with" in capsys.readouterr().out
    assert main(["judge", str(tmp_path / "bad.py"), *options, "--json"]) == 1
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["codes"] == ["wrong-value", "wrong-bits"]
    assert verdict["findings"][0]["index"]
    assert main(["judge", str(tmp_path / "good.cu"), *options]) == 2
    assert "good.cu: there is no such file" in capsys.readouterr().err


def test_a_missing_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warploom.runtime.cuda.ptxas.find", lambda name: None)
    (tmp_path / "k.cu").write_text("__global__ void k(float *x) {}")
    with pytest.raises(ArgumentError, match=r"k\.cu: a CUDA file needs nvcc"):
        judge(tmp_path / "k.cu", lambda x: x, inputs=["x=random:f32:8"], launch=Launching("1", "32"))


CUDA = """__device__ __noinline__ float at(const float *x, int i) { return x[i]; }
extern "C" __global__ void relu(const float *x, float *y, int n) {
  int i = blockIdx.x * 128 + threadIdx.x;
  if (i < n) y[i] = fmaxf(at(x, i), 0.0f);
}
"""


@pytest.mark.skipif(ptxas.find("nvcc") is None, reason="nvcc is not installed")
def test_a_file_of_cuda(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(CUDA)
    (tmp_path / "r.py").write_text(FILE)
    launch, file = Launching("cdiv(N, 128)", "128", ("x", "out", "i32:N")), tmp_path / "k.cu"
    asked: Any = {"inputs": ["x=random:f32:{N}"], "sizes": [{"N": 300}], "proof": False}
    assert judge(file, tmp_path / "r.py", launch=launch, **asked)
    (verdict,) = judge(file, tmp_path / "r.py", launch=replace(launch, args=("x", "out", "i32:N+9")), **asked).findings
    assert (verdict.code, verdict.source) == ("check-fault", f"{file}:1 in at")


@pytest.mark.skipif(find_spec("triton") is not None, reason="Triton is installed")
def test_a_missing_triton_is_named(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text("import triton\n")
    with pytest.raises(ArgumentError, match=r"k\.py: Triton is not installed"):
        judge(tmp_path / "k.py", np.abs, inputs=lambda seed, sizes: {"x": np.ones(3)})


@pytest.mark.skipif(find_spec("mcp") is None, reason="the package mcp is not installed")
def test_the_server(tmp_path: Path) -> None:
    mcp, stdio = import_module("mcp"), import_module("mcp.client.stdio")
    (tmp_path / "r.py").write_text(FILE)
    (tmp_path / "c.py").write_text(FILE.replace("reference", "candidate"))

    async def ask() -> str:
        command = ["-m", "warploom", "judge", "--mcp"]
        server = mcp.StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
        async with stdio.stdio_client(server) as streams, mcp.ClientSession(*streams) as session:
            await session.initialize()
            asked = {"candidate": str(tmp_path / "c.py"), "reference": str(tmp_path / "r.py"),
                     "options": ["--in", "x=random:f32:9"]}  # fmt: skip
            return (await session.call_tool("judge", asked)).content[0].text

    assert json.loads(asyncio.run(ask()))["passed"] is True


def test_files_outside_the_folder_are_not_written(tmp_path: Path) -> None:
    def writes(x: Any) -> Any:
        with suppress(PermissionError):
            (tmp_path / "kept").write_text("")
        return x + 1

    def starts(x: Any) -> Any:
        subprocess.run(["touch", str(tmp_path / "kept")], check=False, stderr=subprocess.DEVNULL)
        with tempfile.TemporaryFile() as file:
            file.write(b"kept")
        return x + 1

    def cleans(x: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "kept").write_text("")
        return x + 1

    assert judge(cleans, lambda x: x + 1, inputs=["x=random:f32:8"])
    assert judge(writes, lambda x: x + 1, inputs=["x=random:f32:8"]).codes == ["file-written"]
    judge(starts, lambda x: x + 1, inputs=["x=random:f32:8"])
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_functions_of_numpy_are_proven(tmp_path: Path) -> None:
    _, ptx, launch = import_module("judge.candidates").own("f16")
    (tmp_path / "k.ptx").write_text(ptx)
    product = "A.astype(np.float32) @ B.astype(np.float32)"
    import_module("torch._numpy")  # Seconds, which are none of the candidate's.
    (tmp_path / "r.py").write_text(f"import numpy as np\ndef reference(A, B):\n    return {product}\n")
    launch = replace(launch, args=("A", "B", "out"))
    inputs = ["A=random:f16:24x40", "B=random:f16:40x24"]
    verdict = judge(tmp_path / "k.ptx", tmp_path / "r.py", launch=launch, inputs=inputs, seconds=600)
    assert verdict, verdict
    assert verdict.proof is not None
    assert verdict.proof["outcome"] == "proven"
