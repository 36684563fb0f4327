"""Replays dot products that others recorded on V100, A100, A2, Ada, L40S, H100, H200 and B200, and counts differences.

    git clone https://github.com/north-numerical-computing/MATLAB-tensor-core
    python test/public_words.py MATLAB-tensor-core

The data (BSD 2-Clause) is read from the clone and not kept here: for each GPU and format 5000 rows of A and B, with C
and the GPU's D. `d_H100_fp32.txt` and `d_H200_fp32.txt` of 8-bit floats are sums of `wgmma` with C = 0 (blocks of 32
products, 13 bits), which `mma` does not compute; they are replayed with those parameters.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from warploom.dialect.isa import mma
from warploom.dialect.isa.mma import Mma
from warploom.runtime.interp import arithmetic
from warploom.runtime.numerics.product import MatrixProduct

Array = NDArray[Any]

TARGETS = {"V100": "sm_70", "A100": "sm_80", "A2": "sm_86", "Ada": "sm_89", "L40S": "sm_89", "H100": "sm_90",
           "H200": "sm_90", "B200": "sm_100"}  # fmt: skip
TYPES = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32", "E4M3": "e4m3", "E5M2": "e5m2"}
SMALL: dict[str, Any] = {"f16": np.float16, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


def encoded(words: Array, type: str) -> Array:
    """f32 words as words of a type, in which they are exact but for C."""
    if type in ("tf32", "f32"):
        return words
    if type == "bf16":
        return (words >> 16).astype(np.uint16)
    values = words.view(np.float32).astype(SMALL[type])
    return values.view(f"u{values.itemsize}")


def rows_of(path: Path) -> Array:
    """Rows of f32 words in hexadecimal."""
    return np.array([[int(w, 16) for w in line.split()] for line in path.read_text().split("\n") if line], np.uint32)


def words_of(path: Path) -> Array:
    """f32 words in binary, one a line."""
    return np.array([int(line, 2) for line in path.read_text().split()], np.uint32)


def row_for(type: str, sums: str, depth: int) -> Mma:
    """The m16n8 instruction whose k is the least that holds `depth` products."""
    rows = [r for r in mma.rows() if (r.a.name, r.b.name, r.c.name, r.d.name) == (type, type, sums, sums)]
    return min((r for r in rows if r.shape.m == 16 and r.shape.k >= depth and not r.kind), key=lambda r: r.shape.k)


def differences(path: Path) -> tuple[int, int]:
    """How many words of one file differ, and how many there are."""
    gpu, type = path.parts[-3], TYPES[path.parts[-2]]
    sums = "f32" if path.stem.endswith("fp32") else "f16"
    suffix = f"{gpu}_{path.parts[-2]}.txt"
    a, b = (encoded(rows_of(path.with_name(f"{x}_{suffix}")).T, type) for x in "ab")
    c, d = encoded(words_of(path.with_name(f"c_{gpu}_fp32.txt")), sums), words_of(path)
    row = row_for(type, sums, len(a))
    core = arithmetic(TARGETS[gpu], row)
    if gpu in ("H100", "H200") and row.a.bits == 8 and sums == "f32":
        c = np.zeros_like(c)
        core = replace(arithmetic("sm_89", row), block=32, zero_exponent=core.zero_exponent)
    pad = [(0, row.shape.k - len(a)), (0, 0), (0, 0)]
    left, right = (np.pad(x[:, None], pad) for x in (a, b))
    got = MatrixProduct(row, core)(left, right, c[None, None])[0, 0]
    if sums == "f16":
        got = got.view(np.float16).astype(np.float32).view(np.uint32)
    return int((got != d).sum()), d.size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=Path)
    files = sorted((parser.parse_args().clone / "model_validation").glob("*/*/d_*.txt"))
    if not files:
        sys.exit("error: no model_validation/*/*/d_*.txt there; expected a clone of MATLAB-tensor-core")
    wrong, counts = 0, Counter[str]()
    for path in files:
        bad, count = differences(path)
        wrong += bad
        counts[path.parts[-3]] += count
        print(f"{'/'.join(path.parts[-3:]):32} {bad} of {count} differ")
    each = ", ".join(f"{count} of {gpu}" for gpu, count in counts.items())
    print(f"{counts.total()} words ({each}), {wrong} differ")
    sys.exit(f"error: {wrong} words differ" if wrong else 0)


if __name__ == "__main__":
    main()
