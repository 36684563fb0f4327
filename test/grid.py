"""The grid: products of every type and form, however A and B lie, at sizes from 1 to 300, on the interpreter.

    python test/grid.py                  # every (type, form, way to lie) at five sizes: an hour on one core
    python test/grid.py --sizes 1 --seed 7

Results are held against numpy: floats against float64 within the bound that `problems.py` states, integers exactly; and
nothing may be written beside C. What is wrong is printed as it is found; exit 1 if anything was. `unit/test_grid.py`
runs a sample.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import numpy as np
from problems import problem
from products import FORMS, LIES, TYPES, Product, Size, fitted

from warploom.runtime import WarploomError

SIZES: tuple[Size, ...] = (
    (1, 1, 1),
    (5, 130, 0),
    (16, 8, 16),
    (300, 3, 7),
    (1, 300, 299),
    (33, 17, 45),
    (64, 64, 64),
    (97, 255, 31),
    (128, 72, 200),
    (129, 257, 65),
    (250, 150, 100),
    (300, 300, 300),
)
"""(m, n, k): odd ones, no multiples of any tile, an empty sum, and some that fit."""

TARGETS = ("sm_90a", "sm_80", "sm_120a", "sm_89")
"""The targets, which go round; where one lacks the instruction, the next one."""


def cases(sizes: int, seed: int = 0) -> Iterator[tuple[Product, str]]:
    """Every type and form and way to lie at some of the sizes and at as many drawn at random, each with a target."""
    random = np.random.default_rng(seed)
    turn = seed
    for types in TYPES:
        for form in FORMS:
            for lies in LIES:
                for _ in range(sizes):
                    drawn: Size = (*random.integers(1, 301, 3).tolist(),)
                    product = fitted(types, form, lies, SIZES[turn % len(SIZES)] if turn % 2 else drawn)
                    target = next((t for t in TARGETS[turn % 4 :] + TARGETS if product.runs_on(t)), None)
                    if product.legal and target is not None:
                        yield product, target
                    turn += 1


def wrong(product: Product, target: str, seed: int = 0) -> str:
    """What is wrong with a product on the interpreter; "" if nothing."""
    try:
        kernel, instance = product.compile(target), problem(product, seed)
        kernel(*instance.arguments, device="interp")
    except WarploomError as error:
        return f"{type(error).__name__}: {error}"
    return instance.wrong()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, default=5, help="of each type, form and way to lie")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    count = failed = 0
    for product, target in cases(options.sizes, options.seed):
        problem_found = wrong(product, target, options.seed)
        count += 1
        if problem_found:
            failed += 1
            print(f"{product} on {target}: {problem_found}", flush=True)
    print(f"{count} products, {failed} of them wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
