"""How the matrix instructions compute, architecture by architecture: the parameters, and where they come from.

`arithmetic("sm_100", row)` is what one form of `mma`, `mma.sp`, `wmma.mma` or `wgmma` does there::

    >>> arithmetic("sm_80", find("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")).block
    8

Each row says what it rests on. `confirmed` is said only of rows whose answers a GPU of that architecture gave too,
word for word, in recordings that the tests replay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from ...dialect.isa.form import KIND_F8F6F4, KIND_MXF4, KIND_MXF4NVF4, KIND_MXF8F6F4, ProductForm
from ...dialect.isa.wmma import WmmaMma

Row = ProductForm

FUSED, WIDENED, SCALAR, CHAIN, GROUPED, INTEGER, BITS = (
    "fused", "widened", "scalar", "chain", "grouped", "integer", "bits",
)  # fmt: skip
ALGORITHMS: Mapping[str, str] = MappingProxyType({
    FUSED: "the sum described above: truncated to a common exponent, and added exactly (`fused_sum`)",
    WIDENED: "8-bit floats become f16; fused sums for k mod 4 < 2 and for the rest; then C, to nearest (`product`)",
    SCALAR: "f32 multiply-adds of single elements, C last (`product`)",
    CHAIN: "IEEE fused multiply-adds from C, k ascending (`f64`)",
    GROUPED: "exact sums of 16 products times their scales, added with C as in a fused block; one that cancels keeps "
    "the exponent of its scales, one of zeros alone has that of a zero, as in MMA-Sim 2.1.1 (`fused_sum`)",
    INTEGER: "the exact sum, wrapped or clamped to 32 bits (`product`)",
    BITS: "the number of ones in the xor, or the and, added to C (`product`)",
})  # fmt: skip
"""The algorithms, and the modules that have them."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How an architecture, and later ones up to the next row, multiplies operands of one family.

    For fused sums, `block` is L, the largest number of products in one sum. `fraction` is F, the number of bits that
    are kept below the largest exponent. `zero_exponent` is the exponent of a zero term if D is f32. `mantissa` is the
    number of bits of the sum that an f32 D keeps. With `half_addend`, an f16 C enters a sum with f32 D as it is, and a
    subnormal one has the least exponent of f16. Without it, C is converted to f32 first. `evidence` names the source.
    """

    sm: int
    family: str
    algorithm: str
    evidence: str
    sparse: bool = False
    block: int = 0
    fraction: int = 0
    zero_exponent: int = 0
    mantissa: int = 23
    half_addend: bool = False

    @property
    def arch(self) -> str:
        """The first architecture it is about, such as "sm_80"."""
        return f"sm_{self.sm}"

    def zero(self, d: str) -> int:
        """The exponent of a zero term, by the type of D."""
        return self.zero_exponent + (112 if d == "f16" else 0)

    @property
    def confirmed(self) -> bool:
        """Whether a GPU agreed word for word, in recordings that the tests replay."""
        return self.evidence.startswith(_H200)

    @property
    def compared(self) -> str:
        """Who compared it with a GPU of that architecture, word for word; "no one" if nobody did."""
        if self.confirmed:
            return "the tests"
        return next((who for said, who in _COMPARED.items() if self.evidence.startswith(said)), "no one")

    def __str__(self) -> str:
        return f"{self.arch} {self.family}{' sparse' if self.sparse else ''}"


_MODELS = "published models: MMA-Sim 2.1.1, MATLAB-tensor-core, arXiv 2511.10909 and 2512.07004"
_PUBLIC = (
    f"{_MODELS}; no difference from the 5000 dot products of moderate numbers per format that MATLAB-tensor-core "
    "recorded on V100, A100, A2, Ada, L40S, B200 (test/public_words.py)"
)
_COMPARED: Mapping[str, str] = MappingProxyType({
    _PUBLIC: "test/public_words.py",
    _MODELS: "the models' authors",
    "MMA-Sim": "the models' authors",
})  # fmt: skip
_H200 = "results of an H200 for normal, wide, subnormal, cancelling, random and special operands: no difference"
_LIKE_DENSE = "assumed, as no published model covers mma.sp: the selected products form blocks as in the dense form"
_EXACT = "the ISA defines the result exactly"
_ISA = f"{_EXACT} (9.7.14.5.14)"
_TENSOR_MEMORY = (
    "MMA-Sim 2.1.1's model of tcgen05.mma, of which test/public_models.py finds no difference; no recorded word is "
    "known to come from it"
)
_VOLTA = f"{_PUBLIC}; ptxas 12.4 assembles wmma to the machine instruction of m8n8k4"
_SASS = "machine code of ptxas 13.0"


def _blocks(sm: int, half: int, fraction: int, zero: int, evidence: str, sparse: str) -> tuple[Arithmetic, ...]:
    """f16, bf16 and tf32, dense and (with evidence for it) sparse; tf32 blocks have half as many products."""
    families = ("f16", "bf16", "tf32") if sm >= 80 else ("f16",)
    return tuple(
        Arithmetic(sm, f, FUSED, why, dense == 1, half // 2 if f == "tf32" else half, fraction, zero)
        for dense, why in enumerate((evidence, sparse))
        if why
        for f in families
    )


ROWS: tuple[Arithmetic, ...] = (
    # Half precision, bf16, tf32
    Arithmetic(70, "f16", FUSED, _VOLTA, block=4, fraction=23, zero_exponent=-131, half_addend=True),
    *_blocks(75, 8, 24, -132, _MODELS, ""),
    *_blocks(80, 8, 24, -132, _PUBLIC, _LIKE_DENSE),
    *_blocks(90, 16, 25, -133, _H200, _H200),
    *_blocks(100, 16, 25, -133, _PUBLIC, _LIKE_DENSE),
    # wmma m16n16k8 of tf32: on an H200 four products at a time, unlike mma
    Arithmetic(80, "wmma tf32", FUSED, _PUBLIC, block=4, fraction=24, zero_exponent=-132),
    Arithmetic(90, "wmma tf32", FUSED, _H200, block=4, fraction=25, zero_exponent=-133),
    Arithmetic(100, "wmma tf32", FUSED, _PUBLIC, block=4, fraction=25, zero_exponent=-133),
    # m8n8k4: the tensor core's own on sm_70, which sm_75 still has; multiply-adds of single elements from sm_80
    *(
        Arithmetic(sm, "m8n8k4", FUSED, why, block=4, fraction=23, zero_exponent=-131, half_addend=True)
        for sm, why in ((70, _MODELS), (75, f"{_MODELS}; ptxas 12.4 assembles it to the instruction of sm_70"))
    ),
    Arithmetic(80, "m8n8k4", SCALAR, f"{_SASS} for sm_90; assumed for the others"),
    Arithmetic(90, "m8n8k4", SCALAR, _H200),
    Arithmetic(100, "m8n8k4", SCALAR, f"{_SASS} for sm_90; assumed for the others"),
    # 8-bit floating point
    Arithmetic(89, "fp8", FUSED, _PUBLIC, block=16, fraction=13, zero_exponent=-132, mantissa=13),
    Arithmetic(89, "fp8", FUSED, _LIKE_DENSE, sparse=True, block=16, fraction=13, zero_exponent=-132, mantissa=13),
    *(
        Arithmetic(sm, "fp8", WIDENED, why, sparse, 16, 25, -133)
        for sm, sparse, why in (
            (90, False, _H200),
            (90, True, _H200),
            (100, False, f"{_PUBLIC}; {_SASS} converts the operands as for sm_90"),
            (100, True, "assumed: as on sm_90"),
        )
    ),
    Arithmetic(120, "fp8", FUSED, _MODELS, block=32, fraction=25, zero_exponent=-133),
    Arithmetic(120, "fp8", FUSED, _LIKE_DENSE, sparse=True, block=32, fraction=25, zero_exponent=-133),
    # The narrow floating-point types, with and without scales
    *(
        Arithmetic(100, family, FUSED, why, sparse=sparse, block=32, fraction=25, zero_exponent=-133)
        for family in (KIND_F8F6F4, KIND_MXF8F6F4)
        for sparse, why in ((False, _MODELS), (True, _LIKE_DENSE))
    ),
    *(
        Arithmetic(100, KIND_MXF4, GROUPED, why, sparse=sparse, block=64, fraction=35, zero_exponent=-139)
        for sparse, why in ((False, _MODELS), (True, _LIKE_DENSE))
    ),
    # Double precision
    Arithmetic(80, "f64", CHAIN, "assumed: as on sm_90"),
    Arithmetic(90, "f64", CHAIN, _H200),
    Arithmetic(100, "f64", CHAIN, "assumed: as on sm_90"),
    # Integers and single bits
    *(
        Arithmetic(sm, family, algorithm, _H200 if sm == 90 else why, sparse)
        for sm, family, algorithm, why in (
            (72, "int8", INTEGER, _ISA),
            (90, "int8", INTEGER, _H200),
            (100, "int8", INTEGER, _ISA),
            (75, "int4", INTEGER, _ISA),
            (90, "int4", INTEGER, f"{_H200}; made of two s8 products, the first from 0, which is the same sum"),
            (100, "int4", INTEGER, _ISA),
        )
        for sparse in (False, True)
    ),
    # Warpgroups: one block an instruction
    *(
        Arithmetic(90, f"wgmma {name}", FUSED, _H200, sparse, block, fraction, -133, mantissa=mantissa)
        for name, block, fraction, mantissa in (
            ("f16", 16, 25, 23),
            ("bf16", 16, 25, 23),
            ("tf32", 8, 25, 23),
            ("fp8", 32, 13, 13),
        )
        for sparse in (False, True)
    ),
    Arithmetic(90, "wgmma int8", INTEGER, _H200),
    Arithmetic(90, "wgmma int8", INTEGER, _H200, sparse=True),
    Arithmetic(90, "wgmma b1", BITS, _H200),
    # Tensor memory: one block an instruction
    *(
        Arithmetic(100, f"tcgen05 {name}", algorithm, why, sparse, block, fraction, zero)
        for name, algorithm, block, fraction, zero in (
            ("f16", FUSED, 16, 25, -133),
            ("bf16", FUSED, 16, 25, -133),
            ("tf32", FUSED, 8, 25, -133),
            (KIND_F8F6F4, FUSED, 32, 25, -133),
            (KIND_MXF8F6F4, FUSED, 32, 25, -133),
            (KIND_MXF4, GROUPED, 64, 35, -139),
        )
        for sparse, why in ((False, _TENSOR_MEMORY), (True, _LIKE_DENSE))
    ),
    *(Arithmetic(100, "tcgen05 int8", INTEGER, f"{_EXACT} (9.7.16.10)", sparse) for sparse in (False, True)),
    Arithmetic(75, "b1", BITS, _ISA),
    Arithmetic(90, "b1", BITS, _H200),
    Arithmetic(100, "b1", BITS, _ISA),
)
"""By architecture and family of operands."""

_FAMILIES = {"e4m3": "fp8", "e5m2": "fp8", "s8": "int8", "u8": "int8", "s4": "int4", "u4": "int4"}


def family(row: Row) -> str:
    """The family of an instruction's operands, as `Arithmetic.family` has it."""
    if row.kind:
        return row.UNIT + (KIND_MXF4 if row.kind == KIND_MXF4NVF4 else row.kind)
    if row.products > 1:
        return "m8n8k4"
    if isinstance(row, WmmaMma) and row.a.name == "tf32":
        return "wmma tf32"
    name = _FAMILIES.get(row.a.name, row.a.name)
    return row.UNIT + name


@cache
def arithmetic(target: str, row: Row) -> Arithmetic:
    """The arithmetic of an instruction on a target such as "sm_100" or "sm_90a".

    A target without a row of its own has the arithmetic of the nearest lower one: sm_103 that of sm_100. Raises
    ValueError for a target that cannot be parsed, or an instruction without a known arithmetic there.
    """
    match = re.fullmatch(r"sm_(\d+)[af]?", target)
    if match is None:
        raise ValueError(f"unknown target '{target}'; a target is written like sm_90a")
    wanted, sparse = family(row), row.sparse
    rows = [a for a in ROWS if a.family == wanted and a.sparse == sparse]
    older = [a for a in rows if a.sm <= int(match[1])]
    if not older:
        first = min((a.sm for a in rows), default=0)
        raise ValueError(f"no arithmetic of {row.spelling} is known for {target}; the oldest is sm_{first}")
    return max(older, key=lambda a: a.sm)
