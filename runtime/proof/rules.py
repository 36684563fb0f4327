"""What instructions of one thread do to values: arithmetic, bytes that are passed on, unknown functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from ...dialect.ptx.text.syntax import bits_of
from ..interp.machine.events import Look, Selection
from ..interp.machine.kernel import Decoded
from ..interp.machine.memory import MachineLimitError
from ..interp.machine.state import RegisterSlot, Source
from ..interp.meaning.access import locate, space_of, vector_of
from ..interp.meaning.bulk import one_by_one
from ..numerics.floats import Array
from . import field
from .bits import Bytes
from .field import FUNCTIONS, Residues
from .mirror import again
from .shadow import PRODUCTS, FieldProduct, FieldShadow, Replaced, reduces
from .values import PLANES, WIDTHS, Term, element_of, elements, indices, planes_of

# Atomic operations and bulk reductions of values: sums; and what may be done to words that are none.


class Atomic:
    """`red` and `atom`: sums of floats, and other operations on words without values."""

    def __init__(self, shadow: FieldShadow, decoded: Decoded) -> None:
        self.shadow, self.decoded = shadow, decoded
        bound = decoded.traits.bindings
        self.operation, self.type, self.vector = bound["O"], bound["T"], vector_of(bound)
        context = again(decoded, shadow.layout)
        where, value, *swapped = list(decoded.source.operands)[1 if decoded.row.root == "atom" else 0 :]
        self.items = [
            (decoded.slot(item), context.source(item, self.type)(shadow.state))
            for item in (*context.items(value), *(swapped if self.operation == "cas" else ()))
        ]
        data = [slot for slot, _ in self.items]
        self.address = tuple(slot for slot in decoded.reads if slot.bits > 1 and slot not in data)
        self.find = locate(context, where, space_of(bound), None)(shadow.state)
        self.width = bits_of(self.type) // 8
        self._after: list[Callable[[], None]] = []

    def look(self, sel: Selection) -> None:
        shadow = self.shadow
        shadow.refuse(self.address, sel, "an address")
        shadow.clear(self.decoded.writes, sel)
        if self.width > 8:
            raise MachineLimitError("an atomic of 16 bytes is not followed", int(sel.threads[0]))
        kind, self._after = np.dtype(f"u{self.width}"), []
        for part in self.find(sel, self.width * self.vector):
            planes = shadow.mirror.memory_of(part.buffer)
            complete = planes[:, : planes.shape[1] // (self.width * self.vector) * self.width * self.vector]
            memory = complete.view(kind).reshape(PLANES, -1, self.vector)
            data = part.buffer.view(self.width, self.vector).reshape(-1, self.vector)
            chosen = part.of(sel.threads)
            for column in range(self.vector):
                self._column(memory[:, :, column], data[:, column], part.index, column, chosen)
        if self._after:
            shadow.later(self._pass)

    def _pass(self) -> None:
        for act in self._after:
            act()

    def _column(self, memory: Array, data: Array, at: Array, column: int, threads: Array) -> None:
        shadow, (slot, value) = self.shadow, self.items[-1 if self.operation == "cas" else column]
        words = np.ascontiguousarray(value[threads]).view(memory.dtype)
        come = np.zeros((PLANES, threads.size), memory.dtype)
        if slot is not None:
            come = np.ascontiguousarray(shadow.mirror.words(slot)[:, threads])
        places, which = np.unique(at, return_inverse=True)
        old = np.ascontiguousarray(memory[:, places])
        if not come.any() and not old.any():
            return
        if self.operation in PASSING and "x" not in self.type and self.vector == 1 and not shadow.table.ordered:
            self._after.append(self._passed(memory, data, at, threads))
            return
        self._returned(threads)
        before = np.ascontiguousarray(data[places])
        added = sums(shadow, (self.operation, self.type), (old, before), (come, words), which)
        if added is None:
            raise MachineLimitError(f"an atomic {self.operation}.{self.type} of data is not followed", int(threads[0]))
        memory[:, places] = added

    def _passed(self, memory: Array, data: Array, at: Array, threads: Array) -> Callable[[], None]:
        """What is done when words have been left in memory, or brought from there, as they are: those of the threads in
        the order of this run, or of memory before, told by their bits."""
        shadow, line, (slot, value) = self.shadow, self.decoded.source.line, self.items[-1]
        shadow.compared.add(line)
        if self.operation in ("cas", "exch"):
            shadow.decided.setdefault(line, set()).update((True, False))
        come = np.ascontiguousarray(value[threads]).view(memory.dtype)
        words = np.concatenate([come, data[at]])
        planes = np.zeros((PLANES, threads.size), memory.dtype)
        if slot is not None:
            planes = shadow.mirror.words(slot)[:, threads]
        planes = np.concatenate([planes, memory[:, at]], axis=1)

        def passed() -> None:
            for place in np.unique(at):
                here = at == place
                mine = np.flatnonzero(np.tile(here, 2))
                memory[:, place] = planes[:, mine[np.argmax(words[mine] == data[place])]]
                for result in self.decoded.writes:
                    got = shadow.state.banks[result.bits][result.index][threads[here]].view(memory.dtype)
                    brought = mine[(words[mine] == got[:, None]).argmax(axis=1)]
                    shadow.mirror.words(result)[:, threads[here]] = planes[:, brought]
                    shadow.touched.add(result)

        return passed

    def _returned(self, threads: Array) -> None:
        """What was in memory is a value of which nothing is known: it depends on the order of the threads."""
        for slot in self.decoded.writes:
            numbers = np.uint64(self.shadow.table.size) + np.arange(threads.size, dtype=np.uint64)
            made = field.hashed("old", numbers)
            planes = planes_of(self.shadow.table.add(made, "bits"), slot.bits // 8)
            sel = Selection.of(threads, self.shadow.state.threads)
            self.shadow.write(slot, sel, planes[:, np.argsort(threads, kind="stable")])


class BulkReduction(Replaced):
    """A bulk or tensor reduction into global memory, with `_update` in place of its operation."""

    def __init__(self, shadow: FieldShadow, decoded: Decoded) -> None:
        super().__init__(shadow, decoded, decoded.reads, updates=self._update)
        self._thread = 0

    def _update(self, operation: str, type: str) -> Callable[[bool], Callable[..., Array]]:
        def update(old: Array, come: Array, _: Array) -> Array:
            if self.given:
                return self.given.pop(0).view(old.dtype)
            self.collected.append(((operation, type), old.copy(), come.copy()))
            return old

        return lambda shared: update

    def look(self, sel: Selection) -> None:
        self.shadow.refuse(self.control, sel, "an address")
        for one, self._thread in one_by_one(sel):
            self.execute([lambda step=step, one=one: step(one) for step in self.steps], partial(self.own_unseen, one))

    def made(self, collected: Sequence[tuple[tuple[str, str], Array, Array]]) -> Array:
        *planes, (what, old, come) = collected
        seen = [np.stack([plane[i] for plane in planes]).view(f"u{old.itemsize}") for i in (1, 2)]
        if not (seen[0].any() or seen[1].any()):
            return seen[0]
        words = old.view(f"u{old.itemsize}"), come.view(f"u{old.itemsize}")
        added = sums(self.shadow, what, (seen[0], words[0]), (seen[1], words[1]), np.arange(old.size))
        if added is None:
            raise MachineLimitError(f"a reduction {'.'.join(what)} of data is not followed", self._thread)
        return added


PlaneWords: TypeAlias = tuple[Array, Array]
"""The planes of words, and the words."""


def sums(shadow: FieldShadow, what: tuple[str, str], old: PlaneWords, come: PlaneWords, which: Array) -> Array | None:
    """The planes of words in memory after additions. `which` has the word that each addend goes to. None for operations
    other than addition, and for elements that are no numbers."""
    (operation, type), table = what, shadow.table
    if table.ordered:
        raise MachineLimitError(f"a sum in memory ({operation}.{type}) has no order of its own", 0)
    scalar, count = element_of(type)
    if operation != "add" or scalar not in WIDTHS:
        return None
    summed = np.zeros_like(old[0])
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
        summed |= part << old[0].dtype.type(8 * width * number)
    return summed


FieldFunction: TypeAlias = Callable[..., Residues]


def _fused(a: Residues, b: Residues, c: Residues) -> Residues:
    return field.add(field.multiply(a, b), c)


ARITHMETIC: Mapping[str, FieldFunction] = {
    **dict.fromkeys(("add.float", "add.mixed"), field.add),
    **dict.fromkeys(("sub.float", "sub.mixed"), field.subtract),
    **dict.fromkeys(("fma.float", "mad.float", "fma.mixed"), _fused),
    "mul.float": field.multiply,
    "div.float": field.divide,
    "rcp.float": field.reciprocal,
    "neg.float": field.negate,
    **{f"{name}.float": FUNCTIONS[name] for name in ("sqrt", "rsqrt", "tanh", "sin", "cos")},
    "ex2.float": FUNCTIONS["exp2"],
    "lg2.float": FUNCTIONS["log2"],
}
"""Instructions by what their rows mean; roundings aside."""
PASSING = ("min", "max", "cas", "exch")
"""Atomic operations that leave in memory what was there, or what a thread brings."""
CHOOSING = ("min.float", "max.float", "abs.float", "copysign.float")
CONVERSIONS = ("cvt.float", "cvt.pair", "cvt.narrow", "cvt.widen", "cvt.tf32", "cvt.from_integer")
_WHOLE = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def rule_of(shadow: FieldShadow, pc: int, decoded: Decoded) -> Look | None:
    """The callback before an instruction; None if it needs none."""
    means = decoded.row.means
    if means in PRODUCTS:
        return FieldProduct(shadow, decoded).look
    if means in ARITHMETIC or means in CHOOSING or means in CONVERSIONS:
        return _Arithmetic(shadow, decoded).look
    if means == "atomic":
        return Atomic(shadow, decoded).look
    if reduces(decoded):
        return BulkReduction(shadow, decoded).look
    if means == "call":
        return partial(_call, shadow, decoded)
    computes = decoded.traits.computes and decoded.row.root not in ("vote", "match", "activemask", "elect")
    if decoded.row.root == "redux" or not (computes and decoded.writes):
        return partial(_effect, shadow, decoded) if decoded.reads or decoded.writes else None
    return Bytes(shadow, pc, decoded).look


def _effect(shadow: FieldShadow, decoded: Decoded, sel: Selection) -> None:
    """An instruction with effects beyond its thread. No data may decide what it does, but predicates of votes may."""
    data = [slot for slot in decoded.reads if shadow.has_data(slot, sel)]
    shadow.refuse(tuple(data), sel, "what this does")
    shadow.clear(decoded.writes, sel)
    if data:
        shadow.compared.add(decoded.source.line)
        planes = np.zeros((PLANES, sel.count), np.bool_)
        planes[0] = True
        for slot in decoded.writes:
            if slot.bits == 1:
                shadow.write(slot, sel, planes)


def _call(shadow: FieldShadow, decoded: Decoded, sel: Selection) -> None:
    """A call, or its return: neither may pass data, in parameters or in registers."""
    shadow.refuse(decoded.reads, sel, "what this does")
    if shadow.mirror.local.any() or (decoded.writes and shadow.touched):
        raise MachineLimitError("data may go through this call, which is not followed", int(sel.threads[0]))


# Floating-point arithmetic.


@dataclass(frozen=True)
class _Read:
    """An operand: the elements of a register, or a literal of the program."""

    source: Source
    slot: RegisterSlot | None
    scalar: str
    count: int


class _Arithmetic:
    """Computes the numbers of the results, element by element."""

    def __init__(self, shadow: FieldShadow, decoded: Decoded) -> None:
        self.shadow, self.decoded = shadow, decoded
        self.means, bound = decoded.row.means, decoded.traits.bindings
        context = again(decoded, shadow.layout)
        signature = decoded.row.signature(bound, len(decoded.source.operands))
        self.reads: list[_Read] = []
        written: list[tuple[str, RegisterSlot | None]] = []
        for slot, operand in zip(signature, decoded.source.operands, strict=False):
            for item in context.items(operand):
                if slot.written:
                    written.append((slot.type, decoded.slot(item)))
                    continue
                source = context.source(item, slot.type, wide=slot.wider)
                of = bound.get("S", "f32") if self.means.startswith("cvt") else slot.type
                self.reads.append(_Read(source, decoded.slot(item), *element_of(of)))
        (type, self.result), *_ = written
        self.type = bound.get("D", type) if self.means.startswith("cvt") else type
        self.scalar, self.count = element_of("tf32" if self.means == "cvt.tf32" else self.type)
        self.values = [read.source(shadow.state) for read in self.reads]
        self.slots = tuple(read.slot for read in self.reads if read.slot is not None)

    def look(self, sel: Selection) -> None:
        shadow = self.shadow
        if not any(shadow.has_data(slot, sel) for slot in self.slots):
            if self.result is not None:
                shadow.clear((self.result,), sel)
            return
        if self.scalar not in WIDTHS or any(r.scalar not in WIDTHS and r.scalar[0] in "fe" for r in self.reads):
            shadow.refuse(self.slots, sel, "a number that is not followed")
        operands = [self._elements(read, value, sel) for read, value in zip(self.reads, self.values, strict=True)]
        shadow.later(lambda: self._finish(operands, sel))

    def _elements(self, read: _Read, value: Array, sel: Selection) -> list[tuple[Array, Array]]:
        """The values and the words of each element of an operand, from the low end."""
        picked = np.ascontiguousarray(sel.pick(value))
        concrete = elements(picked, read.scalar, read.count)
        if read.slot is None:
            return [(np.zeros(sel.count, np.int64), c) for c in concrete]
        planes = self.shadow.mirror.words(read.slot)
        planes = np.ascontiguousarray(planes if sel.mask is None else planes[:, sel.lanes])
        index = indices(self.shadow.table, planes, picked, read.scalar, read.count)
        return list(zip(index, concrete, strict=True))

    def _finish(self, operands: list[list[tuple[Array, Array]]], sel: Selection) -> None:
        if self.result is None:
            return
        bank = self.shadow.state.banks[self.result.bits][self.result.index]
        made = elements(np.ascontiguousarray(sel.pick(bank)), self.scalar, self.count)
        planes = np.zeros((PLANES, sel.count), bank.dtype)
        for number, shown in enumerate(made):
            index = self._element([self._part(each, number) for each in self._order(operands)], shown)
            width = WIDTHS[self.scalar]
            part = planes_of(index, width).astype(bank.dtype)
            planes |= part << bank.dtype.type(8 * width * number)
        self.shadow.write(self.result, sel, planes)

    def _order(self, operands: list[list[tuple[Array, Array]]]) -> list[list[tuple[Array, Array]]]:
        """Two operands that are packed into one register become the elements of one: the first is the upper."""
        if self.means in ("cvt.pair", "cvt.narrow") and len(operands) >= 2:
            return [[operands[1][0], operands[0][0]]]
        return operands

    def _part(self, of: list[tuple[Array, Array]], number: int) -> tuple[Array, Array]:
        return of[number] if len(of) > 1 else of[0]

    def _element(self, operands: list[tuple[Array, Array]], shown: Array) -> Array:
        """The values of one element of the result: 0 where it is of the program, or no number."""
        index = np.zeros(shown.shape, np.int64)
        data = np.logical_or.reduce([i > 0 for i, _ in operands])
        if self.means not in CHOOSING and not all(np.isfinite(c).all() for c in (shown, *(c for _, c in operands))):
            data &= ~field.settled(shown, [self.shadow.table.numbers_or(i, c) for i, c in operands])
        if not data.any():
            return index
        operands_ = [(i[data], c[data]) for i, c in operands]
        index[data] = self._made(operands_, shown[data])
        return index

    def _made(self, operands: list[tuple[Array, Array]], shown: Array) -> Array:
        table, bound = self.shadow.table, self.decoded.traits.bindings
        numbers: list[Residues] = []
        for i, c in operands:
            table.show(i, c)
            n = table.numbers_or(i, c)
            if (bits := table.is_kind(i, "bits") & (i > 0)).any():
                n = self.shadow.recognise(n, np.where(bits, table.root[i], 0), c)
            numbers.append(n)
            if self.means in CHOOSING:
                self.shadow.functions.see(n.key, c)
        if self.means in ("min.float", "max.float") and not (bound.get("ABS") or bound.get("SIGN")):
            self.shadow.compared.add(self.decoded.source.line)
            return self._chosen(operands, shown)
        root = self._root(operands)
        if self.means in CHOOSING:
            made = self._signed(operands, numbers, shown)
        elif rounding := bound.get("WHOLE") if self.means == "cvt.float" else None:
            made = FUNCTIONS[_WHOLE[rounding]](numbers[0])
        else:
            made = numbers[0] if self.means in CONVERSIONS else ARITHMETIC[self.means](*numbers)
        # What is 0 or 1 whatever the data is no function of them; what an operation leaves as it is has its root.
        root = np.where(np.isin(made.key, field.NEUTRAL), 0, root)
        for (i, _), n in zip(operands, numbers, strict=True):
            root = np.where((i > 0) & (n.key == made.key), table.root[i], root)
        if self.means not in CONVERSIONS:
            made = self.shadow.recognise(made, root, shown)
        unknown = np.logical_or.reduce([table.unknown[i] for i, _ in operands])
        index = table.add(made, self.scalar, shown, root, self._term(operands), unknown=unknown)
        cut = self._cut(operands, shown)
        return index if cut is None else np.where(cut, 0, index)

    def _term(self, operands: list[tuple[Array, Array]]) -> Term | None:
        """The instruction as a term, without rounding to nearest. Symmetric operands, the first two, may be swapped."""
        if not self.shadow.table.ordered:
            return None
        label = self.decoded.source.opcode.replace(".rn", "")
        return Term(label, operands, symmetric=self.decoded.row.root in ("add", "mul", "fma", "mad", "min", "max"))

    def _cut(self, operands: list[tuple[Array, Array]], shown: Array) -> Array | None:
        """Where `.relu` or `.sat` gave its bound."""
        bound = self.decoded.traits.bindings
        if not (bound.get("RELU") or bound.get("SAT")):
            return None
        self.shadow.compared.add(self.decoded.source.line)
        return (shown == 0) | (shown == 1) if bound.get("SAT") else shown == 0

    def _chosen(self, operands: list[tuple[Array, Array]], shown: Array) -> Array:
        """The operand that the result is; a number of the program that is chosen depends on the others all the same."""
        index = np.zeros(shown.shape, np.int64)
        if self.shadow.table.ordered:
            return self.shadow.table.add(field.embedded(shown), self.scalar, shown, term=self._term(operands))
        for i, c in operands:
            index = np.where((c == shown) | (np.isnan(c) & np.isnan(shown)), i, index)
        program = field.embedded(np.where(index > 0, 0, shown))
        bound = self.shadow.table.add(program, self.scalar, shown, self._root(operands))
        return np.where(index > 0, index, bound)

    def _signed(self, operands: list[tuple[Array, Array]], numbers: list[Residues], shown: Array) -> Residues:
        """A number or its negative, whichever the result is."""
        self.shadow.compared.add(self.decoded.source.line)
        chosen = numbers[-1]
        for (_, c), n in zip(operands, numbers, strict=True):
            same = np.abs(c) == np.abs(shown)
            value = Residues(np.where(c == shown, n.residues, field.negate(n).residues), n.exact)
            chosen = Residues(
                np.where(same, value.residues, chosen.residues), np.where(same, value.exact, chosen.exact)
            )
        return chosen

    def _root(self, operands: list[tuple[Array, Array]]) -> Array:
        """The only value that a result depends on; 0 if there are several."""
        root = np.zeros(operands[0][0].shape, np.int64)
        several = np.zeros(root.shape, np.bool_)
        for index, _ in operands:
            mine = np.where(index > 0, self.shadow.table.root[index], 0)
            several |= (root > 0) & (mine > 0) & (mine != root)
            root = np.where(mine > 0, mine, root)
        return np.where(several, 0, root)
