"""Copies of boxes of tensors. Source: PTX ISA 9.7.9.25.5 to 9.7.9.27."""

from __future__ import annotations

from collections.abc import Iterator

from ...isa.targets import Specific, Version
from .grammar import Row, row
from .memory import HINT

_GROUPED: Specific = (
    ("sm_100a", (8, 6)), ("sm_101a", (8, 6)), ("sm_100f", (8, 8)), ("sm_101f", (8, 8)), ("sm_110f", (9, 0))
)  # fmt: skip
"""Where pairs of CTAs copy together, rows are gathered, and im2col reads along the width alone."""

_ANY, _IMAGE = "D{1d,2d,3d,4d,5d}", "D{3d,4d,5d}"
_LOAD = "cp.async.bulk.tensor"
_DONE = ".mbarrier::complete_tx::bytes"
_TILE = "{MODE=.tile}"
_MULTICAST = "{C=.multicast::cluster}"
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
) -> Iterator[Row]:
    """Loads of one mode: to a cluster, which only the targets of `pair` have, to the own CTA, and by pairs of CTAs."""
    more = f", {offsets}" if offsets else ""
    operands = f"a:[P], b:{tensor}, m:[shared]{more}"
    cluster = f"{_LOAD}.{rank}.P{{shared::cluster}}.global{mode}{_DONE}{_MULTICAST}"
    alone = f"{_LOAD}.{rank}.P{{shared::cta}}.global{mode}{_DONE}"
    hint, wide = ", H?policy:b64", ", C?mask:u16, H?policy:b64"
    yield row(f"{cluster}{HINT}", operands + wide, _SECTION, ptx=since, sm=90, meaning=meaning, only=pair)
    yield row(f"{alone}{HINT}", operands + hint, _SECTION, ptx=(8, 6), sm=own[0], meaning=meaning, only=own[1])
    pairs = ".{cta_group::1,cta_group::2}"
    yield row(f"{cluster}{pairs}{HINT}", operands + wide, _SECTION, ptx=(8, 6), sm=100, meaning=OTHER, only=_GROUPED)
    yield row(f"{alone}{pairs}{HINT}", operands + hint, _SECTION, ptx=(8, 6), sm=100, meaning=OTHER, only=_GROUPED)


_EDITED: Specific = (
    ("sm_100a", (8, 6)), ("sm_101a", (8, 6)), ("sm_120a", (8, 7)), ("sm_100f", (8, 8)), ("sm_101f", (8, 8)),
    ("sm_110f", (9, 0)), ("sm_120f", (8, 8)),
)  # fmt: skip
"""Where the fields of a tensor map can be replaced, sm_90a aside."""


def _later(ptx: Version) -> Specific:
    """These targets, from a version on."""
    return tuple((name, max(since, ptx)) for name, since in _EDITED)


def _replacements() -> Iterator[Row]:
    """`tensormap.replace`: fields, what they take, and the targets that have them."""
    anywhere: Specific = (("sm_90a", (8, 3)), *_EDITED)
    for field, type, operands, only in (
        ("global_address", "b64", "v:T", anywhere),
        ("rank", "b32", "v:T", anywhere),
        ("box_dim,global_dim,element_stride", "b32", "i:imm(0..4), v:b32", anywhere),
        ("global_stride", "b64", "i:imm(0..4), v:T", anywhere),
        ("elemtype", "b32", "v:imm(0..12)", anywhere),
        ("elemtype", "b32", "v:imm(13..15)", _later((8, 7))),
        ("interleave_layout", "b32", "v:imm(0..2)", anywhere),
        ("swizzle_mode", "b32", "v:imm(0..3)", anywhere),
        ("swizzle_mode", "b32", "v:imm(4)", (("sm_103a", (8, 8)),)),
        ("fill_mode", "b32", "v:imm(0/1)", anywhere),
        ("swizzle_atomicity", "b32", "v:imm(0..3)", _EDITED),
    ):
        spelling = f"tensormap.replace.tile.FIELD{{{field}}}{{P=.global,.shared::cta}}.b1024.T{{{type}}}"
        least, meaning = (90, "tensor.replace") if only is anywhere else (100, "tensor.replace later")
        yield row(spelling, f"a:[P], {operands}", "9.7.9.27", ptx=(8, 3), sm=least, only=only, meaning=meaning)


OTHER = "tensor.unmodelled"
"""The meaning of what the interpreter refuses: im2col along the width alone, gathered rows, pairs of CTAs."""

_OPERATIONS = "OP{add,min,max,inc,dec,and,or,xor}"
_REDUCE = "cp.reduce.async.bulk.tensor"
_PREFETCH = "cp.async.bulk.prefetch.tensor"

ROWS: tuple[Row, ...] = (
    # 9.7.9.25.5.2  cp.async.bulk.tensor
    *_loads(_ANY, _TILE, "tensor", "", "tensor.load", (8, 0)),
    *(
        line
        for rank in (3, 4, 5)
        for mode, count, meaning, pair, own, since in (
            (".MODE{im2col}", rank - 2, "tensor.load", (), (90, ()), (8, 0)),
            (".MODE{im2col::w}", 2, OTHER, _GROUPED, (100, ()), (8, 6)),
            (".MODE{im2col::w::128}", 2, OTHER, _GROUPED, (100, _GROUPED), (8, 6)),
        )
        for line in _loads(f"D{{{rank}d}}", mode, "tensor", f"o:{count}*u16", meaning, since, pair, own)
    ),
    *_loads("D{2d}", ".MODE{tile::gather4}", "tensor(5)", "", OTHER, (8, 6), _GROUPED, (100, ())),
    *(
        row(f"{_LOAD}.{rank}.global.shared::cta{mode}.bulk_group{HINT}", f"a:{tensor}, b:[shared], H?policy:b64",
            _SECTION, ptx=since, sm=90, meaning=meaning, only=only)
        for rank, mode, tensor, since, meaning, only in (
            (_ANY, _TILE, "tensor", (8, 0), "tensor.store", ()),
            (_IMAGE, ".MODE{im2col_no_offs}", "tensor", (8, 0), "tensor.store", ()),
            ("D{2d}", ".MODE{tile::scatter4}", "tensor(5)", (8, 6), OTHER, _GROUPED),
        )
    ),
    # 9.7.9.25.5.3  cp.reduce.async.bulk.tensor
    *(
        row(f"{_REDUCE}.{rank}.global.shared::cta.{_OPERATIONS}{mode}.bulk_group{HINT}",
            "a:tensor, b:[shared], H?policy:b64", "9.7.9.25.5.3", ptx=(8, 0), sm=90, meaning="tensor.store")
        for rank, mode in ((_ANY, _TILE), (_IMAGE, ".MODE{im2col_no_offs}"))
    ),
    # 9.7.9.25.5.4  cp.async.bulk.prefetch.tensor
    row(f"{_PREFETCH}.{_ANY}.L2.global{_TILE}{HINT}", "b:tensor, H?policy:b64", "9.7.9.25.5.4", ptx=(8, 0), sm=90,
        meaning="tensor.prefetch"),
    row(f"{_PREFETCH}.D{{2d}}.L2.global.MODE{{tile::gather4}}{HINT}", "b:tensor(5), H?policy:b64", "9.7.9.25.5.4",
        ptx=(8, 6), sm=100, meaning=OTHER, only=_GROUPED),
    *(
        row(f"{_PREFETCH}.D{{{rank}d}}.L2.global{mode}{HINT}", f"b:tensor, o:{count}*b16, H?policy:b64",
            "9.7.9.25.5.4", ptx=since, sm=90, meaning=meaning, only=only)
        for rank in (3, 4, 5)
        for mode, count, meaning, since, only in (
            (".MODE{im2col}", rank - 2, "tensor.prefetch", (8, 0), ()),
            (".MODE{im2col::w}", 2, OTHER, (8, 6), _GROUPED),
            (".MODE{im2col::w::128}", 2, OTHER, (8, 6), _GROUPED),
        )
    ),
    # 9.7.9.27  tensormap.replace
    *_replacements(),
    # 9.7.13.16.1  tensormap.cp_fenceproxy
    row("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.{cta,cluster,gpu,sys}.sync.aligned",
        "a:[global], b:[shared], n:imm(128)", "9.7.13.16.1", ptx=(8, 3), sm=90, meaning="tensor.copy map"),
)  # fmt: skip
