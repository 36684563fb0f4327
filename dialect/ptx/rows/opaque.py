"""Rows of opaque operands: textures and surfaces (PTX ISA 9.7.10, 9.7.11), and `fabric` (9.3, 9.7.10). They are
verified, not run: what a texture, a surface or a logical endpoint is, a driver knows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ...isa.row import Specific, Version
from .grammar import PatternRow, row


def _texture_row(spelling: str, operands: str, section: str, ptx: Version = (1, 0)) -> PatternRow:
    return row(spelling, operands, section, ptx=ptx, meaning="texture")


_GEOMETRIES = {
    "1d": ("1", "V*s32", "1*f32", "f32,s32"),
    "2d": ("2", "2*s32", "2*f32", "f32,s32"),
    "3d": ("4", "4*s32", "4*f32", "f32,s32"),
    "a1d": ("i2", "V*s32", "1*f32", "f32,s32"),
    "a2d": ("i4", "2*s32", "2*f32", "f32,s32"),
    "cube": ("4", "", "4*f32", "f32"),
    "acube": ("i4", "", "4*f32", "f32"),
    "2dms": ("i4", "2*s32", "", "s32"),
    "a2dms": ("i4", "2*s32", "", "s32"),
}
"""By geometry the coordinates, of which the first may be an index, the offset, a gradient, and types of coordinates."""

_COMPARED = ("1d", "2d", "a1d", "a2d", "cube", "acube")
"""What depths can be compared in."""

_RESULTS = ("N{v4}.T{u32,s32,f32,f16}", "N{v2}.T{f16x2}")


def _texture(head: str, geometry: str, types: str, more: str, section: str) -> Iterator[PatternRow]:
    """Loads of one geometry: alone or with an offset, and where depths can be compared with one to compare with."""
    place, offset, *_ = _GEOMETRIES[geometry]
    operands = f"d|p:N*T, a:texture({place}){more}"
    compared = ", ?f:f32" if geometry in _COMPARED and types.endswith("C{f32}") else ""
    tails = [compared, *([f", e:{offset}{compared}"] if offset else [])]
    if offset == "V*s32" and compared and ".grad" in head:
        tails[1:] = [", e:V*s32", ", e:1*s32, f:f32"]  # ptxas takes an offset without braces alone
    for tail in tails:
        yield _texture_row(f"{head}.{types}", operands + tail, section)


def _textures() -> Iterator[PatternRow]:
    """9.7.10.3, .4  tex, tld4"""
    for geometry, (_, _, gradient, coordinates) in _GEOMETRIES.items():
        modes = {"": "", ".base": ""}
        if gradient:
            modes |= {".level": ", l:C", ".grad": f", x:{gradient}, y:{gradient}"}
        for (mode, more), result, kind in product(modes.items(), _RESULTS, coordinates.split(",")):
            yield from _texture(f"tex{mode}.{geometry}", geometry, f"{result}.C{{{kind}}}", more, "9.7.10.3")
    for geometry in ("2d", "a2d", "cube", "acube"):
        types = "N{v4}.T{u32,s32,f32}.C{f32}"
        yield from _texture(f"tld4.{{r,g,b,a}}.{geometry}", geometry, types, "", "9.7.10.4")


_SIZES = "width,height,depth"
_KINDS = f"{_SIZES},channel_data_type,channel_order,array_size"
_SAMPLED = "normalized_coords,num_mipmap_levels,num_samples,force_unnormalized_coords,filter_mode"
_ADDRESSED = "addr_mode_0,addr_mode_1,addr_mode_2"

_SURFACES = {"1d": "1", "2d": "2", "3d": "4", "a1d": "2", "a2d": "4"}
_MODES = "{trap,clamp,zero}"
_VECTORS = (("", "{b8,b16,b32,b64}"), (".V{v2}", "{b8,b16,b32,b64}"), (".V{v4}", "{b8,b16,b32}"))


def _surfaces() -> Iterator[PatternRow]:
    """9.7.11.1 to .3  suld, sust, sured"""
    for geometry, number in _SURFACES.items():
        place = f"a:surface({number})"
        for vector, types in _VECTORS:
            head = f"suld.b.{geometry}{{.ca,.cg,.cs,.cv}}{vector}"
            yield _texture_row(f"{head}.T{types}.{_MODES}", f"d:V*T+, {place}", "9.7.11.1")
            for form, stored in (("b", types), ("p", "{b32}")):
                head = f"sust.{form}.{geometry}{{.wb,.cg,.cs,.wt}}{vector}"
                yield _texture_row(f"{head}.T{stored}.{_MODES}", f"{place}, b:V*T+", "9.7.11.2")
    for geometry in ("1d", "2d", "3d"):
        for form, operation, types, ptx in (
            ("b", "add", "u32,s32,u64", (1, 0)), ("b", "{min,max}", "u32,s32", (1, 0)),
            ("b", "{min,max}", "u64,s64", (8, 1)), ("b", "{and,or}", "b32", (1, 0)),
            ("p", "{add,and,or,min,max}", "b32", (1, 0)), ("p", "{min,max}", "b64", (8, 1)),
        ):  # fmt: skip
            yield _texture_row(f"sured.{form}.{operation}.{geometry}.T{{{types}}}.{_MODES}",
                      f"a:surface({_SURFACES[geometry]}), b:T", "9.7.11.3", ptx)  # fmt: skip


TEXTURE_ROWS: tuple[PatternRow, ...] = (
    *_textures(),
    # 9.7.10.5  txq
    _texture_row(f"txq.{{{_KINDS},{_SAMPLED},{_ADDRESSED}}}.T{{b32}}", "d:T, a:texture(0)", "9.7.10.5"),
    _texture_row(f"txq.level.{{{_SIZES}}}.T{{b32}}", "d:T, a:texture(0), l:b32", "9.7.10.5"),
    # 9.7.10.6  istypep
    _texture_row("istypep.{texref,samplerref,surfref}", "d:pred, a:u64", "9.7.10.6"),
    *_surfaces(),
    # 9.7.11.4  suq
    _texture_row(f"suq.{{{_KINDS},memory_layout}}.T{{b32}}", "d:T, a:surface(0)", "9.7.11.4"),
)


# `fabric`: copies, reductions and atomics at logical endpoints of other GPUs.

_DONE = "mbarrier::complete_tx::16B.mbarrier::report::fabric"
_READ = "mbarrier::complete_tx::bytes.mbarrier::report::fabric"
_HINT, _POLICY = "{H=.L2::cache_hint}", "H?policy:b64"

_REDUCTIONS = ("{and,or,xor}.{b32,b64}", "{min,max}.{u32,s32,u64,s64,f16,bf16}", "add.{u32,u64,f16,bf16,f32,f64}")
_PULLED = ("{and,or,xor}.{b32,b64}", "{min,max}.{u32,s32,u64,s64,f16,bf16}", "add.{u32,u64,f16,bf16,f32}")
_PULLED_LATER = ("{min,max}.{e4m3,e5m2}", "add.acc::f32.{f16,bf16,e4m3,e5m2}")
_LATER: Specific = tuple((name, (9, 3)) for name in ("sm_100f", "sm_110f", "sm_120f"))
"""Where 8-bit floats are pulled, and narrow ones summed in f32."""

_ATOMICS = (
    "{and,or,xor}.{b32,b64}", "{min,max}.{u32,s32,u64,s64,f16x2,bf16x2}", "add.{u32,u64,f16x2,bf16x2,f32,f64}",
    "{exch,cas}.{b32,b64,b128}",
)  # fmt: skip


def _fabric_row(spelling: str, operands: str, section: str, ptx: Version = (9, 3), only: Specific = ()) -> PatternRow:
    text = (9, 4) if section == "10" else (9, 3)
    section = f"9.7.{10 if text == (9, 3) else 11}.5.{section}"
    return row(f"fabric.{spelling}", operands, section, ptx=ptx, sm=100, meaning="fabric", only=only, text=text)


def _fabric() -> Iterator[PatternRow]:
    """9.7.10.5.1 to .6; `try_atom` is of 9.4, groups of 9.5."""
    local, barrier = "b:[shared], n:u32", "m:[shared]"
    yield _fabric_row(f"try_get.async.shared::cta.{_READ}.relaxed.sys{_HINT}.b128",
               f"b:[shared], a:fabric(2), n:u32, {barrier}, {_POLICY}", "1")  # fmt: skip
    for counted, places in (("", 2), (".counted::bytes", 3)):
        mode, where = f".shared::cta.{_DONE}{counted}", f"a:fabric({places}), {local}, {barrier}"
        yield _fabric_row(f"try_put.async{{.multimem}}{mode}.relaxed.sys{_HINT}.b128", f"{where}, {_POLICY}", "2")
        for operation in _REDUCTIONS:
            yield _fabric_row(
                f"try_red.async{{.multimem}}{mode}.relaxed.sys{_HINT}.{operation}", f"{where}, {_POLICY}", "3"
            )
    yield _fabric_row(f"try_put.async{{.multimem}}.shared::cta.{_DONE}.cp_mask.relaxed.sys{_HINT}.b128",
               f"a:fabric(2), {local}, {barrier}, k:u16, {_POLICY}", "2")  # fmt: skip
    for operation in (*_PULLED, *_PULLED_LATER):
        yield _fabric_row(f"try_pullred.async.multimem.shared::cta.{_READ}.relaxed.sys.{operation}.sync",
                   f"b:[shared], a:fabric(2), n:u32, {barrier}, k:imm(-1/4294967295)", "4",
                   only=_LATER if operation in _PULLED_LATER else ())  # fmt: skip
    for operation in _ATOMICS:
        yield _fabric_row(f"try_atom.async.shared::cta.{_DONE}.relaxed.sys{_HINT}.{operation}",
                   f"a:fabric(2), b:[shared], c:[shared], {barrier}, {_POLICY}", "10", (9, 4))  # fmt: skip
    yield _fabric_row("submit{.op_restrict::fetching}", "", "5")
    yield _fabric_row("submit.commit_group", "", "5", (9, 5))
    yield _fabric_row("wait.sync_restrict::reads", "", "6")
    yield _fabric_row("wait.sync_restrict::read", "n:imm", "6", (9, 5))


FABRIC_ROWS: tuple[PatternRow, ...] = tuple(_fabric())
