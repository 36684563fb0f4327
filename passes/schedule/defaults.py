"""How D and operands lie as a schedule has it: the way to D, launches that change layouts, fragments in registers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import NamedTuple, TypeVar

from xdsl.dialects.builtin import MemRefType
from xdsl.dialects.memref import SubviewOp

from ...dialect.isa.form import ELEMENT_TYPES
from ...dialect.isa.form import ProductForm as Row
from ...dialect.isa.wgmma import UNIT, Wgmma
from ...dialect.layouts.layout import Bit, Layout, column, permuted, row
from ...dialect.schedule import Schedule, ScheduleError, roles
from ...dialect.warp.attributes import BYTE, Memory
from ...dialect.warp.convert import BANKS
from ...dialect.warp.stored import PACKED
from ...dialect.warp.warpgroup import numbered
from ..linalg.operand import WIDEST, MatrixOperand, Spread
from ..linalg.product import Product

# The part of a schedule that is about the way to D: whether elements change lanes in shared memory before.

SECTOR, LINE, STRIP = 32, 128, 32
"""Bytes of memory that are stored together, and that one store can reach without further ones; columns of a warp of
which rows of D that are no multiples of 16 bytes are stored by lanes side by side."""

NARROWEST = 16
"""Bits of the narrowest elements that change lanes."""


ADDED = ("f16", "f32")
"""Types of sums that C can be added to at the end."""


def exchanged_rows(schedule: Schedule) -> int:
    """Rows of a warp tile that are exchanged between lanes at a time; 0 for warpgroups, whose results tensor copies
    store."""
    return schedule.staging if schedule.together == 1 else 0


def adds_last(product: Product, schedule: Schedule) -> bool:
    """Whether C is added strip by strip after the K loop, or by its lanes before it. Strips are loaded in whole lines,
    each under the strip before, which costs less. Sparse products, widened 8-bit floats and epilogues with matrices
    have no registers for that. `add_c` overrides the choice. Partial sums are combined before C is added."""
    uncut, add_c = schedule.sliced_k == schedule.split_k == 1, schedule.add_c
    if product.c is None or not uncut or add_c != "auto":
        return product.c is not None and uncut and add_c == "last"
    roomy = product.sparsity == 1 and not (product.a.element.is_float and product.a.element.bits < NARROWEST)
    staged = bool(exchanged_rows(schedule)) and schedule.accumulate in ADDED
    return staged and roomy and not matrices(product)


def matrices(product: Product) -> list[MatrixOperand | Spread]:
    """The operands of the epilogue that are matrices."""
    return [operand for operand in product.epilogue_operands if isinstance(operand, MatrixOperand | Spread)]


def unknown_pitches(product: Product) -> bool:
    """Whether the row stride of C, or of an epilogue matrix, is dynamic.

    Where warpgroups compute D^T a lane has elements of many rows, whose addresses spill (`ptxas`, f32: 256 rows with B
    in registers 960 bytes, a C of 160x128 984).
    """
    return bool(product.dynamic) and (product.c is not None or bool(matrices(product)))


def changes_lanes_first(schedule: Schedule, *, loads: bool, bits: int) -> bool:
    """Whether sums change lanes before the epilogue instead of behind it. Then the epilogue `loads` its matrices in
    whole lines, and makes bytes of neighbouring elements. Otherwise its results change lanes; they may be narrower."""
    return bool(exchanged_rows(schedule)) and (loads or bits < NARROWEST)


def strip_bytes(product: Product, schedule: Schedule) -> int:
    """Shared memory in which a CTA's warps have room for a strip each."""
    sums = ELEMENT_TYPES[schedule.accumulate]
    loads, bits = adds_last(product, schedule) or bool(matrices(product)), product.d.element.bits
    bits = sums.bits if changes_lanes_first(schedule, loads=loads, bits=bits) else bits
    return schedule.warps * max(BANKS, schedule.staging * schedule.warp[1] * bits // 8)


def in_strips(schedule: Schedule, product: Product, rows: int, left: int) -> Schedule:
    """The schedule with strips of `rows` rows, the rows of a base tile of accumulators, if that pays.

    Four lanes hold eight neighbours of a row of D. In 16 bits that is half a sector of memory, which costs more than a
    whole one, and in 8 bits a quarter: strips pay if a warp's rows fill a sector. In 32 bits it is a sector, but a
    store of a warp touches eight lines, which the load/store pipe counts: strips pay if rows fill a line. They must fit
    in the shared memory that is left, since one stage less would cost more. An epilogue with several matrices has no
    registers for them. Of rows that are no multiples of 16 bytes lanes side by side store neighbours: a line of D and
    half a line of a warp pay, of two base tiles of rows and more, all in D.
    """
    strips, bits = schedule.with_fields(staging=rows), product.d.element.bits
    together = schedule.warp[1] & -schedule.warp[1]  # lanes go along a power of two of columns
    pays = together * bits // 8 >= (SECTOR if bits <= NARROWEST else LINE)
    ragged = together >= STRIP and is_ragged(product) and 2 * rows <= schedule.warp[0] <= product.m
    fits = strip_bytes(product, strips) <= left and len(matrices(product)) <= 1
    return strips if pays and fits and (ragged or product.d.access_bytes == WIDEST) else schedule


def is_ragged(product: Product) -> bool:
    """Whether rows of D, of 16 bits and as long as a line, are no multiples of 16 bytes, and nothing is read beside."""
    narrow = product.d.access_bytes < WIDEST and product.d.element.bits == NARROWEST
    return narrow and product.n * NARROWEST // 8 >= LINE and not (product.c or matrices(product) or product.dynamic)


def in_fixed_order(schedule: Schedule, product: Product) -> Schedule:
    """The schedule, of a product that is `batch_invariant` with sums in an order that no size changes."""
    add_c = "auto" if product.c is None else "first"
    return schedule.with_fields(batch_invariant="True", add_c=add_c) if product.batch_invariant else schedule


Offer = TypeVar("Offer")


def first_fitting(offers: Iterable[Offer], check: Callable[[Offer], None]) -> Offer | None:
    """The first that a check does not refuse with a ScheduleError. If it refuses all, the first, for fields that are
    given may mend that; None if there is none."""
    first = None
    for offer in offers:
        first = offer if first is None else first
        with suppress(ScheduleError):
            check(offer)
            return offer
    return first


def check_epilogue(schedule: Schedule, product: Product, rows: int) -> None:
    """Checks a schedule's way to D against the product and base tiles of accumulators of `rows` rows. Raises
    ScheduleError if strips are no multiples of those, or C is added where partial sums meet."""
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
    """The product as it is after the launches that a schedule adds: with transposed operands and with a padded D.
    Raises ScheduleError for operands of which no launch of its own makes others."""
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
    """Memory for a matrix, or for several, with rows padded to multiples of 16 bytes, and the type of the view without
    the padding."""
    *outer, columns = memory.get_shape()
    step = UNIT * BYTE // bits
    padded, rank = MemRefType(memory.element_type, [*outer, -(-columns // step) * step]), len(memory.get_shape())
    return padded, SubviewOp.infer_result_type(padded, [0] * rank, memory.get_shape(), [1] * rank)


def can_slice(product: Product, in_registers: str) -> bool:
    """Whether slices of a K tile may have their own warpgroups: of packed weights, or those of 4 bits along k."""
    nibbles = product.b.transposed and product.b.memory_bits == 4 and product.a.element.bits == 16
    return product.b.packed or (in_registers == "b" and nibbles)


def is_plain(product: Product, packed: str) -> bool:
    """Whether a product is a single one of 16 bits, of known size, as it lies."""
    halves = {operand.element.bits for operand in (product.a, product.b, product.d)} == {16}
    return halves and can_exchange(product) and not (product.batch or product.dynamic or packed != "none")


def can_exchange(product: Product) -> bool:
    """Whether warpgroups can multiply the transposes of operands in shared memory."""
    dense = product.sparsity == 1 and product.b.stored is None and not product.scales and not product.block_scales
    return dense and product.second is None and not product.convolves


def can_change(operand: MatrixOperand) -> bool:
    """Whether a launch can change the layout of an operand: a single matrix, of static size and whole bytes."""
    static = operand.is_whole and min(operand.type.get_shape()) > 0
    return static and operand.element.bits >= BYTE and operand.stored is None


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


# How A, B and the accumulators of a product lie in registers, and how A and B get there from shared memory.
#
# `ldmatrix` gives the fragments of most products as they are. Where it cannot, rows, columns and k are numbered so that
# what memory delivers is what the instruction wants (see `dialect/layouts/layout.py`):
#
# Elements of 8 and 4 bits in rows along m or n (row-major B, transposed A) `ldmatrix.trans` moves 16-bit pieces, so two
# (four) neighbours along n arrive together, of two rows of k. A register of the instruction wants four (eight) of k for
# one n: `warp.convert_layout` exchanges bytes (nibbles) between registers, one `prmt` for each register of bytes. The
# neighbours belong to tiles of their own, so n is numbered across tiles. A matrix takes every second (fourth) row of k,
# whose swizzle therefore skips one (two) bits of the row.
#
# tf32 in rows along m or n, and f64 Each lane loads its own elements. Wider loads than the instruction's operands are
# long do not pay: what arrives side by side goes to different instructions, whose operands are side by side too, and
# every register is moved once more (seen in the machine code: three moves for each two elements, a fifth of the speed).
# Only the two rows of A that one operand holds may be neighbours. The lanes that are served at once, four of k and as
# many of m or n as 128 bytes hold, reach different banks if the latter differ in such bits as the swizzle, which
# spreads k, leaves: two columns that share a chunk (f64), four that do (tf32), and then those that lie half a line
# apart; or, where k runs along the rows, rows 2 and 4 apart.


LDMATRIX, PIECES, LANES, NONE, VECTORS = "ldmatrix", "pieces", "lanes", "none", "vectors"
"""Ways from shared memory: as the instruction wants it; in 16-bit pieces, then converted to its layout; each lane its
elements; none, where the instruction reads shared memory; as registers hold it, 16 bytes of each lane at a time."""


class Numbers(NamedTuple):
    """Bit numbers of m or n: those of the instruction, and those that choose between instructions."""

    bits: tuple[int, ...]
    further: tuple[int, ...] = ()


class Delivery(NamedTuple):
    """How one operand gets to registers: the layout that products take, and that of what `ldmatrix` delivers.

    `skip` is how many bits of the row the swizzle of its tile leaves out.
    """

    how: str
    layout: Layout
    delivered: Layout
    skip: int = 0


class Arrangement(NamedTuple):
    """Layouts of A, B and the accumulator that fit each other."""

    a: Delivery
    b: Delivery
    accumulator: Layout


def stored(layout: Layout) -> Layout:
    """Accumulators in the order of memory: neighbours of a row follow each other. A change of names only."""
    across = sorted(bit for bit in layout.element if bit.axis == "c")
    return Layout(layout.lane, (*across, *sorted({*layout.element} - {*across})), layout.warp)


def arrange_warpgroup(instruction: Wgmma, *, exchanged: bool = False) -> Arrangement:
    """The arrangement for warpgroups, which read A and B in shared memory, or B^T and A^T if `exchanged`."""
    stays, sums = Delivery(NONE, instruction.layout("a"), instruction.layout("a")), instruction.layout("d")
    return Arrangement(stays, stays, sums.transposed() if exchanged else sums)


@cache
def arrange_in_registers(
    instruction: Wgmma, role: str, bits: int, *, along_k: bool, packed: bool = False
) -> Arrangement:
    """The arrangement for warpgroups that multiply A, in registers, by B in shared memory, or B^T by A^T; `role` is the
    operand in registers, "a" or "b".

    It has elements of so many bits in memory, which are converted to the instruction's.

    The layout of B is that of B^T as the instruction's first operand. The accumulators are those of D, whose transpose
    the instruction computes then. Rows of A, or of B^T, are numbered so that what memory delivers is what a lane has:

    Packed integers: each lane loads 16 bytes at a time, which hold what it multiplies.
    Integers of 4 bits along k: four lanes load the same 16 bytes, of whose words each multiplies a byte.
    Others along k: each lane loads the two neighbours along k that a register of floats has, or four of bytes.
    Bytes along m or n: pieces of 16 bits hold two neighbours along it, for two rows that a lane has.
    tf32 along m or n: each lane loads two neighbours along it, for two rows that it has. Lanes that are served at once
    reach different banks: they hold halves of a chunk, and chunks half a line apart, of four rows of k.

    Raises ScheduleError for elements that nothing brings to registers so.
    """
    multiplied_bits = instruction.operand_bits
    if packed:
        numbers, wanted = (0, 1, 2, 3, 4, 5), instruction.layout("a")
        order = tuple(bit for bit in PACKED[bits].element if bit in wanted.element)
        changed = Delivery(VECTORS, wanted, Layout(wanted.lane, order, wanted.warp))
    elif along_k and (multiplied_bits, bits) == (16, 4):
        numbers, wanted = (0, 1, 2, 3, 4, 5), instruction.layout("a")
        copies = tuple(Bit("x", number) if bit.axis == "c" else bit for number, bit in enumerate(wanted.lane))
        changed = Delivery(LANES, wanted, Layout(copies, (*map(column, range(5)), row(3)), wanted.warp))
    elif along_k and (multiplied_bits, bits) in ((16, 8), (8, 4)):
        numbers = (0, 1, 2, 3, 4, 5)
        changed = _by_lanes(numbered(instruction.layout("a"), numbers))
    elif not along_k and (multiplied_bits, bits) in ((16, 8), (8, 8)):
        numbers = (1, 2, 3, 0, 4, 5)
        wanted = numbered(instruction.layout("a"), numbers)
        changed = Delivery(PIECES, wanted, _first(wanted, row(0), column(0)))
    elif not along_k and multiplied_bits == bits == 32:
        numbers = (1, 4, 2, 0, 3, 5)
        changed = _by_lanes(numbered(instruction.layout("a"), numbers))
    else:
        along = "k" if along_k else {"a": "m", "b": "n"}[role]
        raise ScheduleError(f"in_registers = {role}: {bits} bits along {along} are not made {multiplied_bits} so")
    stays = Delivery(NONE, instruction.layout("a"), instruction.layout("a"))
    sums = numbered(instruction.layout("d"), numbers)
    return Arrangement(changed, stays, sums) if role == "a" else Arrangement(stays, changed, sums.transposed())


def _by_lanes(layout: Layout) -> Delivery:
    return Delivery(LANES, layout, layout)


@cache
def arrange(instruction: Row, warp: tuple[int, int], a_along_k: bool, b_along_k: bool) -> Arrangement:
    """The arrangement for warp tiles of this size; `along_k` says that k runs along the rows of memory. Raises
    ScheduleError if a warp tile is too small for the elements that move together."""
    bits = instruction.operand_bits
    b_k = range(instruction.shape.k.bit_length() - 1)
    # Of a sparse A, which lies row by row, columns are stored elements.
    a_k = range(instruction.layout("a").columns.bit_length() - 1)
    m = _numbers(bits, a_along_k, instruction.shape.m, "m", warp[0])
    n = _numbers(bits, b_along_k, instruction.shape.n, "n", warp[1])
    a = permuted(instruction.layout("a"), m.bits, a_k, tuple(map(row, m.further)))
    b = permuted(instruction.layout("b"), b_k, n.bits, tuple(map(column, n.further)))
    further = (*map(column, n.further), *map(row, m.further))
    accumulator = permuted(instruction.layout("c"), m.bits, n.bits, further)
    return Arrangement(_delivery(a, "c", bits, a_along_k), _delivery(b, "r", bits, b_along_k), accumulator)


@cache
def arrange_stored(instruction: Row, warp: tuple[int, int], a_along_k: bool, b_along_k: bool, bits: int) -> Arrangement:
    """The arrangement for elements of 16 bits where memory holds integers of B, of 8 or 4 bits, converted in registers.

    A register of integers holds four or eight of them, and those half a register apart become a register of floats
    (`to_ptx/widening.py`). Where k runs along the rows of B, they are neighbours along k, and k is numbered so that
    this is right: a lane loads the same ones of A, by itself, and brings them to the same order. In rows along n pieces
    of 16 bits hold neighbours along n, which go to tiles of their own, and k is numbered as ever. Raises ScheduleError
    if the instruction has other steps, or a warp tile is too small.
    """
    if instruction.operand_bits != 16 or instruction.shape.k != 16:
        raise ScheduleError(f"integers are converted for steps of 16, which {instruction.shape} does not have")
    m = _numbers(16, a_along_k, instruction.shape.m, "m", warp[0])
    n = _numbers(bits, b_along_k, instruction.shape.n, "n", warp[1])
    by_lanes = a_along_k and b_along_k
    k, more, together = (0, 1, 2, 3), list[int](), (32 // bits).bit_length() - 1
    if b_along_k:
        k, more = (together - 1, together, together + 1, 0), [*range(1, together - 1)]
    if by_lanes:
        m = Numbers((2, 1, 0, 3))  # rows of A that are read at once, 0 and 4, or 0, 2, 4 and 6, lie in different banks
    a = permuted(instruction.layout("a"), m.bits, k, tuple(map(column, more)))
    b = permuted(instruction.layout("b"), k, n.bits, (*map(column, n.further), *map(row, more)))
    accumulator = permuted(instruction.layout("c"), m.bits, n.bits, tuple(map(column, n.further)))
    of_a = Delivery(LANES, a, _first(a, *map(column, range(together)))) if by_lanes else Delivery(LDMATRIX, a, a)
    if b_along_k:
        return Arrangement(of_a, Delivery(LDMATRIX, b, _first(b, *map(row, range(together)))), accumulator)
    return Arrangement(of_a, Delivery(PIECES, b, _first(b, *map(column, n.further), row(0))), accumulator)


def _first(layout: Layout, *bits: Bit) -> Layout:
    """The layout with some element bits moved to the front."""
    return Layout(layout.lane, (*bits, *(bit for bit in layout.element if bit not in bits)), layout.warp)


def _numbers(bits: int, along_k: bool, size: int, axis: str, warp: int) -> Numbers:
    """The numbering of m or n: three bits of the lane, and a fourth within it if the instruction has 16 rows."""
    if bits == 64 and along_k:
        return Numbers((1, 2, 0, 3)[: size.bit_length() - 1])
    if bits >= 32 and not along_k:
        return _of_lanes(bits, size, warp)
    together = 0 if along_k else (16 // bits).bit_length() - 1
    needed = max(size, 8 << together)
    if warp % needed:
        raise ScheduleError(
            f"elements of {bits} bits in rows along {axis} move {1 << together} at once to as many tiles: the warp "
            f"tile must be a multiple of {needed} along {axis}, got {warp}"
        )
    lane = (together, together + 1, together + 2)
    if size == 8:
        return Numbers(lane, tuple(range(together)))
    return Numbers((*lane, 0 if together else 3), tuple(range(1, together)))


def _of_lanes(bits: int, size: int, warp: int) -> Numbers:
    """The numbering where each lane loads its own elements from rows along m or n, of 128 bytes."""
    if bits == 64:
        if size == 16:
            return Numbers((3, 1, 2, 0))
        return Numbers((0, 3, 1), (2,)) if warp % 16 == 0 else Numbers((0, 1, 2))
    if size == 16:
        return Numbers((1, 4, 2, 0), (3,)) if warp % 32 == 0 else Numbers((1, 3, 2, 0))
    if warp % 32 == 0:
        return Numbers((0, 1, 4), (2, 3))
    return Numbers((0, 1, 3), (2,)) if warp % 16 == 0 else Numbers((0, 1, 2))


def _delivery(layout: Layout, k_axis: str, bits: int, along_k: bool) -> Delivery:
    if bits == 64 or (bits == 32 and not along_k):
        return Delivery(LANES, layout, layout)
    if along_k or bits == 16:
        return Delivery(LDMATRIX, layout, layout)
    skip = (16 // bits).bit_length() - 1
    other = "r" if k_axis == "c" else "c"
    # The piece: neighbours along m or n; then the two rows of k that a matrix gives each register.
    register = (*(Bit(other, i) for i in range(skip)), Bit(k_axis, skip))
    rest = (bit for bit in layout.element if bit not in register)
    return Delivery(PIECES, layout, Layout(layout.lane, (*register, *rest)), skip)
