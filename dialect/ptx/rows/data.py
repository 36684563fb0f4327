"""Rows of moves, loads, stores, addresses and conversions. Source: PTX ISA 9.7.9."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ...isa.form import BLACKWELL, blackwell
from ...isa.row import Specific, Version
from .arithmetic import RUBIN
from .grammar import Need, Needs, PatternRow, pure, row

# Moves. Source: PTX ISA 9.7.9.

_PACKED = (("b16", "2*b8"), ("b32", "2*b16"), ("b32", "4*b8"), ("b64", "2*b32"), ("b64", "4*b16"))
"""Registers, and what they are packed from."""

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
    *(row(f"mov.T{{{type}}}", f"d:T, a:{parts}%", "9.7.9.4", meaning="mov.pack") for type, parts in _PACKED),
    row("mov.T{b128}", "d:b128, a:2*b64", "9.7.9.4", meaning="mov.b128", ptx=(8, 3), sm=70),
    row("mov.T{b128}", "d:b128, a:4*b32%", "9.7.9.4", meaning="mov.b128", ptx=(8, 3), sm=70),
    *(row(f"mov.T{{{type}}}", f"d:{parts}, a:T%", "9.7.9.4", meaning="mov.unpack") for type, parts in _PACKED),
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
    prefetch = _PREFETCH if load else ""
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
            hints = f"{priority}{HINT}{_PREFETCH}"
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


# Conversions. Source: PTX ISA 9.7.9.21 (`cvt`), 9.7.9.22 (`cvt.pack`).
#
# The rows bind all that decides the result: the rounding (`ROUND`, of a whole number `WHOLE`), `FTZ`, `SAT`, `RELU`,
# `FINITE` (.satfinite), and the types `D` and `S`. Of bf16, ptxas takes more than the text has; the rows have that too.


_INT = "u8,u16,u32,u64,s8,s16,s32,s64"
_ROUND, _ANY_ROUND = "ROUND{rn,rz,rm,rp}", "{ROUND=.rn,.rz,.rm,.rp}"
_WHOLE, _ANY_WHOLE = "WHOLE{rni,rzi,rmi,rpi}", "{WHOLE=.rni,.rzi,.rmi,.rpi}"
_FTZ, _SAT, _RELU, _FINITE = "{FTZ=.ftz}", "{SAT=.sat}", "{RELU=.relu}", "FINITE{satfinite}"
_MAY = "{FINITE=.satfinite}"
_FP8, _FP6, _FP4 = "e4m3x2,e5m2x2", "e2m3x2,e3m2x2", "e2m1x2"


_FIXED: Specific = tuple((f"sm_{sm}a", (9, 1)) for sm in (100, 103, 107, 110, 120, 121))
"""Where there is `.s2f6x2`."""

_RUBIN: Specific = (("sm_107a", (9, 4)),)
"""Where it is made by rounding towards zero."""

_SCALED = ".SCALE{scaled::n2::ue8m0}"
"""Two powers of two, one for each number."""

_STOCHASTIC: Specific = (("sm_100a", (8, 7)), ("sm_103a", (8, 8)), ("sm_107a", (9, 4)))
"""Where there is `.rs`."""


def _clamping() -> Iterator[tuple[str, str]]:
    """Each integer type with the types that have values outside of it. Only these conversions have `.sat`."""

    def bounds(type: str) -> tuple[int, int]:
        bits = int(type[1:])
        return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if type[0] == "s" else (0, 2**bits - 1)

    types = _INT.split(",")
    for to in types:
        low, high = bounds(to)
        yield to, ",".join(of for of in types if bounds(of)[0] < low or bounds(of)[1] > high)


_CVT = "9.7.9.21"


def _rubin_conversions() -> Iterator[PatternRow]:
    """What the family of sm_107 has since PTX 9.4: rounding towards zero, no negative zero, one scale, ue5m3."""
    halves = ("f32", "f16x2", "bf16x2")
    scaled = ".SCALE{scaled::n1::ue8m0}"
    for s in halves:
        operands = "d:D, a:S, b:S" if s == "f32" else "d:D, a:S"
        narrow, fine = f"D{{{_FP8},{_FP6},{_FP4}}}.S{{{s}}}", f"D{{ue5m3x2}}.S{{{s}}}"
        for words, more in (
            (f".ROUND{{rz}}.{_FINITE}{_RELU}.{narrow}", ""),
            (f".ROUND{{rn,rz}}.{_FINITE}{_RELU}{_ZERO}.{narrow}", ""),
            (f".ROUND{{rn,rz}}.{_FINITE}{_RELU}{{ZERO=.pzo}}{scaled}.{narrow}", ", e:ue8m0"),
            (f".ROUND{{rn,rz,rp}}{_MAY}.{fine}", ""),
            (f".ROUND{{rn,rz}}{_MAY}{scaled}.{fine}", ", e:ue8m0"),
        ):
            yield _of_rubin(words, f"{operands}{more}", "cvt.unsigned" if fine in words else "cvt.narrow")
    for words, operands, meaning in (
        (".rn.D{f16x2}.S{ue5m3x2}", "d:D, a:S", "cvt.widen"),
        (".rn{FINITE=.satfinite}.D{bf16x2}.S{ue5m3x2}", "d:D, a:S", "cvt.widen"),
        (f".rn{_MAY}{_SCALED}.D{{bf16x2}}.S{{ue5m3x2}}", "d:D, a:S, e:ue8m0x2", "cvt.widen"),
        (f".ROUND{{rn,rz}}{_MAY}{_RELU}{_ZERO}.D{{tf32}}.S{{f32}}", "d:D, a:S", "cvt.tf32"),
        *(
            (f".ROUND{{rn,rz}}{_MAY}{_RELU}{_ZERO}.D{{{to}}}.S{{f32}}", operands, meaning)
            for to, operands, meaning in (
                ("f16", "d:D, a:S", "cvt.float"),
                ("bf16", "d:D, a:S", "cvt.float"),
                ("f16x2", "d:D, a:S, b:S", "cvt.pair"),
                ("bf16x2", "d:D, a:S, b:S", "cvt.pair"),
            )
        ),
        (f".ROUND{{rm,rp}}{_ZERO}.D{{f16}}.S{{f32}}", "d:D, a:S", "cvt.float"),
        (f".ROUND{{rm,rp}}{_FTZ}{_ZERO}.D{{bf16}}.S{{f32}}", "d:D, a:S", "cvt.float"),
        (f".ROUND{{rn,rz}}.FTZ{{ftz}}{_ZERO}.D{{bf16}}.S{{f32}}", "d:D, a:S", "cvt.float"),
    ):
        yield _of_rubin(words, operands, meaning)


_ZERO = ".ZERO{pzo}"
"""No result is -0."""


def _cvt(
    words: str, operands: str, meaning: str, ptx: Version = (1, 0), sm: int = 0, only: Specific = ()
) -> PatternRow:
    return row(f"cvt{words}", operands, _CVT, ptx, sm, meaning, only)


def _of_rubin(words: str, operands: str, meaning: str) -> PatternRow:
    return _cvt(words, operands, meaning, (9, 4), 107, RUBIN)


_CONVERSION_ROWS = (
    # 9.7.9.21  between integers
    _cvt(f".D{{{_INT}}}.S{{{_INT}}}", "d:D+, a:S+%", "cvt.integer"),
    *(_cvt(f".SAT{{sat}}.D{{{d}}}.S{{{s}}}", "d:D+, a:S+%", "cvt.integer") for d, s in _clamping()),
    # floats to integers
    _cvt(f".{_WHOLE}{_FTZ}{{.sat}}.D{{{_INT}}}.S{{f32}}", "d:D+, a:S", "cvt.to_integer"),
    _cvt(f".{_WHOLE}{{.sat}}.D{{{_INT}}}.S{{f16,f64}}", "d:D+, a:S", "cvt.to_integer"),
    _cvt(f".{_WHOLE}.D{{{_INT}}}.S{{bf16}}", "d:D, a:S", "cvt.to_integer", (7, 8), 90),
    # integers to floats
    _cvt(f".{_ROUND}{_SAT}.D{{f16,f64}}.S{{{_INT}}}", "d:D, a:S+", "cvt.from_integer"),
    _cvt(f".{_ROUND}{{.ftz}}{_SAT}.D{{f32}}.S{{{_INT}}}", "d:D, a:S+", "cvt.from_integer"),
    _cvt(f".{_ROUND}.D{{bf16}}.S{{{_INT}}}", "d:D, a:S", "cvt.from_integer", (7, 8), 90),
    # between floats
    *(
        _cvt(spelling, "d:D, a:S", "cvt.float", ptx, sm)
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
        _cvt(f".ROUND{{{modes}}}{rest}.D{{{to}}}.S{{f32}}", operands, "cvt.pair", ptx, sm, only)
        for to in ("f16x2", "bf16x2")
        for modes, rest, operands, ptx, sm, only in (
            ("rn,rz", _RELU, "d:D, a:S, b:S", (7, 0), 80, ()),
            ("rn,rz", f".{_FINITE}{_RELU}", "d:D, a:S, b:S", (8, 1), 80, ()),
            ("rs", f"{_RELU}{_MAY}", "d:D, a:S, b:S, r:rbits", (8, 7), 100, _STOCHASTIC),
        )
    ),
    # tf32
    *(
        _cvt(f".ROUND{{{rest}.D{{tf32}}.S{{f32}}", "d:D, a:S", "cvt.tf32", ptx, sm)
        for rest, ptx, sm in (
            ("rna}", (7, 0), 80),
            (f"rn,rz}}{_RELU}", (7, 8), 90),
            (f"rna}}.{_FINITE}", (8, 1), 80),
            (f"rn,rz}}.{_FINITE}{_RELU}", (8, 6), 100),
        )
    ),
    # pairs of 8, 6 and 4 bits, and of scales
    *(
        _cvt(f".ROUND{{rn}}.{_FINITE}{_RELU}.D{{{d}}}.S{{{s}}}", operands, "cvt.narrow", ptx, sm, only)
        for d, s, operands, ptx, sm, only in (
            (_FP8, "f32", "d:D, a:S, b:S", (8, 1), 89, ()),
            (_FP8, "f16x2", "d:D, a:S", (8, 1), 89, ()),
            (f"{_FP6},{_FP4}", "f32", "d:D, a:S, b:S", (8, 6), 100, BLACKWELL),
            (f"{_FP6},{_FP4}", "f16x2", "d:D, a:S", (9, 1), 100, blackwell((9, 1))),
            (f"{_FP8},{_FP6},{_FP4}", "bf16x2", "d:D, a:S", (9, 1), 100, blackwell((9, 1))),
        )
    ),
    *_rubin_conversions(),
    # 9.7.9.21  numbers of 8 bits, 6 of them behind the point
    *(
        _cvt(
            f".ROUND{{{mode}}}{finite}{_RELU}{scale}.D{{{d}}}.S{{{s}}}",
            operands + more,
            "cvt.fixed" if d == "s2f6x2" else "cvt.widen",
            only[0][1],
            100,
            only,
        )
        for mode, d, s, operands, finite, only in (
            ("rn", "s2f6x2", "f32", "d:D, a:S, b:S", ".FINITE{satfinite}", _FIXED),
            ("rn", "s2f6x2", "bf16x2", "d:D, a:S", ".FINITE{satfinite}", _FIXED),
            ("rn", "bf16x2", "s2f6x2", "d:D, a:S", "{FINITE=.satfinite}", _FIXED),
            ("rz", "s2f6x2", "f32", "d:D, a:S, b:S", ".FINITE{satfinite}", _RUBIN),
            ("rz", "s2f6x2", "bf16x2", "d:D, a:S", ".FINITE{satfinite}", _RUBIN),
        )
        for scale, more in (("", ""), (_SCALED, ", e:ue8m0x2"))
    ),
    *(
        _cvt(f".ROUND{{rz,rp}}{_MAY}.D{{ue8m0x2}}.S{{{s}}}", operands, "cvt.scale", (8, 6), 100, BLACKWELL)
        for s, operands in (("f32", "d:D, a:S, b:S"), ("bf16x2", "d:D, a:S"))
    ),
    _cvt(f".rn{_RELU}.D{{f16x2}}.S{{{_FP8}}}", "d:D, a:S", "cvt.widen", (8, 1), 89),
    _cvt(f".rn{_RELU}.D{{f16x2}}.S{{{_FP6},{_FP4}}}", "d:D, a:S", "cvt.widen", (8, 6), 100, BLACKWELL),
    *(
        _cvt(
            f".rn{_RELU}{_MAY}{scale}.D{{bf16x2}}.S{{{_FP8},{_FP6},{_FP4}}}",
            f"d:D, a:S{more}",
            "cvt.widen",
            (9, 2),
            100,
            blackwell((9, 2)),
        )
        for scale, more in (("", ""), (_SCALED, ", e:ue8m0x2"))
    ),
    _cvt(".rn.D{bf16x2}.S{ue8m0x2}", "d:D, a:S", "cvt.widen", (8, 6), 100, BLACKWELL),
    _cvt(
        f".rs.satfinite{_RELU}.D{{e4m3x4,e5m2x4,e2m3x4,e3m2x4,e2m1x4}}.S{{f32}}",
        "d:D, a:4*S, r:rbits",
        "cvt.four",
        (8, 7),
        100,
        _STOCHASTIC,
    ),
    # 9.7.9.22  cvt.pack
    *(
        row(f"cvt.pack.sat.D{{{types}}}.s32{above}", f"d:b32, a:s32, b:s32{more}", "9.7.9.22", (6, 5), sm, "cvt.pack")
        for types, above, more, sm in (
            ("u16,s16", "", "", 72),
            ("u8,s8", ".b32", ", c:b32", 72),
            ("u4,s4,u2,s2", ".b32", ", c:b32", 75),
        )
    ),
)

_FUNDAMENTAL = re.compile(r"cvt.*\.D\{([usf]\d+(x2)?[,}])+\.S\{([usf]\d+[,}])+")


def _widened(line: PatternRow) -> PatternRow:
    """The row with registers that may be wider than its types. Only bf16, tf32 and narrow floats do not allow that
    (9.4.1)."""
    if not _FUNDAMENTAL.fullmatch(line.pattern):
        return line
    return replace(line, notation=re.sub(r":([DS])(?=,|$)", r":\1+", line.notation))


CONVERSION_ROWS = pure(map(_widened, _CONVERSION_ROWS))
