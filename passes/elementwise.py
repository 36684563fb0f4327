"""Elementwise operations of `linalg`, read once for the passes that fuse or lower them, and regions on elements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import MemRefType
from xdsl.dialects.linalg.abstract_ops import ElementwiseOperation, LinalgStructuredOperation
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.dialects.linalg.ops import GenericOp, YieldOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.traits import is_side_effect_free

from ..dialect.warp.matmul import loops_of


@dataclass(frozen=True)
class Elementwise:
    """One result from one element of each input: a `linalg.generic` over parallel loops, or a named operation.

    `inputs` are what the region's arguments stand for, with their maps: the operands, the output last, and then the
    numbers from outside that the region uses. The output is indexed by the loops in order.
    """

    op: LinalgStructuredOperation
    inputs: tuple[SSAValue, ...]
    maps: tuple[AffineMap, ...]
    captured: tuple[SSAValue, ...]

    @property
    def output(self) -> SSAValue:
        """The memory that is written."""
        return self.op.outputs[0]

    @property
    def body(self) -> Block:
        return self.op.body.block

    @property
    def loops(self) -> int:
        """How many loops there are; the output has as many dimensions."""
        return self.maps[0].num_dims

    def reads(self, number: int) -> bool:
        """Whether the region uses an input."""
        return number >= len(self.body.args) or bool(self.body.args[number].uses)

    def append(self, block: Block, elements: Mapping[int, SSAValue]) -> SSAValue:
        """Appends the computation to a block that has these elements for the inputs used; returns the result."""
        known: dict[SSAValue, SSAValue] = {}
        for number, element in elements.items():
            inner = self.body.args[number] if number < len(self.body.args) else self.inputs[number]
            known[inner] = element
        for op in self.body.ops:
            if isinstance(op, YieldOp):
                return _known(op.operands[0], known, block)
            for operand in op.operands:
                _known(operand, known, block)
            block.add_op(op.clone(known))
        raise AssertionError("a verified region ends with linalg.yield")


def _known(value: SSAValue, known: dict[SSAValue, SSAValue], block: Block) -> SSAValue:
    """What stands for a value in the block; a constant from outside is made there again."""
    if value not in known:
        constant = value.owner
        if isinstance(constant, arith.ConstantOp):
            copy = constant.clone()
            block.add_op(copy)
            known[value] = copy.result
    return known[value]


def read_elementwise(op: Operation) -> Elementwise | None:
    """What an operation does to elements of memory; None if it does something else, or not to memory."""
    if not isinstance(op, GenericOp | ElementwiseOperation) or len(op.outputs) != 1 or op.results:
        return None
    if any(iterator != IteratorTypeAttr.parallel() for iterator in op.get_iterator_types()):
        return None
    maps = tuple(attribute.data for attribute in op.get_indexing_maps())
    if not isinstance(op.outputs[0].type, MemRefType) or loops_of(maps[-1]) != tuple(range(maps[-1].num_dims)):
        return None
    if not all(_is_projection(map_) for map_ in maps) or not _computes(op.body.block):
        return None
    captured = _captured(op.body.block)
    scalar = AffineMap(maps[-1].num_dims, 0, ())
    return Elementwise(op, (*op.inputs, *op.outputs, *captured), (*maps, *(scalar for _ in captured)), captured)


def _is_projection(map_: AffineMap) -> bool:
    """Whether each dimension of an operand runs along a loop of its own."""
    loops = loops_of(map_)
    return -1 not in loops and len(set(loops)) == len(loops)


def _computes(body: Block) -> bool:
    """Whether a body does nothing but arithmetic on its elements."""
    *ops, end = body.ops
    if not isinstance(end, YieldOp) or len(end.operands) != 1:
        return False
    return all(op.results and not op.regions and is_side_effect_free(op) and op.operands for op in ops if _counts(op))


def _counts(op: Operation) -> bool:
    return not isinstance(op, arith.ConstantOp)


def _captured(body: Block) -> tuple[SSAValue, ...]:
    """Values from outside that a body uses, constants apart."""
    found: dict[SSAValue, None] = {}
    for op in body.ops:
        for value in op.operands:
            inside = value.owner is body or (isinstance(value.owner, Operation) and value.owner.parent is body)
            if not inside and not isinstance(value.owner, arith.ConstantOp):
                found.setdefault(value)
    return tuple(found)
