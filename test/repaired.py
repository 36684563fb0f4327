"""A kernel with one product of a warpgroup, and changes to it that ptxas repairs or ignores."""

from __future__ import annotations

from typing import NamedTuple

KERNEL = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 x) .reqntid 256 .minnctapersm 1
{
    .reg .f32 %f<4>; .reg .b64 %q<4>; ld.param.u64 %q0, [x]; ld.param.u64 %q1, [x];
    setmaxnreg.dec.sync.aligned.u32 40; mov.f32 %f0, 0f3F800000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %q0, %q1, 1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    ld.param.u64 %q2, [out]; st.global.f32 [%q2], %f0;
    ret;
}
"""
FENCE, WAIT = "wgmma.fence.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"


class Repaired(NamedTuple):
    """A change, the line that is told of, what is said of it, and what ptxas says."""

    old: str
    new: str
    line: int
    message: str
    code: str


REPAIRED = {
    "registers": Repaired(" .minnctapersm 1", "", 7, "ptxas drops it", "C7508"),
    "fence": Repaired(FENCE, "", 9, "there is none in front of the first product", "C7519"),
    "touched": Repaired(FENCE, f"{FENCE} mov.f32 %f1, %f0;", 9, "line 8 writes %f1, and there is none behind", "C7519"),
    "wait": Repaired(WAIT, "", 12, "%f0 belongs to the product at line 9, which is not waited for", "C7517"),
    "groups": Repaired(WAIT, f"wgmma.wait_group.sync.aligned 9; {WAIT}", 11, "no more groups can be left pending", ""),
}
