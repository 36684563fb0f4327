"""The collector rests while a module is lowered, and is as before afterwards, errors or not."""

import gc
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from warploom.passes.pipeline import lower, paused, standard_pipeline
from warploom.passes.universe import make_context
from warploom.runtime import CompileError, compile
from warploom.runtime.kernel.lowering import parse

EXAMPLE = Path(__file__).parents[2] / "examples" / "matmul.mlir"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    on = gc.isenabled()
    yield
    (gc.enable if on else gc.disable)()


@pytest.mark.parametrize("on", [True, False])
def test_what_was_comes_back(on: bool) -> None:
    (gc.enable if on else gc.disable)()
    with paused():
        assert not gc.isenabled()
    assert gc.isenabled() == on


def test_passes_run_without_it() -> None:
    gc.enable()
    states: list[bool] = []
    lower(parse(EXAMPLE.read_text()), make_context(), standard_pipeline(), lambda *_: states.append(gc.isenabled()))
    assert states
    assert not any(states)
    assert gc.isenabled()


def test_errors_leave_it_on() -> None:
    gc.enable()
    with pytest.raises(CompileError):
        compile(EXAMPLE.read_text(), stages=1000)
    assert gc.isenabled()


def test_threads_compile_one_after_another() -> None:
    text = """func.func @f(%A: memref<{m}x24xi8>, %B: memref<24x8xi8>, %C: memref<{m}x8xi32>) {{
      linalg.matmul ins(%A, %B : memref<{m}x24xi8>, memref<24x8xi8>) outs(%C : memref<{m}x8xi32>)
      return
    }}"""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            made = [pool.submit(compile, text.format(m=m), "sm_80", cache=False) for m in range(16, 22)]
            assert all("mma.sync" in each.result().ptx for each in made)
    finally:
        sys.setswitchinterval(interval)
