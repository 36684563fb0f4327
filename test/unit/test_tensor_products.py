"""Products in tensor memory, from `linalg` to PTX for sm_100a: right in every form, silent, assembled, declined."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from attention_problems import problem as problem_of
from attentions import Attention
from problems import problem
from products import Product, Types
from tensor_grid import ATTENTIONS, TARGET, Case, cases, wrong

from warploom.dialect.schedule import Schedule
from warploom.passes.diagnostics import remarks
from warploom.runtime import CompileError, compile
from warploom.runtime.cuda import ptxas

EACH = {"dense": 61, "pairs": 61, "dynamic": 17, "sparse": 31, "narrow": 37, "scales": 11}
"""Of how many cases of a group one is tested: primes, so that types, forms and sizes go round."""


def sample() -> list[Case]:
    groups: dict[str, list[Case]] = {name: [] for name in EACH}
    for case in cases():
        if case.group in groups:
            groups[case.group].append(case)
    return [case for name, each in groups.items() for case in each[1 :: EACH[name]]]


@pytest.mark.sampled(16)
@pytest.mark.parametrize("case", sample(), ids=lambda case: case.name)
def test_products_are_right_and_silent(case: Case) -> None:
    assert wrong(case) == ""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("types", "lies", "form", "ctas"),
    [("bf16 bf16 f32", "A B", "added", 4), ("f8E4M3FN f8E5M2 bf16", "A Bt", "residual", 0)],
)
def test_pairs_of_ctas_multiply_together(types: str, lies: str, form: str, ctas: int) -> None:
    kinds = Types(*types.split())
    k = 256 // kinds.bits
    tile = {"cta": (128, 128, 4 * k), "mma": f"m128n64k{k}", "cluster": (2, 1), "ctas": ctas}
    product = Product(kinds, form, lies, (272, 144, 8 * k + 16), tile)
    kernel, instance = product.compile(TARGET), problem(product, 3)
    assert "tcgen05.mma.cta_group::2" in kernel.ptx
    kernel(*instance.arguments, device="interp", checks="all")
    assert instance.wrong() == ""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("types", "lies", "tile"),
    [
        ("bf16 bf16 f32", "A B", {"cta": (128, 128, 128), "mma": "m128n64k32", "ctas": 4, "cluster": (2, 1)}),
        ("f32 f32 f32", "A Bt", {"cta": (128, 64, 64), "mma": "m128n32k16", "cluster": (1, 1), "stages": 4}),
        ("i8 i8 i32", "A Bt", {"cta": (128, 128, 256), "mma": "m128n64k64", "ctas": 2}),
        ("f8E4M3FN f8E5M2 bf16", "A Bt", {"cta": (128, 128, 128), "mma": "m128n64k64"}),
    ],
)
def test_metadata_of_a_sparse_a_is_copied_to_tensor_memory(types: str, lies: str, tile: dict[str, object]) -> None:
    product = Product(Types(*types.split()), "sparse", lies, (144, 144, 352), tile)
    kernel, instance = product.compile(TARGET), problem(product, 3)
    assert f"tcgen05.mma.sp.cta_group::{2 if lies == 'A B' else 1}" in kernel.ptx
    assert "mma.sync" not in kernel.ptx
    kernel(*instance.arguments, device="interp", checks="all")
    assert instance.wrong() == ""


def test_large_sparse_products_are_those_of_tensor_memory() -> None:
    product = Product(Types("bf16", "bf16", "f32"), "sparse", "A Bt", (4096, 4096, 4096), {})
    kernel = product.compile(TARGET)
    assert kernel.ptx.count("tcgen05.mma.sp.cta_group::2.kind::f16") == 4
    assert not any(resources.spills for resources in ptxas.assemble(kernel.ptx, TARGET).values())


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("asked", "schedule"), ATTENTIONS, ids=str)
def test_attention_is_right_and_silent(asked: Attention, schedule: dict[str, object]) -> None:
    kernel, instance = asked.compile(TARGET, **schedule), problem_of(asked)
    assert "tcgen05.st.sync.aligned.16x128b" in kernel.ptx
    assert "mma.sync" not in kernel.ptx
    kernel(*instance.arguments, device="interp", checks="all")
    assert instance.wrong() == ""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("target", "size", "causal"), [(TARGET, 64, None), ("sm_103a", 128, 0), (TARGET, 256, 0)])
def test_attention_assembles_without_spills(target: str, size: int, causal: int | None) -> None:
    kernel = Attention((4096, 4096, size, size), "bf16", (2, 16), causal=causal).compile(target)
    (resources,) = ptxas.assemble(kernel.ptx, target).values()
    assert not resources.spills


def test_two_parts_of_32_columns_fill_the_panel_that_one_copy_stores() -> None:
    """Of results of 16 bits: a lane has 32 sums of 128 rows at a time."""
    tile = {"cta": (128, 128, 64), "mma": "m128n64k16"}
    product = Product(Types("bf16", "bf16", "bf16"), "log, residual", "At B", (144, 208, 80), tile)
    kernel, instance = product.compile(TARGET), problem(product, 4)
    instructions = re.findall(r"tcgen05\.ld\.\S+\.(x\d+)\.|(stmatrix)|(bulk\.tensor\.2d\.global)", kernel.ptx)
    part = [("x4", "", "")] * 2 + [("", "stmatrix", "")] * 4
    assert instructions == [*part, *part, ("", "", "bulk.tensor.2d.global")]
    kernel(*instance.arguments, device="interp", checks="all")
    assert instance.wrong() == ""


def test_products_run_while_a_warpgroup_works_on_scores() -> None:
    """In a trace: of each warpgroup some wait for scores while products of the other run, and all products take their
    time."""
    asked = Attention((256, 384, 64, 64), "bf16", ())
    place = asked.compile(TARGET)(*problem_of(asked).arguments, device="interp", trace=True)
    events = place.traces[0].of_cta(0)
    products = [event for event in events if event.kind == "product"]
    assert {event.warp for event in products} == {9}
    assert sum(event.details["busy"] for event in products) == 3 * 2 * (256 + 256)
    waits = {group: [e for e in events if e.kind == "wait" and e.warp == 4 * group] for group in range(2)}
    assert all(len(waits[group]) > 3 for group in range(2))
    ends = [event.end for event in products]
    assert any(end == wait.end for end in ends for wait in waits[0])
    loop = max(ends) - min(event.start for event in products)
    assert sum(event.details["busy"] for event in products) > loop / 2


def test_products_run_while_the_last_tile_is_stored() -> None:
    """In a trace: of two tiles of a CTA; each K tile takes the time of its copies, twice that of its products."""
    tile = {"cta": (128, 128, 64), "mma": "m128n64k16", "ctas": 1}
    product = Product(Types("bf16", "bf16", "bf16"), "cleared", "A Bt", (128, 256, 256), tile)
    place = product.compile(TARGET)(*problem(product, 3).arguments, device="interp", trace=True)
    events = place.traces[0].of_cta(0)
    products = [event for event in events if event.kind == "product"]
    stores = [event for event in events if event.kind == "store"]
    assert [event.details["busy"] for event in products] == [256] * 8
    assert {second.start - first.start for first, second in pairwise(products[1:])} == {512}
    assert (
        min(event.start for event in stores) < products[4].end < max(event.end for event in stores[: len(stores) // 2])
    )


def test_attention_says_that_fragments_multiply_it() -> None:
    with remarks() as log:
        kernel = compile(Attention((512, 512, 32, 32), "bf16").mlir, TARGET)
    assert "mma.sync" in kernel.ptx
    reason = "m16n8k16 by fragments, not in tensor memory: heads of 32 and 32 columns"
    assert [text for text in map(str, log) if reason in text and "warp-schedule" in text]


def text(m: int, n: int, k: int, kind: str = "bf16") -> str:
    a, b, c = f"memref<{m}x{k}x{kind}>", f"memref<{n}x{k}x{kind}>", f"memref<{m}x{n}xf32>"
    return f"""func.func @f(%A: {a}, %B: {b}, %C: {c}) {{
      %zero = arith.constant 0.0 : f32
      linalg.fill ins(%zero : f32) outs(%C : {c})
      linalg.matmul_transpose_b ins(%A, %B : {a}, {b}) outs(%C : {c}) return }}"""


def chosen(mlir: str, **options: object) -> Schedule:
    kernel = compile(mlir, TARGET, **options)  # pyright: ignore[reportArgumentType]
    return next(schedule for schedule in kernel.schedule if schedule is not None)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["bf16", "f8E4M3FN"])
def test_a_large_product_is_one_of_tensor_memory(kind: str) -> None:
    schedule = chosen(text(4096, 4096, 4096, kind))
    assert (schedule.together, schedule.mma.m, schedule.cluster, schedule.promote) == (4, 128, (2, 1), "none")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("cluster", [(1, 1), (2, 1)])
def test_persistent_kernels_assemble_without_spills(cluster: tuple[int, int]) -> None:
    kernel = compile(text(4096, 4096, 4096), TARGET, cta=(128, 256, 64), mma="m128n128k16", ctas=148, cluster=cluster)
    (resources,) = ptxas.assemble(kernel.ptx, TARGET).values()
    assert not resources.spills


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (
            {"mma": "m64n128k16", "cluster": (2, 1)},
            "cluster = 2x1: in tensor memory CTAs multiply in pairs, 2x1, with M",
        ),
        (
            {"mma": "m128n80k16", "cluster": (2, 1)},
            "each CTA of a pair has half of the columns of one B, a multiple of",
        ),
        (
            {"cta": (128, 64, 64), "mma": "m128n64k16", "ctas": 2, "consumers": "pingpong"},
            "consumers = pingpong: in tensor memory one warp issues the products of all warpgroups",
        ),
        ({"mma": "m64n128k16", "accumulate": "f16"}, "sm_100a has none accumulated in f16"),
        ({"in_registers": "a"}, "sm_100a multiplies operands in registers by mma.sync alone"),
    ],
)
def test_what_tensor_memory_does_not_take(schedule: dict[str, object], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        compile(text(4096, 4096, 4096), TARGET, **schedule)  # pyright: ignore[reportArgumentType]


def test_half_of_a_transposed_operand_has_the_columns_of_an_instruction() -> None:
    product = Product(
        Types("bf16", "bf16", "f32"), "added", "A B", (200, 136, 264),
        {"cta": (128, 64, 64), "mma": "m128n64k16", "cluster": (2, 1), "transpose": "ab"},
    )  # fmt: skip
    with pytest.raises(CompileError, match="each CTA of a pair has 32 columns of B, no multiple of N in mma"):
        product.compile(TARGET)
