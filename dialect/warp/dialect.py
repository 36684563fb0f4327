"""The dialect `warp`, as xDSL registers it."""

from importlib import import_module
from typing import TypeVar

from xdsl.ir import Attribute, Dialect, Operation

_ORDER = """matmul attention rows mma op_shapes operands views stored cta convert elements
memory fragments attributes synchronisation warpgroup tensor_memory tensor_maps"""
"""The modules that define the dialect, in the order of the reference."""

_MODULES = tuple(import_module(f".{name}", __package__) for name in _ORDER.split())

KindT = TypeVar("KindT", Operation, Attribute)


def _defined(kind: type[KindT]) -> list[type[KindT]]:
    """The operations, or attributes, that the modules define; the last of those with one name, which reads them all."""
    defined = {
        value.name: value
        for module in _MODULES
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, kind)
        and value.__module__ == module.__name__
        and "name" in vars(value)
    }
    return list(defined.values())


WARP = Dialect("warp", _defined(Operation), _defined(Attribute))
