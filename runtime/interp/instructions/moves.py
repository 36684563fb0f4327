"""Matrices between shared memory and registers: `ldmatrix`, `stmatrix`, `movmatrix`.

Source: PTX ISA 9.7.14.5.15 to .17; where elements lie is in the rows of `dialect.isa.moves`.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ....dialect.isa.moves import LoadMatrix, MoveMatrix, StoreMatrix
from ....dialect.ptx.rows.grammar import Bindings
from ...numerics.array import Array
from ..decode import Context, meaning
from ..machine.memory import check_writable
from ..machine.state import Action, State
from ..machine.threads import LANES, BoundStep, Selection
from .access import Locate, locate
from .fragments import gather, packed, scatter
from .matrix import chosen, form, put, rows_of

_ROW_BYTES = 16


def _space(row: LoadMatrix | StoreMatrix) -> str:
    return "shared" if row.space else "generic"


@meaning("ldmatrix")
def ldmatrix(ctx: Context, bound: Bindings) -> Action:
    """Matrices of rows of 16 bytes, whose addresses the lanes give."""
    row = form(ctx, LoadMatrix)
    d, where = ctx.operands
    dests = [ctx.dest(item, "b32") for item in ctx.items(d)]
    place = locate(ctx, where, _space(row), "load")

    def bind(state: State) -> BoundStep:
        outs, find = [rows_of(dest(state)) for dest in dests], place(state)
        givers = np.arange(state.threads) < row.addresses * state.warps

        def step(sel: Selection) -> None:
            warps = state.flow.check_whole_warps(sel, ctx.instruction.opcode)
            given = sel if row.addresses == LANES else sel.where(givers)
            put(outs, _arrange(_read(find, given), row), warps)

        return step

    return bind


def _read(find: Locate, sel: Selection) -> Array:
    """Rows of 16 bytes, one for each selected thread, as two words of 64 bits."""
    parts = find(sel, _ROW_BYTES)
    if len(parts) == 1 and parts[0].chosen is None:
        return parts[0].buffer.view(8, 2).take(parts[0].index, axis=0)
    rows = np.zeros((sel.count, 2), np.uint64)
    for part in parts:
        rows[... if part.chosen is None else part.chosen] = part.buffer.view(8, 2).take(part.index, axis=0)
    return rows


def _arrange(rows: Array, row: LoadMatrix) -> list[Array]:
    """Rows, (rows of all matrices * warps) x 2 words of 64 bits, as registers."""
    layout = row.layout
    words = np.ascontiguousarray(rows).view(np.uint16 if row.element_bits == 16 else np.uint8)
    if row.memory_bits != row.element_bits:
        words = _unpacked(words, row.memory_bits)
    elements = words.reshape(row.count, layout.rows, -1, layout.columns).transpose(0, 1, 3, 2)
    flat = elements.reshape(row.count, layout.rows * layout.columns, -1)
    order = _load_order(row)
    return [r for matrix in flat for r in packed(matrix.take(order, axis=0), row.element_bits)]


def _unpacked(rows: Array, bits: int) -> Array:
    """Sixteen elements of `bits` bits from the low end of each row of 16 bytes, a byte each."""
    words = np.ascontiguousarray(rows.reshape(-1, _ROW_BYTES)).view(np.uint64)
    low, upper = words[:, :1], words[:, 1:]
    at = np.arange(16, dtype=np.uint64) * np.uint64(bits)
    shift = at & np.uint64(63)
    found = np.where(at < 64, low >> shift, upper >> shift)
    # An element may begin in the one word and end in the other.
    crossing = (at < 64) & (shift + np.uint64(bits) > np.uint64(64))
    over = upper << (np.uint64(64) - np.maximum(shift, np.uint64(1)))
    found = np.where(crossing, found | over, found)
    return (found & np.uint64((1 << bits) - 1)).astype(np.uint8)


@cache
def _load_order(row: LoadMatrix | StoreMatrix) -> Array:
    """The element numbers of a matrix, row by row, in the order of the fragment: element by element, lane by lane."""
    places = row.layout.positions()
    return (places[..., 0] * row.layout.columns + places[..., 1]).T.reshape(-1)


@meaning("stmatrix")
def stmatrix(ctx: Context, bound: Bindings) -> Action:
    """Matrices of rows of 16 bytes, to addresses that the lanes give."""
    row = form(ctx, StoreMatrix)
    where, r = ctx.operands
    sources = [ctx.source(item, "b32") for item in ctx.items(r)]
    place = locate(ctx, where, _space(row), "store")

    def bind(state: State) -> BoundStep:
        files, find = [rows_of(source(state)) for source in sources], place(state)
        givers = np.arange(state.threads) < row.addresses * state.warps

        def step(sel: Selection) -> None:
            warps = state.flow.check_whole_warps(sel, ctx.instruction.opcode)
            rows = _rows([chosen(file, warps) for file in files], row)
            parts = find(sel if row.addresses == LANES else sel.where(givers), _ROW_BYTES)
            check_writable(parts)
            for part in parts:
                part.buffer.view(8, 2)[part.index] = rows if part.chosen is None else rows[part.chosen]

        return step

    return bind


def _rows(registers: list[Array], row: StoreMatrix) -> Array:
    """Registers as rows of 16 bytes, (rows of all matrices * warps) x 2 words of 64 bits."""
    layout = row.layout
    each = len(registers) // row.count
    matrices = [
        gather(registers[i : i + each], layout, row.element_bits, False) for i in range(0, len(registers), each)
    ]
    elements = np.stack(matrices).reshape(row.count * layout.rows, layout.columns, -1)
    return np.ascontiguousarray(elements.transpose(0, 2, 1)).reshape(-1, layout.columns).view(np.uint64)


@meaning("movmatrix")
def movmatrix(ctx: Context, bound: Bindings) -> Action:
    """Transposes an 8x8 matrix of 16-bit elements."""
    row = form(ctx, MoveMatrix)
    d, a = ctx.operands
    dest, source = ctx.dest(d, "b32"), ctx.source(a, "b32")

    def bind(state: State) -> BoundStep:
        out, register = rows_of(dest(state)), rows_of(source(state))

        def step(sel: Selection) -> None:
            warps = state.flow.check_whole_warps(sel, ctx.instruction.opcode)
            matrix = gather([chosen(register, warps)], row.source, 16, False)
            put([out], scatter(matrix, row.layout, 16), warps)

        return step

    return bind
