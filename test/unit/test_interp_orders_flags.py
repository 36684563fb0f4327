"""Words through which CTAs tell each other, in all orders that the memory model allows."""

from __future__ import annotations

import numpy as np
import pytest
from problems import problem
from products import Product, Types
from seeded_bugs import check_found, line_of, run

from warploom.runtime import load_ptx
from warploom.runtime.interp.machine.memory import Finding
from warploom.runtime.interp.watch import flags

PASSING = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 data, .param .u64 flag, .param .u64 out)
{
    .reg .pred %p, %first; .reg .b32 %t, %c, %v, %w; .reg .b64 %data, %flag, %out, %x;
    ld.param.u64 %data, [data]; ld.param.u64 %flag, [flag]; ld.param.u64 %out, [out];
    mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; mul.wide.u32 %x, %t, 4; setp.eq.u32 %first, %t, 0;
    setp.ne.u32 %p, %c, 0;
    @%p bra READ;
    add.s64 %x, %data, %x; add.u32 %v, %t, 7;
    st.global.u32 [%x], %v;
    {before}
    @%first {store} [%flag], 1;
    bra END;
READ:
    @!%first bra MEET;
SPIN:
    {load} %v, [%flag];
    setp.eq.u32 %p, %v, 0;
    @%p bra SPIN;
MEET:
    {after}
    add.s64 %data, %data, %x; add.s64 %out, %out, %x;
    ld.global.u32 %w, [%data];
    st.global.u32 [%out], %w;
END:
    ret;
}
"""
"""A CTA passes 64 words to another one."""
READ = "ld.global.u32 %w"
BAR, FENCE = "bar.sync 0;", "fence.acq_rel.gpu;"
OLDER = "can read the value at the beginning, and not what CTA (0, 0, 0), warp"


def text_of(store: str, load: str, before: str, after: str) -> str:
    ptx = PASSING
    for name, words in (("before", before), ("store", store), ("load", load), ("after", after)):
        ptx = ptx.replace(f"{{{name}}}", words)
    return ptx


def passing(store: str, load: str, before: str, after: str) -> tuple[str, tuple[Finding, ...]]:
    """The kernel, and what is found."""
    ptx = text_of(store, load, before, after)
    random = np.random.default_rng()
    arrays = [random.integers(100, 200, n, np.uint32) for n in (64, 64)]
    return ptx, run(ptx, (2, 1, 1), (64, 1, 1), [arrays[0], np.zeros(1, np.uint32), arrays[1]], checks="all-orders")


STORE, LOAD = "st.release.gpu.global.u32", "ld.acquire.gpu.global.u32"


@pytest.mark.parametrize(
    ("store", "load", "before", "after"),
    [
        (STORE, LOAD, BAR, BAR),
        ("st.release.sys.global.u32", LOAD, BAR, BAR),
        ("red.release.gpu.global.add.u32", LOAD, BAR, BAR),
        ("st.relaxed.gpu.global.u32", "ld.relaxed.gpu.global.u32", f"{BAR} {FENCE}", f"{FENCE} {BAR}"),
        ("st.volatile.global.u32", "ld.volatile.global.u32", f"{BAR} membar.gl;", f"membar.gl; {BAR}"),
    ],
)
def test_words_are_passed(store: str, load: str, before: str, after: str) -> None:
    assert passing(store, load, before, after)[1] == ()


@pytest.mark.parametrize(
    ("store", "load", "before", "after"),
    [
        ("st.relaxed.gpu.global.u32", LOAD, BAR, BAR),
        (STORE, "ld.relaxed.gpu.global.u32", BAR, BAR),
        ("st.release.cta.global.u32", LOAD, BAR, BAR),
        (STORE, "ld.acquire.cta.global.u32", BAR, BAR),
        (STORE, LOAD, "", BAR),  # other warps of the writer
        (STORE, "ld.relaxed.gpu.global.u32", BAR, f"{BAR} {FENCE}"),  # fenced by others than who read
        ("st.volatile.global.u32", "ld.volatile.global.u32", BAR, f"membar.gl; {BAR}"),
        ("st.volatile.global.u32", "ld.volatile.global.u32", f"{BAR} membar.cta;", f"membar.gl; {BAR}"),
        ("st.volatile.global.u32", "ld.volatile.global.u32", f"{BAR} membar.gl;", BAR),
    ],
)
def test_words_that_may_not_be_seen(store: str, load: str, before: str, after: str) -> None:
    ptx, findings = passing(store, load, before, after)
    check_found(findings, "all-orders", line_of(ptx, READ), OLDER)


@pytest.mark.parametrize("store", [STORE, "st.relaxed.gpu.global.u32"])
def test_two_threads_write_the_halves_of_a_word(store: str) -> None:
    """Neither half is an older value of the word; without a release both may be."""
    ptx = text_of(store, LOAD, BAR, BAR).replace(
        "add.s64 %x, %data, %x; add.u32 %v", "mad.wide.u32 %x, %t, 2, %data; add.u32 %v"
    )
    ptx = ptx.replace("st.global.u32 [%x]", "st.global.u16 [%x]")
    arrays = [np.arange(64, dtype=np.uint32), np.zeros(1, np.uint32), np.zeros(64, np.uint32)]
    findings = run(ptx, (2, 1, 1), (64, 1, 1), arrays, checks="all-orders")
    if store == STORE:
        assert findings == ()
    else:
        check_found(findings, "all-orders", line_of(ptx, READ), OLDER)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("schedule", [{"split_k": 2}, {"sync": "mbarrier", "stages": 3}], ids=str)
def test_own_products_of_warps_are_silent(schedule: dict[str, object]) -> None:
    tile = {"cta": (32, 32, 32), "warp": (16, 16)}
    product = Product(Types("f16", "f16", "f32"), "added", "A B", (40, 40, 136), tile | schedule)
    kernel, instance = product.compile("sm_90a"), problem(product, 5)
    kernel(*instance.arguments, device="interp", checks="all-orders")
    assert instance.wrong() == ""


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("EVENTS", "events, more than 1"),
        ("POLLS", "accesses, more than 1"),
        ("CANDIDATES", "executions, more than 1"),
        ("RECORDED", "more than 1 accesses"),
    ],
)
def test_what_is_too_large_is_said(limit: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flags, limit, 1)
    args = [np.arange(100, 164, dtype=np.uint32), np.zeros(1, np.uint32), np.arange(64, dtype=np.uint32)]
    ptx = text_of(STORE, LOAD, BAR, BAR)
    done = load_ptx(ptx, "k.ptx").launch("k", (2, 1, 1), (64, 1, 1), args, device="interp", checks="all-orders")
    (note,) = done.notes
    assert (note.severity, note.check) == ("note", "all-orders")
    assert message in note.message
