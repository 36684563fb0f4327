"""Which function lowers which operation.

A module registers the functions it has, each for one type of operation, and is imported when the first of these
operations comes up: a kernel waits only for what it contains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar

from xdsl.ir import Operation

LoweringT = TypeVar("LoweringT")
OpT = TypeVar("OpT", bound=Operation)
Handler = Callable[[Any, Any], None]
"""Takes the lowering of a kernel and an operation of it."""

_OF_MODULES = {
    "barriers": "warp.make_barriers warp.arrive warp.arrive_copies warp.await",
    "bits": "warp.load_bits warp.store_bits warp.funnel_shift",
    "branches": "scf.if warp.elect",
    "column_ops": "warp.reduce warp.broadcast warp.step",
    "clusters": "warp.cluster_rank warp.cluster_barrier warp.cluster_arrive warp.cluster_wait warp.named_barrier",
    "convert_layout": "warp.convert_layout",
    "control_flow": "scf.for scf.yield gpu.barrier gpu.return",
    "epilogue": "warp.subfragment warp.load_vector warp.map",
    "banked": "warp.own_row warp.store_banked warp.load_banked",
    "fragment_ops": "warp.constant warp.elementwise warp.convert",
    "index_ops": "arith.constant arith.addi arith.subi arith.muli arith.divui arith.remui arith.minui arith.minsi "
    "arith.cmpi arith.andi arith.ori arith.xori arith.select arith.index_cast "
    "gpu.block_id gpu.subgroup_id gpu.thread_id gpu.lane_id",
    "matrix_ops": "warp.mma warp.ldmatrix",
    "memory_ops": "memref.alloc memref.dim warp.matrix warp.load warp.prefetch warp.store warp.copy warp.commit "
    "warp.wait",
    "move_ops": "warp.stmatrix warp.movmatrix",
    "register_ops": "warp.store_registers warp.load_registers",
    "sparse_ops": "warp.mma_sp warp.load_metadata",
    "synchronisation_ops": "warp.atomic_inc warp.barrier_any warp.sync_lanes",
    "tensor_copies": "warp.tensor_load warp.tensor_store warp.expect warp.bulk_commit warp.bulk_wait warp.proxy_fence",
    "warpgroups": "warp.wgmma warp.wgmma_fence warp.wgmma_commit warp.wgmma_wait warp.set_registers",
    "wmma_ops": "warp.wmma.load warp.wmma.store warp.wmma.mma",
    "word_ops": "warp.load_words warp.store_words warp.load_scales",
}
MODULES: Mapping[str, str] = {name: module for module, names in _OF_MODULES.items() for name in names.split()}
"""The module that registers the function of each operation."""

HANDLERS: dict[str, Handler] = {}
"""The functions that are registered so far, by the names of operations."""


def lowers(kind: type[OpT]) -> Callable[[Callable[[LoweringT, OpT], None]], Callable[[LoweringT, OpT], None]]:
    """Registers a function as what lowers the operations of a type."""

    def register(handle: Callable[[LoweringT, OpT], None]) -> Callable[[LoweringT, OpT], None]:
        HANDLERS[kind.name] = handle
        return handle

    return register


def handler_of(op: Operation) -> Handler | None:
    """What lowers an operation; None if nothing does."""
    if op.name not in HANDLERS and op.name in MODULES:
        import_module(f".{MODULES[op.name]}", __package__)
    return HANDLERS.get(op.name)
