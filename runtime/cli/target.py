"""The GPU that a command compiles a module for."""

from __future__ import annotations

import argparse
import sys

from xdsl.dialects.builtin import ModuleOp

from ...passes.pipeline import DEFAULT_TARGET
from ..lowering import target_name


def target_asked(args: argparse.Namespace, module: ModuleOp, otherwise: str = DEFAULT_TARGET) -> str:
    """`--target`, else the module's own, else another. Where the first two differ, a note says so.

    Raises:
        CompileError: for a `warp.target` that is none.
    """
    target = args.target or target_name(module, otherwise)
    if (own := target_name(module, target)) != target:
        print(f"{args.file}: note: the module says {own}; --target compiles it for {target}", file=sys.stderr)
    return target
