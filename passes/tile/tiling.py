"""A product with its schedule, and what follows from the two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from xdsl.ir import SSAValue

from ...dialect.isa.product import Product as Row
from ...dialect.schedule import Schedule
from ...dialect.warp.attributes import FragmentType, float_type
from ..diagnostics import fail
from ..product import Operand, Product
from ..schedule import rows_of


@dataclass(frozen=True)
class Tiling:
    """One product to be cut up as its schedule says. `memory` holds the kernel's argument for each host memory."""

    product: Product
    schedule: Schedule
    memory: Mapping[SSAValue, SSAValue]

    @cached_property
    def row(self) -> Row:
        """The instruction. Raises a located diagnostic if there is none of the schedule's shape and types."""
        accumulate = self.schedule.accumulate
        rows = (r for r in rows_of(self.product) if r.shape == self.schedule.mma and r.d.name == accumulate)
        row = next(rows, None)
        if row is None:
            fail(self.product.op, f"the ISA has no mma {self.schedule.mma} for {self.product.a.element.name}")
        return row

    def argument(self, operand: Operand) -> SSAValue:
        """The kernel's argument behind an operand."""
        return self.memory[operand.value]

    def fragment(self, role: str) -> FragmentType:
        """The type of a warp's fragment "a", "b" or "acc" for one step of the instruction."""
        (m, n), k = self.schedule.warp, self.schedule.mma.k
        rows, columns = {"a": (m, k // self.product.sparsity), "b": (k, n), "acc": (m, n)}[role]
        key = "c" if role == "acc" else role
        return FragmentType.of(role, rows, columns, float_type(self.row.element(key)), self.row.layout(key))
