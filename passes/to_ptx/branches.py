"""Branches: `scf.if`, and `warp.elect`.

All lanes of a warp take the same way; only below a condition that holds for the lane that `warp.elect` chose, one lane
goes alone. What takes whole warps is refused there, and the warp meets again behind the branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.dialects import arith, gpu, scf
from xdsl.dialects.builtin import i1
from xdsl.ir import Block, Operation, Region, SSAValue

from ...dialect.warp.synchronisation import ElectOp
from ..diagnostics import fail
from .emitter import common_divisor
from .fragments import Fragment
from .operands import Second, VirtualRegister, word
from .registry import lowers

if TYPE_CHECKING:
    from .kernel import KernelLowering, KernelValue
    from .operands import IndexValue

WARP = word(0xFFFFFFFF)
"""All lanes."""

ALONE = frozenset(
    ("warp.expect", "warp.arrive", "warp.await", "warp.tensor_load", "warp.tensor_store", "warp.bulk_commit")
) | {"warp.bulk_wait", "warp.proxy_fence", "warp.cluster_rank"}
"""Operations of the dialect that one lane can do alone."""


@lowers(ElectOp)
def _elect(lowering: KernelLowering, op: ElectOp) -> None:
    chosen = lowering.emitter.register("pred")
    lowering.emitter.emit("elect.sync", Second(chosen), WARP)
    lowering.values[op.chosen] = chosen


def holds_for_one(condition: SSAValue) -> bool:
    """Whether a condition is true for at most the elected lane of a warp."""
    owner = condition.owner
    if isinstance(owner, arith.AndIOp):
        return any(map(holds_for_one, owner.operands))
    return isinstance(owner, ElectOp)


def is_alone(op: Operation) -> bool:
    """Whether only the elected lane of a warp comes to an operation."""
    region = op.parent_region()
    while region is not None and (above := region.parent) is not None:
        if isinstance(above, scf.IfOp) and region is above.true_region and holds_for_one(above.cond):
            return True
        region = above.parent_region()
    return False


def _check_alone(region: Region) -> None:
    for op in region.walk():
        if (op.name.startswith("warp.") and op.name not in ALONE) or isinstance(op, gpu.BarrierOp):
            fail(op, f"{op.name} takes whole warps; below warp.elect one lane is alone")


def _ways(op: scf.IfOp) -> tuple[Block, Block | None]:
    """What is done where the condition holds, and where not; both yield the results.

    Raises:
        Diagnostic: where a way yields others than the results, or there is none to.
    """
    other = op.false_region.blocks.first
    if op.output and other is None:
        fail(op, "expected scf.if with results to have an else, which yields them too")
    wanted = tuple(op.output.types)
    for block in (op.true_region.block, other):
        last = block.last_op if block is not None else None
        given = tuple(value.type for value in last.operands) if last is not None else ()
        if block is not None and given != wanted:
            fail(last or op, f"expected a yield of ({_listed(wanted)}), got ({_listed(given)})")
    return op.true_region.block, other


def _listed(types: Sequence[object]) -> str:
    return ", ".join(map(str, types))


@lowers(scf.IfOp)
def _if(lowering: KernelLowering, op: scf.IfOp) -> None:
    """A branch that all lanes of a warp take, or none, but for an elected one."""
    taken, (true, false) = lowering.predicate(op.cond), _ways(op)
    alone = holds_for_one(op.cond)
    if alone:
        _check_alone(op.true_region)
    if not isinstance(taken, VirtualRegister):
        if (block := true if taken else false) is not None:
            lowering.block(block)
            _take(lowering, op, [lowering.values[value] for value in _yielded(block)])
        return
    results = [_variable(lowering, value) for value in op.output]
    if false is None or not _does_anything(false):
        _one_way(lowering, taken, true)
    else:
        _two_ways(lowering, taken, (true, false), results)
    if alone:
        lowering.emitter.emit("bar.warp.sync", WARP)
    _take(lowering, op, results)


def _take(lowering: KernelLowering, op: scf.IfOp, results: Sequence[KernelValue]) -> None:
    lowering.values |= dict(zip(op.output, results, strict=True))


def _yielded(block: Block) -> Sequence[SSAValue]:
    return block.last_op.operands if block.last_op is not None else ()


def _does_anything(block: Block) -> bool:
    return any(not isinstance(o, scf.YieldOp) or o.operands for o in block.ops)


def _one_way(lowering: KernelLowering, taken: VirtualRegister, block: Block) -> None:
    emitter = lowering.emitter
    end = emitter.fresh_label("skipped")
    with emitter.loop():
        emitter.branch(end, unless=taken)
        lowering.block(block)
        emitter.label(end)


def _two_ways(
    lowering: KernelLowering,
    taken: VirtualRegister,
    blocks: tuple[Block, Block],
    results: Sequence[Fragment | VirtualRegister],
) -> None:
    """Each way has a level of its own, and both are inside another: what leaves them goes before the branch."""
    emitter = lowering.emitter
    otherwise, end = emitter.fresh_label("otherwise"), emitter.fresh_label("met")
    with emitter.loop():
        emitter.branch(otherwise, unless=taken)
        yielded = _way(lowering, blocks[0], results)
        emitter.branch(end)
        emitter.label(otherwise)
        yielded += _way(lowering, blocks[1], results)
        emitter.label(end)
    for i, result in enumerate(results):
        values = [value for value in yielded[i :: len(results)] if not isinstance(value, list)]
        if isinstance(result, VirtualRegister) and result.type == "b32":
            result.divisor = common_divisor(values)


def _way(
    lowering: KernelLowering, block: Block, results: Sequence[Fragment | VirtualRegister]
) -> list[Fragment | IndexValue]:
    """One way, at whose end the results are set; what it yields."""
    with lowering.emitter.loop():
        lowering.block(block)
        values = [_value(lowering, value) for value in _yielded(block)]
        for value, result in zip(values, results, strict=True):
            if isinstance(value, list) and isinstance(result, list):
                lowering.fragments.copy(value, result)
            elif not isinstance(value, list) and isinstance(result, VirtualRegister):
                _set(lowering, result, value)
    return values


def _variable(lowering: KernelLowering, result: SSAValue) -> Fragment | VirtualRegister:
    """Registers for a result."""
    fragment = lowering.fresh(result.type)
    return fragment or lowering.emitter.register("pred" if result.type == i1 else "b32")


def _value(lowering: KernelLowering, value: SSAValue) -> Fragment | IndexValue:
    held = lowering.values[value]
    if isinstance(held, list):
        return held
    return lowering.predicate(value) if value.type == i1 else lowering.scalar(value)


def _set(lowering: KernelLowering, register: VirtualRegister, value: IndexValue) -> None:
    lowering.emitter.move(register, value if isinstance(value, VirtualRegister) else int(value))
