"""Drawn kernels in upstream's dialects, run on the interpreter under all checks, against numpy.

    python test/door_programs.py                     # 300 of each kind
    python test/door_programs.py --count 100 --seed 7 --kinds llvm
    python test/door_programs.py --only 87 --kinds scf   # one kernel, by its number: text, and what is wrong

A kernel loads numbers of drawn types, computes with them under branches and in loops, and stores all results: in
`arith` and `math` with `scf` and with `cf`, and in `llvm`. numpy does each operation when it is drawn, and shares no
code with compiler and interpreter. What MLIR leaves undefined (a quotient by zero, a shift by the width) is not drawn.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import traceback
from collections import Counter

from door_kernels import Kernel
from door_vectors import VectorKernel
from linalg_programs import Outcome
from upstream_kernels import to_ptx
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import DiagnosticException, ParseError, VerifyException

from warploom.dialect.ptx.parser import parse_ptx
from warploom.dialect.ptx.printer import import_ptx
from warploom.passes.to_nvvm.convert import ConvertWarpToNvvmPass
from warploom.passes.universe import make_context

KINDS = ("scf", "cf", "llvm", "vector")


def outcome(number: int, kind: str) -> Outcome:
    """Draws, compiles, runs and compares one kernel."""
    kernel = (VectorKernel if kind == "vector" else Kernel)(kind, number)
    text = kernel.build()
    try:
        target = kernel.draw.choice(("sm_80", "sm_90a"))
        ptx = to_ptx(text, target)
    except (DiagnosticException, ParseError, VerifyException) as error:
        return Outcome(number, "refused", str(error), text)
    except Exception:
        return Outcome(number, "wrong", traceback.format_exc(), text)
    try:
        wrong = kernel.run(ptx)
        if not wrong and number % 3 == 0:  # out as nvvm, and in again
            out = nvvm_of(ptx)
            wrong = kernel.run(to_ptx(out, target))
            text += out if wrong else ""
    except Exception:
        return Outcome(number, "wrong", traceback.format_exc(), f"{text}\n{ptx}")
    return Outcome(number, "wrong" if wrong else "right", wrong, text)


def nvvm_of(ptx: str) -> str:
    """A kernel of PTX as operations of `nvvm` and `llvm`."""
    module = ModuleOp([import_ptx(parse_ptx(ptx))])
    ConvertWarpToNvvmPass().apply(make_context(), module)
    return str(module)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", choices=KINDS, nargs="+", default=KINDS)
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    numbers = range(options.seed, options.seed + options.count) if options.only is None else [options.only]
    counts, reasons = Counter[str](), Counter[str]()
    for kind, number in itertools.product(options.kinds, numbers):
        one = outcome(number, kind)
        counts[one.kind] += 1
        if one.kind == "refused":
            reasons[re.sub(r"\s+", " ", re.sub(r"[\w.]+:\d+:\d+:?", "", one.reason))[:200]] += 1
        if one.kind == "wrong" or options.only is not None:
            print(f"{kind} {number}: {one.kind} {one.reason}\n{one.text}", flush=True)
    print(*(f"{number} {kind}" for kind, number in counts.items()), sep=", ")
    for reason, number in reasons.most_common():
        print(f"{number} refused: {reason}")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
