"""Instructions that PTX has and that there are no rows for: they are counted, and the words of their opcodes checked.

Source: PTX ISA 9.7.10, 9.7.11, 9.7.9.26, 9.7.16.
"""

from __future__ import annotations

import re

from .instructions import roots

_GEOMETRIES = "1d 2d 3d a1d a2d cube acube 2dms a2dms"
_SIZES = "width height depth channel_data_type channel_order array_size"
_SURFACES = "b p 1d 2d 3d a1d a2d v2 v4 b8 b16 b32 b64 trap clamp zero"

_WORDS = {
    # Texture Instructions
    "tex": f"base level grad {_GEOMETRIES} v2 v4 u32 s32 f16 f16x2 f32",
    "tld4": "r g b a 2d a2d cube acube v4 u32 s32 f32",
    "txq": f"level {_SIZES} normalized_coords num_mipmap_levels num_samples force_unnormalized_coords filter_mode "
    "addr_mode_0 addr_mode_1 addr_mode_2 b32",
    "istypep": "texref samplerref surfref",
    # Surface Instructions
    "suld": f"{_SURFACES} ca cg cs cv",
    "sust": f"{_SURFACES} wb cg cs wt",
    "sured": f"{_SURFACES} add min max and or u32 s32 u64 s64",
    "suq": f"{_SIZES} memory_layout b32",
    # Data Movement and Conversion Instructions
    "clusterlaunchcontrol": "try_cancel query_cancel async shared::cta mbarrier::complete_tx::bytes "
    "multicast::cluster::all is_canceled get_first_ctaid get_first_ctaid::x get_first_ctaid::y get_first_ctaid::z pred "
    "v4 b32 b128",
    # TensorCore 5th Generation Family Instructions
    "tcgen05": "alloc dealloc relinquish_alloc_permit ld st wait::ld wait::st cp shift mma sp ws commit "
    "fence::before_thread_sync fence::after_thread_sync cta_group::1 cta_group::2 sync aligned down "
    "shared::cta shared::cluster mbarrier::arrive::one multicast::cluster 16x64b 16x128b 16x256b 32x32b "
    "16x32bx2 x1 x2 x4 x8  x16 x32 x64 x128 pack::16b unpack::16b red min max abs NaN b32 b64 f32 u32 s32 "
    "128x256b 4x256b 128x128b 64x128b 32x128b  warpx2::02_13 warpx2::01_23 warpx4 b8x16 b6x16_p32 b4x16_p64 "
    "kind::f16 kind::tf32 kind::f8f6f4 kind::i8 kind::mxf8f6f4  kind::mxf4 kind::mxf4nvf4 block_scale "
    "scale_vec::1X scale_vec::2X scale_vec::4X block16 block32 ashift  collector::a::fill collector::a::use "
    "collector::a::lastuse collector::a::discard "
    + " ".join(f"collector::b{n}::{use}" for n in range(4) for use in ("fill", "use", "lastuse", "discard")),
}
FAMILIES = {root: frozenset(words.split()) for root, words in _WORDS.items()}
"""First words of their opcodes, with the words that may follow. One that has rows by now is checked by them."""

_NAMED = re.compile(
    r"tex\.((base|level|grad)\.)?([123a]|cube)|tld4\.[rgba]\.|txq\.|istypep\.|suld\.b\.|sust\.[bp]\.|sured\.[bp]\.|suq\."
    r"|clusterlaunchcontrol\.(try|query)_cancel\."
    r"|tcgen05\.(alloc|dealloc|relinquish_alloc_permit|ld|st|wait|cp|shift|mma|commit|fence)\b"
)
"""How their opcodes begin."""


def family(opcode: str) -> str | None:
    """The family that an opcode without a row is of; None if it is of none."""
    root, *words = opcode.split(".")
    if root in roots() or not words or not FAMILIES.get(root, frozenset()).issuperset(words):
        return None
    return root if _NAMED.match(opcode) else None
