"""Control flow, votes, and what belongs nowhere else. Source: PTX ISA 9.7.12, 9.7.13, 9.7.19."""

from __future__ import annotations

from ...isa.targets import Specific
from .grammar import row

_REGISTERS: Specific = (
    ("sm_90a", (8, 0)),
    ("sm_100a", (8, 6)),
    ("sm_120a", (8, 7)),
    ("sm_100f", (8, 8)),
    ("sm_110f", (9, 0)),
    ("sm_120f", (8, 8)),
)
"""The targets whose warps can pass registers on."""

_WITHOUT_SYNC = ((6, 4), 70)
"""From when on votes and shuffles need `.sync` (9.7.9.5, 9.7.13.8)."""

ROWS = (
    # 9.7.12  Control flow
    row("bra{.uni}", "a:label", "9.7.12.3"),
    row("brx.idx{.uni}", "a:u32, b:label", "9.7.12.4", ptx=(6, 0), sm=30),
    row("call{.uni}", "a:...", "9.7.12.5"),
    row("ret{.uni}", "", "9.7.12.6"),
    row("exit", "", "9.7.12.7"),
    # 9.7.13.9 to 9.7.13.14  Votes and reductions in a warp
    row("vote.sync.MODE{all,any,uni}.pred", "d:pred, a:!pred, m:u32", "9.7.13.9", ptx=(6, 0), sm=30),
    row("vote.sync.MODE{ballot}.T{b32}", "d:T, a:!pred, m:u32", "9.7.13.9", ptx=(6, 0), sm=30),
    row(
        "vote.MODE{all,any,uni}.pred",
        "d:pred, a:!pred",
        "9.7.13.8",
        ptx=(1, 2),
        gone=_WITHOUT_SYNC,
        meaning="vote",
    ),
    row("vote.MODE{ballot}.T{b32}", "d:T, a:!pred", "9.7.13.8", ptx=(2, 0), sm=20, gone=_WITHOUT_SYNC, meaning="vote"),
    row("match.MODE{any}.sync.T{b32,b64}", "d:b32, a:T, m:u32", "9.7.13.10", ptx=(6, 0), sm=70),
    row("match.MODE{all}.sync.T{b32,b64}", "d|p_:b32_, a:T, m:u32", "9.7.13.10", ptx=(6, 0), sm=70),
    row("activemask.T{b32}", "d:T", "9.7.13.11", ptx=(6, 2), sm=30),
    row("redux.sync.OP{add,min,max}.T{u32,s32}", "d:u32, a:u32, m:u32", "9.7.13.12", ptx=(7, 0), sm=80),
    row("redux.sync.OP{and,or,xor}.T{b32}", "d:b32, a:b32, m:u32", "9.7.13.12", ptx=(7, 0), sm=80),
    row(
        "redux.sync.OP{min,max}{ABS=.abs}{NAN=.NaN}.T{f32}",
        "d:T, a:T, m:u32",
        "9.7.13.12",
        ptx=(8, 6),
        sm=100,
        only=(("sm_100a", (8, 6)), ("sm_100f", (8, 8))),
    ),
    row("elect.sync", "d||p:b32_, m:u32", "9.7.13.14", ptx=(8, 0), sm=90),
    # 9.7.13.13  griddepcontrol
    row("griddepcontrol.{wait,launch_dependents}", "", "9.7.13.13", ptx=(7, 8), sm=90, meaning="hint"),
    # 9.7.19.5  setmaxnreg
    row(
        "setmaxnreg.{inc,dec}.sync.aligned.u32",
        "n:imm(24..256/8)",
        "9.7.19.5",
        ptx=(8, 0),
        sm=90,
        only=_REGISTERS,
    ),
    # 9.7.19  Miscellaneous
    row("alloca.T{u32,u64}", "d:T, a:T, ?n:imm", "9.7.17.1", ptx=(7, 3), sm=52),
    row("stacksave.T{u32,u64}", "d:T", "9.7.17.2", ptx=(7, 3), sm=52),
    row("stackrestore.T{u32,u64}", "a:T", "9.7.17.3", ptx=(7, 3), sm=52),
    row("brkpt", "", "9.7.19.1"),
    row("nanosleep.u32", "a:u32", "9.7.19.2", ptx=(6, 3), sm=70, meaning="hint"),
    row("pmevent", "n:imm(0..15)", "9.7.19.3", ptx=(1, 4), meaning="hint"),
    row("pmevent.mask", "n:imm(0..65535)", "9.7.19.3", ptx=(3, 0), sm=20, meaning="hint"),
    row("trap", "", "9.7.19.4"),
)
