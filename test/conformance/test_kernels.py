"""Kernels at their default schedules against ptxas: they assemble, and nothing spills.

A sample; `make conformance` takes every size and type, and every form on every target.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from itertools import product
from pathlib import Path

import pytest
from samples import every

from warploom.dialect.ptx.printer import PtxTarget
from warploom.passes.pipeline import lower, standard_pipeline
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime.cuda import ptxas

HAND_WRITTEN = Path(__file__).parents[1] / "filecheck" / "passes"

pytestmark = pytest.mark.skipif(
    ptxas.find() is None and not os.environ.get("CI"), reason="ptxas is not installed (extra: test)"
)


@dataclass(frozen=True)
class Case:
    """A product of m x k by k x n, its element types, and whether C starts from zero or from what it holds."""

    target: str
    size: tuple[int, int, int]
    types: tuple[str, str]
    filled: bool

    def __str__(self) -> str:
        start = "filled" if self.filled else "added"
        return f"{self.target}-{'x'.join(map(str, self.size))}-{'-'.join(self.types)}-{start}"

    @property
    def mlir(self) -> str:
        (m, n, k), (operands, result) = self.size, self.types
        a, b, c = f"memref<{m}x{k}x{operands}>", f"memref<{k}x{n}x{operands}>", f"memref<{m}x{n}x{result}>"
        zero = "0" if result == "i32" else "0.0"
        fill = f"%z = arith.constant {zero} : {result}\nlinalg.fill ins(%z : {result}) outs(%C : {c})"
        return (
            f"func.func @f(%A: {a}, %B: {b}, %C: {c}) {{\n{fill if self.filled else ''}\n"
            f"linalg.matmul ins(%A, %B : {a}, {b}) outs(%C : {c})\nreturn\n}}"
        )


SIZES = (
    (1, 1, 1),
    (7, 5, 3),
    (16, 8, 16),
    (100, 77, 53),
    (129, 257, 65),
    (256, 320, 192),
    (511, 511, 511),
    (16, 4096, 4096),
    (1000, 1000, 1000),
    (4096, 4096, 4096),
)
F16, BF16 = (("f16", "f32"), ("f16", "f16")), (("bf16", "f32"), ("bf16", "bf16"))
TARGETS = {"sm_75": F16, "sm_80": F16 + BF16, "sm_90a": F16 + BF16, "sm_120a": F16 + BF16}


WIDER_SIZES = ((129, 257, 65), (1000, 1000, 1000), (1001, 999, 1003), (4096, 4096, 4096))
INTEGER, WIDE = (("i8", "i32"),), (("f32", "f32"), ("f64", "f64"))
FP8 = (("f8E4M3FN", "bf16"), ("f8E5M2", "f32"), ("f8E4M3FN", "f16"))
WIDER = {"sm_75": INTEGER, "sm_80": INTEGER + WIDE, "sm_89": INTEGER + FP8, "sm_90a": INTEGER + WIDE + FP8,
         "sm_120a": INTEGER + WIDE + FP8}  # fmt: skip


def wider_cases() -> Iterator[Case]:
    """The other types, each on each target at one size or two, and at all of them where speed matters most."""
    for turn, (target, kinds) in enumerate(WIDER.items()):
        for number, types in enumerate(kinds):
            chosen = WIDER_SIZES if target == "sm_90a" else (WIDER_SIZES[(number + turn) % 3], WIDER_SIZES[-1])
            for size in chosen:
                yield Case(target, size, types, (number + turn) % 2 == 0)


def cases() -> Iterator[Case]:
    """Each size on each target, the types and the start going round; all of them where speed matters most."""
    for turn, (target, kinds) in enumerate(TARGETS.items()):
        for number, size in enumerate(SIZES):
            yield Case(target, size, kinds[(number + turn) % len(kinds)], (number // 2 + turn) % 2 == 0)
    for kinds in TARGETS["sm_90a"]:
        for filled in (False, True):
            yield Case("sm_90a", SIZES[-1], kinds, filled)


def ptx_of(text: str, pipeline: str) -> str:
    ctx = make_context()
    module = parse_mlir(ctx, text)
    lower(module, ctx, pipeline)
    out = StringIO()
    PtxTarget().emit(ctx, module, out)
    return out.getvalue()


@pytest.mark.sampled(24)
@pytest.mark.parametrize("case", every([*dict.fromkeys((*cases(), *wider_cases()))], 3), ids=str)
def test_default_schedules_assemble_without_spills(case: Case) -> None:
    resources = ptxas.assemble(ptx_of(case.mlir, standard_pipeline(case.target, tf32=True)), case.target)
    assert {"f"} <= resources.keys() <= {"f", "f_pack", "f_1"}
    for used in resources.values():
        assert used.spills == used.stack == 0
        assert 0 < used.registers <= 255


@pytest.mark.sampled(6)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_120a"])
@pytest.mark.parametrize("size", [4096, 1000])
def test_sparse_products_assemble_without_spills(target: str, size: int) -> None:
    a, e = f"memref<{size}x{size // 2}xbf16>", f"memref<{-(-size // 16)}x{-(-size // 64) * 32}xi32>"
    b, c = f"memref<{size}x{size}xbf16>", f"memref<{size}x{size}xf32>"
    mlir = (
        f"func.func @f(%A: {a}, %E: {e}, %B: {b}, %C: {c}) {{\n"
        f"linalg.matmul {{warp.metadata = 1}} ins(%A, %B : {a}, {b}) outs(%C : {c})\nreturn\n}}"
    )
    text = ptx_of(mlir, standard_pipeline(target))
    assert "mma.sp::ordered_metadata" in text or "wgmma.mma_async.sp" in text
    resources = ptxas.assemble(text, target)["f"]
    assert resources.spills == resources.stack == 0


def hand_written(path: Path) -> str:
    """A FileCheck input without its comments."""
    return "\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("//"))


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("convert_mma", "sm_90a"),
        ("convert_fragments", "sm_80"),
        ("convert_copies", "sm_90"),
        ("convert_copies_sm_75", "sm_75"),
        ("convert_elementwise", "sm_90"),
        ("convert_conversion", "sm_80"),
        ("convert_conversion_sm_75", "sm_75"),
        ("convert_epilogue", "sm_90a"),
    ],
)
def test_kernels_written_by_hand_assemble(name: str, target: str) -> None:
    text = hand_written(HAND_WRITTEN / f"{name}.mlir")
    assert f"#warp.target<{target}>" in text
    resources = ptxas.assemble(ptx_of(text, "convert-warp-to-ptx"), target)
    assert resources
    assert all(r.spills == 0 for r in resources.values())


FORMS = {
    "batch": """func.func @f(%A: memref<5x100x64xbf16>, %B: memref<5x72x64xbf16>, %C: memref<5x100x72xf32>) {
  linalg.batch_matmul_transpose_b ins(%A, %B : memref<5x100x64xbf16>, memref<5x72x64xbf16>)
      outs(%C : memref<5x100x72xf32>) return }""",
    "strided": """func.func @f(%A: memref<512x512xf16, strided<[520, 1]>>,
      %B: memref<512x512xf16, strided<[1, 513], offset: 3>>, %C: memref<512x512xf16, strided<[1, 600]>>) {
  linalg.matmul ins(%A, %B : memref<512x512xf16, strided<[520, 1]>>, memref<512x512xf16, strided<[1, 513], offset: 3>>)
      outs(%C : memref<512x512xf16, strided<[1, 600]>>) return }""",
    "dynamic": """func.func @f(%A: memref<?x?xf16>, %B: memref<?x?xf16>, %C: memref<?x?xf32>) {
  linalg.matmul ins(%A, %B : memref<?x?xf16>, memref<?x?xf16>) outs(%C : memref<?x?xf32>) return }""",
    "divisible": """func.func @f(%A: memref<?x?xf16> {warp.divisible = 8 : i64},
      %B: memref<?x?xf16> {warp.divisible = 8 : i64}, %C: memref<?x?xf32> {warp.divisible = 8 : i64}) {
  linalg.matmul ins(%A, %B : memref<?x?xf16>, memref<?x?xf16>) outs(%C : memref<?x?xf32>) return }""",
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("name", "target"), every([*product(FORMS, ("sm_80", "sm_90a", "sm_120a"))], 2))
def test_other_forms_assemble_without_spills(name: str, target: str) -> None:
    resources = ptxas.assemble(ptx_of(FORMS[name], standard_pipeline(target)), target)
    assert all(r.spills == r.stack == 0 for r in resources.values())
