"""Is an instruction one that PTX has: its spelling, its operands, the types of its registers, its target.

Source: PTX ISA 6 (Instruction Operands), and each row's section.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import count
from typing import NamedTuple

from ..isa.targets import NAMED, Target, Version
from .instructions import family, find, nearest
from .kinds import (
    ANYWHERE,
    AddressRules,
    SpaceOf,
    ValueKind,
    check_address,
    check_symbol,
    immediate,
    kind_of,
    nowhere,
    outside,
)
from .rows.grammar import Bindings, Row, Slot
from .text.special import SPECIAL_REGISTERS
from .text.syntax import WARP_SIZE, Address, Immediate, Indexed, Not, Operand, Pair, Register, Symbol, Vector
from .types import REGISTER_BITS, alike, bits_of, compatible

TypeOf = Callable[[Register], str | None]
"""The declared type of a register; None for a special register."""


_SINK = Symbol("_")
"""What stands for a result that is discarded."""


class TargetContext(NamedTuple):
    """What the module is for: its PTX version and its targets ("sm_90a"), of which options are left out."""

    version: Version
    targets: tuple[str, ...]
    address_size: int = 64

    @property
    def rows(self) -> tuple[Target, ...]:
        """The targets named; one without a row of its own is known by its number and suffix alone."""
        return _targets(self.targets)

    def problem(self, row: Row) -> str | None:
        """Why the module cannot have an instruction: its target or its PTX version."""
        for target in self.rows:
            why = row.unavailable(target, self.version)
            if why is not None:
                if row.since(target) is None:
                    return f"{why}, the module's target is {', '.join(self.targets)}"
                later = "" if row.removed(target) else " or later"
                return "{}{}, the module's version is {}.{}".format(why, later, *self.version)
            end = row.removed(target)
            if end is not None and self.version >= end:
                return "needs a version before PTX {}.{} on {}, the module's is {}.{}".format(
                    *end, target, *self.version
                )
        return None


@lru_cache(256)
def _targets(names: tuple[str, ...]) -> tuple[Target, ...]:
    found = [(name, re.fullmatch(r"sm_(\d+)([af]?)", name)) for name in names]
    return tuple(NAMED.get(name) or Target(int(m[1]), m[2], (1, 0), 0, 0) for name, m in found if m)


class _Miss(NamedTuple):
    """Why a row is not what an instruction is, and how far it is: -1 for another number of operands, else those that
    fit before the first that does not, one more where only the target does not."""

    message: str
    fits: int


def check(
    opcode: str,
    operands: Sequence[Operand],
    type_of: TypeOf,
    context: TargetContext | None = None,
    space_of: SpaceOf = nowhere,
) -> str | None:
    """What is wrong with an instruction, or None; without a context its target is not looked at."""
    if not find(opcode) and family(opcode):
        return None
    found = resolve(opcode, operands, type_of, context, space_of)
    return found if isinstance(found, str) else None


def resolve(
    opcode: str,
    operands: Sequence[Operand],
    type_of: TypeOf,
    context: TargetContext | None = None,
    space_of: SpaceOf = nowhere,
) -> tuple[Row, Bindings] | str:
    """The first row that spells an opcode and takes the operands, with what the qualifiers bind; or why none does.

    Without a context, targets are not looked at.
    """
    found = fitting(opcode, operands, type_of, AddressRules(space_of, 64 if context is None else context.address_size))
    if isinstance(found, str) or context is None:
        return found if isinstance(found, str) else found[0]
    problems: list[str] = []
    for row, bindings in found:
        problem = context.problem(row)
        if problem is None:
            return row, bindings
        problems.append(problem)
    return f"{opcode}: {problems[0]} (PTX ISA {section(opcode)})"


def fitting(
    opcode: str, operands: Sequence[Operand], type_of: TypeOf, rules: AddressRules = ANYWHERE
) -> Sequence[tuple[Row, Bindings]] | str:
    """All rows that spell an opcode and take the operands, with what the qualifiers bind; or why there is none."""
    matches = find(opcode)
    if not matches:
        return unknown(opcode)
    misses = [_check_operands(row, bindings, operands, type_of, rules) for row, bindings in matches]
    if found := [match for match, miss in zip(matches, misses, strict=True) if miss is None]:
        return found
    nearest_miss = max((miss for miss in misses if miss is not None), key=lambda miss: miss.fits)
    return f"{opcode}: {nearest_miss.message} (PTX ISA {section(opcode)})"


def section(opcode: str) -> str:
    """Where PTX ISA says what an opcode does that there are rows for."""
    return find(opcode)[0][0].section


def type_of_result(row: Row, bindings: Bindings) -> str | None:
    """The instruction type of the one value that a row writes, such as "s32"; None if it writes none, or several."""
    slots = row.slots_of(bindings)
    if not slots or not slots[0].written or _named(slots[0].kind):
        return None
    kind = kind_of(slots[0], bindings)
    return None if kind.count else kind.type


def unknown(opcode: str) -> str:
    """What to say of an opcode that no row spells."""
    close = nearest(opcode)
    hint = f"; the nearest are {', '.join(close)}" if close else ""
    return f"'{opcode}' is not a PTX instruction known here{hint}"


def _check_operands(
    row: Row, bindings: Bindings, operands: Sequence[Operand], type_of: TypeOf, rules: AddressRules
) -> _Miss | None:
    slots = row.slots_of(bindings)
    if slots and slots[0].kind == "...":
        return None
    needed = sum(not slot.optional for slot in slots)
    if not needed <= len(operands) <= len(slots):
        number = str(needed) if needed == len(slots) else f"{needed} to {len(slots)}"
        listed = f" ({', '.join(slot.name for slot in slots)})" if slots else ""
        return _Miss(f"expected {number} operands{listed}, got {len(operands)}", -1)
    if needed < len(slots):
        slots = _given(slots, len(operands) - needed)
    for fits, (slot, operand) in enumerate(zip(slots, operands, strict=True)):
        problem = _check_slot(slot, operand, bindings, type_of, rules)
        if problem is not None:
            return _Miss(f"operand {slot.name}: {problem}", fits)
    problem = row.problem(operands)
    return None if problem is None else _Miss(problem, len(operands))


def _given(slots: Sequence[Slot], more: int) -> list[Slot]:
    """The operands that must be there, and the first few of those that may."""
    numbers = count()
    return [slot for slot in slots if not slot.optional or next(numbers) < more]


def _check_slot(slot: Slot, operand: Operand, bindings: Bindings, type_of: TypeOf, rules: AddressRules) -> str | None:
    if isinstance(operand, Pair):
        if not slot.pair:
            return "expected one register, got a pair"
        if operand.first == operand.second == _SINK:
            return "one of the two results must be kept"
        problem = _check_predicate(slot, operand.second, type_of)
        return problem or _check_value(slot, operand.first, kind_of(slot, bindings), type_of)
    if slot.pair == "||":
        return "expected a destination and a predicate, written d|p"
    if not _named(slot.kind):
        kind = kind_of(slot, bindings)
        if kind.pointer and bits_of(kind.type) != rules.address_size:
            return f"a generic address takes {rules.address_size} bits, .{kind.type} has {bits_of(kind.type)}"
        problem = _check_value(slot, _unbraced(slot, operand), kind, type_of)
        return problem or (check_symbol(operand, bindings, rules) if isinstance(operand, Symbol) else None)
    if slot.kind == "_":
        return None if operand == _SINK else f"expected _, got {_describe(operand, type_of)}"
    if slot.kind[0] == "[":
        return _check_address(slot.kind[1:-1], bindings, operand, type_of, rules)
    if slot.kind.startswith("imm"):
        return immediate(slot.kind, operand)
    if slot.kind.startswith("tensor"):
        return _check_box(operand, int(slot.kind[7:-1] or bindings["D"][0]), type_of, rules)
    if slot.kind == "flag":
        return _check_flag(slot, operand, type_of)
    if slot.kind.startswith("select"):
        return _check_selector(slot.kind, operand, type_of)
    return None if isinstance(operand, Symbol) else f"expected a label, got {_describe(operand, type_of)}"


@lru_cache(1024)
def _named(kind: str) -> bool:
    """Whether a kind is one with a name of its own, and not a type."""
    return kind in ("_", "flag", "label") or kind.startswith(("[", "imm", "tensor", "select"))


def _unbraced(slot: Slot, operand: Operand) -> Operand:
    """The register of `{%r1}` where a slot lets one stand in braces."""
    return operand.items[0] if slot.braces and isinstance(operand, Vector) and len(operand.items) == 1 else operand


def _check_value(slot: Slot, operand: Operand, kind: ValueKind, type_of: TypeOf) -> str | None:
    if kind.count:
        return _check_vector(slot, operand, kind, type_of)
    if isinstance(operand, Register):
        return _check_register(slot, operand, kind, type_of) or _check_parts(slot, operand, kind)
    if operand == _SINK:
        if kind.spare:
            return None
        return "the result cannot be discarded" if slot.written else "'_' discards a result, it cannot be read"
    if isinstance(operand, Not):
        if kind.type != "pred" or slot.written:
            return "only a predicate that is read may be negated"
        return _check_value(slot, operand.register, kind, type_of)
    if slot.written or kind.parts > 1 or kind.register:
        write = " to write" if slot.written else ""
        return f"expected a .{kind.type} register{write}, got {_describe(operand, type_of)}"
    if isinstance(operand, Immediate) or (isinstance(operand, Symbol) and operand.name in WARP_SIZE):
        return _check_literal(operand, kind)
    if isinstance(operand, Symbol) and kind.address:
        bits = bits_of(kind.type)
        return None if bits >= 32 else f"an address takes 32 or 64 bits, .{kind.type} has {bits}"
    return f"expected a .{kind.type} register, got {_describe(operand, type_of)}"


def _check_vector(slot: Slot, operand: Operand, kind: ValueKind, type_of: TypeOf) -> str | None:
    if not isinstance(operand, Vector):
        return f"expected a vector of {kind.count} x .{kind.type}, got {_describe(operand, type_of)}"
    items = operand.items
    if len(items) != kind.count:
        return f"expected {kind.count} x .{kind.type}, got {len(items)}"
    if isinstance(items[0], Symbol) and all(item == _SINK for item in items):
        return f"one of the {kind.count} elements must be kept"
    scalar = fitting = None
    mixed = False
    for index, item in enumerate(items):
        # Most vectors are registers of one type: what fits once fits again.
        if isinstance(item, Register) and (declared := type_of(item)) is not None:
            if declared == fitting:
                continue
            if compatible(kind.type, declared, wider=kind.wider, own=kind.own):
                mixed = mixed or fitting is not None
                fitting = declared
                continue
        scalar = scalar or replace(kind, count=0, spare=slot.written or kind.spare)
        problem = _check_value(slot, item, scalar, type_of)
        if problem is not None:
            return f"element {index}: {problem}"
    if mixed and not alike(type_of(item) or "" for item in items if isinstance(item, Register)):
        return "the elements of a vector have one type, or .b types of its width"
    return None


def _check_register(slot: Slot, register: Register, kind: ValueKind, type_of: TypeOf) -> str | None:
    declared = type_of(register)
    if declared is None:
        if slot.written or not kind.special:
            return f"the special register {register.name} can be read by mov and cvt of .b, .u and .s types only"
        special = SPECIAL_REGISTERS.get(register.name)
        return None if special is None else special.misfit(bits_of(kind.type), wider=kind.wider)
    if compatible(kind.type, declared, wider=kind.wider, own=kind.own):
        return None
    at_least = " or wider" if kind.wider else ""
    return f"expected a register that holds .{kind.type}{at_least}, got .{declared}"


_PARTS = {
    (1, True): r"b[0-3]|h[01]",
    (1, False): r"b[0-3]|h[01]",
    (2, True): r"h(1?0|1)",
    (2, False): r"h[0-3]{2}",
    (4, True): r"b(?=.)3?2?1?0?",
    (4, False): r"b[0-7]{4}",
}
"""What may stand behind a register, by the numbers it holds and whether they are written (9.7.18)."""


def _check_parts(slot: Slot, register: Register, kind: ValueKind) -> str | None:
    selector = register.name.partition(".")[2]
    if not selector or (not kind.parts and not re.fullmatch(r"[bh]\d+", selector)):
        return None
    if kind.parts and re.fullmatch(_PARTS[kind.parts, slot.written], selector):
        return None
    return f".{selector} chooses no parts of {register.name.partition('.')[0]} here"


def _check_literal(operand: Immediate | Symbol, kind: ValueKind) -> str | None:
    if isinstance(operand, Symbol):
        operand = Immediate(str(WARP_SIZE[operand.name]))
    floating = isinstance(operand.value, float)
    if kind.type in ("f32", "f64"):
        if not floating:
            return f"expected a floating-point literal such as 0f3F800000 for .{kind.type}"
        return outside(kind.span, operand) if kind.span else None
    if kind.type[0] in "us" or kind.type == "pred":
        if floating:
            return f"expected an integer literal for .{kind.type}"
        return outside(kind.span, operand) if kind.span else None
    if kind.type[0] == "b" and kind.type in REGISTER_BITS:
        if not floating or (kind.own and bits_of(kind.type) == (32 if operand.text[:2] in ("0f", "0F") else 64)):
            return None
        return f"the literal {operand.text} is no .{kind.type}"
    return f"a .{kind.type} operand cannot be a literal: move it into a register first"


def _check_predicate(slot: Slot, operand: Operand, type_of: TypeOf) -> str | None:
    if operand == _SINK:
        return None if slot.spare else "the predicate after '|' cannot be discarded"
    if isinstance(operand, Register) and type_of(operand) == "pred":
        return None
    return f"expected a predicate after '|', got {_describe(operand, type_of)}"


def _check_address(kind: str, bindings: Bindings, operand: Operand, type_of: TypeOf, rules: AddressRules) -> str | None:
    if not isinstance(operand, Address):
        return f"expected an address in brackets, got {_describe(operand, type_of)}"
    declared = type_of(operand.base) if isinstance(operand.base, Register) else None
    problem = check_address(kind, bindings, operand.base, declared, rules)
    return problem and problem.replace("{}", _describe(operand.base, type_of))


def _check_box(operand: Operand, rank: int, type_of: TypeOf, rules: AddressRules) -> str | None:
    """`[map, {c0, ...}]`: the generic address of a tensor map, and a coordinate for each dimension."""
    if not isinstance(operand, Indexed) or len(operand.items) != 2:
        return f"expected [map, {{coordinates}}], got {_describe(operand, type_of)}"
    base, where = operand.items
    address = base if isinstance(base, Address) else Address(base) if isinstance(base, Register | Symbol) else base
    problem = _check_address("global", {}, address, type_of, rules)
    return problem or _check_vector(Slot("coordinates", "b32"), where, ValueKind("b32", rank), type_of)


def _check_flag(slot: Slot, operand: Operand, type_of: TypeOf) -> str | None:
    if isinstance(operand, Immediate):
        return immediate("imm(0/1)", operand)
    return _check_value(slot, operand, ValueKind("pred", negatable=True), type_of)


def _check_selector(kind: str, operand: Operand, type_of: TypeOf) -> str | None:
    """`{byte-id, thread-id}`, of `select(0/2;0/1)`."""
    if not isinstance(operand, Vector) or len(operand.items) != 2:
        return f"expected {{byte-id, thread-id}}, got {_describe(operand, type_of)}"
    for what, legal, item in zip(("byte-id", "thread-id"), kind[7:-1].split(";"), operand.items, strict=True):
        if isinstance(item, Register):
            problem = _check_register(Slot(what, "u16"), item, ValueKind("u16"), type_of)
        else:
            problem = immediate(f"imm({legal})", item)
        if problem is not None:
            return f"{what}: {problem}"
    return None


def _describe(operand: Operand, type_of: TypeOf) -> str:
    match operand:
        case Indexed():
            return "an address with coordinates"
        case Register():
            declared = type_of(operand)
            return f"a .{declared} register" if declared else f"the special register {operand.name}"
        case Immediate():
            return f"the literal {operand.text}"
        case Symbol():
            return f"the symbol {operand.name}"
        case Vector():
            return f"a vector of {len(operand.items)}"
        case Address():
            return "an address"
        case Pair():
            return "a pair"
        case Not():
            return "a negated predicate"
