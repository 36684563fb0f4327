"""A whole matrix kernel of Hopper, to plant bugs in: tensor copies by a producer warp, `wgmma`, a tensor store."""

from __future__ import annotations

from typing import Any

import numpy as np

from warploom.runtime import TensorMap, load_ptx
from warploom.runtime.interp import InterpreterError
from warploom.runtime.interp.machine.memory import Finding

TILE, DEPTH, STEPS = 64, 64, 4
STAGE = TILE * DEPTH * 2
K = DEPTH * STEPS
D = ", ".join(f"%f{i}" for i in range(32))
DESCRIPTOR = 1 << 62 | 64 << 32 | 1 << 16
"""128-byte swizzle, 1024 bytes from eight rows to the next; the address is to be added."""


def _product(step: int) -> str:
    operands = "%da, %db" if not step else "%da1, %db1"
    advance = f"add.s64 %da1, %da, {2 * step}; add.s64 %db1, %db, {2 * step};\n    " if step else ""
    opcode = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"
    return f"    {advance}{opcode} {{{D}}}, {operands}, %add, 1, 1, 0, 0;\n    mov.pred %add, 1;"


def _staged(i: int) -> str:
    """Stores element number i of D of a thread; %at is the address of its first one."""
    row, column = 8 * (i // 2 % 2), 8 * (i // 4) + i % 2
    return f"    st.shared.f32 [%at+{(row * TILE + column) * 4}], %f{i};"


def text() -> str:
    """C = A B^T for 64 x 256 halves each, in two stages: a warpgroup of consumers, and a thread that copies."""
    products = "\n".join(_product(i) for i in range(DEPTH // 16))
    stores = "\n".join(_staged(i) for i in range(32))
    return f""".version 8.6
.target sm_90a
.address_size 64
.visible .entry gemm(.param .align 64 .b8 map_a[128], .param .align 64 .b8 map_b[128], .param .align 64 .b8 map_c[128])
    .reqntid 256 .minnctapersm 1
{{
    .reg .f32 %f<32>; .reg .b64 %ma, %mb, %mc, %da, %db, %da1, %db1, %wide;
    .reg .b32 %t, %w, %lane, %stage, %parity, %i, %at, %full, %empty, %sa, %sb, %x, %y, %k;
    .reg .pred %first, %producer, %p, %add, %more, %one;
    .shared .align 1024 .b8 as[{2 * STAGE}]; .shared .align 1024 .b8 bs[{2 * STAGE}];
    .shared .align 1024 .b8 cs[{TILE * TILE * 4}]; .shared .align 8 .b64 full[2]; .shared .align 8 .b64 empty[2];
    mov.u32 %t, %tid.x; setp.eq.u32 %first, %t, 0; shr.u32 %w, %t, 5; and.b32 %lane, %t, 31;
    mov.b64 %ma, map_a; cvta.param.u64 %ma, %ma; mov.b64 %mb, map_b; cvta.param.u64 %mb, %mb;
    mov.b64 %mc, map_c; cvta.param.u64 %mc, %mc;
    @%first mbarrier.init.shared::cta.b64 [full], 1; @%first mbarrier.init.shared::cta.b64 [full+8], 1;
    @%first mbarrier.init.shared::cta.b64 [empty], 1; @%first mbarrier.init.shared::cta.b64 [empty+8], 1;
    @%first fence.mbarrier_init.release.cluster;
    bar.sync 0;
    mov.u32 %i, 0; mov.u32 %stage, 0; mov.u32 %parity, 0;
    setp.ge.u32 %producer, %t, 128;
    @%producer bra PRODUCER;
    setmaxnreg.inc.sync.aligned.u32 232;
    mov.pred %add, 0;
CONSUME:
    mov.u32 %full, full; shl.b32 %x, %stage, 3; add.u32 %full, %full, %x;
    mov.u32 %empty, empty; add.u32 %empty, %empty, %x;
    mov.u32 %sa, as; mad.lo.u32 %sa, %stage, {STAGE}, %sa; mov.u32 %sb, bs; mad.lo.u32 %sb, %stage, {STAGE}, %sb;
ARRIVED:
    mbarrier.try_wait.parity.shared::cta.b64 %p, [%full], %parity;
    @!%p bra ARRIVED;
    shr.u32 %x, %sa, 4; cvt.u64.u32 %da, %x; add.s64 %da, %da, {DESCRIPTOR};
    shr.u32 %x, %sb, 4; cvt.u64.u32 %db, %x; add.s64 %db, %db, {DESCRIPTOR};
    wgmma.fence.sync.aligned;
{products}
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    @%first mbarrier.arrive.shared::cta.b64 _, [%empty];
    add.u32 %i, %i, 1; xor.b32 %stage, %stage, 1;
    setp.eq.u32 %p, %stage, 0; selp.u32 %x, 1, 0, %p; xor.b32 %parity, %parity, %x;
    setp.lt.u32 %more, %i, {STEPS};
    @%more bra CONSUME;
    shr.u32 %x, %lane, 2; shl.b32 %y, %w, 4; add.u32 %x, %x, %y; mul.lo.u32 %x, %x, {TILE * 4};
    and.b32 %y, %lane, 3; mad.lo.u32 %x, %y, 8, %x; mov.u32 %at, cs; add.u32 %at, %at, %x;
{stores}
    fence.proxy.async.shared::cta;
    bar.sync 1, 128;
    @%first cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%mc, {{0, 0}}], [cs];
    @%first cp.async.bulk.commit_group;
    @%first cp.async.bulk.wait_group.read 0;
    bra END;
PRODUCER:
    setmaxnreg.dec.sync.aligned.u32 40;
    setp.ne.u32 %p, %t, 128;
    @%p bra END;
PRODUCE:
    mov.u32 %full, full; shl.b32 %x, %stage, 3; add.u32 %full, %full, %x;
    mov.u32 %empty, empty; add.u32 %empty, %empty, %x;
    mov.u32 %sa, as; mad.lo.u32 %sa, %stage, {STAGE}, %sa; mov.u32 %sb, bs; mad.lo.u32 %sb, %stage, {STAGE}, %sb;
    xor.b32 %y, %parity, 1; mul.lo.u32 %k, %i, {DEPTH};
FREE:
    mbarrier.try_wait.parity.shared::cta.b64 %p, [%empty], %y;
    @!%p bra FREE;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full], {2 * STAGE};
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%sa], [%ma, {{%k, 0}}], [%full];
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%sb], [%mb, {{%k, 0}}], [%full];
    add.u32 %i, %i, 1; xor.b32 %stage, %stage, 1;
    setp.eq.u32 %p, %stage, 0; selp.u32 %x, 1, 0, %p; xor.b32 %parity, %parity, %x;
    setp.lt.u32 %more, %i, {STEPS};
    @%more bra PRODUCE;
END:
    ret;
}}
"""


def run(ptx: str, swizzles: tuple[int, int] = (128, 128), rows: int = TILE, **options: Any) -> tuple[Finding, ...]:
    """Runs a variant of `text()` under all checks, or those of `checks`; what it finds, and else whether C is right.
    `swizzles` are those of the copies of A and B, `rows` are those of A that are copied; the others are zero."""
    random = np.random.default_rng(5)
    a, b = (random.standard_normal((TILE, K)).astype(np.float16) for _ in range(2))
    c = np.zeros((TILE, TILE), np.float32)
    a[rows:] = 0
    maps = [TensorMap(m, (n, DEPTH), swizzle=s) for m, n, s in zip((a, b), (rows, TILE), swizzles, strict=True)]
    options.setdefault("checks", "all")
    try:
        module = load_ptx(ptx, "k.ptx")
        notes = module.launch(
            "gemm", (1, 1, 1), (256, 1, 1), [*maps, TensorMap(c, (TILE, TILE))], device="interp", **options
        )
    except InterpreterError as error:
        return error.findings
    expected = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.abs(c - expected).max() < 1e-3
    return tuple(getattr(notes, "notes", ()) or ())


SEND = "mbarrier::complete_tx::bytes"


def map_text() -> str:
    """A map that is changed and copied, and boxes that it loads, reduces, prefetches; pixels, if one asks for them."""
    load, edit = f"cp.async.bulk.tensor.2d.shared::cluster.global.{SEND}", "tensormap.replace.tile"
    return f""".version 8.6
.target sm_90a
.address_size 64
.visible .entry maps(.param .align 64 .b8 map[128], .param .u64 own, .param .u32 pixels)
{{
    .shared .align 1024 .b8 tile[8192]; .shared .align 128 .b8 mine[128]; .shared .align 8 .b64 done;
    .reg .pred %first, %p, %pixels; .reg .b32 %t, %x, %y; .reg .b64 %map, %own, %at, %size; .reg .b16 %o;
    mov.u32 %t, %tid.x; setp.eq.u32 %first, %t, 0; ld.param.u64 %own, [own]; ld.param.u32 %x, [pixels];
    setp.eq.u32 %pixels, %x, 99; mov.u32 %x, mine; shl.b32 %y, %t, 2; add.u32 %x, %x, %y; mov.b64 %map, map;
    cvta.param.u64 %map, %map; cvt.u64.u32 %at, %y; add.s64 %at, %map, %at; ld.b32 %y, [%at]; st.shared.b32 [%x], %y;
    @%first mbarrier.init.shared::cta.b64 [done], 1; @%first fence.mbarrier_init.release.cluster; mov.b64 %size, 512;
    bar.warp.sync -1;
    @%first {edit}.global_dim.shared::cta.b1024.b32 [mine], 1, 50;
    @%first {edit}.box_dim.shared::cta.b1024.b32 [mine], 1, 32;
    @%first {edit}.element_stride.shared::cta.b1024.b32 [mine], 1, 1;
    @%first {edit}.global_stride.shared::cta.b1024.b64 [mine], 0, %size;
    @%first {edit}.swizzle_mode.shared::cta.b1024.b32 [mine], 3;
    @%first {edit}.fill_mode.shared::cta.b1024.b32 [mine], 1;
    bar.warp.sync -1;
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%own], [mine], 128;
    fence.proxy.tensormap::generic.acquire.gpu [%own], 128;
    @%first cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%own, {{64, 8}}];
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [done], 4096;
    @%first {load} [tile], [%own, {{64, 40}}], [done];
ARRIVED:
    mbarrier.try_wait.parity.shared::cta.b64 %p, [done], 0;
    @!%p bra ARRIVED;
    @%first cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%own, {{0, 8}}], [tile];
    @%first cp.reduce.async.bulk.tensor.2d.global.shared::cta.max.tile.bulk_group [%own, {{64, 0}}], [tile];
    @%first cp.async.bulk.commit_group;
    @%first cp.async.bulk.wait_group 0;
    @!%pixels bra END;
    mov.b16 %o, 1; mov.u32 %x, 0;
    cp.async.bulk.prefetch.tensor.4d.L2.global.im2col [%map, {{%x, %x, %x, 0}}], {{%o, %o}};
    cp.async.bulk.tensor.4d.shared::cluster.global.im2col.{SEND} [tile], [%map, {{%x, 0, 0, 0}}], [done], {{%o, 0}};
    cp.async.bulk.tensor.3d.global.shared::cta.im2col_no_offs.bulk_group [%map, {{0, %x, 0}}], [tile];
END:
    ret;
}}
"""


def cluster_text() -> str:
    """Two CTAs of a cluster: a box for both by multicast, words sent to each other, dense and sparse products of what
    came, and bulk copies of what was sent."""
    load = f"cp.async.bulk.tensor.2d.shared::cluster.global.tile.{SEND}.multicast::cluster"
    return f""".version 8.6
.target sm_90a
.address_size 64
.visible .entry meet(.param .align 64 .b8 map[128], .param .u64 out) .reqntid 128 .reqnctapercluster 2, 1, 1
{{
    .reg .f32 %f<32>; .reg .b64 %map, %out, %at, %da; .reg .b32 %t, %rank, %other, %x, %y, %there, %bar, %a<4>;
    .reg .pred %first, %leader, %p, %one; .reg .b16 %mask;
    .shared .align 1024 .b8 as[8192]; .shared .align 16 .b8 words[512]; .shared .align 16 .b8 sums[16];
    .shared .align 8 .b64 bars[2];
    mov.u32 %t, %tid.x; mov.u32 %rank, %cluster_ctarank; xor.b32 %other, %rank, 1;
    setp.eq.u32 %first, %t, 0; setp.eq.and.u32 %leader, %rank, 0, %first;
    mov.b64 %map, map; cvta.param.u64 %map, %map; ld.param.u64 %out, [out]; cvta.to.global.u64 %out, %out;
    setp.lt.u32 %p, %t, 4; mov.u32 %x, sums; mad.lo.u32 %x, %t, 4, %x; mov.u32 %y, 0; @%p st.shared.u32 [%x], %y;
    @%first mbarrier.init.shared::cta.b64 [bars], 1; @%first mbarrier.init.shared::cta.b64 [bars+8], 1;
    @%first fence.mbarrier_init.release.cluster;
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bars], 8192;
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bars+8], 528;
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    mov.b16 %mask, 3;
    @%leader {load} [as], [%map, {{0, 0}}], [bars], %mask;
    mov.u32 %x, bars; mapa.shared::cluster.u32 %bar, %x, %other; getctarank.shared::cluster.u32 %y, %bar;
    mov.u32 %x, words; mapa.shared::cluster.u32 %there, %x, %other; mad.lo.u32 %there, %t, 4, %there;
    mad.lo.u32 %y, %y, 1000, %t;
    st.async.weak.shared::cluster.{SEND}.u32 [%there], %y, [%bar+8];
    mov.u32 %x, sums; mapa.shared::cluster.u32 %there, %x, %other; mad.lo.u32 %there, %t, 4, %there;
    @%p red.async.relaxed.cluster.shared::cluster.{SEND}.add.u32 [%there], %y, [%bar+8];
BOX:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p, [bars], 0;
    @!%p bra BOX;
SENT:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p, [bars+8], 0;
    @!%p bra SENT;
    mov.u32 %x, as; and.b32 %x, %x, 0x3FFFF; shr.u32 %x, %x, 4; cvt.u64.u32 %da, %x; add.s64 %da, %da, {DESCRIPTOR};
    mov.b32 %a0, 0x3C003C00; mov.b32 %a1, 0; mov.b32 %a2, %a0; mov.b32 %a3, %a1; mov.b32 %y, 0x44444444;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{D}}}, %da, %da, 0, 1, 1, 0, 0;
    wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{D}}}, {{%a0, %a1, %a2, %a3}}, %da, 1, -1, 1, 0;
    wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.f16.f16 {{{D}}}, {{%a0, %a1, %a2, %a3}}, %da, %y, 1, 1, 1, 1, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    elect.sync %x|%one, 0xFFFFFFFF;
    mov.u32 %x, words; mad.lo.u32 %x, %t, 4, %x; ld.shared.u32 %y, [%x]; mov.u32 %x, %ctaid.x;
    mul.wide.u32 %at, %x, 512; add.u64 %out, %out, %at; mul.wide.u32 %at, %t, 4; add.u64 %at, %out, %at;
    cvt.rzi.u32.f32 %x, %f0; add.u32 %y, %y, %x; @%one add.u32 %y, %y, 1; st.global.u32 [%at], %y;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @!%first bra END;
    cp.async.bulk.global.shared::cta.bulk_group [%out+1024], [words], 512;
    mov.u32 %x, %ctaid.x; mul.wide.u32 %at, %x, 512; sub.u64 %out, %out, %at;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%out+2048], [words], 512;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
END:
    bar.warp.sync 0xFFFFFFFF;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    ret;
}}
"""


def run_clusters(ptx: str) -> tuple[Finding, ...]:
    """Runs a variant of `cluster_text()` under all checks; what it finds, and else whether the words are right."""
    a = np.random.default_rng(6).integers(0, 4, (TILE, K)).astype(np.float16)
    out = np.zeros(768, np.uint32)
    arguments = [TensorMap(a, (TILE, DEPTH), swizzle=128), out]
    try:
        load_ptx(ptx, "k.ptx").launch("meet", 2, 128, arguments, device="interp", checks="all")
    except InterpreterError as error:
        return error.findings
    sent = np.arange(128) + 1000 * np.arange(2)[:, None]
    assert np.array_equal(out[256:512], sent.reshape(-1))
    assert np.array_equal(out[512:640], sent.sum(axis=0))
    return ()
