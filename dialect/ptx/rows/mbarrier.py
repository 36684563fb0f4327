"""Barriers in memory. Source: PTX ISA 9.7.13.15."""

from __future__ import annotations

from collections.abc import Iterator

from ...isa.targets import Version
from .grammar import Row, row

_HERE = "{.release.cta,.release.cluster}"
_SECTION = "9.7.13.15"


def _spaces(head: str, operands: str, section: str, ptx: Version = (7, 0), sm: int = 80) -> tuple[Row, ...]:
    """A form for every way to write the own CTA's shared memory; `.shared::cta` came later than the others."""
    first = row(f"{head}{{.shared}}.b64", operands, section, ptx=ptx, sm=sm)
    later = row(f"{head}.shared::cta.b64", operands, section, ptx=max(ptx, (7, 8)), sm=sm)
    return first, later


def _arrivals(root: str, section: str) -> Iterator[Row]:
    """`arrive` or `arrive_drop`: in the own CTA, which says what the state was, and in another of the cluster."""
    yield from _spaces(root, "d:b64, a:[]", section)
    yield from _spaces(root, "d:b64, a:[], n:u32", section, (7, 8), 90)
    yield from _spaces(f"{root}.noComplete", "d:b64, a:[], n:u32", section)
    own = "{.shared,.shared::cta}.b64"
    yield row(f"{root}.noComplete.release.cta{own}", "d:b64, a:[], n:u32", section, ptx=(8, 0), sm=80)
    yield row(f"{root}.release.cta{own}", "d:b64, a:[]", section, ptx=(8, 0), sm=80)
    yield row(f"{root}.release.cta{own}", "d:b64, a:[], n:u32", section, ptx=(8, 0), sm=90)
    yield row(f"{root}.release.cluster{own}", "d:b64, a:[], ?n:u32", section, ptx=(8, 0), sm=90)
    yield row(f"{root}.relaxed.{{cta,cluster}}{own}", "d:b64, a:[], ?n:u32", section, ptx=(8, 6), sm=90)
    yield row(f"{root}.expect_tx{_HERE}{own}", "d:b64, a:[], n:u32", section, ptx=(8, 0), sm=90)
    yield row(f"{root}.expect_tx.relaxed.{{cta,cluster}}{own}", "d:b64, a:[], n:u32", section, ptx=(8, 6), sm=90)
    away = ".shared::cluster.b64"
    yield row(f"{root}{_HERE}{away}", "d:_, a:[], ?n:u32", section, ptx=(8, 0), sm=90)
    yield row(f"{root}.relaxed.{{cta,cluster}}{away}", "d:_, a:[], ?n:u32", section, ptx=(8, 6), sm=90)
    yield row(f"{root}.expect_tx{_HERE}{away}", "d:_, a:[], n:u32", section, ptx=(8, 0), sm=90)
    yield row(f"{root}.expect_tx.relaxed.{{cta,cluster}}{away}", "d:_, a:[], n:u32", section, ptx=(8, 6), sm=90)


def _waits(root: str, hint: str, section: str, ptx: Version, sm: int) -> Iterator[Row]:
    """`test_wait` or `try_wait`, for a state or for the parity of a phase."""
    own = "{.shared,.shared::cta}.b64"
    for name, operand, since in ((root, "s:b64", ptx), (f"{root}.parity", "s:u32", max(ptx, (7, 1)))):
        operands = f"d:pred, a:[], {operand}{hint}"
        yield from _spaces(name, operands, section, since, sm)
        yield row(f"{name}.acquire.cta{own}", operands, section, ptx=(8, 0), sm=sm)
        yield row(f"{name}.acquire.cluster{own}", operands, section, ptx=(8, 0), sm=90)
        yield row(f"{name}.relaxed.{{cta,cluster}}{own}", operands, section, ptx=(8, 6), sm=90)


ROWS = (
    # 9.7.13.15.9, .10  mbarrier.init, mbarrier.inval
    *_spaces("mbarrier.init", "a:[], n:u32", f"{_SECTION}.9"),
    *_spaces("mbarrier.inval", "a:[]", f"{_SECTION}.10"),
    # 9.7.13.15.11, .12  mbarrier.expect_tx, mbarrier.complete_tx
    row(
        "mbarrier.{expect_tx,complete_tx}{.relaxed.cta,.relaxed.cluster}{.shared,.shared::cta,.shared::cluster}.b64",
        "a:[], n:u32",
        f"{_SECTION}.11",
        ptx=(8, 0),
        sm=90,
    ),
    # 9.7.13.15.13, .14  mbarrier.arrive, mbarrier.arrive_drop
    *_arrivals("mbarrier.arrive", f"{_SECTION}.13"),
    *_arrivals("mbarrier.arrive_drop", f"{_SECTION}.14"),
    # 9.7.13.15.15  cp.async.mbarrier.arrive
    *_spaces("cp.async.mbarrier.arrive{.noinc}", "a:[]", f"{_SECTION}.15"),
    # 9.7.13.15.16  mbarrier.test_wait, mbarrier.try_wait
    *_waits("mbarrier.test_wait", "", f"{_SECTION}.16", (7, 0), 80),
    *_waits("mbarrier.try_wait", ", ?h:u32", f"{_SECTION}.16", (7, 8), 90),
    # 9.7.13.15.17  mbarrier.pending_count
    row("mbarrier.pending_count.b64", "d:u32, a:b64", f"{_SECTION}.17", ptx=(7, 0), sm=80),
    # 9.7.13.4  fence
    row("fence.mbarrier_init.release.cluster", "", "9.7.13.4", ptx=(8, 0), sm=90),
)
