"""What a module consists of, to tell whether a pass changed it."""

from __future__ import annotations

from collections.abc import Iterator
from operator import is_

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation


class ModuleParts:
    """The operations of a module with all that a verifier reads of them, each by identity.

    Attributes and types do not change, so an operation that has the same ones, in the same place, is as it was. What is
    held here is kept alive, so that nothing new is mistaken for it.
    """

    def __init__(self, module: ModuleOp) -> None:
        self._parts: list[object] = [part for op in module.walk() for part in _parts(op)]

    def are_those_of(self, other: ModuleParts) -> bool:
        """Whether nothing has changed between the two."""
        mine, others = self._parts, other._parts
        return len(mine) == len(others) and all(map(is_, mine, others))


def _parts(op: Operation) -> Iterator[object]:
    yield op
    yield op.parent
    yield from op.operands
    for result in op.results:
        yield result
        yield result.type
    yield from op.successors
    for held in (op.properties, op.attributes):
        for name, attribute in held.items():
            yield name
            yield attribute
    for region in op.regions:
        for block in region.blocks:
            yield block
            for argument in block.args:
                yield argument
                yield argument.type
