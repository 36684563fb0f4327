"""Whether a schedule fits a product and a target; each reason why not is one error."""

from __future__ import annotations

from ...dialect.isa.form import SCALES_OF_WORD
from ...dialect.isa.form import ProductForm as Row
from ...dialect.isa.targets import KIB, Target
from ...dialect.isa.types import FP8
from ...dialect.isa.wgmma import WARPS, Wgmma
from ...dialect.isa.wgmma import M as ROWS
from ...dialect.layouts.layout import LANES
from ...dialect.schedule import FIELDS, Schedule, ScheduleError
from ...dialect.schedule.fields import WARPGROUPS
from ...dialect.warp.attributes import BYTE
from ...dialect.warp.operands import metadata_span
from ..linalg.product import Product, block
from . import needs
from .defaults import check_c, check_epilogue, check_loop, laid_out
from .model import SHORTEST_PACKED_ROW, as_halves, bits_twice, roles, row_bytes
from .warpgroup import MOST_PROMOTED, PLAIN, check_operands, check_tiles, row_of, why_not
from .warpgroup_model import LINE

# Whether a schedule of warpgroups fits a product and a target; each reason why not is one error.

TAKEN_BY_WARPGROUPS = {
    **{field.name: field.default for field in FIELDS.values() if WARPGROUPS not in field.of},
    "sync": "mbarrier",
    "swizzle": LINE,
}
"""The fields that products of warpgroups have no choice of."""

SM_REGISTERS, REGISTER_STEP = 1 << 16, 8
"""Registers of an SM, of which a thread has a multiple of 8."""

BESIDE_SUMS = 26
"""Registers that ptxas 13.0.88 asks for beside the sums of an instruction (C7602, 192x256 and 192x224: 154 and 138)."""


def check_warpgroup(schedule: Schedule, product: Product, target: Target) -> None:
    """Checks a schedule of warpgroups against product and target.

    Raises:
        ScheduleError: naming the field that does not fit.
    """
    if reason := why_not(product, target, schedule.in_registers):
        asked = f"in_registers = {schedule.in_registers}" if schedule.in_registers != PLAIN else f"mma = {schedule.mma}"
        raise ScheduleError(f"{asked}: {reason}")
    product = laid_out(product, schedule.transpose, schedule.padded)
    row = row_of(product, schedule, target)
    _check_promoted(schedule, row)
    _check_warpgroup_registers(schedule, row)
    check_tiles(schedule, product)
    check_operands(schedule, product)
    _check_any(schedule, product, target)


def _check_any(schedule: Schedule, product: Product, target: Target) -> None:
    """Checks what all schedules of warpgroups have."""
    check_c(schedule, product)
    _check_parts(schedule, product)
    _check_cluster(schedule, product)
    _check_own_tiles(schedule, product)
    for name, plain in TAKEN_BY_WARPGROUPS.items():
        if (given := schedule[name]) != plain:
            raise ScheduleError(f"products of warpgroups take {name} = {plain}, got {given}")
    _check_shared(schedule, product, target)


def _check_warpgroup_registers(schedule: Schedule, row: Wgmma) -> None:
    """Refuses instructions whose sums take more registers than a thread of a CTA of so many can have."""
    threads = LANES * (schedule.consumer_warps + WARPS)
    most = SM_REGISTERS // threads // REGISTER_STEP * REGISTER_STEP
    needed = row.registers("d") + BESIDE_SUMS
    if needed > most:
        raise ScheduleError(
            f"mma = {row.shape} takes {needed} registers of a thread, a CTA of {threads} threads has {most} for each; "
            "use fewer columns or warpgroups"
        )


def _check_parts(schedule: Schedule, product: Product) -> None:
    """Refuses to cut K where nothing counts the tiles, or where a part would have nothing to multiply."""
    if (parts := schedule.split_k) == 1:
        return
    if product.dynamic:
        raise ScheduleError(f"split_k = {parts}: it needs static sizes; M, N or K is dynamic")
    if product.batch:
        raise ScheduleError(f"split_k = {parts}: a batch is not split")
    if parts > (tiles := product.k_tiles(schedule.cta[2])):
        raise ScheduleError(f"split_k = {parts}: K = {product.k} has {tiles} tiles of {schedule.cta[2]}")


def _check_cluster(schedule: Schedule, product: Product) -> None:
    """Refuses clusters where the tiles of D are not counted."""
    if (cluster := schedule.cluster) == (1, 1):
        return
    if product.dynamic:
        raise ScheduleError(f"cluster = {cluster[0]}x{cluster[1]} needs static sizes; M, N or K is dynamic")


def _check_own_tiles(schedule: Schedule, product: Product) -> None:
    """Refuses consumers in turns but where each has tiles of its own, of a whole K that is known."""
    if schedule.consumers == "cooperative":
        return
    if not schedule.own_tiles or not schedule.ctas or schedule.split_k > 1 or not product.is_known("k"):
        raise ScheduleError(
            f"consumers = {schedule.consumers} takes tiles of one warpgroup, CTAs that go from tile to tile, "
            "and all of a K that is known"
        )


def _check_promoted(schedule: Schedule, row: Wgmma) -> None:
    """Refuses to promote sums that the tensor cores keep whole, or that are too many."""
    if (given := schedule.promote) == PLAIN:
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


# Whether a schedule fits a product and a target; each reason why not is one error.


def check(schedule: Schedule, product: Product, target: Target) -> None:
    """Checks a schedule against product and target.

    Raises:
        ScheduleError: if the instruction does not exist there, or shared memory or registers do not suffice.
    """
    if schedule.together > 1:
        check_warpgroup(schedule, product, target)
        return
    acc = schedule.accumulate
    rows = [r for r in needs.rows_of(product) if r.d.name == acc and r.runs_on(target)]
    row = next((r for r in rows if r.shape == schedule.mma), None)
    if row is None:
        have = ", ".join(str(r.shape) for r in rows)
        wanted = f"mma {schedule.mma} for {needs.multiplied(product)} accumulated in {acc}"
        raise ScheduleError(f"{target} has no {wanted}; it has {have or 'none'}")
    ways = needs.arrangement(product, row, schedule.warp)
    narrowest = row.operand_bits if product.b.stored is None else product.b.memory_bits
    if schedule.cta[2] % (whole := schedule.sliced_k * max(row.shape.k, needs.CHUNK_BITS // narrowest)):
        cut = f" for {schedule.sliced_k} slices" if schedule.sliced_k > 1 else ""
        raise ScheduleError(
            f"{needs.multiplied(product)} takes K tiles of multiples of {whole}{cut}, got {schedule.cta[2]}"
        )
    _check_kind(schedule, product, row)
    if schedule.split_k > 1 and (reason := unsplit(product, schedule.split_k, row)):
        raise ScheduleError(f"split_k = {schedule.split_k}: {reason}")
    if schedule.split_k > 1 and schedule.pack != "none":
        raise ScheduleError(f"split_k takes operands as they lie, not with pack = {schedule.pack}")
    _check_shared(schedule, product, target)
    _check_registers(schedule, row, target)
    check_loop(schedule, product, target)
    check_epilogue(schedule, product, ways.accumulator.rows)
    _check_packing(schedule, product)


def _check_shared(schedule: Schedule, product: Product, target: Target) -> None:
    """Refuses more shared memory than a CTA can have."""
    if (needed := needs.shared_bytes(product, schedule)) > target.shared:
        raise ScheduleError(
            f"{schedule.stages} stages of {schedule.cta} take {needed / KIB:g} KiB of shared memory, {target} has "
            f"{target.shared / KIB:g} KiB for a CTA; use fewer stages or a smaller tile"
        )


def _check_kind(schedule: Schedule, product: Product, row: Row) -> None:
    """What element types, sparse and scaled products ask of a schedule."""
    cta, slices, fp8_as = schedule.cta, schedule.sliced_k, schedule.fp8_as
    access, element = schedule.access, max((row.a, row.b), key=lambda e: e.memory_bits)
    if (size := element.memory_bits // BYTE) > access:
        raise ScheduleError(f"access = {access}: an element of {element.name} takes {size} bytes")
    if product.metadata is not None and cta[2] % (span := metadata_span(row.a)):
        raise ScheduleError(f"metadata comes for {span} columns of A at a time, got a CTA tile of {cta}")
    if product.metadata is not None and slices > 1:
        raise ScheduleError(f"a sparse product is not cut into slices, got {slices}")
    if fp8_as != "none" and (product.sparsity > 1 or row.a.name not in FP8):
        what = "of a sparse product" if product.sparsity > 1 else f"of {needs.multiplied(product)}"
        raise ScheduleError(f"fp8_as = {fp8_as}: operands that are dense 8-bit floats are widened, not those {what}")
    if product.scales and cta[2] % (words := block(product) * SCALES_OF_WORD):
        raise ScheduleError(f"scales come for {words} elements along k at a time, got a CTA tile of {cta}")
    if product.group and (run := max(cta[2] // slices, product.group)) % min(cta[2] // slices, product.group):
        raise ScheduleError(
            f"a warp multiplies whole groups, or parts of one: {cta[2] // slices} elements along k and groups of "
            f"{product.group} fill no {run}"
        )
    if product.scales and slices > 1:
        raise ScheduleError(f"a scaled product is not cut into slices, got {slices}")


def _check_packing(schedule: Schedule, product: Product) -> None:
    pack = schedule.pack
    for role, operand in (("a", product.a), ("b", product.b)):
        if role in roles(pack) and not operand.is_compact:
            raise ScheduleError(
                f"pack = {pack}: packing takes a single matrix of static size without gaps, got {operand.type}"
            )
        if role in roles(pack) and (length := row_bytes(operand)) < SHORTEST_PACKED_ROW:
            raise ScheduleError(
                f"pack = {pack}: rows of {operand.name} have {length} bytes, packing takes rows of at "
                f"least {SHORTEST_PACKED_ROW}"
            )


def unsplit(product: Product, parts: int, row: Row) -> str:
    """Why K cannot be cut into parts; empty if it can."""
    if product.dynamic:
        return "it needs static sizes; M, N or K is dynamic"
    if product.k % parts or not product.k:
        return f"it must divide K = {product.k}"
    kinds = {
        "batch": product.batch,
        "product summed over several loops": product.summed,
        "scaled product": product.scales,
        "sparse product": product.metadata,
    }
    if kind := next((kind for kind, given in kinds.items() if given), ""):
        return f"a {kind} is not split"
    if product.group and product.k // parts % product.group:
        return f"parts of K = {product.k} would end within groups of {product.group}"
    if product.k // parts * min(product.a.memory_bits, product.b.memory_bits) % BYTE:
        return f"parts of K = {product.k} would end within a byte"
    odd = next((o for o in (product.a, product.b) if not o.is_compact), None)
    return f"{odd.name} must lie row by row without gaps, got {odd.type}" if odd is not None else ""


def _check_registers(schedule: Schedule, row: Row, target: Target) -> None:
    (m, n), buffers = schedule.warp, 1 if schedule.stages == 1 else 2
    emulated = (as_halves(row, target) and schedule.fp8_as == "none") or bits_twice(row, target)
    lane = needs.lane_registers(schedule.warp, row, buffers, emulated=emulated)
    lane -= needs.ADDRESSING_REGISTERS - needs.LEAST_ADDRESSING_REGISTERS
    if lane > needs.MAX_REGISTERS:
        raise ScheduleError(
            f"a warp tile of {m}x{n} takes about {lane} registers a lane, there are {needs.MAX_REGISTERS}; "
            f"use a smaller warp tile"
        )
    if lane * schedule.threads > target.registers:
        raise ScheduleError(
            f"{schedule.warps} warps of {m}x{n} take about {lane * schedule.threads} registers, an SM of {target} "
            f"has {target.registers}; use fewer warps or a smaller warp tile"
        )
