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

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import Rewriter

from ...dialect.warp.attributes import FragmentType
from ...dialect.warp.convert import ConvertLayoutOp, ConvertOp
from ...dialect.warp.cta import READ, WAIT, PipelineOp
from ...dialect.warp.fragments import ConstantOp, SubfragmentOp
from ...dialect.warp.rows import MapOp
from ...dialect.warp.synchronisation import WGMMA, CommitOp, FenceOp, WaitOp
from ...dialect.warp.warpgroup import WgmmaOp
from ..patterns import IndexBuilder, rewrite_pattern
from .roles import product_groups

Seen: TypeAlias = dict[SSAValue, SSAValue]


@rewrite_pattern
def rotate_products(op: scf.ForOp, rewriter: PatternRewriter) -> None:
    """Rotates loops of consumers that go on to another stage of a ring before their last products."""
    ops = list(op.body.block.ops)
    steps = [one.step.data if isinstance(one, PipelineOp) else "" for one in ops]
    early = steps.index(READ) if READ in steps else len(ops)
    started = [i + 1 for i, one in enumerate(ops[:early]) if isinstance(one, CommitOp)]
    behind = range(early + 1, len(ops))
    last = next((i for i in behind if steps[i] == WAIT or isinstance(ops[i], FenceOp)), None)
    if started and last is not None and any(isinstance(one, WgmmaOp) for one in ops[last:]):
        _rotate(op, ops[: started[-1]], ops[started[-1] : last], ops[last:-1])


def _rotate(
    loop: scf.ForOp, start: Sequence[Operation], between: Sequence[Operation], last: Sequence[Operation]
) -> None:
    """Rotates a loop that starts products, computes something `between`, and multiplies that by the `last` ones."""
    index, (counter, *variables) = IndexBuilder(loop), loop.body.block.args
    handed = () if loop.body.block.last_op is None else loop.body.block.last_op.operands
    late = [i for i, value in enumerate(handed) if value.owner in last]
    early = [i for i in range(len(handed)) if i not in late]
    # What the last products take, which a turn hands to the next one: operands, and sums as they are rescaled
    # before, or as they are.
    used = {value for one in last for value in one.operands}
    taken: list[SSAValue] = [value for one in (*start, *between) for value in one.results if value in used]
    rescaled = [next((one for one in between if variables[i] in one.operands), None) for i in late]
    sums = [variables[i] if one is None else one.results[0] for i, one in zip(late, rescaled, strict=True)]
    kept = [value for value in sums if value not in taken]
    hands_on = [*(handed[i] for i in early), *taken]
    keeps: list[SSAValue] = [counter, *(variables[i] for i in early)]
    lower, upper, step = map(index.folded, loop.operands[:3])
    second = index.add(lower, step)
    once = index.minimum(second, upper, signed=True)
    zeros = [
        index.insert(ConstantOp.of(0.0, kind)).fragment
        if isinstance(kind := value.type, FragmentType)
        else index.value(lower)
        for value in taken
    ]
    with index.loop(lower, once, step, [*(loop.iter_args[i] for i in early), *zeros]) as turn:
        of_first = zip(keeps, turn.block.args, strict=False)
        seen: Seen = {variables[i]: loop.iter_args[i] for i in late} | dict(of_first)
        turn.handed = _clone(turn.index, (*start, *between), seen, hands_on)
    first = [loop.iter_args[i] for i, value in zip(late, sums, strict=True) if value in kept]
    with index.loop(second, upper, step, [*turn.results, *first]) as turn:
        seen = dict[SSAValue, SSAValue](zip((*keeps, *taken, *kept), turn.block.args, strict=True))
        before, wait = dict(seen), _first(last, WaitOp)
        meanwhile = _meanwhile({variables[i] for i in late}, between, last)
        # Both groups are started behind one fence.
        lead, ready = _first(start, FenceOp), _first(last, FenceOp)
        _clone(turn.index, start[:lead], seen)
        _clone(turn.index, last[:ready], before)
        _clone(turn.index, start[lead:], seen)
        _clone(turn.index, last[ready + 1 : wait], before)
        _clone(turn.index, map(_before_one_more, between[:meanwhile]), seen)
        _clone(turn.index, last[wait:], before)
        seen |= {variables[i]: before[handed[i]] for i in late}
        turn.handed = _clone(turn.index, between[meanwhile:], seen, [*hands_on, *kept])
    results = turn.results[: len(early)]
    seen = dict[SSAValue, SSAValue](zip((*taken, *kept), turn.results[len(early) :], strict=True))
    with index.loop(lower, once, step, [seen[value] for value in sums]) as turn:
        seen |= zip(sums, turn.carried, strict=True)
        turn.handed = _clone(turn.index, last, seen, [handed[i] for i in late])
    for i, value in zip((*early, *late), (*results, *turn.results), strict=True):
        loop.results[i].replace_all_uses_with(value)
    Rewriter.erase_op(loop)


def _meanwhile(sums: set[SSAValue], between: Sequence[Operation], last: Sequence[Operation]) -> int:
    """How many of the operations between products may run beside the last ones: those before `sums` are rescaled and
    operands are packed."""
    packed = {value for op in last if isinstance(op, WgmmaOp) for value in _packed(op.a)}
    return next(i for i, one in enumerate(between) if sums.intersection(one.operands) or one in packed)


def _packed(value: SSAValue) -> Iterator[Operation]:
    """The operations that make an operand of registers that are computed."""
    while isinstance(op := value.owner, SubfragmentOp | ConvertLayoutOp | ConvertOp):
        if isinstance(op, ConvertOp) and op.exponents is not None:
            return
        yield op
        value = op.operands[0]


def _before_one_more(op: Operation) -> Operation:
    """What becomes of an operation behind which one more group of products is under way."""
    return WaitOp(WGMMA, op.pending.value.data + 1) if isinstance(op, WaitOp) else op


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
    *first, last = [{op.a_in_registers for op in group} for group in products] or [set[bool]()]
    if last != {True} or not first or any(each != {False} for each in first):
        return False
    starts = [op.c for op in products[-1] if not isinstance(op.c.owner, WgmmaOp)]
    # Sums are rescaled, if at all, before products are added to them.
    before = [value.owner.inputs[0] if isinstance(value.owner, MapOp) else value for value in starts]
    uses = (use.operation for op in products[-1] for use in op.d.uses)
    return set(before) <= set(loop.body.block.args) and all(isinstance(one, WgmmaOp | scf.YieldOp) for one in uses)
