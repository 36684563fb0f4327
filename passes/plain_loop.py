"""The K loop as `warp-tile` makes it, read as what it consists of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

from xdsl.dialects import arith, gpu, scf
from xdsl.ir import Operation, SSAValue

from ..dialect.warp.copy import CopyOp
from ..dialect.warp.elementwise import ConvertOp, RegroupOp
from ..dialect.warp.memory import LdmatrixOp, LoadOp
from ..dialect.warp.product import ProductOp
from .index_builder import Index, IndexBuilder, constant_value

if TYPE_CHECKING:
    from ..dialect.warp.words import LoadMetadataOp, LoadScalesOp

TileLoad: TypeAlias = "LdmatrixOp | LoadOp | LoadMetadataOp | LoadScalesOp"


def is_load(op: Operation) -> TypeGuard[TileLoad]:
    """Whether an operation reads a fragment from a tile in shared memory."""
    return isinstance(op, LdmatrixOp | LoadOp) or op.name in ("warp.load_metadata", "warp.load_scales")


@dataclass(frozen=True)
class Step:
    """One step of the instruction: the fragments it loads, what it makes of them, and the product that takes them.

    The product may also take what steps before it have loaded. Loads run a step ahead. Fragments are regrouped and
    widened right before the product, when they have arrived.
    """

    loads: tuple[TileLoad, ...]
    changes: tuple[RegroupOp | ConvertOp, ...]
    mma: ProductOp


@dataclass(frozen=True)
class PlainLoop:
    """A K loop as `warp-tile` makes it: copies, barrier, steps, barrier."""

    loop: scf.ForOp
    copies: tuple[CopyOp, ...]
    steps: tuple[Step, ...]

    @property
    def counter(self) -> SSAValue:
        return self.loop.body.block.args[0]


def match(loop: scf.ForOp) -> PlainLoop | None:
    """Reads a loop of the plain form; None for any other loop."""
    ops = [op for op in loop.body.block.ops if not _counts(op, loop)]
    copies: list[CopyOp] = []
    while ops and isinstance(ops[0], CopyOp):
        copies.append(ops.pop(0))  # pyright: ignore[reportArgumentType]
    if not copies or len(ops) < 4 or any(c.is_async is not None or c.stage for c in copies):
        return None
    first, *compute, last, end = ops
    if not (isinstance(first, gpu.BarrierOp) and isinstance(last, gpu.BarrierOp) and isinstance(end, scf.YieldOp)):
        return None
    steps = _steps(compute)
    if steps is None or len(loop.iter_args) != 1:
        return None
    # Each product must add to the one before: the first to the loop variable, the last being what is yielded.
    chain: list[SSAValue] = [loop.body.block.args[1], *(step.mma.d for step in steps)]
    if [*(step.mma.operands[2] for step in steps), end.operands[0]] != chain:
        return None
    return PlainLoop(loop, tuple(copies), steps)


def _counts(op: Operation, loop: scf.ForOp) -> bool:
    """Whether an operation only multiplies or divides the loop's counter by a constant: an index of a copy."""
    return isinstance(op, arith.MuliOp | arith.DivUIOp) and (
        op.lhs == loop.body.block.args[0] or (isinstance(op.lhs.owner, Operation) and _counts(op.lhs.owner, loop))
    )


def at_count(index: IndexBuilder, value: SSAValue, counter: SSAValue, k: Index) -> Index | None:
    """An index that follows from the counter, for another count; None for one that does not."""
    if value == counter:
        return k
    op = value.owner
    if not isinstance(op, arith.MuliOp | arith.DivUIOp):
        return None
    inner, by = at_count(index, op.lhs, counter, k), constant_value(op.rhs)
    if inner is None or by is None:
        return None
    return index.mul(inner, by) if isinstance(op, arith.MuliOp) else index.div(inner, by)


def _steps(ops: Sequence[Operation]) -> tuple[Step, ...] | None:
    steps: list[Step] = []
    loads: list[TileLoad] = []
    earlier: set[SSAValue] = set()
    changes: list[RegroupOp | ConvertOp] = []
    ready: set[SSAValue] = set()
    for op in ops:
        if is_load(op):
            loads.append(op)
            ready.add(op.fragment)
        elif isinstance(op, RegroupOp | ConvertOp) and op.input in ready:
            changes.append(op)
            ready = ready - {op.input} | {op.fragment}
        elif isinstance(op, ProductOp) and ready <= {*op.operands} - {op.operands[2]} <= ready | earlier:
            steps.append(Step(tuple(loads), tuple(changes), op))
            earlier |= ready
            loads, changes, ready = [], [], set()
        else:
            return None
    return tuple(steps) if steps and not loads else None
