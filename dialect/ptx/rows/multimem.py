"""Addresses that stand for memory of several GPUs. Source: PTX ISA 9.7.9.14."""

from __future__ import annotations

from collections.abc import Iterator

from ...isa.targets import Specific, Version
from .grammar import Row, row

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
    ("{P=.global}.O.V{v2,v4,v8}.{f16,bf16}", "V*b16"),
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
) -> Iterator[Row]:
    """Unordered, and ordered within a scope."""
    words = words.replace(".O", operation)
    operands = f"d:{value}, a:[]" if name == "ld_reduce" else f"a:[], b:{value}"
    weak = "" if name == "red" else "{.weak}"
    orders = "acquire" if name == "ld_reduce" else "release"
    for order in (weak, f".{{relaxed,{orders}}}.{{cta,cluster,gpu,sys}}"):
        yield row(f"multimem.{name}{order}{words}", operands, "9.7.9.14", ptx=ptx, sm=90, only=only)


def _rows() -> Iterator[Row]:
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


ROWS = tuple(_rows())
