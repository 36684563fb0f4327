"""Sums over small windows that are no products of matrices: depthwise convolutions with their channels last.

Neighbours in memory are of different channels, each of which is multiplied with a kernel of its own. So there is
nothing for a matrix instruction, and the sum is written out: one elementwise operation that reads a view of each input
for each place of the window. Its kernel goes through memory as any elementwise one does, with neighbours in lanes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product as combinations

from xdsl.dialects import arith
from xdsl.dialects.builtin import AffineMapAttr, AnyFloat, ArrayAttr, f32
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.dialects.linalg.ops import GenericOp, YieldOp
from xdsl.dialects.math import FmaOp
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr, AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.linalg.body import converted_to, extended, weighted
from ...dialect.warp.loops import element_type, loops_of, map_along
from ..diagnostics import fail
from .windows import along_loops, length

MOST_PLACES = 64
"""Places of a window that an operation is written out for: each is two views, and two addresses in every lane."""


def unroll(op: LinalgStructuredOperation) -> None:
    """Replaces a sum of products over a window by an elementwise operation on views of its inputs.

    Raises a located diagnostic for a window that is large, or of unknown size.
    """
    kinds = [kind.data for kind in op.get_iterator_types()]
    summed = [loop for loop, kind in enumerate(kinds) if kind == IteratorType.REDUCTION]
    written = loops_of(op.get_indexing_maps().data[-1].data)
    for loop in range(len(kinds)):
        if loop not in summed and loop not in written:
            fail(
                op,
                f"loop d{loop} of {op.name} is parallel, but indexes no dimension of the result; expected a reduction",
            )
    sizes = [length(op, loop) for loop in summed]
    places = math.prod(max(0, size) for size in sizes)
    if min(sizes) < 0 or places > MOST_PLACES:
        window = "x".join("?" if size < 0 else str(size) for size in sizes)
        fail(op, f"{op.name} is not a product of matrices, because neighbours in memory belong to different channels; "
             f"it is lowered for windows of at most {MOST_PLACES} positions, got {window}")  # fmt: skip
    maps = [attribute.data for attribute in op.get_indexing_maps()]
    found = weighted(op.body.block, [i for i, map_ in enumerate(maps[: len(op.inputs)]) if not map_.results])
    if found is None or not found.is_plain:
        fail(op, f"{op.name} sums, but its body does more than to add products")
    kept = [loop for loop in range(len(kinds)) if loop not in summed]
    inputs, seen = list[SSAValue](), list[AffineMap]()
    for place in combinations(*map(range, sizes)):
        fixed = dict(zip(summed, place, strict=True))
        for factor in found.factors:
            value, loops = along_loops(op, op.inputs[factor.argument], _at(maps[factor.argument], fixed))
            inputs.append(value)
            seen.append(map_along(len(kept), map(kept.index, loops)))
    block = Block(arg_types=[element_type(value) for value in (*inputs, op.outputs[0])])
    _fill(block, [factor.unsigned for factor in found.factors])
    generic = GenericOp(
        inputs,
        list(op.outputs),
        Region(block),
        ArrayAttr([AffineMapAttr(map_) for map_ in (*seen, map_along(len(kept), map(kept.index, loops_of(maps[-1]))))]),
        ArrayAttr([IteratorTypeAttr.parallel()] * len(kept)),
    )
    generic.location = op.location
    Rewriter.insert_op(generic, InsertPoint.before(op))
    Rewriter.erase_op(op)


def _at(map_: AffineMap, fixed: dict[int, int]) -> AffineMap:
    """A map with some of its loops at a place."""
    loops = [AffineConstantExpr(fixed[i]) if i in fixed else AffineDimExpr(i) for i in range(map_.num_dims)]
    return map_.replace_dims_and_symbols(loops, [], map_.num_dims, 0)


def _fill(block: Block, unsigned: Sequence[bool]) -> None:
    """Adds the products of every two arguments to the last one; narrow floats in f32."""
    *factors, total = block.args
    held: Attribute = total.type
    wide = f32 if isinstance(held, AnyFloat) and held.bitwidth < f32.bitwidth else held
    sums: SSAValue = converted_to(block, total, wide)
    for a, b in zip(factors[::2], factors[1::2], strict=True):
        x, y = (extended(block, v, wide, unsigned=u) for v, u in zip((a, b), unsigned, strict=True))
        if isinstance(wide, AnyFloat):
            block.add_op(multiplied := FmaOp(x, y, sums))
            sums = multiplied.result
        else:
            product = arith.MuliOp(x, y)
            added = arith.AddiOp(sums, product.result)
            block.add_ops([product, added])
            sums = added.result
    block.add_op(YieldOp(converted_to(block, sums, held)))
