"""Whether a schedule fits a product and a target, and schedules that a user gives: measured ones, or single fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, product
from typing import TYPE_CHECKING, Any, cast

from xdsl.dialects.builtin import f32
from xdsl.utils.exceptions import VerifyException

from ...dialect.isa.form import FP8, SCALES_OF_WORD, Shape
from ...dialect.isa.form import ProductForm as Row
from ...dialect.isa.row import KIB, Target
from ...dialect.isa.wgmma import WARPS, Wgmma
from ...dialect.isa.wgmma import M as ROWS
from ...dialect.layouts.layout import LANES, Layout
from ...dialect.layouts.tensor_memory import COLUMNS
from ...dialect.schedule import FIELDS, Schedule, ScheduleError, roles
from ...dialect.schedule.schedule import MAX_REGISTERS, MIN_RING, WARPGROUPS, text_of
from ...dialect.warp.attributes import BYTE, FragmentType
from ...dialect.warp.elements import M
from ...dialect.warp.mma import part_of
from ...dialect.warp.operands import metadata_span
from ..linalg.product import Product, block
from . import needs
from .defaults import UNPIPELINED, can_slice, check_c, check_epilogue, check_loop, laid_out
from .model import TILES, as_halves, bits_twice, not_packed, unpaired
from .needs import staged_part
from .tensor_memory import stages_beside, why_no_pairs
from .warpgroup import MAX_PROMOTED, PLAIN, check_operands, check_tiles, row_of, why_not
from .warpgroup_model import LINE

if TYPE_CHECKING:
    from ..linalg.read_attention import Attention

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
    """Checks a schedule of warpgroups against product and target. Raises ScheduleError, naming the field that does not
    fit."""
    if reason := why_not(product, target, schedule.in_registers):
        asked = f"in_registers = {schedule.in_registers}" if schedule.in_registers != PLAIN else f"mma = {schedule.mma}"
        raise ScheduleError(f"{asked}: {reason}")
    product = laid_out(product, schedule.transpose, schedule.padded)
    row = row_of(product, schedule, target)
    _check_promoted(schedule, row)
    _check_blocks(schedule, product)
    _check_warpgroup_registers(schedule, row)
    check_tiles(schedule, product)
    check_operands(schedule, product)
    _check_beside(schedule, product)
    check_c(schedule, product)
    _check_parts(schedule, product)
    _check_cluster(schedule, product, target)
    _check_own_tiles(schedule, product, target)
    for name, plain in TAKEN_BY_WARPGROUPS.items():
        if name == "sliced_k" and can_slice(product, schedule.in_registers):
            needs.check_slices(schedule, product)
        elif (value := schedule[name]) != plain:
            raise ScheduleError(f"products of warpgroups take {name} = {plain}, got {value}")
    _check_shared(schedule, product, target)


def _check_blocks(schedule: Schedule, product: Product) -> None:
    """Checks that tiles fit the blocks of scales."""
    (rows, columns, k), (_, _, depth) = product.blocks, schedule.cta
    if not k:
        return
    within = all(block in (0, 1) or block % n == 0 for block, n in zip((rows, columns), schedule.warp, strict=True))
    if depth % k or not within or schedule.promote == PLAIN:
        raise ScheduleError(
            f"scales of blocks of {rows}x{k} and {columns}x{k} elements take K tiles of multiples of {k}, warp tiles "
            f"that divide the others, and promote = f32; got cta = {schedule.cta}, warp = {schedule.warp}"
        )


def _check_warpgroup_registers(schedule: Schedule, row: Wgmma) -> None:
    """Checks that the accumulators of an instruction fit the registers of a thread in a CTA of this size."""
    threads = LANES * (schedule.consumer_warps + WARPS)
    limit = SM_REGISTERS // threads // REGISTER_STEP * REGISTER_STEP
    needed = row.registers("d") + BESIDE_SUMS
    if needed > limit:
        raise ScheduleError(
            f"mma = {row.shape} takes {needed} registers of a thread, a CTA of {threads} threads has {limit} for each; "
            "use fewer columns or warpgroups"
        )


def _check_parts(schedule: Schedule, product: Product) -> None:
    """Refuses to cut K where nothing counts the tiles, or where a part would have nothing to multiply."""
    if (parts := schedule.split_k) == 1:
        return
    if product.dynamic and not (schedule.shares_tail and product.op.grouped == M and product.is_known("k")):
        raise ScheduleError(f"split_k = {parts}: it needs static sizes; M, N or K is dynamic")
    if product.batch and schedule.together == 1:
        raise ScheduleError(f"split_k = {parts}: a batch is not split")
    if schedule.shares_tail and (product.c is not None or product.initial):
        raise ScheduleError(f"split_k = {parts} with ctas = {schedule.ctas} takes a product that starts from zero")
    if schedule.shares_tail and product.batch_invariant:
        raise ScheduleError(f"split_k = {parts} with ctas = {schedule.ctas}: sums of the last tiles have another order")
    if parts > (tiles := product.k_tiles(schedule.cta[2])):
        raise ScheduleError(f"split_k = {parts}: K = {product.k} has {tiles} tiles of {schedule.cta[2]}")


def _check_cluster(schedule: Schedule, product: Product, target: Target) -> None:
    """Refuses clusters of tiles of rows that may be of two groups, clusters where products say to one CTA that a stage
    has been read, and those of parts of K, whose sums are in registers, where they are in tensor memory."""
    if schedule.cluster_parts > 1 and needs.adds_in_tensor_memory(target):
        raise ScheduleError(f"partial_sums = cluster: sums lie in the tensor memory of {target}, not in registers")
    if (cluster := schedule.cluster) == (1, 1):
        return
    if needs.adds_in_tensor_memory(target) and (reason := _not_in_pairs(schedule, product)):
        raise ScheduleError(f"cluster = {cluster[0]}x{cluster[1]}: {reason}")
    if product.op.grouped == M and cluster[0] > 1 and not schedule.pairs:
        raise ScheduleError(
            f"cluster = {cluster[0]}x{cluster[1]}: tiles of rows one after another may be of two groups, whose B differ"
        )


def _check_beside(schedule: Schedule, product: Product) -> None:
    """Checks the tile of a product with scales. Raises ScheduleError for other tiles, or more scales than tensor memory
    has columns for."""
    if not product.scales and (product.metadata is None or schedule.mma.m <= ROWS):
        return
    if product.metadata is not None and schedule.cta[2] % (both := 2 * metadata_span(product.a.element)):
        raise ScheduleError(f"metadata comes to tensor memory for {both} columns of A, got cta = {schedule.cta}")
    if schedule.cta[0] != 2 * ROWS:
        raise ScheduleError(
            f"scales and metadata in tensor memory are of tiles of {2 * ROWS} rows, got cta = {schedule.cta}"
        )
    if (limit := stages_beside(product, schedule)) < schedule.stages:
        raise ScheduleError(
            f"stages = {schedule.stages}: beside the sums, tensor memory has columns for what {limit} stages bring"
        )


def _not_in_pairs(schedule: Schedule, product: Product) -> str:
    """Why a schedule of clusters is none of pairs; empty if it is."""
    if not schedule.pairs:
        return f"in tensor memory CTAs multiply in pairs, 2x1, with M = {2 * ROWS}, got mma = {schedule.mma}"
    if reason := why_no_pairs(product, *schedule.cta[:2]):
        return reason
    columns = schedule.cta[1] // 2
    uneven = f"each CTA of a pair has {columns} columns of B, no multiple of N in mma = {schedule.mma}"
    return uneven if columns % schedule.mma.n else ""


def _check_own_tiles(schedule: Schedule, product: Product, target: Target) -> None:
    """Refuses consumers in turns but where each multiplies tiles of its own, of a whole K that is known, or scales the
    sums of blocks."""
    if schedule.consumers == "cooperative":
        return
    if needs.adds_in_tensor_memory(target):
        raise ScheduleError(
            f"consumers = {schedule.consumers}: in tensor memory one warp issues the products of all warpgroups"
        )
    if product.block_scales and not schedule.own_tiles:
        return
    if not schedule.own_tiles or not schedule.ctas or schedule.split_k > 1 or not product.is_known("k"):
        raise ScheduleError(
            f"consumers = {schedule.consumers} takes tiles of one warpgroup, CTAs that go from tile to tile, "
            "and all of a K that is known"
        )


def _check_promoted(schedule: Schedule, row: Wgmma) -> None:
    """Refuses to promote sums that tensor cores keep in full, or that take too many registers."""
    if (to := schedule.promote) == PLAIN:
        return
    if row.a.name not in FP8 or row.d.name != to:
        raise ScheduleError(f"promote = {to} is for 8-bit floats accumulated in {to}, got {row.a.name} in {row.d.name}")
    if row.shape.n > MAX_PROMOTED:
        raise ScheduleError(
            f"promote = {to} takes two sums for each element of D: a warpgroup has room for {ROWS}x{MAX_PROMOTED} "
            f"of both, got mma = {row.shape}; use fewer columns, or promote = none for the sums of the instruction"
        )


def check(schedule: Schedule, product: Product, target: Target) -> None:
    """Checks a schedule against product and target. Raises ScheduleError if the instruction does not exist there, or
    shared memory or registers do not suffice."""
    if schedule.together > 1:
        check_warpgroup(schedule, product, target)
        return
    if product.convolves:
        raise ScheduleError(f"mma = {schedule.mma}: tensor copies read images for warpgroups; use m64nNk16")
    if product.block_scales:
        raise ScheduleError(f"scales of blocks are for products of warpgroups, got mma = {schedule.mma}")
    acc = schedule.accumulate
    rows = [r for r in needs.rows_of(product) if r.d.name == acc and r.runs_on(target)]
    row = next((r for r in rows if r.shape == schedule.mma), None)
    if row is None:
        have = ", ".join(str(r.shape) for r in rows)
        wanted = f"mma {schedule.mma} for {needs.multiplied(product)} accumulated in {acc}"
        raise ScheduleError(f"{target} has no {wanted}; it has {have or 'none'}")
    ways = needs.arrangement(product, row, schedule.warp)
    narrowest = row.operand_bits if product.b.stored is None else product.b.memory_bits
    if schedule.cta[2] % (multiple := schedule.sliced_k * max(row.shape.k, needs.CHUNK_BITS // narrowest)):
        cut = f" for {schedule.sliced_k} slices" if schedule.sliced_k > 1 else ""
        raise ScheduleError(
            f"{needs.multiplied(product)} takes K tiles of multiples of {multiple}{cut}, got {schedule.cta[2]}"
        )
    _check_kind(schedule, product, row)
    if schedule.split_k > 1 and (reason := unsplit(product, schedule.split_k)):
        raise ScheduleError(f"split_k = {schedule.split_k}: {reason}")
    _check_slices(schedule, ways.accumulator)
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
    """Checks a schedule against what element types, sparse and scaled products need."""
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
    if reason := unpaired(product, schedule, row.shape.n):
        raise ScheduleError(f"{reason}; got {cta} with warp = {schedule.warp}, {slices} slices")


def _check_slices(schedule: Schedule, sums: Layout) -> None:
    """Refuses slices that do not divide the base tiles of a warp tile, which may be of several instructions."""
    if (slices := schedule.sliced_k) == 1:
        return
    try:
        part_of(FragmentType.of("acc", *schedule.warp, f32, sums), slices, all_get=schedule.split_k > 1)
    except VerifyException as error:
        raise ScheduleError(f"sliced_k = {slices}, split_k = {schedule.split_k}: {error}") from error


def _check_packing(schedule: Schedule, product: Product) -> None:
    for role, operand in (("a", product.a), ("b", product.b)):
        if role in roles(schedule.pack) and (reason := not_packed(operand)):
            raise ScheduleError(f"pack = {schedule.pack}: {reason}")
    if product.second is not None and "b" in roles(schedule.pack):
        raise ScheduleError(f"pack = {schedule.pack}: B is two matrices")


def unsplit(product: Product, parts: int) -> str:
    """Why K cannot be cut into parts; empty if it can."""
    if product.dynamic:
        return "it needs static sizes; M, N or K is dynamic"
    if product.k % parts or not product.k:
        return f"it must divide K = {product.k}"
    kinds = {
        "product that is batch_invariant": product.batch_invariant,
        "batch": product.batch,
        "product summed over several loops": product.summed,
        "scaled product": product.scales,
        "sparse product": product.metadata,
        "product by two matrices": product.second,
    }
    if kind := next((kind for kind, is_present in kinds.items() if is_present), ""):
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
    lane -= needs.ADDRESSING_REGISTERS - needs.MIN_ADDRESSING_REGISTERS
    if lane > MAX_REGISTERS:
        raise ScheduleError(
            f"a warp tile of {m}x{n} takes about {lane} registers a lane, there are {MAX_REGISTERS}; "
            f"use a smaller warp tile"
        )
    if lane * schedule.threads > target.registers:
        raise ScheduleError(
            f"{schedule.warps} warps of {m}x{n} take about {lane * schedule.threads} registers, an SM of {target} "
            f"has {target.registers}; use fewer warps or a smaller warp tile"
        )


# Fields that are given for warpgroups: who they say multiplies, and what goes with another tile.

OF_FRAGMENTS = ("warp", "sliced_k", "pack", "sync", "prefetch", "unroll", "fp8_as", "swizzle")
"""Fields that, given without an instruction, ask for fragments in registers (`mma.sync`)."""


def asked_of(fields: Mapping[str, object]) -> str:
    """Who multiplies according to the user's fields: "fragments", or warpgroups, by the operand in registers; "" if the
    fields leave it open."""
    in_registers = str(fields.get("in_registers", ""))
    if in_registers not in ("", PLAIN):
        return in_registers
    mma = fields.get("mma")
    if isinstance(mma, Shape):
        return PLAIN if mma.m >= ROWS else "fragments"
    of_warpgroups = {"in_registers", "multiplied"}.intersection(fields)
    if of_warpgroups or any(fields.get(name, PLAIN) != PLAIN for name in ("promote", "transpose")):
        return PLAIN
    rows, columns, *_ = cast("tuple[int, ...]", fields.get("cta", (0, 0)))
    small = rows % ROWS != 0 and columns % ROWS != 0
    return "fragments" if small or any(name in fields for name in OF_FRAGMENTS) else ""


# A schedule with some fields given: these change, and what must follow from them; everything else stays as chosen.
#
# A tile that is given is one that the loop and the way to D were not chosen for, so they are chosen again, plainly.
# Other fields only move those that they contradict: of all ways to resolve that, the one that changes the fewest
# fields.

TILE = ("cta", "warp", "mma")

MAX_STAGES = 4
"""Stages of a tile that is given, at most: what is chosen for others may be deeper than pays."""


def completed(
    chosen: Schedule, fields: Mapping[str, object], around: Mapping[str, object], check_all: Callable[[Schedule], None]
) -> Schedule:
    """The schedule with the fields that are given, and those `around` that go with another tile. Raises ScheduleError
    if they fit neither each other nor what is computed, whatever else changes."""
    refused = ScheduleError("no field is left to choose")
    for following in _following(chosen, around, fields):
        try:
            schedule = chosen.with_fields(**{**around, **following, **fields})
            check_all(schedule)
        except ScheduleError as error:
            refused = refused if "stages" in following else error
        else:
            return schedule
    raise refused


def _following(
    chosen: Schedule, around: Mapping[str, object], fields: Mapping[str, object]
) -> Iterator[dict[str, object]]:
    """Changes of other fields that may make given fields fit, those of the fewest fields first, each as small as
    possible."""
    now = {name: fields.get(name, around.get(name, chosen[name])) for name in FIELDS}
    stages, by_groups = cast("int", now["stages"]), now["sync"] == "mbarrier" and chosen.together > 1
    choices: dict[str, tuple[object, ...]] = {
        "prefetch": (0,), "unroll": (stages, 0), "ctas": (0,), "staging": (0,),
        "sync": () if by_groups else ("barrier",), "split_k": (1,), "cluster": ((1, 1),),
        "partial_sums": ("memory",),
        "stages": () if "stages" in fields else tuple(range(stages - 1, MIN_RING - 1 if by_groups else 0, -1)),
    }  # fmt: skip
    free = [name for name, to in choices.items() if to and name not in fields and now[name] != to[-1]]
    for count in range(len(free) + 1):
        for names in combinations(free, count):
            for values in product(*(choices[name] for name in names)):
                yield dict(zip(names, values, strict=True))


def around_tile(chosen: Schedule, fields: Mapping[str, object], asked: Product, target: Target) -> Mapping[str, object]:
    """The fields that go with another tile: of warps its part for each, a plain loop, an undivided K; of warpgroups
    their part, as many stages as fit, and the staging of D."""
    changed = {name for name, value in fields.items() if value != chosen[name]}
    if chosen.together == 1:
        if changed.isdisjoint(TILE):
            return {}
        stages = min(MAX_STAGES, chosen.stages)
        return {**UNPIPELINED, "sliced_k": 1, "split_k": 1, "stages": stages, **_warp_of(fields)}
    exchanged = chosen.in_registers == "b" or fields.get("multiplied") == "ba"
    mma = fields.get("mma", _mma_of(chosen, fields, exchanged=exchanged))
    if not isinstance(mma, Shape) or changed.isdisjoint(("mma", "cta", "padded")):
        return {}
    lying = chosen.with_fields(**{name: fields[name] for name in ("transpose", "padded") if name in fields})
    seen = laid_out(asked, lying.transpose, lying.padded)
    (m, n, k), tile = chosen.cta, (mma.m, mma.n)
    cta: tuple[int, ...] = (max(m, mma.m), mma.n * mma.m // ROWS, k)
    if exchanged:
        cta, tile = (mma.n, n, k), (mma.n, ROWS)
    around: dict[str, Any] = {"cta": cta, "warp": tile, "mma": mma, "stages": MIN_RING, "split_k": 1}
    around |= {"cluster": (1, 1), "multiplied": "ab", "partial_sums": "memory"}
    around |= {"consumers": "cooperative"} if asked.block_scales else {}
    cut = chosen.with_fields(**{**around, "staging": 0, **fields})
    around["staging"] = staged_part(seen, cut)[0]
    around["stages"] = needs.fitting_stages(seen, chosen.with_fields(**{**around, **fields}), target)
    return around


def _mma_of(chosen: Schedule, fields: Mapping[str, object], *, exchanged: bool) -> Shape:
    """The instruction of warpgroups for a CTA tile that is given: as wide as the tile, or as a part of it."""
    across = cast("tuple[int, ...]", fields.get("cta", chosen.cta))[0 if exchanged else 1]
    parts = -(-across // needs.MAX_GROUP_COLUMNS)
    return chosen.mma._replace(n=across // parts) if "cta" in fields else chosen.mma


def _warp_of(fields: Mapping[str, object]) -> dict[str, tuple[int, int]]:
    """The warp tile of a CTA tile that is given: that of the default tiles, or the largest of at most 64x64."""
    cta = fields.get("cta")
    if not isinstance(cta, tuple) or "warp" in fields:
        return {}
    m, n = int(cta[0]), int(cta[1])  # pyright: ignore[reportUnknownArgumentType]
    rows = next((r for r in (64, 32, 16) if m % r == 0), m)
    columns = next((c for c in (64, 32, 16, 8) if n % c == 0), n)
    return {"warp": next((t.warp for t in TILES if t.cta == (m, n) and t.sliced_k == 1), (rows, columns))}


def followed(chosen: Schedule, fields: Mapping[str, object], schedule: Schedule) -> list[str]:
    """The fields that changed because of the user's fields: `prefetch = 3 (5)`."""
    pairs = {name: (schedule[name], chosen[name]) for name in FIELDS if name not in fields}
    return [f"{name} = {now} ({before})" for name, (now, before) in pairs.items() if now != before]


def refusal(error: ScheduleError, fields: Mapping[str, object]) -> str:
    """What an error says of a schedule, with the fields that were asked for if it names none of them."""
    named = any(re.search(rf"\b{name}\b", str(error)) for name in fields)
    asked = "" if named else ", ".join(f"{name} = {text_of(value)}" for name, value in fields.items())
    return f"schedule: {error}{f'; asked for {asked}' if asked else ''}"


# Attention in tensor memory.

MAX_GROUPS, MIN_AHEAD = 2, 2
"""Warpgroups whose rows of Q are one box of a tensor copy, of up to 256 rows; stages of K and V, as scores of the next
keys are multiplied before the values of the last."""


def why_no_attention(schedule: Schedule, columns: int) -> str:
    """Why the warpgroups of a schedule cannot multiply an attention whose heads have `columns` in V; empty if they can.

    Of each, S has a column for each key, P one for two keys, and O one for each column of V."""
    keys = schedule.cta[1]
    if schedule.mma.m != 2 * ROWS or schedule.cta[0] > MAX_GROUPS * schedule.mma.m or schedule.stages < MIN_AHEAD:
        return (
            f"in tensor memory up to {MAX_GROUPS} warpgroups have {2 * ROWS} rows each, and {MIN_AHEAD} stages or "
            f"more, got cta = {schedule.cta}, mma = {schedule.mma}, stages = {schedule.stages}"
        )
    taken = schedule.warps // schedule.together * (keys + keys // 2 + columns)
    return "" if taken <= COLUMNS else f"scores, P and O take {taken} columns of tensor memory, which has {COLUMNS}"


def why_no_shared_keys(read: Attention, schedule: Schedule) -> str:
    """Why CTAs cannot share the keys of a tile; "" if they can."""
    if schedule.together > 1 or schedule.ctas or read.op.ends is not None:
        return "keys are split among warps that multiply fragments, one tile for each CTA"
    if read.op.lse is not None:
        return "the logarithms of sums are stored by the only CTA of a tile"
    outer = len(read.values.batch)
    if min(read.values.dynamic, default=outer) < outer or not read.scores.is_known("m"):
        return "it needs a known number of rows and matrices"
    if not read.scores.b.transposed or read.values.b.transposed:
        return "it needs K and V with a row for each key"
    return ""
