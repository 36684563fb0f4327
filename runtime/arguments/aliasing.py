"""Arguments that share memory: what a kernel writes must be memory of its own."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..errors import ArgumentError
from .arrays import Argument
from .parameter import Parameter


def check_overlap(
    arguments: Mapping[int, Argument], parameters: tuple[Parameter, ...], written: frozenset[int]
) -> None:
    """Refuse a written argument that shares memory with another one, or within itself: the result would depend on
    timing.

    Raises:
        ArgumentError: naming the arguments.
    """
    for i in sorted(written & arguments.keys()):
        name = f"argument {i} (%{parameters[i].name})"
        if is_folded(arguments[i]):
            raise ArgumentError(
                f"{name} is written, and elements of it share memory (strides of {arguments[i].byte_strides} bytes); "
                "pass an array whose elements are apart"
            )
        for j, other in arguments.items():
            if i != j and overlap(arguments[i], other):
                raise ArgumentError(
                    f"{name} is written and shares memory with "
                    f"argument {j} (%{parameters[j].name}); pass separate arrays"
                )


def overlap(first: Argument, second: Argument) -> bool:
    """Whether two arrays have an element in common."""
    apart = first.address + first.nbytes <= second.address or second.address + second.nbytes <= first.address
    if first.on_device != second.on_device or apart or min(first.nbytes, second.nbytes) == 0:
        return False
    return bool(np.shares_memory(first.elements(first.raw()), second.elements(second.raw())))


def is_folded(argument: Argument) -> bool:
    """Whether elements of an array may share memory: a step along one dimension is within what smaller ones reach."""
    reach = argument.itemsize
    for stride, size in sorted(zip(map(abs, argument.byte_strides), argument.shape, strict=True)):
        if size > 1 and stride < reach:
            return 0 not in argument.shape
        reach += (size - 1) * stride
    return False
