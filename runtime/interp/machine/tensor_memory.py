"""Tensor memory of the CTAs in flight: who has which columns, and what is on its way there. PTX ISA 9.7.16."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ....dialect.layouts.tensor_memory import COLUMNS, LANES
from ...numerics.floats import Array
from .events import LANES as WARP
from .events import Geometry
from .flow import Flow
from .mbarriers import OperationGroups
from .memory import Buffer, FaultError

_POISON = 0xFFFFFFFF
"""What is in columns that have just been allocated: NaN in every type."""

_LANE = 16
"""The first bit of the lane in an address."""


@dataclass(eq=False)
class Request:
    """A warp's request for columns of tensor memory, in a pair as many as the other's. `put` writes the address."""

    pc: int
    warp: int
    cta: int
    columns: int
    group: int
    put: Callable[[int], None]


class TensorMemory:
    """128 lanes x 512 columns of each CTA: words (ctas, lanes, columns), and the number of the allocation of each
    column, 0 if it is free. Stores complete as late as they may, when their warp waits. Products and copies belong to
    the thread that issued them. They complete when a thread tests the mbarrier that a later commit arrives at."""

    def __init__(self, geometry: Geometry, flow: Flow) -> None:
        self.geometry, self.flow = geometry, flow
        ctas = geometry.ctas
        self.words = np.zeros((ctas, LANES, COLUMNS), np.uint32)
        self.buffer = Buffer("tensor memory", self.words.reshape(-1).view(np.uint8))
        self.owner = np.zeros((ctas, COLUMNS), np.int32)
        self.places: dict[int, int] = {}
        """The instruction of each allocation."""
        self.closed = np.zeros(ctas, np.bool_)
        self.requests: list[Request] = []
        self._freeing: dict[int, set[int]] = {}
        self.moves = {kind: OperationGroups(geometry.warps) for kind in ("ld", "st")}
        self.products = OperationGroups(geometry.threads)

    # Allocation

    def pair(self, cta: int, group: int) -> list[int]:
        """The CTAs in flight that a CTA group has, the even one first. Raises FaultError if there is no other."""
        if group == 1:
            return [cta]
        if self.geometry.cluster_size % 2:
            raise FaultError(
                f".cta_group::2 takes pairs of CTAs of a cluster; this one has {self.geometry.cluster_size}",
                cta * self.geometry.warps_per_cta,
            )
        return [cta & ~1, cta | 1]

    def request(self, request: Request) -> None:
        """A warp requests columns and waits for them. All requests that can be granted now are granted."""
        self.requests.append(request)
        self._grant()

    def _grant(self) -> None:
        for request in list(self.requests):
            ctas = self.pair(request.cta, request.group)
            firsts = [next((r for r in self.requests if r.cta == cta), None) for cta in ctas]
            partners = [r for r in firsts if r is not None and (r.columns, r.group) == (request.columns, request.group)]
            if len(partners) == len(ctas) and request in partners:
                self._allot(partners, ctas)

    def _allot(self, requests: list[Request], ctas: list[int]) -> None:
        size = requests[0].columns
        free = [at for at in range(0, COLUMNS - size + 1, 32) if not self.owner[ctas, at : at + size].any()]
        start = next(iter(free), None)
        if start is None:
            return
        number = len(self.places) + 1
        self.places[number] = requests[0].pc
        self.owner[ctas, start : start + size] = number
        self.words[ctas, :, start : start + size] = _POISON
        for request in requests:
            self.requests.remove(request)
            request.put(start)
            self.flow.go(request.pc + 1, self._mask(request.warp))

    def _mask(self, warp: int) -> Array:
        mask = np.zeros((WARP, self.geometry.warps), np.bool_)
        mask[:, warp] = True
        return mask.reshape(-1) & self.flow.live

    def waiting(self) -> list[tuple[int, Array]]:
        """Where warps wait for columns, as masks."""
        return [(request.pc, self._mask(request.warp)) for request in self.requests]

    def free(self, cta: int, group: int, address: int, columns: int, thread: int) -> None:
        """Gives columns back. Raises FaultError if they are no allocation."""
        ctas, start = self.pair(cta, group), address & 0xFFFF
        number = int(self.owner[cta, start]) if start < COLUMNS else 0
        mine = np.flatnonzero(self.owner[cta] == number) if number else np.zeros(0, np.int64)
        if not number or int(mine[0]) != start or mine.size != columns or address >> _LANE:
            what = f"{mine.size} columns from {int(mine[0])}" if number else "nothing"
            raise FaultError(f"frees {columns} columns at {address:#x}, where {what} is allocated", thread)
        self._freeing.setdefault(number, set()).add(cta)
        if self._freeing[number].issuperset(ctas):
            self.owner[self.owner == number] = 0
            self._grant()

    # Places

    def metadata(self, cta: int, base: int) -> Array:
        """The words of the metadata of a sparse matrix, (lanes, 2)."""
        lane, column = address(base)
        return np.roll(self.words[cta], -lane, axis=0)[:, column : column + 2]

    def starts(self, cta: int, lanes: Array, columns: Array) -> Array:
        """The first bytes in the buffer of words of a CTA."""
        return ((cta * LANES + lanes) * COLUMNS + columns) * 4

    def check(self, cta: int, columns: Array, thread: int, what: str) -> None:
        """Raises FaultError if columns of a CTA are not allocated."""
        inside = columns[(columns >= 0) & (columns < COLUMNS)]
        free = inside[self.owner[cta, inside] == 0]
        if inside.size < columns.size:
            bad = int(columns[(columns < 0) | (columns >= COLUMNS)].flat[0])
            raise FaultError(f"{what} column {bad} of tensor memory, which has {COLUMNS}", thread)
        if free.size:
            raise FaultError(f"{what} column {int(free.flat[0])} of tensor memory, which is not allocated", thread)

    def unreturned(self) -> Iterator[tuple[int, int]]:
        """The CTA and the instruction of each allocation that was not freed."""
        for cta in range(len(self.owner)):
            for number in np.unique(self.owner[cta][self.owner[cta] > 0]).tolist():
                yield cta, self.places[number]


Word = TypeVar("Word", int, "Array")


def address(word: Word) -> tuple[Word, Word]:
    """The lane and the column of an address, or of several."""
    return word >> _LANE, word & 0xFFFF
