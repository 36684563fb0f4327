"""All orders of the warps of our own pipelines: each pinned kernel that synchronises decides the same in all of them.

    python test/orders.py                    # all pinned kernels
    python test/orders.py --pairs            # any two values of the fields of a schedule, together
    python test/orders.py --every 4          # some
    python test/orders.py --draw 3           # by three drawn orders each, whose words are compared

The kernels run by `--check=all-orders` at the sizes of `pins.py`, and their results are compared with float64. The
table at the end groups them by what waits in their PTX. Those of pairs are small products and attentions in which two
fields of the schedule differ from a base; what the compiler refuses is counted. Where a check has nothing to prove by,
or as a second opinion, `drawn_order` lets warps take turns of drawn lengths, and copies land at drawn times.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from itertools import combinations
from multiprocessing import Pool
from typing import Any
from unittest.mock import patch

import numpy as np
from attentions import Attention
from pins import BF16, Level, Pinned, pinned
from products import Product

from warploom.dialect.schedule.schedule import ATTENTION, FRAGMENTS, WARPGROUPS, Schedule
from warploom.runtime import WarploomError
from warploom.runtime.interp.machine.events import LANES
from warploom.runtime.interp.machine.machine import Machine
from warploom.runtime.numerics.floats import Array

CHECK = "all-orders"
REFUSED = "refused"

BASES: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    "fragments": (FRAGMENTS, "sm_80", {"cta": (64, 64, 32), "warp": (32, 32), "stages": 3}),
    "warpgroups": (WARPGROUPS, "sm_90a", {"cta": (128, 64, 64), "warp": (64, 64), "mma": "m64n64k16", "stages": 3}),
    "tensor memory": (WARPGROUPS, "sm_100a", {"cta": (128, 64, 64), "mma": "m128n64k16", "stages": 3}),
    "pairs of CTAs": (
        WARPGROUPS, "sm_100a", {"cta": (128, 128, 64), "mma": "m128n64k16", "cluster": (2, 1), "stages": 3}),
    "attention": (ATTENTION, "sm_80", {}),
    "attention by warpgroups": (ATTENTION, "sm_90a", {}),
}  # fmt: skip
"""Pipelines: what they compute by, what they are compiled for, and the schedule that pairs of fields are changed in."""
VALUES: Mapping[str, tuple[Any, ...]] = {
    "stages": (1, 2), "sync": ("barrier", "mbarrier"), "prefetch": (1,), "unroll": (3,), "ctas": (2,), "split_k": (2,),
    "sliced_k": (2,), "staging": (0, 16), "pack": ("ab",), "edges": ("predicated",), "consumers": ("pingpong",),
    "cluster": ((2, 1), (2, 2)), "transpose": ("ab",), "padded": ("d",), "in_registers": ("a", "b"),
    "multiplied": ("ba",), "partial_sums": ("cluster",),
}  # fmt: skip
"""What fields are changed to."""
ALONE: Mapping[str, tuple[Any, ...]] = {
    "add_c": ("first", "last"), "batch_invariant": ("True",), "access": (4, 8), "swizzle": (16, 32, 64),
    "order": ("rows",), "group": (1,), "stages": (4,), "prefetch": (2,), "split_k": (3,), "cluster": ((1, 2),),
    "pack": ("a", "b"), "transpose": ("a", "b"), "registers": (64,),
}  # fmt: skip
"""What is tried by itself only: fields that change addresses and not what waits for what, and further values."""
TYPED = ("cta", "warp", "mma", "accumulate", "fp8_as", "promote")
"""Fields that follow from the base, or that other types of elements have."""


TURNS = (1, 3, 20, 200)
"""For how many instructions warps run, until others are drawn."""
LANDS = 0.1
"""How often what is in flight lands before a turn, or threads that wait at an mbarrier go on in vain."""


@contextmanager
def drawn_order(seed: int) -> Iterator[None]:
    """Launches on the interpreter in which a draw chooses the warps that run next, of all CTAs in flight, and for how
    many instructions; and when copies and products in flight are done, in the order of their issue."""
    random = np.random.default_rng(seed)
    choose, advance = (vars(Machine)[name] for name in ("_next", "_advance"))

    def land(machine: Machine) -> None:
        state = machine.state
        for happen in (state.mbarriers.settle, state.mbarriers.give_up):
            if random.random() < LANDS:
                happen()
        for groups in (state.copies, state.bulk_groups, state.warpgroups):
            if groups.pending and random.random() < LANDS:
                groups.complete(None, groups.pending[0].serial + int(random.integers(1, 1 + len(groups.pending))))

    def next_warps(machine: Machine, tired: bool) -> tuple[int, Array] | None:
        land(machine)
        flow = machine.flow
        if tired or not flow.ready:
            if (group := choose(machine, tired)) is None:
                return None
            flow.go(*group)
        pc = int(random.choice(list(flow.ready)))
        mask = flow.ready.pop(pc)
        warps = np.flatnonzero(mask.reshape(LANES, -1).any(axis=0))
        some = random.permutation(warps)[: random.integers(1, warps.size + 1)]
        mine = mask & np.isin(np.arange(mask.size) % (mask.size // LANES), some)
        if (rest := mask & ~mine).any():
            flow.go(pc, rest)
        return pc, mine

    def turn(machine: Machine, pc: int, mask: Array, budget: int = 0) -> bool:
        return advance(machine, pc, mask, budget or int(random.choice(TURNS)))

    with patch.object(Machine, "_next", next_warps), patch.object(Machine, "_advance", turn):
        yield


def pairs(only: str = "") -> Iterator[Pinned]:
    """Small kernels, several tiles and part of one in each direction, with any two values of the fields together."""
    missing = {one.name for one in fields(Schedule)} - {*VALUES, *ALONE, *TYPED}
    assert not missing, f"say which values of {missing} are to be tried"
    for base, (kind, target, schedule) in BASES.items():
        allowed = {one.name for one in fields(Schedule) if kind in one.metadata.get("of", (kind,))}
        alone, values = (
            [(name, value) for name, choice in some.items() if name in allowed for value in choice]
            for some in (ALONE, VALUES)
        )
        both = ({a[0]: a[1], b[0]: b[1]} for a, b in combinations(values, 2) if a[0] != b[0])
        for change in [{}, *({name: value} for name, value in (*alone, *values)), *both] if only in base else ():
            if kind == ATTENTION:
                yield Pinned(Attention((130, 150, 64, 64), "f16", (2,), causal=0), target, schedule=change)
            else:
                size = (130, 136, 200) if target == "sm_80" else (200, 136, 264)
                yield Pinned(Product(BF16, "added", "A B", size, schedule | change), target)


WAITS: Mapping[str, str] = {
    "tensor memory": r"tcgen05\.mma",
    "pairs of CTAs": r"cta_group::2",
    "cluster": r"barrier\.cluster",
    "multicast": r"multicast::cluster",
    "ring of tensor copies": r"cp\.async\.bulk\.tensor",
    "mbarrier": r"mbarrier\.(try|test)_wait",
    "wgmma": r"wgmma\.wait_group",
    "named barriers": r"bar(rier)?\.(cta\.)?arrive",
    "cp.async groups": r"cp\.async\.wait_",
    "counter": r"atom\.",
    "bar.sync": r"bar(rier)?\.(cta\.)?sync",
}
"""What a kernel waits for, by instructions of its PTX."""


def form_of(kernel: Pinned, ptx: str) -> str:
    """What kind of kernel one is, and what it waits for; "" if it waits for nothing."""
    waits = [name for name, pattern in WAITS.items() if re.search(pattern, ptx)]
    source = kernel.source
    kind = "product" if isinstance(source, Product) else "attention" if isinstance(source, Attention) else "function"
    return f"{kind}: {', '.join(waits)}" if waits else ""


def verdict(kernel: Pinned) -> tuple[str, str, str, float]:
    """The form of a kernel; what is found, "" if all orders decide the same; and notes, and seconds."""
    start = time.process_time()
    try:
        compiled = kernel.compile()
    except WarploomError as error:
        return REFUSED, "", f"{kernel}: {str(error).splitlines()[0]}", time.process_time() - start
    try:
        form = form_of(kernel, compiled.ptx)
        result = kernel.result((CHECK,)) if form else None
        wrong, notes = ("", ()) if result is None else (result.compare(), result.notes)
    except WarploomError as error:
        form, wrong, notes = "failed", str(error).splitlines()[0], ()
    bounds = "; ".join(note.message for note in notes if note.check == CHECK)
    return form, f"{kernel}: {wrong}" if wrong else "", f"{kernel}: {bounds}", time.process_time() - start


def drawn_verdict(kernel: Pinned, orders: int, seed: int) -> tuple[str, str, str, float]:
    """As `verdict`, of the words that drawn orders leave."""
    start, form, wrong = time.process_time(), "", ""
    try:
        form = form_of(kernel, kernel.compile().ptx)
        if form:
            words = kernel.result().digest
            for number in range(orders):
                with drawn_order(seed + number):
                    result = kernel.result()
                if result.digest != words:
                    wrong = wrong or f"order {seed + number}: other words; {result.compare() or 'right'}"
    except WarploomError as error:
        form, wrong = "failed", str(error).splitlines()[0]
    return form, f"{kernel}: {wrong}" if wrong else "", str(kernel), time.process_time() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", action="store_true", help="pairs of fields instead of pinned kernels")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="check each Nth kernel")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="begin with this one")
    parser.add_argument("--only", default="", metavar="TEXT", help="those with this in their name, or base")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="check so many at once")
    parser.add_argument("--draw", type=int, default=0, metavar="N", help="compare the words of N drawn orders of each")
    parser.add_argument("--seed", type=int, default=1, help="of the first drawn order")
    args = parser.parse_args()
    kernels = [*pairs(args.only)] if args.pairs else [k for k in pinned() if args.only in str(k)]
    kernels = [k for k in kernels if not isinstance(k.source, Level)]
    forms: dict[str, list[str]] = {}
    of = partial(drawn_verdict, orders=args.draw, seed=args.seed) if args.draw else verdict
    with Pool(args.jobs, maxtasksperchild=8) as pool:
        for form, wrong, notes, seconds in pool.imap_unordered(of, kernels[args.first :: args.every]):
            if form:
                forms.setdefault(form, []).append(wrong)
            print(f"{seconds:6.1f} s  {wrong or notes}", flush=True)
    print(
        f"\n| waits of | kernels | {'the same words' if args.draw else 'proven for all orders'} |\n| --- | --- | --- |"
    )
    refused = len(forms.pop(REFUSED, ()))
    for form, pins in sorted(forms.items()):
        print(f"| {form} | {len(pins)} | {pins.count('')} |")
    verdicts = [wrong for pins in forms.values() for wrong in pins]
    print(f"| all | {len(verdicts)} | {verdicts.count('')} |")
    if refused:
        print(f"{refused} are refused by the compiler")
    return 1 if any(verdicts) or (refused and not args.pairs) else 0


if __name__ == "__main__":
    sys.exit(main())
