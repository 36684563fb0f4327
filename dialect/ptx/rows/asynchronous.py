"""Copies, stores and reductions that complete later. Source: PTX ISA 9.7.9.12, .13, .25 and 9.7.13.7, .8."""

from __future__ import annotations

from collections.abc import Iterator

from .grammar import Need, Row, row
from .memory import HINT, HINTED

_COMPLETES = ".mbarrier::complete_tx::bytes"
_COPIES = (HINTED, *(Need(f"L2::{word}", (7, 4), 80) for word in ("64B", "128B", "256B")))


def _copies() -> Iterator[Row]:
    """9.7.9.25.3.1  cp.async: a number of bytes to read, or a predicate to read none, may follow the size. A literal
    there is a number."""
    for words, sizes in ((".ca", (4, 8, 16)), (".cg", (16,))):
        spelling = f"cp.async{words}.{{shared,shared::cta}}.global{HINT}{{.L2::64B,.L2::128B,.L2::256B}}"
        for size in sizes:
            for last, ptx in ((f"?s:u32(0..{size})", (7, 0)), ("q:!pred(0..0)", (7, 5))):
                operands = f"a:[shared], b:[global], n:imm({size}), {last}, H?c:b64"
                yield row(spelling, operands, "9.7.9.25.3.1", ptx=ptx, sm=80, meaning="cp.async", needs=_COPIES)


def _bulk() -> Iterator[Row]:
    """9.7.9.25.4.1, .3  cp.async.bulk"""
    section, meaning = "9.7.9.25.4.1", "cp.async.bulk"
    later = (Need("cp_mask", (8, 6), 100),)
    yield row(
        f"cp.async.bulk.D{{shared::cluster}}.S{{global}}{_COMPLETES}{{M=.multicast::cluster}}{HINT}",
        "a:[D], b:[S], n:u32(0..1048560/16), m:[shared], M?k:u16, H?c:b64",
        section,
        ptx=(8, 0),
        sm=90,
        meaning=meaning,
    )
    yield row(
        f"cp.async.bulk.D{{shared::cta}}.S{{global}}{_COMPLETES}{HINT}",
        "a:[D], b:[S], n:u32(0..1048560/16), m:[shared], H?c:b64",
        section,
        ptx=(8, 6),
        sm=90,
        meaning=meaning,
    )
    yield row(
        f"cp.async.bulk.D{{shared::cluster}}.S{{shared::cta}}{_COMPLETES}",
        "a:[D], b:[S], n:u32(0..1048560/16), m:[shared]",
        section,
        ptx=(8, 0),
        sm=90,
        meaning=meaning,
    )
    yield row(
        f"cp.async.bulk.D{{global}}.S{{shared::cta}}.bulk_group{HINT}{{K=.cp_mask}}",
        "a:[D], b:[S], n:u32(0..1048560/16), H?c:b64, K?k:u16",
        section,
        ptx=(8, 0),
        sm=90,
        meaning=meaning,
        needs=later,
    )
    yield row(
        f"cp.async.bulk.prefetch.L2.global{HINT}",
        "a:[global], n:u32(0..1048560/16), H?c:b64",
        "9.7.9.25.4.3",
        ptx=(8, 0),
        sm=90,
        meaning="hint",
    )


def _reductions() -> Iterator[Row]:
    """9.7.9.25.4.2  cp.reduce.async.bulk"""
    for words in (".O{and,or,xor}.T{b32}", ".O{add}.T{u32,s32,u64}", ".O{inc,dec}.T{u32}", ".O{min,max}.T{u32,s32}"):
        yield row(
            f"cp.reduce.async.bulk.D{{shared::cluster}}.S{{shared::cta}}{_COMPLETES}{words}",
            "a:[D], b:[S], n:u32(0..1048560/16), m:[shared]",
            "9.7.9.25.4.2",
            ptx=(8, 0),
            sm=90,
            meaning="cp.reduce.async.bulk",
        )
    for words in (
        ".O{and,or,xor}.T{b32,b64}",
        ".O{add}.T{u32,s32,u64,f32,f64}",
        ".O{add}.noftz.T{f16,bf16}",
        ".O{inc,dec}.T{u32}",
        ".O{min,max}.T{u32,s32,u64,s64,f16,bf16}",
    ):
        yield row(
            f"cp.reduce.async.bulk.D{{global}}.S{{shared::cta}}.bulk_group{HINT}{words}",
            "a:[D], b:[S], n:u32(0..1048560/16), H?c:b64",
            "9.7.9.25.4.2",
            ptx=(8, 0),
            sm=90,
            meaning="cp.reduce.async.bulk",
        )


_OPERATIONS = (".O{and,or,xor}.T{b32}", ".O{add}.T{u32,s32,u64,s64}", ".O{inc,dec}.T{u32}", ".O{min,max}.T{u32,s32}")


def _stores() -> Iterator[Row]:
    """9.7.9.12  st.async, and 9.7.13.7  red.async: to shared memory of the cluster, and to global memory."""
    for types in ("{V=.v2,.v4}.T{b32,u32,s32,f32}", "{V=.v2}.T{b64,u64,s64,f64}"):
        yield row(
            f"st.async{{.weak}}{{P=.shared::cluster,.shared::cta}}{_COMPLETES}{types}",
            "a:[P], b:V*T, m:[P]",
            "9.7.9.12",
            ptx=(8, 1),
            sm=90,
            meaning="st.async",
        )
    yield row(
        "st.async{.mmio}.release.{gpu,sys}{P=.global}.T{b8,b16,b32,b64,u8,u16,u32,u64,s8,s16,s32,s64,f32,f64}",
        "a:[], b:T",
        "9.7.9.12",
        ptx=(8, 7),
        sm=100,
        meaning="st",
    )
    for words in _OPERATIONS:
        yield row(
            f"red.async.relaxed.cluster{{P=.shared::cluster}}{_COMPLETES}{words}",
            "a:[P], b:T, m:[P]",
            "9.7.13.7",
            ptx=(8, 1),
            sm=90,
            meaning="red.async",
        )
        yield row(
            f"red.async{{.mmio}}.release.{{gpu,sys}}{{P=.global}}{words}",
            "a:[], b:T",
            "9.7.13.7",
            ptx=(8, 7),
            sm=100,
            meaning="atomic",
        )


ROWS = (
    # 9.7.9.12, 9.7.13.7  st.async, red.async
    *_stores(),
    # 9.7.9.13  st.bulk
    row(
        "st.bulk{.weak}{P=.shared::cta}",
        "a:[], n:u64(0../8), z:imm(0)",
        "9.7.9.13",
        ptx=(8, 6),
        sm=100,
        meaning="st.bulk",
    ),
    # 9.7.9.25.3.1  cp.async
    *_copies(),
    # 9.7.9.25.3.2  cp.async.commit_group
    row("cp.async.commit_group", "", "9.7.9.25.3.2", ptx=(7, 0), sm=80, meaning="cp.async.commit_group"),
    # 9.7.9.25.3.3  cp.async.wait_group, cp.async.wait_all
    row("cp.async.wait_group", "n:imm", "9.7.9.25.3.3", ptx=(7, 0), sm=80, meaning="cp.async.wait_group"),
    row("cp.async.wait_all", "", "9.7.9.25.3.3", ptx=(7, 0), sm=80, meaning="cp.async.wait_all"),
    # 9.7.9.25.4.1 to .3  cp.async.bulk, cp.reduce.async.bulk, cp.async.bulk.prefetch
    *_bulk(),
    *_reductions(),
    # 9.7.9.25.3.2, .3  groups of bulk copies
    row("cp.async.bulk.commit_group", "", "9.7.9.25.3.2", ptx=(8, 0), sm=90, meaning="bulk group"),
    row("cp.async.bulk.wait_group{READ=.read}", "n:imm", "9.7.9.25.3.3", ptx=(8, 0), sm=90, meaning="bulk group"),
)
