"""Runs the launch that `driver.c` wrote to a folder, on the interpreter under all checks.

WARPLOOM_FOLDER=... python launched.py
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from warploom.runtime import load_ptx

folder = Path(os.environ["WARPLOOM_FOLDER"])
(name, *sizes), *arguments = (line.split() for line in (folder / "launch").read_text().splitlines())
memories = {p: np.fromfile(p, np.uint8) for p in sorted(folder.glob("memory*"))}
passed = [
    memories[folder / f"memory{words[0]}"][int(words[1]) :] if kind == "memory" else int(words[0])
    for kind, *words in arguments
]
*grid_and_block, shared = map(int, sizes)
grid, block = tuple(grid_and_block[:3]), tuple(grid_and_block[3:])
ptx = (folder / "kernels.ptx").read_text()
load_ptx(ptx).launch(name, grid, block, passed, shared, "interp", checks="all")
for path, memory in memories.items():
    memory.tofile(path)
