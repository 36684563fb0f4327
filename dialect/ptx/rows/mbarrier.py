"""Barriers in memory. Source: PTX ISA 9.7.13.15."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...isa.targets import Version
from .grammar import Need, Row, row

_HERE = "{.release.cta,.release.cluster}"
_SECTION = "9.7.13.15"


def _form(spelling: str, operands: str, section: str, *, ptx: Version, sm: int) -> Row:
    """A row whose meaning is named as the instruction; what there are two of, K tells apart."""
    name = re.split(r"\W+", spelling.replace("K{", ""))[1]
    meaning = {"arrive_drop": "arrive", "try_wait": "test_wait"}.get(name, name)
    return row(spelling, operands, section, ptx=ptx, sm=sm, meaning=f"mbarrier.{meaning}")


def _spaces(head: str, operands: str, section: str, ptx: Version = (7, 0), sm: int = 80) -> tuple[Row, ...]:
    """A form for every way to write the own CTA's shared memory; `.shared::cta` came later than the others."""
    first = _form(f"{head}{{P=.shared}}.b64", operands, section, ptx=ptx, sm=sm)
    later = _form(f"{head}.P{{shared::cta}}.b64", operands, section, ptx=max(ptx, (7, 8)), sm=sm)
    return first, later


_States = tuple[tuple[str, Version], ...]
"""What receives the state that an object had, and since when."""


def _arrivals(root: str, section: str, states: _States) -> Iterator[Row]:
    """`arrive` or `arrive_drop`: in the own CTA, which says what the state was, and in another of the cluster."""
    for state, since in states:
        yield from _spaces(root, f"{state}, a:[mbarrier]", section, since)
        yield from _spaces(f"{root}.F{{noComplete}}", f"{state}, a:[mbarrier], n:u32", section, since)
    yield from _spaces(root, "d:b64_, a:[mbarrier], n:u32", section, (7, 8), 90)
    own = "{P=.shared,.shared::cta}.b64"
    yield _form(f"{root}.F{{noComplete}}.release.cta{own}", "d:b64_, a:[mbarrier], n:u32", section, ptx=(8, 0), sm=80)
    yield _form(f"{root}.release.cta{own}", "d:b64_, a:[mbarrier]", section, ptx=(8, 0), sm=80)
    yield _form(f"{root}.release.cta{own}", "d:b64_, a:[mbarrier], n:u32", section, ptx=(8, 0), sm=90)
    yield _form(f"{root}.release.cluster{own}", "d:b64_, a:[mbarrier], ?n:u32", section, ptx=(8, 0), sm=90)
    yield _form(f"{root}.relaxed.{{cta,cluster}}{own}", "d:b64_, a:[mbarrier], ?n:u32", section, ptx=(8, 6), sm=90)
    yield _form(f"{root}.F{{expect_tx}}{_HERE}{own}", "d:b64_, a:[mbarrier], n:u32", section, ptx=(8, 0), sm=90)
    yield _form(
        f"{root}.F{{expect_tx}}.relaxed.{{cta,cluster}}{own}", "d:b64_, a:[mbarrier], n:u32", section, ptx=(8, 6), sm=90
    )
    away = ".P{shared::cluster}.b64"
    yield _form(f"{root}{_HERE}{away}", "d:_, a:[mbarrier], ?n:u32", section, ptx=(8, 0), sm=90)
    yield _form(f"{root}.relaxed.{{cta,cluster}}{away}", "d:_, a:[mbarrier], ?n:u32", section, ptx=(8, 6), sm=90)
    yield _form(f"{root}.F{{expect_tx}}{_HERE}{away}", "d:_, a:[mbarrier], n:u32", section, ptx=(8, 0), sm=90)
    yield _form(
        f"{root}.F{{expect_tx}}.relaxed.{{cta,cluster}}{away}", "d:_, a:[mbarrier], n:u32", section, ptx=(8, 6), sm=90
    )


def _waits(root: str, hint: str, section: str, ptx: Version, sm: int) -> Iterator[Row]:
    """`test_wait` or `try_wait`, for a state or for the parity of a phase."""
    own = "{P=.shared,.shared::cta}.b64"
    for name, operand, since in ((root, "s:b64", ptx), (f"{root}.F{{parity}}", "s:u32(0..1)", max(ptx, (7, 1)))):
        operands = f"d:pred, a:[mbarrier], {operand}{hint}"
        yield from _spaces(name, operands, section, since, sm)
        yield _form(f"{name}.acquire.cta{own}", operands, section, ptx=(8, 0), sm=sm)
        yield _form(f"{name}.acquire.cluster{own}", operands, section, ptx=(8, 0), sm=90)
        yield _form(f"{name}.relaxed.{{cta,cluster}}{own}", operands, section, ptx=(8, 6), sm=90)


ROWS = (
    # 9.7.13.15.9, .10  mbarrier.init, mbarrier.inval
    *_spaces("mbarrier.init", "a:[mbarrier], n:u32", f"{_SECTION}.9"),
    *_spaces("mbarrier.inval", "a:[mbarrier]", f"{_SECTION}.10"),
    # 9.7.13.15.11, .12  mbarrier.expect_tx, mbarrier.complete_tx
    _form(
        "mbarrier.K{expect_tx,complete_tx}{.relaxed.cta,.relaxed.cluster}{P=.shared,.shared::cta,.shared::cluster}.b64",
        "a:[mbarrier], n:u32",
        f"{_SECTION}.11",
        ptx=(8, 0),
        sm=90,
    ),
    # 9.7.13.15.13, .14  mbarrier.arrive, mbarrier.arrive_drop
    *_arrivals("mbarrier.K{arrive}", f"{_SECTION}.13", (("d:b64", (7, 0)), ("d:_", (7, 1)))),
    *_arrivals("mbarrier.K{arrive_drop}", f"{_SECTION}.14", (("d:b64_", (7, 0)),)),
    # 9.7.13.15.15  cp.async.mbarrier.arrive
    row(
        "cp.async.mbarrier.arrive{F=.noinc}{P=.shared,.shared::cta}.b64",
        "a:[P]",
        f"{_SECTION}.15",
        ptx=(7, 0),
        sm=80,
        meaning="cp.async.mbarrier.arrive",
        needs=(Need("shared::cta", (7, 8), 80),),
    ),
    # 9.7.13.15.16  mbarrier.test_wait, mbarrier.try_wait
    *_waits("mbarrier.test_wait", "", f"{_SECTION}.16", (7, 0), 80),
    *_waits("mbarrier.try_wait", ", ?h:u32", f"{_SECTION}.16", (7, 8), 90),
    # 9.7.13.15.17  mbarrier.pending_count
    _form("mbarrier.pending_count.b64", "d:u32, a:b64", f"{_SECTION}.17", ptx=(7, 0), sm=80),
)
