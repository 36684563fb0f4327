"""`warp-persist`: CTAs that compute one tile after the other, the `ctas` of a schedule.

The launch starts as many CTAs as the schedule says, and each goes on from its tile to the one that lies as many tiles
behind. What is the same for all tiles, such as the place of a warp in its tile, stays before the loop.
"""

from __future__ import annotations

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import gpu, memref, scf
from xdsl.dialects.builtin import IndexType, ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from ...dialect.effects import is_pure
from ..diagnostics import remark
from .index_builder import IndexBuilder, constant_value
from .launches import LaunchedKernel, launches


def _same_for_all(op: Operation, changing: set[SSAValue]) -> bool:
    """Whether an operation before the loop over K does the same for every tile."""
    index = is_pure(op) and all(isinstance(result.type, IndexType) for result in op.results)
    return (index or isinstance(op, gpu.SubgroupIdOp | memref.AllocOp)) and not changing.intersection(op.operands)


def _persist(launch: LaunchedKernel, tile: SSAValue, k_loop: scf.ForOp) -> None:
    body, changing, before = Block(arg_types=[IndexType()]), {tile}, True
    *rest, end = launch.body.ops
    for op in rest[rest.index(tile.owner) + 1 :]:  # pyright: ignore[reportArgumentType]
        before = before and op is not k_loop
        if not (before and _same_for_all(op, changing)):
            op.detach()
            body.add_op(op)
            changing.update(op.results)
    tile.replace_all_uses_with(body.args[0])
    body.add_op(scf.YieldOp())
    index, host, ctas = IndexBuilder(Builder(InsertPoint.before(end))), launch.host.index, launch.schedule.grid.ctas
    tiles = launch.inside(index, launch.op.gridSizeX)
    end, step = index.values([tiles, index.minimum(tiles, ctas)])
    index.insert(scf.ForOp(tile, end, step, [], body))
    if (known := constant_value(launch.op.gridSizeX)) is not None and known < ctas:
        remark(
            launch.kernel, PersistPass.name, f"ctas = {ctas}: there are {known} tiles, and as many CTAs are launched"
        )
    launch.grid[0] = host.minimum(host.known(launch.op.gridSizeX), ctas)
    launch.finish()


class PersistPass(ModulePass):
    """Puts a loop over tiles around kernels whose schedule has `ctas`, so that each CTA computes one tile after
    another.

    It runs after `warp-tile`. Without it, the launch has one CTA for each tile.
    """

    name = "warp-persist"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for launch in launches(op):
            if launch.schedule.grid.ctas:
                tile, loop = launch.block_id(), launch.loop()
                if tile is None or loop is None:
                    remark(launch.kernel, self.name, "there is a CTA for each tile: the kernel has no loop over K")
                else:
                    _persist(launch, tile, loop)
