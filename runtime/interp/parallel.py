"""CTAs side by side: how many processes a launch may take, whether its kernel can run in several, since no CTA can see
what another does, and its batches in processes of their own.

The processes are forked, and work on copies of the writable arrays in shared memory, which are copied back at the end.
So results are the same words whatever their number. Where one batch goes wrong, those before it end, and the first
error is raised, as when one batch follows the other.
"""

from __future__ import annotations

import gc
import mmap
import signal
import traceback
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dialect.ptx.text.syntax import Register
from ..base.launch import CORES, cores
from .machine.flow import CLOCKS, OF_WARPGROUPS
from .machine.kernel import MATRICES, DecodedKernel
from .machine.machine import KernelRun, Machine, Stats, geometry_of
from .machine.memory import Buffer, GlobalBuffers, InterpreterError
from .machine.state import align

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


def independent(kernel: DecodedKernel) -> bool:
    """Whether nothing in a kernel lets a CTA see what another does, or counts time."""
    read = (operand for d in kernel.code for operand in d.source.operands if isinstance(operand, Register))
    return not any(d.traits.between_ctas for d in kernel.code) and not any(r.name in CLOCKS for r in read)


WARPS_OF_BATCH = 64
"""The least that a process runs of a kernel that multiplies matrices; half as many take 1.3 times as long each."""


def run_in_processes(launch: KernelRun, at_once: int, stats: Stats) -> bool:
    """Runs the CTAs in several processes, if there are enough of them and they are independent of each other."""
    observer, total = launch.observer, launch.queue.total
    if launch.options.max_steps is not None or (observer is not None and not observer.merges):
        return False
    each = _ctas_of_batch(launch, total, at_once)
    if each >= total or not independent(launch.kernel):
        return False
    finished = 0

    def work(number: int) -> tuple[int, Stats, object]:
        ctas, did = min(each, total - number * each), Stats()
        Machine(launch, geometry_of(launch, number * each, ctas), did).run()
        return ctas, did, None if observer is None else observer.take()

    def done(result: tuple[int, Stats, object]) -> None:
        nonlocal finished
        finished += result[0]
        stats.steps, stats.threads = stats.steps + result[1].steps, stats.threads + result[1].threads
        if observer is not None:
            observer.add(launch.kernel, result[2])
        if launch.progress:
            launch.progress(finished, total)

    return run_batches(work, -(-total // each), launch.memory, done)


def _ctas_of_batch(launch: KernelRun, total: int, at_once: int) -> int:
    """CTAs that a process runs at a time: equal shares, unless the cost of steps exceeds that of threads."""
    one, processes = geometry_of(launch, 0, 1), cores()
    size, least = one.cluster_size, at_once
    if launch.kernel.uses(*MATRICES, OF_WARPGROUPS):
        least = align(-(-WARPS_OF_BATCH // one.warps), size)
    batches = -(-total // min(at_once, max(least, -(-total // processes))))
    batches = min(align(batches, processes), max(1, total // least))
    return min(at_once, align(-(-total // batches), size))


Work = Callable[[int], Any]
"""Runs the batch of a number; what it returns goes to the launching process."""


@dataclass
class _Worker:
    """A process, where it tells how far it is, and the batch it works on."""

    process: Any
    told: Connection
    batch: int = -1


def run_batches(work: Work, count: int, memory: GlobalBuffers, done: Callable[[Any], None]) -> bool:
    """Runs batches 0 to `count` - 1 side by side; `done` is called with what each returned. False if they cannot be:
    this process may have no children, or arrays overlap. Raises what the first batch raised that went wrong."""
    buffers = [b for b in memory.buffers() if b.writable and b.size]
    if _overlap(buffers):
        return False
    with _in_shared_memory(buffers):
        return side_by_side(work, count, done)


def side_by_side(
    work: Work, count: int, done: Callable[[Any], None], meanwhile: Callable[[], None] = lambda: None
) -> bool:
    """Does work 0 to `count` - 1 in processes; `done` is called with what each returned, and `meanwhile` when they have
    begun. False, and nothing was done, if this process may have no children. Raises what the first
    work raised that went wrong."""
    import multiprocessing  # 10 ms, which a run in one process does not wait for

    if multiprocessing.current_process().daemon:
        return False
    context = multiprocessing.get_context("fork")
    following = context.Value("q", 0)
    workers = [_start(context, work, following, count) for _ in range(min(cores(), count))]
    try:
        meanwhile()
        _gather(workers, following, count, done)
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.join()
            worker.told.close()
    return True


def _overlap(buffers: Sequence[Buffer]) -> bool:
    """Whether some of them are partly the same memory: copies of them would not be."""
    spans = sorted((b.data.ctypes.data, b.data.ctypes.data + b.size) for b in buffers)
    return any(end > start for (_, end), (start, _) in pairwise(spans))


@contextmanager
def _in_shared_memory(buffers: Sequence[Buffer]) -> Generator[None]:
    """A context in which the bytes of buffers lie in memory that processes share; they are copied back at its end."""
    owned = [buffer.data for buffer in buffers]
    for buffer in buffers:
        place = np.frombuffer(mmap.mmap(-1, buffer.size), np.uint8)
        place[...] = buffer.data
        buffer.move(place)
    try:
        yield
    finally:
        for buffer, data in zip(buffers, owned, strict=True):
            if not np.array_equal(data, buffer.data):
                data[...] = buffer.data
            buffer.move(data)


def _start(context: Any, work: Work, following: Any, count: int) -> _Worker:
    told, tell = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(work, following, count, tell), daemon=True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # who launched stops the process
    try:
        with warnings.catch_warnings():  # of threads that may hold locks, of which the process takes none
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        tell.close()
    return _Worker(process, told)


def _serve(work: Work, following: Any, count: int, tell: Connection) -> None:
    """Executes batches in a process of its own until none is left."""
    gc.freeze()  # what is there is the launching process's too, and copied where it is touched
    batch = -1
    try:
        while True:
            with following.get_lock():
                batch = following.value
                following.value += 1
            if batch >= count:
                return
            tell.send((batch, None, None))
            tell.send((batch, work(batch), None))
    except BaseException as error:
        tell.send((batch, None, _as_launch_error(error)))


def _as_launch_error(error: BaseException) -> Exception:
    """An error as the launching process is told of it."""
    if isinstance(error, MemoryError):
        return InterpreterError(f"a process that worked beside this one had no memory left; {_ALONE}")
    if isinstance(error, InterpreterError):
        return error
    return RuntimeError("".join(traceback.format_exception(error)))


_ALONE = f"{CORES}=1 runs them in this one"


def _ended(code: int) -> str:
    """A description of the end of a process that reported no error."""
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"was killed by {name}{', as is done where memory is short' if name == 'SIGKILL' else ''}"


def _gather(workers: Sequence[_Worker], following: Any, count: int, done: Callable[[Any], None]) -> None:
    """Waits for all batches; once one went wrong, for those before it."""
    from multiprocessing.connection import wait

    wrong: dict[int, BaseException] = {}
    by_pipe = {worker.told: worker for worker in workers}
    while by_pipe:
        first = min(wrong, default=count)
        for pipe in [pipe for pipe, worker in by_pipe.items() if worker.batch > first]:
            del by_pipe[pipe]
        for ready in wait(list(by_pipe)) if by_pipe else ():
            worker = by_pipe[ready]  # pyright: ignore[reportArgumentType]
            try:
                worker.batch, result, error = worker.told.recv()
            except EOFError:
                del by_pipe[worker.told]
                worker.process.join()
                if worker.process.exitcode:
                    raise InterpreterError(
                        f"a process that worked beside this one {_ended(worker.process.exitcode)}; {_ALONE}"
                    ) from None
                continue
            if error is not None:
                wrong[worker.batch] = error
                with following.get_lock():
                    following.value = count
            elif result is not None:
                done(result)
    if wrong:
        raise wrong[min(wrong)]
