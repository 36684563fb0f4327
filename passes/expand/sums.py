"""What sums over warps and over CTAs have in common."""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.ir import Operation

from ...dialect.layouts.layout import LANES
from ...dialect.warp.attributes import FragmentType
from ...dialect.warp.synchronisation import some_warps
from ..diagnostics import fail

CONSUMERS_BARRIER = 7
"""The barrier of those warps of a CTA that execute a region for some of them. The ones below are of single warpgroups,
those from 8 on of warpgroups in turns."""

ADDED = ("f32", "f64", "f16", "s32")
"""Elements of accumulators."""


def check_added(op: Operation, kind: FragmentType, shown: object) -> None:
    """Refuses fragments that are no accumulators."""
    if kind.element.name not in ADDED:
        fail(op, f"{op.name} adds {', '.join(ADDED)}, got {shown}")


def warps_around(op: Operation) -> int:
    """The warps that execute an operation: those of the kernel that it is in, or of a region for some of them."""
    if (some := some_warps(op)) is not None:
        return some
    kernel = op.parent_op()
    while kernel is not None and not isinstance(kernel, gpu.FuncOp):
        kernel = kernel.parent_op()
    size = kernel.known_block_size if kernel is not None else None
    if size is None:
        fail(op, f"{op.name} is expanded in kernels with gpu.known_block_size")
    return next(int(n) for n in size.iter_values()) // LANES
