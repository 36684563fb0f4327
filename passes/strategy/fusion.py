"""Fusion of producers into loops over tiles: each turn computes the part of a producer's result that it reads."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects import memref, scf, tensor
from xdsl.dialects.builtin import MemRefType, TensorType
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from ...dialect.mlir.affine import Nest
from ..patterns import mixed, operations_between

Slice = tensor.ExtractSliceOp | memref.SubviewOp
"""What takes a part of a tensor, or of memory."""

Size = int | SSAValue


def fuse_into(producer: LinalgStructuredOperation, loop: scf.ForOp) -> list[Operation]:
    """Computes, in each iteration of a loop, the parts of a producer's result that the iteration reads. Erases the
    producer if it has no other use. Returns the operations that compute the parts. Raises ValueError with the reason
    why that is not possible."""
    nest = Nest.of(producer)
    if len(nest.writes) != 1 or min(nest.writes[0].loops, default=-1) < 0:
        raise ValueError(f"{producer.name} has not one result, each of whose dimensions runs along a loop")
    on_memory = not producer.results
    produced = producer.outputs[0] if on_memory else producer.results[0]
    inside = [use.operation for use in produced.uses if loop.is_ancestor(use.operation)]
    slices = [op for op in loop.walk() if isinstance(op, Slice) and op.operands[0] is produced]
    if not slices or len(slices) < len(inside):
        raise ValueError("the loop reads no part of its result" if not inside else "the loop reads all of its result")
    if on_memory:
        _check_memory(producer, loop, produced, slices)
    made = [_part(producer, nest, op) for op in (slices[:1] if on_memory else slices)]
    if on_memory or not produced.uses:
        Rewriter.erase_op(producer)
    return made


def _check_memory(producer: Operation, loop: scf.ForOp, produced: SSAValue, slices: Sequence[Slice]) -> None:
    """Refuses memory of which parts cannot be written in turns in place of all of it. Raises ValueError saying why."""
    if not isinstance(produced.owner, memref.AllocOp):
        raise ValueError("its result lies in memory that others see; expected a memref.alloc")
    between = operations_between(producer, loop)
    for op in between or ():
        if any(produced in inner.operands for inner in op.walk()):
            raise ValueError(f"{op.name}, between it and the loop, uses its result")
    after = (
        u.operation for u in produced.uses if u.operation.parent is loop.parent and loop.is_before_in_block(u.operation)
    )
    if between is None or not all(isinstance(each, memref.DeallocOp) for each in after):
        raise ValueError("its result is used behind the loop, or the loop does not follow it")
    if any(each.parent_op() is not loop or _extents(each) != _extents(slices[0]) for each in slices):
        raise ValueError("the loop reads several parts of its result, or reads them in a loop in it")
    if loop.body.block.args[0] not in slices[0].offsets:
        raise ValueError("each turn of the loop reads the same part of its result")


def _part(producer: LinalgStructuredOperation, nest: Nest, of: Slice) -> Operation:
    """Computes the part of a producer's result that a slice reads, before its reader."""
    if any(stride != 1 for stride in of.static_strides.get_values()):
        raise ValueError("the loop reads a part with strides")
    at: dict[int, tuple[Size, Size]] = {}
    for loop, offset, size in zip(nest.writes[0].loops, *_extents(of), strict=True):
        at[loop] = offset, size
    builder = Builder(InsertPoint.before(of))
    operands = [
        _sliced(builder, access.value, [at.get(loop) for loop in access.loops], access.loops)
        for access in nest.accesses
    ]
    kinds = [operands[-1].type] if producer.results else []
    part = type(producer).create(
        operands=operands,
        result_types=kinds,
        properties=producer.properties,
        attributes=producer.attributes,
        regions=[region.clone() for region in producer.regions],
    )
    part.location = producer.location
    builder.insert(part)
    of.result.replace_all_uses_with(part.results[0] if producer.results else operands[-1])
    Rewriter.erase_op(of)
    return part


def _extents(of: Slice) -> tuple[list[Size], list[Size]]:
    """Where a part begins, and how large it is."""
    return mixed(of.static_offsets, of.offsets), mixed(of.static_sizes, of.sizes)


def _sliced(
    builder: Builder, value: SSAValue, at: Sequence[tuple[Size, Size] | None], loops: Sequence[int]
) -> SSAValue:
    """The part of an operand that a part of the loops reads."""
    kind = value.type
    if not (isa(kind, TensorType[Attribute]) or isa(kind, MemRefType[Attribute])) or all(each is None for each in at):
        return value
    if min(loops) < 0:
        raise ValueError(f"an operand of type {kind} runs along sums of loops")
    extents = [(0, size) for size in kind.get_shape()]
    offsets, sizes = zip(*(own or all_ for own, all_ in zip(at, extents, strict=True)), strict=True)
    ones = [1] * len(offsets)
    if isinstance(kind, MemRefType):
        result = memref.SubviewOp.infer_result_type(kind, offsets, sizes, ones)
        return builder.insert(memref.SubviewOp.get(value, offsets, sizes, ones, result)).result
    result = tensor.ExtractSliceOp.infer_result_type(kind, sizes)
    return builder.insert(tensor.ExtractSliceOp(value, offsets, sizes, ones, result)).result
