"""What warpgroups multiply, and what a schedule of theirs must keep (`wgmma`, and tensor memory)."""

from __future__ import annotations

from ...dialect.isa.form import FP8
from ...dialect.isa.row import Target
from ...dialect.isa.tensor_map import MAX_BOX
from ...dialect.isa.wgmma import WARPS, Wgmma
from ...dialect.isa.wgmma import M as ROWS
from ...dialect.layouts.layout import LANES
from ...dialect.layouts.tensor_memory import COLUMNS
from ...dialect.schedule import FIELDS, Schedule, ScheduleError, roles
from ...dialect.schedule.schedule import WARPGROUPS
from ...dialect.warp.attributes import BYTE
from ...dialect.warp.elements import M
from ...dialect.warp.operands import metadata_span
from ...dialect.warp.stored import PACKED
from ..linalg.operand import MatrixOperand
from ..linalg.product import Product, along_k, images_of, shared_bits
from . import needs
from .defaults import can_change, can_exchange, can_slice, check_c, is_ragged, laid_out
from .model import WORD, not_packed
from .warpgroup_model import LINE, held_columns, k_of, panel_of_b


def row_of(product: Product, schedule: Schedule, target: Target) -> Wgmma:
    """The instruction of a schedule. Raises ScheduleError if there is none."""
    candidates = needs.warpgroup_rows(product, exchanged=schedule.exchanged)
    rows = [r for r in candidates if r.d.name == schedule.accumulate and needs.by_warpgroups(r, target)]
    for row in rows:
        if row.shape == schedule.mma:
            return row
    near = sorted({r.shape for r in rows}, key=lambda shape: abs(shape.n - schedule.mma.n))[:3]
    raise ScheduleError(
        f"{target} has no wgmma {schedule.mma} for {needs.multiplied(product)} accumulated in "
        f"{schedule.accumulate}; the nearest are {', '.join(map(str, sorted(near))) or 'none'}"
    )


def _check_tiles(schedule: Schedule, product: Product) -> None:
    """Checks the tile of a warpgroup, and the tiles that tensor copies move. Raises ScheduleError if tiles do not match
    the instruction, K tiles are no whole lines of shared memory, tiles have more rows than a box, or rows of D cannot
    be staged so."""
    cta = schedule.cta
    rows, columns = schedule.covered
    tiles = [(rows, columns)]
    if can_pair(product, schedule):  # one instruction after the other
        tiles += [(2 * rows, columns), *[(rows, 2 * columns)][bool(product.block_scales) :]]
    if schedule.warp not in tiles:
        sizes = "x".join(map(str, schedule.covered))
        raise ScheduleError(f"a warpgroup multiplies tiles of {sizes}, got warp = {schedule.warp}")
    if cta[2] * shared_bits(product, product.a) // 8 % LINE:
        raise ScheduleError(f"K tiles of warpgroups are multiples of {LINE} bytes, got {cta[2]} elements")
    along = along_k(product, "a") and (product.b.packed or along_k(product, "b"))
    if max(cta[:2] if along else cta) > MAX_BOX:
        raise ScheduleError(f"a tensor copy moves at most {MAX_BOX} rows, got cta = {cta}")
    if schedule.staging not in (0, rows := needs.staged_part(product, schedule)[0]):
        raise ScheduleError(f"staging = {schedule.staging}: a warpgroup stages {rows} rows of D")
    if not schedule.staging and images_of(product.d):
        raise ScheduleError(f"staging = 0: tensor copies alone store pixels with others between them; use {rows}")


def can_pair(product: Product, schedule: Schedule) -> bool:
    """Whether a warpgroup may multiply tiles of twice its instruction's rows, or columns where blocks have no scales,
    one half after the other."""
    plain = can_exchange(product) and not schedule.exchanged and schedule.in_registers == PLAIN
    return bool(product.block_scales) or (plain and schedule.mma.m == ROWS and schedule.promote == PLAIN)


MIN_PADDED = 1 << 21
"""Elements of D whose rows are worth a launch that copies them (H200: 16.8 million in odd rows cost 57 us, it 20)."""

COOPERATIVE = "cooperative"
"""Warpgroups multiply parts of one tile."""

PLAIN, MAX_PROMOTED = "none", 192
"""No sums are promoted; columns of a warpgroup's tile with room for both sums in registers, those of 128 bytes of K and
of all of it."""

OTHER = {"a": "b", "b": "a"}


def why_not(product: Product, target: Target, role: str = PLAIN, *, packed: bool = True) -> str:
    """Why warpgroups cannot multiply a product, with this operand in registers; empty if they can.

    With `packed` operands may be packed or transposed first.
    """
    side_operands = product.scales or ((product.metadata,) if product.metadata is not None else ())
    in_blocks = needs.adds_in_tensor_memory(target) and bool(side_operands)
    if in_blocks and product.batch and (product.dynamic or any(o.dimensions[0] < len(o.batch) for o in side_operands)):
        return "scales and metadata of a batch are copied of matrices behind each other, of known size"
    if not needs.has_warpgroups(product, target, exchanged=role == "b"):
        return f"{target} has no wgmma for {needs.multiplied(product)}"
    if product.summed and not product.convolves:
        return "it is summed over several loops"
    if product.second is not None and role != PLAIN:
        return "a B of two matrices is multiplied where it lies"
    if role != PLAIN and needs.adds_in_tensor_memory(target):
        return f"{target} multiplies operands in registers by mma.sync alone"
    if product.block_scales and (role != PLAIN or product.blocks[2] != k_of(product)):
        return f"scales are for {k_of(product)} elements along k at a time, got {product.blocks[2]}"
    if role != PLAIN and (reason := _stays_in_memory(product, role)):
        return reason
    for name, operand in (("a", product.a), ("b", product.b)):
        if name in roles(transposed(product, role)):
            if product.second is not None or not (packed and can_change(operand)):
                return f"{operand.name} of {operand.element.name} must lie along k"
        elif (reason := needs.not_boxed(product, operand)) and not (
            product.second is None and role == PLAIN and packed and packs(product, operand)
        ):
            return f"{operand.name} {reason}"
    if role != PLAIN and split_operands(product, role)[0].stored is None and needs.promotes(product, "f32", target):
        return "sums of 8-bit floats would be short; promote = none, or fastmath<afn> on the addition, allows that"
    return ""


def _stays_in_memory(product: Product, role: str) -> str:
    """Why an operand is not multiplied from registers; empty if it can be."""
    operand, _ = split_operands(product, role)
    if operand.stored is None and not must_turn(product, role):
        lies = "along k " * along_k(product, role)
        return f"{operand.name} of {operand.element.name} {lies}is multiplied where it lies"
    if operand.packed:
        return ""
    if operand.stored is not None and operand.stored.element.bits < BYTE and not along_k(product, role):
        return f"integers of {operand.stored.element.bits} bits in rows along n are not converted for warpgroups"
    if product.group and not (operand.stored is not None and operand.stored.rounded and along_k(product, role)):
        return "the sums of groups that have scales are not those of warpgroups"
    return "A is sparse" if product.metadata is not None else ""


def split_operands(product: Product, role: str) -> tuple[MatrixOperand, MatrixOperand]:
    """The operand in registers and the other one."""
    return (product.a, product.b) if role == "a" else (product.b, product.a)


def must_turn(product: Product, role: str) -> bool:
    """Whether an operand must lie along K, as all but elements of 16 bits must, and does not."""
    operand, _ = split_operands(product, role)
    return not along_k(product, role) and operand.element.bits != 16


def transposed(product: Product, role: str) -> str:
    """The operands that must be transposed by a launch, as the field `transpose` has them. `role` is the operand in
    registers."""
    return "".join(each for each in "ab" if each != role and must_turn(product, each)) or PLAIN


def prepared(product: Product, role: str, target: Target) -> dict[str, str]:
    """The fields of launches before and after the product: A and B are transposed and packed if necessary, and D is
    padded if that pays, and neither tensor copies nor lanes side by side can store it."""
    transpose = transposed(product, role)
    if role != PLAIN:
        return {"transpose": transpose, "pack": PLAIN, "padded": PLAIN}
    large = product.m * product.n * WORD >= MIN_PADDED * min(WORD, product.d.access_bytes)
    pads = large and product.second is None and product.d.element.bits in needs.STAGED_BITS
    apart = needs.not_copied(product.d) and (needs.adds_in_tensor_memory(target) or not is_ragged(product))
    padded = "d" if pads and apart and can_change(product.d) else PLAIN
    return {"transpose": transpose, "pack": packed(laid_out(product, transpose)), "padded": padded}


def packs(product: Product, operand: MatrixOperand) -> bool:
    """Whether tensor copies can move an operand that is packed before."""
    movable = (operand.element.memory_bits >= BYTE or bool(product.variant.kind)) and not not_packed(operand)
    return movable and product.metadata is None and not product.dynamic


def packed(product: Product) -> str:
    """The operands that must be packed, as the field `pack` names them."""
    return "".join(role for role, o in (("a", product.a), ("b", product.b)) if needs.not_boxed(product, o)) or PLAIN


def _check_operands(schedule: Schedule, product: Product) -> None:
    """Checks that A and B, laid out as the schedule says, are multiplied where tensor copies bring them, or in
    registers. Raises ScheduleError, naming the operand that is not, the field that does not fit, or the instruction."""
    role = schedule.in_registers
    if schedule.multiplied != "ab" and not (role == PLAIN and schedule.mma.m == ROWS and can_exchange(product)):
        raise ScheduleError("multiplied = ba takes two dense operands in shared memory, no blocks, images, or second B")
    if role != PLAIN:
        _check_in_registers(schedule, product, role)
    if turned := [split_operands(product, each)[0] for each in "ab" if each != role and must_turn(product, each)]:
        raise ScheduleError(f"{turned[0].name} of {turned[0].element.name} must lie along k; or transpose it")
    if role == PLAIN:
        _check_in_shared_memory(schedule, product)


def _check_in_registers(schedule: Schedule, product: Product, role: str) -> None:
    in_registers, (_, other) = f"{role.upper()} in registers", split_operands(product, role)
    if schedule.consumers != COOPERATIVE:
        raise ScheduleError(f"consumers = {schedule.consumers}: with {in_registers} none take turns")
    takes = {"transpose": OTHER[role]} if other.element.bits != 16 else {}
    for name in ("pack", "transpose", "padded"):
        if (value := schedule[name]) not in (PLAIN, takes.get(name)):
            raise ScheduleError(f"{name} = {value}: {in_registers} takes operands as they lie")


def _check_in_shared_memory(schedule: Schedule, product: Product) -> None:
    panel, columns = panel_of_b(product, schedule.cta[1]), schedule.covered[1]
    shared = schedule.mma.m > ROWS  # one instruction has the columns of all
    if not (product.b.transposed or shared) and schedule.cta[1] > columns and columns % panel:
        raise ScheduleError(
            f"with B by rows warpgroups side by side take multiples of {panel} columns, got {schedule.mma}"
        )
    for role, operand in (("a", product.a), ("b", product.b)):
        if role in roles(schedule.pack) and not packs(product, operand):
            raise ScheduleError(f"packing takes a single dense matrix of static size without gaps, got {operand.type}")
        if role not in roles(schedule.pack) and (reason := needs.not_boxed(product, operand)):
            raise ScheduleError(f"{operand.name} {reason}; or pack it")


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
    _check_tiles(schedule, product)
    _check_operands(schedule, product)
    _check_beside(schedule, product)
    check_c(schedule, product)
    _check_parts(schedule, product)
    _check_cluster(schedule, product, target)
    _check_own_tiles(schedule, product, target)
    for name, plain in TAKEN_BY_WARPGROUPS.items():
        if name == "sliced_k" and can_slice(product, schedule.in_registers):
            _check_slices(schedule, product)
        elif (value := schedule[name]) != plain:
            raise ScheduleError(f"products of warpgroups take {name} = {plain}, got {value}")
    needs.check_shared(schedule, product, target)


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
    if (limit := needs.stages_beside(product, schedule)) < schedule.stages:
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


def _check_slices(schedule: Schedule, product: Product) -> None:
    """Checks the slices of a K tile of weights, each of which has its own warpgroups. Raises ScheduleError if
    slices are not whole blocks, or if slices and groups do not divide each other."""
    (_, _, depth), slices, columns = schedule.cta, schedule.sliced_k, PACKED[product.b.memory_bits].columns
    if slices & (slices - 1) or depth % (slices * columns):
        raise ScheduleError(f"sliced_k = {slices}: a K tile of {depth} is not as many blocks of {columns}")
    group = product.group or depth
    part = depth // slices
    if (group % depth and depth % group and group < product.k) or (group % part and part % group):
        raise ScheduleError(f"cta = {schedule.cta} with sliced_k = {slices}: groups of {group} end within a part")


COLUMNS_OF_PAIR = {True: 64, False: 128}
"""Columns of a tile of a pair come in steps of so many, of floats or of integers: N of a warpgroup's half in steps of
the instruction's of two CTAs. PTX ISA 9.7.16.2.1."""


def why_no_pairs(product: Product, rows: int, columns: int) -> str:
    """Why CTAs with tiles of a size cannot multiply in pairs; empty if they can."""
    if rows != 2 * ROWS:
        return f"in tensor memory CTAs multiply in pairs, 2x1, of {2 * ROWS} rows each, got {rows}"
    step = COLUMNS_OF_PAIR[product.a.element.is_float]
    halves = product.b.transposed or (
        held_columns(product, columns) == columns and columns // 2 % panel_of_b(product, columns) == 0
    )
    if columns % step or not halves or product.second is not None:
        return f"each CTA of a pair has half of the columns of one B, a multiple of {step} and panels, got {columns}"
    return ""


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
