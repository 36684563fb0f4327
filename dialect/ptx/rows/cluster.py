"""Clusters of CTAs: addresses, barrier, atomics on each other's shared memory. Source: PTX ISA 9.7.9, 9.7.13."""

from __future__ import annotations

from .grammar import row

_AWAY = "{.shared::cluster,.global}"
_ATOM = ".{relaxed,acquire,release,acq_rel}.cluster"

ROWS = (
    # 9.7.9.19, .20  isspacep, cvta
    row("isspacep.shared::cta", "d:pred, a:u64", "9.7.9.19", ptx=(7, 8), sm=30),
    row("isspacep.shared::cluster", "d:pred, a:u64", "9.7.9.19", ptx=(7, 8), sm=90),
    row("cvta.shared::cta.u64", "d:u64, a:u64*", "9.7.9.20", ptx=(7, 8), sm=30),
    row("cvta.to.shared::cta.u64", "d:u64, a:u64", "9.7.9.20", ptx=(7, 8), sm=30),
    row("cvta.shared::cluster.u64", "d:u64, a:u64*", "9.7.9.20", ptx=(7, 8), sm=90),
    row("cvta.to.shared::cluster.u64", "d:u64, a:u64", "9.7.9.20", ptx=(7, 8), sm=90),
    # 9.7.9.23, .24  mapa, getctarank
    row("mapa.shared::cluster.T{u32,u64}", "d:T, a:T*, b:u32", "9.7.9.23", ptx=(7, 8), sm=90),
    row("mapa.u64", "d:u64, a:u64*, b:u32", "9.7.9.23", ptx=(7, 8), sm=90),
    row("getctarank.shared::cluster.T{u32,u64}", "d:u32, a:T*", "9.7.9.24", ptx=(7, 8), sm=90),
    row("getctarank.u64", "d:u32, a:u64*", "9.7.9.24", ptx=(7, 8), sm=90),
    # 9.7.13.3  barrier.cluster
    row("barrier.cluster.arrive{.aligned}", "", "9.7.13.3", ptx=(7, 8), sm=90),
    row("barrier.cluster.wait{.aligned}", "", "9.7.13.3", ptx=(7, 8), sm=90),
    row("barrier.cluster.arrive.{release,relaxed}{.aligned}", "", "9.7.13.3", ptx=(8, 0), sm=90),
    row("barrier.cluster.wait.acquire{.aligned}", "", "9.7.13.3", ptx=(8, 0), sm=90),
    # 9.7.13.5, .6  atom, red
    row("atom.shared::cluster.{and,or,xor,exch}.T{b32,b64}", "d:T, a:[], b:T", "9.7.13.5", ptx=(7, 8), sm=90),
    row("atom.shared::cluster.cas.T{b32,b64}", "d:T, a:[], b:T, c:T", "9.7.13.5", ptx=(7, 8), sm=90),
    row("atom.shared::cluster.add.T{u32,s32,u64,f32,f64}", "d:T, a:[], b:T", "9.7.13.5", ptx=(7, 8), sm=90),
    row("atom.shared::cluster.{min,max}.T{u32,s32,u64,s64}", "d:T, a:[], b:T", "9.7.13.5", ptx=(7, 8), sm=90),
    row("atom.shared::cluster.{inc,dec}.u32", "d:u32, a:[], b:u32", "9.7.13.5", ptx=(7, 8), sm=90),
    row(f"atom{_ATOM}{_AWAY}.{{and,or,xor,exch}}.T{{b32,b64}}", "d:T, a:[], b:T", "9.7.13.5", ptx=(7, 8), sm=90),
    row(f"atom{_ATOM}{_AWAY}.cas.T{{b32,b64}}", "d:T, a:[], b:T, c:T", "9.7.13.5", ptx=(7, 8), sm=90),
    row(f"atom{_ATOM}{_AWAY}.add.T{{u32,s32,u64,f32,f64}}", "d:T, a:[], b:T", "9.7.13.5", ptx=(7, 8), sm=90),
    row("red.shared::cluster.{and,or,xor}.T{b32,b64}", "a:[], b:T", "9.7.13.6", ptx=(7, 8), sm=90),
    row("red.shared::cluster.add.T{u32,s32,u64,f32,f64}", "a:[], b:T", "9.7.13.6", ptx=(7, 8), sm=90),
    row("red.shared::cluster.{min,max}.T{u32,s32,u64,s64}", "a:[], b:T", "9.7.13.6", ptx=(7, 8), sm=90),
    row("red.shared::cluster.{inc,dec}.u32", "a:[], b:u32", "9.7.13.6", ptx=(7, 8), sm=90),
    row(
        "red.{relaxed,release}.cluster{.shared::cluster,.global}.add.T{u32,s32,u64,f32,f64}",
        "a:[], b:T",
        "9.7.13.6",
        ptx=(7, 8),
        sm=90,
    ),
    # 9.7.9.8, .11  ld, st at the scope of a cluster
    row(
        "ld.{relaxed,acquire}.cluster{.global,.shared,.shared::cta,.shared::cluster}{V=.v2,.v4}"
        ".T{b8,b16,b32,b64,u8,u16,u32,u64,s8,s16,s32,s64,f32,f64}",
        "d:V*T+, a:[]",
        "9.7.9.8",
        ptx=(7, 8),
        sm=90,
    ),
    row(
        "st.{relaxed,release}.cluster{.global,.shared,.shared::cta,.shared::cluster}{V=.v2,.v4}"
        ".T{b8,b16,b32,b64,u8,u16,u32,u64,s8,s16,s32,s64,f32,f64}",
        "a:[], b:V*T+",
        "9.7.9.11",
        ptx=(7, 8),
        sm=90,
    ),
    # 9.7.13.13  griddepcontrol
    row("griddepcontrol.{wait,launch_dependents}", "", "9.7.13.13", ptx=(7, 8), sm=90),
)
