"""The grid of products in tensor memory (sm_100a): on the interpreter under all checks, and assembled without spills.

    python test/tensor_grid.py                 # all of it: hours on one core
    python test/tensor_grid.py --every 40 --first 3      # one case of 40 of each group
    python test/tensor_grid.py --draw 40 --seed 7        # 40 of all cases, with operands of that seed

Dense products of every type and form, alone, in pairs of CTAs and of dynamic sizes; with a sparse A; of narrow floats;
with scales of blocks; of numbers of rows that only a call has; attention. Results are held against float64. For each
group a line says how many cases are right, and each reason why others are declined. Exit 1 if anything is wrong.
`unit/test_tensor_products.py` runs a sample.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from attention_problems import problem as problem_of
from attentions import Attention
from problems import problem
from products import LIES, TYPES, Product, of_warpgroups

from warploom.dialect.isa.form import Shape
from warploom.dialect.warp.operands import METADATA_ROWS
from warploom.runtime import CompileError, Kernel, compile
from warploom.runtime.cuda import ptxas

TARGET, OUTSIDE = "sm_100a", "outside of the bound"


class Case(NamedTuple):
    """A kernel, and what is wrong with a run of it; "" if nothing."""

    group: str
    name: str
    compile: Callable[[], Kernel]
    run: Callable[[Kernel], str]


def of_lanes(of: Product, *, paired: bool = False) -> Product:
    """The product in tiles of all lanes of tensor memory, half of whose columns each warpgroup has; `paired` in
    those of two CTAs."""
    (m, n, _), shape = of.schedule["cta"], Shape.parse(of.schedule["mma"])
    if m < 128:
        return of
    schedule = {**of.schedule, "mma": f"m128n{n // 2}k{shape.k}"}
    if paired:
        schedule |= {"cluster": (2, 1), **({"ctas": 4} if "ctas" in schedule else {})}
    return replace(of, schedule=schedule)


def _run(of: Product, seed: int) -> Callable[[Kernel], str]:
    def run(kernel: Kernel) -> str:
        instance = problem(of, seed)
        kernel(*instance.arguments, device="interp", checks="all")
        return instance.wrong()

    return run


def _dense() -> Iterator[tuple[str, Product]]:
    every = [p for p in of_warpgroups() if not p.sparse and "in f16" not in str(p)]
    yield from (("dense", of_lanes(each)) for each in every)
    yield from (("pairs", of_lanes(each, paired=True)) for each in every if each.schedule["cta"][0] >= 128)
    for types, lies in product(TYPES, LIES):
        if (types.bits == 16 or (types.bits, lies) == (32, "A Bt")) and types.accumulate != "f16":
            k = 256 // types.bits
            tile = {"cta": (128, 128, 4 * k), "mma": f"m128n64k{k}"}
            yield "dynamic", Product(types, "divisible", lies, (136, 208, 80), tile)


def _sparse() -> Iterator[tuple[str, Product]]:
    for number, each in enumerate(of_warpgroups()):
        if each.sparse and "in f16" not in str(each):
            k = 512 // each.types.bits
            tile = {"cta": (128, 64, 4 * k), "mma": f"m128n32k{k}", "ctas": 2 * (number % 2)}
            yield "sparse", replace(each, schedule=tile | ({"cluster": (2, 1)} if number % 3 == 0 else {}))


def _sparse_rows(seed: int) -> Iterator[Case]:
    """Products of a sparse A with any number of rows, compiled for one size and run with two."""
    for of in {each.types: each for _, each in _sparse()}.values():
        (m, n, k), rows = of.size, -(-of.size[0] // METADATA_ROWS)
        text = re.sub(rf"memref<(?:{m}(x\d+x\w+)|{rows}(x\d+xi32))>", r"memref<?\1\2>", of.mlir)
        schedule = {name: value for name, value in of.schedule.items() if name != "ctas"}
        for run in (replace(of, size=(size, n, k)) for size in (m, 37)):
            make = partial(compile, text, TARGET, tf32=True, **schedule)
            yield Case("sparse rows", f"{run.size[0]} of {of}", make, _run(run, seed))


ATTENTIONS = (
    (Attention((150, 90, 64, 64), "bf16", causal=-131), {"ctas": 3}),
    (Attention((130, 150, 128, 128), batch=(1, 2), shared=("b1",), softmax="behind"), {}),
    (Attention((140, 90, 64, 80), "bf16", (), mask=("m", "n"), function="softcap", dynamic=True), {}),
    (Attention((66, 70, 200, 256), "bf16", (2,), lengths=True), {}),
    (Attention((70, 152, 64, 64), batch=(1,), window=20, causal=40, turned=True, on_memory=True), {"ctas": 0}),
)
"""Of queries that no key counts for, of one and of two warpgroups, of each size of heads, and of what is not known."""


def _attention(asked: Attention, schedule: dict[str, Any], seed: int) -> Case:
    def run(kernel: Kernel) -> str:
        instance = problem_of(asked, seed)
        kernel(*instance.arguments, device="interp", checks="all")
        return instance.wrong()

    return Case("attention", f"{asked}, {schedule}", partial(asked.compile, TARGET, **schedule), run)


def _of_kinds() -> Iterator[Case]:
    """Products whose operands name a kind: narrow floats, and scales of blocks."""
    sys.path.append(str(Path(__file__).parent / "unit"))
    narrow: Any = import_module("test_narrow_products")
    forms: Any = import_module("test_scaled_products").FORMS
    sizes = ((130, 150, 300), (272, 144, 256), (37, 53, 200))
    tiles: tuple[dict[str, Any], ...] = ({}, narrow.PAIRED, {})
    for (a, b), (size, tile) in product(narrow.PAIRS, zip(sizes, tiles, strict=True)):
        yield Case("narrow", f"{a} {b} {size}", partial(compile, narrow.matmul(size, a, b), TARGET, **tile),
                   lambda kernel, a=a, b=b, s=size: "" if narrow.within(kernel, s, a, b) else OUTSIDE)  # fmt: skip
    for form, size in product(forms, ((130, 150, 384), (37, 53, 384))):
        yield Case("scaled rows", f"{form} {size}", partial(compile, form.of_any_rows((160, 96, 384)), TARGET),
                   lambda kernel, f=form, s=size: "" if f.within(kernel, s) else OUTSIDE)  # fmt: skip
    for form, size in product(forms, sizes):
        yield Case("scales", f"{form} {size}", partial(compile, form.text(size), TARGET),
                   lambda kernel, f=form, s=size: "" if f.within(kernel, s) else OUTSIDE)  # fmt: skip


def cases(seed: int = 3) -> Iterator[Case]:
    """All of the grid, group after group, with operands of a seed."""
    for group, each in (*_dense(), *_sparse()):
        if each.legal:
            yield Case(group, str(each), partial(each.compile, TARGET), _run(each, seed))
    yield from _sparse_rows(seed)
    yield from _of_kinds()
    yield from (_attention(*each, seed) for each in ATTENTIONS)


def wrong(case: Case) -> str:
    """What is wrong with a case; "" if nothing.

    Raises:
        CompileError: if it is declined.
    """
    kernel = case.compile()
    if "tcgen05.mma" not in kernel.ptx or "mma.sync" in kernel.ptx:
        return "it is multiplied by mma.sync"
    if spilt := [name for name, each in ptxas.assemble(kernel.ptx, TARGET).items() if each.spills]:
        return f"spills in {', '.join(spilt)}"
    return case.run(kernel)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="of how many cases of a group one is run")
    parser.add_argument("--first", type=int, default=0, help="the first of these")
    parser.add_argument("--group", default="", help="only this group")
    parser.add_argument("--draw", type=int, default=0, help="how many cases are drawn; all, if not given")
    parser.add_argument("--seed", type=int, default=3, help="what they are drawn by, and what operands come from")
    parser.add_argument("--list", action="store_true", help="print what is right, too")
    options = parser.parse_args()
    seen, run, right = Counter[str](), Counter[str](), Counter[str]()
    declined, failed = Counter[tuple[str, str]](), 0
    every = list(cases(options.seed))
    drawn = set(random.Random(options.seed).sample(range(len(every)), options.draw or len(every)))
    for case in (each for number, each in enumerate(every) if number in drawn):
        number, seen[case.group] = seen[case.group], seen[case.group] + 1
        if number % options.every != options.first or options.group not in ("", case.group):
            continue
        run[case.group] += 1
        try:
            message = wrong(case)
        except CompileError as error:
            declined[case.group, str(error).partition("error: ")[2] or str(error)] += 1
            continue
        right[case.group] += not message
        if options.list and not message:
            print(f"{case.group}: {case.name}: right", flush=True)
        if message:
            failed += 1
            print(f"{case.group}: {case.name}: {message}", flush=True)
    for group in seen:
        print(f"{group}: {right[group]} of {run[group]} right, of {seen[group]} that there are")
        for (of, reason), count in declined.items():
            if of == group:
                print(f"  {count} declined: {reason}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
