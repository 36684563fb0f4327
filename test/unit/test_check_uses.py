"""check_ptx beyond single instructions: undeclared names, alignment, strides, metadata, divergence."""

from __future__ import annotations

import pytest
from expected_diagnostics import messages

PTX = """\
.version 8.5
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 tiles[];
.global .align 4 .b8 table[64];
.extern .func (.param .b32 r) vprintf (.param .b64 a);
.visible .entry k(.param .u64 a)
DIRECTIVES{
  .reg .b32 %r<40>; .reg .f32 %f<40>; .reg .b64 %rd<9>; .reg .pred %p<9>; .reg .f64 %d<9>; .reg .b16 %h<9>;
  .shared .align 32 .b8 smem[4096]; .shared .f32 one; .local .align 8 .b8 own[64];
BODY
  ret;
}
"""
LDMATRIX = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, "
FRAGMENTS = "{%f0, %f1, %f2, %f3}, {%r0, %r1}, {%r2, %r3}, {%f0, %f1, %f2, %f3}"
SPARSE = f"mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {FRAGMENTS}, "
LANE = "mov.u32 %r1, %laneid; "
WMMA = "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}, "


def check(body: str, directives: str = "") -> list[str]:
    return messages(PTX.replace("BODY", body).replace("DIRECTIVES", directives))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("add.s32 %r0, %r1, %r99;", "add.s32: no .reg declares '%r99'"),
        ("mov.u32 %r0, %tid.q;", "mov.u32: no .reg declares '%tid.q'"),
        ("ld.shared.b32 %r0, [%q];", "ld.shared.b32: no .reg declares '%q'"),
        ("mma.frob {%r0, %bad};", "mma.frob: no .reg declares '%bad'"),
        ("@%q ret;", "ret: no .reg declares the guard '%q'"),
        ("@!%p0 setp.eq.s32 %p1|%x, %r0, %r1;", "setp.eq.s32: no .reg declares '%x'"),
        ("selp.b32 %r0, %r1, %r2, !%x;", "selp.b32: no .reg declares '%x'"),
        ("bra NOWHERE;", "bra: there is no label 'NOWHERE' here"),
        ("L: brx.idx %r0, L;", "brx.idx: expected a label of .branchtargets, got 'L'"),
        ("L: T: .branchtargets L; bra T;", "bra: expected a label of a statement, got 'T'"),
        ("@%p0 bra tiles;", "bra: there is no label 'tiles' here"),
        ("{ INNER: ret; } bra INNER;", "bra: there is no label 'INNER' here"),
        ("{ .reg .b32 %inner; } mov.u32 %r0, %inner;", "mov.u32: no .reg declares '%inner'"),
        ("mov.u32 %r0, nothing;", "mov.u32: 'nothing' is not declared"),
        ("ld.global.b32 %r0, [nothing+4];", "ld.global.b32: 'nothing' is not declared"),
        ("call (%r0), nothing, (%rd0);", "call: 'nothing' is not declared"),
        ("frobnicate %r0, {%r1, %y};", "frobnicate: no .reg declares '%y'"),
    ],
)
def test_names_that_are_not_declared(body: str, message: str) -> None:
    assert check(body) == [message]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("ld.u32 %r0, [_];", "operand a: '_' discards a result, it is no address"),
        ("ld.local.u32 %r0, [0f3F800000];", "operand a: an address is an integer, got the literal 0f3F800000"),
        ("prefetchu.L1 [smem];", "operand a: expected an address in .global memory, got 'smem', a .shared variable"),
        ("prefetchu.L1 [table];", None),
        ("stackrestore.u32 3;", "operand a: expected a .u32 register, got the literal 3"),
        ("mbarrier.arrive.noComplete.shared.b64 _, [smem], -1;", "operand n: expected a number from 1 to 1048575"),
        ("createpolicy.fractional.L2::evict_first.L2::evict_last.b64 %rd0;", "is not a PTX instruction known here"),
        ("createpolicy.fractional.L2::evict_last.L2::evict_first.b64 %rd0;", None),
        ("stmatrix.sync.aligned.m8n8.x2.shared.b16 [smem], {0, 0};", "operand r: expected registers, got literals"),
        ("stmatrix.sync.aligned.m8n8.x2.shared.b16 [smem], {0, %r1};", None),
        ("txq.width.b32 %r0, [smem];", "operand a: expected a texture, a sampler or a surface, got 'smem'"),
    ],
)
def test_operands_that_are_something_else(body: str, message: str | None) -> None:
    diagnostics = check(body)
    assert len(diagnostics) == (message is not None)
    assert message is None or message in diagnostics[0]


OVERRIDE = "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes.override::global_address"
STRIDES = f"{OVERRIDE}.override::global_dim_stride [%rd0], [%rd1, %rd2, "


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (f"{OVERRIDE} [%rd0], [%rd1, %rd2, {{%r1, %r2}}], [smem];", None),
        (f"{STRIDES}{{%h1, %h2}}, {{%r1}}, %h3, {{%r1, %r2}}], [smem];", None),
        (f"{OVERRIDE} [%rd0], [%rd1, {{%r1, %r2}}], [smem];", "expected [map, address, {coordinates}]"),
        (f"{STRIDES}{{%h1}}, {{%r1}}, %h3, {{%r1, %r2}}], [smem];", "expected 2 x .b16, got 1"),
        (
            f"{STRIDES}{{%h1, %h2}}, {{%r1}}, %r3, {{%r1, %r2}}], [smem];",
            "expected a register that holds .b16, got .b32",
        ),
    ],
)
def test_fields_of_a_tensor_map_that_are_overridden(statement: str, message: str | None) -> None:
    text = PTX.replace("8.5", "9.4").replace("sm_90a", "sm_107a")
    diagnostics = messages(text.replace("BODY", statement).replace("DIRECTIVES", ""))
    assert len(diagnostics) == (message is not None)
    assert message is None or message in diagnostics[0]


def test_names_that_are_declared() -> None:
    body = """
      bra AFTER; { bra AFTER; INNER: bra INNER; .reg .b32 %x; mov.u32 %x, %laneid; } AFTER:
      mov.u64 %rd0, table; mov.u32 %r0, %ctaid.x; mov.u32 %r1, WARP_SZ; ld.param.u64 %rd1, [a]; mov.u32 %r2, tiles;
      shfl.sync.up.b32 %r3|%p0, %r3, 1, 0, -1; setp.eq.s32 _|%p1, %r0, %r1;
      { .param .b32 r; .param .b64 v; st.param.b64 [v], %rd0; call.uni (r), vprintf, (v); ld.param.b32 %r1, [r]; }
    """
    assert check(body) == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (LDMATRIX + "[smem+8];", "expected an address that is a multiple of 16 bytes, got smem+8"),
        (LDMATRIX + "[tiles+36];", "expected an address that is a multiple of 16 bytes, got tiles+36"),
        (LDMATRIX + "[one+2];", "expected an address that is a multiple of 16 bytes, got one+2"),
        (LDMATRIX + "[one+4];", None),
        (LDMATRIX + "[smem+48];", None),
        ("mov.u32 %r1, smem;" + LDMATRIX + "[%r1+8];", "a multiple of 16 bytes, got smem+8"),
        ("mov.u32 %r1, smem; add.s32 %r2, %r1, 4;" + LDMATRIX + "[%r2+16];", "16 bytes, got smem+20"),
        ("mov.u32 %r1, %tid.x; mov.u32 %r2, smem; add.u32 %r3, %r2, %r1;" + LDMATRIX + "[%r3];", None),
        (
            "mov.u32 %r1, %laneid; shl.b32 %r4, %r1, 3; mov.u32 %r2, smem; add.u32 %r3, %r2, %r4;"
            + LDMATRIX
            + "[%r3];",
            "expected an address that is a multiple of 16 bytes, got smem+8 in lane 1",
        ),
        (
            "mov.u32 %r1, %laneid; shl.b32 %r4, %r1, 4; mov.u32 %r2, smem; add.u32 %r3, %r2, %r4;"
            + LDMATRIX
            + "[%r3];",
            None,
        ),
        ("ld.shared.v4.f32 {%f0, %f1, %f2, %f3}, [smem+8];", "a multiple of 16 bytes, got smem+8"),
        ("ld.shared.v2.f32 {%f0, %f1}, [smem+8];", None),
        ("st.shared.f64 [smem+4], %d0;", "a multiple of 8 bytes, got smem+4"),
        ("ld.global.b16 %h0, [table+1];", "a multiple of 2 bytes, got table+1"),
        ("ld.global.b64 %rd0, [table+4];", None),
        ("ld.local.v2.b32 {%r0, %r1}, [own+4];", "a multiple of 8 bytes, got own+4"),
        (WMMA + "[smem+16], 16;", "expected an address that is a multiple of 32 bytes, got smem+16"),
        (WMMA + "[smem+32];", None),
        (WMMA + "[smem], 8;", None),
        (
            WMMA + "[smem], 28;",
            "expected a stride that is a multiple of 16 bytes, got 28 x f16",
        ),
        (
            "mov.u32 %r9, 36;" + WMMA + "[smem], %r9;",
            "a multiple of 16 bytes, got 36 x f16",
        ),
        ("mov.u32 %r9, 40;" + WMMA + "[smem], %r9;", None),
        (WMMA + "[smem], 64;", None),
        (
            "stmatrix.sync.aligned.m8n8.x1.shared.b16 [smem+4], {%r0};",
            "stmatrix.sync.aligned.m8n8.x1.shared.b16: expected an address that is a multiple of 16 bytes, got smem+4",
        ),
    ],
)
def test_alignment(body: str, message: str | None) -> None:
    diagnostics = check(body)
    assert [message in m for m in diagnostics] == [True] if message else diagnostics == [], diagnostics


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("mov.b32 %r9, 0x44444440;" + SPARSE + "%r9, 0;", "operand e: nibble 0 of the metadata 0x44444440 is 0b0000"),
        ("mov.b32 %r9, 0x44444440;" + SPARSE + "{%r9}, 0;", "operand e: nibble 0 of the metadata 0x44444440"),
        ("mov.b32 %r9, 0x44444444;" + SPARSE + "%r9, 0;", None),
        ("@%p0 mov.b32 %r9, 0;" + SPARSE + "%r9, 0;", None),
        ("mov.b32 %r9, 0; mov.b32 %r9, 0x44444444;" + SPARSE + "%r9, 0;", None),
        ("ld.shared.b32 %r9, [smem];" + SPARSE + "%r9, 0;", None),
    ],
)
def test_constant_metadata(body: str, message: str | None) -> None:
    diagnostics = check(body)
    assert [message in m for m in diagnostics] == [True] if message else diagnostics == [], diagnostics


LOW = LANE + "setp.lt.u32 %p0, %r1, 16; "
TOGETHER = "all lanes of a warp must execute an .aligned instruction together, "
MOVE = "movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r0;"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (LOW + "@%p0 " + MOVE, "its guard is true in lanes 0-15 only"),
        (LOW + "@!%p0 " + MOVE, "its guard is true in lanes 16-31 only"),
        ("setp.eq.u32 %p0, %r1, 0; mov.u32 %r1, %laneid; @%p0 " + MOVE, "its guard is true in lane 0 only"),
        (
            "mov.u32 %r1, %laneid; and.b32 %r2, %r1, 3; setp.ne.s32 %p0, %r2, 0; not.pred %p1, %p0; @%p0 " + MOVE,
            "lanes 1-3, 5",
        ),
        (LOW + "setp.ge.u32 %p1, %r1, 8; and.pred %p2, %p0, %p1; @%p2 " + MOVE, "its guard is true in lanes 8-15 only"),
        (LOW + "@%p0 bra L;\n" + MOVE + " L: ret;", "the 'bra' of line 11 branches in lanes 0-15 only"),
        (LOW + "@%p0 exit;\n" + MOVE, "the 'exit' of line 11 ends in lanes 0-15 only"),
        (LOW + "@%p0 bra L;\n L: " + MOVE, None),
        ("mov.u32 %r1, %laneid; setp.lt.u32 %p0, %r1, 32; @%p0 " + MOVE, None),
        ("mov.u32 %r1, %tid.x; setp.lt.u32 %p0, %r1, 16; @%p0 " + MOVE, None),
        ("mov.u32 %r1, %ctaid.x; setp.lt.u32 %p0, %r1, 16; @%p0 " + MOVE, None),
        (LOW + "@%p0 add.s32 %r5, %r5, 1; " + MOVE, None),
        (LOW + LOW + "@%p0 " + MOVE, None),
    ],
)
def test_divergence(body: str, why: str | None) -> None:
    diagnostics = check(body)
    assert [TOGETHER in m and why in m for m in diagnostics] == [True] if why else diagnostics == [], diagnostics


def test_the_threads_place_is_known_where_the_size_of_the_cta_is() -> None:
    body = "mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 4; setp.eq.s32 %p0, %r2, 0; @%p0 " + MOVE
    warps = "mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; setp.eq.s32 %p0, %r2, 0; @%p0 " + MOVE
    rows = "mov.u32 %r1, %tid.y; setp.eq.s32 %p0, %r1, 0; @%p0 " + MOVE
    for directives, count in ((".reqntid 128, 1, 1\n", 1), (".reqntid 64\n", 1), (".reqntid 16, 8\n", 0), ("", 0)):
        assert len(check(body, directives)) == count
        assert check(warps, directives) == check(rows, directives) == []
    size = "mov.u32 %r1, %ntid.x; setp.eq.s32 %p0, %r1, 128; @%p0 " + MOVE
    assert check(size, ".reqntid 128, 1, 1\n") == []
