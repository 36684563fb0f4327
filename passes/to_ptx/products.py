"""Products, and arithmetic on their fragments: `mma`, `mma.sp`, `wgmma`; `warp.constant`, `warp.elementwise`,
`warp.convert`, `warp.subfragment`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeGuard

from xdsl.dialects import arith, scf
from xdsl.ir import Block, Operation, SSAValue

from ...dialect.isa.form import ElementType
from ...dialect.isa.wgmma import UNIT, WARPS, MatrixDescriptor, Wgmma, rows
from ...dialect.layouts.layout import LANES
from ...dialect.mlir.upstream import RegistersOp
from ...dialect.ptx.text.syntax import Immediate
from ...dialect.warp.attributes import fragment_of, memory_of
from ...dialect.warp.convert import ConvertLayoutOp, ConvertOp
from ...dialect.warp.fragments import ConstantOp, ElementwiseOp, Kind, SubfragmentOp
from ...dialect.warp.memory import EXPONENT, LoadOp, StoreOp
from ...dialect.warp.mma import MmaOp
from ...dialect.warp.rows import MapOp
from ...dialect.warp.stored import NIBBLES, SMALLER, StoredIntegers
from ...dialect.warp.warpgroup import ROWS, WgmmaOp, descriptor_of
from ..diagnostics import fail
from .emitter import WARP, IndexValue, VirtualRegister
from .fragments import Fragment, TrailingOperand, only_use_is_here
from .kernel import KernelLowering, check_multiple, lowers
from .scalars import divisor_of

if TYPE_CHECKING:
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


# Arithmetic on fragments: `warp.constant`, `warp.elementwise`, `warp.convert`.


@lowers(ConstantOp)
def _constant(lowering: KernelLowering, op: ConstantOp) -> None:
    lowering.values[op.fragment] = lowering.fragments.constant(fragment_of(op.fragment), op.value.value.data)


@lowers(ElementwiseOp)
def _elementwise(lowering: KernelLowering, op: ElementwiseOp) -> None:
    kind, element = op.kind.data, op.fragment.type.element
    if kind in (Kind.Sub, Kind.Mul) and _is_of_weights(lowering, op):
        return
    if not (kind is Kind.Add and element.name in ("f64", "s32")):
        check_computed(op, element)
    into = lowering.result(op.fragment, in_place=True)
    lowering.fragments.elementwise(kind, element, list(map(lowering.fragment, op.inputs)), into)
    lowering.values[op.fragment] = into


def _is_of_weights(lowering: KernelLowering, op: ElementwiseOp) -> bool:
    """Whether an operation stands between the conversion of integers and their product; it is lowered then."""
    from .widening import Widening, byte_of_lane  # with conversions that most products do not need

    if steps := _scaled_steps(op):
        if op is steps[-1]:
            _scale_at_once(lowering, steps)
        return True
    inputs, element, made = list(map(lowering.fragment, op.inputs)), op.fragment.type.element, op.inputs[0].owner
    less_points = made if isinstance(made, ElementwiseOp) and made.kind.data is Kind.Sub else op
    if (weights := smaller_weights(less_points.inputs[0])) is not None:
        made, integers, less = weights
        # What the integers are less is taken away as they are made smaller, and they are scaled at once.
        if op is not less and not _scaled_steps(op.fragment.get_user_of_unique_use()):
            widening = Widening(lowering.emitter, integers, element, byte=byte_of_lane(lowering, made))
            points = None if less is None else lowering.fragment(less.inputs[1])
            inputs[0] = widening.smaller(inputs[0], made.order, points)
        lowering.values[op.fragment] = inputs[0]
        return True
    if not isinstance(made, ConvertOp) or op.kind.data is not Kind.Mul or made.integers is None:
        return False
    widening = Widening(lowering.emitter, made.integers, element)
    if not multiplies_by_powers(op):
        lowering.values[op.fragment] = list(map(widening.scaled, *inputs))
    elif op is (steps := steps_of(op, multiplies_by_powers))[-1]:
        if len(steps) == 1:
            lowering.values[op.fragment] = widening.by_powers(*inputs)
            return True
        weights, exponents = zip(*(map(lowering.fragment, step.inputs) for step in steps), strict=True)
        orders = [made.order for step in steps if isinstance(made := step.inputs[0].owner, ConvertOp)]
        results = iter(widening.by_powers_at_once(list(zip(weights, orders, strict=True)), [*chain(*exponents)]))
        lowering.values |= {step.fragment: list(islice(results, len(inputs[1]))) for step in steps}
    return True


def scaled_integers(op: Operation) -> tuple[ConvertOp, StoredIntegers] | None:
    """The conversion of integers to bf16 that an operation scales, and these, if they are made smaller before, and the
    least of them is a power of two away from zero, or none: its product with any scale is exact."""
    if not isinstance(op, ElementwiseOp) or op.kind.data is not Kind.Mul:
        return None
    smaller = op.inputs[0].owner
    if not isinstance(smaller, ElementwiseOp) or not only_use_is_here(op.inputs[0], op):
        return None
    made, integers, less = smaller_weights(smaller.inputs[0]) or (None, None, None)
    if made is None or integers is None or less is not None:
        return None
    least = integers.zero - integers.limits[0]
    return None if least & (least - 1) else (made, integers)


def _scaled_steps(op: Operation | None) -> list[ElementwiseOp]:
    """The multiplications of integers by scales in all steps of a turn, if there are several."""
    steps = [] if op is None or scaled_integers(op) is None else steps_of(op, scaled_integers)
    return steps if len(steps) > 1 else []


def _scale_at_once(lowering: KernelLowering, steps: Sequence[ElementwiseOp]) -> None:
    """Integers of all steps of a turn times their scales."""
    from .widening import Widening, byte_of_lane

    (made, integers), *_ = every = [pair for step in steps if (pair := scaled_integers(step)) is not None]
    byte, element = byte_of_lane(lowering, made), steps[0].fragment.type.element
    weights, scales = zip(*(map(lowering.fragment, step.inputs) for step in steps), strict=True)
    orders = [made.order for made, _ in every]
    widening = Widening(lowering.emitter, integers, element, byte=byte)
    results = iter(widening.scaled_at_once(list(zip(weights, orders, strict=True)), [*chain(*scales)]))
    lowering.values |= {step.fragment: list(islice(results, len(of))) for step, of in zip(steps, scales, strict=True)}


def smaller_weights(value: SSAValue) -> tuple[ConvertOp, StoredIntegers, ElementwiseOp | None] | None:
    """A conversion of integers to bf16, these, and what subtracts their zero points, if what is made smaller alone
    reads them."""
    made, times = value.owner, value.get_user_of_unique_use()
    if not isinstance(made, ConvertOp) or made.integers is None or not isinstance(times, ElementwiseOp):
        return None
    less = times if times.kind.data is Kind.Sub and times.inputs[0] is value else None
    if less is not None:
        times = less.fragment.get_user_of_unique_use()
        if not isinstance(times, ElementwiseOp) or made.integers.zero or made.integers.element.signed:
            return None
    factor = times.inputs[-1].owner
    smaller = isinstance(factor, ConstantOp) and factor.value.value.data == SMALLER
    bf16 = times.fragment.type.element.name == "bf16" and times.kind.data is Kind.Mul
    return (made, made.integers, less) if smaller and bf16 else None


def multiplies_by_powers(op: Operation) -> TypeGuard[ElementwiseOp]:
    """Whether an operation multiplies floats of 4 bits by powers of two in registers (`Widening.by_powers`)."""
    if not isinstance(op, ElementwiseOp) or op.kind.data is not Kind.Mul:
        return False
    made, load = (value.owner for value in op.inputs)
    floats = isinstance(made, ConvertOp) and made.integers is not None and made.integers.name == NIBBLES
    exponents = isinstance(load, LoadOp) and memory_of(load.memory).element_type == EXPONENT
    return floats and exponents and only_use_is_here(op.inputs[0], op)


WIDENS = SubfragmentOp, ConvertOp, ElementwiseOp
"""What is done to the weights of a step before they are multiplied."""


def steps_of(op: Operation, multiplies: Callable[[Operation], object]) -> list[ElementwiseOp]:
    """The multiplications of a kind in all steps whose weights are made ready together with those of one."""
    steps = [op]
    while isinstance(before := steps[0].prev_op, WIDENS):
        steps.insert(0, before)
    while isinstance(behind := steps[-1].next_op, WIDENS):
        steps.append(behind)
    return [step for step in steps if isinstance(step, ElementwiseOp) and multiplies(step)]


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
