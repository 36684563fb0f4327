"""Barriers of threads, and fences. Source: PTX ISA 9.7.13.1 to 9.7.13.4."""

from __future__ import annotations

from collections.abc import Iterator

from .grammar import Need, Row, row

_SCOPES = ".{cta,cluster,gpu,sys}"

_NUMBER = "u32(0..15)"
"""One of the barriers of a CTA."""


def _barriers() -> Iterator[Row]:
    """`bar`, whose threads come together, and `barrier`, whose threads need not unless it is `.aligned`."""
    yield row("bar.sync", f"a:{_NUMBER}, ?b:u32(0../32)", "9.7.13.1", meaning="bar.sync")
    for name, ptx, sm, aligned in (
        ("bar", (2, 0), 20, ""),
        ("bar.cta", (7, 8), 30, ""),
        ("barrier", (6, 0), 30, "{.aligned}"),
        ("barrier.cta", (7, 8), 30, "{.aligned}"),
    ):
        if name != "bar":
            yield row(
                f"{name}.sync{aligned}", f"a:{_NUMBER}, ?b:u32(0../32)", "9.7.13.1", ptx=ptx, sm=sm, meaning="bar.sync"
            )
        yield row(
            f"{name}.arrive{aligned}", f"a:{_NUMBER}, b:u32(1../32)", "9.7.13.1", ptx=ptx, sm=sm, meaning="bar.arrive"
        )
        for words in ("O{popc}{a}.T{u32}", "O{and,or}{a}.T{pred}"):
            spelling = f"{name}.red.{words.replace('{a}', aligned)}"
            for operands in (f"d:T, a:{_NUMBER}, c:!pred", f"d:T, a:{_NUMBER}, b:u32(0../32), c:!pred"):
                yield row(spelling, operands, "9.7.13.1", ptx=ptx, sm=sm, meaning="bar.red")


def _fences() -> Iterator[Row]:
    """9.7.13.4  Steps happen one after the other in the interpreter: fences have nothing to do there."""
    later = (Need("cluster", (7, 8), 90),)
    yield row("membar.{cta,gl}", "", "9.7.13.4", ptx=(1, 4))
    yield row("membar.sys", "", "9.7.13.4", ptx=(2, 0), sm=20)
    yield row("membar.proxy.alias", "", "9.7.13.4", ptx=(7, 5), sm=70)
    yield row(f"fence{{.sc,.acq_rel,.acquire,.release}}{_SCOPES}", "", "9.7.13.4", ptx=(6, 0), sm=70, needs=later)
    yield row("fence.acquire.sync_restrict::shared::cluster.cluster", "", "9.7.13.4", ptx=(8, 6), sm=90)
    yield row("fence.release.sync_restrict::shared::cta.cluster", "", "9.7.13.4", ptx=(8, 6), sm=90)
    yield row("fence.mbarrier_init.release.cluster", "", "9.7.13.4", ptx=(8, 0), sm=90)
    yield row("fence.proxy.alias", "", "9.7.13.4", ptx=(7, 5), sm=70)
    yield row("fence.proxy.async{.global,.shared::cta,.shared::cluster}", "", "9.7.13.4", ptx=(8, 0), sm=90)
    proxies = "fence.proxy.async::generic"
    yield row(f"{proxies}.acquire.sync_restrict::shared::cluster.cluster", "", "9.7.13.4", ptx=(8, 6), sm=90)
    yield row(f"{proxies}.release.sync_restrict::shared::cta.cluster", "", "9.7.13.4", ptx=(8, 6), sm=90)
    yield row(f"fence.proxy.tensormap::generic.release{_SCOPES}", "", "9.7.13.4", ptx=(8, 3), sm=90)
    yield row(f"fence.proxy.tensormap::generic.acquire{_SCOPES}", "a:[any], n:imm(128)", "9.7.13.4", ptx=(8, 3), sm=90)


ROWS = (
    # 9.7.13.1  bar, barrier
    *_barriers(),
    # 9.7.13.2  bar.warp.sync
    row("bar.warp.sync", "a:u32", "9.7.13.2", ptx=(6, 0), sm=30, meaning="bar.warp.sync"),
    # 9.7.13.3  barrier.cluster
    row(
        "barrier.cluster.arrive{.release,.relaxed}{.aligned}",
        "",
        "9.7.13.3",
        ptx=(7, 8),
        sm=90,
        meaning="barrier.cluster.arrive",
        needs=(Need("release", (8, 0), 90), Need("relaxed", (8, 0), 90)),
    ),
    row(
        "barrier.cluster.wait{.acquire}{.aligned}",
        "",
        "9.7.13.3",
        ptx=(7, 8),
        sm=90,
        meaning="barrier.cluster.wait",
        needs=(Need("acquire", (8, 0), 90),),
    ),
    # 9.7.13.4  membar, fence
    *_fences(),
)
