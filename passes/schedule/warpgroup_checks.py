"""Whether a schedule of warpgroups fits a product and a target; each reason why not is one error."""

from __future__ import annotations

from ...dialect.isa.targets import Target
from ...dialect.isa.types import FP8
from ...dialect.isa.wgmma import WARPS, Wgmma
from ...dialect.isa.wgmma import M as ROWS
from ...dialect.layouts.layout import LANES
from ...dialect.schedule import Schedule, ScheduleError
from ..linalg.product import Product
from .laid_out import laid_out
from .staging import check_c
from .warpgroup import MOST_PROMOTED, PLAIN
from .warpgroup_model import LINE
from .warpgroup_resources import check_tiles, row_of, shared_bytes
from .warpgroup_ways import WAYS

SM_REGISTERS, REGISTER_STEP = 1 << 16, 8
"""Registers of an SM, of which a thread has a multiple of 8."""

BESIDE_SUMS = 26
"""Registers that ptxas 13.0.88 asks for beside the sums of an instruction (C7602, 192x256 and 192x224: 154 and 138)."""


def check_warpgroup(schedule: Schedule, product: Product, target: Target) -> None:
    """Checks a schedule of warpgroups against product and target.

    Raises:
        ScheduleError: naming the field that does not fit.
    """
    tile, way = schedule.tile, WAYS[schedule.tile.in_registers]
    if reason := way.why_not(product, target):
        asked = f"in_registers = {tile.in_registers}" if tile.in_registers != PLAIN else f"mma = {tile.mma}"
        raise ScheduleError(f"{asked}: {reason}")
    product = laid_out(product, schedule.operands)
    row = row_of(product, schedule, target)
    _check_promoted(schedule, row)
    _check_registers(schedule, row)
    check_tiles(schedule, product)
    way.check_operands(schedule, product)
    _check_any(schedule, product, target)


def _check_any(schedule: Schedule, product: Product, target: Target) -> None:
    """Checks what all schedules of warpgroups have."""
    check_c(schedule, product)
    _check_parts(schedule, product)
    _check_cluster(schedule, product)
    _check_own_tiles(schedule, product)
    for name, plain in (("sliced_k", 1), ("prefetch", 0), ("unroll", 0), ("fp8_as", "none"),
                        ("sync", "mbarrier"), ("swizzle", LINE)):  # fmt: skip
        if (given := schedule[name]) != plain:
            raise ScheduleError(f"products of warpgroups take {name} = {plain}, got {given}")
    if (needed := shared_bytes(product, schedule)) > target.shared:
        raise ScheduleError(
            f"{schedule.loop.stages} stages of {schedule.tile.cta} take {needed} bytes of shared memory, {target} has "
            f"{target.shared} for a CTA; use fewer stages or a smaller tile"
        )


def _check_registers(schedule: Schedule, row: Wgmma) -> None:
    """Refuses instructions whose sums take more registers than a thread of a CTA of so many can have."""
    threads = LANES * (schedule.consumers + WARPS)
    most = SM_REGISTERS // threads // REGISTER_STEP * REGISTER_STEP
    needed = row.registers("d") + BESIDE_SUMS
    if needed > most:
        raise ScheduleError(
            f"mma = {row.shape} takes {needed} registers of a thread, a CTA of {threads} threads has {most} for each; "
            "use fewer columns or warpgroups"
        )


def _check_parts(schedule: Schedule, product: Product) -> None:
    """Refuses to cut K where nothing counts the tiles, or where a part would have nothing to multiply."""
    if (parts := schedule.grid.split_k) == 1:
        return
    if product.dynamic:
        raise ScheduleError(f"split_k = {parts}: it needs static sizes; M, N or K is dynamic")
    if product.batch:
        raise ScheduleError(f"split_k = {parts}: a batch is not split")
    if parts > (tiles := product.k_tiles(schedule.tile.cta[2])):
        raise ScheduleError(f"split_k = {parts}: K = {product.k} has {tiles} tiles of {schedule.tile.cta[2]}")


def _check_cluster(schedule: Schedule, product: Product) -> None:
    """Refuses clusters where the tiles of D are not counted."""
    if (cluster := schedule.grid.cluster) == (1, 1):
        return
    if product.dynamic:
        raise ScheduleError(f"cluster = {cluster[0]}x{cluster[1]} needs static sizes; M, N or K is dynamic")


def _check_own_tiles(schedule: Schedule, product: Product) -> None:
    """Refuses consumers in turns but where each has tiles of its own, of a whole K that is known."""
    if schedule.loop.consumers == "cooperative":
        return
    if not schedule.own_tiles or not schedule.grid.ctas or schedule.grid.split_k > 1 or not product.is_known("k"):
        raise ScheduleError(
            f"consumers = {schedule.loop.consumers} takes tiles of one warpgroup, CTAs that go from tile to tile, "
            "and all of a K that is known"
        )


def _check_promoted(schedule: Schedule, row: Wgmma) -> None:
    """Refuses to promote sums that the tensor cores keep whole, or that are too many."""
    if (given := schedule.arithmetic.promote) == PLAIN:
        return
    if row.a.name not in FP8 or row.d.name != given:
        raise ScheduleError(
            f"promote = {given} is for 8-bit floats accumulated in {given}, got {row.a.name} in {row.d.name}"
        )
    if row.shape.n > MOST_PROMOTED:
        raise ScheduleError(
            f"promote = {given} takes two sums for each element of D: a warpgroup has room for {ROWS}x{MOST_PROMOTED} "
            f"of both, got mma = {row.shape}; use fewer columns, or promote = none for the sums of the instruction"
        )
