"""What ptxas takes of registers beside fragments, accumulators and addresses: rows of (condition, registers, evidence).

A lane has 255 registers; a tile for which a kernel needs more spills. What it needs beside what `needs.lane_registers`
counts is no rule that can be derived: each row is as much as makes the model leave out tiles that spilled, and its
evidence is a product that spills without the row and not with it (ptxas 13.0.88; `make conformance` checks each). The
one row that has none was seen in kernels that have changed since.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from ...dialect.isa.product import ProductForm as Row
from ...dialect.isa.targets import KIB, Target
from ...dialect.isa.types import FP8
from ..linalg.operand import VectorOperand
from ..linalg.product import Product
from .h200 import LOOP_WARPS
from .model import Tile, as_halves, widened
from .packing import WIDEST, access_bytes

NIBBLES_AS_BYTES = 90
"""The first target on which ptxas makes two 8-bit products of one of 4-bit integers, on operands that it widens."""

MOST_GROUP_COLUMNS = 256
"""Columns of the largest instruction of a warpgroup."""

MOST_GROUP_ROWS = 128
"""Rows of the tiles that two warpgroups multiply."""

GROUP_EVIDENCE = (
    "f8E4M3FN f8E4M3FN f16, log, residual, At Bt, 4095x4095x4095, promote=none on sm_90a",
    "bf16 bf16 f32, gelu by tanh, A B, 2200x1600x4096 on sm_90a",
)

REGISTER_EVIDENCE = (
    "f8E4M3FN f8E4M3FN f32, gelu by erf, At Bt, 4096x4096x4096, promote=none on sm_90a",
    "f32 f32 f32, log, residual, A B, 2064x4112x2064 on sm_90a",
    "i8 i8 i32, dynamic, At Bt, 4096x4096x4096 on sm_90a",
)

NIBBLE_BITS, SHORT = 4, 16

FUNCTIONS = {"math.tanh", "math.erf", "math.log"}
"""The functions of an epilogue that take the most registers: 15 instructions and more."""


@dataclass(frozen=True)
class Case:
    """A product in tiles of some size, by an instruction, on a target."""

    product: Product
    tile: Tile
    row: Row
    target: Target

    @property
    def bits(self) -> int:
        """Of an element of A or B as it is multiplied."""
        return self.row.operand_bits

    @property
    def fp8(self) -> bool:
        return self.row.a.name in FP8

    @property
    def as_halves(self) -> bool:
        """Whether 8-bit floats are multiplied as f16."""
        return as_halves(self.row, self.target) or widened(self.product, self.row, self.target)

    @cached_property
    def edges(self) -> bool:
        """Whether tiles reach beyond the edges of a matrix."""
        return not even(self.product, self.tile)

    @cached_property
    def adds(self) -> bool:
        """Whether tiles that reach beyond C are added to it, or the epilogue has a matrix of its own."""
        adds_c = self.product.c is not None and self.edges
        return adds_c or any(not isinstance(operand, VectorOperand) for operand in self.product.epilogue_operands)

    @property
    def addresses(self) -> bool:
        """Whether each copy has an address to compute, for sizes are not known and copies or elements are narrow."""
        narrow = self.bits < 16 or min(map(access_bytes, (self.product.a, self.product.b))) < WIDEST
        return bool(self.product.dynamic) and narrow

    @property
    def widened(self) -> bool:
        """Whether operands become wider ones in registers."""
        return nibbles_widened(self.row, self.target) or self.as_halves

    @property
    def nibbles_converted(self) -> bool:
        """Whether weights of 4 bits, whose rows run along k, are converted in registers."""
        stored = self.product.b.stored
        return stored is not None and stored.element.bits == NIBBLE_BITS and self.product.b.transposed

    @property
    def both_across(self) -> bool:
        """Whether the elements of both operands change places on the way to registers."""
        return self.bits < 16 and self.product.a.transposed and not self.product.b.transposed

    @cached_property
    def functions(self) -> set[str]:
        """The functions of the epilogue that take the most registers."""
        return functions(self.product)


@dataclass(frozen=True)
class Overhead:
    """Registers that a lane needs more under a condition; of rows of one `kind` the largest counts."""

    kind: str
    condition: Callable[[Case], bool]
    registers: int
    evidence: str


ROWS: tuple[Overhead, ...] = (
    Overhead(
        "8-bit floats",
        lambda c: c.fp8 and not c.as_halves,
        5,
        "f8E4M3FN f8E4M3FN f32, added, A B, 4096x4096x4096, fp8_as=none on sm_89",
    ),
    Overhead(
        "8-bit floats as f16, added",
        lambda c: c.as_halves and c.adds,
        8,
        "f8E4M3FN f8E4M3FN f32, residual, A B, 4096x4096x4096 on sm_90",
    ),
    Overhead("addresses", lambda c: c.addresses, 24, "i4 i4 i32, divisible, A B, 4096x4096x4096 on sm_80"),
    # Of the 300 products of 4-bit integers tried, none spills without this row; two pinned kernels follow from it.
    Overhead("addresses", lambda c: c.addresses and c.widened, 56, ""),
    # Two steps of fragments at once: a register of nibbles is for both.
    Overhead(
        "nibbles converted",
        lambda c: c.nibbles_converted,
        32,
        "f16 i4 f32, converted, A Bt, 4096x4096x4096 on sm_90",
    ),
    Overhead(
        "both across",
        lambda c: c.both_across and (c.bits < 8 or c.edges),
        24,
        "i8 i8 i32, added, At B, 4095x4095x4095 on sm_90",
    ),
    Overhead(
        "functions",
        lambda c: bool(c.functions) and c.tile.warps < LOOP_WARPS,
        24,
        "bf16 bf16 bf16, gelu by erf, A B, 4096x4096x4096 on sm_100a",
    ),
    Overhead(
        "functions",
        lambda c: bool(c.functions) and c.fp8,
        24,
        "f8E4M3FN f8E4M3FN f32, gelu by tanh, A B, 4096x4096x4096 on sm_90",
    ),
    # No room for strips.
    Overhead(
        "functions",
        lambda c: bool(c.functions) and c.target.shared < 128 * KIB,
        24,
        "f16 f16 f32, gelu by tanh, A B, 4096x4096x4096 on sm_86",
    ),
    Overhead(
        "functions",
        lambda c: bool(c.functions) and c.edges and c.target.sm < 90,
        24,
        "bf16 bf16 bf16, gelu by tanh, A B, 1000x1000x1000 on sm_87",
    ),
    # Where no `warp.gelu` takes fewer.
    Overhead(
        "functions",
        lambda c: bool(c.functions) and c.edges and c.product.d.element.bits <= 16 and c.target.sm > 90,
        24,
        "bf16 bf16 bf16, gelu by tanh, A Bt, 2047x2047x2047 on sm_100a",
    ),
    Overhead(
        "functions",
        lambda c: "math.log" in c.functions and c.edges,
        24,
        "f32 f32 f32, log, residual, A Bt, 4095x4095x4095 on sm_90",
    ),
    Overhead(
        "functions",
        lambda c: bool(c.functions) and c.edges,
        8,
        "f32 f32 f32, gelu by tanh, A B, 4095x4095x4095 on sm_90",
    ),
)


def overhead(product: Product, tile: Tile, row: Row, target: Target) -> int:
    """Registers beside those of `lane_registers` that a lane needs for a product."""
    case, kinds = Case(product, tile, row, target), dict[str, int]()
    for each in ROWS:
        if each.condition(case):
            kinds[each.kind] = max(each.registers, kinds.get(each.kind, 0))
    # The sums of a group beside all others, and the scales.
    grouped = row.registers("d") * tile.warp[0] * tile.warp[1] // (row.shape.m * row.shape.n) if product.group else 0
    return sum(kinds.values()) + grouped + grouped // 4


def group_spills(product: Product, rows: int, columns: int, *, padded: bool) -> bool:
    """Whether ptxas spills in the epilogue of warpgroups, `rows` in all, each of which holds so many columns of D.

    It has no room for a logarithm and a matrix beside 256 columns where the rows of the matrix are not aligned, as
    those of a D that is `padded`; nor for any of `FUNCTIONS` where three warpgroups multiply, for which a lane has 160
    registers (`GROUP_EVIDENCE`: 20 and 24 bytes).
    """
    if rows > MOST_GROUP_ROWS:
        return bool(functions(product))
    matrix = any(not isinstance(operand, VectorOperand) for operand in product.epilogue_operands)
    return padded and columns == MOST_GROUP_COLUMNS and matrix and "math.log" in functions(product)


def register_spills(product: Product, role: str, wide: int) -> bool:
    """Whether ptxas spills in the epilogue of warpgroups with operand "a" or "b" in registers, by instructions of so
    many columns (`REGISTER_EVIDENCE`).

    Beside any of `FUNCTIONS` it has no room for the addresses at which lanes stage results of 32 bits of an A so, nor
    for the sums of a B so that are more than 224 rows of D; beside a logarithm and a matrix 128 rows. Nor has it room
    for 256 columns of results of 32 bits of an A so in rows that are an unknown distance apart.
    """
    found = functions(product)
    if role == "a":
        return product.d.element.bits > SHORT and (bool(found) or (bool(product.dynamic) and wide > 224))
    matrix = any(not isinstance(operand, VectorOperand) for operand in product.epilogue_operands)
    return bool(found) and wide > (128 if matrix and "math.log" in found else 224)


def nibbles_widened(row: Row, target: Target) -> bool:
    """Whether ptxas widens operands of 4-bit integers in registers."""
    return row.a.bits == 4 and not row.a.is_float and target.sm >= NIBBLES_AS_BYTES


def even(product: Product, tile: Tile) -> bool:
    """Whether no tile reaches beyond the edges."""
    return not (product.m % tile.cta[0] or product.n % tile.cta[1] or product.k % tile.k)


def functions(product: Product) -> set[str]:
    """The functions of the epilogue that take the most registers (sm_80, gelu, 64x48: 16 bytes of spills; sm_103, a
    logarithm beside a residual, 80x48: 4)."""
    epilogue = product.op.epilogue
    return FUNCTIONS & {op.name for op in epilogue.walk()} if epilogue is not None else set()
