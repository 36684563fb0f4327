"""What the names of a kernel mean: registers, variables, labels, functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ...dialect.ptx.text.syntax import Variable
from .machine.stacks import StackFrame
from .machine.state import State
from .machine.storage import RegisterSlot


@dataclass(frozen=True, slots=True)
class VariablePlace:
    """A variable: its space, and its address once a state is known.

    `size` is the bytes of a `.param` variable inside a function; 0 for all others. `extent` is the bytes of a shared or
    local variable called `name`, 0 where they are not known. `stacked` is for variables whose address differs by
    thread: it gives the register that holds it, some bytes further on. `code` is the address of a function.
    """

    space: str
    address: Callable[[State], int]
    size: int = 0
    name: str = ""
    extent: int = 0
    stacked: Callable[[int], RegisterSlot] | None = None
    code: int = 0


@dataclass
class NameScope:
    """What the names of one scope mean; unknown ones are looked up outside."""

    outer: NameScope | None = None
    registers: dict[str, RegisterSlot] = field(default_factory=dict[str, RegisterSlot])
    places: dict[str, VariablePlace] = field(default_factory=dict[str, VariablePlace])
    labels: dict[str, int] = field(default_factory=dict[str, int])
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def register(self, name: str) -> RegisterSlot | None:
        return self.registers.get(name) or (self.outer.register(name) if self.outer else None)

    def place(self, name: str) -> VariablePlace | None:
        return self.places.get(name) or (self.outer.place(name) if self.outer else None)

    def label(self, name: str) -> int | None:
        found = self.labels.get(name)
        return self.outer.label(name) if found is None and self.outer else found

    def table(self, name: str) -> tuple[str, ...] | None:
        """The labels of a `.branchtargets`."""
        return self.tables.get(name) or (self.outer.table(name) if self.outer else None)


@dataclass(frozen=True, slots=True)
class Formal:
    """A parameter of a function, or what it returns: `size` bytes of the arguments at `place`, or a register."""

    variable: Variable
    size: int
    place: VariablePlace | None = None
    slot: RegisterSlot | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """A function in the code of a kernel: where it begins, where threads go back to, what goes in and out.

    `stack` is what it keeps for each call, if it may be called while it runs. `passes` says that results go by way of
    the places of `StorageLayout.results`, as callers through registers find them there.
    """

    name: str
    entry: int
    back: RegisterSlot
    parameters: tuple[Formal, ...]
    results: tuple[Formal, ...]
    stack: StackFrame | None = None
    passes: bool = False
