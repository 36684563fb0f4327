"""Asynchronous products of warpgroups: `wgmma.mma_async`, its fence and its groups. PTX ISA 9.7.15.

A product is executed when a `wgmma.wait_group` covers it, which is as late as it may be: what is in its registers and
in shared memory then is what it takes, and until then its results are not there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ....dialect.isa.row import CONSTANT, DESCRIPTOR, Bindings
from ....dialect.isa.wgmma import UNIT, WARPS, DescriptorError, M, MatrixDescriptor, Wgmma
from ....dialect.ptx.text.syntax import Immediate, Vector
from ...numerics.floats import Array
from ...numerics.product import SideOperands
from ..machine.decode import Context, meaning
from ..machine.events import LANES, MemoryAccess, Selection, TileUnits
from ..machine.flow import parted
from ..machine.memory import FaultError
from ..machine.state import Action, Source, State, acting
from .matrix import elements, form, gather, model, order_of, packed, rows_of, stored_columns, uniform

# Matrices in shared memory, by their descriptors: of products of warpgroups, and of those in tensor memory.


class SharedMatrix(NamedTuple):
    """A matrix (k, mn) of elements of `size` bytes in the shared memory of a CTA, that a thread names by a word."""

    how: type[MatrixDescriptor]
    word: int
    shape: tuple[int, int]
    size: int
    along_mn: bool

    def places(self, limit: int, thread: int, name: str = "") -> Array:
        """Where the elements lie, in units of an element; `limit` is the size of shared memory in bytes. Raises
        FaultError for a word that is no descriptor, or a matrix that leaves shared memory."""
        try:
            places = _places(self)
        except DescriptorError as error:
            raise FaultError(f"{name}{error}", thread) from None
        last = (int(places.max()) + 1) * self.size - 1
        if last < limit:
            return places
        text = f"the matrix descriptor reaches byte {last:#x} of shared memory, which has {limit} bytes"
        raise FaultError(f"{name}{text}", thread, last)


@lru_cache(512)
def _places(matrix: SharedMatrix) -> Array:
    how = matrix.how.decode(matrix.word)
    k, mn = (np.arange(extent, dtype=np.int64) for extent in matrix.shape)
    offsets = how.offset(mn[None], k[:, None], matrix.size, along_mn=matrix.along_mn)
    return how.swizzled(offsets + how.address) // matrix.size


def tile_of(how: MatrixDescriptor, places: Array, along_mn: bool) -> TileUnits:
    """A matrix (k, mn) whose elements lie at some bytes of a buffer."""
    rows = places if along_mn else places.T
    return TileUnits(how, rows[:, :: UNIT // int(rows[0, 1] - rows[0, 0])] // UNIT)


# The instructions.


def _groups(state: State, sel: Selection, what: str) -> Array:
    """The warpgroups that execute an instruction. Raises FaultError if not all threads of a warpgroup execute it."""
    warps = state.flow.check_whole_warps(sel, what)
    per_cta = state.geometry.warps_per_cta
    chosen = np.full(state.warps, warps is None)
    if warps is not None:
        chosen[warps] = True
    some = chosen.reshape(-1, WARPS)
    apart = some.any(axis=1) & ~some.all(axis=1)
    if apart.any():
        group = int(np.flatnonzero(apart)[0])
        missing, has = WARPS * group + int(np.flatnonzero(~some[group])[0]), state.geometry.warps_with_threads
        if missing % per_cta >= has:
            first = WARPS * group + int(np.flatnonzero(some[group])[0])
            raise FaultError(f"{what} takes warpgroups of {WARPS} warps; the CTA has {has} warps", first)
        raise FaultError(parted(what, missing % per_cta), missing)
    return np.flatnonzero(some[:, 0])


def _warps(groups: Array) -> Array:
    return (groups[:, None] * WARPS + np.arange(WARPS)).reshape(-1)


@meaning("wgmma.fence")
def fence(ctx: Context, bound: Bindings) -> Action:
    """`wgmma.fence`. It checks the warps and does nothing else, for products read their registers later than it."""
    what = ctx.instruction.opcode

    def step(state: State, sel: Selection) -> None:
        _groups(state, sel, what)

    return acting(step)


@meaning("setmaxnreg")
def setmaxnreg(ctx: Context, bound: Bindings) -> Action:
    """`setmaxnreg`. Registers are not counted here, but by a check. Triton lets the four warps of a warpgroup reach
    different instructions of it, so each warp executes it alone."""
    what = ctx.instruction.opcode

    def step(state: State, sel: Selection) -> None:
        state.flow.check_whole_warps(sel, what)

    return acting(step)


@meaning("wgmma.commit_group")
def commit_group(ctx: Context, bound: Bindings) -> Action:
    """Closes a group of products."""
    what = ctx.instruction.opcode
    return lambda state: lambda sel: state.warpgroups.commit(_groups(state, sel, what))


@meaning("wgmma.wait_group")
def wait_group(ctx: Context, bound: Bindings) -> Action:
    """`wgmma.wait_group`: waits until at most N groups are pending."""
    what, keep = ctx.instruction.opcode, ctx.integer(ctx.operands[0])
    return lambda state: lambda sel: state.warpgroups.wait(_groups(state, sel, what), keep)


@meaning("wgmma.mma_async")
def mma_async(ctx: Context, bound: Bindings) -> Action:
    """D = A * B + D, later."""
    instruction = _Instruction(ctx)

    def step(state: State, run: Callable[[Array], Callable[[Array], None]], sel: Selection) -> None:
        groups = _groups(state, sel, instruction.opcode)
        state.warpgroups.issue(groups, run(groups))

    return acting(step, instruction.bind)


class _Instruction:
    """One `wgmma.mma_async` decoded: its operands by name."""

    def __init__(self, ctx: Context) -> None:
        self.opcode, self.pc, self.row = ctx.instruction.opcode, ctx.pc, form(ctx, Wgmma)
        self.compute = model(ctx, self.row)
        in_registers = isinstance(ctx.operands[1], Vector)
        wanted = next(s for s in self.row.signatures if (s[1].kind != DESCRIPTOR) == in_registers)
        operands = {o.name: operand for o, operand in zip(wanted, ctx.operands, strict=True)}
        self.descriptors = {o.name: ctx.source(operands[o.name], "b64") for o in wanted if o.kind == DESCRIPTOR}
        self.registers = [ctx.source(item, "b32") for item in ctx.items(operands["a"])] if in_registers else []
        d = ctx.items(operands["d"])
        for item in d:
            ctx.source(item, "b32")
        self.d = [ctx.dest(item, "b32") for item in d]
        self.metadata = ctx.source(ctx.items(operands["e"])[0], "b32") if self.row.metadata else None
        self.constants = {o.name: ctx.integer(operands[o.name]) for o in wanted if o.kind == CONSTANT}
        self.scale_d: tuple[Source, bool] | None = None
        if isinstance(operands["scale_d"], Immediate):
            self.constants["scale_d"] = ctx.integer(operands["scale_d"])
        else:
            self.scale_d = ctx.predicate(operands["scale_d"])

    def bind(self, state: State) -> Callable[[Array], Callable[[Array], None]]:
        """The work of an issue by some warpgroups. It returns what is executed when they wait for it."""
        d = [rows_of(s(state)) for s in self.d]
        a = [rows_of(s(state)) for s in self.registers]
        words = {role: s(state) for role, s in self.descriptors.items()}
        metadata = None if self.metadata is None else rows_of(self.metadata(state))
        shared = _Shared(state)

        def issue(groups: Array) -> Callable[[Array], None]:
            operands = {role: uniform(state, w, groups, WARPS, role) for role, w in words.items()}
            scale = self._scale_d(state, groups)
            place = np.full(state.warpgroups.count, -1)
            place[groups] = np.arange(groups.size)
            for role, words_ in operands.items():
                for word in np.unique(words_):
                    mine = groups[words_ == word]
                    places = self._places(shared, role, int(word), int(mine[0]))
                    if state.observer is not None:
                        how, along_mn = MatrixDescriptor.decode(int(word)), bool(self.constants.get(f"trans_{role}"))
                        tile = tile_of(how, places * self._size(role), along_mn)
                        state.observer.access(shared.fetch(self.pc, tile, mine))

            def execute(done: Array) -> None:
                own = {role: word[place[done]] for role, word in operands.items()}
                left = self._left(shared, a, own.get("a"), done)
                right = self._matrix(shared, "b", own["b"], done)
                keep = scale[place[done]]
                c = _accumulators(d, self.row, done)
                c[..., ~keep] = 0
                extras = None
                if metadata is not None:
                    extras = SideOperands(stored_columns(self.row, _of_threads(metadata, done), self.constants["f"]))
                _put(d, self.row, self.compute(left, right, c, extras), done)

            return execute

        return issue

    def _scale_d(self, state: State, groups: Array) -> Array:
        """Whether D is added to, warpgroup by warpgroup."""
        if self.scale_d is None:
            return np.full(groups.size, self.constants["scale_d"] == 1)
        source, negated = self.scale_d
        return uniform(state, source(state), groups, WARPS, "scale-d") ^ negated

    def _left(self, shared: _Shared, registers: list[Array], words: Array | None, groups: Array) -> Array:
        if words is not None:
            return self._matrix(shared, "a", words, groups)
        files = [_of_threads(r, groups) for r in registers]
        return self._signed(gather(files, self.row.layout("a"), self.row.a.bits, transpose=True), "a")

    def _matrix(self, shared: _Shared, role: str, words: Array, groups: Array) -> Array:
        """Operand "a" or "b" from shared memory: (k, m or n, groups)."""
        matrix: Array | None = None
        for word in np.unique(words):
            mine = np.flatnonzero(words == word)
            part = shared.read(
                self._places(shared, role, int(word), int(groups[mine[0]])), self._size(role), groups[mine]
            )
            if mine.size == words.size:
                return self._signed(part, role)
            matrix = np.empty((*part.shape[:2], words.size), part.dtype) if matrix is None else matrix
            matrix[..., mine] = part
        return self._signed(matrix if matrix is not None else np.empty((0, 0, 0), np.uint8), role)

    def _places(self, shared: _Shared, role: str, word: int, group: int) -> Array:
        """Where the elements (k, m or n) of a matrix lie in the shared memory of a CTA, in units of an element."""
        row, size = self.row, self._size(role)
        extent, depth = (M, row.stored_k) if role == "a" else (row.shape.n, row.shape.k)
        depth = depth * row.element(role).bits // (8 * size)
        along_mn = bool(self.constants.get(f"trans_{role}"))
        matrix = SharedMatrix(MatrixDescriptor, word, (depth, extent), size, along_mn)
        return matrix.places(shared.window.size, group * WARPS)

    def _size(self, role: str) -> int:
        """Bytes of an element; single bits are read 32 at a time."""
        bits = self.row.element(role).bits
        return 4 if bits == 1 else bits // 8

    def _signed(self, matrix: Array, role: str) -> Array:
        if self.constants.get(f"scale_{role}", 1) == 1:
            return matrix
        return matrix ^ matrix.dtype.type(1 << 8 * matrix.dtype.itemsize - 1)


class _Shared:
    """Matrices in the shared memory of the CTAs in flight."""

    def __init__(self, state: State) -> None:
        self.window = state.memory.shared
        self.warps = state.warps

    def fetch(self, pc: int, tile: TileUnits, groups: Array) -> MemoryAccess:
        """What observers see where warpgroups read elements later: units of 16 bytes, by lane 0 of each warp. The tile
        is that in the first CTA."""
        units, warps = np.unique(tile.units) * UNIT, _warps(groups)
        base = self.window.base[warps]
        start, mine = units[None] + base[:, None], tile._replace(units=tile.units + base[0] // UNIT)
        threads = np.repeat(warps, units.size)
        return MemoryAccess(pc, "fetch", self.window.buffer, start.reshape(-1), UNIT, threads, tile=mine)

    def read(self, places: Array, size: int, groups: Array) -> Array:
        """The elements of `size` bytes at some places, for warpgroups: (k, mn, groups)."""
        base = self.window.base[groups * WARPS] // size
        return self.window.buffer.view(size)[places[..., None] + base]


def _of_threads(register: Array, groups: Array) -> Array:
    """A register of the threads of warpgroups: (128, groups)."""
    return register.reshape(LANES, -1, WARPS).transpose(2, 0, 1)[..., groups].reshape(LANES * WARPS, -1)


def _accumulators(registers: list[Array], row: Wgmma, groups: Array) -> Array:
    """D as it is in registers: (64, n, groups)."""
    words = elements([_of_threads(r, groups) for r in registers], row.d.bits)
    tiles = words.reshape(row.shape.n // 8, -1, words.shape[-1]).take(order_of(row.layout("d")).words, axis=1)
    return tiles.reshape(-1, M, 8, words.shape[-1]).transpose(1, 0, 2, 3).reshape(M, row.shape.n, -1)


def _put(registers: list[Array], row: Wgmma, matrix: Array, groups: Array) -> None:
    """Writes D (64, n, groups)."""
    tiles = matrix.reshape(M, -1, 8, groups.size).transpose(1, 0, 2, 3).reshape(-1, M * 8, groups.size)
    words = tiles.take(order_of(row.layout("d")).elements, axis=1).reshape(-1, groups.size)
    for register, value in zip(registers, packed(words, row.d.bits, LANES * WARPS), strict=True):
        of_warps = register.reshape(LANES, -1, WARPS).transpose(2, 0, 1)
        of_warps[..., groups] = value.reshape(WARPS, LANES, -1)
