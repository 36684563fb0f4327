"""The CTAs in flight: registers of all their threads, memory, and which threads run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ...numerics.array import Array
from ..instructions.prints import Prints
from ..observers.events import Events
from .clock import Clock
from .clusters import ClusterBarrier
from .copies import CopyQueue
from .flow import Flow
from .mbarriers import MbarrierObjects
from .memory import MemorySpaces
from .operation_groups import OperationGroups
from .stacks import CallStack
from .threads import BoundStep, Geometry, Selection


class State:
    """Everything the steps of the CTAs in flight read and write.

    `addresses` are those of the module's variables. `observer` is who looks on, if anybody does.
    """

    flow: Flow
    copies: CopyQueue
    warpgroups: OperationGroups
    mbarriers: MbarrierObjects
    cluster_barrier: ClusterBarrier
    prints: Prints
    observer: Events | None = None

    def __init__(
        self, geometry: Geometry, slots: dict[int, int], memory: MemorySpaces, addresses: dict[str, int]
    ) -> None:
        self.geometry = geometry
        self.threads = geometry.threads
        self.warps = geometry.warps
        self.memory = memory
        self.addresses = addresses
        self.dynamic_bytes = 0
        self.shared_bytes = 0
        self.reserved = 0
        self.explicit_cluster = False
        self.all = Selection(None, self.threads)
        self.live = geometry.thread_in_cta() < geometry.threads_per_cta
        self.banks = {bits: np.zeros((n, self.threads), _BANKS[bits]) for bits, n in slots.items()}
        self.stacks: dict[str, CallStack] = {}
        self._specials: dict[str, Array] = {}
        self.clock = Clock(self.threads)

    def special(self, name: str, make: Callable[[State], Array]) -> Array:
        """The values of a special register, made once."""
        if name not in self._specials:
            self._specials[name] = make(self)
        return self._specials[name]


_BANKS = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64, 128: np.complex128}
"""Two words of 64 bits stand for one of 128: numpy has no such integers, and complex numbers are as wide."""

Source: TypeAlias = Callable[[State], Array]
"""An operand: given a state, one value for each of its threads. Registers are views of the state's own."""

Action: TypeAlias = Callable[[State], BoundStep]
"""A decoded instruction: given a state, its step."""
