"""The CUDA driver, through cuda-bindings: devices, modules, memory, and errors fit to read.

Nothing here is imported, and no driver is touched, until a GPU is asked for. Kernels run in a device's primary
context, which torch, cupy and the CUDA runtime share.
Source: CUDA Driver API, sections Primary Context, Module, Memory, Execution Control.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from typing import Any

from ...dialect.isa.row import TARGETS, UnknownTargetError
from ...dialect.isa.row import target as target_row
from ...dialect.isa.tensor_map import SIZE, PixelBox, TensorMapFields
from ..base.errors import CudaError, DeviceUnavailableError

KIB = 1024
DEFAULT_SHARED = 48 * KIB
"""Bytes of shared memory that a kernel may use without asking."""

LOG_BYTES = 64 * KIB

KEPT_BYTES = 256 << 20
"""Scratch memory that a GPU keeps for later calls when a stream is waited for."""

_HINTS = {
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "the driver is older than the PTX: update it, or lower .version",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "the PTX was made for another GPU: choose its target",
    "CUDA_ERROR_OUT_OF_MEMORY": "the GPU has too little free memory for the arguments",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "the block needs more registers or shared memory than a multiprocessor has",
}
_KERNEL_FAULTS = (
    "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_ILLEGAL_INSTRUCTION", "CUDA_ERROR_MISALIGNED_ADDRESS",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE", "CUDA_ERROR_INVALID_PC", "CUDA_ERROR_LAUNCH_FAILED",
    "CUDA_ERROR_LAUNCH_TIMEOUT", "CUDA_ERROR_HARDWARE_STACK_ERROR", "CUDA_ERROR_ASSERT",
)  # fmt: skip


@dataclass(frozen=True)
class GpuDevice:
    """One GPU: `capability` (9, 0) is sm_90; `driver` is the CUDA version the driver speaks; `shared` the most
    bytes of shared memory one CTA can be given."""

    ordinal: int
    name: str
    capability: tuple[int, int]
    driver: str
    multiprocessors: int
    shared: int

    @property
    def sm(self) -> int:
        return 10 * self.capability[0] + self.capability[1]

    @property
    def target(self) -> str:
        """The most specific target that the device runs, such as "sm_90a"."""
        for name in (f"sm_{self.sm}a", f"sm_{self.sm}"):
            if name in TARGETS:
                return name
        older = [row for row in TARGETS.values() if row.sm <= self.sm and not row.suffix]
        return max(older, key=lambda row: row.sm).name if older else f"sm_{self.sm}"

    def runs(self, target: str) -> bool:
        """Whether PTX with `.target target` runs here: exactly (sm_90a), in a family (sm_100f), or from an sm on."""
        try:
            return target_row(target).runs_on(self.sm)
        except UnknownTargetError:
            return True

    def __str__(self) -> str:
        return f"{self.name} (sm_{self.sm}, driver {self.driver})"


def call(what: str, result: tuple[Any, ...]) -> Any:
    """The values a driver call returned. Raises CudaError saying `what` failed, with the code's name and meaning,
    unless it succeeded."""
    code, *values = result
    if int(code) != 0:
        raise CudaError(f"{what} failed: {explain(code)}")
    return values[0] if len(values) == 1 else tuple(values)


def explain(code: Any) -> str:
    """The name of a result code, its meaning, and the fix if one is known."""
    driver = load_driver()
    code = driver.CUresult(code) if type(code) is int else code
    name, meaning = (_text(get(code)) for get in (driver.cuGetErrorName, driver.cuGetErrorString))
    text = f"{name or int(code)}: {meaning or 'unknown error'}"
    if name in _KERNEL_FAULTS:
        text += " (the GPU context is unusable from here on; device='interp' shows the faulting instruction)"
    return f"{text} ({_HINTS[name]})" if name in _HINTS else text


def _text(result: tuple[Any, ...]) -> str:
    return result[1].decode() if int(result[0]) == 0 and result[1] else ""


@cache
def load_driver() -> Any:
    """The module cuda.bindings.driver, initialised. Raises DeviceUnavailableError saying whether the package, the
    driver library or the device is missing."""
    try:
        driver: Any = import_module("cuda.bindings.driver")
    except ImportError as error:
        raise _unavailable(
            f"the package cuda-bindings cannot be imported ({error}): pip install 'warploom[cuda]'"
        ) from error
    try:
        code = driver.cuInit(0)[0]
    except (RuntimeError, OSError) as error:
        reason = str(error).strip().split("\n")[0]
        raise _unavailable(f"the NVIDIA driver library (libcuda) cannot be loaded: {reason}") from error
    if int(code) != 0:
        name = _text(driver.cuGetErrorName(code)) or f"error {int(code)}"
        raise _unavailable(f"the driver found no usable device: {name}: {_text(driver.cuGetErrorString(code))}")
    return driver


def _unavailable(reason: str) -> DeviceUnavailableError:
    return DeviceUnavailableError(f"no GPU: {reason}", "device='interp' runs without one")


@cache
def device_count() -> int:
    """How many GPUs the driver reports. Raises DeviceUnavailableError if there is no driver."""
    return int(call("counting the GPUs", load_driver().cuDeviceGetCount()))


@cache
def gpu(ordinal: int = 0) -> Gpu:
    """The GPU with this number (CUDA_VISIBLE_DEVICES chooses which is 0). Raises DeviceUnavailableError if there is
    none."""
    count = device_count()
    if ordinal >= count:
        raise _unavailable(f"the driver reports {count} devices, number {ordinal} was asked for")
    return Gpu(ordinal)


class Gpu:
    """One device and its primary context."""

    def __init__(self, ordinal: int) -> None:
        self.driver = load_driver()
        self.handle = call("opening the GPU", self.driver.cuDeviceGet(ordinal))
        self.context = call("opening the GPU's context", self.driver.cuDevicePrimaryCtxRetain(self.handle))
        self._modules: dict[str, LoadedModule] = {}
        self._ordinal = ordinal

    @cached_property
    def device(self) -> GpuDevice:
        names = self.driver.CUdevice_attribute
        version = call("asking for the driver's version", self.driver.cuDriverGetVersion())
        name: bytes = call("asking for the GPU's name", self.driver.cuDeviceGetName(256, self.handle))
        return GpuDevice(
            ordinal=self._ordinal,
            name=name.split(b"\0")[0].decode(),
            capability=(
                self._attribute(names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                self._attribute(names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
            ),
            driver=f"{version // 1000}.{version % 1000 // 10}",
            multiprocessors=self._attribute(names.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
            shared=self._attribute(names.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        )

    @cached_property
    def pool(self) -> Any:
        """The memory that calls allocate in the order of streams. The device's own pool gives all of it back whenever a
        stream is waited for, and the next call maps it anew, which takes longer than most kernels. Source: CUDA Driver
        API, section Stream Ordered Memory Allocator."""
        driver, place, fields = self.driver, self.driver.CUmemLocation(), self.driver.CUmemPoolProps()
        place.type, place.id = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, self._ordinal
        fields.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        fields.location = place
        pool = call("making a pool of scratch memory", driver.cuMemPoolCreate(fields))
        attribute = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        kept = driver.cuMemPoolSetAttribute(pool, attribute, driver.cuuint64_t(KEPT_BYTES))
        call("keeping scratch memory", (*kept, None))
        return pool

    def _attribute(self, name: Any) -> int:
        return int(call("asking for a property of the GPU", self.driver.cuDeviceGetAttribute(name, self.handle)))

    @contextmanager
    def current(self) -> Generator[None]:
        """A context manager that makes the CUDA context current in this thread."""
        call("entering the GPU's context", self.driver.cuCtxPushCurrent(self.context))
        try:
            yield
        finally:
            self.driver.cuCtxPopCurrent()

    def load(self, ptx: str, code: Callable[[], bytes] = bytes) -> LoadedModule:
        """The module of this PTX text, compiled by the driver once and kept for the life of the process. `code` makes
        its machine code, empty if there is none; what the device does not take is compiled from the text. Raises
        CudaError with the driver's log, if it rejects the text."""
        if ptx not in self._modules:
            self._modules[ptx] = LoadedModule(self, ptx, code())
        return self._modules[ptx]


class LoadedModule:
    """PTX loaded on a GPU. `log` is what the driver said of it, `enqueued` launches by what they were given."""

    def __init__(self, gpu: Gpu, ptx: str, code: bytes = b"") -> None:
        self.gpu = gpu
        self.enqueued: dict[tuple[object, ...], object] = {}
        self._kernels: dict[str, LoadedKernel] = {}
        option = gpu.driver.CUjit_option
        info, errors = bytearray(LOG_BYTES), bytearray(LOG_BYTES)
        options = {
            option.CU_JIT_INFO_LOG_BUFFER: info,
            option.CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES: LOG_BYTES,
            option.CU_JIT_ERROR_LOG_BUFFER: errors,
            option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: LOG_BYTES,
            option.CU_JIT_LOG_VERBOSE: 1,
        }
        with gpu.current():
            result: tuple[Any, ...] = gpu.driver.cuModuleLoadData(code) if code else (-1,)
            if int(result[0]) != 0:
                names, data = list(options), list(options.values())
                result = gpu.driver.cuModuleLoadDataEx(ptx.encode() + b"\0", len(options), names, data)
        self.log = _log(info)
        if int(result[0]) != 0:
            details = "\n".join(text for text in (_log(errors), self.log) if text)
            raise CudaError(f"loading the PTX on {gpu.device} failed: {explain(result[0])}\n{details}".rstrip())
        self._handle = result[1]

    def kernel(self, name: str) -> LoadedKernel:
        """The kernel called `name`. Raises CudaError if the module has none."""
        if name not in self._kernels:
            with self.gpu.current():
                result = self.gpu.driver.cuModuleGetFunction(self._handle, name.encode())
            self._kernels[name] = LoadedKernel(self.gpu, name, call(f"looking for kernel {name}", result))
        return self._kernels[name]


def _log(buffer: bytearray) -> str:
    return buffer.split(b"\0")[0].decode(errors="replace").strip()


class LoadedKernel:
    """A kernel on a GPU, and what it needs there: registers a thread, spilled and shared bytes. `waits` says whether it
    waits by itself for the launch before it; None until its first launch has looked."""

    def __init__(self, gpu: Gpu, name: str, handle: Any) -> None:
        self.gpu, self.name, self.handle = gpu, name, handle
        self.waits: bool | None = None
        names = gpu.driver.CUfunction_attribute
        self.registers = self._attribute(names.CU_FUNC_ATTRIBUTE_NUM_REGS)
        self.local = self._attribute(names.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)
        self.shared = self._attribute(names.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
        self.threads = self._attribute(names.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
        self._granted = DEFAULT_SHARED - self.shared

    def _attribute(self, name: Any) -> int:
        result = self.gpu.driver.cuFuncGetAttribute(name, self.handle)
        return int(call(f"asking about kernel {self.name}", result))

    def reserve(self, block: tuple[int, int, int], shared: int) -> None:
        """Checks that a block of this size with `shared` bytes of dynamic shared memory can be launched, and enables
        it. Raises CudaError with what the kernel needs and what the device has."""
        threads = block[0] * block[1] * block[2]
        if threads > self.threads:
            raise CudaError(
                f"kernel {self.name}: a block of {threads} threads was asked for, "
                f"with {self.registers} registers each it can have at most {self.threads}"
            )
        if shared <= self._granted:
            return
        device = self.gpu.device
        if shared + self.shared > device.shared:
            raise CudaError(
                f"kernel {self.name}: {shared} bytes of dynamic and {self.shared} of static shared memory do not fit "
                f"{device}, which has {device.shared} a block"
            )
        attribute = self.gpu.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        with self.gpu.current():
            result = self.gpu.driver.cuFuncSetAttribute(self.handle, attribute, shared)
        call(f"reserving {shared} bytes of shared memory for kernel {self.name}", result)
        self._granted = shared


def encode_tensor_map(gpu: Gpu, fields: TensorMapFields, promotion: int) -> bytes:
    """The 128 bytes of a tensor map; see `encoded_map`."""
    return ctypes.string_at(encoded_map(gpu, fields, promotion).getPtr(), SIZE)


def encoded_map(gpu: Gpu, fields: TensorMapFields, promotion: int) -> Any:
    """A tensor map as the driver encodes it, a `CUtensorMap`; `promotion` is 0, 64, 128 or 256 bytes. Raises CudaError
    if the driver refuses it."""
    driver, box = gpu.driver, fields.box
    rank, size = len(fields.sizes), fields.element.size / fields.element.together
    # the bindings want a stride of a vector, too, which nothing reads
    strides = fields.strides or (int(-(-fields.sizes[0] * size // 16)) * 16,)
    if isinstance(box, PixelBox):
        name = "cuTensorMapEncodeIm2col"
        moved = (list(box.lower), list(box.upper), box.channels, box.pixels)
    else:
        name = "cuTensorMapEncodeTiled"
        moved = ([driver.cuuint32_t(n) for n in box],)
    with gpu.current():
        result = getattr(driver, name)(
            getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{fields.element.driver}"),
            rank,
            fields.address,
            [driver.cuuint64_t(n) for n in fields.sizes],
            [driver.cuuint64_t(n) for n in strides],
            *moved,
            [driver.cuuint32_t(n) for n in fields.steps],
            getattr(driver.CUtensorMapInterleave, f"CU_TENSOR_MAP_INTERLEAVE_{_bytes(fields.interleave)}"),
            getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_bytes(fields.swizzle)}"),
            getattr(driver.CUtensorMapL2promotion, f"CU_TENSOR_MAP_L2_PROMOTION_{_bytes(promotion, 'L2_')}"),
            getattr(driver.CUtensorMapFloatOOBfill, f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{_FILLS[fields.nan_fill]}"),
        )
    return call(name, result)


_FILLS = {False: "NONE", True: "NAN_REQUEST_ZERO_FMA"}


def _bytes(count: int, prefix: str = "") -> str:
    """How the driver's names end: "NONE", "128B"."""
    return f"{prefix}{count}B" if count else "NONE"
