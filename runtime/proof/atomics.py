"""Atomic operations on values: sums; and what may be done to words that are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ...dialect.ptx.text.syntax import Operand
from ...dialect.ptx.types import bits_of
from ..interp.machine.events import Selection
from ..interp.machine.state import RegisterSlot
from ..interp.meaning.access import locate, space_of, vector_of
from ..numerics.array import Array
from . import field
from .field import Residues
from .mirror import context_of
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
        self.address = tuple(s for s in decoded.reads if s.bits > 1 and s not in self._data(value, context.items))
        self.find = locate(context, where, space_of(bound), None)(shadow.state)
        self.slots = self._data(value, context.items)
        self.width = bits_of(self.type) // 8
        self.scalar, self.count = element_of(self.type)

    def _data(self, operand: Operand, items: Callable[[Operand], tuple[Operand, ...]]) -> list[RegisterSlot]:
        return [slot for item in items(operand) if (slot := self.decoded.slot(item)) is not None]

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
            for column, slot in enumerate(self.slots):
                self._column(memory[:, :, column], data[:, column], part.index, slot, chosen)

    def _column(self, memory: Array, data: Array, at: Array, slot: RegisterSlot, threads: Array) -> None:
        shadow, table = self.shadow, self.shadow.table
        given = np.ascontiguousarray(shadow.mirror.words(slot)[:, threads])
        places, which = np.unique(at, return_inverse=True)
        old = np.ascontiguousarray(memory[:, places])
        if not given.any() and not old.any():
            return
        if self.operation != "add" or self.scalar not in WIDTHS:
            shadow.refuse((slot,), Selection(None, shadow.state.threads), f"an atomic {self.operation}")
            memory[:, places] = 0
            return
        words = shadow.state.banks[slot.bits][slot.index][threads]
        before, found = np.ascontiguousarray(data[places]), np.zeros_like(old)
        olds = zip(indices(table, old, before, self.scalar, self.count), elements(before, self.scalar, self.count),
                   strict=True)  # fmt: skip
        news = zip(indices(table, given, words, self.scalar, self.count), elements(words, self.scalar, self.count),
                   strict=True)  # fmt: skip
        for number, ((i, c), (j, d)) in enumerate(zip(olds, news, strict=True)):
            total = table.numbers_or(i, c)
            added = table.numbers_or(j, d)
            sums = np.zeros_like(total.residues)
            for one in range(4):
                np.add.at(sums[one], which, added.residues[one])
            made = field.add(total, Residues(sums % field.moduli(sums), np.ones(places.size, np.bool_)))
            width = WIDTHS[self.scalar]
            part = planes_of(table.add(made, self.scalar), width).astype(old.dtype)
            found |= part << old.dtype.type(8 * width * number)
        memory[:, places] = found
