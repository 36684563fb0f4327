"""The grid of attentions: forms of `attentions.py` drawn at random, at sizes from 1 to 300, on the interpreter.

    python test/attention_grid.py --count 500 --seed 7
    python test/attention_grid.py --count 50 --checks all       # races, data that nobody wrote, and the like

Results are held against float64 within the bound of `attention_problems.py`. What is wrong is printed as it is found;
exit 1 if anything was. `unit/test_attention.py` runs a sample.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from attention_problems import wrong
from attentions import SOFTMAXES, Attention

WIDTHS = (64, 128, 256, 32, 40, 72, 80, 96, 7, 1, 200)
"""Columns of Q and K, and of V."""

TARGETS = ("sm_80", "sm_90a", "sm_100a", "sm_120a", "sm_89")


def cases(count: int, seed: int = 0, limit: int = 300) -> Iterator[tuple[Attention, str]]:
    """Attentions with a target for each: half of those with one query row have a long K and V."""
    random = np.random.default_rng(seed)
    for turn in range(count):
        m, n = (int(size) for size in random.integers(1, limit + 1, 2))
        d = int(random.choice(WIDTHS))
        e = d if random.random() < 0.7 else int(random.choice(WIDTHS))
        batch = ((), (2,), (2, 3), (1, 2, 2))[int(random.integers(4))]
        loops = [f"b{i}" for i in range(len(batch))]
        shared = tuple(loop for loop in loops if random.random() < 0.25)
        masked = [loop for loop in (*loops, "m", "n") if random.random() < 0.5]
        asked = Attention(
            (1 if random.random() < 0.1 else m, n, d, e),
            str(random.choice(["f16", "bf16"])),
            batch,
            shared,
            tuple(random.permutation(masked).tolist()) if random.random() < 0.4 else None,
            int(random.integers(-m, n + 1)) if random.random() < 0.4 else None,
            ("", "", "softcap", "alibi")[int(random.integers(4))],
            SOFTMAXES[turn % len(SOFTMAXES)],
            bool(random.random() < 0.3),
            bool(random.random() < 0.3),
            bool(random.random() < 0.3),
            window=int(random.integers(n)) if random.random() < 0.2 else None,
            lengths=bool(batch) and random.random() < 0.2,
            documents=random.random() < 0.15,
            sinks=str(random.choice(["max", "start", "sum"])) if batch and random.random() < 0.2 else "",
        )
        if asked.softmax in ("named", "base 2"):
            asked = replace(asked, sinks="")
        rows, plain = 16 << int(random.integers(3)), not (asked.turned or asked.dynamic or asked.on_memory)
        if batch and "b0" not in shared and plain and random.random() < 0.5:
            asked = replace(asked, pages=rows, size=(asked.size[0], -(-n // rows) * rows, d, e))
        yield asked, TARGETS[turn % len(TARGETS)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checks", default="", help="what the interpreter looks for besides, such as all")
    options = parser.parse_args()
    failed = 0
    for asked, target in cases(options.count, options.seed):
        if difference := wrong(asked, target, options.seed, options.checks):
            failed += 1
            print(f"{asked} on {target}: {difference}", flush=True)
    print(f"{options.count} attentions, {failed} of them wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
