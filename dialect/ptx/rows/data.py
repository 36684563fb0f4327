"""Rows of moves, loads, stores, addresses and conversions. Source: PTX ISA 9.7.9."""

from __future__ import annotations

from collections.abc import Iterator

from ...isa.targets import Specific, Version
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
_TYPES = (
    "{V=.v2,.v4}.T{b8,b16,b32,u8,u16,u32,s8,s16,s32,f32}",
    "{V=.v2}.T{b64,u64,s64,f64}",
    ".T{b128}",
)
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
    yield from _typed(f"{root}.volatile{_SHARED}", section)
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
    """`ld.global.nc`: of what nobody writes."""
    for types, priority, ptx, sm in ((_TYPES, "", (3, 1), 32), (_WIDE_TYPES, _L2, (8, 8), 100)):
        for words in ("{.ca,.cg,.cs}", f".{{{_EVICTIONS}}}"):
            hints = f"{priority}{HINT}{{.L2::64B,.L2::128B,.L2::256B}}"
            yield from _typed(f"ld.P{{global}}{words}.nc{hints}", "9.7.9.9", types, ptx, sm)


_DEVICE = "{P=.global}.T{b8,b16,b32,b64,u8,u16,u32,u64,s8,s16,s32,s64,f32,f64}"
_POLICIES = "L2::evict_last,L2::evict_normal,L2::evict_first,L2::evict_unchanged"
_SECOND = "{.L2::evict_unchanged,.L2::evict_first}"
_WINDOWS = "const,global,local,param,param::entry,shared,shared::cta,shared::cluster"

ADDRESSES = (
    *SHARED_WINDOWS,
    Need("param", (7, 7), 70),
    Need("param::entry", (8, 3), 70),
)

_ACCESSES = (
    # 9.7.9.8  ld
    *_accesses("ld", "9.7.9.8"),
    row(f"ld.mmio.relaxed.sys{_DEVICE}", "d:T+, a:[]", "9.7.9.8", ptx=(8, 2), sm=70, meaning="ld"),
    # 9.7.9.9  ld.global.nc
    *_constant_loads(),
    # 9.7.9.10  ldu
    *_typed("ldu{P=.global}", "9.7.9.10"),
    # 9.7.9.11  st
    *_accesses("st", "9.7.9.11"),
    row(f"st.mmio.relaxed.sys{_DEVICE}", "a:[], b:T+", "9.7.9.11", ptx=(8, 2), sm=70),
    # 9.7.9.15  prefetch, prefetchu
    row("prefetch{P=.global,.local}.{L1,L2}", "a:[]", "9.7.9.15", ptx=(2, 0), sm=20, meaning="hint"),
    row("prefetch{P=.global}.{L2::evict_last,L2::evict_normal}", "a:[]", "9.7.9.15", ptx=(7, 4), sm=80, meaning="hint"),
    row("prefetch{P=.const,.param}.tensormap", "a:[P]", "9.7.9.15", ptx=(8, 0), sm=90, meaning="hint"),
    row("prefetchu.L1", "a:[]", "9.7.9.15", ptx=(2, 0), sm=20, meaning="hint"),
    # 9.7.9.16, .17  applypriority, discard
    row("applypriority{P=.global}.L2::evict_normal", "a:[], n:imm(128)", "9.7.9.16", ptx=(7, 4), sm=80, meaning="hint"),
    row("discard{P=.global}.L2", "a:[], n:imm(128)", "9.7.9.17", ptx=(7, 4), sm=80, meaning="hint"),
    # 9.7.9.18  createpolicy
    row(f"createpolicy.fractional.{{{_POLICIES}}}{_SECOND}.b64", "d:b64, ?a:f32(0<..1)", "9.7.9.18", ptx=(7, 4), sm=80),
    row(
        f"createpolicy.range{{P=.global}}.{{{_POLICIES}}}{_SECOND}.b64",
        "d:b64, a:[P], n:u32, m:u32",
        "9.7.9.18",
        ptx=(7, 4),
        sm=80,
    ),
    row("createpolicy.cvt.L2.b64", "d:b64, a:b64", "9.7.9.18", ptx=(7, 4), sm=80),
)

_ADDRESSES = (
    # 9.7.9.19  isspacep
    row(f"isspacep.P{{{_WINDOWS}}}", "d:pred, a:u64", "9.7.9.19", ptx=(2, 0), sm=20, needs=ADDRESSES),
    # 9.7.9.20  cvta
    row(
        f"cvta.P{{{_WINDOWS}}}.T{{u32,u64}}",
        "d:T&, a:T*",
        "9.7.9.20",
        ptx=(2, 0),
        sm=20,
        needs=ADDRESSES,
    ),
    row(
        f"cvta.to.P{{{_WINDOWS}}}.T{{u32,u64}}",
        "d:T&, a:T",
        "9.7.9.20",
        ptx=(2, 0),
        sm=20,
        meaning="cvta.to",
        needs=ADDRESSES,
    ),
    # 9.7.9.23, .24  mapa, getctarank
    row("mapa{P=.shared::cluster}.T{u32,u64,s32}", "d:T, a:T*, b:u32", "9.7.9.23", ptx=(7, 8), sm=90),
    row("getctarank{P=.shared::cluster}.T{u32,u64,s32}", "d:u32, a:T*", "9.7.9.24", ptx=(7, 8), sm=90),
)

MEMORY_ROWS = (*_ACCESSES, *pure(_ADDRESSES))


# Conversions. Source: PTX ISA 9.7.9.21 (`cvt`), 9.7.9.22 (`cvt.pack`).
#
# The rows bind all that decides the result: the rounding (`ROUND`, of a whole number `WHOLE`), `FTZ`, `SAT`, `RELU`,
# `FINITE` (.satfinite), and the types `D` and `S`. Of bf16, ptxas takes more than the text has; the rows have that
# too.

_INT = "u8,u16,u32,u64,s8,s16,s32,s64"
_ROUND, _ANY_ROUND = "ROUND{rn,rz,rm,rp}", "{ROUND=.rn,.rz,.rm,.rp}"
_WHOLE, _ANY_WHOLE = "WHOLE{rni,rzi,rmi,rpi}", "{WHOLE=.rni,.rzi,.rmi,.rpi}"
_FTZ, _SAT, _RELU, _FINITE = "{FTZ=.ftz}", "{SAT=.sat}", "{RELU=.relu}", "FINITE{satfinite}"
_FP8, _FP6, _FP4 = "e4m3x2,e5m2x2", "e2m3x2,e3m2x2", "e2m1x2"

_NARROW: Specific = (
    ("sm_100a", (8, 6)),
    ("sm_100f", (8, 8)),
    ("sm_101a", (8, 6)),
    ("sm_101f", (8, 8)),
    ("sm_110a", (9, 0)),
    ("sm_110f", (9, 0)),
    ("sm_120a", (8, 7)),
    ("sm_120f", (8, 8)),
)
"""Where there are floats of 6 and 4 bits, and scales."""

_STOCHASTIC: Specific = (("sm_100a", (8, 7)), ("sm_103a", (8, 8)))
"""Where there is `.rs`."""


def _clamping() -> Iterator[tuple[str, str]]:
    """Each integer type with those whose values it does not all hold: only to them does `.sat` apply."""

    def bounds(type: str) -> tuple[int, int]:
        bits = int(type[1:])
        return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if type[0] == "s" else (0, 2**bits - 1)

    types = _INT.split(",")
    for to in types:
        low, high = bounds(to)
        yield to, ",".join(of for of in types if bounds(of)[0] < low or bounds(of)[1] > high)


_CVT = "9.7.9.21"

_CONVERSION_ROWS = (
    # 9.7.9.21  between integers
    row(f"cvt.D{{{_INT}}}.S{{{_INT}}}", "d:D+, a:S+%", _CVT, meaning="cvt.integer"),
    *(row(f"cvt.SAT{{sat}}.D{{{d}}}.S{{{s}}}", "d:D+, a:S+%", _CVT, meaning="cvt.integer") for d, s in _clamping()),
    # floats to integers
    row(f"cvt.{_WHOLE}{_FTZ}{{.sat}}.D{{{_INT}}}.S{{f32}}", "d:D+, a:S", _CVT, meaning="cvt.to_integer"),
    row(f"cvt.{_WHOLE}{{.sat}}.D{{{_INT}}}.S{{f16,f64}}", "d:D+, a:S", _CVT, meaning="cvt.to_integer"),
    row(f"cvt.{_WHOLE}.D{{{_INT}}}.S{{bf16}}", "d:D+, a:S", _CVT, ptx=(7, 8), sm=90, meaning="cvt.to_integer"),
    # integers to floats
    row(f"cvt.{_ROUND}{_SAT}.D{{f16,f64}}.S{{{_INT}}}", "d:D, a:S+", _CVT, meaning="cvt.from_integer"),
    row(f"cvt.{_ROUND}{{.ftz}}{_SAT}.D{{f32}}.S{{{_INT}}}", "d:D, a:S+", _CVT, meaning="cvt.from_integer"),
    row(
        f"cvt.{_ROUND}.D{{bf16}}.S{{{_INT}}}",
        "d:D, a:S+",
        _CVT,
        ptx=(7, 8),
        sm=90,
        meaning="cvt.from_integer",
    ),
    # between floats
    *(
        row(f"cvt{spelling}", "d:D, a:S", _CVT, ptx=ptx, sm=sm, meaning="cvt.float")
        for spelling, ptx, sm in (
            (f".{_ROUND}{_FTZ}{_SAT}.D{{f32}}.S{{f64}}", (1, 0), 0),
            (f"{_FTZ}{_SAT}.D{{f64}}.S{{f32}}", (1, 0), 0),
            (f"{_ANY_WHOLE}{_FTZ}{_SAT}.D{{f32}}.S{{f32}}", (1, 0), 0),
            (f"{_ANY_WHOLE}{_SAT}.D{{f64}}.S{{f64}}", (1, 0), 0),
            (f"{_ANY_WHOLE}{_SAT}.D{{f16}}.S{{f16}}", (1, 0), 0),
            (f"{_FTZ}{_SAT}.D{{f32}}.S{{f16}}", (1, 0), 0),
            (f"{_SAT}.D{{f64}}.S{{f16}}", (1, 0), 0),
            (f".{_ROUND}{_FTZ}{_SAT}.D{{f16}}.S{{f32}}", (1, 0), 0),
            (f".{_ROUND}{_SAT}.D{{f16}}.S{{f64}}", (1, 0), 0),
            (".ROUND{rn,rz}.RELU{relu}.D{f16}.S{f32}", (7, 0), 80),
            (f".ROUND{{rn,rz}}{_RELU}.D{{bf16}}.S{{f32}}", (7, 0), 80),
            (f".ROUND{{rm,rp}}{_FTZ}.D{{bf16}}.S{{f32}}", (7, 0), 80),
            (".ROUND{rn,rz}.FTZ{ftz}.D{bf16}.S{f32}", (7, 0), 80),
            (f".ROUND{{rn,rz}}.{_FINITE}.D{{f16}}.S{{f32}}", (8, 1), 0),
            (f".ROUND{{rn,rz}}.{_FINITE}.RELU{{relu}}.D{{f16}}.S{{f32}}", (8, 1), 80),
            (f".ROUND{{rn,rz}}.{_FINITE}{_RELU}.D{{bf16}}.S{{f32}}", (8, 1), 80),
            (f"{_ANY_ROUND}.D{{f32}}.S{{bf16}}", (7, 1), 80),
            (f"{_ANY_ROUND}.FTZ{{ftz}}.D{{f32}}.S{{bf16}}", (7, 8), 90),
            (f"{_ANY_ROUND}.D{{f64}}.S{{bf16}}", (7, 8), 90),
            (f"{_ANY_ROUND}.D{{f16}}.S{{bf16}}", (7, 8), 90),
            (f"{_ANY_ROUND}.D{{bf16}}.S{{f16}}", (7, 8), 90),
            (f".{_ROUND}.D{{bf16}}.S{{f64}}", (7, 8), 90),
            (f"{_ANY_WHOLE}.D{{bf16}}.S{{bf16}}", (7, 8), 90),
        )
    ),
    # two f32 to a pair of halves
    *(
        row(
            f"cvt.ROUND{{{modes}}}{rest}.D{{f16x2,bf16x2}}.S{{f32}}",
            operands,
            _CVT,
            ptx=ptx,
            sm=sm,
            only=only,
            meaning="cvt.pair",
        )
        for modes, rest, operands, ptx, sm, only in (
            ("rn,rz", _RELU, "d:D, a:S, b:S", (7, 0), 80, ()),
            ("rn,rz", f".{_FINITE}{_RELU}", "d:D, a:S, b:S", (8, 1), 80, ()),
            ("rs", f"{_RELU}{{FINITE=.satfinite}}", "d:D, a:S, b:S, r:b32", (8, 7), 100, _STOCHASTIC),
        )
    ),
    # tf32
    *(
        row(f"cvt.ROUND{{{rest}.D{{tf32}}.S{{f32}}", "d:D, a:S", _CVT, ptx=ptx, sm=sm, meaning="cvt.tf32")
        for rest, ptx, sm in (
            ("rna}", (7, 0), 80),
            (f"rn,rz}}{_RELU}", (7, 8), 90),
            (f"rna}}.{_FINITE}", (8, 1), 80),
            (f"rn,rz}}.{_FINITE}{_RELU}", (8, 6), 100),
        )
    ),
    # pairs of 8, 6 and 4 bits, and of scales
    *(
        row(
            f"cvt.ROUND{{rn}}.{_FINITE}{_RELU}.D{{{d}}}.S{{{s}}}",
            operands,
            _CVT,
            ptx=ptx,
            sm=sm,
            only=only,
            meaning="cvt.narrow",
        )
        for d, s, operands, ptx, sm, only in (
            (_FP8, "f32", "d:D, a:S, b:S", (8, 1), 89, ()),
            (_FP8, "f16x2", "d:D, a:S", (8, 1), 89, ()),
            (f"{_FP6},{_FP4}", "f32", "d:D, a:S, b:S", (8, 6), 100, _NARROW),
            (_FP4, "f16x2", "d:D, a:S", (8, 6), 100, _NARROW),
        )
    ),
    *(
        row(
            f"cvt.ROUND{{rz,rp}}{{FINITE=.satfinite}}.D{{ue8m0x2}}.S{{{s}}}",
            operands,
            _CVT,
            ptx=(8, 6),
            sm=100,
            only=_NARROW,
            meaning="cvt.scale",
        )
        for s, operands in (("f32", "d:D, a:S, b:S"), ("bf16x2", "d:D, a:S"))
    ),
    row(f"cvt.rn{_RELU}.D{{f16x2}}.S{{{_FP8}}}", "d:D, a:S", _CVT, ptx=(8, 1), sm=89, meaning="cvt.widen"),
    row(
        f"cvt.rn{_RELU}.D{{f16x2}}.S{{{_FP6},{_FP4}}}",
        "d:D, a:S",
        _CVT,
        ptx=(8, 6),
        sm=100,
        only=_NARROW,
        meaning="cvt.widen",
    ),
    row("cvt.rn.D{bf16x2}.S{ue8m0x2}", "d:D, a:S", _CVT, ptx=(8, 6), sm=100, only=_NARROW, meaning="cvt.widen"),
    row(
        f"cvt.rs.satfinite{_RELU}.D{{e4m3x4,e5m2x4,e2m3x4,e3m2x4,e2m1x4}}.S{{f32}}",
        "d:D, a:4*S, r:b32",
        _CVT,
        ptx=(8, 7),
        sm=100,
        only=_STOCHASTIC,
        meaning="cvt.four",
    ),
    # 9.7.9.22  cvt.pack
    row("cvt.pack.sat.D{u16,s16}.s32", "d:b32, a:s32, b:s32", "9.7.9.22", ptx=(6, 5), sm=72, meaning="cvt.pack"),
    row(
        "cvt.pack.sat.D{u8,s8}.s32.b32",
        "d:b32, a:s32, b:s32, c:b32",
        "9.7.9.22",
        ptx=(6, 5),
        sm=72,
        meaning="cvt.pack",
    ),
    row(
        "cvt.pack.sat.D{u4,s4,u2,s2}.s32.b32",
        "d:b32, a:s32, b:s32, c:b32",
        "9.7.9.22",
        ptx=(6, 5),
        sm=75,
        meaning="cvt.pack",
    ),
)

CONVERSION_ROWS = pure(_CONVERSION_ROWS)
