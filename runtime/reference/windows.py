"""Operands of a product along its loops, where dimensions run along sums of loops, as those of a convolution do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from numpy.lib.stride_tricks import as_strided
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap

from ...dialect.warp.loops import loops_of
from ...dialect.warp.window import steps_of, windows
from ..arguments.dtypes import Floats
from ..errors import HostError
from .product import Reference, letters_of


def along_loops(
    operand: Reference,
    map_: AffineMap,
    maps: Sequence[AffineMap],
    op: LinalgStructuredOperation,
    scope: Mapping[SSAValue, Reference],
) -> tuple[Reference, str]:
    """An operand with a dimension for each loop, and a letter for each; `maps` are those of all operands.

    Raises:
        HostError: for dimensions that run along anything but sums of loops.
    """
    found = loops_of(map_)
    if -1 not in found and len(set(found)) == len(found):
        return operand, letters_of(op, map_)
    forms, sizes = windows(map_), dict[int, int]()
    if forms is None:
        raise HostError(f"no float64 reference for {op.name} with the indexing map {map_}")
    for value, other in zip(op.operands, maps, strict=True):
        sizes |= {
            loop: size for loop, size in zip(loops_of(other), scope[value].value.shape, strict=False) if loop >= 0
        }
    used = sorted({loop for by, _ in forms for loop in by})

    def window(array: Floats) -> Floats:
        steps, first = steps_of(map_, array.strides)
        return as_strided(_from(array, first or 0), [sizes[loop] for loop in used], [steps[loop] or 0 for loop in used])

    seen = replace(operand, value=window(operand.value), error=window(operand.error))
    return seen, "".join(chr(ord("a") + loop) for loop in used)


def _from(array: Floats, first: int) -> Floats:
    """The memory of an array from a number of bytes on."""
    return as_strided(array, (1 + first // array.itemsize,), (array.itemsize,))[first // array.itemsize :]
