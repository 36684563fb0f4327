"""Where addresses may point, and what may hold them. Source: PTX ISA 6.4.1; of the addresses of variables 9.7.9.3.

Where the text leaves it open, a rule is what ptxas 13.0 takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .rows.grammar import Bindings
from .text.syntax import Immediate, Register, Symbol
from .types import REGISTER_BITS, bits_of

SpaceOf = Callable[[str], str | None]
"""The state space of a variable; "function" or "label" for what is one; None where that is not known."""


def nowhere(_: str) -> None:
    """Of no variable is it known where it lies."""


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
    """What is wrong with an address of a slot of kind `[kind]`: its base, where that lies, and the width of a register.

    `declared` is the type of a register; `{}` in the message stands for what the base is.
    """
    bound = bindings.get("P", "") if kind in ("", "mbarrier") else bindings.get(kind, "") if len(kind) == 1 else kind
    space = bound.partition("::")[0]
    if isinstance(base, Immediate) or base == Symbol("WARP_SZ"):
        return None if space == "local" else "a literal address is one of .local memory"
    if isinstance(base, Symbol):
        return _check_space(base.name, "shared" if kind == "mbarrier" else space, rules)
    if declared is None or declared[0] not in "bus" or REGISTER_BITS[declared] not in (32, 64):
        return "expected an address in a 32 or 64-bit integer register, got {}"
    if kind in ("", "mbarrier") and space in ("", "global") and REGISTER_BITS[declared] < rules.address_size:
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
    """Whether the address of a symbol can be read: its space is what `P` binds, and it has the width of the type."""
    where, space = rules.space_of(symbol.name), bindings.get("P", "").partition("::")[0]
    if where is None:
        return None
    if where == "label" or (where == "function" and symbol.offset):
        return f"'{symbol.name}' is a {where}, it has no address {'to add to' if symbol.offset else 'here'}"
    if space:
        return _check_space(symbol.name, space, rules)
    if where == "global" and bits_of(bindings.get("T", "b64")) < rules.address_size:
        return f"the address of '{symbol.name}' takes {rules.address_size} bits"
    return None
