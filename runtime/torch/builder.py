"""MLIR text of a function on tensors, and pointwise operations of ATen, decomposed by torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, TypeAlias, cast

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from .scalars import (
    RULES,
    Body,
    ElementOrNumber,
    ElementValue,
    Expression,
    Size,
    TensorValue,
    UnsupportedError,
    Value,
    constant,
    element_of,
    scalar_of,
    shape_of,
    tensor_type,
)
from .torch_api import aten, decompositions, flatten, is_operator, leaves, prims, sympy, traced, unflatten

# MLIR text of a function on tensors, written operation by operation.

PARALLEL, REDUCTION = "parallel", "reduction"
INDEX_ARITHMETIC: dict[Any, str] = {sympy.Add: "arith.addi", sympy.Mul: "arith.muli"}


@dataclass
class Builder:
    """A function that grows from its arguments on. Sizes that only the caller knows are read from the arguments."""

    arguments: list[TensorValue] = field(default_factory=list[TensorValue])
    lines: list[str] = field(default_factory=list[str])
    sizes: dict[Size, str] = field(default_factory=dict[Size, str])
    places: dict[Size, tuple[TensorValue, int]] = field(default_factory=dict[Size, tuple[TensorValue, int]])
    count: int = 0

    def argument(self, name: str, shape: tuple[Size, ...], dtype: torch.dtype) -> Value:
        """One more argument of the function, in row-major order."""
        tensor = TensorValue(f"%{name}", shape, element_of(dtype))
        self.arguments.append(tensor)
        for dimension, size in enumerate(shape):
            if not isinstance(size, int):
                self.places.setdefault(size, (tensor, dimension))
        return plain(tensor, dtype)

    def emit(self, text: str, kind: str) -> str:
        """Appends an operation with one result; returns the result's name. `kind` is `t` for a tensor, `s` else."""
        name = f"%{kind}{self.count}"
        self.count += 1
        self.lines.append(f"{name} = {text}")
        return name

    def index(self, size: Size) -> str:
        """The name of a size, as a value of type index.

        Raises:
            UnsupportedError: if it does not follow from the sizes of the arguments.
        """
        if size not in self.sizes:
            self.sizes[size] = self._index(size)
        return self.sizes[size]

    def _index(self, size: Size) -> str:
        if isinstance(size, int | sympy.Integer):
            return self.emit(f"arith.constant {int(size)} : index", "s")
        if size in self.places:
            tensor, dimension = self.places[size]
            return self.emit(f"tensor.dim {tensor.name}, {self.index(dimension)} : {tensor.type}", "s")
        operation = INDEX_ARITHMETIC.get(type(size))
        if operation is None:
            raise UnsupportedError(f"the size {size} does not follow from sums and products of the operands' sizes")
        first, *rest = map(self.index, size.args)
        for other in rest:
            first = self.emit(f"{operation} {first}, {other} : index", "s")
        return first

    def unknown(self, shape: Sequence[Size]) -> str:
        """The names of the sizes that are not numbers, as a list."""
        return ", ".join(self.index(size) for size in shape if not isinstance(size, int))

    def empty(self, shape: tuple[Size, ...], element: str) -> TensorValue:
        """A tensor without contents."""
        sizes = self.unknown(shape)
        kind = tensor_type(shape, element)
        return TensorValue(self.emit(f"tensor.empty({sizes}) : {kind}", "t"), shape, element)

    def filled(self, shape: tuple[Size, ...], element: str, number: float) -> TensorValue:
        """A tensor of one number."""
        value = self.emit(f"arith.constant {constant(number, element)} : {element}", "s")
        return self.structured("linalg.fill", f"ins({value} : {element})", self.empty(shape, element))

    def structured(self, start: str, inputs: str, out: TensorValue, region: str = "") -> TensorValue:
        """A structured operation that goes into `out`."""
        text = f"{start} {inputs} outs({out.name} : {out.type}){region} -> {out.type}"
        return TensorValue(self.emit(text, "t"), out.shape, out.element)

    def operand(
        self, value: Value, loops: Sequence[int], extents: Sequence[Size]
    ) -> tuple[TensorValue, tuple[int, ...]]:
        """A tensor and the loops that its dimensions run along, for a value and the loops of its own dimensions; those
        of one element along longer loops are dropped."""
        found: dict[int, int] = {}
        for dimension, loop, size in zip(value.dims, loops, value.shape, strict=True):
            if dimension is not None and (size != 1 or extents[loop] == 1):
                found[dimension] = loop
        tensor = self.without(value.tensor, [d for d in range(len(value.tensor.shape)) if d not in found])
        return tensor, tuple(found[d] for d in sorted(found))

    def without(self, tensor: TensorValue, dropped: Sequence[int]) -> TensorValue:
        """A tensor less some dimensions of one element."""
        if not dropped:
            return tensor
        shape = tuple(size for d, size in enumerate(tensor.shape) if d not in dropped)
        groups = _groups_around([d not in dropped for d in range(len(tensor.shape))])
        return self.reshaped(tensor, shape, groups if shape else [])

    def reshaped(self, tensor: TensorValue, shape: tuple[Size, ...], groups: list[list[int]]) -> TensorValue:
        """A tensor with groups of its dimensions made one, or dimensions of it made groups."""
        kind = tensor_type(shape, tensor.element)
        if len(shape) < len(tensor.shape):
            text = f"tensor.collapse_shape {tensor.name} {groups} : {tensor.type} into {kind}"
        else:
            sizes = ", ".join(str(size) if isinstance(size, int) else self.index(size) for size in shape)
            text = f"tensor.expand_shape {tensor.name} {groups} output_shape [{sizes}] : {tensor.type} into {kind}"
        return TensorValue(self.emit(text, "t"), shape, tensor.element)

    def generic(
        self,
        values: Sequence[Value],
        shape: tuple[Size, ...],
        dtype: torch.dtype,
        body: Callable[[Body, Sequence[ElementValue]], ElementValue],
    ) -> Value:
        """An elementwise operation on values that are broadcast to a shape; `body` computes an element of `dtype`."""
        rank = len(shape)
        operands = [self.operand(v, range(rank - len(v.shape), rank), shape) for v in values]
        out = self.empty(shape, element_of(dtype))
        result = self._generic(operands, [v.dtype for v in values], out, tuple(range(rank)), rank, body, dtype)
        return plain(result, dtype)

    def reduce(
        self,
        value: Value,
        axes: Sequence[int],
        start: float,
        body: Callable[[Body, Sequence[ElementValue]], ElementValue],
    ) -> Value:
        """A reduction along some dimensions, which disappear; `body` takes an element and what was found before."""
        rank = len(value.shape)
        kept = tuple(d for d in range(rank) if d not in axes)
        operand = self.operand(value, range(rank), value.shape)
        out = self.filled(tuple(value.shape[d] for d in kept), element_of(value.dtype), start)
        result = self._generic([operand], [value.dtype], out, kept, rank, body, value.dtype)
        return plain(result, value.dtype)

    def _generic(
        self,
        operands: Sequence[tuple[TensorValue, tuple[int, ...]]],
        dtypes: Sequence[torch.dtype],
        out: TensorValue,
        kept: tuple[int, ...],
        rank: int,
        body: Callable[[Body, Sequence[ElementValue]], ElementValue],
        dtype: torch.dtype,
    ) -> TensorValue:
        maps = ", ".join(map_of(rank, loops) for loops in (*(loops for _, loops in operands), kept))
        kinds = ", ".join(f'"{PARALLEL if loop in kept else REDUCTION}"' for loop in range(rank))
        inside = Body()
        elements = [inside.loaded(f"%a{i}", dtype) for i, dtype in enumerate(dtypes)]
        if len(kept) < rank:
            elements.append(inside.loaded("%old", dtype))
        result = inside.stored(body(inside, elements), dtype)
        given = [*(f"%a{i}: {tensor.element}" for i, (tensor, _) in enumerate(operands)), f"%old: {out.element}"]
        lines = [f"^bb0({', '.join(given)}):", *inside.lines, f"linalg.yield {result.name} : {result.type}"]
        region = " {\n" + "".join(f"    {line}\n" for line in lines) + "  }"
        start = f"linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}"
        return self.structured(start, inputs([tensor for tensor, _ in operands]), out, region)

    def contract(
        self,
        factors: Sequence[Value],
        loops: Sequence[Sequence[int]],
        extents: Sequence[Size],
        element: str,
        *,
        approximate: bool = False,
    ) -> TensorValue:
        """The sum of products of two values along the last loop, whose number is that of the result's dimensions;
        `loops` are those that the dimensions of each factor run along. With `approximate` the instruction may cut sums
        short."""
        rank = len(extents) - 1
        operands = [self.operand(value, along, extents) for value, along in zip(factors, loops, strict=True)]
        out = self.filled(tuple(extents[:rank]), element, 0)
        maps = ", ".join(map_of(rank + 1, along) for along in (*(along for _, along in operands), range(rank)))
        flags = " {warp.fastmath = #arith.fastmath<afn>}" if approximate else ""
        start = f"linalg.contract indexing_maps = [{maps}]{flags}"
        return self.structured(start, inputs([tensor for tensor, _ in operands]), out)

    def dense(self, value: Value) -> TensorValue:
        """The value as a tensor of its own shape, copied where it is another one's in another order."""
        if value.plain:
            return value.tensor
        kept = [d for d in value.dims if d is not None]
        ones = all(size == 1 for d, size in zip(value.dims, value.shape, strict=True) if d is None)
        if kept != sorted(kept) or not ones or not kept:
            return self.copied(value).tensor
        tensor = self.without(value.tensor, [d for d in range(len(value.tensor.shape)) if d not in kept])
        if len(kept) == len(value.shape):
            return tensor
        return self.reshaped(tensor, value.shape, _groups_around([d is not None for d in value.dims]))

    def copied(self, value: Value) -> Value:
        """The value in a tensor of its own."""
        return self.generic([value], value.shape, value.dtype, lambda _, elements: elements[0])

    def text(self, name: str, results: Sequence[TensorValue]) -> str:
        """The function, with these results."""
        arguments = ", ".join(f"{t.name}: {t.type}" for t in self.arguments)
        kinds = ", ".join(t.type for t in results)
        returned = ", ".join(t.name for t in results)
        lines = [f"  {line}\n" for line in (*self.lines, f"return {returned} : {kinds}")]
        return f"func.func @{name}({arguments}) -> ({kinds}) {{\n{''.join(lines)}}}\n"


def _groups_around(kept: Sequence[bool]) -> list[list[int]]:
    """A group for each dimension that is kept, with the others before the first one and behind each."""
    groups: list[list[int]] = [[]]
    for dimension, own in enumerate(kept):
        if own and any(kept[:dimension]):
            groups.append([])
        groups[-1].append(dimension)
    return groups


def inputs(tensors: Sequence[TensorValue]) -> str:
    """The inputs of a structured operation, empty if there are none."""
    if not tensors:
        return ""
    return f"ins({', '.join(t.name for t in tensors)} : {', '.join(t.type for t in tensors)})"


def map_of(rank: int, loops: Sequence[int]) -> str:
    """The indexing map of an operand whose dimensions run along some of the loops."""
    names = ", ".join(f"d{loop}" for loop in range(rank))
    return f"affine_map<({names}) -> ({', '.join(f'd{loop}' for loop in loops)})>"


def plain(tensor: TensorValue, dtype: torch.dtype) -> Value:
    """A tensor as a value."""
    return Value(tensor, tuple(range(len(tensor.shape))), tensor.shape, dtype)


# Pointwise operations of ATen: decomposed by torch into primitive ones, which are computed on one element.

CONVERSIONS = frozenset({aten._to_copy.default, prims.convert_element_type.default})
"""Conversions of elements, which torch does not tag as pointwise."""

PLACES = ("layout", "device", "pin_memory", "memory_format", "non_blocking")
"""Arguments of operations that say where tensors lie, which `linalg` on tensors does not."""

EXAMPLE_SIZE = 7
"""How many elements the tensors have that an operation is decomposed with."""


class TensorLike(NamedTuple):
    """What the decomposition of an operation depends on of a tensor."""

    dtype: torch.dtype
    number: bool
    """Whether it has no dimensions, and so less say in the type of the result."""


Given: TypeAlias = Any
"""An argument of an operation: a number, a type, a sequence of these, or a `Value`."""


def is_pointwise(target: Any) -> bool:
    """Whether an operation computes each element from those of its operands in the same place."""
    if not is_operator(target) or target._schema.is_mutable:
        return False
    return (
        torch.Tag.pointwise in target.tags
        or target in CONVERSIONS
        or (target.namespace == "prims" and name_of(target) in RULES)
    )


def name_of(target: object) -> str:
    """`add` of `torch.ops.prims.add.default`."""
    return str(target).split(".")[1]


def expression(
    target: Any, args: Sequence[Given], kwargs: dict[str, Given], shape: tuple[Size, ...], dtype: torch.dtype
) -> Expression:
    """A pointwise operation as what it computes of the elements of values."""
    parts = [x for x in leaves((args, kwargs)) if isinstance(x, Value | Expression)]
    values = [v for x in parts for v in (x.values if isinstance(x, Expression) else [x])]
    placed = {k: v for k, v in kwargs.items() if k not in PLACES or v is None}

    def body(inside: Body, elements: Sequence[ElementValue]) -> ElementValue:
        left = list(elements)
        computed: list[ElementValue] = []
        for part in parts:
            count = len(part.values) if isinstance(part, Expression) else 1
            own, left = left[:count], left[count:]
            computed.append(part.body(inside, own) if isinstance(part, Expression) else own[0])
        return compute(target, args, placed, inside, computed, dtype)

    return Expression(tuple(values), body, shape, dtype)


def compute(
    target: Any,
    args: Sequence[Given],
    kwargs: dict[str, Given],
    body: Body,
    elements: Sequence[ElementValue],
    dtype: torch.dtype,
) -> ElementValue:
    """Appends what a pointwise operation does to elements, those of the values and expressions among its arguments in
    order; the result is of `dtype`.

    Raises:
        UnsupportedError: naming what is not lowered.
    """
    if target in CONVERSIONS:
        return body.convert(elements[0], dtype)
    flat, spec = flatten((tuple(args), kwargs))
    if any(isinstance(x, torch.SymInt | torch.SymFloat | torch.SymBool | Node) for x in flat):
        raise UnsupportedError(f"{target} takes a number that depends on sizes")
    key = tuple(TensorLike(x.dtype, not x.shape) if isinstance(x, Value | Expression) else x for x in flat)
    graph = _decomposed(target, key, tuple(map(type, key)), spec)
    known: dict[Node, ElementOrNumber] = {}
    inputs = iter(elements)
    for node in graph.nodes:
        if node.op == "placeholder":
            known[node] = next(inputs)
        elif node.op == "output":
            (result,) = leaves(node.args)
            return body.convert(_operand(known[result], body, dtype), dtype)
        else:
            known[node] = _primitive(node, known, body)
    raise AssertionError("a graph ends with its output")


def _operand(value: ElementOrNumber, body: Body, dtype: torch.dtype) -> ElementValue:
    return value if isinstance(value, ElementValue) else body.number(value, scalar_of(dtype))


def _primitive(node: Node, known: dict[Node, ElementOrNumber], body: Body) -> ElementOrNumber:
    name = name_of(node.target)
    given = [known[x] if isinstance(x, Node) else x for x in node.args]
    if name in ("full_like", "full", "scalar_tensor"):
        return cast("float", given[0] if name == "scalar_tensor" else given[1])
    if name in ("broadcast_in_dim", "view_of", "clone", "empty_strided", "empty_like", "device_put"):
        return given[0] if isinstance(given[0], ElementValue | float | int | bool) else 0.0
    if name == "convert_element_type":
        dtype = cast("torch.dtype", given[1])
        return body.convert(_operand(cast("ElementOrNumber", given[0]), body, dtype), dtype)
    if name not in RULES:
        raise UnsupportedError(f"{node.target} is not lowered")
    operands = [x for x in given if isinstance(x, ElementValue | float | int | bool)]
    if not any(isinstance(x, ElementValue) for x in operands):
        raise UnsupportedError(f"{node.target} of constants is not lowered")
    return RULES[name](body, operands)


def obstacle(node: Node) -> str:
    """Why a pointwise node has no form here, "" if it has one."""
    try:
        args, kwargs = map_arg((node.args, node.kwargs), _stood_for)
        found = expression(node.target, cast("Any", args), cast("Any", kwargs), (), node.meta["val"].dtype)
        body = Body()
        found.body(body, [body.loaded(f"%{i}", value.dtype) for i, value in enumerate(found.values)])
    except UnsupportedError as error:
        return str(error)
    return ""


def _stood_for(node: Node) -> Any:
    example = node.meta["val"]
    if not isinstance(example, torch.Tensor):
        return example
    element = element_of(example.dtype)
    return Value(TensorValue("%", (), element), (None,) * example.ndim, shape_of(example), example.dtype)


@cache
def _decomposed(target: Any, key: tuple[Given, ...], kinds: tuple[type, ...], spec: Any) -> Graph:
    """What an operation is in primitive ones, with an argument for each tensor of the key; `kinds` tell 1 from 1.0."""
    likes = [x for x in key if isinstance(x, TensorLike)]

    def call(*tensors: torch.Tensor) -> object:
        given = iter(tensors)
        args, kwargs = unflatten((next(given) if isinstance(x, TensorLike) else x for x in key), spec)
        return target(*args, **kwargs)

    tensors = [torch.empty([] if x.number else [EXAMPLE_SIZE], dtype=x.dtype, device="meta") for x in likes]
    return traced(call, tensors, decompositions())
