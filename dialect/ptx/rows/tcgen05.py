"""Rows of the fifth generation's tensor cores and of tensor memory. Source: PTX ISA 9.7.16."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from ...isa.row import TENSOR_MEMORY, Specific, Version, choice
from ...isa.tensor_product import (
    ALLOCATIONS,
    EACH_ALONE,
    INTEGERS,
    LOAD_SHAPES,
    REDUCING,
    SCALED_INPUT,
    SM_107A,
    SM_107F,
)
from .grammar import PatternRow, row

_GROUP = ".G{cta_group::1,cta_group::2}"
_NEWER: Version = (9, 4)


def _row(
    spelling: str, operands: str, section: str, meaning: str, *, ptx: Version = (8, 6), only: Specific = TENSOR_MEMORY
) -> PatternRow:
    name, section = f"tcgen05.{meaning}", f"9.7.16.{section}"
    return row(f"tcgen05.{spelling}", operands, section, ptx=ptx, sm=100, meaning=name, only=only)


def _allocations() -> Iterator[PatternRow]:
    """9.7.16.7.1  alloc, dealloc, relinquish_alloc_permit"""
    for head, count, ptx in (
        ("", f"n:u32({choice(ALLOCATIONS)})", (8, 6)),
        (".X{exclusive}", "n:u32(32../32)", _NEWER),
    ):
        taken = f"alloc{head}{_GROUP}.sync.aligned{{P=.shared::cta}}.b32"
        yield _row(taken, f"a:[], {count}", "7.1", "alloc", ptx=ptx)
        yield _row(f"dealloc{head}{_GROUP}.sync.aligned.b32", f"a:b32, {count}", "7.1", "dealloc", ptx=ptx)
    yield _row(f"relinquish_alloc_permit{_GROUP}.sync.aligned", "", "7.1", "relinquish")


def _moves() -> Iterator[PatternRow]:
    """9.7.16.8  ld, ld.red, st, wait"""
    for shape, each in LOAD_SHAPES.items():
        split = ", n:imm" if shape.endswith("x2") else ""
        for times in (1 << i for i in range(8)):
            if (count := each * times) > 128:
                break
            words = f".sync.aligned.S{{{shape}}}.N{{x{times}}}"
            yield _row(f"ld{words}{{F=.pack::16b}}.b32", f"d:{count}*b32^, a:[tensor]{split}", "8.2", "ld")
            yield _row(f"st{words}{{F=.unpack::16b}}.b32", f"a:[tensor]{split}, b:{count}*b32", "8.4", "st")
            if (times > 1 and each == 1 and shape[:2] != "16") or (split and times > 1):
                operands = f"d:{count}*b32^, dr:b32^, a:[tensor]{split}"
                for kind in (".O{min,max}.T{u32,s32}", ".O{min,max}{ABS=.abs}{NAN=.NaN}.T{f32}"):
                    yield _row(f"ld.red{words}{kind}", operands, "8.3", "ld.red", ptx=(8, 8), only=REDUCING)
    yield _row("K{wait::ld,wait::st}.sync.aligned", "", "8.5", "wait")


_DECOMPRESSED = ("", ".E{b8x16}.F{b6x16_p32,b4x16_p64}")


def _copies() -> Iterator[PatternRow]:
    """9.7.16.9  cp, shift"""
    for shape in (
        ".S{128x256b,4x256b,128x128b}",
        ".S{64x128b}.C{warpx2::02_13,warpx2::01_23}",
        ".S{32x128b}.C{warpx4}",
    ):
        for formats in _DECOMPRESSED:
            yield _row(f"cp{_GROUP}{shape}{formats}", "a:[tensor], b:descriptor", "9.2", "cp")
    yield _row(f"shift{_GROUP}.down", "a:[tensor]", "9.3", "shift", only=EACH_ALONE)


_USES = "fill,use,lastuse,discard"
_COLLECTORS = "{COLLECTOR=" + ",".join(f".collector::a::{use}" for use in _USES.split(",")) + "}"
_OTHER = ".COLLECTOR_B{" + ",".join(f"collector::b::{use}" for use in _USES.split(",")) + "}"
_BOTH = _COLLECTORS + _OTHER
"""On some targets B can be kept, too."""
_KEPT = "{COLLECTOR=.collector::a::lastuse,.collector::a::discard}"
_BUFFERS = "{COLLECTOR=" + ",".join(f".collector::b{n}::{use}" for n in range(4) for use in _USES.split(",")) + "}"


def _products() -> Iterator[PatternRow]:
    """9.7.16.10.9.1, .2  mma, mma.sp, without scales"""
    kinds = (
        ("f16,tf32", TENSOR_MEMORY, True),
        ("f8f6f4", TENSOR_MEMORY, False),
        ("i8", INTEGERS, False),
        ("ti16", SM_107F, False),
    )
    for kind, only, scales in kinds:
        meaning = "mma" if kind != "ti16" else "untold"
        listed = ",".join(f"kind::{word}" for word in kind.split(","))
        for sparse in ("", ".Z{sp}"):
            section = "10.9.2" if sparse else "10.9.1"
            for number in (1, 2):
                head = f"mma{sparse}.G{{cta_group::{number}}}.K{{{listed}}}"
                for a, words, own in (
                    ("descriptor", _COLLECTORS, only),
                    ("[tensor^]", _COLLECTORS, only),
                    ("[tensor^]", f".A{{ashift}}{_KEPT}", only),
                    ("descriptor", _BOTH, _later(only)),
                    ("[tensor^]", _BOTH, _later(only)),
                    ("[tensor^]", f".A{{ashift}}{_KEPT}{_OTHER}", _later(only)),
                ):
                    meta = ", e:[tensor^]" if sparse else ""
                    for mask in ("", f", m:{4 * number}*b32"):
                        operands = f"a:[tensor^], x:{a}, b:descriptor{meta}, i:b32{mask}, p:flag"
                        if own:
                            yield _row(head + words, operands, section, meaning, only=own)
                        if scales:
                            only_scaled = SM_107F if own == SM_107F else SCALED_INPUT
                            yield _row(head + words, operands + ", s:imm(0..15)", section, meaning, only=only_scaled)


def _later(only: Specific) -> Specific:
    """Targets that also keep B, among those of a kind."""
    return () if only == INTEGERS else SM_107F


def _scaled() -> Iterator[PatternRow]:
    """9.7.16.10.9.1, .2  mma, mma.sp, with scales"""
    kinds = (
        ("mxf8f6f4", "", ".scale_vec::1X", ".block32"),
        ("mxf4", "", ".scale_vec::2X", ".block32"),
        ("mxf4nvf4", None, ".scale_vec::2X,.scale_vec::4X", ".block16,.block32"),
    )
    for kind, default, written, blocks in kinds:
        for sparse in ("", ".Z{sp}"):
            meta = ", e:[tensor^]" if sparse else ""
            fours = sparse and kind != "mxf8f6f4"
            first = (8, 7) if kind == "mxf4nvf4" else (8, 6)
            forms = [(written.replace(".", ""), EACH_ALONE, first), (blocks.replace(".", ""), TENSOR_MEMORY, (8, 8))]
            spelled = [(f".SCALES{{{words}}}", EACH_ALONE if fours else only, ptx) for words, only, ptx in forms]
            if default is not None:
                spelled.append(("", EACH_ALONE if fours else TENSOR_MEMORY, first))  # .block32 without its name
            for vector, only, ptx in spelled:
                for a in ("descriptor", "[tensor^]"):
                    operands = f"a:[tensor^], x:{a}, b:descriptor{meta}, i:b32, sa:[tensor^], sb:[tensor^], p:flag"
                    head = f"mma{sparse}{_GROUP}.K{{kind::{kind}}}.block_scale{vector}"
                    section = "10.9.2" if sparse else "10.9.1"
                    yield _row(head + _COLLECTORS, operands, section, "mma", ptx=ptx, only=only)
                    later = SM_107A if only == EACH_ALONE else SM_107F
                    yield _row(head + _BOTH, operands, section, "mma", ptx=ptx, only=later)


def _looked_up() -> Iterator[PatternRow]:
    """9.7.16.10.9.1  mma whose B are indices of a table"""
    table = ".decompress::lut::b"
    for collectors in (_COLLECTORS, _BOTH):
        for a in ("descriptor", "[tensor^]"):
            operands = f"a:[tensor^], x:{a}, b:descriptor, l:[tensor^], i:b32"
            for number in (1, 2):
                head = f"mma.G{{cta_group::{number}}}.K{{kind::f8f6f4}}{table}{collectors}"
                for mask in ("", f", m:{4 * number}*b32"):
                    yield _row(head, f"{operands}{mask}, p:flag", "10.9.1", "untold", only=SM_107F)
            for scales, only in (("{SCALES=.block32}", SM_107F), (".SCALES{scale_vec::1X}", SM_107A)):
                head = f"mma{_GROUP}.K{{kind::mxf8f6f4}}.block_scale{table}{scales}{collectors}"
                yield _row(head, f"{operands}, sa:[tensor^], sb:[tensor^], p:flag", "10.9.1", "untold", only=only)


def _compressed() -> Iterator[PatternRow]:
    """9.7.16.8.3  `tcgen05.ld` with compression to sparse values"""
    for times in (4, 8, 16, 32, 64, 128):
        words = f".spcompress.sync.aligned.S{{32x32b}}.N{{x{times}}}.O{{min,max}}{{ABS=.abs}}.sp::2:4"
        kept = f"d:{-(-times // 32)}*b32^, dv:{times // 2}*b32^"
        for red, nan, more in (("", "", ""), (".red", "{NAN=.NaN}", ", dr:b32^")):
            yield _row(
                f"ld{red}{words}{nan}.T{{f32}}.b2", f"{kept}{more}, a:[tensor]", "8.3", "ld.spcompress", only=SM_107A
            )


MAX_SPARSE = 253
"""Registers of `spcompress` and of `spdecompress`, all operands together."""


def _sparse() -> Iterator[PatternRow]:
    """spcompress, spdecompress of PTX 9.4: registers made sparse, and dense again, by indices of 2 or 4 bits"""
    more: dict[str, Any] = {"ptx": _NEWER, "sm": 107, "only": SM_107A, "text": _NEWER}
    for times, bits, index in product((1, 2, 4, 8, 16, 32, 64), (8, 16), (2, 4)):
        words = f".T{{b{bits}}}.I{{b{index}}}"
        codes = -(-times * index // bits)
        operands = f"d:{codes}*b32^, dv:{times}*b32^, a:{2 * times}*b32, e:b32^"
        yield row(f"spcompress{words}.sp::2:4.x{times}", operands, "9.7.10.30", meaning="spcompress", **more)
        for part, of in product((1, 2, 4), (2, 4, 8, 16)):
            dense, values, codes = (-(-times * size // 32) for size in (of * bits, part * bits, part * index))
            fits = part < of <= 1 << index and part * bits <= 32 <= of * bits * times <= 4096
            if fits and dense + values + codes <= MAX_SPARSE:
                operands = f"d:{dense}*b32^, e:{codes}*b32, a:{values}*b32"
                spelling = f"spdecompress{words}.P{{sp::{part}:{of}}}.x{times}"
                yield row(spelling, operands, "9.7.10.31", meaning="spdecompress", **more)


def _stationary() -> Iterator[PatternRow]:
    """9.7.16.10.9.3, .4  mma.ws, mma.ws.sp"""
    for kind, only in (("kind::f16,kind::tf32,kind::f8f6f4", TENSOR_MEMORY), ("kind::i8", INTEGERS)):
        for sparse in ("", ".Z{sp}"):
            meta = ", e:[tensor^]" if sparse else ""
            for a in ("descriptor", "[tensor^]"):
                yield _row(
                    f"mma.W{{ws}}{sparse}.G{{cta_group::1}}.K{{{kind}}}{_BUFFERS}",
                    f"a:[tensor^], x:{a}, b:descriptor{meta}, i:b32, p:flag, ?z:b64",
                    "10.9.4" if sparse else "10.9.3", "mma", only=only)  # fmt: skip


def _orders() -> Iterator[PatternRow]:
    """9.7.16.11, .12  fence, commit"""
    yield _row("K{fence::before_thread_sync,fence::after_thread_sync}", "", "11.1", "fence")
    head = f"commit{_GROUP}.mbarrier::arrive::one{{P=.shared::cluster}}"
    for mask, ptx, only in (
        ("", (8, 6), TENSOR_MEMORY),
        ("multicast::cluster", (8, 6), TENSOR_MEMORY),
        ("multicast::cluster::16b", _NEWER, TENSOR_MEMORY),
        ("multicast::cluster::32b", _NEWER, SM_107F),
    ):
        words, bits = (f".M{{{mask}}}.b64", 32 if "32b" in mask else 16) if mask else (".b64", 0)
        operands = f"a:[mbarrier], m:u{bits}(0..{2**bits - 1})" if mask else "a:[mbarrier]"
        yield _row(head + words, operands, "12.1", "commit", ptx=ptx, only=only)
        yield _row(f"{head}.sync_restrict::shared::read::mma::a{words}", operands, "12.1", "commit", only=SM_107F)


TENSOR_CORE_ROWS: tuple[PatternRow, ...] = (
    *_allocations(),
    *_moves(),
    *_copies(),
    *_products(),
    *_scaled(),
    *_looked_up(),
    *_compressed(),
    *_sparse(),
    *_stationary(),
    *_orders(),
)
