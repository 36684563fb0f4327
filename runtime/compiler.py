"""Compiling MLIR: text, a file or a module becomes a kernel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from .kernel import Kernel, OnPhase, ScheduleOption
from .source import read_source

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

SUFFIX = ".mlir"

UNNAMED = "<mlir>"
"""What messages call text that is in no file."""


def compile(
    mlir: str | os.PathLike[str] | ModuleOp,
    target: str | None = None,
    name: str | None = None,
    *,
    file: str | None = None,
    on_phase: OnPhase | None = None,
    tf32: bool = False,
    tuned: str | Path | None = None,
    **schedule: ScheduleOption,
) -> Kernel:
    """Compile one function of an MLIR module down to PTX.

    `mlir` is text, the path of a file (a `Path`, or one line that ends in .mlir), or a module, which is left as it is.
    `target` is by default the module's `warp.target`, or sm_90a where it has none. `name` chooses the function where
    there are several; `file` stands in error messages. `tf32` lets products of f32 drop 13 of the 23 bits of each
    operand's fraction; without it they are refused. `schedule` overrides parts of the schedule:
    `cta=(128, 256, 64), stages=3`. `tuned` is a file of measured schedules, which `warploom tune` writes. A function on
    tensors is called with its results as arguments behind its own.

    Raises:
        CompileError: with file, line and column where they are known, for text that does not parse or verify,
            an unknown target, a schedule that does not fit, or a product the target has no instruction for.
        HostError: if there is no such function, or it does something other than launch kernels.
        WarploomError: if there is no such file, or it is no text.
    """
    from .lowering import lowered, parse

    if isinstance(mlir, str | os.PathLike):
        text, where = _read(mlir)
        file = file or where
        module = parse(text, file, on_phase)
    else:
        file, module = file or UNNAMED, mlir.clone()
    return lowered(module, target, name, file, on_phase, tf32, None if tuned is None else str(tuned), schedule)


def _read(mlir: str | os.PathLike[str]) -> tuple[str, str]:
    """The text that is meant, and what messages call it. No text of MLIR is one line that ends in .mlir."""
    if isinstance(mlir, str) and not (mlir.endswith(SUFFIX) and "\n" not in mlir):
        return mlir, UNNAMED
    return read_source(Path(mlir)), str(Path(mlir))
