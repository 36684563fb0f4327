"""Bugs planted in right kernels, one edit each, and what the interpreter's checks say of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warploom.runtime import compile, load_ptx
from warploom.runtime.interp import InterpreterError
from warploom.runtime.interp.machine.memory import Finding

Array = NDArray[Any]
KERNELS = Path(__file__).parent / "data" / "kernels"

MATMUL = """func.func @matmul(%A: memref<{m}x{k}x{t}>, %B: memref<{k}x{n}x{t}>, %C: memref<{m}x{n}xf32>) {{
  linalg.matmul ins(%A, %B : memref<{m}x{k}x{t}>, memref<{k}x{n}x{t}>) outs(%C : memref<{m}x{n}xf32>)
  return
}}"""


@cache
def pipelined() -> str:
    """Our matmul 64x64x128 on four CTAs of four warps, three stages of 32 deep."""
    text = MATMUL.format(m=64, n=64, k=128, t="f16")
    return compile(text, cta=(32, 32, 32), warp=(16, 16), stages=3).ptx


def edited(text: str, old: str, new: str, which: int = 0) -> str:
    """The text with the occurrence number `which` of `old` replaced; lines keep their numbers."""
    pieces = text.split(old)
    assert len(pieces) > which + 1, f"{old!r} is not there {which + 1} times"
    assert old.count("\n") == new.count("\n")
    return old.join(pieces[: which + 1]) + new + old.join(pieces[which + 1 :])


def line_of(text: str, piece: str, which: int = 0) -> int:
    """The number of the line where the occurrence number `which` of a piece begins."""
    pieces = text.split(piece)
    assert len(pieces) > which + 1, f"{piece!r} is not there {which + 1} times"
    return piece.join(pieces[: which + 1]).count("\n") + 1


def run(
    text: str, grid: Sequence[int], block: Sequence[int], args: Sequence[object], shared: int = 0, **options: Any
) -> tuple[Finding, ...]:
    """Launches the only kernel of a text with all checks, or those of `checks`. Returns what they found."""
    module = load_ptx(text, "k.ptx")
    options.setdefault("checks", "all")
    try:
        module.launch(next(iter(module.kernels)), grid, block, args, shared=shared, device="interp", **options)
    except InterpreterError as error:
        return _told(error)
    return ()


def _told(error: InterpreterError) -> tuple[Finding, ...]:
    """An error of a run has findings, and a line for each that is listed."""
    assert error.findings, error
    assert len(str(error).splitlines()) >= min(len(error.findings), 10)
    return error.findings


def run_pipelined(text: str, **options: Any) -> tuple[Finding, ...]:
    """Runs a variant of `pipelined()` on random operands."""
    random = np.random.default_rng()
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((64, 128), (128, 64)))
    return run(text, (4, 1, 1), (128, 1, 1), [a, b, np.zeros((64, 64), np.float32)], 12288, **options)


def check_found(
    findings: Sequence[Finding], check: str, line: int, message: str, *, address: bool = False, thread: bool = True
) -> Finding:
    """One of the findings is of this check, at this line, with this in its message, and says where."""
    fits = [f for f in findings if (f.check, f.line) == (check, line) and message in f.message]
    assert fits, "\n".join([f"no {check} at line {line} with {message!r} among:", *map(str, findings)])
    first = fits[0]
    assert first.kernel
    assert not thread or (first.cta is not None and first.warp is not None and first.lane is not None)
    assert not address or first.address is not None
    assert str(first).startswith(f"k.ptx:{line}:")
    return first
