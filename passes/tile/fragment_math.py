"""Arithmetic on fragments: `warp.map` of what is said of one element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith
from xdsl.dialects import math as math_dialect
from xdsl.dialects.arith import FastMathFlagsAttr
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, f32, i32
from xdsl.dialects.utils import FastMathFlag
from xdsl.ir import Block, Region, SSAValue

from ...dialect.isa.types import ElementType
from ...dialect.layouts.layout import Layout
from ...dialect.warp.attributes import FragmentType, float_type, fragment_of
from ...dialect.warp.convert_layout import ConvertLayoutOp
from ...dialect.warp.elements import YieldOp
from ...dialect.warp.elementwise import ConstantOp
from ...dialect.warp.epilogue import MapOp
from ...dialect.warp.rows import BroadcastOp, StepOp
from .index_builder import Index, IndexBuilder

ElementFunction: TypeAlias = Callable[[Sequence[SSAValue]], SSAValue]
"""Takes an element of each input and makes one of the result."""

APPROXIMATE = FastMathFlagsAttr([FastMathFlag.APPROX_FUNC])


def mapped(index: IndexBuilder, compute: ElementFunction, *inputs: SSAValue) -> SSAValue:
    """A fragment like the first input, made element by element."""
    block = Block(arg_types=[fragment_of(value).element_type for value in inputs])
    with ImplicitBuilder(block):
        YieldOp(compute(block.args))
    return index.insert(MapOp(inputs, fragment_of(inputs[0]), Region(block))).fragment


def constant(index: IndexBuilder, kind: FragmentType, value: float) -> SSAValue:
    """A fragment with one value."""
    return index.insert(ConstantOp(number_of(kind.element, value), kind)).fragment


def number_of(element: ElementType, value: float) -> FloatAttr | IntegerAttr:
    """A value as an attribute of an element type."""
    return FloatAttr(value, float_type(element)) if element.is_float else IntegerAttr(int(value), element.bits)


def in_layout(index: IndexBuilder, fragment: SSAValue, layout: Layout) -> SSAValue:
    """The fragment in another layout of the same lanes."""
    held = fragment_of(fragment).layout.data
    return fragment if held == layout else index.insert(ConvertLayoutOp.to(fragment, layout)).fragment


def spread(index: IndexBuilder, column: SSAValue, like: SSAValue) -> SSAValue:
    """A column as a fragment like another one."""
    return index.insert(BroadcastOp(column, fragment_of(like))).fragment


def times(index: IndexBuilder, fragment: SSAValue, column: SSAValue) -> SSAValue:
    """Each row of a fragment times the element of a column."""
    return mapped(index, lambda x: arith.MulfOp(x[0], x[1]).result, fragment, spread(index, column, fragment))


def number(value: float) -> SSAValue:
    """A constant of f32, in a region on elements."""
    return arith.ConstantOp(FloatAttr(value, f32)).result


def integer(value: int) -> SSAValue:
    """A constant of i32, in a region on elements."""
    return arith.ConstantOp(IntegerAttr(value, i32)).result


def fma(a: SSAValue, b: SSAValue, c: SSAValue) -> SSAValue:
    """a * b + c of elements, rounded once."""
    return math_dialect.FmaOp(a, b, c).result


def power(exponent: SSAValue) -> SSAValue:
    """2 to the power of an element, by `ex2.approx.ftz` (relative error 2^-22, PTX ISA 9.7.3.21)."""
    return math_dialect.Exp2Op(exponent, APPROXIMATE).result


def below(column: SSAValue, end: SSAValue, element: SSAValue, otherwise: float) -> SSAValue:
    """An element whose column is before the end; a number behind it."""
    return arith.SelectOp(arith.CmpiOp(column, end, "slt"), element, number(otherwise)).result


def until(index: IndexBuilder, fragment: SSAValue, start: Index, otherwise: float) -> SSAValue:
    """A fragment with a number behind the end of rows: its columns count from `start`, and those below 0 are before."""
    columns = index.insert(StepOp("columns", index.value(start), fragment_of(fragment))).fragment
    return mapped(index, lambda x: below(x[1], integer(0), x[0], otherwise), fragment, columns)
