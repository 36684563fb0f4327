"""What a product and a schedule need: the rows of the instruction, registers of a lane, shared memory of a CTA."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...dialect.isa import mma, wgmma
from ...dialect.isa.form import having
from ...dialect.isa.product import ProductForm as Row
from ...dialect.isa.targets import KIB, Target
from ...dialect.isa.types import FP8
from ...dialect.isa.wgmma import Wgmma
from ...dialect.layouts.layout import LANES
from ...dialect.schedule import SHARED_ALIGNMENT, Schedule
from ...dialect.warp.attributes import BYTE
from ...dialect.warp.barriers import BARRIER_BYTES
from ...dialect.warp.sparse import METADATA_ROWS, metadata_span
from ..linalg.multiplied import Multiplied, block, shared_bits
from ..linalg.product import Product
from ..tile.arrangement import Arrangement, arrange, arrange_stored
from .staging import strip_bytes

MAX_REGISTERS = 255
ADDRESSING_REGISTERS = 40
"""What addresses, counters and predicates take beside fragments: 32 to 38 in the kernels emitted."""
LEAST_ADDRESSING_REGISTERS = 24
"""What they come down to under pressure in a kernel without edges; one that needs more than is left spills."""

CHUNK_BITS = 128
"""A line of a tile in shared memory is at least one chunk."""

MOST_SCALE_BITS = 32 * KIB * BYTE
"""Bits of the scales of groups that a CTA keeps in shared memory at most."""

CONVERTED_K = 16
"""Elements along k of an instruction whose B is converted from integers."""

MAX_STEP_BITS = 512
"""Bits of a row of A that one step of the instruction takes at most."""


def instruction(product: Product, accumulate: str, target: Target) -> Row | None:
    """The largest row for the product's element types that the target has.

    Of f64 none with k = 16: it is no faster, and its fragments take the registers that larger warp tiles need.
    """
    rows = [r for r in rows_of(product) if r.d.name == accumulate and r.runs_on(target)]
    rows = [r for r in rows if r.operand_bits * r.shape.k <= MAX_STEP_BITS]
    deep = [r for r in rows if r.a.bits == 1 and r.shape.k >= product.k]
    # Of single bits a step is so deep that a short K is less than one.
    shallow = [r for r in rows if r.shape.k == min((r.shape.k for r in deep), default=r.shape.k)]
    return max(shallow, key=lambda r: (r.shape.k, r.shape.m), default=None)


def rows_of(product: Multiplied) -> Sequence[Row]:
    """The rows that multiply the product's element types, for every target and type of accumulators."""
    if product.sparsity == 1:
        found = mma.of_types(product.a.element.name, product.b.element.name, product.variant)
        return found if product.b.stored is None else [r for r in found if r.shape.k == CONVERTED_K]
    from ...dialect.isa import mma_sp

    a, b = product.a.element, product.b.element
    return having(mma_sp.rows, a=a, b=b, ordered=True, satfinite=False, kind="")


def warpgroup_rows(product: Multiplied, *, exchanged: bool = False) -> Sequence[Wgmma]:
    """The rows of warpgroups that multiply the product's element types, A dense or sparse, scaled by nothing; with
    `exchanged` those of the transposes, of which the first operand is changed in registers."""
    if product.variant.scale_type or (product.b.stored is not None and not exchanged):
        return ()
    a, b, sparse = product.a.element, product.b.element, product.sparsity > 1
    a, b = (b, a) if exchanged else (a, b)
    return having(wgmma.rows, a=a, b=b, satfinite=False, sparse=sparse, bit_op=product.variant.bit_op)


def promotes(product: Product, accumulate: str) -> bool:
    """Whether f32 registers are to add the sums of K tiles, as warpgroups cut sums of 8-bit floats short."""
    of_bytes = product.a.element.name in FP8 and product.b.element.name in FP8
    return of_bytes and accumulate == "f32" and not product.short_sums


def default_accumulator(product: Product) -> str:
    """The widest type that the instructions for the product accumulate in."""
    return max((r.d for r in rows_of(product)), key=lambda element: element.bits).name


def multiplied(product: Product) -> str:
    """The element types of a product, as errors name them."""
    held = product.b.stored
    return f"{product.a.element.name} x {product.b.element.name}{f' from {held.name}' if held is not None else ''}"


def arrangement(product: Multiplied, row: Row, warp: tuple[int, int]) -> Arrangement:
    """How the operands lie in registers.

    Raises:
        ScheduleError: if the warp tile is too small for it.
    """
    along_k, stored = (not product.a.transposed, product.b.transposed), product.b.stored
    return arrange(row, warp, *along_k) if stored is None else arrange_stored(row, warp, *along_k, stored.element.bits)


def group_scale_tile(product: Product, schedule: Schedule) -> tuple[int, int] | None:
    """Rows and columns of the scales of groups that a CTA keeps in shared memory, as they lie; None where they stay in
    global memory: too many, not in whole chunks, or others for the next tile."""
    scales = product.group_scales
    if scales is None or schedule.grid.ctas:
        return None
    shape = list(scales.type.get_shape())
    shape[1 - product.group_axis] = schedule.tile.cta[1]
    rows, columns = shape
    whole = scales.shape[1] * scales.memory_bits % CHUNK_BITS == columns * scales.memory_bits % CHUNK_BITS == 0
    return (rows, columns) if whole and rows * columns * scales.memory_bits <= MOST_SCALE_BITS else None


def _scale_bytes(product: Product, schedule: Schedule) -> int:
    found = group_scale_tile(product, schedule)
    return (
        0
        if found is None or product.group_scales is None
        else math.prod(found) * product.group_scales.memory_bits // BYTE
    )


def shared_bytes(product: Product, schedule: Schedule) -> int:
    """Shared memory of a CTA: the stages of each operand's tile, the sums of slices, the strips of D."""
    m, n, k = schedule.tile.cta
    sides = [(m * k // product.sparsity, shared_bits(product, product.a)), (n * k, shared_bits(product, product.b))]
    if product.metadata is not None:
        words = m // METADATA_ROWS * k // metadata_span(product.a.element) * LANES
        sides.append((words, product.metadata.element.bits))
    sides += [(side * k // block(product), BYTE) for side in (m, n) if product.scales]
    parts = [schedule.loop.stages * elements * bits // 8 for elements, bits in sides]
    parts += [size] if (size := _scale_bytes(product, schedule)) else []
    if schedule.loop.sync == "mbarrier":
        parts.append(2 * schedule.loop.stages * BARRIER_BYTES)
    if schedule.tile.sliced_k > 1:
        parts.append(schedule.slice_bytes)
    if schedule.epilogue.staging:
        parts.append(strip_bytes(product, schedule))
    end = 0
    for part in parts:
        end = -(-end // SHARED_ALIGNMENT) * SHARED_ALIGNMENT + part
    return end


def lane_registers(warp: tuple[int, int], row: Row, buffers: int = 2, *, emulated: bool = False) -> int:
    """About how many registers a lane needs: accumulators, `buffers` times the fragments of a step, addresses.

    Operands that ptxas makes others of (`emulated`), such as 8-bit floats that it widens, take twice the registers,
    with a sparse A three times; those that we widen take few more than as they were, for each is widened where a
    product first reads it.
    """
    down, across = warp[0] // row.shape.m, warp[1] // row.shape.n
    operands = row.registers("a") * down + row.registers("b") * across
    words = 2 if row.operand_bits == 64 else 1
    if emulated:
        words = 2 if row.layout("a").columns == row.shape.k else 3
    accumulators = row.registers("d") * down * across * (2 if row.d.bits == 64 else 1)
    return accumulators + buffers * operands * words + ADDRESSING_REGISTERS
