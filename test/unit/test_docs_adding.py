"""docs/adding-an-instruction.md: what it shows is what happens, with its row and without."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "adding-an-instruction.md").read_text()
ROW = '        (Shape(16, 8, 16), (7, 8), 90, "9.7.14.5.8"),\n'


def block(language: str, number: int = 0) -> str:
    """A code block of the page."""
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)[number]


@pytest.fixture(scope="module")
def without_the_row(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page's files, and in `package` a copy of ours that lacks the row."""
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(
        ROOT / "src" / "warploom", folder / "package" / "warploom", ignore=shutil.ignore_patterns("__pycache__")
    )
    rows = folder / "package" / "warploom" / "dialect" / "isa" / "mma.py"
    assert ROW in rows.read_text()
    rows.write_text(rows.read_text().replace(ROW, ""))
    (folder / "f64.ptx").write_text(block("ptx"))
    (folder / "k.mlir").write_text(block("mlir"))
    return folder


def run(folder: Path, module: str, *words: str, package: Path | None = None) -> str:
    """What a command prints; `package` is where warploom is imported from."""
    code = f"import sys; from {module} import main; sys.argv[0] = 'x'; sys.exit(main())"
    environment = {**os.environ, **({"PYTHONPATH": str(package)} if package else {})}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


CHECK, OPT = "warploom.runtime.cli.command", "warploom.passes.opt"


def test_without_the_row(without_the_row: Path) -> None:
    here = without_the_row
    refused = run(here, CHECK, "check", "f64.ptx", package=here / "package")
    assert f"$ warploom check f64.ptx\n{refused}" == block("text")
    result = run(here, OPT, "k.mlir", package=here / "package")
    assert block("text", 3).strip() in result


def test_with_the_row(without_the_row: Path) -> None:
    here = without_the_row
    assert ROW.rstrip("\n") in block("python")
    assert run(here, CHECK, "check", "f64.ptx") == ""
    assert f"$ warploom check f64.ptx --target sm_80\n{run(here, CHECK, 'check', 'f64.ptx', '--target', 'sm_80')}" == (
        block("text", 1)
    )
    ptx = run(here, OPT, "k.mlir", "-p", "convert-warp-to-ptx", "-t", "ptx")
    assert block("text", 2).splitlines()[1] in ptx.splitlines()
