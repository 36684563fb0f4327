"""`mma` and `mma.sp`: PTX ISA 9.7.14.5.14 and 9.7.14.6.3.

What they compute is in `product`, where elements lie in the rows of `dialect.isa`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ....dialect.isa.form import Form, FormOperand
from ....dialect.isa.mma import Mma
from ....dialect.isa.mma_sp import MmaSparse
from ....dialect.isa.targets import TARGETS
from ....dialect.isa.wgmma import Wgmma
from ....dialect.isa.wmma import WmmaMma
from ....dialect.ptx.rows.grammar import Bindings
from ....dialect.ptx.rows.matrix import MatrixRow
from ....dialect.ptx.text.syntax import Immediate, Operand
from ...numerics.array import Array
from ...numerics.block_scale import scales
from ...numerics.product import MatrixProduct, SideOperands
from ...numerics.sparse import NibbleError, columns
from ..decode import Context, meaning
from ..errors import FaultError
from ..machine.state import Action, Source, State
from ..machine.threads import LANES, BoundStep, Selection
from .fragments import gather, scatter

F = TypeVar("F", bound=Form)


def form(ctx: Context, kind: type[F] | tuple[type[F], ...]) -> F:
    """The form that the instruction's row stands for, which the target has.

    Raises:
        TypeError: if it is of another kind.
    """
    found = ctx.row.form if isinstance(ctx.row, MatrixRow) else None
    if not isinstance(found, kind):
        raise TypeError(f"{ctx.instruction.opcode} is no form of {kind}")
    if ctx.target in TARGETS and not found.runs_on(TARGETS[ctx.target]):
        ctx.fail(f"it is not in {ctx.target}, it needs {found.requirement()}")
    return found


def model(ctx: Context, row: Mma | MmaSparse | Wgmma | WmmaMma) -> MatrixProduct:
    """What the instruction computes on the target."""
    try:
        return MatrixProduct.on(ctx.target, row)
    except ValueError as error:
        ctx.fail(str(error))


def words_of(ctx: Context, operand: Operand, wanted: FormOperand) -> list[Source]:
    """The registers of a fragment, as words; those of C, A and B may be literals, as in {0f00000000, ...}."""
    type = "b64" if wanted.type == "f64" else "b32"
    literal = wanted.type if wanted.type in ("f32", "f64") else type
    found: list[Source] = []
    for item in ctx.items(operand):
        if isinstance(item, Immediate) and wanted.name != "d":
            found.append(ctx.source(item, literal))
        else:
            ctx.slot(item)
            found.append((ctx.dest if wanted.name == "d" else ctx.source)(item, type))
    return found


def rows_of(register: Array) -> Array:
    """A register as 32 rows of warps."""
    return register.view(np.uint64 if register.itemsize == 8 else np.uint32).reshape(LANES, -1)


def chosen(register: Array, warps: Array | None) -> Array:
    """The part of a register that belongs to some warps (None: all)."""
    return register if warps is None else register[:, warps]


def put(outs: list[Array], values: list[Array], warps: Array | None) -> None:
    """Writes the registers of a fragment."""
    for out, value in zip(outs, values, strict=True):
        out[... if warps is None else np.s_[:, warps]] = value


def stored_columns(row: MmaSparse | Wgmma, words: Array, selector: int) -> Array:
    """Which column of A each stored element belongs to: see `numerics.sparse.columns`.

    Raises:
        FaultError: for metadata that means nothing.
    """
    try:
        return columns(row, words, selector)
    except NibbleError as error:
        raise FaultError(str(error), error.thread) from error


@dataclass(frozen=True, slots=True)
class _Scales:
    """The scales of A or B: the register that has them, and the selector."""

    role: str
    words: Source
    byte_id: int
    thread_id: int


def _scale_operands(ctx: Context, row: Mma | MmaSparse, operands: dict[str, Operand]) -> list[_Scales]:
    found: list[_Scales] = []
    for role in "ab" if row.scale else "":
        (word,) = ctx.items(operands[f"scale_{role}"])
        byte_id, thread_id = (ctx.integer(i) for i in ctx.items(operands[f"selector_{role}"]))
        found.append(_Scales(role, ctx.source(word, "b32"), byte_id, thread_id))
    return found


def _selector(ctx: Context, row: Mma | MmaSparse, operands: dict[str, Operand]) -> tuple[Source, int] | None:
    """The metadata and the sparsity selector."""
    if not isinstance(row, MmaSparse):
        return None
    (word,) = ctx.items(operands["e"])
    return ctx.source(word, "b32"), ctx.integer(operands["f"])


@meaning("mma")
def mma(ctx: Context, bound: Bindings) -> Action:
    """D = A * B + C in the arithmetic of the target."""
    row = form(ctx, (Mma, MmaSparse))
    operands = {wanted.name: given for wanted, given in zip(row.operands, ctx.operands, strict=True)}
    sources = {o.name: words_of(ctx, operands[o.name], o) for o in row.operands[:4]}
    sparse, scaled = _selector(ctx, row, operands), _scale_operands(ctx, row, operands)
    compute = model(ctx, row)

    def bind(state: State) -> BoundStep:
        files = {role: [rows_of(s(state)) for s in items] for role, items in sources.items()}
        more = _extras(row, state, sparse, scaled)

        def step(sel: Selection) -> None:
            warps = state.flow.check_whole_warps(sel, ctx.instruction.opcode)
            a, b, c = (
                gather([chosen(r, warps) for r in files[role]], row.layout(role), row.container_bits(role), role == "a")
                for role in "abc"
            )
            d = compute(a, b, c, more(warps))
            put(files["d"], scatter(d, row.layout("d"), row.d.bits), warps)

        return step

    return bind


def _extras(
    row: Mma | MmaSparse, state: State, sparse: tuple[Source, int] | None, scaled: list[_Scales]
) -> Callable[[Array | None], SideOperands | None]:
    """Reads metadata and scales."""
    if sparse is None and not scaled:
        return lambda warps: None
    metadata = None if sparse is None else rows_of(sparse[0](state))
    words = [rows_of(s.words(state)) for s in scaled]

    def read(warps: Array | None) -> SideOperands:
        where = None
        if isinstance(row, MmaSparse) and metadata is not None and sparse is not None:
            where = stored_columns(row, chosen(metadata, warps), sparse[1])
        found = [None, None] if row.scale is None else [
            scales(row.scale, s.role, chosen(w, warps), s.byte_id, s.thread_id)
            for s, w in zip(scaled, words, strict=True)
        ]  # fmt: skip
        return SideOperands(where, *found)

    return read
