"""Control flow, synchronisation, atomics, votes. Source: PTX ISA 9.7.12, 9.7.13, 9.7.19."""

from __future__ import annotations

from .grammar import row

_SEMANTICS = "{.relaxed,.acquire,.release,.acq_rel}"
_SCOPES = "{.cta,.gpu,.sys}"
_SPACES = "{.global,.shared}"

_WITHOUT_SYNC = ((6, 4), 70)
"""From when on votes and shuffles need `.sync` (9.7.9.5, 9.7.13.8)."""

ROWS = (
    # 9.7.12  Control flow
    row("bra{.uni}", "a:label", "9.7.12.3"),
    row("brx.idx{.uni}", "a:u32, b:label", "9.7.12.4", ptx=(6, 0), sm=30),
    row("call{.uni}", "a:...", "9.7.12.5"),
    row("ret{.uni}", "", "9.7.12.6"),
    row("exit", "", "9.7.12.7"),
    # 9.7.13.1  bar, barrier
    row("bar.sync", "a:u32, ?b:u32", "9.7.13.1"),
    row("bar.arrive", "a:u32, b:u32", "9.7.13.1", ptx=(2, 0), sm=20),
    row("bar.red.popc.u32", "d:u32, a:u32, c:!pred", "9.7.13.1", ptx=(2, 0), sm=20),
    row("bar.red.popc.u32", "d:u32, a:u32, b:u32, c:!pred", "9.7.13.1", ptx=(2, 0), sm=20),
    row("bar.red.{and,or}.pred", "d:pred, a:u32, c:!pred", "9.7.13.1", ptx=(2, 0), sm=20),
    row("bar.red.{and,or}.pred", "d:pred, a:u32, b:u32, c:!pred", "9.7.13.1", ptx=(2, 0), sm=20),
    row("barrier.sync{.aligned}", "a:u32, ?b:u32", "9.7.13.1", ptx=(6, 0), sm=30),
    row("barrier.arrive{.aligned}", "a:u32, b:u32", "9.7.13.1", ptx=(6, 0), sm=30),
    row("bar.cta.sync", "a:u32, ?b:u32", "9.7.13.1", ptx=(7, 8), sm=30),
    row("barrier.cta.sync{.aligned}", "a:u32, ?b:u32", "9.7.13.1", ptx=(7, 8), sm=30),
    # 9.7.13.2  bar.warp.sync
    row("bar.warp.sync", "a:u32", "9.7.13.2", ptx=(6, 0), sm=30),
    # 9.7.13.4  membar, fence
    row("membar.{cta,gl}", "", "9.7.13.4", ptx=(1, 4)),
    row("membar.sys", "", "9.7.13.4", ptx=(2, 0), sm=20),
    row("fence{.sc,.acq_rel}.{cta,gpu,sys}", "", "9.7.13.4", ptx=(6, 0), sm=70),
    row("fence{.sc,.acq_rel}.cluster", "", "9.7.13.4", ptx=(7, 8), sm=90),
    row("fence.proxy.async{.global,.shared::cta,.shared::cluster}", "", "9.7.13.4", ptx=(8, 0), sm=90),
    # 9.7.13.5  atom
    row(f"atom{_SPACES}.{{and,or,xor,exch}}.b32", "d:b32, a:[], b:b32", "9.7.13.5", ptx=(2, 0), sm=20),
    row(f"atom{_SPACES}.{{and,or,xor}}.b64", "d:b64, a:[], b:b64", "9.7.13.5", ptx=(3, 1), sm=32),
    row(f"atom{_SPACES}.exch.b64", "d:b64, a:[], b:b64", "9.7.13.5", ptx=(2, 0), sm=20),
    row(f"atom{_SPACES}.cas.T{{b32,b64}}", "d:T, a:[], b:T, c:T", "9.7.13.5", ptx=(2, 0), sm=20),
    row(f"atom{_SPACES}.cas.b16", "d:b16, a:[], b:b16, c:b16", "9.7.13.5", ptx=(6, 3), sm=70),
    row(f"atom{_SPACES}.add.T{{u32,s32,u64,f32}}", "d:T, a:[], b:T", "9.7.13.5", ptx=(2, 0), sm=20),
    row(f"atom{_SPACES}.add.f64", "d:f64, a:[], b:f64", "9.7.13.5", ptx=(5, 0), sm=60),
    row(f"atom{_SPACES}.add.noftz.f16x2", "d:f16x2, a:[], b:f16x2", "9.7.13.5", ptx=(6, 2), sm=60),
    row(f"atom{_SPACES}.add.noftz.f16", "d:f16, a:[], b:f16", "9.7.13.5", ptx=(6, 3), sm=70),
    row(f"atom{_SPACES}.add.noftz.T{{bf16,bf16x2}}", "d:T, a:[], b:T", "9.7.13.5", ptx=(7, 8), sm=90),
    row(f"atom{_SPACES}.{{inc,dec}}.u32", "d:u32, a:[], b:u32", "9.7.13.5", ptx=(2, 0), sm=20),
    row(f"atom{_SPACES}.{{min,max}}.T{{u32,s32}}", "d:T, a:[], b:T", "9.7.13.5", ptx=(2, 0), sm=20),
    row(f"atom{_SPACES}.{{min,max}}.T{{u64,s64}}", "d:T, a:[], b:T", "9.7.13.5", ptx=(3, 1), sm=32),
    row(
        f"atom{_SEMANTICS}{_SCOPES}{_SPACES}.{{and,or,xor,exch}}.T{{b32,b64}}",
        "d:T, a:[], b:T",
        "9.7.13.5",
        ptx=(6, 0),
        sm=70,
    ),
    row(f"atom{_SEMANTICS}{_SCOPES}{_SPACES}.cas.T{{b32,b64}}", "d:T, a:[], b:T, c:T", "9.7.13.5", ptx=(6, 0), sm=70),
    row(
        f"atom{_SEMANTICS}{_SCOPES}{_SPACES}.add.T{{u32,s32,u64,f32,f64}}",
        "d:T, a:[], b:T",
        "9.7.13.5",
        ptx=(6, 0),
        sm=70,
    ),
    row(
        f"atom{_SEMANTICS}{_SCOPES}{_SPACES}.{{min,max}}.T{{u32,s32,u64,s64}}",
        "d:T, a:[], b:T",
        "9.7.13.5",
        ptx=(6, 0),
        sm=70,
    ),
    row(f"atom{_SEMANTICS}{_SCOPES}{_SPACES}.{{inc,dec}}.u32", "d:u32, a:[], b:u32", "9.7.13.5", ptx=(6, 0), sm=70),
    # 9.7.13.6  red
    row(f"red{_SPACES}.{{and,or,xor}}.b32", "a:[], b:b32", "9.7.13.6", ptx=(1, 2)),
    row(f"red{_SPACES}.{{and,or,xor}}.b64", "a:[], b:b64", "9.7.13.6", ptx=(3, 1), sm=32),
    row(f"red{_SPACES}.add.T{{u32,s32,u64,f32}}", "a:[], b:T", "9.7.13.6", ptx=(2, 0), sm=20),
    row(f"red{_SPACES}.add.f64", "a:[], b:f64", "9.7.13.6", ptx=(5, 0), sm=60),
    row(f"red{_SPACES}.add.noftz.f16x2", "a:[], b:f16x2", "9.7.13.6", ptx=(6, 2), sm=60),
    row(f"red{_SPACES}.{{min,max}}.T{{u32,s32}}", "a:[], b:T", "9.7.13.6", ptx=(2, 0), sm=20),
    row(f"red{_SPACES}.{{inc,dec}}.u32", "a:[], b:u32", "9.7.13.6", ptx=(2, 0), sm=20),
    row(
        f"red{{.relaxed,.release}}{_SCOPES}{_SPACES}.add.T{{u32,s32,u64,f32,f64}}",
        "a:[], b:T",
        "9.7.13.6",
        ptx=(6, 0),
        sm=70,
    ),
    *(
        row(f"{root}.global.add{end}", operands.format(n), section, ptx=(8, 1), sm=90)
        for root, operands, section in (
            ("atom", "d:{0}*T, a:[], b:{0}*T", "9.7.13.5"),
            ("red", "a:[], b:{0}*T", "9.7.13.6"),
        )
        for n in (2, 4)
        for end in (f".v{n}.T{{f32}}", f".noftz.v{n}.T{{f16x2,bf16x2}}")
    ),
    # 9.7.13.9 to 9.7.13.14  Votes and reductions in a warp
    row("vote.sync.MODE{all,any,uni}.pred", "d:pred, a:!pred, m:u32", "9.7.13.9", ptx=(6, 0), sm=30),
    row("vote.sync.MODE{ballot}.b32", "d:b32, a:!pred, m:u32", "9.7.13.9", ptx=(6, 0), sm=30),
    row(
        "vote.MODE{all,any,uni}.pred",
        "d:pred, a:!pred",
        "9.7.13.8",
        ptx=(1, 2),
        gone=_WITHOUT_SYNC,
        meaning="vote",
    ),
    row("vote.MODE{ballot}.b32", "d:b32, a:!pred", "9.7.13.8", ptx=(2, 0), sm=20, gone=_WITHOUT_SYNC, meaning="vote"),
    row("match.any.sync.T{b32,b64}", "d:b32, a:T, m:u32", "9.7.13.10", ptx=(6, 0), sm=70),
    row("match.all.sync.T{b32,b64}", "d|p:b32, a:T, m:u32", "9.7.13.10", ptx=(6, 0), sm=70),
    row("activemask.b32", "d:b32", "9.7.13.11", ptx=(6, 2), sm=30),
    row("redux.sync.OP{add,min,max}.T{u32,s32}", "d:T, a:T, m:u32", "9.7.13.12", ptx=(7, 0), sm=80),
    row("redux.sync.OP{and,or,xor}.T{b32}", "d:T, a:T, m:u32", "9.7.13.12", ptx=(7, 0), sm=80),
    row(
        "redux.sync.OP{min,max}{ABS=.abs}{NAN=.NaN}.T{f32}",
        "d:T, a:T, m:u32",
        "9.7.13.12",
        ptx=(8, 6),
        sm=100,
        only=(("sm_100a", (8, 6)), ("sm_100f", (8, 8))),
    ),
    row("elect.sync", "d||p:b32, m:u32", "9.7.13.14", ptx=(8, 0), sm=90),
    # 9.7.19  Miscellaneous
    row("brkpt", "", "9.7.19.1"),
    row("nanosleep.u32", "a:u32", "9.7.19.2", ptx=(6, 3), sm=70),
    row("pmevent.mask", "n:imm", "9.7.19.3", ptx=(3, 0), sm=20),
    row("pmevent", "n:imm", "9.7.19.3", ptx=(1, 4)),
    row("trap", "", "9.7.19.4"),
)
