"""Words of packed elements and of scales: `warp.load_words`, `warp.store_words`, `warp.load_scales`."""

from __future__ import annotations

from math import gcd

from ...dialect.isa.block_scale import SCALES_OF_WORD
from ...dialect.warp.attributes import FragmentType, fragment_of
from ...dialect.warp.scaling import LoadScalesOp
from ...dialect.warp.words import LoadWordsOp, StoreWordsOp, words_of
from ..diagnostics import fail
from .addressing import CHUNK, Position
from .emitter import common_divisor, divisor_of
from .kernel import KernelLowering
from .matrix_ops import STAGED, stage_text
from .operands import At
from .registry import lowers

WORD_BYTES = 4


def _words(lowering: KernelLowering, op: LoadWordsOp | StoreWordsOp, kind: FragmentType) -> tuple[int, int, At]:
    """Registers that one access moves, the bytes of one, and the address of a lane's first."""
    matrix, (row, column) = lowering.matrix(op, op.memory), lowering.indices(op.indices)
    size = WORD_BYTES * words_of(kind) // kind.registers
    holder = lowering.addressing.holder(kind.layout.data, lowering.lane)
    address = lowering.scalars.address(
        matrix.base,
        [(holder, WORD_BYTES * words_of(kind)), (row, matrix.row_bytes), (column, WORD_BYTES)],
    )
    words = gcd(divisor_of(matrix.row_bytes), matrix.alignment) // WORD_BYTES
    aligned = common_divisor((column, words, words_of(kind))) * WORD_BYTES
    together = CHUNK // size
    while aligned % (together * size) or kind.registers % together:
        together //= 2
    return max(1, together), size, address


@lowers(LoadWordsOp)
def _load_words(lowering: KernelLowering, op: LoadWordsOp) -> None:
    kind, into = op.fragment.type, lowering.result(op.fragment)
    together, size, first = _words(lowering, op, kind)
    for start in range(0, len(into), together):
        registers = into[start : start + together]
        lowering.emitter.load("global", registers, first.behind(start * size), f"b{8 * size}")
    lowering.values[op.fragment] = into


@lowers(StoreWordsOp)
def _store_words(lowering: KernelLowering, op: StoreWordsOp) -> None:
    kind, held = fragment_of(op.fragment), lowering.fragment(op.fragment)
    together, size, first = _words(lowering, op, kind)
    for start in range(0, len(held), together):
        registers = held[start : start + together]
        lowering.emitter.store("global", registers, first.behind(start * size), f"b{8 * size}")


@lowers(LoadScalesOp)
def _load_scales(lowering: KernelLowering, op: LoadScalesOp) -> None:
    into, tile, layout = lowering.result(op.fragment), lowering.tile(op, op.memory), op.fragment.type.layout.data
    found = lowering.indices(op.indices)
    stage, row, column = found if len(found) == STAGED else (0, *found)
    if divisor_of(column) % SCALES_OF_WORD:
        fail(op, f"expected a column that is a multiple of {SCALES_OF_WORD}, the scales of a word, got {column}")
    place = stage_text(stage if len(found) == STAGED else None, "the stage to multiply")
    size = layout.extent(op.axis)
    lowering.emitter.comment(f"{op.name}: scales of {size * len(into)} {op.what} from {place}")
    lane_row = lowering.addressing.from_bits(lowering.lane, layout.lane, op.axis)
    for i, register in enumerate(into):
        where = Position.of(lane_row, row, i * size), Position.of(0, column, 0)
        lowering.emitter.load("shared", [register], lowering.addressing.shared(tile, stage, *where))
    lowering.values[op.fragment] = into
