"""Whether a parameter takes an argument: its shape, its elements, where they lie, and that it may be written."""

from __future__ import annotations

from ..errors import ArgumentError
from .arrays import Argument
from .dtypes import PACKED, DType, element_of
from .parameter import Parameter

REMEMBERED = 256
"""Kinds of arguments that a parameter remembers to take."""


def check(argument: Argument, parameter: Parameter, position: int, *, written: bool) -> None:
    """Refuse an argument that `parameter` cannot take.

    Raises:
        ArgumentError: naming the argument by position and name, what was expected and what was got.
    """
    kind = (argument.shape, argument.strides, argument.element, argument.packed, argument.writable or not written)
    if kind not in parameter.taken:
        _check(argument, parameter, position, written=written)
        if len(parameter.taken) >= REMEMBERED:
            parameter.taken.clear()
        parameter.taken.add(kind)


def _check(argument: Argument, parameter: Parameter, position: int, *, written: bool) -> None:
    where = f"argument {position} (%{parameter.name})"
    if not parameter.takes_shape(argument.shape) or not _same_words(argument, parameter.dtype):
        raise ArgumentError(f"{where}: expected {parameter}, got {argument}")
    if not _lies_as(argument, parameter):
        order = "" if parameter.strides is not None else " in row-major order without gaps"
        raise ArgumentError(
            f"{where}: expected {parameter}{order}, got strides of {argument.byte_strides} bytes{_copy_for(parameter)}"
        )
    if (number := _misfit(argument, parameter)) is not None:
        raise ArgumentError(
            f"{where}: warp.divisible promises extents and strides that are multiples of {parameter.divisor}, got "
            f"{number}"
        )
    if written and not argument.writable:
        raise ArgumentError(f"{where}: the kernel writes it, but the array is read-only; pass a writable copy")


def _copy_for(parameter: Parameter) -> str:
    """How to make a copy that a parameter takes, where one call does."""
    *outer, last = parameter.strides or (1,)
    if last in (None, 1) and set(outer) <= {None}:
        return "; pass a contiguous copy (numpy.ascontiguousarray, torch's .contiguous())"
    return ""


def _lies_as(argument: Argument, parameter: Parameter) -> bool:
    """Whether the elements of an argument of the right shape lie where the parameter has them."""
    if parameter.strides is None:
        return argument.contiguous
    if 0 in argument.shape:
        return True
    for extent, stride, expected in zip(argument.shape, argument.byte_strides, parameter.strides, strict=True):
        elements, rest = divmod(stride, argument.itemsize)
        if extent > 1 and (rest or elements < 0 or expected not in (None, elements)):
            return False
    return True


def _misfit(argument: Argument, parameter: Parameter) -> int | None:
    """An extent or stride of the argument that the parameter's divisor does not divide."""
    if parameter.divisor == 1:
        return None
    last = len(argument.shape) - 1
    steps = parameter.strides or tuple(int(i == last) for i in range(len(argument.shape)))
    strides = [stride // argument.itemsize for stride in argument.byte_strides]
    shape = zip(parameter.shape or (), argument.shape, steps, strict=True)
    checked = [extent for wanted, extent, step in shape if step == 1 and wanted < 0]
    checked += [s for s, n, step in zip(strides, argument.shape, steps, strict=True) if step is None and n > 1]
    return next((number for number in checked if number % parameter.divisor), None)


def _same_words(argument: Argument, expected: DType) -> bool:
    """Equal types, signless integers of either sign, and raw words ('V2', which numpy loads bf16 files as)."""
    if argument.itemsize != expected.itemsize or argument.packed != PACKED.get(element_of(expected), 1):
        return False
    if argument.element == element_of(expected) or argument.element.startswith("|V"):
        return True
    return argument.element.removeprefix("u") == element_of(expected).removeprefix("u")
