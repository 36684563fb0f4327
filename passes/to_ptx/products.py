"""Products, and their fragments: `mma`, `mma.sp`, `wgmma`; `warp.constant`, `warp.elementwise`, `warp.subfragment`,
`warp.convert_layout`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from xdsl.dialects import arith, scf
from xdsl.ir import Block, Operation, SSAValue

from ...dialect.isa.form import ElementType
from ...dialect.isa.mma import MOVMATRIX
from ...dialect.isa.wgmma import UNIT, WARPS, MatrixDescriptor, Wgmma, rows
from ...dialect.layouts.layout import LANES, Bit, Layout
from ...dialect.mlir.upstream import RegistersOp
from ...dialect.ptx.text.syntax import Immediate
from ...dialect.warp.attributes import FragmentType, fragment_of, memory_of
from ...dialect.warp.convert import BANKS, WIDEST, ConvertLayoutOp
from ...dialect.warp.fragments import ConstantOp, ElementwiseOp, Kind, SubfragmentOp
from ...dialect.warp.memory import StoreOp
from ...dialect.warp.mma import MmaOp
from ...dialect.warp.rows import MapOp
from ...dialect.warp.warpgroup import ROWS, WgmmaOp, descriptor_of
from ..diagnostics import fail
from .addressing import SharedTile
from .emitter import WARP, At, IndexValue, VirtualRegister
from .fragments import REGISTER_BITS, Fragment, TrailingOperand, gather, only_use_is_here, put_together
from .kernel import KernelLowering, check_multiple, lowers
from .memory import offsets, side_by_side
from .scalars import divisor_of, runs

if TYPE_CHECKING:
    from ...dialect.warp.conversion_steps import PermuteElements, Shuffles, Step
    from ...dialect.warp.tensor_memory import TensorMmaOp


def _result_registers(lowering: KernelLowering, op: MmaOp) -> tuple[Fragment, Fragment]:
    """The registers of C and of D: the same ones, if the types allow it and nothing else needs C."""
    sums = lowering.fragment(op.c)
    if op.c.type == op.d.type and only_use_is_here(op.c, op):
        return sums, sums
    fresh = lowering.fresh(op.d.type)
    if op.c.type == op.d.type:
        lowering.fragments.copy(sums, fresh)
        sums = fresh
    return sums, fresh


@lowers(MmaOp)
def _mma(lowering: KernelLowering, op: MmaOp) -> None:
    of_a, _, of_c = op.fragments
    sums, result = _result_registers(lowering, op)
    (m, n), k = of_c.shape, of_a.shape[1] * op.sparsity
    lowering.emitter.comment(f"{op.name}: multiply {m}x{n}x{k} with {op.row.shape}")
    extras: list[TrailingOperand] = []
    if op.e is not None and op.selector is not None:
        selector = op.selector.value.data
        extras.append(TrailingOperand([(metadata, selector) for metadata in lowering.fragment(op.e)]))
    for role, scale in zip("ab", op.scales, strict=False):
        of_lane = lowering.fragment(scale)
        words = [(of_lane[register], (byte, thread)) for register, byte, thread in op.scale_places(role)]
        extras.append(TrailingOperand(words, of_b=role == "b"))
    last = lowering.fragments.multiply(op, lowering.fragment(op.a), lowering.fragment(op.b), sums, result, extras)
    lowering.values[op.d] = result
    if of_c.element.name == "f64" and len(last) == len(result) and _ends_turn(op):
        _await_sums(lowering, last[0])


def _ends_turn(op: MmaOp) -> bool:
    """Whether a product is the last one of a turn of a loop."""
    block = op.parent
    if block is None or not isinstance(op.parent_op(), scf.ForOp):
        return False
    return next(each for each in reversed(list(block.ops)) if isinstance(each, MmaOp)) is op


def _await_sums(lowering: KernelLowering, register: VirtualRegister) -> None:
    """Hands a register to the lane itself, which has to wait for the product that sets it. Of warps with the sums of
    one instruction of f64, ptxas 13.0.88 lets the first product of a turn read what the last one of the turn before has
    not written yet: an H200 gave other sums in each launch. Sums of several instructions are eight products apart, or
    waited for."""
    halves = lowering.emitter.registers("b32", 2)
    lowering.emitter.emit("mov.b64", halves, register)
    low = lowering.emitter.compute("shfl.sync.bfly.b32", halves[0], 0, *WARP, type="b32")
    lowering.emitter.emit("mov.b64", register, [low, halves[1]])


# Warpgroups: `warp.wgmma`, `nvvm.setmaxregister`.

ADDRESS_BITS, UNIT_BITS = 18, UNIT.bit_length() - 1
"""Of an address in shared memory, the bits that a descriptor holds. Source: PTX ISA 9.7.15.5.1.2.2."""

STEP = 32
"""Bytes along K that one instruction takes."""


def check_warpgroups(lowering: KernelLowering, op: Operation) -> None:
    """Refuses an operation of warpgroups in a kernel of other threads."""
    if lowering.threads % (WARPS * LANES):
        fail(op, f"expected whole warpgroups of {WARPS * LANES} threads, the kernel has {lowering.threads} threads")


def _overwrites_what_was_read(op: WgmmaOp) -> bool:
    """Whether a product takes only the registers of C, whose elements went into others before."""
    others = [use.operation for use in op.c.uses if use.operation is not op]
    done = all(isinstance(one, MapOp) and one.parent is op.parent and one.is_before_in_block(op) for one in others)
    return op.overwrite is not None and done and len([*op.c.uses]) == len(others) + 1


@lowers(WgmmaOp)
def _wgmma(lowering: KernelLowering, op: WgmmaOp) -> None:
    check_warpgroups(lowering, op)
    row, sums = op.row, lowering.fragment(op.c)
    if not (only_use_is_here(op.c, op) or _overwrites_what_was_read(op)):
        fail(op, "C of warp.wgmma is written while the product runs: nothing else may use it")
    words = descriptors(lowering, op)
    a = lowering.fragment(op.a) if op.a_in_registers else words["a"]
    metadata = [] if op.e is None or op.selector is None else [*lowering.fragment(op.e), op.selector.value.data]
    lowering.emitter.comment(f"{op.name}: {row.shape} of {'registers and ' if op.a_in_registers else ''}shared memory")
    lowering.emitter.emit(row.spelling, sums, a, words["b"], *metadata, *_constants(op, row))
    lowering.values[op.d] = sums


def _constants(op: WgmmaOp, row: Wgmma) -> Iterator[int]:
    """Whether D is added to, the signs of A and B, and how they lie."""
    yield 0 if op.overwrite is not None else 1
    if row.a.is_float:
        yield from (1 if word is None else -1 for word in (op.negate_a, op.negate_b))
    yield from (int(op.major(role)) for role in row.transposable(a_shared=not op.a_in_registers))


def descriptors(
    lowering: KernelLowering,
    op: WgmmaOp | TensorMmaOp,
    encode: Callable[[MatrixDescriptor], int] = MatrixDescriptor.encode,
) -> dict[str, VirtualRegister]:
    """The matrix descriptors of operands "a" and "b" in shared memory, as `encode` writes them."""
    return {role: _descriptor(lowering, op, memory, at, encode, op.major(role)) for role, memory, at in op.tiles()}


def _descriptor(
    lowering: KernelLowering, op: WgmmaOp | TensorMmaOp, memory: SSAValue, indices: Sequence[SSAValue],
    encode: Callable[[MatrixDescriptor], int], along_mn: bool,
) -> VirtualRegister:  # fmt: skip
    """The matrix descriptor of the operand that begins where indices say."""
    *others, along = indices
    along, further = _apart(lowering, op, memory, along)
    tile, stage, row, column = lowering.shared_place(op, memory, [*others, along])
    how = encode(descriptor_of(memory_of(memory), mn_major=along_mn))
    step = tile.swizzle if along_mn else min(STEP, tile.swizzle)
    for name, value, unit in (("row", row, ROWS), ("column", column, step // tile.element_bytes)):
        check_multiple(op, f"an operand of {op.name} begins at a {name}", value, unit)
    if isinstance(column, int) and not along_mn:
        # What is added within a panel is added to the descriptor: one address is for all steps along k.
        width = tile.swizzle // tile.element_bytes
        column, rest = column // width * width, column % width
        further += rest * tile.element_bytes
    base, offset = lowering.addressing.origin(tile, stage, row, column)
    return descriptor_word(lowering, base, how + (offset + further) // UNIT)


def descriptor_word(lowering: KernelLowering, address: IndexValue, how: int) -> VirtualRegister:
    """A matrix descriptor: an address in shared memory, without the rank of the CTA, beside all else."""
    units = lowering.emitter.pure("bfe.u32", address, UNIT_BITS, ADDRESS_BITS - UNIT_BITS)
    return lowering.emitter.pure("add.s64", lowering.emitter.pure("cvt.u64.u32", units), Immediate(f"{how:#x}"))


def _apart(
    lowering: KernelLowering, op: WgmmaOp | TensorMmaOp, memory: SSAValue, column: SSAValue
) -> tuple[SSAValue, int]:
    """Splits a column into the column at which its panel begins, and the constant number of bytes after that."""
    made, tile = column.owner, lowering.tile(op, memory)
    if not isinstance(made, arith.AddiOp):
        return column, 0
    (first, more), width = lowering.indices([made.lhs, made.rhs]), tile.swizzle // tile.element_bytes
    if isinstance(first, int) or not isinstance(more, int) or divisor_of(first) % width:
        return column, 0
    panels, rest = divmod(more, width)
    return made.lhs, panels * tile.panel_bytes + rest * tile.element_bytes


@lowers(RegistersOp)
def _set_registers(lowering: KernelLowering, op: Any) -> None:
    check_warpgroups(lowering, op)
    direction = {"decrease": "dec", "increase": "inc"}[op.action.word.data]
    lowering.emitter.emit(f"setmaxnreg.{direction}.sync.aligned.u32", op.regCount.value.data)
    if not rows()[0].runs_on(lowering.emitter.target):  # but a target with tensor memory
        # What is set before can only be in the registers that all warps begin with.
        lowering.emitter.outermost = lowering.emitter.level


# Arithmetic on fragments: `warp.constant`, `warp.elementwise`.


@lowers(ConstantOp)
def _constant(lowering: KernelLowering, op: ConstantOp) -> None:
    lowering.values[op.fragment] = lowering.fragments.constant(fragment_of(op.fragment), op.value.value.data)


@lowers(ElementwiseOp)
def _elementwise(lowering: KernelLowering, op: ElementwiseOp) -> None:
    kind, element = op.kind.data, op.fragment.type.element
    if kind in (Kind.Sub, Kind.Mul):
        from .widening import is_of_weights  # with conversions that most products do not need

        if is_of_weights(lowering, op):
            return
    if not (kind is Kind.Add and element.name in ("f64", "s32")):
        check_computed(op, element)
    into = lowering.values[op.fragment] = lowering.result(op.fragment, in_place=True)
    lowering.fragments.elementwise(kind, element, list(map(lowering.fragment, op.inputs)), into)


def check_computed(op: Operation, element: ElementType) -> None:
    if element.name not in ("f16", "bf16", "f32"):
        fail(op, f"{op.name} is lowered for f16, bf16 and f32, got {element.name}")


# Registers that several fragments have: `warp.subfragment`.

READERS = frozenset((
    "arith.select", "warp.convert", "warp.elementwise", "warp.map",
    "warp.reduce", "warp.subfragment",
))  # fmt: skip
"""Operations that leave the registers of their operands as they are."""


def own(lowering: KernelLowering, value: SSAValue, registers: Fragment) -> Fragment:
    """Shared registers, or copies of them if something may overwrite them."""
    if all(_leaves(use.operation, value) for use in value.uses):
        return registers
    fresh = lowering.fresh(value.type)
    lowering.fragments.copy(registers, fresh)
    return fresh


def _leaves(op: Operation, value: SSAValue) -> bool:
    """Whether an operation leaves the registers of a value unchanged, as a product does with A and B."""
    if isinstance(op, ConvertLayoutOp):
        return op.scratch is not None
    if isinstance(op, StoreOp):
        # Matrices are stored from copies: kernels without the copies have not been timed.
        return op.move is None
    return op.name in READERS or (isinstance(op, MmaOp | WgmmaOp) and op.c is not value)


@lowers(SubfragmentOp)
def _subfragment(lowering: KernelLowering, op: SubfragmentOp) -> None:
    source, part = fragment_of(op.sources[0]), op.fragment.type
    registers = [register for each in op.sources for register in lowering.fragment(each)]
    layout, size = source.layout.data, source.tile_registers
    (down, across), stride = part.tiles, source.tiles[1]
    top, left = op.at[0] // layout.rows, op.at[1] // layout.columns
    tiles = (((top + i) * stride + left + j) * size for i in range(down) for j in range(across))
    chosen = [r for t in tiles for r in registers[t : t + size]]
    moved = _stacks_sums(op) if len(op.sources) > 1 else _takes_apart(op.sources[0])
    lowering.values[op.fragment] = chosen if moved else own(lowering, op.fragment, chosen)


def _stacks_sums(op: SubfragmentOp) -> bool:
    """Whether fragments are sums of products of warpgroups that nothing else uses."""
    return all(isinstance(part.owner, WgmmaOp) and only_use_is_here(part, op) for part in op.sources)


def _takes_apart(source: SSAValue) -> bool:
    """Whether sums of a turn of a loop are only used in parts, each by a product of a warpgroup that adds to it."""
    users = [use.operation for use in source.uses]
    parts = [user for user in users if isinstance(user, SubfragmentOp)]
    sums = all(isinstance(use.operation, WgmmaOp) and use.operation.c is part.fragment
               for part in parts for use in part.fragment.uses)  # fmt: skip
    disjoint = len({part.at for part in parts}) == len(users) and len({part.fragment.type for part in parts}) == 1
    return isinstance(source.owner, Block) and sums and disjoint


# Fragments in another layout: `warp.convert_layout`, within registers, or between lanes.


@lowers(ConvertLayoutOp)
def _convert_layout(lowering: KernelLowering, op: ConvertLayoutOp) -> None:
    from ...dialect.warp.conversion_steps import MoveMatrices, Shuffles, Trip

    if op.scratch is not None:
        lowering.values[op.fragment] = _through_scratch(lowering, op, lowering.tile(op, op.scratch))
        return
    conversion, target, wide = op.conversion(), lowering.target, op.fragment.type.bits > REGISTER_BITS
    within = (each for each in conversion.routes if not any(isinstance(step, Trip) for step in each.steps))
    route = next((each for each in within if each.sm <= target.sm and (each.is_free or not wide)), None)
    if route is None:
        fail(op, f"expected a way between the layouts that {target} has, got {conversion}")
    if any(isinstance(step, Shuffles | MoveMatrices) for step in route.steps):
        lowering.emitter.comment(f"{op.name}: {route}")
    source_registers, kind, result = lowering.fragment(op.input), op.fragment.type, dict[int, VirtualRegister]()
    for source, target in zip(op.registers(fragment_of(op.input)), op.registers(kind), strict=True):
        registers = [source_registers[number] for number in source]
        for step in route.steps:
            registers = _step(lowering, step, registers, kind.bits)
        result |= dict(zip(target, registers, strict=True))
    registers = [result[number] for number in sorted(result)]
    alone = op.input.has_one_use() or not any(register in source_registers for register in registers)
    lowering.values[op.fragment] = registers if alone else own(lowering, op.fragment, registers)


def _step(lowering: KernelLowering, step: Step, registers: Fragment, bits: int) -> Fragment:
    """A step of a route, other than a trip through memory."""
    from ...dialect.warp.conversion_steps import PermuteElements, Rename, Shuffles

    if isinstance(step, Rename):
        return [registers[source] for source in step.sources]
    if isinstance(step, PermuteElements):
        return _permute(lowering, step, registers, bits)
    if isinstance(step, Shuffles):
        return _shuffles(lowering, step, registers)
    return [lowering.emitter.compute(MOVMATRIX.spelling, register) for register in registers]


def _permute(lowering: KernelLowering, step: PermuteElements, registers: Fragment, bits: int) -> Fragment:
    """Elements to other places of their lane."""

    def source(address: int) -> int | None:
        position = 0
        for i, bit in enumerate(step.sources):
            if address >> i & 1:
                if bit is None:
                    return None
                position |= 1 << bit
        return position

    result: Fragment = []
    for first in range(0, 1 << len(step.sources), REGISTER_BITS):
        wanted = [source(first + at) for at in range(0, REGISTER_BITS, bits)]
        places = [(at // REGISTER_BITS, at % REGISTER_BITS // bits) for at in wanted if at is not None]
        result.append(gather(lowering.emitter, registers, places, bits))
    return result


def _shuffles(lowering: KernelLowering, step: Shuffles, registers: Fragment) -> Fragment:
    """Each round sends one register of each lane. The lane may decide which register is sent, and where it is kept."""
    received: list[VirtualRegister] = []
    for turn in step.rounds:
        sent = _of_lane(lowering, [registers[number] for number in turn.send])
        if turn.free:
            received.append(sent)
            continue
        received.append(_shuffle(lowering, sent, turn.source))
    rounds = {(lane, kept): i for i, turn in enumerate(step.rounds) for lane, kept in enumerate(turn.keep)}
    return [_of_lane(lowering, [received[rounds[lane, n]] for lane in range(LANES)]) for n in range(len(received))]


def _shuffle(lowering: KernelLowering, sent: VirtualRegister, source: Sequence[int]) -> VirtualRegister:
    """Lane l gets what lane `source[l]` sends; lanes are sent to an affine function of their number."""
    constant, s = source[0], lowering.scalars
    images = [source[1 << bit] ^ constant for bit in range(WARP_BITS)]
    if images == [1 << bit for bit in range(WARP_BITS)]:
        return lowering.emitter.compute("shfl.sync.bfly.b32", sent, constant, *WARP, type=sent.type)
    number: IndexValue = constant
    for bit, image in enumerate(images):
        number = s.xor(number, s.multiply(s.bits(lowering.lane, bit, 1, 0), image))
    return lowering.emitter.compute("shfl.sync.idx.b32", sent, number, *WARP, type=sent.type)


def _of_lane(lowering: KernelLowering, choices: Sequence[VirtualRegister]) -> VirtualRegister:
    """One of several registers, selected by the lower bits of the lane's number."""
    if len(choices) == 1:
        return choices[0]
    half = len(choices) // 2
    if all(low is high for low, high in zip(choices[:half], choices[half:], strict=True)):
        return _of_lane(lowering, choices[:half])
    low, high = _of_lane(lowering, choices[:half]), _of_lane(lowering, choices[half:])
    upper = lowering.scalars.compare("ne", lowering.scalars.bits(lowering.lane, half.bit_length() - 1, 1, 0), 0)
    return lowering.fragments.select(upper, [high], [low])[0]


# Fragments in another layout by way of scratch memory, of which each warp has a row.
#
# A base tile of the result lies row by row, tile after tile, so that lanes read 16 bytes each and 128 together.
# What is written row by row would meet at banks: lanes that differ in a bit of the row that stands above the lowest
# 128 bytes. Each such bit is XORed into a bit of the address that no other lane's bit uses, of those that neither a
# lane's write nor its read of neighbours covers. Reads then have the same 128 bytes in another order.

WARP_BITS, BANK_BITS = LANES.bit_length() - 1, BANKS.bit_length() - 1
WORD_ADDRESS_BITS = 2


@dataclass(frozen=True)
class Places:
    """The address of an element in a warp's scratch memory: the address bit of each bit of its row and column in a base
    tile of the result, and the further address bit that it flips, if any."""

    source: FragmentType
    result: FragmentType

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return self.source.bits // 8

    def natural(self, bit: Bit) -> int:
        """The bit of the address, row by row."""
        before = self.result.layout.data.columns if bit.axis == "r" else 1
        return (self.size * before).bit_length() - 1 + bit.number

    @staticmethod
    def together(kind: FragmentType) -> int:
        """Elements of one access of a lane."""
        return min(side_by_side(kind.layout.data), WIDEST * 8 // kind.bits)

    @cached_property
    def moved(self) -> Mapping[Bit, int]:
        """The bits of the row that are exclusive-ored into other address bits, and these bits."""
        wide = [(self.together(kind) * self.size).bit_length() - 1 for kind in (self.source, self.result)]
        # So many lanes are served at once that they fill the banks.
        lanes = self.source.layout.data.lane[: BANK_BITS - max(WORD_ADDRESS_BITS, wide[0])]
        taken = {self.natural(bit) for bit in lanes}
        free = (bit for bit in range(max(*wide, WORD_ADDRESS_BITS), BANK_BITS) if bit not in taken)
        return dict(zip((bit for bit in lanes if self.natural(bit) >= BANK_BITS), free, strict=False))

    def of_lanes(self, kind: FragmentType) -> int:
        """The bits of the address that depend on the lane."""
        lanes = kind.layout.data.lane
        return sum(1 << bit for bit in {*map(self.natural, lanes), *(self.moved[b] for b in lanes if b in self.moved)})

    def offset(self, row: int, along: int) -> tuple[int, int]:
        """The place of an element in bytes: what is XORed into the place of the lane, and what is added."""
        layout, size = self.result.layout.data, self.size
        (i, row), (j, along) = divmod(row, layout.rows), divmod(along, layout.columns)
        tile = ((i * self.result.tiles[1] + j) * layout.rows * layout.columns * size) >> len(layout.warp)
        inside = (row * layout.columns + along) * size
        changed = inside
        for bit, place in self.moved.items():
            changed ^= ((row if bit.axis == "r" else along) >> bit.number & 1) << place
        low = changed % BANKS
        return low, tile + changed - low


class ScratchRow:
    """Emits the accesses of one operation to the row of scratch memory that the executing warp has."""

    def __init__(self, lowering: KernelLowering, tile: SharedTile, places: Places) -> None:
        self.lowering, self.tile, self.places = lowering, tile, places
        emitter, s = lowering.emitter, lowering.scalars
        # Copies of what is known from the start keep the addresses here; outside they would hold registers in the K
        # loop.
        self.lane, thread = (emitter.compute("mov.b32", register) for register in (lowering.lane, lowering.thread))
        self.lane.bound, thread.bound = lowering.lane.bound, lowering.thread.bound
        self.base = s.multiply(s.shift_right(thread, WARP_BITS), tile.columns * tile.element_bytes)

    def places_of(self, kind: FragmentType, registers: Fragment) -> Iterator[tuple[Fragment, At]]:
        """The registers of a fragment that one access moves, and where."""
        s, lane_bits = self.lowering.scalars, self.places.of_lanes(kind)
        mine, start = self.lowering.addressing.shared_bytes_at(
            self.tile.offset, s.sum(self.base, self._lane(kind.layout.data))
        )
        places = list(offsets(kind, self.places.together(kind)))
        each = len(registers) // len(places)
        for number, place in enumerate(places):
            low, high = self.places.offset(*place)
            # Each warp's part starts at a multiple of the banks, so that bits can be turned in the address itself.
            turned = low & lane_bits
            address = self.lowering.emitter.pure("xor.b32", mine, turned) if turned else mine
            yield registers[number * each :][:each], At(address, start + high + (low & ~lane_bits))

    def _lane(self, layout: Layout) -> IndexValue:
        s, places = self.lowering.scalars, self.places
        plain = s.sum(*(s.bits(self.lane, *run) for run in runs([places.natural(bit) for bit in layout.lane])))
        changed = [places.moved.get(bit) for bit in layout.lane]
        return s.xor(plain, s.sum(0, *(s.bits(self.lane, *run) for run in runs(changed))))


def _through_scratch(lowering: KernelLowering, op: ConvertLayoutOp, tile: SharedTile) -> Fragment:
    """Converts a layout through shared memory: each lane stores, waits for the warp, and loads its new elements."""
    source, result, emitter = fragment_of(op.input), op.fragment.type, lowering.emitter
    emitter.settle()
    places = Places(source, result)
    row = ScratchRow(lowering, tile, places)
    emitter.emit("bar.warp.sync", -1)
    emitter.comment(f"{op.name}: {source.shape[0]}x{source.shape[1]} {source.element.name} to be read by other lanes")
    for registers, place in row.places_of(source, lowering.fragment(op.input)):
        emitter.store("shared", registers, place)
    emitter.emit("bar.warp.sync", -1)
    loaded = lowering.fresh(result)
    alone = places.together(result) * result.bits < REGISTER_BITS
    pieces = [emitter.register("b16") for _ in range(2 * len(loaded))] if alone else loaded
    for registers, place in row.places_of(result, pieces):
        emitter.load("shared", registers, place)
    if alone:
        put_together(emitter, pieces, loaded)
    return loaded
