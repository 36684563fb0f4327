"""What consumers make of a loop over K: they wait for copies instead of making them, and say what they have read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from xdsl.builder import Builder
from xdsl.dialects import scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.warp.barriers import AwaitOp
from ...dialect.warp.warpgroup import WgmmaCommitOp, WgmmaFenceOp, WgmmaOp, WgmmaWaitOp
from ..tile.index_builder import Index, IndexBuilder
from .ahead import load_ahead, prefetch
from .copy_loop import is_load
from .ring import Ring
from .turns import PingPong


class ConsumerLoop(NamedTuple):
    """A loop over K without its copies, whose tiles are `staged`, beside tiles in the `fixed` stages of another ring.

    So many warpgroups run it, `in_turns` or as it comes.
    """

    loop: scf.ForOp
    staged: Sequence[SSAValue]
    fixed: Mapping[SSAValue, SSAValue]
    groups: int
    in_turns: bool

    def rewrite(
        self,
        index: IndexBuilder,
        ring: Ring,
        state: list[Index],
        behind_all: Callable[[IndexBuilder], None] | None = None,
    ) -> tuple[scf.ForOp, list[Index]]:
        """The loop over K: waits for a stage, and for the products of the one before, where that may be. `behind_all`
        inserts what follows on the loop, while its last products run."""
        old, behind = self.loop.body.block, self._waits_behind()
        body = Block(arg_types=[*(arg.type for arg in old.args), *[IndexType()] * (3 if behind else 2)])
        carried, (stage, parity, *before) = body.args[: len(old.args)], body.args[len(old.args) :]
        inside = index.at(Builder(InsertPoint.at_end(body)))
        inside.insert(AwaitOp(ring.full, stage, parity))
        now: dict[SSAValue, SSAValue] = dict(zip(old.args, carried, strict=True))
        turns = self._turns(index)
        commits = [op for op in old.ops if isinstance(op, WgmmaCommitOp)]
        fences = [op for op in old.ops if isinstance(op, WgmmaFenceOp)]
        *within, last_wait = [op for op in old.ops if isinstance(op, WgmmaWaitOp)]
        for op in old.ops:
            if isinstance(op, scf.YieldOp):
                continue
            if behind and op is last_wait:
                if not within:
                    inside.insert(WgmmaWaitOp(1))
                    ring.release(inside, before[0])
                continue
            new = op.clone(now)
            if isinstance(new, WgmmaOp):
                new.move_to_stages({**dict.fromkeys(self.staged, stage), **self.fixed})
            elif is_load(new) and new.memory in self.staged:
                new.operands = [new.memory, stage, *new.indices]
            if turns is not None and op is fences[-1]:
                turns.begin(inside)
            inside.insert(new)
            if turns is not None and op is commits[0]:
                turns.end(inside, body.args[0], self.loop.lb)
            now.update(zip(op.results, new.results, strict=True))
            if not behind and op is last_wait:
                ring.arrive(inside, stage)
            if behind and within and op is within[-1]:
                # As many groups as a turn has but one may be under way: all of the turn before are done.
                ring.release(inside, before[0])
        if behind:
            prefetch(inside, self.loop, body.args[0])
        handed = [now.get(value, value) for value in (old.last_op.operands if old.last_op is not None else ())]
        following = inside.values(ring.next(inside, stage, parity))
        inside.insert(scf.YieldOp(*handed, *following, *([stage] if behind else [])))
        initial = [*self.loop.iter_args, *index.values([*state, *([ring.stages] if behind else [])])]
        new = index.insert(scf.ForOp(self.loop.lb, self.loop.ub, self.loop.step, initial, body))
        if behind_all is not None:
            behind_all(index)
        last = index.insert(WgmmaWaitOp(0)) if behind else None
        if behind:
            ring.release(index, new.results[-1])
        if turns is not None:
            turns.end_all(index)
        for result, made in zip(self.loop.results, new.results, strict=False):
            result.replace_all_uses_with(made)
        count = len(self.loop.results)
        Rewriter.erase_op(self.loop)
        if last is not None:
            load_ahead(last)
        return new, list(new.results[count : count + 2])

    def _turns(self, index: IndexBuilder) -> PingPong | None:
        """The turns of a warpgroup, where the schedule wants them, of several with several groups of products each."""
        count = sum(isinstance(op, WgmmaCommitOp) for op in self.loop.body.block.ops)
        return PingPong.of(index, self.groups) if self.in_turns and self.groups > 1 and count > 1 else None

    def _waits_behind(self) -> bool:
        """Whether products may be waited for a turn later: nothing in the loop but further ones reads their sums, and
        nothing loads registers that they read, those of metadata, but behind a wait of its own."""
        ops = list(self.loop.body.block.ops)
        if any(map(is_load, ops)) and sum(isinstance(op, WgmmaWaitOp) for op in ops) == 1:
            return False
        sums = [result for op in ops if isinstance(op, WgmmaOp) for result in op.results]
        users = [use.operation for value in sums for use in value.uses]
        return all(isinstance(user, (WgmmaOp, scf.YieldOp)) for user in users) and len(self.loop.iter_args) == 1
