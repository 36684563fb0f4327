"""Attention in `linalg` on the interpreter against float64. `attention_grid.py` runs as much of this as is asked."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import attention_gradients
import attention_grid
import numpy as np
import pytest
from attention_gradients import AttentionGradient
from attention_problems import CUT, Array, expected, latent, problem, wrong
from attentions import SOFTMAXES, Attention

from warploom.passes.diagnostics import remarks
from warploom.runtime import CompileError, compile
from warploom.runtime.arguments.arrays import DTYPES

pytestmark = pytest.mark.sampled(2)
"""Of the cases of each test, one in two: what they share, compiling and interpreting, is most of their time."""

SIZE = (20, 70, 32, 32)

BYTE = "f8E4M3FN"

PINS = Path(__file__).parents[1] / "data" / "pins"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("asked", "target"), list(attention_grid.cases(4, seed=12, limit=100)), ids=str)
def test_results_are_those_of_float64(asked: Attention, target: str) -> None:
    assert wrong(asked, target) == ""


FORMS = (
    (Attention((33, 45, 64, 64), mask=("b0", "n"), causal=5), "sm_89"),
    (Attention((7, 70, 40, 72), "bf16", (2, 2), shared=("b1",), softmax="behind", dynamic=True), "sm_80"),
    (Attention((1, 65, 64, 7), batch=(), softmax="named", function="softcap", turned=True, on_memory=True), "sm_120a"),
    (Attention((1, 9, 16, 16), batch=(), mask=("n", "m")), "sm_90a"),
    (Attention((20, 20, 256, 128), "bf16", (1,), softmax="base 2", function="alibi"), "sm_89"),
    (Attention((70, 70, 64, 64), mask=("b0", "n"), causal=5), "sm_90a"),
    (Attention((66, 140, 128, 128), "bf16", batch=()), "sm_90a"),
    (Attention((66, 20, 200, 256), "bf16", batch=()), "sm_90a"),
    (Attention((9, 21, 32, 32), batch=(2, 3), function="slopes"), "sm_80"),
    (Attention((70, 70, 64, 64), "bf16", batch=()), "sm_100a"),
    (Attention((70, 21, 64, 64), batch=(2, 3), function="slopes", dynamic=True), "sm_90a"),
    (Attention((70, 150, 64, 64), "bf16", (1, 2), sinks="sum", softmax="inverse", dynamic=True), "sm_90a"),
    (Attention((20, 45, 32, 32), sinks="start", softmax="behind", causal=-5), "sm_89"),
    (Attention((20, 40, 32, 32), "f8E4M3FN", softmax="behind", documents=True), "sm_89"),
    (Attention((130, 150, 128, 128), "f8E4M3FN", batch=(1, 2)), "sm_90a"),
    (Attention((70, 133, 64, 128), "f8E4M3FN", softmax="named", causal=60, dynamic=True), "sm_90a"),
    (Attention((150, 400, 128, 128), "f8E4M3FN", causal=200, documents=True), "sm_90a"),
    (Attention((150, 304, 64, 112), "f8E4M3FN", batch=(), sinks="sum"), "sm_90a"),
    (Attention((1, 133, 64, 64), "f8E4M3FN", batch=(2, 3), shared=("b1",), sinks="max"), "sm_90a"),
    (Attention((130, 150, 192, 128), "bf16", batch=(1,)), "sm_90a"),
    (Attention((5, 70, 64, 320), batch=(2,), sinks="sum", documents=True), "sm_80"),
)


@pytest.mark.sampled(20)
@pytest.mark.parametrize(("asked", "target"), FORMS, ids=str)
def test_kernels_are_silent_under_all_checks(asked: Attention, target: str) -> None:
    assert wrong(asked, target, checks="all") == ""


KEYS = (
    (Attention((1, 150, 128, 64), "bf16", (17,), ("b0",)), "sm_80", {"split_k": 2}),
    (Attention((1, 200, 80, 72), batch=(2, 3), shared=("b1",), lengths=True), "sm_90a", {"split_k": 3}),
    (Attention((1, 256, 64, 64), "bf16", (2, 2, 3), ("b2",), lengths=True, pages=32), "sm_90a", {"split_k": 3}),
    (Attention((9, 250, 64, 64), batch=(1,), window=30, causal=140, function="softcap"), "sm_80", {"split_k": 2}),
    (Attention((40, 128, 64, 64), batch=(2,), pages=16, causal=3), "sm_80", {}),
    (Attention((70, 300, 64, 64), batch=(1,), window=20, causal=40), "sm_90a", {}),
    (Attention((150, 90, 64, 64), batch=(3, 2), shared=("b1",), causal=-20), "sm_90a", {}),
    (Attention((250, 330, 128, 128), "f8E4M3FN", batch=(3,), causal=70), "sm_90a", {"consumers": "pingpong"}),
    (Attention((70, 150, 64, 64), batch=(2,), lengths=True), "sm_90a", {}),
    (Attention((20, 40, 32, 32), batch=(2,), documents=True, dynamic=True), "sm_89", {}),
    (Attention((200, 300, 64, 64), "bf16", batch=(1,), documents=True, causal=100), "sm_90a", {}),
    (Attention((1, 300, 64, 64), batch=(1, 3), documents=True), "sm_80", {"split_k": 2}),
    (
        Attention((1, 200, 64, 64), "bf16", (2, 3), shared=("b1",), sinks="max", on_memory=True),
        "sm_90a",
        {"split_k": 3},
    ),
)
"""Keys that warps and CTAs share, that do not count, and that lie in pages."""


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("asked", "target", "schedule"), KEYS, ids=str)
def test_which_keys_count(asked: Attention, target: str, schedule: dict[str, Any]) -> None:
    assert wrong(asked, target, checks="all", **schedule) == ""


SEQUENCES = (
    (Attention((150, 150, 64, 64), "bf16", sequences=4), "sm_90a"),
    (Attention((150, 150, 64, 64), sequences=3, causal=0, softmax="named"), "sm_90a"),
    (Attention((300, 300, 128, 128), "bf16", (1, 2), shared=("b1",), sequences=3), "sm_90a"),
    (Attention((131, 131, 72, 40), batch=(2,), sequences=5, window=20, causal=3, function="alibi"), "sm_80"),
    (Attention((140, 140, 64, 128), batch=(2,), sequences=3, function="softcap"), "sm_90"),
    (Attention((190, 190, 256, 256), "bf16", (1,), sequences=2, causal=5), "sm_100a"),
)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("asked", "target"), SEQUENCES, ids=str)
def test_sequences_of_several_lengths(asked: Attention, target: str) -> None:
    """A loop over them is one kernel, which reads their ends; some are empty, and rows of none are left alone."""
    assert wrong(asked, target, checks="all") == ""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("target", "rows"), [("sm_90a", "150"), ("sm_80", "?")])
def test_sequences_leave_what_gradients_need(target: str, rows: str) -> None:
    """The logarithms of sums of each row, within 2^-20 as O is within 2^-6, from a loop on memory, of any size too."""
    text = (PINS / "sequences.mlir").read_text().replace("memref<150x2x64xbf16>", f"memref<{rows}x2x64xbf16>")
    kernel, random = compile(text, target), np.random.default_rng(11)
    q, k, v, o = (random.standard_normal((150, 2, 64)).astype(DTYPES["bf16"]) for _ in range(4))
    lse, before = np.full((2, 150), 7.0, np.float32), o.copy()
    kernel(q, k, v, o, lse, device="interp", checks="all")
    for begin, end in ((0, 37), (37, 120)):
        x, y, z, made = (np.moveaxis(each[begin:end].astype(np.float64), 1, 0) for each in (q, k, v, o))
        scores = np.where(np.tri(end - begin, dtype=bool), x @ np.swapaxes(y, 1, 2) / 8, -np.inf)
        sums = np.logaddexp.reduce(scores, -1)
        assert np.abs(lse[:, begin:end] - sums).max() <= 2.0**-20 * np.abs(sums).max()
        assert np.abs(made - np.exp(scores - sums[..., None]) @ z).max() <= 2.0**-6
    assert (lse[:, 120:] == 7.0).all()
    assert (o[120:] == before[120:]).all()
    assert len(kernel.launches) == 1


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (Attention((40, 40, 32, 32), sequences=3, turned=True), "expected rows of Q, K, V and O side by side"),
        (Attention((40, 40, 32, 32), sequences=3, mask=("m",)), "a sequence has a region, lengths, documents or sinks"),
    ],
    ids=str,
)
def test_loops_over_sequences_that_stay_say_why(asked: Attention, reason: str) -> None:
    with remarks() as heard, pytest.raises(CompileError, match="carry no values"):
        asked.compile()
    assert any(reason in str(one) for one in heard)


BY_FRAGMENTS = (
    (Attention((70, 90, 32, 32)), "sm_90a", "not by warpgroups: heads of 32 and 32 columns"),
    (Attention((70, 96, 64, 64), pages=32), "sm_90a", "not by warpgroups: K has rows where a table says"),
    (Attention((70, 70, 576, 512), "bf16", (1,)), "sm_90a", "not by warpgroups: heads of 576 and 256 columns"),
    (Attention((70, 90, 64, 36), "bf16"), "sm_90a", "not by warpgroups: V "),
    (Attention((70, 90, 192, 192), "f8E4M3FN"), "sm_90a", "no registers for 192 columns twice"),
    (Attention((70, 90, 32, 32), dynamic=True), "sm_90a", "not by warpgroups: heads of 32 and 32 columns"),
    (Attention((70, 90, 32, 32)), "sm_100a", "not in tensor memory: heads of 32 and 32 columns"),
    (AttentionGradient((1, 1, 70, 90, 32, 32), results=("dQ",)), "sm_90a", "not by warpgroups: heads of 32"),
    (AttentionGradient((1, 1, 70, 90, 64, 64), results=("dQ",)), "sm_100a", "not in tensor memory: what is multiplied"),
    (Attention((64, 90, 32, 32)), "sm_90a", ""),
    (Attention((70, 90, 64, 64)), "sm_90a", ""),
    (Attention((70, 90, 32, 32)), "sm_90", ""),
)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("asked", "target", "reason"), BY_FRAGMENTS, ids=str)
def test_rows_enough_for_warpgroups_that_fragments_multiply(
    asked: Attention | AttentionGradient, target: str, reason: str
) -> None:
    """The remark is at the attention. No rows of few queries, and no target without warpgroups, has one."""
    with remarks() as heard:
        kernel = asked.compile(target)
    said = [line for line in heard if "by fragments, not" in line]
    assert len(said) == bool(reason)
    assert all(re.match(r"\S+:\d+:\d+: remark: warp-schedule: m16n8k\d+ by fragments", line) for line in said)
    assert all(reason in line for line in said)
    assert "mma.sync" in kernel.ptx or not reason


def test_fragments_that_are_asked_for_are_no_news() -> None:
    with remarks() as heard:
        Attention((70, 90, 32, 32)).compile("sm_90a", mma="m16n8k16")
    assert not [line for line in heard if "by fragments" in line]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("consumers", ["pingpong", "cooperative"])
def test_a_sequence_may_have_no_keys(consumers: str) -> None:
    """Warpgroups in turns have none then, and pass none on."""
    asked = Attention((200, 256, 128, 128), "bf16", (2,), lengths=True)
    instance = problem(asked)
    instance.arguments[3][0] = 0
    instance = expected(asked, instance.arguments)
    kernel = asked.compile("sm_90a", consumers=consumers)
    kernel(*instance.arguments, device="interp", checks="all")
    assert instance.wrong() == ""
    assert np.isnan(instance.arguments[-1][0].astype(np.float32)).all()


GATHERED = """
#place = affine_map<(b, n, d) -> (b, n, d)>
func.func @f(%q: tensor<2x20x32xf16>, %cache: tensor<{pages}x{rows}x32xf16>, %table: tensor<2x3x{number}>)
    -> (tensor<2x20x{n}xf32>{also}) {{
  %zero = arith.constant 0.0 : f32
  %rows = arith.constant {rows} : index
  %new = tensor.empty() : tensor<2x{n}x32xf16>
  %k = linalg.generic {{indexing_maps = [#place], iterator_types = ["parallel", "parallel", "parallel"]}}
      outs(%new : tensor<2x{n}x32xf16>) {{
  ^bb0(%old: f16):
    %b = linalg.index 0 : index
    %n = linalg.index 1 : index
    %d = linalg.index 2 : index
    %block = arith.divui %n, %rows : index
    %slot = arith.remui %n, %rows : index
    %number = tensor.extract %table[%b, %block] : tensor<2x3x{number}>
    %page = arith.index_cast %number : {number} to index
    %x = tensor.extract %cache[%page, %slot, %d] : tensor<{pages}x{rows}x32xf16>
    linalg.yield %x : f16
  }} -> tensor<2x{n}x32xf16>
  %none = tensor.empty() : tensor<2x20x{n}xf32>
  %start = linalg.fill ins(%zero : f32) outs(%none : tensor<2x20x{n}xf32>) -> tensor<2x20x{n}xf32>
  %s = linalg.batch_matmul_transpose_b ins(%q, %k : tensor<2x20x32xf16>, tensor<2x{n}x32xf16>)
      outs(%start : tensor<2x20x{n}xf32>) -> tensor<2x20x{n}xf32>
  return %s{result} : tensor<2x20x{n}xf32>{also}
}}"""


@pytest.mark.parametrize(("pages", "rows", "number", "returned"), [("9", 16, "i32", False), ("?", 24, "i64", True)])
def test_keys_in_pages_that_no_attention_reads_are_gathered(pages: str, rows: int, number: str, returned: bool) -> None:
    """By an operation of its own, whatever the rows of a page, for a product, and as a result."""
    n, random = 3 * rows, np.random.default_rng()
    also, result = (f", tensor<2x{n}x32xf16>", ", %k") if returned else ("", "")
    text = GATHERED.format(pages=pages, rows=rows, number=number, n=n, also=also, result=result)
    q, cache = (random.standard_normal(shape).astype(np.float16) for shape in ((2, 20, 32), (9, rows, 32)))
    table = random.permutation(9)[:6].reshape(2, 3).astype(number.replace("i", "int"))
    s, k = np.full((2, 20, n), np.nan, np.float32), np.full((2, n, 32), np.nan, np.float16)
    compile(text, "sm_80")(q, cache, table, s, *[k] * returned, device="interp", checks="all")
    gathered = cache[table].reshape(2, n, 32)
    x, y = q.astype(np.float64), np.swapaxes(gathered, 1, 2).astype(np.float64)
    assert (np.abs(s - x @ y) <= 34 * 2.0**-23 * (np.abs(x) @ np.abs(y))).all()
    assert not returned or (k == gathered).all()


@pytest.mark.parametrize(
    ("written", "instead", "launches"),
    [("%pages: tensor<2x5xi32>", "%pages: tensor<2x5xi64>", 1), ("tensor<13x16x", "tensor<?x16x", 3)],
)
def test_pages_of_other_tables_and_caches(written: str, instead: str, launches: int) -> None:
    """Numbers of 64 bits, and caches of unknown size, of which K and V are gathered before, which a remark says."""
    asked = Attention((5, 80, 64, 64), "bf16", pages=16)
    assert written in asked.mlir
    text = asked.mlir.replace(written, instead).replace(written[-14:], instead[-14:])
    wide = "i64" in instead
    text = (
        text.replace("%page = arith.index_cast %number : i32", "%page = arith.index_cast %number : i64")
        if wide
        else text
    )
    with remarks() as heard:
        instance, kernel = problem(asked), compile(text, "sm_80")
    assert any("each other index a loop's own number" in str(one) for one in heard) == (launches > 1)
    arguments = [x.astype(np.int64) if wide and x.dtype == np.int32 else x for x in instance.arguments]
    kernel(*arguments, device="interp", checks="all")
    assert instance.wrong() == ""
    assert len(kernel.launches) == launches


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (Attention((9, 20, 704, 64), batch=()), "got 704 and 64"),
        (Attention((9, 20, 64, 257), batch=(), on_memory=True), "got 64 and 257"),
        (AttentionGradient((1, 1, 20, 20, 264, 32), "f16"), "heads have up to 256 columns, got 264"),
    ],
    ids=str,
)
def test_heads_of_more_columns_are_products(asked: Attention | AttentionGradient, reason: str) -> None:
    """They say why they are no attention, and are right."""
    instance = problem(asked) if isinstance(asked, Attention) else attention_gradients.problem(asked)
    with remarks() as heard:
        asked.compile("sm_80")(*instance.arguments, device="interp", checks="all")
    assert instance.wrong() == ""
    assert any(reason in line and "it is not fused" in line for line in heard)


def test_keys_that_ctas_share_are_cut() -> None:
    """No remark says that they are not."""
    with remarks() as heard:
        kernel = Attention((1, 128, 64, 64), "bf16", (2,), pages=16).compile("sm_90a")
    (launch,), (schedule,) = kernel.launches, kernel.schedule
    assert schedule is not None
    assert launch.grid == (2 * schedule.split_k, 1, 1) != (2, 1, 1)
    assert heard == []


def test_turns_with_one_stage_are_refused() -> None:
    """Every order of the warps is a deadlock, which the check of all orders finds."""
    with pytest.raises(CompileError, match="consumers = pingpong takes 2 stages or more"):
        Attention((130, 70, 64, 64)).compile("sm_90a", stages=1, consumers="pingpong")


STEP = re.compile(
    r"wgmma\.mma_async\S+ \{(%f\d+).*?\}, (\{%r)?|wgmma\.(fence|commit|wait_group)\S* ?(\d?)|bar\.(sync|arrive)"
)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("columns", [128, 256])
def test_products_of_the_last_keys_run_beside_scores(columns: int) -> None:
    """A turn starts S and P V, waits for S, and for P V once P is computed. Sums of O stay where the loop has them."""
    schedule = {"cta": (128, 64, columns), "mma": "m64n64k16", "stages": 2, "consumers": "pingpong"}
    ptx = Attention((300, 300, columns, columns), "bf16").compile("sm_90a", **schedule).ptx
    loops = [text.partition("_end:")[0] for text in ptx.split("// K loop")[-3:]]
    first, turn, last = ([*dict.fromkeys(map(_step, STEP.findall(loop)))] for loop in loops)
    assert [step for step, _ in first] == ["fence", "S", "commit", "wait_group0"]
    of_turn = ["sync", "fence", "S", "commit", "O", "arrive", "wait_group1", "wait_group0"]
    assert [step for step, _ in turn] == of_turn
    assert [step for step, _ in last] == ["sync", "fence", "O", "commit", "arrive", "wait_group0"]
    assert dict(turn)["O"] == dict(last)["O"] != dict(turn)["S"]


@pytest.mark.sampled(9)
@pytest.mark.parametrize(("element", "columns", "groups"), [("bf16", 64, 2), ("f8E4M3FN", 128, 3), ("bf16", 64, 3)])
def test_a_turn_is_the_last_products_of_a_tile_and_the_first_of_the_next(
    element: str, columns: int, groups: int
) -> None:
    """Where P V is added to O behind it, or O has few registers. The turn is there before and behind the loop."""
    mma = "m64n64k32" if element == "f8E4M3FN" else "m64n64k16"
    schedule = {"cta": (64 * groups, 64, columns), "mma": mma, "stages": 2, "consumers": "pingpong", "ctas": 2}
    asked = Attention((300, 200, columns, columns), element)
    ptx = asked.compile("sm_90a", **schedule).ptx
    before, loop = ptx.rpartition("// K loop")[::2]
    loop, behind = loop.partition("_end:")[::2]
    steps = [step for step, _ in groupby(step for step, _ in map(_step, STEP.findall(loop)))]
    of_first = ["fence", "S", "commit", "arrive", "wait_group0"]
    assert steps == [*of_first, "sync", "fence", "O", "commit", "wait_group0"]
    assert [step for step, _ in map(_step, STEP.findall(before))][-1] == "sync"
    assert next(step for step, _ in map(_step, STEP.findall(behind))) == "arrive"
    assert wrong(asked, "sm_90a", checks="all", **schedule) == ""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("keys", "exchanges"), [(304, False), (300, True)])
def test_lanes_have_p_of_bytes_where_they_multiply_it(keys: int, exchanges: bool) -> None:
    """Keys of V are in the order of lanes where it is transposed before by rows of whole units."""
    ptx = Attention((300, keys, 128, 128), "f8E4M3FN").compile("sm_90a").ptx
    assert ("shfl.sync.idx" in ptx) == exchanges


def _step(kernel: tuple[str, ...]) -> tuple[str, str]:
    """A step of a loop, and the first register of the sums of a product."""
    sums, of_registers, step, pending, barrier = kernel
    return step + pending or barrier or ("O" if of_registers else "S"), sums


def test_turns_of_products_that_read_the_same_tiles_are_not_rotated() -> None:
    text, instance = latent(Attention((1, 133, 128, 128), "bf16", (1, 70), shared=("b1",)), 0)
    kernel = compile(text, "sm_90a", cta=(128, 64, 128), mma="m64n64k16", stages=2, consumers="pingpong")
    assert kernel.ptx.count("// K loop") == 2
    q, k, _, o = instance.arguments
    kernel(q, k, o, device="interp", checks="all")
    assert instance.wrong() == ""


def test_keys_that_do_not_count_are_not_read() -> None:
    """NaN behind the length of a sequence, in pages of nobody, and left of the window."""
    asked = Attention((1, 128, 64, 64), batch=(2, 2), shared=("b1",), lengths=True)
    instance = problem(asked)
    for sequence, length in enumerate(instance.arguments[3]):
        instance.arguments[1][sequence, length:] = instance.arguments[2][sequence, length:] = np.nan
    asked.compile("sm_90a", split_k=2)(*instance.arguments, device="interp")
    assert instance.wrong() == ""
    asked = Attention((16, 200, 64, 64), batch=(1,), window=-70)
    instance = problem(asked)
    instance.arguments[1][0, :64] = instance.arguments[2][0, :64] = np.nan
    asked.compile("sm_80")(*instance.arguments, device="interp")
    assert instance.wrong() == ""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("target", "first", "columns"), [("sm_90a", 0, 512), ("sm_80", 64, 192)])
def test_values_may_be_columns_of_keys(target: str, first: int, columns: int) -> None:
    """One latent matrix: V is 512 of K's 576 columns, which CTAs of two parts of them share. They have no tile of V."""
    asked = Attention((1, 133, 576, columns), "bf16", (1, 5), shared=("b1",))
    text, arguments = latent(asked, first)
    (q, k, _, o), kernel = arguments.arguments, compile(text, target, stages=2)
    kernel(q, k, o, device="interp", checks="all")
    assert arguments.wrong() == ""
    (launch,) = kernel.launches
    schedule = kernel.schedule[-1]
    assert schedule is not None
    assert launch.grid == (schedule.split_k * -(-columns // 256), 1, 1)
    assert launch.shared < asked.compile(target, stages=2).launches[0].shared


@pytest.mark.parametrize("asked", [Attention((70, 50, 64, 64)), Attention((5, 90, 64, 64), function="alibi")], ids=str)
def test_scores_may_be_scaled_by_a_number_below_zero(asked: Attention) -> None:
    instance = problem(asked)
    text = asked.mlir.replace(
        f"%scale = arith.constant {asked.scale:.6e}", f"%scale = arith.constant {-asked.scale:.6e}"
    )
    kernel, (q, *others) = compile(text, "sm_80"), instance.arguments
    kernel(-q, *others, device="interp", checks="all")
    assert instance.wrong() == ""
    assert len(kernel.launches) == 1


LATENT = (
    (Attention((1, 144, 576, 512), "bf16", (2, 5), ("b1",), lengths=True, pages=16), 0, "sm_90a"),
    (Attention((1, 160, 192, 128), "bf16", (3, 2, 3), ("b1", "b2"), pages=32), 64, "sm_80"),
    (Attention((40, 128, 128, 48), "bf16", pages=16, causal=3), 16, "sm_80"),
)
"""With heads that are rows of one tile, in parts of V's columns, and where V has a tile of its own."""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("sliced", [True, False])
@pytest.mark.parametrize(("asked", "first", "target"), LATENT, ids=str)
def test_values_may_be_columns_of_keys_in_pages(asked: Attention, first: int, target: str, sliced: bool) -> None:
    """No launch gathers K, of which V is a slice, or V, where it is gathered too, from the first columns of K."""
    text, instance = latent(asked, first if sliced else 0)
    if not sliced:
        cache = next(iter(re.findall(r"%K: (tensor<\w+>)", text)))
        text = re.sub(r", %V: tensor<\w+>", "", asked.mlir)
        text = re.sub(r"(tensor.extract )%V(.* : ).*", rf"\1%K\2{cache}", text)
    kernel, (q, k, _, *others) = compile(text, target), instance.arguments
    kernel(q, k, *others, device="interp", checks="all")
    assert instance.wrong() == ""
    assert len(kernel.launches) == 1


@pytest.mark.parametrize(("keys", "launches"), [(80, 1), (70, 3)])
def test_keys_that_a_table_names_and_nobody_reads(keys: int, launches: int) -> None:
    """Behind the last key of 70 the page has others: K and V are gathered before, which a remark says."""
    asked, whole = (Attention((5, n, 64, 64), "bf16", pages=16) for n in (keys, 80))
    instance = problem(whole)
    text = whole.mlir.replace("x80x", f"x{keys}x")
    with remarks() as heard:
        kernel = compile(text, "sm_80")
    assert len(kernel.launches) == launches
    assert any("it leaves out rows that a table names" in str(one) for one in heard) == (launches > 1)
    q, k, v, pages, o = instance.arguments
    kernel(q, k, v, pages, o, device="interp", checks="all")
    of_k, of_v = (cache[pages].reshape(2, 80, 64)[:, :keys] for cache in (k, v))
    assert expected(replace(asked, pages=0), [q, of_k, of_v, o]).wrong() == ""


def test_keys_of_other_documents_are_not_read() -> None:
    """In any order: NaN in tiles of keys whose numbers are beyond those of the rows of a tile."""
    asked = Attention((130, 300, 32, 32), batch=(1,), documents=True)
    instance = problem(asked)
    names = [value.name for value in asked.arguments()]
    of_m, of_n = (instance.arguments[names.index(name)] for name in ("%of_m", "%of_n"))
    of_m[:], of_n[:] = 7, np.where(np.arange(300) % 3, 13, 9)
    of_m[::3], of_n[70:180] = -5, np.where(np.arange(110) % 5, 7, -5)
    instance = expected(asked, instance.arguments)
    instance.arguments[1][0, :64] = instance.arguments[2][0, 192:] = np.nan
    kernel = asked.compile("sm_80")
    kernel(*instance.arguments, device="interp")
    assert instance.wrong() == ""
    assert len(kernel.launches) == 2


def test_heads_that_share_keys_are_rows() -> None:
    """One CTA for all of them, whose result is theirs."""
    asked = Attention((1, 70, 64, 64), batch=(2, 5), shared=("b1",), function="slopes")
    assert wrong(asked) == ""
    assert asked.compile().launches[0].grid == (2, 1, 1)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_scores_may_depend_on_numbers(target: str) -> None:
    """The scale is an argument of the function."""
    asked = Attention((70, 21, 64, 64), on_memory=True)
    constant = f"  %scale = arith.constant {asked.scale:.6e} : f32\n"
    assert constant in asked.mlir
    text = asked.mlir.replace(constant, "").replace("@attention(", "@attention(%scale: f32, ")
    instance, kernel = problem(asked), compile(text, target)
    assert len(kernel.launches) == 1
    kernel(np.float32(asked.scale), *instance.arguments, device="interp")
    assert instance.wrong() == ""


def test_sizes_of_temporaries_do_not_keep_them() -> None:
    """The softmax asks how large the scores are, in memory that is gone in the end."""
    asked = Attention((9, 17, 16, 16), dynamic=True, on_memory=True, softmax="named")
    assert wrong(asked) == ""


def test_every_form_comes_up() -> None:
    every = [asked for asked, _ in attention_grid.cases(300)]
    assert {asked.softmax for asked in every} == set(SOFTMAXES)
    assert {(asked.element, len(asked.batch)) for asked in every} == {
        (t, n) for t in ("f16", "bf16") for n in (0, 1, 2, 3)
    }
    assert {asked.function for asked in every} == {"", "softcap", "alibi"}
    assert {len(asked.mask) for asked in every if asked.mask is not None} >= {0, 1, 2, 3, 4}
    assert any(asked.size[0] == 1 for asked in every)
    assert any(asked.causal is not None and asked.causal < 0 for asked in every)


# What is not finite


def at_infinity(mask: Array) -> None:
    mask[3, :], mask[5, 1:], mask[7, 9], mask[9, 66] = -np.inf, -np.inf, np.inf, np.nan


def large(mask: Array) -> None:
    mask[np.isinf(mask)] = -1e9
    mask[3, :] = -1e9


def lowest(mask: Array) -> None:
    mask[np.isinf(mask)] = np.finfo(np.float32).min
    mask[3, :], mask[5, 1:] = np.finfo(np.float32).min, -np.inf


@pytest.mark.sampled(6)
@pytest.mark.parametrize("change", [at_infinity, large, lowest], ids=lambda change: change.__name__)
def test_masks_may_hold_any_number(change: Callable[[Array], None]) -> None:
    """NaN where the formula gives NaN, and nowhere else."""
    asked = Attention(SIZE, mask=("m", "n"))
    arguments = problem(asked).arguments
    change(arguments[3])
    _check(asked, arguments)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_scores_far_apart_choose_values_exactly(target: str) -> None:
    """Where the other keys weigh nothing, a row is the value of its largest score, or the mean of two that are equal,
    in whatever tiles they are: rounding the score of 10^5 does not show, on which gradients depend."""
    asked, random = Attention((70, 300, 32, 32), "bf16", batch=()), np.random.default_rng(5)
    *inputs, o = problem(asked).arguments
    q, k, v = (random.standard_normal(x.shape).astype(x.dtype) * x.dtype.type(500) for x in inputs)
    kernel, scores = asked.compile(target), q.astype(np.float64) @ k.astype(np.float64).T
    kernel(q, k, v, o, device="interp")
    assert (o == v[scores.argmax(1)]).all()
    k[0] = k[-1] = 4 * q[0]
    q[:] = q[0]
    kernel(q, k, v, o, device="interp")
    mean = (v[0].astype(np.float64) + v[-1].astype(np.float64)) / 2
    assert (np.abs(o.astype(np.float64) - mean) <= 2.0**-8 * np.abs(v.astype(np.float64)[[0, -1]]).max(0)).all()


def test_rows_without_a_key_are_not_a_number() -> None:
    asked = Attention(SIZE, causal=-5)
    result = _check(asked, problem(asked).arguments)
    assert np.isnan(result[:, :5]).all()
    assert np.isfinite(result[:, 5:]).all()


def test_rows_whose_scores_are_all_negative() -> None:
    """The largest of them is looked for again, in warps that have rows of both kinds, too."""
    asked = Attention((150, 300, 128, 128), "bf16", batch=())
    q, k, v, o = problem(asked).arguments
    q[...], k[...] = np.abs(q.astype(np.float32)), -np.abs(k.astype(np.float32))
    q[1::3] = -q[1::3].astype(np.float32)
    exact, kernel = expected(asked, [q, k, v, o]), asked.compile("sm_90a")
    kernel(q, k, v, o, device="interp", checks="all")
    assert exact.wrong() == ""
    assert re.search(r"max\.s32 (%r\d+), %r\d+, %r\d+;\s+max\.s32 %r\d+, \1, %r\d+;", kernel.ptx)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("operand", [0, 1, 2])
def test_operands_may_hold_any_number(operand: int) -> None:
    asked = Attention((20, 30, 32, 32))
    arguments = problem(asked).arguments
    arguments[operand][0, 3, 5], arguments[operand][1, 7, 7] = np.nan, np.inf
    _check(asked, arguments)


def _check(asked: Attention, arguments: list[Array]) -> Array:
    exact = expected(asked, arguments)
    asked.compile()(*arguments, device="interp")
    assert exact.wrong() == ""
    return arguments[-1].astype(np.float64)


# The judge itself


def test_what_is_wrong_is_found() -> None:
    instance = problem(Attention((5, 6, 16, 16)))
    assert "of 160 are wrong, first (0, 0, 0): " in instance.wrong()
    result = instance.arguments[-1]
    result[...] = instance.value
    assert instance.wrong() == ""
    result[1, 3, 5] += 2 * instance.bound[1, 3, 5] + 0.1
    assert instance.wrong().startswith("1 of 160 are wrong, first (1, 3, 5)")


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("keys", "consumers"), [(8192, "cooperative"), (8320, "pingpong")])
def test_long_causal_attention_of_bytes_is_in_turns(keys: int, consumers: str) -> None:
    kernel = Attention((keys, keys, 128, 128), "f8E4M3FN", (1,), causal=0).compile("sm_90a")
    chosen = kernel.schedule[-1]
    assert chosen is not None
    assert chosen.consumers == consumers


def test_bytes_take_more_keys_at_a_time_where_nothing_masks_them() -> None:
    inputs, loops = "memref<2x4096x128xf8E4M3FN>", "affine_map<(h, m, n, d, e) ->"
    maps = ", ".join(f"{loops} ({at})>" for at in ("h, m, d", "h, n, d", "h, n, e", "h, m, e"))
    for masked, tile in (("", (128, 256, 128)), ("diagonal = 0 : i64, ", (192, 128, 128))):
        text = f"""func.func @f(%q: {inputs}, %k: {inputs}, %v: {inputs}, %o: memref<2x4096x128xbf16>) {{
          warp.attention %q, %k, %v into %o {{scale = 0.1 : f32, {masked}indexing_maps = [{maps}]}}
            : {inputs}, {inputs}, {inputs}, memref<2x4096x128xbf16>
          return
        }}"""
        schedule = compile(text, "sm_90a").schedule[-1]
        assert schedule is not None
        assert schedule.cta == tile


def test_powers_of_bytes_are_those_of_float64() -> None:
    """V is two identities: an element of O is two P over the sum of its row, which columns of ones make of rounded P.
    Products of small integers are exact."""
    keys, size, loops, powers = 256, 128, "affine_map<(h, m, n, d, e) ->", 2.0**-6.9
    maps = ", ".join(f"{loops} ({at})>" for at in ("h, m, d", "h, n, d", "h, n, e", "h, m, e"))
    q_type, k_type, o_type = (f"memref<1x{n}x{size}x{t}>" for n, t in ((size, BYTE), (keys, BYTE), (size, "f32")))
    text = f"""func.func @f(%q: {q_type}, %k: {k_type}, %v: {k_type}, %o: {o_type}) {{
      warp.attention %q, %k, %v into %o {{scale = 0.07 : f32, indexing_maps = [{maps}]}}
        : {q_type}, {k_type}, {k_type}, {o_type}
      return
    }}"""
    kernel = compile(text, "sm_90a", cta="128x256x128", warp="64x256", mma="m64n256k32", consumers="pingpong")
    assert {"ex2.approx.ftz.f32", "fma.rn.f16x2"} <= set(re.findall(r"[\w.]+", kernel.ptx))
    rng, byte = np.random.default_rng(), DTYPES[BYTE]
    q, k = (rng.integers(-3, 4, (1, n, size)).astype(np.float64) for n in (size, keys))
    v, o = np.concatenate([np.eye(size)] * 2)[None], np.full((1, size, size), np.nan, np.float32)
    kernel(q.astype(byte), k.astype(byte), v.astype(byte), o, device="interp")
    scores = np.float64(np.float32(0.07)) * (q @ np.swapaxes(k, 1, 2))
    p = np.exp(scores - scores.max(-1, keepdims=True))
    relative = (1 + 2.0**-4) * (1 + powers) * (1 + 2 * CUT) / ((1 - 2.0**-4) * (1 - powers) * (1 - 2 * CUT)) - 1
    assert (np.abs(o * p.sum(-1, keepdims=True) - p @ v) <= relative * (p @ v) + 2.0**-17).all()
    # Sums are of the numbers that are multiplied: rounded P makes a sum of one, but for 31 of 32 numbers cut at most.
    assert (np.abs(o.astype(np.float64).sum(-1) - 1) <= 31 * CUT).all()


def test_a_key_that_weighs_most_hides_no_others_from_the_sum() -> None:
    """Instructions on bytes cut what they add 13 bits below the largest: 511 keys of 2^-14 are 3 % of their sum."""
    keys, size, loops = 512, 128, "affine_map<(h, m, n, d, e) ->"
    maps = ", ".join(f"{loops} ({at})>" for at in ("h, m, d", "h, n, d", "h, n, e", "h, m, e"))
    q_type, k_type, o_type = (f"memref<1x{n}x{size}x{t}>" for n, t in ((size, BYTE), (keys, BYTE), (size, "f32")))
    text = f"""func.func @f(%q: {q_type}, %k: {k_type}, %v: {k_type}, %o: {o_type}) {{
      warp.attention %q, %k, %v into %o {{scale = {math.log(2.0)} : f32, indexing_maps = [{maps}]}}
        : {q_type}, {k_type}, {k_type}, {o_type}
      return
    }}"""
    kernel = compile(text, "sm_90a", cta="128x256x128", warp="64x256", mma="m64n256k32", consumers="pingpong")
    byte, first = DTYPES[BYTE], int(np.random.default_rng().integers(keys))
    q, k, v = np.zeros((1, size, size)), np.zeros((1, keys, size)), np.zeros((1, keys, size))
    q[..., 0], k[0, first, 0], v[0, first] = 1, 14, 1
    o = np.full((1, size, size), np.nan, np.float32)
    kernel(q.astype(byte), k.astype(byte), v.astype(byte), o, device="interp")
    assert (np.abs(o * (1 + (keys - 1) * 2.0**-14) - 1) <= 32 * 2.0**-14).all()
