"""Drawn kernels in upstream's dialects, run on the interpreter under all checks, against numpy.

    python test/door_programs.py                     # 300 of each kind
    python test/door_programs.py --count 100 --seed 7 --kinds llvm
    python test/door_programs.py --only 87 --kinds scf   # one kernel, by its number: text, and what is wrong

A kernel loads numbers of drawn types, computes with them under branches and in loops, and stores all results: in
`arith` and `math` with `scf` and with `cf`, and in `llvm`. Others multiply matrices: as warpgroups of what tensor
copies bring, in `nvgpu`; by opaque fragments, in `gpu`; by fragments of lanes, with `ldmatrix` and without; and by
`vector.contract`. Others wait at mbarriers of `nvgpu`. numpy does each operation when it is drawn, and shares no code
with compiler and interpreter. What MLIR leaves undefined (a quotient by zero, a shift by the width) is not drawn. What
is printed must be read as the same.
"""

from __future__ import annotations

import re
import sys
import traceback

from door_barriers import BarrierKernel
from door_contracts import ContractKernel
from door_fragments import FragmentKernel
from door_kernels import Kernel
from door_matrices import OpaqueKernel
from door_vectors import VectorKernel
from door_warpgroups import WarpgroupKernel
from linalg_programs import Outcome
from upstream_kernels import printed, to_ptx
from view_programs import judge
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import DiagnosticException, ParseError, VerifyException

from warploom.dialect.ptx.parser import parse_ptx
from warploom.dialect.ptx.printer import import_ptx
from warploom.passes.to_nvvm.convert import ConvertWarpToNvvmPass
from warploom.passes.universe import make_context

KINDS = {
    **dict.fromkeys(("scf", "cf", "llvm"), Kernel), "vector": VectorKernel, "warpgroup": WarpgroupKernel,
    "opaque": OpaqueKernel, "fragments": FragmentKernel, "contract": ContractKernel,
    "barriers": BarrierKernel,
}  # fmt: skip


def outcome(number: int, kind: str) -> Outcome:
    """Draws, compiles, runs and compares one kernel."""
    kernel = KINDS[kind](kind, number)
    text = kernel.build()
    try:
        target = kernel.draw.choice(kernel.targets)
        ptx = to_ptx(text, target)
        if to_ptx(printed(text), target) != ptx:
            return Outcome(number, "wrong", "what is printed compiles to other PTX", text)
    except (DiagnosticException, ParseError, VerifyException) as error:
        return Outcome(number, "refused", str(error), text)
    except Exception:
        return Outcome(number, "wrong", traceback.format_exc(), text)
    try:
        wrong = kernel.run(ptx)
        if not wrong and number % 3 == 2:  # out as nvvm, and in again
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


def reason_of(message: str) -> str:
    """A refusal without its places, in one line."""
    return re.sub(r"\s+", " ", re.sub(r"[\w.]+:\d+:\d+:?", "", message))[:200]


if __name__ == "__main__":
    sys.exit(judge(__doc__, tuple(KINDS), outcome, 300, reason_of))
