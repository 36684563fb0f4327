"""Element types and sizes of tensors, and what is computed on one element: `torch.ops.prims` in `arith` and `math`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias, cast

import torch
from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects import arith, builtin
from xdsl.dialects import math as math_ops
from xdsl.dialects.builtin import AnyFloat, IntegerType, TensorType, f16, f32, i1, i8, i32
from xdsl.dialects.linalg.ops import IndexOp
from xdsl.ir import Attribute, Block, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.rewriter import InsertPoint

from ...dialect.mlir.affine import ARITHMETIC, converted, number_of
from ...dialect.mlir.arithmetic import MATH
from ...dialect.mlir.upstream import ExtFOp, RemFOp
from .options import expression

Size: TypeAlias = Any
"""How many elements a tensor has along a dimension: an int, or an expression of sympy in sizes that only the caller
knows."""

UINT4: torch.dtype = cast("Any", torch).uint4

ELEMENTS: Mapping[torch.dtype, AnyFloat | IntegerType] = {
    torch.float64: builtin.f64,
    torch.float32: f32,
    torch.float16: f16,
    torch.bfloat16: builtin.bf16,
    torch.float8_e4m3fn: builtin.Float8E4M3FNType(),
    torch.float8_e5m2: builtin.Float8E5M2Type(),
    torch.int64: builtin.i64,
    torch.int32: i32,
    torch.int16: builtin.i16,
    UINT4: IntegerType(4),
    **dict.fromkeys((torch.int8, torch.uint8, torch.bool), i8),
}
"""The element type in memory: truth values have a byte each."""

UNSIGNED = frozenset({torch.uint8, UINT4})

HALVES = (torch.bfloat16, torch.float16)
"""Floats of 16 bits."""


class UnsupportedError(Exception):
    """An operation that cannot be lowered to `linalg`; the message says which, and why."""


def element_of(dtype: torch.dtype) -> AnyFloat | IntegerType:
    """The type of elements in memory; UnsupportedError for a type that has none."""
    if dtype not in ELEMENTS:
        raise UnsupportedError(f"elements of {dtype} are not lowered")
    return ELEMENTS[dtype]


def scalar_of(dtype: torch.dtype) -> AnyFloat | IntegerType:
    """The type of an element as it is computed with; UnsupportedError for a type that has none."""
    return i1 if dtype == torch.bool else element_of(dtype)


def shape_of(tensor: torch.Tensor) -> tuple[Size, ...]:
    """The sizes of a tensor of a graph."""
    return tuple(map(expression, tensor.shape))


@dataclass(frozen=True)
class Value:
    """What a node of a graph computes: a tensor seen in another order of its dimensions. `dims` says along which
    dimension of the tensor each of the value's runs, None where the value repeats itself. Dimensions of the tensor that
    are not named have one element. `dtype` is torch's type of the elements."""

    tensor: SSAValue[TensorType[Attribute]]
    dims: tuple[int | None, ...]
    shape: tuple[Size, ...]
    dtype: torch.dtype

    @property
    def full(self) -> Value:
        """The tensor as it is."""
        named = dict(zip(self.dims, self.shape, strict=True))
        dims = tuple(range(self.tensor.type.get_num_dims()))
        return replace(self, dims=dims, shape=tuple(named.get(d, 1) for d in dims))

    @property
    def plain(self) -> bool:
        """Whether the value is the tensor as it is."""
        return self.dims == tuple(range(self.tensor.type.get_num_dims()))


Lowering: TypeAlias = Callable[..., Value]
"""How an operation of ATen is written: takes a `FunctionBuilder`, a tensor like the result, and the operation's
arguments with values in the place of tensors."""


class ElementValue(NamedTuple):
    """One element in the body of an operation; `unsigned` as `torch.uint8` and truth values are."""

    value: SSAValue
    unsigned: bool = False

    @property
    def type(self) -> AnyFloat | IntegerType:
        return cast("AnyFloat | IntegerType", self.value.type)

    @property
    def is_float(self) -> bool:
        return isinstance(self.type, AnyFloat)


ElementOrNumber: TypeAlias = ElementValue | float | int | bool


class Body(Builder):
    """Appends to the body of an elementwise operation."""

    def __init__(self, block: Block) -> None:
        super().__init__(InsertPoint.at_end(block))
        self.block = block

    @staticmethod
    def of(dtypes: Sequence[torch.dtype], last: bool = True) -> tuple[Body, list[ElementValue]]:
        """A body with an argument of each type, and these as elements; the last one only if it is read."""
        body = Body(Block(arg_types=map(element_of, dtypes)))
        read = dtypes if last else dtypes[:-1]
        return body, [body.loaded(x, dtype) for x, dtype in zip(body.block.args, read, strict=False)]

    def emit(self, kind: type[IRDLOperation], *operands: ElementValue, result: Attribute) -> ElementValue:
        """Appends an operation with one result."""
        op = kind.build(operands=[x.value for x in operands], result_types=[result])
        return ElementValue(self.insert(op).results[0])

    def number(self, number: float, kind: AnyFloat | IntegerType) -> ElementValue:
        """Appends a constant."""
        return ElementValue(self.insert(constant(number, kind)).result)

    def operand(self, value: ElementOrNumber, dtype: torch.dtype) -> ElementValue:
        """An element, or a number as a constant of a type."""
        return value if isinstance(value, ElementValue) else self.number(value, scalar_of(dtype))

    def index(self, loop: int) -> ElementValue:
        """Appends the index along a loop."""
        return self.emit(arith.IndexCastOp, ElementValue(self.insert(IndexOp(loop)).result), result=i32)

    def loaded(self, value: SSAValue, dtype: torch.dtype) -> ElementValue:
        """An argument of the body in the type of its computation. Booleans are bytes in memory."""
        if dtype == torch.bool:
            return RULES["ne"](self, [ElementValue(value), 0])
        return ElementValue(value, dtype in UNSIGNED)

    def stored(self, element: ElementValue, dtype: torch.dtype) -> SSAValue:
        """The converse of `loaded`."""
        return (self.emit(arith.ExtUIOp, element, result=i8) if dtype == torch.bool else element).value

    def convert(self, element: ElementValue, dtype: torch.dtype) -> ElementValue:
        """A conversion between element types, rounded to nearest."""
        kind, unsigned = scalar_of(dtype), dtype == torch.uint8
        if element.type == kind:
            return element._replace(unsigned=unsigned)
        if kind == i1:
            return RULES["ne"](self, [element, 0])
        if element.is_float and isinstance(kind, AnyFloat) and element.type.bitwidth == kind.bitwidth:
            element = self.emit(ExtFOp, element, result=f32)
        if element.is_float and unsigned:
            element = self.convert(element, torch.int32)  # as torch does: numbers wrap around
        positive = element.unsigned or element.type == i1
        with ImplicitBuilder(self):
            return ElementValue(converted(element.value, kind, unsigned=positive), unsigned)


def constant(number: float, kind: AnyFloat | IntegerType) -> arith.ConstantOp:
    """A number as a constant of a type; UnsupportedError for infinity and NaN in a type that lacks them."""
    if not math.isfinite(number) and (isinstance(kind, IntegerType) or kind.bitwidth < f16.bitwidth):
        raise UnsupportedError(f"{number} has no form in {kind}")
    return number_of(kind, number)


Rule: TypeAlias = Callable[[Body, Sequence[ElementOrNumber]], ElementValue]


def _typed(body: Body, operands: Sequence[ElementOrNumber]) -> list[ElementValue]:
    """Operands, with numbers as constants of the others' type."""
    like = next(x for x in operands if isinstance(x, ElementValue))
    return [x if isinstance(x, ElementValue) else body.number(x, like.type) for x in operands]


def _arithmetic(on_floats: Any, on_integers: Any = None, on_truth: Any = None, on_unsigned: Any = None) -> Rule:
    """An operation whose operands and result have one type; None for types that have none. `on_unsigned` is that on
    integers without a sign, where it is another one."""

    def rule(body: Body, operands: Sequence[ElementOrNumber]) -> ElementValue:
        elements, unsigned = _typed(body, operands), any(isinstance(x, ElementValue) and x.unsigned for x in operands)
        kind = on_floats if elements[0].is_float else on_truth if elements[0].type == i1 else on_integers
        if kind is None:
            raise UnsupportedError(f"{(on_floats or on_integers).name} of {elements[0].type} is not lowered")
        kind = on_unsigned or kind if unsigned else kind
        return body.emit(kind, *elements, result=elements[0].type)._replace(unsigned=unsigned)

    return rule


def _compare(on_floats: str, on_integers: str) -> Rule:
    """A comparison; of truth values and bytes without a sign, as unsigned numbers."""

    def rule(body: Body, operands: Sequence[ElementOrNumber]) -> ElementValue:
        first, second = _typed(body, operands)
        if first.is_float:
            return ElementValue(body.insert(arith.CmpfOp(first.value, second.value, on_floats)).result)
        signed = on_integers if on_integers in ("eq", "ne") else ("u" if first.unsigned else "s") + on_integers
        return ElementValue(body.insert(arith.CmpiOp(first.value, second.value, signed)).result)

    return rule


def _where(body: Body, operands: Sequence[ElementOrNumber]) -> ElementValue:
    condition, *choices = operands
    chosen = _typed(body, choices)
    if not isinstance(condition, ElementValue):
        return chosen[0 if condition else 1]
    unsigned = any(choice.unsigned for choice in chosen)
    return body.emit(arith.SelectOp, condition, *chosen, result=chosen[0].type)._replace(unsigned=unsigned)


ROOTS, FACTORS = (0.5, -0.5, 1.5, -1.5), (1, 2, 3, 4, -1, -2)
"""Exponents of powers that are roots, and products; others are computed in f64."""


def _power(body: Body, operands: Sequence[ElementOrNumber]) -> ElementValue:
    """Powers: by products and roots where they are few."""
    base, exponent = operands
    if not isinstance(base, ElementValue) or isinstance(exponent, ElementValue) or not base.is_float:
        return _arithmetic(math_ops.PowFOp)(body, operands)
    if exponent in ROOTS:
        root = RULES["sqrt" if exponent > 0 else "rsqrt"](body, [base])
        if abs(exponent) == 0.5:
            return root
        power = RULES["mul"](body, [root, base if exponent > 0 else RULES["mul"](body, [root, root])])
        endless = RULES["eq"](body, [base, -math.inf])  # whose root is NaN
        return _where(body, [endless, math.inf if exponent > 0 else 0.0, power])
    if exponent not in FACTORS:
        return _arithmetic(math_ops.PowFOp)(body, operands)
    value = base
    for _ in range(abs(int(exponent)) - 1):
        value = RULES["mul"](body, [value, base])
    return value if exponent > 0 else RULES["reciprocal"](body, [value])


def _signbit(body: Body, operands: Sequence[ElementOrNumber]) -> ElementValue:
    (value,) = _typed(body, operands)
    bits = body.emit(arith.BitcastOp, value, result=IntegerType(value.type.bitwidth))
    return RULES["lt"](body, [bits, 0])


def _shifted(body: Body, operands: Sequence[ElementOrNumber]) -> ElementValue:
    """A shift to the right by a number."""
    value, count = operands
    if not isinstance(value, ElementValue) or value.is_float or count not in range(value.type.bitwidth):
        raise UnsupportedError("only shifts of integers by a number of their bits are lowered")
    kind = arith.ShRUIOp if value.unsigned else arith.ShRSIOp
    return body.emit(kind, *_typed(body, operands), result=value.type)


RULES: Mapping[str, Rule] = {
    **{kind.name.removeprefix("math."): _arithmetic(kind) for kind in MATH.operations},
    **{name: _compare(f"o{name}", name) for name in ("eq", "lt", "le", "gt", "ge")},
    "ne": _compare("une", "ne"),
    **{name: _arithmetic(*kinds) for name, kinds in ARITHMETIC.items()},
    "div": _arithmetic(arith.DivfOp, arith.DivSIOp, None, arith.DivUIOp),
    "mul": _arithmetic(*ARITHMETIC["mul"], arith.AndIOp),
    "fmod": _arithmetic(RemFOp, arith.RemSIOp, None, arith.RemUIOp),
    "fmax": _arithmetic(arith.MaxnumfOp),
    "fmin": _arithmetic(arith.MinnumfOp),
    "signbit": _signbit,
    "maximum": _arithmetic(arith.MaximumfOp, arith.MaxSIOp, arith.OrIOp, arith.MaxUIOp),
    "minimum": _arithmetic(arith.MinimumfOp, arith.MinSIOp, arith.AndIOp, arith.MinUIOp),
    "round": _arithmetic(math_ops.RoundEvenOp),
    "bitwise_and": _arithmetic(None, arith.AndIOp, arith.AndIOp),
    "bitwise_or": _arithmetic(None, arith.OrIOp, arith.OrIOp),
    "bitwise_xor": _arithmetic(None, arith.XOrIOp, arith.XOrIOp),
    "neg": _arithmetic(arith.NegfOp),
    "abs": _arithmetic(math_ops.AbsFOp),
    "__rshift__": _shifted,
    "where": _where,
    "pow": _power,
    "reciprocal": lambda body, operands: RULES["div"](body, [1.0, *operands]),
}
"""What each primitive operation is, by its name in `torch.ops.prims`: one of `math` where that calls it the same."""
