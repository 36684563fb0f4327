"""How a product is cut into tiles: for CTAs, for their warps, for instructions."""

from __future__ import annotations

from dataclasses import dataclass

from ..isa.mma import Shape
from ..isa.wgmma import WARPS as WARPGROUP
from ..isa.wgmma import M as WARPGROUP_ROWS
from .fields import ScheduleError, ScheduleRecord, always, rare, text_of

MOST_THREADS = 1024
"""Threads of a CTA, at most."""


@dataclass(frozen=True, slots=True)
class TileSchedule(ScheduleRecord):
    """The tiles of a product. Each tile size is a multiple of the next smaller one."""

    cta: tuple[int, int, int] = always(
        0, "the tile of a CTA: M x N of D, and the part of K that it multiplies in each step of the K loop"
    )
    warp: tuple[int, int] = always(1, "the part of the CTA tile, M x N, that a warp or a warpgroup computes")
    mma: Shape = always(2, "the shape of the matrix instruction; M = 64 means `wgmma`, which warpgroups execute")
    sliced_k: int = rare(
        8, "sliced-K: how many groups of warps share each K tile; the CTA adds their sums in shared memory", 1
    )
    order: str = rare(
        16,
        "the order of the instructions of a warp tile. `rows`: row by row, each from left to right. "
        "`serpentine`: every second row from right to left, so that its first instruction reads the same B as "
        "the one before",
        "serpentine",
        ("serpentine", "rows"),
    )
    in_registers: str = rare(
        25,
        "which operand a warpgroup loads to registers, to transpose or convert it there. `b`: the instruction computes "
        "D^T = B^T A^T, with B^T as its first operand, and `warp` is the part of D that a warpgroup computes, N x 64",
        "none",
        ("none", "a", "b"),
    )

    def check(self) -> None:
        if min(*self.cta, *self.warp) <= 0:
            raise ScheduleError(f"tile sizes must be positive, got {self._sizes}")
        if min(self.mma) <= 0:
            raise ScheduleError(f"the sizes of an instruction must be positive, got {self.mma}")
        if self.in_registers != "none" and self.together == 1:
            raise ScheduleError(f"in_registers = {self.in_registers} is for warpgroups, got mma = {self.mma}")
        self._check_multiples()
        self._check_slices()
        if self.threads > MOST_THREADS:
            raise ScheduleError(
                f"a CTA has at most {MOST_THREADS} threads, {self.warps} warps take {self.threads}; enlarge warp or "
                f"reduce cta: {self._sizes}"
            )

    def _check_multiples(self) -> None:
        for axis, tile, step in zip("MN", self.cta, self.warp, strict=False):
            if tile % step:
                raise ScheduleError(f"warp must divide cta, got {step} against {tile} along {axis}: {self._sizes}")
        steps = (*self.covered, self.mma.k)
        for axis, tile, step in zip("MNK", (*self.warp, self.cta[2]), steps, strict=True):
            if tile % step:
                transposed = " of the transpose" if self.exchanged else ""
                raise ScheduleError(
                    f"cta and warp must be multiples of mma = {self.mma}{transposed}, got {tile} along {axis} "
                    f"(the next multiple is {-(-tile // step) * step}): {self._sizes}"
                )

    def _check_slices(self) -> None:
        if self.sliced_k < 1 or self.cta[2] % (self.sliced_k * self.mma.k):
            raise ScheduleError(
                f"sliced_k must divide the {self.cta[2] // self.mma.k} steps of {self.mma} in a K tile of "
                f"{self.cta[2]}, got {self._sizes}"
            )
        down, across = (size // step for size, step in zip(self.warp, self.covered, strict=True))
        base = across if down == 1 else down
        if base % self.sliced_k and (min(down, across) > 1 or self.sliced_k % base):
            raise ScheduleError(
                f"sliced_k: {self.sliced_k} slices divide the base tiles of a warp tile down, or across if it is "
                f"one high, or are a multiple of a single row or column of them; got {self._sizes}"
            )

    @property
    def _sizes(self) -> str:
        """The fields that say how large tiles are, for errors."""
        sliced = "" if self.sliced_k == 1 else f", sliced_k = {self.sliced_k}"
        return f"cta = {text_of(self.cta)}, warp = {text_of(self.warp)}{sliced}"

    @property
    def exchanged(self) -> bool:
        """Whether the transposes are multiplied, B^T by A^T."""
        return self.in_registers == "b"

    @property
    def covered(self) -> tuple[int, int]:
        """The part of D, M x N, that an instruction computes."""
        return (self.mma.n, self.mma.m) if self.exchanged else (self.mma.m, self.mma.n)

    @property
    def together(self) -> int:
        """Warps that compute a warp tile: four where the instruction is one of warpgroups."""
        return WARPGROUP if self.mma.m == WARPGROUP_ROWS else 1

    @property
    def warps(self) -> int:
        """Warps of a CTA that multiply."""
        return self.together * self.sliced_k * (self.cta[0] // self.warp[0]) * (self.cta[1] // self.warp[1])

    @property
    def threads(self) -> int:
        """Threads of a CTA that multiply."""
        return 32 * self.warps
