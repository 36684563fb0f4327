"""Proofs that kernels of the corpus compute one function for two targets, whose compilers' output differs.

    python test/corpus/prove.py [--jobs 2] [NAME ...]      # sources or kernels; all, if none

Of each kernel that has arrays of floating-point numbers; a line each, with what is undecided and why.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
from collections import Counter
from functools import partial
from multiprocessing import Pool
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from corpus.case import Case
from corpus.cases import CASES
from corpus.harness import arguments, load
from corpus.store import ARCHIVE, Store

from warploom.runtime import KernelLaunch, WarploomError, prove
from warploom.runtime.proof.question import followed

TARGETS = ("sm_80", "sm_90a")
LIMIT = 60
"""Seconds that a proof may take."""


def verdict(case: Case, store: Store) -> tuple[str, str] | None:
    """What a proof says of a kernel; None if there is nothing to prove."""
    modules = [load(store, case, target) for target in TARGETS]
    first, second = modules
    if first is None or second is None or case.printed is not None:
        return None
    args, _ = arguments(first, case)
    named = {f"x{i}": a for i, a in enumerate(args) if hasattr(a, "dtype") and getattr(a, "ndim", 0)}
    if not any(followed(array) for array in named.values()):
        return None
    passed = [f"x{i}" if f"x{i}" in named else a for i, a in enumerate(args)]
    everywhere: list[KernelLaunch] = []
    for module in (first, second):
        asked = re.match(r"// shared (\d+)", module.text)
        shared = int(asked[1]) if asked else case.shared
        given = passed[: len(module.kernel(case.name).parameters)]
        given += [0] * (len(module.kernel(case.name).parameters) - len(given))
        everywhere.append(KernelLaunch(module, case.name, case.grid, case.block, given, shared, case.cluster))
    signal.alarm(LIMIT)
    try:
        one, other = everywhere
        proof = prove(one, other, named, explain=False)
        return proof.outcome, "" if proof else proof.text.splitlines()[0]
    except WarploomError as error:
        return "undecided", str(error).splitlines()[0]
    except TimeoutError as error:
        return "undecided", str(error)
    finally:
        signal.alarm(0)


def _too_long(*_: object) -> None:
    raise TimeoutError(f"not done after {LIMIT} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="prove so many at once")
    parser.add_argument("names", nargs="*", help="sources or kernels; all, if none")
    args = parser.parse_args()
    signal.signal(signal.SIGALRM, _too_long)
    cases = [c for c in CASES if not args.names or {c.file, c.name} & set(args.names)]
    counts: Counter[str] = Counter()
    with Pool(args.jobs) as pool:
        for case, found in zip(cases, pool.imap(partial(verdict, store=Store(ARCHIVE)), cases), strict=True):
            if found is not None:
                counts[found[0]] += 1
                print(f"{found[0]:9} {case.file}.{case.name}  {found[1][:200]}", flush=True)
    print(", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
