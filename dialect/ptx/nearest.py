"""The spellings most like one that does not exist, found without making all that there are.

Each row proposes the spellings that have most of the words asked for; the proposals are compared word by word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import zip_longest

from .rows.grammar import Row, pieces

ROWS_LOOKED_AT = 8
"""Of one root, those that have most of the words."""
VARIANTS = 2
"""Of a qualifier that must stand and that none of the words is, so many are proposed."""


def nearest(opcode: str, rows: Sequence[Row], count: int) -> tuple[str, ...]:
    """Spellings of the rows, best first."""
    words = opcode.split(".")
    wanted = frozenset(words)
    likely = sorted(rows, key=lambda row: -len(wanted & _words(row.spelling)))[:ROWS_LOOKED_AT]
    found = dict.fromkeys(spelling for row in likely for spelling in _proposed(row.spelling, words))
    return tuple(sorted(found, key=lambda spelling: _distance(spelling.split("."), words))[:count])


@lru_cache(4096)
def nearest_roots(root: str, roots: frozenset[str], count: int) -> tuple[str, ...]:
    """The first words of opcodes most like one that is none."""
    import difflib  # for messages alone

    return tuple(difflib.get_close_matches(root, sorted(roots), count))


@cache
def _words(spelling: str) -> frozenset[str]:
    """All words that stand in some spelling of a row."""
    return frozenset(word for piece in pieces(spelling) for text in piece.alternatives for word in text.split("."))


def _proposed(spelling: str, words: Sequence[str]) -> Iterator[str]:
    """A row's spelling with the words asked for wherever one fits, and what else may stand where none does."""
    left = list(words)
    chosen: list[str] = []
    open_places: list[tuple[int, tuple[str, ...]]] = []
    for place, piece in enumerate(pieces(spelling)):
        text = _fitting(piece.alternatives, left)
        if text is None:
            ranked = _ranked(piece.alternatives, tuple(left))
            text = "" if "" in piece.alternatives else ranked[0]
            open_places.append((place, ranked))
        for word in filter(None, text.split(".")):
            if word in left:
                left.remove(word)
        chosen.append(text)
    yield "".join(chosen)
    for place, ranked in open_places:
        for text in ranked[:VARIANTS]:
            yield "".join((*chosen[:place], text, *chosen[place + 1 :]))


def _fitting(alternatives: Sequence[str], left: Sequence[str]) -> str | None:
    """The first alternative all of whose words are asked for."""
    if len(alternatives) == 1:
        return alternatives[0]
    return next((text for text in alternatives if text and all(w in left for w in text[1:].split("."))), None)


@lru_cache(16384)
def _ranked(alternatives: tuple[str, ...], left: tuple[str, ...]) -> tuple[str, ...]:
    """Alternatives by how much they are like one of the words left."""
    texts = [text for text in alternatives if text]
    return tuple(sorted(texts, key=lambda text: -max((_alike(text[1:], word) for word in left), default=0.0)))


@lru_cache(65536)
def _alike(a: str, b: str) -> float:
    """How much two words are alike, up to 1: the characters they begin and end with in common."""
    if a == b:
        return 1.0
    longest = min(len(a), len(b))
    start = next((i for i in range(longest) if a[i] != b[i]), longest)
    end = next((i for i in range(longest - start) if a[-1 - i] != b[-1 - i]), longest - start)
    return 2 * (start + end) / (len(a) + len(b)) * 0.9


def _distance(words: Sequence[str], wanted: Sequence[str]) -> tuple[float, int]:
    """How many words differ, those that are alike counting less; then how many stand elsewhere."""
    missing = _without(wanted, words)
    extra = _without(words, wanted)
    unlike = sum(1 - 0.5 * _alike(a, b) for a, b in zip_longest(missing, extra, fillvalue=""))
    return unlike, sum(a != b for a, b in zip(words, wanted, strict=False))


def _without(words: Iterable[str], others: Iterable[str]) -> list[str]:
    left = list(others)
    kept: list[str] = []
    for word in words:
        if word in left:
            left.remove(word)
        else:
            kept.append(word)
    return kept
