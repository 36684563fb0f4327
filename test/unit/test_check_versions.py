"""`check_ptx` on instructions that only some PTX versions or some targets have."""

from __future__ import annotations

import pytest
from expected_diagnostics import expect

PTX = """\
.version VERSION
.target TARGET
.address_size 64
.visible .entry k(.param .u64 a)
{
  .reg .b32 %r<20>; .reg .f32 %f<9>; .reg .b64 %rd<2>; .reg .pred %p<3>; .reg .b16 %h<4>; .reg .b8 %c<3>;
  BODY
  ret;
}
"""
WMMA = "wmma.load.a.sync{0}.row.m16n16k16.f16 {{%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}}, [%rd0];"
SCALED = (
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue8m0 "
    "{%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3}, %r6, {0, 0}, %r7, {0, 0};"
)

CUTLASS = (
    "mma.sync.aligned.kind::f8f6f4.sp::ordered_metadata.m16n8k64.row.col.f32.e4m3.e5m2.f32 {%f0, %f1, %f2, %f3}, "
    "{%r0, %r1, %r2, %r3}, {%r4, %r5, %r6, %r7}, {%f0, %f1, %f2, %f3}, %r8, 0x0;"
)
"""CUTLASS's order of the qualifiers."""


@pytest.mark.parametrize(
    ("version", "target", "body", "message"),
    [
        ("6.0", "sm_70", WMMA.format(""), ""),
        ("6.2", "sm_70", WMMA.format(".aligned"), "needs PTX 6.3 or later"),
        ("6.3", "sm_70", WMMA.format(""), "needs a version before PTX 6.3, the module's version is 6.3"),
        ("6.4", "sm_60", "vote.ballot.b32 %r0, %p0;", ""),
        ("6.3", "sm_70", "shfl.up.b32 %r0|%p0, %r1, 1, 0;", ""),
        ("6.4", "sm_70", "shfl.up.b32 %r0, %r1, 1, 0;", "needs a version before PTX 6.4"),
        ("5.0", "sm_60", "atom.cta.global.cas.b32 %r0, [%rd0], %r1, %r2;", ""),
        ("5.0", "sm_53", "atom.cta.global.cas.b32 %r0, [%rd0], %r1, %r2;", "needs sm_60"),
        ("6.0", "sm_60", "atom.relaxed.cta.global.cas.b32 %r0, [%rd0], %r1, %r2;", "needs sm_70"),
        ("7.1", "sm_80", "mbarrier.arrive.b64 _, [%rd0];", ""),
        ("7.0", "sm_80", "mbarrier.arrive.b64 _, [%rd0];", "needs PTX 7.1 or later"),
        ("7.0", "sm_80", "mbarrier.arrive_drop.b64 _, [%rd0];", ""),
        ("8.7", "sm_120a", CUTLASS, ""),
        ("8.7", "sm_100a", CUTLASS, "needs sm_120a"),
        ("8.6", "sm_101a", "cvt.rn.satfinite.e2m1x2.f32 %c0, %f0, %f1;", ""),
        (
            "8.7",
            "sm_120",
            "cvt.rn.satfinite.e2m1x2.f32 %c0, %f0, %f1;",
            "needs sm_100a, sm_101a, sm_120a from PTX 8.7, the sm_100f family from",
        ),
        ("8.7", "sm_100a", "cvt.rs.bf16x2.f32 %r0, %f0, %f1, %r1;", ""),
        ("8.6", "sm_101a", "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r0, %r1}, [%rd0];", ""),
        ("9.1", "sm_120a", SCALED, ""),
        ("9.0", "sm_120a", SCALED, "needs PTX 9.1 or later"),
        ("9.0", "sm_90", "vadd.u32.u32.u32 %r0.h1, %r1.b0, %r2.h0, %r3;", ""),
        ("9.0", "sm_90", "vadd2.u32.u32.u32 %r0.h1, %r1.b0, %r2, %r3;", ".b0 chooses no parts of %r1 here"),
        ("9.0", "sm_90", "vadd2.u32.u32.u32 %r0, %r1, 5, %r3;", "expected a .u32 register, got the literal 5"),
        ("9.0", "sm_90", "add.u32 %r0, %r1.b0, 5;", ".b0 chooses no parts of %r1 here"),
    ],
)
def test_versions_and_targets(version: str, target: str, body: str, message: str) -> None:
    expect(PTX.replace("VERSION", version).replace("TARGET", target).replace("BODY", body), message)
