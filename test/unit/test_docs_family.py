"""docs/adding-a-family.md: with the files and lines that it shows, everything it says is so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from doc_commands import ROOT, Block, blocks

PAGE = ROOT / "docs" / "adding-a-family.md"
ROOMS = ("dialect", "passes", "runtime")
WALK = "import sys, pathlib, doc_commands; print(doc_commands.walk(pathlib.Path(sys.argv[1]).read_text(), {}))"


def patched(text: str, patch: str) -> str:
    """A text with the lines of a patch added and removed, at the one place where its other lines stand."""
    lines = patch.splitlines(keepends=True)
    before, after = ("".join(line[1:] for line in lines if line[0] in (" ", sign)) for sign in "-+")
    assert text.count(before) == 1, f"expected once:\n{before}"
    return text.replace(before, after)


def install(block: Block, package: Path) -> None:
    """Adds a file, or lines to one."""
    path = package / block.name
    if block.language == "diff":
        path.write_text(patched(path.read_text(), block.text))
    else:
        assert not path.exists()
        path.write_text(block.text)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the family in it, to be put on the path."""
    folder = tmp_path_factory.mktemp("family")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src" / "warploom", folder / "package" / "warploom", ignore=ignored)
    for block in blocks(PAGE.read_text()):
        if block.name.startswith(ROOMS):
            install(block, folder / "package" / "warploom")
    return folder / "package"


def test_the_family_works(package: Path, tmp_path: Path) -> None:
    rest = "".join(
        f"```{block.language} {block.name}\n{block.text}```\n"
        for block in blocks(PAGE.read_text())
        if not block.name.startswith(ROOMS)
    )
    (tmp_path / "page.md").write_text(rest)
    done = subprocess.run(
        [sys.executable, "-c", WALK, "page.md"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{ROOT / 'test'}", "WARPLOOM_CACHE": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "7"
