"""Launches on a GPU: parameters packed once, launches enqueued, host arrays copied, times measured."""

from __future__ import annotations

import ctypes
import re
import statistics
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Any, cast

import numpy as np

from ...dialect.ptx.text.syntax import Function, instructions
from ..arguments.arrays import Argument
from ..arguments.launch_values import LaunchValue, Packed, check_alignment, in_memory, pack
from ..base.errors import ArgumentError, CudaError
from ..base.launch import Launch, Mapped, Plan, ScratchBuffer, Shifted, Word
from .driver import Gpu, LoadedKernel, LoadedModule, call, device_count, encode_tensor_map, explain, gpu

# Launching on a GPU: parameters packed once, launches enqueued at will, host arrays copied there and back.

LEGACY_STREAM = 0


PROMOTION = 128
"""Bytes that L2 reads at once for the tensor maps of our own launches."""


REMEMBERED = 1024
"""Launches whose parameters a module keeps."""


@dataclass(frozen=True)
class _Enqueue:
    """A launch ready to go. `parameters` is the address of the parameters' addresses; `storage` keeps them alive;
    `config` is there where the driver is told more than sizes."""

    kernel: LoadedKernel
    launch: Launch
    parameters: int
    storage: object
    config: Any = None
    lock: Lock = field(default_factory=Lock)

    def __call__(self, driver: Any, stream: int) -> Any:
        """Enqueues it; what the driver says."""
        launch, handle = self.launch, self.kernel.handle
        if self.config is None:
            grid, block = launch.grid, launch.block
            return driver.cuLaunchKernel(handle, *grid, *block, launch.shared, stream, self.parameters, 0)[0]
        with self.lock:
            self.config.hStream = stream
            return driver.cuLaunchKernelEx(self.config, handle, self.parameters, 0)[0]


class Prepared:
    """Launches on GPU memory, ready to be enqueued again and again.

    Calling it enqueues every kernel on `stream` and returns at once, without copying, checking or
    waiting: what a benchmark wants to time between two events. The arrays must stay alive.

    The plan's scratch memory is allocated, and zeroed once, in the order of the stream and freed in its order when this
    object goes, which may be right after a call on that stream; work on another stream must be done by then. Calls
    share it, so two must not run at the same time.
    """

    def __init__(
        self,
        gpu: Gpu,
        ptx: str,
        functions: dict[str, Function],
        plan: Plan,
        values: Sequence[LaunchValue],
    ) -> None:
        self.gpu = gpu
        self.stream = stream_of(gpu, values)
        self._owners = tuple(values)
        module = gpu.load(ptx)
        everything = [*values, *map(self._allocate, plan.scratch)]
        for i in in_memory(values):
            data = cast(Packed, values[i]).filled(lambda at: _address(everything[at]), partial(encode_tensor_map, gpu))
            everything[i] = self._allocate(ScratchBuffer(len(data), data=data))
        self._queue = tuple(_remembered(module, functions[x.kernel], x, everything) for x in plan.launches)

    def _allocate(self, buffer: ScratchBuffer) -> Argument:
        """Memory that lives as long as this object."""
        size = buffer.bytes
        with self.gpu.current():
            result = self.gpu.driver.cuMemAllocAsync(max(1, size), self.stream)
            address = int(call(f"allocating {size} bytes of scratch memory on the GPU", result))
            if buffer.data:
                copied = self.gpu.driver.cuMemcpyHtoDAsync(address, buffer.data, size, self.stream)
                call(f"copying a constant of {size} bytes to the GPU", copied)
            if buffer.zeroed:
                call("clearing scratch memory", self.gpu.driver.cuMemsetD8Async(address, 0, size, self.stream))
        weakref.finalize(self, _free, self.gpu, address, self.stream).atexit = False
        return Argument(address, (size,), "ui8", 1, None, on_device=True, writable=True, owner=None)

    @property
    def kernels(self) -> tuple[LoadedKernel, ...]:
        """The loaded kernels in the order of their launches, with the registers they need."""
        return tuple(item.kernel for item in self._queue)

    def __call__(self, stream: int | None = None) -> None:
        """Enqueue the launches on a CUDA stream handle; by default on the stream the arrays' producer works on.

        Raises:
            CudaError: if the driver refuses a launch. A fault inside a kernel shows when the stream is waited for.
        """
        driver = self.gpu.driver
        target = self.stream if stream is None else stream
        driver.cuCtxPushCurrent(self.gpu.context)
        try:
            for item in self._queue:
                code = item(driver, target)
                if int(code) != 0:
                    raise CudaError(f"launching {_describe(item)} failed: {explain(code)}")
        finally:
            driver.cuCtxPopCurrent()

    def wait(self, stream: int | None = None) -> None:
        """Wait until everything on the stream is done.

        Raises:
            CudaError: naming the kernels, if one of them failed.
        """
        target = self.stream if stream is None else stream
        with self.gpu.current():
            (code,) = self.gpu.driver.cuStreamSynchronize(target)
        if int(code) != 0:
            names = "; ".join(_describe(item) for item in self._queue)
            raise CudaError(f"{names} failed on {self.gpu.device}: {explain(code)}")


def _free(gpu: Gpu, address: int, stream: int) -> None:
    with gpu.current():
        gpu.driver.cuMemFreeAsync(address, stream)


def _describe(item: _Enqueue) -> str:
    launch = item.launch
    return f"kernel {launch.kernel} (grid {launch.grid}, block {launch.block}, {launch.shared} bytes shared)"


def _remembered(module: LoadedModule, function: Function, launch: Launch, values: Sequence[LaunchValue]) -> _Enqueue:
    """The launch with its parameters, packed anew only where addresses or numbers are others than in earlier calls."""
    kernel = module.kernel(launch.kernel)
    if any(isinstance(value, Packed) for value in values):
        return _enqueue(kernel, function, launch, values)
    key = (launch, *map(_identity, values))
    enqueue = cast("_Enqueue | None", module.enqueued.get(key))
    if enqueue is None:
        if len(module.enqueued) >= REMEMBERED:
            module.enqueued.clear()
        enqueue = module.enqueued[key] = _enqueue(kernel, function, launch, values)
    return enqueue


def _identity(value: LaunchValue) -> object:
    """What tells a value from others that are passed as other bytes: numbers of either zero are equal."""
    if isinstance(value, Argument):
        return value.address
    bits = value.tobytes() if isinstance(value, np.generic) else value.hex() if isinstance(value, float) else value
    return type(value), bits


def _enqueue(kernel: LoadedKernel, function: Function, launch: Launch, values: Sequence[LaunchValue]) -> _Enqueue:
    kernel.reserve(launch.block, launch.shared)
    _check_cluster(function, launch)
    words: list[bytes] = []
    for parameter, position in zip(function.parameters, launch.arguments, strict=True):
        if isinstance(position, Word):
            words.append(pack(parameter, position.value))
            continue
        if isinstance(position, Mapped):
            fields = replace(position.fields, address=_address(values[position.position]) + position.bytes)
            words.append(encode_tensor_map(kernel.gpu, fields, PROMOTION))
            continue
        place = position if isinstance(position, Shifted) else Shifted(position, 0)
        value = values[place.position]
        if isinstance(value, Argument):
            address = value.address + place.bytes
            check_alignment(parameter, address, place.position)
            words.append(address.to_bytes(8, "little"))
        elif isinstance(value, Packed):
            words.append(value.filled(lambda at: _address(values[at]), partial(encode_tensor_map, kernel.gpu)))
        else:
            words.append(pack(parameter, value))
    buffers = [ctypes.create_string_buffer(word, len(word)) for word in words]
    pointers = (ctypes.c_void_p * max(1, len(buffers)))(*(ctypes.addressof(b) for b in buffers))
    config = _configuration(kernel, function, launch)
    return _Enqueue(kernel, launch, ctypes.addressof(pointers), (buffers, pointers), config)


def _waits(function: Function) -> bool:
    """Whether a kernel waits by itself for what was launched before it, as it then may start before that ends."""
    return any(instruction.opcode == "griddepcontrol.wait" for instruction in instructions(function.body or ()))


def _configuration(kernel: LoadedKernel, function: Function, launch: Launch) -> Any:
    """What a launch asks for beside its sizes, if anything: clusters that the kernel does not name itself, and that it
    may start before those before it in its stream end. CUDA driver API, `CUlaunchAttributeID`."""
    driver, attributes = kernel.gpu.driver, list[Any]()
    if kernel.waits is None:
        kernel.waits = _waits(function)
    if launch.cluster is not None and not _own_clusters(function):
        attribute = _attribute(driver, "CLUSTER_DIMENSION", attributes)
        attribute.clusterDim.x, attribute.clusterDim.y, attribute.clusterDim.z = launch.cluster
    if kernel.waits:
        _attribute(driver, "PROGRAMMATIC_STREAM_SERIALIZATION", attributes).programmaticStreamSerializationAllowed = 1
    if not attributes:
        return None
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
    config.sharedMemBytes, config.attrs, config.numAttrs = launch.shared, attributes, len(attributes)
    return config


def _attribute(driver: Any, name: str, among: list[Any]) -> Any:
    """The value of one more attribute."""
    attribute = driver.CUlaunchAttribute()
    attribute.id = getattr(driver.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}")
    among.append(attribute)
    return attribute.value


def _address(value: LaunchValue) -> int:
    return value.address if isinstance(value, Argument) else 0


def _own_clusters(function: Function) -> str:
    """The directive by which a kernel names its clusters; empty if it does not."""
    return next((d for d in function.directives if d.startswith(".reqnctapercluster")), "")


def _check_cluster(function: Function, launch: Launch) -> None:
    """The driver takes the clusters from the kernel's own directive, where there is one."""
    written = _own_clusters(function)
    sizes = (*map(int, re.findall(r"\d+", written)), 1, 1)[:3]
    if launch.cluster is not None and written and sizes != launch.cluster:
        raise ArgumentError(
            f"kernel {launch.kernel}: on a GPU a launch has the clusters that .reqnctapercluster asks for, {sizes}, "
            f"got {launch.cluster}"
        )


def gpu_of(values: Sequence[LaunchValue]) -> Gpu:
    """The GPU that the arrays in device memory lie on; the first GPU if there are none.

    Raises:
        ArgumentError: if they lie on different GPUs.
    """
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
    """The stream the producers of the device arrays work on; where they work on several, the first, once the
    others are done."""
    streams = list(dict.fromkeys(v.stream for v in values if isinstance(v, Argument) and v.stream is not None))
    if not streams:
        return LEGACY_STREAM
    with gpu.current():
        for other in streams[1:]:
            call("waiting for an argument's stream", gpu.driver.cuStreamSynchronize(other))
    return streams[0]


def run(
    gpu: Gpu,
    ptx: str,
    functions: dict[str, Function],
    plan: Plan,
    values: Sequence[LaunchValue],
    written: frozenset[int],
) -> None:
    """Run the launches of a plan. Arrays on the GPU are used in place; host arrays are copied there, and those that are
    written back.

    With device arrays only, the launches are enqueued on their stream and not waited for.
    """
    staged = {i: v for i, v in enumerate(values) if isinstance(v, Argument) and not v.on_device}
    if not staged:
        Prepared(gpu, ptx, functions, plan, values)()
        return
    with ExitStack() as stack:
        stack.enter_context(gpu.current())
        stream = stream_of(gpu, values)
        copies = _copies(gpu, stack, staged, stream)
        placed = [copies.get(i, value) for i, value in enumerate(values)]
        prepared = Prepared(gpu, ptx, functions, plan, placed)
        prepared(stream)
        prepared.wait(stream)
        for i, value in staged.items():
            if i in written:
                copy_out(gpu, value, copies[i])


def _copies(gpu: Gpu, stack: ExitStack, staged: dict[int, Argument], stream: int) -> dict[int, Argument]:
    """Copies of host arrays on the GPU; of an array that is given twice there is one."""
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
