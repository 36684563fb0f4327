"""Loops whose last products of a turn run beside the first of the next one, and what is computed of these.

A turn of attention multiplies Q K^T, computes P of the scores, and multiplies P V. In that order tensor cores wait for
P. So the loop is rotated by what comes before P V: a turn starts the scores of its tile of keys, and then P V of the
tile before, which runs while P of this tile is computed::

    start S(0); P(0)
    for i from 1: start S(i); start P(i-1) V; wait for S(i); compute P(i); wait for P V; rescale O
    start P(n-1) V

The first and the last part are loops too, of one turn or of none: there may be no keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from xdsl.builder import Builder
from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.warp.attributes import fragment_of
from ...dialect.warp.cta import READ, WAIT, PipelineOp
from ...dialect.warp.epilogue import MapOp
from ...dialect.warp.fragments import ConstantOp
from ...dialect.warp.synchronisation import WGMMA, CommitOp, FenceOp, ScopedBarrierOp, WaitOp
from ...dialect.warp.warpgroup import WgmmaOp
from ..patterns import IndexBuilder
from .roles import product_groups

Seen: TypeAlias = dict[SSAValue, SSAValue]


class RotateProducts(RewritePattern):
    """Rotates loops of consumers that go on to another stage of a ring before their last products."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: scf.ForOp, rewriter: PatternRewriter) -> None:
        ops = list(op.body.block.ops)
        started, early = (
            next((i for i, one in enumerate(ops) if is_kind(one)), len(ops)) for is_kind in (_commits, _goes_on)
        )
        last = next((i for i, one in enumerate(ops) if i > early and _waits(one)), None)
        if started < early and last is not None and any(isinstance(one, WgmmaOp) for one in ops):
            Rotation(op, ops[: started + 1], ops[started + 1 : last], ops[last:-1]).rewrite()


class Rotation(NamedTuple):
    """A loop that starts products, computes something `between`, and multiplies that by the `last` ones."""

    loop: scf.ForOp
    start: Sequence[Operation]
    between: Sequence[Operation]
    last: Sequence[Operation]

    def rewrite(self) -> None:
        loop, start, between, last = self
        index, (counter, *variables) = IndexBuilder(Builder(InsertPoint.before(loop))), loop.body.block.args
        handed = () if loop.body.block.last_op is None else loop.body.block.last_op.operands
        late = [i for i, value in enumerate(handed) if value.owner in last]
        early = [i for i in range(len(handed)) if i not in late]
        # What the last products take, which a turn hands to the next one: sums, as they are rescaled, and operands.
        used = {value for one in last for value in one.operands}
        taken: list[SSAValue] = [value for one in between for value in one.results if value in used]
        sums = [
            next(v for one in between for v in one.results if v in taken and variables[i] in one.operands) for i in late
        ]
        hands_on = [*(handed[i] for i in early), *taken]
        keeps: list[SSAValue] = [counter, *(variables[i] for i in early)]
        lower, upper, step = map(index.folded, loop.operands[:3])
        second = index.add(lower, step)
        once = index.minimum(second, upper, signed=True)
        zeros = [index.insert(ConstantOp.of(0.0, fragment_of(value))).fragment for value in taken]
        with index.loop(lower, once, step, [*(loop.iter_args[i] for i in early), *zeros]) as turn:
            seen: Seen = dict(zip(keeps, turn.block.args, strict=False)) | {
                variables[i]: loop.iter_args[i] for i in late
            }
            turn.handed = _clone(turn.index, (*start, *between), seen, hands_on)
        with index.loop(second, upper, step, turn.results) as turn:
            seen = dict[SSAValue, SSAValue](zip((*keeps, *taken), turn.block.args, strict=True))
            before, meanwhile, wait = dict(seen), self._meanwhile(late), _first(last, WaitOp)
            # Both groups are started behind one fence.
            lead, ready = _first(start, FenceOp), _first(last, FenceOp)
            _clone(turn.index, start[:lead], seen)
            _clone(turn.index, last[:ready], before)
            _clone(turn.index, start[lead:], seen)
            _clone(turn.index, last[ready + 1 : wait], before)
            _clone(
                turn.index,
                [WaitOp(WGMMA, 1), *(one for one in between[:meanwhile] if not isinstance(one, WaitOp))],
                seen,
            )
            _clone(turn.index, last[wait:], before)
            seen |= {variables[i]: before[handed[i]] for i in late}
            turn.handed = _clone(turn.index, between[meanwhile:], seen, hands_on)
        results = turn.results[: len(early)]
        seen = dict[SSAValue, SSAValue](zip(taken, turn.results[len(early) :], strict=True))
        with index.loop(lower, once, step, [seen[value] for value in sums]) as turn:
            seen |= zip(sums, turn.carried, strict=True)
            passing = (one for one in last if not isinstance(one, ScopedBarrierOp) or one.arrive is None)
            turn.handed = _clone(turn.index, passing, seen, [handed[i] for i in late])
        for i, value in zip((*early, *late), (*results, *turn.results), strict=True):
            loop.results[i].replace_all_uses_with(value)
        Rewriter.erase_op(loop)

    def _meanwhile(self, late: Sequence[int]) -> int:
        """How many of the operations between products may run beside the last ones: those before sums are rescaled.
        Operands are packed behind that."""
        sums = {self.loop.body.block.args[1 + i] for i in late}
        return next(i for i, one in enumerate(self.between) if sums.intersection(one.operands))


def _commits(op: Operation) -> bool:
    return isinstance(op, CommitOp)


def _goes_on(op: Operation) -> bool:
    return isinstance(op, PipelineOp) and op.step.data == READ


def _waits(op: Operation) -> bool:
    return isinstance(op, PipelineOp) and op.step.data == WAIT


def _first(ops: Sequence[Operation], kind: type[Operation]) -> int:
    return next(i for i, one in enumerate(ops) if isinstance(one, kind))


def _clone(
    index: IndexBuilder, ops: Iterable[Operation], seen: Seen, values: Iterable[SSAValue] = ()
) -> list[SSAValue]:
    """Builds operations a second time, of values as they are `seen` there, to which it adds their results: what becomes
    of `values`."""
    for op in ops:
        index.insert(op.clone(seen))
    return [seen[value] for value in values]


def rotates(loop: scf.ForOp) -> bool:
    """Whether the last products of a loop's turns may run beside the first of the next one: what they multiply is in
    registers, and their sums are rescaled and carried alone."""
    groups = [[value.owner for value in sums] for sums in product_groups(loop.body.block).values()]
    products = [[op for op in group if isinstance(op, WgmmaOp)] for group in groups]
    if [all(op.a_in_registers for op in group) for group in products] != [False, True]:
        return False
    starts = [op.c.owner for op in products[1] if not isinstance(op.c.owner, WgmmaOp)]
    uses = [use.operation for op in products[1] for use in op.d.uses]
    rescaled = all(isinstance(op, MapOp) and op.inputs[0] in loop.body.block.args for op in starts)
    return rescaled and all(isinstance(one, WgmmaOp | scf.YieldOp) for one in uses)
