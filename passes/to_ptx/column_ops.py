"""Rows of fragments taken together and spread out: `warp.reduce`, `warp.broadcast`, `warp.step`."""

from __future__ import annotations

from ...dialect.warp.attributes import FragmentType, fragment_of
from ...dialect.warp.rows import BroadcastOp, ReduceOp, StepOp
from .epilogue import own
from .fragments import Fragment, elementwise_opcode
from .kernel import KernelLowering
from .memory import offsets
from .operands import WARP, VirtualRegister
from .registry import lowers


def _rows(kind: FragmentType) -> list[int]:
    """The row of each register of a lane, from the row of its first one."""
    return [row for row, _ in offsets(kind, 1)]


@lowers(ReduceOp)
def _reduce(lowering: KernelLowering, op: ReduceOp) -> None:
    source, result = fragment_of(op.input), op.fragment.type
    opcode, found = elementwise_opcode(op.kind.data, source.element), dict[int, Fragment]()
    for row, register in zip(_rows(source), lowering.fragment(op.input), strict=True):
        found.setdefault(row, []).append(register)
    lowering.emitter.comment(f"{op.name}: {op.kind.data} of rows of {source.shape[0]}x{source.shape[1]}")
    reduced = [_halved(lowering, opcode, found[row]) for row in _rows(result)]
    for bit, (before, after) in enumerate(zip(source.layout.data.lane, result.layout.data.lane, strict=True)):
        if before.axis == "c" and after.axis == "x":
            reduced = [_exchanged(lowering, opcode, register, 1 << bit) for register in reduced]
    lowering.values[op.fragment] = reduced


def _halved(lowering: KernelLowering, opcode: str, registers: Fragment) -> VirtualRegister:
    """All registers as one: the first half with the second one, until one is left."""
    while len(registers) > 1:
        half = (len(registers) + 1) // 2
        taken = [lowering.emitter.compute(opcode, a, b) for a, b in zip(registers, registers[half:], strict=False)]
        registers = [*taken, *registers[len(taken) : half]]
    return registers[0]


def _exchanged(lowering: KernelLowering, opcode: str, register: VirtualRegister, distance: int) -> VirtualRegister:
    """A register with that of the lane whose number differs in one bit."""
    emitter = lowering.emitter
    other = emitter.compute("shfl.sync.bfly.b32", register, distance, *WARP, type=register.type)
    return emitter.compute(opcode, register, other)


@lowers(BroadcastOp)
def _broadcast(lowering: KernelLowering, op: BroadcastOp) -> None:
    held = dict(zip(_rows(fragment_of(op.input)), lowering.fragment(op.input), strict=True))
    registers = [held[row] for row in _rows(op.fragment.type)]
    lowering.values[op.fragment] = own(lowering, op.fragment, registers)


@lowers(StepOp)
def _step(lowering: KernelLowering, op: StepOp) -> None:
    kind, s, axis = op.fragment.type, lowering.scalars, op.along.data[0]
    own_place = lowering.addressing.lane_position(kind.layout.data, lowering.lane)[axis == "c"]
    first, emitter = s.sum(own_place, lowering.scalar(op.start)), lowering.emitter
    numbers: dict[int, VirtualRegister] = {}
    for place in offsets(kind, 1):
        offset = place[axis == "c"]
        if offset not in numbers:
            if isinstance(first, VirtualRegister):
                numbers[offset] = emitter.compute("add.s32", first, offset)
            else:
                numbers[offset] = emitter.compute("mov.b32", first + offset)
    registers = [numbers[place[axis == "c"]] for place in offsets(kind, 1)]
    lowering.values[op.fragment] = own(lowering, op.fragment, registers)
