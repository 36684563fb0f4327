"""What a schedule of warpgroups takes: its instruction, boxes that tensor copies move, shared memory, stages."""

from __future__ import annotations

from math import gcd, prod

from ...dialect.isa.descriptor import UNIT
from ...dialect.isa.targets import Target
from ...dialect.isa.tensor_map import MOST_BOX, MOST_RANK
from ...dialect.isa.wgmma import Wgmma
from ...dialect.layouts.layout import LANES
from ...dialect.schedule import SHARED_ALIGNMENT, Schedule, ScheduleError
from ...dialect.schedule.arithmetic import ArithmeticSchedule
from ...dialect.schedule.epilogue import EpilogueSchedule
from ...dialect.schedule.grid import GridSchedule
from ...dialect.schedule.loop import LEAST_RING, LoopSchedule
from ...dialect.schedule.operands import OperandSchedule
from ...dialect.schedule.tile import TileSchedule
from ...dialect.warp.attributes import BYTE
from ...dialect.warp.barriers import BARRIER_BYTES
from ...dialect.warp.sparse import METADATA_ROWS, metadata_span
from ...dialect.warp.warpgroup import ROWS as PATTERN
from ..linalg.operand import MatrixOperand
from ..linalg.product import Product
from .resources import multiplied, promotes, warpgroup_rows
from .warpgroup_model import LINE, GroupTile, held_columns, panel_columns, tile_count

STAGED_BITS, STAGED_BYTES = (16, 32), 64 * LINE
"""Bits of the elements of D that tensor copies store; bytes that a warpgroup stages at a time, at most."""

BUFFERS = 2
"""Parts of D of a warpgroup that are on their way at a time: one is filled while the other is read."""

MOST_STAGES, BARRIERS = 8, 256
"""Stages beyond which more were no faster; bytes kept for mbarriers."""


def not_copied(operand: MatrixOperand) -> str:
    """Why tensor copies cannot move an operand."""
    if operand.pitch_bits % (8 * UNIT):
        return f"must have rows that are multiples of {UNIT} bytes, got {operand.type}"
    if operand.type.get_num_dims() > MOST_RANK:
        return f"must have at most {MOST_RANK} dimensions, got {operand.type}"
    if operand.element.memory_bits < 8:
        return f"must have elements of whole bytes, got {operand.type}"
    return ""


def row_of(product: Product, schedule: Schedule, target: Target) -> Wgmma:
    """The instruction of a schedule.

    Raises:
        ScheduleError: if there is none.
    """
    known = warpgroup_rows(product, exchanged=schedule.tile.exchanged)
    rows = [r for r in known if r.d.name == schedule.arithmetic.accumulate and r.runs_on(target)]
    for row in rows:
        if row.shape == schedule.tile.mma:
            return row
    near = sorted({r.shape for r in rows}, key=lambda shape: abs(shape.n - schedule.tile.mma.n))[:3]
    raise ScheduleError(
        f"{target} has no wgmma {schedule.tile.mma} for {multiplied(product)} accumulated in "
        f"{schedule.arithmetic.accumulate}; the nearest are {', '.join(map(str, sorted(near))) or 'none'}"
    )


def check_tiles(schedule: Schedule, product: Product) -> None:
    """Checks the tile of a warpgroup, and those that tensor copies move.

    Raises:
        ScheduleError: for tiles that are not the instruction's, K tiles that are no whole lines of shared memory, tiles
            of more rows than a box has, or rows of D that are not staged so.
    """
    tile = schedule.tile
    if tile.warp != tile.covered:
        sizes = "x".join(map(str, tile.covered))
        raise ScheduleError(f"a warpgroup multiplies tiles of {sizes}, got warp = {tile.warp}")
    if tile.cta[2] * product.a.element.memory_bits // 8 % LINE:
        raise ScheduleError(f"K tiles of warpgroups are multiples of {LINE} bytes, got {tile.cta[2]} elements")
    if max(tile.cta) > MOST_BOX:
        raise ScheduleError(f"a tensor copy moves at most {MOST_BOX} rows, got cta = {tile.cta}")
    if schedule.epilogue.staging not in (0, rows := staged_part(product, tile)[0]):
        raise ScheduleError(f"staging = {schedule.epilogue.staging}: a warpgroup stages {rows} rows of D")


def stage_bytes(product: Product, schedule: Schedule) -> int:
    """Shared memory of one stage."""
    m, n, k = schedule.tile.cta
    columns = held_columns(product, n)
    sizes = m * k // product.sparsity * product.a.element.memory_bits, columns * k * product.b.memory_bits
    tiles = [bits // 8 for bits in sizes]
    if product.metadata is not None:
        rows = -(-m // (METADATA_ROWS * PATTERN)) * PATTERN
        tiles.append(rows * k // metadata_span(product.a.element) * LANES * product.metadata.element.bits // 8)
    return sum(-(-size // SHARED_ALIGNMENT) * SHARED_ALIGNMENT for size in tiles)


def shared_bytes(product: Product, schedule: Schedule) -> int:
    """Shared memory of a CTA: stages, their mbarriers, and D on its way."""
    barriers = 2 * schedule.loop.stages * BARRIER_BYTES
    return schedule.loop.stages * stage_bytes(product, schedule) + staging_bytes(product, schedule) + barriers


def staged_part(product: Product, tile: TileSchedule) -> tuple[int, int]:
    """The rows and columns of D that a warpgroup stages at a time; none where tensor copies cannot store them.

    Columns are those of a panel; of a transposed instruction, whose 64 columns are one layout, all of them.
    """
    (rows, columns), bits = tile.covered, product.d.element.bits
    panel = panel_columns(columns, bits)
    if bits not in STAGED_BITS or not panel or not_copied(product.d):
        return 0, 0
    width = columns if tile.exchanged else panel
    return gcd(rows, STAGED_BYTES * BYTE // (width * bits)), width


def staging_bytes(product: Product, schedule: Schedule) -> int:
    """Shared memory in which each warpgroup stages rows of D."""
    if not schedule.epilogue.staging:
        return 0
    staged = prod(staged_part(product, schedule.tile)) * product.d.element.bits // BYTE
    return schedule.consumers // schedule.tile.together * BUFFERS * staged


def fitting_stages(product: Product, schedule: Schedule, target: Target) -> int:
    """As many stages as shared memory holds, and pay."""
    room = target.shared - staging_bytes(product, schedule) - BARRIERS
    return max(LEAST_RING, min(MOST_STAGES, room // stage_bytes(product, schedule)))


def schedule_of_tile(
    product: Product, tile: TileSchedule, of_d: GroupTile, accumulate: str, target: Target, *, group: int,
    operands: OperandSchedule | None = None,
) -> Schedule:  # fmt: skip
    """The schedule that goes with a tile.

    As many stages as fit, for a CTA of a single tile no more than it has K tiles; CTAs that go from tile to tile where
    there are more tiles than SMs; rows of D staged where tensor copies can store them.
    """
    schedule = Schedule(
        tile,
        LoopSchedule(LEAST_RING, sync="mbarrier"),
        grid=GridSchedule(group, of_d.parts, cluster=of_d.cluster),
        epilogue=EpilogueSchedule(staged_part(product, tile)[0]),
        operands=operands or OperandSchedule(),
        arithmetic=ArithmeticSchedule(accumulate, "f32" if promotes(product, accumulate) else "none"),
    )
    stages = fitting_stages(product, schedule, target)
    if tile_count(product, of_d) > target.sms:
        return schedule.with_fields(stages=stages, ctas=target.sms)
    return schedule.with_fields(stages=min(stages, max(LEAST_RING, -(-product.k_tiles(tile.cta[2]) // of_d.parts))))
