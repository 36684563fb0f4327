"""What a kernel needs of registers and memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from ....dialect.ptx.text.syntax import Variable
from .memory import STACK_BYTES

WORKSPACE, WORKSPACE_BYTES = "%envreg", 16
"""The name and the size of what the driver gives a cooperative launch; every launch is one here."""

RESERVED_BYTES = 1024
"""Shared memory that a kernel has beyond its own where it asks for the place."""


@dataclass(frozen=True, slots=True)
class RegisterSlot:
    """A register: row `index` of the bank of registers of `bits` bits. `name` and `type` are those of the text."""

    bits: int
    index: int
    name: str = field(default="", compare=False)
    type: str = field(default="", compare=False)


@dataclass
class StorageLayout:
    """What a kernel needs per thread, per CTA and per launch; grows while it is decoded. `arguments` are the parts of
    local memory, each with its first byte and its size, that hold arguments of functions; `reserves` says whether a CTA
    has the part of shared memory that is reserved for the system."""

    slots: dict[int, int] = field(default_factory=dict[int, int])
    shared: int = 0
    local: int = 0
    arguments: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    parameters: tuple[tuple[Variable, int], ...] = ()
    parameter_bytes: int = 0
    carry: RegisterSlot | None = None
    pointer: RegisterSlot | None = None
    results: int | None = None
    reserves: bool = False

    def stack(self) -> RegisterSlot:
        """The register that says how much of the stack is used; there is a stack from now on."""
        if self.pointer is None:
            self.pointer = self.slot(64, "%SP")
        return self.pointer

    @property
    def stack_base(self) -> int:
        """Where in local memory the stack begins."""
        return -(-self.local // 16) * 16

    @property
    def local_bytes(self) -> int:
        """Local memory of a thread, the stack included."""
        return self.local if self.pointer is None else self.stack_base + STACK_BYTES

    def slot(self, bits: int, name: str = "", type: str = "") -> RegisterSlot:
        index = self.slots.get(bits, 0)
        self.slots[bits] = index + 1
        return RegisterSlot(bits, index, name, type)
