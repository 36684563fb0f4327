"""`builtin` as MLIR prints it: xDSL's dialect, with resources that belong to the text that they stand in."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from xdsl.dialect_interfaces.op_asm import OpAsmDialectInterface
from xdsl.dialects.builtin import (
    AnyDenseElement,
    Builtin,
    BytesAttr,
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    ModuleOp,
    RankedStructure,
)
from xdsl.ir import Dialect
from xdsl.utils.hints import isa

PREFIX = len("0x") + 2 * 4
"""The digits before a blob's bytes: those of its alignment, a word of 32 bits (MLIR, AsmState.h, `AsmResourceBlob`)."""


class ResourceBlobs(OpAsmDialectInterface):
    """The blobs at the end of a text: `{-# dialect_resources: { builtin: { weights: "0x04000000..." } } #-}`.

    A key names one blob of a text. xDSL's own storage is shared by all texts of a process, and renames the second.
    """

    def declare_resource(self, key: str) -> str:
        self._blob_storage.setdefault(key, "")
        return key

    def take_all(self) -> dict[str, str]:
        """The blobs with contents, by key, none of which stay here."""
        blobs, self._blob_storage = self._blob_storage, {}
        return {key: blob for key, blob in blobs.items() if blob}

    def build_resources(self, keys: Iterable[str]) -> dict[str, str]:
        """None: attributes have their contents in themselves (`embed`)."""
        return {}


def embed(module: ModuleOp, blobs: dict[str, str]) -> None:
    """Gives the attributes of operations that name a blob its elements: `dense_resource<weights>` becomes `dense<...>`.

    Raises:
        ValueError: for a blob of another size than its type has.
    """
    for op in module.walk():
        for attributes in (op.properties, op.attributes):
            for name, value in attributes.items():
                if isinstance(value, DenseResourceAttr) and value.resource_handle.data in blobs:
                    attributes[name] = _elements(value, blobs[value.resource_handle.data])


def _elements(resource: DenseResourceAttr, blob: str) -> DenseIntOrFPElementsAttr:
    kind, name, data = resource.type, resource.resource_handle.data, bytes.fromhex(blob[PREFIX:])
    if not isa(kind, RankedStructure[AnyDenseElement]):
        raise ValueError(f"resource {name}: expected a shape of numbers, got {kind}")
    size = prod(kind.get_shape()) * kind.element_type.compile_time_size
    if len(data) != size:
        raise ValueError(f"resource {name}: expected {size} bytes of {kind}, got {len(data)}")
    return DenseIntOrFPElementsAttr(kind, BytesAttr(data))


def builtin() -> Dialect:
    """xDSL's `builtin` with resources of its own."""
    return Dialect(Builtin.name, list(Builtin.operations), list(Builtin.attributes), [ResourceBlobs()])
