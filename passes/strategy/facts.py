"""Facts about operations that strategies match: sizes of products, types of elements, names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import cast

from xdsl.dialects import func, gpu
from xdsl.dialects.builtin import MemRefType, TensorType
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.utils.hints import isa

from ...dialect.mlir.affine import loops_of
from ...dialect.nest import Nest
from ...dialect.warp.matmul import MatmulOp

Elements = MemRefType[Attribute] | TensorType[Attribute]
"""What has elements of a type, and a shape."""

SIZES = ("m", "n", "k", "batch")
"""Loops of A and C alone, of B and C alone, of A and B alone, of all three."""

FACTS = (*SIZES, "types", "in", "name")
"""What can be asked of an operation."""


class FactError(ValueError):
    """A fact that cannot be asked for, or a value that is none of it."""


def holds(op: Operation, facts: Mapping[str, object]) -> bool:
    """Whether facts are true of an operation. A size that only a call says is in no range; neither is
    one of what is no product.

    Raises:
        FactError: for a fact that cannot be asked for.
    """
    if unknown := [name for name in facts if name not in FACTS]:
        raise FactError(f"unknown fact '{unknown[0]}'; known: {', '.join(FACTS)}")
    sizes = sizes_of(op)
    return all(_holds(op, sizes, name, value) for name, value in facts.items())


def _holds(op: Operation, sizes: Mapping[str, int], name: str, value: object) -> bool:
    match name:
        case "types":
            kinds = (operand.type for operand in op.operands)
            types = [str(kind.element_type) for kind in kinds if isa(kind, Elements)]
            wanted = list(map(str, cast("list[object]", value) if isinstance(value, list | tuple) else [value]))
            return types[: len(wanted)] == wanted
        case "in":
            return value in [*_functions(op)]
        case "name":
            return value in {each.name_hint for each in (*op.operands, *op.results)}
        case _:
            low, high = _range(name, str(value))
            return low <= sizes.get(name, -1) <= high


def _range(name: str, text: str) -> tuple[int, float]:
    """The least and the largest number that a range has: `64..256`, `64..`, `..256`, `64`."""
    match = re.fullmatch(r"(\d*)(\.\.)?(\d*)", text)
    if match is None or not text.strip(".") or (match[3] and not match[2]):
        raise FactError(f"{name}: expected a number or a range such as 64..256, got '{text}'")
    low = int(match[1] or 0)
    return low, low if not match[2] else int(match[3]) if match[3] else float("inf")


def _functions(op: Operation) -> Iterator[str]:
    """The functions and kernels that an operation is, or is in."""
    around: Operation | None = op
    while around is not None:
        if isinstance(around, func.FuncOp | gpu.FuncOp):
            yield around.sym_name.data
        around = around.parent_op()


def sizes_of(op: Operation) -> dict[str, int]:
    """The sizes of a product, by SIZES; -1 where only a call says one. Nothing of another operation."""
    if isinstance(op, MatmulOp):
        return _sizes(op.maps, [*op.matrices[:2], op.d])
    if not isinstance(op, LinalgStructuredOperation):
        return {}
    nest = Nest.of(op)
    if len(nest.reads) < 2 or len(nest.writes) != 1 or not nest.summed:
        return {}
    accesses = (*nest.reads[:2], *nest.writes)
    return _sizes([access.map for access in accesses], [access.value for access in accesses])


def _sizes(maps: Sequence[AffineMap], values: Sequence[SSAValue]) -> dict[str, int]:
    extent: dict[int, int] = {}
    for map_, value in zip(maps, values, strict=True):
        kind = value.type
        if isa(kind, Elements):
            extent.update(zip(loops_of(map_), kind.get_shape(), strict=False))
    a, b, c = (set(loops_of(map_)) for map_ in maps)
    loops = {"m": (a & c) - b, "n": (b & c) - a, "k": (a & b) - c, "batch": a & b & c}
    known = {name: [extent[loop] for loop in each] for name, each in loops.items()}
    return {name: -1 if min(each, default=1) < 0 else prod(each) for name, each in known.items()}
