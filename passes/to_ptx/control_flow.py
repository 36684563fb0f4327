"""Control flow and indices: `scf.for`, `scf.if`, `nvvm.elect.sync`, `gpu.barrier`, integers of `arith` and `gpu`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from xdsl.dialects import arith, gpu, scf
from xdsl.dialects.builtin import IndexType, i1, i32, i64
from xdsl.ir import Attribute, Block, Operation, SSAValue

from ...dialect.layouts.layout import LANES
from ...dialect.mlir.gpu import ClusterBlockIdOp, NumberAlong, X
from ...dialect.mlir.upstream import ElectOp, IndexCastUIOp, RegistersOp
from ...dialect.warp.attributes import TENSOR_SPACE, memory_of, memory_space
from ...dialect.warp.elements import listed_types
from ...dialect.warp.memory import CopyOp, LoadOp
from ...dialect.warp.synchronisation import BULK, MAX_CTAS, WGMMA, ArriveOp, CommitOp, FenceOp, WaitOp
from ..diagnostics import fail
from .addressing import INDEX_LIMIT
from .emitter import SINK, Both, Condition, IndexValue, VirtualRegister, word
from .fragments import Fragment, only_use_is_here
from .kernel import KernelLowering, cluster_of, handler_of, is_index, lowers
from .scalars import WORD, Scalars, common_divisor

if TYPE_CHECKING:
    from .kernel import KernelValue

# Indices: arithmetic of `arith`, and where a thread is, of `gpu`.

PREDICATES = ("eq", "ne", "lt", "le", "gt", "ge")
"""The first predicates of `arith.cmpi`, those of signed numbers; the last four come again for unsigned ones."""


@lowers(arith.ConstantOp)
def _constant(lowering: KernelLowering, op: arith.ConstantOp) -> None:
    if not is_index(lowering, op, op.value):
        from .thread_code import constant

        constant(lowering, op)


def _of_elements(lowering: KernelLowering, op: Operation) -> None:
    """Lowers arithmetic on scalars other than indices, as that on elements."""
    from .thread_code import arithmetic

    arithmetic(lowering, op)


def lower_as(lowering: KernelLowering, op: Operation, kind: type[Operation]) -> None:
    """Lowers an operation as another on the same operands."""
    same = kind.create(operands=op.operands, result_types=[r.type for r in op.results], properties=op.properties)
    same.location = op.location
    if (lower := handler_of(same)) is not None:
        lower(lowering, same)
    lowering.values[op.results[0]] = lowering.values.pop(same.results[0])
    same.drop_all_references()


@lowers(arith.CmpiOp)
def _compare(lowering: KernelLowering, op: arith.CmpiOp) -> None:
    kind, signed = op.predicate.value.data, len(PREDICATES)
    if op.lhs.type not in (IndexType(), i32):
        _of_elements(lowering, op)
        return
    lhs, rhs = lowering.scalar(op.lhs), lowering.scalar(op.rhs)
    name = PREDICATES[kind] if kind < signed else PREDICATES[kind - 4]
    lowering.values[op.result] = lowering.scalars.compare(name, lhs, rhs, signed=kind < signed)


Connective = Callable[[Scalars, Condition, Condition], Condition]
Binary = Callable[[Scalars, IndexValue, IndexValue], IndexValue]

_LOGIC: Mapping[type[Operation], tuple[Connective, Mapping[Attribute, Binary]]] = {
    arith.OrIOp: (Scalars.either, {}),
    arith.XOrIOp: (Scalars.differ, {IndexType(): Scalars.xor}),
    arith.AndIOp: (Scalars.both, {i32: Scalars.bitwise_and}),
}
"""What becomes of two conditions, and of two numbers of some types bit by bit."""


def _logic(lowering: KernelLowering, op: Operation) -> None:
    (result,), (of_conditions, of_numbers) = op.results, _LOGIC[type(op)]
    if result.type == i1:
        lowering.values[result] = of_conditions(lowering.scalars, *map(lowering.predicate, op.operands))
    elif (bit_by_bit := of_numbers.get(result.type)) is not None:
        lowering.values[result] = bit_by_bit(lowering.scalars, *lowering.indices(op.operands))
    else:
        _of_elements(lowering, op)


for _kind in _LOGIC:
    lowers(_kind)(_logic)


@lowers(arith.SelectOp)
def _select(lowering: KernelLowering, op: arith.SelectOp) -> None:
    condition = lowering.predicate(op.cond)
    if op.result.type == i1:
        _of_elements(lowering, op)
        return
    if isinstance(lowering.values[op.lhs], list):
        yes, no = lowering.fragment(op.lhs), lowering.fragment(op.rhs)
        lowering.values[op.result] = lowering.fragments.select(condition, yes, no)
        return
    lowering.values[op.result] = lowering.scalars.select(condition, lowering.scalar(op.lhs), lowering.scalar(op.rhs))


def _cast(lowering: KernelLowering, op: arith.IndexCastOp | IndexCastUIOp) -> None:
    """An index as a number of 32 bits, which elements are computed with; or the reverse, of a number from memory."""
    kinds = op.input.type, op.result.type
    if kinds == (i64, IndexType()):
        lowering.values[op.result] = lowering.emitter.compute("cvt.u32.u64", lowering.fragment(op.input)[0])
        return
    if kinds not in ((i32, IndexType()), (IndexType(), i32), (IndexType(), i64)):
        wider = arith.ExtUIOp if isinstance(op, IndexCastUIOp) else arith.ExtSIOp
        lower_as(lowering, op, arith.TruncIOp if isinstance(kinds[0], IndexType) else wider)
        return
    source = lowering.scalar(op.input)
    if isinstance(source, int):
        source = lowering.emitter.compute("mov.b32", source)
    wide = kinds[1] == i64
    lowering.values[op.result] = [lowering.emitter.compute("cvt.s64.s32", source)] if wide else source


lowers(arith.IndexCastOp)(_cast)
lowers(IndexCastUIOp)(_cast)


@lowers(gpu.BlockIdOp)
def _block_id(lowering: KernelLowering, op: gpu.BlockIdOp) -> None:
    lowering.values[op.result] = lowering.scalars.special(f"%ctaid.{op.dimension.data}", INDEX_LIMIT)


@lowers(ClusterBlockIdOp)
def _cluster_block_id(lowering: KernelLowering, op: NumberAlong) -> None:
    """In a cluster along x, the rank is the number along x, and is one register of the hardware."""
    is_rank = op.dimension.data == X.data and cluster_of(lowering.kernel, lowering.target)[1:] == [1, 1]
    name = "%cluster_ctarank" if is_rank else f"%cluster_ctaid.{op.dimension.data}"
    lowering.values[op.result] = lowering.scalars.special(name, MAX_CTAS)


@lowers(gpu.SubgroupIdOp)
def _subgroup_id(lowering: KernelLowering, op: gpu.SubgroupIdOp) -> None:
    lowering.values[op.result] = lowering.scalars.shift_right(lowering.thread, LANES.bit_length() - 1)


@lowers(gpu.ThreadIdOp)
def _thread_id(lowering: KernelLowering, op: gpu.ThreadIdOp) -> None:
    lowering.values[op.result] = lowering.thread_along["xyz".index(str(op.dimension.data))]


@lowers(gpu.LaneIdOp)
def _lane_id(lowering: KernelLowering, op: gpu.LaneIdOp) -> None:
    lowering.values[op.result] = lowering.lane


def _binary(kind: type[Operation], compute: Binary) -> None:
    """Registers an operation on two indices, or numbers of 32 bits. Division by a constant zero is left undefined."""
    divides = kind in (arith.DivUIOp, arith.RemUIOp)
    unsigned = divides or kind is arith.MinUIOp

    def handle(lowering: KernelLowering, op: Operation) -> None:
        if op.results[0].type not in (IndexType(), i32):
            _of_elements(lowering, op)
            return
        lhs, rhs = (x & WORD if unsigned and isinstance(x, int) else x for x in lowering.indices(op.operands))
        if divides and rhs == 0:
            fail(op, f"{op.name} divides by zero")
        result = compute(lowering.scalars, lhs, rhs)
        if isinstance(result, int) and not -INDEX_LIMIT <= result < INDEX_LIMIT:
            if op.results[0].type != i32:
                fail(op, f"indices are 32-bit, got {result}")
            result = (result + INDEX_LIMIT & WORD) - INDEX_LIMIT
        lowering.values[op.results[0]] = result

    lowers(kind)(handle)


_BINARY: Mapping[type[Operation], Binary] = {
    arith.AddiOp: Scalars.add,
    arith.SubiOp: Scalars.subtract,
    arith.MuliOp: Scalars.multiply,
    arith.DivUIOp: Scalars.quotient,
    arith.RemUIOp: Scalars.remainder,
    arith.MinUIOp: Scalars.minimum,
    arith.MinSIOp: partial(Scalars.minimum, signed=True),
}
for _kind, _compute in _BINARY.items():
    _binary(_kind, _compute)


# Branches: `scf.if`, and `nvvm.elect.sync`.
#
# All lanes of a warp take the same way; only below a condition that holds for the lane that `nvvm.elect.sync` chose,
# one lane goes alone. What takes whole warps is refused there, and the warp meets again behind the branch.

WARP = word(0xFFFFFFFF)
"""All lanes."""

ALONE = frozenset(("warp.await", "warp.tensor_load", "warp.tensor_store", "warp.tensor_mma"))
"""Operations of the dialect that one lane can do alone."""


def _can_be_alone(op: Operation) -> bool:
    """Whether one lane can do an operation without the others of its warp."""
    if isinstance(op, CommitOp | WaitOp):
        return op.group.data == BULK
    if isinstance(op, ArriveOp):
        return op.copies is None
    if isinstance(op, CopyOp):
        return memory_space(memory_of(op.destination)) == TENSOR_SPACE
    if isinstance(op, FenceOp):
        return op.before.data != WGMMA
    together = op.name.startswith("warp.") or isinstance(op, gpu.BarrierOp | ElectOp | RegistersOp)
    return not together or op.name in ALONE


@lowers(ElectOp)
def _elect(lowering: KernelLowering, op: Any) -> None:
    chosen = lowering.emitter.register("pred")
    lanes = WARP if op.membermask is None else lowering.scalar(op.membermask)
    lowering.emitter.emit("elect.sync", Both(SINK, chosen), lanes)
    lowering.values[op.pred] = chosen


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


def _ways(op: scf.IfOp) -> tuple[Block, Block | None]:
    """The two branches; each yields the results. Raises Diagnostic if a branch yields other types, or is missing."""
    other = op.false_region.blocks.first
    if op.output and other is None:
        fail(op, "expected scf.if with results to have an else, which yields them too")
    wanted = tuple(op.output.types)
    for block in (op.true_region.block, other):
        last = block.last_op if block is not None else None
        types = tuple(value.type for value in last.operands) if last is not None else ()
        if block is not None and types != wanted:
            fail(last or op, f"expected a yield of ({listed_types(wanted)}), got ({listed_types(types)})")
    return op.true_region.block, other


@lowers(scf.IfOp)
def _if(lowering: KernelLowering, op: scf.IfOp) -> None:
    """Lowers an `scf.if`. All lanes of a warp take the same branch, except for an elected lane."""
    taken, (true, false) = lowering.predicate(op.cond), _ways(op)
    alone = holds_for_one(op.cond)
    for inner in op.true_region.walk() if alone else ():
        if not _can_be_alone(inner):
            fail(inner, f"{inner.name} takes whole warps; below {ElectOp.name} one lane is alone")
    if not isinstance(taken, VirtualRegister):
        if (block := true if taken else false) is not None:
            lowering.block(block)
            yielded = (lowering.values[value] for value in _yielded_values(block))
            lowering.values |= dict(zip(op.output, yielded, strict=True))
        return
    results = [variable_of(lowering, value) for value in op.output]
    if false is None or all(isinstance(o, scf.YieldOp) and not o.operands for o in false.ops):
        with lowering.emitter.skipping("skipped", unless=taken):
            lowering.block(true)
    else:
        _two_ways(lowering, taken, (true, false), results)
    if alone:
        lowering.emitter.emit("bar.warp.sync", WARP)
    lowering.values |= dict(zip(op.output, results, strict=True))


def _yielded_values(block: Block) -> Sequence[SSAValue]:
    return block.last_op.operands if block.last_op is not None else ()


def _two_ways(
    lowering: KernelLowering,
    taken: VirtualRegister,
    blocks: tuple[Block, Block],
    results: Sequence[Fragment | VirtualRegister],
) -> None:
    """Emits both branches, each with a loop level in a common one: what is hoisted out precedes the branch."""
    emitter = lowering.emitter
    otherwise, end = emitter.fresh_label("otherwise"), emitter.fresh_label("met")
    with emitter.loop():
        emitter.branch(otherwise, unless=taken)
        yielded = _branch_values(lowering, blocks[0], results)
        emitter.branch(end)
        emitter.label(otherwise)
        yielded += _branch_values(lowering, blocks[1], results)
        emitter.label(end)
    for i, result in enumerate(results):
        values = [value for value in yielded[i :: len(results)] if not isinstance(value, list)]
        if isinstance(result, VirtualRegister) and result.type == "b32":
            result.divisor = common_divisor(values)


def _branch_values(
    lowering: KernelLowering, block: Block, results: Sequence[Fragment | VirtualRegister]
) -> list[Fragment | IndexValue]:
    """Emits one branch, which assigns the results at its end. Returns the yielded values."""
    with lowering.emitter.loop():
        lowering.block(block)
        values = values_of(lowering, _yielded_values(block))
        assign(lowering, results, values)
    return values


def assign(lowering: KernelLowering, variables: Sequence[KernelValue], values: Sequence[Fragment | IndexValue]) -> None:
    """Copies values, all at once, to the registers of variables of the same types."""
    moves: list[tuple[VirtualRegister, IndexValue]] = []
    for variable, value in zip(variables, values, strict=True):
        if isinstance(variable, list) and isinstance(value, list):
            moves += zip(variable, value, strict=True)
        elif isinstance(variable, VirtualRegister) and not isinstance(value, list):
            moves.append((variable, int(value) if isinstance(value, bool) else value))
    lowering.emitter.move_all(moves)


def variable_of(lowering: KernelLowering, result: SSAValue) -> Fragment | VirtualRegister:
    """Registers for a result."""
    fragment = lowering.fresh(result.type)
    return fragment or lowering.emitter.register("pred" if result.type == i1 else "b32")


def values_of(lowering: KernelLowering, values: Sequence[SSAValue]) -> list[Fragment | IndexValue]:
    """The registers, or the constants, of values."""
    return [_value_of(lowering, value) for value in values]


def _value_of(lowering: KernelLowering, value: SSAValue) -> Fragment | IndexValue:
    registers = lowering.values[value]
    if isinstance(registers, list):
        return registers
    return lowering.predicate(value) if value.type == i1 else lowering.scalar(value)


# Loops and barriers: `scf.for`, `gpu.barrier`, and the end of a kernel.


@lowers(gpu.BarrierOp)
def _barrier(lowering: KernelLowering, op: gpu.BarrierOp) -> None:
    lowering.emitter.emit("bar.sync", 0)


@lowers(gpu.ReturnOp)
def _finish(lowering: KernelLowering, op: gpu.ReturnOp) -> None:
    lowering.emitter.emit("ret")


@lowers(scf.ForOp)
def _loop(lowering: KernelLowering, op: scf.ForOp) -> None:
    """A counted loop. Its variables are registers, or the registers of fragments, that each turn sets anew. Where a
    fragment's next value is made after the last use of the current one, it is made in the same registers."""
    lower, upper, step = lowering.indices((op.lb, op.ub, op.step))
    block, emitter = op.body.block, lowering.emitter
    initial = [_loop_variable(lowering, value, op) for value in op.iter_args]
    with emitter.loop():
        counter = emitter.register("b32", divisor=common_divisor((lower, step)))
        emitter.move(counter, lower)
        variables = _copied_indices(lowering, initial)
        stem = emitter.fresh_label("loop")
        emitter.branch(f"{stem}_end", guard=lowering.scalars.compare("ge", lower, upper))
        emitter.label(stem)
        emitter.comment(f"{_what(block)} loop" + (f", step {step}" if isinstance(step, int) else ""))
        lowering.values |= dict(zip(block.args, (counter, *variables), strict=True))
        lowering.block(block)
        assign(lowering, variables, values_of(lowering, _yielded_values(block)))
        emitter.emit("add.s32", counter, counter, step)
        emitter.branch(stem, guard=emitter.compute("setp.lt.s32", counter, upper))
        emitter.label(f"{stem}_end")
    # Indices are copied, so that arithmetic on them stays behind the loop.
    lowering.values |= dict(zip(op.results, _copied_indices(lowering, variables), strict=True))


@lowers(scf.WhileOp)
def _while(lowering: KernelLowering, op: scf.WhileOp) -> None:
    """Turns of a test and a body while a condition holds. Each thread leaves when its own does not."""
    emitter, before, after = lowering.emitter, op.before_region.block, op.after_region.block
    test = before.last_op
    if not isinstance(test, scf.ConditionOp):
        fail(op, f"expected scf.condition at the end of the first region of {op.name}")
    with emitter.loop():
        carried = [variable_of(lowering, value) for value in before.args]
        results = [variable_of(lowering, value) for value in op.res]
        assign(lowering, carried, values_of(lowering, op.arguments))
        stem = emitter.fresh_label("while")
        emitter.label(stem)
        lowering.values |= dict(zip(before.args, carried, strict=True))
        lowering.block(before)
        assign(lowering, results, values_of(lowering, test.args))
        holds = lowering.predicate(test.condition)
        if holds is not True:
            emitter.branch(f"{stem}_end", unless=holds or None)
        lowering.values |= dict(zip(after.args, results, strict=True))
        lowering.block(after)
        assign(lowering, carried, values_of(lowering, _yielded_values(after)))
        emitter.branch(stem)
        emitter.label(f"{stem}_end")
    lowering.values |= dict(zip(op.res, _copied_indices(lowering, results), strict=True))


def _copied_indices(
    lowering: KernelLowering, values: Sequence[Fragment | IndexValue]
) -> list[Fragment | VirtualRegister]:
    """Fragments as they are, and registers of their own for indices and conditions."""
    return [value if isinstance(value, list) else _copied(lowering, value) for value in values]


def _copied(lowering: KernelLowering, value: IndexValue) -> VirtualRegister:
    if isinstance(value, bool):
        return lowering.emitter.compute("mov.pred", int(value))
    kind = "pred" if isinstance(value, VirtualRegister) and value.type == "pred" else "b32"
    return lowering.emitter.compute(f"mov.{kind}", value)


def _loop_variable(lowering: KernelLowering, value: SSAValue, loop: scf.ForOp) -> Fragment | IndexValue:
    """The initial value; of a fragment, registers that the loop may overwrite."""
    registers = _value_of(lowering, value)
    if isinstance(registers, list) and not only_use_is_here(value, loop):
        fresh = lowering.fresh(value.type)
        lowering.fragments.copy(registers, fresh)
        return fresh
    return registers


def _what(body: Block) -> str:
    """What a loop counts, for a comment."""
    if any(isinstance(op, scf.ForOp) for op in body.ops):
        return "tile"
    return "part" if any(isinstance(op, LoadOp) and op.order == "vectors" for op in body.ops) else "K"


def _end(lowering: KernelLowering, op: Operation) -> None:
    """The loop or branch around it lowers its operands."""


lowers(scf.ConditionOp)(_end)
lowers(scf.YieldOp)(_end)
