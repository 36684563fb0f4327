"""Rows of the matrix instructions, made of those of `dialect.isa`. Source: PTX ISA 9.7.14, 9.7.15."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from heapq import nsmallest
from itertools import zip_longest

from ...isa import families
from ...isa.form import (
    ADDRESS,
    CONSTANT,
    DESCRIPTOR,
    PREDICATE,
    SCALAR,
    SELECTOR,
    BlockScale,
    Form,
    FormOperand,
    ProductForm,
)
from ...isa.mma import Mma
from ...isa.targets import Target, Version
from ...isa.types import ELEMENT_TYPES
from ...isa.wgmma import SM_90A
from ..text.syntax import Operand, Symbol, Vector
from .grammar import Bindings, Row, Slot, name_of, row

# The warp-level matrix instructions, from the rows of `dialect.isa`: found by opcode, one family at a time.
#
# A row of the ISA says its operands; here they become slots, and the checks that go beyond kinds and types: selectors,
# metadata.

ROOTS = frozenset(name.partition(".")[0] for name in families.FAMILIES)
"""The first words of these instructions."""


@dataclass(frozen=True)
class MatrixRow(Row):
    """One form of a matrix instruction; its qualifiers may stand in any order that `families.find` takes.

    `given` are its operands, one of the lists that the form takes.
    """

    form: Form = field(kw_only=True)
    given: tuple[FormOperand, ...] = field(kw_only=True)

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        written = self.given[0].kind != ADDRESS
        return tuple(_slot(self.form, o, written=written and i == 0) for i, o in enumerate(self.given))

    def match(self, opcode: str) -> Bindings | None:
        """Nothing is bound: each form has a row of its own."""
        return {} if families.find(opcode) is self.form else None

    def canonical(self, opcode: str) -> str:
        """The spelling of the text."""
        return self.form.spelling

    def unavailable(self, target: Target, version: Version) -> str | None:
        """Why the target does not have it in this PTX version, in the words of the row; None if it has."""
        return self.form.available(target, version)

    def since(self, target: Target) -> Version | None:
        """The first PTX version in which the target has it; None if it never has."""
        return self.form.since(target)

    def removed(self, target: Target) -> Version | None:
        """The first PTX version in which the target no longer has it; None if it always will."""
        return self.form.removed(target)

    @cached_property
    def metadata(self) -> int | None:
        """Which operand is the metadata of a sparse product, if it is one."""
        return next((i for i, o in enumerate(self.given) if o.name == "e"), None)

    def problem(self, operands: Sequence[Operand]) -> str | None:
        """What is wrong with operands that fit the slots: a discarded accumulator."""
        if self.root == "wgmma" and isinstance(operands[0], Vector) and Symbol("_") in operands[0].items:
            return "operand d: a warpgroup's accumulator is read too, none of it can be discarded"
        return None


def sparse(form: Form) -> ProductForm:
    """A form that takes metadata, as what it is.

    Raises:
        TypeError: if it takes none.
    """
    if isinstance(form, ProductForm) and form.sparse:
        return form
    raise TypeError(f"{form.spelling} takes no metadata")


def metadata_problem(form: ProductForm, word: int) -> str | None:
    """Why a constant word is no metadata of an instruction: the first nibble without a meaning, and the legal ones."""
    legal = form.codes
    for place in range(8):
        code = word >> 4 * place & 0xF
        if code not in legal:
            listed = ", ".join(f"0b{c:04b}" for c in legal)
            return f"nibble {place} of the metadata 0x{word & 0xFFFFFFFF:08X} is 0b{code:04b}; expected one of {listed}"
    return None


def _choice(values: Sequence[int]) -> str:
    return "/".join(map(str, values))


def _space(form: Form) -> str:
    """The state space that an opcode names for its address; "any" of a generic one."""
    return next((word for word in form.spelling.split(".") if word.startswith(("shared", "global"))), "any")


def _selector(form: Form, operand: FormOperand) -> str:
    scale = form.scale if isinstance(form, ProductForm) else None
    if not isinstance(scale, BlockScale):
        raise ValueError(f"{form.spelling} has a selector of scales and no scales")
    return f"select({_choice(scale.byte_ids)};{_choice(scale.thread_ids(operand.name[-1]))})"


_KINDS: dict[str, Callable[[Form, FormOperand], str]] = {
    ADDRESS: lambda form, operand: f"[{_space(form)}]",
    CONSTANT: lambda form, operand: f"imm({_choice(operand.values or sparse(form).selectors)})",
    SELECTOR: _selector,
    SCALAR: lambda form, operand: operand.type if operand.optional else f"{operand.type}^",
    DESCRIPTOR: lambda form, operand: "b64",
    PREDICATE: lambda form, operand: "flag",
}


def _held(form: Form, operand: FormOperand) -> str:
    """The type that the registers of a fragment are checked against: of integers and tf32 no others hold them."""
    if operand.type != "b32" or operand.name not in ("a", "b") or not isinstance(form, Mma):
        return operand.type
    element = form.element(operand.name)
    return "tf32" if element.name == "tf32" else operand.type if element.is_float else "u32"


def _slot(form: Form, operand: FormOperand, *, written: bool) -> Slot:
    kind = _KINDS[operand.kind](form, operand) if operand.kind in _KINDS else f"{operand.count}*{_held(form, operand)}"
    # The words of metadata and scales, each one register, may stand in braces: published kernels write them so.
    braces = operand.kind == SCALAR and isinstance(form, Mma)
    return Slot(operand.name, kind, operand.optional, destination=written, braces=braces)


_ROWS: dict[str, tuple[MatrixRow, ...]] = {}


def find(opcode: str) -> tuple[MatrixRow, ...]:
    """The rows that an opcode spells, its qualifiers in any order: one for each list of operands."""
    form = families.find(opcode)
    if form is None:
        return ()
    rows = _ROWS.get(form.spelling)
    if rows is None:
        rows = _ROWS[form.spelling] = tuple(
            MatrixRow(
                form.spelling, "", form.section, form.ptx, form.sm, name_of(form.spelling), form=form, given=given
            )
            for given in form.signatures
        )
    return rows


_SHAPE = re.compile(r"m(\d+)n(\d+)(?:k(\d+))?")
_LAYOUTS = ("row", "col")


@dataclass(frozen=True, slots=True)
class _Words:
    """The parts of an opcode: what its place gives a meaning, and what stands anywhere."""

    types: tuple[str, ...]
    layouts: tuple[str, ...]
    others: frozenset[str]
    size: tuple[int, ...]

    @staticmethod
    def of(opcode: str) -> _Words:
        words = opcode.split(".")
        types = tuple(w for w in words if w in ELEMENT_TYPES)
        layouts = tuple(w for w in words if w in _LAYOUTS)
        shape = next(filter(None, map(_SHAPE.fullmatch, words)), None)
        size = tuple(int(n or 1).bit_length() for n in shape.groups()) if shape else ()
        others = frozenset(words) - {*types, *layouts, shape.group() if shape else ""}
        return _Words(types, layouts, others, size)

    def distance(self, other: _Words) -> tuple[int, int]:
        """How many words differ, and how much the shapes do."""
        ordered = ((self.types, other.types), (self.layouts, other.layouts))
        differing = sum(x != y for ours, theirs in ordered for x, y in zip_longest(ours, theirs))
        far = sum(abs(x - y) for x, y in zip_longest(self.size, other.size, fillvalue=0))
        return differing + len(self.others ^ other.others) + bool(far), far


def nearest(opcode: str, count: int = 3) -> tuple[str, ...]:
    """The spellings most like an opcode of these families that does not exist: best first."""
    name, root = families.family(opcode), opcode.partition(".")[0]
    names = [name] if name else [n for n in families.FAMILIES if n.partition(".")[0] == root]
    wanted, mask = _Words.of(opcode), _mask(opcode)
    masks = {spelling: other for n in names for spelling, other in _masks(n).items()}
    likely = nsmallest(LIKELY, masks, key=lambda spelling: (masks[spelling] ^ mask).bit_count())
    return tuple(sorted(likely, key=lambda s: wanted.distance(_words(s)))[:count])


LIKELY = 24
"""The spellings with most words in common that are compared in full."""

_BITS: dict[str, int] = {}


def _mask(spelling: str) -> int:
    """The words of a spelling as bits."""
    mask = 0
    for word in spelling.split("."):
        mask |= 1 << _BITS.setdefault(word, len(_BITS))
    return mask


@cache
def _masks(family: str) -> dict[str, int]:
    """All spellings of a family, as bits."""
    return {row.spelling: _mask(row.spelling) for row in families.FAMILIES[family]()}


@cache
def _words(spelling: str) -> _Words:
    return _Words.of(spelling)


# What orders the products of warpgroups, whose rows are in `dialect.isa.wgmma`. Source: PTX ISA 9.7.15.7.


def _row(name: str, operands: str, section: str) -> Row:
    return row(f"{name}.sync.aligned", operands, section, ptx=(8, 0), sm=90, meaning=name, only=SM_90A)


WARPGROUP_ROWS: tuple[Row, ...] = (
    _row("wgmma.fence", "", "9.7.15.7.1"),
    _row("wgmma.commit_group", "", "9.7.15.7.2"),
    _row("wgmma.wait_group", "n:imm(0..9223372036854775807)", "9.7.15.7.3"),
)
