"""Launches of many CTAs in several processes: the same words and errors, and nothing left when they are stopped."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from interpreted import program

from warploom.runtime import compile
from warploom.runtime.base.errors import ArgumentError
from warploom.runtime.base.launch import CORES, cores
from warploom.runtime.interp import InterpreterError, parallel
from warploom.runtime.interp import program as batching
from warploom.runtime.interp.machine.memory import Buffer, GlobalBuffers

HEAD = """mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r0, %r2, %r3, %r1;
ld.param.u64 %rd1, [p]; mad.wide.u32 %rd2, %r0, 4, %rd1;"""
SQUARE = "mul.lo.u32 %r4, %r0, %r0; st.global.u32 [%rd2], %r4;"


@pytest.fixture
def several(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three processes, for batches of two warps."""
    monkeypatch.setenv(CORES, "3")
    monkeypatch.setattr(batching, "IN_FLIGHT_WARPS", 2)
    monkeypatch.setattr(parallel, "WARPS_OF_BATCH", 2)


def run(body: str, grid: int, p: np.ndarray[Any, Any], **options: Any) -> None:
    program(f"{HEAD}\n{body}", ".param .u64 p", module=".global .align 4 .u32 count;").launch(
        "k", (grid, 1, 1), (32, 1, 1), [p], **options
    )


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batches each launch was cut into."""
    seen: list[int] = []
    inner = parallel.run_batches

    def counted(work: Callable[[int], Any], count: int, *rest: Any) -> bool:
        seen.append(count)
        return inner(work, count, *rest)

    monkeypatch.setattr(parallel, "run_batches", counted)
    return seen


@pytest.mark.usefixtures("several")
def test_all_ctas_run_and_progress_is_told(batches: list[int]) -> None:
    p, told = np.full(32 * 21, 7, np.uint32), []
    run(SQUARE, 21, p, progress=lambda done, total: told.append((done, total)))
    assert np.array_equal(p, np.arange(p.size, dtype=np.uint32) ** 2)
    assert batches == [11]
    assert told == sorted(told)
    assert (len(told), told[-1]) == (11, (21, 21))


@pytest.mark.usefixtures("several")
def test_products_have_the_same_words(batches: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    text = """func.func @f(%A: memref<65x40xf16>, %B: memref<40x66xf16>, %C: memref<65x66xf32>) {
      linalg.matmul ins(%A, %B : memref<65x40xf16>, memref<40x66xf16>) outs(%C : memref<65x66xf32>) return }"""
    kernel = compile(text, target="sm_90a", cta=(32, 32, 32), warp=(32, 16))
    random = np.random.default_rng(4)
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((65, 40), (40, 66)))
    c = random.standard_normal((65, 66)).astype(np.float32)
    results = [c.copy() for _ in range(3)]
    for number, result in zip(("1", "2", "5"), results, strict=True):
        monkeypatch.setenv(CORES, number)
        kernel(a, b, result, device="interp")
    assert len(batches) == 2
    assert min(batches) > 1
    assert all(np.array_equal(result.view(np.uint32), results[0].view(np.uint32)) for result in results)


@pytest.mark.parametrize(
    "body",
    [
        "atom.global.add.u32 %r4, [count], 1;",
        "red.global.add.u32 [count], 1;",
        "ld.volatile.global.u32 %r4, [count];",
        "st.release.gpu.global.u32 [count], %r0;",
        "ld.acquire.gpu.u32 %r4, [%rd1];",
        "membar.gl;",
        "fence.acq_rel.gpu;",
        "fence.sc.sys;",
        "mov.u32 %r4, %clock;",
        "mov.u64 %rd3, %globaltimer;",
    ],
)
@pytest.mark.usefixtures("several")
def test_ctas_that_can_see_each_other_stay_in_order(body: str, batches: list[int]) -> None:
    p = np.zeros(32 * 12, np.uint32)
    run(f"{body} {SQUARE}", 12, p)
    assert batches == []
    assert np.array_equal(p, np.arange(p.size, dtype=np.uint32) ** 2)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "body",
    [
        ".shared .align 4 .u32 s; atom.shared.add.u32 %r4, [s], 1;",
        ".shared .align 4 .u32 s; ld.volatile.shared.u32 %r4, [s];",
        "membar.cta;",
        "fence.acq_rel.cta;",
        "fence.proxy.async;",
        "bar.sync 0;",
    ],
)
@pytest.mark.usefixtures("several")
def test_what_stays_in_a_cta_does_not_hold_others_up(body: str, batches: list[int]) -> None:
    run(f"{body} {SQUARE}", 12, np.zeros(32 * 12, np.uint32))
    assert len(batches) == 1


@pytest.mark.parametrize("options", [{"checks": "races"}, {"max_steps": 1000}], ids=str)
@pytest.mark.usefixtures("several")
def test_what_must_see_everything_does(options: dict[str, Any], batches: list[int]) -> None:
    run(SQUARE, 12, np.zeros(32 * 12, np.uint32), **options)
    assert batches == []


@pytest.mark.usefixtures("several")
def test_arrays_that_share_memory_stay_together(batches: list[int]) -> None:
    base = np.zeros(32 * 13, np.uint32)
    built = program(f"{HEAD} ld.param.u64 %rd3, [q]; {SQUARE}", ".param .u64 p, .param .u64 q")
    built.launch("k", (12, 1, 1), (32, 1, 1), [base[:-32], base[32:]])
    assert np.array_equal(base[:-32], np.arange(base.size - 32, dtype=np.uint32) ** 2)


@pytest.mark.usefixtures("several")
def test_the_first_error_is_raised(batches: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever process comes to one first."""
    body = f"setp.ge.u32 %p1, %r2, 7; @%p1 ld.global.u32 %r4, [%rd2+4096];\n{SQUARE}"
    errors: list[str] = []
    for number in ("3", "1"):
        monkeypatch.setenv(CORES, number)
        with pytest.raises(InterpreterError, match=r"CTA \(7, 0, 0\), warp 0, lane 0") as caught:
            run(body, 40, np.zeros(32 * 40, np.uint32)[: 32 * 12])
        errors.append(str(caught.value))
        assert caught.value.findings[0].cta == (7, 0, 0)
    assert len(batches) == 1
    assert errors[0] == errors[1]
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("several")
def test_an_interrupt_leaves_nothing_behind() -> None:
    p = np.zeros(32 * 40, np.uint32)

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(SQUARE, 40, p, progress=interrupt)
    assert multiprocessing.active_children() == []
    done = np.flatnonzero(p)
    assert done.size
    assert np.array_equal(p[done], done.astype(np.uint32) ** 2)


@pytest.mark.usefixtures("several")
def test_a_process_that_ends_is_told() -> None:
    memory = GlobalBuffers()
    memory.add(Buffer("x", np.zeros(64, np.uint8)))
    with pytest.raises(InterpreterError, match="ended with exit code 9; WARPLOOM_CORES=1 runs them in this one"):
        parallel.run_batches(lambda batch: os._exit(9), 4, memory, lambda result: None)
    with pytest.raises(InterpreterError, match="was killed by SIGKILL, as is done where memory is short; WARPLOOM_C"):
        parallel.run_batches(lambda batch: os.kill(os.getpid(), signal.SIGKILL), 4, memory, lambda result: None)
    with pytest.raises(InterpreterError, match="was killed by SIGTERM; WARPLOOM_CORES"):
        parallel.run_batches(lambda batch: os.kill(os.getpid(), signal.SIGTERM), 4, memory, lambda result: None)
    with pytest.raises(InterpreterError, match="had no memory left; WARPLOOM_CORES=1 runs them in this one"):
        parallel.run_batches(lambda batch: np.zeros(1 << 50), 4, memory, lambda result: None)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        parallel.run_batches(lambda batch: 1 // 0, 4, memory, lambda result: None)


@pytest.mark.usefixtures("several")
def test_a_process_that_may_have_no_children_runs_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "current_process", lambda: SimpleNamespace(daemon=True))
    assert not parallel.run_batches(lambda batch: os._exit(9), 4, GlobalBuffers(), lambda result: None)


@pytest.mark.parametrize(("setting", "expected"), [("4", 4), ("1", 1)])
def test_cores_are_what_the_environment_says(setting: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CORES, setting)
    assert cores() == expected
    monkeypatch.setenv(CORES, "")
    assert cores() >= 1
    for senseless in ("0", "-1", "many"):
        monkeypatch.setenv(CORES, senseless)
        with pytest.raises(ArgumentError, match=f"expected a number of processes from 1 on, got '{senseless}'"):
            cores()
