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

from xdsl.builder import Builder
from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.warp.attributes import FragmentType
from ...dialect.warp.cta import READ, WAIT, PipelineOp
from ...dialect.warp.epilogue import SubfragmentOp
from ...dialect.warp.fragments import ConstantOp, ConvertLayoutOp, ConvertOp
from ...dialect.warp.synchronisation import WGMMA, CommitOp, FenceOp, ScopedBarrierOp, WaitOp
from ...dialect.warp.warpgroup import WgmmaOp
from ..patterns import Index, IndexBuilder
from .roles import product_groups


class RotateProducts(RewritePattern):
    """Rotates loops that go on to another stage of a ring before their last products."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: scf.ForOp, rewriter: PatternRewriter) -> None:
        ops = list(op.body.block.ops)
        if not any(isinstance(one, WgmmaOp) for one in ops):
            return
        last = max(i for i, one in enumerate(ops) if isinstance(one, FenceOp))
        waits = [i for i, one in enumerate(ops) if isinstance(one, WaitOp)]
        if any(isinstance(one, PipelineOp) and one.step.data == READ for one in ops[:last]):
            started = max(i for i, one in enumerate(ops[: waits[0]]) if isinstance(one, CommitOp)) + 1
            turns = (i for i in range(started, last) if isinstance(ops[i], ScopedBarrierOp) or _waits(ops[i]))
            last = next(turns, last)
            Rotation(op, ops[:started], ops[started:last], ops[last:-1]).rewrite()


class Rotation:
    """A loop that starts products, computes something `between`, and multiplies that by the `last` ones."""

    def __init__(
        self, loop: scf.ForOp, start: Sequence[Operation], between: Sequence[Operation], last: Sequence[Operation]
    ) -> None:
        self.loop, self.start, self.between, self.last = loop, start, between, last
        self.counter, *self.variables = loop.body.block.args
        self.handed = [] if loop.body.block.last_op is None else list(loop.body.block.last_op.operands)
        self.late = [i for i, value in enumerate(self.handed) if value.owner in last]
        self.early = [i for i in range(len(self.handed)) if i not in self.late]
        # What the last products take, which a turn hands to the next one: sums, operands, the number of a stage.
        used = {value for one in last for value in one.operands}
        made = [value for one in (*start, *between) for value in one.results]
        self.taken = [value for value in (*self.variables, *made) if value in used]

    def rewrite(self) -> None:
        loop, variables, taken = self.loop, self.variables, self.taken
        index = IndexBuilder(Builder(InsertPoint.before(loop)))
        lower, upper, step = map(index.folded, loop.operands[:3])
        second = index.add(lower, step)
        once = index.minimum(second, upper, signed=True)
        early = {variables[i]: loop.iter_args[i] for i in self.early}
        before: dict[SSAValue, SSAValue] = dict(zip(variables, loop.iter_args, strict=True))
        initial = [*early.values(), *(before.get(value) or _zero(index, value) for value in taken)]
        with index.loop(lower, once, step, initial) as turn:
            seen = before | self._seen(turn.counter, turn.carried, turn.index)
            _clone(turn.index, (*self.start, *self.between), seen)
            turn.handed = [seen[self.handed[i]] for i in self.early] + [seen[value] for value in taken]
        with index.loop(second, upper, step, turn.results) as turn:
            seen = self._seen(turn.counter, turn.carried, turn.index)
            of_last, (lead, started), (ready, products) = dict(seen), _split(self.start), _split(self.last)
            _clone(turn.index, lead, seen)
            _clone(turn.index, ready, of_last)
            _clone(turn.index, started, seen)
            wait = next(i for i, one in enumerate(products) if isinstance(one, WaitOp))
            _clone(turn.index, products[1:wait], of_last)
            meanwhile = self._meanwhile()
            for one in self.between[:meanwhile]:
                later = WaitOp(WGMMA, one.pending.value.data + 1) if isinstance(one, WaitOp) else one
                _clone(turn.index, [later], seen)
            _clone(turn.index, products[wait:], of_last)
            seen |= {variables[i]: of_last[self.handed[i]] for i in self.late}
            _clone(turn.index, self.between[meanwhile:], seen)
            turn.handed = [seen[self.handed[i]] for i in self.early] + [seen[value] for value in taken]
        seen = self._seen(lower, turn.results, index)
        sums = [next(v for v in taken if variables[i] in (v, *_operands(v))) for i in self.late]
        results = dict(zip(self.early, turn.results, strict=False))
        with index.loop(lower, once, step, [seen[value] for value in sums]) as turn:
            seen |= zip(sums, turn.carried, strict=True)
            _clone(turn.index, (one for one in self.last if not _passes(one)), seen)
            turn.handed = [seen[self.handed[i]] for i in self.late]
        results |= zip(self.late, turn.results, strict=True)
        for i, result in enumerate(loop.results):
            result.replace_all_uses_with(results[i])
        Rewriter.erase_op(loop)

    def _seen(self, counter: Index, carried: Sequence[SSAValue], index: IndexBuilder) -> dict[SSAValue, SSAValue]:
        """What a turn sees: its counter, what the loop handed on, and what the last products take."""
        values = (self.counter, *(self.variables[i] for i in self.early), *self.taken)
        return dict(zip(values, (index.value(counter), *carried), strict=True))

    def _meanwhile(self) -> int:
        """How many of the operations between products may run beside the last ones: those before sums are used, or
        operands are packed."""
        late = {self.variables[i] for i in self.late}
        first = {one for one in self.between if late.intersection(one.operands)}
        for value in self.taken:
            while isinstance(made := value.owner, ConvertLayoutOp | ConvertOp | SubfragmentOp):
                first.add(made)
                value = made.operands[0]
        return min(map(self.between.index, first))


def _waits(op: Operation) -> bool:
    return isinstance(op, PipelineOp) and op.step.data == WAIT


def _split(ops: Sequence[Operation]) -> tuple[Sequence[Operation], Sequence[Operation]]:
    """The operations before the first fence of products, and the others."""
    first = next(i for i, one in enumerate(ops) if isinstance(one, FenceOp))
    return ops[:first], ops[first:]


def _passes(op: Operation) -> bool:
    """Whether an operation passes a turn to the next warpgroup."""
    return isinstance(op, ScopedBarrierOp) and op.arrive is not None


def _zero(index: IndexBuilder, like: SSAValue) -> SSAValue:
    """What a loop without turns hands on."""
    return (
        index.insert(ConstantOp.of(0.0, like.type)).fragment if isinstance(like.type, FragmentType) else index.value(0)
    )


def _operands(value: SSAValue) -> Sequence[SSAValue]:
    return value.owner.operands if isinstance(value.owner, Operation) else ()


def _clone(index: IndexBuilder, ops: Iterable[Operation], seen: dict[SSAValue, SSAValue]) -> None:
    """Builds operations a second time, of values as they are `seen` there, to which it adds their results."""
    for op in ops:
        index.insert(op.clone(seen))


def rotates(loop: scf.ForOp) -> bool:
    """Whether the last products of a loop's turns may run beside the first of the next one: what they multiply is in
    registers, their sums are carried alone, and the others are started together."""
    *first, last = [[], *product_groups(loop.body.block).values()]
    ends = all(isinstance(use.operation, WgmmaOp | scf.YieldOp) for value in last for use in value.uses)
    early = [value for sums in first for value in sums]
    return bool(early) and ends and all(map(_of_registers, last)) and not any(map(_of_registers, early))


def _of_registers(sums: SSAValue) -> bool:
    """Whether a product multiplies an operand in registers."""
    return isinstance(sums.owner, WgmmaOp) and sums.owner.a_in_registers
