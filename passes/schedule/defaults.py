"""The parts of a default schedule: the K loop, the staging of results, transposed operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from xdsl.dialects.builtin import MemRefType, StridedLayoutAttr

from ...dialect.isa.form import ProductForm as Row
from ...dialect.isa.targets import Target
from ...dialect.isa.types import ELEMENT_TYPES
from ...dialect.isa.wgmma import UNIT
from ...dialect.schedule import Schedule, ScheduleError
from ...dialect.warp.attributes import BYTE, Memory
from ...dialect.warp.fragments import BANKS
from ...dialect.warp.operands import metadata_span
from ...dialect.warp.synchronisation import BARRIER_BYTES, BARRIER_SM
from ..linalg.operand import MatrixOperand, Spread
from ..linalg.product import Product
from .model import LEAST_AHEAD, LONG_STEP, LOOP_WARPS, MOST_STAGES, SLACK, WIDEST, access_bytes, narrow, roles

# The part of a schedule that is about the K loop: how warps meet, how far copies run ahead, unrolling, persistence.

UNPIPELINED: dict[str, object] = {"sync": "barrier", "prefetch": 0, "unroll": 0, "ctas": 0, "staging": 0}
"""What is chosen of the loop, and of the way behind it, for tiles that are given; the default's choice is made for its
own tiles."""


STEPS = 2
"""Steps of the instruction in a K tile of this loop: with more, addresses of unrolled stages spill (tf32, 4 steps: 254
registers and spills, 2 steps: 233); with one, fragments of the next step are moved instead of renamed."""

ROOMY = 232
"""Registers that a lane may need, by the model, beside which those of known stages and of the next tile have room:
dense tiles of 64x64 take 232 and sparse ones of 64x48 216; sparse ones of 64x64 take 264 and spill with either."""


def decoupled(
    schedule: Schedule, product: Product, row: Row, target: Target, registers: int, shared: Callable[[Schedule], int]
) -> Schedule:
    """The schedule with warps that wait only for what they need, and few CTAs that go from tile to tile, where it pays.

    The tensor cores and shared memory are both busy for most of a K tile, so whatever stops all warps at once costs
    time that nothing fills. With warp tiles of `LONG_STEP` a step is long enough for waits at mbarriers. A lane takes
    about `registers`, a CTA of a schedule `shared` bytes of shared memory.
    """
    tiles = product.tiles(*schedule.cta[:2])
    # A CTA that is alone on its SM keeps its depth: more bytes on the way for each wait.
    own_depth = (*schedule.cta[:2], _tile_depth(product, row))
    deep = schedule if tiles <= target.sms else schedule.with_fields(cta=own_depth)
    needed = product.k_tiles(deep.cta[2])
    stage = shared(deep.with_fields(stages=1))
    limit = min(MOST_STAGES, target.shared // (stage + 2 * BARRIER_BYTES))
    known = registers <= ROOMY and product.is_known("k")
    # Known stages are worth more than many, where there are registers for them.
    stages = next((s for s in range(limit, SLACK, -1) if known and needed % s == 0), limit)
    pays = schedule.warp[0] * schedule.warp[1] >= LONG_STEP and schedule.warps >= LOOP_WARPS
    pays = pays and schedule.sliced_k == schedule.split_k == 1
    if not pays or not 3 <= stages < needed or target.sm < BARRIER_SM or narrow(product, schedule.pack):
        return schedule
    prefetch = min(stages - 1, max(stages - SLACK, -(-LEAST_AHEAD // stage)))
    schedule = deep.with_fields(stages=stages, sync="mbarrier", prefetch=prefetch)
    if not known:
        return schedule
    # Rows an unknown distance apart have an address each, and those of the next tile beside them spill (552 bytes).
    on = tiles > target.sms and all(o.pitch is not None for o in (product.a, product.b, product.c, product.d) if o)
    # No more CTAs than whole turns of tiles take: others would only compete for memory and power.
    ctas = -(-tiles // -(-tiles // target.sms)) if on else 0
    return schedule.with_fields(unroll=0 if needed % stages else stages, ctas=ctas)


def in_turns(schedule: Schedule, product: Product) -> Schedule:
    """The schedule with a turn of the loop for all stages, where whole turns make up K: their addresses are known then.

    What is converted in registers takes as long as memory does (H200, 16x8192x8192: 4 bits 14.4 microseconds for 14.9,
    8 bits 20.8 for 21.2).
    """
    tiles, stages = product.k_tiles(schedule.cta[2]), schedule.stages
    whole = product.is_known("k") and stages < tiles and tiles % stages == 0
    return schedule.with_fields(unroll=stages) if whole and not schedule.unroll else schedule


def _tile_depth(product: Product, row: Row) -> int:
    """K of a tile of `STEPS` steps, or of the columns that a row of metadata words describes."""
    return max(STEPS * row.shape.k, 0 if product.metadata is None else metadata_span(row.a))


def check_loop(schedule: Schedule, product: Product, target: Target) -> None:
    """Checks what a schedule says of the K loop against product and target.

    Raises:
        ScheduleError: if turns do not divide the loop, or copies cannot arrive at mbarriers.
    """
    tiles = -(-product.k_tiles(schedule.cta[2]) // schedule.split_k)
    if (schedule.unroll or schedule.ctas) and not product.is_known("k"):
        raise ScheduleError(f"unroll and ctas take a K that is known, got A of {product.a.type}")
    if schedule.unroll and (tiles % schedule.unroll or not tiles):
        raise ScheduleError(f"unroll: turns of {schedule.unroll} K tiles must divide all of them, got {tiles}")
    if schedule.sync == "barrier":
        return
    if target.sm < BARRIER_SM:
        raise ScheduleError(f"sync = mbarrier: {target} has none, sm_{BARRIER_SM} and later do")
    for role, operand in (("a", product.a), ("b", product.b)):
        if product.k and operand.aligned_bits % 32 and role not in roles(schedule.pack):
            raise ScheduleError(
                f"sync = mbarrier: rows of {operand.name} are no multiple of 4 bytes, so that no asynchronous copy "
                f"moves them; pack = {role} aligns them"
            )


# The part of a schedule that is about the way to D: whether elements change lanes in shared memory before.

SECTOR, LINE = 32, 128
"""Bytes of memory that are stored together, and that one store can reach without further ones."""


NARROWEST = 16
"""Bits of the narrowest elements that change lanes."""


ADDED = ("f16", "f32")
"""Types of sums that C can be added to at the end."""


def exchanged_rows(schedule: Schedule) -> int:
    """Rows of a warp tile at a time that change lanes; none of a warpgroup's, which tensor copies store."""
    return schedule.staging if schedule.together == 1 else 0


def adds_last(product: Product, schedule: Schedule) -> bool:
    """Whether C is added to the sums strip by strip: loaded in whole lines, and under the strip before, it costs less
    than as lanes hold it, before the first K tile. Neither a sparse product nor one of 8-bit floats, which are
    widened, has registers for it then, nor an epilogue with matrices of its own. `add_c` may say otherwise. Partial
    sums meet before C is added."""
    whole, add_c = schedule.sliced_k == schedule.split_k == 1, schedule.add_c
    if product.c is None or not whole or add_c != "auto":
        return product.c is not None and whole and add_c == "last"
    roomy = product.sparsity == 1 and not (product.a.element.is_float and product.a.element.bits < NARROWEST)
    staged = bool(exchanged_rows(schedule)) and schedule.accumulate in ADDED
    return staged and roomy and not matrices(product)


def matrices(product: Product) -> list[MatrixOperand | Spread]:
    """The epilogue's operands that are matrices."""
    return [operand for operand in product.epilogue_operands if isinstance(operand, MatrixOperand | Spread)]


def changes_lanes_first(schedule: Schedule, *, loads: bool, bits: int) -> bool:
    """Whether the sums change lanes, before the epilogue, so that it loads matrices in whole lines too, if it `loads`
    any, or makes bytes of them, of `bits`; otherwise what it makes of them does, which may be narrower."""
    return bool(exchanged_rows(schedule)) and (loads or bits < NARROWEST)


def strip_bytes(product: Product, schedule: Schedule) -> int:
    """Shared memory in which a CTA's warps have room for a strip each."""
    sums = ELEMENT_TYPES[schedule.accumulate]
    loads, bits = adds_last(product, schedule) or bool(matrices(product)), product.d.element.bits
    bits = sums.bits if changes_lanes_first(schedule, loads=loads, bits=bits) else bits
    return schedule.warps * max(BANKS, schedule.staging * schedule.warp[1] * bits // 8)


def in_strips(schedule: Schedule, product: Product, rows: int, room: int) -> Schedule:
    """The schedule with strips of `rows` rows, those of a base tile of accumulators, where they pay.

    Four lanes hold eight neighbours of a row of D. Of 16 bits those are half a sector of memory, which costs more than
    a whole one, of 8 bits a quarter: strips pay if a warp's rows fill a sector. Of 32 bits they are a sector, but a
    store of a warp touches eight lines, which is what the load/store pipe counts: strips pay if rows fill a line. All
    that only in the `room` bytes of shared memory that are left, for a stage less would cost more; and not beside
    several matrices of an epilogue, which leave no registers.
    """
    strips, bits = schedule.with_fields(staging=rows), product.d.element.bits
    # Lanes go along as many columns as a power of two in them says.
    together = schedule.warp[1] & -schedule.warp[1]
    pays = together * bits // 8 >= (SECTOR if bits <= NARROWEST else LINE)
    fits = access_bytes(product.d) == WIDEST and strip_bytes(product, strips) <= room and len(matrices(product)) <= 1
    return strips if pays and fits else schedule


def check_epilogue(schedule: Schedule, product: Product, rows: int) -> None:
    """Checks a schedule's way to D against the product and base tiles of accumulators of `rows` rows.

    Raises:
        ScheduleError: if strips are no multiples of those, or C is added where partial sums meet.
    """
    check_c(schedule, product)
    if schedule.staging % rows:
        raise ScheduleError(f"staging must be a multiple of the {rows} rows of a base tile, got {schedule.staging}")


def check_c(schedule: Schedule, product: Product) -> None:
    """Refuses to say when C is added where partial sums meet: it is added there."""
    add_c, partial = schedule.add_c, max(schedule.sliced_k, schedule.split_k) > 1
    if add_c != "auto" and partial and product.c is not None:
        raise ScheduleError(f"add_c = {add_c}: of a K that is sliced or split, C is added where partial sums meet")


# A product whose operands lie as its schedule asks, `transpose` and `padded`: what `warp-lay-out` makes of it.
#
# A launch before the product transposes A or B, where they do not lie along K and the instruction asks for that. A
# launch behind it copies D, where D's rows are no multiples of 16 bytes, from rows that are.


def laid_out(product: Product, transpose: str, padded: str = "none") -> Product:
    """The product with operands that lie as a schedule asks.

    Raises:
        ScheduleError: for operands of which no launch of its own makes others.
    """
    transposed = roles(transpose)
    if "a" in transposed:
        product = replace(product, a=_transposed(product.a))
    if "b" in transposed:
        product = replace(product, b=_transposed(product.b))
    return replace(product, d=_padded(product.d)) if padded == "d" else product


def transposed_type(memory: Memory, bits: int) -> tuple[Memory, Memory]:
    """The memory of the transpose of a matrix, as `padded_type` has it."""
    return padded_type(MemRefType(memory.element_type, memory.get_shape()[::-1]), bits)


def padded_type(memory: Memory, bits: int) -> tuple[Memory, Memory]:
    """Memory with rows of whole 16 bytes for a matrix of elements of so many bits, and the part of it that it takes."""
    rows, columns = memory.get_shape()
    step = UNIT * BYTE // bits
    pitch = -(-columns // step) * step
    part = MemRefType(memory.element_type, [rows, columns], StridedLayoutAttr([pitch, 1], 0))
    return MemRefType(memory.element_type, [rows, pitch]), part


def can_change(operand: MatrixOperand) -> bool:
    """Whether a launch can make an operand that lies otherwise: a single matrix, of known size and whole bytes."""
    known = operand.is_whole and min(operand.type.get_shape()) > 0
    return known and operand.memory_bits >= BYTE and operand.stored is None


def _checked(operand: MatrixOperand, field: str) -> MatrixOperand:
    if not can_change(operand):
        raise ScheduleError(f"{field}: a single matrix of known size and whole bytes is copied, got {operand.type}")
    return operand


def _transposed(operand: MatrixOperand) -> MatrixOperand:
    checked = _checked(operand, f"transpose = {operand.name.lower()}")
    _, kind = transposed_type(checked.type, operand.memory_bits)
    return replace(operand, type=kind, transposed=not operand.transposed, dimensions=(0, 1), samples=(), divisor=1)


def _padded(operand: MatrixOperand) -> MatrixOperand:
    _, part = padded_type(_checked(operand, "padded = d").type, operand.memory_bits)
    return replace(operand, type=part, samples=(), divisor=1)
