"""Fusion of producers into loops over tiles: each turn computes the part of a producer's result that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from xdsl.builder import Builder
from xdsl.dialects import memref, scf, tensor
from xdsl.dialects.builtin import IndexType, MemRefType, TensorType
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from ...dialect.mlir.affine import Nest
from ...dialect.mlir.gpu import BarrierOp
from ...dialect.schedule.fields import text_of
from ...dialect.warp.attributes import ScheduleAttr
from ...dialect.warp.matmul import MatmulOp
from ..diagnostics import fail
from ..linalg.operand import each_once, root
from ..linalg.product import read
from ..patterns import all_operands, mixed, operations_between
from ..tile.outline import TiledProduct, cta_number, moved_inside
from ..tile.tiling import Inside, Outliner, Tiling, kernel_body, schedule_of

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


# One kernel of several products, each of which reads rows of what the one before made.
#
# A CTA computes the same rows of all of them: all CTA tiles of the first product in these rows, one after another, then
# those of the next one. What a product makes lies in global memory, and the CTA that reads it has written it.


SHARED_FIELDS = ("stages", "sync", "prefetch", "unroll")
"""Fields that a kernel has one value of."""

PLAIN_FIELDS = {"split_k": 1, "ctas": 0, "pack": "none", "cluster": (1, 1)}
"""Fields that would make other launches, or other CTAs, of a product."""


def outline_together(ops: Sequence[MatmulOp]) -> None:
    """Puts one kernel and its launch in the place of products with a schedule, in the order of the operations. Raises a
    located diagnostic for products that cannot share a kernel."""
    products = [TiledProduct(read(op), schedule_of(op)) for op in ops]
    for one in products:
        _check(one)
    for before, after in pairwise(products):
        _check_pair(before, after)
    last = products[-1]
    outliner, schedule = Outliner(last.op), last.schedule
    operands = each_once([operand for one in products for operand in one.memories])
    index, body, arguments = kernel_body(operands)
    number = cta_number(index)
    for one in products:
        tiling = Tiling(one.product, one.schedule)
        row = moved_inside(index, tiling, "m", index.mul(number, schedule.cta[0]))
        turn = Block(arg_types=[IndexType()])
        begin, end, step = index.values([0, one.product.n, one.schedule.cta[1]])
        inside = index.at(Builder(InsertPoint.at_end(turn)))
        column = moved_inside(inside, tiling, "n", turn.args[0])
        seen = Inside.of(inside, one.op.epilogue, one.product.operands, arguments, (), 0)
        inside.insert(one.at(inside, seen, (row, column)))
        inside.insert(BarrierOp())
        inside.insert(scf.YieldOp())
        index.insert(scf.ForOp(begin, end, step, [], turn))
    ctas = outliner.index.ceildiv(last.product.m, schedule.cta[0])
    kernel = outliner.launch("", operands, body, ctas, schedule.threads)
    kernel.attributes[ScheduleAttr.name] = ScheduleAttr(schedule)
    outliner.finish()
    for one in products[:-1]:
        Outliner(one.op).finish()


def _check(one: TiledProduct) -> None:
    """Refuses a product that a CTA cannot compute rows of."""
    product, schedule, op = one.product, one.schedule, one.op
    if schedule.together > 1:
        fail(op, f"products that share a kernel are multiplied by mma.sync, got mma = {schedule.mma}")
    if product.dynamic or product.batch or product.summed or product.ends is not None:
        fail(op, "expected a product of static sizes, and of one matrix, to share a kernel with others")
    if product.m % schedule.cta[0] and schedule.edges == "inside":
        rows = f"{product.m} rows are no multiple of {schedule.cta[0]}"
        fail(op, f"{rows}, and two CTAs would compute the same ones; edges = predicated leaves tiles where they are")
    for name, plain in PLAIN_FIELDS.items():
        if schedule[name] != plain:
            fail(op, f"expected {name} = {text_of(plain)} of products that share a kernel, got {schedule[name]}")


def _check_pair(before: TiledProduct, after: TiledProduct) -> None:
    """Checks that the second product reads exactly the rows of the first one's result, as its A."""
    a, b, op = before.product, after.product, after.op
    if (rows := after.schedule.cta[0]) != before.schedule.cta[0] or after.schedule.threads != before.schedule.threads:
        one, other = before.schedule, after.schedule
        fail(op, f"expected CTAs of as many rows and threads as those of the product before, {one.cta[0]} and "
             f"{one.threads}, got {rows} and {other.threads}")  # fmt: skip
    for name in SHARED_FIELDS:
        if before.schedule[name] != after.schedule[name]:
            fail(op, f"expected {name} = {before.schedule[name]}, as the product before, got {after.schedule[name]}")
    made = a.d.value
    if b.a.value is not made or b.a.transposed or a.d.transposed or a.m != b.m or a.n != b.k:
        fail(op, "expected A to be what the product before it in the kernel made, row by row")
    if any(operand.value is made for operand in b.operands if operand is not b.a):
        fail(op, "expected a product to read what the one before it in the kernel made as A alone")
    memories = {root(operand.value) for operand in before.memories}
    between = operations_between(before.op, after.op)
    if between is None:
        fail(op, "expected the products of a kernel in the order in which they stand in their block")
    for each in between:
        if any(root(value) in memories for value in all_operands(each)):
            fail(each, f"{each.name} is between products that share a kernel, and uses their memory")
