"""Operands copied to whole tiles of aligned rows before the product: the `pack` of a schedule.

Rows that are no multiple of 16 bytes apart cannot be copied to shared memory 16 bytes at a time, and every edge of a
matrix that is no multiple of the tile costs predicates in the K loop. A product that reads each element many times
gains by copying the operand once, in a kernel of its own, to scratch memory where both are well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from xdsl.builder import Builder
from xdsl.dialects import gpu
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Block
from xdsl.rewriter import InsertPoint

from ...dialect.schedule import Schedule
from ...dialect.warp.copy import PackOp
from ..linalg.operand import Operand
from ..linalg.product import Product
from .index_builder import IndexBuilder
from .outliner import Outliner

THREADS = 256

CHUNKS = 4
"""Chunks of 16 bytes that a thread copies: enough loads in flight, and enough CTAs to share the work evenly."""


def pack(product: Product, schedule: Schedule, outliner: Outliner) -> Product:
    """The product of the operands as they lie after the packing kernel, whose launch is built."""
    wanted = {role: schedule.pack in (role, "ab") for role in "ab"}
    m, n, k = schedule.cta
    steps = {"m": m, "n": n, "k": k}
    stored = steps | {"k": k // product.sparsity}
    packed = {
        role: _packed(operand, axes, tile, outliner)
        for role, operand, axes, tile in (("a", product.a, "mk", stored), ("b", product.b, "kn", steps))
        if wanted[role]
    }
    if not packed:
        return product
    pairs = [(getattr(product, role), to) for role, to in packed.items()]
    _launch(pairs, outliner)
    return replace(product, **packed)


def _packed(operand: Operand, axes: str, steps: Mapping[str, int], outliner: Outliner) -> Operand:
    """The operand in scratch memory, as many whole tiles of sizes `steps` as cover it."""
    shape = [
        -(-size // steps[axis]) * steps[axis]
        for size, axis in zip(operand.shape, axes[::-1] if operand.transposed else axes, strict=True)
    ]
    kind = MemRefType(operand.element_type, shape)
    scratch = outliner.scratch(kind)
    return replace(operand, name=f"{operand.name}_packed", value=scratch, type=kind)


def _launch(pairs: list[tuple[Operand, Operand]], outliner: Outliner) -> None:
    """One kernel packs all operands: every CTA does a share of each."""
    bytes_ = sum(to.type.element_count() * to.element.memory_bits // 8 for _, to in pairs)
    shares = -(-bytes_ // (16 * THREADS * CHUNKS))
    body = Block(arg_types=[operand.type for pair in pairs for operand in pair])
    index = IndexBuilder(Builder(InsertPoint.at_end(body)))
    share = index.insert(gpu.BlockIdOp(gpu.DimensionAttr(gpu.DimensionEnum.X))).result
    for source, destination in zip(body.args[::2], body.args[1::2], strict=True):
        index.insert(PackOp(source, destination, share, shares))
    index.insert(gpu.ReturnOp([]))
    outliner.launch("pack", [operand for pair in pairs for operand in pair], body, shares, THREADS)
