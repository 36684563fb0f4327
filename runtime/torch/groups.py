"""`torch._grouped_mm`: a loop over groups of rows, whose turns multiply the rows up to the next offset."""

from __future__ import annotations

import torch
from xdsl.builder import Builder
from xdsl.dialects import arith, scf
from xdsl.dialects import tensor as tensors
from xdsl.dialects.builtin import DYNAMIC_INDEX, AffineMapAttr, ArrayAttr, IndexType, TensorType
from xdsl.dialects.linalg.ops import FillOp
from xdsl.ir import Block, SSAValue
from xdsl.rewriter import InsertPoint

from ...dialect.mlir.affine import map_along
from ...dialect.mlir.contraction import ContractOp
from .builder import FunctionBuilder, TensorOperand, plain
from .scalars import UnsupportedError, Value, constant, element_of

G, M, N, K = range(4)
"""The loops of a product with groups."""

OF_ROWS, OF_K = ((M, K), (G, K, N), (M, N)), ((M, K), (K, N), (G, M, N))
"""The loops of A, B and the result, where the rows of A belong to groups, and where those along k do."""


def grouped_mm(
    builder: FunctionBuilder,
    like: torch.Tensor,
    a: Value,
    b: Value,
    offs: Value | None = None,
    bias: Value | None = None,
    out_dtype: object = None,
) -> Value:
    """The product of each group: of its rows of A with a B of its own, or of its part of k."""
    if offs is None or bias is not None or len(a.shape) != 2:
        raise UnsupportedError("expected a matrix A with offsets, and no bias")
    of_rows = len(b.shape) > len(a.shape)
    loops, grouped = (OF_ROWS, M) if of_rows else (OF_K, K)
    extents = (offs.shape[0], a.shape[0], b.shape[-1], a.shape[1])
    shape = tuple(extents[loop] for loop in loops[2])
    result = TensorOperand(plain(builder.empty(shape, like.dtype), shape, like.dtype), loops[2])
    operands = [builder.operand(value, own, extents) for value, own in zip((a, b), loops, strict=False)]
    zero, one, end = map(builder.index, (0, 1, extents[G]))
    start = builder.insert(constant(0, element_of(like.dtype))).result
    body = Block(arg_types=[IndexType(), IndexType(), result.value.tensor.type])
    group, first, held = body.args
    inside = Builder(InsertPoint.at_end(body))
    last = inside.insert(tensors.ExtractOp(offs.tensor, [group], offs.tensor.type.element_type)).result
    stop = inside.insert(arith.IndexCastOp(last, IndexType())).result
    rows = inside.insert(arith.SubiOp(stop, first)).result
    places = {G: (group, 1), grouped: (first, rows)}

    def part(of: SSAValue, along: tuple[int, ...]) -> tensors.ExtractSliceOp:
        kind = of.type
        if not isinstance(kind, TensorType):
            raise UnsupportedError("expected tensors")
        offsets, sizes = zip(
            *(places.get(loop, (0, size)) for loop, size in zip(along, kind.get_shape(), strict=True)), strict=True
        )
        seen = [
            size if isinstance(size, int) else DYNAMIC_INDEX for size, loop in zip(sizes, along, strict=True) if loop
        ]
        return tensors.ExtractSliceOp(of, offsets, sizes, [1] * len(along), TensorType(kind.element_type, seen))

    inputs = [inside.insert(part(operand.value.tensor, operand.loops)).result for operand in operands]
    taken = inside.insert(part(held, result.loops))
    out = inside.insert(FillOp([start], [taken.result], [taken.result.type])).results[0]
    maps = [map_along(K, (loop - 1 for loop in o.loops if loop)) for o in (*operands, result)]
    product = ContractOp.build(
        operands=[inputs, [out]],
        properties={"indexing_maps": ArrayAttr(map(AffineMapAttr, maps))},
        result_types=[[out.type]],
        regions=[ContractOp.get_hidden_region(inputs, [out])],
    )
    made = inside.insert(product).results[0]
    put = tensors.InsertSliceOp.build(
        operands=[made, held, taken.offsets, taken.sizes, taken.strides],
        properties={name: taken.properties[name] for name in ("static_offsets", "static_sizes", "static_strides")},
        result_types=[held.type],
    )
    inside.insert(scf.YieldOp(stop, inside.insert(put).result))
    loop = builder.insert(scf.ForOp(zero, end, one, [zero, result.value.tensor], body))
    return plain(loop.results[1], shape, like.dtype)
