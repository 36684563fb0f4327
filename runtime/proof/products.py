"""Matrix instructions in the fields: an instruction gathers the planes of its fragments, and spreads those of D."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ...dialect.isa.mma import Mma
from ...dialect.isa.types import ElementType
from ...dialect.isa.wgmma import Wgmma
from ...dialect.isa.wmma import WmmaMma
from ..interp.machine.events import Selection
from ..interp.machine.memory import FaultError
from ..numerics import floats
from ..numerics.array import Array
from ..numerics.fused_sum import decoded as decoded_scale
from ..numerics.fused_sum import small_codes, small_values, spread
from ..numerics.product import SideOperands, values
from . import field
from .field import Residues
from .mirror import action_of, context_of, operands_of, with_control
from .values import PLANES, Term, TermOperand, codes_of, planes_of
from .words import upper_half

if TYPE_CHECKING:
    from ..interp.machine.kernel import Decoded
    from .shadow import FieldShadow


Collected: TypeAlias = tuple[Array, Array, Array, SideOperands]
"""A, B, C and what else an instruction takes, as words."""


class FieldProduct:
    """One `mma`, `wmma.mma` or `wgmma.mma_async`.

    The instruction is decoded with `_multiply` in place of its arithmetic. It runs in each plane and, for values of the
    program, with the machine's own registers: at first to collect A, B, C and what else it takes; then to write D.
    """

    def __init__(self, shadow: FieldShadow, pc: int, decoded: Decoded) -> None:
        self.shadow, self.decoded = shadow, decoded
        row = decoded.row
        if not isinstance(row, Mma | Wgmma | WmmaMma):
            raise TypeError(f"{row.spelling} is no product of matrices")
        self.row = row
        self.operands = operands_of(decoded)
        self.results = tuple(dict.fromkeys(decoded.writes))
        self._collected: list[Collected] = []
        self._given: list[Array] = []
        context = context_of(decoded, pc, shadow.kernel, shadow.target, shadow.layout, self._multiply)
        action = action_of(context, decoded)
        self.steps = [action(plane) for plane in shadow.mirror.planes]
        self.own = action(shadow.state)

    def _multiply(self, a: Array, b: Array, c: Array, more: SideOperands | None = None) -> Array:
        if self._given:
            return self._given.pop(0)
        self._collected.append((a, b, c, more or SideOperands()))
        return np.zeros_like(c)

    def look(self, sel: Selection) -> None:
        self.shadow.refuse(self.operands.control, sel, "an operand of a product")
        if self.row.root != "wgmma":
            self._execute([lambda step=step: step(sel) for step in self.steps], lambda: self.own(sel))
            return
        self._issue(sel)

    def _issue(self, sel: Selection) -> None:
        """The products of warpgroups are executed when they are waited for: these before those of the machine, which
        are issued next."""
        mirror, groups = self.shadow.mirror, self.shadow.state.warpgroups
        mirror.run(self.steps, sel, self.operands.control)
        issued = [plane.issued.pop() for plane in mirror.products]
        self.own(sel)
        own = groups.pending.pop().execute

        def execute(done: Array) -> None:
            self._execute([lambda run=run: run(done) for _, run in issued], lambda: own(done))

        groups.issue(issued[0][0], execute)

    def _execute(self, planes: Sequence[Callable[[], object]], own: Callable[[], object]) -> None:
        shadow, mirror = self.shadow, self.shadow.mirror
        before = [shadow.state.banks[s.bits][s.index].copy() for s in self.results]
        codes = [mirror.words(s).copy() for s in self.results]
        self._collected, self._given = [], []
        for k, run in enumerate(planes):
            with_control(mirror.banks, k, shadow.state, self.operands.control, run)
            for slot, words in zip(self.results, codes, strict=True):
                mirror.words(slot)[k] = words[k]
        own()
        for slot, words in zip(self.results, before, strict=True):
            shadow.state.banks[slot.bits][slot.index][...] = words
        self._given = self._made()
        for k, run in enumerate(planes):
            with_control(mirror.banks, k, shadow.state, self.operands.control, run)
        shadow.touched.update(self.results)

    # D of what was collected

    def _made(self) -> list[Array]:
        *planes, (a, b, c, more) = self._collected
        row = self.row
        left = self._numbers(np.stack([p[0] for p in planes]), a, row.a)
        right = self._numbers(np.stack([p[1] for p in planes]), b, row.b)
        addend = self._numbers(np.stack([p[2] for p in planes]), c, row.c)
        data = self._any_data(planes)
        if more.columns is not None:
            left = _spread(left, more.columns, len(b))
        left, right = (self._scaled(n, planes, more, side) for n, side in ((left, "a"), (right, "b")))
        d = field.matmul(_matrix(left, False), _matrix(right, True), _stack(addend))
        numbers = Residues(np.moveaxis(d.residues, 1, -1), np.moveaxis(d.exact, 0, -1))
        term = self._term() if self.shadow.table.ordered else None
        index = self.shadow.table.add(numbers, row.d.name if row.d.is_float else "s32", term=term)
        width = row.d.bits // 8
        kept = planes_of(np.where(data, index, 0), width)
        return [kept[k].astype(c.dtype) for k in range(PLANES)]

    def _term(self) -> Term:
        """The instruction with its operands.

        Raises:
            FaultError: for one with a sparse A, scales, or elements of fewer than 8 bits.
        """
        *planes, (a, b, c, more) = self._collected
        kinds = (self.row.a, self.row.b, self.row.c)
        if more.columns is not None or more.scale_a is not None or any(kind.bits < 8 for kind in kinds):
            raise FaultError("the order of sums of this product is not followed", 0)
        first, second, third = (
            self._values(np.stack([np.asarray(p[i]) for p in planes]), (a, b, c)[i], kind)
            for i, kind in enumerate(kinds)
        )
        return Term(self.row.spelling, (third,), first, second)

    def _any_data(self, planes: Sequence[Collected]) -> bool:
        scales = (words for plane in planes for words in (plane[3].scale_a, plane[3].scale_b) if words is not None)
        return any(array.any() for plane in planes for array in plane[:3]) or any(words.any() for words in scales)

    def _numbers(self, planes: Array, words: Array, kind: ElementType) -> Residues:
        """The numbers of a matrix, of the planes of its elements or of their words."""
        if kind.bits < 8:
            if planes.any():
                raise FaultError(f"elements of {kind.bits} bits are not followed yet", 0)
            return field.embedded(_values(words, kind, self.row.kind))
        return self.shadow.table.numbers_or(*self._values(planes, words, kind))

    def _values(self, planes: Array, words: Array, kind: ElementType) -> TermOperand:
        """The values of the elements of a matrix, and what they are."""
        codes = codes_of(planes)
        index = codes.value
        if planes.dtype == np.uint32 and codes.mixed.any():
            index = np.where(codes.mixed, upper_half(self.shadow.table, planes, words), index)
        if (codes.mixed & (index == 0)).any() or (codes.first > 0).any():
            raise FaultError("an element is made of parts of several values", 0)
        return index, _values(words, kind, self.row.kind)

    def _scaled(
        self,
        numbers: Residues,
        planes: Sequence[Collected],
        more: SideOperands,
        side: str,
    ) -> Residues:
        """A or B times its scales, of which one stands for a block along k."""
        name = f"scale_{side}"
        words: Array | None = getattr(more, name)
        if words is None or (scale := getattr(self.row, "scale", None)) is None:
            return numbers
        codes = codes_of(np.stack([getattr(p[3], name) for p in planes]).astype(np.uint8))
        significand, exponent = decoded_scale(words, scale.type)
        found = self.shadow.table.numbers_or(codes.value, np.ldexp(significand.astype(np.float64), exponent))
        depth = numbers.residues.shape[1]
        each = depth // len(words)
        block = Residues(np.repeat(found.residues, each, axis=1), np.repeat(found.exact, each, axis=0))
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


def _stack(n: Residues) -> Residues:
    """(m, n, warps) as (warps, m, n)."""
    return Residues(np.ascontiguousarray(np.moveaxis(n.residues, -1, 1)), np.moveaxis(n.exact, -1, 0))
