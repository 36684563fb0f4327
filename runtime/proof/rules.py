"""What instructions of one thread do to values: arithmetic, bytes that are passed on, unknown functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ...dialect.ptx.text.syntax import Immediate, Operand
from ...dialect.ptx.types import bits_of
from ..interp.machine.events import Look, Selection
from ..interp.machine.state import RegisterSlot, Source
from ..interp.meaning.access import locate, space_of, vector_of
from ..numerics import floats
from ..numerics.array import Array
from ..numerics.fused_sum import small_values
from . import field
from .field import FUNCTIONS, Numbers
from .mirror import action_of, context_of
from .values import PLANES, Table, codes_of, planes_of

if TYPE_CHECKING:
    from ..interp.machine.kernel import Decoded
    from .shadow import Shadow

WIDTHS = {"f64": 8, "f32": 4, "tf32": 4, "f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1, "e3m2": 1, "e2m3": 1, "ue8m0": 1}
"""Bytes of the floating-point types that values have in registers."""

Function: TypeAlias = Callable[..., Numbers]


def _fused(a: Numbers, b: Numbers, c: Numbers) -> Numbers:
    return field.add(field.multiply(a, b), c)


ARITHMETIC: Mapping[str, Function] = {
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


def rule_of(shadow: Shadow, pc: int, decoded: Decoded) -> Look | None:
    """What to do before an instruction; None if there is nothing."""
    means = decoded.row.means
    if means in ARITHMETIC or means in CHOOSING or means in CONVERSIONS:
        return _Arithmetic(shadow, pc, decoded).look
    if means == "atomic":
        return _Atomic(shadow, pc, decoded).look
    computes = decoded.traits.computes and decoded.row.root not in ("vote", "match", "activemask", "elect")
    if decoded.row.root == "redux" or not (computes and decoded.writes):
        return _Effect(shadow, decoded).look if decoded.reads or decoded.writes else None
    return _Bytes(shadow, pc, decoded).look


class _Effect:
    """An instruction that is no computation of one thread: what data would decide there is refused."""

    def __init__(self, shadow: Shadow, decoded: Decoded) -> None:
        self.shadow, self.decoded = shadow, decoded

    def look(self, sel: Selection) -> None:
        for slot in self.decoded.reads:
            if self.shadow.has_data(slot, sel):
                self.shadow.compared.add(self.decoded.source.line)
                if slot.bits > 1:
                    self.shadow.refuse((slot,), sel, "what this does")
        self.shadow.clear(self.decoded.writes, sel)


# Floating-point arithmetic.


class _Read:
    """An operand: the elements of a type that a register holds, or a number of the program."""

    def __init__(self, source: Source, slot: RegisterSlot | None, type: str) -> None:
        self.source, self.slot, self.type = source, slot, type
        self.scalar, self.count = element_of(type)


def element_of(type: str) -> tuple[str, int]:
    """The type of one element, and how many a register has."""
    scalar, x, count = type.rpartition("x")
    return (scalar, int(count)) if x and count.isdigit() and scalar in WIDTHS else (type, 1)


class _Arithmetic:
    """Computes the numbers of the results, element by element."""

    def __init__(self, shadow: Shadow, pc: int, decoded: Decoded) -> None:
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

    def _signed(self, operands: list[tuple[Array, Array]], numbers: list[Numbers], shown: Array) -> Numbers:
        """A number or its negative, whichever the result is."""
        self.shadow.compared.add(self.decoded.source.line)
        found = numbers[-1]
        for (_, c), n in zip(operands, numbers, strict=True):
            same = np.abs(c) == np.abs(shown)
            value = Numbers(np.where(c == shown, n.residues, field.negate(n).residues), n.exact)
            found = Numbers(np.where(same, value.residues, found.residues), np.where(same, value.exact, found.exact))
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


def elements(words: Array, scalar: str, count: int) -> list[Array]:
    """The elements of registers, from the low end, as f64; of integers the integer."""
    if scalar not in WIDTHS:
        return [words.astype(np.float64)]
    width = WIDTHS[scalar]
    kind = np.dtype(f"u{width}")
    columns = words.view(kind).reshape(words.size, -1)[:, :count]
    name = "f32" if scalar == "tf32" else scalar
    if width == 1:
        from ...dialect.isa.types import element_type

        table = small_values(element_type(scalar)).astype(np.float64)
        return [table[columns[:, i] & (len(table) - 1)] for i in range(count)]
    return [floats.value(np.ascontiguousarray(columns[:, i]), name) for i in range(count)]


def indices(table: Table, planes: Array, words: Array, scalar: str, count: int) -> list[Array]:
    """The values of the elements of registers by their planes (planes, threads). An element that is made of parts of
    several values is a value of its own, of which nothing is known."""
    width = WIDTHS.get(scalar, planes.dtype.itemsize)
    kind = np.dtype(f"u{width}")
    split = planes.view(kind).reshape(PLANES, planes.shape[1], -1)
    raw = words.view(kind).reshape(words.size, -1)
    found: list[Array] = []
    for i in range(count):
        mine, word = np.ascontiguousarray(split[:, :, i]), np.ascontiguousarray(raw[:, i])
        codes = codes_of(mine)
        index = codes.value.copy()
        odd = codes.mixed | (codes.first > 0)
        if odd.any() and scalar in ("f32", "tf32"):
            upper = upper_half(table, mine, word)
            index, odd = np.where(upper > 0, upper, index), odd & (upper == 0)
        if odd.any() and scalar == "bf16":
            odd &= ~((codes.first == 2) & ~codes.mixed & table.is_kind(index, "f32"))
        if odd.any():
            index[odd] = table.add(field.hashed("bits", signature(table, mine[:, odd], word[odd])), "bits")
        found.append(index)
    return found


def upper_half(table: Table, planes: Array, words: Array) -> Array:
    """The bf16 that f32 words hold in their upper half, over zeros; 0 where there is none."""
    halves = np.ascontiguousarray(planes).view(np.uint16).reshape(*planes.shape, 2)
    low, upper = (np.ascontiguousarray(halves[..., i]) for i in range(2))
    codes = codes_of(upper)
    plain = ~low.any(axis=0) & ~codes.mixed & (codes.first == 0) & table.is_kind(codes.value, "bf16")
    bare = np.ascontiguousarray(words).view(np.uint16).reshape(*words.shape, 2)[..., 0] == 0
    return np.where(plain & bare, codes.value, 0)


def signature(table: Table, planes: Array, words: Array) -> Array:
    """A word that says what bytes are: of which values, and which of their bytes; or what they are."""
    width = planes.dtype.itemsize
    raw = np.ascontiguousarray(words).view(np.uint8).reshape(words.size, width)
    split = np.ascontiguousarray(planes).view(np.uint8).reshape(PLANES, words.size, width)
    found = np.zeros(words.size, np.uint64)
    for byte in range(width):
        codes = sum(split[k, :, byte].astype(np.uint64) << np.uint64(8 * k) for k in range(PLANES))
        codes = np.asarray(codes, np.uint64)
        key = table.numbers((codes >> np.uint64(3)).astype(np.int64)).key + (codes & np.uint64(7))
        key = np.where(codes == 0, raw[:, byte].astype(np.uint64), key)
        found = field.hashed("byte", found, key).key
    return found


# Integers, bits, and what passes bytes on.


BITWISE = frozenset((
    "mov", "and", "or", "xor", "not", "lop3", "shl", "shr", "shf", "prmt", "bfe", "bfi", "selp", "cvt",
))  # fmt: skip
"""First words of instructions of which each bit of a result is one of an operand, or depends on bits at one place."""
_OPERANDS = 4
"""Operands of data of which all combinations are tried."""


class _Bytes:
    """An instruction on words. A byte of the result is one of an operand, or does not depend on data, if trials say so:
    with all bytes of each operand of data zeros, or ones; with the planes of the codes; and with bytes that are drawn
    for the codes. Else, and wherever bits may depend on each other, the result is an unknown function."""

    def __init__(self, shadow: Shadow, pc: int, decoded: Decoded) -> None:
        self.shadow, self.decoded = shadow, decoded
        context = context_of(decoded, pc, shadow.kernel, shadow.target, shadow.layout)
        self.step = action_of(context, decoded)(shadow.mirror.probe)
        self.reads = tuple(dict.fromkeys(decoded.reads))
        self.results = tuple(dict.fromkeys(decoded.writes))
        self.bitwise = decoded.row.root in BITWISE and decoded.row.means not in ("cvt.to_integer", "cvt.from_integer")

    def look(self, sel: Selection) -> None:
        shadow = self.shadow
        data = [slot for slot in self.reads if shadow.has_data(slot, sel)]
        if not data:
            shadow.clear(self.results, sel)
            return
        if flags := [slot for slot in data if slot.bits == 1]:
            shadow.compared.add(self.decoded.source.line)
            data = [slot for slot in data if slot.bits > 1]
        bitwise = self.bitwise and 0 < len(data) <= _OPERANDS
        moved = self._moved(data, sel) if bitwise else None
        for number, slot in enumerate(self.results):
            if slot.bits == 1:
                self._flag(slot, [*data, *flags], sel)
            elif not data:
                shadow.clear((slot,), sel)
            elif moved is None:
                words = np.zeros((PLANES, sel.count), shadow.mirror.words(slot).dtype)
                shadow.write(slot, sel, self._changed(words, np.ones(sel.count, np.bool_), slot, data, sel))
            else:
                self._passed(slot, *moved[number], data, sel)

    def _moved(self, data: Sequence[RegisterSlot], sel: Selection) -> list[tuple[Array, Array]]:
        """Of each result the planes of its bytes, and which of these are known."""
        combinations = list(product((0, 0xFF), repeat=len(data)))
        trials = [self._trial(data, sel, lambda i, _, each=each: each[i]) for each in combinations]
        planes = [self._trial(data, sel, lambda i, w, k=k: w[k]) for k in range(PLANES)]
        drawn = [self._trial(data, sel, lambda i, w, n=n: _drawn(_codes(w), n)) for n in range(2)]
        found: list[tuple[Array, Array]] = []
        for number in range(len(self.results)):
            made = [_bytes_of(trial[number], sel) for trial in trials]
            same = np.logical_and.reduce([m == made[0] for m in made])
            through = np.zeros(same.shape, np.bool_)
            for i in range(len(data)):
                through |= np.logical_and.reduce([m == c[i] for m, c in zip(made, combinations, strict=True)])
            moved = np.stack([_bytes_of(p[number], sel) for p in planes])
            codes = _codes(moved)
            agreed = [_bytes_of(d[number], sel) == _drawn(codes, n) for n, d in enumerate(drawn)]
            through &= ~same & (codes > 0) & np.logical_and.reduce(agreed)
            # What is no data passes as itself: a byte of 0 in every plane.
            found.append((np.where(through, moved, np.uint8(0)), same | through))
        return found

    def _trial(
        self, data: Sequence[RegisterSlot], sel: Selection, make: Callable[[int, Array], Array | int]
    ) -> list[Array]:
        """The results with every byte of data replaced: `make` takes the number of an operand, and its planes."""
        mirror, banks = self.shadow.mirror, self.shadow.mirror.probe.banks
        for slot in self.reads:
            row = banks[slot.bits][slot.index]
            row[...] = self.shadow.state.banks[slot.bits][slot.index]
            if slot in data:
                words = np.ascontiguousarray(mirror.words(slot)).view(np.uint8).reshape(PLANES, -1)
                held = words.any(axis=0)
                row.view(np.uint8)[held] = np.broadcast_to(
                    np.asarray(make(data.index(slot), words), np.uint8), held.shape
                )[held]
        self.step(sel)
        return [sel.pick(banks[slot.bits][slot.index]).copy() for slot in self.results]

    def _flag(self, slot: RegisterSlot, data: Sequence[RegisterSlot], sel: Selection) -> None:
        """A predicate depends on data in the threads where an operand is one of data."""
        self.shadow.compared.add(self.decoded.source.line)
        words = [self.shadow.mirror.words(s) for s in data]
        some = np.logical_or.reduce([sel.pick(w.view(np.bool_).any(axis=0) if s.bits == 1 else (w != 0).any(axis=0))
                                     for s, w in zip(data, words, strict=True)])  # fmt: skip
        self.shadow.write(slot, sel, np.stack([some, *[np.zeros_like(some)] * (PLANES - 1)]))

    def _passed(
        self, slot: RegisterSlot, moved: Array, known: Array, data: Sequence[RegisterSlot], sel: Selection
    ) -> None:
        kind = self.shadow.mirror.words(slot).dtype
        words = np.ascontiguousarray(moved).view(kind).reshape(PLANES, sel.count)
        good = known.all(axis=1)
        if not good.all():
            words = self._changed(words.copy(), ~good, slot, data, sel)
        self.shadow.write(slot, sel, words)

    def _changed(
        self, words: Array, bad: Array, slot: RegisterSlot, data: Sequence[RegisterSlot], sel: Selection
    ) -> Array:
        """The results of threads in which bits of values are computed with: signs that are changed are known, all else
        is a function of the operands of which nothing is."""
        threads = sel.threads[bad]
        table = self.shadow.table
        keys: list[Array] = []
        for read in self.reads:
            row = self.shadow.state.banks[read.bits][read.index][threads]
            if read.bits == 1:
                keys.append(row.astype(np.uint64))
            else:
                keys.append(signature(table, np.ascontiguousarray(self.shadow.mirror.words(read)[:, threads]), row))
        literals = ",".join(o.text for o in self.decoded.source.operands if isinstance(o, Immediate))
        made = field.hashed(f"{self.decoded.source.opcode} {slot.bits} {literals}", *keys)
        signs = self._sign(threads, data)
        root = np.zeros(threads.size, np.int64)
        if signs is not None:
            made, kind, root = signs
        else:
            kind = "bits"
            roots = [table.root(codes_of(np.ascontiguousarray(self.shadow.mirror.words(s)[:, threads])).value)
                     for s in data]  # fmt: skip
            root = np.where(np.logical_and.reduce([r == roots[0] for r in roots]), roots[0], 0)
        words[:, bad] = planes_of(table.add(made, kind, np.nan, root), slot.bits // 8).astype(words.dtype)
        return words

    def _sign(self, threads: Array, data: Sequence[RegisterSlot]) -> tuple[Numbers, str, Array] | None:
        """The number of an f32 whose sign an exclusive or changes, or a conjunction takes away."""
        if len(data) != 1 or data[0].bits != 32 or self.decoded.row.root not in ("xor", "and"):
            return None
        literal = next((o for o in self.decoded.source.operands if isinstance(o, Immediate)), None)
        wanted = {"xor": 0x80000000, "and": 0x7FFFFFFF}[self.decoded.row.root]
        if literal is None or int(literal.value) & 0xFFFFFFFF != wanted:
            return None
        table = self.shadow.table
        words = self.shadow.state.banks[32][data[0].index][threads]
        (index,) = indices(table, np.ascontiguousarray(self.shadow.mirror.words(data[0])[:, threads]), words, "f32", 1)
        numbers = table.numbers(index)
        turned = field.negate(numbers)
        if self.decoded.row.root == "and":
            self.shadow.compared.add(self.decoded.source.line)
            turned = Numbers(np.where(words >> 31 == 1, turned.residues, numbers.residues), numbers.exact)
        return turned, "f32", table.root(index)


def _bytes_of(words: Array, sel: Selection) -> Array:
    return np.ascontiguousarray(words).view(np.uint8).reshape(sel.count, -1)


def _codes(planes: Array) -> Array:
    """The codes of bytes (planes, ...)."""
    found = np.zeros(planes.shape[1:], np.uint64)
    for k in range(PLANES):
        found |= planes[k].astype(np.uint64) << np.uint64(8 * k)
    return found


def _drawn(codes: Array, number: int) -> Array:
    """A byte for each code."""
    return (field.hashed(f"draw {number}", codes).residues[0] & np.uint64(0xFF)).astype(np.uint8)


# Atomic operations.


class _Atomic:
    """`red` and `atom`: sums of floating-point numbers; other operations on words that are no values."""

    def __init__(self, shadow: Shadow, pc: int, decoded: Decoded) -> None:
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
            made = field.add(total, Numbers(sums % field.moduli(sums), np.ones(places.size, np.bool_)))
            width = WIDTHS[self.scalar]
            part = planes_of(table.add(made, self.scalar), width).astype(old.dtype)
            found |= part << old.dtype.type(8 * width * number)
        memory[:, places] = found
