"""A K loop that copies tiles to shared memory and computes with them, read by def-use.

What counts is who makes and who uses what, not where it stands: constants and indices may be anywhere, products may be
any number, with sums of their own. Copies come before a barrier, loads of what they copy between it and another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn, TypeGuard

from xdsl.dialects import arith, gpu, memref, scf
from xdsl.ir import Block, Operation, SSAValue

from ...dialect.warp.cta import CopyOp
from ...dialect.warp.memory import LoadOp
from ...dialect.warp.mma import MmaOp
from ...dialect.warp.op_shapes import is_pure, only_reads
from ..builder import constant_value


class DeclinedError(Exception):
    """Why a loop is left as it is, and the operation that is the reason."""

    def __init__(self, op: Operation, reason: str) -> None:
        super().__init__(reason)
        self.op, self.reason = op, reason


def decline(op: Operation, reason: str) -> NoReturn:
    """Leaves the loop as it is because of `op`."""
    raise DeclinedError(op, reason)


def is_load(op: Operation) -> TypeGuard[LoadOp]:
    """Whether an operation reads a fragment from a tile in shared memory, and can from one of several stages."""
    return isinstance(op, LoadOp) and op.along is None


class Step(NamedTuple):
    """Fragments that are loaded together, and what is computed until others are: products, and what is made for them.

    Loads run a step ahead of what is computed.
    """

    loads: list[LoadOp]
    ops: list[Operation]


@dataclass(frozen=True)
class CopyLoop:
    """A K loop: copies, barrier, steps, barrier."""

    loop: scf.ForOp
    copies: tuple[CopyOp, ...]
    steps: tuple[Step, ...]

    @property
    def body(self) -> Block:
        return self.loop.body.block

    @property
    def counter(self) -> SSAValue:
        return self.body.args[0]

    @property
    def yielded(self) -> Sequence[SSAValue]:
        return self.body.ops.last.operands if self.body.ops.last is not None else ()

    @property
    def counts(self) -> bool:
        """Whether something that is computed, not only copied, depends on the loop's counter."""
        return self.counter in self.yielded or any(self.counter in _used(op) for s in self.steps for op in s.ops)

    def has(self, op: Operation) -> bool:
        """Whether an operation is in the loop's body."""
        return op.parent is self.body

    def depends(self, value: SSAValue) -> bool:
        """Whether an index follows from the counter."""
        return self.counter in self.leaves(value)

    def leaves(self, value: SSAValue) -> Iterator[SSAValue]:
        """What an index is made of: the counter, and values from outside of the loop."""
        op = value.owner
        if isinstance(op, Operation) and self.has(op):
            for operand in op.operands:
                yield from self.leaves(operand)
        else:
            yield value

    def known_at(self, value: SSAValue, k: int) -> int | None:
        """An index that only multiplies and divides the counter by constants, where the counter is k."""
        if value == self.counter:
            return k
        op = value.owner
        if not isinstance(op, arith.MuliOp | arith.DivUIOp):
            return None
        inner, by = self.known_at(op.lhs, k), constant_value(op.rhs)
        if inner is None or by is None:
            return None
        return inner * by if isinstance(op, arith.MuliOp) else inner // by


def _used(op: Operation) -> set[SSAValue]:
    """The operands of an operation and of those in its regions."""
    return {operand for inner in op.walk() for operand in inner.operands}


def copied_once(source: CopyLoop) -> tuple[gpu.BarrierOp | None, list[CopyOp]]:
    """The barrier before the loop that waits for tiles which are copied once, and their copies. The loop's own first
    copies and loads can stand in its place: nothing writes memory between the two, and all they need is made before."""
    barrier = source.loop.prev_op
    while barrier is not None and not isinstance(barrier, gpu.BarrierOp) and only_reads(barrier):
        barrier = barrier.prev_op
    if not isinstance(barrier, gpu.BarrierOp):
        return None, []
    needed = [leaf for op in (*source.copies, *source.steps[0].loads) for i in op.operands for leaf in source.leaves(i)]
    made = [value.owner for value in needed if isinstance(value.owner, Operation)]
    if not all(op.parent is not barrier.parent or op.is_before_in_block(barrier) for op in made):
        return None, []
    return barrier, [op for op in _back_to_barrier(barrier) if isinstance(op, CopyOp) and op.is_async is None]


def _back_to_barrier(op: Operation) -> Iterator[Operation]:
    """The operations before one, back to a barrier."""
    while (before := op.prev_op) is not None and not isinstance(before, gpu.BarrierOp):
        yield (op := before)


def copies_of(loop: scf.ForOp) -> tuple[CopyOp, ...]:
    """The copies to shared memory of a loop that waits for each of them: none if it is no such loop."""
    copies = tuple(op for op in loop.body.block.ops if isinstance(op, CopyOp))
    return () if any(copy.is_async is not None or copy.stage for copy in copies) else copies


def read(loop: scf.ForOp) -> CopyLoop:
    """Reads a loop with copies to shared memory.

    Raises:
        DeclinedError: naming the operation for which copies cannot run ahead.
    """
    copies = copies_of(loop)
    tiles = {copy.destination for copy in copies}
    for copy in copies:
        _check_tile(copy, loop)
    _check_order(loop, tiles)
    found = CopyLoop(loop, copies, _steps(loop, tiles))
    if not any(step.loads for step in found.steps):
        decline(loop, "nothing that the loop computes reads the tiles that it copies")
    for op in (*copies, *(load for step in found.steps for load in step.loads)):
        for i in (*op.indices, *([op.source] if isinstance(op, CopyOp) else [])):
            _check_index(op, i, found, is_copy=isinstance(op, CopyOp))
    return found


def _check_tile(copy: CopyOp, loop: scf.ForOp) -> None:
    """A tile gets a dimension of stages, so all who use it must be known: the copies and loads of this loop."""
    if not isinstance(copy.destination.owner, memref.AllocOp):
        decline(copy, "its tile is not allocated in this kernel")
    for use in copy.destination.uses:
        if use.operation.parent is not loop.body.block:
            decline(use.operation, "it uses a tile of a loop that it stands outside of, so the tile has one stage")
        if not (isinstance(use.operation, CopyOp) or is_load(use.operation)):
            decline(use.operation, f"{use.operation.name} cannot read one of several stages of a tile")


def _check_order(loop: scf.ForOp, tiles: set[SSAValue]) -> None:
    """Copies, a barrier, loads, a barrier; nothing else writes memory."""
    barriers = loaded = 0
    for op in loop.body.block.ops:
        if isinstance(op, gpu.BarrierOp):
            barriers += 1
        elif isinstance(op, CopyOp):
            if barriers:
                decline(op, "it is behind a barrier, where tiles are already read")
        elif is_load(op) and op.memory in tiles:
            loaded = barriers
            if not barriers:
                decline(op, "no barrier is between it and the copies of what it loads")
        elif not (isinstance(op, scf.YieldOp) or only_reads(op)):
            decline(op, f"{op.name} in the loop may write memory")
    if barriers <= loaded:
        decline(loop, "no barrier keeps the next copies from tiles that are still read")


def _steps(loop: scf.ForOp, tiles: set[SSAValue]) -> tuple[Step, ...]:
    """What the loop hands on, and all that it is made of, in order; a load behind a product begins a step."""
    body, needed, steps = loop.body.block, set[Operation](), [Step([], [])]
    for op in reversed(list(body.ops)):
        if isinstance(op, scf.YieldOp) or any(use.operation in needed for r in op.results for use in r.uses):
            needed |= {op, *(inner for value in _used(op) if isinstance(inner := value.owner, Operation))}
    for op in body.ops:
        if op not in needed or isinstance(op, scf.YieldOp):
            continue
        if is_load(op) and op.memory in tiles:
            if any(isinstance(before, MmaOp) for before in steps[-1].ops):
                steps.append(Step([], []))
            steps[-1].loads.append(op)
        else:
            steps[-1].ops.append(op)
    return tuple(steps)


def _check_index(op: Operation, i: SSAValue, loop: CopyLoop, *, is_copy: bool) -> None:
    """Copies and loads of another tile along K need their indices anew, without what the loop computes."""
    if i == loop.counter:
        if not is_copy:
            decline(op, "it reads another place of its tile in each turn of the loop")
        return
    if i in loop.body.args:
        decline(op, "it is at a place that the turn before has computed")
    if not isinstance(i.owner, Operation) or not loop.has(i.owner):
        return
    if not is_pure(i.owner):
        decline(op, f"it is at a place that {i.owner.name} reads in each turn of the loop")
    for operand in i.owner.operands:
        _check_index(op, operand, loop, is_copy=is_copy)
