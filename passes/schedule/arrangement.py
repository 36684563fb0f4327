"""How A, B and the accumulators of a product lie in registers, and how A and B get there from shared memory.

`ldmatrix` gives the fragments of most products as they are. Where it cannot, rows, columns and k are numbered so that
what memory delivers is what the instruction wants (see `dialect/layouts/layout.py`):

Elements of 8 and 4 bits in rows along m or n (row-major B, transposed A)
    `ldmatrix.trans` moves 16-bit pieces, so two (four) neighbours along n arrive together, of two rows of k. A register
    of the instruction wants four (eight) of k for one n: `warp.convert_layout` exchanges bytes (nibbles) between
    registers, one `prmt` for each register of bytes. The neighbours belong to tiles of their own, so n is numbered
    across tiles. A matrix takes every second (fourth) row of k, whose swizzle therefore skips one (two) bits of the
    row.

tf32 in rows along m or n, and f64
    Each lane loads its own elements. Wider loads than the instruction's operands are long do not pay: what arrives side
    by side goes to different instructions, whose operands are side by side too, and every register is moved once more
    (seen in the machine code: three moves for each two elements, a fifth of the speed). Only the two rows of A that one
    operand holds may be neighbours. The lanes that are served at once, four of k and as many of m or n as 128 bytes
    hold, reach different banks if the latter differ in such bits as the swizzle, which spreads k, leaves: two columns
    that share a chunk (f64), four that do (tf32), and then those that lie half a line apart; or, where k runs along the
    rows, rows 2 and 4 apart.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from ...dialect.isa.form import ProductForm as Row
from ...dialect.isa.wgmma import Wgmma
from ...dialect.layouts.layout import Bit, Layout, column, permuted, row
from ...dialect.schedule import ScheduleError
from ...dialect.warp.warpgroup import numbered

LDMATRIX, PIECES, LANES, NONE = "ldmatrix", "pieces", "lanes", "none"
"""Ways from shared memory: as the instruction wants it; in 16-bit pieces, then converted to its layout; each lane its
elements; none, where the instruction reads shared memory."""


class Numbers(NamedTuple):
    """Which bits of m or n the instruction's bits are, and which choose between instructions."""

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
    """Layouts that fit each other."""

    a: Delivery
    b: Delivery
    accumulator: Layout


def stored(layout: Layout) -> Layout:
    """Accumulators in the order of memory: neighbours of a row follow each other. A change of names only."""
    across = sorted(bit for bit in layout.element if bit.axis == "c")
    return Layout(layout.lane, (*across, *sorted({*layout.element} - {*across})), layout.warp)


def arrange_warpgroup(instruction: Wgmma) -> Arrangement:
    """The arrangement for warpgroups, which read A and B in shared memory."""
    stays = Delivery(NONE, instruction.layout("a"), instruction.layout("a"))
    return Arrangement(stays, stays, instruction.layout("d"))


@cache
def arrange_in_registers(instruction: Wgmma, role: str, bits: int, *, along_k: bool) -> Arrangement:
    """The arrangement for warpgroups that multiply A, in registers, by B in shared memory, or B^T by A^T; `role` is the
    operand in registers, "a" or "b".

    It has elements of so many bits in memory, which are converted to the instruction's.

    The layout of B is that of B^T as the instruction's first operand. The accumulators are those of D, whose transpose
    the instruction computes then. Rows of A, or of B^T, are numbered so that what memory delivers is what a lane has:

    Integers along k: each lane loads the two neighbours along k that a register of floats has.
    Bytes along m or n: pieces of 16 bits hold two neighbours along it, for two rows that a lane has.
    tf32 along m or n: each lane loads two neighbours along it, for two rows that it has. Lanes that are served at once
    reach different banks: they hold halves of a chunk, and chunks half a line apart, of four rows of k.

    Raises:
        ScheduleError: for elements that nothing brings to registers so.
    """
    held = instruction.operand_bits
    if along_k and held == 16 and bits in (8, 4):
        numbers = (0, 1, 2, 3, 4, 5)
        changed = _by_lanes(numbered(instruction.layout("a"), numbers))
    elif not along_k and (held, bits) in ((16, 8), (8, 8)):
        numbers = (1, 2, 3, 0, 4, 5)
        wanted = numbered(instruction.layout("a"), numbers)
        changed = Delivery(PIECES, wanted, _first(wanted, row(0), column(0)))
    elif not along_k and held == bits == 32:
        numbers = (1, 4, 2, 0, 3, 5)
        changed = _by_lanes(numbered(instruction.layout("a"), numbers))
    else:
        along = "k" if along_k else {"a": "m", "b": "n"}[role]
        raise ScheduleError(f"in_registers = {role}: {bits} bits along {along} are not made {held} so")
    stays = Delivery(NONE, instruction.layout("a"), instruction.layout("a"))
    sums = numbered(instruction.layout("d"), numbers)
    return Arrangement(changed, stays, sums) if role == "a" else Arrangement(stays, changed, sums.transposed())


def _by_lanes(layout: Layout) -> Delivery:
    return Delivery(LANES, layout, layout)


@cache
def arrange(instruction: Row, warp: tuple[int, int], a_along_k: bool, b_along_k: bool) -> Arrangement:
    """The arrangement for warp tiles of this size; `along_k` says that k runs along the rows of memory.

    Raises:
        ScheduleError: if a warp tile is too small for the elements that move together.
    """
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
    return Arrangement(_way(a, "c", bits, a_along_k), _way(b, "r", bits, b_along_k), accumulator)


@cache
def arrange_stored(instruction: Row, warp: tuple[int, int], a_along_k: bool, b_along_k: bool, bits: int) -> Arrangement:
    """The arrangement for elements of 16 bits where memory holds integers of B, of 8 or 4 bits, converted in registers.

    A register of integers holds four or eight of them, and those half a register apart become a register of floats
    (`to_ptx/widening.py`). Where k runs along the rows of B, they are neighbours along k, and k is numbered so that
    this is right: a lane loads the same ones of A, by itself, and brings them to the same order. In rows along n pieces
    of 16 bits hold neighbours along n, which go to tiles of their own, and k is numbered as ever.

    Raises:
        ScheduleError: if the instruction has other steps, or a warp tile is too small.
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
    """The layout with some bits of its elements before the others."""
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


def _way(layout: Layout, k_axis: str, bits: int, along_k: bool) -> Delivery:
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
