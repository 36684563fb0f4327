"""`warp-tensor-memory`: products of warpgroups add up in tensor memory, where the target has no `wgmma` (sm_100a)."""

from __future__ import annotations

from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, MemRefType
from xdsl.ir import Block, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.isa.form import SCALES_OF_WORD
from ...dialect.isa.tensor_product import ALLOCATIONS, in_tensor_memory
from ...dialect.isa.wgmma import WARPS
from ...dialect.layouts.tensor_memory import METADATA_BLOCK
from ...dialect.mlir.gpu import FuncOp
from ...dialect.warp.attributes import fragment_of, memory_of, target_of
from ...dialect.warp.cta import ACQUIRE, COMMIT, RELEASE, WAIT, CopyOp, MakeRingOp, PipelineOp
from ...dialect.warp.op_shapes import is_pure
from ...dialect.warp.synchronisation import (
    AFTER_SYNC,
    BEFORE_SYNC,
    FenceOp,
)
from ...dialect.warp.tensor_memory import TensorMmaOp, columns_of
from ...dialect.warp.warpgroup import WgmmaOp
from ..diagnostics import fail
from ..patterns import Index, IndexBuilder, PatternPass
from ..schedule.warpgroup_model import BUFFERS
from .ring import Ring
from .tensor_attention import AttentionProducts
from .tensor_products import TensorProducts, along_mn, is_of_wgmma


class AddUp(RewritePattern):
    """The loop over K of a kernel of warpgroups, whose sums are in tensor memory in place of registers.

    A warp of the producer's warpgroup starts the products of all consumers, which load the sums of a tile while those
    of the next are added up::

        second warp of the producer                     consumers
          for each tile of this CTA:                      for each tile of this CTA:
            wait: sums[b] have been loaded                  wait: sums[b] are complete
            for each K tile:                                load sums[b], say that they have been
              wait: stage is full                           store them
              start products, when they are done
              the stage is empty
            when all are done sums[b] are complete
    """

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: FuncOp, rewriter: PatternRewriter) -> None:
        products = [inner for inner in op.walk() if isinstance(inner, WgmmaOp)]
        target = target_of(op)
        if target is None or not products or not all(in_tensor_memory(product.row, target) for product in products):
            return
        loops = list(dict.fromkeys(map(_loop_of, products)))
        if len(loops) > 1:
            fail(loops[1], "expected one loop over K: products of several are not added up in tensor memory")
        in_registers = any(product.a_in_registers for product in products)
        (AttentionProducts if in_registers else _Sums)(op, loops[0]).move()


def _loop_of(product: WgmmaOp) -> scf.ForOp:
    loop = product.parent_op()
    if product.e is not None or product.transposed is not None:
        fail(product, "products in tensor memory take dense operands in shared memory, or A in tensor memory")
    if not isinstance(loop, scf.ForOp) or len(loop.iter_args) < 3:
        fail(product, "expected products in a loop over K that adds up one sum: run warp-specialise first")
    return loop


class _Sums(TensorProducts):
    """The sums of one loop over K on their way to tensor memory: those of all consumers side by side, as matrices of
    the rows of an instruction and all columns of the CTA's tile."""

    initial = 0, 0, 0, 1

    def __init__(self, kernel: FuncOp, loop: scf.ForOp) -> None:
        super().__init__(kernel, loop)
        self.kind, first = fragment_of(loop.iter_args[0]), self.products[0]
        self.count = memory_of(first.a).get_shape()[along_mn(first, "a")] // self.rows
        self.columns = self.kind.shape[1] * (self.warps // WARPS // self.count)
        side_operands = [(tile, self._beside_shape(first, tile)) for tile in first.side_operands]
        of_tiles = [(tile, MemRefType(memory_of(tile).element_type, shape)) for tile, shape in side_operands]
        taken = sum(columns_of(kind) * self.staged.stages for _, kind in of_tiles)
        fits = BUFFERS * self.count * self.columns + taken <= ALLOCATIONS[-1]
        self.buffers = BUFFERS if self.tiles is not None and fits else 1
        self.sums = self.allocated(self.kind.element_type, self.buffers * self.count, self.rows, self.columns)
        self.side_operands = {
            tile: self.allocated(memory_of(tile).element_type, *shape) for tile, shape in side_operands
        }
        self.ring = Ring.of(self.start, MakeRingOp(self.buffers, 1, self.ctas * self.warps))
        self.free(self.sums)

    def _beside_shape(self, product: WgmmaOp, tile: SSAValue) -> list[int]:
        """The scales of a tile in tensor memory, of the rows of all blocks of a stage; metadata, of all lanes."""
        kind, a, scale = memory_of(tile), memory_of(product.a), product.row.scale
        lines = kind.get_shape()[-2]
        if scale is None:
            return [
                self.staged.stages,
                METADATA_BLOCK.threads,
                lines // METADATA_BLOCK.threads * METADATA_BLOCK.elements,
            ]
        words = a.get_shape()[-1] // (product.row.shape.k // scale.vector * SCALES_OF_WORD)
        return [self.staged.stages, lines // words * SCALES_OF_WORD, words * SCALES_OF_WORD]

    def tile(self, index: IndexBuilder, state: list[Index], known: dict[SSAValue, SSAValue]) -> list[Index]:
        stage, parity, buffer, phase = state
        self.ring.step(index, ACQUIRE, buffer, phase)
        index.insert(FenceOp(AFTER_SYNC))
        first, last, step = (index.again(each, known, self.is_inside) for each in self.loop.operands[:3])
        numbers = [index.add(index.mul(buffer, self.count), number) for number in range(self.count)]
        old, body = self.loop.body.block, Block(arg_types=[IndexType()] * 3)
        inside = index.at(Builder(InsertPoint.at_end(body)))
        now = known | dict(zip([old.args[0], *old.args[2:]], body.args, strict=True))
        adds = inside.insert(arith.CmpiOp(body.args[0], first, "ne")).result
        for op in old.ops:
            if isinstance(op, WgmmaOp):
                at = inside.again(op.a_indices[0], now, self.is_inside)
                if op is self.products[0]:
                    for tile, memory in self.side_operands.items():
                        inside.insert(CopyOp(tile, [at, *inside.values([0, 0])], memory, [at]))
                more = adds if op is self.products[0] else None
                for number, which in enumerate(numbers):
                    a, b = (self.place(inside, op, *at, now) for at in (("a", number * self.rows), ("b", 0)))
                    beside = [self.side_operands[tile] for tile in op.side_operands]
                    inside.insert(TensorMmaOp(op, (a, b), self.sums, inside.value(which), more, beside, at))
            elif isinstance(op, PipelineOp | scf.YieldOp):
                values = [value for value in op.operands if value is not self.products[-1].d]
                again = {value: inside.again(value, now, self.is_inside) for value in values}
                inside.insert(op.clone(again) if isinstance(op, PipelineOp) else scf.YieldOp(*again.values()))
            elif not (is_pure(op) or is_of_wgmma(op)):
                fail(op, f"{op.name} in the loop over K is no part of products in tensor memory")
        loop = index.insert(scf.ForOp(first, last, step, index.values([stage, parity]), body))
        self.ring.step(index, COMMIT, buffer, products=True)
        return [*loop.results, *self.ring.next(index, buffer, phase)]

    # The consumers

    def load(self) -> None:
        """Lets consumers wait for their sums and load them, part by part, in place of multiplying."""
        loop, index = self.loop, self.start.at(Builder(InsertPoint.before(self.loop)))
        buffer, parity = (index.folded(value) for value in loop.iter_args[1:])
        product = self.products[0]
        down, across = (index.folded(places[along_mn(product, role)]) for role, _, places in product.tiles())
        number = index.add(index.mul(buffer, self.count), index.div(down, self.rows))
        self.ring.step(index, WAIT, buffer, parity)
        index.insert(FenceOp(AFTER_SYNC))
        index = self.load_sums(index, 0, self.sums, (number, across))
        index.insert(FenceOp(BEFORE_SYNC))
        self.ring.step(index, RELEASE, buffer)
        following = index.values(self.ring.next(self.start.at(Builder(InsertPoint.before(loop))), buffer, parity))
        Rewriter.replace_op(loop, [], [loop.iter_args[0], *following])


class TensorMemoryPass(PatternPass):
    """Adds products of warpgroups up in tensor memory on targets that have it in place of `wgmma`.

    It runs after `warp-specialise`, before `warp-synchronise`.
    """

    name = "warp-tensor-memory"
    needs: ClassVar = ("warp.wgmma",)
    patterns = (AddUp,)
