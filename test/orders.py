"""All orders of the warps of our own pipelines: each pinned kernel that synchronises decides the same in all of them.

    python test/orders.py                    # the kernels whose schedules are given, and all that are no product
    python test/orders.py --all              # those of default schedules too
    python test/orders.py --every 4          # some

The kernels run by `--check=all-orders` at the sizes of `pins.py`, and their results are compared with float64. The
table at the end groups them by what waits in their PTX.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Mapping
from multiprocessing import Pool

from attentions import Attention
from pins import Level, Pinned, pinned
from products import Product

from warploom.runtime import WarploomError

CHECK = "all-orders"

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
        form = form_of(kernel, kernel.compile().ptx)
        result = kernel.result((CHECK,)) if form else None
        wrong, notes = ("", ()) if result is None else (result.compare(), result.notes)
    except WarploomError as error:
        form, wrong, notes = "failed", str(error).splitlines()[0], ()
    bounds = "; ".join(note.message for note in notes if note.check == CHECK)
    return form, f"{kernel}: {wrong}" if wrong else "", f"{kernel}: {bounds}", time.process_time() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="products of default schedules, too")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="check each Nth kernel")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="begin with this one")
    parser.add_argument("--only", default="", metavar="TEXT", help="check those with this in their name")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="check so many at once")
    args = parser.parse_args()
    kernels = [k for k in pinned() if not isinstance(k.source, Level) and args.only in str(k)]
    if not args.all:
        kernels = [k for k in kernels if not isinstance(k.source, Product) or k.source.schedule]
    forms: dict[str, list[str]] = {}
    with Pool(args.jobs, maxtasksperchild=8) as pool:
        for form, wrong, notes, seconds in pool.imap_unordered(verdict, kernels[args.first :: args.every]):
            if form:
                forms.setdefault(form, []).append(wrong)
            print(f"{seconds:6.1f} s  {wrong or notes}", flush=True)
    print("\n| waits of | kernels | proven for all orders |\n| --- | --- | --- |")
    for form, found in sorted(forms.items()):
        print(f"| {form} | {len(found)} | {found.count('')} |")
    every = [wrong for found in forms.values() for wrong in found]
    print(f"| all | {len(every)} | {every.count('')} |")
    return 1 if any(every) else 0


if __name__ == "__main__":
    sys.exit(main())
