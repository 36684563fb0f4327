"""Products of warpgroups in clusters: CTAs copy tiles to each other, right in every form and silent under checks."""

from __future__ import annotations

import re
from math import prod
from typing import Any

import pytest
from attentions import Attention
from problems import problem
from products import Product, Types

from warploom.passes.pipelining.ring import Ring
from warploom.runtime import CompileError, compile
from warploom.runtime.interp.watch.findings import CheckError

BF16, MIXED, S8 = Types("bf16", "bf16", "bf16"), Types("f16", "f16", "f32"), Types("i8", "i8", "i32")
E4M3 = Types("f8E4M3FN", "f8E4M3FN", "bf16")


def tile(m: int, n: int, cluster: str, step: int = 16, **options: Any) -> dict[str, Any]:
    """A schedule with K tiles of four steps."""
    return {"cta": (m, n, 4 * step), "mma": f"m64n{n}k{step}", "cluster": cluster, **options}


CASES = [
    Product(BF16, "added", "A B", (200, 136, 136), tile(64, 64, "2x1")),  # the panel of B is cut into rows
    Product(MIXED, "cleared", "At B", (120, 504, 200), tile(64, 128, "2x4", ctas=8, stages=3)),  # B by panels
    Product(BF16, "residual", "A Bt", (250, 248, 264), tile(128, 64, "1x4", ctas=4)),
    Product(MIXED, "gelu by erf", "At Bt", (248, 72, 72), tile(64, 32, "4x1", staging=0)),
    Product(S8, "added", "A Bt", (144, 112, 400), tile(64, 64, "1x2", 32, split_k=2)),
    Product(E4M3, "cleared", "A Bt", (144, 112, 272), tile(128, 64, "2x1", 32, promote="f32")),
    Product(MIXED, "sparse", "A B", (144, 120, 320), {**tile(128, 64, "1x2"), "mma": "m64n64k32"}),
    Product(MIXED, "sparse", "A B", (120, 120, 320), {**tile(64, 128, "2x1"), "mma": "m64n128k32"}),
    Product(BF16, "cleared", "A B", (139, 75, 133), tile(128, 64, "2x2", ctas=4)),  # rows that are packed first
    Product(BF16, "residual", "A Bt", (264, 168, 136), tile(256, 160, "2x1", warp=(128, 160))),  # 128 rows each
    Product(BF16, "residual", "A Bt", (200, 424, 136), {**tile(192, 208, "1x2", warp=(64, 208)), "mma": "m64n104k16"}),
    Product(BF16, "batch", "A B", (120, 72, 136), tile(64, 64, "2x1")),
    Product(BF16, "divisible", "A B", (264, 72, 64), tile(128, 64, "2x1")),  # of sizes that only a call has
    Product(BF16, "cleared", "A Bt", (72, 72, 136), tile(64, 24, "1x2", staging=0)),  # a fourth tile behind D
    Product(BF16, "residual", "A Bt", (192, 64, 136), tile(64, 64, "2x1", staging=0)),
    Product(BF16, "cleared", "A Bt", (248, 136, 200), tile(64, 72, "4x1", staging=0)),  # 18 rows each
    Product(BF16, "cleared", "A Bt", (72, 248, 200), {**tile(80, 64, "1x4"), "mma": "m64n80k16", "multiplied": "ba"}),
]


@pytest.mark.sampled(24)
@pytest.mark.parametrize("product", CASES, ids=str)
def test_products_are_right_and_silent(product: Product) -> None:
    kernel, instance = product.compile("sm_90a"), problem(product, 6)
    assert ".multicast::cluster" in kernel.ptx
    kernel(*instance.arguments, device="interp", checks="all")
    assert instance.wrong() == ""


def test_a_warpgroup_tells_each_cta_once_that_its_products_are_done() -> None:
    """By another warp each; every warp for itself where it reads a residual of the stages, too."""
    plain, residual = (
        Product(BF16, what, "A Bt", (256, 256, 256), tile(64, 64, "2x2", stages=4)).compile("sm_90a").ptx
        for what in ("cleared", "residual")
    )
    assert "barriers of 3 arrivals" in plain
    assert "barriers of 12 arrivals" in residual
    of_loop = plain.partition("wgmma.wait_group")[2].partition("_end:")[0]
    assert len(set(re.findall(r"@(%p\d+) mbarrier.arrive", of_loop))) == 3


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("size", "tile", "cluster"),
    [
        ((1608, 1608, 1608), (128, 192), (2, 1)),
        ((904, 1000, 2000), (64, 128), (2, 1)),
        ((1400, 1400, 1400), (160, 128), (1, 2)),
        ((2048, 2048, 2048), (128, 256), (1, 1)),  # whole lines of memory
    ],
)
def test_clusters_that_the_model_chooses_where_rows_begin_within_lines(
    size: tuple[int, int, int], tile: tuple[int, int], cluster: tuple[int, int]
) -> None:
    (schedule,) = Product(BF16, "cleared", "A B", size).compile("sm_90a").schedule
    assert schedule is not None
    assert (schedule.cta[:2], schedule.cluster) == (tile, cluster)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("size", "cluster"), [((1504, 520, 1992), (4, 1)), ((4120, 240, 2424), (4, 2))])
def test_larger_clusters_where_one_wave_has_all_tiles(size: tuple[int, int, int], cluster: tuple[int, int]) -> None:
    """H100: 4120x240x2424 14.2 microseconds for 17.0. They were measured where both operands lie along K."""
    for lies, allowed in (("A Bt", 8), ("A B", 2)):
        (schedule,) = Product(BF16, "cleared", lies, size).compile("sm_90a").schedule
        assert schedule is not None
        assert schedule.cluster == cluster or lies != "A Bt"
        assert prod(schedule.cluster) <= allowed


def test_clusters_of_four_that_take_several_tiles_are_those_that_run_at_once() -> None:
    (schedule,) = Product(BF16, "cleared", "A Bt", (14592, 328, 1392)).compile("sm_90a").schedule
    assert schedule is not None
    assert (prod(schedule.cluster), schedule.ctas) == (4, 120)


def test_a_cta_that_leaves_before_the_others_are_done_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ring, "drain", lambda *_: None)
    product = CASES[0]
    kernel = compile(product.mlir, "sm_90a", cache=False, **product.schedule)
    with pytest.raises(CheckError, match="which may be gone"):
        kernel(*problem(product, 6).arguments, device="interp", checks="all")


@pytest.mark.parametrize(
    ("product", "message"),
    [
        (
            Product(BF16, "cleared", "A B", (128, 320, 64), tile(128, 64, "3x3")),
            "cluster must be powers of two, at most 8 CTAs, got 3x3",
        ),
        (Product(BF16, "cleared", "A B", (256, 64, 64), tile(128, 64, "2x1", ctas=3)), "whole clusters of 2x1, got 3"),
        (
            Product(BF16, "cleared", "A B", (256, 64, 64), {"mma": "m16n8k16", "cluster": "2x1"}),
            "cluster = 2x1 is for products of warpgroups",
        ),
    ],
    ids=str,
)
def test_what_makes_no_cluster(product: Product, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        product.compile("sm_90a")


def test_an_attention_makes_no_cluster() -> None:
    with pytest.raises(CompileError, match="an attention has no choice of cluster"):
        Attention((128, 128, 64, 64)).compile("sm_90a", cluster="2x1")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("columns", "needed"), [(256, 154), (224, 138), (208, 130)])
def test_sums_that_three_warpgroups_have_no_registers_for_are_refused(columns: int, needed: int) -> None:
    """ptxas refuses them as well (C7602): 512 threads have 128 registers each."""
    a, b, c = "memref<512x320xbf16>", "memref<320x640xbf16>", "memref<512x640xf32>"
    text = f"""func.func @f(%A: {a}, %B: {b}, %C: {c}) {{
      linalg.matmul ins(%A, %B : {a}, {b}) outs(%C : {c}) return }}"""
    said = rf"mma = m64n{columns}k16 takes {needed} registers of a thread, a CTA of 512 threads has 128 for each"
    with pytest.raises(CompileError, match=said):
        compile(text, target="sm_90a", cta=(192, columns, 64), mma=f"m64n{columns}k16")
