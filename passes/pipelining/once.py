"""Tiles that stay for the whole loop over K, such as Q of an attention, in a ring of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from xdsl.ir import SSAValue

from ...dialect.warp.barriers import AwaitOp
from ...dialect.warp.tensor_copies import ExpectOp
from ..tile.index_builder import Index, IndexBuilder
from .ring import Ring
from .tensor_copies import TensorCopy


class Once(NamedTuple):
    """Copies of tiles that stay for the whole loop over K, with a ring of their own."""

    copies: list[TensorCopy]
    ring: Ring

    @property
    def tiles(self) -> list[SSAValue]:
        return [copy.copy.destination for copy in self.copies]

    @property
    def bytes(self) -> int:
        """Bytes of all of them."""
        return sum(copy.bytes for copy in self.copies)

    def start(self, index: IndexBuilder, moved: Callable[[SSAValue], SSAValue], stage: Index, parity: Index) -> None:
        """Starts them, before those of the other ring, when the tiles that were in the stage have been read."""
        at, parity = index.value(stage), index.value(parity)
        index.insert(AwaitOp(self.ring.empty, at, parity))
        index.insert(ExpectOp(self.ring.full, at, self.bytes))
        for copy in self.copies:
            copy.start(index, [moved(i) for i in copy.copy.indices], moved, stage, self.ring.full)
