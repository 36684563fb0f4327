"""What ptxas has been seen to take of registers beside fragments, accumulators and addresses, so that nothing spills.

Each is as much as makes the model leave out tiles that spilled (ptxas 13.0; `test/conformance/test_products.py` finds
more, if there are any).
"""

from __future__ import annotations

from ..dialect.isa.product import Product as Row
from ..dialect.isa.targets import KIB, Target
from ..dialect.isa.types import FP8
from .loop_choice import LOOP_WARPS
from .model import Tile, as_halves
from .packing import WIDEST, access_bytes
from .product import Extra, Product

NIBBLES_AS_BYTES = 90
"""The first target on which ptxas makes two 8-bit products of one of 4-bit integers, on operands that it widens."""

ENOUGH = 24
"""Registers that warp tiles of 64x64 do not have."""


def nibbles_widened(row: Row, target: Target) -> bool:
    """Whether ptxas widens operands of 4-bit integers in registers."""
    return row.a.bits == 4 and not row.a.is_float and target.sm >= NIBBLES_AS_BYTES


def beside(product: Product, tile: Tile, row: Row, target: Target) -> int:
    """Registers beside those of `lane_registers` that a lane needs for a product."""
    taken, bits, edges = 0, row.operand_bits, not even(product, tile)
    if row.a.name in FP8 and not as_halves(row, target):
        taken += 5  # of the instruction (sm_89, 64x64: 16 bytes of spills in the loop of known stages)
    adds = (product.c is not None and edges) or any(not isinstance(e, Extra) for e in product.extras)
    if as_halves(row, target) and adds:
        taken += 8  # C beside edges, or a matrix, with what is widened (sm_90, 64x64: 16 bytes in known stages)
    if product.dynamic and (bits < 16 or min(map(access_bytes, (product.a, product.b))) < WIDEST):
        # Each narrow copy has an address to compute, as have elements of less than 16 bits (sm_86, u4, 64x64: 208
        # bytes; sm_90, tf32, 64x64: 288; sm_90, e4m3, 64x32: 96).
        widened = nibbles_widened(row, target) or as_halves(row, target)
        taken += 56 if widened else ENOUGH
    if bits < 16 and product.a.transposed and not product.b.transposed and (bits < 8 or edges):
        # The elements of both operands change places (sm_87, i4, 64x64: 116 bytes; beside edges sm_90, i8, 64x64: 56).
        taken += ENOUGH
    if not leaves_registers(product):
        # A function of 15 instructions on the way to D: of four warps (sm_86, gelu, 64x64: 16 bytes of spills), beside
        # edges (sm_87, bf16, gelu, 64x64: 8; sm_103, a logarithm and a residual: 8), and where 99 KiB of shared memory
        # have no room for strips (sm_120, gelu, 64x64: 8 to 16).
        small = target.shared < 128 * KIB
        tight = tile.warps < LOOP_WARPS or row.a.name in FP8 or small
        tight = tight or (edges and (target.sm < 90 or "math.log" in _functions(product)))
        taken += ENOUGH if tight else 8 if edges else 0
    return taken


def even(product: Product, tile: Tile) -> bool:
    """Whether no tile reaches beyond the edges."""
    return not (product.m % tile.cta[0] or product.n % tile.cta[1] or product.k % tile.k)


def leaves_registers(product: Product) -> bool:
    """Whether the epilogue has none of the functions that take the most registers (sm_80, gelu, 64x48: 16 bytes of
    spills; sm_103, a logarithm beside a residual, 80x48: 4)."""
    return not _functions(product)


def _functions(product: Product) -> set[str]:
    """The functions of the epilogue that take the most registers."""
    epilogue = product.op.epilogue
    used = {op.name for op in epilogue.walk()} if epilogue is not None else set[str]()
    return used & {"math.tanh", "math.erf", "math.log"}
