"""Products and loads of matrices: from operations of the dialect `warp` to their instructions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue

from ...dialect.warp.attributes import FragmentType, fragment_of
from ...dialect.warp.memory import LdmatrixOp, LoadOp, StoreOp
from ...dialect.warp.mma import MmaOp
from ...dialect.warp.product import ProductOp
from ..diagnostics import fail
from .addressing import CHUNK, SharedTile
from .fragments import Fragment, TrailingOperand
from .kernel import KernelLowering
from .loops import only_use_is_here
from .operands import WARP, IndexValue, VirtualRegister
from .registry import lowers

if TYPE_CHECKING:
    from ...dialect.warp.moves import StmatrixOp

STAGED = 3
"""Indices of a tile that has stages: the stage, the row, the column."""


def result_registers(lowering: KernelLowering, op: Operation, c: SSAValue, d: SSAValue) -> tuple[Fragment, Fragment]:
    """The registers of C and of D: the same ones, if the types allow it and nothing else needs C."""
    held = lowering.fragment(c)
    if c.type == d.type and only_use_is_here(c, op):
        return held, held
    fresh = lowering.fresh(d.type)
    if c.type == d.type:
        lowering.fragments.copy(held, fresh)
        held = fresh
    return held, fresh


def product(lowering: KernelLowering, op: ProductOp, extras: Sequence[TrailingOperand]) -> None:
    a, b, c = op.operands[:3]
    of_a, _, of_c = op.fragments
    held, result = result_registers(lowering, op, c, op.d)
    (m, n), k = of_c.shape, of_a.shape[1] * op.SPARSITY
    lowering.emitter.comment(f"{op.name}: multiply {m}x{n}x{k} with {op.row.shape}")
    scaled: list[TrailingOperand] = []
    for role, scale in zip("ab", op.scaling, strict=False):
        of_lane = lowering.fragment(scale)
        words = [(of_lane[register], (byte, thread)) for register, byte, thread in op.scale_places(role)]
        scaled.append(TrailingOperand(words, of_b=role == "b"))
    last = lowering.fragments.multiply(
        op, lowering.fragment(a), lowering.fragment(b), held, result, (*extras, *scaled)
    )  # fmt: skip
    lowering.values[op.d] = result
    if of_c.element.name == "f64" and len(last) == len(result) and _ends_turn(op):
        _await_sums(lowering, last[0])


def _ends_turn(op: ProductOp) -> bool:
    """Whether a product is the last one of a turn of a loop."""
    block = op.parent
    if block is None or not isinstance(op.parent_op(), scf.ForOp):
        return False
    return next(each for each in reversed(list(block.ops)) if isinstance(each, MmaOp)) is op


def _await_sums(lowering: KernelLowering, register: VirtualRegister) -> None:
    """Hands a register to the lane itself, which has to wait for the product that sets it.

    Of warps with the sums of one instruction of f64, ptxas 13.0.88 lets the first product of a turn read what the last
    one of the turn before has not written yet: an H200 gave other sums in each launch. Sums of several instructions are
    eight products apart, or waited for.
    """
    halves = lowering.emitter.registers("b32", 2)
    lowering.emitter.emit("mov.b64", halves, register)
    low = lowering.emitter.compute("shfl.sync.bfly.b32", halves[0], 0, *WARP, type="b32")
    lowering.emitter.emit("mov.b64", register, [low, halves[1]])


@lowers(MmaOp)
def _mma(lowering: KernelLowering, op: MmaOp) -> None:
    product(lowering, op, ())


@lowers(LdmatrixOp)
def _ldmatrix(lowering: KernelLowering, op: LdmatrixOp) -> None:
    kind, into = op.fragment.type, lowering.result(op.fragment)
    move_shared(lowering, op, op.memory, op.indices, "load", kind, into)
    if op.packed is not None and kind.element.name == "e2m1":
        # The elements arrive in the low bits of their bytes; products want them in the middle.
        for register in into:
            lowering.emitter.emit("shl.b32", register, register, 2)
    lowering.values[op.fragment] = into


def shared_place(
    lowering: KernelLowering, op: Operation, memory: SSAValue, indices: Sequence[SSAValue]
) -> tuple[SharedTile, tuple[IndexValue, IndexValue, IndexValue]]:
    """A tile, and the (stage, row, column) in it that indices name; a column of packed elements in bytes."""
    tile, found = lowering.tile(op, memory), lowering.indices(indices)
    stage, row, column = found if len(found) == 3 else (0, *found)
    return tile, (stage, row, lowering.whole_bytes(op, column, tile.packed))


def load_shared(lowering: KernelLowering, op: LoadOp, into: Fragment) -> None:
    """Reads a fragment from a tile without `ldmatrix`."""
    from .shared_fragments import SharedFragments

    tile, place = shared_place(lowering, op, op.memory, op.indices)
    kind = op.fragment.type
    lowering.emitter.comment(f"{op.name}: {_moved(kind, op.indices, place[0], 'from')}")
    loads = SharedFragments(lowering.emitter, lowering.addressing, lowering.lane)
    loads.load(kind, op.swapped is not None, tile, place, into)
    lowering.values[op.fragment] = into


def store_shared(lowering: KernelLowering, op: StoreOp) -> None:
    """Writes a fragment to a tile without `stmatrix`."""
    from .shared_fragments import SharedFragments

    tile, place = shared_place(lowering, op, op.memory, op.indices)
    kind = fragment_of(op.fragment)
    if tile.packed > 1:
        fail(op, f"warp.store writes whole bytes, got elements of {kind.element.name}")
    lowering.emitter.comment(f"{op.name}: {_moved(kind, op.indices, place[0], 'to')}")
    stores = SharedFragments(lowering.emitter, lowering.addressing, lowering.lane)
    stores.store(kind, tile, place, lowering.fragment(op.fragment))


def move_shared(
    lowering: KernelLowering,
    op: LdmatrixOp | StmatrixOp,
    memory: SSAValue,
    indices: Sequence[SSAValue],
    verb: str,
    kind: FragmentType,
    registers: Fragment,
) -> None:
    tile, (stage, row, column) = shared_place(lowering, op, memory, indices)
    if isinstance(column, int) and column * tile.element_bytes % CHUNK:
        moves = "reads" if verb == "load" else "writes"
        name = op.name.removeprefix("warp.")
        fail(op, f"{name} {moves} rows of {CHUNK} bytes from multiples of {CHUNK} bytes, got column {column}")
    lowering.emitter.comment(f"{op.name}: {_moved(kind, indices, stage, 'from' if verb == 'load' else 'to')}")
    lowering.matrices.move(op.rows(), kind, op.swapped is not None, tile, (stage, row, column), registers)


def stage_text(stage: IndexValue | None, moving: str) -> str:
    """A stage in a comment, None for memory without stages; `moving` is what one is called that the loop counts."""
    if stage is None:
        return "shared memory"
    return f"stage {stage}" if isinstance(stage, int) else moving


def _moved(kind: FragmentType, indices: Sequence[SSAValue], stage: IndexValue, way: str) -> str:
    """What a comment says of a fragment that moves."""
    place = stage_text(stage if len(indices) == STAGED else None, "the stage to multiply")
    return f"fragment {kind.role.data} {kind.shape[0]}x{kind.shape[1]} {way} {place}"
