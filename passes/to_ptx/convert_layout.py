"""Fragments in another layout: what `warp.convert_layout` becomes, step by step of the way that is cheapest."""

from __future__ import annotations

from collections.abc import Sequence

from ...dialect.isa.moves import MOVMATRIX
from ...dialect.layouts.layout import LANES
from ...dialect.layouts.steps import LANE_BITS, MoveMatrices, PermuteElements, Rename, Shuffles, Step, Trip, Way
from ...dialect.warp.attributes import fragment_of
from ...dialect.warp.convert_layout import ConvertLayoutOp
from ..diagnostics import fail
from .epilogue import own
from .fragments import Fragment
from .kernel import KernelLowering
from .operands import WARP, IndexValue, VirtualRegister
from .permute import REGISTER_BITS, gather
from .registry import lowers


@lowers(ConvertLayoutOp)
def _convert_layout(lowering: KernelLowering, op: ConvertLayoutOp) -> None:
    conversion, target = op.conversion(), lowering.target
    wide = op.fragment.type.bits > REGISTER_BITS
    fits = (way for way in conversion.ways if way.sm <= target.sm and _stays(way) and (way.is_free or not wide))
    way = next(fits, None)
    if way is None:
        fail(op, f"expected a way between the layouts that {target} has, got {conversion}")
    if any(isinstance(step, Shuffles | MoveMatrices) for step in way.steps):
        lowering.emitter.comment(f"{op.name}: {way}")
    held, kind = lowering.fragment(op.input), op.fragment.type
    result: dict[int, VirtualRegister] = {}
    for source, target in zip(op.registers(fragment_of(op.input)), op.registers(kind), strict=True):
        registers = [held[number] for number in source]
        for step in way.steps:
            registers = _step(lowering, op, step, registers)
        result |= dict(zip(target, registers, strict=True))
    registers = [result[number] for number in sorted(result)]
    lowering.values[op.fragment] = registers if op.input.has_one_use() else own(lowering, op.fragment, registers)


def _stays(way: Way) -> bool:
    """Whether all of it happens in registers."""
    return not any(isinstance(step, Trip) for step in way.steps)


def _step(lowering: KernelLowering, op: ConvertLayoutOp, step: Step, registers: Fragment) -> Fragment:
    if isinstance(step, Rename):
        return [registers[source] for source in step.sources]
    if isinstance(step, PermuteElements):
        return _permute(lowering, step, registers, op.fragment.type.bits)
    if isinstance(step, Shuffles):
        return _shuffles(lowering, step, registers)
    if not isinstance(step, MoveMatrices):
        fail(op, f"expected a step within registers, got: {step}")
    return [lowering.emitter.compute(MOVMATRIX.spelling, register) for register in registers]


def _permute(lowering: KernelLowering, step: PermuteElements, registers: Fragment, bits: int) -> Fragment:
    """Elements to other places of their lane."""

    def source(address: int) -> int | None:
        found = 0
        for i, bit in enumerate(step.sources):
            if address >> i & 1:
                if bit is None:
                    return None
                found |= 1 << bit
        return found

    result: Fragment = []
    for first in range(0, 1 << len(step.sources), REGISTER_BITS):
        wanted = [source(first + at) for at in range(0, REGISTER_BITS, bits)]
        places = [(at // REGISTER_BITS, at % REGISTER_BITS // bits) for at in wanted if at is not None]
        result.append(gather(lowering.emitter, registers, places, bits))
    return result


def _shuffles(lowering: KernelLowering, step: Shuffles, registers: Fragment) -> Fragment:
    """Each round sends one register of each lane; which one, and where it is kept, may depend on the lane."""
    received: list[VirtualRegister] = []
    for turn in step.rounds:
        sent = _of_lane(lowering, [registers[number] for number in turn.send])
        if turn.free:
            received.append(sent)
            continue
        received.append(_shuffle(lowering, sent, turn.source))
    rounds = {(lane, kept): i for i, turn in enumerate(step.rounds) for lane, kept in enumerate(turn.keep)}
    return [
        _of_lane(lowering, [received[rounds[lane, number]] for lane in range(LANES)]) for number in range(len(received))
    ]


def _shuffle(lowering: KernelLowering, sent: VirtualRegister, source: Sequence[int]) -> VirtualRegister:
    """Lane l gets what lane `source[l]` sends; lanes are sent to an affine function of their number."""
    constant, s = source[0], lowering.scalars
    images = [source[1 << bit] ^ constant for bit in range(LANE_BITS)]
    if images == [1 << bit for bit in range(LANE_BITS)]:
        return lowering.emitter.compute("shfl.sync.bfly.b32", sent, constant, *WARP, type=sent.type)
    number: IndexValue = constant
    for bit, image in enumerate(images):
        number = s.xor(number, s.multiply(s.bits(lowering.lane, bit, 1, 0), image))
    return lowering.emitter.compute("shfl.sync.idx.b32", sent, number, *WARP, type=sent.type)


def _of_lane(lowering: KernelLowering, choices: Sequence[VirtualRegister]) -> VirtualRegister:
    """The register that stands for a lane among one for each, chosen by the bits of its number that matter."""
    if len(choices) == 1:
        return choices[0]
    half = len(choices) // 2
    if all(low is high for low, high in zip(choices[:half], choices[half:], strict=True)):
        return _of_lane(lowering, choices[:half])
    low, high = _of_lane(lowering, choices[:half]), _of_lane(lowering, choices[half:])
    upper = lowering.scalars.compare("ne", lowering.scalars.bits(lowering.lane, half.bit_length() - 1, 1, 0), 0)
    return lowering.fragments.select(upper, [high], [low])[0]
