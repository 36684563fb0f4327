"""`wmma.load`, `wmma.store`, `wmma.mma`: PTX ISA 9.7.14.4.

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
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from ....dialect.isa.form import ElementType
from ....dialect.isa.row import Bindings
from ....dialect.isa.wmma import Shape, WmmaMma, WmmaMove, alignment, default_stride, extent, registers
from ...numerics.floats import Array
from ..machine.decode import Context, meaning
from ..machine.events import LANES, Selection, tell
from ..machine.memory import FaultError, Part, check_writable, read_parts, thread_of, write_parts
from ..machine.state import Action, Source, State
from .matrix import chosen, elements, files_of, form, model, packed, put, whole_warps, words_of


class _Place(NamedTuple):
    """The rows and columns of each lane's elements, as arrays (elements, 32 lanes)."""

    rows: Array
    columns: Array


@dataclass(frozen=True)
class _Fragment:
    """One operand: a matrix of the shape, spread over the lanes.

    Elements narrower than a byte are taken by whole registers: `unit` of them, neighbours along k.
    """

    shape: Shape
    role: str
    element: ElementType

    @property
    def unit(self) -> int:
        return 1 if self.element.bits >= 8 else 32 // self.element.bits

    @property
    def bits(self) -> int:
        """Bits of a unit."""
        return self.element.bits * self.unit

    @property
    def registers(self) -> int:
        return registers(self.shape, self.role, self.element)

    @property
    def units(self) -> tuple[int, int]:
        """Rows and columns in units: along k a unit is one step."""
        rows, columns = extent(self.shape, self.role)
        return (rows // self.unit, columns) if self.role == "b" else (rows, columns // self.unit)

    def place(self) -> _Place:
        rows, columns = self.units
        per_lane = self.registers * max(32, self.element.bits) // self.bits
        number = np.arange(per_lane)[:, None] + np.arange(LANES) * per_lane
        number %= rows * columns
        if self.role == "b":
            return _Place(number % rows, number // rows)
        return _Place(number // columns, number % columns)

    def matrix(self, files: list[Array]) -> Array:
        """Registers as a matrix of words: k first for A and B."""
        rows, columns = self.units
        words = elements(files, self.element.bits if self.unit > 1 and self.element.bits == 1 else self.bits)
        place = self.place()
        full = np.empty((rows, columns, words.shape[-1]), words.dtype)
        full[place.rows.reshape(-1), place.columns.reshape(-1)] = words
        full = full.transpose(1, 0, 2) if self.role == "a" else full
        return _nibbles(full) if self.element.bits == 4 else np.ascontiguousarray(full)

    def files(self, matrix: Array) -> list[Array]:
        """A matrix (rows, columns, warps) as registers."""
        place = self.place()
        words = matrix[place.rows, place.columns]
        return packed(words.reshape(-1, matrix.shape[-1]), self.bits)


def _nibbles(words: Array) -> Array:
    """Words of eight 4-bit elements along the first axis, as bytes of one each."""
    shifts = (np.arange(8, dtype=np.uint32) * np.uint32(4))[:, None, None]
    nibbles = (words[:, None] >> shifts & np.uint32(0xF)).astype(np.uint8)
    return nibbles.reshape(-1, *words.shape[1:])


@meaning("wmma.mma")
def multiply(ctx: Context, bound: Bindings) -> Action:
    """D = A * B + C in the arithmetic of the target."""
    row = form(ctx, WmmaMma)
    sources = {o.name: words_of(ctx, operand, o) for o, operand in zip(row.operands, ctx.operands, strict=True)}
    compute = model(ctx, row)
    fragments = {role: _Fragment(row.shape, role, row.element(role)) for role in "abcd"}

    def work(
        state: State, d: list[Array], a: list[Array], b: list[Array], c: list[Array], sel: Selection,
        warps: Array | None,
    ) -> None:  # fmt: skip
        left, right, addend = (
            fragments[role].matrix([chosen(file, warps) for file in files])
            for role, files in (("a", a), ("b", b), ("c", c))
        )
        put(d, fragments["d"].files(compute(left, right, addend)), warps)

    return whole_warps(ctx, work, *(files_of(sources[role]) for role in "dabc"))


# Memory


FindAll: TypeAlias = Callable[[Selection], "list[tuple[Part, ...]]"]
"""The accesses of some threads, one element of each after the other."""


@dataclass(frozen=True)
class _Walk:
    """Where the elements of a fragment lie: the address, and the stride of rows or columns."""

    ctx: Context
    row: WmmaMove
    fragment: _Fragment
    address: Callable[[State], Callable[[Selection], Array]]
    stride: Source | None

    @staticmethod
    def of(ctx: Context, row: WmmaMove, fragment: _Fragment) -> _Walk:
        """The walk of a decoded instruction."""
        operands = ctx.operands
        where = operands[1 if row.loads else 0]
        address = ctx.address(where, np.uint32 if row.space.startswith("shared") else np.uint64)
        stride = ctx.source(operands[2], "u32") if len(operands) == 3 else None
        return _Walk(ctx, row, fragment, address, stride)

    def bind(self, state: State) -> FindAll:
        """The accesses of the selected threads, one element after the other.

        Raises:
            FaultError: if the address is not aligned for the fragment, or an element lies out of bounds.
        """
        address, stride = self.address(state), None if self.stride is None else self.stride(state)
        home = state.memory.shared if self.row.space.startswith("shared") else state.memory.memory
        kind = "load" if self.row.loads else "store"
        place, size = self.fragment.place(), self.fragment.bits // 8
        major, minor = (place.rows, place.columns) if self.row.layout == "row" else (place.columns, place.rows)

        def parts(sel: Selection) -> list[tuple[Part, ...]]:
            base, steps = self._aligned(address(sel), sel), self._steps(stride, sel)
            lanes = sel.pick(state.geometry.lane())
            every: list[tuple[Part, ...]] = []
            for line, at in zip(major, minor, strict=True):
                offset = line[lanes] * steps + at[lanes] * size
                every.append(home.parts(base + offset.astype(base.dtype), size, sel.lanes))
                tell(state.observer, self.ctx.pc, kind, every[-1], size, sel)
            return every

        return parts

    def _aligned(self, base: Array, sel: Selection) -> Array:
        multiple = alignment(self.row.shape, self.fragment.role, self.row.type)
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
            return np.int64(default_stride(row.shape, self.fragment.role, row.layout) * row.type.bits // 8)
        return sel.pick(stride).astype(np.int64) * row.type.bits // 8


@meaning("wmma.load")
def load(ctx: Context, bound: Bindings) -> Action:
    """A fragment from memory."""
    row, operands = form(ctx, WmmaMove), ctx.operands
    fragment = _Fragment(row.shape, row.role, row.type)
    register = "b64" if row.type.bits == 64 else "b32"
    dests = [ctx.dest(item, register) for item in ctx.items(operands[0])]

    def work(state: State, outs: list[Array], find: FindAll, sel: Selection, warps: Array | None) -> None:
        rows = [read_parts(parts, sel.count, fragment.bits // 8) for parts in find(sel)]
        words = np.stack(rows).reshape(len(rows) * LANES, -1)
        put(outs, packed(words, fragment.bits), warps)

    return whole_warps(ctx, work, files_of(dests), _Walk.of(ctx, row, fragment).bind)


@meaning("wmma.store")
def store(ctx: Context, bound: Bindings) -> Action:
    """A fragment to memory."""
    row, operands = form(ctx, WmmaMove), ctx.operands
    fragment = _Fragment(row.shape, row.role, row.type)
    (wanted,) = (o for o in row.operands if o.name == "r")
    sources = words_of(ctx, operands[1], wanted)

    def work(state: State, files: list[Array], find: FindAll, sel: Selection, warps: Array | None) -> None:
        words = elements([chosen(file, warps) for file in files], fragment.bits).reshape(-1, sel.count)
        for parts, values in zip(find(sel), words, strict=True):
            check_writable(parts)
            write_parts(parts, values)

    return whole_warps(ctx, work, files_of(sources), _Walk.of(ctx, row, fragment).bind)
