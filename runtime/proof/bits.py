"""Instructions on bits: what passes bytes on is told by trials, and all else is an unknown function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from ...dialect.ptx.text.syntax import Immediate
from ..interp.machine.events import Selection
from ..interp.machine.kernel import Decoded
from ..interp.machine.state import RegisterSlot
from ..interp.watch.registers import is_bitwise
from ..numerics.floats import Array
from . import field
from .field import Residues
from .shadow import FieldShadow
from .values import PLANES, byte_codes, codes_of, indices, planes_of, signature

_OPERANDS = 4
"""Operands of data of which all combinations are tried."""


class Bytes:
    """An instruction on words. Trials show whether a byte of the result is a byte of an operand, or does not depend on
    data: with all operands zeros or ones, with the planes of the codes, and with random bytes for the codes. Otherwise,
    and wherever bits may depend on each other, the result is an unknown function."""

    def __init__(self, shadow: FieldShadow, pc: int, decoded: Decoded) -> None:
        self.shadow, self.pc, self.decoded = shadow, pc, decoded
        self.reads = tuple(dict.fromkeys(decoded.reads))
        self.results = tuple(dict.fromkeys(decoded.writes))
        self.bitwise = is_bitwise(decoded)

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
                shadow.write(slot, sel, self._changed(words, self._reads_data([*data, *flags], sel), slot, data, sel))
            else:
                self._passed(slot, *moved[number], data, sel)

    def _moved(self, data: Sequence[RegisterSlot], sel: Selection) -> list[tuple[Array, Array]]:
        """For each result, the planes of its bytes, and a mask of the known ones."""
        combinations = list(product((0, 0xFF), repeat=len(data)))
        trials = [self._trial(data, sel, lambda i, _, each=each: each[i]) for each in combinations]
        constant = [self._constant(number, trials, combinations) for number in range(len(self.results))]
        if not any(through.any() for _, through in constant):
            return [(np.zeros((PLANES, *same.shape), np.uint8), same) for same, _ in constant]
        planes = [self._trial(data, sel, lambda i, w, k=k: w[k]) for k in range(PLANES)]
        drawn = [self._trial(data, sel, lambda i, w, n=n: _drawn(byte_codes(w), n)) for n in range(2)]
        moved_: list[tuple[Array, Array]] = []
        for number, (same, through) in enumerate(constant):
            moved = np.stack([p[number] for p in planes])
            codes = byte_codes(moved)
            agreed = [d[number] == _drawn(codes, n) for n, d in enumerate(drawn)]
            through = through & (codes > 0) & np.logical_and.reduce(agreed)
            # What is no data passes as itself: a byte of 0 in every plane.
            moved_.append((np.where(through, moved, np.uint8(0)), same | through))
        return moved_

    def _constant(
        self, number: int, trials: Sequence[Sequence[Array]], combinations: Sequence[tuple[int, ...]]
    ) -> tuple[Array, Array]:
        """Which bytes of a result are equal in all trials, and which of them equal a byte of one operand."""
        made = [trial[number] for trial in trials]
        same: Array = np.logical_and.reduce([m == made[0] for m in made])
        through = np.zeros(same.shape, np.bool_)
        for each in zip(*combinations, strict=True):
            through |= np.logical_and.reduce([m == byte for m, byte in zip(made, each, strict=True)])
        return same, through & ~same

    def _trial(
        self, data: Sequence[RegisterSlot], sel: Selection, make: Callable[[int, Array], Array | int]
    ) -> list[Array]:
        """The bytes of results with data replaced by what `make` gives for an operand's number and planes."""
        shadow, replaced = self.shadow, dict[RegisterSlot, tuple[Array, Array]]()
        for number, slot in enumerate(data):
            words = np.ascontiguousarray(shadow.mirror.words(slot)).view(np.uint8).reshape(PLANES, -1)
            bytes_ = words.any(axis=0), np.broadcast_to(make(number, words), words.shape[1:])
            mask, others = (part.reshape(shadow.state.threads, -1)[sel.threads] for part in bytes_)
            replaced[slot] = mask, others
        results = shadow.trials.results(self.pc, self.decoded, sel, replaced)
        return list(dict(zip(self.decoded.writes, results, strict=True)).values())

    def _flag(self, slot: RegisterSlot, data: Sequence[RegisterSlot], sel: Selection) -> None:
        """A predicate depends on data in the threads where an operand is one of data."""
        self.shadow.compared.add(self.decoded.source.line)
        some = self._reads_data(data, sel)
        self.shadow.write(slot, sel, np.stack([some, *[np.zeros_like(some)] * (PLANES - 1)]))

    def _reads_data(self, slots: Sequence[RegisterSlot], sel: Selection) -> Array:
        """The threads in which at least one of the registers holds data."""
        has_data = [np.logical_or.reduce(self.shadow.mirror.words(slot) != 0, axis=0) for slot in slots]
        return sel.pick(np.logical_or.reduce(has_data))

    def _passed(
        self, slot: RegisterSlot, moved: Array, constant: Array, data: Sequence[RegisterSlot], sel: Selection
    ) -> None:
        kind = self.shadow.mirror.words(slot).dtype
        words = np.ascontiguousarray(moved).view(kind).reshape(PLANES, sel.count)
        good: Array = np.logical_and.reduce(constant, axis=1)
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
        signs = None if table.ordered else self._sign(threads, data)
        root = np.zeros(threads.size, np.int64)
        if signs is not None:
            made, kind, root = signs
        else:
            kind = "bits"
            self.shadow.unknown.add(self.decoded.source.line)
            roots = [table.root[codes_of(np.ascontiguousarray(self.shadow.mirror.words(s)[:, threads])).value]
                     for s in data]  # fmt: skip
            root = np.where(np.logical_and.reduce([r == roots[0] for r in roots]), roots[0], 0)
        row, converted = np.zeros(threads.size, np.int64), np.zeros((PLANES, threads.size), words.dtype)
        if kind == "bits" and (by_byte := self._by_byte(slot, bad, data, sel)) is not None:
            root, row, converted = by_byte
        index = table.add(made, kind, np.nan, root, unknown=kind == "bits", row=row)
        words[:, bad] = np.where(converted.any(axis=0), converted, planes_of(index, slot.bits // 8).astype(words.dtype))
        return words

    def _by_byte(
        self, slot: RegisterSlot, bad: Array, data: Sequence[RegisterSlot], sel: Selection
    ) -> tuple[Array, Array, Array] | None:
        """Results that depend on one byte, of which all 256 values are tried: its values, the rows of the results, and
        the planes where the result is its number in another type, or that number times a power of 2. None if the
        results depend on more."""
        table, mirror = self.shadow.table, self.shadow.mirror
        if table.ordered or any(read.bits == 1 and self.shadow.has_data(read, sel) for read in self.reads):
            return None
        codes = [byte_codes(np.ascontiguousarray(mirror.words(s)).view(np.uint8).reshape(PLANES, -1)) for s in data]
        mine = np.concatenate([c.reshape(self.shadow.state.threads, -1)[sel.threads[bad]] for c in codes], axis=1)
        root = table.byte_of(mine)
        if (root == 0).any():
            return None
        number, made = self.results.index(slot), np.zeros((root.size, 256), np.uint64)
        for byte in range(256):
            tried = [table.tried(each, byte) for each in codes]
            result = self._trial(data, sel, lambda i, _, tried=tried: tried[i])[number]
            made[:, byte] = result.view(f"u{result.shape[1]}")[bad, 0]
        row, index = table.converted(made, root)
        planes = np.zeros((PLANES, root.size), mirror.words(slot).dtype)
        for width in (2, 4):
            wide = table.is_kind(index, "f32") == (width == 4)
            planes[:, wide] = planes_of(index[wide], width).astype(planes.dtype)
        return root, row, planes

    def _sign(self, threads: Array, data: Sequence[RegisterSlot]) -> tuple[Residues, str, Array] | None:
        """The number of an f32 whose sign an `xor` flips or an `and` clears; None for other instructions."""
        wanted = {"xor": 0x80000000, "and": 0x7FFFFFFF}.get(self.decoded.row.root)
        if self.shadow.table.ordered or [slot.bits for slot in data] != [32] or wanted is None:
            return None
        literal = next((o for o in self.decoded.source.operands if isinstance(o, Immediate)), None)
        if literal is None or int(literal.value) & 0xFFFFFFFF != wanted:
            return None
        table = self.shadow.table
        words = self.shadow.state.banks[32][data[0].index][threads]
        (index,) = indices(table, np.ascontiguousarray(self.shadow.mirror.words(data[0])[:, threads]), words, "f32", 1)
        numbers = table.numbers(index)
        turned = field.negate(numbers)
        if self.decoded.row.root == "and":
            self.shadow.compared.add(self.decoded.source.line)
            turned = Residues(np.where(words >> 31 == 1, turned.residues, numbers.residues), numbers.exact)
        return turned, "f32", table.root[index]


def _drawn(codes: Array, number: int) -> Array:
    """A byte for each code."""
    return (field.word(f"draw {number}", codes) & np.uint64(0xFF)).astype(np.uint8)
