"""Every warp-level matrix instruction against ptxas: membership, targets, PTX versions, registers, order of qualifiers.

`make test` assembles a part of the legal spellings and a seeded sample of the others for each target, all of the legal
ones on some target, `make conformance` all of `candidates`. Our verdict is ptxas's but for `deviations`.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain

import pytest
from assembler import CURRENT, PTXAS, accepted, errors
from candidates import Candidate, candidates
from deviations import DEVIATIONS, explanation
from ptx_rows import BY_SPELLING
from samples import FULL, every

from warploom.dialect.isa.form import Form
from warploom.dialect.isa.mma import Mma
from warploom.dialect.isa.row import NEWEST, SCALAR, TARGETS, VECTOR, Slot, Target, Version
from warploom.dialect.isa.wgmma import Wgmma
from warploom.dialect.isa.wmma import former_rows
from warploom.dialect.ptx.instructions import matrix_form

pytestmark = pytest.mark.skipif(PTXAS is None, reason="ptxas is not installed (extra: test)")

SAMPLE, STRIDE = 300, 6
"""Of the illegal spellings so many are tried for a target, of the legal ones one of so many, another for the next."""
SEED = 20251

NAMES = (
    "sm_75", "sm_80", "sm_86", "sm_88", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f", "sm_103a",
    "sm_107a", "sm_110a", "sm_120", "sm_120a", "sm_120f", "sm_121a",
)  # fmt: skip
each_target = pytest.mark.parametrize("target", [TARGETS[name] for name in NAMES], ids=str)

VERSIONS: tuple[Version, ...] = (
    *((6, n) for n in range(6)), *((7, n) for n in range(9)), *((8, n) for n in range(9)),
    *((9, n) for n in range(NEWEST[1] + 1)),
)  # fmt: skip
OLDEST: Version = (6, 3)
"""The first PTX version that has sm_75, the lowest target of CUDA 13."""


@cache
def by_legality() -> tuple[tuple[tuple[Candidate, Form], ...], tuple[Candidate, ...]]:
    """The candidates that are rows, with them, and the others."""
    pairs = ((c, matrix_form(c.spelling)) for c in candidates())
    legal = tuple((c, row) for c, row in pairs if row is not None and row.gone is None and row.ptx <= CURRENT)
    spellings = {c.spelling for c, _ in legal}
    return legal, tuple(c for c in candidates() if c.spelling not in spellings)


def chosen(target: Target) -> list[Candidate]:
    """What is assembled for a target: all, or the legal ones and a sample of the others."""
    if FULL:
        return list(candidates())
    legal, others = by_legality()
    tried = every(legal, STRIDE, NAMES.index(target.name))
    return [*(c for c, _ in tried), *random.Random(f"{SEED} {target}").sample(others, SAMPLE)]


WARP_LEVEL = [row for row in BY_SPELLING.values() if not isinstance(row, Wgmma)]
"""Those of warpgroups, which sm_90a alone has, are in `test_wgmma_rows`."""


def ours(spelling: str, target: Target, version: Version = CURRENT) -> bool:
    """Whether we take a spelling."""
    row = matrix_form(spelling)
    return row is not None and row.unavailable(target, version) is None


def taken(cases: Sequence[Candidate], target: Target, version: Version = CURRENT) -> set[str]:
    """The spellings that ptxas takes."""
    return {cases[n].spelling for n in accepted([c.statement for c in cases], target, version)}


@pytest.mark.slow
def test_there_are_candidates_far_past_the_legal_ones() -> None:
    legal, others = by_legality()
    assert len({c.spelling for c in candidates()}) > 200_000
    assert {c.spelling for c, _ in legal} == {row.spelling for row in WARP_LEVEL}
    assert len(others) > 100 * len(legal)


@pytest.mark.sampled(16)
@each_target
def test_our_verdict_is_the_assemblers(target: Target) -> None:
    cases = chosen(target)
    theirs = taken(cases, target)
    we_take_more = [c.spelling for c in cases if ours(c.spelling, target) and c.spelling not in theirs]
    they_take_more = [c.spelling for c in cases if c.spelling in theirs and not ours(c.spelling, target)]
    unexplained = [spelling for spelling in they_take_more if explanation(spelling, target) is None]
    print(f"{target}: {len(cases)} candidates, ptxas takes {len(theirs)}, {len(they_take_more)} of them deviations")
    assert not we_take_more
    assert not unexplained


@cache
def deviant() -> frozenset[str]:
    """The candidates that an entry speaks of, on whatever target."""
    pattern = re.compile("|".join(f"(?:{d.pattern})" for d in DEVIATIONS))
    return frozenset(c.spelling for c in candidates() if pattern.fullmatch(c.spelling))


@pytest.mark.sampled(24)
@each_target
def test_each_deviation_is_real(target: Target) -> None:
    """ptxas takes all that an entry says it takes, each spelling by one entry, and we take none of it."""
    explained = [c for c in candidates() if c.spelling in deviant() and explanation(c.spelling, target)]
    assert not [c.spelling for c in explained if ours(c.spelling, target)]
    for deviation in DEVIATIONS:
        differing = [c for c in explained if deviation.explains(c.spelling, target)]
        assert bool(differing) == deviation.where(target), deviation.pattern
        assert all(explanation(c.spelling, target) is deviation for c in differing)
    assert taken(explained, target) == {c.spelling for c in explained}


def versions(target: Target) -> Iterator[tuple[Version, Candidate, Form]]:
    """Each row that a target has, and since when."""
    for candidate, row in every(by_legality()[0], STRIDE, NAMES.index(target.name)):
        since = row.since(target)
        if since is not None:
            yield since, candidate, row


@pytest.mark.sampled(24)
@each_target
def test_rows_are_taken_from_their_first_version_on(target: Target) -> None:
    groups: dict[Version, list[Candidate]] = defaultdict(list)
    for since, candidate, _ in versions(target):
        groups[max(since, OLDEST)].append(candidate)
    for version, cases in groups.items():
        assert all(ours(c.spelling, target, version) for c in cases)
        assert sorted({c.spelling for c in cases} - taken(cases, target, version))[:10] == [], version


@pytest.mark.sampled(4)
@each_target
def test_rows_are_refused_one_version_below(target: Target) -> None:
    """By us always, naming the version; by ptxas where the target exists in that version."""
    groups: dict[Version, list[Candidate]] = defaultdict(list)
    for since, candidate, row in versions(target):
        below = VERSIONS[VERSIONS.index(since) - 1]
        assert row.unavailable(target, below) == f"needs PTX {since[0]}.{since[1]}"
        if below >= max(target.ptx, OLDEST):
            groups[below].append(candidate)
    for version, cases in groups.items():
        assert not sorted(taken(cases, target, version))[:10], version


def widened(operands: Sequence[Slot], number: int, by: int) -> list[Slot]:
    """Operands of which one has more registers."""
    return [replace(o, count=o.count + by) if i == number else o for i, o in enumerate(operands)]


def text(operand: Slot) -> str:
    """An operand in PTX."""
    letter = {"f32": "f", "f64": "d", "s32": "s"}.get(operand.type, "r")
    if operand.kind == VECTOR:
        return "{" + ", ".join(f"%{letter}{i}" for i in range(operand.count)) + "}"
    return {SCALAR: "%r39", "address": "[%p]", "constant": "0", "selector": "{%h0, %h1}"}[operand.kind]


def statement(row: Form, operands: Iterable[Slot]) -> str:
    return f"{row.spelling} {', '.join(map(text, operands))};"


LATEST = TARGETS["sm_120a"]


@pytest.mark.slow
def test_ptxas_takes_the_operands_that_the_rows_list() -> None:
    rows = WARP_LEVEL
    assert all(row.runs_on(LATEST) for row in rows)
    lines = [statement(row, row.operands) for row in rows]
    optional = [row for row in rows if any(o.optional for o in row.operands)]
    lines += [statement(row, (o for o in row.operands if not o.optional)) for row in optional]
    assert optional
    assert accepted(lines, LATEST) == set(range(len(lines)))


def test_ptxas_takes_no_other_register_counts() -> None:
    lines = [
        statement(row, widened(row.operands, number, by))
        for row in WARP_LEVEL
        for number, operand in enumerate(row.operands)
        for by in (-1, 1)
        if operand.kind == VECTOR and operand.count + by > 0
    ]
    assert not accepted(lines, LATEST, rounds=1)


def test_what_ptx_no_longer_has() -> None:
    """Taken in the versions that the row names, and in no other."""
    target = TARGETS["sm_75"]
    rows = former_rows()
    lines = [f"{row.spelling} {', '.join(text(o) for o in row.operands)};" for row in rows]
    for version in ((6, 0), (6, 1), (6, 2), (6, 3), (6, 4), (6, 5)):
        legal = {i for i, row in enumerate(rows) if row.ptx <= version < (row.removed(target) or version)}
        assert set(range(len(lines))) - set(errors(lines, target, version)) == legal
        assert all(matrix_form(rows[i].spelling) is rows[i] for i in legal)


def shuffled(spelling: str, order: random.Random) -> str:
    """The same qualifiers in another order, types and their like keeping theirs."""
    words = spelling.split(".")
    lead = 3 if words[1] in ("load", "store") else 2 if words[0] == "wmma" else 1
    rest = words[lead:]
    alike = (
        ("f16 bf16 tf32 f32 f64 e4m3 e5m2 e3m2 e2m3 e2m1 ue8m0 ue4m3 s32 s8 u8 s4 u4 b1", "types"),
        ("row col", "layouts"),
        ("b8x16 b6x16_p32 b4x16_p64", "formats"),
        ("xor and popc", "operations"),
    )
    group = {word: name for names, name in alike for word in names.split()}
    queues = {name: iter([w for w in rest if group.get(w) == name]) for _, name in alike}
    mixed = order.sample(rest, len(rest))
    return ".".join(chain(words[:lead], (next(queues[group[w]]) if w in group else w for w in mixed)))


def test_qualifiers_may_come_in_any_order() -> None:
    order = random.Random(SEED)
    legal = by_legality()[0]
    spellings = [shuffled(c.spelling, order) for c, _ in legal]
    assert all(matrix_form(s) is row for s, (_, row) in zip(spellings, legal, strict=True))
    lines = every([f"{s} {c.operands};" for s, (c, _) in zip(spellings, legal, strict=True)], STRIDE)
    assert accepted(lines, LATEST) == set(range(len(lines)))


def with_selectors(row: Mma, a: tuple[int, int], b: tuple[int, int], f: int = 0) -> str:
    """A product with constant selectors."""
    selectors = {"selector_a": f"{{{a[0]}, {a[1]}}}", "selector_b": f"{{{b[0]}, {b[1]}}}", "f": str(f)}
    return f"{row.spelling} {', '.join(selectors.get(o.name) or text(o) for o in row.operands)};"


def test_ptxas_takes_the_selectors_that_the_rows_name() -> None:
    lines: list[str] = []
    for row in BY_SPELLING.values():
        if isinstance(row, Mma) and row.sparse:
            lines += [with_selectors(row, (0, 0), (0, 0), f) for f in row.selectors]
        if isinstance(row, Mma) and row.scale:
            ids, a, b = row.scale.byte_ids, row.scale.thread_ids("a"), row.scale.thread_ids("b")
            lines += [with_selectors(row, (byte, thread), (ids[0], b[0])) for byte in ids for thread in a]
            lines += [with_selectors(row, (ids[0], a[0]), (byte, thread)) for byte in ids for thread in b]
    assert accepted(lines, LATEST) == set(range(len(lines)))
