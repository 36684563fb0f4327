"""Types of registers, instructions and variables: which registers, literals and addresses fit an operand, and the text
of declarations. Source: PTX ISA 5.1 (State Spaces), 5.2 (Types), 7.1, 9.1 to 9.4 (type checking)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import NamedTuple, TypeGuard

from ..isa.row import Bindings, Slot
from .text.operands import IDENTIFIER
from .text.syntax import WARP_SIZE, Cursor, Immediate, Operand, RegDecl, Register, Symbol, Variable, integer

REGISTER_BITS = {
    "pred": 1,
    **{f"{kind}{bits}": bits for bits in (8, 16, 32, 64) for kind in "bus"},
    "b128": 128,
    "f16": 16,
    "f16x2": 32,
    "f32": 32,
    "f64": 64,
}
"""Width in bits of every type `.reg` may declare (5.2.1). Other formats (bf16, e4m3) live in `.b` registers."""

OPAQUE_TYPES = ("texref", "samplerref", "surfref")
"""Types of variables that no load reads (5.3)."""

ALONE = frozenset(("pred", *OPAQUE_TYPES))
"""Types that are those of no others' bits."""

PACKED_BITS = {
    "bf16": 16,
    "bf16x2": 32,
    "tf32": 32,
    "f32x2": 64,
    "u16x2": 32,
    "s16x2": 32,
    **dict.fromkeys(("e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2", "ue8m0x2", "ue5m3x2", "s2f6x2", "e2m1x4"), 16),
    **dict.fromkeys(("e4m3x4", "e5m2x4", "e2m3x4", "e3m2x4", "e2m1p4x4", "ue8m0x4", "u8x4", "s8x4"), 32),
    **dict.fromkeys(("e2m1x2", "ue8m0"), 8),
    "rbits": 32,
}
"""Instruction types that no register has: they live in `.b` registers (ISA 5.2.3)."""


@lru_cache(4096)
def compatible(instruction: str, register: str, *, wider: bool = False, own: bool = True) -> bool:
    """Whether a register of one type may be an operand of an instruction type (ISA 9.1); `wider` as in 9.4.1. ptxas
    takes a register of floats for bits, and two halves for an integer, only where the operand has the type that the
    opcode names: that is `own`."""
    if not ALONE.isdisjoint((instruction, register)):
        return instruction == register
    bits, register_bits = bits_of(instruction), REGISTER_BITS[register]
    if register_bits != bits and not (wider and register_bits > bits):
        return False
    if register[0] == "b" or instruction == register:
        return True
    if instruction in PACKED_BITS:
        return register == "f16x2" and instruction[0] in "us" and instruction[1].isdigit()
    if instruction[0] == "b":
        return own or register[0] in "us"
    if instruction[0] in "us":
        return register[0] in "us" or (own and register == "f16x2")
    return False


def alike(types: Iterable[str]) -> bool:
    """Whether registers of these types may be the elements of one vector: they have one width, and one type besides
    untyped bits. Integers of either sign are one type."""
    kinds = {type for type in types if type}
    others = {"u" if type[0] in "us" else type for type in kinds if type[0] != "b"}
    return len({REGISTER_BITS[type] for type in kinds}) < 2 and len(others) < 2


def bits_of(type: str) -> int:
    """Width in bits of a type that instructions or registers have."""
    return PACKED_BITS.get(type) or REGISTER_BITS[type]


# Addresses among the operands of an instruction: where they may point.
#
# Source: PTX ISA 6.4.1; of the addresses of variables 9.7.9.3. Where the text leaves it open, what ptxas 13.0 takes.

SpaceOf = Callable[[str], str | None]
"""The state space of a variable; "function" or "label" for what is one; None where that is not known."""


def nowhere(_: str) -> None:
    """Knows no variable's address."""


class AddressRules(NamedTuple):
    """Where variables lie, and how wide a generic address is."""

    space_of: SpaceOf = nowhere
    address_size: int = 64


ANYWHERE = AddressRules()

_GENERIC = ("global", "shared", "local")
"""The state spaces that generic addresses reach by the name of a variable."""


def check_address(
    kind: str, bindings: Bindings, base: Register | Symbol | Immediate, declared: str | None, rules: AddressRules
) -> str | None:
    """The error of an address in a slot of kind `[kind]`: in its base, its state space, or the width of its register.
    None if it is right. `declared` is the type of the register. `{}` in the message stands for a description of the
    base."""
    bound = bindings.get("P", "") if kind in ("", "mbarrier") else bindings.get(kind, "") if len(kind) == 1 else kind
    space = bound.partition("::")[0]
    if kind == "unified":
        space = "global" if isinstance(base, Symbol) else ""
    if kind == "tensor" and (declared is None or declared[0] not in "bus" or REGISTER_BITS[declared] != 32):
        return "expected an address of tensor memory in a 32-bit integer register, got {}"
    if isinstance(base, Immediate) and isinstance(base.value, float):
        return "an address is an integer, got {}"
    if isinstance(base, Immediate) or base == Symbol("WARP_SZ"):
        return None if space == "local" else "a literal address is one of .local memory"
    if base == Symbol("_"):
        return "'_' discards a result, it is no address"
    if isinstance(base, Symbol):
        return _check_space(base.name, "shared" if kind == "mbarrier" else space, rules)
    if "." in base.name or declared is None or declared[0] not in "bus" or REGISTER_BITS[declared] not in (32, 64):
        return "expected an address in a 32 or 64-bit integer register, got {}"
    if kind in ("", "mbarrier", "unified") and space in ("", "global") and REGISTER_BITS[declared] < rules.address_size:
        return f"a {space and '.'}{space or 'generic'} address takes {rules.address_size} bits, got {{}}"
    return None


def _check_space(name: str, space: str, rules: AddressRules) -> str | None:
    """Whether a variable lies where an address must; "" and "any" are generic."""
    where = rules.space_of(name)
    if where is None or where == space or (space in ("", "any") and where in _GENERIC):
        return None
    wanted = "a generic address" if space in ("", "any") else f"an address in .{space} memory"
    return f"expected {wanted}, got '{name}', a {where if where in ('function', 'label') else f'.{where} variable'}"


def check_symbol(symbol: Symbol, bindings: Bindings, rules: AddressRules) -> str | None:
    """Whether the address of a symbol can be read: its space is what `P` binds, and it has the width of the type. Where
    an opcode leaves out its `P`, the address is generic, but one of shared memory (9.7.9.23, .24)."""
    where = rules.space_of(symbol.name)
    space = (bindings.get("P", "") or "shared" * ("P" in bindings)).partition("::")[0]
    if where is None:
        return None
    if where == "label" or (where == "function" and symbol.offset):
        return f"'{symbol.name}' is a {where}, it has no address {'to add to' if symbol.offset else 'here'}"
    if "P" in bindings:
        return _check_space(symbol.name, space or "shared", rules)
    if where == "global" and bits_of(bindings.get("T", "b64")) < rules.address_size:
        return f"the address of '{symbol.name}' takes {rules.address_size} bits"
    return None


# Literals among operands: which numbers a slot's kind has, in the notation of `rows.grammar`.


def is_literal(operand: Operand) -> TypeGuard[Immediate | Symbol]:
    """Whether an operand is a number, or `WARP_SZ`."""
    return isinstance(operand, Immediate) or (isinstance(operand, Symbol) and operand.name in WARP_SIZE)


def _number(literal: Immediate | Symbol) -> Immediate:
    return literal if isinstance(literal, Immediate) else Immediate(str(WARP_SIZE[literal.name]))


def immediate(span: str, operand: Operand) -> str | None:
    """What is wrong with an operand that must be a literal in a span, such as "4/8/16", "24..256/8" or "" for any
    literal; None if nothing is."""
    operand = _number(operand) if is_literal(operand) else operand
    if not isinstance(operand, Immediate) or isinstance(operand.value, float):
        return "expected an integer literal"
    if ".." in span:
        return outside(span, operand)
    if span and str(operand.value) not in (legal := span.split("/")):
        return f"expected {' or '.join(legal)}, got {operand.text}"
    return None


def outside(span: str, operand: Immediate) -> str | None:
    """What is wrong with a literal that must be in `low..top`, or a multiple in it: `low..top/step`, `low../step`.
    Fractions have `low<..top`."""
    bounds, _, step = span.partition("/")
    low, _, top = bounds.partition("..")
    if low[-1] == "<":
        return (
            None
            if int(low[:-1]) < operand.value <= int(top)
            else f"expected a number above {low[:-1]} and at most {top}, got {operand.text}"
        )
    value = int(operand.value) % (1 << 64)
    if int(low) <= value <= int(top or value) and value % int(step or 1) == 0:
        return None
    what = f"a multiple of {step}" if step else "a number"
    return f"expected {what} {f'from {low} to {top}' if top else f'of at least {low}'}, got {operand.text}"


def check_literal(slot: Slot, literal: Immediate | Symbol) -> str | None:
    """What is wrong with a literal as an operand that is read."""
    operand = _number(literal)
    floating = isinstance(operand.value, float)
    if slot.type in PACKED_BITS:
        return f"a .{slot.type} operand cannot be a literal: move it into a register first"
    if slot.type in ("f32", "f64"):
        if not floating:
            return f"expected a floating-point literal such as 0f3F800000 for .{slot.type}"
        return outside(slot.span, operand) if slot.span else None
    if slot.type[0] in "us" or slot.type == "pred":
        if floating:
            return f"expected an integer literal for .{slot.type}"
        return immediate(slot.span, operand) if slot.span else None
    if slot.type[0] == "b" and slot.type in REGISTER_BITS:
        if not floating:
            return immediate(slot.span, operand) if slot.span else None
        if slot.own and bits_of(slot.type) == (32 if operand.text[:2] in ("0f", "0F") else 64):
            return None
        return f"the literal {operand.text} is no .{slot.type}"
    return f"a .{slot.type} operand cannot be a literal: move it into a register first"


def literal_type(literal: Operand) -> str:
    """The type that a literal has by itself."""
    if not isinstance(literal, Immediate) or isinstance(literal.value, int):
        return "s32"
    return "f32" if literal.text[:2] in ("0f", "0F") else "f64"


# The text of declarations. Source: PTX ISA, chapter 5.

MAX_REGISTERS = 1 << 20
"""Registers that one declaration may make; far more than compilers do, and what memory is made for."""

UNREAD = ""
"""The type of registers whose declaration names none that there is."""

ATTRIBUTE = r"(?:\s*\.attribute\s*\(\s*(?P<{}>\.[a-z](?:[^()]|\([^()]*\))*)\))?"
VARIABLE = re.compile(
    r"\s*" + ATTRIBUTE.format("before") + r"\s*(?:\.(?P<linking>visible|extern|weak|common)\s+)?"
    r"\.(?P<space>global|shared|const|local|param|reg)(?P<cta>::\w+)?" + ATTRIBUTE.format("attribute")
    + r"(?:\s*\.align\s+(?P<align>\w+))?" + ATTRIBUTE.format("after")
    + r"(?:\s*\.v(?P<vector>[24]))?\s*\.(?P<type>\w+)"
    r"(?P<pointer>\s*\.ptr(?:\s*\.(?:global|shared|const|local|texref|surfref|samplerref))?(?:\s*\.align\s+\d+)?)?",
    re.ASCII,
)  # fmt: skip
_DECLARATOR = re.compile(
    rf"\s*(?P<name>{IDENTIFIER})\s*(?:<\s*(?P<count>\w+)\s*>)?(?P<dims>(?:\s*\[[^\]\n;]*\])*)\s*", re.ASCII
)
_BRACKET = re.compile(r"[{}(),;]")


class DeclarationReader(Cursor):
    """Reads declarations at the cursor."""

    def declared(self) -> Iterator[Variable | RegDecl]:
        """The variables or registers of one statement."""
        head = self.expect(VARIABLE, "a declaration such as '.shared .align 16 .b8 name[64];'")
        line = self.line_of(self.skipped(head.start()))
        while True:
            tail = self.expect(_DECLARATOR, "the name of a variable")
            if head["space"] == "reg":
                yield self.register(head, tail, line)
            else:
                yield from self.variables(head, tail, line)
            if not self.text.startswith(",", self.skip_space()):
                break
            self.position += 1
        self.expect_text(";", "after the declaration")

    def parameter(self, text: str, offset: int) -> Variable:
        """One parameter of a function, from its text at `offset`."""
        head = VARIABLE.match(text)
        tail = head and _DECLARATOR.fullmatch(text, head.end())
        if not head or not tail or tail["count"]:
            raise self.error(f"expected a parameter such as '.param .u64 name', got '{text.strip()}'", offset)
        at = self.skipped(offset)
        return self.variable(head, tail, None, self.text.count("\n", 0, at) + 1, offset)

    def register(self, head: re.Match[str], tail: re.Match[str], line: int) -> RegDecl:
        type, count = head["type"], None if tail["count"] is None else self.number(tail["count"], tail.start("count"))
        if type not in REGISTER_BITS:
            types = ", ".join(f".{name}" for name in REGISTER_BITS)
            self.note(f"'.{type}' is not a register type; expected one of {types}", head.start("type"))
            type = UNREAD
        if count is not None and count > MAX_REGISTERS:
            raise self.error(
                f"{count} registers are declared, expected at most {MAX_REGISTERS} at once", tail.start("count")
            )
        if tail["dims"].strip():
            self.note(f"registers make no arrays, expected {tail['name']}<n>", tail.start("dims"))
        if attached := next((head[part] for part in ("linking", "before", "attribute", "after") if head[part]), ""):
            self.note(f"a register has no {attached}", head.start())
        if head["align"] and (align := self.number(head["align"], head.start("align"))).bit_count() != 1:
            self.note(f"the alignment must be a power of two, got {align}", head.start("align"))
        return RegDecl(type, tail["name"], count, line, int(head["vector"] or 1), self.column(tail.start("name")))

    def variables(self, head: re.Match[str], tail: re.Match[str], line: int) -> Iterator[Variable]:
        """The variable of one declarator, or those that `name<n>` numbers."""
        init = self.initialiser()
        variable = self.variable(head, tail, init, line)
        if tail["count"] is None:
            yield variable
            return
        if init is not None or variable.count is not None:
            raise self.error("numbered variables are no arrays, and have no initial values", tail.start())
        for number in range(self.number(tail["count"], tail.start("count"))):
            yield replace(variable, name=f"{variable.name}{number}")

    def variable(
        self, head: re.Match[str], tail: re.Match[str], init: str | None, line: int, offset: int = 0
    ) -> Variable:
        extents = tuple(
            self.extent(d.strip(), tail["name"], offset + tail.start("dims"))
            for d in re.findall(r"\[([^\]]*)\]", tail["dims"])
        )
        align = head["align"]
        return Variable(
            head["space"] + (head["cta"] or ""),
            head["type"],
            tail["name"],
            count=prod(extents) if extents else None,
            align=self.number(align, offset + head.start("align")) if align else None,
            linking=head["linking"] or "",
            vector=int(head["vector"] or 1),
            init=init,
            pointer=" ".join((head["pointer"] or "").split()),
            line=line,
            dimensions=extents if len(extents) > 1 else (),
            attribute="".join((head["before"] or head["attribute"] or head["after"] or "").split()),
            column=self.column(self.skipped(offset + head.start())),
        )

    def number(self, text: str, position: int) -> int:
        """A count or an alignment: a literal of 32 bits without a sign, as ptxas wants it."""
        value = _unsigned(text, 32)
        if value is None:
            raise self.error(f"expected a number of 32 bits such as 64, got '{text}'", position)
        return value

    def extent(self, text: str, name: str, position: int) -> int:
        """The elements of one dimension of an array, a literal of 64 bits; 0 where it is left open."""
        value = _unsigned(text or "0", 64)
        if value is None:
            raise self.error(f"variable '{name}': expected a size such as [64], got '[{text}]'", position)
        return value

    def initialiser(self) -> str | None:
        if not self.text.startswith("=", self.skip_space()):
            return None
        start, depth = self.position + 1, 0
        for mark in _BRACKET.finditer(self.text, start):
            if mark[0] == ";" or (mark[0] == "," and depth == 0):
                self.position = mark.start()
                break
            depth += {"{": 1, "(": 1, "}": -1, ")": -1, ",": 0}[mark[0]]
        return " ".join(self.text[start : self.position].split())


def _unsigned(text: str, bits: int) -> int | None:
    """A literal without a sign, if it is one of so many bits."""
    try:
        value = WARP_SIZE[text] if text in WARP_SIZE else integer(text)
    except ValueError:
        return None
    return None if text.startswith(("-", "+")) or not 0 <= value < 1 << bits else value
