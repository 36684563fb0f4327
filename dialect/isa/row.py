"""Rows: one PTX instruction, with its spelling, operands, section, targets and versions, and what it does; and one
special register."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple

from .targets import Availability, Target, Version

Bindings = dict[str, str]
"""What the qualifiers of an opcode bind: types, sizes and spaces by the names that the operands use."""

SCALAR, VECTOR, ADDRESS, TENSOR = "scalar", "vector", "address", "tensor"
"""Kinds of operands: one register or literal; registers in braces; `[p]`; `[map, {coordinates}]`."""

CONSTANT, SELECTOR, DESCRIPTOR, PREDICATE = "constant", "selector", "descriptor", "predicate"
"""An integer literal; `{byte-id, thread-id}`; a 64-bit register that says where a matrix lies in shared memory; a
predicate, negated or not, or 0 or 1."""

LABEL, DISCARDED, ANYTHING = "label", "discarded", "anything"
"""A label; `_` alone; whatever follows."""

VALUES = (SCALAR, VECTOR, DESCRIPTOR)
"""The kinds whose registers have the operand's type."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One operand of a row, in the order of the text.

    `type` is that of a register, or the name that a qualifier binds to one; of an address the state space, or the name
    of one. `count` is the number of registers of a vector, or of coordinates. `span` are the literals that may stand,
    such as "4/8/16" or "24..256/8".
    """

    name: str
    kind: str = SCALAR
    type: str = "b32"
    count: int = 1
    optional: bool = False
    span: str = ""
    size: str = ""
    """The name that a qualifier binds to the count."""
    holds: str = ""
    """The type that registers are checked against, where it is another: none but integers hold integers."""
    condition: str = ""
    """The binding without which there is no such operand."""
    written: bool = False
    pair: str = ""
    """`|` where a predicate may follow, `||` where it must."""
    pair_discards: bool = False
    discards: bool = False
    """Whether the result may be discarded."""
    accumulates: bool = False
    """Whether the registers are read too, so that none can be discarded."""
    braces: bool = False
    """Whether one register may stand in braces."""
    doubled: bool = False
    wider: bool = False
    variable: bool = False
    special: bool = False
    pointer: bool = False
    register: bool = False
    parts: int = 0
    own: bool = False
    """Whether the opcode names the type."""

    @property
    def is_address(self) -> bool:
        """Whether it is `[a]`, or a place in a tensor."""
        return self.kind in (ADDRESS, TENSOR)

    @property
    def values(self) -> tuple[int, ...]:
        """What a constant may be, where the row lists it."""
        listed = self.kind == CONSTANT and self.span and ".." not in self.span
        return tuple(map(int, self.span.split("/"))) if listed else ()

    def bound(self, bindings: Bindings) -> Slot:
        """The operand with what the qualifiers of an opcode bind."""
        if self.kind == TENSOR:
            return self if self.count else replace(self, count=int(bindings["D"][0]))
        if self.kind not in VALUES or not (self.size or self.doubled or self.type in bindings):
            return self
        type, count = bindings.get(self.type, self.type), self.count
        if self.size:
            count = int(bindings.get(self.size, "").lstrip("v") or 0)
        if self.doubled:
            type = f"{type[0]}{2 * int(type[1:])}"
        own = self.own or self.type in bindings
        return replace(self, kind=self.kind if count else SCALAR, type=type, count=count or 1, size="", own=own)


class Row(Availability):
    """One PTX instruction, with its variants, and where it is legal.

    `meaning` names what the interpreter does for it; the opcode's first word where nothing else is said. A `pure`
    instruction has no effects, and its result follows from what it reads alone.
    """

    section: str
    meaning: str = ""
    pure: bool = False
    text: Version = (9, 0)
    """The version of the ISA whose sections `section` counts: 9.3 and 9.4 number them anew."""

    @cached_property
    def spelling(self) -> str:
        """The opcode with all its qualifiers, or the pattern of several."""
        raise TypeError(f"{type(self).__name__} has no spelling of its own")

    @cached_property
    def operands(self) -> tuple[Slot, ...]:
        """The operands in the order of the text."""
        raise TypeError(f"{type(self).__name__} has no operands of its own")

    @cached_property
    def signatures(self) -> tuple[tuple[Slot, ...], ...]:
        """Every list of operands that the row takes."""
        return (self.operands,)

    def signatures_of(self, bindings: Bindings) -> tuple[tuple[Slot, ...], ...]:
        """Every list of operands of one spelling, with what its qualifiers bind."""
        return self.signatures

    def signature(self, bindings: Bindings, count: int) -> tuple[Slot, ...]:
        """The operands of one spelling where there are so many; the names of those that may be left out stand last."""
        lists = self.signatures_of(bindings)
        return next((slots for slots in lists if len(slots) == count), lists[0])

    def match(self, opcode: str) -> Bindings | None:
        """What the qualifiers of an opcode bind, if it is one of this row's spellings, in whatever order."""
        raise TypeError(f"{type(self).__name__} matches no opcodes")

    def canonical(self, opcode: str) -> str:
        """One of this row's spellings, its qualifiers in the order of the text."""
        return self.spelling

    def spelled(self, opcode: str) -> Row:
        """The row with what the qualifiers of one of its spellings need."""
        return self

    @cached_property
    def root(self) -> str:
        """The opcode up to its first qualifier."""
        return re.split(r"[.{]", self.spelling, maxsplit=1)[0]

    @property
    def reference(self) -> str:
        """Where the ISA has it: "PTX ISA 9.7.1.1", with the version of the text where it is not 9.0."""
        return (
            f"PTX ISA {self.section}" if self.text == (9, 0) else "PTX ISA {}.{}, {}".format(*self.text, self.section)
        )

    @property
    def means(self) -> str:
        """The name under which the interpreter finds what the row does."""
        return self.meaning or self.root

    def since(self, target: Target) -> Version | None:
        """The first PTX version in which the target has it; None if it never has."""
        return self.introduced(target)

    def unavailable(self, target: Target, version: Version) -> str | None:
        """Why the target does not have it in this PTX version, such as "needs PTX 7.0"; None if it has."""
        since = self.since(target)
        if since is None:
            return f"needs {self.requirement()}"
        end = self.removed(target)
        if end is not None and version >= end:
            return "needs a version before PTX {}.{}".format(*end)
        return "needs PTX {}.{}".format(*since) if version < since else None

    def of_section(self, *sections: str) -> bool:
        """Whether one of these sections of the ISA, or a part of one, is about it."""
        return any(f"{self.section}.".startswith(f"{section}.") for section in sections)


def choice(values: Sequence[int]) -> str:
    """Literals as a span: "0/2"."""
    return "/".join(map(str, values))


# Names that no declaration introduces: special registers and constants. Source: PTX ISA 4.5.3 and chapter 10.


class Special(NamedTuple):
    """A special register: `ptx` and `sm` are the first version and target number that have it.

    Versions below 3.1 are the text's, the others what ptxas 13.0.88 takes.
    """

    ptx: Version = (1, 0)
    sm: int = 0
    widths: tuple[int, ...] = (32,)
    """The bits that may be read of it."""

    def misfit(self, bits: int, *, wider: bool = False) -> str | None:
        """Why a type of so many bits does not read it; `wider` where a part of it will do. None if it does."""
        if bits in self.widths or (wider and bits < max(self.widths)):
            return None
        return f"the special register has {' or '.join(map(str, self.widths))} bits, the type {bits}"

    def unavailable(self, target: Target, version: Version) -> str | None:
        """Why the target does not have it in this PTX version, such as "needs sm_90 or later"; None if it has."""
        if target.sm < self.sm:
            return f"needs sm_{self.sm} or later"
        return "needs PTX {}.{} or later".format(*self.ptx) if version < self.ptx else None


_CLUSTER = Special((7, 8), 90)
_RESERVED = Special((7, 6), 80)

_VECTORS = {  # 10.1 to 10.13, with .x, .y, .z
    "tid ntid ctaid nctaid": Special(widths=(32, 16)),
    "clusterid nclusterid cluster_ctaid cluster_nctaid": _CLUSTER,
}
_SCALARS = {
    "smid clock laneid warpid nwarpid nsmid": Special(),
    "gridid": Special(widths=(32, 64)),
    "is_explicit_cluster": Special((7, 8), 90, (1,)),
    "cluster_ctarank cluster_nctarank": _CLUSTER,
    "lanemask_eq lanemask_le lanemask_lt lanemask_ge lanemask_gt": Special((2, 0), 20),
    "clock64": Special((2, 0), 20, (64,)),
    "clock_hi": Special((5, 0), 20),
    "globaltimer_lo globaltimer_hi": Special((3, 1), 30),
    "globaltimer": Special((3, 1), 30, (64,)),
    "reserved_smem_offset_begin reserved_smem_offset_end reserved_smem_offset_cap": _RESERVED,
    "reserved_smem_offset_0 reserved_smem_offset_1": _RESERVED,
    "total_smem_size dynamic_smem_size": Special((4, 1), 20),
    "aggr_smem_size": Special((8, 1), 90),
    "current_graph_exec": Special((8, 0), 50, (64,)),
    "perctamemoryoffset": Special((9, 4), 0, (64,)),
    "perctamemorysize": Special((9, 4)),
    "locality_domain_id locality_domain_supplemental_sm": Special((9, 5), 100),
    " ".join(f"envreg{i}" for i in range(32)): Special((2, 1)),
    " ".join(f"pm{i}" for i in range(8)): Special((1, 3)),
    " ".join(f"pm{i}_64" for i in range(8)): Special((4, 0), 50, (64,)),
}

SPECIAL_REGISTERS = {
    f"%{name}{part}": special
    for groups, parts in ((_VECTORS, ("", ".x", ".y", ".z", ".w")), (_SCALARS, ("",)))
    for group, special in groups.items()
    for name in group.split()
    for part in parts
}
"""Every special register, and each part of those that are vectors."""

VARYING = frozenset(
    f"%{name}" for name in (*["clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi"],
                            *["smid", "warpid", "locality_domain_id", "locality_domain_supplemental_sm"],
                            *(f"pm{i}{end}" for i in range(8) for end in ("", "_64")))
)  # fmt: skip
"""Those that a thread may read twice and get two values."""

VECTORS = frozenset(f"%{name}" for group in _VECTORS for name in group.split())
"""Special registers that are vectors of four."""

CONSTANTS = frozenset(("_", "WARP_SZ"))
"""Symbols that stand for no declaration: a discarded result, the number of lanes."""


@cache
def unavailable(targets: tuple[Target, ...], version: Version) -> dict[str, str]:
    """The special registers that a module for these targets cannot have, and why."""
    return {
        name: why
        for name, special in SPECIAL_REGISTERS.items()
        for target in targets
        if (why := special.unavailable(target, version)) is not None
    }
