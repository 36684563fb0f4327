"""The dialect `warp`, as xDSL registers it."""

from typing import TypeVar

from xdsl.ir import Attribute, Dialect, Operation

from . import (
    attention,
    attention_gradient,
    attributes,
    cta,
    elements,
    epilogue,
    fragments,
    matmul,
    matrices,
    memory,
    mma,
    operands,
    rows,
    stored,
    synchronisation,
    tensor_maps,
    tensor_memory,
    tile_mma,
    views,
    warpgroup,
)

_MODULES = (
    matmul, attention, attention_gradient, rows, mma, operands, views, stored, cta, tile_mma, epilogue, elements,
    matrices, memory, fragments, attributes, synchronisation, warpgroup, tensor_memory, tensor_maps,
)  # fmt: skip
"""In the order of the reference."""

KindT = TypeVar("KindT", Operation, Attribute)


def _defined(kind: type[KindT]) -> list[type[KindT]]:
    """The operations, or attributes, that the modules define."""
    return [
        value
        for module in _MODULES
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, kind)
        and value.__module__ == module.__name__
        and "name" in vars(value)
    ]


WARP = Dialect("warp", _defined(Operation), _defined(Attribute))
