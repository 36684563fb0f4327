"""GPU targets: what `.target` may say, from which PTX version, and what an SM of it holds.

Sources: PTX ISA 11.1.2 (`.target`) and its release notes for the version that introduced each name;
CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", for the sizes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

Version = tuple[int, int]

NEWEST: Version = (9, 5)
"""The last PTX version that the tables describe whole: that of the assembler which they are checked against."""

KIB = 1024


@dataclass(frozen=True, slots=True)
class Target:
    """One name `.target` accepts.

    `sm` is the number in the name; `suffix` is "", "a" (architecture-specific) or "f"
    (family-specific). `ptx` is the first PTX version that knows the name. `shared` is the most
    shared memory, in bytes, one CTA can be given (dynamic, opt-in). `sms` is a typical number of
    multiprocessors, used only to choose schedules.
    """

    sm: int
    suffix: str
    ptx: Version
    shared: int
    sms: int

    @property
    def name(self) -> str:
        return f"sm_{self.sm}{self.suffix}"

    @property
    def registers(self) -> int:
        """32-bit registers of one SM; one thread may have at most 255 of them."""
        return 64 * 1024

    @property
    def static_shared(self) -> int:
        """The most static shared memory of one CTA, in bytes. Source: what ptxas 13.5 takes."""
        return self.shared if self.suffix == "a" else 48 * KIB

    def runs_on(self, sm: int) -> bool:
        """Whether a GPU of that number runs code for this target: exactly (sm_90a), in a family (sm_100f), or from an
        sm on."""
        if self.suffix == "a":
            return self.sm == sm
        return self.sm <= sm and (self.suffix != "f" or self.sm // 10 == sm // 10)

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
    # sm_101 is what sm_110 was called before PTX 9.0.
    *_family(101, 227, 20, base=(8, 6), a=(8, 6), f=(8, 8)),
)

NAMED = {row.name: row for row in (*_FURTHER, *_ROWS)}
"""All that `.target` may name: besides `TARGETS`, those that code is checked for and not made for."""

FAMILIES = {100: 100, 103: 100, 107: 100, 101: 110, 110: 110, 120: 120, 121: 120}
"""The family of each target number that has family-specific features, by the number of its first member."""


Specific = tuple[tuple[str, Version], ...]
"""The architecture-specific (`sm_120a`) and family-specific (`sm_120f`) names that have a feature, and from which
PTX version each has it. A family name stands for itself and for the later members of its family."""


def family_member(target: Target, name: str) -> bool:
    """Whether a target has what the family-specific name `name` has: `sm_121a` and `sm_121f` have `sm_120f`'s."""
    first = int(name[3:-1])
    return bool(target.suffix) and target.sm >= first and FAMILIES.get(target.sm) == FAMILIES.get(first)


def specific_version(target: Target, only: Specific) -> Version | None:
    """The first PTX version in which the target has a feature of the names `only`; None if it never has it."""
    versions = [
        version for name, version in only if target.name == name or (name[-1] == "f" and family_member(target, name))
    ]
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


class Availability:
    """Where an instruction is legal, and since when.

    `ptx` is the first PTX version, `sm` the lowest target number; with `only`, nothing but those targets has it. With
    `gone`, (version, sm), the targets from that number on do not have it from that PTX version on.
    """

    __slots__ = ()

    ptx: Version
    sm: int
    only: Specific
    gone: Gone | None = None

    def runs_on(self, target: Target) -> bool:
        """Whether the target has it, in a recent enough PTX version."""
        return target.sm >= self.sm and (not self.only or specific_version(target, self.only) is not None)

    def introduced(self, target: Target) -> Version | None:
        """The PTX version that gave it to the target, whose own first version is not looked at; None if none did."""
        if not self.runs_on(target):
            return None
        return max(self.ptx, specific_version(target, self.only) or self.ptx)

    def removed(self, target: Target) -> Version | None:
        """The first PTX version in which the target no longer has it; None if it always will."""
        return None if self.gone is None or target.sm < self.gone[1] else self.gone[0]

    def requirement(self) -> str:
        """Where it runs, in words: "sm_80 or later"."""
        return describe_specific(self.only, self.ptx) if self.only else f"sm_{self.sm} or later"


class UnknownTargetError(ValueError):
    """A target name that no row has."""


def named(name: str) -> Target:
    """The target that `.target` may call `name`, such as "sm_61".

    Raises:
        UnknownTargetError: naming the known ones.
    """
    return _row(name, NAMED)


def target(name: str) -> Target:
    """The row of the target called `name`, such as "sm_90a".

    Raises:
        UnknownTargetError: naming the known targets.
    """
    return _row(name, TARGETS)


def _row(name: str, known: Mapping[str, Target]) -> Target:
    if (row := known.get(str(name))) is not None:
        return row
    hint = "" if re.fullmatch(r"sm_\d+[af]?", str(name)) else " (a target is written like sm_90a)"
    raise UnknownTargetError(f"unknown target '{name}'{hint}; known targets: {', '.join(known)}")


_LAST_MINOR = {1: 5, 2: 3, 3: 2, 4: 3, 5: 1, 6: 5, 7: 8, 8: 8}


def exists(version: Version) -> bool:
    """Whether there is a PTX version; after `NEWEST`, whether there may be one."""
    major, minor = version
    return 0 <= minor <= _LAST_MINOR.get(major, 9 if 9 <= major < 20 else -1)
