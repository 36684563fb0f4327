"""The rows that an opcode spells, and the nearest spellings. Source: PTX ISA 9.7."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import zip_longest

from ..isa import families
from ..isa.row import Bindings, Row
from ..isa.targets import Target
from .rows import arithmetic, conversions, copies, data, synchronisation
from .rows.grammar import PatternRow, pieces

# The spellings most like one that does not exist, found without making all that there are.
#
# Each row proposes the spellings that have most of the words asked for; the proposals are compared word by word.

ROWS_LOOKED_AT = 8
"""Of one root, those that have most of the words."""
VARIANTS = 2
"""Of a qualifier that must stand and that none of the words is, so many are proposed."""


def nearest_spellings(opcode: str, rows: Sequence[PatternRow], count: int) -> tuple[str, ...]:
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


# All instruction rows, and finding the ones an opcode spells.

ROWS: tuple[PatternRow, ...] = (
    *arithmetic.INTEGER_ROWS,
    *arithmetic.FLOATING_ROWS,
    *arithmetic.COMPARISON_ROWS,
    *data.MOVE_ROWS,
    *conversions.CONVERSION_ROWS,
    *data.MEMORY_ROWS,
    *copies.ASYNCHRONOUS_ROWS,
    *synchronisation.CONTROL_ROWS,
    *synchronisation.BARRIER_ROWS,
    *synchronisation.ATOMIC_ROWS,
    *synchronisation.MBARRIER_ROWS,
    *copies.MULTIMEM_ROWS,
    *copies.TENSOR_ROWS,
    *synchronisation.WARPGROUP_ROWS,
    *arithmetic.VIDEO_ROWS,
)
"""All but those of the matrix instructions, which `families.find` makes when they are asked for."""


@cache
def roots() -> frozenset[str]:
    """The first words of all opcodes that there are rows for."""
    return families.ROOTS | frozenset(_by_root())


@cache
def _by_root() -> dict[str, list[PatternRow]]:
    table: dict[str, list[PatternRow]] = {}
    for row in ROWS:
        table.setdefault(row.root, []).append(row)
    return table


@lru_cache(65536)
def find(opcode: str) -> tuple[tuple[Row, Bindings], ...]:
    """The rows one of whose spellings is `opcode`, each with what the qualifiers bind."""
    if (form := families.find(opcode)) is not None:
        return ((form, {}),)
    rows = _by_root().get(opcode.partition(".")[0], ())
    return tuple((row.spelled(opcode), bindings) for row in rows if (bindings := row.match(opcode)) is not None)


def canonical(opcode: str) -> str:
    """The opcode with its qualifiers in the order of the text; as it is where no row spells it."""
    found = find(opcode)
    return found[0][0].canonical(opcode) if found else opcode


@lru_cache(4096)
def nearest(opcode: str, count: int = 3) -> tuple[str, ...]:
    """The spellings most like one that does not exist, of the same opcode root where there is one: best first."""
    root = opcode.partition(".")[0]
    if root in families.ROOTS:
        return families.nearest(opcode, count)
    if root not in roots():
        return nearest_roots(root, roots(), count)
    return nearest_spellings(opcode, _by_root()[root], count)


# Instructions that PTX has and that there are no rows for: they are counted, and the words of their opcodes checked.
#
# Source: PTX ISA 9.7.10, 9.7.11, 9.7.16.

_GEOMETRIES = "1d 2d 3d a1d a2d cube acube 2dms a2dms"
_SIZES = "width height depth channel_data_type channel_order array_size"
_SURFACES = "b p 1d 2d 3d a1d a2d v2 v4 b8 b16 b32 b64 trap clamp zero"

_WORDS = {
    # Texture Instructions
    "tex": f"base level grad {_GEOMETRIES} v2 v4 u32 s32 f16 f16x2 f32",
    "tld4": "r g b a 2d a2d cube acube v4 u32 s32 f32",
    "txq": f"level {_SIZES} normalized_coords num_mipmap_levels num_samples force_unnormalized_coords filter_mode "
    "addr_mode_0 addr_mode_1 addr_mode_2 b32",
    "istypep": "texref samplerref surfref",
    # Surface Instructions
    "suld": f"{_SURFACES} ca cg cs cv",
    "sust": f"{_SURFACES} wb cg cs wt",
    "sured": f"{_SURFACES} add min max and or u32 s32 u64 s64",
    "suq": f"{_SIZES} memory_layout b32",
    # TensorCore 5th Generation Family Instructions
    "tcgen05": "alloc dealloc relinquish_alloc_permit ld st wait::ld wait::st cp shift mma sp ws commit "
    "fence::before_thread_sync fence::after_thread_sync cta_group::1 cta_group::2 sync aligned down "
    "shared::cta shared::cluster mbarrier::arrive::one multicast::cluster 16x64b 16x128b 16x256b 32x32b "
    "16x32bx2 x1 x2 x4 x8  x16 x32 x64 x128 pack::16b unpack::16b red min max abs NaN b32 b64 f32 u32 s32 "
    "128x256b 4x256b 128x128b 64x128b 32x128b  warpx2::02_13 warpx2::01_23 warpx4 b8x16 b6x16_p32 b4x16_p64 "
    "kind::f16 kind::tf32 kind::f8f6f4 kind::i8 kind::mxf8f6f4  kind::mxf4 kind::mxf4nvf4 block_scale "
    "scale_vec::1X scale_vec::2X scale_vec::4X block16 block32 ashift  collector::a::fill collector::a::use "
    "collector::a::lastuse collector::a::discard "
    + " ".join(f"collector::b{n}::{use}" for n in range(4) for use in ("fill", "use", "lastuse", "discard")),
}
FAMILIES = {root: frozenset(words.split()) for root, words in _WORDS.items()}
"""First words of their opcodes, with the words that may follow. One that has rows by now is checked by them."""

_NAMED = re.compile(
    r"tex\.((base|level|grad)\.)?([123a]|cube)|tld4\.[rgba]\.|txq\.|istypep\.|suld\.b\.|sust\.[bp]\.|sured\.[bp]\.|suq\."
    r"|tcgen05\.(alloc|dealloc|relinquish_alloc_permit|ld|st|wait|cp|shift|mma|commit|fence)\b"
)
"""How their opcodes begin."""


TENSOR_MEMORY = (100, 101, 103, 107, 110)
"""The GPUs that have `tcgen05`, for targets of one architecture or one family alone. Source: PTX ISA 9.7.16."""


def unavailable(opcode: str, targets: Sequence[Target]) -> str | None:
    """Why one of the targets lacks an instruction without a row. Source: PTX ISA 9.7.16."""
    root = family(opcode)
    for target in targets:
        if root == "tcgen05" and not (target.suffix and target.sm in TENSOR_MEMORY):
            return f"needs {', '.join(f'sm_{sm}a, sm_{sm}f' for sm in TENSOR_MEMORY)}"
        if root == "tcgen05" and target.sm == 103 and "kind::i8" in opcode.split("."):
            return "kind::i8 needs another GPU than sm_103"
        if opcode.startswith("tcgen05.ld.red.") and target.sm == TENSOR_MEMORY[0]:
            return f"tcgen05.ld.red needs another GPU than sm_{TENSOR_MEMORY[0]}"
    return None


def family(opcode: str) -> str | None:
    """The family that an opcode without a row is of; None if it is of none."""
    root, *words = opcode.split(".")
    if root in roots() or not words or not FAMILIES.get(root, frozenset()).issuperset(words):
        return None
    return root if _NAMED.match(opcode) else None
