"""The launches of a plan with their parameters packed once, for arrays of any addresses.

Source: CUDA Driver API, sections Execution Control and Tensor Map Object Management.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from threading import Lock
from typing import Any, NamedTuple, NoReturn, cast

import numpy as np

from ...dialect.ptx.text.syntax import Function, Variable, instructions
from ..arguments.arrays import Argument
from ..arguments.launch_values import LaunchValue, Packed, Scalar, alignment, check_alignment, pack
from ..base.errors import ArgumentError, CudaError
from ..base.launch import Launch, Mapped, Passed, Shifted, Word
from .driver import Gpu, LoadedKernel, call, encode_tensor_map, encoded_map, explain

# The driver's functions of a launch, called without the objects that cuda-bindings makes for each argument and result.
#
# Source: CUDA Driver API, sections Execution Control (`CUlaunchConfig`), Tensor Map Object Management and Context
# Management.


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
    """Functions of the driver on addresses and handles as numbers; each returns the driver's code, 0 for success."""

    def __init__(self, library: Any) -> None:
        self.launch = library.cuLaunchKernelEx  # (config, kernel, parameters, extra)
        self.launch.argtypes = (ctypes.c_void_p,) * 4
        self.move = library.cuTensorMapReplaceAddress  # (map, address)
        self.move.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        self._current = library.cuCtxGetCurrent
        self._current.argtypes = (ctypes.c_void_p,)

    def context(self) -> int:
        """The handle of the context of the calling thread; 0 for none."""
        handle = ctypes.c_void_p()
        self._current(ctypes.addressof(handle))
        return handle.value or 0


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


REMEMBERED = 1024
"""Launches whose parameters a module keeps."""


class _Pointer(NamedTuple):
    """Where an address goes in the parameters: that of the array at a position, so many bytes further, which the kernel
    wants to be a multiple of `alignment`."""

    word: ctypes.c_uint64
    position: int
    bytes: int
    alignment: int
    parameter: Variable


@dataclass
class _Map:
    """A tensor map among the parameters: the driver's object, which is updated when the array moves."""

    gpu: Gpu
    place: Mapped
    encoded: Any
    pointer: int
    address: int
    direct: Direct | None

    def point(self, addresses: Sequence[int]) -> None:
        """Lets it begin at the array's present address.

        Raises:
            CudaError: if the driver refuses that.
        """
        address = addresses[self.place.position] + self.place.bytes
        if address == self.address:
            return
        if self.direct is None or self.direct.move(self.pointer, address):
            code = self.gpu.driver.cuTensorMapReplaceAddress(self.encoded, address)
            call(f"moving a tensor map to {address:#x}", (*code, None))
        self.address = address


class DirectLaunch(NamedTuple):
    """The arguments of `cuLaunchKernelEx`. `address` is the address of the configuration, `parameters` that of the
    parameters."""

    config: LaunchConfig
    kernel: int
    address: int
    parameters: int


@dataclass(frozen=True)
class _Enqueue:
    """A prepared launch. `parameters` is the address of the parameter addresses; `storage` keeps them alive; `pointers`
    and `maps` follow the arrays. `config` is None if the driver needs the sizes only."""

    kernel: LoadedKernel
    launch: Launch
    parameters: int
    storage: object
    pointers: tuple[_Pointer, ...]
    maps: tuple[_Map, ...]
    config: Any = None
    packed: DirectLaunch | None = None

    def __call__(self, driver: Any, stream: int) -> Any:
        """Enqueues the launch and returns the driver's result."""
        launch, handle = self.launch, self.kernel.handle
        if self.config is None:
            grid, block = launch.grid, launch.block
            return driver.cuLaunchKernel(handle, *grid, *block, launch.shared, stream, self.parameters, 0)[0]
        self.config.hStream = stream
        return driver.cuLaunchKernelEx(self.config, handle, self.parameters, 0)[0]


class Launches:
    """The launches of a plan with their parameters packed, for arrays of any addresses.

    They are enqueued one after the other by one thread at a time: the driver copies parameters as it enqueues.
    """

    def __init__(
        self,
        gpu: Gpu,
        ptx: str,
        functions: Mapping[str, Function],
        launches: Sequence[Launch],
        values: Sequence[LaunchValue],
    ) -> None:
        module = gpu.load(ptx)
        self.gpu, self._lock = gpu, Lock()
        self.queue = tuple(_enqueue(module.kernel(x.kernel), functions[x.kernel], x, values) for x in launches)
        self._pointers = tuple(one for item in self.queue for one in item.pointers)
        self._maps = tuple(one for item in self.queue for one in item.maps)
        self._addresses: Sequence[int] = ()
        self._context, self._direct, self._stream = int(gpu.context), direct(gpu.driver), 0
        self._packed = tuple(item.packed for item in self.queue if item.packed is not None)

    def __call__(self, addresses: Sequence[int], stream: int) -> None:
        """Enqueues the launches on a CUDA stream. `addresses` are those of arrays, 0 for other values.

        Raises:
            ArgumentError: for an address without the alignment that a kernel needs.
            CudaError: if the driver refuses a launch. A fault inside a kernel shows when the stream is waited for.
        """
        driver, functions = self.gpu.driver, self._direct
        context = int(driver.cuCtxGetCurrent()[1]) if functions is None else functions.context()
        if context == self._context:
            self.enqueue(addresses, stream)
            return
        driver.cuCtxPushCurrent(self.gpu.context)
        try:
            self.enqueue(addresses, stream)
        finally:
            driver.cuCtxPopCurrent()

    def enqueue(self, addresses: Sequence[int], stream: int) -> None:
        """The same where the GPU's context is the calling thread's."""
        with self._lock:
            if addresses != self._addresses:
                self._point(addresses)
            if stream != self._stream:
                for launch in self._packed:
                    launch.config.stream = stream
                self._stream = stream
            if self._direct is not None:
                for at, (_, kernel, config, parameters) in enumerate(self._packed):
                    if code := self._direct.launch(config, kernel, parameters, None):
                        self._refuse(self.queue[at], self.gpu.driver.CUresult(code))
                return
            for item in self.queue:
                if code := item(self.gpu.driver, stream):
                    self._refuse(item, code)

    def _refuse(self, item: _Enqueue, code: Any) -> NoReturn:
        raise CudaError(f"launching {_describe(item)} failed: {explain(code)}")

    def _point(self, addresses: Sequence[int]) -> None:
        """Puts addresses into the parameters."""
        self._addresses = ()
        for word, position, bytes_, aligned, parameter in self._pointers:
            address = addresses[position] + bytes_
            if address % aligned:
                check_alignment(parameter, address, position)
            word.value = address
        for one in self._maps:
            one.point(addresses)
        self._addresses = list(addresses)

    def wait(self, stream: int) -> None:
        """Wait until everything on the stream is done.

        Raises:
            CudaError: naming the kernels, if one of them failed.
        """
        with self.gpu.current():
            (code,) = self.gpu.driver.cuStreamSynchronize(stream)
        if int(code) != 0:
            names = "; ".join(_describe(item) for item in self.queue)
            raise CudaError(f"{names} failed on {self.gpu.device}: {explain(code)}")


def launches_of(
    gpu: Gpu, ptx: str, functions: Mapping[str, Function], launches: tuple[Launch, ...], values: Sequence[LaunchValue]
) -> Launches:
    """The launches for these values, packed anew only where numbers are others than in earlier calls."""
    if any(isinstance(value, Packed) for value in values):
        return Launches(gpu, ptx, functions, launches, values)
    kept = gpu.load(ptx).enqueued
    key = (launches, *map(_identity, values))
    if (packed := cast("Launches | None", kept.get(key))) is None:
        if len(kept) >= REMEMBERED:
            kept.clear()
        packed = kept[key] = Launches(gpu, ptx, functions, launches, values)
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
            fields = replace(passed.fields, address=address_of(values[passed.position]) + passed.bytes)
            encoded = encoded_map(kernel.gpu, fields, PROMOTION)
            pointer = int(encoded.getPtr())
            maps.append(_Map(kernel.gpu, passed, encoded, pointer, fields.address, direct(kernel.gpu.driver)))
            storage.append(encoded)
            words.append(pointer)
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
    packed = None if direct(kernel.gpu.driver) is None else _packed(kernel, launch, config, ctypes.addressof(table))
    kept = (storage, table)
    return _Enqueue(kernel, launch, ctypes.addressof(table), kept, tuple(pointers), tuple(maps), config, packed)


def _packed(kernel: LoadedKernel, launch: Launch, config: Any, parameters: int) -> DirectLaunch:
    """A launch as arguments of the driver's own function. The caller keeps `config` alive."""
    if config is not None:
        packed = LaunchConfig.from_address(int(config.getPtr()))
    else:
        packed = LaunchConfig((ctypes.c_uint * 6)(*launch.grid, *launch.block), launch.shared)
    return DirectLaunch(packed, int(kernel.handle), ctypes.addressof(packed), parameters)


def _number(gpu: Gpu, parameter: Variable, passed: Passed, values: Sequence[LaunchValue]) -> bytes:
    """The bytes of a parameter other than an address: a number, or a struct whose pointers and maps are filled in."""
    if isinstance(passed, Word):
        return pack(parameter, passed.value)
    value = cast("Scalar | Packed", values[cast(int, passed)])
    if isinstance(value, Packed):
        return value.filled(lambda at: address_of(values[at]), partial(encode_tensor_map, gpu))
    return pack(parameter, value)


def _waits(function: Function) -> bool:
    """Whether a kernel itself waits for earlier launches. Then it may start before they end."""
    return any(instruction.opcode == "griddepcontrol.wait" for instruction in instructions(function.body or ()))


def _configuration(kernel: LoadedKernel, function: Function, launch: Launch) -> Any:
    """The launch attributes, if there are any: the cluster size, unless the kernel declares it, and programmatic stream
    serialisation. CUDA driver API, `CUlaunchAttributeID`."""
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


def address_of(value: LaunchValue) -> int:
    """The address of an array; 0 for other values."""
    return value.address if isinstance(value, Argument) else 0


def _own_clusters(function: Function) -> str:
    """The directive by which a kernel names its clusters; empty if it does not."""
    return next((d for d in function.directives if d.startswith(".reqnctapercluster")), "")


def _check_cluster(function: Function, launch: Launch) -> None:
    """Checks that a launch has the cluster of the kernel's `.reqnctapercluster`, which the driver uses."""
    written = _own_clusters(function)
    sizes = (*map(int, re.findall(r"\d+", written)), 1, 1)[:3]
    if launch.cluster is not None and written and sizes != launch.cluster:
        raise ArgumentError(
            f"kernel {launch.kernel}: on a GPU a launch has the clusters that .reqnctapercluster asks for, {sizes}, "
            f"got {launch.cluster}"
        )
