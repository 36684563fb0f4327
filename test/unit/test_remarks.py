"""What passes leave as it is, and why they say so: fills that are not folded, operations that are not fused."""

from __future__ import annotations

import pytest
from xdsl.dialects import arith
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from warploom.passes.diagnostics import location_of, remarks
from warploom.passes.linalg.raise_matmul import FoldFillPass, FuseEpiloguePass
from warploom.passes.patterns import apply_patterns, op_type_rewrite_pattern
from warploom.passes.universe import make_context, parse_mlir

M = "memref<32x32xf32>"
HEADER = f"""#mn = affine_map<(m, n) -> (m, n)>
#nm = affine_map<(m, n) -> (n, m)>
#row = affine_map<(m, n) -> (0, n)>
func.func private @other({M})
func.func @f(%A: memref<32x32xf16>, %B: memref<32x32xf16>, %C: {M}, %D: {M}, %E: {M}, %x: f32) {{
  %zero = arith.constant 0.0 : f32
"""
PRODUCT = f"linalg.matmul ins(%A, %B : memref<32x32xf16>, memref<32x32xf16>) outs(%T : {M})"


def generic(inputs: str = "%T", maps: str = "#mn, #mn", output: str = "%D") -> str:
    """An elementwise operation on memrefs of f32."""
    names = inputs.split(", ")
    arguments = ", ".join(f"%a{i}: f32" for i in range(len(names)))
    return f"""linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel"]}}
      ins({inputs} : {", ".join([M] * len(names))}) outs({output} : {M}) {{
  ^bb0({arguments}, %old: f32):
    %y = arith.addf %a0, %a{len(names) - 1} : f32
    linalg.yield %y : f32
  }}"""


def said(*lines: str, allocated: bool = True) -> list[str]:
    """What the passes say of a function of these lines, %T being allocated in it or C."""
    body = "\n  ".join((*([f"%T = memref.alloc() : {M}"] if allocated else []), *lines, "return"))
    module = parse_mlir(make_context(), f"{HEADER}  {body if allocated else body.replace('%T', '%C')}\n}}", "f.mlir")
    with remarks() as log:
        FoldFillPass().apply(make_context(), module)
        FuseEpiloguePass().apply(make_context(), module)
    module.verify()
    return log


FILL = f"linalg.fill ins(%zero : f32) outs(%T : {M})"
UNFUSED = {
    "it reads one place along a dimension": [PRODUCT, generic("%T, %E", "#mn, #row, #mn")],
    "it reads the product's result in another order than it is written": [PRODUCT, generic(maps="#nm, #mn")],
    "others use the product's result too": [PRODUCT, generic(), generic(output="%E")],
    "linalg.fill between its operations writes what it reads": [
        PRODUCT.replace("%T", "%C"),
        "linalg.fill ins(%h : f16) outs(%A : memref<32x32xf16>)",
        generic("%C", output="%C"),
    ],
    "linalg.generic between its operations uses its result": [
        PRODUCT.replace("%T", "%C"),
        generic("%C", output="%E"),
        generic("%C", output="%C"),
    ],
    "func.call stands between its operations, and may touch any memory": [
        PRODUCT,
        f"func.call @other(%E) : ({M}) -> ()",
        generic(),
    ],
    "its output shares memory with what the product or it reads": [
        PRODUCT,
        generic("%T, %D", "#mn, #nm, #mn"),
    ],
}
UNFOLDED = {
    "func.call stands between its operations, and may touch any memory": [
        FILL,
        f"func.call @other(%E) : ({M}) -> ()",
        PRODUCT,
    ],
    "what it fills with is no constant": [FILL.replace("%zero", "%x"), PRODUCT],
    "it copies memref<32x32xf32, strided<[40, 1]>> to memref<32x32xf32>": [
        "%w = memref.alloc() : memref<32x32xf32, strided<[40, 1]>>",
        f"linalg.copy ins(%w : memref<32x32xf32, strided<[40, 1]>>) outs(%T : {M})",
        PRODUCT,
    ],
}


@pytest.mark.parametrize("reason", UNFUSED)
def test_what_is_not_fused(reason: str) -> None:
    lines = [FILL, *UNFUSED[reason]]
    remarks = said("%h = arith.constant 0.0 : f16", *lines)
    expected = f"remark: warp-fuse-epilogue: it is not fused with the product whose result it reads: {reason}"
    assert expected in "\n".join(remarks)
    assert all(line.startswith("f.mlir:") for line in remarks)


@pytest.mark.parametrize("reason", UNFOLDED)
def test_what_is_not_folded(reason: str) -> None:
    (line,) = said(*UNFOLDED[reason], allocated=False)
    expected = f"remark: warp-fold-fill: it is not folded into the product that adds to what it writes: {reason}"
    assert line.startswith("f.mlir:")
    assert expected in line


def test_what_is_folded_and_fused_is_not_spoken_of() -> None:
    assert said(FILL, PRODUCT, generic()) == []


def test_other_memory_may_be_touched_between_a_fill_and_its_product() -> None:
    assert said(FILL, FILL.replace("%T", "%E"), PRODUCT, generic()) == []


def test_other_memory_is_not_spoken_of() -> None:
    assert said(FILL.replace("%T", "%E"), PRODUCT, generic("%E")) == []


class MultiplyTwice(RewritePattern):
    """Replaces a sum by a product of a product."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: arith.AddfOp, rewriter: PatternRewriter) -> None:
        inner = rewriter.insert(arith.MulfOp(op.lhs, op.rhs))
        rewriter.replace(op, arith.MulfOp(inner, op.rhs))


def test_what_a_pattern_inserts_has_the_place_of_what_it_matched() -> None:
    text = "func.func @f(%x: f32) -> f32 {\n  %y = arith.addf %x, %x : f32\n  return %y : f32\n}"
    module = parse_mlir(make_context(), text, "f.mlir")
    apply_patterns([MultiplyTwice()], module)
    places = [location_of(op) for op in module.walk() if isinstance(op, arith.MulfOp)]
    assert places == ["f.mlir:2:3"] * 2
