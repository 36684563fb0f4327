"""Moves. Source: PTX ISA 9.7.9."""

from __future__ import annotations

from .grammar import pure, row

_MOVES = (
    # 9.7.9.3  mov
    row("mov.T{b16,b32,b64,u16,u32,u64,s16,s32,s64,f32,f64,pred}", "d:T, a:T*", "9.7.9.3"),
    row("mov.T{b128}", "d:T, a:T", "9.7.9.3", meaning="mov.b128", ptx=(8, 3), sm=70),
    # 9.7.9.4  mov, packing and unpacking
    row("mov.T{b16}", "d:b16, a:2*b8", "9.7.9.4", meaning="mov.pack"),
    row("mov.T{b32}", "d:b32, a:2*b16", "9.7.9.4", meaning="mov.pack"),
    row("mov.T{b32}", "d:b32, a:4*b8", "9.7.9.4", meaning="mov.pack"),
    row("mov.T{b64}", "d:b64, a:2*b32", "9.7.9.4", meaning="mov.pack"),
    row("mov.T{b64}", "d:b64, a:4*b16", "9.7.9.4", meaning="mov.pack"),
    row("mov.T{b128}", "d:b128, a:2*b64", "9.7.9.4", meaning="mov.b128", ptx=(8, 3), sm=70),
    row("mov.T{b16}", "d:2*b8, a:b16", "9.7.9.4", meaning="mov.unpack"),
    row("mov.T{b32}", "d:2*b16, a:b32", "9.7.9.4", meaning="mov.unpack"),
    row("mov.T{b32}", "d:4*b8, a:b32", "9.7.9.4", meaning="mov.unpack"),
    row("mov.T{b64}", "d:2*b32, a:b64", "9.7.9.4", meaning="mov.unpack"),
    row("mov.T{b64}", "d:4*b16, a:b64", "9.7.9.4", meaning="mov.unpack"),
    row("mov.T{b128}", "d:2*b64, a:b128", "9.7.9.4", meaning="mov.b128", ptx=(8, 3), sm=70),
)

_SHUFFLES = (
    # 9.7.9.5  shfl
    row(
        "shfl.MODE{up,down,bfly,idx}.b32",
        "d|p_:b32, a:b32, b:u32, c:u32",
        "9.7.9.5",
        ptx=(3, 0),
        sm=30,
        gone=((6, 4), 70),
        meaning="shfl",
    ),
    # 9.7.9.6  shfl.sync
    row("shfl.sync.MODE{up,down,bfly,idx}.b32", "d|p_:b32, a:b32, b:u32, c:u32, m:u32", "9.7.9.6", ptx=(6, 0), sm=30),
)

_PERMUTATIONS = (
    # 9.7.9.7  prmt
    row("prmt.b32{MODE=.f4e,.b4e,.rc8,.ecl,.ecr,.rc16}", "d:b32, a:b32, b:b32, c:b32", "9.7.9.7", ptx=(2, 0), sm=20),
)

ROWS = (*pure(_MOVES), *_SHUFFLES, *pure(_PERMUTATIONS))
