"""C = A * B in bf16 on sm_90a, as PTX written by hand: tensor copies, mbarriers, `wgmma`, a producer and its consumers.

    python examples/hopper_matmul.py                      # on the interpreter, against float64
    python examples/hopper_matmul.py --device cuda 4096   # on a GPU, M = N = K = 4096
    python examples/hopper_matmul.py --ptx                # the text

One warpgroup copies tiles of A and B into a ring of stages; each of the others multiplies 64 or more rows of A by them.
CTAs stay and go from tile to tile; D leaves through shared memory, under the copies of the next tile. With clusters,
each CTA copies its share of B into the shared memory of all. A lies by rows (K-major), B too (N-major).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from warploom.runtime import TensorMap, load_ptx

BOX = 64
"""Elements of 16 bits in the 128 bytes that a swizzle permutes."""
ALIGNMENT = 1024
STEP_K = 16
PRODUCER_REGISTERS = 24
"""With so few, 240 are left for each thread of two consumers: 128 * 24 + 256 * 240 of 65536."""
CONSUMER_REGISTERS = {1: 232, 2: 240, 3: 160}


@dataclass(frozen=True)
class Structure:
    """How the kernel is built: the tile of a CTA, stages, CTAs of a cluster (along M), warpgroups that multiply.

    `group` rows of tiles are walked together; `columns` of D a consumer stages at a time.
    """

    m: int = 128
    n: int = 256
    k: int = 64
    stages: int = 4
    cluster: int = 1
    consumers: int = 2
    group: int = 8
    columns: int = 128

    @property
    def rows(self) -> int:
        """Rows of a consumer."""
        return self.m // self.consumers

    @property
    def a_bytes(self) -> int:
        return 2 * self.m * self.k

    @property
    def stage_bytes(self) -> int:
        return self.a_bytes + 2 * self.n * self.k

    @property
    def staging_bytes(self) -> int:
        """Shared memory in which a consumer stages 64 rows of D."""
        return 2 * 64 * self.columns

    @property
    def staging(self) -> int:
        return self.stages * self.stage_bytes

    @property
    def barriers(self) -> int:
        return self.staging + self.consumers * self.staging_bytes

    @property
    def shared(self) -> int:
        """Dynamic shared memory of a launch: stages, staging, two barriers a stage, and what aligns them."""
        return self.barriers + 16 * self.stages + ALIGNMENT

    @property
    def threads(self) -> int:
        return 128 * (self.consumers + 1)


def text(s: Structure) -> str:
    """The kernel `matmul(A, B, D, tiles along M, tiles along N, steps along K)`, the first three tensor maps."""
    return "\n".join([*_prologue(s), *_producer(s), *_consumer(s), *_end(s)]) + "\n"


def _prologue(s: Structure) -> Iterator[str]:
    """Addresses, and the barriers: %r31 is where they are, those that say "full" first."""
    clusters = f".reqnctapercluster {s.cluster}, 1, 1" if s.cluster > 1 else ""
    yield f""".version 8.0
.target sm_90a
.address_size 64
.extern .shared .align {ALIGNMENT} .b8 smem[];
.entry matmul(.param .align 64 .b8 A[128], .param .align 64 .b8 B[128], .param .align 64 .b8 D[128],
    .param .u32 tiles_m, .param .u32 tiles_n, .param .u32 steps)
.reqntid {s.threads}
.minnctapersm 1
{clusters}
{{
.reg .pred %p<12>; .reg .b16 %h; .reg .b32 %r<64>; .reg .b64 %rd<12>; .reg .f32 %f<{s.rows * s.n // 128}>;
mov.b64 %rd1, A; cvta.param.u64 %rd1, %rd1;
mov.b64 %rd2, B; cvta.param.u64 %rd2, %rd2;
mov.b64 %rd3, D; cvta.param.u64 %rd3, %rd3;
ld.param.u32 %r1, [tiles_m]; ld.param.u32 %r2, [tiles_n]; ld.param.u32 %r3, [steps];
mov.u32 %r4, smem; add.u32 %r4, %r4, {ALIGNMENT - 1}; and.b32 %r4, %r4, {-ALIGNMENT & 0xFFFFFFFF};
mov.u32 %r5, %tid.x; shr.u32 %r6, %r5, 7; and.b32 %r7, %r5, 127;   // warpgroup, thread of it
mov.u32 %r8, {"%cluster_ctarank" if s.cluster > 1 else "0"};
add.u32 %r31, %r4, {s.barriers};
setp.ne.u32 %p1, %r5, 0;
@%p1 bra ready;"""
    for stage in range(s.stages):
        yield f"mbarrier.init.shared.b64 [%r31+{8 * stage}], 1;"
        yield f"mbarrier.init.shared.b64 [%r31+{8 * (s.stages + stage)}], {s.consumers * s.cluster};"
    yield f"""fence.mbarrier_init.release.cluster;
ready:
{"barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" if s.cluster > 1 else "bar.sync 0;"}
mov.u32 %r9, %ctaid.x; mov.u32 %r10, %nctaid.x;                    // the tile, and how far the next is
div.u32 %r9, %r9, {s.cluster}; div.u32 %r10, %r10, {s.cluster};
div.u32 %r11, %r1, {s.cluster}; mul.lo.u32 %r12, %r11, %r2;        // rows of clusters, tiles
mov.u32 %r13, 0; mov.u32 %r14, 0;                                  // stage, parity
setp.ne.u32 %p2, %r6, 0;
@%p2 bra consumer;"""


def _origin(s: Structure) -> str:
    """%r20, %r21: where tile %r9 starts; `group` rows of tiles are walked column by column."""
    return f"""mul.lo.u32 %r22, %r2, {s.group}; div.u32 %r23, %r9, %r22; mul.lo.u32 %r24, %r23, {s.group};
sub.u32 %r25, %r11, %r24; min.u32 %r25, %r25, {s.group};           // rows of this group
mul.lo.u32 %r23, %r23, %r22; sub.u32 %r23, %r9, %r23;              // the tile's number in it
div.u32 %r21, %r23, %r25; mul.lo.u32 %r22, %r21, %r25; sub.u32 %r22, %r23, %r22; add.u32 %r20, %r24, %r22;
mad.lo.u32 %r20, %r20, {s.cluster}, %r8;
mul.lo.u32 %r20, %r20, {s.m}; mul.lo.u32 %r21, %r21, {s.n};"""


def _next_stage(s: Structure) -> str:
    return f"""add.u32 %r13, %r13, 1; setp.eq.u32 %p6, %r13, {s.stages};
@%p6 mov.u32 %r13, 0;
@%p6 xor.b32 %r14, %r14, 1;"""


def _producer(s: Structure) -> Iterator[str]:
    """One thread copies; the others of its warpgroup wait at the end."""
    share, multicast = s.n // s.cluster, s.cluster > 1
    copy = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
    yield f"""setmaxnreg.dec.sync.aligned.u32 {PRODUCER_REGISTERS};
@%p1 bra copied;
mov.u32 %r14, 1;
next_copies:
setp.ge.u32 %p4, %r9, %r12;
@%p4 bra copied;
{_origin(s)}
mov.u32 %r26, 0; mov.u32 %r27, 0;                                  // step, its k
copies:
shl.b32 %r32, %r13, 3; add.u32 %r32, %r32, %r31;
empty: mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r32+{8 * s.stages}], %r14;
@!%p5 bra empty;
mbarrier.arrive.expect_tx.shared.b64 _, [%r32], {s.stage_bytes};
mad.lo.u32 %r33, %r13, {s.stage_bytes}, %r4;
{copy} [%r33], [%rd1, {{%r27, %r20}}], [%r32];
mad.lo.u32 %r34, %r8, {2 * share * s.k}, %r33; mad.lo.u32 %r35, %r8, {share}, %r21; mov.b16 %h, {2**s.cluster - 1};"""
    for box in range(share // BOX):
        at = f"[%r34+{s.a_bytes + 2 * BOX * s.k * box}], [%rd2, {{%r35, %r27}}], [%r32]"
        yield f"{copy}.multicast::cluster {at}, %h;" if multicast else f"{copy} {at};"
        yield f"add.u32 %r35, %r35, {BOX};"
    yield f"""{_next_stage(s)}
add.u32 %r26, %r26, 1; add.u32 %r27, %r27, {s.k};
setp.lt.u32 %p7, %r26, %r3;
@%p7 bra copies;
add.u32 %r9, %r9, %r10;
bra next_copies;
copied: bar.warp.sync 0xFFFFFFFF;
bra end;"""


def _descriptor(leading: int, stride: int) -> int:
    """A matrix of 128-byte swizzles at address 0: bytes between its columns of swizzles, and between 8 rows."""
    return leading >> 4 << 16 | stride >> 4 << 32 | 1 << 62


def _consumer(s: Structure) -> Iterator[str]:
    """Rows %r40 and on of each tile. In a cluster addresses have the CTA's rank above bit 24; descriptors must not."""
    yield f"""consumer:
setmaxnreg.inc.sync.aligned.u32 {CONSUMER_REGISTERS[s.consumers]};
sub.u32 %r40, %r6, 1; mad.lo.u32 %r41, %r40, {s.staging_bytes}, %r4; add.u32 %r41, %r41, {s.staging};
mul.lo.u32 %r42, %r40, {128 * s.rows}; mul.lo.u32 %r40, %r40, {s.rows};
and.b32 %r43, %r7, 15; shr.u32 %r44, %r7, 5; mad.lo.u32 %r43, %r44, 16, %r43;   // the row that a lane stores
shr.u32 %r44, %r7, 4; and.b32 %r44, %r44, 1; and.b32 %r45, %r43, 7; mad.lo.u32 %r46, %r43, 128, %r41;
mov.b64 %rd4, {_descriptor(0, 1024)}; mov.b64 %rd5, {_descriptor(128 * s.k, 1024)};
setp.eq.u32 %p11, %r7, 0;
next_tile:
setp.ge.u32 %p4, %r9, %r12;
@%p4 bra end;
{_origin(s)}
mov.u32 %r26, 0; mov.u32 %r47, -1;                                 // step; the stage that is still read
products:
shl.b32 %r32, %r13, 3; add.u32 %r32, %r32, %r31;
full: mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r32], %r14;
@!%p5 bra full;
mad.lo.u32 %r33, %r13, {s.stage_bytes}, %r4; and.b32 %r33, %r33, 0x3FFFF;
add.u32 %r34, %r33, %r42; shr.u32 %r34, %r34, 4; cvt.u64.u32 %rd6, %r34; or.b64 %rd6, %rd6, %rd4;
add.u32 %r34, %r33, {s.a_bytes}; shr.u32 %r34, %r34, 4; cvt.u64.u32 %rd7, %r34; or.b64 %rd7, %rd7, %rd5;
setp.ne.u32 %p8, %r26, 0;
wgmma.fence.sync.aligned;"""
    held = s.n // 2
    for step in range(s.k // STEP_K):
        for tile in range(s.rows // 64):
            d = ", ".join(f"%f{tile * held + i}" for i in range(held))
            yield f"add.u64 %rd8, %rd6, {(2 * STEP_K * step + 64 * 128 * tile) >> 4};"
            yield f"add.u64 %rd9, %rd7, {(128 * STEP_K * step) >> 4};"
            add = "1" if step else "%p8"
            yield f"wgmma.mma_async.sync.aligned.m64n{s.n}k16.f32.bf16.bf16 {{{d}}}, %rd8, %rd9, {add}, 1, 1, 0, 1;"
    yield f"""wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 1;
{_release(s)}
mov.u32 %r47, %r13;
{_next_stage(s)}
add.u32 %r26, %r26, 1;
setp.lt.u32 %p7, %r26, %r3;
@%p7 bra products;
wgmma.wait_group.sync.aligned 0;
{_release(s)}
add.u32 %r48, %r20, %r40;"""
    yield from _epilogue(s)
    yield "add.u32 %r9, %r9, %r10;\nbra next_tile;"


def _release(s: Structure) -> str:
    """Says to the producer of every CTA that stage %r47, if any, has been read."""
    address = f"mad.lo.u32 %r49, %r47, 8, %r31; add.u32 %r49, %r49, {8 * s.stages};"
    chosen = f"setp.lt.u32 %p9, %r7, {s.cluster}; setp.ge.and.s32 %p9, %r47, 0, %p9;"
    if s.cluster == 1:
        return f"{chosen} {address}\n@%p9 mbarrier.arrive.shared.b64 _, [%r49];"
    return f"""{chosen} {address}
@%p9 mapa.shared::cluster.u32 %r49, %r49, %r7;
@%p9 mbarrier.arrive.shared::cluster.b64 _, [%r49];"""


def _epilogue(s: Structure) -> Iterator[str]:
    """Accumulators to bf16, by `stmatrix` into boxes of 64 columns, and from there by tensor stores."""
    for tile in range(s.rows // 64):
        for first in range(0, s.n, s.columns):
            # what is staged has been read; then each consumer meets at a barrier of its own
            yield "@%p11 cp.async.bulk.wait_group.read 0;\nbar.sync %r6, 128;"
            for column in range(0, s.columns, 16):
                at = (tile * s.n + first + column) // 2
                for i in range(4):
                    yield f"cvt.rn.bf16x2.f32 %r{51 + i}, %f{at + 2 * i + 1}, %f{at + 2 * i};"
                box, chunk = column // BOX, column % BOX // 8
                yield f"add.u32 %r55, %r44, {chunk}; xor.b32 %r55, %r55, %r45; mad.lo.u32 %r55, %r55, 16, %r46;"
                yield f"stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r55+{128 * 64 * box}], {{%r51, %r52, %r53, %r54}};"
            yield f"""fence.proxy.async.shared::cta;
bar.sync %r6, 128;
@!%p11 bra stored_{tile}_{first};"""
            for box in range(s.columns // BOX):
                yield f"add.u32 %r56, %r21, {first + BOX * box}; add.u32 %r57, %r48, {64 * tile};"
                yield f"add.u32 %r58, %r41, {128 * 64 * box};"
                yield "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd3, {%r56, %r57}], [%r58];"
            yield f"cp.async.bulk.commit_group;\nstored_{tile}_{first}:"


def _end(s: Structure) -> Iterator[str]:
    """Shared memory stays until it has been stored and nobody of the cluster writes to it."""
    yield "end:\n@%p2 cp.async.bulk.wait_group 0;"
    if s.cluster > 1:
        yield "bar.warp.sync 0xFFFFFFFF; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
    yield "ret;\n}"


def arguments(s: Structure, a: object, b: object, d: object, size: tuple[int, int, int]) -> list[object]:
    """What the kernel is launched with, for whole tiles."""
    m, n, k = size
    maps = ((a, (s.m, s.k)), (b, (s.k, BOX)), (d, (64, BOX)))
    return [*(TensorMap(x, box=box, swizzle=128) for x, box in maps), m // s.m, n // s.n, k // s.k]


def run(s: Structure, size: tuple[int, int, int], device: str, ctas: int, checks: str = "") -> float:
    """Multiplies random matrices, and returns the largest error of D by the largest element."""
    m, n, k = size
    draw = np.random.default_rng(0)
    a, b = (draw.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (k, n)))
    d = np.full((m, n), np.nan, ml_dtypes.bfloat16)
    load_ptx(text(s), "hopper_matmul.ptx").launch(
        "matmul", grid=ctas, block=s.threads, args=arguments(s, a, b, d, size), shared=s.shared, device=device,
        cluster=(s.cluster, 1, 1) if s.cluster > 1 else None, checks=checks.split(",") if checks else (),
    )  # fmt: skip
    expected = a.astype(np.float64) @ b.astype(np.float64)
    return float(np.max(np.abs(d.astype(np.float64) - expected)) / np.max(np.abs(expected)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", nargs="?", type=int, help="M = N = K (default 256x256x192)")
    parser.add_argument("--device", default="interp", choices=["interp", "cuda"])
    parser.add_argument("--cluster", type=int, default=1, help="CTAs that share B")
    parser.add_argument("--ptx", action="store_true", help="print the text and stop")
    given = parser.parse_args()
    s = Structure(cluster=given.cluster)
    if given.ptx:
        print(text(s))
        return
    size = (given.size,) * 3 if given.size else (256, 256, 192)
    if size[0] % (s.m * s.cluster) or size[1] % s.n or size[2] % s.k:
        parser.error(f"the size must be a multiple of {s.m * s.cluster}, {s.n} and {s.k}, got {size}")
    print(f"relative error {run(s, size, given.device, min(132, size[0] * size[1] // (s.m * s.n))):.1e}")


if __name__ == "__main__":
    main()
