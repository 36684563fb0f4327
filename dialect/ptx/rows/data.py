"""Rows of moves, loads, stores and addresses. Source: PTX ISA 9.7.9."""

from __future__ import annotations

from collections.abc import Iterator

from ...isa.row import Version
from .grammar import Need, Needs, PatternRow, pure, row

# Moves. Source: PTX ISA 9.7.9.

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
    row("mov.T{b128}", "d:b128, a:4*b32%", "9.7.9.4", meaning="mov.b128", ptx=(8, 3), sm=70),
    row("mov.T{b16}", "d:2*b8, a:T%", "9.7.9.4", meaning="mov.unpack"),
    row("mov.T{b32}", "d:2*b16, a:T%", "9.7.9.4", meaning="mov.unpack"),
    row("mov.T{b32}", "d:4*b8, a:T%", "9.7.9.4", meaning="mov.unpack"),
    row("mov.T{b64}", "d:2*b32, a:T%", "9.7.9.4", meaning="mov.unpack"),
    row("mov.T{b64}", "d:4*b16, a:T%", "9.7.9.4", meaning="mov.unpack"),
    row("mov.T{b128}", "d:2*b64, a:b128", "9.7.9.4", meaning="mov.b128", ptx=(8, 3), sm=70),
    row("mov.T{b128}", "d:4*b32, a:b128", "9.7.9.4", meaning="mov.b128", ptx=(8, 3), sm=70),
)

_SHUFFLES = (
    # 9.7.9.5  shfl
    row(
        "shfl.MODE{up,down,bfly,idx}.T{b32}", "d|p_:T, a:T, b:T, c:T", "9.7.9.5", (3, 0), 30, "shfl", gone=((6, 4), 70)
    ),
    # 9.7.9.6  shfl.sync
    row("shfl.sync.MODE{up,down,bfly,idx}.T{b32}", "d|p_:T, a:T, b:T, c:T, m:u32", "9.7.9.6", ptx=(6, 0), sm=30),
)

_PERMUTATIONS = (
    # 9.7.9.7  prmt
    row("prmt.T{b32}{MODE=.f4e,.b4e,.rc8,.ecl,.ecr,.rc16}", "d:T, a:T, b:T, c:T", "9.7.9.7", ptx=(2, 0), sm=20),
)

MOVE_ROWS = (*pure(_MOVES), *_SHUFFLES, *pure(_PERMUTATIONS))


# Loads, stores, hints, and addresses of state spaces. Source: PTX ISA 9.7.9.8 to 9.7.9.24.

_SHARED = ".P{shared,shared::cta,shared::cluster}"
_WRITABLE = ".P{local,param,param::func,shared,shared::cta,shared::cluster}"
_READABLE = ".P{local,param::func,shared,shared::cta,shared::cluster}"
_CONSTANT = ".P{const,param,param::entry}"
"""What no thread writes while a kernel runs; code that calls functions writes `.param` too, and is not emitted."""
_SCOPES = ".{cta,cluster,gpu,sys}"
_EVICTIONS = "L1::evict_normal,L1::evict_unchanged,L1::evict_first,L1::evict_last,L1::no_allocate"
_L1 = "{" + ",".join(f".{word}" for word in _EVICTIONS.split(",")) + "}"
_L2 = "{.L2::evict_normal,.L2::evict_first,.L2::evict_last}"
_PREFETCH = "{.L2::64B,.L2::128B,.L2::256B}"
_TYPES = ("{V=.v2,.v4}.T{b8,b16,b32,u8,u16,u32,s8,s16,s32,f32}", "{V=.v2}.T{b64,u64,s64,f64}", ".T{b128}")
"""One access has at most 128 bits."""

_WIDE_TYPES = (".V{v8}.T{b32,u32,s32,f32}", ".V{v4}.T{b64,u64,s64,f64}")
"""Those of 256 bits."""

HINT = "{H=.L2::cache_hint}"
"""What lets a cache policy follow, bound as `H`."""
HINTED = Need("L2::cache_hint", (7, 4), 80)
"""Since when there are cache policies."""
SHARED_WINDOWS: Needs = (Need("shared::cta", (7, 8), 30), Need("shared::cluster", (7, 8), 90))
"""Since when shared memory has two windows."""

LATER = (
    *(Need(word, (6, 0), 70) for word in ("weak", "relaxed", "acquire", "release")),
    Need("cluster", (7, 8), 90),
    *SHARED_WINDOWS,
    *(Need(f"param::{word}", (8, 3), 0) for word in ("entry", "func")),
    *(Need(word, (7, 4), 70) for word in _EVICTIONS.split(",")),
    *(Need(f"L2::{size}", (7, 4), sm) for size, sm in (("64B", 75), ("128B", 75), ("256B", 80))),
    HINTED,
    Need("b128", (8, 3), 70),
    Need("sys b128", (8, 4), 70),
    Need("volatile local", (9, 1), 0),
)
"""Qualifiers that came after PTX 2.0."""


def _typed(
    words: str, section: str, types: tuple[str, ...] = _TYPES, ptx: Version = (2, 0), sm: int = 0
) -> Iterator[PatternRow]:
    """A load or a store of each class of types."""
    meaning = "st" if words.startswith("st") else "ld"
    hint = ", H?c:b64" if HINT in words else ""
    for type in types:
        vector = "V*" if "V" in type else ""
        sinks = "_" if types is _WIDE_TYPES else ""
        operands = f"a:[], b:{vector}T+{sinks}" if meaning == "st" else f"d:{vector}T+, a:[]"
        yield row(f"{words}{type}", operands + hint, section, ptx=ptx, sm=sm, meaning=meaning, needs=LATER)


def _accesses(root: str, section: str) -> Iterator[PatternRow]:
    """`ld` or `st`: plain, with a cache operation or an eviction priority, volatile, and ordered."""
    load = root == "ld"
    operations = "{.ca,.cg,.cs,.lu,.cv}" if load else "{.wb,.cg,.cs,.wt}"
    order = ".{relaxed,acquire}" if load else ".{relaxed,release}"
    prefetch = "{.L2::64B,.L2::128B,.L2::256B}" if load else ""
    if load:
        yield from pure(_typed(f"ld{{.weak}}{_CONSTANT}{operations}", section))
    yield from _typed(f"{root}{{.weak}}{_READABLE if load else _WRITABLE}{operations}", section)
    yield from _typed(f"{root}.volatile{_SHARED.replace('{', '{local,')}", section)
    yield from _typed(f"{root}{order}{_SCOPES}{_SHARED}", section)
    for types, priority, ptx, sm in ((_TYPES, "", (2, 0), 0), (_WIDE_TYPES, _L2, (8, 8), 100)):
        hints = f"{priority}{HINT}{prefetch}"
        for words in (
            f"{{.weak}}{{P=.global}}{operations}{hints}",
            f"{{.weak}}{{P=.global}}.{{{_EVICTIONS}}}{hints}",
            f".volatile{{P=.global}}{priority}{prefetch}",
            f"{order}{_SCOPES}{{P=.global}}{_L1}{hints}",
        ):
            yield from _typed(root + words, section, types, ptx, sm)


def _constant_loads() -> Iterator[PatternRow]:
    """`ld.global.nc`: loads from memory that is constant during the kernel."""
    for types, priority, ptx, sm in ((_TYPES, "", (3, 1), 32), (_WIDE_TYPES, _L2, (8, 8), 100)):
        for words in ("{.ca,.cg,.cs}", f".{{{_EVICTIONS}}}"):
            hints = f"{priority}{HINT}{{.L2::64B,.L2::128B,.L2::256B}}"
            yield from _typed(f"ld.P{{global}}{words}.nc{hints}", "9.7.9.9", types, ptx, sm)


def _unchanging_loads() -> Iterator[PatternRow]:
    """`ld.proxy::readonly`: of what a kernel before this one wrote. Source: PTX ISA 9.4, 9.7.10.8."""
    for types, priority, sm in ((_TYPES[:2], "", 90), (_WIDE_TYPES, _L2, 100)):
        for words in ("{P=.global}", ".P{global}.nc"):
            yield from _typed(f"ld{words}.proxy::readonly{priority}", "9.7.9.8", types, (9, 4), sm)


_DEVICE = "{P=.global}.T{b8,b16,b32,b64,b128,u8,u16,u32,u64,s8,s16,s32,s64,f32,f64}"
_POLICIES = "L2::evict_last,L2::evict_normal,L2::evict_first,L2::evict_unchanged"
_SECOND = "{.L2::evict_unchanged,.L2::evict_first}"
_WINDOWS = "const,global,local,param,param::entry,shared,shared::cta,shared::cluster"

ADDRESSES = (*SHARED_WINDOWS, Need("param", (7, 7), 70), Need("param::entry", (8, 3), 70))

_ACCESSES = (
    # 9.7.9.8  ld
    *_accesses("ld", "9.7.9.8"),
    row(f"ld.mmio.relaxed.sys{_DEVICE}", "d:T+, a:[]", "9.7.9.8", ptx=(8, 2), sm=70, needs=LATER, meaning="ld"),
    row(f"ld.mmio.acquire.sys{_DEVICE}", "d:T+, a:[]", "9.7.9.8", ptx=(9, 3), sm=70, needs=LATER, meaning="ld"),
    *_unchanging_loads(),
    # 9.7.9.9  ld.global.nc
    *_constant_loads(),
    # 9.7.9.10  ldu
    *_typed("ldu{P=.global}", "9.7.9.10"),
    # 9.7.9.11  st
    *_accesses("st", "9.7.9.11"),
    row(f"st.mmio.relaxed.sys{_DEVICE}", "a:[], b:T+", "9.7.9.11", ptx=(8, 2), sm=70, needs=LATER),
    row(f"st.mmio.release.sys{_DEVICE}", "a:[], b:T+", "9.7.9.11", ptx=(9, 3), sm=70, needs=LATER),
    # 9.7.9.15  prefetch, prefetchu
    row("prefetch{P=.global}.L1::32B.valid_addr", "a:[]", "9.7.9.15", ptx=(9, 4), sm=90, meaning="hint"),
    row("prefetch{P=.global,.local}.{L1,L2}", "a:[]", "9.7.9.15", ptx=(2, 0), sm=20, meaning="hint"),
    row("prefetch{P=.global}.{L2::evict_last,L2::evict_normal}", "a:[]", "9.7.9.15", ptx=(7, 4), sm=80, meaning="hint"),
    row("prefetch{P=.const,.param}.tensormap", "a:[P]", "9.7.9.15", ptx=(8, 0), sm=90, meaning="hint"),
    row("prefetchu.L1", "a:[unified]", "9.7.9.15", ptx=(2, 0), sm=20, meaning="hint"),
    # 9.7.9.16, .17  applypriority, discard
    row("applypriority{P=.global}.L2::evict_normal", "a:[], n:imm(128)", "9.7.9.16", ptx=(7, 4), sm=80, meaning="hint"),
    row("discard{P=.global}.L2", "a:[], n:imm(128)", "9.7.9.17", ptx=(7, 4), sm=80, meaning="hint"),
    # 9.7.9.18  createpolicy
    *(
        row(f"createpolicy.{words}.{{{_POLICIES}}}{_SECOND}.b64", operands, "9.7.9.18", ptx=(7, 4), sm=80)
        for words, operands in (
            ("fractional", "d:b64, ?a:f32(0<..1)"),
            ("range{P=.global}", "d:b64, a:[P], n:u32, m:u32"),
        )
    ),
    row("createpolicy.cvt.L2.b64", "d:b64, a:b64", "9.7.9.18", ptx=(7, 4), sm=80),
)

_ADDRESSES = (
    # 9.7.9.19  isspacep
    *(
        row(f"isspacep.P{{{_WINDOWS}}}", f"d:pred, a:{type}", "9.7.9.19", ptx=(2, 0), sm=20, needs=ADDRESSES)
        for type in ("u64", "u32")
    ),
    # 9.7.9.20  cvta
    row(f"cvta.P{{{_WINDOWS}}}.T{{u32,u64}}", "d:T&, a:T*", "9.7.9.20", (2, 0), 20, needs=ADDRESSES),
    row(f"cvta.to.P{{{_WINDOWS}}}.T{{u32,u64}}", "d:T&, a:T", "9.7.9.20", (2, 0), 20, "cvta.to", needs=ADDRESSES),
    # 9.7.9.23, .24  mapa, getctarank
    row("mapa{P=.shared::cluster}.T{u32,u64,s32}", "d:T, a:T*, b:u32", "9.7.9.23", ptx=(7, 8), sm=90),
    row("getctarank{P=.shared::cluster}.T{u32,u64,s32}", "d:u32, a:T*", "9.7.9.24", ptx=(7, 8), sm=90),
)

MEMORY_ROWS = (*_ACCESSES, *pure(_ADDRESSES))
