"""A product with its schedule, and what follows from the two."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from xdsl.dialects.builtin import ArrayAttr, BoolAttr
from xdsl.ir import Operation, SSAValue, TypeAttribute

from ...dialect.isa.descriptor import UNIT
from ...dialect.isa.product import ProductForm as Row
from ...dialect.isa.wgmma import Wgmma
from ...dialect.schedule import Schedule, ScheduleError
from ...dialect.warp.attributes import BYTE, FragmentType, ScheduleAttr, target_of, type_of_element
from ...dialect.warp.memory import bounds_attribute
from ...dialect.warp.view import MatrixOp
from ..diagnostics import fail
from ..linalg.multiplied import Multiplied, along_k
from ..linalg.product import Product
from ..schedule.packing import roles
from ..schedule.resources import arrangement, rows_of, warpgroup_rows
from .arrangement import Arrangement, arrange_in_registers, arrange_warpgroup
from .raise_gelu import WINDOW, depends_on_neighbours

BOX_BITS = UNIT * BYTE
"""Bits of which the place of a box of a tensor copy is a multiple."""


@dataclass(frozen=True)
class Fragments:
    """The fragments of a product: what a warp has of its factors and of its sums, by the schedule."""

    product: Multiplied
    schedule: Schedule

    @cached_property
    def row(self) -> Row | Wgmma:
        """The instruction. Raises a located diagnostic if there is none of the schedule's shape and types."""
        accumulate = self.schedule.arithmetic.accumulate
        tile = self.schedule.tile
        every = rows_of(self.product) if tile.together == 1 else warpgroup_rows(self.product, exchanged=tile.exchanged)
        row = next((r for r in every if r.shape == self.schedule.tile.mma and r.d.name == accumulate), None)
        if row is None:
            fail(self.product.op, f"the ISA has no mma {self.schedule.tile.mma} for {self.product.a.element.name}")
        return row

    @cached_property
    def arrangement(self) -> Arrangement:
        """How operands lie in registers. Raises a located diagnostic if the warp tile is too small for it."""
        product, role = self.product, self.schedule.tile.in_registers
        try:
            if isinstance(self.row, Wgmma) and role != "none":
                operand = product.a if role == "a" else product.b
                held = operand.element if operand.stored is None else operand.stored.element
                return arrange_in_registers(self.row, role, held.memory_bits, along_k=along_k(product, role))
            if isinstance(self.row, Wgmma):
                return arrange_warpgroup(self.row)
            return arrangement(self.product, self.row, self.schedule.tile.warp)
        except ScheduleError as error:
            fail(self.product.op, f"schedule: {error}")

    @cached_property
    def step(self) -> int:
        """Elements along k that fragments hold: those of the instruction, or of a register of integers."""
        k = self.schedule.tile.mma.k
        return k if self.product.b.stored is None else max(k, self.arrangement.b.layout.rows)

    def fragment(self, role: str) -> FragmentType:
        """The type of a warp's fragment "a", "b" or "acc" for one step of the instruction."""
        (m, n), k, found = self.schedule.tile.warp, self.step, self.arrangement
        rows, columns = {"a": (m, k // self.product.sparsity), "b": (k, n), "acc": (m, n)}[role]
        layout = {"a": found.a.layout, "b": found.b.layout, "acc": found.accumulator}[role]
        bits = self.row.container_bits("c" if role == "acc" else role)
        return FragmentType.of(role, rows, columns, self.element_type(role), layout, bits)

    def element_type(self, role: str) -> TypeAttribute:
        """The element type of the product's operand "a", "b" or "acc", as the instruction has it."""
        exchanged = {"a": "b", "b": "a"} if self.schedule.tile.exchanged else {}
        return type_of_element(self.row.element("c" if role == "acc" else exchanged.get(role, role)))


@dataclass(frozen=True)
class Tiling(Fragments):
    """A product in memory, to be cut up as its schedule says."""

    product: Product

    def inside(self, axis: str) -> bool:
        """Whether no tile of D passes its end along an axis."""
        size, step = self._extents(axis)
        return size % step == 0 or self.last_start(axis) is not None

    @property
    def in_bounds(self) -> ArrayAttr[BoolAttr] | None:
        """Whether no tile of D passes its rows and its columns, as operations say it."""
        return bounds_attribute(*map(self.inside, "mn"))

    def last_start(self, axis: str) -> int | None:
        """Where the last tile along an axis starts if it is moved back to end where the matrix ends, else None.

        It then covers rows or columns that its neighbour computes too. Both store the same numbers there, and no
        access of either needs a bound. That takes a matrix of more than one tile, no D that is read as well, and, along
        the rows of A or B in memory, a start that is as aligned as the rows are; where tensor copies move boxes, also
        of D, one that is a multiple of 16 bytes. The metadata of a sparse A comes
        for whole tiles of rows. Columns whose words depend on their neighbours stay with the same. With
        `edges = predicated` no tile is moved.
        """
        if axis == "k" or not self.product.is_known(axis) or (axis == "m" and self.product.metadata is not None):
            return None
        product, (size, step) = self.product, self._extents(axis)
        operand = product.a if axis == "m" else product.b
        if self.schedule.grid.edges != "inside":
            return None
        along_rows = operand.transposed == (axis == "m")
        read = [
            _memory(o.value) for o in (product.a, product.b, product.c, *product.epilogue_operands) if o is not None
        ]
        packed = ("a" if axis == "m" else "b") in roles(self.schedule.operands.pack)
        if along_rows and (operand.shape[1] != size or packed):
            return None
        if size < step or size % step == 0 or _memory(product.d.value) in read:
            return None
        if axis == "n" and (size - step) % WINDOW and depends_on_neighbours(product, target_of(product.op)):
            return None
        boxed = [operand] if along_rows else []
        boxed += [product.d] if axis == "n" and self.schedule.epilogue.staging else []
        if self.schedule.tile.together > 1 and any((size - step) * o.element.memory_bits % BOX_BITS for o in boxed):
            return None
        return size - step

    def _extents(self, axis: str) -> tuple[int, int]:
        """The sizes of the product and of a CTA tile along an axis."""
        product = self.product
        sizes = {"m": product.m, "n": product.n, "k": product.k}
        return sizes[axis], dict(zip("mnk", self.schedule.tile.cta, strict=True))[axis]


def _memory(value: SSAValue) -> SSAValue:
    """The memory that a matrix is of."""
    return value.owner.memory if isinstance(value.owner, MatrixOp) else value


def schedule_of(op: Operation) -> Schedule:
    """The schedule that a product, or an attention, has. Raises a located diagnostic if it has none."""
    attribute = op.attributes.get(ScheduleAttr.name)
    if not isinstance(attribute, ScheduleAttr):
        fail(op, f"expected a schedule on {op.name}; run warp-schedule first")
    return attribute.data
