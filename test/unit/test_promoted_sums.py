"""`promote = f32`: sums of 8-bit floats that the tensor cores add up for a K tile alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from problems import problem
from products import Product, Types

from warploom.runtime import CompileError
from warploom.runtime.cuda import ptxas

E4M3 = Types("f8E4M3FN", "f8E4M3FN", "f32")
TILE: dict[str, Any] = {"cta": (64, 64, 128), "mma": "m64n64k32"}
K_TILE, INSTRUCTION, KEPT = 128, 32, 13


def product(size: tuple[int, int, int], types: Types = E4M3, form: str = "cleared", **schedule: Any) -> Product:
    return Product(types, form, "A Bt", size, schedule)


def bound(a: Any, b: Any) -> Any:
    """The error of promoted sums: within a K tile each of its instructions may cut every term, those before it too,
    `KEPT` bits below the largest; sums of K tiles are rounded to f32."""
    a, b = np.abs(a.astype(np.float64)), np.abs(b.astype(np.float64))
    total, cut = np.zeros((a.shape[0], b.shape[1])), np.zeros((a.shape[0], b.shape[1]))
    for start in range(0, a.shape[1], K_TILE):
        part = a[:, start : start + K_TILE] @ b[start : start + K_TILE]
        cut += (K_TILE // INSTRUCTION) * (INSTRUCTION + 1) * part * 2.0**-KEPT
        total += part
    return cut + total * (a.shape[1] // K_TILE + 2) * 2.0**-23


def test_promoted_sums_are_nearer() -> None:
    size = (64, 64, 2048)
    errors: list[float] = []
    for promote in ("none", "f32"):
        case = product(size, **TILE, promote=promote)
        given = problem(case, 5)
        case.compile("sm_90a")(*given.arguments, device="interp")
        a, b, c = given.arguments
        exact = a.astype(np.float64) @ b.astype(np.float64).T
        errors.append(float(np.linalg.norm(c - exact) / np.linalg.norm(exact)))
        if promote == "f32":
            assert np.all(np.abs(c - exact) <= bound(a, b.T))
    fast, promoted = errors
    assert promoted < fast / 4


@pytest.mark.parametrize(
    ("form", "types"),
    [
        ("added", E4M3),
        ("residual", Types("f8E5M2", "f8E4M3FN", "bf16")),
        ("sparse", Types("f8E4M3FN", "f8E4M3FN", "f16")),
    ],
)
def test_in_other_forms(form: str, types: Types) -> None:
    deep = 64 if form == "sparse" else 32
    case = product((144, 208, 416), types, form, cta=(128, 128, 128), mma=f"m64n128k{deep}", ctas=2, promote="f32")
    given = problem(case, 3)
    case.compile("sm_90a")(*given.arguments, device="interp", checks="all")
    assert given.wrong() == ""


def test_the_tile_follows() -> None:
    (fast,) = product((4096, 4096, 4096)).compile("sm_90a").schedule
    (promoted,) = product((4096, 4096, 4096), promote="f32").compile("sm_90a").schedule
    assert fast is not None
    assert promoted is not None
    assert fast.arithmetic.promote == "none"
    assert fast.tile.mma.n > 192 >= promoted.tile.mma.n


@pytest.mark.skipif(ptxas.find() is None, reason="ptxas is not installed (extra: test)")
def test_the_assembler_repairs_nothing() -> None:
    kernel = product((4096, 4096, 4096), promote="f32", cta=(128, 192, 128), mma="m64n192k32").compile("sm_90a")
    (used,) = ptxas.assemble(kernel.ptx, "sm_90a").values()
    assert (used.spills, used.stack, used.registers) == (0, 0, 168)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            product((256, 256, 256), promote="f32", mma="m64n256k32"),
            "has room for 64x192 of both, got mma = m64n256k32",
        ),
        (product((256, 256, 256), promote="f32", mma="m16n8k32"), "promote = f32 is for products of warpgroups, got"),
        (
            product((256, 256, 256), Types("bf16", "bf16", "f32"), promote="f32"),
            "is for 8-bit floats accumulated in f32",
        ),
        (product((256, 256, 256), promote="f16"), "promote must be one of none, f32, got f16"),
    ],
)
def test_what_does_not_fit_is_refused(case: Product, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        case.compile("sm_90a")
