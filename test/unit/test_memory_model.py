"""Litmus tests of the memory model of PTX: what its axioms allow and forbid, as published.

Sources: PTX ISA 8 and its examples; Lustig, Sahasrabuddhe and Giroux, ASPLOS 2019 (message passing, store buffering,
load buffering, IRIW, WRC, coherence, scopes); Alglave and others, GPU concurrency, ASPLOS 2015 (scopes of CTAs).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from warploom.runtime.interp.watch.order_graph import MemoryEvent, MemoryModel, ThreadPlace

SEMANTICS = {"acquire": (True, False), "release": (False, True), "acq_rel": (True, True), "sc": (True, True)}


def events_of(text: str, *, ctas: bool) -> tuple[list[MemoryEvent], list[tuple[int, int]]]:
    """Threads, with | between them, as `W.release.gpu x; R y=0; F.sc.gpu; U.acq_rel.gpu x; B` (a barrier that all
    threads come to). `dep` at the end of a write says that it depends on all reads before it. Threads are in CTAs of
    their own if `ctas`."""
    locations = sorted(set(re.findall(r"\b[WRU]\S* (\w)", text)))
    events = [MemoryEvent(ThreadPlace(-1, -1, -1), i, writes=True) for i in range(len(locations))]
    barriers: list[list[int]] = []
    for thread, line in enumerate(text.split("|")):
        place, reads, met = ThreadPlace(thread, thread if ctas else 0, thread if ctas else 0), list[int](), 0
        for item in (piece.strip() for piece in line.split(";")):
            words = item.split()
            kind, *qualifiers = words[0].split(".")
            scope = next((q for q in qualifiers if q in ("cta", "cluster", "gpu", "sys")), "")
            acquires, releases = next((SEMANTICS[q] for q in qualifiers if q in SEMANTICS), (False, False))
            if kind == "B":
                barriers = barriers or [[], []]
                barriers[met].append(len(events))
                met += 1
            depends = frozenset(reads) if "dep" in words else frozenset[int]()
            location = locations.index(words[1][0]) if kind in "WRU" else None
            sequential = kind == "F" and "sc" in qualifiers
            if kind in "RU":
                reads.append(len(events))
            events.append(
                MemoryEvent(place, location, kind in "RU", kind in "WU", scope, acquires, releases, sequential, None,
                            depends)
            )  # fmt: skip
    pairs = [(a, b) for group in barriers for a in group for b in group if a != b]
    return events, pairs


def allowed(text: str, wanted: str, *, ctas: bool = True) -> bool:
    """Whether the reads, in their order, may read the writes that `wanted` names: 0 for the value at the beginning, n
    for the n-th write to the location in the text."""
    events, barriers = events_of(text, ctas=ctas)
    model = MemoryModel(events, barriers)

    def numbers(reads: dict[int, int]) -> Iterator[str]:
        for read in model.readers:
            location = events[read].location
            assert location is not None
            yield str(model.writers[location].index(reads[read]))

    return any(" ".join(numbers(reads)) == wanted for reads in model.outcomes())


MP = "W{data} x; {before} W{store} y | R{load} y; {after} R{data} x"


def mp(store: str = "", load: str = "", before: str = "", after: str = "", data: str = "") -> str:
    return MP.format(store=store, load=load, before=before, after=after, data=data)


@pytest.mark.parametrize(
    ("text", "outcome", "expected"),
    [
        # Message passing: the flag is seen, the data is not.
        (mp(), "1 0", True),
        (mp(".relaxed.gpu", ".relaxed.gpu"), "1 0", True),
        (mp(".release.gpu", ".relaxed.gpu"), "1 0", True),
        (mp(".relaxed.gpu", ".acquire.gpu"), "1 0", True),
        (mp(".release.gpu", ".acquire.gpu"), "1 0", False),
        (mp(".release.sys", ".acquire.gpu"), "1 0", False),
        (mp(".release.cta", ".acquire.gpu"), "1 0", True),
        (mp(".release.gpu", ".acquire.cta"), "1 0", True),
        (mp(".relaxed.gpu", ".relaxed.gpu", "F.acq_rel.gpu;", "F.acq_rel.gpu;"), "1 0", False),
        (mp(".relaxed.gpu", ".relaxed.gpu", "F.sc.gpu;", "F.acq_rel.gpu;"), "1 0", False),
        (mp(".relaxed.gpu", ".relaxed.gpu", "F.acq_rel.cta;", "F.acq_rel.gpu;"), "1 0", True),
        (mp(".relaxed.gpu", ".relaxed.gpu", "F.acq_rel.gpu;"), "1 0", True),
        (mp("", "", "F.acq_rel.gpu;", "F.acq_rel.gpu;"), "1 0", True),  # a flag that is weak
        (mp(".release.gpu", ".acquire.gpu", data=".relaxed.gpu"), "1 0", False),
        (mp(".release.gpu", ".acquire.gpu"), "1 1", True),
        (mp(".release.gpu", ".acquire.gpu"), "0 0", True),
        # Store buffering.
        ("W.relaxed.gpu x; R.relaxed.gpu y | W.relaxed.gpu y; R.relaxed.gpu x", "0 0", True),
        ("W.release.gpu x; R.acquire.gpu y | W.release.gpu y; R.acquire.gpu x", "0 0", True),
        ("W.relaxed.gpu x; F.acq_rel.gpu; R.relaxed.gpu y | W.relaxed.gpu y; F.acq_rel.gpu; R.relaxed.gpu x",
            "0 0", True),
        ("W.relaxed.gpu x; F.sc.gpu; R.relaxed.gpu y | W.relaxed.gpu y; F.sc.gpu; R.relaxed.gpu x", "0 0", False),
        ("W.relaxed.gpu x; F.sc.cta; R.relaxed.gpu y | W.relaxed.gpu y; F.sc.cta; R.relaxed.gpu x", "0 0", True),
        ("W.relaxed.gpu x; F.sc.gpu; R.relaxed.gpu y | W.relaxed.gpu y; F.acq_rel.gpu; R.relaxed.gpu x", "0 0", True),
        ("W x; F.sc.gpu; R y | W y; F.sc.gpu; R x", "0 0", False),
        # Load buffering: no value out of thin air.
        ("R.relaxed.gpu x; W.relaxed.gpu y | R.relaxed.gpu y; W.relaxed.gpu x", "1 1", True),
        ("R.relaxed.gpu x; W.relaxed.gpu y dep | R.relaxed.gpu y; W.relaxed.gpu x dep", "1 1", False),
        ("R.relaxed.gpu x; W.relaxed.gpu y dep | R.relaxed.gpu y; W.relaxed.gpu x", "1 1", True),
        ("R.acquire.gpu x; W.release.gpu y | R.acquire.gpu y; W.release.gpu x", "1 1", False),
        # Independent reads of independent writes.
        ("W.relaxed.gpu x | W.relaxed.gpu y | R.acquire.gpu x; R.acquire.gpu y | R.acquire.gpu y; R.acquire.gpu x",
            "1 0 1 0", True),
        ("W.release.gpu x | W.release.gpu y | R.relaxed.gpu x; F.sc.gpu; R.relaxed.gpu y | "
            "R.relaxed.gpu y; F.sc.gpu; R.relaxed.gpu x", "1 0 1 0", False),
        ("W.release.gpu x | W.release.gpu y | R.relaxed.gpu x; F.acq_rel.gpu; R.relaxed.gpu y | "
            "R.relaxed.gpu y; F.acq_rel.gpu; R.relaxed.gpu x", "1 0 1 0", True),
        # Causality goes on through a third thread.
        ("W x; W.release.gpu y | R.acquire.gpu y; W.release.gpu z | R.acquire.gpu z; R x", "1 1 0", False),
        ("W x; W.release.gpu y | R.relaxed.gpu y; W.release.gpu z | R.acquire.gpu z; R x", "1 1 0", True),
        ("W.relaxed.gpu x | R.relaxed.gpu x; F.acq_rel.gpu; W.relaxed.gpu y | R.acquire.gpu y; R.relaxed.gpu x",
            "1 1 0", False),
        ("W.relaxed.gpu x | R.relaxed.gpu x; W.relaxed.gpu y | R.acquire.gpu y; R.relaxed.gpu x", "1 1 0", True),
        # Atomics pass a release on.
        ("W x; W.release.gpu y | U.relaxed.gpu y | R.acquire.gpu y; R x", "1 2 0", False),
        ("W x; W.release.gpu y | W.relaxed.gpu y | R.acquire.gpu y; R x", "2 0", True),
        ("U.relaxed.gpu x | U.relaxed.gpu x", "0 0", False),
        ("U.relaxed.cta x | U.relaxed.cta x", "0 0", True),  # not atomic beyond their scope
        # Coherence: reads of one word do not go backwards, if they are strong.
        ("W.relaxed.gpu x | R.relaxed.gpu x; R.relaxed.gpu x", "1 0", False),
        ("W x | R x; R x", "1 0", True),
        ("W.relaxed.cta x | R.relaxed.cta x; R.relaxed.cta x", "1 0", True),
        ("W.relaxed.gpu x; R.relaxed.gpu x", "0", False),
        ("W x; R x", "0", False),
        ("R.relaxed.gpu x; W.relaxed.gpu x", "1", False),
        ("W.relaxed.gpu x | W.relaxed.gpu x | R.relaxed.gpu x; R.relaxed.gpu x | R.relaxed.gpu x; R.relaxed.gpu x",
            "1 2 2 1", False),
        ("W x | W x | R x; R x | R x; R x", "1 2 2 1", True),
    ],
)  # fmt: skip
def test_between_ctas(text: str, outcome: str, expected: bool) -> None:
    assert allowed(text, outcome) == expected


@pytest.mark.parametrize(
    ("text", "outcome", "expected"),
    [
        (mp(".release.cta", ".acquire.cta"), "1 0", False),
        (mp(".relaxed.cta", ".relaxed.cta", "F.acq_rel.cta;", "F.acq_rel.cta;"), "1 0", False),
        (mp(".relaxed.cta", ".relaxed.cta"), "1 0", True),
        ("W.relaxed.cta x; F.sc.cta; R.relaxed.cta y | W.relaxed.cta y; F.sc.cta; R.relaxed.cta x", "0 0", False),
        ("W x; B | B; R x", "0", False),
        ("W x; B | B; R x", "1", True),
        ("W x; B; B | B; B; R x", "0", False),
        ("R x; B | B; W x", "1", False),
        ("W x | B; R x", "0", True),
        ("W x; B; W y | B; R y; R x", "1 0", False),
    ],
)
def test_within_a_cta(text: str, outcome: str, expected: bool) -> None:
    assert allowed(text, outcome, ctas=False) == expected
