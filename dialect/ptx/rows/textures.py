"""Rows of textures and surfaces. Source: PTX ISA 9.7.10, 9.7.11.

They are verified, not run: what a texture or a surface is, a driver knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ...isa.row import Version
from .grammar import PatternRow
from .grammar import row as any_row


def row(spelling: str, operands: str, section: str, ptx: Version = (1, 0)) -> PatternRow:
    """A row of this family."""
    return any_row(spelling, operands, section, ptx=ptx, meaning="texture")


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
        yield row(f"{head}.{types}", operands + tail, section)


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
            yield row(f"{head}.T{types}.{_MODES}", f"d:V*T+, {place}", "9.7.11.1")
            for form, stored in (("b", types), ("p", "{b32}")):
                head = f"sust.{form}.{geometry}{{.wb,.cg,.cs,.wt}}{vector}"
                yield row(f"{head}.T{stored}.{_MODES}", f"{place}, b:V*T+", "9.7.11.2")
    for geometry in ("1d", "2d", "3d"):
        for form, operation, types, ptx in (
            ("b", "add", "u32,s32,u64", (1, 0)), ("b", "{min,max}", "u32,s32", (1, 0)),
            ("b", "{min,max}", "u64,s64", (8, 1)), ("b", "{and,or}", "b32", (1, 0)),
            ("p", "{add,and,or,min,max}", "b32", (1, 0)), ("p", "{min,max}", "b64", (8, 1)),
        ):  # fmt: skip
            yield row(f"sured.{form}.{operation}.{geometry}.T{{{types}}}.{_MODES}",
                      f"a:surface({_SURFACES[geometry]}), b:T", "9.7.11.3", ptx)  # fmt: skip


TEXTURE_ROWS: tuple[PatternRow, ...] = (
    *_textures(),
    # 9.7.10.5  txq
    row(f"txq.{{{_KINDS},{_SAMPLED},{_ADDRESSED}}}.T{{b32}}", "d:T, a:texture(0)", "9.7.10.5"),
    row(f"txq.level.{{{_SIZES}}}.T{{b32}}", "d:T, a:texture(0), l:b32", "9.7.10.5"),
    # 9.7.10.6  istypep
    row("istypep.{texref,samplerref,surfref}", "d:pred, a:u64", "9.7.10.6"),
    *_surfaces(),
    # 9.7.11.4  suq
    row(f"suq.{{{_KINDS},memory_layout}}.T{{b32}}", "d:T, a:surface(0)", "9.7.11.4"),
)
