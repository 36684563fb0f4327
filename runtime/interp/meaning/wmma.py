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

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ....dialect.isa.row import Bindings
from ....dialect.isa.types import ElementType
from ....dialect.isa.wmma import Shape, WmmaLoad, WmmaMma, WmmaStore, alignment, default_stride, extent, registers
from ....dialect.ptx.text.syntax import Operand
from ...numerics.array import Array
from ..machine.decode import Context, meaning
from ..machine.events import LANES, BoundStep, Selection, tell
from ..machine.memory import FaultError, GlobalBuffers, Part, Window, check_writable
from ..machine.state import Action, Source, State
from .matrix import chosen, elements, form, model, packed, put, rows_of, words_of

_WORDS: dict[int, type[np.generic]] = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


class _Place(NamedTuple):
    """Rows and columns of the elements that each lane holds: arrays (elements, 32 lanes)."""

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
    found = (words[:, None] >> shifts & np.uint32(0xF)).astype(np.uint8)
    return found.reshape(-1, *words.shape[1:])


@meaning("wmma.mma")
def multiply(ctx: Context, bound: Bindings) -> Action:
    """D = A * B + C in the arithmetic of the target."""
    row = form(ctx, WmmaMma)
    sources = {o.name: words_of(ctx, given, o) for o, given in zip(row.operands, ctx.operands, strict=True)}
    compute = model(ctx, row)
    fragments = {role: _Fragment(row.shape, role, row.element(role)) for role in "abcd"}

    def bind(state: State) -> BoundStep:
        files = {role: [rows_of(s(state)) for s in items] for role, items in sources.items()}

        def step(sel: Selection) -> None:
            warps = state.flow.check_whole_warps(sel, ctx.instruction.opcode)
            a, b, c = (fragments[role].matrix([chosen(r, warps) for r in files[role]]) for role in "abc")
            put(files["d"], fragments["d"].files(compute(a, b, c)), warps)

        return step

    return bind


# Memory


def _addresses(ctx: Context, row: WmmaLoad | WmmaStore, role: str, operands: tuple[Operand, ...]) -> _Walk:
    """Where the elements lie: the address, and the stride of rows or columns."""
    stride = ctx.source(operands[2], "u32") if len(operands) == 3 else None
    space = row.space.partition("::")[0] or "generic"
    where = operands[0 if isinstance(row, WmmaStore) else 1]
    address = ctx.address(where, np.uint32 if space == "shared" else np.uint64)
    return _Walk(ctx, row, role, space, address, stride)


@dataclass(frozen=True)
class _Walk:
    """The addresses of a fragment's elements."""

    ctx: Context
    row: WmmaLoad | WmmaStore
    role: str
    space: str
    address: Any
    stride: Source | None

    @property
    def fragment(self) -> _Fragment:
        return _Fragment(self.row.shape, self.role, self.row.type)

    def bind(self, state: State) -> _Bound:
        home = state.memory.shared if self.space == "shared" else state.memory.memory
        stride = None if self.stride is None else self.stride(state)
        return _Bound(self, state, home, self.address(state), stride)


@dataclass(frozen=True)
class _Bound:
    walk: _Walk
    state: State
    home: Window | GlobalBuffers
    address: Any
    stride: Array | None

    def parts(self, sel: Selection) -> list[tuple[Part, ...]]:
        """The accesses of the selected threads, one element after the other.

        Raises:
            FaultError: if the address is not aligned for the fragment, or an element lies out of bounds.
        """
        walk, fragment = self.walk, self.walk.fragment
        base, steps = self._base(sel), self._steps(sel)
        lanes = np.repeat(np.arange(LANES), self.state.warps)
        lanes = lanes if sel.lanes is None else lanes[sel.lanes]
        place = fragment.place()
        along_rows = walk.row.layout == "row"
        major, minor = (place.rows, place.columns) if along_rows else (place.columns, place.rows)
        bytes_ = fragment.bits // 8
        kind = "load" if isinstance(walk.row, WmmaLoad) else "store"
        found: list[tuple[Part, ...]] = []
        for i in range(len(major)):
            offset = major[i][lanes] * steps + minor[i][lanes] * bytes_
            parts = self.home.parts(base + offset.astype(base.dtype), bytes_, sel.lanes)
            tell(self.state.observer, walk.ctx.pc, kind, parts, bytes_, sel)
            found.append(parts)
        return found

    def _base(self, sel: Selection) -> Array:
        row, role = self.walk.row, self.walk.role
        base = self.address(sel)
        multiple = alignment(row.shape, role, row.type)
        bad = np.flatnonzero(base % base.dtype.type(multiple))
        if bad.size:
            thread = int(bad[0]) if sel.lanes is None else int(sel.lanes[bad[0]])
            address = int(base[bad[0]])
            raise FaultError(f"address {address:#x} is not a multiple of {multiple} bytes", thread, address)
        return base

    def _steps(self, sel: Selection) -> Array | np.int64:
        """Bytes from one row, or column, to the next."""
        row, role = self.walk.row, self.walk.role
        if self.stride is None:
            return np.int64(default_stride(row.shape, role, row.layout) * row.type.bits // 8)
        return sel.pick(self.stride).astype(np.int64) * row.type.bits // 8


@meaning("wmma.load")
def load(ctx: Context, bound: Bindings) -> Action:
    """A fragment from memory."""
    row, operands = form(ctx, WmmaLoad), ctx.operands
    fragment = _Fragment(row.shape, row.role, row.type)
    register = "b64" if row.type.bits == 64 else "b32"
    dests = [ctx.dest(item, register) for item in ctx.items(operands[0])]
    walk = _addresses(ctx, row, row.role, operands)

    def bind(state: State) -> BoundStep:
        outs, bound = [rows_of(dest(state)) for dest in dests], walk.bind(state)

        def step(sel: Selection) -> None:
            warps = state.flow.check_whole_warps(sel, ctx.instruction.opcode)
            rows = [_read(parts, sel.count, fragment.bits) for parts in bound.parts(sel)]
            words = np.stack(rows).reshape(len(rows) * LANES, -1)
            put(outs, packed(words, fragment.bits), warps)

        return step

    return bind


def _read(parts: tuple[Part, ...], count: int, bits: int) -> Array:
    values = np.zeros(count, _WORDS[bits])
    for part in parts:
        values[... if part.chosen is None else part.chosen] = part.buffer.view(bits // 8)[part.index]
    return values


@meaning("wmma.store")
def store(ctx: Context, bound: Bindings) -> Action:
    """A fragment to memory."""
    row, operands = form(ctx, WmmaStore), ctx.operands
    fragment = _Fragment(row.shape, "d", row.type)
    (wanted,) = (o for o in row.operands if o.name == "r")
    sources = words_of(ctx, operands[1], wanted)
    walk = _addresses(ctx, row, "d", operands)

    def bind(state: State) -> BoundStep:
        files, bound = [rows_of(source(state)) for source in sources], walk.bind(state)

        def step(sel: Selection) -> None:
            warps = state.flow.check_whole_warps(sel, ctx.instruction.opcode)
            words = elements([chosen(file, warps) for file in files], fragment.bits)
            words = words.reshape(-1, sel.count)
            for parts, values in zip(bound.parts(sel), words, strict=True):
                check_writable(parts)
                for part in parts:
                    view = part.buffer.view(fragment.bits // 8)
                    view[part.index] = values if part.chosen is None else values[part.chosen]

        return step

    return bind
