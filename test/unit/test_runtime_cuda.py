"""The CUDA path without a GPU: a stand-in for the driver answers, fails and records."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from enum import IntEnum
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from warploom.dialect.isa.tensor_map import TensorMapFields
from warploom.runtime import Kernel, Struct, TensorMap, compile, load_ptx
from warploom.runtime.arguments.arrays import borrow
from warploom.runtime.arguments.launch_values import values
from warploom.runtime.base.errors import ArgumentError, CudaError, DeviceUnavailableError, WarploomError
from warploom.runtime.base.launch import Launch, Mapped, Plan, ScratchBuffer
from warploom.runtime.cuda import driver as cuda
from warploom.runtime.cuda import launch as launching
from warploom.runtime.cuda import launches as packing
from warploom.runtime.kernel.binding import launch_values

PTX = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry double(.param .u64 .ptr .global .align 16 a, .param .u64 b, .param .u32 n)
{
  ret;
}
"""

Result = IntEnum("Result", {"CUDA_SUCCESS": 0, "CUDA_ERROR_INVALID_PTX": 218, "CUDA_ERROR_ILLEGAL_ADDRESS": 700})


class Names:
    """An enumeration whose members are their own names."""

    def __getattr__(self, name: str) -> str:
        return name


class Driver:
    """Memory is host memory; the kernel doubles n floats."""

    CUdevice_attribute = CUfunction_attribute = CUjit_option = CUpointer_attribute = Names()
    CUmemLocationType = CUmemAllocationType = CUmemPool_attribute = Names()
    CUmemLocation = CUmemPoolProps = SimpleNamespace
    cuuint64_t = int

    def __init__(self) -> None:
        self.fault = Result.CUDA_SUCCESS
        self.reject = False
        self.granted = 0
        self.kept: dict[int, int] = {}
        self.launches: list[tuple[Any, ...]] = []
        self.configs: list[Any] = []
        self.loads = 0
        self.images: list[bytes] = []
        self.memory: dict[int, Any] = {}
        self.streams: list[int] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)
        return lambda *_: (Result.CUDA_SUCCESS, 0)

    def cuGetErrorName(self, code: Result) -> tuple[Result, bytes]:  # noqa: N802
        return Result.CUDA_SUCCESS, code.name.encode()

    def cuGetErrorString(self, code: Result) -> tuple[Result, bytes]:  # noqa: N802
        return Result.CUDA_SUCCESS, b"what it means"

    def cuDeviceGetCount(self) -> tuple[Result, int]:  # noqa: N802
        return Result.CUDA_SUCCESS, 1

    def cuDriverGetVersion(self) -> tuple[Result, int]:  # noqa: N802
        return Result.CUDA_SUCCESS, 13010

    def cuDeviceGetName(self, *_: object) -> tuple[Result, bytes]:  # noqa: N802
        return Result.CUDA_SUCCESS, b"Loom 1\0\0"

    def cuDeviceGetAttribute(self, name: str, _: object) -> tuple[Result, int]:  # noqa: N802
        attributes = {"MAJOR": 9, "MINOR": 0, "COUNT": 132, "OPTIN": 227 * 1024}
        return Result.CUDA_SUCCESS, attributes[name.rsplit("_", 1)[1]]

    def cuModuleLoadData(self, image: bytes) -> tuple[Result, int]:  # noqa: N802
        self.loads += 1
        self.images.append(image)
        return (Result.CUDA_SUCCESS if image == b"ELF" else Result.CUDA_ERROR_INVALID_PTX), 1

    def cuModuleLoadDataEx(self, image: bytes, _: int, names: list[str], data: list[Any]) -> tuple[Result, int]:  # noqa: N802
        self.loads += 1
        self.images.append(image)
        log: bytearray = data[names.index("CU_JIT_ERROR_LOG_BUFFER")]
        if self.reject:
            log[:10] = b"line 6: no"
        return (Result.CUDA_ERROR_INVALID_PTX if self.reject else Result.CUDA_SUCCESS), 1

    def cuFuncGetAttribute(self, name: str, _: object) -> tuple[Result, int]:  # noqa: N802
        return Result.CUDA_SUCCESS, {"CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK": 256}.get(name, 64)

    def cuFuncSetAttribute(self, _: object, __: object, value: int) -> tuple[Result]:  # noqa: N802
        self.granted = value
        return (Result.CUDA_SUCCESS,)

    def cuMemAlloc(self, size: int) -> tuple[Result, int]:  # noqa: N802
        block = ctypes.create_string_buffer(b"\xa5" * (size + 256))
        address = -(-ctypes.addressof(block) // 256) * 256
        self.memory[address] = block
        return Result.CUDA_SUCCESS, address

    def cuMemFree(self, address: int) -> tuple[Result]:  # noqa: N802
        del self.memory[address]
        return (Result.CUDA_SUCCESS,)

    def cuMemPoolSetAttribute(self, pool: int, _: str, value: int) -> tuple[Result]:  # noqa: N802
        self.kept[pool] = value
        return (Result.CUDA_SUCCESS,)

    def cuMemAllocFromPoolAsync(self, size: int, pool: int, stream: int) -> tuple[Result, int]:  # noqa: N802
        assert self.kept[pool] > size  # else each wait gives it back
        self.streams.append(stream)
        return self.cuMemAlloc(size)

    def cuMemFreeAsync(self, address: int, stream: int) -> tuple[Result]:  # noqa: N802
        self.streams.append(stream)
        return self.cuMemFree(address)

    def cuMemsetD8Async(self, address: int, value: int, size: int, stream: int) -> tuple[Result]:  # noqa: N802
        self.streams.append(stream)
        ctypes.memset(address, value, size)
        return (Result.CUDA_SUCCESS,)

    def cuMemcpyHtoDAsync(self, target: int, source: int, size: int, _: int) -> tuple[Result]:  # noqa: N802
        ctypes.memmove(target, source, size)
        return (Result.CUDA_SUCCESS,)

    def cuMemcpyDtoH(self, target: int, source: int, size: int) -> tuple[Result]:  # noqa: N802
        ctypes.memmove(target, source, size)
        return (Result.CUDA_SUCCESS,)

    def cuStreamSynchronize(self, _: int) -> tuple[Result]:  # noqa: N802
        return (self.fault,)

    def cuLaunchKernel(self, *call: Any) -> tuple[Result]:  # noqa: N802
        self.launches.append(call)
        pointers = (ctypes.c_void_p * 3).from_address(call[9])
        a, b = (ctypes.c_uint64.from_address(pointers[i] or 0).value for i in (0, 1))
        count = ctypes.c_uint32.from_address(pointers[2] or 0).value
        source, target = ((ctypes.c_float * count).from_address(x) for x in (a, b))
        target[:] = [2 * x for x in source]
        return (Result.CUDA_SUCCESS,)

    CUlaunchConfig = SimpleNamespace
    CUlaunchAttributeID = Names()

    @staticmethod
    def CUlaunchAttribute() -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(value=SimpleNamespace(clusterDim=SimpleNamespace()))

    def cuLaunchKernelEx(self, config: Any, *call: Any) -> tuple[Result]:  # noqa: N802
        self.configs.append(config)
        grid = [getattr(config, f"{what}Dim{axis}") for what in ("grid", "block") for axis in "XYZ"]
        handle, parameters, extra = call
        return self.cuLaunchKernel(handle, *grid, config.sharedMemBytes, config.hStream, parameters, extra)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    driver = Driver()
    monkeypatch.setattr(cuda, "load_driver", lambda: driver)
    for function in (cuda.gpu, cuda.device_count):
        function.cache_clear()
    yield driver
    for function in (cuda.gpu, cuda.device_count):
        function.cache_clear()


class OnGpu:
    def __init__(self, array: np.ndarray[Any, Any], stream: int | None = None, offset: int = 0) -> None:
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.ctypes.data + offset, False),
            "version": 3,
            "stream": stream,
        }


def floats(count: int = 8) -> np.ndarray[Any, Any]:
    """Floats at an address that is a multiple of 256."""
    raw = np.zeros(count + 64, np.float32)
    start = -raw.ctypes.data % 256 // 4
    return raw[start : start + count]


def test_host_arrays_are_copied_there_and_back(driver: Driver) -> None:
    a, b = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    place = load_ptx(PTX).launch("double", 2, 32, [a, b, 8])
    np.testing.assert_array_equal(b, 2 * a)
    assert str(place) == "cuda: Loom 1 (sm_90, driver 13.1)"
    assert driver.launches[0][1:9] == (2, 1, 1, 32, 1, 1, 0, 0)
    assert not driver.memory


def test_gpu_arrays_are_used_in_place_on_their_stream(driver: Driver) -> None:
    a, b = floats(), floats()
    a[:] = 3
    load_ptx(PTX).launch("double", 1, 32, [OnGpu(a, stream=7), OnGpu(b), 8])
    assert b.tolist() == [6] * 8
    assert driver.launches[0][8] == 7


def test_what_a_gpu_runs_is_its_drivers_to_say(driver: Driver) -> None:
    """An instruction that has no row is refused by the interpreter alone."""
    text = PTX.replace("  ret;", "  frobnicate.b32;\n  ret;")
    load_ptx(text).launch("double", 1, 32, [floats(), floats(), 8], device="cuda")
    assert len(driver.launches) == 1
    with pytest.raises(WarploomError, match=r"'frobnicate.b32' is not a PTX instruction known here"):
        load_ptx(text).launch("double", 1, 32, [floats(), floats(), 8], device="interp")


def test_a_module_is_loaded_once(driver: Driver) -> None:
    a, b = floats(), floats()
    for _ in range(3):
        load_ptx(PTX).launch("double", 1, 32, [OnGpu(a), OnGpu(b), 8])
    assert driver.loads == 1


def test_machine_code_that_the_device_does_not_take_is_made_from_the_text(driver: Driver) -> None:
    gpu = cuda.gpu(0)
    gpu.load(PTX, lambda: b"ELF of another target")
    assert driver.images == [b"ELF of another target", PTX.encode() + b"\0"]
    gpu.load(PTX + "\n", lambda: b"ELF")
    gpu.load(PTX + "\n", lambda: pytest.fail("it is loaded"))
    assert driver.images[2:] == [b"ELF"]


def test_prepared_launches_enqueue_without_looking_again(driver: Driver) -> None:
    a, b = floats(), floats()
    module = load_ptx(PTX)
    launch = Launch("double", (1, 1, 1), (32, 1, 1), 0, (0, 1, 2))
    prepared = module.prepare(Plan((launch,)), values(module.kernel("double"), [OnGpu(a), OnGpu(b), 8]))
    a[:] = 5
    prepared(stream=3)
    prepared.wait(3)
    assert b.tolist() == [10] * 8
    assert (driver.launches[0][8], prepared.kernels[0].registers) == (3, 64)


def test_calls_on_other_arrays_and_numbers_pack_their_own_parameters(driver: Driver) -> None:
    """Parameters are packed once for each number; addresses are put in at each call."""
    a, b, c = floats(), floats(), floats()
    a[:], module = 3, load_ptx(PTX)
    for count, target, stream in ((8, b, 5), (8, b, 6), (4, c, 5), (8, c, 5)):
        target[:] = 0
        module.launch("double", 1, 32, [OnGpu(a, stream), OnGpu(target, stream), count])
        assert target.tolist() == [6.0] * count + [0.0] * (8 - count)
    parameters, streams = ([launch[i] for launch in driver.launches] for i in (9, 8))
    assert (len(set(parameters)), parameters[0] == parameters[1] == parameters[3], streams) == (2, True, [5, 6, 5, 5])


SCALAR = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry double(.param .u64 a, .param .u64 b, .param .f32 s) { ret; }
"""


@pytest.mark.parametrize("kind", [float, np.float32])
def test_zeros_of_either_sign_are_other_numbers(driver: Driver, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    words: list[int] = []

    def launched(*call: Any) -> tuple[Result]:
        words.append(ctypes.c_uint32.from_address((ctypes.c_void_p * 3).from_address(call[9])[2] or 0).value)
        return (Result.CUDA_SUCCESS,)

    monkeypatch.setattr(driver, "cuLaunchKernel", launched)
    a, module = OnGpu(floats()), load_ptx(SCALAR)
    for number in (0.0, -0.0, 0.0):
        module.launch("double", 1, 32, [a, a, kind(number)])
    assert words == [0, 1 << 31, 0]


WRITING = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry double(.param .u64 a, .param .align 8 .b8 b[8], .param .u32 n) { .reg .b64 %rd<4>; .reg .f32 %f;
  ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.global.f32 %f, [%rd1]; st.global.f32 [%rd2], %f; ret; }
"""


def test_arrays_in_structs_are_copied_there_and_back(driver: Driver) -> None:
    a, b = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    load_ptx(WRITING).launch("double", 1, 32, [a, (b,), 8], device="cuda")
    assert b.tolist() == [2 * x for x in range(8)]
    on_gpu = floats()
    load_ptx(WRITING).launch("double", 1, 32, [OnGpu(floats()), (OnGpu(on_gpu),), 8], device="cuda")
    assert not on_gpu.any()
    assert not driver.memory


def test_tensor_maps_and_structs_lie_where_pointers_say(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A map in a struct, and behind a pointer a struct of a map and a pointer to another."""
    text = """.version 8.0
    .target sm_90a
    .address_size 64
    .visible .entry k(.param .align 64 .b8 p[192], .param .u64 q) { ret; }
    """
    tensors = [np.full((8, 16), i, np.float32) for i in range(4)]
    maps = [TensorMap(tensor, (4, 8)) for tensor in tensors]
    seen: list[float] = []

    def mapped(address: int) -> None:
        fields = TensorMapFields.decode(ctypes.string_at(address, 128))
        assert (fields.sizes, fields.box) == ((16, 8), (8, 4))
        seen.append(ctypes.c_float.from_address(fields.address).value)

    def pointer(address: int) -> int:
        return ctypes.c_uint64.from_address(address).value

    def launched(*call: Any) -> tuple[Result]:
        first, second = (address or 0 for address in (ctypes.c_void_p * 2).from_address(call[9]))
        assert pointer(second) % 64 == 0
        struct = pointer(second)
        for address in (first + 64, struct, pointer(struct + 128)):
            mapped(address)
        seen.append(ctypes.c_float.from_address(pointer(first + 8)).value)
        return (Result.CUDA_SUCCESS,)

    monkeypatch.setattr(driver, "cuLaunchKernel", launched)
    for module in (launching, packing):
        monkeypatch.setattr(module, "encode_tensor_map", lambda gpu, fields, promotion: fields.encode())
    args = [Struct(bytes(192), {8: tensors[3]}, {64: maps[0]}), (maps[1], Struct(bytes(8), {0: maps[2]}))]
    load_ptx(text).launch("k", 1, 32, args, device="cuda")
    assert seen == [0, 1, 2, 3]
    gc.collect()
    assert not driver.memory


def test_an_array_given_twice_is_one_array(driver: Driver) -> None:
    a = np.arange(8, dtype=np.float32)
    load_ptx(WRITING).launch("double", 1, 32, [a, (a,), 8], device="cuda")
    assert a.tolist() == [2 * x for x in range(8)]
    assert not driver.memory


def test_arrays_that_must_not_be_written_are_not(driver: Driver) -> None:
    a, b = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    a.flags.writeable = False
    load_ptx(WRITING).launch("double", 1, 32, [a, (b,), 8], device="cuda")
    assert b[7] == 14
    b.flags.writeable = False
    message = r"kernel double: argument 1 \(.align 8 .b8 b\[8\]\): the kernel may write it, but the array is read-only"
    with pytest.raises(ArgumentError, match=message):
        load_ptx(WRITING).launch("double", 1, 32, [a, (b,), 8], device="cuda")
    fixed = OnGpu(floats())
    fixed.__cuda_array_interface__["data"] = (fixed.array.ctypes.data, True)
    module = load_ptx(WRITING)
    with pytest.raises(ArgumentError, match="the kernel may write it, but the array is read-only"):
        module.prepare(
            Plan((Launch("double", (1, 1, 1), (32, 1, 1), 0, (0, 1, 2)),)),
            values(module.kernel("double"), [OnGpu(floats()), fixed, 8]),
        )
    assert len(driver.launches) == 1


TWICE = Plan(
    tuple(Launch("double", (1, 1, 1), (32, 1, 1), 0, arguments) for arguments in ((0, 3, 2), (3, 1, 2))),
    (ScratchBuffer(32),),
)
"""From a to scratch memory, and from there to b."""


def test_scratch_memory_lives_as_long_as_the_call(driver: Driver) -> None:
    a, b = floats(), floats()
    a[:] = 3
    module = load_ptx(PTX)
    passed = values(module.kernel("double"), [OnGpu(a, stream=7), OnGpu(b), 8])
    module.run(TWICE, passed)
    assert b.tolist() == [12] * 8
    assert (driver.streams, driver.memory) == ([7, 7], {})


def test_host_arrays_with_scratch_memory(driver: Driver) -> None:
    a, b = np.ones(8, np.float32), np.zeros(8, np.float32)
    module = load_ptx(PTX)
    module.run(TWICE, values(module.kernel("double"), [a, b, 8]))
    assert b.tolist() == [4] * 8
    assert not driver.memory


def test_prepared_launches_keep_their_scratch_memory(driver: Driver) -> None:
    a, b = floats(), floats()
    a[:] = 3
    module = load_ptx(PTX)
    prepared = module.prepare(TWICE, values(module.kernel("double"), [OnGpu(a), OnGpu(b), 8]))
    assert len(driver.memory) == 1
    prepared()
    assert b.tolist() == [12] * 8
    del prepared
    assert not driver.memory


def test_scratch_memory_that_must_be_zero_is_cleared_once(driver: Driver) -> None:
    b = floats()
    module = load_ptx(PTX)
    from_scratch = Plan((Launch("double", (1, 1, 1), (32, 1, 1), 0, (2, 0, 1)),), (ScratchBuffer(32, zeroed=True),))
    passed = values(module.kernel("double"), [OnGpu(floats()), OnGpu(b, stream=7), 8])[1:]
    prepared = module.prepare(from_scratch, passed)
    prepared()
    assert b.tolist() == [0] * 8
    assert driver.streams == [7, 7]


def test_prepare_takes_gpu_arrays_only(driver: Driver) -> None:
    module = load_ptx(PTX)
    with pytest.raises(ArgumentError, match=r"argument 0 \(8xf32\) lies in host memory"):
        module.prepare(Plan(()), values(module.kernel("double"), [floats(), floats(), 8]))


def test_a_misaligned_array_is_refused(driver: Driver) -> None:
    with pytest.raises(ArgumentError, match=r"argument 0 \(.u64 a\): expected an address that is a multiple of 16"):
        load_ptx(PTX).launch("double", 1, 32, [OnGpu(floats(), offset=4), OnGpu(floats()), 8])


def test_clusters_are_those_of_the_kernel(driver: Driver) -> None:
    text = PTX.replace("\n{\n", "\n.reqnctapercluster 2\n{\n")
    args = [floats(), floats(), 8]
    load_ptx(text).launch("double", 4, 32, args, cluster=2)
    assert not driver.configs
    with pytest.raises(ArgumentError, match=r"that \.reqnctapercluster asks for, \(2, 1, 1\), got \(4, 1, 1\)"):
        load_ptx(text).launch("double", 4, 32, args, cluster=4)


def test_clusters_that_a_kernel_leaves_open(driver: Driver) -> None:
    text = PTX.replace("  ret;", "  griddepcontrol.wait; ret;")
    load_ptx(text).launch("double", 4, 32, [floats(), floats(), 8], cluster=(2, 2))
    (config,) = driver.configs
    cluster, early = config.attrs
    assert (cluster.id, config.numAttrs) == ("CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION", 2)
    assert (cluster.value.clusterDim.x, cluster.value.clusterDim.y, cluster.value.clusterDim.z) == (2, 2, 1)
    assert early.value.programmaticStreamSerializationAllowed == 1


def test_a_kernel_that_waits_by_itself_may_start_early(driver: Driver) -> None:
    """Programmatic dependent launch, asked for where the kernel has the wait."""
    a, b = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    for control in ("griddepcontrol.launch_dependents;", "{ griddepcontrol.wait; }"):
        load_ptx(PTX.replace("  ret;", f"  {control} ret;")).launch("double", (2, 3), 32, [a, b, 8], shared=64)
        np.testing.assert_array_equal(b, 2 * a)
    (config,) = driver.configs
    assert [launch[1:8] for launch in driver.launches] == [(2, 3, 1, 32, 1, 1, 64)] * 2
    (attribute,) = config.attrs
    assert (attribute.id, config.numAttrs) == ("CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION", 1)
    assert attribute.value.programmaticStreamSerializationAllowed == 1


def test_rejected_ptx_brings_the_drivers_log(driver: Driver) -> None:
    driver.reject = True
    with pytest.raises(CudaError, match=r"(?s)loading the PTX on Loom 1 .* CUDA_ERROR_INVALID_PTX: .*\nline 6: no"):
        load_ptx(PTX).launch("double", 1, 32, [floats(), floats(), 8])


def test_a_fault_names_the_kernel_and_frees_memory(driver: Driver) -> None:
    driver.fault = Result.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(CudaError, match=r"kernel double \(grid \(1, 1, 1\), .* CUDA_ERROR_ILLEGAL_ADDRESS: .*interp"):
        load_ptx(PTX).launch("double", 1, 32, [floats(), floats(), 8])
    assert not driver.memory


def test_shared_memory_is_asked_for_beyond_48_kib(driver: Driver) -> None:
    load_ptx(PTX).launch("double", 1, 32, [floats(), floats(), 8], shared=40_000)
    assert driver.granted == 0
    load_ptx(PTX).launch("double", 1, 32, [floats(), floats(), 8], shared=60_000)
    assert driver.granted == 60_000
    with pytest.raises(CudaError, match="300000 bytes of dynamic and 64 of static shared memory do not fit Loom 1"):
        load_ptx(PTX).launch("double", 1, 32, [floats(), floats(), 8], shared=300_000)


def test_a_block_too_large_for_its_registers(driver: Driver) -> None:
    with pytest.raises(
        CudaError, match="a block of 512 threads was asked for, with 64 registers each it can have at most 256"
    ):
        load_ptx(PTX).launch("double", 1, 512, [floats(), floats(), 8])


def test_ptx_for_another_target(driver: Driver) -> None:
    with pytest.raises(DeviceUnavailableError, match="does not run PTX for sm_120a; compile for sm_90a, or use"):
        load_ptx(PTX.replace("sm_90a", "sm_120a")).launch("double", 1, 1, [floats(), floats(), 8], device="cuda")


def test_gpu_arrays_cannot_be_interpreted(driver: Driver) -> None:
    with pytest.raises(ArgumentError, match="argument 1 lies in GPU memory, which device='interp' cannot read"):
        load_ptx(PTX).launch("double", 1, 1, [floats(), OnGpu(floats()), 8], device="interp")


@pytest.mark.parametrize(
    ("capability", "target", "runs"),
    [
        ((9, 0), "sm_90a", True),
        ((9, 0), "sm_80", True),
        ((8, 0), "sm_90", False),
        ((10, 0), "sm_90a", False),
        ((10, 3), "sm_100f", True),
        ((10, 3), "sm_100a", False),
        ((12, 0), "sm_100f", False),
        ((9, 0), "sm_999", True),
    ],
)
def test_which_device_runs_which_target(capability: tuple[int, int], target: str, runs: bool) -> None:
    assert cuda.GpuDevice(0, "x", capability, "13.0", 1, 1).runs(target) == runs


@pytest.mark.parametrize(
    ("capability", "target"), [((9, 0), "sm_90a"), ((8, 0), "sm_80"), ((12, 0), "sm_120a"), ((9, 9), "sm_90")]
)
def test_a_devices_own_target(capability: tuple[int, int], target: str) -> None:
    assert cuda.GpuDevice(0, "x", capability, "13.0", 1, 1).target == target


def bindings(monkeypatch: pytest.MonkeyPatch, **functions: Any) -> None:
    module = ModuleType("cuda.bindings.driver")
    vars(module).update(functions)
    for name in ("cuda", "cuda.bindings"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", module)
    cuda.load_driver.cache_clear()


def library_missing(_: int) -> None:
    raise RuntimeError("libcuda.so.1 was not found\nsearched: everywhere")


def test_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda.load_driver.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    with pytest.raises(
        DeviceUnavailableError, match=r"no GPU: .*cuda-bindings .*warploom\[cuda\].*device='interp' runs"
    ):
        cuda.load_driver()


def test_no_driver_library(monkeypatch: pytest.MonkeyPatch) -> None:
    bindings(monkeypatch, cuInit=library_missing)
    with pytest.raises(
        DeviceUnavailableError, match=r"the NVIDIA driver library .* libcuda.so.1 was not found; device="
    ):
        cuda.load_driver()


def test_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    text = {"cuGetErrorName": b"CUDA_ERROR_NO_DEVICE", "cuGetErrorString": b"none is detected"}
    named = {name: (lambda _, value=value: (0, value)) for name, value in text.items()}
    bindings(monkeypatch, cuInit=lambda _: (100,), **named)
    with pytest.raises(
        DeviceUnavailableError, match="no usable device: CUDA_ERROR_NO_DEVICE: none is detected; device="
    ):
        cuda.load_driver()


def test_a_gpu_number_that_is_not_there(driver: Driver) -> None:
    with pytest.raises(DeviceUnavailableError, match="the driver reports 1 devices, number 3 was asked for"):
        cuda.gpu(3)


SCALED = """func.func @scaled(%A: memref<5x7xf32>, %B: memref<5x7xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
    iterator_types = ["parallel", "parallel"]} ins(%A : memref<5x7xf32>) outs(%B : memref<5x7xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.addf %a, %a : f32
    linalg.yield %c : f32
  }
  return
}"""


class Tensor:
    """What torch says of a tensor in GPU memory, which is host memory here."""

    __module__ = "torch"
    dtype, layout, device, is_cuda = "torch.float32", "strided", SimpleNamespace(type="cuda"), True

    def __init__(self, array: np.ndarray[Any, Any], *, requires_grad: bool = False) -> None:
        self.array, self.shape, self.requires_grad = array, array.shape, requires_grad

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.array.itemsize for step in self.array.strides)

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def is_contiguous(self) -> bool:
        return self.array.flags.c_contiguous

    def __dlpack__(self, **_: object) -> object:
        raise BufferError("a tensor that requires grad is not exported")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.requires_grad:
            raise RuntimeError("can't get the interface of a tensor that requires grad")
        return OnGpu(self.array).__cuda_array_interface__

    get_device = staticmethod(lambda: 0)
    is_neg = staticmethod(lambda: False)
    element_size = staticmethod(lambda: 4)


class Guards:
    """torch's check of the layouts of tensors."""

    def __init__(self, *tensors: Tensor, **_: object) -> None:
        self.expected = [(x.shape, x.stride(), x.requires_grad) for x in tensors]

    def check(self, *tensors: Tensor) -> bool:
        return self.expected == [(x.shape, x.stride(), x.requires_grad) for x in tensors]


@pytest.fixture
def kernel(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> tuple[Kernel, list[tuple[int, int, int]]]:
    """A kernel, and what it was launched with: the addresses of its two arrays, and the stream."""
    torch: Any = ModuleType("torch")
    torch.Tensor, torch.strided, torch.nn = Tensor, "strided", SimpleNamespace(Parameter=type("Parameter", (), {}))
    torch.empty_strided = lambda shape, *_, **__: Tensor(floats(shape[0] * shape[1]).reshape(shape))
    torch.float32 = Tensor.dtype
    guards = SimpleNamespace(guards=SimpleNamespace(TensorGuards=Guards))
    torch._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 40 + device, _dynamo=guards)
    monkeypatch.setitem(sys.modules, "torch", torch)
    launched: list[tuple[int, int, int]] = []

    def launch(*call: Any) -> tuple[Result]:
        pointers = (ctypes.c_void_p * 2).from_address(call[9])
        a, b = (ctypes.c_uint64.from_address(pointer or 0).value for pointer in pointers)
        launched.append((a, b, call[8]))
        return (Result.CUDA_SUCCESS,)

    monkeypatch.setattr(driver, "cuLaunchKernel", launch)
    return compile(SCALED), launched


def on_gpu(*, rows: int = 5) -> Tensor:
    return Tensor(floats(7 * rows).reshape(rows, 7))


def test_a_call_of_torchs_tensors_is_checked_once(
    kernel: tuple[Kernel, list[tuple[int, int, int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call checks; later ones whose tensors lie alike only put the addresses in."""
    compiled, launched = kernel
    checks: list[object] = []
    binding: Any = import_module("warploom.runtime.kernel.binding")
    monkeypatch.setattr(binding, "launch_values", lambda *given: checks.append(given) or launch_values(*given))
    a, b, c, d = (on_gpu() for _ in range(4))
    places = [compiled(*pair) for pair in ((a, b), (c, d), (a, d))]
    assert launched == [(x.data_ptr(), y.data_ptr(), 40) for x, y in ((a, b), (c, d), (a, d))]
    assert (len(checks), {str(place) for place in places}) == (1, {"cuda: Loom 1 (sm_90, driver 13.1)"})
    made = [compiled(a), compiled(a)]
    assert [call[1] for call in launched[3:]] == [one.data_ptr() for one in made]
    assert (len(checks), made[0] is made[1]) == (2, False)


def test_every_call_refuses_what_does_not_fit(kernel: tuple[Kernel, list[tuple[int, int, int]]]) -> None:
    compiled, launched = kernel
    a, b = on_gpu(), on_gpu()
    compiled(a, b)
    for args, message in (
        ((a, a), r"argument 1 \(%B\) is written and shares memory with argument 0 \(%A\)"),
        ((a, on_gpu(rows=6)), r"argument 1 \(%B\): expected 5x7xf32, got 6x7xf32"),
        ((Tensor(floats(70).reshape(10, 7)[::2]), b), r"argument 0 \(%A\): .*row-major order without gaps"),
        ((Tensor(floats(35).reshape(5, 7), requires_grad=True), b), r"argument 0 \(%A\): expected 5x7xf32"),
        ((), "missing"),
    ):
        with pytest.raises(ArgumentError, match=message):
            compiled(*args)
    with pytest.raises(ArgumentError, match="expected device to be one of auto, interp, cuda, got 'gpu'"):
        compiled(a, b, device="gpu")
    assert len(launched) == 1


MAPPED = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry mapped(.param .align 64 .b8 m[128], .param .u64 b)
{
  ret;
}
"""


@pytest.mark.parametrize("first_word", [True, False])
def test_tensor_maps_follow_their_arrays(driver: Driver, monkeypatch: pytest.MonkeyPatch, first_word: bool) -> None:
    """Through the driver's own functions: the first word of a map is the address, or the driver moves it; a launch that
    is refused is enqueued again with the GPU's context."""
    launched: list[tuple[int, int, int]] = []
    codes = [201, 0, 0, 0]

    def launch(config: int, _: int, parameters: int, extra: int | None) -> int:
        map_, pointer = (
            (ctypes.c_uint64 * 1).from_address(x)[0] for x in (ctypes.c_uint64 * 2).from_address(parameters)
        )
        launched.append((map_, pointer, packing.LaunchConfig.from_address(config).stream or 0))
        return codes.pop(0)

    def encoded(_: object, fields: TensorMapFields, promotion: int) -> Any:
        data = fields.encode() if first_word else bytes(8) + fields.encode()[8:]
        buffer = ctypes.create_string_buffer(data, len(data))
        return SimpleNamespace(getPtr=lambda: ctypes.addressof(buffer), buffer=buffer)

    def moved(map_: Any, address: int) -> tuple[Result]:
        ctypes.c_uint64.from_buffer(map_.buffer).value = address
        return (Result.CUDA_SUCCESS,)

    call = ctypes.CFUNCTYPE(ctypes.c_int, *(ctypes.c_void_p,) * 4)(launch)
    functions = packing.Direct(SimpleNamespace(cuLaunchKernelEx=call, cuGraphLaunch=None, cuMemcpyDtoDAsync_v2=None))
    monkeypatch.setattr(packing, "direct", lambda _: functions)
    monkeypatch.setattr(packing, "encoded_map", encoded)
    monkeypatch.setattr(packing, "encode_tensor_map", lambda *args: bytes(encoded(*args).buffer))
    entered = list[int]()
    driver.__dict__.update(cuTensorMapReplaceAddress=moved, cuCtxPushCurrent=lambda c: entered.append(c) or (0,))
    arrays = [np.zeros((8, 64), np.float32) for _ in range(2)]
    fields = TensorMap(arrays[0], (8, 32)).fields(0)
    module = load_ptx(MAPPED)
    launches = packing.Launches(
        packing.GpuProgram(cuda.gpu(0), MAPPED, module.kernels),
        (Launch("mapped", (1, 1, 1), (32, 1, 1), 0, (Mapped(0, 256, fields), 1)),),
        [borrow(OnGpu(x)) for x in arrays],
    )  # fmt: skip
    entered.clear()
    launches([4096, 64], 5)
    assert (launched, entered) == ([(4096 + 256, 64, 5)] * 2, [0])
    launches([4096, 64], 5)
    launches([8192, 128], 0)
    assert launched[2:] == [(4096 + 256, 64, 5), (8192 + 256, 128, 0)]
    if first_word:
        with pytest.raises(ArgumentError, match=r"argument 0 .* an address that is a multiple of 16, got 0x1108"):
            launches([4104, 64], 5)


def test_a_graph_is_captured_once(driver: Driver) -> None:
    """A graph is captured once on a stream of its own, and launched on the asked one."""
    calls: list[tuple[str, Any]] = []

    def record(name: str, *results: object) -> None:
        driver.__dict__[name] = lambda *args: calls.append((name, args)) or (Result.CUDA_SUCCESS, *results)

    for name, *results in (
        ("cuStreamCreate", 9), ("cuStreamBeginCapture",), ("cuStreamEndCapture", 10), ("cuStreamDestroy",),
        ("cuGraphInstantiate", 11), ("cuGraphDestroy",), ("cuGraphLaunch",), ("cuGraphExecDestroy",),
    ):  # fmt: skip
        record(name, *results)
    driver.__dict__.update(CUstream_flags=Names(), CUstreamCaptureMode=Names())
    a, b, module = floats(), floats(), load_ptx(PTX)
    launch = Launch("double", (1, 1, 1), (32, 1, 1), 0, (0, 1, 2))
    graph = module.prepare(Plan((launch,)), values(module.kernel("double"), [OnGpu(a, 5), OnGpu(b, 5), 8])).graph()
    graph()
    graph(stream=6)
    assert [launch[8] for launch in driver.launches] == [9]
    assert [args for name, args in calls if name == "cuGraphLaunch"] == [(11, 5), (11, 6)]
    del graph
    gc.collect()
    assert [args for name, args in calls if name in ("cuGraphDestroy", "cuGraphExecDestroy")] == [(10,), (11,)]
