"""Rows of atomics, barriers, fences, mbarriers and control flow. Source: PTX ISA 9.7.12, 9.7.13, 9.7.19."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from ...isa.form import BLACKWELL
from ...isa.row import Specific, Version, choice
from ...isa.wgmma import SM_90A
from .arithmetic import of_rubin
from .data import HINT, HINTED, SHARED_WINDOWS
from .grammar import Need, PatternRow, row

# Operations that read, combine and write back as one. Source: PTX ISA 9.7.13.5 to 9.7.13.8.

_OPTIONAL_SCOPES = "{.cta,.cluster,.gpu,.sys}"
_SHARED = ".{shared,shared::cta,shared::cluster}"

LATER = (
    *(Need(word, (6, 0), 70) for word in ("relaxed", "acquire", "release", "acq_rel")),
    *(Need(word, (5, 0), 60) for word in ("cta", "gpu", "sys")),
    Need("cluster", (7, 8), 90),
    *SHARED_WINDOWS,
    HINTED,
    Need("sys b128", (8, 4), 90),
    Need("noftz f32", (9, 4), 90),
)

_OPERATIONS: tuple[tuple[str, Version, int], ...] = (
    (".O{and,or,xor}.T{b32}", (2, 0), 20),
    (".O{and,or,xor}.T{b64}", (3, 1), 32),
    (".O{add}.T{u32,s32,u64,f32}", (2, 0), 20),
    (".O{add}.T{f64}", (5, 0), 60),
    (".O{add}.noftz.T{f16x2}", (6, 2), 60),
    (".O{add}.noftz.T{f16}", (6, 3), 70),
    (".O{add}.noftz.T{bf16,bf16x2}", (7, 8), 90),
    (".O{add}.noftz.T{f32}", (9, 4), 90),
    (".O{inc,dec}.T{u32}", (2, 0), 20),
    (".O{min,max}.T{u32,s32}", (2, 0), 20),
    (".O{min,max}.T{u64,s64}", (3, 1), 32),
)
"""What `atom` and `red` both do."""

_EXCHANGES: tuple[tuple[str, Version, int], ...] = (
    (".O{exch}.T{b32,b64}", (2, 0), 20),
    (".O{exch}.T{b128}", (8, 3), 90),
)

_VECTORS = (
    ".O{add}{.noftz}.V{v2,v4}.T{f32}",
    ".O{add,min,max}.noftz.V{v2,v4,v8}.T{f16,bf16}",
    ".O{add,min,max}.noftz.V{v2,v4}.T{f16x2,bf16x2}",
)


def _operations(root: str, order: str, result: str, section: str) -> Iterator[PatternRow]:
    for words, ptx, sm in _OPERATIONS + (_EXCHANGES if root == "atom" else ()):
        for space, hint in ((f"{{P=.global}}{HINT}", ", H?c:b64"), (f".P{_SHARED[1:]}", "")):
            spelling = f"{root}{order}{_OPTIONAL_SCOPES}{space}{words}"
            yield row(spelling, f"{result}a:[], b:T{hint}", section, ptx=ptx, sm=sm, meaning="atomic", needs=LATER)
    for words in _VECTORS:
        spelling = f"{root}{order}{_OPTIONAL_SCOPES}{{P=.global}}{words}{HINT}"
        operands = f"{result.replace('T_', 'V*T_')}a:[], b:V*T, H?c:b64"
        yield row(spelling, operands, section, ptx=(8, 1), sm=90, meaning="atomic", needs=LATER)


def _exchanges() -> Iterator[PatternRow]:
    """Compare and swap."""
    spaces = "{P=.global,.shared,.shared::cta,.shared::cluster}"
    for types, ptx, sm in (("b32,b64", (2, 0), 20), ("b16", (6, 3), 70), ("b128", (8, 3), 90)):
        spelling = f"atom{_SEMANTICS}{_OPTIONAL_SCOPES}{spaces}.O{{cas}}.T{{{types}}}"
        yield row(spelling, "d:T_, a:[], b:T, c:T", "9.7.13.5", ptx, sm, "atomic", needs=LATER)


_SEMANTICS = "{.relaxed,.acquire,.release,.acq_rel}"

ATOMIC_ROWS = (
    # 9.7.13.5  atom
    *_operations("atom", _SEMANTICS, "d:T_, ", "9.7.13.5"),
    *_exchanges(),
    # 9.7.13.6  red
    *_operations("red", "{.relaxed,.release}", "", "9.7.13.6"),
)


# Barriers of threads, and fences. Source: PTX ISA 9.7.13.1 to 9.7.13.4.

_SCOPES = ".{cta,cluster,gpu,sys}"

_NUMBER = "u32(0..15)"
"""One of the barriers of a CTA."""


def _barriers() -> Iterator[PatternRow]:
    """`bar`, which all lanes of a warp must execute together, and `barrier`, for which only `.aligned` requires it."""
    yield row("bar.sync", f"a:{_NUMBER}, ?b:u32(0../32)", "9.7.13.1", meaning="bar.sync")
    for name, ptx, sm, aligned in (
        ("bar", (2, 0), 20, ""),
        ("bar.cta", (7, 8), 30, ""),
        ("barrier", (6, 0), 30, "{.aligned}"),
        ("barrier.cta", (7, 8), 30, "{.aligned}"),
    ):
        of_cta = partial(row, section="9.7.13.1", ptx=ptx, sm=sm)
        if name != "bar":
            yield of_cta(f"{name}.sync{aligned}", f"a:{_NUMBER}, ?b:u32(0../32)", meaning="bar.sync")
        yield of_cta(f"{name}.arrive{aligned}", f"a:{_NUMBER}, b:u32(1../32)", meaning="bar.arrive")
        for words in ("O{popc}{a}.T{u32}", "O{and,or}{a}.T{pred}"):
            spelling = f"{name}.red.{words.replace('{a}', aligned)}"
            for count in ("", "b:u32(0../32), "):
                yield of_cta(spelling, f"d:T, a:{_NUMBER}, {count}c:!pred", meaning="bar.red")


def _fences() -> Iterator[PatternRow]:
    """9.7.13.4  Steps happen one after the other in the interpreter: fences have nothing to do there."""
    later = (Need("cluster", (7, 8), 90), *(Need(word, (8, 6), 90) for word in ("acquire", "release")))
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
    yield row(f"{proxies}.release.sync_restrict::shared::cluster::read.cluster", "", "9.7.13.4", ptx=(9, 4), sm=90)
    yield row("fence.proxy.alias.{acquire,release}.sys", "", "9.7.13.4", ptx=(9, 4), sm=90)
    yield row("fence.proxy.fabric::generic.alias.{acquire,release}.sys", "", "9.7.13.4", ptx=(9, 3), sm=100)
    yield row("fence.alias.sync_restrict::read.release.sys", "", "9.7.13.4", ptx=(9, 5), sm=90)
    yield row(f"fence.proxy.tensormap::generic.release{_SCOPES}", "", "9.7.13.4", ptx=(8, 3), sm=90)
    yield row(f"fence.proxy.tensormap::generic.acquire{_SCOPES}", "a:[any], n:imm(128)", "9.7.13.4", ptx=(8, 3), sm=90)


BARRIER_ROWS = (
    # 9.7.13.1  bar, barrier
    *_barriers(),
    # 9.7.13.2  bar.warp.sync
    row("bar.warp.sync", "a:u32", "9.7.13.2", ptx=(6, 0), sm=30, meaning="bar.warp.sync"),
    # 9.7.13.3  barrier.cluster
    *(
        row(
            f"{name}{{{orders}}}{{.aligned}}",
            "",
            "9.7.13.3",
            (7, 8),
            90,
            name,
            needs=tuple(Need(order[1:], (8, 0), 90) for order in orders.split(",")),
        )
        for name, orders in (("barrier.cluster.arrive", ".release,.relaxed"), ("barrier.cluster.wait", ".acquire"))
    ),
    # 9.7.13.4  membar, fence
    *_fences(),
)


# Barriers in memory. Source: PTX ISA 9.7.13.15.

_HERE = "{.release.cta,.release.cluster}"
_OWN = "{P=.shared,.shared::cta}.b64"
_LAYOUTS = "layout::v0,layout::v1"
_SECTION = "9.7.13.15"


def _form(spelling: str, operands: str, section: str, *, ptx: Version, sm: int) -> PatternRow:
    """A row of mbarrier instructions. Its meaning has the instruction's name, but variants share one meaning, which the
    binding K distinguishes."""
    name = re.split(r"\W+", spelling.replace("K{", ""))[1]
    meaning = {"arrive_drop": "arrive", "try_wait": "test_wait"}.get(name, name)
    return row(spelling, operands, section, ptx=ptx, sm=sm, meaning=f"mbarrier.{meaning}")


def _spaces(head: str, operands: str, section: str, ptx: Version = (7, 0), sm: int = 80) -> tuple[PatternRow, ...]:
    """One row without and one with the `.shared::cta` spelling of the CTA's own shared memory, which has a later
    version."""
    first = _form(f"{head}{{P=.shared}}.b64", operands, section, ptx=ptx, sm=sm)
    later = _form(f"{head}.P{{shared::cta}}.b64", operands, section, ptx=max(ptx, (7, 8)), sm=sm)
    return first, later


_States = tuple[tuple[str, Version], ...]
"""What receives the state that an object had, and since when."""


_COUNT = "u32(1..1048575)"
"""Arrivals that an object can count: 9.7.13.15.4."""


def _arrivals(root: str, section: str, states: _States) -> Iterator[PatternRow]:
    """Rows of `arrive` or `arrive_drop`: in the CTA's own shared memory, where it returns the previous state, and in
    that of another CTA of the cluster."""
    for state, since in states:
        yield from _spaces(root, f"{state}, a:[mbarrier]", section, since)
        yield from _spaces(f"{root}.F{{noComplete}}", f"{state}, a:[mbarrier], n:{_COUNT}", section, since)
    yield from _spaces(root, f"d:b64_, a:[mbarrier], n:{_COUNT}", section, (7, 8), 90)
    counted, optional = (f"d:b64_, a:[mbarrier], {may}n:{_COUNT}" for may in ("", "?"))
    away = ".P{shared::cluster}.b64"
    for words, operands, ptx, sm in (
        (f".F{{noComplete}}.release.cta{_OWN}", counted, (8, 0), 80),
        (f".release.cta{_OWN}", "d:b64_, a:[mbarrier]", (8, 0), 80),
        (f".release.cta{_OWN}", counted, (8, 0), 90),
        (f".release.cluster{_OWN}", optional, (8, 0), 90),
        (f".relaxed.{{cta,cluster}}{_OWN}", optional, (8, 6), 90),
        (f".F{{expect_tx}}{_HERE}{_OWN}", "d:b64_, a:[mbarrier], n:u32", (8, 0), 90),
        (f".F{{expect_tx}}.relaxed.{{cta,cluster}}{_OWN}", "d:b64_, a:[mbarrier], n:u32", (8, 6), 90),
        (f"{_HERE}{away}", f"d:_, a:[mbarrier], ?n:{_COUNT}", (8, 0), 90),
        (f".relaxed.{{cta,cluster}}{away}", f"d:_, a:[mbarrier], ?n:{_COUNT}", (8, 6), 90),
        (f".F{{expect_tx}}{_HERE}{away}", "d:_, a:[mbarrier], n:u32", (8, 0), 90),
        (f".F{{expect_tx}}.relaxed.{{cta,cluster}}{away}", "d:_, a:[mbarrier], n:u32", (8, 6), 90),
    ):
        yield _form(f"{root}{words}", operands, section, ptx=ptx, sm=sm)


def _waits(root: str, hint: str, section: str, ptx: Version, sm: int) -> Iterator[PatternRow]:
    """`test_wait` or `try_wait`, for a state or for the parity of a phase."""
    for name, operand, since in ((root, "s:b64", ptx), (f"{root}.F{{parity}}", "s:u32(0..1)", max(ptx, (7, 1)))):
        operands = f"d:pred, a:[mbarrier], {operand}{hint}"
        yield from _spaces(name, operands, section, since, sm)
        yield _form(f"{name}.acquire.cta{_OWN}", operands, section, ptx=(8, 0), sm=sm)
        yield _form(f"{name}.acquire.cluster{_OWN}", operands, section, ptx=(8, 0), sm=90)
        yield _form(f"{name}.relaxed.{{cta,cluster}}{_OWN}", operands, section, ptx=(8, 6), sm=90)


def _reported_waits(root: str, hint: str) -> Iterator[PatternRow]:
    """Rows of waits with a phase type (PTX 9.3). A wait for the primary phase may report a predicate and a byte."""
    orders = "{.acquire.cta,.acquire.cluster,.relaxed.cta,.relaxed.cluster}"
    head, later = f"mbarrier.{root}", partial(row, section=f"{_SECTION}.16", ptx=(9, 3), sm=90)
    for parity, operand in (("", "s:b64"), (".F{parity}", "s:u32(0..1)")):
        kinds = "primary,conditional" if parity else "primary"
        phases = ",".join(f"phase_type::{kind}" for kind in kinds.split(","))
        operands = f"a:[mbarrier], {operand}{hint}"
        spelling = f"{head}{parity}.{{{phases}}}{orders}{_OWN}"
        yield later(spelling, f"d:pred, {operands}", meaning="mbarrier.test_wait")
        primary = f"{head}{parity}.phase_type::primary{orders}{_OWN}"
        for results in ("d||p_:pred", "d|p_:pred, dr:u8"):
            yield later(primary, f"{results}, {operands}", meaning="mbarrier.reports")


def _signals() -> Iterator[PatternRow]:
    """Arrivals and byte counts at one place of several CTAs. The last operand is a mask of 32 bits."""
    away, mask = "{P=.shared::cluster}.multicast::cluster::32b.b64", "k:b32(0..4294967295)"
    signal = partial(of_rubin, meaning="mbarrier.multicast")
    for root, section in (("arrive", 13), ("arrive_drop", 14)):
        for expected, counts in ((".expect_tx", ("n:u32, ",)), ("", ("", f"n:{_COUNT}, "))):
            for order in (_HERE, ".relaxed.{cta,cluster}"):
                spelling = f"mbarrier.{root}{expected}{order}{away}"
                for count in counts:
                    yield signal(spelling, f"d:_, a:[], {count}{mask}", f"{_SECTION}.{section}")
    spelling = f"mbarrier.{{expect_tx,complete_tx}}{{.relaxed.cta,.relaxed.cluster}}{away}"
    yield signal(spelling, f"a:[], n:u32, {mask}", f"{_SECTION}.11")


MBARRIER_ROWS = (
    # 9.7.13.15.9, .17  Layouts of objects
    _form(f"mbarrier.init.LAYOUT{{{_LAYOUTS}}}{_OWN}", f"a:[mbarrier], n:{_COUNT}", f"{_SECTION}.9", ptx=(9, 3), sm=90),
    _form("mbarrier.pending_count.layout::v0.b64", "d:u32, a:b64", f"{_SECTION}.17", ptx=(9, 3), sm=90),
    row(f"mbarrier.check_layout.{{{_LAYOUTS}}}{_OWN}", "d:pred, a:[mbarrier]", "9.7.14.16.21", (9, 3), 90,
        "mbarrier.reports", text=(9, 3)),
    *_reported_waits("test_wait", ""),
    *_reported_waits("try_wait", ", ?h:u32"),
    *_signals(),
    # 9.7.13.15.9, .10  mbarrier.init, mbarrier.inval
    *_spaces("mbarrier.init", f"a:[mbarrier], n:{_COUNT}", f"{_SECTION}.9"),
    *_spaces("mbarrier.inval", "a:[mbarrier]", f"{_SECTION}.10"),
    # 9.7.13.15.11, .12  mbarrier.expect_tx, mbarrier.complete_tx
    _form(
        "mbarrier.K{expect_tx,complete_tx}{.relaxed.cta,.relaxed.cluster}{P=.shared,.shared::cta,.shared::cluster}.b64",
        "a:[mbarrier], n:u32",
        f"{_SECTION}.11", ptx=(8, 0), sm=90,
    ),
    # 9.7.13.15.13, .14  mbarrier.arrive, mbarrier.arrive_drop
    *_arrivals("mbarrier.K{arrive}", f"{_SECTION}.13", (("d:b64", (7, 0)), ("d:_", (7, 1)))),
    *_arrivals("mbarrier.K{arrive_drop}", f"{_SECTION}.14", (("d:b64_", (7, 0)),)),
    # 9.7.13.15.15  cp.async.mbarrier.arrive
    row("cp.async.mbarrier.arrive{F=.noinc}{P=.shared,.shared::cta}.b64", "a:[P]", f"{_SECTION}.15", (7, 0), 80,
        "cp.async.mbarrier.arrive", needs=(Need("shared::cta", (7, 8), 80),)),
    # 9.7.13.15.16  mbarrier.test_wait, mbarrier.try_wait
    *_waits("mbarrier.test_wait", "", f"{_SECTION}.16", (7, 0), 80),
    *_waits("mbarrier.try_wait", ", ?h:u32", f"{_SECTION}.16", (7, 8), 90),
    # 9.7.13.15.17  mbarrier.pending_count
    _form("mbarrier.pending_count.b64", "d:u32, a:b64", f"{_SECTION}.17", ptx=(7, 0), sm=80),
)  # fmt: skip


# Control flow, votes, and what belongs nowhere else. Source: PTX ISA 9.7.12, 9.7.13, 9.7.19.

_REGISTERS: Specific = (
    ("sm_90a", (8, 0)),
    ("sm_100a", (8, 6)),
    ("sm_120a", (8, 7)),
    ("sm_100f", (8, 8)),
    ("sm_110f", (9, 0)),
    ("sm_120f", (8, 8)),
)
"""The targets whose warps can pass registers on."""

_REDUX: Specific = (("sm_100a", (8, 6)), ("sm_100f", (8, 8)))
"""The targets whose warps reduce floats."""

_WITHOUT_SYNC = ((6, 4), 70)
"""From when on votes and shuffles need `.sync` (9.7.9.5, 9.7.13.8)."""

_CANCEL = "try_cancel.async{P=.shared::cta}.mbarrier::complete_tx::bytes"
_FIRST = ",".join(f"get_first_ctaid::{axis}" for axis in "xyz")

CONTROL_ROWS = (
    # 9.7.12  Control flow
    row("bra{.uni}", "a:label", "9.7.12.3"),
    row("brx.idx{.uni}", "a:u32, b:label", "9.7.12.4", ptx=(6, 0), sm=30),
    row("call{.uni}", "a:...", "9.7.12.5"),
    row("ret{.uni}", "", "9.7.12.6"),
    row("exit", "", "9.7.12.7"),
    # 9.7.13.9 to 9.7.13.14  Votes and reductions in a warp
    row("vote.sync.MODE{all,any,uni}.pred", "d:pred, a:!pred, m:u32", "9.7.13.9", ptx=(6, 0), sm=30),
    row("vote.sync.MODE{ballot}.T{b32}", "d:T, a:!pred, m:u32", "9.7.13.9", ptx=(6, 0), sm=30),
    row("vote.MODE{all,any,uni}.pred", "d:pred, a:!pred", "9.7.13.8", ptx=(1, 2), gone=_WITHOUT_SYNC, meaning="vote"),
    row("vote.MODE{ballot}.T{b32}", "d:T, a:!pred", "9.7.13.8", ptx=(2, 0), sm=20, gone=_WITHOUT_SYNC, meaning="vote"),
    row("match.MODE{any}.sync.T{b32,b64}", "d:b32, a:T, m:u32", "9.7.13.10", ptx=(6, 0), sm=70),
    row("match.MODE{all}.sync.T{b32,b64}", "d|p_:b32_, a:T, m:u32", "9.7.13.10", ptx=(6, 0), sm=70),
    row("activemask.T{b32}", "d:T", "9.7.13.11", ptx=(6, 2), sm=30),
    row("redux.sync.OP{add,min,max}.T{u32,s32}", "d:u32, a:u32, m:u32", "9.7.13.12", ptx=(7, 0), sm=80),
    row("redux.sync.OP{and,or,xor}.T{b32}", "d:b32, a:b32, m:u32", "9.7.13.12", ptx=(7, 0), sm=80),
    row("redux.sync.OP{min,max}{ABS=.abs}{NAN=.NaN}.T{f32}", "d:T, a:T, m:u32", "9.7.13.12", (8, 6), 100, only=_REDUX),
    row("elect.sync", "d||p:b32_, m:u32", "9.7.13.14", ptx=(8, 0), sm=90),
    # 9.7.13.17, .18  clusterlaunchcontrol
    *(
        row(f"clusterlaunchcontrol.{words}.b128", operands, section, (8, 6), 100, meaning, only)
        for words, operands, section, meaning, only in (
            (_CANCEL, "a:[P], m:[P]", "9.7.13.17", "cancel.try", ()),
            (f"{_CANCEL}.C{{multicast::cluster::all}}", "a:[P], m:[P]", "9.7.13.17", "cancel.try", BLACKWELL),
            ("query_cancel.is_canceled.pred", "d:pred, a:b128", "9.7.13.18", "cancel.done", ()),
            ("query_cancel.get_first_ctaid.v4.b32", "d:4*b32, a:b128", "9.7.13.18", "cancel.first", ()),
            (f"query_cancel.A{{{_FIRST}}}.b32", "d:b32, a:b128", "9.7.13.18", "cancel.first", ()),
        )
    ),
    # 9.7.13.13  griddepcontrol
    row("griddepcontrol.{wait,launch_dependents}", "", "9.7.13.13", ptx=(7, 8), sm=90, meaning="hint"),
    # 9.7.19.5  setmaxnreg
    row("setmaxnreg.{inc,dec}.sync.aligned.u32", "n:imm(24..256/8)", "9.7.19.5", ptx=(8, 0), sm=90, only=_REGISTERS),
    # 9.7.19  Miscellaneous
    row("alloca.T{u32,u64}", f"d:T, a:T, ?n:imm({choice([1 << i for i in range(24)])})", "9.7.17.3", ptx=(7, 3), sm=52),
    row("stacksave.T{u32,u64}", "d:T", "9.7.17.1", ptx=(7, 3), sm=52),
    row("stackrestore.T{u32,u64}", "a:T^", "9.7.17.2", ptx=(7, 3), sm=52),
    row("brkpt", "", "9.7.19.1"),
    row("nanosleep.u32", "a:u32", "9.7.19.2", ptx=(6, 3), sm=70, meaning="hint"),
    row("pmevent", "n:imm(0..15)", "9.7.19.3", ptx=(1, 4), meaning="hint"),
    row("pmevent.mask", "n:imm(0..65535)", "9.7.19.3", ptx=(3, 0), sm=20, meaning="hint"),
    row("trap", "", "9.7.19.4"),
    row("trace.mark", "n:imm(0..4095)", "9.7.19", ptx=(9, 5), sm=107, only=(("sm_107f", (9, 5)),), meaning="hint"),
)


# What orders the products of warpgroups, whose rows are in `dialect.isa.wgmma`. Source: PTX ISA 9.7.15.7.


def _of_warpgroups(name: str, operands: str, section: str) -> PatternRow:
    return row(f"{name}.sync.aligned", operands, section, ptx=(8, 0), sm=90, meaning=name, only=SM_90A)


WARPGROUP_ROWS: tuple[PatternRow, ...] = (
    _of_warpgroups("wgmma.fence", "", "9.7.15.7.1"),
    _of_warpgroups("wgmma.commit_group", "", "9.7.15.7.2"),
    _of_warpgroups("wgmma.wait_group", "n:imm(0..9223372036854775807)", "9.7.15.7.3"),
)
