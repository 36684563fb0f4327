"""Operands that kernels around a product lay out: A and B transposed before, D copied from aligned rows behind."""

from __future__ import annotations

from typing import Any

import pytest
from problems import problem
from products import Product, Types

from warploom.dialect.schedule import Schedule
from warploom.runtime import CompileError, compile

BF16, MIXED, S8 = Types("bf16", "bf16", "bf16"), Types("bf16", "bf16", "f32"), Types("i8", "i8", "i32")
TF32, E4M3 = Types("f32", "f32", "f32"), Types("f8E4M3FN", "f8E4M3FN", "bf16")


def tile(step: int = 16, n: int = 64, **options: Any) -> dict[str, Any]:
    """A schedule with K tiles of four steps."""
    return {"cta": (64, n, 4 * step), "mma": f"m64n{n}k{step}", **options}


CASES = [
    (Product(TF32, "cleared", "A B", (72, 120, 104), tile(8)), 2),
    (Product(TF32, "residual", "At B", (76, 72, 75), tile(8)), 3),  # rows of K that are no multiples of 16 bytes
    (Product(S8, "added", "At B", (144, 120, 400), tile(32)), 3),
    (Product(E4M3, "bias, relu", "At Bt", (72, 120, 403), tile(32)), 3),  # B packed as well
    (Product(Types("i8", "i8", "i32"), "sparse", "A B", (72, 120, 512), {"cta": (64, 64, 128), "mma": "m64n64k64"}), 2),
    (Product(MIXED, "cleared", "At B", (72, 136, 80), tile(transpose="ab")), 3),
    (Product(BF16, "added", "A B", (145, 121, 133), tile(padded="d")), 3),  # C is read where it lies
    (Product(MIXED, "residual", "A Bt", (72, 121, 80), tile(padded="d")), 2),
    (Product(TF32, "cleared", "A B", (72, 75, 64), tile(8, padded="d")), 3),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("product", "launches"), CASES, ids=str)
def test_products_are_right_and_silent(product: Product, launches: int) -> None:
    kernel, instance = product.compile("sm_90a"), problem(product, 4)
    assert len(kernel.launches) == launches
    assert "cp.async.bulk.tensor.2d.global.shared::cta" in kernel.ptx  # D is stored by tensor copies
    kernel(*instance.arguments, device="interp", checks="all")
    assert instance.wrong() == ""


def chosen(product: Product) -> Schedule:
    return next(schedule for schedule in product.compile("sm_90a").schedule if schedule is not None)


def test_what_pays_is_laid_out() -> None:
    cases = (("A Bt", {}), ("At B", {}), ("At B", {"promote": "none"}))
    plain, turned, short = (chosen(Product(E4M3, "cleared", lies, (2048, 2048, 2048), asked)) for lies, asked in cases)
    assert [s.promote for s in (plain, turned, short)] == ["f32", "f32", "none"]
    assert [s.transpose for s in (plain, turned, short)] == ["none", "ab", "a"]
    # An operand turns on its way to registers, where sums are those of the instruction.
    assert [s.in_registers for s in (plain, turned, short)] == ["none", "none", "b"]
    # Warps store odd rows by themselves, unless they have to load some beside.
    sizes = (("cleared", 2048), ("added", 2048), ("cleared", 256))
    odd, added, few = (chosen(Product(BF16, how, "A Bt", (m, 2047, 4096))) for how, m in sizes)
    assert [(s.padded, s.staging) for s in (odd, added, few)] == [("none", 64), ("d", 64), ("none", 64)]


def test_views_of_aligned_rows_are_not_packed() -> None:
    """A tensor map wants rows that begin at multiples of 16 bytes, of any length."""
    plain, view = "memref<4095x4095xbf16>", "memref<4095x4095xbf16, strided<[4096, 1]>>"
    schedule = compile(Product(BF16, "added", "A B", (4095, 4095, 4095)).mlir.replace(plain, view), "sm_90a").schedule[
        0
    ]
    assert schedule is not None
    assert (schedule.together, schedule.pack, schedule.padded) == (4, "none", "none")
    assert schedule.staging


class AlignedViews(Product):
    """Views whose rows begin at multiples of 16 bytes, of any length."""

    def strides(self) -> list[tuple[int, int]]:
        return [(-(-shape[-1] // 8) * 8 + 8, 8) for shape in self.shapes()]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("lies", ["A B", "At Bt"])
def test_tiles_of_views_begin_where_boxes_may(lies: str) -> None:
    """No tile is moved back inside to a column that is no multiple of 16 bytes."""
    product = AlignedViews(MIXED, "strided", lies, (75, 93, 101), tile())
    kernel, instance = product.compile("sm_90a"), problem(product, 9)
    assert len(kernel.launches) == 1
    kernel(*instance.arguments, device="interp", checks="all")
    assert instance.wrong() == ""


@pytest.mark.parametrize(
    ("product", "message"),
    [
        (
            Product(BF16, "batch", "A B", (128, 64, 64), tile(transpose="b")),
            "transpose = b: a single matrix of known size",
        ),
        (Product(BF16, "divisible", "A B", (128, 64, 64), tile(padded="d")), "padded = d: a single matrix of known"),
    ],
    ids=str,
)
def test_what_is_not_laid_out(product: Product, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        product.compile("sm_90a")
