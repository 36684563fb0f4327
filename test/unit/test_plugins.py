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
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--no-index"]
    copy = tmp_path / "source"
    subprocess.run(["cp", "-r", PLUGIN, copy], check=True)
    subprocess.run([*wheel, "--wheel-dir", tmp_path, copy], check=True, capture_output=True)
    zipfile.ZipFile(next(tmp_path.glob("*.whl"))).extractall(tmp_path / "installed")
    path = os.pathsep.join([str(tmp_path / "installed"), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "WARPLOOM_CACHE": "off"}
    done = subprocess.run(
        [sys.executable, PLUGIN / "use.py"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
