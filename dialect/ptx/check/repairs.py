"""What ptxas repairs or ignores without an error: text that is no fault to it, and does not do what it says.

It waits where products of a warpgroup have no fence or no wait, counts no more than seven groups to wait for, and drops
`setmaxnreg` where nothing says how many registers a thread has at entry. Only what stands in one straight piece of text
is looked at: from a label on, all may have been done. Source: PTX ISA 9.7.15.7, 9.7.19.5; ptxas 13.0 (C7508, C7514,
C7517, C7519).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..text.syntax import Function, Immediate, Instruction, Label, Register, Scope, Statement, Vector, members
from ..traits import traits
from .values import written

MOST_GROUPS = 7
"""Groups of products that a wait can leave pending."""

Note = tuple[Instruction, str]


def repairs(function: Function) -> Iterator[Note]:
    """What ptxas makes otherwise of one function, in the order of its text."""
    yield from _Walk(_knows_registers(function)).body(function.body or ())


def _knows_registers(function: Function) -> bool:
    names = {directive.split()[0] for directive in function.directives}
    return ".maxnreg" in names or (".minnctapersm" in names and bool(names & {".reqntid", ".maxntid"}))


class _Walk:
    """What is known at a place: whether there was a fence, which registers were touched since, which are in flight."""

    def __init__(self, knows_registers: bool) -> None:
        self.knows_registers = knows_registers
        self.fenced = False
        self.touched: dict[str, int] = {}
        self.in_flight: dict[str, tuple[int, int]] = {}
        """By register, the line of the product, and how many groups were committed before it."""
        self.groups = 0

    def body(self, body: Sequence[Statement]) -> Iterator[Note]:
        for statement in body:
            match statement:
                case Instruction():
                    yield from ((statement, text) for text in self._instruction(statement))
                case Scope():
                    yield from self.body(statement.body)
                case Label():
                    self.touched, self.in_flight = {}, {}
                case _:
                    pass

    def _instruction(self, instruction: Instruction) -> Iterator[str]:
        name = traits(instruction.opcode).name
        if instruction.root == "setmaxnreg" and not self.knows_registers:
            yield (
                "ptxas drops it: neither .maxnreg nor .minnctapersm with the number of threads says how many registers "
                "a thread has at entry"
            )
        match name:
            case "wgmma.fence":
                self.fenced, self.touched = True, {}
            case "wgmma.commit_group":
                self.groups += 1
            case "wgmma.wait_group":
                yield from self._wait(instruction)
            case "wgmma.mma_async":
                yield from self._product(instruction)
            case _:
                yield from self._other(instruction)

    def _wait(self, instruction: Instruction) -> Iterator[str]:
        count = next((int(o.value) for o in instruction.operands if isinstance(o, Immediate)), 0)
        last = self.groups - min(count, MOST_GROUPS)
        self.in_flight = {name: found for name, found in self.in_flight.items() if found[1] >= last}
        if count > MOST_GROUPS:
            yield f"ptxas waits as for {MOST_GROUPS}: no more groups can be left pending, got {count}"

    def _product(self, instruction: Instruction) -> Iterator[str]:
        names = _registers(instruction)
        if not self.fenced:
            yield "ptxas puts a wgmma.fence before it: there is none in front of the first product"
        elif touched := next((name for name in names if name in self.touched), None):
            yield (
                f"ptxas puts a wgmma.fence before it: line {self.touched[touched]} writes {touched}, and there is none "
                f"behind that"
            )
        self.touched = {}
        self.fenced = True
        self.in_flight.update(dict.fromkeys(names, (instruction.line, self.groups)))

    def _other(self, instruction: Instruction) -> Iterator[str]:
        used = [m.name for operand in instruction.operands for m in members(operand) if isinstance(m, Register)]
        early = next((name for name in used if name in self.in_flight), None)
        if early is not None:
            line = self.in_flight[early][0]
            yield f"ptxas waits before it: {early} belongs to the product at line {line}, which is not waited for"
            self.in_flight = {}
        self.touched.update(dict.fromkeys(written(instruction), instruction.line))


def _registers(instruction: Instruction) -> list[str]:
    """The registers of a product that are in flight: accumulators and fragments of A."""
    vectors = [operand for operand in instruction.operands[:2] if isinstance(operand, Vector)]
    return [item.name for vector in vectors for item in vector.items if isinstance(item, Register)]
