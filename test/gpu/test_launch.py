"""Launching on a real GPU: any PTX, arrays of other libraries in place, errors fit to read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bitwise import Case
from placed_maps import OTHER, PLACES, WANTED, placed

from warploom.runtime import CudaError, compile, load_ptx
from warploom.runtime.arguments.arrays import DTYPES
from warploom.runtime.cuda.driver import GpuDevice

pytestmark = pytest.mark.gpu

AXPY = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry axpy(.param .u64 .ptr .global .align 4 x, .param .u64 y, .param .f32 a, .param .u32 n)
{
  .reg .pred %p; .reg .b32 %r<5>; .reg .b64 %rd<6>; .reg .f32 %f<4>;
  ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.f32 %f1, [a]; ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
  mad.lo.u32 %r4, %r2, %r3, %r4;
  setp.ge.u32 %p, %r4, %r1;
  @%p bra DONE;
  mul.wide.u32 %rd3, %r4, 4;
  add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;
  ld.global.f32 %f2, [%rd4]; ld.global.f32 %f3, [%rd5];
  fma.rn.f32 %f3, %f1, %f2, %f3;
  st.global.f32 [%rd5], %f3;
DONE:
  ret;
}
"""

FAULT = f"""
import numpy as np
from warploom.runtime import load_ptx
text = '''{AXPY}'''
load_ptx(text).launch("axpy", 1, 32, [64, np.zeros(8, np.float32), 1.0, 8], device="cuda")
"""

CASE = Case((129, 257, 65), "f16", "f32", filled=False)


def expected() -> np.ndarray[Any, Any]:
    a, b, c = CASE.arrays()
    return c.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64)


@pytest.mark.usefixtures("device")
def test_any_ptx_with_scalars() -> None:
    x, y = np.arange(100, dtype=np.float32), np.ones(100, np.float32)
    load_ptx(AXPY).launch("axpy", 4, 32, [x, y, 2.5, 100], device="cuda")
    np.testing.assert_array_equal(y, 2.5 * x + 1)


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_arrays_of_other_libraries_in_place(library: str, device: GpuDevice) -> None:
    module: Any = pytest.importorskip(library)
    kernel = compile(CASE.mlir, device.target)
    arrays = CASE.arrays()
    if library == "torch":
        placed = [module.from_numpy(x).cuda() for x in arrays]
    else:
        placed = [module.asarray(x) for x in arrays]
    kernel(*placed)
    result = placed[2].cpu().numpy() if library == "torch" else module.asnumpy(placed[2])
    np.testing.assert_allclose(result, expected(), rtol=1e-2, atol=1e-1)


def test_torch_bf16_and_its_stream(device: GpuDevice) -> None:
    torch: Any = pytest.importorskip("torch")
    case = Case((64, 64, 64), "bf16", "bf16", filled=True)
    kernel = compile(case.mlir, device.target)
    host = case.arrays()
    kernel(*host, device="cuda")
    placed = [torch.from_numpy(x.view(np.int16)).cuda().view(torch.bfloat16) for x in case.arrays()]
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()) as _:
        prepared = kernel.prepare(*placed)
        assert prepared.stream == torch.cuda.current_stream().cuda_stream
        prepared()
        prepared.wait()
    result = placed[2].view(torch.int16).cpu().numpy().view(DTYPES["bf16"])
    np.testing.assert_array_equal(result.view(np.uint16), host[2].view(np.uint16))


@pytest.mark.usefixtures("device")
def test_rejected_ptx_brings_the_drivers_log() -> None:
    with pytest.raises(CudaError, match=r"(?s)CUDA_ERROR_INVALID_PTX.*fma"):
        load_ptx(AXPY.replace("fma.rn.f32 %f3", "fma.rn.f32 %rd1")).launch(
            "axpy", 1, 32, [np.zeros(8, np.float32), np.zeros(8, np.float32), 1.0, 8], device="cuda"
        )


@pytest.mark.usefixtures("device")
def test_a_fault_is_reported_with_the_kernel() -> None:
    done = subprocess.run([sys.executable, "-c", FAULT], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "CudaError: kernel axpy" in done.stderr
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in done.stderr


@pytest.mark.parametrize("place", PLACES)
def test_a_tensor_map_lies_anywhere(place: str, device: GpuDevice) -> None:
    """Maps in global memory follow on others that lay at the same address."""
    if device.target != "sm_90a":
        pytest.skip("the kernel is for sm_90a")
    module, argument = load_ptx(placed(place)), PLACES[place][2]
    for box in (OTHER, WANTED):
        out, expected = (np.full((2, 512), np.nan, np.float16) for _ in range(2))
        module.launch("k", (2, 1, 1), (32, 1, 1), [argument(box), out], device="cuda")
        module.launch("k", (2, 1, 1), (32, 1, 1), [argument(box), expected], device="interp")
        np.testing.assert_array_equal(out[:, :256], expected[:, :256])
        assert not np.isnan(out[:, :256]).any()


DEPENDENT = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry first(.param .u64 x, .param .u64 times)
{
  .reg .b32 %r<3>; .reg .b64 %rd<6>; .reg .pred %p;
  griddepcontrol.launch_dependents;
  ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [times];
  mov.u32 %r0, %ctaid.x; mov.u64 %rd3, %globaltimer;
SLEEP:
  nanosleep.u32 1000; mov.u64 %rd4, %globaltimer; sub.u64 %rd4, %rd4, %rd3; setp.lt.u64 %p, %rd4, 2000000;
  @%p bra SLEEP;
  mul.wide.u32 %rd5, %r0, 4; add.u64 %rd1, %rd1, %rd5; add.u32 %r1, %r0, 1; st.global.u32 [%rd1], %r1;
  mul.wide.u32 %rd5, %r0, 8; add.u64 %rd2, %rd2, %rd5; mov.u64 %rd4, %globaltimer; st.global.u64 [%rd2], %rd4;
  ret;
}
.visible .entry second(.param .u64 x, .param .u64 y, .param .u64 times)
{
  .reg .b32 %r<3>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u64 %rd3, [times];
  mov.u64 %rd6, %globaltimer;
  griddepcontrol.wait;
  mov.u64 %rd7, %globaltimer;
  mov.u32 %r0, %ctaid.x; mul.wide.u32 %rd4, %r0, 4; add.u64 %rd1, %rd1, %rd4; add.u64 %rd2, %rd2, %rd4;
  ld.global.u32 %r1, [%rd1]; shl.b32 %r1, %r1, 1; st.global.u32 [%rd2], %r1;
  mul.wide.u32 %rd5, %r0, 16; add.u64 %rd3, %rd3, %rd5; st.global.v2.u64 [%rd3], {%rd6, %rd7};
  ret;
}
"""
CTAS = 8


def test_a_dependent_launch_starts_early_and_sees_what_it_waits_for(
    device: GpuDevice, record_property: Callable[[str, object], None]
) -> None:
    """The first kernel lets the next one start, and sleeps for 2 ms before it writes. Whether the GPU then does start
    it early is told, not asserted; what it reads behind its wait is."""
    if not device.runs("sm_90"):
        pytest.skip("programmatic dependent launch needs sm_90")
    torch: Any = pytest.importorskip("torch")
    module = load_ptx(DEPENDENT)
    for _ in range(5):
        x, y = (torch.zeros(CTAS, dtype=torch.int32, device="cuda") for _ in range(2))
        ended, waited = (torch.zeros(n, dtype=torch.int64, device="cuda") for n in (CTAS, 2 * CTAS))
        module.launch("first", CTAS, 1, [x, ended])
        module.launch("second", CTAS, 1, [x, y, waited])
        torch.cuda.synchronize()
        assert y.tolist() == [2 * (i + 1) for i in range(CTAS)]
        started, passed = waited.reshape(CTAS, 2).T.tolist()
        assert min(passed) >= max(ended.tolist())
        record_property(
            "microseconds that the second kernel ran beside the first", (max(ended.tolist()) - min(started)) / 1e3
        )
