"""Approximate functions of a GPU over whole binades, against the model of `runtime/numerics/approximate.py`.

    bench/with_gpu.sh python3 test/gpu/approximations.py
    bench/with_gpu.sh python3 test/gpu/approximations.py --fit

Prints for each function and some binades, those of its interpolation too, how many of the 2^23 words differ. With
`--fit` it finds c1 and c2 again from the GPU's words, for ex2, rcp, rsqrt and sqrt, and prints how many
segments have exactly one pair, and whether it is the pair of the table.
"""

from __future__ import annotations

import argparse
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warploom.runtime import load_ptx
from warploom.runtime.numerics import approximate
from warploom.runtime.numerics.approximate import Segments

BINADES = {
    "ex2": (0x3F800000, 0xBF800000, 0x3F000000, 0x42000000, 0xC2000000),
    "lg2": (0x3F800000, 0x3F000000),
    "rcp": (0x3F800000, 0xBF800000),
    "rsqrt": (0x3F800000, 0x40000000),
    "sqrt": (0x3F800000, 0x40000000),
    "sin": (0x3F800000, 0x40000000, 0x40800000, 0xC0800000, 0x43000000),
    "cos": (0x3F800000, 0x40000000, 0x40800000, 0xC0800000, 0x43000000),
    "tanh": tuple((127 + power) << 23 for power in range(-9, 4)),
}
TABLES = {
    ("ex2", 0x3F800000): approximate.TABLES["EX2"],
    ("rcp", 0x3F800000): approximate.TABLES["RCP"],
    ("rsqrt", 0x3F800000): approximate.TABLES["RSQRT"],
    ("rsqrt", 0x40000000): approximate.TABLES["RSQRT_ODD"],
    ("sqrt", 0x3F800000): approximate.TABLES["SQRT"],
    ("sqrt", 0x40000000): approximate.TABLES["SQRT_ODD"],
}
FUNCTIONS = approximate.FULL | approximate.FLUSHED
WORDS = 1 << 23


def opcode(name: str) -> str:
    return f"{name}.approx.f32" if name == "tanh" else f"{name}.approx.ftz.f32"


def kernel(name: str) -> str:
    """`k` puts the function of word first + i at place i."""
    return f""".version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 answers, .param .u32 first)
{{
    .reg .b32 %i, %n, %t; .reg .b64 %out, %at; .reg .f32 %x, %y;
    mov.u32 %i, %ctaid.x; mov.u32 %n, %ntid.x; mov.u32 %t, %tid.x; mad.lo.u32 %i, %i, %n, %t;
    ld.param.u64 %out, [answers]; mul.wide.u32 %at, %i, 4; add.s64 %out, %out, %at;
    ld.param.u32 %n, [first]; add.u32 %i, %i, %n; mov.b32 %x, %i;
    {opcode(name)} %y, %x;
    st.global.f32 [%out], %y;
    ret;
}}
"""


def binade(name: str, first: int) -> NDArray[np.uint32]:
    """The GPU's words."""
    got = np.full(WORDS, 0xDEADBEEF, np.uint32)
    load_ptx(kernel(name)).launch("k", (WORDS // 256, 1, 1), (256, 1, 1), [got, first], device="cuda")
    return got


def pairs(words: NDArray[np.int64], square: NDArray[np.float64]) -> list[tuple[float, float]]:
    """All c1 and c2 for which one c0 gives the words of a segment, but the first: rsqrt has exact powers of 4."""
    x = np.arange(words.size) / words.size
    basis = np.stack([np.ones_like(x), x, square], 1)
    _, slope, bend = np.linalg.lstsq(basis, words.astype(np.float64), rcond=None)[0]
    points: list[tuple[float, float]] = []
    for i, j in product((-1, 0, 1), repeat=2):
        c1, c2 = round(slope) + i, (round(2 * bend) + j) / 2
        rest: Any = (words - c1 * x - c2 * square)[1:]
        if rest.max() - rest.min() < 1:
            points.append((c1, c2))
    return points


def fit(words: NDArray[np.uint32], table: Segments) -> tuple[int, int]:
    """How many segments have one pair only, and of how many it is that of the table."""
    bits = 24 - table.c0.size.bit_length()
    square = approximate.squares(bits) / 2.0**15
    segments = [pairs(segment, square) for segment in words.astype(np.int64).reshape(table.c0.size, -1)]
    same = [p == [(c1, c2 / 2)] for p, c1, c2 in zip(segments, table.c1, table.c2, strict=True)]
    return sum(len(p) == 1 for p in segments), sum(same)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true", help="find the coefficients again")
    options = parser.parse_args()
    for name, starts in BINADES.items():
        for first in starts:
            words, arguments = binade(name, first), np.arange(first, first + WORDS, dtype=np.uint32)
            model = np.concatenate([FUNCTIONS[name](part) for part in np.split(arguments, 16)])
            print(f"{name:<6} from {first:#x}: {int((words != model).sum())} of {WORDS} words differ", flush=True)
            if options.fit and (table := TABLES.get((name, first))):
                single, same = fit(words, table)
                print(f"       {single} of {table.c0.size} segments have one pair, {same} that of the table")


if __name__ == "__main__":
    main()
