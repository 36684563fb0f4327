"""How A, B and the accumulators of a product lie in registers, and how A and B get there from shared memory.

`ldmatrix` gives the fragments of most products as they are. Where it cannot, rows, columns and k are numbered so that
what memory delivers is what the instruction wants (see `dialect/relabelling.py`):

Elements of 8 and 4 bits in rows along m or n (row-major B, transposed A)
    `ldmatrix.trans` moves 16-bit pieces, so two (four) neighbours along n arrive together, of two rows of k. A register
    of the instruction wants four (eight) of k for one n: `warp.regroup` exchanges bytes (nibbles) between registers,
    one `prmt` for each register of bytes. The neighbours belong to tiles of their own, so n is numbered across tiles. A
    matrix takes every second (fourth) row of k, whose swizzle therefore skips one (two) bits of the row.

tf32 in rows along m or n
    A lane reads four neighbours with `ld.shared.v4`: one k, four tiles. Eight lanes are served at once, four of k and
    two of n; the swizzle sends four rows of k to four chunks of a half line, so the two of n are 16 columns apart.

f64
    A lane reads two neighbours with `ld.shared.v2`. Along k these are two terms of the sum, so k is numbered such that
    lane t holds 2t and 2t + 1; both operands must, whichever way they lie. Eight lanes, four of k and two of m or n,
    reach different banks if the latter differ in the bit of the row (chunk) that the swizzle's other bits leave.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ...dialect.isa.product import Product as Row
from ...dialect.layout import Bit, Layout, column, row
from ...dialect.relabelling import relabelled
from ...dialect.schedule import ScheduleError

LDMATRIX, PIECES, VECTORS = "ldmatrix", "pieces", "vectors"
"""Ways from shared memory: as the instruction wants it; in 16-bit pieces, then regrouped; by vectors of each lane."""

WIDEST_VECTOR = 128
"""Bits that one lane loads at once."""


@dataclass(frozen=True)
class Way:
    """How one operand gets to registers: the layout that products take, and that of what `ldmatrix` delivers.

    `skip` is how many bits of the row the swizzle of its tile leaves out.
    """

    how: str
    layout: Layout
    delivered: Layout
    skip: int = 0


@dataclass(frozen=True)
class Arrangement:
    """Layouts that fit each other. `step` is how many k one product of fragments takes."""

    a: Way
    b: Way
    accumulator: Layout
    step: int

    @property
    def stored(self) -> Layout:
        """The accumulators in the order of memory: neighbours of a row follow each other. A change of names only."""
        across = sorted(bit for bit in self.accumulator.element if bit.axis == "c")
        return Layout(self.accumulator.lane, (*across, *sorted({*self.accumulator.element} - {*across})))


@cache
def arrange(instruction: Row, warp: tuple[int, int], a_along_k: bool, b_along_k: bool) -> Arrangement:
    """The arrangement for warp tiles of this size; `along_k` says that k runs along the rows of memory.

    Raises:
        ScheduleError: if a warp tile is too small for the elements that move together.
    """
    bits = instruction.a.bits
    k, more_k = _along_k(bits, instruction.shape.k)
    m, more_m = _across_k(bits, a_along_k, instruction.shape.m, "m", warp[0])
    n, more_n = _across_k(bits, b_along_k, instruction.shape.n, "n", warp[1])
    # Of a sparse A, which lies row by row, columns are stored elements.
    of_a = k[: instruction.layout("a").columns.bit_length() - 1]
    a = relabelled(instruction.layout("a"), m, of_a, (*map(row, more_m), *map(column, more_k)))
    b = relabelled(instruction.layout("b"), k, n, (*map(column, more_n), *map(row, more_k)))
    accumulator = relabelled(instruction.layout("c"), m, n, (*map(column, more_n), *map(row, more_m)))
    return Arrangement(_way(a, "c", bits, a_along_k), _way(b, "r", bits, b_along_k), accumulator, b.rows)


def _along_k(bits: int, k: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The numbers of the instruction's bits of k, and the bits of k that choose between instructions."""
    count = k.bit_length() - 1
    if bits < 64:
        return tuple(range(count)), ()
    return (1, 2, 0, 3)[:count], (0,) if count == 2 else ()


def _across_k(bits: int, along_k: bool, size: int, axis: str, warp: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The same for m or n: three bits of the lane, and for m a fourth within the lane."""
    together = _together(bits, along_k, size, axis, warp)
    lane = tuple(range(together, together + 3))
    if bits == 64 and along_k:
        lane = (2, 0, 1)
    elif bits == 32 and together == 2:
        lane = (4, 2, 3)
    if size == 8:
        return lane, tuple(range(together))
    return (*lane, 0 if together else 3), tuple(range(1, together))


def _together(bits: int, along_k: bool, size: int, axis: str, warp: int) -> int:
    """How many low bits of m or n are neighbours that a lane gets at once."""
    if along_k or bits == 16:
        return 0
    if bits < 16:
        together = (16 // bits).bit_length() - 1
        needed = max(size, 8 << together)
        if warp % needed:
            raise ScheduleError(
                f"elements of {bits} bits in rows along {axis} move {1 << together} at once to as many tiles: the warp "
                f"tile must be a multiple of {needed} along {axis}, got {warp}"
            )
        return together
    together = (WIDEST_VECTOR // bits).bit_length() - 1
    while together and warp % (8 << together):
        together -= 1
    return together


def _way(layout: Layout, k_axis: str, bits: int, along_k: bool) -> Way:
    if bits == 64 or (bits == 32 and not along_k):
        return Way(VECTORS, layout, layout)
    if along_k or bits == 16:
        return Way(LDMATRIX, layout, layout)
    skip = (16 // bits).bit_length() - 1
    other = "r" if k_axis == "c" else "c"
    # The piece: neighbours along m or n; then the two rows of k that a matrix gives each register.
    register = (*(Bit(other, i) for i in range(skip)), Bit(k_axis, skip))
    rest = (bit for bit in layout.element if bit not in register)
    return Way(PIECES, layout, Layout(layout.lane, (*register, *rest)), skip)
