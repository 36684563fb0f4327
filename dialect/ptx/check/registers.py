"""What the text of a function says of its registers: the values that they provably hold, products in flight, products
that a sum adds."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ...isa.row import ANYTHING
from ...layouts.layout import LANES
from ..instructions import Traits, traits
from ..rows.arithmetic import COMPARISONS, UNSIGNED
from ..text import syntax
from ..text.syntax import REGISTER_BITS, Function, Immediate, Instruction, Operand, Register, bits_of, instructions
from .declarations import mentioned

# What registers of a PTX function are known to hold: constants, addresses, and values that the lane decides.
#
# Only what can be proved is known: a register that is written once, without a guard, from what is known. Values are
# those of the first warp of a CTA, lane by lane; addresses are offsets from a symbol.


@dataclass(frozen=True, slots=True)
class SymbolicValue:
    """A value: `symbol` plus one number for all lanes, or a number for each lane; "" for a plain number."""

    symbol: str
    numbers: tuple[int, ...]

    @property
    def uniform(self) -> int | None:
        """The number that all lanes have; None if they differ."""
        return self.numbers[0] if len(set(self.numbers)) == 1 else None


def _number(value: int) -> SymbolicValue:
    return SymbolicValue("", (value,))


_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul.lo": operator.mul,
    "mul.wide": operator.mul,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << min(b, 64),
    "shr": lambda a, b: a >> min(b, 64),
    "div": lambda a, b: a // b,
    "rem": lambda a, b: a % b,
    "min": min,
    "max": max,
}
"""What instructions compute of numbers that are not negative."""

_KEEPING = frozenset(("mov", "cvt", "cvta", "cvta.to"))
"""Names of instructions whose result is the number or the address that they read."""

_TYPES = frozenset(("pred", *(f"{kind}{bits}" for kind in "bus" for bits in (16, 32, 64))))
_PLAIN = frozenset(("T", "D", "S", "P", "PART", "IS"))
"""What a row may bind of an instruction that is followed: types, a space, the half of a product, a comparison."""


class Values:
    """What the registers of one function hold."""

    def __init__(self, function: Function) -> None:
        self._writers: dict[str, Instruction | None] = {}
        self._values: dict[str, SymbolicValue | None] = dict(_special(function))
        _collect(function.body or (), self._writers)

    def of(self, operand: Operand) -> SymbolicValue | None:
        """The known value of an operand. For an address, the place that it points to."""
        match operand:
            case Immediate():
                value = operand.value
                return _number(value) if isinstance(value, int) else None
            case syntax.Symbol():
                return SymbolicValue(operand.name, (operand.offset,))
            case Register():
                return self._register(operand.name)
            case syntax.Address():
                base = self.of(operand.base)
                return base and SymbolicValue(base.symbol, tuple(n + operand.offset for n in base.numbers))
            case syntax.Not():
                inner = self._register(operand.register.name)
                return inner and SymbolicValue("", tuple(1 - n for n in inner.numbers))
            case _:
                return None

    def number(self, operand: Operand) -> int | None:
        """The number that an operand has in all lanes; None if it is not known, or an address."""
        value = self.of(operand)
        return None if value is None or value.symbol else value.uniform

    def _register(self, name: str) -> SymbolicValue | None:
        if name not in self._values:
            # A register that depends on itself is not known.
            self._values[name] = None
            writer = self._writers.get(name)
            self._values[name] = None if writer is None else self._result(writer)
        return self._values[name]

    def _result(self, writer: Instruction) -> SymbolicValue | None:
        effects = traits(writer.opcode)
        if not _is_followed(effects) or len(writer.operands) not in (2, 3):
            return None
        sources = [self.of(operand) for operand in writer.operands[1:]]
        facts = [s for s in sources if s is not None]
        if len(facts) != len(sources):
            return None
        if effects.name in _KEEPING:
            return facts[0] if len(facts) == 1 else None
        return _computed(effects, *facts) if len(facts) == 2 else None


def _is_followed(facts: Traits) -> bool:
    """Whether the checker can compute the result of an instruction: plain integer arithmetic without saturation."""
    types = facts.types
    if not types or types[0] not in _TYPES or types[-1] not in REGISTER_BITS or bits_of(types[-1]) > bits_of(types[0]):
        return False
    plain = all(not value or name in _PLAIN for name, value in facts.bindings.items())
    return plain and (facts.name in _KEEPING or facts.name == "setp" or facts.name in _ARITHMETIC)


def _computed(facts: Traits, a: SymbolicValue, b: SymbolicValue) -> SymbolicValue | None:
    name, type = facts.name, facts.types[0]
    if name == "setp":
        word = facts.bindings["IS"]
        compare = COMPARISONS.get(word) or UNSIGNED.get(word)
        return None if compare is None or a.symbol or b.symbol else _lanewise(lambda x, y: int(compare(x, y)), a, b)
    if a.symbol or b.symbol:
        # Of addresses, sums alone are addresses.
        return _lanewise(operator.add, a, b) if name == "add" and not (a.symbol and b.symbol) else None
    if min(*a.numbers, *b.numbers) < 0 or (name in ("div", "rem") and 0 in b.numbers):
        return None
    result = _lanewise(_ARITHMETIC[name], a, b)
    bits = 1 if type == "pred" else int(type[1:]) * (2 if name == "mul.wide" else 1)
    return result if all(0 <= n < 1 << (bits - (type[0] == "s")) for n in result.numbers) else None


def _lanewise(compute: Callable[[int, int], int], a: SymbolicValue, b: SymbolicValue) -> SymbolicValue:
    length = max(len(a.numbers), len(b.numbers))
    pairs = zip(a.numbers * (length // len(a.numbers)), b.numbers * (length // len(b.numbers)), strict=True)
    return SymbolicValue(a.symbol or b.symbol, tuple(compute(x, y) for x, y in pairs))


def _special(function: Function) -> Iterable[tuple[str, SymbolicValue]]:
    """The special registers with known values. `%tid` is known if `.reqntid` gives the CTA's size."""
    lanes = tuple(range(LANES))
    yield "%laneid", SymbolicValue("", lanes)
    size = function.numbers(".reqntid")
    if not size:
        return
    x, y, z = (*size, 1, 1)[:3]
    for axis, extent in zip("xyz", (x, y, z), strict=True):
        yield f"%ntid.{axis}", _number(extent)
    if x >= LANES:
        yield "%tid.x", SymbolicValue("", lanes)
        yield from ((f"%tid.{axis}", _number(0)) for axis in "yz")


def _collect(body: Sequence[syntax.Statement], writers: dict[str, Instruction | None]) -> None:
    """The instruction that writes each register; None where it is not one, or not certain to."""
    for statement in body:
        if isinstance(statement, Instruction):
            for name in written(statement):
                writers[name] = None if name in writers or statement.guard else statement
    # Names may be declared anew in a scope: what is written there is not followed.
    for instruction in instructions([statement for statement in body if isinstance(statement, syntax.Scope)]):
        writers.update(dict.fromkeys(written(instruction)))


def written(instruction: Instruction) -> Iterable[str]:
    """Registers that an instruction may write."""
    if not instruction.operands:
        return
    row = traits(instruction.opcode).row
    slots = () if row is None else row.operands
    has_slots = bool(slots) and slots[0].kind != ANYTHING
    for i, operand in enumerate(instruction.operands):
        if has_slots and i < len(slots) and not slots[i].written:
            continue
        yield from mentioned(operand)


# What ptxas repairs or ignores without an error: text that is no fault to it, and does not do what it says.
#
# It waits where products of a warpgroup have no fence or no wait, counts no more than seven groups to wait for, and
# drops `setmaxnreg` where nothing says how many registers a thread has at entry. Only what stands in one straight
# piece of text is looked at: from a label on, all may have been done. Source: PTX ISA 9.7.15.7, 9.7.19.5; ptxas 13.0
# (C7508, C7514, C7517, C7519).

MAX_GROUPS = 7
"""Groups of products that a wait can leave pending."""

REPAIRED = ("wgmma", "setmaxnreg")
"""Only functions with such instructions are."""

Note = tuple[Instruction, str]


class Repairs:
    """Walks through a function, and knows whether there was a fence, the registers used since, and the products in
    flight."""

    def __init__(self, function: Function) -> None:
        self.function = function
        names = {directive.split()[0] for directive in function.directives}
        self.knows_registers = ".maxnreg" in names or (".minnctapersm" in names and names & {".reqntid", ".maxntid"})
        self.fenced = False
        self.touched: dict[str, int] = {}
        self.in_flight: dict[str, tuple[int, int]] = {}
        """By register, the line of the product, and how many groups were committed before it."""
        self.groups = 0

    def notes(self) -> Iterator[Note]:
        """Notes on statements that ptxas assembles differently from the text, in the order of the text."""
        return self._body(self.function.body or ())

    def _body(self, body: Sequence[syntax.Statement]) -> Iterator[Note]:
        for statement in body:
            match statement:
                case Instruction():
                    yield from ((statement, text) for text in self._instruction(statement))
                case syntax.Scope():
                    yield from self._body(statement.body)
                case syntax.Label():
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
        last = self.groups - min(count, MAX_GROUPS)
        self.in_flight = {name: group for name, group in self.in_flight.items() if group[1] >= last}
        if count > MAX_GROUPS:
            yield f"ptxas waits as for {MAX_GROUPS}: no more groups can be left pending, got {count}"

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
        used = [name for operand in instruction.operands for name in mentioned(operand)]
        early = next((name for name in used if name in self.in_flight), None)
        if early is not None:
            line = self.in_flight[early][0]
            yield f"ptxas waits before it: {early} belongs to the product at line {line}, which is not waited for"
            self.in_flight = {}
        self.touched.update(dict.fromkeys(written(instruction), instruction.line))


def _registers(instruction: Instruction) -> list[str]:
    """The registers of a product that are in flight: accumulators and fragments of A."""
    vectors = [operand for operand in instruction.operands[:2] if isinstance(operand, syntax.Vector)]
    return [item.name for vector in vectors for item in vector.items if isinstance(item, Register)]


# Sums of products that ptxas may turn into one multiply-add: neither instruction says how it rounds.
#
# Source: PTX ISA 9.7.3 (floating-point instructions, rounding modifiers). The interpreter rounds twice, as written.


@dataclass(frozen=True)
class UnroundedSum:
    """A sum at a place, and the line of the product that it adds."""

    line: int
    column: int
    product: int


def contractions(module: syntax.Module, kernel: str) -> tuple[UnroundedSum, ...]:
    """The sums of a kernel and its module's functions that a GPU may fuse with a product, in the text's order."""
    functions = (f for f in module.items if isinstance(f, Function) and (not f.entry or f.name == kernel))
    return tuple(sum_ for function in functions for sum_ in _in_function(list(instructions(function.body or ()))))


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
    """The type of an instruction with one of these roots and without a rounding; "" for any other."""
    bound = traits(instruction.opcode).bindings if instruction.root in roots else {}
    return "" if bound.get("ROUND", "rn") else bound["T"]
