"""What a product and a schedule need: the rows of the instruction, registers of a lane, shared memory of a CTA."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd, prod
from typing import NamedTuple

from xdsl.dialects.builtin import NoneAttr
from xdsl.ir import SSAValue

from ...dialect.isa import mma, sparse_mma, wgmma
from ...dialect.isa.form import ELEMENT_TYPES, FP8, IN_BYTES, SCALES_OF_WORD, having
from ...dialect.isa.form import ProductForm as Row
from ...dialect.isa.row import KIB, Target
from ...dialect.isa.tensor_map import EXPANDED, EXPANDED_UNIT, MAX_RANK
from ...dialect.isa.wgmma import UNIT, WARPGROUP_SM, Wgmma, doubled, of_kinds, panel_columns
from ...dialect.layouts.layout import LANES
from ...dialect.layouts.tensor_memory import COLUMNS, METADATA_BLOCK, SCALES_BLOCK
from ...dialect.layouts.tensor_memory import LANES as TENSOR_LANES
from ...dialect.mlir.affine import strides_of
from ...dialect.schedule import SHARED_ALIGNMENT, Schedule, ScheduleError
from ...dialect.schedule.schedule import MIN_RING
from ...dialect.warp.attributes import BYTE, memory_of
from ...dialect.warp.operands import METADATA_ROWS, metadata_span
from ...dialect.warp.synchronisation import BARRIER_BYTES
from ...dialect.warp.views import MatrixOp, PagedOp
from ...dialect.warp.warpgroup import ROWS as PATTERN
from ..linalg.operand import WIDEST, MatrixOperand
from ..linalg.product import MatrixFactor, Multiplied, Product, block, shared_bits
from .defaults import Arrangement, arrange, arrange_stored, is_ragged, matrices, strip_bytes
from .model import MAX_STAGES, Tile, as_halves, widened
from .warpgroup_model import LINE, held_columns

# What ptxas takes of registers beside fragments, accumulators and addresses.
#
# A lane has 255 registers; a tile for which a kernel needs more spills. What it needs beside what `lane_registers`
# counts is no rule that can be derived: each row is as much as makes the model leave out tiles that spilled. For each
# there is a product that spills without the row and not with it (ptxas 13.0.88; `make conformance` checks each in
# `test/conformance/test_register_overhead.py`), except one that was seen in kernels that have changed since.

NIBBLES_AS_BYTES = 90
"""The first target on which ptxas makes two 8-bit products of one of 4-bit integers, on operands that it widens."""

MAX_GROUP_COLUMNS = 256
"""Columns of the largest instruction of a warpgroup."""

NIBBLE_BITS, SHORT = 4, 16

FUNCTIONS = {"math.tanh", "math.erf", "math.log"}
"""The functions of an epilogue that take the most registers: 15 instructions and more."""

OVERHEADS: Mapping[str, Mapping[str, int]] = {
    "8-bit floats": {"8-bit floats, as they are": 5},
    "8-bit floats as f16": {"8-bit floats as f16, adds": 8},
    "addresses": {"addresses": 24, "addresses, widened": 56},
    # Two steps of fragments at once: a register of nibbles is for both.
    "nibbles": {"nibbles converted": 32},
    "both across": {"both across, below a byte": 24, "both across, edges": 24},
    "functions": {"functions, before sm_90": 8, "a logarithm, words, before sm_90": 24},
}
"""Registers that a lane needs more of, by what is true of a product in tiles (`_facts`). Of rows of a kind the largest
counts. Of 300 to 700 drawn products none spills without `adds`, `widened`, `before sm_90`, which pins follow from."""


def overhead(product: Product, tile: Tile, row: Row, target: Target) -> int:
    """The registers of a lane that `lane_registers` does not count."""
    facts = _facts(product, tile, row, target)
    of_kinds = (
        max((registers for row_, registers in rows.items() if facts.issuperset(row_.split(", "))), default=0)
        for rows in OVERHEADS.values()
    )
    if product.b.stored is not None and product.b.stored.rounded:
        return sum(of_kinds) + tile.warp[1] // row.shape.n  # a register with the scale of each column
    # The sums of a group beside all others, and the scales.
    grouped = row.registers("d") * tile.warp[0] * tile.warp[1] // (row.shape.m * row.shape.n) if product.group else 0
    return sum(of_kinds) + grouped + grouped // 4


def _facts(product: Product, tile: Tile, row: Row, target: Target) -> set[str]:
    """The conditions on registers that hold for a product with these tiles, instruction and target."""
    bits, narrow, stored = row.operand_bits, row.a.name in FP8, product.b.stored
    halves = as_halves(row, target) or widened(product, row, target)
    edges = not even(product, tile)
    narrowest = min(product.a.access_bytes, product.b.access_bytes)
    facts = {
        "8-bit floats": narrow,
        "as they are": not halves,
        "8-bit floats as f16": halves,
        # Tiles that reach beyond C are added to it, or the epilogue has a matrix of its own.
        "adds": (product.c is not None and edges) or bool(matrices(product)),
        # Each copy has an address to compute, for sizes are not known and copies or elements are narrow.
        "addresses": bool(product.dynamic) and (bits < 16 or narrowest < WIDEST),
        "widened": nibbles_widened(row, target) or halves,
        "nibbles converted": stored is not None and stored.element.bits == NIBBLE_BITS and product.b.transposed,
        # The elements of both operands change places on the way to registers.
        "both across": bits < 16 and product.a.transposed and not product.b.transposed,
        "below a byte": bits < 8,
        "edges": edges,
        "functions": bool(functions(product)),
        "a logarithm": "math.log" in functions(product),
        "words": bits == 32,
        "before sm_90": target.sm < 90,
    }
    return {fact for fact, holds in facts.items() if holds}


def nibbles_widened(row: Row, target: Target) -> bool:
    """Whether ptxas widens operands of 4-bit integers in registers."""
    return row.a.bits == 4 and not row.a.is_float and target.sm >= NIBBLES_AS_BYTES


def even(product: Product, tile: Tile) -> bool:
    """Whether no tile reaches beyond the edges."""
    return not (product.m % tile.cta[0] or product.n % tile.cta[1] or product.k % tile.k)


def functions(product: Product) -> set[str]:
    """The functions of the epilogue that need the most registers (sm_80, gelu, 64x48: 16 bytes of spills; sm_103, a
    logarithm with a residual, 80x48: 4)."""
    epilogue = product.op.epilogue
    return FUNCTIONS & {op.name for op in epilogue.walk()} if epilogue is not None else set()


ADDRESSING_REGISTERS = 40
"""What addresses, counters and predicates take beside fragments: 32 to 38 in the kernels emitted."""
MIN_ADDRESSING_REGISTERS = 24
"""What they come down to under pressure in a kernel without edges; one that needs more than is left spills."""

CHUNK_BITS = 128
"""A line of a tile in shared memory is at least one chunk."""

MAX_SCALE_BITS = 32 * KIB * BYTE
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
        rows = mma.of_types(product.a.element.name, product.b.element.name, product.variant)
        return rows if product.b.stored is None else [r for r in rows if r.shape.k == CONVERTED_K]

    a, b = product.a.element, product.b.element
    return having(sparse_mma.rows, a=a, b=b, ordered=True, satfinite=False, kind="")


def warpgroup_rows(product: Multiplied, *, exchanged: bool = False) -> Sequence[Wgmma]:
    """The rows of warpgroup instructions for the product's element types, sparsity and scales. With `exchanged` those
    for the transposed product, whose first operand is converted in registers."""
    if product.b.stored is not None and not exchanged:
        return ()
    a, b, sparse, of = product.a.element, product.b.element, product.sparsity > 1, product.variant
    if of.kind:
        return () if exchanged or sparse else having(of_kinds, a=a, b=b, kind=of.kind, scale_type=of.scale_type)
    a, b = (b, a) if exchanged else (a, b)
    rows = wgmma.rows if sparse else wgmma.dense_rows
    every = having(rows, a=a, b=b, satfinite=False, sparse=sparse, bit_op=product.variant.bit_op)
    return every if exchanged else (*every, *map(doubled, every))


def by_warpgroups(row: Wgmma, target: Target) -> bool:
    """Whether a target has the product of a warpgroup: by its instruction, or with D in tensor memory."""
    if target.sm <= WARPGROUP_SM:
        return row.runs_on(target) and row.shape.m == wgmma.M
    from ...dialect.isa.tensor_product import in_tensor_memory

    return in_tensor_memory(row, target)


def has_warpgroups(product: Multiplied, target: Target, *, exchanged: bool = False) -> bool:
    """Whether warpgroups of a target multiply the product's element types."""
    rows = warpgroup_rows(product, exchanged=exchanged) if target.sm >= WARPGROUP_SM else ()
    return any(by_warpgroups(row, target) for row in rows)


def adds_in_tensor_memory(target: Target) -> bool:
    """Whether products of warpgroups add up in tensor memory, as the target has no `wgmma`."""
    return not wgmma.dense_rows()[0].runs_on(target)


def promotes(product: Product, accumulate: str, target: Target) -> bool:
    """Whether f32 registers are to add the sums of K tiles, as `wgmma` cuts sums of 8-bit floats short."""
    if adds_in_tensor_memory(target):
        return False
    of_bytes = product.a.element.name in FP8 and product.b.element.name in FP8
    return of_bytes and accumulate == "f32" and (bool(product.block_scales) or not product.short_sums)


def sums_differ(product: Product) -> bool:
    """Whether `mma` and `wgmma` give different sums. For 16-bit floats both add 16 products and C in the same way."""
    return product.b.stored is not None or any(o.element.name in FP8 for o in (product.a, product.b))


def multiplied(product: Product) -> str:
    """The element types of a product, as errors name them."""
    stored = product.b.stored
    return f"{product.a.element.name} x {product.b.element.name}{f' from {stored.name}' if stored is not None else ''}"


def arrangement(product: Multiplied, row: Row, warp: tuple[int, int]) -> Arrangement:
    """The layouts of the operands in registers. Raises ScheduleError if the warp tile is too small for them."""
    along_k, stored = (not product.a.transposed, product.b.transposed), product.b.stored
    return arrange(row, warp, *along_k) if stored is None else arrange_stored(row, warp, *along_k, stored.element.bits)


STAGED_BITS = (16, 32)
"""Bits of the elements of D that tensor copies store; bytes that a warpgroup stages at a time, at most."""


def staging_buffers(schedule: Schedule) -> int:
    """Parts of D in shared memory at a time for each warpgroup: one is filled while the other is stored. One is enough
    where D comes from tensor memory, for products do not wait for it."""
    return 2 if schedule.mma.m == wgmma.M else 1


def in_containers(product: Multiplied, operand: MatrixFactor) -> bool:
    """Whether products of warpgroups read elements of less than 8 bits, of which 16 begin each 16 bytes."""
    return product.variant.kind in IN_BYTES and operand.element.bits < BYTE


def not_boxed(product: Product, operand: MatrixOperand) -> str:
    """Why tensor copies cannot bring an operand as products of warpgroups read it."""
    if not in_containers(product, operand) or not operand.shape[1]:
        return not_copied(operand)
    if operand.element.bits < operand.element.memory_bits:
        return f"of {operand.element.name} must have 16 elements in each 16 bytes, got {operand.type}"
    size = operand.type.get_shape()[operand.dimensions[1]]
    if operand.pitch_bits % (BYTE * EXPANDED_UNIT) or (operand.divisor if size < 0 else size) % EXPANDED:
        return f"must have rows of {EXPANDED} elements, at multiples of {EXPANDED_UNIT} bytes, got {operand.type}"
    return not_copied(operand)


def not_copied(operand: MatrixOperand) -> str:
    """Why tensor copies cannot move an operand."""
    if isinstance(operand.value.owner, PagedOp):
        return "has rows where a table says, and tensor copies read neighbouring ones"
    if operand.pitch_bits % (8 * UNIT):
        return f"must have rows that are multiples of {UNIT} bytes, got {operand.type}"
    if operand.type.get_num_dims() > MAX_RANK:
        return f"must have at most {MAX_RANK} dimensions, got {operand.type}"
    if operand.element.memory_bits < 8 and not operand.element.is_float:
        return f"must have elements of whole bytes, got {operand.type}"
    return ""


def group_scale_tile(product: Product, schedule: Schedule) -> tuple[int, int] | None:
    """Rows and columns of the tile of group scales in shared memory, in their layout; None if they stay in global
    memory because they are too many, no whole chunks, or different for the next tile."""
    scales = product.group_scales
    if scales is None or schedule.ctas or product.b.packed or not product.group:
        return None
    shape = list(scales.type.get_shape())
    shape[1 - product.group_axis] = schedule.cta[1]
    rows, columns = shape
    in_chunks = scales.shape[1] * scales.memory_bits % CHUNK_BITS == columns * scales.memory_bits % CHUNK_BITS == 0
    return (rows, columns) if in_chunks and rows * columns * scales.memory_bits <= MAX_SCALE_BITS else None


def group_scale_bytes(product: Product, schedule: Schedule) -> int:
    """Bytes of the tile of group scales; 0 if there is none."""
    shape, scales = group_scale_tile(product, schedule), product.group_scales
    return 0 if shape is None or scales is None else prod(shape) * scales.memory_bits // BYTE


MIN_LINE = 128
"""What the bytes of lines of scales are a multiple of: what tensor copies write to begins at a multiple of them."""


class ScaleLine(NamedTuple):
    """Scales that tensor copies bring with each K tile, as a box of so many lines (`parts`) of so many `columns`: along
    an `axis`, m or n, a line for each group of `size` elements along k; where a `block` of several rows or columns
    shares a scale, along k, a line for each block."""

    scales: SSAValue
    bits: int
    axis: str
    parts: int
    columns: int
    size: int
    block: int = 1


def scale_lines(product: Product, schedule: Schedule) -> list[ScaleLine]:
    """The scales and the zero points of the groups of packed weights, or the scales of blocks of A and of B.

    Those of blocks are copied where tensor copies can load both: of single rows they must be contiguous along the rows,
    shared ones along k."""
    lines, (_, columns, depth) = list[ScaleLine](), schedule.cta
    if product.b.packed and product.group:
        for operand in filter(None, (product.group_scales, product.zero_points)):
            groups, least = max(1, depth // product.group), MIN_LINE * BYTE // operand.memory_bits
            padded = columns if groups * columns % least == 0 else -(-columns // least) * least
            lines.append(ScaleLine(operand.value, operand.memory_bits, "n", groups, padded, product.group))
    if product.dynamic:
        return lines
    for axis, tile, form, shared in zip("mn", schedule.cta, product.op.block_scales, product.blocks, strict=False):
        made, strides = form.scales.owner, strides_of(memory_of(form.scales)) or (None, None)
        memory = memory_of(made.memory if isinstance(made, MatrixOp) else form.scales)
        own, k = strides[::-1] if form.across is not None else strides
        (step, pitch), size = (own, k) if shared == 1 else (k, own), product.blocks[2]
        if not isinstance(memory.layout, NoneAttr) or step != 1 or (pitch or 1) * SCALE_BYTES % UNIT:
            return []
        of_line = (depth // size, tile) if shared == 1 else (max(1, tile // shared), MIN_LINE // SCALE_BYTES)
        lines.append(ScaleLine(form.scales, SCALE_BYTES * BYTE, axis, *of_line, size, shared))
    return lines


SCALE_BYTES = 4
"""Bytes of a scale of f32."""

WORD_BYTES = 4
"""Bytes of a column of tensor memory, of each lane."""


def stage_bytes(product: Product, schedule: Schedule) -> list[int]:
    """Shared memory of the tiles of one stage: A, B, metadata, scales. Tensor copies bring those of warpgroups, in
    whole repeats of a swizzle but for lines of scales."""
    (m, n, k), by_groups = schedule.cta, schedule.together > 1
    table_columns = beside_columns(product, schedule) if schedule.mma.m > wgmma.M else []
    columns = held_columns(product, n) if by_groups else n
    tiles = [
        (m * k // product.sparsity, shared_bits(product, product.a)),
        (columns * k // (2 if schedule.pairs else 1), shared_bits(product, product.b)),
    ]
    if product.metadata is not None and not table_columns:
        rows = -(-m // (METADATA_ROWS * PATTERN)) * PATTERN if by_groups else m // METADATA_ROWS
        tiles.append((rows * k // metadata_span(product.a.element) * LANES, product.metadata.element.bits))
    tiles += [(side * k // block(product), BYTE) for side in (m, n) if product.scales and not table_columns]
    lines = [line.parts * line.columns * line.bits // BYTE for line in scale_lines(product, schedule)]
    lines += [columns * WORD_BYTES * (LANES if product.scales else TENSOR_LANES) for columns in table_columns]
    sizes = [elements * bits // BYTE for elements, bits in tiles]
    return [*(whole_swizzles(size) for size in sizes), *lines] if by_groups else sizes


def staged_part(product: Product, schedule: Schedule) -> tuple[int, int]:
    """The rows and columns of D that a warpgroup stages at a time; (0, 0) if neither copies nor lanes store them.

    The columns are those of a panel. A transposed instruction stages all of its columns, which have one layout.
    """
    (rows, _), columns, parts = schedule.covered, schedule.warp[1], schedule.cluster_parts
    rows, columns = (rows // parts, columns) if schedule.exchanged else (rows, columns // parts)
    columns, bits = columns // product.products, product.d.element.bits
    panel = panel_columns(columns, bits)
    if in_strips_of_warps(product, schedule) and panel * bits // BYTE >= LINE // 2:
        return wgmma.M, panel
    copied = bits in STAGED_BITS and panel and not not_copied(product.d)
    width = columns if schedule.exchanged else panel
    return (gcd(rows, schedule.mma.m * LINE * BYTE // (width * bits)), width) if copied else (0, 0)


def in_strips_of_warps(product: Product, schedule: Schedule) -> bool:
    """Whether the warps of a warpgroup store rows of D that tensor copies cannot, by lanes side by side."""
    single = not (product.batch or product.convolves or product.second or product.op.grouped)
    whole = schedule.multiplied == "ab" and schedule.in_registers == "none" and schedule.cluster_parts == 1
    return single and whole and product.m >= wgmma.M == schedule.mma.m and is_ragged(product)


def staging_bytes(product: Product, schedule: Schedule) -> int:
    """Shared memory that stages D, in bytes: strips of warps, or parts of warpgroups."""
    if not schedule.staging:
        return 0
    if schedule.together == 1:
        return strip_bytes(product, schedule)
    buffers = 1 if in_strips_of_warps(product, schedule) else staging_buffers(schedule)
    part = prod(staged_part(product, schedule)) * product.d.element.bits // BYTE
    return schedule.consumer_warps // schedule.together * buffers * part


def slice_bytes(schedule: Schedule) -> int:
    """Shared memory in which slices, or the CTAs of a cluster, meet to add up their sums."""
    (m, n, _), parts = schedule.cta, schedule.cluster_parts
    return (schedule.sliced_k * parts - 1) * m * n // parts * ELEMENT_TYPES[schedule.accumulate].bits // BYTE


def shared_bytes(product: Product, schedule: Schedule) -> int:
    """Shared memory of a CTA: the stages of each tile, the scales of groups, the sums of slices, D on its way, and
    mbarriers."""
    parts = [schedule.stages * size for size in stage_bytes(product, schedule)]
    parts += [group_scale_bytes(product, schedule), slice_bytes(schedule), staging_bytes(product, schedule)]
    barriers = 2 * schedule.stages * BARRIER_BYTES if schedule.sync == "mbarrier" else 0
    # The tiles of parts of K lie behind the mbarriers.
    return behind_each_other(parts) + (whole_swizzles(barriers) if schedule.cluster_parts > 1 else barriers)


def behind_each_other(sizes: Iterable[int]) -> int:
    """Bytes of allocations, each of which begins where a swizzle does."""
    end = 0
    for size in sizes:
        end = whole_swizzles(end) + size if size else end
    return end


def whole_swizzles(size: int) -> int:
    """The next multiple of what every swizzle repeats after."""
    return -(-size // SHARED_ALIGNMENT) * SHARED_ALIGNMENT


BARRIERS = 256
"""Bytes kept for mbarriers."""

LEFT_FOR_BARRIERS = 1024
"""The same, with what aligns the tiles beside them, where these are not counted one by one."""


def fitting_stages(product: Product, schedule: Schedule, target: Target) -> int:
    """The number of stages that fit into shared memory and still help."""
    sizes = stage_bytes(product, schedule)
    padding = sum(size % SHARED_ALIGNMENT > 0 for size in sizes) * SHARED_ALIGNMENT  # all stages of lines fill those up
    kept = group_scale_bytes(product, schedule), slice_bytes(schedule)
    free = target.shared - staging_bytes(product, schedule) - sum(map(whole_swizzles, kept)) - BARRIERS - padding
    limit = min(MAX_STAGES, stages_beside(product, schedule)) if schedule.mma.m > wgmma.M else MAX_STAGES
    return max(MIN_RING, min(limit, free // sum(sizes)))


def lane_registers(warp: tuple[int, int], row: Row, buffers: int = 2, *, emulated: bool = False) -> int:
    """The approximate number of registers of a lane: accumulators, `buffers` times the fragments of a step, and
    addresses.

    Operands that ptxas converts (`emulated`), such as 8-bit floats, take twice the registers, and three times with a
    sparse A. Operands that this compiler widens take few more, since each is widened just before its product.
    """
    down, across = warp[0] // row.shape.m, warp[1] // row.shape.n
    operands = row.registers("a") * down + row.registers("b") * across
    words = 2 if row.operand_bits == 64 else 1
    if emulated:
        words = 2 if row.layout("a").columns == row.shape.k else 3
    accumulators = row.registers("d") * down * across * (2 if row.d.bits == 64 else 1)
    return accumulators + buffers * operands * words + ADDRESSING_REGISTERS


def check_shared(schedule: Schedule, product: Product, target: Target) -> None:
    """Refuses more shared memory than a CTA can have."""
    if (needed := shared_bytes(product, schedule)) > target.shared:
        raise ScheduleError(
            f"{schedule.stages} stages of {schedule.cta} take {needed / KIB:g} KiB of shared memory, {target} has "
            f"{target.shared / KIB:g} KiB for a CTA; use fewer stages or a smaller tile"
        )


MANY_STAGES = 4
"""Stages for whose scales there are columns beside two sums; with fewer the sums of one tile are all."""


BUFFERS = 2
"""Sums of tiles in tensor memory at a time: one is loaded while the products of the next tile are added up."""


def beside_columns(product: Product, schedule: Schedule) -> list[int]:
    """Columns of tensor memory of a stage: those of the scales of A and B; of the metadata of a sparse A."""
    if not (product.scales or product.metadata is not None):
        return []
    if not product.scales:
        return [schedule.cta[2] // metadata_span(product.a.element) * LANES // (METADATA_BLOCK.columns >> 2)]
    words = schedule.cta[2] // (block(product) * SCALES_OF_WORD)
    return [SCALES_OF_WORD * words * -(-side // SCALES_BLOCK.rows) for side in schedule.cta[:2]]


def stages_beside(product: Product, schedule: Schedule) -> int:
    """For how many stages tensor memory has columns beside the sums."""
    each = sum(beside_columns(product, schedule))
    if not each:
        return COLUMNS
    left = [(COLUMNS - sums * schedule.cta[1]) // each for sums in (BUFFERS, 1)]
    return next((stages for stages in left if stages >= MANY_STAGES), left[-1])
