"""Finding the routes from one fragment to another.

The route is given by where each bit of a place goes: bits 0 to 4 are the lane, the others the bit address within a
lane, of which 5 to 9 are the bit within a 32-bit register. A conversion of layouts is a permutation of these.
A bit that is within the lane before and after is *carried*; carried bits can ride inside registers, those that
cross between lane and register need a step that moves whole registers, halves or bytes between lanes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import NamedTuple

from ..isa.mma import MOVMATRIX
from ..layouts.layout import AXES, LANES, BitMap, Layout, column, compose, inverse, row
from .conversion_steps import (
    COLUMNS,
    HALVES,
    LANE_BITS,
    ROWS,
    WHOLE,
    WORD_BITS,
    WORDS,
    Access,
    MoveMatrices,
    PermuteElements,
    Rename,
    Round,
    Shuffles,
    Step,
    Trip,
)

HALF_BIT = 4
"""The bit of a bit address that says which half of a register."""

HALF_SLOT = LANE_BITS
"""The same among the bits that number 16-bit pieces, lanes first."""


def routes(places: Sequence[int], element_bits: int) -> tuple[Route, ...]:
    """The routes to move bit i of lane + 32 * element to `places[i]`, cheapest first."""
    low = element_bits.bit_length() - 1
    moves = _widened(places, low)
    names = _names(len(moves), low)
    if moves[:LANE_BITS] == tuple(range(LANE_BITS)):
        sources = _inverted(tuple(to - LANE_BITS for to in moves[LANE_BITS:]))
        return (Route(tuple(_within(sources, len(sources)))),)
    carried = _Carried.of(moves)
    candidates = [*_by_words(moves, carried, low, names), *_by_matrices(moves, carried, low)]
    return tuple(sorted(candidates, key=lambda route: route.cost))


def _widened(places: Sequence[int], low: int) -> tuple[int, ...]:
    """The permutation of element bits as one of bit addresses; unused bits of a register stay where they are."""
    moves = [*range(low + len(places))]
    for bit, to in enumerate(places):
        moves[bit if bit < LANE_BITS else bit + low] = to if to < LANE_BITS else to + low
    return (*moves, *range(len(moves), LANE_BITS + WORD_BITS))


def _names(count: int, low: int) -> tuple[str, ...]:
    lanes = (f"lane bit {i}" for i in range(LANE_BITS))
    within = (f"element bit {i - low}" if i >= low else f"bit {i}" for i in range(count - LANE_BITS))
    return (*lanes, *within)


def _inverted(places: Sequence[int]) -> tuple[int, ...]:
    sources = [0] * len(places)
    for bit, to in enumerate(places):
        sources[to] = bit
    return tuple(sources)


def _within(sources: tuple[int | None, ...], count: int) -> Iterator[Step]:
    """The step, if any, that moves bits within lanes from addresses of `count` bits."""
    if len(sources) == count and sources[:WORD_BITS] == tuple(range(WORD_BITS)):
        bits = [(source or 0) - WORD_BITS for source in sources[WORD_BITS:]]
        if bits != [*range(len(bits))]:
            yield Rename(tuple(sum((i >> at & 1) << bit for at, bit in enumerate(bits)) for i in range(1 << len(bits))))
    else:
        yield PermuteElements(sources)


class _Carried(NamedTuple):
    """Address bits within a lane that stay within the lane. `to` maps them to their new positions."""

    to: dict[int, int]

    @staticmethod
    def of(moves: Sequence[int]) -> _Carried:
        within = ((bit - LANE_BITS, to - LANE_BITS) for bit, to in enumerate(moves))
        return _Carried({bit: to for bit, to in within if bit >= 0 and to >= 0})

    def riders(self, low: int, top: int, without: int | None = None) -> list[int] | None:
        """The carried bits that become bits 0 to `top` of a register's element number; None if there are too few of
        them. Bits below `low` belong to one element and stay. Bits that need no move come first, then those that need
        one."""
        riders: dict[int, int] = {i: i for i in range(min(low, top))}
        free = [bit for bit in self.to if bit >= low and bit != without]
        for are in (all, any):
            for i in range(low, top):
                fits = (b for b in free if b not in riders.values() and are((b == i, self.to[b] == i)))
                riders.setdefault(i, next(fits, -1))
                if riders[i] < 0:
                    del riders[i]
        rest = iter([bit for bit in free if bit not in riders.values()])
        filled = [riders[i] if i in riders else next(rest, -1) for i in range(top)]
        return None if -1 in filled else filled


class _Transport(NamedTuple):
    """How to move whole pieces between lanes: `before` and `after` permute elements of each lane, `moves` moves them.
    `moves` permutes the bits of lane + 32 * piece."""

    before: tuple[Step, ...]
    moves: tuple[int, ...]
    after: tuple[Step, ...]

    def as_route(self, step: Step) -> Route:
        """The route with `step` in the middle."""
        return Route((*self.before, step, *self.after))


def _transport(moves: Sequence[int], inside: Sequence[int], arrive: Sequence[int], first: int) -> _Transport:
    """A route through shared memory. Address bits `inside` have the lowest places before it, and `arrive` those after
    it; the other bits follow, from place `WORD_BITS` on if `inside` does not fill a register. Places from `first` on
    number the pieces."""
    count = len(moves) - LANE_BITS
    gap = (None,) * (WORD_BITS - len(inside))
    before = (*inside, *gap, *(bit for bit in range(count) if bit not in inside))
    arrived = (*arrive, *gap, *(bit for bit in range(count) if bit not in arrive))
    at_target = {bit: place for place, bit in enumerate(arrived) if bit is not None}
    after = tuple(at_target[bit] for bit in range(count))

    def slot(bit: int, places: dict[int, int]) -> int:
        return bit if bit < LANE_BITS else places[bit - LANE_BITS] - first + LANE_BITS

    pieces = [*range(LANE_BITS), *(LANE_BITS + bit for bit in before[first:] if bit is not None)]
    between = tuple(slot(moves[bit], at_target) for bit in pieces)
    return _Transport(tuple(_within(before, count)), between, tuple(_within(after, len(before))))


def _by_words(moves: Sequence[int], carried: _Carried, low: int, names: Sequence[str]) -> Iterator[Route]:
    """Shuffles; and words, or less, through shared memory."""
    riders = carried.riders(low, WORD_BITS)
    size = WORD_BITS
    if riders is None:
        # too few bits stay within the lane to fill a register: some of it travels empty
        riders = [*range(low), *(bit for bit in carried.to if bit >= low)]
        size = max(3, len(riders))
    transport = _transport(moves, riders, [carried.to[bit] for bit in riders], WORD_BITS)
    yield transport.as_route(_shuffles(transport.moves, _cycles(moves, names)))
    yield transport.as_route(_trip(transport.moves, 1 << size, (WHOLE, _LANES), (WHOLE, _LANES), ()))


def _cycles(moves: Sequence[int], names: Sequence[str]) -> str:
    """A permutation of bits in words: "lane bit 0 <-> element bit 1, lane bit 2 -> lane bit 3 -> ..."."""
    seen: set[int] = set()
    parts: list[str] = []
    for start in range(len(moves)):
        cycle = [start]
        while (to := moves[cycle[-1]]) != start:
            cycle.append(to)
        if start not in seen and len(cycle) > 1:
            looped = cycle if len(cycle) == 2 else [*cycle, start]
            parts.append((" <-> " if len(cycle) == 2 else " -> ").join(names[bit] for bit in looped))
        seen.update(cycle)
    return ", ".join(parts)


def _shuffles(moves: Sequence[int], what: str) -> Shuffles:
    """Shuffles for a permutation of the bits of lane + 32 * register. In each round a lane sends the register whose
    number, in the bits that cross to the lane, is some bits of its own lane number xor the number of the round: so no
    two lanes send to the same one."""
    leaving = [bit for bit in range(LANE_BITS) if moves[bit] >= LANE_BITS]
    entering = {moves[bit]: bit for bit in range(LANE_BITS, len(moves)) if moves[bit] < LANE_BITS}
    # in ascending order, so that a bit that leaves and one that enters at the same place are a pair
    pairs = {bit - LANE_BITS: out for (_, bit), out in zip(sorted(entering.items()), leaving, strict=True)}
    place = BitMap.permutation(moves)
    registers = 1 << len(moves) - LANE_BITS
    return Shuffles(tuple(_round(place, pairs, number) for number in range(registers)), len(leaving), what)


def _round(place: BitMap, pairs: dict[int, int], number: int) -> Round:
    send, source, keep = ([0] * LANES for _ in range(3))
    for lane in range(LANES):
        send[lane] = number ^ sum((lane >> bit & 1) << at for at, bit in pairs.items())
        register, to = divmod(place(lane + LANES * send[lane]), LANES)
        source[to], keep[to] = lane, register
    return Round(tuple(send), tuple(source), tuple(keep))


Kind = tuple[str, tuple[int, ...]]
"""How registers meet memory, and the bits of lane + 32 * piece that one pass covers."""

_LANES = tuple(range(LANE_BITS))
_KINDS: tuple[Kind, ...] = (
    (HALVES, _LANES),
    (WORDS, (*_LANES, HALF_SLOT)),
    (ROWS, (*_LANES, HALF_SLOT)),
    (COLUMNS, (*_LANES, HALF_SLOT)),
)
_TOGETHER = {HALVES: (), WORDS: (HALF_SLOT,), ROWS: (HALF_SLOT, 0, 1), COLUMNS: (2, 3, 4)}
"""Which bits of lane + 32 * piece number the pieces that lie together in memory, lowest first."""


def _trip(moves: Sequence[int], bits: int, store: Kind, load: Kind, together: Sequence[int]) -> Trip:
    """A trip through memory, with a swizzle that avoids bank conflicts on both sides where possible. What a pass stores
    and what a pass loads must each reach all banks. Bits that both cover choose banks directly; each further bank bit
    is the exclusive or of one bit of each side."""
    back = _inverted(moves)
    stored, loaded = store[1], tuple(back[bit] for bit in load[1])
    rows = [{bit} for bit in (*together, *(b for b in stored if b in loaded and b not in together))]
    done = set[int]().union(*rows)
    ours, theirs = ([b for b in side if b not in done] for side in (stored, loaded))
    paired = [{a, b} for a, b in zip(ours, theirs, strict=False)]
    longer = [{b} for b in (*ours[len(theirs) :], *theirs[len(ours) :])]
    rest = [{b} for b in range(len(moves)) if b not in done and b not in ours and b not in theirs]
    rows += [*paired, *longer, *({b} for b in theirs[: len(paired)]), *rest]
    images = tuple(sum(1 << at for at, row in enumerate(rows) if bit in row) for bit in range(len(moves)))
    places = BitMap(images, len(moves))
    arrive = compose(places, inverse(BitMap.permutation(moves)))
    return Trip(Access(store[0], bits, places), Access(load[0], bits, arrive))


def _by_matrices(moves: Sequence[int], carried: _Carried, low: int) -> Iterator[Route]:
    """`movmatrix`, if it does it; and the best trips through memory with `stmatrix`, and without."""
    low = min(low, HALF_BIT)
    trips = [*_matrix_trips(moves, carried, low)]
    for stores in (True, False):
        fit = [conversion for conversion, trip in trips if (trip.store.how in (ROWS, COLUMNS)) == stores]
        yield from sorted(fit, key=lambda conversion: conversion.cost)[:1]
    riders = carried.riders(low, HALF_BIT)
    crosses = moves[2] - LANE_BITS, _inverted(moves)[2] - LANE_BITS
    if riders is not None and moves[:2] == (3, 4) and moves[3:5] == (0, 1) and min(crosses) >= 0:
        to, come = crosses
        inside, arrive = [*riders, come], [*(carried.to[bit] for bit in riders), to]
        transport = _transport(moves, inside, arrive, HALF_BIT)
        # all but the 8x8 transposition must be a change of names of registers
        yield _with_names(transport, MoveMatrices(1 << len(moves) - LANE_BITS - WORD_BITS))


def _with_names(transport: _Transport, step: MoveMatrices) -> Route:
    registers = tuple(bit - HALF_SLOT - 1 for bit in transport.moves[HALF_SLOT + 1 :])
    sources = (*range(WORD_BITS), *(WORD_BITS + bit for bit in _inverted(registers)))
    return Route((*transport.before, step, *_within(sources, len(sources)), *transport.after))


def _matrix_trips(moves: Sequence[int], carried: _Carried, low: int) -> Iterator[tuple[Route, Trip]]:
    count = len(moves) - LANE_BITS
    for half in range(low, count):
        riders = carried.riders(low, HALF_BIT, without=half)
        if riders is None or half in riders:
            continue
        arriving = [carried.to[bit] for bit in riders]
        for arrive in range(low, count):
            if arrive not in arriving:
                transport = _transport(moves, [*riders, half], [*arriving, arrive], HALF_BIT)
                yield from ((transport.as_route(trip), trip) for trip in _trips(transport.moves))


def _trips(moves: Sequence[int]) -> Iterator[Trip]:
    """The trips through shared memory that use a matrix instruction."""
    back = _inverted(moves)
    for store, load in product(_KINDS, _KINDS):
        if {store[0], load[0]} & {ROWS, COLUMNS}:
            ours, theirs = _TOGETHER[store[0]], tuple(back[bit] for bit in _TOGETHER[load[0]])
            shorter = min(len(ours), len(theirs))
            if ours[:shorter] == theirs[:shorter]:
                yield _trip(moves, 16, store, load, max(ours, theirs, key=len))


# Algebra of fragment layouts: positions, inverses, composition, and what turns one fragment into another.
#
# A layout is a linear map over F2 from a place in a warp, lane + 32 * element, to a place in the matrix,
# row * columns + column (further axes above that), so its inverse takes the matrix back to the warp::
#
#     compose(inverse(target), source)        where each element of a fragment must go to be the other fragment
#
# `convert` answers with the routes to do that, cheapest first. An example: the accumulator of m16n8k16, two of them
# side by side, is operand A of the next m16n8k16, element by element::
#
#     >>> two = tiled(accumulator(16, 8), across=2)
#     >>> print(convert(two, multiplicand(16, 16, 16), 16).best)
#     the fragments are the same: no instruction
#
# Source: "Linear Layouts: Robust Code Generation of Efficient Tensor Computation Using F2" (Zhou et al., 2025).


ORDER = ("c", "r", *(axis for axis in AXES if axis not in "rc"))
"""The axes of a matrix place, lowest bits first."""

MAX_BITS = 64
"""The widest element."""


class LayoutMismatchError(ValueError):
    """Layouts of different matrices, or elements wider than a register."""


@dataclass(frozen=True)
class Route:
    """One way to turn a fragment into another: its steps, in order. No step: the fragments are the same."""

    steps: tuple[Step, ...]

    @property
    def cost(self) -> int:
        """An estimate, in issue slots of a warp."""
        return sum(step.cost for step in self.steps)

    @property
    def sm(self) -> int:
        """The lowest target number that has the instructions; 0 if every target has them."""
        moves = any(isinstance(step, MoveMatrices) for step in self.steps)
        return max((MOVMATRIX.sm if moves else 0, *(step.sm for step in self.steps if isinstance(step, Trip))))

    @property
    def is_free(self) -> bool:
        """Whether no instruction is executed."""
        return all(isinstance(step, Rename) for step in self.steps)

    @property
    def shuffles(self) -> int:
        """The number of `shfl.sync`."""
        return sum(step.count for step in self.steps if isinstance(step, Shuffles))

    def __str__(self) -> str:
        if not self.steps:
            return "the fragments are the same: no instruction"
        needs = f" (sm_{self.sm} or later)" if self.sm else ""
        return "; then ".join(map(str, self.steps)) + needs


class Conversion(NamedTuple):
    """The conversion of fragment `source` to fragment `target` of the same matrix: `routes`, cheapest first."""

    source: Layout
    target: Layout
    element_bits: int
    routes: tuple[Route, ...]

    @property
    def best(self) -> Route:
        """The cheapest route."""
        return self.routes[0]

    def __str__(self) -> str:
        lines = (f"{i}. {conversion}" for i, conversion in enumerate(self.routes, 1))
        return "\n".join((f"{self.source}  ->  {self.target}, {self.element_bits}-bit elements", *lines))


def matrix_map(layout: Layout) -> BitMap:
    """The layout as a linear map from lane + 32 * element to row * columns + column."""
    base: dict[str, int] = {}
    width = 0
    for axis in ORDER:
        base[axis] = width
        width += layout.extent(axis).bit_length() - 1
    bits = (*layout.lane, *layout.element)
    return BitMap(tuple(1 << base[bit.axis] + bit.number for bit in bits), width)


def tiled(layout: Layout, down: int = 1, across: int = 1) -> Layout:
    """The layout of a fragment of down x across tiles, each holding the next elements of a lane, row by row of tiles.
    Raises LayoutMismatchError if the numbers of tiles are not powers of two."""
    for count in (down, across):
        if count < 1 or count & count - 1:
            raise LayoutMismatchError(f"expected tiles by powers of two, got {down} down and {across} across")
    rows, columns = (extent.bit_length() - 1 for extent in (layout.rows, layout.columns))
    ends = columns + across.bit_length() - 1, rows + down.bit_length() - 1
    further = (*map(column, range(columns, ends[0])), *map(row, range(rows, ends[1])))
    return Layout(layout.lane, (*layout.element, *further), layout.warp)


@cache
def convert(source: Layout, target: Layout, element_bits: int) -> Conversion:
    """The conversion of a fragment in the layout `source` to the layout `target` of the same matrix. `element_bits` is
    the width of an element in a register: 8 for 6-bit types that lie in bytes. Raises LayoutMismatchError for layouts
    of different matrices, or a width that is no power of two up to 64."""
    if element_bits not in (1 << i for i in range(MAX_BITS.bit_length())):
        raise LayoutMismatchError(f"expected elements of 1, 2, 4, 8, 16, 32 or 64 bits, got {element_bits}")
    if any(source.extent(axis) != target.extent(axis) for axis in AXES):
        raise LayoutMismatchError(f"expected two layouts of one matrix, got {_size(source)} and {_size(target)}")
    places = compose(inverse(matrix_map(target)), matrix_map(source)).places()
    if places is None:
        raise LayoutMismatchError(f"the layouts '{source}' and '{target}' do not carry the same bits")
    return Conversion(source, target, element_bits, routes(places, element_bits))


def _size(layout: Layout) -> str:
    further = (f", {layout.extent(axis)} by {name}" for axis, name in AXES.items()
               if axis not in "rc" and layout.extent(axis) > 1)  # fmt: skip
    return f"{layout.rows}x{layout.columns}" + "".join(further)
