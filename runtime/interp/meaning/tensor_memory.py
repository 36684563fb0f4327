"""Tensor memory: its allocation, loads and stores, and what is told of it. PTX ISA 9.7.16.7, .8, .11, .12."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial

import numpy as np

from ....dialect.isa.row import Bindings
from ....dialect.layouts.layout import Layout
from ....dialect.layouts.tensor_memory import COPIES, MOVES
from ....dialect.layouts.tensor_memory import LANES as TENSOR_LANES
from ....dialect.ptx.text.syntax import Vector
from ...numerics.floats import Array
from ..machine.decode import Context, meaning
from ..machine.events import LANES, LEFT, Selection
from ..machine.mbarriers import OperationGroups
from ..machine.memory import FaultError
from ..machine.state import Action, State, absent, acting, all_of
from ..machine.tensor_memory import Request, TensorMemory, address
from .access import Locate, locate, space_of
from .bulk import masks_of, one_by_one, shifts
from .convert import sparse
from .matrix import packed, rows_of, uniform
from .synchronisation import Find, objects
from .tcgen05 import SharedMatrices, cta_of, tell

Read = Callable[[Selection], Array]
"""The addresses that some threads give."""


def group_of(bound: Bindings) -> int:
    """The CTAs of the group that the qualifiers name."""
    return int(bound["G"][-1])


def _warps(state: State, sel: Selection, what: str) -> Array:
    """The warps that execute an instruction, each with all its lanes."""
    warps = state.flow.check_whole_warps(sel, what)
    return np.flatnonzero(state.live[: state.warps]) if warps is None else warps


# Allocation: 9.7.16.7.1


@meaning("tcgen05.alloc")
def alloc(ctx: Context, bound: Bindings) -> Action:
    """Columns for the CTA, or for both of a pair: its warp waits for them. Their address goes to shared memory."""
    where, count = ctx.operands
    what, group = ctx.instruction.opcode, group_of(bound)
    space = "shared" if bound["P"] else space_of(bound)

    def step(state: State, place: Locate, counts: Array, sel: Selection) -> int:
        warps = _warps(state, sel, what)
        for warp, columns in zip(warps, uniform(state, counts, warps, 1, "nCols"), strict=True):
            cta, thread = cta_of(state, int(warp)), int(warp)
            if state.tensor.closed[cta]:
                raise FaultError("allocates tensor memory after tcgen05.relinquish_alloc_permit", thread)
            if columns % 32 or not 32 <= columns <= 512 or (columns & columns - 1 and "X" not in bound):
                raise FaultError(f"expected 32, 64, 128, 256 or 512 columns, got {int(columns)}", thread)
            (part,) = place(Selection.of(thread, sel.total), 4)
            put = partial(part.buffer.view(4).__setitem__, int(part.index[0]))
            state.tensor.request(Request(ctx.pc, thread, cta, int(columns), group, put))
        return LEFT

    return acting(step, locate(ctx, where, space, "store"), ctx.source(count, "u32"))


@meaning("tcgen05.dealloc")
def dealloc(ctx: Context, bound: Bindings) -> Action:
    """Gives columns back."""
    where, count = ctx.operands
    what, group = ctx.instruction.opcode, group_of(bound)

    def step(state: State, addresses: Array, counts: Array, sel: Selection) -> None:
        warps = _warps(state, sel, what)
        places = uniform(state, addresses, warps, 1, "taddr")
        sizes = uniform(state, counts, warps, 1, "nCols")
        freed: list[list[int]] = np.stack([warps, places, sizes], axis=1).tolist()
        for warp, place, columns in freed:
            cta = cta_of(state, warp)
            state.tensor.free(cta, group, place, columns, warp)
            lanes = np.arange(TENSOR_LANES)[:, None]
            tell(state, ctx.pc, "store", cta, lanes, np.arange(place, place + columns)[None], warp)

    return acting(step, ctx.source(where, "b32"), ctx.source(count, "u32"))


@meaning("tcgen05.relinquish")
def relinquish(ctx: Context, bound: Bindings) -> Action:
    """The CTA will allocate no more."""
    what = ctx.instruction.opcode

    def step(state: State, sel: Selection) -> None:
        for warp in _warps(state, sel, what).tolist():
            state.tensor.closed[cta_of(state, warp)] = True

    return acting(step)


# Loads and stores: 9.7.16.8


@lru_cache(256)
def places(shape: str, times: int, packed: bool, split: int) -> tuple[Array, Array]:
    """The lane, from that of the address on, and the column of each thread's registers: (32, registers); with `packed`
    the column of the first of two, and (32, registers, 2)."""
    layout = MOVES[shape]
    coordinates = [[layout.coordinates(lane, e) for e in range(layout.elements)] for lane in range(LANES)]
    lanes, columns, part = (np.array([[p[axis] for p in one] for one in coordinates]) for axis in "rcp")
    columns = columns[:, None] + np.arange(times)[:, None] * layout.columns
    lanes = np.broadcast_to(lanes[:, None], columns.shape).reshape(LANES, -1)
    columns = columns.reshape(LANES, -1)
    if packed:
        lanes, columns = lanes[..., None].repeat(2, 2), columns[..., None] * 2 + np.arange(2)
    shift = (part[:, :1] * split).reshape(LANES, *[1] * (columns.ndim - 1))
    return lanes, columns + shift


@meaning("tcgen05.ld", "tcgen05.st", "tcgen05.ld.red", "tcgen05.ld.spcompress")
def move(ctx: Context, bound: Bindings) -> Action:
    """Stores registers of whole warps to tensor memory when the warp waits for it, or loads them at once. A load shows
    its value even before the wait; observers check that threads wait."""
    loads, what = ctx.row.means != "tcgen05.st", ctx.instruction.opcode
    operands = list(ctx.operands)
    results = [slot.name for slot in ctx.row.signatures_of(bound)[0] if slot.written]
    moved = [operands.pop(0) for _ in results] if loads else [operands.pop()]
    items = [item for operand in moved for item in (ctx.items(operand) if isinstance(operand, Vector) else [operand])]
    finish = _finish(bound, results) if loads else None
    registers = [(ctx.dest if loads else ctx.source)(item, "b32") for item in items]
    where = ctx.address(operands[0], np.uint32)
    split = ctx.integer(operands[1]) if len(operands) > 1 else 0
    packed = bool(bound.get("F"))
    lanes, columns = places(bound["S"], int(bound["N"][1:]), packed, split)
    sixteen = bound["S"] != "32x32b"

    def step(state: State, read: Read, files: list[Array], sel: Selection) -> None:
        tensor, warps = state.tensor, _warps(state, sel, what)
        addresses = np.zeros(state.threads, np.int64)
        sel.put(addresses, read(sel))
        bases = uniform(state, addresses, warps, 1, "taddr")
        at = np.zeros((state.warps, 2), np.int64)
        at[warps] = np.stack(address(bases), axis=1)
        for warp in warps.tolist():
            at[warp, 0] = lane = _own_lane(state, warp, int(at[warp, 0]), sixteen)
            column, cta = int(at[warp, 1]), cta_of(state, warp)
            tensor.check(cta, np.unique(columns) + column, warp, "reads" if loads else "writes")
            tell(state, ctx.pc, "fetch" if loads else "copy", cta, lanes + lane, columns + column, warp)
        pick = _picked(state, at, lanes, columns)
        if finish is not None:
            _load(tensor, [rows_of(f) for f in files], pick, packed, finish, warps)
        else:
            values = np.stack([rows_of(f) for f in files], axis=-1)
            tensor.moves["st"].issue(warps, partial(_store, tensor, values, pick, packed))
        tensor.moves["ld" if loads else "st"].commit(warps)

    return acting(step, where, all_of(registers))


def _own_lane(state: State, warp: int, lane: int, sixteen: bool) -> int:
    """The lane at which a warp begins. An address of the first lanes leads each warp to its own: GPUs do so without
    their checks for debugging, and DeepGEMM and TileLang rely on it. Raises FaultError if an address leads a warp to
    lanes that are not its own, or is not where a shape begins."""
    own = warp % state.geometry.warps_per_cta % 4
    if lane // LANES not in (0, own):
        first = own * LANES
        raise FaultError(
            f"warp {warp % state.geometry.warps_per_cta} reaches lanes {first} to {first + LANES - 1} of tensor "
            f"memory; the address is of lane {lane}",
            warp,
        )
    if lane % (16 if sixteen else LANES):
        raise FaultError(f"expected a lane that is a multiple of {16 if sixteen else LANES}, got {lane}", warp)
    return own * LANES + lane % LANES


def _picked(state: State, at: Array, lanes: Array, columns: Array) -> Callable[[Array], tuple[Array, Array, Array]]:
    """The places in tensor memory of the registers of some warps: CTAs, lanes, columns."""
    ctas = np.arange(state.warps) // state.geometry.warps_per_cta

    def pick(warps: Array) -> tuple[Array, Array, Array]:
        base = at[warps].reshape(warps.size, 2, *[1] * lanes.ndim)
        return ctas[warps].reshape(-1, *[1] * lanes.ndim), base[:, 0] + lanes, base[:, 1] + columns

    return pick


Pick = Callable[[Array], tuple[Array, Array, Array]]


Finish = Callable[[Array], Sequence[Array]]
"""What a load leaves in its registers of the words (words, warps, lanes) of a warp."""


def _finish(bound: Bindings, results: Sequence[str]) -> Finish:
    """The words, or two of each four with their indices before them; then what they are reduced to."""
    reduce = _reduction(bound) if "dr" in results else None
    selection = bound["O"] + bound["ABS"].removeprefix(".") if "dv" in results else ""

    def finish(words: Array) -> list[Array]:
        kept = list(_sparse(words, selection)) if selection else list(words)
        return kept if reduce is None else [*kept, reduce(words)]

    return finish


def _sparse(words: Array, selection: str) -> Iterator[Array]:
    values, indices = sparse(words.reshape(len(words) // 4, 4, -1), "f32", selection)
    for part in (packed(indices.reshape(-1, indices.shape[-1]), 2, 1), values.reshape(-1, values.shape[-1])):
        yield from (word.reshape(words.shape[1:]) for word in part)


def _load(tensor: TensorMemory, outs: list[Array], pick: Pick, packed: bool, finish: Finish, warps: Array) -> None:
    values = tensor.words[pick(warps)]
    if packed:
        values = values[..., 0] & np.uint32(0xFFFF) | values[..., 1] << np.uint32(16)
    for out, words in zip(outs, finish(np.moveaxis(values, -1, 0)), strict=True):
        out[:, warps] = words.T


Reduce = Callable[[Array], Array]
"""The least or the greatest of words, along the first axis."""


def _reduction(bound: Bindings) -> Reduce:
    """Of a NaN and a number the number, but with `.NaN`."""
    kind = {"u32": np.uint32, "s32": np.int32, "f32": np.float32}[bound["T"]]
    functions = {"min": (np.fmin, np.minimum), "max": (np.fmax, np.maximum)}[bound["O"]]

    def reduce(words: Array) -> Array:
        if bound.get("ABS"):
            words = words & np.uint32(0x7FFFFFFF)
        reduced = functions[bool(bound.get("NAN"))].reduce(words.view(kind), axis=0)
        return np.where(np.isnan(reduced), np.uint32(0x7FFFFFFF), reduced.view(np.uint32))

    return reduce


def _store(tensor: TensorMemory, values: Array, pick: Pick, packed: bool, warps: Array) -> None:
    words = values[:, warps].transpose(1, 0, 2)
    if packed:
        words = np.stack([words & np.uint32(0xFFFF), words >> np.uint32(16)], axis=-1)
    tensor.words[pick(warps)] = words


@meaning("tcgen05.wait")
def wait(ctx: Context, bound: Bindings) -> Action:
    """The loads, or the stores, of these warps happen."""
    kind, what = bound["K"][-2:], ctx.instruction.opcode
    return lambda state: lambda sel: state.tensor.moves[kind].wait(_warps(state, sel, what), 0)


# Copies: 9.7.16.9


@meaning("tcgen05.cp")
def copy(ctx: Context, bound: Bindings) -> Action:
    """A matrix from shared memory, later."""
    where, what = ctx.address(ctx.operands[0], np.uint32), ctx.source(ctx.operands[1], "b64")
    layout = COPIES[".".join(filter(None, (bound["S"], bound.get("C", ""))))]
    rows, size = layout.rows, 4 * layout.extent("c")
    lanes, places, _ = _of_copy(layout)
    narrow = {"": 8, "b6x16_p32": 6, "b4x16_p64": 4}[bound.get("F", "")]

    def step(state: State, find: Callable[[Selection], Array], words: Array, sel: Selection) -> None:
        for one, thread in one_by_one(sel):
            base, shared = int(find(one)[0]), SharedMatrices(state, ctx.pc, thread)
            lane, column = address(base)
            source = shared.places(int(words[thread]), (size, rows), 1, False, "b")
            ctas = state.tensor.pair(cta_of(state, thread), group_of(bound))
            for cta in ctas:
                state.tensor.check(cta, np.unique(places) + column, thread, "copies to")
                shared.tell(cta, int(words[thread]), source, narrow)
                tell(state, ctx.pc, "copy", cta, lanes + lane, places + column, thread)
            action = partial(
                _copied, state.tensor, shared, ctas, source, (lanes + lane, places + column), layout, narrow
            )
            state.tensor.products.issue(np.array([thread]), action)

    return acting(step, where, what)


@lru_cache(16)
def _of_copy(layout: Layout) -> tuple[Array, Array, Array]:
    """The lanes, columns and rows of everything that is written, lane by lane."""
    some = [lane for lane in range(TENSOR_LANES) if layout.coordinates(lane, 0)["h"] == 0]
    elements = [(lane, e, layout.coordinates(lane, e)["r"]) for lane in some for e in range(layout.elements)]
    lanes, places, rows = np.array(elements).T
    return lanes, places, rows


def _copied(
    tensor: TensorMemory, shared: SharedMatrices, ctas: list[int], source: Array, to: tuple[Array, Array],
    layout: Layout, narrow: int, _: Array,
) -> None:  # fmt: skip
    lanes, places = to
    _, columns, rows = _of_copy(layout)
    for cta in ctas:
        words = np.ascontiguousarray(shared.elements(cta, source, narrow).T).view(np.uint32)
        tensor.words[cta, lanes, places] = words[rows, columns]


@meaning("tcgen05.shift")
def shift(ctx: Context, bound: Bindings) -> Action:
    """Eight columns of the lanes from an address on, each to the next lane, later."""
    where = ctx.address(ctx.operands[0], np.uint32)

    def step(state: State, find: Callable[[Selection], Array], sel: Selection) -> None:
        for one, thread in one_by_one(sel):
            lane, column = address(int(find(one)[0]))
            if lane % 32:
                raise FaultError(f"expected a lane that is a multiple of 32, got {lane}", thread)
            ctas = state.tensor.pair(cta_of(state, thread), group_of(bound))
            for cta in ctas:
                state.tensor.check(cta, np.arange(column, column + 8), thread, "shifts")
            action = partial(_shifted, state.tensor, ctas, lane, column)
            state.tensor.products.issue(np.array([thread]), action)

    return acting(step, where)


def _shifted(tensor: TensorMemory, ctas: list[int], lane: int, column: int, _: Array) -> None:
    for cta in ctas:
        part = tensor.words[cta, lane:, column : column + 8]
        part[1:] = part[:-1].copy()


# Order: 9.7.16.11, .12


@meaning("tcgen05.commit")
def commit(ctx: Context, bound: Bindings) -> Action:
    """An arrival at an object, or one in each CTA of a mask, when the thread's pending operations complete."""
    where, *rest = ctx.operands
    space = "cluster" if bound["P"] else "generic"
    masks = masks_of(ctx, rest[0], bound["M"]) if rest else absent

    def step(state: State, find: Find, ctas: Array | None, sel: Selection) -> None:
        products, buffer = state.tensor.products, state.memory.shared.buffer
        for one, thread in one_by_one(sel):
            index = find(one)
            mask = None if ctas is None else int(ctas[thread])
            moved = [shift // 8 for shift in shifts(state, buffer, int(index[0]) * 8, mask, thread)]
            agent = np.array([thread])
            products.commit(agent)
            number = products.committed(thread)
            for shift in moved:
                state.mbarriers.arrive_after(partial(_complete, products, number), index + shift, one)

    return acting(step, objects(ctx, where, space), masks)


def _complete(products: OperationGroups, number: int, sel: Selection) -> None:
    """Lets the groups of a thread before one of a number happen."""
    agents = sel.threads
    products.wait(agents, products.committed(int(agents[0])) - number)
