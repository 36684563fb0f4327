"""`warp-lay-out`, `warp-pack` and `warp-fp8-as-f16`: operands in the layout and type that a schedule asks for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import ClassVar, NamedTuple

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import gpu, memref
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AffineMapAttr,
    ArrayAttr,
    DenseArrayBase,
    Float16Type,
    MemRefType,
    ModuleOp,
    StringAttr,
    i64,
)
from xdsl.dialects.linalg.ops import CopyOp as LinalgCopyOp
from xdsl.dialects.linalg.ops import TransposeOp
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.isa.form import FP8, Shape
from ...dialect.layouts.layout import Bit, Layout
from ...dialect.mlir.affine import loops_of, map_along
from ...dialect.mlir.gpu import BlockIdOp
from ...dialect.schedule import Schedule, roles
from ...dialect.warp.attention import AttentionOp, E, N
from ...dialect.warp.attributes import (
    BYTE,
    Memory,
    ScheduleAttr,
    element_row,
    fragment_of,
    memory_of,
    schedule_around,
    schedule_on,
)
from ...dialect.warp.convert import ConvertLayoutOp, ConvertOp
from ...dialect.warp.matmul import MatmulOp, drop_forms
from ...dialect.warp.memory import DENSE, CopyOp, PackOp
from ...dialect.warp.mma import MmaOp
from ...dialect.warp.op_shapes import TilePart, bounds_attribute, element_of, of_form
from ...dialect.warp.views import BlocksAttr, MatrixOp
from ..diagnostics import fail, remark
from ..linalg.operand import VectorOperand
from ..linalg.read_attention import KEYS_OF_BYTES, Attention
from ..patterns import Index, IndexBuilder, PatternPass, apply_patterns, rewrite_pattern
from ..schedule.defaults import padded_type, transposed_type
from ..schedule.warpgroup import PLAIN
from .tiling import LaunchedKernel, LaunchPattern, kernel_body, memory_behind
from .traversal import COLUMNS

# `warp-fp8-as-f16`: products of 8-bit floats as products of f16, on operands that are converted in registers.
#
# A register of four neighbours along k becomes two of two. The order of the terms of a sum being free, as long as A
# and B agree, the first two of each four belong to one f16 product and the others to the next: no element moves.


def halves(layout: Layout, k_axis: str) -> Layout:
    """The f16 layout with the elements of a layout of 8-bit elements. The second bit of k selects one of two
    products."""
    which = Bit(k_axis, 1)
    return Layout(layout.lane, (*(bit for bit in layout.element if bit != which), which))


@rewrite_pattern
def fp8_product_as_f16(op: MmaOp, rewriter: PatternRewriter) -> None:
    """`warp.mma` of 8-bit floats: the operands as f16, and a product of an instruction of half the depth."""
    operands, schedule = ((op.a, "c"), (op.b, "r")), schedule_around(op)
    if schedule is None or schedule.fp8_as == "none":
        return
    if op.scales or op.e is not None or any(fragment_of(value).element.name not in FP8 for value, _ in operands):
        return
    a, b = (_widened(rewriter, value, axis) for value, axis in operands)
    m, n, k = Shape.parse(op.shape.data)
    rewriter.replace(op, MmaOp(Shape(m, n, k // 2), a, b, op.c))


def _widened(rewriter: PatternRewriter, value: SSAValue, k_axis: str) -> SSAValue:
    wide = ConvertOp(value, Float16Type())
    ordered = ConvertLayoutOp.to(wide.fragment, halves(fragment_of(value).layout.data, k_axis))
    rewriter.insert([wide, ordered])
    return ordered.fragment


class Fp8AsF16Pass(PatternPass):
    """Multiplies 8-bit floats as f16 in kernels whose schedule says `fp8_as = f16`. On targets such as sm_90a, ptxas
    also converts the operands of these instructions to f16, but adds each product to the accumulators by separate
    instructions. With this pass, the f16 instructions accumulate. Without it, the kernel uses the PTX instructions for
    8-bit floats."""

    name = "warp-fp8-as-f16"
    needs: ClassVar = ("schedule.fp8_as",)
    patterns = (fp8_product_as_f16,)


# `warp-pack`: operands copied to whole tiles of aligned rows before the product, the `pack` of a schedule.
#
# Rows that are no multiple of 16 bytes apart cannot be copied to shared memory 16 bytes at a time, and every edge of a
# matrix that is no multiple of the tile costs predicates in the K loop. A product that reads each element many times
# gains by copying the operand once, in a kernel of its own, to scratch memory where both are well.

THREADS = 256

CHUNKS = 4
"""Chunks of 16 bytes that a thread copies: enough loads in flight, and enough CTAs to share the work evenly."""


def _copies(launch: LaunchedKernel) -> dict[str, CopyOp]:
    """The copies of A and B to shared memory, which `warp-stage` puts first."""
    loop = launch.loop()
    copies = (op for op in (() if loop is None else loop.body.block.ops) if isinstance(op, CopyOp))
    return dict(zip("ab", copies, strict=False))


def _packed(launch: LaunchedKernel, copy: CopyOp, value: SSAValue) -> tuple[SSAValue, Index]:
    """Memory for all whole tiles, or blocks of them, that cover the source of a copy, for all its matrices, and how
    many rows it has. `value` is the source of the launch."""
    source, tile, host = memory_of(copy.source), memory_of(copy.destination).get_shape(), launch.host
    if copy.blocks is None:
        shape = [-(-size // step) * step for size, step in zip(source.get_shape(), tile, strict=True)]
        return host.scratch(MemRefType(source.element_type, shape)), shape[0]
    tiles = host.index.ceildiv(host.index.dim(value, memory_of(value).get_num_dims() - 2), copy.blocks.rows)
    # A CTA that makes the last cluster whole reads a tile behind the last one.
    more = prod(launch.schedule.cluster) - 1
    tiles = host.index.add(host.index.mul(tiles, prod(_others(copy))), more)
    lines = host.index.mul(tiles, copy.blocks.tile_lines)
    is_known = isinstance(lines, int)
    kind = MemRefType(source.element_type, [lines if is_known else DYNAMIC_INDEX, tile[-1]])
    return host.scratch(kind, [] if is_known else [lines]), lines


def _others(copy: CopyOp) -> tuple[int, ...]:
    """The outer dimensions of memory, without those of the matrix that is copied."""
    return memory_of(memory_behind(copy.source)).get_shape()[:-2]


def _copy_blocks(copy: CopyOp, blocks: BlocksAttr, packed: SSAValue) -> None:
    """Copies the blocks of a tile from packed memory, one row of blocks at a time."""
    index, (order, parts) = IndexBuilder(copy), (blocks.layout, blocks.of_tile)
    row, column = map(index.folded, copy.indices)
    tile: Index = index.div(row, blocks.rows)
    if isinstance(view := copy.source.owner, MatrixOp):
        number: Index = 0
        for size, at in zip(_others(copy), view.indices, strict=True):
            number = index.add(index.mul(number, size), at)
        tile = index.add(index.mul(number, -(-memory_of(copy.source).get_shape()[0] // blocks.rows)), tile)
    down = index.mul(tile, parts)
    for part in range(parts):
        block = index.add(index.mul(index.add(down, part), blocks.along), index.div(column, order.columns))
        where = index.values([index.mul(block, order.threads), 0])
        part_of = TilePart(part, parts).property
        index.insert(copy.like(source=packed, indices=where, part=part_of, blocks=None))
    Rewriter.erase_op(copy)
    if isinstance(view, MatrixOp) and not view.matrix.uses:
        Rewriter.erase_op(view)


class _Packed(NamedTuple):
    """An operand and the memory that a launch packs it to: its blocks, or the format of its elements."""

    source: VectorOperand
    destination: VectorOperand
    rows: Index
    blocks: BlocksAttr | None
    format: StringAttr | None


def _pack(launch: LaunchedKernel, sources: dict[CopyOp, BlockArgument]) -> None:
    """Lets a kernel copy what a kernel before it has packed."""
    packed: list[_Packed] = []
    for copy, source in sources.items():
        name, value = source.name_hint or "", launch.operands[source.index]
        dense = copy.packed if copy.packed is not None and copy.packed.data == DENSE else None
        scratch, rows = _packed(launch, copy, value)
        if memory_of(source).element_count():
            to = VectorOperand(f"{name}_packed", scratch)
            packed.append(_Packed(VectorOperand(name, value), to, rows, copy.blocks, dense))
        if copy.blocks is not None:
            _copy_blocks(copy, copy.blocks, launch.insert(source.index, scratch, f"{name}_packed"))
            launch.drop_unused(source)
        else:
            launch.replace(source, [copy], scratch, f"{name}_packed")
            copy.in_bounds = bounds_attribute(True, True)
            copy.packed = None if dense is not None else copy.packed
    if packed:
        kernel = _launch(launch, packed)
        kernel.detach()
        launch.host.kernels.body.block.insert_op_before(kernel, launch.kernel)
    launch.finish()


def _launch(launch: LaunchedKernel, packed: Sequence[_Packed]) -> gpu.FuncOp:
    """One kernel packs all operands, some in blocks: every CTA does a share of each, or a line of each of its threads
    where sizes are not known."""
    written = [each.destination.value for each in packed]
    bits = sum(memory_of(value).element_count() * element_of(value).memory_bits for value in written)
    shares = -(-bits // (BYTE * 16 * THREADS * CHUNKS))
    ctas, host = shares, launch.host.index
    if any(not isinstance(each.rows, int) for each in packed):
        shares, ctas = None, reduce(host.add, (host.ceildiv(each.rows, THREADS) for each in packed), 0)
    operands = [operand for each in packed for operand in each[:2]]
    index, body, _ = kernel_body(operands)
    share = index.number(BlockIdOp)
    for source, destination, each in zip(body.args[::2], body.args[1::2], packed, strict=True):
        index.insert(PackOp(source, destination, share, shares, each.blocks, each.format))
    return launch.host.launch("pack", operands, body, ctas, THREADS)


class PackOperands(LaunchPattern):
    """Packs the operands that the schedule names, if the kernel's copies can read them packed."""

    def rewrite(self, launch: LaunchedKernel) -> None:
        wanted = roles(launch.schedule.pack)
        copy_of = _copies(launch) if wanted else {}
        copies = [copy_of[role] for role in wanted if role in copy_of]
        sources = {copy: copy.source for copy in copies if isinstance(copy.source, BlockArgument)}
        if len(sources) < len(wanted) or any(min(memory_of(s).get_shape()) < 0 for s in sources.values()):
            reason = "packing takes tiles that are copied from single matrices of known size"
            remark(launch.kernel, PackPass.name, f"operands stay as they lie: {reason}")
            sources = {}
        for op in launch.kernel.walk():
            if isinstance(op, CopyOp) and op.blocks is not None:
                memory, view = memory_behind(op.source), op.source.owner
                last = memory_of(memory).get_num_dims() - 2, memory_of(memory).get_num_dims() - 1
                if not isinstance(memory, BlockArgument) or (isinstance(view, MatrixOp) and view.dimensions != last):
                    fail(op, f"blocks are packed of matrices behind each other, of known size, got {op.source.type}")
                sources[op] = memory
        if sources:
            _pack(launch, sources)


class PackPass(PatternPass):
    """Copies the operands that a schedule's `pack` names to whole tiles of aligned rows, in a separate launch, and the
    scales of a product in tensor memory to blocks of its lanes. It runs after `warp-tile`. Without it, the kernel
    copies the operands from their own memory."""

    name = "warp-pack"
    needs: ClassVar = ("schedule.pack", "copy.blocks")
    patterns = (PackOperands,)


# `warp-lay-out`: operands that lie as a schedule asks, by operations of `linalg` around the product.
#
# A and B that do not lie along K are transposed first, the `transpose` of a schedule::
#
#     %Bt = memref.alloc;  linalg.transpose ins(%B) outs(%Bt);  warp.matmul %A, %Bt ... maps [(n, k)]
#
# A D whose rows are no multiples of 16 bytes is made in rows that are, and copied, `padded`::
#
#     %S = memref.alloc;  %part = memref.subview %S;  warp.matmul ... into %part;  linalg.copy ins(%part) outs(%D)


def _schedule(op: MatmulOp | AttentionOp) -> Schedule | None:
    return None if op.tile else schedule_on(op)


def _aligned(rewriter: PatternRewriter, op: Operation, types: tuple[Memory, Memory], name: str) -> SSAValue:
    """Scratch memory with aligned rows, freed after the operation and its present followers; the view of matrices
    in it."""
    padded, part = types
    rank = part.get_num_dims()
    memory = rewriter.insert(memref.AllocOp([], [], padded)).memref
    Builder(InsertPoint.after(op)).insert(memref.DeallocOp.get(memory))
    view = rewriter.insert(memref.SubviewOp.get(memory, [0] * rank, part.get_shape(), [1] * rank, part)).result
    view.name_hint = name
    return view


def _bits(memory: Memory) -> int:
    element = element_row(memory.element_type)
    return BYTE if element is None else element.memory_bits


@rewrite_pattern
def transpose_operands(op: MatmulOp, rewriter: PatternRewriter) -> None:
    """A and B are transposed before."""
    schedule = _schedule(op)
    for role in roles(schedule.transpose) if schedule is not None else "":
        at = "ab".index(role)
        value, form, maps = op.matrices[at], op.forms[at], list(op.maps)
        kind = memory_of(value)
        name = f"{value.name_hint or role.upper()}_transposed"
        transposed = _aligned(rewriter, op, transposed_type(kind, _bits(kind)), name)
        rewriter.insert(TransposeOp(value, transposed, DenseArrayBase.from_list(i64, [1, 0])))
        side_operands = () if form is None else form.side_operands
        op.operands[at] = of_form(form, transposed, side_operands, rewriter.insert)
        maps[at] = AffineMap(maps[at].num_dims, 0, maps[at].results[::-1])
        op.indexing_maps = ArrayAttr([AffineMapAttr(each) for each in maps])
        drop_forms([] if form is None else [form.operand])


@rewrite_pattern
def transpose_values(op: AttentionOp, rewriter: PatternRewriter) -> None:
    """V of an attention of bytes is transposed before: `wgmma` takes bytes along k alone, here keys. Where rows are
    whole units of 16 bytes, keys come in the order in which lanes have them; `transpose` of the schedule stays then."""
    schedule = _schedule(op)
    if schedule is None or schedule.transpose == PLAIN or Attention.of(op).values.b.transposed:
        return
    from .row_shares import is_turned  # with what no other operands need

    kind, loops = memory_of(op.v), loops_of(op.maps[2])
    key, column = (loops.index(op.batch + loop) for loop in (N, E))
    order = [d for d in range(len(loops)) if d not in (key, column)] + [column, key]
    turned = MemRefType(kind.element_type, [kind.get_shape()[d] for d in order])
    view = _aligned(rewriter, op, padded_type(turned, _bits(kind)), f"{op.v.name_hint or 'V'}_transposed")
    made = rewriter.insert(TransposeOp(op.v, view, DenseArrayBase.from_list(i64, order)))
    ordered = is_turned(made)
    if ordered:
        made.attributes[COLUMNS] = DenseArrayBase.from_list(i64, list(KEYS_OF_BYTES))
    maps = list(op.maps)
    maps[2] = map_along(op.maps[0].num_dims, (loops[d] for d in order))
    op.operands[2] = view
    op.indexing_maps = ArrayAttr([AffineMapAttr(each) for each in maps])
    op.attributes[ScheduleAttr.name] = ScheduleAttr(schedule.with_fields(transpose="b" if ordered else PLAIN))


@rewrite_pattern
def pad_result(op: MatmulOp, rewriter: PatternRewriter) -> None:
    """Replaces D by memory with aligned rows, which is copied to D afterwards."""
    schedule, kind, d = _schedule(op), memory_of(op.d), SSAValue.get(op.d)
    if schedule is None or schedule.padded != "d":
        return
    made = _aligned(rewriter, op, padded_type(kind, _bits(kind)), f"{d.name_hint or 'D'}_padded")
    op.operands[2 + (op.c is not None)] = made
    Builder(InsertPoint.after(op)).insert(LinalgCopyOp([made], [d], []))


class LayOutPass(ModulePass):
    """Transposes the operands that a schedule's `transpose` names before the product, or the attention. If the schedule
    has `padded`, it also computes D in aligned rows and copies it after the product. It runs after `warp-schedule`."""

    name = "warp-lay-out"
    needs: ClassVar = ("schedule.transpose", "schedule.padded")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        apply_patterns([transpose_operands, transpose_values], op)
        apply_patterns([pad_result], op)
