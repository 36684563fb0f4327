"""What the producer makes of a loop over K: it waits until stages have been read, and starts copies to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.builder import Builder
from xdsl.dialects import scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint

from ...dialect.gpu import SubgroupIdOp
from ...dialect.isa.wgmma import WARPS
from ...dialect.warp.barriers import AwaitOp
from ...dialect.warp.tensor_copies import ExpectOp
from ..tile.index_builder import Index, IndexBuilder
from .ring import Ring
from .staged_loads import Placed, StagedLoads
from .tensor_copies import TensorCopy

Clones: TypeAlias = dict[SSAValue, SSAValue]
"""Values of the consumers' loops, and what they are in the producer's."""


@dataclass(frozen=True)
class ProducerLoop:
    """A loop over K with nothing but its `copies`, in a loop over `tiles` or not.

    Copies `once` for all of it go before, `loads` of the epilogue's matrices behind.
    """

    loop: scf.ForOp
    tiles: scf.ForOp | None
    copies: Sequence[TensorCopy]
    once: Sequence[TensorCopy]
    loads: Sequence[StagedLoads]

    def copy_all(self, index: IndexBuilder, ring: Ring, state: list[Index], moved: Clones) -> list[Index]:
        """The copies of all K tiles of a tile, and of what its epilogue takes from further stages.

        `state` are the first stage and its parity; `moved` says what values of the consumers' turn are in the
        producer's. The result follows on the last stage.
        """
        body = Block(arg_types=[IndexType()] * 3)
        k, stage, parity = body.args
        for value in self._indices():
            self.cloned(index, value, moved, self.loop.body.block)
        inside, in_loop = index.at(Builder(InsertPoint.at_end(body))), moved | {self.loop.body.block.args[0]: k}
        inside.insert(AwaitOp(ring.empty, stage, parity))
        inside.insert(ExpectOp(ring.full, stage, sum(copy.bytes for copy in self.copies)))
        for copy in self.copies:
            at = [self.cloned(inside, i, in_loop, None) for i in copy.copy.indices]
            copy.start(inside, at, lambda v: self.cloned(inside, v, in_loop, None), stage, ring.full)
        inside.insert(scf.YieldOp(*inside.values(ring.next(inside, stage, parity))))
        bounds = [self.cloned(index, value, in_loop, None) for value in (self.loop.lb, self.loop.ub, self.loop.step)]
        lower, upper, step = bounds
        after = list[Index](index.insert(scf.ForOp(lower, upper, step, index.values(state), body)).results)
        for loads in self.loads:
            after = loads.start(index, ring, after, self._of_groups(index, loads.groups, moved))
        return after

    def _of_groups(self, index: IndexBuilder, groups: int, moved: Clones) -> Placed:
        """What values of the consumers' tile are for each of their warpgroups."""
        clones = [dict(moved) for _ in range(groups)]
        return lambda value, group: self._of_group(index, value, group, clones[group])

    def _of_group(self, index: IndexBuilder, value: SSAValue, group: int, moved: Clones) -> SSAValue:
        """A value of the consumers' tile, computed for the producer as it is for one of their warpgroups."""
        op = value.owner
        if isinstance(op, SubgroupIdOp):
            return index.value(group * WARPS)
        if value in moved or not isinstance(op, Operation) or not (self._is_inside(op) or _of_subgroup(value)):
            return moved.get(value, value)
        given = {operand: self._of_group(index, operand, group, moved) for operand in op.operands}
        new = index.insert(op.clone(given))
        moved.update(zip(op.results, new.results, strict=True))
        return moved[value]

    def _indices(self) -> list[SSAValue]:
        """What the coordinates of copies are made of."""
        every = [copy.copy for copy in (*self.once, *self.copies)]
        found = [i for copy in every for i in copy.indices]
        for copy in every:
            if isinstance(copy.source.owner, Operation):
                found += list(copy.source.owner.operands)[1:]
        return found

    def cloned(self, index: IndexBuilder, value: SSAValue, moved: Clones, without: Block | None) -> SSAValue:
        """A value of the consumers' tile, computed for the producer as well, unless it depends on `without`."""
        op = value.owner
        if value in moved or not isinstance(op, Operation) or not self._is_inside(op):
            return moved.get(value, value)
        if without is not None and _depends(value, without):
            return value
        given = {operand: self.cloned(index, operand, moved, without) for operand in op.operands}
        new = index.insert(op.clone(given))
        moved.update(zip(op.results, new.results, strict=True))
        return moved[value]

    def _is_inside(self, op: Operation) -> bool:
        """Whether an operation is in a loop that the producer has its own of."""
        blocks = {self.loop.body.block, *([] if self.tiles is None else [self.tiles.body.block])}
        return op.parent in blocks


def _depends(value: SSAValue, block: Block) -> bool:
    op = value.owner
    if not isinstance(op, Operation):
        return op is block
    return op.parent is block or any(_depends(operand, block) for operand in op.operands)


def _of_subgroup(value: SSAValue) -> bool:
    """Whether a value depends on the warp that computes it."""
    op = value.owner
    return isinstance(op, SubgroupIdOp) or (isinstance(op, Operation) and any(map(_of_subgroup, op.operands)))
