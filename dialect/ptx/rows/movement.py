"""Moves. Source: PTX ISA 9.7.9."""

from __future__ import annotations

from .grammar import pure, row

_MOVES = (
    # 9.7.9.3  mov
    row("mov.T{b16,b32,b64,u16,u32,u64,s16,s32,s64}", "d:T, a:T*%", "9.7.9.3"),
    row("mov.T{f32,f64}", "d:T, a:T", "9.7.9.3"),
    row("mov.T{pred}", "d:T, a:T%", "9.7.9.3"),
    row("mov.V{v2,v4}.T{b16,b32,u16,u32,s16,s32}", "d:V*T, a:V*T%", "9.7.9.3", meaning="mov.vector"),
    row("mov.V{v2,v4}.T{f32}", "d:V*T, a:V*T", "9.7.9.3", meaning="mov.vector"),
    row("mov.V{v2}.T{b64,u64,s64,f64}", "d:V*T, a:V*T", "9.7.9.3", meaning="mov.vector"),
    row("mov.T{b128}", "d:T, a:T", "9.7.9.3", meaning="mov.b128", ptx=(8, 3), sm=70),
    # 9.7.9.4  mov, packing and unpacking
    row("mov.T{b16}", "d:T, a:2*b8%", "9.7.9.4", meaning="mov.pack"),
    row("mov.T{b32}", "d:T, a:2*b16%", "9.7.9.4", meaning="mov.pack"),
    row("mov.T{b32}", "d:T, a:4*b8%", "9.7.9.4", meaning="mov.pack"),
    row("mov.T{b64}", "d:T, a:2*b32%", "9.7.9.4", meaning="mov.pack"),
    row("mov.T{b64}", "d:T, a:4*b16%", "9.7.9.4", meaning="mov.pack"),
    row("mov.T{b128}", "d:b128, a:2*b64", "9.7.9.4", meaning="mov.b128", ptx=(8, 3), sm=70),
    row("mov.T{b16}", "d:2*b8, a:T%", "9.7.9.4", meaning="mov.unpack"),
    row("mov.T{b32}", "d:2*b16, a:T%", "9.7.9.4", meaning="mov.unpack"),
    row("mov.T{b32}", "d:4*b8, a:T%", "9.7.9.4", meaning="mov.unpack"),
    row("mov.T{b64}", "d:2*b32, a:T%", "9.7.9.4", meaning="mov.unpack"),
    row("mov.T{b64}", "d:4*b16, a:T%", "9.7.9.4", meaning="mov.unpack"),
    row("mov.T{b128}", "d:2*b64, a:b128", "9.7.9.4", meaning="mov.b128", ptx=(8, 3), sm=70),
)

_SHUFFLES = (
    # 9.7.9.5  shfl
    row(
        "shfl.MODE{up,down,bfly,idx}.T{b32}",
        "d|p_:T, a:T, b:T, c:T",
        "9.7.9.5",
        ptx=(3, 0),
        sm=30,
        gone=((6, 4), 70),
        meaning="shfl",
    ),
    # 9.7.9.6  shfl.sync
    row("shfl.sync.MODE{up,down,bfly,idx}.T{b32}", "d|p_:T, a:T, b:T, c:T, m:u32", "9.7.9.6", ptx=(6, 0), sm=30),
)

_PERMUTATIONS = (
    # 9.7.9.7  prmt
    row("prmt.T{b32}{MODE=.f4e,.b4e,.rc8,.ecl,.ecr,.rc16}", "d:T, a:T, b:T, c:T", "9.7.9.7", ptx=(2, 0), sm=20),
)

ROWS = (*pure(_MOVES), *_SHUFFLES, *pure(_PERMUTATIONS))
