"""Bugs planted in a Hopper matrix kernel are found and named at their line; the right kernel is silent."""

from __future__ import annotations

import pytest
from hopper_kernel import DEPTH, DESCRIPTOR, STAGE, STEPS, cluster_text, run, run_clusters, text
from seeded_bugs import check_found, edited, line_of

from warploom.dialect.isa.wgmma import SWIZZLES, MatrixDescriptor
from warploom.runtime import WarploomError

PRODUCT = "wgmma.mma_async"
WAIT, COMMIT, FENCE = (
    "wgmma.wait_group.sync.aligned 0;",
    "wgmma.commit_group.sync.aligned;",
    "wgmma.fence.sync.aligned;",
)
LOAD_A, LOAD_B = ("complete_tx::bytes [%sa]", "complete_tx::bytes [%sb]")
STORE, STAGED = "cp.async.bulk.tensor.2d.global", "st.shared.f32 [%at+0], %f0;"
ARRIVED = "mbarrier.try_wait.parity.shared::cta.b64 %p, [%full], %parity;"
EXPECTED = f"[%full], {2 * STAGE};"


def test_the_right_kernel_is_silent() -> None:
    assert run(text()) == ()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("old", "new", "check", "at", "nth", "message"),
    [
        # Registers in flight.
        (WAIT, "", "wgmma", STAGED, 0, "reads %f0, which the product at line"),
        (WAIT, "wgmma.wait_group.sync.aligned 1;", "wgmma", STAGED, 0, "reads %f0, which the product at line"),
        (COMMIT, "", "wgmma", STAGED, 0, "reads %f0, which the product at line"),
        (COMMIT, f"{COMMIT} mov.f32 %f3, 0f00000000;", "wgmma", COMMIT, 0, "writes %f3, which the product at line"),
        # Fences.
        (FENCE, "", "wgmma", PRODUCT, 0, "its warpgroup has executed no wgmma.fence yet"),
        (FENCE, f"{FENCE} mov.f32 %f5, %f6;", "wgmma", PRODUCT, 0, "takes %f5, which line"),
        # Shared memory that products read.
        (WAIT, "", "races", LOAD_A, 0, "overwrites what the wgmma.mma_async"),
        (WAIT, "wgmma.wait_group.sync.aligned 1;", "races", LOAD_B, 0, "overwrites what the wgmma.mma_async"),
        # Proxies, and the source of a store.
        ("fence.proxy.async.shared::cta;", "", "races", STORE, 0, "and no fence.proxy.async is between them"),
        ("fence.proxy.async.shared::cta;", "fence.proxy.async.global;", "races", STORE, 0, "no fence.proxy.async"),
        ("bar.sync 1, 128;", "", "races", STORE, 0, "race in shared memory: reads what warp"),
        ("@%first cp.async.bulk.wait_group.read 0;", "st.shared.f32 [%at], %f0;", "races", "st.shared.f32 [%at], ", 0,
            "overwrites what the cp.async.bulk.tensor"),
        # A CTA that ends while a store reads its memory.
        ("@%first cp.async.bulk.wait_group.read 0;", "", "races", STORE, 0, "ends before a cp.async.bulk.wait_group"),
        ("@%first cp.async.bulk.commit_group;", "", "races", STORE, 0, "ends before a cp.async.bulk.wait_group"),
        ("wait_group.read 0", "wait_group.read 1", "races", STORE, 0, "its thread ends before a cp.async.bulk"),
        # Data that has not arrived.
        (EXPECTED, f"[%full], {STAGE};", "races", PRODUCT, 0, "reads where the cp.async.bulk.tensor at line"),
        (ARRIVED, "mov.pred %p, 1;", "uninitialised", PRODUCT, 0, "shared memory is read before anything is"),
        # Bytes that nobody expects, or that never come.
        (EXPECTED, f"[%full], {STAGE};", "barriers", LOAD_B, 0, f"{2 * STAGE} bytes more than were expected"),
        # Registers of warps.
        (".minnctapersm 1", ".maxnreg 128", "barriers", "setmaxnreg.inc", 0,
            "waits for ever: the warps ask for 34816 registers, the CTA has 32768"),
        ("setmaxnreg.dec.sync.aligned.u32 40;", "setmaxnreg.dec.sync.aligned.u32 240;", "barriers", "setmaxnreg.dec", 0,
            "has 232 registers a thread, fewer than 240"),
    ],
)  # fmt: skip
def test_planted_bugs(old: str, new: str, check: str, at: str, nth: int, message: str) -> None:
    ptx = edited(text(), old, new)
    check_found(run(ptx, max_steps=200_000), check, line_of(ptx, at, nth), message)


def test_bytes_that_never_come_are_counted_in_the_deadlock() -> None:
    ptx = edited(text(), EXPECTED, f"[%full], {2 * STAGE + 16};")
    finding = check_found(
        run(ptx, checks="barriers"), "fault", line_of(ptx, "mbarrier.try_wait"), "deadlock", thread=False
    )
    assert "for 0 more arrivals, and 16 bytes are missing" in finding.message


def test_a_product_that_nobody_waits_for() -> None:
    ptx = edited(text(), "fence.proxy.async.shared::cta;", f"{FENCE} {PRODUCT}.sync.aligned.m64n8k16.f32.f16.f16 "
                 "{%f0, %f1, %f2, %f3}, %da, %db, 1, 1, 1, 0, 0; fence.proxy.async.shared::cta;")  # fmt: skip
    message = "no wgmma.wait_group waits for it before the kernel ends"
    check_found(run(ptx), "wgmma", line_of(ptx, "m64n8k16"), message)


def test_objects_that_copies_do_not_see() -> None:
    """A note, as compilers leave the fence out where a CTA uses its own objects."""
    ptx = edited(text(), "@%first fence.mbarrier_init.release.cluster;", "")
    message = "uses through the asynchronous proxy the mbarrier object that CTA (0, 0, 0), warp 0, lane 0 initialises"
    for load in (LOAD_A, LOAD_B):
        assert check_found(run(ptx), "races", line_of(ptx, load), message).severity == "note"
        assert check_found(run(ptx, checks="strict"), "races", line_of(ptx, load), message).severity == "error"
    assert run(text(), checks="strict") == ()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("fence", ["fence.proxy.async;", "bar.sync 2; @%producer fence.proxy.async.shared::cta;"])
def test_either_fence_shows_objects_to_copies(fence: str) -> None:
    """Of the thread that initialised them, or of one that is ordered behind it."""
    barrier = "fence.mbarrier_init.release.cluster;\n    bar.sync 0;"
    ptx = (
        text()
        .replace("    setp.ge.u32 %producer, %t, 128;\n", "")
        .replace(f"@%first {barrier}", f"{fence}\nbar.sync 0;")
    )
    ptx = ptx.replace("    mov.u32 %t, %tid.x;", "    mov.u32 %t, %tid.x; setp.ge.u32 %producer, %t, 128;")
    assert "mbarrier_init" not in ptx
    assert run(ptx) == ()


def test_metadata_that_changes_while_a_product_reads_it() -> None:
    opcode = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
    product = f"{opcode} {{%f0, %f1, %f2, %f3}}, %da, %db, %e, 0, 1, 1, 1, 0, 0;"
    ptx = edited(text(), FENCE, f".reg .b32 %e; mov.b32 %e, 0x44444444; {FENCE} {product}")
    assert not [finding for finding in run(ptx) if "%e" in finding.message]
    ptx = edited(ptx, COMMIT, f"{COMMIT} mov.b32 %e, 0x44444444;")
    check_found(run(ptx), "wgmma", line_of(ptx, COMMIT), "writes %e, which the product at line")


def test_another_shape_on_the_same_accumulators() -> None:
    wide = f"{PRODUCT}.sync.aligned.m64n64k16.f32.f16.f16"
    small = f"{PRODUCT}.sync.aligned.m64n8k16.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, %da, %db, 1, 1, 1, 0, 0; {COMMIT}"
    ptx = edited(text(), COMMIT, small)
    assert wide in ptx
    check_found(run(ptx), "wgmma", line_of(ptx, "m64n8k16"), "adds to %f0, which a product of another shape (N = 64)")


def test_a_descriptor_beside_the_pattern_of_its_swizzle() -> None:
    ptx = edited(text(), "shr.u32 %x, %sb, 4;", "add.u32 %x, %sb, 128; shr.u32 %x, %x, 4;")
    message = "%db says that a matrix begins at 0x4080 and that its base offset is 0: 128 bytes behind the first row"
    one = check_found(run(ptx), "wgmma", line_of(ptx, PRODUCT), message)
    assert one.severity == "note"
    assert MatrixDescriptor(0x4080, 16, 1024, 128).row_of_pattern == 1
    assert MatrixDescriptor(0x4060, 16, 1024, 128).row_of_pattern == 0
    assert MatrixDescriptor(0x4080, 16, 256, 0).row_of_pattern == 0
    assert MatrixDescriptor(0x4080, 16, 1024, 128, 1).row_of_pattern == 0
    assert MatrixDescriptor(0x4080, 16, 1024, 128, 2).row_of_pattern == 7
    assert MatrixDescriptor(0x4280, 16, 512, 64, 1).row_of_pattern == 0


@pytest.mark.parametrize(("read", "written"), [(64, 128), (32, 128), (0, 128), (128, 0)])
def test_a_descriptor_of_another_swizzle_than_the_copy(read: int, written: int) -> None:
    other = DESCRIPTOR ^ (SWIZZLES[128] ^ SWIZZLES[read]) << 62
    for slot, load in (("a", LOAD_A), ("b", LOAD_B)):
        ptx = edited(text(), f"%d{slot}, {DESCRIPTOR};", f"%d{slot}, {other};")
        message = (
            f"reads by a swizzle of {read} bytes what the tensor copy at line {line_of(ptx, load)} writes by one of"
        )
        findings = run(ptx, (written, written), checks="wgmma")
        for step in range(DEPTH // 16):
            check_found(findings, "wgmma", line_of(ptx, PRODUCT, step), f"{message} {written}", address=True)
        assert len(findings) == (2 if read == 128 else 1) * DEPTH // 16


def test_a_copy_of_one_row_lies_alike_by_every_swizzle() -> None:
    ptx = edited(text(), EXPECTED, f"[%full], {STAGE + 128};")
    assert run(ptx, (0, 128), rows=1, checks="wgmma") == ()
    assert run(ptx, (128, 128), rows=1, checks="wgmma") == ()


def test_threads_that_swizzle_what_a_copy_wrote() -> None:
    """In both tiles each puts eight units where a descriptor looks for them; without that the product is wrong."""
    to = "and.b32 %u5, %u4, 896; shr.u32 %u5, %u5, 3; xor.b32 %u5, %u4, %u5;"
    swizzles = " ".join(
        f"mad.lo.u32 %u4, %t, 16, {tile}; add.u32 %u4, %u4, {at}; ld.shared.v4.b32 {{%u0, %u1, %u2, %u3}}, [%u4]; {to} "
        "bar.sync 1, 128; st.shared.v4.b32 [%u5], {%u0, %u1, %u2, %u3};"
        for tile in ("%sa", "%sb") for at in range(0, STAGE, 128 * 16)
    )  # fmt: skip
    ptx = edited(text(), ".reg .pred %first", ".reg .b32 %u<6>; .reg .pred %first")
    ptx = edited(ptx, FENCE, f"{swizzles} fence.proxy.async.shared::cta; bar.sync 1, 128; {FENCE}")
    assert run(ptx, (0, 0)) == ()


def test_part_of_a_warpgroup() -> None:
    ptx = edited(text(), FENCE, f"setp.lt.u32 %p, %t, 96; @%p {FENCE}")
    message = "must be executed by all 4 warps of a warpgroup; warp 3 takes no part"
    check_found(run(ptx, checks="wgmma"), "fault", line_of(ptx, FENCE), message)


def test_warps_of_a_warpgroup_with_different_numbers_of_registers() -> None:
    """They may come to different instructions, but must have alike many in the end."""
    shrink = "setmaxnreg.dec.sync.aligned.u32 40;"
    some = f"setp.lt.u32 %p, %t, 224; @%p {shrink}"
    ptx = edited(text(), shrink, some)
    message = "the warps of a warpgroup have 40 and, from warp 7 on, 232 registers"
    check_found(run(ptx, checks="barriers"), "barriers", line_of(ptx, shrink), message)
    assert run(edited(text(), shrink, f"{some} @!%p {shrink}"), checks="barriers") == ()


def test_checks_that_are_not_asked_for_cost_no_result() -> None:
    ptx = edited(text(), "fence.proxy.async.shared::cta;", "")
    assert run(ptx, checks="bounds") == ()
    with pytest.raises(WarploomError, match="expected checks among"):
        run(ptx, checks="w")


def test_the_right_cluster_is_silent() -> None:
    assert run_clusters(cluster_text()) == ()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("old", "new", "check", "message"),
    [
        (" and.b32 %x, %x, 0x3FFFF;", "", "wgmma", "%da has the rank of its CTA in the cluster, 1"),
        ("[bars+8], 528", "[bars+8], 512", "barriers", "16 bytes more than were expected"),
        ("fence.proxy.async.shared::cta;", "", "races", "reads through the asynchronous proxy what warp 0, lane 0"),
        (
            "    @%first fence.mbarrier_init.release.cluster;",
            "",
            "races",
            "uses through the asynchronous proxy the mbarrier object that CTA (1, 0, 0)",
        ),
        (
            "barrier.cluster.wait.acquire.aligned;",
            "",
            "races",
            "copies over what CTA (1, 0, 0), warp 0, lane 0 writes at line",
        ),
    ],
    ids=["descriptor", "bytes", "proxy", "object", "barrier"],
)
def test_planted_bugs_of_a_cluster(old: str, new: str, check: str, message: str) -> None:
    assert old in cluster_text()
    findings = run_clusters(cluster_text().replace(old, new))
    assert any(f.check == check and message in f.message and f.severity == "error" for f in findings)


FROM_REGISTERS = "{%a0, %a1, %a2, %a3}, %da, 1, -1"
WRITTEN = "@%first st.shared.b32 [as], %y; bar.sync 0;"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("old", "new", "check", "at", "message"),
    [
        # Fragments of A, in flight and without a fence.
        (COMMIT, f"{COMMIT} mov.b32 %a1, 0;", "wgmma", COMMIT, "writes %a1, which the product at line"),
        (FENCE, f"{FENCE} mov.b32 %a0, 0;", "wgmma", FROM_REGISTERS, "takes %a0, which line"),
        # What an ordinary store wrote, and a product reads.
        (FENCE, f"{WRITTEN} {FENCE}", "races", PRODUCT, "reads through the asynchronous proxy what warp 0, lane 0"),
        # A CTA that leaves while the other still sends to it.
        ("    @!%p bra BOX;", "    @!%p bra BOX; setp.eq.u32 %p, %rank, 1; @%p bra LEAVES;", "races", "st.async",
            "accesses the shared memory of CTA (1, 0, 0), which may be gone"),
    ],
    ids=["in flight", "fence", "proxy", "departure"],
)  # fmt: skip
def test_planted_bugs_of_a_cluster_at_their_lines(old: str, new: str, check: str, at: str, message: str) -> None:
    ptx = edited(cluster_text(), old, new)
    if "LEAVES" in new:
        ptx = ptx.replace("    ret;", "LEAVES: ret;")
    check_found(run_clusters(ptx), check, line_of(ptx, at), message)


def test_a_store_behind_a_fence_of_the_proxy_is_seen_by_a_product() -> None:
    fenced = f"@%first ld.shared.b32 %y, [as]; {WRITTEN.replace('bar.sync', 'fence.proxy.async; bar.sync')}"
    assert run_clusters(edited(cluster_text(), FENCE, f"{fenced} mov.b32 %y, 0x44444444; {FENCE}")) == ()


def test_a_box_beside_its_alignment() -> None:
    ptx = edited(text(), "mul.lo.u32 %k, %i, ", "add.u32 %sa, %sa, 16; mul.lo.u32 %k, %i, ")
    message = "misaligned shared access: address 0x10 is not a multiple of 128"
    check_found(run(ptx), "fault", line_of(ptx, LOAD_A), message)


def test_a_test_whose_answer_is_overwritten_orders_nothing() -> None:
    """Where %p is written before it is read, though others read it elsewhere."""
    ptx = edited(text(), "@!%p bra ARRIVED;", "")
    check_found(run(ptx), "races", line_of(ptx, PRODUCT), "what warp 4, lane 0 writes", address=True)


def test_a_copy_that_nobody_waits_for() -> None:
    """The producer goes one turn too far."""
    turns = f"setp.lt.u32 %more, %i, {STEPS};"
    before, _, after = text().rpartition(turns)
    ptx = f"{before}setp.le.u32 %more, %i, {STEPS};{after}"
    findings = run(ptx)
    for load in (LOAD_A, LOAD_B):
        check_found(findings, "races", line_of(ptx, load), "nobody waits for it before its CTA ends", address=True)
    assert len(findings) == 2
