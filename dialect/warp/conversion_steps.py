"""What a warp can do to turn one fragment into another: the steps, what each costs, and what it says of itself.

A place in the registers of a warp is a lane and a bit address within the lane, bit + 32 * register. Steps are exact:
each names the registers, lanes and addresses that take part, so that they can be executed or printed as they are.

Costs are estimates, in issue slots: 1 for an instruction within lanes, 2 for each pass of a warp through the shared
memory pipeline (a shuffle, a `movmatrix`, 128 bytes stored or loaded), and `WAIT` for a trip through memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ..isa.form import having
from ..isa.mma import MOVMATRIX, SHARED, LoadMatrix, StoreMatrix, load_rows, store_rows
from ..layouts.layout import LANES, BitMap, span

LANE_BITS = WORD_BITS = 5
PASS = 2
WAIT = 8

WHOLE, WORDS, HALVES, ROWS, COLUMNS = "whole", "words", "halves", "rows", "columns"
"""How registers meet shared memory. WHOLE: a register, or its low bits, is one piece. The others see two pieces of
16 bits in a register: WORDS and HALVES move them both together or one by one, ROWS and COLUMNS (`.trans`) as the rows
or columns of an 8x8 matrix."""

PLAIN = (WHOLE, WORDS, HALVES)
"""Without a matrix move."""


@dataclass(frozen=True, slots=True)
class Rename:
    """Register i of the result is register `sources[i]`: nothing is executed."""

    sources: tuple[int, ...]

    @property
    def cost(self) -> int:
        return 0

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.sources[:16])) + (", ..." if len(self.sources) > 16 else "")
        return f"take registers {shown} in this order: no instruction"


@dataclass(frozen=True, slots=True)
class PermuteElements:
    """Bits change places within each lane: bit i of an address of the result is bit `sources[i]` of the source's. Where
    `sources[i]` is None, places whose address has bit i are not used."""

    sources: tuple[int | None, ...]

    @property
    def opcode(self) -> str:
        """The instruction: `prmt` for bytes, shifts and masks for less than bytes."""
        return "prmt" if self.sources[:3] == (0, 1, 2) else "shf and lop3"

    @property
    def cost(self) -> int:
        """Instructions of each lane: one joins two registers, or reorders one."""
        meet = 1 << sum(source is not None and source >= WORD_BITS for source in self.sources[:WORD_BITS])
        registers = 1 << len(self.sources) - WORD_BITS
        return registers * max(1, meet - 1) * (1 if self.opcode == "prmt" else 2)

    def __str__(self) -> str:
        return f"permute the elements of each lane: about {self.cost} {self.opcode}"


@dataclass(frozen=True, slots=True)
class Round:
    """One `shfl.sync.idx`. Lane l sends register `send[l]` and keeps what lane `source[l]` sends as `keep[l]`."""

    send: tuple[int, ...]
    source: tuple[int, ...]
    keep: tuple[int, ...]

    @property
    def free(self) -> bool:
        """Whether every lane reads from itself, which needs no shuffle."""
        return self.source == tuple(range(LANES))


@dataclass(frozen=True, slots=True)
class Shuffles:
    """`shfl.sync` between lanes. Each round moves one register of every lane; `what` names the exchanged bits.
    `selected` bits of the register number depend on the lane. `selp` selects the registers by them, before and
    after."""

    rounds: tuple[Round, ...]
    selected: int
    what: str

    @property
    def count(self) -> int:
        """The number of `shfl.sync`."""
        return sum(not turn.free for turn in self.rounds)

    @property
    def selects(self) -> int:
        """The number of `selp`."""
        return 2 * self.selected * len(self.rounds)

    @property
    def cost(self) -> int:
        return PASS * self.count + self.selects

    def __str__(self) -> str:
        picked = f"; {self.selects} selp pick what to send and where to keep it" if self.selected else ""
        return f"exchange registers between lanes with {self.count} shfl.sync ({self.what}){picked}"


@dataclass(frozen=True, slots=True)
class MoveMatrices:
    """`movmatrix` on each register: an 8x8 matrix of 16-bit elements is transposed."""

    registers: int

    @property
    def cost(self) -> int:
        return PASS * self.registers

    def __str__(self) -> str:
        return f"transpose 8x8 matrices of 16 bits with {self.registers} {MOVMATRIX.spelling}, one for each register"


@dataclass(frozen=True, slots=True)
class Access:
    """Registers stored to shared memory, or loaded from it. `bits` is the size of a piece: 16 unless `how` is WHOLE.
    `places` takes lane + 32 * i, i being the i-th piece of a lane, to the number of the piece in memory."""

    how: str
    bits: int
    places: BitMap

    @property
    def at_once(self) -> int:
        """Pieces of a lane that one pass through the pipeline moves."""
        return 1 if self.how in (WHOLE, HALVES) else 2

    @property
    def passes(self) -> int:
        """Passes through the pipeline, each as many as want the same bank at worst."""
        pieces = 1 << len(self.places.images) - LANE_BITS
        return pieces // self.at_once * self.conflict

    @property
    def conflict(self) -> int:
        """How many words of one pass want the same bank: 1 is no conflict."""
        taking_part = LANE_BITS + self.at_once - 1
        words = [image * self.bits >> WORD_BITS for image in self.places.images[:taking_part]]
        return 1 << span(words) - span(word & LANES - 1 for word in words)

    @property
    def matrices(self) -> int:
        """8x8 matrices of one instruction, where it moves matrices."""
        return min(4, 1 << len(self.places.images) - LANE_BITS - 1)

    def addresses(self) -> tuple[tuple[int, ...], ...]:
        """The byte addresses, from 0, of each pass: one of each lane, or of each row of the 8x8 matrix."""
        pieces = range(0, 1 << len(self.places.images) - LANE_BITS, self.at_once)
        if self.how in PLAIN:
            firsts = [[lane + LANES * piece for lane in range(LANES)] for piece in pieces]
        elif self.how == ROWS:
            firsts = [[4 * row + LANES * piece for row in range(8)] for piece in pieces]
        else:
            firsts = [[row // 2 + LANES * (piece + row % 2) for row in range(8)] for piece in pieces]
        return tuple(tuple(self.places(first) * self.bits // 8 for first in group) for group in firsts)


@dataclass(frozen=True, slots=True)
class Trip:
    """A trip through shared memory: all lanes store, wait for each other, and load."""

    store: Access
    load: Access

    @property
    def cost(self) -> int:
        return PASS * (self.store.passes + self.load.passes) + WAIT

    @property
    def opcodes(self) -> tuple[str, str]:
        """The opcodes of the store and of the load."""
        return _opcode(self.store, "st", store_rows), _opcode(self.load, "ld", load_rows)

    @property
    def sm(self) -> int:
        """The lowest target number that has both."""
        rows = (_row(self.store, store_rows), _row(self.load, load_rows))
        return max((row.sm for row in rows if row is not None), default=0)

    def __str__(self) -> str:
        conflict = max(self.store.conflict, self.load.conflict)
        banks = f", {conflict} lanes to a bank at worst" if conflict > 1 else ", without bank conflicts"
        store, load = self.opcodes
        stores, loads = f"{_count(self.store)} {store}", f"{_count(self.load)} {load}"
        return f"go through shared memory: {stores}, bar.warp.sync, {loads}{banks}"


Move = TypeVar("Move", LoadMatrix, StoreMatrix)


def _row(access: Access, rows: Callable[[], tuple[Move, ...]]) -> Move | None:
    """The row of the matrix move that an access is; None if it is a plain one."""
    if access.how in PLAIN:
        return None
    transpose = access.how == COLUMNS
    (row,) = having(rows, shape="m8n8", space=SHARED, count=access.matrices, transpose=transpose)
    return row


def _opcode(access: Access, plain: str, rows: Callable[[], tuple[Move, ...]]) -> str:
    row = _row(access, rows)
    return row.spelling if row is not None else f"{plain}.shared.b{access.bits * access.at_once}"


def _count(access: Access) -> int:
    """How many instructions an access is."""
    plain = access.how in PLAIN
    return len(access.addresses()) // (1 if plain else access.matrices)


Step = Rename | PermuteElements | Shuffles | MoveMatrices | Trip
