"""Every dialect, pass and target of the project by name, for the entry-point group `xdsl.universe`.

Nothing is imported until it is asked for by name: a driver that lists names pays for none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from xdsl.ir import Dialect
from xdsl.passes import ModulePass
from xdsl.universe import Universe
from xdsl.utils.target import Target


def _lazy(module: str, name: str) -> Callable[[], Any]:
    """A factory that imports `name` from `module` (relative to this package) when called."""
    return lambda: getattr(import_module(module, __package__), name)


_DIALECTS: dict[str, Callable[[], Dialect]] = {
    "warp": _lazy("..dialect.warp.dialect", "WARP"),
    "ptx": _lazy("..dialect.ptx.dialect", "PTX"),
}

_PASSES: dict[str, Callable[[], type[ModulePass]]] = {
    "warp-set-target": _lazy(".set_target", "SetTargetPass"),
    "warp-bufferize": _lazy(".linalg.bufferize", "BufferizePass"),
    "warp-fuse-attention": _lazy(".linalg.fuse_attention", "FuseAttentionPass"),
    "warp-fuse-rows": _lazy(".linalg.fuse_rows", "FuseRowsPass"),
    "warp-raise-matmul": _lazy(".linalg.raise_matmul", "RaiseMatmulPass"),
    "warp-fold-fill": _lazy(".linalg.fold_fill", "FoldFillPass"),
    "warp-fuse-weights": _lazy(".linalg.fuse_weights", "FuseWeightsPass"),
    "warp-fuse-epilogue": _lazy(".linalg.fuse_epilogue", "FuseEpiloguePass"),
    "warp-version": _lazy(".schedule.version", "VersionPass"),
    "warp-schedule": _lazy(".schedule.warp_schedule", "SchedulePass"),
    "warp-lay-out": _lazy(".tile.lay_out", "LayOutPass"),
    "warp-outline": _lazy(".tile.outline", "OutlinePass"),
    "warp-stage": _lazy(".tile.stage", "StagePass"),
    "warp-distribute": _lazy(".tile.distribute", "DistributePass"),
    "warp-fragments": _lazy(".tile.fragment_products", "FragmentsPass"),
    "warp-epilogue": _lazy(".tile.store_epilogue", "EpiloguePass"),
    "warp-raise-gelu": _lazy(".tile.raise_gelu", "RaiseGeluPass"),
    "warp-pack": _lazy(".tile.pack", "PackPass"),
    "warp-split-k": _lazy(".tile.split", "SplitKPass"),
    "warp-persist": _lazy(".tile.persist", "PersistPass"),
    "warp-fp8-as-f16": _lazy(".tile.fp8_as_f16", "Fp8AsF16Pass"),
    "warp-specialise": _lazy(".pipelining.specialise", "SpecialisePass"),
    "warp-pipeline": _lazy(".pipelining.warp_pipeline", "PipelinePass"),
    "warp-expand": _lazy(".expand.warp_expand", "ExpandPass"),
    "warp-allocate": _lazy(".allocate", "AllocatePass"),
    "convert-warp-to-ptx": _lazy(".to_ptx.convert_warp_to_ptx", "ConvertWarpToPtxPass"),
    "warploom": _lazy(".standard", "StandardPipeline"),
    "warploom-schedule": _lazy(".standard", "ChoosingPipeline"),
    "warploom-tile": _lazy(".standard", "TilingPipeline"),
    "warp-tile": _lazy(".standard", "KernelPipeline"),
    "warploom-finish": _lazy(".standard", "FinishingPipeline"),
}

_TARGETS: dict[str, Callable[[], type[Target]]] = {
    "ptx": _lazy("..dialect.ptx.text.printer", "PtxTarget"),
    "upstream": _lazy(".upstream", "UpstreamTarget"),
}

WARPLOOM_UNIVERSE = Universe(all_dialects=_DIALECTS, all_passes=_PASSES, all_targets=_TARGETS)
"""What the entry point names; plain `xdsl-opt` finds the project through it."""

LINALG: Callable[[], Dialect] = _lazy("..dialect.linalg.dialect", "LINALG")
"""xDSL's `linalg` with a matmul that takes what MLIR takes. Not in the universe, where two dialects
of one name are an error: the project's own driver puts it in place of xDSL's."""

LINALG_BASE: Callable[[], Dialect] = _lazy("..dialect.linalg.base", "BASE")
"""The same but for its 30 convolutions."""

GPU: Callable[[], Dialect] = _lazy("..dialect.gpu", "GPU")
"""xDSL's `gpu` with the text that MLIR has for kernels and launches; as for `linalg`."""

MEMREF: Callable[[], Dialect] = _lazy("..dialect.memref", "MEMREF")
"""xDSL's `memref` with the text that MLIR has for `memref.copy` and `memref.cast`; as for `linalg`."""

ARITH: Callable[[], Dialect] = _lazy("..dialect.arith", "ARITH")
"""xDSL's `arith` with the flags and the rounding mode that MLIR has for conversions; as for `linalg`."""
