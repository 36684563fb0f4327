"""Operands that are no registers: constant expressions, literals, addresses; and which of them fit an instruction."""

from __future__ import annotations

import math
import operator
import re
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeGuard

from ...isa.row import Bindings, Slot
from .syntax import IDENTIFIER, PACKED_BITS, REGISTER_BITS, WARP_SIZE, Immediate, Operand, Register, Symbol, bits_of

# Constant expressions: their values as 64-bit numbers with or without a sign, or as floats. Source: PTX ISA 4.5.
#
# Where the text leaves it open, a value is what ptxas 13.0 gives it: `%` is taken without signs, `~` gives a number
# without a sign, shifts count modulo 64, and `a ? b : c` has the sign of what it chooses.

INTEGER = r"0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?"
DECIMAL = r"\d*\.\d+(?:[eE][+-]?\d+)?|\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+"
DOUBLE = r"0[dD][0-9a-fA-F]{16}"
HEXADECIMAL = rf"0[fF][0-9a-fA-F]{{8}}|{DOUBLE}"
"""Floats by their bits: only those of 64 bits may have a sign, or be part of an expression."""

_WORD_MASK = (1 << 64) - 1
_TOKEN = re.compile(
    rf"\s*(?:(?P<number>(?:{DOUBLE}|{DECIMAL}|{INTEGER})(?![\w.]))|(?P<name>WARP_SZ\b)|\(\s*\.(?P<cast>[su]64)\s*\)"
    r"|(?P<mark><<|>>|<=|>=|==|!=|&&|\|\||[-+*/%!~<>&^|?:()]))",
    re.ASCII,
)
_NOT_OCTAL = re.compile(r"0\d*[89]\d*U?")


class ConstantError(ValueError):
    """Text that is not a constant expression, or one without a value, and why."""


class Constant(NamedTuple):
    """A value: an integer of 64 bits, or a float."""

    value: int | float
    unsigned: bool = False

    @staticmethod
    def of(value: int, *, unsigned: bool) -> Constant:
        """An integer, reduced to 64 bits."""
        word = value & _WORD_MASK
        return Constant(word if unsigned or word < 1 << 63 else word - (1 << 64), unsigned)


@lru_cache(65536)
def evaluate(text: str) -> int | float:
    """The value of a constant expression, such as 16 of `(1<<4)`. Raises ConstantError if it is none, mixes floats with
    integers, divides by zero, or nests too deeply."""
    try:
        return _Reader(text).complete().value
    except RecursionError:
        raise ConstantError(f"the constant expression '{text[:40]}...' nests too deeply") from None


def literal(text: str) -> Constant:
    """The value of one literal without a sign: of an integer, or a float in decimal or of 64 bits. Raises ConstantError
    for digits beyond 7 of an octal one."""
    if _NOT_OCTAL.fullmatch(text):
        raise ConstantError(f"'{text}' begins with 0, so it is octal, and has digits beyond 7")
    value = Immediate(text).value
    if isinstance(value, float):
        return Constant(value)
    return Constant.of(value, unsigned=text[-1] == "U" or value >= 1 << 63)


def spelled(value: int | float) -> str:
    """A literal of this value. Integers are signed, so that they fit types narrower than 64 bits."""
    if isinstance(value, int):
        return str(value - (1 << 64) if value >= 1 << 63 else value)
    return repr(value) if math.isfinite(value) else f"0d{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_BINARY: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"||": lambda a, b: a != 0 or b != 0},
    {"&&": lambda a, b: a != 0 and b != 0},
    {"|": lambda a, b: a | b},
    {"^": lambda a, b: a ^ b},
    {"&": lambda a, b: a & b},
    {"==": operator.eq, "!=": operator.ne},
    {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge},
    {"<<": lambda a, b: a << (b & 63), ">>": lambda a, b: a >> (b & 63)},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": _truncated, "%": operator.mod},
)
"""The operators of integers, the weakest first."""

_FLOATS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul,
    "/": lambda a, b: a / b if b else math.copysign(math.inf, a) * math.copysign(1, b) if a else math.nan,
}  # fmt: skip
_COMPARISONS = frozenset(("==", "!=", "<", "<=", ">", ">="))
_TRUTHS = _COMPARISONS | {"||", "&&"}


class _Reader:
    """Recursive descent over the tokens of an expression."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.token = self._next()

    def _next(self) -> re.Match[str] | None:
        match = _TOKEN.match(self.text, self.at)
        if match is None and self.text[self.at :].strip():
            raise self._error()
        self.at = match.end() if match else len(self.text)
        return match

    def _error(self) -> ConstantError:
        return ConstantError(f"'{self.text.strip()}' is not a constant expression")

    def _take(self, *marks: str) -> str | None:
        """The next token, if it is one of these marks."""
        mark = self.token["mark"] if self.token else None
        if mark is None or mark not in marks:
            return None
        self.token = self._next()
        return mark

    def complete(self) -> Constant:
        value = self.conditional()
        if self.token is not None:
            raise self._error()
        return value

    def conditional(self) -> Constant:
        condition = self.binary(0)
        if not self._take("?"):
            return condition
        chosen = self.conditional()
        if not self._take(":"):
            raise self._error()
        other = self.conditional()
        return chosen if self._integer(condition).value else other

    def binary(self, level: int) -> Constant:
        if level == len(_BINARY):
            return self.unary()
        left = self.binary(level + 1)
        while mark := self._take(*_BINARY[level]):
            left = self._apply(mark, _BINARY[level][mark], left, self.binary(level + 1))
        return left

    def unary(self) -> Constant:
        if self.token is not None and self.token["cast"]:
            unsigned = self.token["cast"] == "u64"
            self.token = self._next()
            return Constant.of(int(self._integer(self.unary()).value), unsigned=unsigned)
        mark = self._take("-", "+", "!", "~")
        if mark is None:
            return self.primary()
        operand = self.unary()
        if isinstance(operand.value, float) and mark in "+-":
            return Constant(-operand.value if mark == "-" else operand.value)
        value = int(self._integer(operand).value)
        if mark == "!":
            return Constant(int(not value))
        return Constant.of({"-": -value, "+": value, "~": ~value}[mark], unsigned=operand.unsigned or mark == "~")

    def primary(self) -> Constant:
        token = self.token
        if token is None:
            raise self._error()
        if self._take("("):
            value = self.conditional()
            if not self._take(")"):
                raise self._error()
            return value
        if token["number"] is None and token["name"] is None:
            raise self._error()
        self.token = self._next()
        return literal(token["number"]) if token["number"] else Constant(WARP_SIZE[token["name"]])

    def _integer(self, constant: Constant) -> Constant:
        if isinstance(constant.value, float):
            raise ConstantError(f"'{self.text.strip()}' has a float where an integer is expected")
        return constant

    def _apply(self, mark: str, compute: Callable[[int, int], int], a: Constant, b: Constant) -> Constant:
        if isinstance(a.value, float) and isinstance(b.value, float):
            return self._floats(mark, a.value, b.value)
        unsigned = a.unsigned or (b.unsigned and mark not in ("<<", ">>")) or mark == "%"
        left, right = (Constant.of(int(self._integer(c).value), unsigned=unsigned).value for c in (a, b))
        if mark in "/%" and not right:
            raise ConstantError(f"'{self.text.strip()}' divides by zero")
        return Constant.of(int(compute(int(left), int(right))), unsigned=unsigned and mark not in _TRUTHS)

    def _floats(self, mark: str, a: float, b: float) -> Constant:
        if mark in _FLOATS:
            return Constant(_FLOATS[mark](a, b))
        if mark in _COMPARISONS:
            return Constant(int(_BINARY[5 if mark in _BINARY[5] else 6][mark](a, b)))  # pyright: ignore[reportArgumentType]
        raise ConstantError(f"'{self.text.strip()}' has floats on both sides of {mark}")


MASKED_VALUE = re.compile(r"(?P<mask>\d\w*)\s*\((?P<inner>.*)\)", re.ASCII)
"""An initial value that is the byte of an address that a mask leaves: `0xFF00(x)`."""
ADDRESS_VALUE = re.compile(
    rf"(?:generic\s*\(\s*(?P<generic>{IDENTIFIER})\s*\)|(?P<name>{IDENTIFIER}))(?:\s*\+(?P<offset>.+))?", re.ASCII
)
"""One that is an address: `x`, `x+8`, `generic(x)`."""


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
