"""Schedules of products of warpgroups with B in registers, changed on its way there: `in_registers = b`.

The transposes are multiplied, D^T = B^T A^T: each warpgroup computes 64 columns of D, and as many rows as its
instruction has columns, so that what is done to an element of B is done once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import gcd, prod
from typing import NamedTuple

from ...dialect.isa.product import Shape
from ...dialect.isa.targets import Target
from ...dialect.isa.tensor_map import MOST_BOX
from ...dialect.isa.wgmma import M as COLUMNS
from ...dialect.schedule import Schedule, ScheduleError
from ...dialect.schedule.arithmetic import ArithmeticSchedule
from ...dialect.schedule.epilogue import EpilogueSchedule
from ...dialect.schedule.grid import GridSchedule
from ...dialect.schedule.loop import LoopSchedule
from ...dialect.schedule.tile import TileSchedule
from ...dialect.warp.attributes import BYTE
from ..linalg.product import Product
from .resources import multiplied, warpgroup_rows
from .warpgroup import GROUP, STAGED_BITS, fitting_stages, not_copied, panel_columns, row_of
from .warpgroup_model import LINE, STORED_PER_CYCLE, TILE_LATENCY, k_of

STAGED_BYTES = 64 * LINE
"""Bytes of D that a warpgroup stages at a time, at most."""

LEAST_ALONG_K, LEAST_ALONG_N = 65, 64
"""Rows of D from which on B in registers is faster, which lies along K or along N (H200, 8192x8192, microseconds by
fragments and so: 64 rows 31.2 and 34.0, 30.2 and 27.4; 128 rows 54.0 and 36.9, 51.9 and 31.6)."""

LEAST_PRODUCTS = 1 << 29
"""Multiply-adds below which fragments of both are as fast."""

LEAST_STAGES = 4
"""Stages without which copies are not far enough ahead."""

STEP_BYTES = 32
"""Bytes along K of A that an instruction multiplies."""

CHANGED, TURN = {True: 24, False: 8}, 40
"""Cycles that the tensor cores of an SM lose to the loads and changes of an instruction's B, which lies along K or
along N (H200, 256x8192x8192: 54.8 and 46.0 microseconds in tiles of 256x64, 60.1 and 51.3 of 128x128); and to a K
tile."""

LEAST_TURN = {True: (0, 425), False: (160, 190)}
"""Cycles that a K tile takes at least, and for each line of A in it: from loads to the end of products (H200, 128x64:
36.9 and 38.8 microseconds with one line and with two, along N 33.3 and 31.6; 64x64 along N 32.8 and 27.4)."""


class ExchangedTile(NamedTuple):
    """A tile of a CTA: rows of D, warpgroups of 64 columns side by side, lines of A along K."""

    m: int
    groups: int
    depth: int


ROWS = (256, 128, 192, 64, 96, 160, 224, 32)

TILES = tuple(ExchangedTile(m, groups, depth) for m in ROWS for groups in (1, 2) for depth in (1, 2))
"""Tiles that are tried, in order: of two that cost the same the first is taken."""


def why_not(product: Product, target: Target) -> str:
    """Why warpgroups cannot have B in registers; empty if they can."""
    rows = warpgroup_rows(product, exchanged=True)
    stored = product.b.stored
    if not any(row.runs_on(target) for row in rows):
        return f"{target} has no wgmma for {multiplied(product)}"
    if stored is None:
        return f"B of {product.b.element.name} is not changed on its way"
    if stored.element.bits != 8:
        return f"integers of {stored.element.bits} bits are not converted for warpgroups"
    if product.group:
        return "the sums of groups that have scales are not those of warpgroups"
    if product.summed:
        return "it is summed over several loops"
    if product.metadata is not None:
        return "A is sparse"
    for operand in (product.a, product.b):
        if reason := not_copied(operand):
            return f"{operand.name} {reason}"
    return ""


def pays(product: Product) -> bool:
    """Whether that is faster than fragments of both operands, each of whose rows of tiles changes all of B again."""
    least = LEAST_ALONG_N if not product.b.transposed else LEAST_ALONG_K
    return product.m >= least and product.m * product.n * product.depth * prod(product.batch) >= LEAST_PRODUCTS


def exchanged_schedule(product: Product, target: Target, accumulate: str) -> Schedule | None:
    """The schedule with B in registers that the model likes best; None if there is none."""
    return next(exchanged_candidates(product, target, accumulate), None)


def exchanged_candidates(product: Product, target: Target, accumulate: str) -> Iterator[Schedule]:
    """Schedules with B in registers that are worth trying, those that the model likes best first."""
    if why_not(product, target):
        return
    rows = {r.shape.n: r for r in warpgroup_rows(product, exchanged=True) if r.d.name == accumulate}
    for tile in sorted(TILES, key=lambda tile: cost(product, tile, target)):
        schedule = _schedule(product, tile, rows[tile.m].shape, accumulate, target)
        if schedule.loop.stages >= LEAST_STAGES:
            yield schedule


def cost(product: Product, tile: ExchangedTile, target: Target) -> float:
    """The model's time in cycles for a product in tiles of a size."""
    changed, (first, each) = CHANGED[product.b.transposed], LEAST_TURN[product.b.transposed]
    steps = tile.depth * LINE // STEP_BYTES
    turn = max(tile.groups * steps * (tile.m / 2 + changed) + TURN, first + tile.depth * each)
    waves = -(-_tile_count(product, tile) // target.sms)
    turns = product.k_tiles(tile.depth * k_of(product))
    return waves * (turns * turn + TILE_LATENCY + tile.m * tile.groups * COLUMNS / STORED_PER_CYCLE)


def _tile_count(product: Product, tile: ExchangedTile) -> int:
    return -(-product.m // tile.m) * -(-product.n // (tile.groups * COLUMNS)) * prod(product.batch)


def _schedule(product: Product, tile: ExchangedTile, mma: Shape, accumulate: str, target: Target) -> Schedule:
    schedule = Schedule(
        TileSchedule(
            (tile.m, tile.groups * COLUMNS, tile.depth * k_of(product)), (mma.n, COLUMNS), mma, in_registers="b"
        ),
        LoopSchedule(3, sync="mbarrier"),
        grid=GridSchedule(GROUP),
        epilogue=EpilogueSchedule(staged_rows(product, mma.n)),
        arithmetic=ArithmeticSchedule(accumulate),
    )
    whole = _tile_count(product, tile) > target.sms and not product.batch
    stages = fitting_stages(product, schedule, target)
    return schedule.with_fields(stages=stages, ctas=target.sms if whole else 0)


def staged_rows(product: Product, rows: int) -> int:
    """The rows of D, of so many of a warpgroup, that are staged at a time; 0 where tensor copies cannot store them."""
    bits = product.d.element.bits
    copied = bits in STAGED_BITS and panel_columns(COLUMNS, bits) and not not_copied(product.d)
    return gcd(rows, STAGED_BYTES * BYTE // (COLUMNS * bits)) if copied else 0


def around_given(chosen: Schedule, given: Mapping[str, object], product: Product, target: Target) -> dict[str, object]:
    """The fields given with what goes with another tile: its warp tile, its stages, and how D is staged."""
    mma = given.get("mma", chosen.tile.mma)
    if not isinstance(mma, Shape) or all(given.get(name, chosen[name]) == chosen[name] for name in ("mma", "cta")):
        return dict(given)
    cta = given.get("cta", (mma.n, *chosen.tile.cta[1:]))
    around = {"cta": cta, "warp": (mma.n, COLUMNS), "mma": mma, "staging": staged_rows(product, mma.n), "stages": 3}
    around |= {"split_k": 1, "cluster": (1, 1), "ctas": 0}
    tried = chosen.with_fields(**{**around, **given})
    return {**around, "stages": fitting_stages(product, tried, target), **given}


def check_exchanged(schedule: Schedule, product: Product, target: Target) -> None:
    """Checks a schedule with B in registers against product and target.

    Raises:
        ScheduleError: naming the field that does not fit.
    """
    if reason := why_not(product, target):
        raise ScheduleError(f"in_registers = b: {reason}")
    tile, row = schedule.tile, row_of(product, schedule, target)
    if tile.warp != (row.shape.n, COLUMNS):
        raise ScheduleError(f"a warpgroup multiplies tiles of {row.shape.n}x{COLUMNS}, got warp = {tile.warp}")
    if tile.cta[2] * product.a.element.memory_bits // 8 % LINE:
        raise ScheduleError(f"K tiles of warpgroups are multiples of {LINE} bytes, got {tile.cta[2]} elements")
    if max(tile.cta) > MOST_BOX:
        raise ScheduleError(f"a tensor copy moves at most {MOST_BOX} rows, got cta = {tile.cta}")
    if schedule.epilogue.staging not in (0, staged_rows(product, row.shape.n)):
        raise ScheduleError(
            f"staging = {schedule.epilogue.staging}: a warpgroup stages {staged_rows(product, row.shape.n)} rows of D"
        )
    if schedule.loop.consumers != "cooperative":
        raise ScheduleError(f"consumers = {schedule.loop.consumers}: with B in registers none take turns")
    for name in ("pack", "transpose", "padded"):
        if (given := schedule[name]) != "none":
            raise ScheduleError(f"{name} = {given}: B in registers takes operands as they lie")
