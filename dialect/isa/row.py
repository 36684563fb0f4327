"""Rows: one PTX instruction, with its spelling, operands, section, targets and versions, and what it does; and one
special register."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import NamedTuple

# GPU targets: what `.target` may say, from which PTX version, and what an SM of it holds.
#
# Sources: PTX ISA 11.1.2 (`.target`) and its release notes for the version that introduced each name;
# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", for the sizes.


Version = tuple[int, int]

NEWEST: Version = (9, 5)
"""The last PTX version that the tables describe whole: that of the assembler which they are checked against."""

KIB = 1024


def family_of(sm: int) -> int:
    """Which targets share family-specific features: those of one major number; sm_101 is what sm_110 was called
    before PTX 9.0."""
    return 11 if sm == 101 else sm // 10


@dataclass(frozen=True)
class Target:
    """One name `.target` accepts. `sm` is the number in the name; `suffix` is "", "a" (architecture-specific) or "f"
    (family-specific). `ptx` is the first PTX version that knows the name. `shared` is the most shared memory, in bytes,
    one CTA can be given (dynamic, opt-in). `sms` is a typical number of multiprocessors, used only to choose schedules,
    and so is `timing`: the constants of the model of warpgroups that were fitted to one device (`Fit` in
    `passes/schedule/model.py`), if any were."""

    sm: int
    suffix: str
    ptx: Version
    shared: int
    sms: int
    timing: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        return f"sm_{self.sm}{self.suffix}"

    @property
    def registers(self) -> int:
        """32-bit registers of one SM; one thread may have at most 255 of them."""
        return 64 * 1024

    @property
    def static_shared(self) -> int:
        """The largest static shared memory of a CTA, in bytes. Source: the limit of ptxas 13.5."""
        return self.shared if self.suffix == "a" else 48 * KIB

    def runs_on(self, sm: int) -> bool:
        """Whether a GPU of that number runs code for this target: exactly (sm_90a), in a family (sm_100f), or from an
        sm on."""
        if self.suffix == "a":
            return self.sm == sm
        return self.sm <= sm and (self.suffix != "f" or family_of(self.sm) == family_of(sm))

    def __str__(self) -> str:
        return self.name


def _family(sm: int, shared: int, sms: int, **suffixes: Version) -> tuple[Target, ...]:
    names = {"base": "", "a": "a", "f": "f"}
    return tuple(Target(sm, names[key], ptx, shared * KIB, sms) for key, ptx in suffixes.items())


_ROWS = (
    *_family(70, 96, 80, base=(6, 0)),
    *_family(72, 96, 8, base=(6, 1)),
    *_family(75, 64, 40, base=(6, 3)),
    *_family(80, 163, 108, base=(7, 0)),
    *_family(86, 99, 84, base=(7, 1)),
    *_family(87, 163, 16, base=(7, 4)),
    *_family(88, 163, 16, base=(9, 0)),
    *_family(89, 99, 128, base=(7, 8)),
    *_family(90, 227, 132, base=(7, 8), a=(8, 0)),
    *_family(100, 227, 148, base=(8, 6), a=(8, 6), f=(8, 8)),
    *_family(103, 227, 148, base=(8, 8), a=(8, 8), f=(8, 8)),
    *_family(107, 227, 148, base=(9, 4), a=(9, 4), f=(9, 4)),
    *_family(110, 227, 20, base=(9, 0), a=(9, 0), f=(9, 0)),
    *_family(120, 99, 170, base=(8, 7), a=(8, 7), f=(8, 8)),
    *_family(121, 99, 48, base=(8, 8), a=(8, 8), f=(8, 8)),
)

TARGETS = {row.name: row for row in _ROWS}


def _older(ptx: Version, *numbers: int) -> tuple[Target, ...]:
    return tuple(Target(sm, "", ptx, 48 * KIB, 16) for sm in numbers)


_FURTHER = (
    *_older((1, 0), 10, 11),
    *_older((1, 2), 12, 13),
    *_older((2, 0), 20),
    *_older((2, 1), 21),
    *_older((3, 0), 30),
    *_older((3, 1), 35),
    *_older((4, 0), 32, 50),
    *_older((4, 1), 37, 52),
    *_older((4, 2), 53),
    *_older((5, 0), 60, 61, 62),
    *_family(101, 227, 20, base=(8, 6), a=(8, 6), f=(8, 8)),
)

NAMED = {row.name: row for row in (*_FURTHER, *_ROWS)}
"""All that `.target` may name: besides `TARGETS`, those that code is checked for and not made for."""

Specific = tuple[tuple[str, Version], ...]
"""The architecture-specific (`sm_120a`) and family-specific (`sm_120f`) names that have a feature, and from which
PTX version each has it. A family name stands for itself and for the later members of its family."""

TENSOR_MEMORY: Specific = (
    ("sm_100a", (8, 6)), ("sm_101a", (8, 6)), ("sm_100f", (8, 8)), ("sm_101f", (8, 8)), ("sm_110f", (9, 0)),
)  # fmt: skip
"""Where there is tensor memory."""


def family_member(target: Target, name: str) -> bool:
    """Whether a target has what the family-specific name `name` has: `sm_121a` and `sm_121f` have `sm_120f`'s."""
    first = int(name[3:-1])
    return bool(target.suffix) and target.sm >= first and family_of(target.sm) == family_of(first)


def specific_version(target: Target, only: Specific) -> Version | None:
    """The first PTX version in which the target has a feature of the names `only`; None if it never has it."""
    versions = [v for name, v in only if target.name == name or (name[-1] == "f" and family_member(target, name))]
    return min(versions, default=None)


def describe_specific(only: Specific, since: Version) -> str:
    """The names in words: "sm_120a, or the sm_120f family from PTX 8.8"; versions up to `since` go without saying."""
    words = [
        (f"the {name} family" if name[-1] == "f" else name)
        + ("" if version <= since else f" from PTX {version[0]}.{version[1]}")
        for name, version in only
    ]
    return ", or ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]


Gone = tuple[Version, int]
"""A PTX version and the lowest target number that no longer have a feature."""


class UnknownTargetError(ValueError):
    """A target name that no row has."""


def named(name: str) -> Target:
    """The target with a name that `.target` accepts, such as "sm_61". Raises UnknownTargetError with the known
    names."""
    return _row(name, NAMED)


def target(name: str) -> Target:
    """The row of the target called `name`, such as "sm_90a". Raises UnknownTargetError naming the known targets."""
    return _row(name, TARGETS)


def _row(name: str, targets: Mapping[str, Target]) -> Target:
    if (row := targets.get(str(name))) is not None:
        return row
    hint = "" if re.fullmatch(r"sm_\d+[af]?", str(name)) else " (a target is written like sm_90a)"
    raise UnknownTargetError(f"unknown target '{name}'{hint}; known targets: {', '.join(targets)}")


@lru_cache(256)
def rows_of(names: tuple[str, ...]) -> tuple[Target, ...]:
    """The rows of the targets of a module. A target without a row has only its number and suffix."""
    matches = [(name, re.fullmatch(r"sm_(\d+)([af]?)", name)) for name in names]
    return tuple(NAMED.get(name) or Target(int(m[1]), m[2], (1, 0), 0, 0) for name, m in matches if m)


_LAST_MINOR = {1: 5, 2: 3, 3: 2, 4: 3, 5: 1, 6: 5, 7: 8, 8: 8}


def exists(version: Version) -> bool:
    """Whether there is a PTX version; after `NEWEST`, whether there may be one."""
    major, minor = version
    return 0 <= minor <= _LAST_MINOR.get(major, 9 if 9 <= major < 20 else -1)


Bindings = dict[str, str]
"""What the qualifiers of an opcode bind: types, sizes and spaces by the names that the operands use."""

SCALAR, VECTOR, ADDRESS, TENSOR, TEXTURE = "scalar", "vector", "address", "tensor", "texture"
"""Kinds of operands: one register or literal; registers in braces; `[p]`; `[map, {coordinates}]`, with fields that
replace those of the map before the coordinates; `[texture, sampler, {coordinates}]` or `[surface, {coordinates}]`."""

CONSTANT, SELECTOR, DESCRIPTOR, PREDICATE = "constant", "selector", "descriptor", "predicate"
"""An integer literal; `{byte-id, thread-id}`; a 64-bit register that says where a matrix lies in shared memory; a
predicate, negated or not, or 0 or 1."""

LABEL, DISCARDED, ANYTHING = "label", "discarded", "anything"
"""A label; `_` alone; whatever follows."""

VALUES = (SCALAR, VECTOR, DESCRIPTOR)
"""The kinds whose registers have the operand's type."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One operand of a row, in the order of the text. `type` is the type of a register, or a qualifier name that is
    bound to one. For an address it is the state space, or the name of one; of a place in a tensor, what it replaces of
    the map: the "address", its "shape" too, or nothing. `count` is the number of registers of a vector, or of
    coordinates. `span` are the legal literals, such as "4/8/16" or "24..256/8"."""

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
            replaces = "shape" if bindings.get("SHAPE") else "address" if bindings.get("BASE") else ""
            return replace(self, count=self.count or int(bindings["D"][0]), type=replaces)
        if self.kind == TEXTURE:
            return replace(self, type=bindings.get(self.type, self.type))
        if self.kind not in VALUES or not (self.size or self.doubled or self.type in bindings):
            return self
        type, count = bindings.get(self.type, self.type), self.count
        if self.size:
            count = int(bindings.get(self.size, "").lstrip("v") or 0)
        if self.doubled:
            type = f"{type[0]}{2 * int(type[1:])}"
        own = self.own or self.type in bindings
        return replace(self, kind=self.kind if count else SCALAR, type=type, count=count or 1, size="", own=own)


class Row:
    """One PTX instruction, with its variants, and where it is legal. `ptx` is the first PTX version, and `sm` the
    lowest target number. With `only`, only those targets have it. With `gone`, (version, sm), targets from that number
    on no longer have it from that PTX version on. `meaning` names what the interpreter does for it; the opcode's first
    word where nothing else is said. A `pure` instruction has no effects, and its result follows from what it reads
    alone."""

    section: str
    ptx: Version
    sm: int
    only: Specific
    gone: Gone | None = None
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
        """All operand lists of the row."""
        return (self.operands,)

    def signatures_of(self, bindings: Bindings) -> tuple[tuple[Slot, ...], ...]:
        """Every list of operands of one spelling, with what its qualifiers bind."""
        return self.signatures

    def signature(self, bindings: Bindings, count: int) -> tuple[Slot, ...]:
        """The operands of a spelling with `count` operands. Optional ones have their names last."""
        lists = self.signatures_of(bindings)
        return next((slots for slots in lists if len(slots) == count), lists[0])

    def match(self, opcode: str) -> Bindings | None:
        """The values of the qualifiers of an opcode, in any order; None if this row does not spell it."""
        raise TypeError(f"{type(self).__name__} matches no opcodes")

    def canonical(self, opcode: str) -> str:
        """One of this row's spellings, its qualifiers in the order of the text."""
        return self.spelling

    def spelled(self, opcode: str) -> Row:
        """The row with the requirements of an opcode's qualifiers."""
        return self

    @property
    def root(self) -> str:
        """The opcode up to its first qualifier."""
        return self.spelling.partition(".")[0].partition("{")[0]

    @property
    def reference(self) -> str:
        """Where the ISA has it: "PTX ISA 9.7.1.1", with the version of the text where it is not 9.0."""
        version = "" if self.text == (9, 0) else "{}.{}, ".format(*self.text)
        return f"PTX ISA {version}{self.section}"

    @property
    def means(self) -> str:
        """The key of the instruction's meaning in the interpreter."""
        return self.meaning or self.root

    def runs_on(self, target: Target) -> bool:
        """Whether the target has it, in a recent enough PTX version."""
        return target.sm >= self.sm and (not self.only or specific_version(target, self.only) is not None)

    def since(self, target: Target) -> Version | None:
        """The first PTX version in which the target has it; None if it never has."""
        return max(self.ptx, specific_version(target, self.only) or self.ptx) if self.runs_on(target) else None

    def removed(self, target: Target) -> Version | None:
        """The first PTX version in which the target no longer has it; None if it always will."""
        return None if self.gone is None or target.sm < self.gone[1] else self.gone[0]

    def requirement(self) -> str:
        """Where it runs, in words: "sm_80 or later"."""
        return describe_specific(self.only, self.ptx) if self.only else f"sm_{self.sm} or later"

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
        """Whether its section of the ISA is one of these, or a part of one."""
        return any(f"{self.section}.".startswith(f"{section}.") for section in sections)


def choice(values: Sequence[int]) -> str:
    """Literals as a span: "0/2"."""
    return "/".join(map(str, values))


# Names that no declaration introduces: special registers and constants. Source: PTX ISA 4.5.3 and chapter 10.


class Special(NamedTuple):
    """A special register: `ptx` and `sm` are the first version and target number that have it. Versions below 3.1 are
    the text's, the others what ptxas 13.0.88 takes."""

    ptx: Version = (1, 0)
    sm: int = 0
    widths: tuple[int, ...] = (32,)
    directive: str = ""
    """The bits that may be read of it, and what a kernel that reads it has."""

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
    "gridid": Special(widths=(16, 32, 64)),
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
    "perctamemoryoffset": Special((9, 4), 0, (64,), ".minperctamemory"),
    "perctamemorysize": Special((9, 4), directive=".minperctamemory"),
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

ALLOTTED = {name: special.directive for name, special in SPECIAL_REGISTERS.items() if special.directive}
"""Those that kernels have by a directive."""

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
