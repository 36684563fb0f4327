"""`mma`, `mma.sp`, `wmma`, `ldmatrix`, `stmatrix`, `movmatrix`. PTX ISA 9.7.14.4 to .6."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from ....dialect.isa.form import ElementType, Form, Shape
from ....dialect.isa.mma import LoadMatrix, Mma, MoveMatrix, StoreMatrix
from ....dialect.isa.row import TARGETS, Bindings, Slot
from ....dialect.isa.wgmma import Wgmma
from ....dialect.isa.wmma import WmmaMma, WmmaMove, alignment, default_stride, extent
from ....dialect.isa.wmma import registers as registers_of
from ....dialect.layouts.layout import Bit, Layout
from ....dialect.ptx.text.syntax import Immediate, Operand
from ...numerics.floats import Array
from ...numerics.fused_sum import scales
from ...numerics.product import MatrixProduct, SideOperands
from ..machine.decode import Context, Multiply, meaning
from ..machine.events import LANES, Selection, tell
from ..machine.memory import FaultError, Part, check_writable, read_parts, thread_of, write_parts
from ..machine.state import Action, Source, State, acting
from .access import Locate, locate

# Fragments in registers, as matrices and back.
#
# A register is an array of 32 lanes x warps. A matrix has its elements' words and, last, the warps; that of A has k
# first, like that of B. Elements of 4 and 8 bits come as bytes; single bits stay together, 32 of a row (of a column,
# for B) in a word. Where a warp computes several products side by side, they count as so many warps.


class ElementOrder(NamedTuple):
    """For each element of a matrix, row by row, product after product, where it lies among the words of a fragment
    written element by element, lane by lane; for each of these words, which element it is; the shape of the matrix."""

    words: Array
    elements: Array
    shape: tuple[int, int, int]


@cache
def order_of(layout: Layout, transpose: bool = False, step: int = 1) -> ElementOrder:
    """The order of a fragment; with `transpose` that of the matrix is column by column. Of every `step` elements, which
    follow each other along the first axis, the first stands for all."""
    places = [[layout.coordinates(t, e) for t in range(layout.threads)] for e in range(0, layout.elements, step)]
    q, r, c = (np.array([[p[axis] for p in element] for element in places]) for axis in "qrc")
    if transpose:
        r, c = c, r
    r = r // step
    shape = (int(r.max()) + 1, int(c.max()) + 1, int(q.max()) + 1)
    numbers = ((r * shape[1] + c) * shape[2] + q).reshape(-1)
    words = np.empty(shape[0] * shape[1] * shape[2], np.intp)
    words[numbers] = np.arange(numbers.size)
    return ElementOrder(words, numbers, shape)


def elements(registers: list[Array], bits: int) -> Array:
    """The words of elements of `bits` bits, element by element, lane by lane: (elements * lanes, warps)."""
    if bits >= 32 or bits == 1:
        return np.concatenate(registers)
    words = np.stack(registers)
    count = 32 // bits
    kind = np.uint16 if bits == 16 else np.uint8
    words_ = np.empty((len(registers), count, *words.shape[1:]), kind)
    mask = np.uint32((1 << bits) - 1)
    for i in range(count):
        shifted = words >> np.uint32(i * bits) if i else words
        words_[:, i] = shifted & mask if bits < 8 else shifted
    return words_.reshape(-1, words.shape[-1])


def packed(words: Array, bits: int, threads: int = LANES) -> list[Array]:
    """Elements, (elements * threads, warps), as the registers that hold them."""
    places = words.reshape(-1, threads, words.shape[-1])
    if bits >= 32:
        return list(places)
    count = 32 // bits
    return [
        np.bitwise_or.reduce([p.astype(np.uint32) << np.uint32(j * bits) for j, p in enumerate(places[i : i + count])])
        for i in range(0, len(places), count)
    ]


def gather(registers: list[Array], layout: Layout, bits: int, transpose: bool) -> Array:
    """A fragment as a matrix; `transpose` puts its columns first."""
    order = order_of(layout, transpose, 32 if bits == 1 else 1)
    rows, columns, products = order.shape
    matrix = elements(registers, bits).take(order.words, axis=0)
    return matrix.reshape(rows, columns, products * matrix.shape[-1])


def scatter(matrix: Array, layout: Layout, bits: int) -> list[Array]:
    """A matrix as the registers of its fragment."""
    order = order_of(layout)
    words = matrix.reshape(-1, matrix.shape[-1] // order.shape[2]).take(order.elements, axis=0)
    return packed(words, bits)


# `mma`, `mma.sp` and `wmma.mma`: PTX ISA 9.7.14.5.14, 9.7.14.6.3, 9.7.14.4.5.
#
# What they compute is in `product`, where elements lie in the rows of `dialect.isa`.

F = TypeVar("F", bound=Form)


def form(ctx: Context, kind: type[F] | tuple[type[F], ...]) -> F:
    """The form that the instruction's row stands for, which the target has. Raises TypeError if it is of another
    kind."""
    row = ctx.row
    if not isinstance(row, kind):
        raise TypeError(f"{ctx.instruction.opcode} is no form of {kind}")
    if ctx.target in TARGETS and not row.runs_on(TARGETS[ctx.target]):
        ctx.fail(f"it is not in {ctx.target}, it needs {row.requirement()}")
    return row


def model(ctx: Context, row: Mma | Wgmma | WmmaMma) -> Multiply:
    """What the instruction computes on the target."""
    if ctx.multiply is not None:
        return ctx.multiply
    try:
        return MatrixProduct.on(ctx.target, row)
    except ValueError as error:
        ctx.fail(str(error))


def words_of(ctx: Context, operand: Operand, wanted: Slot) -> list[Source]:
    """The registers of a fragment, as words; those of C, A and B may be literals, as in {0f00000000, ...}."""
    type = "b64" if wanted.type == "f64" else "b32"
    literal = wanted.type if wanted.type in ("f32", "f64") else type
    sources: list[Source] = []
    for item in ctx.items(operand):
        if isinstance(item, Immediate) and wanted.name != "d":
            sources.append(ctx.source(item, literal))
        else:
            ctx.slot(item)
            sources.append((ctx.dest if wanted.name == "d" else ctx.source)(item, type))
    return sources


def rows_of(register: Array) -> Array:
    """A register as 32 rows of warps."""
    return register.view(np.uint64 if register.itemsize == 8 else np.uint32).reshape(LANES, -1)


def chosen(register: Array, warps: Array | None) -> Array:
    """The columns of a register that belong to `warps`; None stands for all."""
    return register if warps is None else register[:, warps]


def files_of(sources: Sequence[Source]) -> Callable[[State], list[Array]]:
    """The registers of a fragment, each as rows of warps."""
    return lambda state: [rows_of(source(state)) for source in sources]


def whole_warps(ctx: Context, work: Callable[..., None], *bound: Callable[[State], Any]) -> Action:
    """Returns the action of an instruction that warps execute as a whole. `work` is called with a step's arguments
    and the numbers of these warps; None stands for all warps. Raises FaultError if some lanes of a warp do not
    execute it."""
    what = ctx.instruction.opcode

    def step(state: State, *operands: Any) -> None:
        work(state, *operands, state.flow.check_whole_warps(operands[-1], what))

    return acting(step, *bound)


def uniform(state: State, register: Array, agents: Array, together: int, what: str) -> Array:
    """A value that all lanes of each warp, or of each group of `together` warps, agree on. Raises FaultError if they do
    not."""
    values = register.reshape(LANES, -1, together)[:, agents]
    first = values[0, :, 0].copy()
    other = values != first[:, None]
    if other.any():
        lane, agent, warp = (int(i[0]) for i in np.nonzero(other))
        whose = "lanes of a warp" if together == 1 else "threads of a warpgroup"
        thread = lane * state.warps + int(agents[agent]) * together + warp
        raise FaultError(f"operand {what} must be the same in all {whose}", thread)
    return first


def put(outs: list[Array], values: list[Array], warps: Array | None) -> None:
    """Writes the registers of a fragment."""
    for out, value in zip(outs, values, strict=True):
        out[... if warps is None else np.s_[:, warps]] = value


def stored_columns(row: Mma | Wgmma, words: Array, selector: int) -> Array:
    """Which column of A each stored element belongs to: see `numerics.sparse`. Raises FaultError for metadata that
    means nothing."""
    from ...numerics.sparse import NibbleError, columns  # of which dense products have no use

    try:
        return columns(row, words, selector)
    except NibbleError as error:
        raise FaultError(str(error), error.thread) from error


@cache
def arrangement(shape: Shape, role: str, element: ElementType) -> Layout:
    """Which lane holds which elements of an operand of `wmma` here (see below), copies of a small matrix included."""
    rows, columns = (size.bit_length() - 1 for size in extent(shape, role))
    matrix_bits = (registers_of(shape, role, element) * max(32, element.bits) // element.bits).bit_length() - 1
    of_rows, of_columns = ([Bit(axis, i) for i in range(n)] for axis, n in (("r", rows), ("c", columns)))
    bits = [*of_rows, *of_columns] if role == "b" else [*of_columns, *of_rows]
    bits += [Bit("x", i) for i in range(matrix_bits + LANES.bit_length() - 1 - len(bits))]
    return Layout(tuple(bits[matrix_bits:]), tuple(bits[:matrix_bits]))


@meaning("mma", "wmma.mma")
def multiply(ctx: Context, bound: Bindings) -> Action:
    """D = A * B + C in the arithmetic of the target."""
    row = form(ctx, (Mma, WmmaMma))
    operands = {wanted.name: operand for wanted, operand in zip(row.operands, ctx.operands, strict=True)}
    sources = {o.name: words_of(ctx, operands[o.name], o) for o in row.operands[:4]}
    sides = _sides(ctx, row, operands) if isinstance(row, Mma) and (row.sparse or row.scale) else _no_sides
    layouts = {
        role: row.layout(role) if isinstance(row, Mma) else arrangement(row.shape, role, row.element(role))
        for role in "abcd"
    }
    compute = model(ctx, row)

    def matrix(files: list[Array], role: str, warps: Array | None) -> Array:
        registers = [chosen(file, warps) for file in files]
        return gather(registers, layouts[role], row.container_bits(role), role == "a")

    def work(
        state: State, d: list[Array], a: list[Array], b: list[Array], c: list[Array], more: ReadSides, sel: Selection,
        warps: Array | None,
    ) -> None:  # fmt: skip
        left, right, addend = (matrix(files, role, warps) for files, role in ((a, "a"), (b, "b"), (c, "c")))
        put(d, scatter(compute(left, right, addend, more(warps)), layouts["d"], row.d.bits), warps)

    return whole_warps(ctx, work, *(files_of(sources[role]) for role in "dabc"), sides)


ReadSides: TypeAlias = Callable[["Array | None"], "SideOperands | None"]
"""The metadata and scales of some warps (None: all)."""


def _no_sides(state: State) -> ReadSides:
    return lambda warps: None


def _sides(ctx: Context, row: Mma, operands: dict[str, Operand]) -> Callable[[State], ReadSides]:
    """Reads the metadata of a sparse A, and the scales of A and B, with what selects among them."""
    given = [name for name in ("e", "scale_a", "scale_b") if name in operands]
    sources = {name: ctx.source(ctx.items(operands[name])[0], "b32") for name in given}
    selectors = {
        role: [ctx.integer(item) for item in ctx.items(operands[f"selector_{role}"])]
        for role in "ab" if row.scale
    }  # fmt: skip
    column = ctx.integer(operands["f"]) if row.sparse else 0

    def bind(state: State) -> ReadSides:
        files = {name: rows_of(source(state)) for name, source in sources.items()}

        def read(warps: Array | None) -> SideOperands:
            words = {name: chosen(file, warps) for name, file in files.items()}
            where = stored_columns(row, words["e"], column) if row.sparse else None
            tables = [None, None] if row.scale is None else [
                scales(row.scale, role, words[f"scale_{role}"], *selectors[role]) for role in "ab"
            ]  # fmt: skip
            return SideOperands(where, *tables)

        return read

    return bind


# Matrices between shared memory and registers: `ldmatrix`, `stmatrix`, `movmatrix`.
#
# Source: PTX ISA 9.7.14.5.15 to .17; where elements lie is in the rows of `dialect.isa.mma`.

_ROW_BYTES = 16


def _space(row: LoadMatrix | StoreMatrix) -> str:
    return "shared" if row.space else "generic"


@meaning("ldmatrix")
def ldmatrix(ctx: Context, bound: Bindings) -> Action:
    """Matrices of rows of 16 bytes, whose addresses the lanes give."""
    row = form(ctx, LoadMatrix)
    if row.source == "s4":
        ctx.fail("not supported: how integers of 4 bits lie in a row is not known")
    d, where = ctx.operands
    dests = [ctx.dest(item, "b32") for item in ctx.items(d)]

    def work(state: State, outs: list[Array], find: Locate, givers: Array, sel: Selection, warps: Array | None) -> None:
        givers_ = sel if row.addresses == LANES else sel.where(givers)
        put(outs, _arrange(read_parts(find(givers_, _ROW_BYTES), givers_.count, 8, 2), row), warps)

    return whole_warps(ctx, work, files_of(dests), locate(ctx, where, _space(row), "load"), _givers(row))


def _givers(row: LoadMatrix | StoreMatrix) -> Source:
    """A mask of the threads that give addresses."""
    return lambda state: np.arange(state.threads) < row.addresses * state.warps


def _arrange(rows: Array, row: LoadMatrix) -> list[Array]:
    """Rows, (rows of all matrices * warps) x 2 words of 64 bits, as registers."""
    layout = row.layout
    words = np.ascontiguousarray(rows).view(np.uint16 if row.element_bits == 16 else np.uint8)
    if row.memory_bits != row.element_bits:
        words = _unpacked(words, row.memory_bits)
    elements = words.reshape(row.count, layout.rows, -1, layout.columns).transpose(0, 1, 3, 2)
    return [r for matrix in np.ascontiguousarray(elements) for r in scatter(matrix, layout, row.element_bits)]


def _unpacked(rows: Array, bits: int) -> Array:
    """Sixteen elements of `bits` bits from the low end of each row of 16 bytes, a byte each."""
    data, (first, shift) = rows.reshape(-1, _ROW_BYTES).astype(np.uint16), np.divmod(np.arange(16) * bits, 8)
    pairs = data[:, first] | data[:, first + 1] << np.uint16(8)  # an element may begin in one byte and end in the next
    return (pairs >> shift.astype(np.uint16) & np.uint16((1 << bits) - 1)).astype(np.uint8)


@meaning("stmatrix")
def stmatrix(ctx: Context, bound: Bindings) -> Action:
    """Matrices of rows of 16 bytes, to addresses that the lanes give."""
    row = form(ctx, StoreMatrix)
    where, r = ctx.operands
    sources = [ctx.source(item, "b32") for item in ctx.items(r)]

    def work(
        state: State, files: list[Array], find: Locate, givers: Array, sel: Selection, warps: Array | None
    ) -> None:
        rows = _rows([chosen(file, warps) for file in files], row)
        parts = find(sel if row.addresses == LANES else sel.where(givers), _ROW_BYTES)
        check_writable(parts)
        write_parts(parts, rows)

    return whole_warps(ctx, work, files_of(sources), locate(ctx, where, _space(row), "store"), _givers(row))


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

    def work(state: State, outs: list[Array], files: list[Array], sel: Selection, warps: Array | None) -> None:
        matrix = gather([chosen(file, warps) for file in files], row.source, 16, False)
        put(outs, scatter(matrix, row.layout, 16), warps)

    return whole_warps(ctx, work, files_of([ctx.dest(d, "b32")]), files_of([ctx.source(a, "b32")]))


# Fragments of `wmma` and memory: `wmma.load`, `wmma.store`. PTX ISA 9.7.14.4.
#
# The ISA leaves open which lane holds which element of a `wmma` fragment. Here the lanes hold a matrix row by row, one
# run of elements after the other (of B, column by column); where registers hold more than the matrix, it repeats. That
# is not the silicon's layout: a program that counts on the places of elements runs differently on a GPU. Fragments of C
# and D of one shape agree in it, whatever their types.
#
# What `wmma.mma` computes is what `mma` does with the same types and as many products, but for tf32 (see `parameters`).
# Where one of C and D is f16 and the other f32, the sum is f32: C is widened before, or D rounded to nearest after. An
# H200's recorded words of all forms replay without a difference.


def _together(element: ElementType) -> int:
    """Elements, neighbours along k, that memory and registers have in one word: those narrower than a byte."""
    return 1 if element.bits >= 8 else 32 // element.bits


@cache
def _words_of_lanes(layout: Layout, together: int) -> Array:
    """Rows and columns of each lane's words: (2, words, 32 lanes)."""
    each = range(0, layout.elements, together)
    return np.array([[layout.position(lane, e) for lane in range(LANES)] for e in each]).transpose(2, 0, 1)


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
        places = _words_of_lanes(arrangement(self.row.shape, self.row.role, self.row.type), together)
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
    move, operands = form(ctx, WmmaMove), ctx.operands
    (wanted,) = (o for o in move.operands if o.name == "r")
    sources = words_of(ctx, operands[1], wanted)

    def work(state: State, files: list[Array], find: FindAll, sel: Selection, warps: Array | None) -> None:
        words = elements([chosen(file, warps) for file in files], _word_bits(move)).reshape(-1, sel.count)
        for parts, values in zip(find(sel), words, strict=True):
            check_writable(parts)
            write_parts(parts, values)

    return whole_warps(ctx, work, files_of(sources), _Walk(ctx, move).bind)
