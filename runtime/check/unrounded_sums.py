"""Sums of products that ptxas may turn into one multiply-add: neither instruction says how it rounds.

Source: PTX ISA 9.7.3 (floating-point instructions, rounding modifiers). The interpreter rounds twice, as written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...dialect.ptx.text.syntax import Function, Instruction, Module, Register, instructions
from ...dialect.ptx.traits import traits


@dataclass(frozen=True)
class UnroundedSum:
    """A sum at a place, and the line of the product that it adds."""

    line: int
    column: int
    product: int


def contractions(module: Module, kernel: str) -> tuple[UnroundedSum, ...]:
    """The sums in a kernel, and in the functions of its module, that a GPU may round once, in the order of the text.
    Registers are told apart by name."""
    functions = (f for f in module.items if isinstance(f, Function) and (not f.entry or f.name == kernel))
    return tuple(found for function in functions for found in _in_function(list(instructions(function.body or ()))))


def _in_function(body: Sequence[Instruction]) -> Iterator[UnroundedSum]:
    products: dict[tuple[str, str], int] = {}
    for instruction in body:
        type = _unrounded(instruction, ("mul",))
        target = instruction.operands[0] if instruction.operands else None
        if type and isinstance(target, Register):
            products[type, target.name] = instruction.line
    for instruction in body:
        type = _unrounded(instruction, ("add", "sub"))
        names = [o.name for o in instruction.operands[1:] if isinstance(o, Register)]
        product = next((products[type, name] for name in names if (type, name) in products), None)
        if product is not None:
            yield UnroundedSum(instruction.line, instruction.column, product)


def _unrounded(instruction: Instruction, roots: tuple[str, ...]) -> str:
    """The floating-point type of an instruction with one of these names and no rounding; empty for any other."""
    bound = traits(instruction.opcode).bindings if instruction.root in roots else {}
    return "" if bound.get("ROUND", "rn") else bound["T"]
