"""What accesses to memory cost: wavefronts of shared memory, sectors of global memory.

Shared memory has 32 banks of 4 bytes, of which each delivers one word a wavefront, to any number of lanes. A warp's
accesses of up to 4 bytes are served together; those of 8 bytes half-warp by half-warp, those of 16 bytes, as the rows
of `ldmatrix`, eight lanes at a time (CUDA C++ Programming Guide, compute capability 5.x and later; CUDA C++ Best
Practices Guide, shared memory). Global memory is moved in sectors of 32 bytes.

A request is what one warp asks for with one instruction. Pairs of lanes that load the same words of 16 bytes can take
fewer wavefronts on some GPUs than said here.
"""

from __future__ import annotations

import numpy as np

from ...numerics.array import Array
from ..machine.threads import LANES

BANKS = 32
BANK_BYTES = 4
SECTOR_BYTES = 32
WAVEFRONT_BYTES = BANKS * BANK_BYTES


def wavefronts(start: Array, width: int, warps: Array, lanes: Array, alone: bool = False) -> tuple[Array, Array]:
    """What the accesses of some lanes to shared memory take: for each warp among them, the wavefronts, and how many
    there would be without conflicts.

    `start` is the first byte of each access, counted from a multiple of 128 bytes; each is `width` bytes long and
    aligned. With `alone`, lanes that want the same word are served one after the other, as atomic operations are.
    """
    together = min(LANES, WAVEFRONT_BYTES // width)
    phases = LANES // together
    if (rows := _rows(start // max(width, BANK_BYTES), warps, lanes)) is not None:
        return _wavefronts(rows.reshape(-1, together), max(1, width // BANK_BYTES), phases, alone)
    group = warps * phases + lanes // together
    words = (start // BANK_BYTES)[:, None] + np.arange(max(1, width // BANK_BYTES))
    span = int(words.max(initial=0)) + 1
    wanted = (group[:, None] * span + words).reshape(-1)
    if not alone:
        wanted = np.unique(wanted)
    group, word = np.divmod(wanted, span)
    count = int(warps.max(initial=-1)) + 1
    by_bank = np.bincount(group * BANKS + word % BANKS, minlength=count * phases * BANKS)
    by_phase = by_bank.reshape(count, phases, BANKS).max(axis=-1)
    found = by_phase.sum(axis=-1)
    asking = found > 0
    return found[asking], np.count_nonzero(by_phase[asking], axis=-1)


def _rows(numbers: Array, warps: Array, lanes: Array) -> Array | None:
    """Numbers of lanes as rows of warps, -1 where a lane has none; None if one has several."""
    place = warps * LANES + lanes
    rows = np.full((int(warps.max(initial=-1)) + 1) * LANES, -1, np.int64)
    rows[place] = numbers
    found = rows.reshape(-1, LANES)
    return found if np.count_nonzero(found >= 0) == place.size else None


def _distinct(rows: Array) -> Array:
    """Which numbers of sorted rows are there for the first time; -1 stands for none."""
    new = rows >= 0
    new[:, 1:] &= rows[:, 1:] != rows[:, :-1]
    return new


def _wavefronts(rows: Array, banks: int, phases: int, alone: bool) -> tuple[Array, Array]:
    """Those of rows of accesses that are served together, `phases` of them for a warp. Each access, by its number in
    units of its size, takes as many banks from a multiple of that on: two meet in all of them or in none."""
    if not alone:
        rows = np.sort(rows, axis=1)
    wanted, groups = rows >= 0 if alone else _distinct(rows), BANKS // banks
    places = (np.arange(len(rows))[:, None] * groups + rows % groups)[wanted]
    by_group = np.bincount(places, minlength=len(rows) * groups)
    by_phase = by_group.reshape(-1, phases, groups).max(axis=-1)
    found = by_phase.sum(axis=-1)
    asking = found > 0
    return found[asking], np.count_nonzero(by_phase[asking], axis=-1)


def sectors(start: Array, width: Array, warps: Array, lanes: Array) -> tuple[Array, Array]:
    """What the accesses of some lanes to global memory take: for each warp among them, the sectors, and the fewest
    that could hold the bytes it asks for.

    Each access is aligned to its width, and so lies in one sector.
    """
    alike = width.size and int(width.min()) == int(width.max())
    if alike and (rows := _rows(start, warps, lanes)) is not None:
        rows = np.sort(rows, axis=1)
        found = np.count_nonzero(_distinct(rows // SECTOR_BYTES), axis=1)
        wanted = np.count_nonzero(_distinct(rows), axis=1) * int(width[0])
        asking = found > 0
        return found[asking], -(-wanted[asking] // SECTOR_BYTES)
    count = int(warps.max(initial=-1)) + 1
    span = int(start.max(initial=0)) + 1
    touched = np.unique(warps * span + start // SECTOR_BYTES) // span
    accesses = np.unique(np.stack([warps, start, width]), axis=1)
    wanted = np.bincount(accesses[0], weights=accesses[2], minlength=count).astype(np.int64)
    found = np.bincount(touched, minlength=count)
    asking = found > 0
    return found[asking], -(-wanted[asking] // SECTOR_BYTES)
