"""What an instruction does, as its row and qualifiers say it."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest
from ptx_rows import shuffled

from warploom.dialect.ptx.instructions import Traits, every_row, traits
from warploom.dialect.ptx.parser import parse_ptx
from warploom.runtime.interp.parallel import independent
from warploom.runtime.interp.program import load

QUESTIONS = (
    "strength", "acquires", "releases", "updates", "reduces_in_bulk", "writes_memory", "on_mbarrier", "asynchronous",
    "is_grouped", "completes_transactions", "is_barrier", "is_fence", "aligned", "takes_whole_warps",
    "observes_others", "between_ctas", "computes", "has_address",
)  # fmt: skip


def answers(answer: Traits) -> set[str]:
    return {question for question in QUESTIONS if getattr(answer, question)}


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("add.s32", "computes"),
        ("mapa.shared::cluster.u32", "computes"),
        ("shfl.sync.idx.b32", ""),
        ("createpolicy.fractional.L2::evict_first.b64", ""),
        ("bra.uni", ""),
        ("call", "between_ctas"),
        ("ld.global.nc.f32", "has_address"),
        ("ld.relaxed.gpu.global.u32", "has_address strength observes_others between_ctas"),
        ("ld.acquire.cta.shared.u32", "has_address strength acquires observes_others"),
        ("ld.volatile.u32", "has_address strength observes_others between_ctas"),
        ("st.shared.v4.b32", "has_address writes_memory"),
        ("st.release.sys.b64", "has_address strength releases writes_memory between_ctas"),
        ("atom.acq_rel.gpu.global.add.u32",
         "has_address strength acquires releases updates writes_memory observes_others between_ctas"),
        ("red.shared.add.u32", "has_address strength updates writes_memory"),
        ("red.async.relaxed.cluster.mbarrier::complete_tx::bytes.add.u32",
         "has_address strength updates writes_memory completes_transactions"),
        ("red.async.release.gpu.global.add.u32", "has_address strength releases updates writes_memory between_ctas"),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", "has_address aligned takes_whole_warps"),
        ("wmma.store.d.sync.aligned.row.m16n16k16.f32", "has_address writes_memory aligned takes_whole_warps"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "aligned takes_whole_warps"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "asynchronous aligned takes_whole_warps"),
        ("wgmma.wait_group.sync.aligned", "aligned takes_whole_warps"),
        ("bar.sync", "is_barrier takes_whole_warps"),
        ("bar.warp.sync", "is_barrier"),
        ("barrier.sync", "is_barrier"),
        ("barrier.cluster.arrive.release.aligned", "is_barrier strength releases aligned takes_whole_warps"),
        ("membar.gl", "is_fence between_ctas"),
        ("membar.cta", "is_fence"),
        ("fence.acq_rel.gpu", "is_fence strength acquires releases between_ctas"),
        ("fence.proxy.async", "is_fence"),
        ("fence.mbarrier_init.release.cluster", "is_fence strength releases"),
        ("mbarrier.try_wait.parity.shared.b64", "has_address on_mbarrier"),
        ("mbarrier.complete_tx.shared.b64", "has_address on_mbarrier completes_transactions"),
        ("cp.async.mbarrier.arrive.noinc.shared.b64", "has_address on_mbarrier writes_memory"),
        ("cp.async.cg.shared.global", "has_address writes_memory"),
        ("cp.async.commit_group", ""),
        ("cp.async.bulk.global.shared::cta.bulk_group", "has_address asynchronous is_grouped writes_memory"),
        ("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
         "has_address asynchronous completes_transactions writes_memory"),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32",
         "has_address strength asynchronous is_grouped reduces_in_bulk writes_memory between_ctas"),
        ("tensormap.replace.tile.rank.global.b1024.b32", "has_address writes_memory"),
        ("multimem.ld_reduce.add.f32", "has_address between_ctas"),
        ("nanosleep.u32", "observes_others"),
        ("tcgen05.alloc.cta_group::1.sync.aligned.b32", "has_address writes_memory aligned takes_whole_warps"),
        ("tcgen05.ld.sync.aligned.32x32b.x1.b32", "aligned takes_whole_warps"),
        ("tcgen05.mma.cta_group::1.kind::f16", "asynchronous"),
        ("tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64", "has_address on_mbarrier"),
    ],
)  # fmt: skip
def test_instructions_do_what_they_say(opcode: str, expected: str) -> None:
    assert answers(traits(opcode)) == set(expected.split())


def test_names_end_at_the_first_qualifier() -> None:
    cluster_copy = traits("cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes")
    assert (cluster_copy.name, cluster_copy.root, cluster_copy.space) == ("cp.async.bulk.tensor", "cp", "shared")
    assert cluster_copy.first(5) == "cp.async.bulk.tensor.2d"
    assert traits("wmma.load.a.sync.aligned.row.m16n16k16.f16").name == "wmma.load"
    assert traits("cvt.rn.f16x2.f32").types == ("f16x2", "f32")
    assert traits("call.return").row is None


@pytest.mark.parametrize(
    ("opcode", "spaces"),
    [
        ("fence.proxy.async", {"global", "shared"}),
        ("fence.proxy.async.global", {"global"}),
        ("fence.proxy.async.shared::cta", {"shared"}),
        ("fence.proxy.tensormap::generic.release.gpu", set[str]()),
        ("fence.acq_rel.gpu", set[str]()),
    ],
)
def test_fences_between_proxies_name_their_spaces(opcode: str, spaces: set[str]) -> None:
    assert {space for space in ("global", "shared") if traits(opcode).fences_asynchronous(space)} == spaces


@pytest.mark.slow
def test_the_order_of_qualifiers_says_nothing() -> None:
    order = Random(7)
    for row in every_row():
        for opcode in row.samples()[:2]:
            one, other = traits(opcode), traits(shuffled(opcode, order))
            assert other.row is not None, other.opcode
            assert answers(one) == answers(other), other.opcode
            assert (one.name, one.space, one.types) == (other.name, other.space, other.types)


def test_reductions_of_global_memory_keep_ctas_in_one_process() -> None:
    """An asynchronous one, too: processes would lose what the others add."""
    text = """.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 p) {
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [p];
  OPCODE [%rd1], 1;
  ret;
}"""
    for opcode, alone in (("st.global.u32", True), ("red.async.release.gpu.global.add.u32", False)):
        program = load(parse_ptx(text.replace("OPCODE", opcode)))
        assert independent(program.kernel("k")) == alone


READERS = (
    "ptx/instructions.py", "ptx/rows/grammar.py", "isa/row.py", "isa/form.py", "ptx/text/syntax.py",
    "isa/mma.py", "to_nvvm/instruction.py",
)  # fmt: skip
"""Where opcodes are matched with rows, and the questions to rows."""
READING = re.compile(r"opcode\.(startswith|endswith|split|r?partition|removeprefix)\(|\bin (\w+\.)*opcode\b")


def test_nobody_else_reads_the_text_of_opcodes() -> None:
    top = Path(__file__).parents[2]
    files = [file for folder in ("dialect", "passes", "runtime") for file in (top / folder).rglob("*.py")]
    offending = [str(file) for file in files if READING.search(file.read_text(encoding="utf-8"))]
    assert len(files) > 200
    assert [name for name in offending if not name.endswith(READERS)] == []


@pytest.mark.parametrize(
    ("opcode", "commits", "awaits", "everything"),
    [
        ("cp.async.commit_group", "cp.async", "", False),
        ("cp.async.wait_group", "", "cp.async", False),
        ("cp.async.wait_all", "", "cp.async", True),
        ("cp.async.bulk.commit_group", "cp.async.bulk", "", False),
        ("cp.async.bulk.wait_group.read", "", "cp.async.bulk", False),
        ("wgmma.commit_group.sync.aligned", "wgmma", "", False),
        ("wgmma.wait_group.sync.aligned", "", "wgmma", False),
        ("cp.async.mbarrier.arrive.shared.b64", "", "", False),
        ("add.s32", "", "", False),
    ],
)
def test_groups_are_of_one_kind_of_operation(opcode: str, commits: str, awaits: str, everything: bool) -> None:
    both = traits(opcode)
    assert (both.commits, both.awaits, both.awaits_all) == (commits, awaits, everything)


def test_how_strong_accesses_are() -> None:
    """Of objects whatever their scope, for threads of other CTAs arrive there."""
    assert [traits(opcode).strength for opcode in (
        "ld.global.u32", "ld.relaxed.cta.global.u32", "atom.cta.global.add.u32", "atom.global.add.u32",
        "st.release.cluster.shared::cta.u32", "mbarrier.arrive.release.cta.shared::cta.b64",
    )] == [0, 1, 1, 2, 2, 2]  # fmt: skip
