"""Where the assembler and the text disagree, one entry each, with the sentence of the text that decides.

In all of them ptxas 13.5.37 takes what the text does not have; our verdict is the text's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from warploom.dialect.isa.row import Target


@dataclass(frozen=True, slots=True)
class Deviation:
    """Spellings that ptxas takes on the targets `where`, and the sentence (of `section`) that does not have them."""

    pattern: str
    where: Callable[[Target], bool]
    section: str
    sentence: str

    def explains(self, spelling: str, target: Target) -> bool:
        """Whether this is why ptxas takes the spelling."""
        return self.where(target) and re.fullmatch(self.pattern, spelling) is not None


def since(sm: int) -> Callable[[Target], bool]:
    """The targets from a number on."""
    return lambda target: target.sm >= sm


def specific(target: Target) -> bool:
    """The architecture-specific and family-specific targets of sm_100 and later."""
    return target.sm >= 100 and target.suffix != ""


def specific_before_120(target: Target) -> bool:
    """Those of them that have no `.kind`."""
    return specific(target) and target.sm < 120


def specific_since_120(target: Target) -> bool:
    """Those of them that have it."""
    return specific(target) and target.sm >= 120


def architecture(target: Target) -> bool:
    """The architecture-specific ones alone."""
    return target.sm >= 100 and target.suffix == "a"


def architecture_since_120(target: Target) -> bool:
    """The architecture-specific ones that have `.kind`."""
    return target.sm >= 120 and target.suffix == "a"


_LAYOUTS = r"(row|col)\.(row|col)"
_FP8 = r"(e4m3|e5m2)\.(e4m3|e5m2)"
_MMA, _SP = r"mma\.sync\.aligned", r"mma\.sp::ordered_metadata\.sync\.aligned"
_SPACE = r"(\.global|\.shared|\.shared::cta)?"

_SPARSE_SCALED = "Alternate floating point type with block scaling: mma.spvariant...kind.block_scale{.scale_vec_size}"

DEVIATIONS = (
    # 9.7.14.4  wmma
    Deviation(
        rf"wmma\.load\.c\.sync\.aligned\.(row|col)\.m8n8k(32|128){_SPACE}\.f32",
        since(75),
        "9.7.14.4.3",
        "Sub-byte loads, single-bit loads: .ctype = {.s32}",
    ),
    Deviation(
        rf"wmma\.store\.d\.sync\.aligned\.(row|col)\.m8n8k(32|128){_SPACE}\.f32",
        since(75),
        "9.7.14.4.4",
        ".shape = {.m8n8k32, .m8n8k128}; .type = {.s32}",
    ),
    Deviation(
        rf"wmma\.mma\.sync\.aligned\.{_LAYOUTS}\.m16n16k(8|16)(\.r[nzmp])?\.f64\.f64\.f64\.f64",
        since(80),
        "9.7.14.4.5",
        "Floating point Double precision wmma.mma: .shape = {.m8n8k4}",
    ),
    # 9.7.14.5.14  mma
    Deviation(
        rf"{_MMA}\.m8n8k4\.{_LAYOUTS}\.f32\.bf16\.bf16\.f32",
        since(80),
        "9.7.14.5.14",
        ".bf16 alternate floating point type mma operation with .m16n8k8 and .m16n8k16 shapes",
    ),
    Deviation(
        rf"{_MMA}\.m8n8k32\.row\.col\.s32\.[su]4\.[su]4\.s32\.(xor|xor\.popc|and\.popc)",
        since(75),
        "9.7.14.5.14",
        "Single bit: mma.sync.aligned.shape.row.col.s32.b1.b1.s32.bitOp.popc",
    ),
    Deviation(
        rf"{_MMA}\.m16n8k(32|64)\.row\.col\.s32\.[su]4\.[su]4\.s32\.(xor|xor\.popc|and\.popc)",
        since(80),
        "9.7.14.5.14",
        "Single bit: mma.sync.aligned.shape.row.col.s32.b1.b1.s32.bitOp.popc",
    ),
    Deviation(
        rf"{_MMA}\.m16n8k(16|32)\.row\.col\.kind::(mxf8f6f4|mxf4|mxf4nvf4)\.(f16\.{_FP8}\.f16|f32\.{_FP8}\.f32)",
        specific,
        "9.7.14.5.14",
        "Alternate floating point type with block scaling: mma.sync.aligned.m16n8k64.row.col.kind.block_scale",
    ),
    Deviation(
        rf"{_MMA}\.m16n8k16\.row\.col\.kind::f8f6f4\.(f16\.{_FP8}\.f16|f32\.{_FP8}\.f32)",
        specific,
        "9.7.14.5.14",
        "mma.sync.aligned.m16n8k32.row.col.kind.dtype.f8f6f4type.f8f6f4type.ctype",
    ),
    Deviation(
        rf"{_MMA}\.m16n8k32\.row\.col\.kind::f8f6f4\.(f16\.{_FP8}\.f16|f32\.{_FP8}\.f32)",
        specific_before_120,
        "9.7.14.5.14",
        "Support for .kind, .block_scale, .scale_vec_size qualifier requires sm_120a",
    ),
    # 9.7.14.6.3  mma.sp
    Deviation(
        rf"{_SP}\.m16n8k64\.row\.col\.kind::mxf8f6f4\.f32\.{_FP8}\.f32",
        specific,
        "9.7.14.6.3",
        _SPARSE_SCALED,
    ),
    Deviation(
        rf"{_SP}\.m16n8k64\.row\.col\.kind::(mxf4|mxf4nvf4)\.f32\.{_FP8}\.f32",
        architecture,
        "9.7.14.6.3",
        _SPARSE_SCALED,
    ),
    Deviation(
        rf"{_SP}\.m16n8k64\.row\.col\.kind::mxf8f6f4\.f16\.{_FP8}\.f16",
        specific_since_120,
        "9.7.14.6.3",
        _SPARSE_SCALED,
    ),
    Deviation(
        rf"{_SP}\.m16n8k64\.row\.col\.kind::(mxf4|mxf4nvf4)\.f16\.{_FP8}\.f16",
        architecture_since_120,
        "9.7.14.6.3",
        _SPARSE_SCALED,
    ),
    Deviation(
        rf"{_SP}\.m16n8k64\.row\.col\.kind::f8f6f4\.f32\.{_FP8}\.f32",
        specific_before_120,
        "9.7.14.6.3",
        "Support for .kind, .block_scale, .scale_vec_size qualifier requires sm_120a",
    ),
)


def explanation(spelling: str, target: Target) -> Deviation | None:
    """The deviation that explains why ptxas takes a spelling that the text does not have; None if none does."""
    return next((deviation for deviation in DEVIATIONS if deviation.explains(spelling, target)), None)
