"""Which addresses and literals fit an operand of an instruction. Source: PTX ISA 6.4.1, 9.1 to 9.4."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeGuard

from ..isa.row import Bindings, Slot
from .text.syntax import PACKED_BITS, REGISTER_BITS, WARP_SIZE, Immediate, Operand, Register, Symbol, bits_of

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
