"""Observes a running kernel: every value that comes from the arrays has a number in the fields beside its bytes.

Instructions that move bytes move the codes of these numbers (`mirror`); those that compute make new values (`rules`,
`products`). If data decides an address, the run ends with an error at that line, because one run then says nothing of
other data. A comparison of data counts as it came out in this run. `compared` has the places of such comparisons,
`decided` the branches and stores that data decides, and `unknown` the places that compute with bits of data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from ...dialect.isa.form import ElementType
from ...dialect.isa.mma import Mma
from ...dialect.isa.tensor_product import TensorProduct
from ...dialect.isa.wgmma import Wgmma
from ...dialect.isa.wmma import WmmaMma
from ...dialect.ptx.text.source_lines import SourceLines
from ..interp.machine.decode import Multiply, Updates
from ..interp.machine.events import Look, MemoryAccess, Selection
from ..interp.machine.kernel import Decoded, Observer
from ..interp.machine.mbarriers import OperationGroups
from ..interp.machine.memory import MachineLimitError
from ..interp.machine.state import RegisterSlot, State
from ..interp.meaning.bulk import one_by_one
from ..interp.meaning.synchronisation import shuffle_origin
from ..interp.watch.registers import Trials
from ..numerics import floats
from ..numerics.floats import Array
from ..numerics.fused_sum import decoded as decoded_scale
from ..numerics.fused_sum import small_codes, small_values, spread
from ..numerics.product import SideOperands, values
from . import field
from .field import FieldFunctions, Residues
from .mirror import Issued, Mirror, PlaneMemory, action_again, again, blank, operands_of, with_control
from .values import PLANES, Table, Term, TermOperand, codes_of, planes_of, upper_half

MOVES = frozenset((
    "ld", "st", "ldmatrix", "stmatrix", "movmatrix", "cp.async", "cp.async.bulk", "tensor.load", "tensor.store",
    "wmma.load", "wmma.store", "st.async", "st.bulk", "mov.b128", "tcgen05.ld", "tcgen05.st", "tcgen05.cp",
    "tcgen05.shift",
))  # fmt: skip
"""What moves bytes, in memory or between lanes, as its bytes lie."""
PRODUCTS = frozenset(("mma", "wmma.mma", "wgmma.mma_async", "tcgen05.mma"))
EFFECTS = ("bra", "brx", "ret", "exit", "call", "bar", "barrier", "trap", "mbarrier", "wgmma", "mma", "wmma", "red",
           "st")  # fmt: skip
"""First words of what is more than a choice between values where a predicate guards it."""


def reduces(decoded: Decoded) -> bool:
    """Whether an instruction is a bulk or tensor reduction into global memory."""
    bound = decoded.traits.bindings
    if decoded.row.means == "tensor.store":
        return bool(bound.get("OP"))
    return decoded.row.means == "cp.reduce.async.bulk" and bound["D"] == "global"


def moves(decoded: Decoded) -> bool:
    """Whether an instruction moves bytes, and does nothing else to them."""
    unpacks = decoded.row.means == "tcgen05.cp" and bool(decoded.traits.bindings.get("F"))
    return decoded.row.means in MOVES and not reduces(decoded) and not unpacks


RuleOf: TypeAlias = "Callable[[FieldShadow, int, Decoded], Look | None]"


class FieldShadow(Observer):
    """The shadow of all launches of one run. `memory` are the planes of global memory, `table` all values; `rule_of`
    says what is done before an instruction that computes."""

    def __init__(self, table: Table, rule_of: RuleOf) -> None:
        self._rule_of = rule_of
        self.table = table
        self.functions = FieldFunctions()
        self.memory = PlaneMemory()
        self.compared: set[int] = set()
        self.decided: dict[int, set[bool]] = {}
        self.unknown: set[int] = set()
        self.sources: SourceLines | None = None
        self._later: Callable[[], None] | None = None

    # The machine's events

    def begun(self) -> None:
        state, layout, self.sources = self.state, self.kernel.layout, self.kernel.sources
        self.layout = replace(layout, slots=dict(layout.slots))
        observer, state.observer = state.observer, None
        self._decoded = {pc: self._decode(d) for pc, d in enumerate(self.kernel.code) if moves(d)}
        self.mirror = Mirror(state, self.layout, self.memory)
        self.trials = Trials(state, layout.slots)
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
                return self._move(pc, decoded)
            return None if decoded.row.root == "shfl" else self._rule_of(self, pc, decoded)
        finally:
            self.state.observer = observer

    def access(self, access: MemoryAccess) -> None:
        """Refuses accesses to values by what neither moves nor adds them."""
        decoded = self.kernel.code[access.pc]
        if access.pc in self._decoded or reduces(decoded) or decoded.row.means in ("atomic", *PRODUCTS):
            return
        planes = self.mirror.values_of(access.buffer)
        bytes_of = access.start[:, None] + np.arange(access.width)
        if planes is not None and decoded.row.means == "tcgen05.dealloc":
            planes[:, bytes_of] = 0
        elif planes is not None and (bad := np.flatnonzero(planes[:, bytes_of].any(axis=(0, 2)))).size:
            raise MachineLimitError("data is accessed here in a way that is not followed", int(access.threads[bad[0]]))

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

    def recognise(self, numbers: Residues, root: Array, shown: Array) -> Residues:
        """The numbers of results. A result that is a known function of its root gets the number of that function."""
        if not (alone := root > 0).any():
            return numbers
        key = np.where(alone, self.table.numbers(root).key, np.uint64(1 << 63))
        self.functions.see(key[alone], self.table.shown[root][alone])
        return self.functions.recognise(numbers, key, shown)

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
        """Checks that no register holds data. Raises MachineLimitError if one does; `what` names the decision."""
        for slot in slots:
            if slot.bits > 1 and self.has_data(slot, sel):
                words = self.mirror.words(slot)
                bad = np.flatnonzero((words if sel.mask is None else words[:, sel.lanes]).any(axis=0))
                raise MachineLimitError(f"data decides {what} ({slot.name})", int(sel.threads[bad[0]]))

    def _guarded(self, decoded: Decoded, guard: RegisterSlot, sel: Selection) -> None:
        """Handles a guard that depends on data. It may choose between values or branches, or decide whether a store
        happens; for other effects it is an error."""
        line = decoded.source.line
        self.compared.add(line)
        if decoded.row.root in EFFECTS or decoded.traits.has_address:
            lanes = sel.pick(self.mirror.words(guard)[0]) != 0
            if self.table.ordered:
                raise MachineLimitError(
                    f"data decides what is executed ({guard.name})", int(sel.threads[np.argmax(lanes)])
                )
            ways = sel.pick(self.state.banks[guard.bits][guard.index])[lanes] != decoded.negated
            self.decided.setdefault(line, set()).update(ways.tolist())

    def _decode(self, decoded: Decoded) -> Callable[[State], Callable[[Selection], int | None]]:
        context = again(decoded, self.layout)
        context.instruction = blank(decoded.source)
        return action_again(decoded, context)

    def _shuffle(self, decoded: Decoded, sel: Selection) -> None:
        """`shfl`: the value of another lane."""
        slot, result = decoded.slot(decoded.source.operands[1]), decoded.writes[0]
        others = tuple(s for s in decoded.reads if s != slot)
        self.refuse(others, sel, "a lane")
        if slot is None or slot not in self.touched:
            self.clear((result,), sel)
            return
        _, origin = shuffle_origin(self.state, decoded)
        self.write(result, sel, self.mirror.words(slot)[:, sel.pick(origin)])

    def _move(self, pc: int, decoded: Decoded) -> Look:
        """An instruction that moves bytes as they lie."""
        operands, steps = operands_of(decoded), [self._decoded[pc](plane) for plane in self.mirror.planes]
        loads = decoded.row.root in ("ld", "ldmatrix") or decoded.row.means in ("wmma.load", "tcgen05.ld")

        def look(sel: Selection) -> None:
            self.refuse(operands.control, sel, "an address")
            if not loads and operands.results and self.touched.isdisjoint(operands.data):
                self.clear(operands.results, sel)
                return
            self.mirror.run(steps, sel, operands.control)
            self.mirror.pass_on()
            self.touched.update(s for s in operands.results if s not in self.touched and self.mirror.words(s).any())

        return look


# Instructions whose arithmetic something else stands for.


class Replaced(ABC):
    """An instruction that is decoded again with a stand-in for its arithmetic, such as `_multiply`. It is executed in
    each plane and, for values of the program, with the machine's own registers: at first to collect what it computes
    with, then to write what that makes. `results` are its registers, `written` what it writes before it is known: words
    and planes. `control` are registers that are as in the machine."""

    def __init__(
        self, shadow: FieldShadow, decoded: Decoded, control: tuple[RegisterSlot, ...], **stands: Multiply | Updates
    ) -> None:
        self.shadow, self.control = shadow, control
        self.results: tuple[RegisterSlot, ...] = ()
        self.written: list[tuple[Array, Array]] = []
        self.collected: list[Any] = []
        self.given: list[Array] = []
        action = action_again(decoded, again(decoded, shadow.layout, **stands))
        self.steps = [action(plane) for plane in shadow.mirror.planes]
        self.own = action(shadow.state)

    @abstractmethod
    def made(self, collected: Sequence[Any]) -> Sequence[Array] | Array:
        """The planes of what a call of the stand-in gives, by what it took in each plane and in the machine."""

    def own_unseen(self, sel: Selection) -> None:
        """Executes the machine's own, of which nobody is told."""
        observer, self.shadow.state.observer = self.shadow.state.observer, None
        self.own(sel)
        self.shadow.state.observer = observer

    def execute(self, planes: Sequence[Callable[[], object]], own: Callable[[], object]) -> None:
        """Executes it in the planes and in the machine; then in the planes with what was made."""
        before = [(words.copy(), codes.copy()) for words, codes in self.written]
        self.collected, self.given = [], []
        self._in_planes(planes)
        own()
        for (words, codes), (old, kept) in zip(self.written, before, strict=True):
            words[...], codes[...] = old, kept
        parts = len(self.collected) // (PLANES + 1)
        made = [self.made(self.collected[part::parts]) for part in range(parts)]
        self.given = [words[k] for k in range(PLANES) for words in made]
        self._in_planes(planes)
        self.shadow.touched.update(self.results)

    def _in_planes(self, planes: Sequence[Callable[[], object]]) -> None:
        for k, run in enumerate(planes):
            with_control(self.shadow.mirror.banks, k, self.shadow.state, self.control, run)


# Matrix instructions in the fields: an instruction gathers the planes of its fragments, and spreads those of D.


Collected: TypeAlias = tuple[Array, Array, Array, SideOperands]
"""A, B, C and what else an instruction takes, as words."""


class FieldProduct(Replaced):
    """One `mma`, `wmma.mma`, `wgmma.mma_async` or `tcgen05.mma`, whose form its descriptor says."""

    def __init__(self, shadow: FieldShadow, decoded: Decoded) -> None:
        super().__init__(shadow, decoded, operands_of(decoded).control, multiply=self._multiply)
        row, state, mirror = decoded.row, shadow.state, shadow.mirror
        self.form = row if isinstance(row, Mma | Wgmma | WmmaMma) else None
        self.results = tuple(dict.fromkeys(decoded.writes))
        self.written = [(state.banks[s.bits][s.index], mirror.words(s)) for s in self.results]
        self.later: tuple[OperationGroups, Sequence[Issued]] | None = None
        if row.root == "wgmma":
            self.later = state.warpgroups, mirror.products
        elif self.form is None:
            self.written = [(state.tensor.words, mirror.tensor)]
            self.later = state.tensor.products, [plane.issued for plane in mirror.tensors]
        self._scale = 0
        self._unknown = False

    def _multiply(
        self, a: Array, b: Array, c: Array, more: SideOperands | None = None, form: TensorProduct | None = None,
        scale: int = 0,
    ) -> Array:  # fmt: skip
        if self.given:
            return self.given.pop(0)
        self.form, self._scale = form or self.form, scale
        self.collected.append((a, b, c, more or SideOperands()))
        return np.zeros_like(c)

    def look(self, sel: Selection) -> None:
        self.shadow.refuse(self.control, sel, "an operand of a product")
        if self.later is None:
            self.execute([lambda step=step: step(sel) for step in self.steps], lambda: self.own(sel))
            return
        for one in (sel,) if self.results else [one for one, _ in one_by_one(sel)]:
            self._issue(one, *self.later)

    def _issue(self, sel: Selection, groups: OperationGroups, queues: Sequence[Issued]) -> None:
        """Issues an asynchronous product, executed when it is waited for, before the machine's own, issued after it."""
        self.shadow.mirror.run(self.steps, sel, self.control)
        issued = [queue.collected.pop() for queue in queues]
        self.own_unseen(sel)
        own = groups.pending.pop().execute

        def execute(done: Array) -> None:
            self.execute([lambda run=run: run(done) for _, run in issued], lambda: own(done))

        groups.issue(issued[0][0], execute)

    # D of what was collected

    def made(self, collected: Sequence[Collected]) -> list[Array]:
        *planes, (a, b, c, more) = collected
        row, self._unknown = self._form(), False
        left = self._numbers(np.stack([p[0] for p in planes]), a, row.a)
        right = self._numbers(np.stack([p[1] for p in planes]), b, row.b)
        addend = self._numbers(np.stack([p[2] for p in planes]), c, row.c)
        data = self._any_data(planes)
        if isinstance(row, TensorProduct):
            addend = field.multiply(addend, field.embedded(np.array(2.0**-self._scale)))
            left, right = (field.negate(n) if minus else n for n, minus in zip((left, right), row.negated, strict=True))
        if more.columns is not None:
            left = _spread(left, more.columns, len(b))
        left, right = (self._scaled(n, planes, more, side) for n, side in ((left, "a"), (right, "b")))
        c_ = Residues(np.ascontiguousarray(np.moveaxis(addend.residues, -1, 1)), np.moveaxis(addend.exact, -1, 0))
        d = field.matmul(_matrix(left, False), _matrix(right, True), c_)
        numbers = Residues(np.moveaxis(d.residues, 1, -1), np.moveaxis(d.exact, 0, -1))
        term = self._term(collected) if self.shadow.table.ordered else None
        index = self.shadow.table.add(
            numbers, row.d.name if row.d.is_float else "s32", term=term, unknown=self._unknown
        )
        width = row.d.bits // 8
        kept = planes_of(np.where(data, index, 0), width)
        return [kept[k].astype(c.dtype) for k in range(PLANES)]

    def _form(self) -> Mma | Wgmma | WmmaMma | TensorProduct:
        if self.form is None:
            raise TypeError("a product of which nothing was collected")
        return self.form

    def _term(self, collected: Sequence[Collected]) -> Term:
        """The instruction with its operands. Raises MachineLimitError for one with a sparse A, scales, or elements of
        fewer than 8 bits."""
        *planes, (a, b, c, more) = collected
        kinds = (self._form().a, self._form().b, self._form().c)
        if more.columns is not None or more.scale_a is not None or any(kind.bits < 8 for kind in kinds):
            raise MachineLimitError("the order of sums of this product is not followed", 0)
        first, second, third = (
            self._values(np.stack([np.asarray(p[i]) for p in planes]), (a, b, c)[i], kind)
            for i, kind in enumerate(kinds)
        )
        return Term(self._form().spelling, (third,), first, second)

    def _any_data(self, planes: Sequence[Collected]) -> bool:
        scales = (words for plane in planes for words in (plane[3].scale_a, plane[3].scale_b) if words is not None)
        return any(array.any() for plane in planes for array in plane[:3]) or any(words.any() for words in scales)

    def _numbers(self, planes: Array, words: Array, kind: ElementType) -> Residues:
        """The numbers of a matrix, of the planes of its elements or of their words."""
        if kind.bits < 8:
            if planes.any():
                raise MachineLimitError(f"elements of {kind.bits} bits are not followed yet", 0)
            return field.embedded(_values(words, kind, self._form().kind))
        return self.shadow.table.numbers_or(*self._values(planes, words, kind))

    def _values(self, planes: Array, words: Array, kind: ElementType) -> TermOperand:
        """The values of the elements of a matrix, and what they are."""
        codes = codes_of(planes)
        index = self.shadow.table.read_as(codes.value, kind.name)
        if planes.dtype == np.uint32 and codes.mixed.any():
            index = np.where(codes.mixed, upper_half(self.shadow.table, planes, words), index)
        if (codes.mixed & (index == 0)).any() or (codes.first > 0).any():
            raise MachineLimitError("an element is made of parts of several values", 0)
        self._unknown |= bool(self.shadow.table.unknown[index].any())
        return index, _values(words, kind, self._form().kind)

    def _scaled(self, numbers: Residues, planes: Sequence[Collected], more: SideOperands, side: str) -> Residues:
        """A or B times its scales, of which one stands for a block along k."""
        name = f"scale_{side}"
        words: Array | None = getattr(more, name)
        if words is None or (scale := getattr(self._form(), "scale", None)) is None:
            return numbers
        codes = codes_of(np.stack([getattr(p[3], name) for p in planes]).astype(np.uint8))
        significand, exponent = decoded_scale(words, scale.type)
        index = self.shadow.table.read_as(codes.value, scale.type.name)
        scales = self.shadow.table.numbers_or(index, np.ldexp(significand.astype(np.float64), exponent))
        each = numbers.residues.shape[1] // len(words)
        block = Residues(np.repeat(scales.residues, each, axis=1), np.repeat(scales.exact, each, axis=0))
        return field.multiply(numbers, block)


def _values(words: Array, kind: ElementType, form: str) -> Array:
    """What words are as elements of a type."""
    if not kind.is_float:
        return words.view(np.int32).astype(np.float64) if kind.bits == 32 else values(words, kind).astype(np.float64)
    if kind.bits <= 8:
        return small_values(kind).astype(np.float64)[small_codes(words, kind, form)]
    name = "f32" if kind.name == "tf32" else kind.name
    return floats.value(np.ascontiguousarray(words).view(floats.WORDS[name]), name)


def _spread(stored: Residues, where: Array, depth: int) -> Residues:
    """Stored elements of a sparse A at their columns."""
    full = np.stack([spread(component, where, depth) for component in stored.residues])
    return Residues(full, spread(stored.exact, where, depth) | ~spread(np.ones_like(stored.exact), where, depth))


def _matrix(n: Residues, right: bool) -> Residues:
    """(k, rows, warps) as (warps, rows, k), or as (warps, k, columns)."""
    order = (2, 0, 1) if right else (2, 1, 0)
    residues = n.residues.transpose(0, *(i + 1 for i in order))
    return Residues(np.ascontiguousarray(residues), n.exact.transpose(order))
