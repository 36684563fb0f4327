"""Functions of `linalg` on tensors, built operation by operation, and pointwise operations of ATen in them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from typing import Any, NamedTuple, TypeAlias, cast

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg
from xdsl.builder import Builder
from xdsl.dialects import arith, func
from xdsl.dialects import tensor as tensors
from xdsl.dialects.builtin import DYNAMIC_INDEX, AffineMapAttr, ArrayAttr, IntegerAttr, ModuleOp, TensorType, i32
from xdsl.dialects.linalg.ops import FillOp, YieldOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.rewriter import InsertPoint

from ...dialect.mlir.affine import generic, map_along
from ...dialect.mlir.contraction import ContractionOp
from ...dialect.mlir.forall import PadOp
from ...passes.linalg.contraction import around
from ...passes.linalg.tensors import collapse, expand
from .decompositions import PRIMITIVES
from .options import aten, decompositions, expression, is_operator, prims, pytree, sympy, traced
from .scalars import (
    HALVES,
    RULES,
    Body,
    ElementOrNumber,
    ElementValue,
    Lowering,
    Size,
    UnsupportedError,
    Value,
    constant,
    element_of,
    shape_of,
)

INDEX_ARITHMETIC = {"Add": arith.AddiOp, "Mul": arith.MuliOp, "FloorDiv": arith.FloorDivSIOp}


def operation_of(size: Size) -> tuple[str, Sequence[Size]]:
    """The operation that a size is of others, as sympy and torch call it, and these."""
    if type(size) is sympy.Pow and size.exp.is_Integer and size.exp > 0:
        return "Mul", [size.base] * int(size.exp)
    return type(size).__name__, size.args


ElementBody: TypeAlias = Callable[[Body, Sequence[ElementValue]], ElementValue]
"""Computes an element of a result of elements of the inputs."""


class TensorOperand(NamedTuple):
    """A value, for an operation its tensor as it is, and the loops that its dimensions run along."""

    value: Value
    loops: tuple[int, ...]


class FunctionBuilder(Builder):
    """Builds a function. Sizes that are unknown while compiling are read from the arguments."""

    def __init__(self) -> None:
        self.block = Block()
        super().__init__(InsertPoint.at_end(self.block))
        self._indices: dict[Size, SSAValue] = {}
        self._made: dict[tuple[Value, frozenset[int]], Value] = {}
        self._places: dict[Size, tuple[SSAValue, int]] = {}
        self.seek: Callable[[Size], object] = lambda size: None
        """Makes a tensor that has a size an argument, if there is one."""

    def argument(self, name: str, shape: tuple[Size, ...], dtype: torch.dtype) -> Value:
        """One more argument of the function, in row-major order."""
        argument = self.block.insert_arg(tensor_type(shape, element_of(dtype)), len(self.block.args))
        argument.name_hint = name if SSAValue.is_valid_name(name) else None
        for dimension, size in enumerate(shape):
            if not isinstance(size, int):
                self._places.setdefault(size, (argument, dimension))
        return plain(argument, shape, dtype)

    def index(self, size: Size) -> SSAValue:
        """A size as a value of type index; UnsupportedError if it does not follow from the sizes of the arguments."""
        if size not in self._indices:
            self._indices[size] = self._index(size)
        return self._indices[size]

    def _index(self, size: Size) -> SSAValue:
        if isinstance(size, int | sympy.Integer):
            return self.insert(arith.ConstantOp(IntegerAttr.from_index_int_value(int(size)))).result
        if size not in self._places:
            self.seek(size)
        if size in self._places:
            tensor, dimension = self._places[size]
            return self.insert(tensors.DimOp(tensor, self.index(dimension))).result
        name, of = operation_of(size)
        if name not in INDEX_ARITHMETIC:
            raise UnsupportedError(f"the size {size} does not follow from sums and products of the operands' sizes")
        first, *rest = map(self.index, of)
        for other in rest:
            first = self.insert(INDEX_ARITHMETIC[name](first, other)).result
        return first

    def number(self, inside: Body, size: Size) -> ElementValue:
        """Appends a size to a body: kernels take one as 32 bits; sums and products of several may need 64."""
        name, of = operation_of(size)
        if name not in ("Add", "Mul"):
            return ElementValue(self.insert(arith.IndexCastOp(self.index(size), i32)).result)
        parts = [inside.convert(self.number(inside, part), torch.int64) for part in of]
        return reduce(lambda a, b: RULES[name.lower()](inside, [a, b]), parts)

    def indices(self, shape: Sequence[Size]) -> list[int | SSAValue]:
        """Sizes as indices. Symbolic sizes become values."""
        return [size if isinstance(size, int) else self.index(size) for size in shape]

    def empty(self, shape: tuple[Size, ...], dtype: torch.dtype) -> SSAValue:
        """A tensor without contents."""
        unknown = [self.index(size) for size in shape if not isinstance(size, int)]
        return self.insert(tensors.EmptyOp(unknown, tensor_type(shape, element_of(dtype)))).tensor

    def filled(self, shape: tuple[Size, ...], dtype: torch.dtype, number: float) -> Value:
        """A tensor of one number."""
        value = self.insert(constant(number, element_of(dtype))).result
        out = self.empty(shape, dtype)
        return plain(self.insert(FillOp([value], [out], [out.type])).results[0], shape, dtype)

    def operand(self, value: Value, loops: Sequence[int], extents: Sequence[Size]) -> TensorOperand:
        """A value as an operand. `loops` are those of its dimensions; a dimension of size 1 along a longer loop is
        dropped."""
        loop_of = self.along(value, loops, extents)
        return TensorOperand(self.only(value, loop_of), tuple(loop_of[d] for d in sorted(loop_of)))

    @staticmethod
    def along(value: Value, loops: Sequence[int], extents: Sequence[Size]) -> dict[int, int]:
        """The loop of each dimension of a value's tensor that has more than one element, or all of the loop's."""
        along = zip(value.dims, loops, value.shape, strict=True)
        return {d: loop for d, loop, size in along if d is not None and (size != 1 or extents[loop] == 1)}

    def only(self, value: Value, kept: Collection[int]) -> Value:
        """A value's tensor with the dimensions `kept`. The others have size 1. It is one value, however often asked."""
        full = value.full
        if len(kept) == len(full.shape):
            return full
        if (key := (full, frozenset(kept))) not in self._made:
            groups = around([0, *sorted(kept)[1:]], len(full.shape)) if kept else []
            self._made[key] = self.reshaped(full, tuple(full.shape[d] for d in sorted(kept)), groups)
        return self._made[key]

    def reshaped(self, value: Value, shape: tuple[Size, ...], groups: Sequence[Sequence[int]]) -> Value:
        """A reshaped tensor. `groups` are the dimensions that are collapsed, or into which one is expanded."""
        sizes = [size if isinstance(size, int) else DYNAMIC_INDEX for size in shape]
        if len(shape) < len(value.shape):
            return plain(self.insert(collapse(value.tensor, groups, sizes)).results[0], shape, value.dtype)
        unknown = [self.index(size) for size in shape if not isinstance(size, int)]
        return plain(self.insert(expand(value.tensor, groups, sizes, unknown)).results[0], shape, value.dtype)

    def sliced(self, value: Value, dimension: int, start: Size, count: Size, step: int) -> Value:
        """A slice of a tensor along one dimension."""
        shape = (*value.shape[:dimension], count, *value.shape[dimension + 1 :])
        offsets, steps = ([x if d == dimension else y for d in range(len(shape))] for x, y in ((start, 0), (step, 1)))
        kind = tensor_type(shape, value.tensor.type.element_type)
        op = tensors.ExtractSliceOp(value.tensor, self.indices(offsets), self.indices(shape), steps, kind)
        return plain(self.insert(op).results[0], shape, value.dtype)

    def padded(self, value: Value, low: Sequence[int], high: Sequence[int]) -> Value:
        """A tensor of known sizes among zeros: so many before it along each dimension, and so many behind."""
        zero = self.insert(constant(0, element_of(value.dtype))).result
        made = self.insert(PadOp.around(value.tensor, low, high, zero)).result
        shape = tuple(sum(each) for each in zip(low, cast("tuple[int, ...]", value.shape), high, strict=True))
        return plain(made, shape, value.dtype)

    def generic(self, values: Sequence[Value], shape: tuple[Size, ...], dtype: torch.dtype, body: ElementBody) -> Value:
        """An elementwise operation on values that are broadcast to a shape; `body` computes an element of `dtype`."""
        rank = len(shape)
        operands = [self.operand(v, range(rank - len(v.shape), rank), shape) for v in values]
        out = plain(self.empty(shape, dtype), shape, dtype)
        return self._generic(operands, out, range(rank), rank, body)

    def reduce(self, value: Value, axes: Sequence[int], start: float, body: ElementBody) -> Value:
        """A reduction along `axes`, which the result lacks. `body` combines an element with the value so far, which
        begins with `start`."""
        rank = len(value.shape)
        kept = tuple(d for d in range(rank) if d not in axes)
        operand = self.operand(value, range(rank), value.shape)
        out = self.filled(tuple(value.shape[d] for d in kept), value.dtype, start)
        return self._generic([operand], out, kept, rank, body)

    def scan(self, value: Value, dtype: torch.dtype, start: float, body: ElementBody) -> Value:
        """What rows combine to so far along the last dimension: in f32, from `start` on, each rounded to a type."""
        rank, kinds = len(value.shape), (value.dtype, dtype, torch.float32)
        operand, every = self.operand(value, range(rank), value.shape), tuple(range(rank))
        result = plain(self.empty(value.shape, dtype), value.shape, dtype)
        last = self.filled(value.shape[:-1], torch.float32, start)
        inside, (element, _unread, so_far) = Body.of(kinds)
        total = body(inside, [inside.convert(element, torch.float32), so_far])
        inside.insert(YieldOp(inside.stored(inside.convert(total, dtype), dtype), total.value))
        maps = [map_along(rank, loops) for loops in (operand.loops, every, every[:-1])]
        begun, tensors = cast("Operation", last.tensor.owner), [result.tensor, last.tensor]
        types = [tensor.type for tensor in tensors]
        op = generic(begun, [operand.value.tensor], tensors, Region(inside.block), maps, {rank - 1}, types)
        return replace(result, tensor=self.insert(op).results[0])

    def _generic(
        self, operands: Sequence[TensorOperand], out: Value, kept: Sequence[int], rank: int, body: ElementBody
    ) -> Value:
        inside, elements = Body.of([*(operand.value.dtype for operand in operands), out.dtype], len(kept) < rank)
        inside.insert(YieldOp(inside.stored(body(inside, elements), out.dtype)))
        maps = [map_along(rank, loops) for loops in (*(operand.loops for operand in operands), kept)]
        inputs = [operand.value.tensor for operand in operands]
        return self.nest(inputs, out, Region(inside.block), maps, {*range(rank)}.difference(kept))

    def nest(
        self, inputs: Sequence[SSAValue], out: Value, body: Region, maps: Sequence[AffineMap], summed: Collection[int]
    ) -> Value:
        """A loop nest that puts what its body makes of inputs into a tensor."""
        begun = cast("Operation", out.tensor.owner)
        op = generic(begun, inputs, [out.tensor], body, maps, summed, [out.tensor.type])
        return replace(out, tensor=self.insert(op).results[0])

    def product(
        self, kind: type[ContractionOp], operands: Sequence[TensorOperand], shape: tuple[Size, ...],
        dtype: torch.dtype, attributes: Mapping[str, Attribute], order: Sequence[int] | None = None,
    ) -> Value:  # fmt: skip
        """The product of two operands, summed over the last loops; the result of this shape has the first, in memory in
        an order, by default their own."""
        inputs, rank = [operand.value.tensor for operand in operands], len(shape)
        placed = range(rank) if order is None else order
        out = self.filled(tuple(shape[d] for d in placed), dtype, 0)
        op = contraction(kind, inputs, out.tensor, (*(operand.loops for operand in operands), placed), attributes)
        dims = tuple(list(placed).index(d) for d in range(rank))
        return replace(out, tensor=self.insert(op).results[0], dims=dims, shape=shape)

    def dense(self, value: Value) -> Value:
        """The value as a tensor of its own shape, copied where it is another one's in another order."""
        if value.plain:
            return value
        own = {at: d for at, d in enumerate(value.dims) if d is not None}
        kept, ones = list(own.values()), all(at in own or size == 1 for at, size in enumerate(value.shape))
        if kept != sorted(kept) or not ones or not kept:
            return self.copied(value)
        tensor = self.only(value, kept)
        if len(kept) == len(value.shape):
            return tensor
        return self.reshaped(tensor, value.shape, around([0, *list(own)[1:]], len(value.dims)))

    def copied(self, value: Value, shape: tuple[Size, ...] | None = None) -> Value:
        """The value, broadcast to a shape if there is one, in a tensor of its own."""
        return self.generic([value], shape or value.shape, value.dtype, lambda _, elements: elements[0])

    def converted(self, value: Value, dtype: torch.dtype) -> Value:
        """The value as elements of a type, rounded to nearest."""
        if value.dtype == dtype:
            return value
        return self.generic([value], value.shape, dtype, lambda body, elements: body.convert(elements[0], dtype))

    def module(self, name: str, results: Sequence[SSAValue]) -> ModuleOp:
        """A module of the function, which returns these results."""
        self.insert(func.ReturnOp(*results))
        kinds = [argument.type for argument in self.block.args], [result.type for result in results]
        return ModuleOp([func.FuncOp(name, kinds, Region(self.block))])


def contraction(
    kind: type[ContractionOp], inputs: Sequence[SSAValue], out: SSAValue, along: Sequence[Sequence[int]],
    attributes: Mapping[str, Attribute],
) -> ContractionOp:  # fmt: skip
    """The product of two tensors, added to a third; the dimensions of each run along loops."""
    count = 1 + max(loop for loops in along for loop in loops)
    maps = ArrayAttr(AffineMapAttr(map_along(count, loops)) for loops in along)
    return kind.build(
        operands=[inputs, [out]],
        properties={"indexing_maps": maps},
        attributes=attributes,
        result_types=[[out.type]],
        regions=[kind.get_hidden_region(inputs, [out])],
    )


def tensor_type(shape: Sequence[Size], element: Attribute) -> TensorType[Attribute]:
    """The type of a tensor."""
    return TensorType(element, [size if isinstance(size, int) else DYNAMIC_INDEX for size in shape])


def plain(tensor: SSAValue, shape: tuple[Size, ...], dtype: torch.dtype) -> Value:
    """A tensor as a value."""
    return Value(cast("SSAValue[TensorType[Attribute]]", tensor), tuple(range(len(shape))), shape, dtype)


ACCUMULATORS = {torch.float64: torch.float64, torch.int8: torch.int32}
"""The type in which products are summed, by that of the operands; f32 for the other floats."""


def accumulator(a: Value, b: Value) -> torch.dtype:
    for value in (a, b):
        if not value.dtype.is_floating_point and value.dtype not in ACCUMULATORS:
            raise UnsupportedError(f"products of {value.dtype} are not lowered")
    return ACCUMULATORS.get(a.dtype, torch.float32)


def plus(
    builder: FunctionBuilder, dtype: torch.dtype, product: Value, c: Value | None = None, beta: float = 1,
    *factors: Value | float,
) -> Value:  # fmt: skip
    """The product times factors plus beta times C, rounded to a type."""
    scales = [factor for factor in factors if factor != 1]
    added = [] if c is None or beta == 0 else [c]

    def body(inside: Body, elements: Sequence[ElementValue]) -> ElementValue:
        total, *others = elements
        for factor in scales:
            total = RULES["mul"](inside, [total, others.pop(0) if isinstance(factor, Value) else factor])
        for other in others:
            term = inside.convert(other, product.dtype)
            total = RULES["add"](inside, [total, term if beta == 1 else RULES["mul"](inside, [term, beta])])
        return inside.convert(total, dtype)

    if not scales and not added and product.dtype == dtype:
        return product
    inputs = [product, *(factor for factor in scales if isinstance(factor, Value)), *added]
    return builder.generic(inputs, product.shape, dtype, body)


MAX_SCANNED = 1 << 18
"""Elements of a row that the CTAs of a cluster hold."""


def is_scan_of_rows(node: Node) -> bool:
    """Whether a node combines elements of floats with those before along the last dimension, in rows that are held."""
    value, dim = cast("tuple[Node, int]", node.args[:2])
    source, result = value.meta["val"], node.meta["val"]
    last = bool(result.dim()) and dim % result.dim() == result.dim() - 1
    floats = all(x.dtype in (*HALVES, torch.float32) for x in (source, result))
    *rows, length = shape_of(result) if last else (0,)
    return floats and last and isinstance(length, int) and length <= MAX_SCANNED and any(size != 1 for size in rows)


def _scan(
    rule: str, start: float, builder: FunctionBuilder, like: torch.Tensor, value: Value, *_: object, **__: object
) -> Value:
    return builder.scan(value, like.dtype, start, RULES[rule])


SCANS: Mapping[object, Lowering] = {
    aten.cumsum.default: partial(_scan, "add", 0.0), aten.cumprod.default: partial(_scan, "mul", 1.0),
}  # fmt: skip
"""Operations that `is_scan_of_rows` may hold for."""


CONVERSIONS = frozenset({aten._to_copy.default, prims.convert_element_type.default})
"""Conversions of elements, which torch does not tag as pointwise."""

PLACES = ("layout", "device", "pin_memory", "memory_format", "non_blocking")
"""Arguments of operations that say where tensors lie, which `linalg` on tensors does not."""

SYMBOLIC = (torch.SymInt, torch.SymFloat)
"""Numbers that follow from sizes."""


@dataclass(frozen=True)
class TensorLike:
    """What the decomposition of an operation depends on of a tensor."""

    dtype: torch.dtype
    number: bool
    """Whether it has no dimensions, and so less say in the type of the result."""
    size: Size = None
    """The size that stands in its place."""


Given: TypeAlias = Any
"""An argument of an operation: a number, a type, a sequence of these, a `Value`, or an example of a tensor."""


def is_pointwise(target: Any) -> bool:
    """Whether an operation computes each element of one tensor from those of its operands in the same place."""
    schema = target._schema if is_operator(target) else None
    if schema is None or schema.is_mutable or [str(result.type) for result in schema.returns] != ["Tensor"]:
        return False
    primitive = target.namespace == "prims" and name_of(target) in RULES
    return torch.Tag.pointwise in target.tags or target in CONVERSIONS or primitive


def name_of(target: object) -> str:
    """`add` of `torch.ops.prims.add.default`."""
    return str(target).split(".")[1]


def pointwise(
    builder: FunctionBuilder, shape: tuple[Size, ...], dtype: torch.dtype, target: Any, args: Sequence[Given],
    kwargs: dict[str, Given],
) -> Value:  # fmt: skip
    """What a pointwise operation computes of the values among its arguments, as a tensor of a shape."""

    def body(inside: Body, elements: Sequence[ElementValue]) -> ElementValue:
        return compute(target, args, kwargs, inside, elements, dtype, builder.number)

    return builder.generic([x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Value)], shape, dtype, body)


def compute(
    target: Any, args: Sequence[Given], kwargs: dict[str, Given], body: Body, elements: Sequence[ElementValue],
    dtype: torch.dtype, number: Callable[[Body, Size], ElementValue],
) -> ElementValue:  # fmt: skip
    """Appends a pointwise operation to a body. `elements` are those of its tensor arguments in order, `number` makes
    those of sizes; the result has type `dtype`. An UnsupportedError names what is not lowered."""
    if target in CONVERSIONS:
        return body.convert(elements[0] if elements else body.operand(args[0], dtype), dtype)
    if any(isinstance(x, SYMBOLIC) for x in args):
        target, args = _with_sizes(target, args)
    if target is aten.relu.default:  # a comparison and a selection in torch's decomposition
        return body.convert(RULES["maximum"](body, [elements[0], 0]), dtype)
    flat, spec = pytree.tree_flatten((tuple(args), {k: v for k, v in kwargs.items() if k not in PLACES or v is None}))
    if any(isinstance(x, (*SYMBOLIC, torch.SymBool, Node)) for x in flat):
        raise UnsupportedError(f"{target} takes a number that depends on sizes")
    key = tuple(TensorLike(x.dtype, not x.shape) if isinstance(x, Value | torch.Tensor) else x for x in flat)
    *steps, output = _decomposed(target, key, tuple(map(type, key)), spec).nodes
    computed: dict[Node, ElementOrNumber] = {}
    tensors, likes = iter(elements), (x for x in key if isinstance(x, TensorLike))
    inputs = (next(tensors) if x.size is None else body.convert(number(body, x.size), x.dtype) for x in likes)
    for node in steps:
        computed[node] = next(inputs) if node.op == "placeholder" else _primitive(node, computed, body)
    (result,) = pytree.tree_leaves(output.args)
    return body.convert(body.operand(computed[result], dtype), dtype)


def _with_sizes(target: Any, args: Sequence[Given]) -> tuple[Any, list[Given]]:
    """An operation that takes tensors in the place of its sizes, and its arguments with `TensorLike`s for these."""
    tensors = [x for x in args if isinstance(x, Value | torch.Tensor)]
    dtype, number = tensors[0].dtype, not tensors[0].shape
    if target.namespace != "prims":
        number, modes = True, target is aten.div.Tensor_mode  # which takes a tensor, and how it is rounded
        target = target if modes else getattr(target.overloadpacket, "Tensor", target)
        dtype = torch.int32 if any(x.dtype.is_floating_point for x in tensors) else torch.int64

    def like(dims: Any) -> Given:
        if isinstance(dims, float):
            raise UnsupportedError(f"{target} takes {dims} beside a number that depends on sizes")
        size: Any = sympy.sympify(expression(dims))
        size = size.args[0] if type(size).__name__ == "ToFloat" else size
        kind = torch.int64 if dtype == torch.int32 and operation_of(size)[0] in ("Add", "Mul") else dtype
        return TensorLike(kind, number, size) if size.is_integer else float(size) if size.is_number else dims

    takes = ["Tensor" in str(each.type) for each in target._schema.arguments]
    numbers = (*SYMBOLIC, int, float)
    return target, [like(x) if isinstance(x, numbers) and fits else x for x, fits in zip(args, takes, strict=False)]


def _primitive(node: Node, computed: dict[Node, ElementOrNumber], body: Body) -> ElementOrNumber:
    name, args = name_of(node.target), [computed[x] if isinstance(x, Node) else x for x in node.args]
    operands = [x for x in args if isinstance(x, ElementValue | float | int | bool)]
    if name in ("full_like", "full", "scalar_tensor"):
        return operands[-1]
    if name in ("broadcast_in_dim", "view_of", "clone", "empty_strided", "empty_like", "device_put"):
        return operands[0] if operands else 0.0
    if name == "convert_element_type":
        dtype = cast("torch.dtype", args[1])
        return body.convert(body.operand(operands[0], dtype), dtype)
    if name not in RULES:
        raise UnsupportedError(f"{node.target} is not lowered")
    if name != "where" and not any(isinstance(x, ElementValue) for x in operands):
        if not hasattr(operator, name):
            raise UnsupportedError(f"{node.target} of constants is not lowered")
        return getattr(operator, name)(*operands)
    if name == "where" and not any(isinstance(x, ElementValue) for x in operands[1:]):  # which say nothing of a type
        operands[1] = body.operand(operands[1], node.meta["val"].dtype)
    return RULES[name](body, operands)


def why_not(node: Node) -> str:
    """Why a pointwise node has no form here, "" if it has one."""
    try:
        args, kwargs = map_arg((node.args, node.kwargs), lambda operand: operand.meta["val"])
        dtypes = [x.dtype for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        body, elements = Body.of(dtypes)
        number, dtype = body.number(1, i32), node.meta["val"].dtype
        compute(node.target, cast("Any", args), cast("Any", kwargs), body, elements, dtype, lambda _, __: number)
    except UnsupportedError as error:
        return str(error)
    return ""


@cache
def _decomposed(target: Any, key: tuple[Given, ...], kinds: tuple[type, ...], spec: Any) -> Graph:
    """What an operation is in primitive ones, with an argument for each tensor of the key; `kinds` tell 1 from 1.0."""

    def call(*tensors: torch.Tensor) -> object:
        examples = iter(tensors)
        own = [next(examples) if isinstance(x, TensorLike) else x for x in key]
        args, kwargs = pytree.tree_unflatten(own, spec)
        return target(*args, **kwargs)

    likes = [x for x in key if isinstance(x, TensorLike)]  # seven elements, if they are no numbers
    tensors = [torch.empty([] if x.number else [7], dtype=x.dtype, device="meta") for x in likes]
    return traced(call, tensors, {**decompositions(), **PRIMITIVES})
