"""Products of warpgroups whose K is cut among CTAs: right in every form, silent under checks, the same every time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from problems import problem
from products import Product, Types

from warploom.runtime import CompileError, compile

CHECKS = "races,uninitialised,barriers,bounds,wgmma"

BF16, MIXED, S8 = Types("bf16", "bf16", "bf16"), Types("f16", "f16", "f32"), Types("i8", "i8", "i32")
E4M3 = Types("f8E4M3FN", "f8E4M3FN", "bf16")


def tile(m: int, n: int, parts: int, step: int = 16, **options: Any) -> dict[str, Any]:
    """A schedule with K tiles of four steps."""
    return {"cta": (m, n, 4 * step), "mma": f"m64n{n}k{step}", "split_k": parts, **options}


CLUSTER: dict[str, Any] = {"partial_sums": "cluster"}
EXCHANGED = {"cta": (32, 64, 64), "mma": "m64n32k16", "multiplied": "ba"}

CASES = [
    Product(BF16, "added", "A B", (136, 72, 328), tile(128, 64, 4)),  # 6 K tiles, the last one of 8
    Product(MIXED, "cleared", "At Bt", (136, 72, 200), tile(64, 64, 4, staging=0)),
    Product(BF16, "gelu by tanh", "A Bt", (200, 136, 264), tile(128, 128, 2, ctas=3)),
    Product(MIXED, "residual", "A B", (72, 136, 520), tile(64, 128, 9)),  # a K tile each
    Product(S8, "added", "A Bt", (80, 144, 400), tile(64, 128, 2, 32)),
    Product(E4M3, "cleared", "A Bt", (144, 80, 656), tile(128, 64, 3, 32, promote="f32")),
    Product(MIXED, "sparse", "A B", (144, 80, 320), {**tile(128, 64, 2), "mma": "m64n64k32"}),
    Product(BF16, "cleared", "A B", (139, 75, 333), tile(128, 64, 3)),  # rows that are packed first
    Product(S8, "cleared", "A Bt", (150, 144, 400), tile(64, 64, 2, 32, ctas=4)),  # two whole sets and a tile
    Product(MIXED, "residual", "A B", (72, 136, 520), tile(64, 64, 3, ctas=7)),  # no whole set
]

IN_CLUSTERS = [
    Product(BF16, "added", "A B", (136, 72, 328), tile(128, 64, 4, **CLUSTER)),  # 6 K tiles, two warpgroups
    Product(BF16, "cleared", "A Bt", (72, 72, 1032), tile(64, 64, 8, **CLUSTER)),  # 8 columns of D for each CTA
    Product(MIXED, "residual", "A Bt", (136, 136, 520), tile(64, 64, 2, cluster="2x1", **CLUSTER)),
    Product(BF16, "gelu by tanh", "A Bt", (88, 200, 264), tile(64, 32, 2, cluster="2x2", staging=0, **CLUSTER)),
    Product(BF16, "cleared", "A Bt", (88, 200, 600), {**EXCHANGED, "split_k": 4, "cluster": "1x2", **CLUSTER}),
    Product(S8, "added", "A Bt", (80, 144, 400), tile(64, 128, 2, 32, **CLUSTER)),
    Product(E4M3, "cleared", "A Bt", (144, 80, 656), tile(128, 64, 2, 32, promote="f32", **CLUSTER)),
    Product(MIXED, "sparse", "A B", (144, 80, 320), {**tile(128, 64, 2), "mma": "m64n64k32", **CLUSTER}),
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("product", IN_CLUSTERS, ids=str)
def test_parts_that_meet_in_a_cluster_are_right_and_silent(product: Product) -> None:
    kernel, instance = product.compile("sm_90a"), problem(product, 5)
    assert "st.shared::cluster" in kernel.ptx
    assert "atom" not in kernel.ptx
    kernel(*instance.arguments, device="interp", checks="all")
    assert instance.wrong() == ""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "fields", [{"split_k": 3}, {"split_k": 8, "cluster": "2x1"}, {"split_k": 2, "ctas": 2}, {"split_k": 1}]
)
def test_parts_that_are_no_cluster(fields: dict[str, Any]) -> None:
    with pytest.raises(CompileError, match="partial_sums = cluster takes split_k = 2, 4 or 8"):
        Product(BF16, "cleared", "A Bt", (128, 128, 1024), {**tile(64, 64, 2), **CLUSTER, **fields}).compile("sm_90a")


def test_parts_in_tensor_memory_do_not_meet_in_a_cluster() -> None:
    fields = {"cta": (128, 64, 64), "mma": "m128n64k16", "split_k": 2, **CLUSTER}
    with pytest.raises(CompileError, match="partial_sums = cluster: sums lie in the tensor memory of sm_100a"):
        Product(BF16, "cleared", "A Bt", (128, 128, 1024), fields).compile("sm_100a")


@pytest.mark.sampled(12)
@pytest.mark.parametrize("product", CASES, ids=str)
def test_parts_are_right_and_silent(product: Product) -> None:
    kernel, instance = product.compile("sm_90a"), problem(product, 5)
    assert kernel.launches[-1].grid[2] == (1 if "ctas" in product.schedule else product.schedule["split_k"])
    kernel(*instance.arguments, device="interp", checks=CHECKS)
    assert instance.wrong() == ""


def test_a_cluster_multiplies_one_part_of_the_last_tiles() -> None:
    """Its CTAs copy operands for each other: of 2x4 tiles six CTAs leave two, 7 K tiles in three parts."""
    product = Product(BF16, "cleared", "A Bt", (72, 248, 392), tile(64, 64, 3, ctas=6, cluster="1x2"))
    kernel, instance = product.compile("sm_90a"), problem(product, 5)
    kernel(*instance.arguments, device="interp", checks="all")
    assert instance.wrong() == ""


def test_the_counters_are_zero_again_and_the_bits_the_same() -> None:
    kernel = Product(MIXED, "cleared", "A B", (72, 72, 264), tile(64, 64, 4)).compile("sm_90a")
    random = np.random.default_rng(7)
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((72, 264), (264, 72)))
    first, second = (np.full((72, 72), np.nan, np.float32) for _ in range(2))
    for c in (first, second):
        kernel(a, b, c, device="interp")
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - a.astype(np.float64) @ b.astype(np.float64)).max() < 1e-4


def test_giving_parts_alone_keeps_warpgroups() -> None:
    text = Product(BF16, "cleared", "A B", (1024, 1024, 1024)).mlir
    schedule = compile(text, "sm_90a", split_k=2).schedule[0]
    assert schedule is not None
    assert (schedule.split_k, schedule.together) == (2, 4)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("divisible", "split_k = 2: it needs static sizes"),
        ("added", "split_k = 2 with ctas = 3 takes a product that starts from zero"),
    ],
)
def test_what_is_not_split(form: str, message: str) -> None:
    asked = tile(128, 64, 2, **({"ctas": 3} if form == "added" else {}))
    with pytest.raises(CompileError, match=message):
        Product(BF16, form, "A B", (128, 128, 512), asked).compile("sm_90a")


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("size", "parts"), [((104, 248, 2392), 4), ((320, 1080, 4880), 2), ((512, 1024, 8192), 1), ((128, 512, 256), 1)]
)
def test_parts_meet_in_a_cluster_where_few_tiles_have_a_long_k(size: tuple[int, int, int], parts: int) -> None:
    """H100: 104x248x2392 4.4 microseconds for 5.9, 320x1080x4880 12.6 for 14.4, but 512x1024x8192 27.1 for 18.4."""
    schedule = Product(BF16, "cleared", "A Bt", size).compile("sm_90a").schedule[0]
    assert schedule is not None
    assert schedule.cluster_parts == parts


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("size", "parts", "cluster"),
    [((864, 184, 8312), 4, (2, 1)), ((216, 512, 6616), 4, (2, 1)), ((520, 1256, 3928), 2, (2, 2))],
)
def test_parts_that_are_a_cluster_share_lines_too(
    size: tuple[int, int, int], parts: int, cluster: tuple[int, int]
) -> None:
    """H200, microseconds by the next tile and so: 15.2 and 11.3, 12.0 and 9.3, 15.3 and 13.1."""
    schedule = Product(BF16, "cleared", "A Bt", size).compile("sm_90a").schedule[0]
    assert schedule is not None
    assert (schedule.cluster_parts, schedule.cluster) == (parts, cluster)


def test_tiles_of_a_part_are_nearly_a_square() -> None:
    """H200, three parts of 128x64: 20.1 microseconds, 22.5 in groups of 16 rows."""
    tile = {"cta": (128, 64, 64), "split_k": 3}
    schedule = Product(BF16, "cleared", "A Bt", (640, 408, 16000), tile).compile("sm_90a").schedule[0]
    assert schedule is not None
    assert (schedule.mma.m, schedule.group) == (64, 2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("size", "parts"), [((768, 768, 8192), 2), ((128, 8192, 8192), 1), ((8, 112, 10864), 16)])
def test_k_is_cut_where_products_take_longer_than_memory(size: tuple[int, int, int], parts: int) -> None:
    schedule = Product(BF16, "cleared", "A B", size).compile("sm_90a").schedule[0]
    assert schedule is not None
    assert (schedule.mma.m, schedule.split_k) == (64, parts)
