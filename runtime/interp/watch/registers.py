"""Registers and bytes that are used before they are written.

Reading such a register is no error by itself: compilers let lanes compute with what they loaded nothing into, and drop
the result. What is computed from it counts as unwritten too; it is reported where it does something: as a value that
is stored, an operand of a matrix instruction, an address, the guard of an instruction. `selp` passes on the state of
the operand that it chooses, `shfl` that of the lane it reads, a load that of what it reads in local or shared
memory. It is known byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, reduce
from itertools import product

import numpy as np

from ....dialect.isa.mma import LoadMatrix, Mma, StoreMatrix
from ....dialect.ptx.text.syntax import REGISTER_BITS, Address, Immediate, Not, Operand, Register, Vector
from ...numerics.floats import Array
from ..machine.events import LANES, BoundStep, Look, MemoryAccess, Selection
from ..machine.kernel import Decoded
from ..machine.state import RegisterSlot, State
from ..meaning.synchronisation import shuffle_origin, words_of
from .clocks import MULTIPLYING
from .findings import Check, Findings

# Which lanes of a warp an instruction reads its operands in, where that is not all; and through which instructions
# lanes give values to each other.
#
# Lanes that give no row address to `ldmatrix` and `stmatrix`, no metadata to `mma.sp`, and no scale to a block-scaled
# `mma` can have anything in the register.


def lanes_read(decoded: Decoded) -> dict[str, Array]:
    """Masks of the lanes, by the name of the register."""
    row = decoded.row
    if isinstance(row, LoadMatrix | StoreMatrix):
        where = next((o for o in decoded.source.operands if isinstance(o, Address)), None)
        base = where.base if where else None
        return {base.name: np.arange(LANES) < row.addresses} if isinstance(base, Register) else {}
    return _of_mma(row, decoded.named()) if isinstance(row, Mma) else {}


def _of_mma(row: Mma, operands: Mapping[str, Operand]) -> dict[str, Array]:
    lanes_of: dict[str, Array] = {}
    if (layout := row.metadata) is not None:
        (selector,) = _integers(operands["f"])
        places = [layout.find(r=r, c=c, f=selector) for r in range(layout.rows) for c in range(layout.columns)]
        _allow(lanes_of, operands["e"], [lane for lane, _ in places])
    for role in "ab" if row.scale else "":
        _allow(lanes_of, operands[f"scale_{role}"], _scale_lanes(row, role, _integers(operands[f"selector_{role}"])))
    return lanes_of


def _scale_lanes(row: Mma, role: str, selector: list[int]) -> list[int]:
    if row.scale is None:
        return []
    byte_id, thread_id = selector
    layout, (axis, along) = row.scale.layout(role), ("r", "c") if role == "a" else ("c", "r")
    rest = {along: 0, "t": thread_id, "b": row.scale.byte_ids.index(byte_id)}
    return [layout.find(**{axis: i}, **rest)[0] for i in range(layout.extent(axis))]


def _integers(operand: Operand) -> list[int]:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    return [int(item.value) for item in items if isinstance(item, Immediate)]


def _allow(masks: dict[str, Array], operand: Operand, lanes: list[int]) -> None:
    """Lanes add up where a register is used twice."""
    (item,) = operand.items if isinstance(operand, Vector) else (operand,)
    if isinstance(item, Register):
        mask = masks.setdefault(item.name, np.zeros(LANES, np.bool_))
        mask[lanes] = True


_COLLECTIVE = ("shfl", "vote", "redux", "match")


class Exchanges:
    """The instructions at which lanes exchange values, between a read of memory and a later write. A lane that has
    passed such an instruction knows that all lanes that met there had their operands. So the memory reads behind those
    operands are complete, for anything that depends on the result. The dependences follow from the text, over all
    paths. Values that pass through memory are not followed."""

    def __init__(self, code: Sequence[Decoded]) -> None:
        self._used = [(*d.reads, *(() if d.guard is None else (d.guard,))) for d in code]
        self._written = [d.writes for d in code]
        self._exchanging = {i for i, d in enumerate(code) if d.row.root in _COLLECTIVE or d.traits.name in MULTIPLYING}
        self._between: dict[tuple[int, int], frozenset[int]] = {}

    def between(self, read: int, write: int) -> frozenset[int]:
        """The exchanges whose operands depend on the read, and on whose results the write depends."""
        if (read, write) not in self._between:
            behind = _closure(read, self._written, self._used)
            before = _closure(write, self._used, self._written)
            self._between[read, write] = frozenset(behind & before & self._exchanging)
        return self._between[read, write]


def _closure(
    start: int, gives: Sequence[tuple[RegisterSlot, ...]], takes: Sequence[tuple[RegisterSlot, ...]]
) -> set[int]:
    """The instructions that depend on a result of `start`, directly or not."""
    takers: dict[RegisterSlot, list[int]] = {}
    for pc, slots in enumerate(takes):
        for slot in slots:
            takers.setdefault(slot, []).append(pc)
    reached, new = set[int](), [start]
    while new:
        for slot in gives[new.pop()]:
            for pc in takers.pop(slot, ()):
                if pc not in reached:
                    reached.add(pc)
                    new.append(pc)
    return reached


# Which bytes of a result are made of bytes that nobody has written.
#
# Compilers pack narrow numbers into registers of which they fill a part, and drop the rest again: Triton converts four
# numbers to 8 bits where a thread has one. An instruction that moves bits is tried: executed on registers of its own
# with the unwritten bytes of each operand as zeros and as ones, it shows which bytes of its results depend on them.
# Sums depend on the bytes below, packed numbers on those of their half, and every other result on any byte at all.
#
# A set of bytes is a number: bit i stands for byte i.

_BITWISE = frozenset((
    "mov", "and", "or", "xor", "not", "lop3", "shl", "shr", "shf", "prmt", "bfe", "bfi", "selp", "cvt",
))  # fmt: skip
_TRIED = 4
"""Operands of which all combinations are tried."""
_INTEGERS = tuple(f"{kind}{bits}" for kind in "bsu" for bits in (16, 32, 64))


def is_bitwise(decoded: Decoded) -> bool:
    """Whether each bit of a result is one of an operand, or depends on bits at one place."""
    return decoded.row.root in _BITWISE and decoded.row.means not in ("cvt.to_integer", "cvt.from_integer")


def all_bytes(bits: int) -> int:
    """All bytes of a register."""
    return (1 << max(1, bits // 8)) - 1


class Trials:
    """Executes instructions on registers that are no thread's, made when the first one is tried."""

    def __init__(self, state: State, slots: dict[int, int]) -> None:
        self._state, self._slots = state, slots
        self._steps: dict[int, BoundStep] = {}

    @cached_property
    def _probe(self) -> State:
        return State(self._state.geometry, self._slots, self._state.memory, self._state.addresses)

    def passed(self, pc: int, decoded: Decoded, lacking: Mapping[RegisterSlot, Array], sel: Selection) -> list[Array]:
        """The unwritten bytes of each result in the selected threads, if some bytes that are read are unwritten."""
        if is_bitwise(decoded) and len(lacking) <= _TRIED and all(slot.bits > 1 for slot in lacking):
            where = [bad[:, None] >> np.arange(max(1, slot.bits // 8)) & 1 == 1 for slot, bad in lacking.items()]
            trials = [
                self.results(pc, decoded, sel, dict(zip(lacking, zip(where, tried, strict=True), strict=True)))
                for tried in product((0x00, 0xFF), repeat=len(lacking))
            ]
            return [_differing(results) for results in zip(*trials, strict=True)]
        every, types = reduce(np.bitwise_or, lacking.values()), decoded.traits.types
        if decoded.row.root in ("add", "sub") and types[-1] in _INTEGERS and not decoded.traits.bindings.get("CC"):
            made = every | np.negative(every)
        elif len(decoded.writes) == 1 and all(type.endswith("16x2") for type in types):
            low, upper = (np.where(every & np.uint16(half), np.uint16(half), np.uint16(0)) for half in (3, 12))
            made = low | upper
        else:
            made = np.where(every != 0, np.uint16(0xFFFF), np.uint16(0))
        return [made & np.uint16(all_bytes(slot.bits)) for slot in decoded.writes]

    def results(
        self, pc: int, decoded: Decoded, sel: Selection, replaced: Mapping[RegisterSlot, tuple[Array, Array | int]]
    ) -> list[Array]:
        """The results, with bytes of operands replaced where masks say so; all are (selected threads, bytes)."""
        if pc not in self._steps:
            self._steps[pc] = decoded.action(self._probe)
        for slot in decoded.reads:
            row = self._probe.banks[slot.bits][slot.index]
            row[...] = self._state.banks[slot.bits][slot.index]
            if slot in replaced:
                mask, bytes_ = replaced[slot]
                parts = row.view(np.uint8).reshape(row.size, -1)
                parts[sel.threads] = np.where(mask, bytes_, parts[sel.threads])
        self._steps[pc](sel)
        results = (sel.pick(self._probe.banks[slot.bits][slot.index]) for slot in decoded.writes)
        return [result.copy().view(np.uint8).reshape(sel.count, -1) for result in results]


def _differing(results: Sequence[Array]) -> Array:
    """Which bytes differ between results, (threads, bytes) each: a set for each thread."""
    differ: Array = np.logical_or.reduce([result != results[0] for result in results])
    width: int = differ.shape[1]
    return np.left_shift(differ, np.arange(width)).sum(axis=1).astype(np.uint16)


def stored(decoded: Decoded) -> tuple[frozenset[str], int]:
    """The registers of which a store takes only the low bytes, and the mask of these bytes."""
    if decoded.row.root != "st" or "T" not in decoded.traits.bindings:
        return frozenset(), 0
    names = frozenset(slot.name for slot in decoded.slots(decoded.source.operands[1]))
    return names, all_bytes(REGISTER_BITS[decoded.traits.bindings["T"]])


_NOTHING = np.zeros((), np.uint16)


class UninitialisedRegisters(Check):
    """Follows, for each register and thread, the bytes that are not written or that depend on such bytes. `full` are
    the registers that all threads have written; `changes` counts how often a register left this set."""

    name = "uninitialised"

    def __init__(self, findings: Findings) -> None:
        super().__init__(findings)
        self.full: set[RegisterSlot] = set()
        self.changes = 0
        self.origin: dict[RegisterSlot, tuple[str, int]] = {}

    def begun(self) -> None:
        slots = self.kernel.layout.slots.items()
        self.lacks = {bits: np.full((n, self.state.threads), all_bytes(bits), np.uint16) for bits, n in slots}
        self.full = set()
        self.origin = {}
        self.trials = Trials(self.state, self.kernel.layout.slots)
        self.local = np.zeros((self.state.threads, self.state.memory.local.buffer.size // self.state.threads), np.bool_)
        for offset, size in self.kernel.layout.arguments:  # Calls copy these without an access.
            self.local[:, offset : offset + size] = True

    def issue(self, pc: int) -> Look | None:
        guard = self.kernel.code[pc].guard
        return None if guard is None else _Registers(self, pc, {guard: None}, (), False).look

    def watch(self, pc: int) -> Look | None:
        decoded = self.kernel.code[pc]
        root = decoded.row.root
        if root == "shfl" or not (decoded.reads or decoded.writes):
            return None
        some = lanes_read(decoded)
        reads = {slot: some.get(slot.name) for slot in decoded.reads}
        kind = _Product if root == "wgmma" else _Registers
        return kind(self, pc, reads, decoded.writes, decoded.traits.computes).look

    def meet(self, pc: int, threads: Selection, members: Array, lanes: Array) -> None:
        if self.kernel.code[pc].row.root == "shfl":
            self._exchange(pc, threads, lanes)

    def _exchange(self, pc: int, sel: Selection, met: Array) -> None:
        """`shfl`: its result is that of another lane."""
        decoded = self.kernel.code[pc]
        slot, line = decoded.slot(decoded.source.operands[1]), decoded.source.line
        for other in decoded.reads:
            if other != slot and other not in self.full:
                bad = sel.pick(self.lacking(other))
                if bad.any():
                    self.use(pc, other, bad != 0, sel)
        source, origins = shuffle_origin(self.state, decoded)
        absent = sel.pick((met >> source.astype(np.uint32) & 1) == 0)
        bad, origin = np.zeros(absent.shape, np.uint16), ("", line)
        if slot is not None and slot not in self.full:
            bad = np.where(absent, _NOTHING, sel.pick(self.lacking(slot)[origins]))
            origin = self.origin.get(slot, (slot.name, line)) if bad.any() else origin
        every = [np.uint16(all_bytes(d.bits)) for d in decoded.writes]
        made = [np.where(absent, whole, bad & whole) for whole in every]
        self.write(decoded.writes, sel, made if any(m.any() for m in made) else None, origin)

    def access(self, access: MemoryAccess) -> None:
        """Local memory. A load of unwritten bytes makes registers uninitialised."""
        if access.buffer is not self.state.memory.local.buffer or not access.start.size:
            return
        written = self.local.reshape(-1)
        where = access.start[:, None] + np.arange(access.width)
        if access.kind == "load":
            self.load(access.pc, access.threads, ~written[where], "local memory")
        else:
            written[where] = True

    def load(self, pc: int, threads: Array, unwritten: Array, name: str) -> bool:
        """Marks the registers of a load that reads unwritten bytes, (accesses, bytes). `name` is the memory. False if
        the bytes of the instruction's registers are not known."""
        decoded = self.kernel.code[pc]
        form = decoded.row
        if isinstance(form, LoadMatrix):
            lacking = _arranged(form, self.state.warps, threads, unwritten)
            for slot, bad in zip(decoded.writes, lacking, strict=True):
                self._lack(slot, np.flatnonzero(bad), bad[bad != 0], (name, decoded.source.line))
        elif decoded.row.means in ("ld", "tcgen05.ld"):
            each: int = unwritten.shape[1] // len(decoded.writes)
            for i, slot in enumerate(decoded.writes):
                mine: Array = unwritten[:, i * each : (i + 1) * each]
                bad: Array = np.add.reduce(np.left_shift(mine, np.arange(each)), axis=1)
                lacking_: Array = np.where(slot.bits == 8 * each, bad, all_bytes(slot.bits))
                self._lack(slot, threads[bad != 0], lacking_[bad != 0], (name, decoded.source.line))
        else:
            return False
        return True

    def _lack(self, slot: RegisterSlot, threads: Array, lacking: Array, origin: tuple[str, int]) -> None:
        """Some bytes of a register are unwritten, in these threads."""
        if threads.size:
            self.lacks[slot.bits][slot.index][threads] = lacking
            self.origin[slot] = origin
            self.changes += slot in self.full
            self.full.discard(slot)

    def lacking(self, slot: RegisterSlot) -> Array:
        """The bytes of a register that each thread has not written."""
        return self.lacks[slot.bits][slot.index]

    def use(self, pc: int, slot: RegisterSlot, bad: Array, sel: Selection) -> None:
        """Reports that threads, a mask of the selected ones, use a register that is not written."""
        threads = np.flatnonzero(bad) if sel.lanes is None else sel.lanes[bad]
        self.report(pc, self._what(slot), int(threads[0]), about=slot, count=threads.size)
        self.lacks[slot.bits][slot.index][threads] = 0

    def _what(self, slot: RegisterSlot) -> str:
        if slot not in self.origin:
            return f"{slot.name} is read before it is written"
        name, line = self.origin[slot]
        if not name:
            return f"{slot.name} comes from the shfl at line {line}, of a lane that takes no part in it"
        return f"{slot.name} comes from {name}, which is read at line {line} before it is written"

    def write(
        self, slots: tuple[RegisterSlot, ...], sel: Selection, bad: Sequence[Array] | None,
        origin: tuple[str, int] | None,
    ) -> None:  # fmt: skip
        """The selected threads write registers. `bad` are the bytes of each that depend on unwritten ones, or None."""
        for i, slot in enumerate(slots):
            sel.put(self.lacks[slot.bits][slot.index], _NOTHING if bad is None else bad[i])
            if bad is not None and origin is not None and bad[i].any():
                self.origin[slot] = origin
                self.changes += slot in self.full
                self.full.discard(slot)
        if bad is None and (sel.mask is None or sel.count == int(np.count_nonzero(self.state.live))):
            self.full.update(slots)
            for slot in slots:
                self.origin.pop(slot, None)


class _Registers:
    """The registers of one instruction. Registers that are fully initialised are skipped."""

    def __init__(
        self, check: UninitialisedRegisters, pc: int, reads: dict[RegisterSlot, Array | None],
        writes: tuple[RegisterSlot, ...], computes: bool,
    ) -> None:  # fmt: skip
        self.check = check
        self.pc = pc
        self.all = (reads, writes)
        self.reads, self.writes = self.all
        self.computes = computes
        self.stored, self.low = stored(check.kernel.code[pc])
        self._changes = 0

    def look(self, sel: Selection) -> None:
        check = self.check
        if self._changes != check.changes:
            self._changes = check.changes
            self.reads, self.writes = self.all
        bad, origin = self._read(sel) if self.reads else (None, None)
        if self.writes:
            check.write(self.writes, sel, bad, origin)
            if bad is None and check.full.issuperset(self.writes) and not self.reads:
                self.writes = ()

    def counts(self, slot: RegisterSlot, sel: Selection) -> Array | None:
        """In which of the selected threads an operand matters (None: in all)."""
        lanes = self.all[0][slot]
        return None if lanes is None else sel.pick(np.repeat(lanes, sel.total // LANES))

    def _read(self, sel: Selection) -> tuple[Sequence[Array] | None, tuple[str, int] | None]:
        """The unwritten bytes of each result in the selected threads, and where they come from; None without any."""
        check, origin = self.check, None
        unwritten: dict[RegisterSlot, Array] = {}
        for slot in self.reads:
            if slot in check.full:
                continue
            bad = sel.pick(check.lacking(slot))
            counts = self.counts(slot, sel) if bad.any() else None
            if counts is not None:
                bad = np.where(counts, bad, _NOTHING)
            if slot.name in self.stored:
                bad = bad & np.uint16(self.low)
            if not bad.any():
                continue
            if self.computes:
                unwritten[slot] = bad
                origin = check.origin.get(slot, (slot.name, check.kernel.code[self.pc].source.line))
            else:
                check.use(self.pc, slot, bad != 0, sel)
        if not check.full.isdisjoint(self.reads):
            self.reads = {slot: lanes for slot, lanes in self.reads.items() if slot not in check.full}
        if not unwritten or not self.writes:
            return None, None
        made = check.trials.passed(self.pc, check.kernel.code[self.pc], unwritten, sel)
        return (made, origin) if any(bad.any() for bad in made) else (None, None)


class _Product(_Registers):
    """`wgmma.mma_async`: accumulators matter where they are added to, which an integer or a predicate says."""

    def counts(self, slot: RegisterSlot, sel: Selection) -> Array | None:
        decoded = self.check.kernel.code[self.pc]
        if slot not in decoded.writes:
            return None
        scale = decoded.named()["scale_d"]
        negated = isinstance(scale, Not)
        taken = words_of(self.check.state, decoded, scale.register if negated else scale) != 0
        return sel.pick(taken ^ negated)


def _arranged(form: LoadMatrix, warps: int, threads: Array, unwritten: Array) -> Iterator[Array]:
    """The unwritten bytes of each register of `ldmatrix`, in all threads, by those of rows that `threads` address."""
    layout, size = form.layout, form.element_bits // 8
    rows = np.zeros((form.addresses * warps, layout.columns), np.bool_)
    if form.source:  # Elements of less than a byte.
        rows[threads] = np.logical_or.reduce(unwritten, axis=1)[:, None]
    else:
        rows[threads] = np.logical_or.reduce(unwritten.reshape(threads.size, layout.columns, size), axis=2)
    places, each = layout.positions(), 4 // size
    matrices = rows.reshape(form.count, layout.rows, warps, layout.columns)
    for matrix, first in product(matrices, range(0, layout.elements, each)):
        lacking = np.zeros((LANES, warps), np.uint16)
        for i in range(each):
            row, column = places[:, first + i, 0], places[:, first + i, 1]
            lacking |= np.where(matrix[row, :, column], np.uint16(all_bytes(8 * size) << i * size), _NOTHING)
        yield lacking.reshape(-1)
