"""The wheel packs every folder of code: setuptools' list is written by hand because of the mapping."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_package_is_listed() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {
        file.parent.relative_to(ROOT)
        for room in ("dialect", "passes", "runtime")
        for file in (ROOT / room).rglob("*.py")
    }
    assert sorted(listed) == sorted(f"warploom.{'.'.join(folder.parts)}" for folder in folders)


def test_every_package_has_an_init() -> None:
    for room in ("dialect", "passes", "runtime"):
        for file in (ROOT / room).rglob("*.py"):
            assert (file.parent / "__init__.py").exists(), file.parent
