"""Bugs planted in kernels on tensor memory: each is found at its line, and the right kernels are silent."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tensor_cores import Kernel, put, registers

from warploom.dialect.isa.tensor_product import SharedDescriptor
from warploom.dialect.layouts.tensor_memory import result
from warploom.runtime import WarploomError, check_ptx, load_ptx

LEFT, RIGHT = SharedDescriptor(0, 128, 256), SharedDescriptor(4096, 128, 256)


def describe(name: str, how: SharedDescriptor, change: int = 0) -> str:
    return f"shr.u32 %r14, %r4, 4; cvt.u64.u32 %q8, %r14; add.s64 {name}, %q8, {how.encode() ^ change};"


PRODUCT = "tcgen05.mma.cta_group::1.kind::f16 [%r1], %q9, %q10, 0x08100010, 0;"
WAIT = "WAIT:\nmbarrier.try_wait.parity.shared.b64 %p5, [%r3], 0;\n@!%p5 bra WAIT;\n"
COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r3];"
ALLOC = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 128;"
DEALLOC = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 128;"
BEFORE, AFTER = "tcgen05.fence::before_thread_sync;", "tcgen05.fence::after_thread_sync;"
LOADED = "tcgen05.wait::ld.sync.aligned;"
LOAD = f"tcgen05.ld.sync.aligned.32x32b.x64.b32 {registers(64)}, [%r2];"
AGAIN = f"{describe('%q9', LEFT)}\n{describe('%q10', RIGHT)}\nsetp.eq.u32 %p7, %r10, 96;\n@%p7 {PRODUCT}"
"""One more product, by another warp."""
HALVES = [
    f"tcgen05.st.sync.aligned.32x32b.x8.b32 [%r8], {registers(8, 100)};",
    "tcgen05.wait::st.sync.aligned;",
    BEFORE,
    "bar.sync 1;",
    AFTER,
]
"""A in tensor memory, from registers that all hold two halves of 1."""


def kernel(parts: dict[str, str] | None = None, product: str = PRODUCT, change: int = 0, before: str = "") -> Kernel:
    random = np.random.default_rng(3)
    image = random.integers(0, 256, 6144).astype(np.uint8)
    put(image, random.standard_normal((128, 16)).astype(np.float16), LEFT.encode())
    put(image, random.standard_normal((64, 16)).astype(np.float16), RIGHT.encode())
    issue = [describe("%q9", LEFT, change), describe("%q10", RIGHT), product]
    return Kernel(image, issue, before=[before] if before else [], parts=parts or {})


def stored(statements: list[str], product: str = PRODUCT.replace("%q9", "[%r7]")) -> Kernel:
    """A comes from registers through tensor memory."""
    ones = " ".join(f"mov.b32 %r{100 + i}, 0x3C003C00;" for i in range(8))
    setup = f"{ones}\nadd.u32 %r8, %r2, 64; add.u32 %r16, %r1, 64;\n" + "\n".join(statements)
    return kernel(product=product.replace("[%r7]", "[%r16]"), before=setup)


def test_the_right_kernels_are_silent() -> None:
    kernel().run()
    result = stored(HALVES).run().view(np.float32)
    halves = kernel().image[4096:].view(np.float16).astype(np.float64)
    assert np.isclose(np.sort(result[5])[-1], max(result[77]))
    assert np.isclose(result[0].sum(), halves.sum(), atol=1e-3)


def fails(bad: Kernel, line: str, message: str, checks: str | None = "all") -> None:
    """The launch fails with a message at the first line that has a text."""
    with pytest.raises(WarploomError) as error:
        bad.run(checks)
    at = next(i for i, text in enumerate(bad.text().splitlines(), 1) if line in text)
    assert re.search(rf"<ptx>:{at}:\d+: error: .*{message}", str(error.value)), (at, str(error.value))


ORDER = [
    # A wait, a fence or a commit is missing.
    (kernel({LOADED: ""}), "st.global.b32", "reads %r32, which the tcgen05.ld at line .* with no tcgen05.wait::ld"),
    (kernel({f"{WAIT}{AFTER}": WAIT}), LOAD, "writes, with no tcgen05.fence::after_thread_sync"),
    (kernel({WAIT: ""}), LOAD, "which the tcgen05.mma at line .*, and nobody has seen the arrival of a tcgen05.commit"),
    (stored([HALVES[0], *HALVES[2:]]), "tcgen05.mma", "which the tcgen05.st .*no tcgen05.wait::st has waited for it"),
    (stored([*HALVES[:2], *HALVES[3:]]), "tcgen05.mma", "with no tcgen05.fence::before_thread_sync between its wait"),
    (stored(HALVES[:4]), "tcgen05.mma", "with no tcgen05.fence::after_thread_sync behind"),
    (stored([*HALVES[:3], AFTER]), "tcgen05.mma", "and nothing orders it behind the wait"),
    (kernel({LOADED: f"{LOADED}\n{AGAIN}"}), "@%p7 tcgen05.mma",
     "writes column 0 of tensor memory, which the tcgen05.ld .* reads, and nothing orders it"),
    # Something is read that nobody has written, or is never freed.
    (kernel(product=PRODUCT.replace(", 0;", ", 1;")), "tcgen05.mma", "reads lane 0, column 0 .* before anything is"),
    (kernel({DEALLOC: ""}), ALLOC, "nobody frees these columns before the kernel ends"),
    # Shared memory is written while a product may read it.
    (kernel({COMMIT: f"{COMMIT}\nst.shared.b32 [%r4], %r4;"}), "st.shared.b32 [%r4]",
     "overwrites what the tcgen05.mma.* at line .* reads, which has not been waited for"),
    (kernel({"fence.proxy.async;": ""}), "tcgen05.mma", "and no fence.proxy.async is between them"),
    # A matrix begins beside its swizzle's pattern, of rows of 128 bytes.
    (kernel(change=2 << 61 | 8), "tcgen05.mma", "begins at 0x80 .*: 128 bytes behind the first row of the swizzle's"),
]  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("bad", "line", "message"), ORDER, ids=[message[:40] for _, _, message in ORDER])
def test_planted_bugs_of_order(bad: Kernel, line: str, message: str) -> None:
    fails(bad, line, message, "strict")


def test_an_address_of_the_first_lanes_leads_each_warp_to_its_own() -> None:
    """DeepGEMM and TileLang rely on it."""
    assert np.array_equal(kernel({LOAD: LOAD.replace("%r2", "%r1")}).run(), kernel().run())


def test_a_load_whose_register_has_been_read_is_over() -> None:
    """What follows need not wait; while nothing has been read it must."""
    kernel({LOADED: ""}).run()
    early = kernel({LOADED: DEALLOC.replace(", ", ","), DEALLOC: ""})
    fails(early, DEALLOC.replace(", ", ","), "frees column 0 .* the tcgen05.ld .* no tcgen05.wait::ld has waited")


FAULTS = [
    (kernel({LOAD: LOAD.replace("%r2", "%r1+0x200000")}), LOAD[:30], "warp 0 reaches lanes 0 to 31 .* is of lane 32"),
    (kernel({LOAD: LOAD.replace("%r2", "%r2+96")}), LOAD[:30], "reads column 128 of tensor memory, which is not alloc"),
    (kernel({DEALLOC: DEALLOC.replace("128", "64")}), "tcgen05.dealloc", "frees 64 columns at 0x0, where 128 columns"),
    (kernel({ALLOC: f"tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n{ALLOC}"}), ALLOC,
     "allocates tensor memory after tcgen05.relinquish_alloc_permit"),
    (kernel(change=1 << 46), "tcgen05.mma", r"operand x: expected 0b001 in bits 48:46 .* got 0b000"),
    (kernel(change=5 << 61), "tcgen05.mma", "expected a swizzle of 0/1/2/4/6 in bits 63:61, got 5"),
    (kernel(change=1 << 53), "tcgen05.mma", "bits 0x20000000000000 of the shared-memory descriptor .* mean nothing"),
    (kernel(change=0x3F00), "tcgen05.mma", "operand x: the matrix descriptor reaches byte"),
    (kernel(change=0x3000 << 32), "tcgen05.mma", "operand x: the matrix descriptor reaches byte 0x2d0fff"),
    (kernel(product=PRODUCT.replace("0x08100010", "0x08100110")), "tcgen05.mma",
     r"bits 9:7 \(type of A\) of the instruction descriptor 0x08100110: expected 0 \(f16\) or 1 \(bf16\), got 2"),
    (kernel(product=PRODUCT.replace("0x08100010", "0x10100010")), "tcgen05.mma",
     r"bits 28:24 \(M / 16\) .* expected 4 or 8, got 16"),
    (kernel(product=PRODUCT.replace("0x08100010", "0x08000010")), "tcgen05.mma", r"\(N / 8\) .* 1 to 32 in steps of 1"),
    (kernel(product=PRODUCT.replace("0x08100010", "0x08100014")), "tcgen05.mma", r"\(sparse\).* expected 0, as the op"),
    (kernel(product=PRODUCT.replace("0x08100010", "0x08100050")), "tcgen05.mma", r"bit 6 \(reserved\)"),
    (kernel(product=PRODUCT.replace("[%r1]", "[%r1+0x100000]")), "tcgen05.mma", "expected D at lane 0 of tensor mem"),
    (kernel(product=PRODUCT.replace("[%r1]", "[%r1+96]")), "tcgen05.mma", "writes column 128 .* not allocated"),
]  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("bad", "line", "message"), FAULTS, ids=[message[:40] for _, _, message in FAULTS])
def test_faults(bad: Kernel, line: str, message: str) -> None:
    fails(bad, line, message, None)


def test_columns_that_nobody_gives_back_are_waited_for() -> None:
    again = kernel({ALLOC: f"{ALLOC.replace('128', '512')}\n{ALLOC}"})
    with pytest.raises(WarploomError, match=r"deadlock: .*wait at line \d+ \(tcgen05.alloc"):
        again.run(None)  # https://github.com/tile-ai/tilelang/pull/2831


def test_a_pair_takes_two_ctas() -> None:
    text = kernel().text().replace("cta_group::1", "cta_group::2")
    words = np.zeros((128, 64), np.uint32)
    with pytest.raises(WarploomError, match=r"cta_group::2 takes pairs of CTAs of a cluster; this one has 1"):
        load_ptx(text).launch("k", grid=1, block=128, args=[kernel().image, words], device="interp")


def test_a_pair_of_which_one_cta_does_not_allocate() -> None:
    pair = kernel()
    pair.image, pair.group = np.concatenate([pair.image, pair.image]), 2
    pair.parts = {"@%p2 bra ALLOCATED;": "setp.ne.u32 %p7, %r9, 0; or.pred %p7, %p7, %p2;\n@%p7 bra ALLOCATED;"}
    pair.issue[-1] = pair.issue[-1].replace("cta_group::1", "cta_group::2").replace("0x08100010", "0x10200010")
    with pytest.raises(WarploomError, match=r"deadlock: .*wait at line \d+ \(tcgen05.alloc.cta_group::2"):
        pair.run(None)


def test_a_phase_that_does_not_come_is_a_deadlock() -> None:
    other = kernel({WAIT: WAIT.replace("[%r3], 0", "[%r3], 1")})
    fails(other, "mbarrier.try_wait", r"deadlock: .* wait at line \d+ \(mbarrier.try_wait")


def test_columns_that_are_freed_cannot_be_read() -> None:
    late = kernel({LOADED: f"{LOADED}\nbar.sync 2;\n@%p2 bra LATE;\n{DEALLOC}\nLATE:\nbar.sync 2;\nLATER: {LOAD}"})
    fails(late, "LATER:", "reads column 0 of tensor memory, which is not allocated", None)


# Bugs, found or suspected, that public threads describe (docs/checks.md has the table). Nothing is copied from them.

TILELANG, FLASHINFER = "https://github.com/tile-ai/tilelang", "https://github.com/flashinfer-ai/flashinfer"
SGLANG, TRITON = "https://github.com/sgl-project/sglang", "https://github.com/facebookexperimental/triton"
SLOT = "[memory+2032]"

PUBLIC = [
    (f"{FLASHINFER}/issues/5334", kernel({LOADED: f"{BEFORE}\nbar.sync 1;\n{AFTER}\n{AGAIN}\n{LOADED}"}),
     "@%p7 tcgen05.mma", "writes column 0 .* the tcgen05.ld at line .* reads, and no tcgen05.wait::ld has waited"),
    (f"{TILELANG}/pull/1980", kernel({f"{WAIT}{AFTER}": WAIT}), LOAD, "with no tcgen05.fence::after_thread_sync"),
    (f"{SGLANG}/pull/39124", kernel({"fence.proxy.async;": ""}), "tcgen05.mma", "no fence.proxy.async is between them"),
    (f"{TRITON}/pull/1449",
     kernel({"[slot], 128": f"{SLOT}, 128", "ld.shared.b32 %r1, [slot]": f"ld.shared.b32 %r1, {SLOT}"}),
     "tcgen05.alloc", "race in shared memory: writes what warp 3, lane 31 writes at line"),
    ("https://github.com/triton-lang/triton/pull/10196",
     kernel({"mbarrier.init.shared.b64 [%r3], 1": "mbarrier.init.shared.b64 [%r3], 2"}),
     "mbarrier.try_wait", "deadlock: .* for 1 more arrivals"),
    ("https://github.com/openxla/xla/pull/40118", kernel(product=PRODUCT.replace("[%r1]", "[%r1+500]")),
     "tcgen05.mma", "writes column 512 of tensor memory, which has 512"),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "line", "message"), [bug[1:] for bug in PUBLIC], ids=[url for url, *_ in PUBLIC])
def test_public_bugs(bad: Kernel, line: str, message: str) -> None:
    fails(bad, line, message, "strict")


def test_a_commit_for_other_ctas_than_the_product() -> None:
    """https://github.com/tile-ai/tilelang/pull/2287: the product is of one CTA, its commit of two; ptxas refuses it."""
    bad = kernel({COMMIT: COMMIT.replace("group::1", "group::2")}).text()
    line = next(i for i, text in enumerate(bad.splitlines(), 1) if "tcgen05.commit" in text)
    diagnostics = [(d.line, d.message) for d in check_ptx(bad)]
    assert [number for number, _ in diagnostics] == [line]
    assert "expected .cta_group::1 as at line 37: a function has one of both" in diagnostics[0][1]
    assert not check_ptx(kernel().text())


def test_suspected_bugs_that_are_none() -> None:
    """https://github.com/tile-ai/tilelang/issues/2644: C15, `.ws` with M = 128 has D where other products have it; C12,
    CTAs of a pair that allocate without having met wait for each other."""
    assert result(128, 1, True, False) == result(128, 1, False, False)
    pair = kernel()
    pair.image, pair.group = np.concatenate([pair.image, pair.image]), 2
    pair.issue[-1] = pair.issue[-1].replace("cta_group::1", "cta_group::2").replace("0x08100010", "0x10200010")
    late = "setp.eq.u32 %p7, %r9, 1;\n@!%p7 bra EARLY;\nmov.u32 %r16, 0;\nTURN:\nadd.u32 %r16, %r16, 1;\n"
    late += "setp.lt.u32 %p7, %r16, 200;\n@%p7 bra TURN;\nEARLY:\n"
    pair.parts = {"@%p2 bra ALLOCATED;": f"{late}@%p2 bra ALLOCATED;"}
    pair.run()


SHARED_LANES = f"""\
.version 8.7
.target sm_100a
.address_size 64
.visible .entry k()
{{
.reg .pred %p<4>; .reg .b32 %r<16>; .shared .align 4 .b32 slot;
mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; setp.ne.u32 %p1, %r2, 0; setp.lt.u32 %p2, %r2, 4; mov.b32 %r10, 7;
@%p1 bra ALLOCATED;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 32;
ALLOCATED:
{BEFORE} bar.sync 0; {AFTER}
ld.shared.b32 %r3, [slot]; and.b32 %r4, %r2, 3; shl.b32 %r4, %r4, 21; add.u32 %r4, %r3, %r4;
@!%p2 bra SECOND;
tcgen05.st.sync.aligned.32x32b.x1.b32 [%r4], {{%r10}}; tcgen05.wait::st.sync.aligned;
tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r11}}, [%r4]; tcgen05.wait::ld.sync.aligned;
SECOND:
{BEFORE} bar.sync 1; {AFTER}
@%p2 bra STORED;
tcgen05.st.sync.aligned.32x32b.x1.b32 [%r4], {{%r10}}; tcgen05.wait::st.sync.aligned;
STORED:
{BEFORE} bar.sync 0; {AFTER}
@%p1 bra FREED;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 32;
FREED:
ret;
}}
"""
"""Two warps of each four lanes of tensor memory: the second stores where the first has loaded."""


def test_a_store_of_another_warp_with_the_same_lanes() -> None:
    """https://github.com/facebookexperimental/triton/issues/1993: no barrier between a load and an aliased store."""
    launch = {"grid": 1, "block": 256, "args": [], "device": "interp", "checks": "strict"}
    load_ptx(SHARED_LANES).launch("k", **launch)
    with pytest.raises(WarploomError, match=r"<ptx>:19:\d+: error: tcgen05.st.*writes column 0 .* nothing orders it"):
        load_ptx(SHARED_LANES.replace(f"{BEFORE} bar.sync 1; {AFTER}", "")).launch("k", **launch)


PAIR = """\
.version 8.7
.target sm_100a
.address_size 64
.visible .entry k() .reqnctapercluster 2
{
.reg .b32 %r<4>; .shared .align 4 .b32 slot;
tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [slot], 64;
tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;
bar.warp.sync -1; ld.shared.b32 %r1, [slot];
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r1, 64;
ret;
}
"""


def test_columns_of_a_pair_are_freed_when_both_ctas_have_them() -> None:
    """https://github.com/NVIDIA/cutlass/issues/3435: a B300 fails where nothing is between a CTA's `tcgen05.dealloc`
    and the other's `tcgen05.alloc`, and with a barrier of the cluster it does not."""
    launch = {"grid": 4, "block": 32, "args": [], "device": "interp", "checks": "strict"}
    load_ptx(PAIR).launch("k", **launch)
    alone = re.sub(r"barrier.cluster.arrive.*\n", "", PAIR)
    said = r"<ptx>:10:\d+: error: tcgen05.dealloc.* frees columns of a pair; nothing orders it behind .* at line 7"
    with pytest.raises(WarploomError, match=said):
        load_ptx(alone).launch("k", **launch)
    early = alone.replace(
        "tcgen05.alloc", "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\ntcgen05.alloc"
    )
    with pytest.raises(WarploomError, match="nothing orders it behind the other CTA's allocation at line 8"):
        load_ptx(early).launch("k", **launch)
