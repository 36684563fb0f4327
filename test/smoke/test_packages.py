"""The package is `src/warploom`, whose links are the folders of code; its installation is a path that tools follow."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("dialect", "passes", "runtime")


def test_the_package_links_to_every_folder_of_code() -> None:
    package = ROOT / "src" / "warploom"
    links = {path.name: path.resolve() for path in package.iterdir() if path.is_symlink()}
    assert links == {folder: ROOT / folder for folder in ROOMS}
    assert not any(os.readlink(package / folder).startswith("/") for folder in ROOMS)


def test_an_editable_install_is_a_path() -> None:
    """Not a hook that runs when modules are imported, which type checkers and editors cannot follow."""
    code = "import sys, warploom.dialect.isa; print(warploom.__path__[0], *sys.meta_path, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    path, *finders = done.stdout.splitlines()
    if Path(path) != ROOT / "src" / "warploom":
        pytest.skip("warploom is not installed from this checkout")
    assert not any("editable" in finder.lower() for finder in finders)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("module", "told"), [("warploom", "warploom"), ("warploom.passes", "warploom-opt")])
def test_commands_are_modules_too(module: str, told: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{told} ")


def test_every_package_has_an_init() -> None:
    for folder in ROOMS:
        for file in (ROOT / folder).rglob("*.py"):
            assert (file.parent / "__init__.py").exists(), file.parent
