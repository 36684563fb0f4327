"""Products by warpgroups, from `linalg` to PTX: right in every form, silent under the checks, chosen where they pay."""

from __future__ import annotations

import pytest
from problems import problem
from products import Product, Types, of_warpgroups, packed_for_warpgroups

from warploom.dialect.schedule import Schedule
from warploom.runtime import CompileError, compile
from warploom.runtime.cuda import ptxas

CHECKS = "races,uninitialised,barriers,bounds,wgmma"
EACH = 47
"""Of how many cases one is tested: a prime, so that all types, forms and ways to lie come up."""
EACH_SPARSE = 7
"""The same of those with a sparse A."""


HALVES = Types("bf16", "bf16", "bf16")
SPARSE = [product for product in of_warpgroups() if product.sparse]
PLAIN = [product for product in of_warpgroups() if not product.sparse]


@pytest.mark.sampled(36)
@pytest.mark.parametrize("product", [*PLAIN[::EACH], *SPARSE[::EACH_SPARSE], *packed_for_warpgroups()[::4]], ids=str)
def test_products_are_right_and_silent(product: Product) -> None:
    kernel, instance = product.compile("sm_90a"), problem(product, 3)
    assert all(schedule is None or schedule.together == 4 for schedule in kernel.schedule)
    kernel(*instance.arguments, device="interp", checks=CHECKS)
    assert instance.wrong() == ""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", ["minus, cast", "residual"])
def test_columns_of_an_epilogue_are_no_constants_of_the_producer(form: str) -> None:
    """64 is a column that consumers store to, in their loop over tiles, and a row that the producer copies before."""
    schedule = {"cta": (256, 128, 64), "mma": "m64n128k16", "ctas": 2}
    product = Product(Types("f16", "f16", "f32"), form, "At B", (16, 16, 200), schedule)
    kernel, instance = product.compile("sm_90a"), problem(product, 3)
    kernel(*instance.arguments, device="interp", checks=CHECKS)
    assert instance.wrong() == ""


EXCHANGED = [
    Product(Types(*types.split()), form, lies, size, {"multiplied": "ba", "cta": cta, "mma": mma, **more})
    for types, form, lies, size, cta, mma, more in (
        ("bf16 bf16 bf16", "cleared", "A Bt", (90, 136, 200), (48, 128, 64), "m64n48k16", {"ctas": 2}),
        ("f16 f16 f32", "residual", "At B", (24, 136, 136), (24, 128, 64), "m64n24k16", {"cluster": (1, 2)}),
        ("f16 f16 f16", "gelu by tanh", "A B", (70, 72, 72), (80, 64, 64), "m64n80k16", {"staging": 0}),
        (
            "f8E4M3FN f8E5M2 bf16",
            "cleared",
            "A Bt",
            (20, 80, 272),
            (32, 64, 128),
            "m64n32k32",
            {"split_k": 2, "cluster": (1, 2)},
        ),
        ("i8 ui8 i32", "added", "A Bt", (40, 72, 144), (32, 64, 128), "m64n32k32", {}),
        ("f16 f16 f32", "cleared", "A B", (70, 76, 72), (80, 64, 64), "m64n80k16", {"pack": "b"}),
    )
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("product", EXCHANGED, ids=str)
def test_transposes_are_multiplied(product: Product) -> None:
    kernel, instance = product.compile("sm_90a"), problem(product, 3)
    assert next(one for one in kernel.schedule if one is not None).multiplied == "ba"
    kernel(*instance.arguments, device="interp", checks=CHECKS)
    assert instance.wrong() == ""


def text(m: int, n: int, k: int, kind: str = "bf16", out: str = "f32") -> str:
    a, b, c = f"memref<{m}x{k}x{kind}>", f"memref<{k}x{n}x{kind}>", f"memref<{m}x{n}x{out}>"
    return f"""func.func @f(%A: {a}, %B: {b}, %C: {c}) {{
      linalg.matmul ins(%A, %B : {a}, {b}) outs(%C : {c}) return }}"""


STRIDED = text(64, 68, 64).replace("64x68xbf16>", "64x68xbf16, strided<[70, 1]>>")


def chosen(mlir: str, **options: object) -> Schedule:
    kernel = compile(mlir, "sm_90a", tf32=True, **options)  # pyright: ignore[reportArgumentType]
    return next(schedule for schedule in kernel.schedule if schedule is not None)


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("mlir", "together"),
    [
        (text(4096, 4096, 4096), 4),
        (text(1000, 1000, 1000), 4),
        (text(512, 512, 512), 4),
        (text(640, 640, 640), 4),
        (text(256, 256, 8192), 4),  # in parts of K
        (text(200, 200, 200), 1),  # too little to multiply
        (text(4095, 4095, 4095), 4),  # rows that no tensor copy moves, packed first
        (text(1001, 1001, 1001), 4),
        (text(101, 101, 101), 1),  # for which that is too little to multiply
        (text(16, 8192, 8192), 1),  # fewer rows than an instruction has
        (text(4096, 4096, 4096, "f32"), 4),  # B of 32 bits does not lie along k: it is transposed in registers
        (text(1023, 1024, 1022, "f32"), 1),  # rows that no tensor copy moves: too little for launches before
        (text(4096, 4096, 4096, "f64", "f64"), 1),  # no such instruction
    ],
)
def test_warpgroups_multiply_where_they_can_and_it_pays(mlir: str, together: int) -> None:
    assert chosen(mlir).together == together


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("mlir", "parts", "cluster"),
    [
        (text(1000, 1000, 1000), 1, (2, 1)),  # rows begin within lines: two CTAs share what B takes
        (text(3000, 3000, 3000), 1, (2, 1)),
        (text(1024, 1024, 1024), 1, (1, 1)),
        (text(768, 768, 8192), 2, (1, 1)),  # 72 tiles of 64x128 would leave SMs without any
        (text(1024, 512, 4096), 2, (1, 1)),
    ],
)
def test_ctas_share_k_and_copies_where_it_pays(mlir: str, parts: int, cluster: tuple[int, int]) -> None:
    schedule = chosen(mlir)
    assert (schedule.split_k, schedule.cluster) == (parts, cluster)


def test_fields_that_do_not_go_with_clusters_end_them() -> None:
    schedule = chosen(text(3000, 3000, 3000), ctas=33)
    assert (schedule.ctas, schedule.cluster) == (33, (1, 1))


def test_a_tile_of_fragments_asks_for_fragments() -> None:
    assert chosen(text(4096, 4096, 4096), mma="m16n8k16").together == 1
    assert chosen(text(4096, 4096, 4096), cta=(128, 128, 32), warp=(64, 64)).together == 1


def test_fields_that_leave_the_instruction_open_keep_it() -> None:
    schedule = chosen(text(4096, 4096, 4096), stages=3, group=4)
    assert (schedule.together, schedule.stages, schedule.group) == (4, 3, 4)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("mlir", "options", "message"),
    [
        (STRIDED, {"mma": "m64n64k16"}, "B must have rows that are multiples of 16 bytes"),
        (text(64, 68, 64), {"mma": "m64n64k16", "pack": "a"}, "B must have rows .* or pack it"),
        (
            text(64, 64, 64, "f32"),
            {"mma": "m64n64k8", "transpose": "none"},
            "B of tf32 must lie along k; or transpose it",
        ),
        (text(64, 64, 64), {"mma": "m16n8k16", "transpose": "b"}, "transpose = b is for products of warpgroups"),
        (text(64, 64, 64), {"mma": "m16n8k16", "padded": "d"}, "padded = d is for products of warpgroups"),
        (
            text(4096, 4096, 4096, "f32"),
            {"accumulate": "s32"},
            "no mma for .* accumulated in s32; .* accumulated in f32",
        ),
        (text(64, 64, 64), {"mma": "m64n60k16"}, "has no wgmma m64n60k16 .* nearest are m64n48k16, m64n56k16"),
        (text(64, 64, 64), {"mma": "m64n64k16", "stages": 40}, "40 stages of .* use fewer stages or a smaller tile"),
        (text(64, 64, 64), {"mma": "m64n64k16", "staging": 32}, "staging = 32: a warpgroup stages 64 rows of D"),
        (text(64, 64, 64), {"mma": "m64n64k16", "cta": (64, 64, 32)}, "K tiles of warpgroups are multiples of 128 b"),
        (text(64, 64, 200), {"mma": "m64n64k16", "split_k": 5}, "split_k = 5: K = 200 has 4 tiles of 64"),
        (text(64, 64, 256), {"mma": "m64n64k16", "split_k": 2, "add_c": "first"}, "C is added where partial sums meet"),
        (
            text(64, 64, 64),
            {"mma": "m64n64k16", "warp": (64, 32)},
            "multiples of mma = m64n64k16, got 32",
        ),
        (text(64, 96, 64), {"mma": "m64n32k16", "cta": (64, 64, 64)}, "side by side take multiples of 64 columns"),
    ],
)
def test_what_does_not_fit_is_refused(mlir: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        chosen(mlir, **options)


@pytest.mark.skipif(ptxas.find() is None, reason="ptxas is not installed (extra: test)")
def test_the_assembler_repairs_nothing() -> None:
    """Neither serialised products (C7510 and on) nor spills, with registers that change hands."""
    kernel = compile(text(4096, 4096, 4096, "bf16", "bf16"), "sm_90a")
    (used,) = ptxas.assemble(kernel.ptx, "sm_90a").values()
    assert (used.spills, used.stack, used.registers) == (0, 0, 168)
    assert "setmaxnreg.dec.sync.aligned.u32 40" in kernel.ptx
    assert "setmaxnreg.inc.sync.aligned.u32 232" in kernel.ptx
    for size in ((12048, 400, 13368), (6488, 1032, 8936)):  # by 192x208 and 256x208, or less beside functions
        for form in ("cleared", "gelu by erf"):
            (used,) = ptxas.assemble(Product(HALVES, form, "A Bt", size).compile("sm_90a").ptx, "sm_90a").values()
            assert used.spills == used.stack == 0
