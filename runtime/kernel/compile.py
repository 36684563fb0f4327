"""What takes the text of a program, or its file: MLIR is compiled, PTX loaded or checked."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ...passes.source import REMARKS, read_once, read_text
from ..base.cache import kept, key_of
from ..base.errors import ArgumentError, CompileError, WarploomError
from ..base.launch import dim3, read_source

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from ...dialect.ptx.check.module import Diagnostic
    from ...passes.strategy.handle import Handle
    from .kernel import Kernel, OnPhase, ScheduleOption
    from .lowering import StrategyText
    from .module import PtxModule

    Strategies: TypeAlias = str | os.PathLike[str] | ModuleOp | Callable[[Handle], None]

SUFFIX, PTX_SUFFIX = ".mlir", ".ptx"

UNNAMED, UNNAMED_PTX = "<mlir>", "<ptx>"
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
    strategy: Strategies | None = None,
    cache: bool = True,
    **schedule: ScheduleOption,
) -> Kernel:
    """Compile one function of an MLIR module to PTX.

    - `mlir`: text, the path of a file (a `Path`, or one line that ends in .mlir or names a file), or a module, which is
      not changed.
    - `target`: the GPU, such as "sm_80"; by default the module's `warp.target`, or else sm_90a.
    - `name`: the function to compile, if the module has several.
    - `file`: what error messages call the text.
    - `on_phase`: called with the name and the seconds of each phase.
    - `tf32`: multiply f32 as tf32, which drops 13 of the 23 bits of each fraction. Without it products of f32 are
      refused.
    - `tuned`: a file of measured schedules, which `warploom tune` writes.
    - `strategy`: what is applied to the module first: text or the path of a file in the dialect `transform`, a module,
      or a function of the module's handle (`passes/strategy/handle.py`), whose kernels are not cached.
    - `cache`: whether a kernel that was compiled before, with the same options and compiler, is read from the cache on
      disk. While `passes.diagnostics.remarks` collects what passes say, it is compiled anew.
    - `schedule`: fields of the schedule, such as `cta=(128, 256, 64), stages=3`. `batch_invariant=True` holds for a
      whole function: the bits of a row do not depend on how many rows there are.

    If the function is on tensors, its results are additional arguments after its own.

    Raises:
        CompileError: with file, line and column where they are known, for text that does not parse or verify,
            an unknown target, a schedule that does not fit, or a product the target has no instruction for.
        HostError: if there is no such function, or it has an operation that the host cannot evaluate.
        WarploomError: if there is no such file, or it is not text.
    """
    text, where = _text_of(mlir, UNNAMED)
    file, tuned = file or where, None if tuned is None else str(tuned)
    with nullcontext() if tuned is None else read_once():  # its text is part of the key
        applied = None if strategy is None else _strategy(strategy)
        store = kept() if cache and not callable(applied) and REMARKS.get() is None else None
        asked = {"text": text, "file": file, "target": target, "name": name, "tf32": tf32}
        key = None if store is None else _key(tuned, applied, schedule, asked)
        start = time.perf_counter()
        if store is not None and key is not None and (known := store.get(key)) is not None:
            if on_phase is not None:
                on_phase("cache", time.perf_counter() - start)
            return replace(cast("Kernel", known), name=file)
        with _long_lived(f"{__package__}.lowering"):
            from ...passes.pipeline import paused
            from .lowering import lowered, parse
        with paused():
            module = parse(text, file, on_phase) if isinstance(mlir, str | os.PathLike) else mlir.clone()
            kernel = lowered(module, target, name, file, on_phase, tf32, tuned, schedule, applied)
        if store is not None and key is not None:
            store.put(key, kernel)
        return kernel


@contextmanager
def _long_lived(module: str) -> Generator[None]:
    """Where a module is first imported. Python's cyclic garbage collector waits, and is spared a walk of all that
    imports made when it goes on: that stays, so it goes to the generation that is walked least, as it would by two
    walks. Where a program keeps objects of its own from the collector (`gc.freeze`), nothing is moved."""
    first = module not in sys.modules
    if on := gc.isenabled():
        gc.disable()
    try:
        yield
    finally:
        if first and not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        if on:
            gc.enable()


def _key(
    tuned: str | None, strategy: object, schedule: Mapping[str, ScheduleOption], asked: Mapping[str, object]
) -> str | None:
    """The key of a kernel in the cache. None if the file of tuned schedules cannot be read; the compilation reports
    that."""
    try:
        measured = None if tuned is None else read_text(tuned)
    except (OSError, UnicodeDecodeError):
        return None
    fields = {name: str(value) for name, value in schedule.items()}
    return key_of("kernel", {**asked, "tuned": measured, "schedule": fields, "strategy": strategy})


def _strategy(strategy: Strategies) -> StrategyText | Callable[[Handle], None]:
    """A strategy as text with its name, or as a function."""
    return strategy if callable(strategy) else _text_of(strategy, "<strategy>")


def fastest(
    mlir: str | os.PathLike[str] | ModuleOp,
    strategy: Strategies,
    measure: Callable[[Kernel], float],
    target: str | None = None,
    **options: Any,
) -> tuple[Kernel, tuple[int, ...]]:
    """The kernel of the alternatives of a strategy for which `measure` is least, with the numbers of these.

    Other arguments and errors are those of `compile`; alternatives that do not compile are left out, unless none does.
    """
    from .lowering import strategy_variants

    text, file = _text_of(mlir, UNNAMED)
    timed: list[tuple[float, tuple[int, ...], Kernel]] = []
    failed: list[CompileError] = []
    for choices, module in strategy_variants(text, file, target, _strategy(strategy)):
        try:
            kernel = compile(module, target, file=file, cache=False, **options)
            timed.append((measure(kernel), choices, kernel))
        except CompileError as error:
            failed.append(error)
    if not timed:
        raise failed[0]
    _, choices, kernel = min(timed, key=lambda each: each[:2])
    return kernel, choices


def load_kernels(
    mlir: str | os.PathLike[str] | ModuleOp, target: str | None = None, block: int | Sequence[int] | None = None
) -> PtxModule:
    """Compile the kernels of a `gpu.module`, which you or other passes wrote. Launch them with a grid, a block and
    arguments: `load_kernels("a.mlir").launch("k", grid=4, block=32, args=[a])`. The size of their shared memory is
    computed.

    `mlir` and `target` are those of `compile`. `block` is the shape of the block for kernels that do not have
    `gpu.known_block_size`.

    Raises:
        CompileError: as `compile`, or if there is not exactly one `gpu.module`.
        WarploomError: if there is no such file, or it is not text.
    """
    from .lowering import kernels, parse

    shape = None if block is None else dim3(block, "block")
    if isinstance(mlir, str | os.PathLike):
        text, where = text_or_file(mlir, SUFFIX, UNNAMED)
        return kernels(parse(text, where), target, where, shape)
    return kernels(_module(mlir).clone(), target, UNNAMED, shape)


def _text_of(mlir: str | os.PathLike[str] | ModuleOp, unnamed: str) -> tuple[str, str]:
    """Text, that of a file, or that of a module; and what messages call it."""
    written = isinstance(mlir, str | os.PathLike)
    return text_or_file(mlir, SUFFIX, unnamed) if written else (_printed(_module(mlir)), unnamed)


def _printed(module: ModuleOp) -> str:
    """All that a module says, with the places of its operations."""
    from xdsl.printer import Printer

    out = StringIO()
    Printer(out, print_generic_format=True, print_debuginfo=True).print_op(module)
    return out.getvalue()


def _module(module: ModuleOp) -> ModuleOp:
    """What is neither text nor a path, if it is a module. Raises ArgumentError if it is something else."""
    from xdsl.dialects.builtin import ModuleOp

    if not isinstance(cast("object", module), ModuleOp):
        raise ArgumentError(f"expected MLIR text, the path of a file, or a module of xDSL, got {type(module).__name__}")
    return module


def load_ptx(text: str | os.PathLike[str], name: str | None = None) -> PtxModule:
    """Load PTX from any compiler, to launch its kernels. `text` is the PTX itself, or the path of a file: a `Path`, or
    one line that ends in .ptx or names a file. `name` is what error messages call it.

    Raises:
        WarploomError: with file, line and column, if the text is not PTX, or if there is no such file.
    """
    from .module import PtxModule

    text, where = text_or_file(text, PTX_SUFFIX, UNNAMED_PTX)
    return PtxModule(text, name or where)


def check_ptx(text: str | os.PathLike[str], target: str | None = None, name: str | None = None) -> list[Diagnostic]:
    """Check PTX text, and return its errors in the order of the file.

    The check finds:

    - statements that cannot be parsed, and invalid headers and declarations;
    - instructions that do not exist, or that the target does not have;
    - operands that do not fit, or are not declared;
    - instructions that cannot be right at their position.

    `text` and `name` are those of `load_ptx`. `target` replaces the file's own `.target`.

    Raises:
        WarploomError: for an unknown `target`, or if there is no such file.
    """
    from ...dialect.isa.row import UnknownTargetError
    from ...dialect.ptx.check.module import check_text

    text, where = text_or_file(text, PTX_SUFFIX, UNNAMED_PTX)
    try:
        return check_text(text, target, name or where).diagnostics
    except UnknownTargetError as error:
        raise WarploomError(str(error)) from error


def text_or_file(source: str | os.PathLike[str], suffix: str, unnamed: str) -> tuple[str, str]:
    """The text, and its name in messages. `source` is the text itself or the path of its file.

    A string is a path if it is one line that ends in `suffix` or names a file or folder. Raises ArgumentError for
    anything else than text and paths; WarploomError, naming the file, if it cannot be read or is no text.
    """
    if not isinstance(cast("object", source), str | os.PathLike):
        what = f"the text or the path of a {suffix} file"
        raise ArgumentError(f"expected {what}, got {type(source).__name__}")
    if isinstance(source, str) and ("\n" in source or not (source.endswith(suffix) or os.path.exists(source))):
        return source, unnamed
    return read_source(Path(source)), str(Path(source))
