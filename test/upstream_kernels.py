"""Kernels in upstream's dialects, of `data/upstream`: their PTX, and operands for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from warploom.dialect.ptx.ops import print_ptx
from warploom.dialect.ptx.printer import ptx_module
from warploom.passes.pipeline import lower
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import PtxModule, load_ptx

KERNELS = Path(__file__).parent / "data" / "upstream"
RNG = np.random.default_rng()


def to_ptx(text: str, arch: str, before: str = "") -> str:
    ctx = make_context()
    module = parse_mlir(ctx, text, "kernels.mlir")
    module.verify()
    lower(module, ctx, f"{before}warp-set-target{{arch={arch}}},convert-warp-to-ptx")
    return print_ptx(ptx_module(module))


def printed(text: str) -> str:
    """What is read, as it is printed."""
    return str(parse_mlir(make_context(), text, "kernels.mlir"))


def loaded(name: str, arch: str) -> PtxModule:
    return load_ptx(to_ptx((KERNELS / f"{name}.mlir").read_text(), arch))


def drawn(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float16)


def poisoned(*shape: int) -> np.ndarray:
    return np.full(shape, np.nan, np.float32)
