"""A product with its schedule, and what follows from the two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from xdsl.ir import SSAValue

from ...dialect.isa import mma
from ...dialect.schedule import Schedule
from ...dialect.warp.attributes import FragmentType, float_type
from ..diagnostics import fail
from ..product import Operand, Product


@dataclass(frozen=True)
class Tiling:
    """One product to be cut up as its schedule says. `memory` holds the kernel's argument for each host memory."""

    product: Product
    schedule: Schedule
    memory: Mapping[SSAValue, SSAValue]

    @cached_property
    def row(self) -> mma.Mma:
        """The instruction. Raises a located diagnostic if there is none of the schedule's shape and types."""
        a, b, accumulate = self.product.a.element.name, self.product.b.element.name, self.schedule.accumulate
        row = mma.find(self.schedule.mma, a, b, accumulate, accumulate)
        if row is None:
            fail(self.product.op, f"the ISA has no mma {self.schedule.mma} for {a}")
        return row

    def argument(self, operand: Operand) -> SSAValue:
        """The kernel's argument behind an operand."""
        return self.memory[operand.value]

    def fragment(self, role: str) -> FragmentType:
        """The type of a warp's fragment "a", "b" or "acc" for one step of the instruction."""
        (m, n), k = self.schedule.warp, self.schedule.mma.k
        rows, columns = {"a": (m, k), "b": (k, n), "acc": (m, n)}[role]
        key = "c" if role == "acc" else role
        return FragmentType.of(role, rows, columns, float_type(self.row.element(key)), self.row.layout(key))
