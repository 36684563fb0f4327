"""Clusters of CTAs: who is who, shared memory of others, the barrier, and what is said when it goes wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from interpreted import Loaded, outputs, program

from warploom.dialect.ptx.parser import parse_ptx
from warploom.runtime import load_ptx
from warploom.runtime.interp import InterpreterError

Dim3 = tuple[int, int, int]
FOUR = ".shared .align 8 .b64 bar; .shared .align 16 .b32 word[64];"
PLACE = """mov.u32 %r20, %tid.x; mov.u32 %r21, %ctaid.x; mov.u32 %r22, %ntid.x; mad.lo.u32 %r23, %r21, %r22, %r20;
    ld.param.u64 %rd15, [out]; mad.wide.u32 %rd15, %r23, 4, %rd15;
    mov.u32 %r24, %cluster_ctarank; mov.u32 %r25, %cluster_nctarank;"""
SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def run(body: str, ctas: int, threads: int, cluster: int | None, **options: Any) -> np.ndarray[Any, Any]:
    """One word of each thread, left in %r0."""
    out = outputs(ctas * threads, "u4")
    built = program(f"{FOUR} {PLACE} {body} st.global.u32 [%rd15], %r0;", ".param .u64 out")
    shape = None if cluster is None else (cluster, 1, 1)
    built.launch("k", (ctas, 1, 1), (threads, 1, 1), [out], cluster=shape, **options)
    return out.reshape(ctas, threads)


# Special registers


@pytest.mark.parametrize(("grid", "cluster"), [((8, 6, 4), (2, 3, 2)), ((6, 1, 2), (3, 1, 1)), ((5, 3, 2), None)])
def test_every_cta_knows_its_place(grid: Dim3, cluster: Dim3 | None) -> None:
    names = ["%clusterid", "%nclusterid", "%cluster_ctaid", "%cluster_nctaid", "%ctaid"]
    registers = [f"{name}.{axis}" for name in names for axis in "xyz"] + ["%cluster_ctarank", "%cluster_nctarank"]
    moves = " ".join(f"mov.u32 %r4, {r}; st.global.u32 [%rd1+{4 * i}], %r4;" for i, r in enumerate(registers))
    body = f"""mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %ctaid.z; mov.u32 %r5, %nctaid.x;
        mov.u32 %r6, %nctaid.y; mad.lo.u32 %r2, %r3, %r6, %r2; mad.lo.u32 %r1, %r2, %r5, %r1;
        ld.param.u64 %rd1, [out]; mad.wide.u32 %rd1, %r1, {4 * (len(registers) + 1)}, %rd1; {moves}
        mov.pred %p1, %is_explicit_cluster; selp.u32 %r4, 1, 0, %p1; st.global.u32 [%rd1+{4 * len(registers)}], %r4;"""
    count = grid[0] * grid[1] * grid[2]
    out = outputs(count * (len(registers) + 1), "u4")
    program(body, ".param .u64 out").launch("k", grid, (1, 1, 1), [out], cluster=cluster)
    x, y, z = cluster or (1, 1, 1)
    expected: list[list[int]] = []
    for at in np.ndindex(grid[::-1]):
        cta = np.array(at[::-1])
        size = np.array([x, y, z])
        inner = cta % size
        rank = inner[0] + x * (inner[1] + y * inner[2])
        expected.append(
            [*(cta // size), *(np.array(grid) // size), *inner, x, y, z, *cta, rank, x * y * z, cluster is not None]
        )
    assert out.reshape(count, -1).tolist() == [[int(v) for v in row] for row in expected]


# Each other's memory


@pytest.mark.parametrize("ctas", [2, 8])
@pytest.mark.parametrize("how", ["shared::cluster", "generic"])
def test_each_cta_reads_and_writes_its_neighbours_memory(ctas: int, how: str) -> None:
    """Every thread puts a word into the next CTA and adds one to a counter there; then reads back the one before's."""
    space, kind = (".shared::cluster", "u32") if how == "shared::cluster" else ("", "u64")
    address = "%r10" if how == "shared::cluster" else "%rd2"
    start = "mov.u32 %r9, word;" if kind == "u32" else "mov.u64 %rd1, word; cvta.shared.u64 %rd1, %rd1;"
    local = "%r9" if kind == "u32" else "%rd1"
    step = "mad.lo.u32 %r10, %r20, 4, %r10;" if kind == "u32" else "mad.wide.u32 %rd2, %r20, 4, %rd2;"
    body = f"""{start} setp.eq.u32 %p1, %r20, 0; mov.u32 %r1, 0; @%p1 st.shared.u32 [word+128], %r1; {SYNC}
        add.u32 %r2, %r24, 1; rem.u32 %r2, %r2, %r25; mapa{space}.{kind} {address}, {local}, %r2;
        red{space}.add.u32 [{address}+128], %r20; {step}
        mul.lo.u32 %r3, %r23, 3; st{space}.u32 [{address}], %r3; {SYNC}
        ld.shared.u32 %r4, [word+128]; add.u32 %r2, %r24, %r25; sub.u32 %r2, %r2, 1; rem.u32 %r2, %r2, %r25;
        mapa{space}.{kind} {address}, {local}, %r2; {step} ld{space}.u32 %r5, [{address}];
        getctarank{space}.{kind} %r6, {address}; mad.lo.u32 %r0, %r4, 1000, %r5; mad.lo.u32 %r0, %r6, 1000000, %r0;
        {SYNC}"""
    got = run(body, ctas * 3, 32, ctas)
    cta = np.arange(3 * ctas)
    base, rank = cta - cta % ctas, cta % ctas
    written = 3 * ((base + (rank - 2) % ctas)[:, None] * 32 + np.arange(32))
    expected = sum(range(32)) * 1000 + written + ((rank - 1) % ctas)[:, None] * 1_000_000
    assert np.array_equal(got, expected)


def test_an_mbarrier_of_another_cta() -> None:
    """CTA 0 waits until all CTAs of its cluster have written their word to it."""
    body = f"""setp.eq.u32 %p1, %r20, 0; @%p1 mbarrier.init.shared.b64 [bar], %r25; {SYNC}
        mov.u32 %r1, bar; mapa.shared::cluster.u32 %r2, %r1, 0; mov.u32 %r3, word; mapa.shared::cluster.u32 %r4, %r3, 0;
        mad.lo.u32 %r4, %r24, 4, %r4; mul.lo.u32 %r5, %r21, 11; @%p1 st.shared::cluster.u32 [%r4], %r5;
        @%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r2]; mov.u32 %r0, 0; setp.ne.u32 %p2, %r24, 0;
        @%p2 bra END; WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [bar], 0; @!%p3 bra WAIT;
        rem.u32 %r6, %r20, %r25; mad.lo.u32 %r3, %r6, 4, %r3; ld.shared.u32 %r0, [%r3]; END: {SYNC}"""
    got = run(body, 8, 32, 4)
    for first in (0, 4):
        assert got[first].tolist() == [11 * (first + t % 4) for t in range(32)]
        assert not got[first + 1 : first + 4].any()


def test_required_clusters_need_no_argument() -> None:
    text = """.version 8.6\n.target sm_90a\n.address_size 64
.visible .entry k(.param .u64 out) .explicitcluster .reqnctapercluster 2, 1, 1 { .reg .b32 %r<4>; .reg .b64 %rd<3>;
mov.u32 %r1, %cluster_nctarank; ld.param.u64 %rd1, [out]; st.global.u32 [%rd1], %r1; }"""
    out = outputs(1, "u4")
    built = Loaded(parse_ptx(text))
    built.launch("k", (4, 1, 1), (1, 1, 1), [out])
    assert out[0] == 2
    with pytest.raises(InterpreterError, match=r"asks for a cluster of \(2, 1, 1\), got \(4, 1, 1\)"):
        built.launch("k", (4, 1, 1), (1, 1, 1), [out], cluster=(4, 1, 1))
    with pytest.raises(InterpreterError, match="a multiple of the cluster"):
        built.launch("k", (5, 1, 1), (1, 1, 1), [out])
    explicit = Loaded(parse_ptx(text.replace(".reqnctapercluster 2, 1, 1", ".maxclusterrank 4")))
    with pytest.raises(InterpreterError, match="asks for a launch with a cluster"):
        explicit.launch("k", (4, 1, 1), (1, 1, 1), [out])
    with pytest.raises(InterpreterError, match="at most 4 CTAs"):
        explicit.launch("k", (8, 1, 1), (1, 1, 1), [out], cluster=(8, 1, 1))
    with pytest.raises(InterpreterError, match="clusters need sm_90"):
        Loaded(parse_ptx(text.replace("sm_90a", "sm_80"))).launch("k", (4, 1, 1), (1, 1, 1), [out])


def test_the_cluster_of_a_loaded_module() -> None:
    text = """.version 8.6\n.target sm_90a\n.address_size 64
.visible .entry k(.param .u64 out) { .reg .b32 %r<4>; .reg .b64 %rd<3>; mov.u32 %r1, %cluster_nctarank;
ld.param.u64 %rd1, [out]; st.global.u32 [%rd1], %r1; }"""
    for cluster, size in ((None, 1), (2, 2), ((2, 3), 6)):
        out = outputs(1, "u4")
        load_ptx(text).launch("k", (2, 3), 1, [out], device="interp", cluster=cluster)
        assert out[0] == size


def test_a_warp_may_work_between_arriving_and_waiting() -> None:
    """The barrier of a cluster does not wait for threads that have exited."""
    body = f"""setp.eq.u32 %p1, %r24, 1; @%p1 st.global.u32 [%rd15], 77; @%p1 exit; mov.u32 %r1, 0;
        barrier.cluster.arrive.release; LOOP: add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, %r20; @%p2 bra LOOP;
        barrier.cluster.wait.acquire; mov.u32 %r0, %r1; {SYNC}"""
    got = run(body, 4, 64, 2)
    assert got[::2].tolist() == [[max(t, 1) for t in range(64)]] * 2
    assert got[1::2].tolist() == [[77] * 64] * 2


def test_addresses_have_the_rank_of_their_cta() -> None:
    """As on an H200: the own variable's too; without a rank, an address for the cluster is of CTA 0."""
    body = f"""mov.u32 %r1, word; shr.u32 %r2, %r1, 24; add.u32 %r3, %r21, 5; st.shared.u32 [word], %r3; {SYNC}
        and.b32 %r4, %r1, 0xFFFFFF; ld.shared::cluster.u32 %r5, [%r4]; ld.shared.u32 %r6, [%r4];
        ld.shared::cluster.u32 %r7, [%r1]; ld.shared::cluster.u32 %r8, [word];
        mad.lo.u32 %r0, %r5, 100, %r6; mad.lo.u32 %r0, %r7, 10000, %r0; mad.lo.u32 %r0, %r8, 1000000, %r0;
        mad.lo.u32 %r0, %r2, 100000000, %r0; {SYNC}"""
    got = run(body, 4, 1, 2).ravel()
    own, first = np.arange(4) + 5, np.array([5, 5, 7, 7])
    assert got.tolist() == (own * 1010001 + first * 100 + np.arange(4) % 2 * 10**8).tolist()


def test_spaces_of_addresses() -> None:
    body = """mov.u64 %rd1, word; cvta.shared.u64 %rd1, %rd1; xor.b32 %r1, %r24, 1; mapa.u64 %rd2, %rd1, %r1;
        mapa.u64 %rd3, %rd1, %r24; isspacep.shared %p1, %rd1; isspacep.shared %p2, %rd2; isspacep.shared::cta %p3, %rd3;
        isspacep.shared::cluster %p4, %rd2; isspacep.global %p5, %rd2; selp.u32 %r0, 1, 0, %p1;
        @%p2 add.u32 %r0, %r0, 2; @%p3 add.u32 %r0, %r0, 4; @%p4 add.u32 %r0, %r0, 8; @%p5 add.u32 %r0, %r0, 16;
        cvta.to.shared::cluster.u64 %rd4, %rd2; getctarank.shared::cluster.u64 %r2, %rd4; mad.lo.u32 %r0, %r2, 100, %r0;
        ld.u32 %r3, [%rd3]; ld.shared.u32 %r4, [word];"""
    assert run(body, 2, 1, 2).tolist() == [[113], [13]]


# What goes wrong


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (f"{SYNC} barrier.cluster.arrive; barrier.cluster.arrive;", "arrives again at the cluster's barrier"),
        ("barrier.cluster.wait;", "waits at the cluster's barrier and has not arrived"),
        (
            "setp.eq.u32 %p1, %r20, 3; @%p1 barrier.cluster.arrive.aligned; @!%p1 barrier.cluster.arrive.aligned;",
            "must be executed by all lanes of a warp together; lane 0 takes no part",
        ),
        (
            "mov.u32 %r1, word; mapa.shared::cluster.u32 %r2, %r1, 2;",
            "expected a CTA from 0 to 1 of the cluster, got 2",
        ),
        (
            "mov.u32 %r1, word; mapa.shared::cluster.u32 %r2, %r1, 1; ld.shared.u32 %r3, [%r2];",
            "is of CTA 1 of the cluster, this is CTA 0; the memory of others needs .shared::cluster",
        ),
        (
            "mov.u32 %r1, word; mapa.shared::cluster.u32 %r2, %r1, 1; ld.shared::cluster.u32 %r3, [%r2+256];",
            "shared access out of bounds: 4 bytes at address 0x1000110",
        ),
        ("mov.u64 %rd1, 64; mapa.u64 %rd2, %rd1, 1;", "expected an address of shared memory"),
        ("mov.u32 %r1, 0x4000000; ld.shared::cluster.u32 %r3, [%r1];", "shared access out of bounds"),
        (
            "setp.eq.u32 %p1, %r24, 1; @%p1 bra OTHER; barrier.cluster.arrive; barrier.cluster.wait; bra END; OTHER: "
            "barrier.sync 0, 64; END:",
            "deadlock: .* wait at line",
        ),
    ],
)
def test_misuse(body: str, message: str) -> None:
    with pytest.raises(InterpreterError, match=message):
        run(body, 2, 32, 2)
