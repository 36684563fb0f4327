"""Element types and sizes of tensors, and what is computed on one element: `torch.ops.prims` in `arith` and `math`."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import torch

from .torch_api import expression

# Element types and sizes of tensors, as torch and MLIR have them.

Size: TypeAlias = Any
"""How many elements a tensor has along a dimension: an int, or an expression of sympy in sizes that only the caller
knows."""

ELEMENTS = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "f8E4M3FN",
    torch.float8_e5m2: "f8E5M2",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "i8",
    torch.bool: "i8",
}
"""The element type in memory: truth values have a byte each."""

SCALARS = {**ELEMENTS, torch.bool: "i1"}
"""The type that an element is computed in."""

FLOATS = frozenset(dtype for dtype in ELEMENTS if dtype.is_floating_point)


class UnsupportedError(Exception):
    """Something that has no form in `linalg` here; says what, and why."""


def element_of(dtype: torch.dtype) -> str:
    """The MLIR type of elements in memory.

    Raises:
        UnsupportedError: for a type that has none.
    """
    return _named(dtype, ELEMENTS)


def scalar_of(dtype: torch.dtype) -> str:
    """The MLIR type of an element as it is computed with.

    Raises:
        UnsupportedError: for a type that has none.
    """
    return _named(dtype, SCALARS)


def _named(dtype: torch.dtype, names: Mapping[torch.dtype, str]) -> str:
    if dtype not in names:
        raise UnsupportedError(f"elements of {dtype} are not lowered")
    return names[dtype]


def size_of(size: int | torch.SymInt) -> Size:
    """A size of a tensor of a graph."""
    if isinstance(size, int):
        return size
    return expression(size)


def shape_of(tensor: torch.Tensor) -> tuple[Size, ...]:
    """The sizes of a tensor of a graph."""
    return tuple(map(size_of, tensor.shape))


@dataclass(frozen=True)
class TensorValue:
    """A tensor in MLIR text: its name (`%3`), sizes and element type."""

    name: str
    shape: tuple[Size, ...]
    element: str

    @property
    def type(self) -> str:
        """`tensor<?x48xbf16>`."""
        return tensor_type(self.shape, self.element)


def tensor_type(shape: tuple[Size, ...], element: str) -> str:
    """A tensor type as MLIR writes it."""
    return f"tensor<{'x'.join([*(str(s) if isinstance(s, int) else '?' for s in shape), element])}>"


@dataclass(frozen=True)
class Value:
    """What a node of a graph computes: a tensor seen in another order of its dimensions.

    `dims` says along which dimension of the tensor each of the value's runs, None where the value repeats itself.
    Dimensions of the tensor that are not named have one element. `dtype` is torch's type of the elements.
    """

    tensor: TensorValue
    dims: tuple[int | None, ...]
    shape: tuple[Size, ...]
    dtype: torch.dtype

    @property
    def plain(self) -> bool:
        """Whether the value is the tensor as it is."""
        return self.dims == tuple(range(len(self.tensor.shape)))


@dataclass(frozen=True)
class Expression:
    """What is computed of the elements of some values, in each place of a shape: `body` takes a region's `Body` and an
    element of each value."""

    values: tuple[Value, ...]
    body: Callable[..., Any]
    shape: tuple[Size, ...]
    dtype: torch.dtype


Lowering: TypeAlias = Callable[..., Value]
"""How an operation of ATen is written: takes a `Builder`, a tensor like the result, and the operation's arguments with
values in the place of tensors."""


# What is computed on one element: the primitive operations of torch (`torch.ops.prims`) in `arith` and `math`.

WIDTHS = {"f8E4M3FN": 8, "f8E5M2": 8, "f16": 16, "bf16": 16, "f32": 32, "f64": 64}
INTEGERS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64}
NOT_FINITE = {"f16": "<e", "f32": "<f", "f64": "<d"}


class ElementValue(NamedTuple):
    """One element in MLIR text: its name and type; `unsigned` as `torch.uint8` and truth values are."""

    name: str
    type: str
    unsigned: bool = False

    @property
    def is_float(self) -> bool:
        return self.type in WIDTHS


ElementOrNumber: TypeAlias = ElementValue | float | int | bool


@dataclass
class Body:
    """The region of an elementwise operation, as it grows."""

    lines: list[str] = field(default_factory=list[str])

    def emit(
        self, operation: str, operands: Sequence[ElementValue], kind: str, suffix: str | None = None
    ) -> ElementValue:
        """Appends `%n = operation operands : suffix`, whose result is of type `kind`."""
        name = f"%{len(self.lines)}"
        listed = ", ".join(x.name for x in operands)
        self.lines.append(f"{name} = {operation}{' ' if listed else ''}{listed} : {suffix or kind}")
        return ElementValue(name, kind)

    def number(self, number: float, kind: str) -> ElementValue:
        """A constant."""
        return self.emit(f"arith.constant {constant(number, kind)}", (), kind)

    def loaded(self, name: str, dtype: torch.dtype) -> ElementValue:
        """An argument of the region as the type that it is computed in: a truth value is kept in a byte."""
        if dtype == torch.bool:
            return self.emit("arith.cmpi ne,", [ElementValue(name, "i8"), self.number(0, "i8")], "i1", "i8")
        return ElementValue(name, scalar_of(dtype), dtype == torch.uint8)

    def stored(self, value: ElementValue, dtype: torch.dtype) -> ElementValue:
        """The converse of `loaded`."""
        return self.emit("arith.extui", [value], "i8", "i1 to i8") if dtype == torch.bool else value

    def convert(self, value: ElementValue, dtype: torch.dtype) -> ElementValue:
        """A conversion between element types, rounded to nearest."""
        kind, unsigned = scalar_of(dtype), dtype == torch.uint8
        if value.type == kind:
            return value._replace(unsigned=unsigned)
        if kind == "i1":
            return COMPARISONS["ne"](self, [value, 0])
        if value.is_float and kind in WIDTHS:
            return self._convert_float(value, kind)
        name = _conversion(value, kind, unsigned)
        return self.emit(name, [value], kind, f"{value.type} to {kind}")._replace(unsigned=unsigned)

    def _convert_float(self, value: ElementValue, kind: str) -> ElementValue:
        if WIDTHS[value.type] == WIDTHS[kind]:
            value = self._convert_float(value, "f32")
        name = "arith.extf" if WIDTHS[value.type] < WIDTHS[kind] else "arith.truncf"
        return self.emit(name, [value], kind, f"{value.type} to {kind}")


def _conversion(value: ElementValue, kind: str, unsigned: bool) -> str:
    """The name of a conversion of which one side is an integer."""
    positive = value.unsigned or value.type == "i1"
    if value.is_float:
        return "arith.fptoui" if unsigned else "arith.fptosi"
    if kind in WIDTHS:
        return "arith.uitofp" if positive else "arith.sitofp"
    if INTEGERS[kind] < INTEGERS[value.type]:
        return "arith.trunci"
    return "arith.extui" if positive else "arith.extsi"


def constant(number: float, kind: str) -> str:
    """A number as MLIR writes it for a type."""
    if kind in INTEGERS:
        return str(int(number))
    if math.isfinite(number):
        return format(float(number), ".17e")
    if kind == "bf16":
        return hex(struct.unpack("<I", struct.pack("<f", number))[0] >> 16)
    if kind not in NOT_FINITE:
        raise UnsupportedError(f"{number} has no form in {kind}")
    raw = struct.pack(NOT_FINITE[kind], number)
    return hex(int.from_bytes(raw, "little"))


Rule: TypeAlias = Callable[[Body, Sequence[ElementOrNumber]], ElementValue]


def _typed(body: Body, operands: Sequence[ElementOrNumber]) -> list[ElementValue]:
    """Operands with numbers made constants of the type of the others."""
    like = next(x for x in operands if isinstance(x, ElementValue))
    return [x if isinstance(x, ElementValue) else body.number(x, like.type) for x in operands]


def _arithmetic(on_floats: str, on_integers: str = "") -> Rule:
    """An operation whose operands and result have one type."""

    def rule(body: Body, operands: Sequence[ElementOrNumber]) -> ElementValue:
        values = _typed(body, operands)
        name = on_floats if values[0].is_float else on_integers
        if not name or values[0].type == "i1":
            raise UnsupportedError(f"{on_floats} of {values[0].type} is not lowered")
        return body.emit(name, values, values[0].type)

    return rule


def _logic(name: str) -> Rule:
    def rule(body: Body, operands: Sequence[ElementOrNumber]) -> ElementValue:
        values = _typed(body, operands)
        return body.emit(name, values, values[0].type)

    return rule


def _compare(on_floats: str, on_integers: str) -> Rule:
    """A comparison; of truth values and bytes without a sign, as unsigned numbers."""

    def rule(body: Body, operands: Sequence[ElementOrNumber]) -> ElementValue:
        values = _typed(body, operands)
        kind = values[0].type
        if values[0].is_float:
            return body.emit(f"arith.cmpf {on_floats},", values, "i1", kind)
        signed = on_integers if on_integers in ("eq", "ne") else ("u" if values[0].unsigned else "s") + on_integers
        return body.emit(f"arith.cmpi {signed},", values, "i1", kind)

    return rule


COMPARISONS: Mapping[str, Rule] = {
    "eq": _compare("oeq", "eq"),
    "ne": _compare("une", "ne"),
    "lt": _compare("olt", "lt"),
    "le": _compare("ole", "le"),
    "gt": _compare("ogt", "gt"),
    "ge": _compare("oge", "ge"),
}


def _reciprocal(body: Body, operands: Sequence[ElementOrNumber]) -> ElementValue:
    return RULES["div"](body, [1.0, *operands])


def _where(body: Body, operands: Sequence[ElementOrNumber]) -> ElementValue:
    condition, *choices = operands
    chosen = _typed(body, choices)
    if not isinstance(condition, ElementValue):
        raise UnsupportedError("a choice by a constant is not lowered")
    return body.emit("arith.select", [condition, *chosen], chosen[0].type)


def _not(body: Body, operands: Sequence[ElementOrNumber]) -> ElementValue:
    (value,) = _typed(body, operands)
    return body.emit("arith.xori", [value, body.number(1 if value.type == "i1" else -1, value.type)], value.type)


def _negated(body: Body, operands: Sequence[ElementOrNumber]) -> ElementValue:
    (value,) = _typed(body, operands)
    if value.is_float:
        return body.emit("arith.negf", [value], value.type)
    return body.emit("arith.subi", [body.number(0, value.type), value], value.type)


def _power(body: Body, operands: Sequence[ElementOrNumber]) -> ElementValue:
    """Powers with exponents for which there is an exact or correctly rounded way."""
    base, exponent = operands
    if not isinstance(base, ElementValue) or isinstance(exponent, ElementValue) or not base.is_float:
        raise UnsupportedError("powers are lowered with exponents that are numbers")
    if exponent in (0.5, -0.5):
        return RULES["sqrt" if exponent > 0 else "rsqrt"](body, [base])
    if exponent not in (1, 2, 3, 4, -1, -2):
        raise UnsupportedError(f"the exponent {exponent} is not lowered; 1, 2, 3, 4, -1, -2, 0.5 and -0.5 are")
    value = base
    for _ in range(abs(int(exponent)) - 1):
        value = body.emit("arith.mulf", [value, base], base.type)
    return value if exponent > 0 else _reciprocal(body, [value])


def _log1p(body: Body, operands: Sequence[ElementOrNumber]) -> ElementValue:
    """log(1 + x) = x log(u) / (u - 1) for u = 1 + x rounded, x where u is 1 (Kahan)."""
    (x,) = _typed(body, operands)
    u = RULES["add"](body, [x, 1.0])
    quotient = RULES["div"](body, [x, RULES["sub"](body, [u, 1.0])])
    product = RULES["mul"](body, [RULES["log"](body, [u]), quotient])
    exact = RULES["where"](body, [COMPARISONS["eq"](body, [u, 1.0]), x, product])
    return RULES["where"](body, [COMPARISONS["eq"](body, [u, math.inf]), u, exact])


def _expm1(body: Body, operands: Sequence[ElementOrNumber]) -> ElementValue:
    """exp(x) - 1 = (u - 1) x / log(u) for u = exp(x) rounded; x where u is 1, and u - 1 where x is large (Kahan)."""
    (x,) = _typed(body, operands)
    u = RULES["exp"](body, [x])
    less = RULES["sub"](body, [u, 1.0])
    quotient = RULES["div"](body, [x, RULES["log"](body, [u])])
    product = RULES["mul"](body, [less, quotient])
    exact = RULES["where"](body, [COMPARISONS["eq"](body, [u, 1.0]), x, product])
    large = COMPARISONS["gt"](body, [RULES["abs"](body, [x]), 16.0])
    return RULES["where"](body, [large, less, exact])


RULES: Mapping[str, Rule] = {
    **COMPARISONS,
    "add": _arithmetic("arith.addf", "arith.addi"),
    "sub": _arithmetic("arith.subf", "arith.subi"),
    "mul": _arithmetic("arith.mulf", "arith.muli"),
    "div": _arithmetic("arith.divf"),
    "maximum": _arithmetic("arith.maximumf", "arith.maxsi"),
    "minimum": _arithmetic("arith.minimumf", "arith.minsi"),
    "abs": _arithmetic("math.absf"),
    "exp": _arithmetic("math.exp"),
    "exp2": _arithmetic("math.exp2"),
    "log": _arithmetic("math.log"),
    "sqrt": _arithmetic("math.sqrt"),
    "rsqrt": _arithmetic("math.rsqrt"),
    "tanh": _arithmetic("math.tanh"),
    "erf": _arithmetic("math.erf"),
    "floor": _arithmetic("math.floor"),
    "ceil": _arithmetic("math.ceil"),
    "trunc": _arithmetic("math.trunc"),
    "round": _arithmetic("math.roundeven"),
    "bitwise_and": _logic("arith.andi"),
    "bitwise_or": _logic("arith.ori"),
    "bitwise_xor": _logic("arith.xori"),
    "bitwise_not": _not,
    "neg": _negated,
    "where": _where,
    "pow": _power,
    "reciprocal": _reciprocal,
    "log1p": _log1p,
    "expm1": _expm1,
}
"""What each primitive operation is, by its name in `torch.ops.prims`."""
