"""Fusion of producers into loops over tiles: each turn computes the part of a producer's result that it reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.builder import Builder
from xdsl.dialects import memref, scf, tensor
from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType, TensorType
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from ...dialect.nest import Nest
from ..patterns import operations_between

Slice = tensor.ExtractSliceOp | memref.SubviewOp
"""What takes a part of a tensor, or of memory."""

Size = int | SSAValue


def fuse_into(producer: LinalgStructuredOperation, loop: scf.ForOp) -> list[Operation]:
    """Computes in each turn of a loop the parts of a producer's result that it reads, and erases the producer where
    nothing else reads the result. Returns what computes the parts.

    Raises:
        ValueError: saying why that cannot be done.
    """
    nest = Nest.of(producer)
    if len(nest.writes) != 1 or min(nest.writes[0].loops, default=-1) < 0:
        raise ValueError(f"{producer.name} has not one result, each of whose dimensions runs along a loop")
    on_memory = not producer.results
    whole = producer.outputs[0] if on_memory else producer.results[0]
    inside = [use.operation for use in whole.uses if loop.is_ancestor(use.operation)]
    slices = [op for op in loop.walk() if isinstance(op, Slice) and op.operands[0] is whole]
    if not slices or len(slices) < len(inside):
        raise ValueError("the loop reads no part of its result" if not inside else "the loop reads all of its result")
    if on_memory:
        _check_memory(producer, loop, whole, slices)
    made = [_part(producer, nest, op) for op in (slices[:1] if on_memory else slices)]
    if on_memory or not whole.uses:
        Rewriter.erase_op(producer)
    return made


def _check_memory(producer: Operation, loop: scf.ForOp, whole: SSAValue, slices: Sequence[Slice]) -> None:
    """Refuses memory of which parts cannot be written in turns in place of all of it.

    Raises:
        ValueError: saying why.
    """
    if not isinstance(whole.owner, memref.AllocOp):
        raise ValueError("its result lies in memory that others see; expected a memref.alloc")
    between = operations_between(producer, loop)
    for op in between or ():
        if any(whole in inner.operands for inner in op.walk()):
            raise ValueError(f"{op.name}, between it and the loop, uses its result")
    after = (
        u.operation for u in whole.uses if u.operation.parent is loop.parent and loop.is_before_in_block(u.operation)
    )
    if between is None or not all(isinstance(each, memref.DeallocOp) for each in after):
        raise ValueError("its result is used behind the loop, or the loop does not follow it")
    if any(each.parent_op() is not loop or _extents(each) != _extents(slices[0]) for each in slices):
        raise ValueError("the loop reads several parts of its result, or reads them in a loop in it")
    if loop.body.block.args[0] not in slices[0].offsets:
        raise ValueError("each turn of the loop reads the same part of its result")


def _part(producer: LinalgStructuredOperation, nest: Nest, of: Slice) -> Operation:
    """Computes the part of a producer's result that a slice takes, in front of what reads it."""
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
    if producer.results:
        builder.insert(part)
        of.result.replace_all_uses_with(part.results[0])
        Rewriter.erase_op(of)
    else:
        of.result.replace_all_uses_with(operands[-1])
        builder.insert(part)
        Rewriter.erase_op(of)
    return part


def _extents(of: Slice) -> tuple[list[Size], list[Size]]:
    """Where a part begins, and how large it is."""

    def mixed(static: Sequence[int], dynamic: Sequence[SSAValue]) -> list[Size]:
        values: Iterator[SSAValue] = iter(dynamic)
        return [next(values) if each == DYNAMIC_INDEX else each for each in static]

    return mixed(of.static_offsets.get_values(), of.offsets), mixed(of.static_sizes.get_values(), of.sizes)


def _sliced(
    builder: Builder, value: SSAValue, at: Sequence[tuple[Size, Size] | None], loops: Sequence[int]
) -> SSAValue:
    """The part of an operand that a part of the loops reads."""
    kind = value.type
    if not (isa(kind, TensorType[Attribute]) or isa(kind, MemRefType[Attribute])) or all(each is None for each in at):
        return value
    if min(loops) < 0:
        raise ValueError(f"an operand of type {kind} runs along sums of loops")
    whole = [(0, size) for size in kind.get_shape()]
    offsets, sizes = zip(*(own or all_ for own, all_ in zip(at, whole, strict=True)), strict=True)
    ones = [1] * len(offsets)
    if isinstance(kind, MemRefType):
        result = memref.SubviewOp.infer_result_type(kind, offsets, sizes, ones)
        return builder.insert(memref.SubviewOp.get(value, offsets, sizes, ones, result)).result
    result = tensor.ExtractSliceOp.infer_result_type(kind, sizes)
    return builder.insert(tensor.ExtractSliceOp(value, offsets, sizes, ones, result)).result
