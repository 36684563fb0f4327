"""Matrix operations that plain kernels do not have: sparse and opaque products, stores, transposition, packed words."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import TYPE_CHECKING

from xdsl.ir import Operation

from ...dialect.isa import wmma
from ...dialect.isa.block_scale import SCALES_OF_WORD
from ...dialect.isa.moves import MOVMATRIX
from ...dialect.warp.attributes import FragmentType, fragment_of
from ...dialect.warp.copy import PackOp
from ...dialect.warp.exchange import ExchangeOp
from ...dialect.warp.mma_sp import MmaSparseOp
from ...dialect.warp.moves import MovmatrixOp, StmatrixOp
from ...dialect.warp.opaque import OpaqueType, opaque_of
from ...dialect.warp.sliced_k import SumSlicedKOp
from ...dialect.warp.wmma import WmmaLoadOp, WmmaMmaOp, WmmaStoreOp
from ...dialect.warp.words import LoadMetadataOp, LoadScalesOp, LoadWordsOp, StoreWordsOp, words_of
from ..diagnostics import fail
from ..linalg.product import METADATA_ROWS
from . import exchange, pack, sliced_k
from .addressing import CHUNK, Position
from .emitter import Register, common_divisor, divisor_of
from .epilogue import HANDLERS as EPILOGUE
from .fragments import Extra, vector
from .matrix_ops import STAGED, Handler, handler, move_shared, product, result_registers, stage_text
from .partial_sums import HANDLERS as PARTS
from .scalars import at

if TYPE_CHECKING:
    from .kernel import KernelLowering

WORD_BYTES = 4

FIRST_TWO = "0x44444444"
"""A word of metadata that names elements 0 and 1 of each chunk (PTX ISA 9.7.14.6.1)."""


def _mma_sp(lowering: KernelLowering, op: MmaSparseOp) -> None:
    words = [(word, f"?, {op.selector.value.data}") for word in lowering.fragment(op.e)]
    product(lowering, op, (Extra(words),))


def _stmatrix(lowering: KernelLowering, op: StmatrixOp) -> None:
    kind = fragment_of(op.fragment)
    move_shared(lowering, op, op.memory, op.indices, "store", kind, lowering.fragment(op.fragment))


def _movmatrix(lowering: KernelLowering, op: MovmatrixOp) -> None:
    source, result = lowering.fragment(op.input), lowering.result(op.fragment)
    if any(register in source for register in result):
        result = lowering.fresh(op.fragment.type)
    lowering.emitter.require(MOVMATRIX.since(lowering.target))
    for before, after in op.blocks():
        lowering.emitter.emit(MOVMATRIX.spelling, "?, ?", result[after], source[before])
    lowering.values[op.fragment] = result


# Packed words


def _words(
    lowering: KernelLowering, op: LoadWordsOp | StoreWordsOp, kind: FragmentType
) -> tuple[int, int, tuple[Register, int]]:
    """Registers that one access moves, the bytes of one, and the address of a lane's first."""
    matrix, (row, column) = lowering.matrix(op, op.memory), lowering.indices(op.indices)
    size = WORD_BYTES * words_of(kind) // kind.registers
    address = lowering.scalars.address(
        matrix.base,
        [(lowering.lane, WORD_BYTES * words_of(kind)), (row, matrix.row_bytes), (column, WORD_BYTES)],
    )
    words = gcd(divisor_of(matrix.row_bytes), matrix.alignment) // WORD_BYTES
    aligned = common_divisor((column, words, words_of(kind))) * WORD_BYTES
    together = CHUNK // size
    while aligned % (together * size) or kind.registers % together:
        together //= 2
    return max(1, together), size, address


def _access(opcode: str, together: int, size: int) -> str:
    return f"{opcode}{f'.v{together}' if together > 1 else ''}.b{8 * size}"


def _load_words(lowering: KernelLowering, op: LoadWordsOp) -> None:
    kind, into = op.fragment.type, lowering.result(op.fragment)
    together, size, (base, offset) = _words(lowering, op, kind)
    form = vector(together) if together > 1 else "?"
    for start in range(0, len(into), together):
        text = f"{form}, {at('?', offset + start * size)}"
        lowering.emitter.emit(_access("ld.global", together, size), text, *into[start : start + together], base)
    lowering.values[op.fragment] = into


def _load_metadata(lowering: KernelLowering, op: LoadMetadataOp) -> None:
    into, tile = lowering.result(op.fragment), lowering.tile(op, op.memory)
    found = lowering.indices(op.indices)
    stage, row, column = found if len(found) == STAGED else (0, *found)
    place = stage_text(stage if len(found) == STAGED else None, "the stage to multiply")
    lowering.emitter.comment(f"{op.name}: metadata of {METADATA_ROWS * len(into)} rows from {place}")
    for i, register in enumerate(into):
        where = Position.of(0, row, i), Position.of(lowering.lane, column, 0)
        base, offset = lowering.addressing.shared(tile, stage, *where)
        lowering.emitter.emit("ld.shared.b32", f"?, {at('?', offset)}", register, base)
        if op.padded is not None:
            absent = lowering.emitter.register("pred")
            lowering.emitter.emit("setp.eq.b32", "?, ?, 0", absent, register)
            lowering.emitter.emit("selp.b32", f"?, {FIRST_TWO}, ?, ?", register, register, absent)
    lowering.values[op.fragment] = into


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
        base, offset = lowering.addressing.shared(tile, stage, *where)
        lowering.emitter.emit("ld.shared.b32", f"?, {at('?', offset)}", register, base)
    lowering.values[op.fragment] = into


def _store_words(lowering: KernelLowering, op: StoreWordsOp) -> None:
    kind, held = fragment_of(op.fragment), lowering.fragment(op.fragment)
    together, size, (base, offset) = _words(lowering, op, kind)
    form = vector(together) if together > 1 else "?"
    for start in range(0, len(held), together):
        text = f"{at('?', offset + start * size)}, {form}"
        lowering.emitter.emit(_access("st.global", together, size), text, base, *held[start : start + together])


# wmma


def _opaque_address(
    lowering: KernelLowering, op: WmmaLoadOp | WmmaStoreOp, kind: OpaqueType
) -> tuple[tuple[Register, int], int]:
    """The address of the first element, and the stride."""
    matrix, (row, column) = lowering.matrix(op, op.memory, bits=True), lowering.indices(op.indices)
    bits, pitch = kind.element.bits, matrix.row_bytes
    if not isinstance(pitch, int):
        fail(op, f"expected rows a known number of bytes apart, got {op.memory.type}")
    stride = pitch * 8 // bits
    whole = max(1, 8 // bits)
    if divisor_of(column) % whole:
        fail(op, f"expected a column that is a multiple of {whole}, for {kind.element.name} start at whole bytes")
    along = lowering.scalars.quotient(column, whole)
    terms = [(row, stride * bits // 8), (along, max(1, bits // 8))]
    needed = wmma.alignment(kind.product, kind.role.data, kind.element)
    if isinstance(along, int) and along * terms[1][1] % needed:
        fail(op, f"expected an address that is a multiple of {needed} bytes, got column {column}")
    return lowering.scalars.address(matrix.base, terms), stride


def _wmma_load(lowering: KernelLowering, op: WmmaLoadOp) -> None:
    kind, row = op.fragment.type, op.row
    (base, offset), stride = _opaque_address(lowering, op, kind)
    into = lowering.result(op.fragment)
    lowering.emitter.require(row.since(lowering.target))
    lowering.emitter.emit(row.spelling, f"{vector(len(into))}, {at('?', offset)}, {stride}", *into, base)
    lowering.values[op.fragment] = into


def _wmma_store(lowering: KernelLowering, op: WmmaStoreOp) -> None:
    row, held = op.row, lowering.fragment(op.fragment)
    (base, offset), stride = _opaque_address(lowering, op, opaque_of(op.fragment))
    lowering.emitter.require(row.since(lowering.target))
    lowering.emitter.emit(row.spelling, f"{at('?', offset)}, {vector(len(held))}, {stride}", base, *held)


def _wmma_mma(lowering: KernelLowering, op: WmmaMmaOp) -> None:
    a, b, row = lowering.fragment(op.a), lowering.fragment(op.b), op.row
    c, d = result_registers(lowering, op, op.c, op.d)
    form = ", ".join(vector(len(registers)) for registers in (d, a, b, c))
    lowering.emitter.require(row.since(lowering.target))
    lowering.emitter.emit(row.spelling, form, *d, *a, *b, *c)
    lowering.values[op.d] = d


HANDLERS: Mapping[type[Operation], Handler] = dict(
    (
        *EPILOGUE.items(),
        *PARTS.items(),
        handler(MmaSparseOp, _mma_sp),
        handler(PackOp, pack.lower),
        handler(SumSlicedKOp, sliced_k.lower),
        handler(ExchangeOp, exchange.lower),
        handler(StmatrixOp, _stmatrix),
        handler(MovmatrixOp, _movmatrix),
        handler(LoadWordsOp, _load_words),
        handler(StoreWordsOp, _store_words),
        handler(LoadMetadataOp, _load_metadata),
        handler(LoadScalesOp, _load_scales),
        handler(WmmaLoadOp, _wmma_load),
        handler(WmmaStoreOp, _wmma_store),
        handler(WmmaMmaOp, _wmma_mma),
    )
)
"""What each operation becomes."""
