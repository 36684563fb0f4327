"""What a host function is called with: its parameters, which of them it writes, which sizes must agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..arguments.parameter import Parameter
from ..base.errors import ArgumentError
from ..base.launch import Problem


@dataclass(frozen=True)
class Signature:
    """A host function as its caller sees it.

    `written` are the positions of arguments the function writes, `filled` of those it overwrites
    before it reads them. `products` are the matrix products among its operations, in order; those of unknown size are
    not among them. `ties` are sets of (position, dimension) whose extents must agree. `sparse` are the positions of
    metadata, each with the element type of the sparse A that it belongs to.
    """

    name: str
    parameters: tuple[Parameter, ...]
    written: frozenset[int]
    filled: frozenset[int]
    products: tuple[Problem, ...] = ()
    ties: tuple[frozenset[tuple[int, int]], ...] = ()
    sparse: tuple[tuple[int, str], ...] = ()

    def __str__(self) -> str:
        return f"@{self.name}({', '.join(f'%{p.name}: {p}' for p in self.parameters)})"

    def argument(self, position: int) -> str:
        """How messages call an argument: `argument 1 (%B)`."""
        return f"argument {position} (%{self.parameters[position].name})"


def position_of(name: str, parameters: Sequence[Parameter]) -> int:
    """The position of the parameter that a user calls `name`: a number, `%A` or `A`.

    Raises:
        ArgumentError: naming the parameters there are.
    """
    if name.isdecimal() and int(name) < len(parameters):
        return int(name)
    for i, parameter in enumerate(parameters):
        if name.removeprefix("%") == parameter.name:
            return i
    known = ", ".join(f"{i} or %{p.name}" for i, p in enumerate(parameters)) or "none"
    raise ArgumentError(f"no argument '{name}'; there are {known}")


def extents(function: Signature, given: Mapping[int, tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The shape of every parameter: as its type says, as given, or as that of another which a tie binds it to. What
    nothing tells is below 0."""
    known = [list(given.get(i, p.shape or ())) for i, p in enumerate(function.parameters)]
    for tie in function.ties:
        told = next((known[i][d] for i, d in sorted(tie) if known[i][d] >= 0), -1)
        for i, d in tie:
            known[i][d] = max(known[i][d], told)
    return [tuple(shape) for shape in known]
