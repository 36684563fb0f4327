"""Fragments in registers, as matrices and back.

A register is an array of 32 lanes x warps. A matrix has its elements' words and, last, the warps; that of A has k
first, like that of B. Elements of 4 and 8 bits come as bytes; single bits stay together, 32 of a row (of a column, for
B) in a word. Where a warp computes several products side by side, they count as so many warps.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ....dialect.layouts.layout import LANES, Layout
from ...numerics.array import Array


@cache
def _order(layout: Layout, transpose: bool, step: int) -> tuple[Array, tuple[int, int, int]]:
    """For each element of the matrix, row by row (or, transposed, column by column), product after product, where it
    lies among the words of a fragment written element by element, lane by lane; and the shape of the matrix.

    Of every `step` elements, which follow each other along the first axis, the first stands for all.
    """
    places = [[layout.coordinates(lane, e) for lane in range(LANES)] for e in range(0, layout.elements, step)]
    q, r, c = (np.array([[p[axis] for p in element] for element in places]) for axis in "qrc")
    if transpose:
        r, c = c, r
    r = r // step
    shape = (int(r.max()) + 1, int(c.max()) + 1, int(q.max()) + 1)
    target = (r * shape[1] + c) * shape[2] + q
    order = np.empty(target.size, np.intp)
    order[target.reshape(-1)] = np.arange(target.size)
    return order, shape


def elements(registers: list[Array], bits: int) -> Array:
    """The words of elements of `bits` bits, element by element, lane by lane: (elements * lanes, warps)."""
    if bits >= 32 or bits == 1:
        return np.concatenate(registers)
    words = np.stack(registers)
    count = 32 // bits
    kind = np.uint16 if bits == 16 else np.uint8
    found = np.empty((len(registers), count, *words.shape[1:]), kind)
    mask = np.uint32((1 << bits) - 1)
    for i in range(count):
        shifted = words >> np.uint32(i * bits) if i else words
        found[:, i] = shifted & mask if bits == 4 else shifted
    return found.reshape(-1, words.shape[-1])


def packed(words: Array, bits: int) -> list[Array]:
    """Elements, (elements * lanes, warps), as the registers that hold them."""
    places = words.reshape(-1, LANES, words.shape[-1])
    if bits >= 32:
        return list(places)
    count = 32 // bits
    return [
        np.bitwise_or.reduce([p.astype(np.uint32) << np.uint32(j * bits) for j, p in enumerate(places[i : i + count])])
        for i in range(0, len(places), count)
    ]


def gather(registers: list[Array], layout: Layout, bits: int, transpose: bool) -> Array:
    """A fragment as a matrix; `transpose` puts its columns first."""
    order, (rows, columns, products) = _order(layout, transpose, 32 if bits == 1 else 1)
    found = elements(registers, bits).take(order, axis=0)
    return found.reshape(rows, columns, products * found.shape[-1])


def scatter(matrix: Array, layout: Layout, bits: int) -> list[Array]:
    """A matrix as the registers of its fragment."""
    order, (rows, columns, products) = _order(layout, False, 1)
    warps = matrix.shape[-1] // products
    words = np.empty((rows * columns * products, warps), matrix.dtype)
    words[order] = matrix.reshape(-1, warps)
    return packed(words, bits)
