"""Is an instruction one that PTX has: its spelling, its operands, the types of its registers, its target. Source: PTX
ISA 6 (Instruction Operands), and each row's section."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import NamedTuple

from ..isa.form import Form
from ..isa.row import (
    ADDRESS,
    ANYTHING,
    CONSTANT,
    CONSTANTS,
    DISCARDED,
    PREDICATE,
    SCALAR,
    SELECTOR,
    SPECIAL_REGISTERS,
    TENSOR,
    TEXTURE,
    VALUES,
    VECTOR,
    Bindings,
    Row,
    Slot,
    Target,
    Version,
    rows_of,
)
from .instructions import find, nearest
from .text import syntax
from .text.operands import (
    ANYWHERE,
    AddressRules,
    SpaceOf,
    check_address,
    check_literal,
    check_symbol,
    immediate,
    is_literal,
    literal_type,
    nowhere,
)
from .text.syntax import Address, Immediate, Indexed, Not, Operand, Pair, Register, Symbol, Vector, bits_of, compatible

TypeOf = Callable[[Register], str | None]
"""The declared type of a register; None for a special register."""


_SINK = Symbol("_")
"""What stands for a result that is discarded."""

ACCESS_BITS = 128
"""What a vector may have at most."""
B128 = ((8, 3), 70)
"""What has registers and variables of 128 bits."""


class TargetContext(NamedTuple):
    """The PTX version and the targets ("sm_90a") of a module, without options."""

    version: Version
    targets: tuple[str, ...]
    address_size: int = 64

    @property
    def rows(self) -> tuple[Target, ...]:
        """The rows of the targets. A target without a row has only its number and suffix."""
        return rows_of(self.targets)

    def lacks(self, version: Version, sm: int = 0) -> str:
        """Why the module cannot have what needs a version and a target; "" if it can."""
        if self.version < version:
            return "needs PTX {}.{} or later, the module's version is {}.{}".format(*version, *self.version)
        if any(target.sm < sm for target in self.rows):
            return f"needs sm_{sm} or later, the module's target is {', '.join(self.targets)}"
        return ""

    def width_problems(self, type: str, vector: int) -> Iterator[str]:
        """What is wrong with the width of a declared type, or of a vector of it."""
        if vector > 1 and syntax.REGISTER_BITS.get(type, 64) * vector > ACCESS_BITS:
            yield f".v{vector} .{type} has more than {ACCESS_BITS} bits"
        if type == "b128" and (lacking := self.lacks(*B128)):
            yield f".b128 {lacking}"

    def problem(self, row: Row) -> str | None:
        """Why the module cannot have an instruction: its target or its PTX version."""
        for target in self.rows:
            why = row.unavailable(target, self.version)
            if why is not None:
                if row.since(target) is None:
                    return f"{why}, the module's target is {', '.join(self.targets)}"
                later = "" if row.removed(target) else " or later"
                return "{}{}, the module's version is {}.{}".format(why, later, *self.version)
        return None


class _Miss(NamedTuple):
    """Why a row does not fit an instruction. `fits` measures how near it is: -1 if the number of operands differs, else
    the number of operands that fit before the first that does not, plus a half if that is right but for an element."""

    message: str
    fits: float


def resolve(
    opcode: str,
    operands: Sequence[Operand],
    type_of: TypeOf,
    context: TargetContext | None = None,
    space_of: SpaceOf = nowhere,
) -> tuple[Row, Bindings] | str:
    """The first row of an opcode whose operands fit, with the bindings of its qualifiers; the reason if there is none.
    Without a context, targets are not checked."""
    rows = fitting(opcode, operands, type_of, AddressRules(space_of, 64 if context is None else context.address_size))
    if isinstance(rows, str) or context is None:
        return rows if isinstance(rows, str) else rows[0]
    problems: list[str] = []
    for row, bindings in rows:
        problem = context.problem(row)
        if problem is None:
            return row, bindings
        problems.append(problem)
    return f"{opcode}: {problems[0]} ({reference(opcode)})"


def fitting(
    opcode: str, operands: Sequence[Operand], type_of: TypeOf, rules: AddressRules = ANYWHERE
) -> Sequence[tuple[Row, Bindings]] | str:
    """The rows of an opcode whose operands fit, with the bindings of their qualifiers. If none fits, the reason."""
    matches = find(opcode)
    if not matches:
        return unknown(opcode)
    fits: list[tuple[Row, Bindings]] = []
    misses: list[_Miss] = []
    for row, bindings in matches:
        problems = [_check_operands(s, bindings, operands, type_of, rules) for s in row.signatures_of(bindings)]
        if None in problems and (isinstance(row, Form) or row.root in UNTYPED):
            slots = row.signatures_of(bindings)[problems.index(None)]
            problems = [_literals_alone(slots, operands, "" if isinstance(row, Form) else "f32")]
        if None in problems:
            fits.append((row, bindings))
        misses += filter(None, problems)
    return fits or f"{opcode}: {max(misses, key=lambda miss: miss.fits).message} ({reference(opcode)})"


def reference(opcode: str) -> str:
    """The section of the PTX ISA that defines an opcode."""
    return find(opcode)[0][0].reference


def type_of_result(row: Row, bindings: Bindings) -> str | None:
    """The instruction type of the only value that a row writes, such as "s32"; None if it writes none or several."""
    slots = row.signatures_of(bindings)[0]
    return slots[0].type if slots and slots[0].written and slots[0].kind == SCALAR else None


def unknown(opcode: str) -> str:
    """The message for an opcode that no row has."""
    close = nearest(opcode)
    hint = f"; the nearest are {', '.join(close)}" if close else ""
    return f"'{opcode}' is not a PTX instruction known here{hint}"


def _check_operands(
    slots: Sequence[Slot], bindings: Bindings, operands: Sequence[Operand], type_of: TypeOf, rules: AddressRules
) -> _Miss | None:
    if slots and slots[0].kind == ANYTHING:
        return None
    needed = sum(not slot.optional for slot in slots)
    if not needed <= len(operands) <= len(slots):
        number = str(needed) if needed == len(slots) else f"{needed} to {len(slots)}"
        listed = f" ({', '.join(slot.name for slot in slots)})" if slots else ""
        return _Miss(f"expected {number} operands{listed}, got {len(operands)}", -1)
    if needed < len(slots):
        slots = _required(slots, len(operands) - needed)
    for fits, (slot, operand) in enumerate(zip(slots, operands, strict=True)):
        problem = _check_slot(slot, operand, bindings, type_of, rules)
        if problem is not None:
            return _Miss(f"operand {slot.name}: {problem}", fits + problem.startswith("element") / 2)
    return None


UNTYPED = ("tcgen05", "spcompress", "spdecompress")
"""Instructions whose vectors have the type of a register in them, beside the matrix instructions."""


def _literals_alone(slots: Sequence[Slot], operands: Sequence[Operand], other: str) -> _Miss | None:
    """A vector of literals alone, which has their type: it must be the operand's, or `other`."""
    for fits, (slot, operand) in enumerate(zip(slots, operands, strict=False)):
        if slot.kind != VECTOR or not isinstance(operand, Vector):
            continue
        if any(isinstance(item, Register) or item == _SINK for item in operand.items):
            continue
        if not {literal_type(item) for item in operand.items} <= {slot.type, other}:
            return _Miss(f"operand {slot.name}: expected registers, got literals alone", fits)
    return None


def _required(slots: Sequence[Slot], more: int) -> list[Slot]:
    """The required operands, and the first `more` optional ones."""
    numbers = count()
    return [slot for slot in slots if not slot.optional or next(numbers) < more]


def _check_slot(slot: Slot, operand: Operand, bindings: Bindings, type_of: TypeOf, rules: AddressRules) -> str | None:
    if isinstance(operand, Pair):
        if not slot.pair:
            return "expected one register, got a pair"
        if operand.first == operand.second == _SINK:
            return "one of the two results must be kept"
        return _check_predicate(slot, operand.second, type_of) or _check_value(slot, operand.first, type_of)
    if slot.pair == "||":
        return "expected a destination and a predicate, written d|p"
    if slot.kind in VALUES:
        if slot.pointer and bits_of(slot.type) != rules.address_size:
            return f"a generic address takes {rules.address_size} bits, .{slot.type} has {bits_of(slot.type)}"
        if slot.braces and isinstance(operand, Vector) and [type(item) for item in operand.items] == [Register]:
            (operand,) = operand.items
        problem = _check_value(slot, operand, type_of)
        return problem or (check_symbol(operand, bindings, rules) if isinstance(operand, Symbol) else None)
    if slot.kind == DISCARDED:
        return None if operand == _SINK else f"expected _, got {_describe(operand, type_of)}"
    if slot.kind == ADDRESS:
        problem = _check_address(slot.type, bindings, operand, type_of, rules)
        if problem is None and slot.register and isinstance(operand, Address):
            declared = isinstance(operand.base, Register) and type_of(operand.base)
            return None if declared == "b32" else f"expected a .b32 register, got {_describe(operand.base, type_of)}"
        return problem
    if slot.kind == CONSTANT:
        return immediate(slot.span, operand)
    if slot.kind == TENSOR:
        return _check_box(operand, slot, type_of, rules)
    if slot.kind == TEXTURE:
        return _check_opaque(slot, operand, type_of, rules)
    if slot.kind == PREDICATE:
        return immediate("0/1", operand) if is_literal(operand) else _check_value(slot, operand, type_of)
    if slot.kind == SELECTOR:
        return _check_selector(slot.span, operand, type_of)
    label = isinstance(operand, Symbol) and operand != _SINK
    return None if label else f"expected a label, got {_describe(operand, type_of)}"


def _check_value(slot: Slot, operand: Operand, type_of: TypeOf) -> str | None:
    if slot.kind == VECTOR:
        return _check_vector(slot, operand, type_of)
    if isinstance(operand, Register):
        return _check_register(slot, operand, type_of) or _check_parts(slot, operand)
    if operand == _SINK:
        if slot.discards:
            return None
        return "the result cannot be discarded" if slot.written else "'_' discards a result, it cannot be read"
    if isinstance(operand, Not):
        if slot.type != "pred" or slot.written:
            return "only a predicate that is read may be negated"
        return _check_value(slot, operand.register, type_of)
    if slot.written or slot.parts > 1 or slot.register:
        write = " to write" if slot.written else ""
        return f"expected a .{slot.type} register{write}, got {_describe(operand, type_of)}"
    if is_literal(operand):
        return check_literal(slot, operand)
    if isinstance(operand, Symbol) and slot.variable:
        bits = bits_of(slot.type)
        return None if bits >= 32 else f"an address takes 32 or 64 bits, .{slot.type} has {bits}"
    return f"expected a .{slot.type} register, got {_describe(operand, type_of)}"


def _check_vector(slot: Slot, operand: Operand, type_of: TypeOf) -> str | None:
    type, scalar, fitting = slot.holds or slot.type, None, None
    if operand == _SINK and slot.written and slot.discards:
        return None
    if not isinstance(operand, Vector):
        return f"expected a vector of {slot.count} x .{type}, got {_describe(operand, type_of)}"
    items = operand.items
    if len(items) != slot.count:
        return f"expected {slot.count} x .{type}, got {len(items)}"
    if slot.accumulates and _SINK in items:
        return "a warpgroup's accumulator is read too, none of it can be discarded"
    if slot.register and _SINK in items:
        return "none of the results can be discarded"
    if isinstance(items[0], Symbol) and all(item == _SINK for item in items):
        return f"one of the {slot.count} elements must be kept"
    mixed = False
    for index, item in enumerate(items):
        # Most vectors are registers of one type: what fits once fits again.
        if isinstance(item, Register) and (declared := type_of(item)) is not None:
            if declared == fitting:
                continue
            if compatible(type, declared, wider=slot.wider, own=slot.own):
                mixed = mixed or fitting is not None
                fitting = declared
                continue
        scalar = scalar or replace(slot, kind=SCALAR, type=type, discards=slot.written or slot.discards)
        problem = _check_value(scalar, item, type_of)
        if problem is None and isinstance(item, Register) and type_of(item) is None and bits_of(type) < 32:
            problem = f"the special register {item.name} is wider than .{type}"
        if problem is not None:
            return f"element {index}: {problem}"
    if mixed and not syntax.alike(type_of(item) or "" for item in items if isinstance(item, Register)):
        return "the elements of a vector have one type, or .b types of its width"
    return None


def _check_register(slot: Slot, register: Register, type_of: TypeOf) -> str | None:
    type = slot.holds or slot.type
    declared = type_of(register)
    if declared is None:
        if slot.written or not slot.special:
            return f"the special register {register.name} can be read by mov and cvt of .b, .u and .s types only"
        special = SPECIAL_REGISTERS.get(register.name)
        return None if special is None else special.misfit(bits_of(type), wider=slot.wider)
    if compatible(type, declared, wider=slot.wider, own=slot.own):
        return None
    at_least = " or wider" if slot.wider else ""
    return f"expected a register that holds .{type}{at_least}, got .{declared}"


_PARTS = {
    (1, True): r"b[0-3]|h[01]",
    (1, False): r"b[0-3]|h[01]",
    (2, True): r"h(1?0|1)",
    (2, False): r"h[0-3]{2}",
    (4, True): r"b(?=.)3?2?1?0?",
    (4, False): r"b[0-7]{4}",
}
"""What may stand behind a register, by the numbers it holds and whether they are written (9.7.18)."""


def _check_parts(slot: Slot, register: Register) -> str | None:
    selector = register.name.partition(".")[2]
    if not selector or (not slot.parts and not re.fullmatch(r"[bh]\d+", selector)):
        return None
    if slot.parts and re.fullmatch(_PARTS[slot.parts, slot.written], selector):
        return None
    return f".{selector} chooses no parts of {register.name.partition('.')[0]} here"


def _check_predicate(slot: Slot, operand: Operand, type_of: TypeOf) -> str | None:
    if operand == _SINK:
        return None if slot.pair_discards else "the predicate after '|' cannot be discarded"
    if isinstance(operand, Register) and type_of(operand) == "pred":
        return None
    return f"expected a predicate after '|', got {_describe(operand, type_of)}"


def _check_address(kind: str, bindings: Bindings, operand: Operand, type_of: TypeOf, rules: AddressRules) -> str | None:
    if not isinstance(operand, Address):
        return f"expected an address in brackets, got {_describe(operand, type_of)}"
    declared = type_of(operand.base) if isinstance(operand.base, Register) else None
    problem = check_address(kind, bindings, operand.base, declared, rules)
    return problem and problem.replace("{}", _describe(operand.base, type_of))


def _check_box(operand: Operand, slot: Slot, type_of: TypeOf, rules: AddressRules) -> str | None:
    """`[map, {c0, ...}]`: the generic address of a tensor map, and a coordinate for each dimension. What replaces
    fields of the map stands before the coordinates: an address, sizes, and strides in two parts."""
    more = replacing(slot)
    if not isinstance(operand, Indexed) or len(operand.items) != 2 + len(more):
        listed = ", ".join(["map", *(field.name for field in more), "{coordinates}"])
        return f"expected [{listed}], got {_describe(operand, type_of)}"
    base, *fields, where = operand.items
    address = base if isinstance(base, Address) else Address(base) if isinstance(base, Register | Symbol) else base
    problem = _check_address("global", {}, address, type_of, rules)
    for field, item in zip(more, fields, strict=True):
        first = item.items[0] if field.name == "sizes" and isinstance(item, Vector) else None
        narrow = isinstance(first, Register) and type_of(first) in ("b8", "u8", "s8")
        problem = problem or _check_value(replace(field, type="b8") if narrow else field, item, type_of)
    span = "0..0" if slot.type == "shape" else ""
    return problem or _check_vector(Slot("coordinates", VECTOR, "s32", slot.count, span=span), where, type_of)


def replacing(slot: Slot) -> list[Slot]:
    """The fields of a map that a place in a tensor replaces: PTX ISA 9.4, 9.7.10.28.5.2."""
    if not slot.type:
        return []
    fields = [Slot("address", type="b64", register=True)]
    if slot.type == "shape":
        fields.append(Slot("sizes", VECTOR, "b16", slot.count))
        if slot.count > 1:
            strides = Slot("low strides", VECTOR, "b32", slot.count - 1, register=True)
            fields += [strides, Slot("high strides", type="b16", register=True)]
    return fields


def _check_opaque(slot: Slot, operand: Operand, type_of: TypeOf, rules: AddressRules) -> str | None:
    """`[texture, sampler, {c0, ...}]`, `[surface, {c0, ...}]`, `[texture]`: opaque objects, and coordinates, of which
    four always may be written."""
    if slot.type == "u64":
        return _check_endpoint(slot.count, operand, type_of)
    if not slot.count:
        object_ = operand.base if isinstance(operand, Address) and operand == Address(operand.base) else None
        return _check_object(object_, type_of, rules) or None
    dimensions = 3 if slot.wider else 2
    if not isinstance(operand, Indexed) or not 2 <= len(operand.items) <= dimensions:
        object_ = "texture" if slot.wider else "surface"
        return f"expected [{object_}, {{coordinates}}], got {_describe(operand, type_of)}"
    *objects, where = operand.items
    problems = (_check_object(each, type_of, rules) for each in objects)
    if problem := next(filter(None, problems), ""):
        return problem
    if not isinstance(where, Vector | Register):
        return f"expected coordinates in braces, got {_describe(where, type_of)}"
    places = where.items if isinstance(where, Vector) else (where,)
    if len(places) not in (slot.count, 4):
        return f"expected {slot.count} coordinates, got {len(places)}"
    for number, place in enumerate(places):
        type = "s32" if slot.span and not number else slot.type
        if problem := _check_value(Slot("coordinate", type=type), place, type_of):
            return f"coordinate {number}: {problem}"
    return None


def _check_endpoint(count: int, operand: Operand, type_of: TypeOf) -> str | None:
    """`[endpoint, offset, ...]`, in registers of 32 and 64 bits."""
    if not isinstance(operand, Indexed) or len(operand.items) != count:
        return f"expected an endpoint with {count - 1} offsets in brackets, got {_describe(operand, type_of)}"
    problems = (
        _check_value(Slot("place", type="u64" if number else "u32", register=True), item, type_of)
        for number, item in enumerate(operand.items)
    )
    return next(filter(None, problems), None)


def _check_object(operand: Operand | None, type_of: TypeOf, rules: AddressRules) -> str:
    """Checks a texture, sampler or surface: a name, or a register with its address or handle."""
    if isinstance(operand, Symbol):
        where = rules.space_of(operand.name)
        opaque = operand.name not in CONSTANTS and (where is None or where in (*syntax.OPAQUE_TYPES, "tex"))
        return "" if opaque else f"expected a texture, a sampler or a surface, got '{operand.name}'"
    if not isinstance(operand, Register):
        return "expected a name or a 64-bit register in brackets"
    declared = type_of(operand)
    fits = declared is not None and compatible("u64", declared)
    return "" if fits else f"expected the address of an opaque object in 64 bits, got .{declared or 'nothing'}"


def _check_selector(span: str, operand: Operand, type_of: TypeOf) -> str | None:
    """`{byte-id, thread-id}`, of the literals "0/2;0/1"."""
    if not isinstance(operand, Vector) or len(operand.items) != 2:
        return f"expected {{byte-id, thread-id}}, got {_describe(operand, type_of)}"
    for what, legal, item in zip(("byte-id", "thread-id"), span.split(";"), operand.items, strict=True):
        if isinstance(item, Register):
            problem = _check_register(Slot(what, type="u16"), item, type_of)
        else:
            problem = immediate(legal, item)
        if problem is not None:
            return f"{what}: {problem}"
    return None


def _describe(operand: Operand, type_of: TypeOf) -> str:
    match operand:
        case Register():
            declared = type_of(operand)
            return f"a .{declared} register" if declared else f"the special register {operand.name}"
        case Immediate():
            return f"the literal {operand.text}"
        case Symbol():
            return f"the symbol {operand.name}" + (f"+{operand.offset}" if operand.offset else "")
        case Vector():
            return f"a vector of {len(operand.items)}"
        case _:
            return _WORDS[type(operand)]


_WORDS = {Address: "an address", Indexed: "an address with coordinates", Pair: "a pair", Not: "a negated predicate"}
