"""Atomic operations and bulk reductions of values: sums; and what may be done to words that are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ...dialect.ptx.types import bits_of
from ..interp.machine.events import Selection
from ..interp.machine.memory import FaultError
from ..interp.meaning.access import locate, space_of, vector_of
from ..interp.meaning.bulk import one_by_one
from ..numerics.array import Array
from . import field
from .field import Residues
from .mirror import action_of, context_of, with_control
from .values import PLANES, planes_of
from .words import WIDTHS, element_of, elements, indices

if TYPE_CHECKING:
    from ..interp.machine.kernel import Decoded
    from .shadow import FieldShadow


class Atomic:
    """`red` and `atom`: sums of floating-point numbers; other operations on words that are no values."""

    def __init__(self, shadow: FieldShadow, pc: int, decoded: Decoded) -> None:
        self.shadow, self.decoded = shadow, decoded
        bound = decoded.traits.bindings
        self.operation, self.type, self.vector = bound["O"], bound["T"], vector_of(bound)
        context = context_of(decoded, pc, shadow.kernel, shadow.target, shadow.layout)
        where, value = list(decoded.source.operands)[1 if decoded.row.root == "atom" else 0 :][:2]
        self.items = [
            (decoded.slot(item), context.source(item, self.type)(shadow.state)) for item in context.items(value)
        ]
        data = [slot for slot, _ in self.items]
        self.address = tuple(slot for slot in decoded.reads if slot.bits > 1 and slot not in data)
        self.find = locate(context, where, space_of(bound), None)(shadow.state)
        self.width = bits_of(self.type) // 8

    def look(self, sel: Selection) -> None:
        shadow = self.shadow
        shadow.refuse(self.address, sel, "an address")
        shadow.clear(self.decoded.writes, sel)
        kind = np.dtype(f"u{self.width}")
        for part in self.find(sel, self.width * self.vector):
            planes = shadow.mirror.memory_of(part.buffer)
            whole = planes[:, : planes.shape[1] // (self.width * self.vector) * self.width * self.vector]
            memory = whole.view(kind).reshape(PLANES, -1, self.vector)
            data = part.buffer.view(self.width, self.vector).reshape(-1, self.vector)
            chosen = sel.threads if part.chosen is None else sel.threads[part.chosen]
            for column in range(self.vector):
                self._column(memory[:, :, column], data[:, column], part.index, column, chosen)

    def _column(self, memory: Array, data: Array, at: Array, column: int, threads: Array) -> None:
        shadow, (slot, value) = self.shadow, self.items[column]
        words = np.ascontiguousarray(value[threads]).view(memory.dtype)
        come = np.zeros((PLANES, threads.size), memory.dtype)
        if slot is not None:
            come = np.ascontiguousarray(shadow.mirror.words(slot)[:, threads])
        places, which = np.unique(at, return_inverse=True)
        old = np.ascontiguousarray(memory[:, places])
        if not come.any() and not old.any():
            return
        self._returned(threads)
        before = np.ascontiguousarray(data[places])
        added = sums(shadow, (self.operation, self.type), (old, before), (come, words), which)
        if added is None:
            raise FaultError(f"an atomic {self.operation}.{self.type} of data is not followed", int(threads[0]))
        memory[:, places] = added

    def _returned(self, threads: Array) -> None:
        """What was in memory is a value of which nothing is known: it depends on the order of the threads."""
        for slot in self.decoded.writes:
            numbers = np.uint64(self.shadow.table.size) + np.arange(threads.size, dtype=np.uint64)
            made = field.hashed("old", numbers)
            mask = np.zeros(self.shadow.state.threads, np.bool_)
            mask[threads] = True
            planes = planes_of(self.shadow.table.add(made, "bits"), slot.bits // 8)
            self.shadow.write(slot, Selection(mask, mask.size), planes[:, np.argsort(threads, kind="stable")])


class BulkReduction:
    """A bulk or tensor reduction into global memory: the instruction is executed with `_update` in place of its
    operation, in each plane and in the machine, at first to collect the words that meet, then to write the sums."""

    def __init__(self, shadow: FieldShadow, pc: int, decoded: Decoded) -> None:
        self.shadow, self.decoded = shadow, decoded
        context = context_of(decoded, pc, shadow.kernel, shadow.target, shadow.layout)
        context.updates = self._update
        action = action_of(context, decoded)
        self.steps = [action(plane) for plane in shadow.mirror.planes]
        self.own = action(shadow.state)
        self._collected: list[tuple[tuple[str, str], Array, Array]] = []
        self._made: list[Array] = []

    def _update(self, operation: str, type: str) -> Callable[[bool], Callable[..., Array]]:
        def update(old: Array, come: Array, _: Array) -> Array:
            if self._made:
                return self._made.pop(0).view(old.dtype)
            self._collected.append(((operation, type), old.copy(), come.copy()))
            return old

        return lambda shared: update

    def look(self, sel: Selection) -> None:
        self.shadow.refuse(self.decoded.reads, sel, "an address")
        for one, thread in one_by_one(sel):
            self._of_thread(one, thread)

    def _of_thread(self, one: Selection, thread: int) -> None:
        shadow, state = self.shadow, self.shadow.state
        self._collected, self._made, control = [], [], self.decoded.reads
        shadow.mirror.run(self.steps, one, control)
        observer, state.observer = state.observer, None
        self.own(one)
        state.observer = observer
        count = len(self._collected) // (PLANES + 1)
        made: list[Array] = []
        for part in range(count):
            *planes, (what, old, come) = self._collected[part::count]
            seen = [np.stack([plane[i] for plane in planes]).view(f"u{old.itemsize}") for i in (1, 2)]
            if not (seen[0].any() or seen[1].any()):
                made.append(seen[0])
                continue
            words = old.view(f"u{old.itemsize}"), come.view(f"u{old.itemsize}")
            added = sums(shadow, what, (seen[0], words[0]), (seen[1], words[1]), np.arange(old.size))
            if added is None:
                raise FaultError(f"a reduction {'.'.join(what)} of data is not followed", thread)
            made.append(added)
        for k, step in enumerate(self.steps):
            self._made = [part[k] for part in made]
            with_control(shadow.mirror.banks, k, state, control, lambda step=step: step(one))


Words: TypeAlias = tuple[Array, Array]
"""The planes of words, and the words."""


def sums(shadow: FieldShadow, what: tuple[str, str], old: Words, come: Words, which: Array) -> Array | None:
    """The planes of words in memory to which others are added, each to the one that `which` says; None for another
    operation, or for other elements than numbers."""
    (operation, type), table = what, shadow.table
    scalar, count = element_of(type)
    if operation != "add" or scalar not in WIDTHS:
        return None
    found = np.zeros_like(old[0])
    olds, news = (
        zip(indices(table, planes, words, scalar, count), elements(words, scalar, count), strict=True)
        for planes, words in (old, come)
    )
    for number, ((i, c), (j, d)) in enumerate(zip(olds, news, strict=True)):
        total, added = table.numbers_or(i, c), table.numbers_or(j, d)
        terms = np.zeros_like(total.residues)
        for one in range(4):
            np.add.at(terms[one], which, added.residues[one])
        exact = total.exact.copy()
        np.logical_and.at(exact, which, added.exact)
        made = field.add(total, Residues(terms % field.moduli(terms), exact))
        width = WIDTHS[scalar]
        part = planes_of(table.add(made, scalar), width).astype(old[0].dtype)
        found |= part << old[0].dtype.type(8 * width * number)
    return found
