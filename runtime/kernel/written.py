"""Which arrays a kernel may write, as its text says: where pointers of its parameters go.

A name, of a register or a variable, holds a pointer of a parameter if an instruction that computes it reads one that
does, wherever that stands. What pointers are stored in memory may come out of every load.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...dialect.ptx.text.syntax import Address, Function, Instruction, Operand, Register, Symbol, instructions, members
from ...dialect.ptx.traits import traits

_ANSWERS = ("set", "setp", "isspacep", "bar", "barrier")
"""Instructions whose result says how operands compare, and is made of none of them."""

_MEMORY = "[]"

Holders = Mapping[str, set[str]]


def may_write(kernel: Function) -> frozenset[str]:
    """The parameters whose arrays the kernel may write, among them those that functions get pointers of."""
    body = list(instructions(kernel.body or ()))
    holders = _spread(body, [p.name for p in kernel.parameters])
    written: set[str] = set()
    for instruction in body:
        if instruction.is_call:
            written |= _held(holders, _names(instruction.operands))
        elif traits(instruction.opcode).writes_memory:
            where = next((o for o in instruction.operands if isinstance(o, Address)), None)
            written |= _held(holders, [] if where is None else _names([where]))
    return frozenset(written)


def _spread(body: Sequence[Instruction], parameters: Sequence[str]) -> Holders:
    """The parameters that each name may hold a pointer of."""
    holders: dict[str, set[str]] = {name: {name} for name in parameters}
    changed = True
    while changed:
        changed = False
        for instruction in body:
            for target, sources in _moves(instruction):
                found = _held(holders, sources)
                if not found <= holders.get(target, set()):
                    holders.setdefault(target, set()).update(found)
                    changed = True
    return holders


def _held(holders: Holders, names: Iterator[str] | Sequence[str]) -> set[str]:
    return {parameter for name in names for parameter in holders.get(name, ())}


def _moves(instruction: Instruction) -> Iterator[tuple[str, list[str]]]:
    """The names that an instruction gives a value, with those it takes it from."""
    known = traits(instruction.opcode)
    if not instruction.operands or instruction.is_call or known.root in _ANSWERS:
        return
    first, *rest = instruction.operands
    if known.root == "st":
        for target in _names([first]) if known.space == "param" else [_MEMORY]:
            yield target, list(_names(rest))
    elif known.row is None or known.row.operands[0].written:
        loads = known.has_address and known.space != "param"
        for target in _names([first]):
            yield target, [_MEMORY] if loads else list(_names(rest))


def _names(operands: Sequence[Operand]) -> Iterator[str]:
    for operand in operands:
        for member in members(operand):
            match member:
                case Register(name) | Symbol(name) | Address(Register(name) | Symbol(name)):
                    yield name
                case _:
                    pass
