"""Matrix instructions of a warp: PTX ISA 9.7.14.5.

What they compute is in `numerics`, where elements lie in `layout`.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ...dialect.isa.mma import BY_SPELLING, Mma
from ...dialect.isa.moves import LDMATRIX, LoadMatrix
from ...dialect.isa.targets import TARGETS
from ...dialect.layout import Layout
from ...dialect.ptx.syntax import Immediate, Operand, Register
from .access import locate
from .decode import Context, opcode
from .numerics import MmaModel
from .state import LANES, Action, Array, Selection, Source, State, Step
from .words import Modifiers

_LOADS = {row.spelling: row for row in LDMATRIX}


@cache
def _fragment_order(layout: Layout, rows: int, columns: int, transpose: bool) -> Array:
    """For each element of the matrix, row by row (or, transposed, column by column), where it lies among the words of
    a fragment written element by element, lane by lane."""
    places = layout.positions(rows, columns)
    row, column = places[..., 0], places[..., 1]
    target = column * rows + row if transpose else row * columns + column
    order = np.empty(rows * columns, np.intp)
    order[target.T.reshape(-1)] = np.arange(rows * columns)
    return order


def _halves(registers: list[Array]) -> Array:
    """32-bit registers (32 lanes, warps) as 16-bit elements (element, lane, warp), flat but for the warp."""
    words = np.stack(registers)
    elements = np.empty((len(registers), 2, *words.shape[1:]), np.uint16)
    elements[:, 0] = words
    elements[:, 1] = words >> np.uint32(16)
    return elements.reshape(-1, words.shape[-1])


def _gather(registers: list[Array], row: Mma, role: str) -> Array:
    """A fragment as a matrix of words, its first axis k for A and B, the last one warps."""
    m, n, k = row.shape
    rows, columns = {"a": (m, k), "b": (k, n)}.get(role, (m, n))
    narrow = row.element(role).bits == 16
    elements = _halves(registers) if narrow else np.concatenate(registers)
    order = _fragment_order(row.layout(role), rows, columns, role == "a")
    shape = (columns, rows) if role == "a" else (rows, columns)
    return elements.take(order, axis=0).reshape(*shape, -1)


def _scatter(matrix: Array, row: Mma) -> list[Array]:
    """The matrix D as registers (32 lanes, warps)."""
    m, n, _ = row.shape
    order = _fragment_order(row.layout("d"), m, n, False)
    elements = np.empty((m * n, matrix.shape[-1]), matrix.dtype)
    elements[order] = matrix.reshape(m * n, -1)
    places = elements.reshape(-1, LANES, matrix.shape[-1])
    if row.d.bits == 32:
        return list(places)
    return list(places[0::2] | places[1::2].astype(np.uint32) << np.uint32(16))


@opcode("mma")
def mma(ctx: Context, m: Modifiers) -> Action:
    """D = A * B + C in the arithmetic of the target."""
    row = BY_SPELLING.get(ctx.instruction.opcode)
    if row is None:
        ctx.fail(f"not supported; supported forms: {', '.join(BY_SPELLING)}")
    if ctx.core is None or (ctx.target in TARGETS and not row.runs_on(TARGETS[ctx.target])):
        ctx.fail(f"it is not in {ctx.target}, it needs sm_{row.sm} or later")
    m.words.clear()
    roles = dict(zip("dabc", ctx.take(4), strict=True))
    sources = {
        role: [_register(ctx, item, row, role) for item in ctx.vector(operand, row.registers(role))]
        for role, operand in roles.items()
    }
    model = MmaModel(row, ctx.core)

    def bind(state: State) -> Step:
        files = {role: [_rows(s(state)) for s in items] for role, items in sources.items()}

        def step(sel: Selection) -> None:
            warps = state.flow.check_whole_warps(sel, ctx.instruction.opcode)
            a, b, c = (_gather([_chosen(r, warps) for r in files[role]], row, role) for role in "abc")
            for out, values in zip(files["d"], _scatter(model(a, b, c), row), strict=True):
                out[... if warps is None else np.s_[:, warps]] = values

        return step

    return bind


def _register(ctx: Context, operand: Operand, row: Mma, role: str) -> Source:
    """A 32-bit register as words; C may be a literal, as in {0f00000000, ...}."""
    if isinstance(operand, Immediate) and role != "d":
        return ctx.source(operand, "f32" if row.element(role).name == "f32" else "b32")
    if not isinstance(operand, Register):
        ctx.fail(f"operand {role.upper()} must be made of registers")
    return ctx.source(operand, "b32")


def _rows(register: Array) -> Array:
    return register.view(np.uint32).reshape(LANES, -1)


def _chosen(register: Array, warps: Array | None) -> Array:
    return register if warps is None else register[:, warps]


@opcode("ldmatrix")
def ldmatrix(ctx: Context, m: Modifiers) -> Action:
    """Matrices of 8 rows of 16 bytes, whose addresses the lanes give."""
    row = _LOADS.get(ctx.instruction.opcode.replace("::cta", ""))
    if row is None:
        ctx.fail(f"not supported; supported forms: {', '.join(_LOADS)}")
    m.words.clear()
    d, where = ctx.take(2)
    dests = [ctx.dest(item, "b32") for item in ctx.vector(d, row.count)]
    place = locate(ctx, where, "shared")

    def bind(state: State) -> Step:
        outs, find = [_rows(dest(state)) for dest in dests], place(state)
        givers = np.arange(state.threads) < row.count * 8 * state.warps

        def step(sel: Selection) -> None:
            warps = state.flow.check_whole_warps(sel, ctx.instruction.opcode)
            (part,) = find(sel if row.count == 4 else sel.where(givers), 16)
            rows = part.buffer.view(8, 2).take(part.index, axis=0)
            for out, values in zip(outs, _arrange(rows, row), strict=True):
                out[... if warps is None else np.s_[:, warps]] = values

        return step

    return bind


@cache
def _load_order(row: LoadMatrix) -> tuple[Array, Array]:
    """The element numbers of an 8x8 matrix that go to the lower and upper half of each lane's register."""
    places = row.layout.positions()
    number = places[..., 0] * 8 + places[..., 1]
    return number[:, 0], number[:, 1]


def _arrange(rows: Array, row: LoadMatrix) -> Array:
    """Rows of 16 bytes, (8 * matrices * warps) x 2 words of 64 bits, as registers (matrix, lane, warp)."""
    elements = np.ascontiguousarray(rows).view(np.uint16).reshape(row.count, 8, -1, 8)
    flat = elements.transpose(0, 1, 3, 2).reshape(row.count, 64, -1)
    low, upper = _load_order(row)
    return flat[:, low] | flat[:, upper].astype(np.uint32) << np.uint32(16)
