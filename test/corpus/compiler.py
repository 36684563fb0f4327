"""Prints where nvcc lies: that of the Python environment this runs in, else the one on PATH."""

import shutil
import sysconfig
from pathlib import Path

packaged = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin" / "nvcc"
print(packaged if packaged.exists() else shutil.which("nvcc") or "")
