"""A structured operation of `linalg` as a nest: loops, affine reads and writes, and a body of scalar operations."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from xdsl.dialects import arith
from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.dialects.linalg.ops import GenericOp, IndexOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap

from .mlir.affine import loops_of
from .warp.elements import shape_of


class NestAccess(NamedTuple):
    """An operand, how the loops index it, and the argument of the body that is its element."""

    value: SSAValue
    map: AffineMap
    element: SSAValue

    @property
    def loops(self) -> tuple[int, ...]:
        """The loops that its dimensions run along; `FIXED` for anything but a loop alone."""
        return loops_of(self.map)


class Combination(NamedTuple):
    """The operation of a body that combines a value with the previous value of its output, and that value."""

    by: Operation
    value: SSAValue


class Nest(NamedTuple):
    """A loop nest: the elements that it reads and writes for each index of its loops, and the body that computes the
    written elements from the read ones. Outputs are read too. `summed` are the numbers of the reduction loops."""

    loops: int
    summed: tuple[int, ...]
    reads: tuple[NestAccess, ...]
    writes: tuple[NestAccess, ...]
    body: Block

    @staticmethod
    def of(op: LinalgStructuredOperation) -> Nest:
        """The nest of an operation."""
        maps, body = [attribute.data for attribute in op.get_indexing_maps()], op.body.block
        accesses = tuple(map(NestAccess, op.operands, maps, body.args))
        kinds = [kind.data for kind in op.get_iterator_types()]
        summed = tuple(loop for loop, kind in enumerate(kinds) if kind != IteratorType.PARALLEL)
        first = len(op.inputs)
        return Nest(len(kinds), summed, accesses[:first], accesses[first:], body)

    @property
    def accesses(self) -> tuple[NestAccess, ...]:
        """The reads, then the writes."""
        return (*self.reads, *self.writes)

    @property
    def used(self) -> list[NestAccess]:
        """The accesses whose elements the body uses."""
        return [access for access in self.accesses if access.element.uses and self.is_inside(access.element)]

    @property
    def maps(self) -> list[AffineMap]:
        """The maps of all accesses."""
        return [access.map for access in self.accesses]

    @property
    def yielded(self) -> tuple[SSAValue, ...]:
        """The values that the body yields, one for each output."""
        end = self.body.last_op
        return () if end is None else tuple(end.operands)

    @property
    def is_elementwise(self) -> bool:
        """Whether each output element is computed once: no loop is reduced, and every loop indexes every output."""
        return not self.summed and all(sorted(access.loops) == list(range(self.loops)) for access in self.writes)

    @property
    def combination(self) -> Combination | None:
        """How the body combines a new value with the previous value of the only output. None if it does not, or if it
        uses the previous value more than once."""
        if len(self.writes) != 1 or len(self.yielded) != 1 or not isinstance(op := self.yielded[0].owner, Operation):
            return None
        old = self.writes[0].element
        others = [value for value in op.operands if value is not old]
        once = len(others) == 1 and len(op.operands) == 2 and old.uses.get_length() == 1
        return Combination(op, others[0]) if once else None

    @property
    def indices(self) -> dict[SSAValue, int]:
        """The indices that the body uses, with their loops."""
        return {op.result: op.dim.value.data for op in self.body.ops if isinstance(op, IndexOp) and op.result.uses}

    @property
    def captured(self) -> tuple[SSAValue, ...]:
        """The values outside of the nest that the body uses, without constants."""
        used = dict.fromkeys(value for op in self.body.ops for value in op.operands)
        return tuple(value for value in used if not self.is_inside(value) and not is_constant(value))

    def is_inside(self, value: SSAValue) -> bool:
        """Whether a value is made in the body."""
        owner = value.owner
        return (owner if isinstance(value, BlockArgument) else getattr(owner, "parent", None)) is self.body

    def along(self, loop: int) -> tuple[NestAccess, int, int] | None:
        """An access that has a dimension along this loop alone, the number of that dimension, and its size; None if
        there is no such access. Accesses of known size come first."""
        accesses = [
            (access, access.loops.index(loop), shape_of(access.value)[access.loops.index(loop)])
            for access in self.accesses
            if loop in access.loops
        ]
        return next((each for each in accesses if each[2] >= 0), accesses[0] if accesses else None)


def is_constant(value: SSAValue) -> bool:
    """Whether a value is a constant."""
    return isinstance(value.owner, arith.ConstantOp)


def generic(
    op: Operation,
    inputs: Sequence[SSAValue],
    outputs: Sequence[SSAValue],
    body: Region,
    maps: Sequence[AffineMap],
    summed: Collection[int] = (),
    results: Sequence[Attribute] = (),
) -> GenericOp:
    """A `linalg.generic` with the location of `op`. `summed` are the reduction loops."""
    kinds = IteratorTypeAttr.parallel(), IteratorTypeAttr.reduction()
    iterators = ArrayAttr([kinds[loop in summed] for loop in range(maps[-1].num_dims)])
    made = GenericOp(inputs, outputs, body, ArrayAttr(map(AffineMapAttr, maps)), iterators, results)
    made.location = op.location
    return made
