"""What instructions of one thread do to values: arithmetic, bytes that are passed on, unknown functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ..interp.machine.events import Look, Selection
from ..interp.machine.memory import FaultError
from ..interp.machine.state import RegisterSlot, Source
from ..numerics.array import Array
from . import field
from .atomics import Atomic, BulkReduction
from .bits import Bytes
from .field import FUNCTIONS, Residues
from .mirror import context_of
from .products import FieldProduct
from .shadow import PRODUCTS, reduces
from .values import PLANES, planes_of
from .words import WIDTHS, element_of, elements, indices

if TYPE_CHECKING:
    from ..interp.machine.kernel import Decoded
    from .shadow import FieldShadow

FieldFunction: TypeAlias = Callable[..., Residues]


def _fused(a: Residues, b: Residues, c: Residues) -> Residues:
    return field.add(field.multiply(a, b), c)


ARITHMETIC: Mapping[str, FieldFunction] = {
    "add.float": field.add,
    "sub.float": field.subtract,
    "mul.float": field.multiply,
    "fma.float": _fused,
    "mad.float": _fused,
    "div.float": field.divide,
    "rcp.float": field.reciprocal,
    "neg.float": field.negate,
    "add.mixed": field.add,
    "sub.mixed": field.subtract,
    "fma.mixed": _fused,
    "sqrt.float": FUNCTIONS["sqrt"],
    "rsqrt.float": FUNCTIONS["rsqrt"],
    "ex2.float": FUNCTIONS["exp2"],
    "lg2.float": FUNCTIONS["log2"],
    "tanh.float": FUNCTIONS["tanh"],
    "sin.float": FUNCTIONS["sin"],
    "cos.float": FUNCTIONS["cos"],
}
"""Instructions by what their rows mean; roundings aside."""
CHOOSING = ("min.float", "max.float", "abs.float", "copysign.float")
CONVERSIONS = ("cvt.float", "cvt.pair", "cvt.narrow", "cvt.widen", "cvt.tf32", "cvt.from_integer")
_WHOLE = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


TENSOR_MEMORY = ("tcgen05.mma", "tcgen05.ld", "tcgen05.ld.red", "tcgen05.st", "tcgen05.cp", "tcgen05.shift")
"""What moves data in tensor memory, which has no planes."""


def rule_of(shadow: FieldShadow, pc: int, decoded: Decoded) -> Look | None:
    """What to do before an instruction; None if there is nothing."""
    means = decoded.row.means
    if means in PRODUCTS:
        return FieldProduct(shadow, pc, decoded).look
    if means in ARITHMETIC or means in CHOOSING or means in CONVERSIONS:
        return _Arithmetic(shadow, pc, decoded).look
    if means == "atomic":
        return Atomic(shadow, pc, decoded).look
    if reduces(decoded):
        return BulkReduction(shadow, pc, decoded).look
    if means == "call":
        return _Call(shadow, decoded).look
    computes = decoded.traits.computes and decoded.row.root not in ("vote", "match", "activemask", "elect")
    if decoded.row.root == "redux" or not (computes and decoded.writes):
        return _Effect(shadow, decoded).look if decoded.reads or decoded.writes else None
    return Bytes(shadow, pc, decoded).look


class _Effect:
    """An instruction that is no computation of one thread: what data would decide there is refused."""

    def __init__(self, shadow: FieldShadow, decoded: Decoded) -> None:
        self.shadow, self.decoded = shadow, decoded

    def look(self, sel: Selection) -> None:
        if self.decoded.row.means in TENSOR_MEMORY:
            raise FaultError("what tensor memory holds is not followed", int(sel.threads[0]))
        for slot in self.decoded.reads:
            if self.shadow.has_data(slot, sel):
                self.shadow.compared.add(self.decoded.source.line)
                if slot.bits > 1:
                    self.shadow.refuse((slot,), sel, "what this does")
        self.shadow.clear(self.decoded.writes, sel)


class _Call:
    """A call, or its return: neither may pass data, in parameters or in registers."""

    def __init__(self, shadow: FieldShadow, decoded: Decoded) -> None:
        self.shadow, self.decoded = shadow, decoded

    def look(self, sel: Selection) -> None:
        shadow = self.shadow
        shadow.refuse(self.decoded.reads, sel, "what this does")
        if shadow.mirror.local.any() or (self.decoded.writes and shadow.touched):
            raise FaultError("data may go through this call, which is not followed", int(sel.threads[0]))


# Floating-point arithmetic.


class _Read:
    """An operand: the elements of a type that a register holds, or a number of the program."""

    def __init__(self, source: Source, slot: RegisterSlot | None, type: str) -> None:
        self.source, self.slot, self.type = source, slot, type
        self.scalar, self.count = element_of(type)


class _Arithmetic:
    """Computes the numbers of the results, element by element."""

    def __init__(self, shadow: FieldShadow, pc: int, decoded: Decoded) -> None:
        self.shadow, self.decoded = shadow, decoded
        self.means, bound = decoded.row.means, decoded.traits.bindings
        context = context_of(decoded, pc, shadow.kernel, shadow.target, shadow.layout)
        signature = decoded.row.signature(bound, len(decoded.source.operands))
        self.reads: list[_Read] = []
        written: list[tuple[str, RegisterSlot | None]] = []
        for slot, operand in zip(signature, decoded.source.operands, strict=False):
            for item in context.items(operand):
                if slot.written:
                    written.append((slot.type, decoded.slot(item)))
                    continue
                source = context.source(item, slot.type, wide=slot.wider)
                self.reads.append(_Read(source, decoded.slot(item), slot.type))
        (type, self.result), *_ = written
        self.type = bound.get("D", type) if self.means.startswith("cvt") else type
        self.scalar, self.count = element_of("tf32" if self.means == "cvt.tf32" else self.type)
        if self.means.startswith("cvt"):
            self._named_types(bound)
        self.values = [read.source(shadow.state) for read in self.reads]
        self.slots = tuple(read.slot for read in self.reads if read.slot is not None)

    def _named_types(self, bound: Mapping[str, str]) -> None:
        origin = bound.get("S", "f32")
        for read in self.reads:
            read.scalar, read.count = element_of(origin)

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
        data = np.logical_or.reduce([i > 0 for i, _ in operands]) & np.isfinite(shown)
        if self.means not in CHOOSING:  # What infinities give is what it is.
            data &= np.logical_and.reduce([np.isfinite(c) for _, c in operands])
        if not data.any():
            return index
        given = [(i[data], c[data]) for i, c in operands]
        index[data] = self._made(given, shown[data])
        return index

    def _made(self, operands: list[tuple[Array, Array]], shown: Array) -> Array:
        table, bound = self.shadow.table, self.decoded.traits.bindings
        if self.means in ("min.float", "max.float") and not (bound.get("ABS") or bound.get("SIGN")):
            self.shadow.compared.add(self.decoded.source.line)
            return self._chosen(operands, shown)
        numbers = [table.numbers_or(i, c) for i, c in operands]
        root = self._root(operands)
        if self.means in CHOOSING:
            found = self._signed(operands, numbers, shown)
        elif whole := bound.get("WHOLE") if self.means == "cvt.float" else None:
            found = FUNCTIONS[_WHOLE[whole]](numbers[0])
        else:
            found = numbers[0] if self.means in CONVERSIONS else ARITHMETIC[self.means](*numbers)
        if self.means not in CONVERSIONS:
            found = self.shadow.recognise(found, root, shown)
        index = table.add(found, self.scalar, shown, root)
        cut = self._cut(operands, shown)
        return index if cut is None else np.where(cut, 0, index)

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
        for i, c in operands:
            index = np.where(c == shown, i, index)
        bound = self.shadow.table.add(field.embedded(shown), self.scalar, shown, self._root(operands))
        return np.where(index > 0, index, bound)

    def _signed(self, operands: list[tuple[Array, Array]], numbers: list[Residues], shown: Array) -> Residues:
        """A number or its negative, whichever the result is."""
        self.shadow.compared.add(self.decoded.source.line)
        found = numbers[-1]
        for (_, c), n in zip(operands, numbers, strict=True):
            same = np.abs(c) == np.abs(shown)
            value = Residues(np.where(c == shown, n.residues, field.negate(n).residues), n.exact)
            found = Residues(np.where(same, value.residues, found.residues), np.where(same, value.exact, found.exact))
        return found

    def _root(self, operands: list[tuple[Array, Array]]) -> Array:
        """The one value that a result is computed from; 0 where there are several."""
        root = np.zeros(operands[0][0].shape, np.int64)
        several = np.zeros(root.shape, np.bool_)
        if self.means == "sub.float":  # What is taken from itself is no function of it, as it is none of two values.
            several |= (operands[0][0] > 0) & (operands[0][0] == operands[1][0])
        for index, _ in operands:
            mine = np.where(index > 0, self.shadow.table.root(index), 0)
            several |= (root > 0) & (mine > 0) & (mine != root)
            root = np.where(mine > 0, mine, root)
        return np.where(several, 0, root)
