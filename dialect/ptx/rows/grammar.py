"""Rows as lines: how an instruction is spelled, what operands it takes, and since when.

A spelling is text with groups:
- `{.a,.b}`: one of these qualifiers, or none; `.{a,b}`: one of them;
- `.T{u32,s32}`: one of them, which binds `T` for the operands; `{V=.v2,.v4}`: an optional one that binds `V`.

The order of the groups is the one of the text. ptxas takes the qualifiers in any order, and so does a row: only types,
and state spaces, keep their order among themselves, and words of the opcode's name (`NAME_PARTS`) stay there.

Operands are `name:kind`, separated by commas; a name that begins with `d` is written, others are read;
`?name:kind` may be left out, `H?name:kind` is there where `H` is bound. Kinds:
- a type, or a bound name: a register of that type or, if read, a literal; `2T` is twice as wide;
- `u32(0..15)`: a literal has to be one of these, `u32(0../32)` a multiple of 32, `f32(0<..1)` above 0;
- `T+`: the register may be wider (ISA 9.4.1); `T*`: or the address of a variable; `T%`: or a special register;
  `T&`: as wide as a generic address; `T^`: a register alone;
  `!pred`: may be negated;
- `4*b32`, `V*T`: a vector (`V*T` is a scalar where `V` is absent);
- `T@1`: a part of the register may be chosen, as in `%r1.b0`; `T@2`, `T@4`: parts of its halves, bytes (9.7.18);
- `T_`: the result may be discarded, written `_`; of a vector, elements that are not stored. Of a vector that is
  written, all elements but one always may, with `T^` none;
- `d|p:T`: may be followed by `|p`; `d||p:T` must be; `|p_` may be discarded;
- `[]`: an address in the space that `P` binds, else a generic one; `[D]`, `[global]`: in what `D` binds, in that space,
  in a register of 32 bits too; `[any]`: generic or not; `[unified]`: generic, or a variable of global memory;
  `[mbarrier]`: as `[]`, in shared memory; `[tensor]`: in tensor
  memory; `[tensor^]`: there, in a register of `.b32` alone;
- `imm`, `imm(4/8/16)`, `imm(24..256/8)`: a literal; `label`; `_`: a result that must be discarded;
- `...`: whatever follows; `descriptor`: a register of 64 bits; `flag`: a predicate, 0 or 1;
- `texture(2)`, `surface(2)`: an opaque object with so many coordinates, those of a texture of the type that `C` binds;
  `i2`: the first is an index; 0: the object alone; `fabric(2)`: a logical endpoint and one offset, or two, in it;
- `select(0/2;0/1)`: `{byte-id, thread-id}`, each a register or one of these literals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product, takewhile
from math import prod
from typing import NamedTuple

from ...isa.row import (
    ADDRESS,
    ANYTHING,
    CONSTANT,
    DESCRIPTOR,
    DISCARDED,
    LABEL,
    PREDICATE,
    SCALAR,
    SELECTOR,
    TENSOR,
    TEXTURE,
    VECTOR,
    Bindings,
    Gone,
    Row,
    Slot,
    Specific,
    Version,
)

_PARTS = {
    **dict.fromkeys(("mul", "mad"), "lo hi wide"),
    **dict.fromkeys(("madc", "mul24", "mad24", "dp2a", "clmad"), "lo hi"),
    "shf": "l r",
    "div": "full",
    "cvt": "pack",
    "cvta": "to",
    "brx": "idx",
    "bar": "cta warp sync arrive red",
    "barrier": "cta cluster arrive red wait",
    "fence": "proxy",
    "tcgen05": "alloc dealloc relinquish_alloc_permit ld red spcompress st wait::ld wait::st cp shift mma ws commit "
    "fence::before_thread_sync fence::after_thread_sync",
    "wgmma": "mma_async fence commit_group wait_group",
    "wmma": "load store mma",
    "membar": "proxy",
    "st": "async bulk",
    "red": "async",
    "createpolicy": "fractional range cvt",
    "multimem": "ld_reduce st red async cp reduce bulk",
    "setmaxnreg": "inc dec",
    "tensormap": "replace cp_fenceproxy query alloc_class_large",
    "mbarrier": "init inval arrive arrive_drop test_wait try_wait parity expect_tx complete_tx pending_count "
    "check_layout",
    "clusterlaunchcontrol": "try_cancel query_cancel async",
    "trace": "mark",
    "fabric": "try_get try_put try_red try_pullred try_atom submit wait async",
    "tex": "base level grad",
    "txq": "level",
    "suld": "b",
    "sust": "b p",
    "sured": "b p",
    "applypriority": "async bulk tensor",
    "cp": "async reduce bulk tensor prefetch mbarrier arrive commit_group wait_group wait_all",
}
NAME_PARTS = {root: frozenset(f".{word}" for word in words.split()) for root, words in _PARTS.items()}
"""The words that belong to the name of an opcode, by its first: as far as they stand there before all others."""


class Need(NamedTuple):
    """The first PTX version and target number of a qualifier, or of several together: "sys b128"."""

    words: str
    ptx: Version
    sm: int


Needs = tuple[Need, ...]


_NAMED = {"descriptor": DESCRIPTOR, "_": DISCARDED, "flag": PREDICATE, "label": LABEL, "...": ANYTHING}
_WRAPPED = re.compile(
    r"\[(?P<address>[^\]]*)\]|imm(?:\((?P<constant>.*)\))?|tensor(?P<tensor>(?:\(\d+\))?)"
    r"|(?P<opaque>texture|surface|fabric)\((?P<index>i?)(?P<places>\d)\)|select\((?P<selector>.*)\)"
)


def slot(text: str) -> Slot:
    """Reads `?name:kind`, `H?name:kind` or `d|p:kind`. Raises ValueError if the text is not of that form."""
    match = re.fullmatch(r"(?:(\w*)(\?))?(\w+)(?:(\|\|?)\w+?(_?))?:(\S+)", text.strip())
    if match is None:
        raise ValueError(f"expected an operand such as d:T, got '{text}'")
    condition, optional, name, pair, spare, kind = match.groups(default="")
    common = Slot(name, condition=condition, optional=bool(optional) and not condition, written=name[0] == "d",
                  pair=pair, pair_discards=bool(spare))  # fmt: skip
    if kind in _NAMED:
        return replace(common, kind=_NAMED[kind], type={"flag": "pred", "descriptor": "b64"}.get(kind, "b32"))
    wrapped = _WRAPPED.fullmatch(kind)
    if wrapped is None:
        return _value(common, kind)
    if wrapped["address"] is not None:
        space = wrapped["address"]
        return replace(common, kind=ADDRESS, type=space.rstrip("^"), register=space.endswith("^"))
    if wrapped["tensor"] is not None:
        return replace(common, kind=TENSOR, count=int(wrapped["tensor"].strip("()") or 0))
    if wrapped["opaque"]:
        type = {"texture": "C", "surface": "s32", "fabric": "u64"}[wrapped["opaque"]]
        return replace(common, kind=TEXTURE, type=type, count=int(wrapped["places"]), span=wrapped["index"],
                       wider=type == "C")  # fmt: skip
    if wrapped["selector"] is not None:
        return replace(common, kind=SELECTOR, type="u16", span=wrapped["selector"])
    return replace(common, kind=CONSTANT, span=wrapped["constant"] or "")


def _value(common: Slot, kind: str) -> Slot:
    """An operand from its text, a type and properties: `V*T`, `2T`, `T+`, `u32(0..15)`, `T@1`, `!pred`, `T_`."""
    text, _, parts = kind.partition("@")
    text, _, span = text.removesuffix(")").partition("(")
    discards = text[-1] == "_"
    flags = text.rstrip("_")
    text = flags.rstrip("+*%&^")
    flags = flags[len(text) :]
    count, star, type = text.lstrip("!").rpartition("*")
    doubled = type[0] == "2" and not star
    return replace(
        common,
        kind=VECTOR if star else SCALAR,
        type=type.removeprefix("2") if doubled else type,
        count=int(count) if count.isdecimal() else 1,
        size="" if count.isdecimal() else count,
        span=span,
        discards=discards,
        # Where `.v2` may stand, a single register may too be written in braces, as Triton does.
        braces=count == "V",
        doubled=doubled,
        wider="+" in flags,
        variable="*" in flags,
        special="%" in flags,
        pointer="&" in flags,
        register="^" in flags,
        parts=int(parts or 0),
        own=doubled or (("^" in flags or bool(star)) and type[0] == "b"),
    )


@dataclass(frozen=True)
class PatternRow(Row):
    """A row whose spelling is a pattern and whose operands are text; see the module. `needs` has the qualifiers with
    later versions or targets. `alike` gives rows their sections that have none."""

    pattern: str
    notation: str
    section: str = ""
    ptx: Version = (1, 0)
    sm: int = 0
    meaning: str = ""
    only: Specific = ()
    gone: Gone | None = None
    needs: Needs = ()
    pure: bool = False
    text: Version = (9, 0)

    @cached_property
    def spelling(self) -> str:
        """The pattern that all its spellings have."""
        return self.pattern

    @property
    def root(self) -> str:  # of all rows, so what they cache would take a megabyte
        return self.pattern.partition(".")[0].partition("{")[0]

    @cached_property
    def operands(self) -> tuple[Slot, ...]:
        """The operands as they are noted, with the names that qualifiers bind."""
        return tuple(map(slot, self.notation.split(","))) if self.notation else ()

    @cached_property
    def _signatures(self) -> dict[tuple[str, ...], tuple[tuple[Slot, ...], ...]]:
        """The cache of `signatures_of`."""
        return {}

    def signatures_of(self, bindings: Bindings) -> tuple[tuple[Slot, ...], ...]:
        """The operands of one spelling, with what its qualifiers bind."""
        key = tuple(bindings.values())
        made = self._signatures.get(key)
        if made is None:
            there = (o for o in self.operands if not o.condition or bindings.get(o.condition))
            made = self._signatures[key] = (tuple(o.bound(bindings) for o in there),)
        return made

    def spelled(self, opcode: str) -> PatternRow:
        """The row with the requirements of an opcode's qualifiers."""
        if not self.needs:
            return self
        words = set(opcode.split("."))
        more = [need for need in self.needs if words.issuperset(need.words.split())]
        if not more:
            return self
        ptx, sm = max(self.ptx, *(need.ptx for need in more)), max(self.sm, *(need.sm for need in more))
        return replace(self, ptx=ptx, sm=sm, needs=())

    def match(self, opcode: str) -> Bindings | None:
        """The values of the qualifiers of an opcode, in any order; None if this row does not spell it."""
        words = _words(opcode)
        if not all(word.lstrip(".") in self.spelling for word in words):  # so end most rows of a root
            return None
        allowed, needed = self._vocabulary
        if not needed <= set(words) <= allowed:
            return None
        chosen = self._arranged(words)
        if chosen is None:
            return None
        named = zip(self._groups, chosen, strict=True)
        return {group.name: word.lstrip(".") for group, word in named if group.name}

    def canonical(self, opcode: str) -> str:
        """One of this row's spellings, its qualifiers in the order of the text."""
        return "".join(self._arranged(_words(opcode)) or (opcode,))

    @cached_property
    def _groups(self) -> tuple[Piece, ...]:
        """The parts of the spelling; what is no group word by word."""
        return tuple(_word_by_word(pieces(self.spelling)))

    @cached_property
    def _vocabulary(self) -> tuple[frozenset[str], frozenset[str]]:
        """The words that an opcode of this row may have, and the words that it must have."""
        words = [[frozenset(_words(a)) for a in group.alternatives] for group in self._groups]
        needed = [alternatives[0] for alternatives in words if len(alternatives) == 1]
        allowed = frozenset[str]().union(*(word for alternatives in words for word in alternatives))
        return allowed, frozenset[str]().union(*needed)

    def _arranged(self, words: Sequence[str]) -> list[str] | None:
        """The word that each part of the spelling takes; None if a part finds none, or a word is left."""
        left, chosen = list(words), list[str]()
        for group in self._groups:
            word = _take(group, left)
            if word is None:
                return None
            chosen.append(word)
        return chosen if not left and _name(_words("".join(chosen))) == _name(words) else None

    @property
    def size(self) -> int:
        """How many spellings the row has."""
        return prod(len(piece.alternatives) for piece in pieces(self.spelling))

    def spellings(self) -> list[str]:
        """Every spelling, the plainest first; large for rows of many independent qualifiers."""
        return ["".join(parts) for parts in product(*(piece.alternatives for piece in pieces(self.spelling)))]

    @cached_property
    def words(self) -> frozenset[str]:
        """All words that occur in its spellings."""
        return frozenset(word.lstrip(".") for word in self._vocabulary[0])

    def samples(self, words: frozenset[str] = frozenset()) -> list[str]:
        """Spellings that together contain each alternative of each group, with alternatives of some words, where they
        fit, or else plain ones for the other groups."""
        choices = [piece.alternatives for piece in pieces(self.spelling)]
        plain = [next((a for a in texts if a and words.issuperset(a[1:].split("."))), texts[0]) for texts in choices]
        varied = [
            "".join((*plain[:i], alternative, *plain[i + 1 :]))
            for i, alternatives in enumerate(choices)
            for alternative in alternatives
            if alternative != plain[i]
        ]
        return ["".join(plain), *varied]


class Piece(NamedTuple):
    """A part of a spelling: its alternatives, and the name that the chosen one is bound to."""

    alternatives: tuple[str, ...]
    name: str = ""


_FORMATS = frozenset((".b8x16", ".b6x16_p32", ".b4x16_p64"))
_TYPE = re.compile(r"\.?(pred|[bsuf]\d+(x\d)?|bf16(x2)?|tf32|u?e\dm\d(p\d)?(x\d)?|s2f6x2)")
_SPACES = frozenset((".const", ".global", ".local", ".param", ".shared", ".shared::cta", ".shared::cluster",
                     ".param::entry", ".param::func"))  # fmt: skip


@lru_cache(4096)
def _words(opcode: str) -> tuple[str, ...]:
    """The words of an opcode or of a part of one, each with its dot."""
    return tuple(re.findall(r"\.?[^.]+", opcode))


def _name(words: Sequence[str]) -> str:
    """The opcode without its qualifiers."""
    parts = NAME_PARTS.get(words[0], frozenset())
    return words[0] + "".join(takewhile(parts.__contains__, words[1:]))


def name_of(opcode: str) -> str:
    """An opcode up to its first qualifier: "cp.async.bulk.tensor", "mbarrier.try_wait", "ld"."""
    return _name(_words(opcode))


def is_type(word: str) -> bool:
    """Whether a qualifier names a type."""
    return _TYPE.fullmatch(word) is not None


def _word_by_word(parts: Sequence[Piece]) -> Iterator[Piece]:
    for part in parts:
        if part.name or len(part.alternatives) > 1:
            yield part
        else:
            yield from (Piece((word,)) for text in part.alternatives for word in _words(text))


@lru_cache(4096)
def _ordered(word: str) -> int:
    """The group of words among which the order matters; 0 for words in any position."""
    if word.startswith(".L2::evict_"):
        return 4
    return 1 if _TYPE.fullmatch(word) else 2 if word in _SPACES else 3 if word in _FORMATS else 0


def _take(group: Piece, words: list[str]) -> str | None:
    """The alternative of a group that is among the words, from which it is removed; None if the group needs one and
    there is none."""
    for alternative in group.alternatives:
        wanted = _words(alternative)
        if wanted and all(_is_first_of_kind(word, words) for word in wanted):
            for word in wanted:
                words.remove(word)
            return alternative
    return "" if "" in group.alternatives else None


def _is_first_of_kind(word: str, words: list[str]) -> bool:
    """Whether a word is there, and none of its like before it."""
    kind = _ordered(word)
    return word in words if not kind else next((w for w in words if _ordered(w) == kind), None) == word


_GROUP = re.compile(r"\.(?P<name>[A-Z]\w*)?\{(?P<needed>[^}]*)\}|\{(?:(?P<bind>[A-Z]\w*)=)?(?P<optional>[^}]*)\}")


@lru_cache(1024)
def pieces(spelling: str) -> tuple[Piece, ...]:
    """The parts of a row's spelling in order."""
    parts: list[Piece] = []
    at = 0
    for match in _GROUP.finditer(spelling):
        parts.append(Piece((spelling[at : match.start()],)))
        if match["needed"] is not None:
            alternatives = tuple(f".{word.strip()}" for word in match["needed"].split(","))
            parts.append(Piece(alternatives, match["name"] or ""))
        else:
            words = tuple(word.strip() for word in match["optional"].split(","))
            parts.append(Piece(("", *words), match["bind"] or ""))
        at = match.end()
    parts.append(Piece((spelling[at:],)))
    return tuple(parts)


row = PatternRow
"""A row; see the module's text for the grammar."""


def alike(sections: Mapping[str, str], *rows: PatternRow) -> Iterator[PatternRow]:
    """The rows of instructions that differ in their root alone, each with its section. `rows` have what follows the
    root."""
    for root, section in sections.items():
        yield from (replace(each, pattern=f"{root}{each.pattern}", section=section) for each in rows)


def pure(rows: Iterable[PatternRow]) -> tuple[PatternRow, ...]:
    """The rows, as those of pure instructions."""
    return tuple(replace(each, pure=True) for each in rows)
