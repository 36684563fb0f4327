"""Products of matrices: `linalg.contract` with what ATen's operations add, scale and round; operator signatures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import Any

import torch
from xdsl.builder import Builder
from xdsl.dialects import arith, scf
from xdsl.dialects import tensor as tensors
from xdsl.dialects.arith import FastMathFlagsAttr
from xdsl.dialects.builtin import DYNAMIC_INDEX, IndexType, IntegerAttr, TensorType, i64
from xdsl.dialects.linalg.ops import FillOp
from xdsl.dialects.utils import FastMathFlag
from xdsl.ir import Attribute, Block, BlockArgument, SSAValue
from xdsl.rewriter import InsertPoint

from ...dialect.mlir.contraction import METADATA, ContractOp, MatmulOp
from ...dialect.warp.matmul import FASTMATH
from .builder import FunctionBuilder, TensorOperand, accumulator, contraction, plain, plus, pointwise
from .convolutions import convolution, eager_filter_gradient, filter_gradient
from .options import aten, library
from .part import LIBRARY
from .scalars import Lowering, Size, UnsupportedError, Value, constant, element_of, shape_of
from .views import expanded, reshape, unsqueezed

G, M, N, K = range(4)
"""The loops of a product with groups."""

OF_ROWS, OF_K = ((M, K), (G, K, N), (M, N)), ((M, K), (K, N), (G, M, N))
"""The loops of A, B and the result, where the rows of A belong to groups, and where those along k do."""


def grouped_mm(
    builder: FunctionBuilder, like: torch.Tensor, a: Value, b: Value, offs: Value | None = None,
    bias: Value | None = None, out_dtype: object = None,
) -> Value:  # fmt: skip
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
    group, first, carried = body.args[0], body.args[1], plain(body.args[2], shape, like.dtype).tensor
    inside = Builder(InsertPoint.at_end(body))
    last = inside.insert(tensors.ExtractOp(offs.tensor, [group], offs.tensor.type.element_type)).result
    stop = inside.insert(arith.IndexCastOp(last, IndexType())).result
    rows = inside.insert(arith.SubiOp(stop, first)).result
    places = {G: (group, 1), grouped: (first, rows)}

    def part(of: SSAValue[TensorType[Attribute]], along: tuple[int, ...]) -> tensors.ExtractSliceOp:
        places_ = [places.get(loop, (0, size)) for loop, size in zip(along, of.type.get_shape(), strict=True)]
        offsets, sizes = zip(*places_, strict=True)
        seen = [n if isinstance(n, int) else DYNAMIC_INDEX for n, loop in zip(sizes, along, strict=True) if loop]
        return tensors.ExtractSliceOp(of, offsets, sizes, [1] * len(along), TensorType(of.type.element_type, seen))

    inputs = [inside.insert(part(operand.value.tensor, operand.loops)).result for operand in operands]
    taken = inside.insert(part(carried, result.loops))
    out = inside.insert(FillOp([start], [taken.result], [taken.result.type])).results[0]
    loops_inside = [[loop - 1 for loop in operand.loops if loop] for operand in (*operands, result)]
    made = inside.insert(contraction(ContractOp, inputs, out, loops_inside, {})).results[0]
    put = tensors.InsertSliceOp.build(
        operands=[made, carried, taken.offsets, taken.sizes, taken.strides],
        properties={name: taken.properties[name] for name in ("static_offsets", "static_sizes", "static_strides")},
        result_types=[carried.type],
    )
    inside.insert(scf.YieldOp(stop, inside.insert(put).result))
    loop = builder.insert(scf.ForOp(zero, end, one, [zero, result.value.tensor], body))
    return plain(loop.results[1], shape, like.dtype)


SIGNATURES = (
    "matmul(Tensor a, Tensor b) -> Tensor",
    'linear(Tensor x, Tensor weight, Tensor? bias=None, str activation="none") -> Tensor',
    "scaled_matmul(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor? bias=None, "
    "ScalarType out_dtype=bfloat16) -> Tensor",
    "sparse_matmul(Tensor values, Tensor metadata, Tensor b) -> Tensor",
    "compress(Tensor dense) -> (Tensor, Tensor)",
    "filter_gradient(Tensor slope, Tensor x, int[] shape, int[] steps, int[] padding, int[] dilations, int groups) "
    "-> Tensor",
)

for signature in SIGNATURES:
    LIBRARY.define(signature, tags=(torch.Tag.pt2_compliant_tag,))

library.register_kernel("warploom::filter_gradient", ("cpu", "cuda"), eager_filter_gradient)
library.register_fake("warploom::filter_gradient", eager_filter_gradient)

warploom: Any = torch.ops.warploom
"""The namespace `torch.ops.warploom` of the operators, which docs/torch.md describes."""


def multiply(builder: FunctionBuilder, a: Value, b: Value, *, approximate: bool = False) -> Value:
    """The product of the last two dimensions of each, (..., m, k) and (..., k, n), with sums that are not rounded;
    dimensions before these are broadcast. A vector is a matrix of one row or column that the result lacks."""
    row, column = len(a.shape) == 1, len(b.shape) == 1
    around = zip_longest(a.shape[-3::-1], b.shape[-3::-1], fillvalue=1)
    batch = tuple(y if x == 1 else x for x, y in around)[::-1]
    count = len(batch)
    m, n = () if row else (a.shape[-2],), () if column else (b.shape[-1],)
    extents: tuple[Size, ...] = (*batch, *m, *n, a.shape[-1])
    k = len(extents) - 1
    loops_a = [*range(count - len(a.shape[:-2]), count), *([] if row else [count]), k]
    loops_b = [*range(count - len(b.shape[:-2]), count), k, *([] if column else [count + len(m)])]
    dtype = accumulator(a, b)
    if a.dims[-1] is None or (not row and a.dims[-2] is None):
        a = builder.dense(a)
    if b.dims[-1 if column else -2] is None or (not column and b.dims[-1] is None):
        b = builder.dense(b)
    covered = [builder.along(value, loops, extents).values() for value, loops in ((a, loops_a), (b, loops_b))]
    if not {*covered[0], *covered[1]}.issuperset(range(count)):
        a = builder.copied(expanded(a, (*batch, *a.shape[-2:])))
        loops_a = list(range(count)) + loops_a[-2:]
    operands = builder.operand(a, loops_a, extents), builder.operand(b, loops_b, extents)
    flags = {FASTMATH: FastMathFlagsAttr([FastMathFlag.APPROX_FUNC])} if approximate else {}
    return builder.product(ContractOp, operands, extents[:-1], dtype, flags)


def _product(
    factors: int, builder: FunctionBuilder, like: torch.Tensor, *operands: object, beta: float = 1, alpha: float = 1,
    **_: object,
) -> Value:  # fmt: skip
    """alpha times the product of the last operands plus beta times the one before these, rounded once: of two factors,
    or of the values and the metadata of a sparse matrix and another, to which a number for each row is added."""
    if not like.shape:
        raise UnsupportedError("the product of two vectors is one number, which no kernel here returns")
    values = [x for x in operands if isinstance(x, Value)]
    product = (multiply if factors == DENSE else _sparse_product)(builder, *values[-factors:])
    added = [x if factors == DENSE else unsqueezed(x, 1) for x in values[:-factors]]
    return plus(builder, like.dtype, product, added[0] if added else None, beta, alpha)


def _linear(
    builder: FunctionBuilder, like: torch.Tensor, x: Value, weight: Value, bias: Value | None = None,
    activation: str = "none",
) -> Value:  # fmt: skip
    """activation(x W^T + bias), rounded before the activation and behind it, on rows of x."""
    turned = replace(weight, dims=weight.dims[::-1], shape=weight.shape[::-1])
    rows = reshape(builder, x, (math.prod(x.shape[:-1]), x.shape[-1])) if len(x.shape) > 2 else x
    result = plus(builder, like.dtype, multiply(builder, rows, turned), bias)
    if ACTIVATIONS[activation] is not None:
        target, kwargs = ACTIVATIONS[activation]
        result = pointwise(builder, result.shape, like.dtype, target, (result,), kwargs)
    return reshape(builder, result, shape_of(like))


def _scaled_matmul(
    builder: FunctionBuilder, like: torch.Tensor, a: Value, b: Value, scale_a: Value, scale_b: Value,
    bias: Value | None = None, scale_result: Value | torch.dtype | None = None, out_dtype: object = None,
    use_fast_accum: bool = False,
) -> Value:  # fmt: skip
    """A B * scale_a * scale_b + bias: scales of f32, one for each matrix, or for each row of A and column of B. With
    `use_fast_accum` the instruction may add up short sums."""
    if isinstance(scale_result, Value):  # in whose place our own operator has the type of the result
        raise UnsupportedError("a scale of the result is not lowered")
    for scale in (scale_a, scale_b):
        fits = _number(scale).shape == () or scale.shape in ((a.shape[0], 1), (1, b.shape[1]))
        if scale.dtype != torch.float32 or not fits:
            raise UnsupportedError("expected scales of f32, one for a matrix or one for each row of A and column of B")
    total = multiply(builder, a, b, approximate=use_fast_accum)
    return plus(builder, like.dtype, total, bias, 1, _number(scale_a), _number(scale_b))


def _number(value: Value) -> Value:
    """A matrix of one element as a number."""
    if len(value.shape) <= 2 and all(n == 1 for n in value.shape):
        return replace(value, dims=(), shape=())
    return value


def _sparse_product(builder: FunctionBuilder, values: Value, metadata: Value, b: Value) -> Value:
    """A product whose A is sparse: the metadata is named by its place among the function's arguments."""
    if not isinstance(metadata.tensor, BlockArgument) or not values.plain:
        raise UnsupportedError("expected values and metadata row by row, as they were compressed")
    extents = values.shape[0], b.shape[1]
    operands = TensorOperand(values, (0, 2)), builder.operand(b, (2, 1), (*extents, b.shape[0]))
    number = IntegerAttr(metadata.tensor.index, i64)
    return builder.product(MatmulOp, operands, extents, accumulator(values, b), {METADATA: number})


DENSE, SPARSE = 2, 3
"""How many tensors a product is of."""

ACTIVATIONS: Mapping[str, Any] = {
    "none": None,
    "relu": (aten.relu.default, {}),
    "gelu": (aten.gelu.default, {}),
    "gelu_tanh": (aten.gelu.default, {"approximate": "tanh"}),
    "silu": (aten.silu.default, {}),
    "sigmoid": (aten.sigmoid.default, {}),
    "tanh": (aten.tanh.default, {}),
}
"""What can follow `torch.ops.warploom.linear` in its kernel, by name: an operation of ATen and its options."""

_PLAIN = (
    *(aten.mm.default, aten.bmm.default, aten.mm.dtype, aten.bmm.dtype, aten.mv.default, aten.dot.default),
    *(aten.matmul.default, aten.addmm.default, aten.addmm.dtype, aten.addmv.default, aten.baddbmm.default),
    *(aten._int_mm.default, warploom.matmul.default),
)

_SPARSE = (
    *(aten._sparse_semi_structured_mm.default, aten._sparse_semi_structured_addmm.default),
    warploom.sparse_matmul.default,
)

PRODUCTS: Mapping[object, Lowering] = {
    **dict.fromkeys(_PLAIN, partial(_product, DENSE)),
    **dict.fromkeys(_SPARSE, partial(_product, SPARSE)),
    **dict.fromkeys((aten.linear.default, warploom.linear.default), _linear),
    **dict.fromkeys((aten._scaled_mm.default, warploom.scaled_matmul.default), _scaled_matmul),
    aten._grouped_mm.default: grouped_mm,
    aten.convolution.default: convolution,
    warploom.filter_gradient.default: filter_gradient,
}
"""Operations that multiply matrices."""
