"""The schedules that are chosen for many products, to compare two versions of what chooses them.

    python test/schedule_choices.py > before.txt   # then change something, and
    python test/schedule_choices.py | diff before.txt -

The products are those of `bench/shapes.txt` and `bench/odd.txt` on several targets, and a draw of sizes, types, forms
and targets, half of them with a field of the schedule that is asked for. Where there is no schedule, its error is
printed. It takes a minute.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

from products import FORMS, LIES, TYPES, Product, Types

from warploom.dialect.isa.row import TARGETS
from warploom.dialect.warp.attributes import ScheduleAttr
from warploom.passes.diagnostics import LocatedError
from warploom.passes.pipeline import PARTS, lower, standard_pipeline
from warploom.passes.universe import make_context, parse_mlir

BENCH = Path(__file__).parents[1] / "bench"

DRAWN, LARGEST = 600, 16384

PLACES = (("A Bt", "sm_90a"), ("A B", "sm_90a"), ("A Bt", "sm_80"), ("A B", "sm_120a"), ("A Bt", "sm_89"))
"""How operands of the benchmarks lie, and their targets."""

ASKED: tuple[Mapping[str, str | int], ...] = (
    {"stages": 2}, {"stages": 6}, {"cta": "128,128,64"}, {"cta": "64,64,64", "warp": "32,32"}, {"mma": "m64n128k16"},
    {"mma": "m16n8k16"}, {"sliced_k": 2}, {"split_k": 4}, {"unroll": 4}, {"ctas": 66}, {"staging": 0},
    {"promote": "none"}, {"cluster": "2,1"}, {"in_registers": "b"}, {"transpose": "ab"}, {"pack": "ab"},
)  # fmt: skip
"""Fields that are asked for."""

Case = tuple[Product, str, Mapping[str, str | int]]


def chosen(product: Product, target: str, asked: Mapping[str, str | int]) -> str:
    """The schedules of a function, or why it has none."""
    ctx = make_context()
    module = parse_mlir(ctx, product.mlir)
    pipeline = standard_pipeline(target, asked, tf32=product.types.a == "f32")
    try:
        lower(module, ctx, PARTS["schedule"].of(pipeline))
    except LocatedError as error:
        return str(error)
    attributes = (op.attributes.get(ScheduleAttr.name) for op in module.walk())
    return " | ".join(str(attribute) for attribute in attributes if attribute is not None)


def measured() -> Iterator[Case]:
    """The products of the benchmarks."""
    for file in ("shapes.txt", "odd.txt"):
        for line in (BENCH / file).read_text(encoding="utf-8").splitlines():
            if line.strip() and not line.startswith("#"):
                m, n, k = map(int, line.split()[:3])
                for lies, target in PLACES:
                    yield Product(Types("bf16", "bf16", "bf16"), "cleared", lies, (m, n, k)), target, {}


def drawn(draw: random.Random) -> Iterator[Case]:
    """Products of sizes whose logarithms are uniform, multiples of 1, 8, 16 or 64."""
    while True:
        step = draw.choice((1, 8, 16, 64))
        m, n, k = (-(-round(2 ** draw.uniform(0, math.log2(LARGEST))) // step) * step for _ in "mnk")
        product = Product(draw.choice(TYPES), draw.choice(FORMS), draw.choice(LIES), (m, n, k))
        target = draw.choice(("sm_90a", *TARGETS))
        if product.legal and product.runs_on(target):
            accumulate = {"accumulate": product.types.accumulate} if product.types.accumulate else {}
            yield product, target, accumulate
            yield product, target, {**accumulate, **draw.choice(ASKED)}


def main() -> None:
    draws = drawn(random.Random(0))
    for product, target, asked in (*measured(), *(next(draws) for _ in range(DRAWN))):
        print(f"{product} on {target} {dict(asked)}: {chosen(product, target, asked)}", flush=True)


if __name__ == "__main__":
    main()
