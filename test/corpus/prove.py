"""Proofs that kernels of the corpus compute one function for two targets, whose compilers' output differs; and that
products for sm_90a alone are those of linalg.

    python test/corpus/prove.py [--jobs 2] [NAME ...]      # sources or kernels; all, if none

Of each kernel that has arrays of floating-point numbers; a line each, with what is undecided and why.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from corpus.case import Case
from corpus.cases import CASES
from corpus.harness import arguments, load
from corpus.store import ARCHIVE, Store

from warploom.runtime import KernelLaunch, Proof, TensorMap, WarploomError, prove
from warploom.runtime.arguments.arrays import element_of
from warploom.runtime.base.launch import describe
from warploom.runtime.proof.question import followed

TARGETS = ("sm_80", "sm_90a")
PRODUCTS = ("c_gemm", "c_gemm_cluster", "wgmma_matmul", "wgmma_cluster", "wgmma_registers", "t_descriptor_matmul",
            "t_specialised_matmul", "g_matmul", "g_specialised")  # fmt: skip
"""Kernels of sm_90a alone whose third array becomes the product of the first and the transposed second."""
LIMIT = 60
"""Seconds that a proof may take."""


def verdict(case: Case, store: Store) -> tuple[str, str] | None:
    """What a proof says of a kernel; None if there is nothing to prove."""
    if verdict := product(case, store):
        return verdict
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
        arrays = passed[: len(module.kernel(case.name).parameters)]
        arrays += [0] * (len(module.kernel(case.name).parameters) - len(arrays))
        everywhere.append(KernelLaunch(module, case.name, case.grid, case.block, arrays, shared, case.cluster))
    one, other = everywhere
    return _within(lambda: prove(one, other, named, explain=False))


def _too_long(*_: object) -> None:
    raise TimeoutError(f"not done after {LIMIT} s")


def product(case: Case, store: Store) -> tuple[str, str] | None:
    """What a proof says of a kernel against the product of linalg; None for one that is none."""
    module = load(store, case, TARGETS[1])
    if module is None or case.name not in PRODUCTS:
        return None
    args, _ = arguments(module, case)
    named: dict[str, Any] = {}
    passed: list[Any] = []
    for arg in args:
        array = arg.array if isinstance(arg, TensorMap) else arg
        if not getattr(array, "ndim", 0):
            passed.append(arg)
            continue
        name = "abc"[len(named)]
        named[name] = array
        of = partial(_mapped, arg, name) if isinstance(arg, TensorMap) else name
        passed.append(of)
    a, b, c = (describe(array.shape, element_of(array.dtype)) for array in named.values())
    kind = element_of(named["c"].dtype)
    text = f"""func.func @f(%a: memref<{a}>, %b: memref<{b}>, %c: memref<{c}>) {{
      %zero = arith.constant 0.0 : {kind}
      linalg.fill ins(%zero : {kind}) outs(%c : memref<{c}>)
      linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
        ins(%a, %b : memref<{a}>, memref<{b}>) outs(%c : memref<{c}>)
      return
    }}"""
    asked = re.match(r"// shared (\d+)", module.text)
    passed += [0] * (len(module.kernel(case.name).parameters) - len(passed))
    shared = int(asked[1]) if asked else case.shared
    launch = KernelLaunch(module, case.name, case.grid, case.block, passed, shared, case.cluster)
    return _within(lambda: prove(launch, text, named, explain=False))


def _mapped(of: TensorMap, name: str, arrays: Mapping[str, Any]) -> TensorMap:
    return replace(of, array=arrays[name])


def _within(ask: Callable[[], Proof]) -> tuple[str, str]:
    """The outcome and the reason, in bounded time."""
    signal.alarm(LIMIT)
    try:
        proof = ask()
        path = re.search(r"branches and stores that data decides.*?(?=;|$)", proof.text)
        return proof.outcome, "" if proof else path[0] if path else proof.text.splitlines()[0]
    except WarploomError as error:
        return "undecided", str(error).splitlines()[0]
    except TimeoutError as error:
        return "undecided", str(error)
    finally:
        signal.alarm(0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="prove so many at once")
    parser.add_argument("names", nargs="*", help="sources or kernels; all, if none")
    args = parser.parse_args()
    signal.signal(signal.SIGALRM, _too_long)
    cases = [c for c in CASES if not args.names or {c.file, c.name} & set(args.names)]
    counts: Counter[str] = Counter()
    with Pool(args.jobs) as pool:
        for case, result in zip(cases, pool.imap(partial(verdict, store=Store(ARCHIVE)), cases), strict=True):
            if result is not None:
                counts[result[0]] += 1
                print(f"{result[0]:14} {case.file}.{case.name}  {result[1][:200]}", flush=True)
    print(", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
