"""Operands of an epilogue, which are on their way while the products of a tile run.

What lies beside the sums, a bias or a residual, does not depend on them. A load behind the wait for the last products
would leave the tensor cores idle for as long as memory takes. There are registers for the first part; the rest of a
matrix comes as far as L2.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from xdsl.dialects import arith, scf
from xdsl.ir import Block, Operation, Region, SSAValue

from ...dialect.effects import is_pure, only_reads
from ...dialect.warp.attributes import SHARED_SPACE, memory_of, memory_space
from ...dialect.warp.barriers import ArriveOp
from ...dialect.warp.epilogue import LoadVectorOp, MapOp
from ...dialect.warp.memory import LoadOp, PrefetchOp
from ..tile.index_builder import IndexBuilder

TURNS = 4
"""Turns of a loop over K before its end in which memory answers: about 1000 cycles each, of an H200."""


def load_ahead(wait: Operation) -> None:
    """Moves the loads that follow a wait, up to the first use of what it waits for, before it, with the arithmetic that
    they need."""
    block = wait.parent
    between = list(takewhile(lambda op: not isinstance(op, MapOp) and (only_reads(op) or _arrives(op)), _behind(wait)))
    for load in [one for one in between if isinstance(one, LoadVectorOp | LoadOp)]:
        needed = _needed(load, between)
        if block is not None and all(one is load or is_pure(one) for one in needed):
            for one in needed:
                one.detach()
                block.insert_op_before(one, wait)
                between.remove(one)


def prefetch(index: IndexBuilder, loop: scf.ForOp, k: SSAValue) -> None:
    """Asks, some turns before the last one of a loop over K, for what is loaded behind it from matrices, in a turn that
    begins at `k`. Asked for at the start of a tile it would be gone again, for the products of one read more than L2
    holds."""
    behind = _behind(loop)
    loads = [one for one in behind if isinstance(one, LoadOp) and _is_early(one, behind, loop)]
    step, end = index.known(loop.step), index.known(loop.ub)
    if not loads or not isinstance(step, int):
        return
    asked, known = Block(), dict[SSAValue, SSAValue]()
    for load in loads:
        for one in _needed(load, behind)[:-1]:
            if one.results[0] not in known:
                asked.add_op(new := one.clone(known))
                known |= dict(zip(one.results, new.results, strict=True))
        at = [known.get(place, place) for place in load.indices]
        asked.add_op(PrefetchOp(load.memory, at, load.fragment.type, load.in_bounds))
    asked.add_op(scf.YieldOp())
    left = index.div(index.add(index.sub(end, k), step - 1), step)
    now = index.insert(arith.CmpiOp(index.value(left), index.value(TURNS), "eq")).result
    index.insert(scf.IfOp(now, [], Region(asked)))


def _behind(op: Operation) -> list[Operation]:
    """The operations that follow one in its block."""
    ops = [] if op.parent is None else list(op.parent.ops)
    return ops[ops.index(op) + 1 :]


def _is_early(load: LoadOp, behind: Sequence[Operation], loop: scf.ForOp) -> bool:
    """Whether what a load from global memory needs is known before a loop."""
    needed = _needed(load, behind)
    known = all(one is load or is_pure(one) for one in needed)
    late = any(operand.owner is loop for one in needed for operand in one.operands)
    return known and not late and memory_space(memory_of(load.memory)) != SHARED_SPACE


def _needed(op: Operation, between: Sequence[Operation]) -> list[Operation]:
    """An operation and those of `between` that it needs, in order."""
    found = {op}
    for one in reversed(between):
        if any(use.operation in found for result in one.results for use in result.uses):
            found.add(one)
    return [one for one in between if one in found]


def _arrives(op: Operation) -> bool:
    """Whether an operation does nothing but arrive at mbarriers, if at all."""
    inner = [one for region in op.regions for one in region.walk()]
    return isinstance(op, scf.IfOp) and all(isinstance(one, ArriveOp | scf.YieldOp) or is_pure(one) for one in inner)
