"""`wmma.load`, `wmma.store`, and what they have in common with `wmma.mma`: PTX ISA 9.7.14.4.

The ISA leaves open which lane holds which element of a `wmma` fragment. Here the lanes hold a matrix row by row, one
run of elements after the other (of B, column by column); where registers hold more than the matrix, it repeats. That
is **not** the silicon's layout: a program that counts on the places of elements runs differently on a GPU. Fragments of
C and D of one shape agree in it, whatever their types.

What `wmma.mma` computes is what `mma` does with the same types and as many products, but for tf32 (see `parameters`).
Where one of C and D is f16 and the other f32, the sum is f32: C is widened before, or D rounded to nearest after. An
H200's recorded words of all forms replay without a difference.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import numpy as np

from ....dialect.isa.form import ElementType
from ....dialect.isa.row import Bindings
from ....dialect.isa.wmma import WmmaMove, alignment, default_stride
from ....dialect.layouts.layout import Layout
from ...numerics.floats import Array
from ..machine.decode import Context, meaning
from ..machine.events import LANES, Selection, tell
from ..machine.memory import FaultError, Part, check_writable, read_parts, thread_of, write_parts
from ..machine.state import Action, State
from .matrix import arrangement, chosen, elements, files_of, form, packed, put, whole_warps, words_of


def _together(element: ElementType) -> int:
    """Elements, neighbours along k, that memory and registers have in one word: those narrower than a byte."""
    return 1 if element.bits >= 8 else 32 // element.bits


@cache
def _places(layout: Layout, together: int) -> Array:
    """Rows and columns of each lane's words: (2, words, 32 lanes)."""
    each = range(0, layout.elements, together)
    return np.array([[layout.position(lane, e) for lane in range(LANES)] for e in each]).transpose(2, 0, 1)


# Memory


def _word_bits(move: WmmaMove) -> int:
    """Bits of what is moved at once."""
    return move.type.bits * _together(move.type)


FindAll: TypeAlias = Callable[[Selection], "list[tuple[Part, ...]]"]
"""The accesses of some threads, one element of each after the other."""


class _Walk:
    """Where the elements of a fragment lie: the address, and the stride of rows or columns."""

    def __init__(self, ctx: Context, row: WmmaMove) -> None:
        self.pc, self.row = ctx.pc, row
        where, *others = ctx.operands[1 if row.loads else 0], *ctx.operands[2:]
        self.address = ctx.address(where, np.uint32 if row.space.startswith("shared") else np.uint64)
        self.stride = ctx.source(others[0], "u32") if others else None

    def bind(self, state: State) -> FindAll:
        """The accesses of the selected threads, one element after the other. Raises FaultError if the address is not
        aligned for the fragment, or an element lies out of bounds."""
        address, stride = self.address(state), None if self.stride is None else self.stride(state)
        home = state.memory.shared if self.row.space.startswith("shared") else state.memory.memory
        kind = "load" if self.row.loads else "store"
        together, size = _together(self.row.type), _word_bits(self.row) // 8
        places = _places(arrangement(self.row.shape, self.row.role, self.row.type), together)
        major, minor = places if self.row.layout == "row" else places[::-1]

        def parts(sel: Selection) -> list[tuple[Part, ...]]:
            base, steps = self._aligned(address(sel), sel), self._steps(stride, sel)
            lanes = sel.pick(state.geometry.lane())
            every: list[tuple[Part, ...]] = []
            for line, at in zip(major, minor, strict=True):
                offset = line[lanes] * steps + at[lanes] // together * size
                every.append(home.parts(base + offset.astype(base.dtype), size, sel.lanes))
                tell(state.observer, self.pc, kind, every[-1], size, sel)
            return every

        return parts

    def _aligned(self, base: Array, sel: Selection) -> Array:
        multiple = alignment(self.row.shape, self.row.role, self.row.type)
        bad = np.flatnonzero(base % base.dtype.type(multiple))
        if bad.size:
            first, address = int(bad[0]), int(base[bad[0]])
            message = f"address {address:#x} is not a multiple of {multiple} bytes"
            raise FaultError(message, thread_of(first, sel.lanes), address)
        return base

    def _steps(self, stride: Array | None, sel: Selection) -> Array | np.int64:
        """Bytes from one row, or column, to the next."""
        row = self.row
        if stride is None:
            return np.int64(default_stride(row.shape, self.row.role, row.layout) * row.type.bits // 8)
        return sel.pick(stride).astype(np.int64) * row.type.bits // 8


@meaning("wmma.load")
def load(ctx: Context, bound: Bindings) -> Action:
    """A fragment from memory."""
    move, operands = form(ctx, WmmaMove), ctx.operands
    register, bits = "b64" if move.type.bits == 64 else "b32", _word_bits(move)
    dests = [ctx.dest(item, register) for item in ctx.items(operands[0])]

    def work(state: State, outs: list[Array], find: FindAll, sel: Selection, warps: Array | None) -> None:
        rows = [read_parts(parts, sel.count, bits // 8) for parts in find(sel)]
        words = np.stack(rows).reshape(len(rows) * LANES, -1)
        put(outs, packed(words, bits), warps)

    return whole_warps(ctx, work, files_of(dests), _Walk(ctx, move).bind)


@meaning("wmma.store")
def store(ctx: Context, bound: Bindings) -> Action:
    """A fragment to memory."""
    move, operands = form(ctx, WmmaMove), ctx.operands
    (wanted,) = (o for o in move.operands if o.name == "r")
    sources = words_of(ctx, operands[1], wanted)

    def work(state: State, files: list[Array], find: FindAll, sel: Selection, warps: Array | None) -> None:
        words = elements([chosen(file, warps) for file in files], _word_bits(move)).reshape(-1, sel.count)
        for parts, values in zip(find(sel), words, strict=True):
            check_writable(parts)
            write_parts(parts, values)

    return whole_warps(ctx, work, files_of(sources), _Walk(ctx, move).bind)
