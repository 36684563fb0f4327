"""Moves, loads and stores. Source: PTX ISA 9.7.9."""

from __future__ import annotations

from .grammar import row

_MEMORY = "b8,b16,b32,b64,u8,u16,u32,u64,s8,s16,s32,s64,f32,f64"
_SPACES = "{.const,.global,.local,.param,.shared}"
_WRITABLE = "{.global,.local,.param,.shared}"
_SCOPES = "{cta,gpu,sys}"
_V_T = f"{{V=.v2,.v4}}.T{{{_MEMORY}}}"
_EVICTION = "{L1::evict_normal,L1::evict_last,L1::evict_first,L1::no_allocate}"


ROWS = (
    # 9.7.9.3  mov
    row("mov.T{b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64,pred}", "d:T, a:T*", "9.7.9.3"),
    row("mov.T{b128}", "d:T, a:T", "9.7.9.3", ptx=(8, 3), sm=70),
    # 9.7.9.4  mov, packing and unpacking
    row("mov.b16", "d:b16, a:2*b8", "9.7.9.4"),
    row("mov.b32", "d:b32, a:2*b16", "9.7.9.4"),
    row("mov.b32", "d:b32, a:4*b8", "9.7.9.4"),
    row("mov.b64", "d:b64, a:2*b32", "9.7.9.4"),
    row("mov.b64", "d:b64, a:4*b16", "9.7.9.4"),
    row("mov.b128", "d:b128, a:2*b64", "9.7.9.4", ptx=(8, 3), sm=70),
    row("mov.b16", "d:2*b8, a:b16", "9.7.9.4"),
    row("mov.b32", "d:2*b16, a:b32", "9.7.9.4"),
    row("mov.b32", "d:4*b8, a:b32", "9.7.9.4"),
    row("mov.b64", "d:2*b32, a:b64", "9.7.9.4"),
    row("mov.b64", "d:4*b16, a:b64", "9.7.9.4"),
    row("mov.b128", "d:2*b64, a:b128", "9.7.9.4", ptx=(8, 3), sm=70),
    # 9.7.9.5  shfl
    row(
        "shfl.MODE{up,down,bfly,idx}.b32",
        "d|p:b32, a:b32, b:u32, c:u32",
        "9.7.9.5",
        ptx=(3, 0),
        sm=30,
        gone=((6, 4), 70),
        meaning="shfl",
    ),
    # 9.7.9.6  shfl.sync
    row("shfl.sync.MODE{up,down,bfly,idx}.b32", "d|p:b32, a:b32, b:u32, c:u32, m:u32", "9.7.9.6", ptx=(6, 0), sm=30),
    # 9.7.9.7  prmt
    row("prmt.b32{.f4e,.b4e,.rc8,.ecl,.ecr,.rc16}", "d:b32, a:b32, b:b32, c:b32", "9.7.9.7", ptx=(2, 0), sm=20),
    # 9.7.9.8  ld
    row(f"ld{_SPACES}{{.ca,.cg,.cs,.lu,.cv}}{_V_T}", "d:V*T+, a:[]", "9.7.9.8", ptx=(2, 0)),
    row(
        f"ld.weak{_SPACES}{{.ca,.cg,.cs,.lu,.cv}}{_V_T}",
        "d:V*T+, a:[]",
        "9.7.9.8",
        ptx=(6, 0),
        sm=70,
    ),
    row(f"ld.volatile{{.global,.shared}}{_V_T}", "d:V*T+, a:[]", "9.7.9.8", ptx=(2, 0)),
    row(
        f"ld.{{relaxed,acquire}}.{_SCOPES}{{.global,.shared}}{_V_T}",
        "d:V*T+, a:[]",
        "9.7.9.8",
        ptx=(6, 0),
        sm=70,
    ),
    row(f"ld.shared::cta{_V_T}", "d:V*T+, a:[]", "9.7.9.8", ptx=(7, 8), sm=30),
    row(f"ld.shared::cluster{_V_T}", "d:V*T+, a:[]", "9.7.9.8", ptx=(7, 8), sm=90),
    row(f"ld.{{param::entry,param::func}}{_V_T}", "d:V*T+, a:[]", "9.7.9.8", ptx=(8, 3)),
    row(f"ld{{.global}}{{.ca,.cg}}.{{L2::64B,L2::128B}}{_V_T}", "d:V*T+, a:[]", "9.7.9.8", ptx=(7, 4), sm=75),
    row(f"ld{{.global}}{{.ca,.cg}}.L2::256B{_V_T}", "d:V*T+, a:[]", "9.7.9.8", ptx=(7, 4), sm=80),
    # 9.7.9.9  ld.global.nc
    row(f"ld.global{{.ca,.cg,.cs}}.nc{_V_T}", "d:V*T+, a:[]", "9.7.9.9", ptx=(3, 1), sm=32),
    row(f"ld.global.nc.{_EVICTION}{_V_T}", "d:V*T+, a:[]", "9.7.9.9", ptx=(7, 4), sm=70),
    row(f"ld.global.nc.{_EVICTION}.{{L2::64B,L2::128B}}{_V_T}", "d:V*T+, a:[]", "9.7.9.9", ptx=(7, 4), sm=75),
    row(f"ld.global.nc.{_EVICTION}.L2::256B{_V_T}", "d:V*T+, a:[]", "9.7.9.9", ptx=(7, 4), sm=80),
    # 9.7.9.11  st
    row(f"st{_WRITABLE}{{.wb,.cg,.cs,.wt}}{_V_T}", "a:[], b:V*T+", "9.7.9.11", ptx=(2, 0)),
    row(
        f"st.weak{_WRITABLE}{{.wb,.cg,.cs,.wt}}{_V_T}",
        "a:[], b:V*T+",
        "9.7.9.11",
        ptx=(6, 0),
        sm=70,
    ),
    row(f"st.volatile{{.global,.shared}}{_V_T}", "a:[], b:V*T+", "9.7.9.11", ptx=(2, 0)),
    row(
        f"st.{{relaxed,release}}.{_SCOPES}{{.global,.shared}}{_V_T}",
        "a:[], b:V*T+",
        "9.7.9.11",
        ptx=(6, 0),
        sm=70,
    ),
    row(f"st.shared::cta{_V_T}", "a:[], b:V*T+", "9.7.9.11", ptx=(7, 8), sm=30),
    row(f"st.shared::cluster{_V_T}", "a:[], b:V*T+", "9.7.9.11", ptx=(7, 8), sm=90),
    # 9.7.9.15  prefetch
    row("prefetch{.global,.local}.{L1,L2}", "a:[]", "9.7.9.15", ptx=(2, 0), sm=20),
    # 9.7.9.19  isspacep
    row("isspacep.{const,global,local,shared}", "d:pred, a:u64", "9.7.9.19", ptx=(2, 0), sm=20),
    # 9.7.9.20  cvta
    row("cvta.{const,global,local,shared}.T{u32,u64}", "d:T, a:T*", "9.7.9.20", ptx=(2, 0), sm=20),
    row("cvta.to.{const,global,local,shared}.T{u32,u64}", "d:T, a:T", "9.7.9.20", ptx=(2, 0), sm=20),
    row("cvta{.to}.param.T{u32,u64}", "d:T, a:T*", "9.7.9.20", ptx=(7, 7), sm=70),
)
