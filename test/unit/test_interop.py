"""The page on upstream's dialects: a product through upstream's tools at three levels, by the commands of the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from upstream import ABSENT, mlir_opt, tool

from warploom.runtime import compile, load_ptx

ROOT = Path(__file__).parents[2]
COMMANDS = re.findall(r"```shell\n(.*?)```", (ROOT / "docs" / "interop.md").read_text(encoding="utf-8"), re.DOTALL)
TOOLS = ("mlir-opt", "mlir-translate", "llc")


def printed(command: str, tmp_path: Path) -> str:
    """What a command of the page prints, the programs of LLVM under the names that the page has."""
    for name in TOOLS:
        (tmp_path / name).symlink_to(tool(name) or name)
    path = os.pathsep.join((str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]))
    text = f"set -o pipefail\n{command}"
    done = subprocess.run(
        ["bash", "-c", text], cwd=ROOT, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_has_a_command_for_each_level() -> None:
    assert ["-t upstream" in c for c in COMMANDS] == [True, False, False]
    assert ["nvvm" in c for c in COMMANDS] == [False, True, True]


@pytest.mark.skipif(mlir_opt() is None, reason=ABSENT)
def test_a_product_through_mlir_opt_twice_is_the_same_ptx(tmp_path: Path) -> None:
    assert printed(COMMANDS[0], tmp_path) == compile(str(ROOT / "examples" / "matmul.mlir")).ptx


@pytest.mark.skipif(mlir_opt() is None, reason=ABSENT)
def test_mlir_opt_compiles_nvvm(tmp_path: Path) -> None:
    text = printed(COMMANDS[1], tmp_path)
    assert "gpu.binary @kernels" in text
    assert "wgmma.mma_async" in text or "mma.sync" in text


@pytest.mark.skipif(tool("llc") is None, reason=f"{ABSENT}, with llc")
def test_llc_compiles_nvvm(tmp_path: Path) -> None:
    module = load_ptx(printed(COMMANDS[2], tmp_path))
    assert [*module.syntax.functions] == ["matmul"]
