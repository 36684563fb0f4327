"""Registers and descriptors of `wgmma.mma_async`. PTX ISA 9.7.15."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod

import numpy as np

from ....dialect.isa.tensor_map import TensorMapFields
from ....dialect.isa.wgmma import UNIT, WARPS, DescriptorError, MatrixDescriptor, Wgmma
from ....dialect.ptx.text.syntax import Vector
from ...numerics.floats import Array
from ..machine.events import Look, MemoryAccess, Selection
from ..machine.kernel import Decoded
from ..machine.mbarriers import OperationGroups
from ..machine.memory import RANK_BITS
from ..machine.state import RegisterSlot
from .accesses import units_of
from .findings import Check
from .shared import WRITING

# What is wrong with the words of matrix descriptors: the start of a swizzle's pattern, and the rank of a CTA in them.
#
# In a cluster an address of shared memory has the rank of its CTA from bit 24 on. In a descriptor that is made of the
# whole of it, the rank is added to the other fields. PTX ISA 9.7.15.5.1.2.2.

ALIGNMENT = "align"
"""The kind of what is no error: a matrix that begins beside the first row of its swizzle's pattern is right where its
data is permuted by the whole address, as tensor copies do it."""

_ADDRESS_MASK = 0x3FFFF
_FIELDS = 14
"""The first bit of a descriptor behind its address."""

_UNITS_OF_ROW, _ROWS = 8, 8
"""Of a swizzle's pattern, and of what an offset goes on from."""

_RANK = RANK_BITS - UNIT.bit_length() + 1
"""Where the rank is in a descriptor whose address was not masked."""


@dataclass(frozen=True)
class _Box:
    """A box by the instruction that copies it, its map, and its first unit in shared memory."""

    pc: int
    map: TensorMapFields
    first: int

    def follows(self, row: int, to: int, *, same: bool, rows: bool) -> bool:
        """Whether what begins at row `to` of the `same` box or another may follow what begins at a row of this one,
        where it is the next eight `rows`, or beside them."""
        height, *others = self.map.copied[1:] or (1,)
        if same:
            return (rows and to == row + _ROWS) or (to != row and (to - row) % height == 0)
        return row + _ROWS >= height * prod(others) if rows else to == row


def _overlaps(how: MatrixDescriptor, units: Array) -> list[str]:
    """What is wrong with a matrix of which some parts are the same bytes."""
    offsets = f"its leading byte offset is {how.leading}, its stride byte offset {how.stride}"
    return [] if np.unique(units).size == units.size else [f"parts of the matrix overlap: {offsets}"]


class Descriptors:
    """Those of CTA 0 of each cluster are what the fields of the others' are compared with. `decode` reads a word."""

    def __init__(self, check: Check, decode: Callable[[int], MatrixDescriptor] = MatrixDescriptor.decode) -> None:
        self._check, self._geometry, self._decode = check, check.state.geometry, decode
        self._fields: dict[tuple[int, str], dict[int, dict[int, int]]] = {}
        self._buffer = check.state.memory.shared.buffer
        self._boxes: dict[_Box, int] = {}
        self._placed = np.full((3, self._buffer.size // UNIT), -1, np.int32)
        """Of the box whose copy wrote a unit last, the number, and row and column of the unit; -1 where something else
        did."""

    def look(self, pc: int, slots: Iterable[RegisterSlot], threads: Iterable[int]) -> None:
        """Reports what the words of descriptors, in registers of some threads, say of themselves that is wrong."""
        state, geometry = self._check.state, self._geometry
        for slot, thread in product(slots, threads):
            rank = thread % state.warps // geometry.warps_per_cta % geometry.cluster_size
            for kind, at, what in self._wrong(pc, slot.name, int(state.banks[64][slot.index][thread]), thread, rank):
                self._check.report(pc, what, at, about=(kind, slot.name), note=kind == ALIGNMENT)

    def access(self, access: MemoryAccess) -> None:
        """Reports a product that reads by another swizzle or other offsets than a tensor copy wrote by. Boxes of no
        more than a row of a pattern are not followed: where they are its first row, no swizzle moves anything."""
        if access.buffer is not self._buffer:
            return
        tile, units = access.tile, units_of(access)[0]
        if access.kind in WRITING:
            self._placed[0, units] = -1
            if tile is not None and units.size > _UNITS_OF_ROW and isinstance(tile.how, TensorMapFields):
                box = _Box(access.pc, tile.how, int(tile.units[0, 0]))
                self._placed[0, tile.units] = self._boxes.setdefault(box, len(self._boxes))
                self._placed[1:, tile.units] = np.indices(tile.units.shape)
        elif tile is not None and isinstance(tile.how, MatrixDescriptor):
            self._read(access, tile.how, tile.units)

    def _read(self, access: MemoryAccess, how: MatrixDescriptor, units: Array) -> None:
        boxes, numbers = list(self._boxes), self._placed[0, units]
        some: list[int] = np.unique(numbers[numbers >= 0]).tolist()
        wrong = [number for number in some if boxes[number].map.swizzle != how.swizzle]
        for number in wrong:
            bad, box = units[numbers == number], boxes[number]
            text = f"reads by a swizzle of {how.swizzle} bytes what {self._copy(box)} writes by one of "
            self._tell(access, f"{text}{box.map.swizzle}", int(bad[0]), bad.size)
        for text in () if wrong else [*self._offsets(how, units, boxes)] or _overlaps(how, units):
            note = len({boxes[number].map.address for number in some}) < 2
            self._tell(access, text, int(units[0, 0]), 1, note=note)

    def _offsets(self, how: MatrixDescriptor, units: Array, boxes: Sequence[_Box]) -> Iterator[str]:
        """What is wrong with the offsets between the parts of a matrix whose first eight rows are rows of one box.
        Behind eight rows the next eight follow, or others that differ by whole steps along another dimension."""
        placed, top = self._placed[:, units], self._placed[:, units[:_ROWS, 0]]
        if not how.swizzle or top[0, 0] < 0 or np.ptp(top[::2], axis=1).any() or (np.diff(top[1]) != 1).any():
            return
        for name, at in (("stride", np.s_[:, ::_ROWS, 0]), ("leading", np.s_[:, 0, :: how.span // UNIT])):
            parts: list[list[int]] = placed[at].T.tolist()
            for (one, y, x), (other, to_y, to_x) in pairwise(parts):
                same, rows = one == other, name == "stride"
                if min(one, other) >= 0 and not (x == to_x and boxes[one].follows(y, to_y, same=same, rows=rows)):
                    start = "" if same else f" of what {self._copy(boxes[one])} writes"
                    text = f"its {name} byte offset of {getattr(how, name)} goes from row {y}, byte {x * UNIT}{start}"
                    yield f"{text} to row {to_y}, byte {to_x * UNIT} of what {self._copy(boxes[other])} writes"
                    break

    def _copy(self, box: _Box) -> str:
        return f"the tensor copy at line {self._check.line(box.pc)}"

    def _tell(self, access: MemoryAccess, text: str, unit: int, count: int, *, note: bool = False) -> None:
        address = unit * UNIT % (self._buffer.size // self._geometry.ctas)
        self._check.report(access.pc, text, int(access.threads[0]), address, about=text, count=count, note=note)

    def _wrong(self, pc: int, name: str, word: int, thread: int, rank: int) -> Iterator[tuple[str, int, str]]:
        """The errors of a descriptor: the kind, the thread that has it, the text."""
        yield from self._ranks(pc, name, word >> _FIELDS, thread, rank)
        try:
            descriptor = self._decode(word)
        except DescriptorError:  # The instruction says so.
            return
        if row := descriptor.row_of_pattern:
            text = (
                f"{name} says that a matrix begins at {descriptor.address:#x} and that its base offset is "
                f"{descriptor.base_offset}: {128 * row} bytes behind the first row of the swizzle's pattern, which "
                f"repeats every {8 * descriptor.swizzle} bytes"
            )
            yield ALIGNMENT, thread, text

    def _ranks(self, pc: int, name: str, fields: int, thread: int, rank: int) -> Iterator[tuple[str, int, str]]:
        if self._geometry.cluster_size == 1:
            return
        by_rank = self._fields.setdefault((pc, name), {})
        if fields in (seen := by_rank.setdefault(rank, {})):
            return
        seen[fields] = thread
        pairs = [(rank, fields)] if rank else [(r, f) for r, those in by_rank.items() if r for f in those]
        for other, theirs in pairs:
            added = other << _RANK - _FIELDS
            if any(theirs in {plain + added, plain | added} - {plain} for plain in by_rank.get(0, ())):
                text = (
                    f"{name} has the rank of its CTA in the cluster, {other}, from bit {_RANK} on: a matrix "
                    f"descriptor is made of the low 18 bits of an address (& {_ADDRESS_MASK:#x})"
                )
                yield "rank", by_rank[other][theirs], text


# Registers of `wgmma.mma_async`: accumulators, fragments of A, and metadata. PTX ISA 9.7.15.7.
#
# From the instruction to the `wgmma.wait_group` that covers it nobody may read or write them. Between an access of a
# thread and a product that takes the register there must be a `wgmma.fence`, as before the first product of a
# warpgroup; products of one shape may follow each other on the same accumulators without one.
#
# Of metadata the text says nothing. An H200 reads it when it multiplies: written while a product runs, it gives others.

_FENCED, _NEVER = 0, -1


class RegistersInFlight:
    """Which registers asynchronous operations have, for each agent: how many do, and the last one's instruction."""

    def __init__(self, registers: Iterable[RegisterSlot], agents: int) -> None:
        self.numbers = {slot: i for i, slot in enumerate(dict.fromkeys(registers))}
        self.names = [slot.name for slot in self.numbers]
        self.count = np.zeros((len(self.numbers), agents), np.int32)
        self.by = np.zeros_like(self.count)

    def of(self, slots: Iterable[RegisterSlot]) -> Array:
        """The numbers of those registers that operations have at all."""
        return np.array([self.numbers[slot] for slot in slots if slot in self.numbers], np.intp)

    def issue(self, pc: int, registers: Array, agents: Array, queue: OperationGroups) -> None:
        """An instruction begins an operation of agents, which ends as the queue says."""
        at = np.ix_(registers, agents)
        self.count[at] += 1
        self.by[at] = pc

        def finish(done: Array) -> None:
            at = np.ix_(registers, done)
            self.count[at] = np.maximum(self.count[at] - 1, 0)

        queue.issue(agents, finish)

    def find(self, registers: Array, agents: Array) -> tuple[int, int, int] | None:
        """The first of some registers that is in flight, with its agent, and the instruction of the operation."""
        bad = np.argwhere(self.count[np.ix_(registers, agents)] > 0)
        if not bad.size:
            return None
        register, agent = int(registers[bad[0, 0]]), int(agents[bad[0, 1]])
        return register, agent, int(self.by[register, agent])


@dataclass(frozen=True)
class _Product:
    """The registers of a product, by their numbers among the followed ones, and its shape. `read`, until it has been
    waited for, are fragments and metadata."""

    accumulators: Array
    fragments: Array
    read: Array
    columns: int
    descriptors: tuple[RegisterSlot, ...]


class WarpgroupRegisters(Check):
    """For each register and warpgroup: the products in flight that write it, those that read it, the last access since
    the last fence (`_FENCED`: none, `_NEVER`: no fence yet, else the instruction after the access), and the shape of
    the products that accumulate in it since then."""

    name = "wgmma"

    def begun(self) -> None:
        products = {pc: d for pc, d in enumerate(self.kernel.code) if isinstance(d.row, Wgmma)}
        taken = (slot for d in products.values() for slots in _taken(d) for slot in slots)
        groups = -(-self.state.warps // WARPS)
        self.writing = RegistersInFlight(taken, groups)
        self.reading = RegistersInFlight(self.writing.numbers, groups)
        self.names = self.writing.names
        self.products = {pc: self._product(d) for pc, d in products.items()}
        self.touched = np.full(self.writing.count.shape, _NEVER, np.int32)
        self.columns = np.zeros_like(self.touched)
        self.flying: list[tuple[int, int]] = []
        self.descriptors = Descriptors(self)

    def _product(self, decoded: Decoded) -> _Product:
        row = decoded.row
        d, a, e = map(self.writing.of, _taken(decoded))
        words = tuple(slot for slot in decoded.reads if slot.bits == 64)
        return _Product(d, a, np.concatenate([a, e]), row.shape.n if isinstance(row, Wgmma) else 0, words)

    def watch(self, pc: int) -> Look | None:
        decoded = self.kernel.code[pc]
        traits = decoded.traits
        if not self.products:
            return None
        if pc in self.products:
            return lambda sel: self._issue(pc, self._groups(sel))
        if traits.name == "wgmma.fence":
            return lambda sel: self._fence(self._groups(sel))
        return self._accesses(pc, decoded)

    def _groups(self, sel: Selection) -> Array:
        return np.unique(sel.threads % self.state.warps // WARPS)

    # Products

    def _fence(self, groups: Array) -> None:
        self.touched[:, groups] = _FENCED
        self.columns[:, groups] = 0

    def _issue(self, pc: int, groups: Array) -> None:
        product = self.products[pc]
        for group in groups.tolist():
            self._fenced(pc, product, group)
            self._in_flight(pc, product, group)
            self.descriptors.look(pc, product.descriptors, [group * WARPS])
            self._begin(pc, product, group)

    def _fenced(self, pc: int, product: _Product, group: int) -> None:
        both = np.concatenate([product.accumulators, product.fragments])
        bad = both[self.touched[both, group] != _FENCED]
        if bad.size:
            by = int(self.touched[bad[0], group])
            what = "its warpgroup has executed no wgmma.fence yet"
            if by != _NEVER:
                what = (
                    f"takes {self.names[bad[0]]}, which line {self.line(by - 1)} touches, with no wgmma.fence between"
                )
            self.report(pc, what, group * WARPS, about=("fence", by))
        seen = self.columns[product.accumulators, group]
        other = np.flatnonzero((seen != 0) & (seen != product.columns))
        if other.size:
            name, n = self.names[product.accumulators[other[0]]], int(seen[other[0]])
            what = f"adds to {name}, which a product of another shape (N = {n}) has, with no wgmma.fence between"
            self.report(pc, what, group * WARPS, about="shape")

    def _in_flight(self, pc: int, product: _Product, group: int) -> None:
        """One product's accumulators are not another's A while either runs."""
        for mine, others, deed, other in (
            (product.accumulators, self.reading, "writes", "reads"),
            (product.read, self.writing, "reads", "writes"),
        ):
            if conflict := others.find(mine, np.array([group])):
                line = self.line(conflict[2])
                what = (
                    f"{deed} {self.names[conflict[0]]}, which the product at line {line} {other} and is not waited for"
                )
                self.report(pc, what, group * WARPS, about=("product", line))

    def _begin(self, pc: int, product: _Product, group: int) -> None:
        agents, queue = np.array([group]), self.state.warpgroups
        self.writing.issue(pc, product.accumulators, agents, queue)
        self.reading.issue(pc, product.read, agents, queue)
        self.columns[product.accumulators, group] = product.columns
        self.flying.append((pc, group))
        queue.issue(agents, lambda _: self.flying.remove((pc, group)))

    def end(self) -> None:
        """Products that the CTAs did not wait for before they ended."""
        for pc, group in self.flying:
            self.report(pc, "no wgmma.wait_group waits for it before the kernel ends", group * WARPS, about="end")

    # Accesses

    def access(self, access: MemoryAccess) -> None:
        if self.products and access.start.size:
            self.descriptors.access(access)

    def _accesses(self, pc: int, decoded: Decoded) -> Look | None:
        writes, reads = self.writing.of(decoded.writes), self.writing.of(decoded.reads)
        if not (writes.size or reads.size):
            return None

        def look(sel: Selection) -> None:
            groups = self._groups(sel)
            self._touch(pc, writes, "writes", sel, groups)
            self._touch(pc, reads, "reads", sel, groups)

        return look

    def _touch(self, pc: int, numbers: Array, deed: str, sel: Selection, groups: Array) -> None:
        if not numbers.size:
            return
        at = np.ix_(numbers, groups)
        self.touched[at] = np.where(self.touched[at] == _NEVER, _NEVER, pc + 1)
        for flying, other in ((self.writing, "writes"), (self.reading, "reads")):
            if conflict := flying.find(numbers, groups):
                register, group, by = conflict
                mine = sel.threads[sel.threads % self.state.warps // WARPS == group]
                line = self.line(by)
                what = f"{deed} {self.names[register]}, which the product at line {line} {other} and is not waited for"
                self.report(pc, what, int(mine[0]), about=("flight", line, deed), count=int(mine.size))
                return


def _taken(decoded: Decoded) -> tuple[list[RegisterSlot], ...]:
    """The registers of D, of A where it is in registers, and of the metadata of a sparse A."""
    named = decoded.named()
    operands = (named["d"], named["a"] if isinstance(named["a"], Vector) else None, named.get("e"))
    return tuple([] if operand is None else decoded.slots(operand) for operand in operands)
