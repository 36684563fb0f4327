"""What functions of epilogues take from the device's own approximations."""

from __future__ import annotations

import numpy as np
import pytest

from warploom.runtime import load_ptx
from warploom.runtime.cuda.driver import GpuDevice

pytestmark = pytest.mark.gpu

RECIPROCALS = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 differing) {
  .reg .b32 %r<3>; .reg .f32 %f<6>; .reg .b64 %rd; .reg .pred %p;
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %tid.x;
  mad.lo.u32 %r2, %r0, 256, %r1;
  add.u32 %r2, %r2, 0x3F800000;
  mov.b32 %f0, %r2;
  rcp.approx.ftz.f32 %f1, %f0;
  neg.f32 %f2, %f0;
  fma.rn.f32 %f3, %f2, %f1, 0f3F800000;
  fma.rn.f32 %f4, %f3, %f1, %f1;
  rcp.rn.f32 %f5, %f0;
  setp.ne.f32 %p, %f4, %f5;
  ld.param.u64 %rd, [differing];
  @%p red.global.add.u32 [%rd], 1;
  ret;
}
"""


def test_one_step_from_the_approximate_reciprocal_rounds_correctly(device: GpuDevice) -> None:
    """For every fraction of f32, that of all ones too."""
    differing = np.zeros(1, np.uint32)
    load_ptx(RECIPROCALS).launch("k", grid=(1 << 15, 1, 1), block=(256, 1, 1), args=[differing], device="cuda")
    assert differing[0] == 0
