"""The wheel packs every folder of code: setuptools' list is written by hand because of the mapping."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ITSELF = Path("runtime/root")
"""The folder of the package around all others."""


def test_every_package_is_listed() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {
        file.parent.relative_to(ROOT)
        for room in ("dialect", "passes", "runtime")
        for file in (ROOT / room).rglob("*.py")
    }
    names = ["warploom" if folder == ITSELF else f"warploom.{'.'.join(folder.parts)}" for folder in folders]
    assert sorted(listed) == sorted(names)


@pytest.mark.parametrize(("module", "told"), [("warploom", "warploom"), ("warploom.passes", "warploom-opt")])
def test_commands_are_modules_too(module: str, told: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{told} ")


def test_every_package_has_an_init() -> None:
    for room in ("dialect", "passes", "runtime"):
        for file in (ROOT / room).rglob("*.py"):
            assert (file.parent / "__init__.py").exists(), file.parent
