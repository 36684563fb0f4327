"""Rows of asynchronous copies, stores and reductions, and of memory of several GPUs. Source: PTX ISA 9.7.9, 9.7.13."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache, partial

from ...isa.form import BLACKWELL, blackwell
from ...isa.mma import NIBBLES
from ...isa.row import TENSOR_MEMORY, Specific, Version
from .arithmetic import RUBIN, of_rubin
from .data import HINT, HINTED
from .grammar import Need, PatternRow, row

# Copies, stores and reductions that complete later. Source: PTX ISA 9.7.9.12, .13, .25 and 9.7.13.7, .8.

_COMPLETES = ".mbarrier::complete_tx::bytes"
_COPIES = (HINTED, *(Need(f"L2::{word}", (7, 4), 80) for word in ("64B", "128B", "256B")))


def _copies() -> Iterator[PatternRow]:
    """9.7.9.25.3.1  cp.async: a number of bytes to read, or a predicate to read none, may follow the size. A literal
    there is a number."""
    for words, sizes in ((".ca", (4, 8, 16)), (".cg", (16,))):
        spelling = f"cp.async{words}.{{shared,shared::cta}}.global{HINT}{{.L2::64B,.L2::128B,.L2::256B}}"
        for size in sizes:
            for last, ptx in ((f"?s:u32(0..{size})", (7, 0)), ("q:!pred(0..0)", (7, 5))):
                operands = f"a:[shared], b:[global], n:imm({size}), {last}, H?c:b64"
                yield row(spelling, operands, "9.7.9.25.3.1", ptx=ptx, sm=80, meaning="cp.async", needs=_COPIES)


_GROUPED = TENSOR_MEMORY
"""Where pairs of CTAs copy together, rows are gathered, and im2col reads along the width alone."""

_MULTICASTING = ("sm_90a", *(name for name, _ in _GROUPED))
"""The targets on which relaxed copies go to a cluster; no public text names them, these are the assembler's."""

_MULTICAST = "{C=.multicast::cluster,.multicast::cluster::16b}"
_MASK, _WIDE_MASK = "u16(0..65535)", "b32(0..4294967295)"
_MASKED = Need("multicast::cluster::16b", (9, 4), 90)
_SIZE = "n:u32(0..1048560/16)"
_SCOPES = "cta,cluster,gpu,sys"
_RELAXED = ",".join(f".relaxed.{scope}" for scope in _SCOPES.split(","))


def _bulk() -> Iterator[PatternRow]:
    """9.7.9.25.4.1, .3  cp.async.bulk: unordered, or relaxed in pieces of 16 bytes."""
    section, meaning = "9.7.9.25.4.1", "cp.async.bulk"
    later = (Need("cp_mask", (8, 6), 100), Need("weak", (9, 3), 90), Need("relaxed", (9, 3), 90), _MASKED)
    for words, operands, ptx, scopes, only in (
        (f".D{{shared::cluster}}.S{{global}}{_COMPLETES}{_MULTICAST}{HINT}",
         f"a:[D], b:[S], {_SIZE}, m:[shared], C?k:{_MASK}, H?c:b64", (8, 0), _SCOPES, _MULTICASTING),
        (f".D{{shared::cta}}.S{{global}}{_COMPLETES}{HINT}", f"a:[D], b:[S], {_SIZE}, m:[shared], H?c:b64", (8, 6),
         _SCOPES, ()),
        (f".D{{shared::cluster}}.S{{shared::cta}}{_COMPLETES}", f"a:[D], b:[S], {_SIZE}, m:[shared]", (8, 0),
         "cta,cluster", ()),
        (f".D{{global}}.S{{shared::cta}}.bulk_group{HINT}{{K=.cp_mask}}",
         f"a:[D], b:[S], {_SIZE}, H?c:b64, K?k:u16", (8, 0), _SCOPES, ()),
    ):  # fmt: skip
        yield row(f"cp.async.bulk{{.weak}}{words}", operands, section, ptx=ptx, sm=90, meaning=meaning, needs=later)
        yield row(f"cp.async.bulk.relaxed.{{{scopes}}}{words}.b128", operands, section, ptx=(9, 3), sm=90,
                  meaning=meaning, needs=later, only=tuple((name, (9, 3)) for name in only))  # fmt: skip
    spelling = f"cp.async.bulk{{.weak}}.D{{shared::cta}}.S{{global}}{_COMPLETES}{HINT}.ignore_oob"
    operands = f"a:[D], b:[S], {_SIZE}, l:u32(0..15), r:u32(0..15), m:[shared], H?c:b64"
    yield row(spelling, operands, section, (9, 2), 90, "cp.async.bulk.edges", needs=later)
    for order, type in (("{.weak}", ""), (f".relaxed.{{{_SCOPES}}}", ".b128")):
        words = f"multimem.cp.async.bulk{order}.D{{global}}.S{{shared::cta}}.bulk_group{{K=.cp_mask}}{type}"
        yield row(words, f"a:[D], b:[S], {_SIZE}, K?k:u16", "9.7.9.26", ptx=(9, 1), sm=90, meaning="multimem",
                  needs=later, text=(9, 1))  # fmt: skip
    spelling = f"cp.async.bulk.prefetch.L2.global{HINT}"
    yield row(spelling, f"a:[global], {_SIZE}, H?c:b64", "9.7.9.25.4.3", (8, 0), 90, "hint")


def _reductions() -> Iterator[PatternRow]:
    """9.7.9.25.4.2  cp.reduce.async.bulk"""
    later = (Need("relaxed", (9, 3), 90), Need("noftz f32", (9, 4), 90))
    reduction = partial(row, section="9.7.9.25.4.2", ptx=(8, 0), sm=90, meaning="cp.reduce.async.bulk", needs=later)
    multiple = partial(row, section="9.7.9.27", ptx=(9, 1), sm=90, meaning="multimem", needs=later, text=(9, 1))
    head = f"cp.reduce.async.bulk{{.relaxed.cta,.relaxed.cluster}}.D{{shared::cluster}}.S{{shared::cta}}{_COMPLETES}"
    for words in (".O{and,or,xor}.T{b32}", ".O{add}.T{u32,s32,u64}", ".O{inc,dec}.T{u32}", ".O{min,max}.T{u32,s32}"):
        yield reduction(f"{head}{words}", f"a:[D], b:[S], {_SIZE}, m:[shared]")
    head = f"cp.reduce.async.bulk{{{_RELAXED}}}.D{{global}}.S{{shared::cta}}.bulk_group"
    for words in (
        ".O{and,or,xor}.T{b32,b64}",
        ".O{add}.T{u32,s32,u64,f32,f64}",
        ".O{add}.noftz.T{f16,bf16,f32}",
        ".O{inc,dec}.T{u32}",
        ".O{min,max}.T{u32,s32,u64,s64,f16,bf16}",
    ):
        yield reduction(f"{head}{HINT}{words}", f"a:[D], b:[S], {_SIZE}, H?c:b64")
        yield multiple(f"multimem.{head}{words}", f"a:[D], b:[S], {_SIZE}")


_REPORTS = ",".join(
    f"mbarrier::report::{how}"
    for how in ("disabled", *(f"validity::per_16bytes::{n}" for n in ("80000000", "8000", "80", "8")),
                "validity::per_element::ff")
)  # fmt: skip


def _on_rubin(rows: Iterable[PatternRow]) -> Iterator[PatternRow]:
    """The loads of rows, and their additional forms of sm_107's family: with a mask of 32 bits, with a report."""
    for line in rows:
        yield line
        if _COMPLETES not in line.pattern or any(p in line.pattern for p in (".S{shared::cta}", "ignore_oob")):
            continue
        reported = line.pattern.replace(_COMPLETES, f"{_COMPLETES}.{{{_REPORTS}}}")
        wide = line.notation.replace(_MASK, _WIDE_MASK)
        forms = [(reported, line.notation, "mbarrier.reports")]
        if _MULTICAST in line.pattern:
            for words, meaning in ((line.pattern, line.means), (reported, "mbarrier.reports")):
                forms.append((words.replace(_MULTICAST, ".C{multicast::cluster::32b}"), wide, meaning))
        for pattern, notation, meaning in forms:
            yield replace(line, pattern=pattern, notation=notation, ptx=(9, 4), sm=107, only=RUBIN, meaning=meaning)


_GLOBAL = "{P=.global}.T{b8,b16,b32,b64,u8,u16,u32,u64,s8,s16,s32,s64,f32,f64}"


def _stores() -> Iterator[PatternRow]:
    """9.7.9.12  st.async, and 9.7.13.7  red.async: to shared memory of the cluster, and to global memory."""
    cluster = f"st.async{{.weak}}{{P=.shared::cluster,.shared::cta}}{_COMPLETES}"
    for types, value, ptx in (
        ("{V=.v2,.v4}.T{b32,u32,s32,f32}", "V*T", (8, 1)), ("{V=.v2}.T{b64,u64,s64,f64}", "V*T", (8, 1)),
        (".T{b128}", "T", (9, 2)),
    ):  # fmt: skip
        yield row(f"{cluster}{types}", f"a:[P], b:{value}, m:[P]", "9.7.9.12", ptx, 90, "st.async")
    yield row(f"st.async.release.{{gpu,sys}}{_GLOBAL}", "a:[], b:T", "9.7.9.12", ptx=(8, 7), sm=100, meaning="st")
    yield row(f"st.async.mmio.release.sys{_GLOBAL}", "a:[], b:T", "9.7.9.12", ptx=(8, 7), sm=100, meaning="st")
    yield row(f"multimem.st.async.release.{{gpu,sys}}{_GLOBAL}", "a:[], b:T", "9.7.9.13", ptx=(9, 3), sm=100,
              text=(9, 3))  # fmt: skip
    for words in (
        ".O{and,or,xor}.T{b32}", ".O{add}.T{u32,s32,u64,s64}", ".O{inc,dec}.T{u32}", ".O{min,max}.T{u32,s32}"
    ):  # fmt: skip
        spelling = f"red.async.relaxed.cluster{{P=.shared::cluster}}{_COMPLETES}{words}"
        yield row(spelling, "a:[P], b:T, m:[P]", "9.7.13.7", (8, 1), 90, "red.async")
        for order in ("release.{gpu,sys}", "mmio.release.sys"):
            spelling = f"red.async.{order}{{P=.global}}{words}"
            yield row(spelling, "a:[], b:T", "9.7.13.7", ptx=(8, 7), sm=100, meaning="atomic")
    yield row("multimem.red.async.release.{gpu,sys}{P=.global}.O{add}.T{u32,s32,u64}", "a:[], b:T", "9.7.14.8",
              ptx=(9, 3), sm=100, text=(9, 3))  # fmt: skip


ASYNCHRONOUS_ROWS = (
    # 9.7.9.12, 9.7.13.7  st.async, red.async
    *_stores(),
    # 9.7.9.13  st.bulk
    *(
        row("st.bulk{.weak}{P=.shared::cta}", f"a:[], n:{type}(0../8), z:imm(0)", "9.7.9.13", ptx, 100, "st.bulk")
        for type, ptx in (("u64", (8, 6)), ("u32", (9, 0)))
    ),
    # 9.7.9.25.3.1  cp.async
    *_copies(),
    # 9.7.9.25.3.2  cp.async.commit_group
    row("cp.async.commit_group", "", "9.7.9.25.3.2", ptx=(7, 0), sm=80, meaning="cp.async.commit_group"),
    # 9.7.9.25.3.3  cp.async.wait_group, cp.async.wait_all
    row("cp.async.wait_group", "n:imm", "9.7.9.25.3.3", ptx=(7, 0), sm=80, meaning="cp.async.wait_group"),
    row("cp.async.wait_all", "", "9.7.9.25.3.3", ptx=(7, 0), sm=80, meaning="cp.async.wait_all"),
    # 9.7.9.25.4.1 to .3  cp.async.bulk, cp.reduce.async.bulk, cp.async.bulk.prefetch
    *_on_rubin(_bulk()),
    *_reductions(),
    # 9.7.9.25.3.2, .3  groups of bulk copies
    row("cp.async.bulk.commit_group", "", "9.7.9.25.3.2", ptx=(8, 0), sm=90, meaning="bulk group"),
    row("cp.async.bulk.wait_group.sync_restrict::proxy::async", "n:imm", "9.7.9.25.3.3", (9, 5), 90, "bulk group"),
    row("cp.async.bulk.wait_group{READ=.read}", "n:imm", "9.7.9.25.3.3", ptx=(8, 0), sm=90, meaning="bulk group"),
)


# Copies of boxes of tensors. Source: PTX ISA 9.7.9.25.5, 9.7.9.26.


_ANY, _IMAGE = "D{1d,2d,3d,4d,5d}", "D{3d,4d,5d}"
_LOAD = "cp.async.bulk.tensor"
_TILE = "{MODE=.tile}"
_SECTION = "9.7.9.25.5.2"

_Own = tuple[int, Specific]
"""The lowest target number, and who alone has it."""

_SM_90: _Own = (90, ())


def _loads(
    rank: str,
    mode: str,
    tensor: str,
    offsets: str,
    meaning: str,
    since: Version,
    pair: Specific = (),
    own: _Own = _SM_90,
) -> Iterator[PatternRow]:
    """Loads of one mode: to a cluster, for the targets of `pair` only, to the CTA itself, and by pairs of CTAs."""
    more = f", {offsets}" if offsets else ""
    operands = f"a:[P], b:{tensor}, m:[shared]{more}"
    cluster = f"{_LOAD}.{rank}.P{{shared::cluster}}.global{mode}{_COMPLETES}{_MULTICAST}"
    alone = f"{_LOAD}.{rank}.P{{shared::cta}}.global{mode}{_COMPLETES}"
    hint, wide = ", H?policy:b64", f", C?mask:{_MASK}, H?policy:b64"
    yield row(f"{cluster}{HINT}", operands + wide, _SECTION, ptx=since, sm=90, meaning=meaning, only=pair,
              needs=(_MASKED,))  # fmt: skip
    yield row(f"{alone}{HINT}", operands + hint, _SECTION, ptx=(8, 6), sm=own[0], meaning=meaning, only=own[1])
    pairs = ".G{cta_group::1,cta_group::2}"
    yield row(f"{cluster}{pairs}{HINT}", operands + wide, _SECTION, ptx=(8, 6), sm=100, meaning=meaning, only=_GROUPED,
              needs=(_MASKED,))  # fmt: skip
    yield row(f"{alone}{pairs}{HINT}", operands + hint, _SECTION, ptx=(8, 6), sm=100, meaning=meaning, only=_GROUPED)


_BASE = ".BASE{override::global_address}"
_SHAPES = ".SHAPE{override::global_dim}", ".SHAPE{override::global_dim_stride}"


def _overridden(rows: Iterable[PatternRow]) -> Iterator[PatternRow]:
    """Rows of copies, and those of the family of sm_107 whose operands replace fields of the map: the address, and in
    tile mode the sizes and strides too, where no mask has 16 bits. 9.7.9.25.5.2 of PTX 9.4"""
    for line in rows:
        yield line
        patterns = [(line.pattern + _BASE, line.notation)]
        if _TILE in line.pattern:
            alone = line.pattern.replace(_MULTICAST, ""), line.notation.replace(f", C?mask:{_MASK}", "")
            ranks = (".D{1d}", ".D{2d,3d,4d,5d}")
            patterns += [(alone[0].replace(f".{_ANY}", rank) + _BASE + shape, alone[1])
                         for rank, shape in zip(ranks, _SHAPES, strict=True)]  # fmt: skip
        for pattern, notation in patterns:
            yield replace(line, pattern=pattern, notation=notation, ptx=(9, 4), sm=107, only=RUBIN)


_QUERIED: Specific = tuple((name, (9, 5)) for name, _ in NIBBLES)
"""Where a tensor map tells of its class of memory."""


_LATER_BLACKWELL = blackwell((8, 7))


def _replacements() -> Iterator[PatternRow]:
    """`tensormap.replace`: its fields, their values, and the targets that have them."""
    anywhere: Specific = (("sm_90a", (8, 3)), *BLACKWELL)
    for field, type, operands, only in (
        ("global_address", "b64", "v:T", anywhere),
        ("rank", "b32", "v:T", anywhere),
        ("box_dim,global_dim,element_stride", "b32", "i:imm(0..4), v:b32", anywhere),
        ("global_stride", "b64", "i:imm(0..4), v:T", anywhere),
        ("elemtype", "b32", "v:imm(0..12)", anywhere),
        ("elemtype", "b32", "v:imm(13..15)", _LATER_BLACKWELL),
        ("interleave_layout", "b32", "v:imm(0..2)", anywhere),
        ("swizzle_mode", "b32", "v:imm(0..3)", anywhere),
        ("swizzle_mode", "b32", "v:imm(4)", (("sm_103a", (8, 8)), ("sm_107a", (9, 4)))),
        ("fill_mode", "b32", "v:imm(0/1)", anywhere),
        ("swizzle_atomicity", "b32", "v:imm(0..3)", BLACKWELL),
    ):
        spelling = f"tensormap.replace.tile.FIELD{{{field}}}{{P=.global,.shared::cta}}.b1024.T{{{type}}}"
        least, meaning = (90, "tensor.replace") if only is anywhere else (100, "tensor.replace later")
        yield row(spelling, f"a:[P], {operands}", "9.7.9.26", ptx=(8, 3), sm=least, only=only, meaning=meaning)


OTHER = "tensor.unmodelled"
"""The meaning of what the interpreter refuses: im2col along the width alone."""

_TENSOR_OPERATIONS = "OP{add,min,max,inc,dec,and,or,xor}"
_REDUCE = "cp.reduce.async.bulk.tensor"
_PREFETCH = "cp.async.bulk.prefetch.tensor"


def _boxes() -> Iterator[PatternRow]:
    """9.7.9.25.5.2 to .4, 9.7.9.16  Copies, reductions and prefetches of boxes, and the end of a priority."""
    # cp.async.bulk.tensor
    yield from _on_rubin(_loads(_ANY, _TILE, "tensor", "", "tensor.load", (8, 0)))
    for axes in (3, 4, 5):
        for mode, count, meaning, pair, own, since in (
            (".MODE{im2col}", axes - 2, "tensor.load", (), (90, ()), (8, 0)),
            (".MODE{im2col::w}", 2, OTHER, _GROUPED, (100, ()), (8, 6)),
            (".MODE{im2col::w::128}", 2, OTHER, _GROUPED, (100, _GROUPED), (8, 6)),
        ):
            loads = _loads(f"D{{{axes}d}}", mode, "tensor", f"o:{count}*u16", meaning, since, pair, own)
            yield from _on_rubin(loads)
    yield from _on_rubin(
        _loads("D{2d}", ".MODE{tile::gather4}", "tensor(5)", "", "tensor.load", (8, 6), _GROUPED, (100, ()))
    )
    for rank, mode, tensor, since, meaning, only in (
        (_ANY, _TILE, "tensor", (8, 0), "tensor.store", ()),
        (_IMAGE, ".MODE{im2col_no_offs}", "tensor", (8, 0), "tensor.store", ()),
        ("D{2d}", ".MODE{tile::scatter4}", "tensor(5)", (8, 6), "tensor.store", _GROUPED),
        (_IMAGE, ".MODE{im2col_no_offs::w}", "tensor", (9, 4), OTHER, RUBIN),
    ):
        head, tail = f"{rank}.global.shared::cta", f"{mode}.bulk_group{HINT}"
        operands = f"a:{tensor}, b:[shared], H?policy:b64"
        yield row(f"{_LOAD}.{head}{tail}", operands, _SECTION, ptx=since, sm=90, meaning=meaning, only=only)
        if "scatter" not in mode:  # cp.reduce.async.bulk.tensor
            yield row(f"{_REDUCE}.{head}.{_TENSOR_OPERATIONS}{tail}", operands, "9.7.9.25.5.3", ptx=since, sm=90,
                      meaning=meaning, only=only)  # fmt: skip
    # cp.async.bulk.prefetch.tensor, applypriority.async.bulk.tensor
    for rank, mode, operands, since, meaning, only in (
        (_ANY, _TILE, "b:tensor", (8, 0), "tensor.prefetch", ()),
        ("D{2d}", ".MODE{tile::gather4}", "b:tensor(5)", (8, 6), "tensor.prefetch", _GROUPED),
        *(
            (f"D{{{axes}d}}", mode, f"b:tensor, o:{count}*u16", since, meaning, only)
            for axes in (3, 4, 5)
            for mode, count, meaning, since, only in (
                (".MODE{im2col}", axes - 2, "tensor.prefetch", (8, 0), ()),
                (".MODE{im2col::w}", 2, OTHER, (8, 6), _GROUPED),
                (".MODE{im2col::w::128}", 2, OTHER, (8, 6), _GROUPED),
            )
        ),
    ):
        head, least = f"{_PREFETCH}.{rank}.L2.global{mode}", 100 if "gather" in mode else 90
        hinted = f"{operands}, H?policy:b64"
        yield row(f"{head}{HINT}", hinted, "9.7.9.25.5.4", since, least, meaning, only)
        yield of_rubin(f"{head}.L2::evict_last", operands, "9.7.9.25.5.4", meaning=meaning)
        yield _priority(f".tensor.{rank}{{.global}}{mode}", operands, "9.7.10.19", meaning)
    yield _priority(f".tensor.{_IMAGE}{{.global}}.MODE{{im2col_no_offs}}", "b:tensor", "9.7.10.19", "tensor.prefetch")


def _priority(words: str, operands: str, section: str, meaning: str) -> PatternRow:
    """The end of a priority, of PTX 9.4."""
    spelling = f"applypriority.async.bulk{words}.bulk_group.L2::evict_normal"
    return of_rubin(spelling, operands, section, meaning=meaning, text=(9, 4))


@cache
def tensor_rows() -> tuple[PatternRow, ...]:
    """Those of boxes, of tensor maps, and of priorities."""
    return (
        *_overridden(_boxes()),
        # 9.7.9.25.4.3, 9.7.10.18 of PTX 9.4  A prefetch with a priority, and the end of it
        of_rubin("cp.async.bulk.prefetch.L2.global.L2::evict_last", f"a:[global], {_SIZE}", "9.7.9.25.4.3",
                 meaning="hint"),
        _priority("{.global}", f"a:[global], {_SIZE}", "9.7.10.18", "hint"),
        # 9.7.9.26  tensormap.query, tensormap.replace
        row("tensormap.query.alloc_class_large{P=.global}.b1024", "d:pred, a:[]", "9.7.9.26", ptx=(9, 5), sm=90,
            only=_QUERIED, meaning="tensor.class"),
        *_replacements(),
        # 9.7.13.16  tensormap.cp_fenceproxy
        row("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.{cta,cluster,gpu,sys}.sync.aligned",
            "a:[global], b:[shared], n:imm(128)", "9.7.13.16", ptx=(8, 3), sm=90, meaning="tensor.copy map"),
    )  # fmt: skip


# Addresses that stand for memory of several GPUs. Source: PTX ISA 9.7.9.14.

_BYTES: Specific = (
    ("sm_100a", (8, 6)),
    ("sm_120a", (8, 7)),
    ("sm_121a", (8, 8)),
    ("sm_100f", (8, 8)),
    ("sm_110f", (9, 0)),
)
"""The targets that know 8-bit floats here."""

_HALVES = (
    ("{P=.global}.O.T{f16x2}", "T"),
    ("{P=.global}.O.T{bf16x2}", "T"),
    ("{P=.global}.O.V{v2,v4}.T{f16x2}", "V*T"),
    ("{P=.global}.O.V{v2,v4}.T{bf16x2}", "V*T"),
    ("{P=.global}.O.V{v2,v4,v8}.{f16}", "V*b16"),
    ("{P=.global}.O.V{v2,v4,v8}.T{bf16}", "V*T"),
)
_NARROW = (
    ("{P=.global}.O.{e4m3x4,e5m2x4}", "b32"),
    ("{P=.global}.O.V{v2,v4}.{e4m3x4,e5m2x4}", "V*b32"),
    ("{P=.global}.O.V{v2,v4,v8}.{e4m3x2,e5m2x2}", "V*b16"),
    ("{P=.global}.O.V{v4,v8}.{e4m3,e5m2}", "V*b8"),
)
"""Spellings, and the registers of their values. Types of less than 16 bits may lie in any register of their size."""

_WORDS = (
    ("{P=.global}.O.T{b32,b64}", ".{and,or,xor}"),
    ("{P=.global}.O.T{u32,s32,u64,f32,f64}", ".add"),
    ("{P=.global}.O.T{u32,s32,u64,s64}", ".{min,max}"),
    ("{P=.global}.O.V{v2,v4}.T{f32}", ".add"),
)


def _form(
    name: str, words: str, value: str, operation: str, ptx: Version = (8, 1), only: Specific = ()
) -> Iterator[PatternRow]:
    """Unordered, and ordered within a scope."""
    words = words.replace(".O", operation)
    operands = f"d:{value}, a:[]" if name == "ld_reduce" else f"a:[], b:{value}"
    weak = "" if name == "red" else "{.weak}"
    orders = "acquire" if name == "ld_reduce" else "release"
    for order in (weak, f".{{relaxed,{orders}}}.{{cta,cluster,gpu,sys}}"):
        yield row(f"multimem.{name}{order}{words}", operands, "9.7.9.14", ptx=ptx, sm=90, only=only)


def multimem_rows() -> Iterator[PatternRow]:
    """Those of memory of several GPUs."""
    for words, operation in _WORDS:
        for name in ("ld_reduce", "red"):
            yield from _form(name, words, "V*T" if ".V" in words else "T", operation)
    for words, value in _HALVES:
        yield from _form("ld_reduce", words, value, ".{add,min,max}")
        yield from _form("ld_reduce", words, value, ".add.acc::f32", (8, 2))
        yield from _form("red", words, value, ".{add,min,max}" if ".V" in words else ".add")
        yield from _form("st", words, value, "")
    for words, value in _NARROW:
        yield from _form("ld_reduce", words, value, ".{add,min,max}", (8, 6), _BYTES)
        yield from _form("ld_reduce", words, value, ".add.acc::f16", (8, 6), _BYTES)
        yield from _form("st", words, value, "", (8, 6), _BYTES)
    yield from _form("st", "{P=.global}.T{b32,b64,u32,s32,u64,s64,f32,f64}", "T", "")
    yield from _form("st", "{P=.global}.V{v2,v4}.T{f32}", "V*T", "")
