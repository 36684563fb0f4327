"""A package that adds passes, a pattern, a lowering, a model, a row, its meaning and a check, by entry points.

It is built as a wheel and unpacked to a folder of its own, where another process finds it as installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

PLUGIN = Path(__file__).parents[1] / "data" / "plugin"


def test_an_installed_package_adds_one_of_everything(tmp_path: Path) -> None:
    # as pip calls it, without pip, which takes longer to start than the wheel to be made
    build = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    copy = tmp_path / "source"
    subprocess.run(["cp", "-r", PLUGIN, copy], check=True)
    subprocess.run([sys.executable, "-c", build, tmp_path], cwd=copy, check=True, capture_output=True)
    zipfile.ZipFile(next(tmp_path.glob("*.whl"))).extractall(tmp_path / "installed")
    path = os.pathsep.join([str(tmp_path / "installed"), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "WARPLOOM_CACHE": "off"}
    done = subprocess.run(
        [sys.executable, PLUGIN / "use.py"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
