"""The stack of each thread: what functions that call themselves keep there, and `alloca`. PTX ISA 7.3, 9.7.17.

Registers and parameters of a function lie in one place for all its calls; a function that may be called while it runs
has them saved when it is called, and restored when it returns. Its local variables lie on the stack.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ...numerics.array import Array
from ..errors import FaultError
from .memory import STACK_BYTES, Window
from .storage import RegisterSlot, StorageLayout
from .threads import Selection

LEAST = 16
"""Bytes of the stack that a call takes at least; sizes are multiples of it."""


def align(size: int) -> int:
    """The bytes that something of a size takes on the stack."""
    return -(-size // LEAST) * LEAST


@dataclass
class StackFrame:
    """What a function keeps for each of its calls: registers, the bytes of parameters, `size` bytes of variables.

    `addresses` are hidden registers that hold where variables lie, with the offsets of these.
    """

    layout: StorageLayout
    slots: list[RegisterSlot] = field(default_factory=list[RegisterSlot])
    start: int = 0
    end: int = 0
    size: int = 0
    addresses: list[tuple[RegisterSlot, int]] = field(default_factory=list[tuple[RegisterSlot, int]])

    def place(self, size: int, alignment: int) -> int:
        """Room for a variable. Returns its offset."""
        offset = -(-self.size // alignment) * alignment
        self.size = offset + size
        return offset

    def address(self, offset: int) -> RegisterSlot:
        """A register that holds the address of a byte of the variables."""
        slot = next((slot for slot, known in self.addresses if known == offset), None)
        if slot is None:
            slot = self.layout.slot(64, "%SP")
            self.slots.append(slot)
            self.addresses.append((slot, offset))
        return slot


class CallStack:
    """The calls that threads are in of one function that keeps a frame for each."""

    def __init__(self, frame: StackFrame, banks: Mapping[int, Array], local: Window) -> None:
        self._frame = frame
        self._banks = [(banks[bits], _indices(frame, bits)) for bits in sorted({s.bits for s in frame.slots})]
        self._parameters = local.buffer.data.reshape(local.base.size, -1)[:, frame.start : frame.end]
        self._pointer = stack_pointer(banks, frame.layout)
        self._addresses = [(banks[64][slot.index], offset) for slot, offset in frame.addresses]
        self._depth = np.zeros(local.base.size, np.int64)
        self._saved: list[tuple[list[Array], Array, Array]] = []
        self._base = frame.layout.stack_base

    def push(self, sel: Selection) -> None:
        """Saves what the function has, and gives it new variables.

        Raises:
            FaultError: if the stack is used up.
        """
        lanes = sel.threads
        pointer = grow(self._pointer, lanes, align(self._frame.size) + LEAST)
        for depth in map(int, np.unique(self._depth[lanes])):
            some = lanes[self._depth[lanes] == depth]
            if depth == len(self._saved):
                banks = [np.empty((len(index), sel.total), bank.dtype) for bank, index in self._banks]
                self._saved.append((banks, np.empty_like(self._parameters), np.empty_like(self._pointer)))
            registers, parameters, pointers = self._saved[depth]
            for (bank, index), saved in zip(self._banks, registers, strict=True):
                saved[:, some] = bank[np.ix_(index, some)]
            parameters[some] = self._parameters[some]
            pointers[some] = pointer[np.searchsorted(lanes, some)]
        self._depth[lanes] += 1
        for slot, offset in self._addresses:
            slot[lanes] = pointer + np.uint64(self._base + offset)

    def pop(self, sel: Selection) -> None:
        """Restores what the function had before it was called."""
        lanes = sel.threads
        self._depth[lanes] -= 1
        for depth in map(int, np.unique(self._depth[lanes])):
            some = lanes[self._depth[lanes] == depth]
            registers, parameters, pointers = self._saved[depth]
            for (bank, index), saved in zip(self._banks, registers, strict=True):
                bank[np.ix_(index, some)] = saved[:, some]
            self._parameters[some] = parameters[some]
            self._pointer[some] = pointers[some]


def _indices(frame: StackFrame, bits: int) -> Array:
    return np.array([slot.index for slot in frame.slots if slot.bits == bits], np.int64)


def stack_pointer(banks: Mapping[int, Array], layout: StorageLayout) -> Array:
    """How many bytes of the stack each thread uses."""
    return banks[64][layout.stack().index]


def grow(pointer: Array, lanes: Array, size: Array | int) -> Array:
    """Takes bytes of the stack. Returns where they begin.

    Raises:
        FaultError: if there are not so many.
    """
    before = pointer[lanes]
    after = before + np.asarray(size, np.uint64)
    bad = np.flatnonzero((after > STACK_BYTES) | (after < before))
    if bad.size:
        message = f"the stack of {STACK_BYTES} bytes is used up; does the recursion end?"
        raise FaultError(message, int(lanes[bad[0]]))
    pointer[lanes] = after
    return before
