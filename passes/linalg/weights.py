"""Products that are weighted, subtracted, or of integers added to floats: `C + w * A * B` becomes a product that starts
from zero, with an epilogue that weighs it and adds C.

That is one product of sums, not a sum of weighted products: equal but for rounding, of which there is less.
"""

from __future__ import annotations

import math

from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, FloatAttr, IntegerAttr, f32, i32
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap

from ...dialect.isa.types import ELEMENT_TYPES
from ...dialect.linalg.body import Weighted, converted_to
from ...dialect.warp.elements import YieldOp
from ...dialect.warp.loops import element_type, loops_of, shape_of
from ...dialect.warp.matmul import MatmulOp
from ...dialect.warp.pointwise import PointwiseOp
from ..diagnostics import fail

FLOAT_BITS = 32
"""Narrower floats are weighed and added as f32, and rounded once."""


def weigh(op: Operation, product: MatmulOp, body: Weighted) -> MatmulOp:
    """The product, which adds to C, as one whose epilogue multiplies with the weight of a body and adds C.

    Raises a located diagnostic for integers whose sums may not fit their accumulators.
    """
    held = element_type(product.d)
    if body.converted:
        _check_exact(op, product)
    wide: Attribute = f32 if isinstance(held, AnyFloat) and held.bitwidth < FLOAT_BITS else held
    summed: Attribute = i32 if body.converted else wide
    given = [value for value in dict.fromkeys(body.weights) if not isinstance(value.owner, arith.ConstantOp)]
    block = Block(arg_types=[summed, held, *(value.type for value in given)])
    inside: dict[SSAValue, SSAValue] = dict(zip(given, block.args[2:], strict=True))
    element, total = block.args[:2]
    element = converted_to(block, element, wide)
    for weight in body.weights:
        if weight not in inside and isinstance(constant := weight.owner, arith.ConstantOp):
            block.add_op(copy := constant.clone())
            inside[weight] = copy.result
        element = _multiply(block, element, converted_to(block, inside[weight], wide))
    result = converted_to(block, _add(block, converted_to(block, total, wide), element, negated=body.negated), held)
    block.add_op(YieldOp(result))
    scalar = AffineMap(product.maps[2].num_dims, 0, ())
    epilogue = PointwiseOp([(product.d, product.maps[2]), *((value, scalar) for value in given)], Region(block))
    epilogue.function.name_hint = "weighted"
    return MatmulOp(
        product.a,
        product.b,
        product.d,
        product.multiplied,
        init=FloatAttr(0.0, summed) if isinstance(summed, AnyFloat) else IntegerAttr(0, summed),  # pyright: ignore[reportArgumentType, reportCallIssue]
        maps=product.maps,
        through=epilogue.function,
        words=product.words,
    )


def _check_exact(op: Operation, product: MatmulOp) -> None:
    """Refuses integers whose sums, of which there are as many as is known, may not fit the 32 bits of accumulators."""
    sizes = dict(zip(loops_of(product.maps[0]), shape_of(product.matrices[0]), strict=True))
    depth = math.prod(size for loop, size in sizes.items() if size > 0 and loop not in loops_of(product.maps[2]))
    bits = (ELEMENT_TYPES[name] for name in product.multiplied)
    largest = math.prod(1 << (row.bits - row.signed) for row in bits)
    if depth * largest > 1 << 31:
        fail(op, f"sums of {depth} products of integers may pass 32 bits before they are converted to floats")


def _multiply(block: Block, a: SSAValue, b: SSAValue) -> SSAValue:
    op = arith.MulfOp(a, b) if isinstance(a.type, AnyFloat) else arith.MuliOp(a, b)
    block.add_op(op)
    return op.result


def _add(block: Block, total: SSAValue, element: SSAValue, *, negated: bool) -> SSAValue:
    floats = isinstance(total.type, AnyFloat)
    if negated:
        op = arith.SubfOp(total, element) if floats else arith.SubiOp(total, element)
    else:
        op = arith.AddfOp(total, element) if floats else arith.AddiOp(total, element)
    block.add_op(op)
    return op.result
