"""Integer arithmetic, logic and shifts. Source: PTX ISA 9.7.1, 9.7.2, 9.7.8."""

from __future__ import annotations

from .grammar import pure, row

_UNTOLD = "carry.untold"
"""The meaning of what ptxas takes and the text does not have."""

_ARITHMETIC = (
    # 9.7.1  Integer arithmetic
    row("add.T{u16,u32,u64,s16,s32,s64}", "d:T, a:T, b:T", "9.7.1.1"),
    row("add.SAT{sat}.T{s32}", "d:T, a:T, b:T", "9.7.1.1"),
    row("add.T{u16x2,s16x2}", "d:T, a:T, b:T", "9.7.1.1", ptx=(8, 0), sm=90),
    row("sub.T{u16,u32,u64,s16,s32,s64}", "d:T, a:T, b:T", "9.7.1.2"),
    row("sub.SAT{sat}.T{s32}", "d:T, a:T, b:T", "9.7.1.2"),
    row("mul.PART{lo,hi}.T{u16,u32,u64,s16,s32,s64}", "d:T, a:T, b:T", "9.7.1.3"),
    row("mul.PART{wide}.T{u16,u32,s16,s32}", "d:2T, a:T, b:T", "9.7.1.3"),
    row("mad.PART{lo,hi}.T{u16,u32,u64,s16,s32,s64}", "d:T, a:T, b:T, c:T", "9.7.1.4"),
    row("mad.PART{wide}.T{u16,u32,s16,s32}", "d:2T, a:T, b:T, c:2T", "9.7.1.4"),
    row("mad.PART{hi}.SAT{sat}.T{s32}", "d:T, a:T, b:T, c:T", "9.7.1.4"),
    row("mul24.PART{lo,hi}.T{u32,s32}", "d:T, a:T, b:T", "9.7.1.5"),
    row("mad24.PART{lo,hi}.T{u32,s32}", "d:T, a:T, b:T, c:T", "9.7.1.6"),
    row("mad24.PART{hi}.SAT{sat}.T{s32}", "d:T, a:T, b:T, c:T", "9.7.1.6"),
    row("sad.T{u16,u32,u64,s16,s32,s64}", "d:T, a:T, b:T, c:T", "9.7.1.7"),
    row("div.T{u16,u32,u64,s16,s32,s64}", "d:T, a:T, b:T", "9.7.1.8"),
    row("rem.T{u16,u32,u64,s16,s32,s64}", "d:T, a:T, b:T", "9.7.1.9"),
    row("abs.T{s16,s32,s64}", "d:T, a:T", "9.7.1.10"),
    row("neg.T{s16,s32,s64}", "d:T, a:T", "9.7.1.11"),
    row("min.T{u16,u32,u64,s16,s32,s64}", "d:T, a:T, b:T", "9.7.1.12"),
    row("min.T{u16x2,s16x2}", "d:T, a:T, b:T", "9.7.1.12", ptx=(8, 0), sm=90),
    row("min.RELU{relu}.T{s16x2,s32}", "d:T, a:T, b:T", "9.7.1.12", ptx=(8, 0), sm=90),
    row("max.T{u16,u32,u64,s16,s32,s64}", "d:T, a:T, b:T", "9.7.1.13"),
    row("max.T{u16x2,s16x2}", "d:T, a:T, b:T", "9.7.1.13", ptx=(8, 0), sm=90),
    row("max.RELU{relu}.T{s16x2,s32}", "d:T, a:T, b:T", "9.7.1.13", ptx=(8, 0), sm=90),
    row("popc.T{b32,b64}", "d:u32, a:T", "9.7.1.14", ptx=(2, 0), sm=20),
    row("clz.T{b32,b64}", "d:u32, a:T", "9.7.1.15", ptx=(2, 0), sm=20),
    row("bfind{SHIFT=.shiftamt}.T{u32,u64,s32,s64}", "d:u32, a:T", "9.7.1.16", ptx=(2, 0), sm=20),
    row("fns.T{b32}", "d:T, a:T, b:T, c:T", "9.7.1.17", ptx=(6, 0), sm=30),
    row("brev.T{b32,b64}", "d:T, a:T", "9.7.1.18", ptx=(2, 0), sm=20),
    row("bfe.T{u32,u64,s32,s64}", "d:T, a:T, b:u32(0..255), c:u32(0..255)", "9.7.1.19", ptx=(2, 0), sm=20),
    row("bfi.T{b32,b64}", "d:T, a:T, b:T, c:u32(0..255), n:u32(0..255)", "9.7.1.20", ptx=(2, 0), sm=20),
    row("bmsk.RANGE{clamp,wrap}.b32", "d:b32, a:u32, b:u32", "9.7.1.22", ptx=(7, 6), sm=70),
    row("szext.RANGE{clamp,wrap}.T{u32,s32}", "d:T, a:T, b:u32", "9.7.1.21", ptx=(7, 6), sm=70),
    row("dp2a.HALF{lo,hi}.A{u32,s32}.B{u32,s32}", "d:s32, a:A, b:B, c:s32", "9.7.1.24", ptx=(5, 0), sm=61),
    row("dp4a.A{u32,s32}.B{u32,s32}", "d:s32, a:A, b:B, c:s32", "9.7.1.23", ptx=(5, 0), sm=61),
)

_CARRY = (
    # 9.7.2  Extended-precision integer arithmetic
    row("add.CC{cc}.T{u32,s32}", "d:T, a:T, b:T", "9.7.2.1", ptx=(1, 2), meaning="add.cc"),
    row("add.CC{cc}.T{u64,s64}", "d:T, a:T, b:T", "9.7.2.1", ptx=(4, 3), meaning="add.cc"),
    row("addc{CC=.cc}.T{u32,s32}", "d:T, a:T, b:T", "9.7.2.2", ptx=(1, 2)),
    row("addc{CC=.cc}.T{u64,s64}", "d:T, a:T, b:T", "9.7.2.2", ptx=(4, 3)),
    # Taken by ptxas 13.0.88, and not in the text.
    row("addc.T{u16,s16}", "d:T, a:T, b:T", "9.7.2.2", ptx=(1, 2), meaning=_UNTOLD),
    row("addc.sat.s32", "d:s32, a:s32, b:s32", "9.7.2.2", ptx=(1, 2), meaning=_UNTOLD),
    row("sub.CC{cc}.T{u32,s32}", "d:T, a:T, b:T", "9.7.2.3", ptx=(3, 0), meaning="sub.cc"),
    row("sub.CC{cc}.T{u64,s64}", "d:T, a:T, b:T", "9.7.2.3", ptx=(4, 3), meaning="sub.cc"),
    row("subc{CC=.cc}.T{u32,s32}", "d:T, a:T, b:T", "9.7.2.4", ptx=(3, 0)),
    row("subc{CC=.cc}.T{u64,s64}", "d:T, a:T, b:T", "9.7.2.4", ptx=(4, 3)),
    row("subc.T{u16,s16}", "d:T, a:T, b:T", "9.7.2.4", ptx=(3, 0), meaning=_UNTOLD),
    row("subc.sat.s32", "d:s32, a:s32, b:s32", "9.7.2.4", ptx=(3, 0), meaning=_UNTOLD),
    row("mad.PART{lo,hi}.CC{cc}.T{u32,s32}", "d:T, a:T, b:T, c:T", "9.7.2.5", ptx=(3, 0), sm=20, meaning="mad.cc"),
    row("mad.PART{lo,hi}.CC{cc}.T{u64,s64}", "d:T, a:T, b:T, c:T", "9.7.2.5", ptx=(4, 3), sm=20, meaning="mad.cc"),
    row("madc.PART{lo,hi}{CC=.cc}.T{u32,s32}", "d:T, a:T, b:T, c:T", "9.7.2.6", ptx=(3, 0), sm=20),
    row("madc.PART{lo,hi}{CC=.cc}.T{u64,s64}", "d:T, a:T, b:T, c:T", "9.7.2.6", ptx=(4, 3), sm=20),
    row("madc.PART{lo,hi}.T{u16,s16}", "d:T, a:T, b:T, c:T", "9.7.2.6", ptx=(3, 0), sm=20, meaning=_UNTOLD),
    row("madc.PART{hi}.sat.s32", "d:s32, a:s32, b:s32, c:s32", "9.7.2.6", ptx=(3, 0), sm=20, meaning=_UNTOLD),
)

_LOGIC = (
    # 9.7.8  Logic and shift
    row("and.T{b16,b32,b64,pred}", "d:T, a:T, b:T", "9.7.8.1"),
    row("or.T{b16,b32,b64,pred}", "d:T, a:T, b:T", "9.7.8.2"),
    row("xor.T{b16,b32,b64,pred}", "d:T, a:T, b:T", "9.7.8.3"),
    row("not.T{b16,b32,b64,pred}", "d:T, a:T", "9.7.8.4"),
    row("cnot.T{b16,b32,b64}", "d:T, a:T", "9.7.8.5"),
    row("lop3.T{b32}", "d:T_, a:T, b:T, c:T, n:imm", "9.7.8.6", ptx=(4, 3), sm=50),
    row("lop3.OP{and,or}.T{b32}", "d||p:T_, a:T, b:T, c:T, n:imm, q:!pred", "9.7.8.6", ptx=(8, 2), sm=70),
    row("shf.TO{l,r}.RANGE{clamp,wrap}.T{b32}", "d:T, a:T, b:T, c:u32", "9.7.8.7", ptx=(3, 1), sm=32),
    row("shl.T{b16,b32,b64}", "d:T, a:T, b:u32", "9.7.8.8"),
    row("shr.T{b16,b32,b64,u16,u32,u64,s16,s32,s64}", "d:T, a:T, b:u32", "9.7.8.9"),
)

ROWS = (*pure(_ARITHMETIC), *_CARRY, *pure(_LOGIC))
