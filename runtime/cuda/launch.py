"""Launches on a GPU: parameters packed once, launches enqueued, host arrays copied, times measured."""

from __future__ import annotations

import statistics
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from typing import Any, cast

import numpy as np

from ..arguments.arrays import Argument
from ..arguments.launch_values import LaunchValue, Packed, in_memory
from ..base.errors import ArgumentError
from ..base.launch import Plan, ScratchBuffer
from .driver import Gpu, LoadedKernel, call, device_count, encode_tensor_map, gpu
from .launches import GpuProgram, Launches, address_of, graph_launch, launches_of

LEGACY_STREAM = 0


class ScratchMemory:
    """Scratch memory on a GPU, allocated in the order of a stream and freed in its order when this object goes."""

    def __init__(self, gpu: Gpu, buffers: Sequence[ScratchBuffer], stream: int) -> None:
        self.gpu, self.stream = gpu, stream
        self.addresses = tuple(map(self._allocate, buffers))

    def _allocate(self, buffer: ScratchBuffer) -> int:
        size = buffer.bytes
        with self.gpu.current():
            result = self.gpu.driver.cuMemAllocFromPoolAsync(max(1, size), self.gpu.pool, self.stream)
            address = int(call(f"allocating {size} bytes of scratch memory on the GPU", result))
            if buffer.data:
                copied = self.gpu.driver.cuMemcpyHtoDAsync(address, buffer.data, size, self.stream)
                call(f"copying a constant of {size} bytes to the GPU", copied)
            if buffer.zeroed:
                call("clearing scratch memory", self.gpu.driver.cuMemsetD8Async(address, 0, size, self.stream))
        weakref.finalize(self, _free, self.gpu, address, self.stream).atexit = False
        return address


class Prepared:
    """Launches on GPU memory, ready to be enqueued again and again.

    Calling it enqueues every kernel on `stream` and returns at once, without copying, checking or
    waiting: what a benchmark wants to time between two events. The arrays must stay alive.

    The plan's scratch memory is allocated, and zeroed once, in the order of the stream and freed in its order when this
    object goes, which may be right after a call on that stream; work on another stream must be done by then. Calls
    share it, so two must not run at the same time.
    """

    def __init__(self, program: GpuProgram, plan: Plan, values: Sequence[LaunchValue]) -> None:
        self.gpu = gpu = program.gpu
        self.stream = stream_of(gpu, values)
        self._owners = tuple(values)
        self._scratch = ScratchMemory(gpu, plan.scratch, self.stream)
        self._structs = list[ScratchMemory]()
        everything: list[LaunchValue] = [*values, *map(_memory, self._scratch.addresses)]
        for i in in_memory(values):
            data = cast(Packed, values[i]).filled(
                lambda at: address_of(everything[at]), partial(encode_tensor_map, gpu)
            )
            self._structs.append(ScratchMemory(gpu, (ScratchBuffer(len(data), data=data),), self.stream))
            everything[i] = _memory(*self._structs[-1].addresses)
        self._addresses = list(map(address_of, everything))
        self._made = partial(Launches, program, plan.launches, everything)
        self.launches = self._made()
        self.launches.bind(self._addresses, self.stream)
        self._calls = self.launches.calls

    @property
    def kernels(self) -> tuple[LoadedKernel, ...]:
        """The loaded kernels in the order of their launches, with the registers they need."""
        return tuple(item.kernel for item in self.launches.queue)

    def __call__(self, stream: int | None = None) -> None:
        """Enqueue the launches on a CUDA stream handle; by default on the stream the arrays' producer works on.

        Raises:
            CudaError: if the driver refuses a launch. A fault inside a kernel shows when the stream is waited for.
        """
        if stream is not None and stream != self.stream:
            self._elsewhere(self._addresses, stream)
            return
        for enqueue, arguments, item in self._calls:
            if enqueue(*arguments):
                self.launches.again(item)

    @cached_property
    def _elsewhere(self) -> Launches:
        """The same launches for other streams."""
        return self._made()

    def wait(self, stream: int | None = None) -> None:
        """Wait until everything on the stream is done. Raises CudaError, naming the kernels, if one of them failed."""
        self.launches.wait(self.stream if stream is None else stream)

    def graph(self) -> Graph:
        """The launches as a CUDA graph on the same arrays, which must stay alive.

        Raises:
            CudaError: if the driver makes none.
        """
        return Graph(self)


class Graph:
    """Prepared launches as a CUDA graph: one call of the driver for all of them.

    Source: CUDA Driver API, sections Stream Management (`cuStreamBeginCapture`) and Graph Management.
    """

    def __init__(self, prepared: Prepared) -> None:
        self.prepared, self._gpu = prepared, prepared.gpu
        driver = self._gpu.driver
        with self._gpu.current():
            stream = call("making a stream", driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
            mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
            call("capturing a graph", (*driver.cuStreamBeginCapture(stream, mode), None))
            try:
                prepared(int(stream))
            finally:
                captured = driver.cuStreamEndCapture(stream)
                driver.cuStreamDestroy(stream)
            recorded = call("capturing a graph", captured)
            self._handle = call("making a graph", driver.cuGraphInstantiate(recorded, 0))
            driver.cuGraphDestroy(recorded)
        self._launch = graph_launch(driver, self._handle)
        weakref.finalize(self, driver.cuGraphExecDestroy, self._handle).atexit = False

    def __call__(self, stream: int | None = None) -> None:
        """Enqueue all launches on a CUDA stream handle; by default on that of the prepared launches.

        Raises:
            CudaError: if the driver refuses the graph.
        """
        target = self.prepared.stream if stream is None else stream
        if self._launch(target):  # as it does where the GPU's context is not the calling thread's
            with self._gpu.current():
                call("launching a graph", (self._launch(target), None))


def _memory(address: int) -> Argument:
    """Memory of our own on the GPU."""
    return Argument(address, (), "ui8", 1, None, on_device=True, writable=True, owner=None)


def _free(gpu: Gpu, address: int, stream: int) -> None:
    with gpu.current():
        gpu.driver.cuMemFreeAsync(address, stream)


def gpu_of(values: Sequence[LaunchValue]) -> Gpu:
    """The GPU of the arrays in device memory; the first GPU if there are none. Raises ArgumentError if they are on
    different GPUs."""
    first = gpu(0)
    if device_count() == 1:
        return first
    places = {
        i: _ordinal(first, v) for i, v in enumerate(values) if isinstance(v, Argument) and v.on_device and v.nbytes
    }
    if len(set(places.values())) > 1:
        listed = ", ".join(f"argument {i} on GPU {place}" for i, place in places.items())
        raise ArgumentError(f"the arguments lie on different GPUs ({listed}); move them to one")
    return gpu(next(iter(places.values()), 0))


def _ordinal(any_gpu: Gpu, argument: Argument) -> int:
    attribute = any_gpu.driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    with any_gpu.current():
        result = any_gpu.driver.cuPointerGetAttribute(attribute, argument.address)
    return int(call(f"looking up GPU address {argument.address:#x}", result))


def stream_of(gpu: Gpu, values: Sequence[LaunchValue]) -> int:
    """The stream that the producers of the device arrays work on; of several the first, once the others are done."""
    streams = list(dict.fromkeys(v.stream for v in values if isinstance(v, Argument) and v.stream is not None))
    if not streams:
        return LEGACY_STREAM
    with gpu.current():
        for other in streams[1:]:
            call("waiting for an argument's stream", gpu.driver.cuStreamSynchronize(other))
    return streams[0]


def run(program: GpuProgram, plan: Plan, values: Sequence[LaunchValue], written: frozenset[int]) -> None:
    """Run the launches of a plan. Arrays on the GPU are used in place; host arrays are copied there, and those that are
    written back. With device arrays only, the launches are enqueued on their stream and not waited for."""
    gpu, staged = program.gpu, {i: v for i, v in enumerate(values) if isinstance(v, Argument) and not v.on_device}
    if not staged:
        _enqueued(program, plan, values, stream_of(gpu, values))
        return
    with ExitStack() as stack:
        stack.enter_context(gpu.current())
        stream = stream_of(gpu, values)
        copies = _copies(gpu, stack, staged, stream)
        placed = [copies.get(i, value) for i, value in enumerate(values)]
        _enqueued(program, plan, placed, stream).wait(stream)
        for i, value in staged.items():
            if i in written:
                copy_out(gpu, value, copies[i])


def _enqueued(program: GpuProgram, plan: Plan, values: Sequence[LaunchValue], stream: int) -> Launches:
    """The launches of a plan, enqueued on a stream with scratch memory that lives as long as this call."""
    if in_memory(values):
        prepared = Prepared(program, plan, values)
        prepared(stream)
        return prepared.launches
    scratch = ScratchMemory(program.gpu, plan.scratch, stream)
    everything = [*values, *map(_memory, scratch.addresses)]
    launches = launches_of(program, plan.launches, everything)
    launches(list(map(address_of, everything)), stream)
    return launches


def packed(program: GpuProgram, plan: Plan, values: Sequence[LaunchValue]) -> Launches:
    """The launches of a plan with their parameters packed, for addresses of arrays and then of scratch memory."""
    return launches_of(program, plan.launches, [*values, *(_memory(0) for _ in plan.scratch)])


def _copies(gpu: Gpu, stack: ExitStack, staged: dict[int, Argument], stream: int) -> dict[int, Argument]:
    """Copies of host arrays on the GPU, one for each array, even if it is passed twice."""
    once: dict[tuple[object, ...], Argument] = {}
    copies: dict[int, Argument] = {}
    for i, value in staged.items():
        key = (value.address, value.nbytes, value.shape, value.element)
        if key not in once:
            once[key] = copy_in(gpu, stack, value, stream)
        copies[i] = once[key]
    return copies


def copy_in(gpu: Gpu, stack: ExitStack, value: Any, stream: int) -> Argument:
    """A copy of a host array on the GPU, freed when the stack unwinds."""
    driver = gpu.driver
    address = call(f"allocating {value.nbytes} bytes on the GPU", driver.cuMemAlloc(max(1, value.nbytes)))
    stack.callback(driver.cuMemFree, address)
    if value.nbytes:
        call("copying to the GPU", driver.cuMemcpyHtoDAsync(address, value.address, value.nbytes, stream))
    return Argument(
        int(address), value.shape, value.element, value.itemsize, None, on_device=True, writable=True, owner=value
    )


def copy_out(gpu: Gpu, host: Argument, device: Argument) -> None:
    """Copies an array on the GPU back into the host's."""
    if not host.nbytes:
        return
    if host.contiguous:
        call("copying from the GPU", gpu.driver.cuMemcpyDtoH(host.address, device.address, host.nbytes))
        return
    # What lies between the elements is not the kernel's.
    span = np.empty(host.nbytes, np.uint8)
    call("copying from the GPU", gpu.driver.cuMemcpyDtoH(span.ctypes.data, device.address, host.nbytes))
    host.elements(host.array())[...] = host.elements(span)


# How long launches take on a GPU: the median between two events, with the L2 cache emptied before each.
#
# Source: CUDA Driver API, section Event Management.

FLUSH_BYTES = 256 << 20
"""More than any L2; writing it evicts the operands."""

WARM_UP, REPEATS = 3, 20
"""Calls before those that are timed, and those."""


@contextmanager
def timer(gpu: Gpu) -> Generator[Callable[[Prepared], float]]:
    """A function that returns the median time of one call of prepared launches, in microseconds. It holds memory on the
    GPU while this context lasts, and raises CudaError if a launch fails."""
    driver = gpu.driver
    with gpu.current():
        flush = call("allocating memory to empty the cache with", driver.cuMemAlloc(FLUSH_BYTES))
        start, end = (call("making an event", driver.cuEventCreate(0)) for _ in range(2))

    def microseconds(launches: Prepared) -> float:
        stream, times = launches.stream, list[float]()
        for _ in range(WARM_UP):
            launches()
        launches.wait()
        with gpu.current():
            for _ in range(REPEATS):
                call("emptying the cache", driver.cuMemsetD8Async(flush, 0, FLUSH_BYTES, stream))
                call("recording an event", driver.cuEventRecord(start, stream))
                launches()
                call("recording an event", driver.cuEventRecord(end, stream))
                launches.wait()
                times.append(1e3 * float(call("reading an event", driver.cuEventElapsedTime(start, end))))
        return statistics.median(times)

    try:
        yield microseconds
    finally:
        with gpu.current():
            driver.cuMemFree(flush)
            for event in (start, end):
                driver.cuEventDestroy(event)
