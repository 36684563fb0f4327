"""The launches of a plan with their parameters packed once, for arrays of any addresses.

The driver's functions are called without the objects that cuda-bindings makes for each argument and result.
Source: CUDA Driver API, sections Execution Control (`CUlaunchConfig`), Graph Management and Tensor Map Object
Management.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from threading import Lock
from typing import Any, NamedTuple, cast

import numpy as np

from ...dialect.isa.tensor_map import SIZE
from ...dialect.isa.wgmma import UNIT
from ...dialect.ptx.text.syntax import Function, Variable, instructions
from ..arguments.arrays import Argument
from ..arguments.launch_values import LaunchValue, Packed, Scalar, alignment, check_alignment, pack
from ..base.errors import ArgumentError, CudaError
from ..base.launch import Launch, Mapped, Passed, Shifted, Word
from .driver import Gpu, LoadedKernel, call, encode_tensor_map, encoded_map, explain

CLUSTER = ".reqnctapercluster"
"""The directive by which a kernel names its clusters."""

LIBRARY = "libcuda.so.1"
"""The driver, which cuda-bindings has loaded."""


class LaunchConfig(ctypes.Structure):
    """`CUlaunchConfig`; `sizes` are those of the grid and of the block."""

    _fields_ = (
        ("sizes", ctypes.c_uint * 6),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


class Direct:
    """Functions of the driver that return its code, 0 for success. They take `ctypes` objects, which are made once:
    ctypes takes longer to convert numbers than to call."""

    def __init__(self, library: Any) -> None:
        self.launch = library.cuLaunchKernelEx  # (config, kernel, parameters, extra)
        self.launch_graph = library.cuGraphLaunch  # (graph, stream)
        self.copy = library.cuMemcpyDtoDAsync_v2  # (to, from, bytes, stream)


@cache
def direct(driver: Any) -> Direct | None:
    """The functions of the loaded driver library; None if the module is not cuda-bindings."""
    if not getattr(driver, "__name__", "").startswith("cuda.bindings") or not sys.platform.startswith("linux"):
        return None
    try:
        return Direct(ctypes.CDLL(LIBRARY))
    except (OSError, AttributeError):
        return None


PROMOTION = 128
"""Bytes that L2 reads at once for the tensor maps of our own launches."""

FLIPPED = 0xFFFF_FFF0
"""Bits of an address that another one differs in, to see where a tensor map keeps it."""


REMEMBERED = 1024
"""Launches whose parameters a module keeps."""


class _Pointer(NamedTuple):
    """Where an address goes in the parameters: that of the array at a position, so many bytes further, which the kernel
    wants to be a multiple of `alignment`. The word is the parameter, or the first word of a tensor map."""

    word: ctypes.c_uint64
    position: int
    bytes: int
    alignment: int
    parameter: Variable


class _Map(NamedTuple):
    """A tensor map whose driver does not keep the address in the first word: the driver moves it."""

    gpu: Gpu
    place: Mapped
    encoded: Any

    def point(self, addresses: Sequence[int]) -> None:
        """Lets it begin at the array's present address. Raises CudaError if the driver refuses that."""
        address = addresses[self.place.position] + self.place.bytes
        code = self.gpu.driver.cuTensorMapReplaceAddress(self.encoded, address)
        call(f"moving a tensor map to {address:#x}", (*code, None))


@dataclass(frozen=True)
class _Enqueue:
    """A prepared launch: `call(*arguments)` enqueues it on the stream in `packed`, and returns the driver's code.
    `pointers` and `maps` follow the arrays; `storage` is what addresses in the arguments refer to."""

    kernel: LoadedKernel
    launch: Launch
    packed: LaunchConfig
    call: Callable[..., int]
    arguments: tuple[Any, ...]
    pointers: tuple[_Pointer, ...]
    maps: tuple[_Map, ...]
    storage: object


class GpuProgram(NamedTuple):
    """PTX text for a GPU, and its kernels by name."""

    gpu: Gpu
    ptx: str
    functions: Mapping[str, Function]


class Launches:
    """The launches of a plan with their parameters packed, for arrays of any addresses. They are enqueued one after the
    other by one thread at a time: the driver copies parameters as it enqueues. `calls` has for each launch a function
    that enqueues it and returns the driver's code, its arguments, and the launch."""

    def __init__(self, program: GpuProgram, launches: Sequence[Launch], values: Sequence[LaunchValue]) -> None:
        functions, module = program.functions, program.gpu.load(program.ptx)
        self.gpu, self._lock = program.gpu, Lock()
        self.queue = tuple(_enqueue(module.kernel(x.kernel), functions[x.kernel], x, values) for x in launches)
        self._pointers = tuple(one for item in self.queue for one in item.pointers)
        self._maps = tuple(one for item in self.queue for one in item.maps)
        self._addresses, self._stream = list[int](), 0
        self.calls = tuple((item.call, item.arguments, item) for item in self.queue)

    def __call__(self, addresses: list[int], stream: int) -> None:
        """Enqueues the launches on a CUDA stream. `addresses` are those of arrays, 0 for other values. Raises
        ArgumentError as `bind`; CudaError if the driver refuses a launch. A fault inside a kernel shows when the stream
        is waited for."""
        with self._lock:
            self.bind(addresses, stream)
            for enqueue, arguments, item in self.calls:
                if enqueue(*arguments):
                    self.again(item)

    def bind(self, addresses: list[int], stream: int) -> None:
        """Gives the launches addresses and a stream. Until others are bound, any thread may enqueue `calls`. Raises
        ArgumentError for an address without the alignment that a kernel needs."""
        if addresses != self._addresses:
            self._point(addresses)
        if stream != self._stream:
            for item in self.queue:
                item.packed.stream = stream
            self._stream = stream

    def again(self, item: _Enqueue) -> None:
        """Enqueues a launch that the driver refused, as it does where the GPU's context is not the calling thread's."""
        with self.gpu.current():
            if code := item.call(*item.arguments):
                raise CudaError(f"launching {_describe(item)} failed: {explain(code)}")

    def _point(self, addresses: Sequence[int]) -> None:
        self._addresses = []
        for word, position, bytes_, aligned, parameter in self._pointers:
            address = addresses[position] + bytes_
            if address % aligned:
                check_alignment(parameter, address, position, aligned)
            word.value = address
        for one in self._maps:
            one.point(addresses)
        self._addresses = list(addresses)

    def wait(self, stream: int) -> None:
        """Wait until everything on the stream is done. Raises CudaError naming the kernels, if one of them failed."""
        with self.gpu.current():
            (code,) = self.gpu.driver.cuStreamSynchronize(stream)
        if int(code) != 0:
            names = "; ".join(_describe(item) for item in self.queue)
            raise CudaError(f"{names} failed on {self.gpu.device}: {explain(code)}")


def graph_launch(driver: Any, handle: Any) -> Callable[[int], int]:
    """A function that enqueues a graph on a stream and returns the driver's code."""
    functions, graph = direct(driver), ctypes.c_void_p(int(handle))
    if functions is None:
        return lambda stream: driver.cuGraphLaunch(handle, stream)[0]
    return lambda stream: functions.launch_graph(graph, ctypes.c_void_p(stream))


def copier(driver: Any, to: int, size: int) -> Callable[[int, int], int]:
    """A function that enqueues a copy of `size` bytes of a GPU to the address `to`; it returns the driver's code."""
    functions, place, count = direct(driver), ctypes.c_uint64(to), ctypes.c_size_t(size)
    if functions is None:
        return lambda source, stream: driver.cuMemcpyDtoDAsync(to, source, size, stream)[0]
    return lambda source, stream: functions.copy(place, ctypes.c_uint64(source), count, ctypes.c_void_p(stream))


def launches_of(program: GpuProgram, launches: tuple[Launch, ...], values: Sequence[LaunchValue]) -> Launches:
    """The launches for these values, packed anew only where numbers are others than in earlier calls."""
    if any(isinstance(value, Packed) for value in values):
        return Launches(program, launches, values)
    kept = program.gpu.load(program.ptx).enqueued
    key = (launches, *map(_identity, values))
    if (packed := cast("Launches | None", kept.get(key))) is None:
        if len(kept) >= REMEMBERED:
            kept.clear()
        packed = kept[key] = Launches(program, launches, values)
    return packed


def _describe(item: _Enqueue) -> str:
    launch = item.launch
    return f"kernel {launch.kernel} (grid {launch.grid}, block {launch.block}, {launch.shared} bytes shared)"


def _identity(value: LaunchValue) -> object:
    """A key that is equal for values that are passed as the same bytes. Zeros of both signs differ."""
    if isinstance(value, Argument):
        return None
    bits = value.tobytes() if isinstance(value, np.generic) else value.hex() if isinstance(value, float) else value
    return type(value), bits


def _enqueue(kernel: LoadedKernel, function: Function, launch: Launch, values: Sequence[LaunchValue]) -> _Enqueue:
    kernel.reserve(launch.block, launch.shared)
    _check_cluster(function, launch)
    storage, pointers, maps, words = list[object](), list[_Pointer](), list[_Map](), list[int]()
    for parameter, passed in zip(function.parameters, launch.arguments, strict=True):
        if isinstance(passed, Mapped):
            encoded, word = _map(kernel.gpu, passed, address_of(values[passed.position]))
            if word is None:
                maps.append(_Map(kernel.gpu, passed, encoded))
            else:
                pointers.append(_Pointer(word, passed.position, passed.bytes, UNIT, parameter))
            storage.append(encoded)
            words.append(int(encoded.getPtr()))
            continue
        place = passed if isinstance(passed, Shifted) else None if isinstance(passed, Word) else Shifted(passed, 0)
        if place is not None and isinstance(values[place.position], Argument):
            word = ctypes.c_uint64()
            pointers.append(_Pointer(word, place.position, place.bytes, alignment(parameter), parameter))
        else:
            data = _number(kernel.gpu, parameter, passed, values)
            word = ctypes.create_string_buffer(data, len(data))
        storage.append(word)
        words.append(ctypes.addressof(word))
    table = (ctypes.c_void_p * max(1, len(words)))(*words)
    config = _configuration(kernel, function, launch)
    packed, (enqueue, *arguments) = _packed(kernel, launch, config, ctypes.addressof(table))
    kept = (storage, table, config)
    return _Enqueue(kernel, launch, packed, enqueue, tuple(arguments), tuple(pointers), tuple(maps), kept)


def _map(gpu: Gpu, place: Mapped, start: int) -> tuple[Any, ctypes.c_uint64 | None]:
    """A tensor map as the driver encodes it, and its first word, if that is the address and all else is alike."""
    fields = replace(place.fields, address=start + place.bytes)
    encoded = encoded_map(gpu, fields, PROMOTION)
    other = encode_tensor_map(gpu, replace(fields, address=fields.address ^ FLIPPED), PROMOTION)
    word = ctypes.c_uint64.from_address(int(encoded.getPtr()))
    data = ctypes.string_at(ctypes.addressof(word), SIZE)
    plain = (fields.address, fields.address ^ FLIPPED) == tuple(int.from_bytes(x[:8], "little") for x in (data, other))
    return encoded, word if plain and data[8:] == other[8:] else None


def _packed(kernel: LoadedKernel, launch: Launch, config: Any, parameters: int) -> tuple[LaunchConfig, tuple[Any, ...]]:
    """The configuration of a launch, and the function that enqueues it with its arguments. The caller keeps `config`
    alive, by which cuda-bindings knows attributes."""
    functions, handle = direct(kernel.gpu.driver), kernel.handle
    if config is None or functions is None:
        packed = LaunchConfig((ctypes.c_uint * 6)(*launch.grid, *launch.block), launch.shared)
    else:
        packed = LaunchConfig.from_address(int(config.getPtr()))
    if functions is None:
        return packed, (_through_bindings, kernel, config, packed, parameters)
    words = (ctypes.addressof(packed), int(handle), parameters, None)
    return packed, (functions.launch, *map(ctypes.c_void_p, words))


def _through_bindings(kernel: LoadedKernel, config: Any, packed: LaunchConfig, parameters: int) -> int:
    """Enqueues a launch by cuda-bindings; returns the driver's code."""
    driver, stream = kernel.gpu.driver, packed.stream or 0
    if config is None:
        return driver.cuLaunchKernel(kernel.handle, *packed.sizes, packed.shared, stream, parameters, 0)[0]
    config.hStream = stream
    return driver.cuLaunchKernelEx(config, kernel.handle, parameters, 0)[0]


def _number(gpu: Gpu, parameter: Variable, passed: Passed, values: Sequence[LaunchValue]) -> bytes:
    """The bytes of a parameter other than an address: a number, or a struct whose pointers and maps are filled in."""
    if isinstance(passed, Word):
        return pack(parameter, passed.value)
    value = cast("Scalar | Packed", values[cast(int, passed)])
    if isinstance(value, Packed):
        return value.filled(lambda at: address_of(values[at]), partial(encode_tensor_map, gpu))
    return pack(parameter, value)


def _configuration(kernel: LoadedKernel, function: Function, launch: Launch) -> Any:
    """The launch attributes, if there are any: the cluster size, unless the kernel declares it, and programmatic stream
    serialisation. CUDA driver API, `CUlaunchAttributeID`."""
    driver, attributes = kernel.gpu.driver, list[Any]()
    if kernel.waits is None:
        # what waits for earlier launches itself may start before they end
        kernel.waits = any(each.opcode == "griddepcontrol.wait" for each in instructions(function.body or ()))
    if launch.cluster is not None and not function.numbers(CLUSTER):
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
    attribute = driver.CUlaunchAttribute()
    attribute.id = getattr(driver.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}")
    among.append(attribute)
    return attribute.value


def address_of(value: LaunchValue) -> int:
    """The address of an array; 0 for other values."""
    return value.address if isinstance(value, Argument) else 0


def _check_cluster(function: Function, launch: Launch) -> None:
    """Checks that a launch has the cluster of the kernel's `.reqnctapercluster`, which the driver uses."""
    written = function.numbers(CLUSTER)
    sizes = (*(written or ()), 1, 1)[:3]
    if launch.cluster is not None and written and sizes != launch.cluster:
        raise ArgumentError(
            f"kernel {launch.kernel}: on a GPU a launch has the clusters that {CLUSTER} asks for, {sizes}, "
            f"got {launch.cluster}"
        )
