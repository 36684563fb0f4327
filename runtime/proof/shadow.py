"""Looks on while a kernel runs: of every value that comes from the arrays it keeps the number in the fields.

What moves bytes moves their codes (`mirror`); what computes makes new values (`rules`, `products`). Where data would
decide an address, a branch, or whether memory is written, the run ends with an error at that line: then one run says
nothing of other data. A comparison of data, and what it selects, is taken as in this run, and `compared` keeps where.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ..interp.machine.events import LANES, Look, MemoryAccess, Selection
from ..interp.machine.kernel import Decoded, DecodedKernel, Observer
from ..interp.machine.memory import FaultError
from ..interp.machine.state import RegisterSlot, State
from ..interp.meaning.warps import shuffle_source
from ..numerics.array import Array
from .field import Residues
from .functions import FieldFunctions
from .mirror import Mirror, PlaneMemory, action_of, context_of, operands_of
from .values import Table

if TYPE_CHECKING:
    from ...dialect.ptx.text.syntax import Operand

MOVES = frozenset((
    "ld", "st", "ldmatrix", "stmatrix", "movmatrix", "cp.async", "cp.async.bulk", "tensor.load", "tensor.store",
    "wmma.load", "wmma.store", "st.async", "st.bulk", "mov.b128",
))  # fmt: skip
"""What moves bytes, in memory or between lanes, as its bytes lie."""
PRODUCTS = frozenset(("mma", "wmma.mma", "wgmma.mma_async"))
EFFECTS = (
    "bra",
    "brx",
    "ret",
    "exit",
    "call",
    "bar",
    "barrier",
    "trap",
    "mbarrier",
    "wgmma",
    "mma",
    "wmma",
    "red",
    "st",
)
"""First words of what is more than a choice between values where a predicate guards it."""


def reduces(decoded: Decoded) -> bool:
    """Whether an instruction is a bulk or tensor reduction into global memory."""
    bound = decoded.traits.bindings
    if decoded.row.means == "tensor.store":
        return bool(bound.get("OP"))
    return decoded.row.means == "cp.reduce.async.bulk" and bound["D"] == "global"


def moves(decoded: Decoded) -> bool:
    """Whether an instruction moves bytes, and does nothing else to them."""
    return decoded.row.means in MOVES and not reduces(decoded)


RuleOf: TypeAlias = "Callable[[FieldShadow, int, Decoded], Look | None]"


class FieldShadow(Observer):
    """The shadow of all launches of one run. `memory` are the planes of global memory, `table` all values; `rule_of`
    says what is done before an instruction that computes."""

    def __init__(
        self, table: Table, memory: PlaneMemory, target: str, functions: FieldFunctions, rule_of: RuleOf
    ) -> None:
        self._rule_of = rule_of
        self.table = table
        self.functions = functions
        self.memory = memory
        self.target = target
        self.compared: set[int] = set()
        self._later: Callable[[], None] | None = None

    # The machine's events

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        self.state, self.kernel = state, kernel
        self.layout = replace(kernel.layout, slots=dict(kernel.layout.slots))
        observer, state.observer = state.observer, None
        self._decoded = {pc: self._decode(pc, d) for pc, d in enumerate(kernel.code) if moves(d)}
        self.mirror = Mirror(state, self.layout, self.memory)
        self.touched: set[RegisterSlot] = set()
        state.observer = observer

    def end(self) -> None:
        self.settle()

    def weight(self, shared: int, warps: int) -> int:
        return 4 * shared

    def issue(self, pc: int) -> Look:
        decoded = self.kernel.code[pc]
        guard = decoded.guard

        def look(sel: Selection) -> None:
            self.settle()
            if guard is not None and guard in self.touched and sel.pick(self.mirror.words(guard)[0]).any():
                self._guarded(decoded, guard, sel)

        return look

    def watch(self, pc: int) -> Look | None:
        decoded = self.kernel.code[pc]
        observer, self.state.observer = self.state.observer, None
        try:
            if pc in self._decoded:
                return _Move(self, pc, decoded).look
            if decoded.row.root == "shfl":
                return None
            return self._rule_of(self, pc, decoded)
        finally:
            self.state.observer = observer

    def access(self, access: MemoryAccess) -> None:
        """Refuses accesses to values by what neither moves nor adds them."""
        decoded = self.kernel.code[access.pc]
        if access.pc in self._decoded or reduces(decoded) or decoded.row.means in ("atomic", *PRODUCTS):
            return
        planes = self.mirror.values_of(access.buffer)
        bytes_of = access.start[:, None] + np.arange(access.width)
        if planes is not None and (bad := np.flatnonzero(planes[:, bytes_of].any(axis=(0, 2)))).size:
            raise FaultError("data is accessed here in a way that is not followed", int(access.threads[bad[0]]))

    def meet(self, pc: int, threads: Selection, members: Array, lanes: Array) -> None:
        self.settle()
        decoded = self.kernel.code[pc]
        if decoded.row.root == "shfl":
            self._shuffle(decoded, threads)

    # What rules share

    def later(self, act: Callable[[], None]) -> None:
        """Does something when the instruction has been executed."""
        self._later = act

    def settle(self) -> None:
        """What the last instruction left to do."""
        if self._later is not None:
            act, self._later = self._later, None
            act()

    def write(self, slot: RegisterSlot, sel: Selection, planes: Array) -> None:
        """The planes (planes, selected threads) of a register."""
        if planes.any():
            self.touched.add(slot)
        elif slot not in self.touched:
            return
        words = self.mirror.words(slot)
        words[:, ... if sel.mask is None else sel.lanes] = planes

    def recognise(self, found: Residues, root: Array, shown: Array) -> Residues:
        """The numbers of results; those that are a known function of the value that they are computed from are what
        that gives."""
        key = np.where(root > 0, self.table.numbers(root).key, np.uint64(1 << 63))
        return self.functions.recognise(found, key, shown)

    def clear(self, slots: tuple[RegisterSlot, ...], sel: Selection) -> None:
        """The registers hold no values any more."""
        for slot in slots:
            if slot in self.touched:
                self.mirror.words(slot)[:, ... if sel.mask is None else sel.lanes] = 0

    def has_data(self, slot: RegisterSlot, sel: Selection) -> bool:
        """Whether a register holds part of a value in any of the threads."""
        if slot not in self.touched:
            return False
        words = self.mirror.words(slot)
        return bool((words if sel.mask is None else words[:, sel.lanes]).any())

    def refuse(self, slots: tuple[RegisterSlot, ...], sel: Selection, what: str) -> None:
        """Raises:
        FaultError: where one of the registers holds data.
        """
        for slot in slots:
            if slot.bits > 1 and self.has_data(slot, sel):
                words = self.mirror.words(slot)
                bad = np.flatnonzero((words if sel.mask is None else words[:, sel.lanes]).any(axis=0))
                raise FaultError(f"data decides {what} ({slot.name})", int(sel.threads[bad[0]]))

    def _guarded(self, decoded: Decoded, guard: RegisterSlot, sel: Selection) -> None:
        """A predicate that depends on data: it may choose between values, and nothing else."""
        if decoded.row.root in EFFECTS or decoded.traits.has_address:
            bad = np.flatnonzero(sel.pick(self.mirror.words(guard)[0]))
            what = "a branch" if decoded.row.root in ("bra", "brx", "ret", "exit") else "whether this is executed"
            raise FaultError(f"data decides {what} ({guard.name})", int(sel.threads[bad[0]]))
        self.compared.add(decoded.source.line)

    def _decode(self, pc: int, decoded: Decoded) -> Callable[[State], Callable[[Selection], int | None]]:
        context = context_of(decoded, pc, self.kernel, self.target, self.layout, blank=True)
        return action_of(context, decoded)

    def _shuffle(self, decoded: Decoded, sel: Selection) -> None:
        """`shfl`: the value of another lane."""
        _, value, lane, clamp, *_ = decoded.source.operands
        slot, result = decoded.slot(value), decoded.writes[0]
        others = tuple(s for s in decoded.reads if s != slot)
        self.refuse(others, sel, "a lane")
        if slot is None or slot not in self.touched:
            self.clear((result,), sel)
            return
        lanes, bounds = (self._word(decoded, operand) for operand in (lane, clamp))
        source, _ = shuffle_source(decoded.traits.bindings["MODE"], self.state.geometry.lane(), lanes, bounds)
        origin = source * self.state.warps + np.tile(np.arange(self.state.warps), LANES)
        self.write(result, sel, self.mirror.words(slot)[:, sel.pick(origin)])

    def _word(self, decoded: Decoded, operand: Operand) -> Array:
        slot = decoded.slot(operand)
        if slot is not None:
            return self.state.banks[slot.bits][slot.index]
        value = int(getattr(operand, "value", 0))
        return np.full(self.state.threads, value & 0xFFFFFFFF, np.uint32)

    def moved(self, pc: int) -> list[Callable[[Selection], int | None]]:
        """The steps of an instruction that moves bytes, in each plane."""
        return [self._decoded[pc](plane) for plane in self.mirror.planes]


class _Move:
    """An instruction that moves bytes as they lie."""

    def __init__(self, shadow: FieldShadow, pc: int, decoded: Decoded) -> None:
        self.shadow = shadow
        self.decoded = decoded
        self.operands = operands_of(decoded)
        self.steps = shadow.moved(pc)
        self.loads = decoded.row.root in ("ld", "ldmatrix") or decoded.row.means == "wmma.load"

    def look(self, sel: Selection) -> None:
        shadow, operands = self.shadow, self.operands
        shadow.refuse(operands.control, sel, "an address")
        if not self.loads and operands.results and shadow.touched.isdisjoint(operands.data):
            shadow.clear(operands.results, sel)
            return
        shadow.mirror.run(self.steps, sel, operands.control)
        for slot in operands.results:
            if slot not in shadow.touched and shadow.mirror.words(slot).any():
                shadow.touched.add(slot)
