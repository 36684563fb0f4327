"""Gradients of attention in `linalg` on the interpreter against float64, with a stated bound."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from attention_gradients import AttentionGradient, problem, wrong

from warploom.dialect.ptx.text.syntax import instructions
from warploom.passes.diagnostics import remarks
from warploom.runtime import CompileError, compile

pytestmark = pytest.mark.sampled(2)
"""Of the cases of each test, one in two: what they share, compiling and interpreting, is most of their time."""

FORMS: tuple[tuple[AttentionGradient, str, dict[str, Any]], ...] = (
    (AttentionGradient((2, 3, 37, 50, 24, 40), "f16", causal=15), "sm_80", {}),
    (AttentionGradient((1, 1, 45, 43, 64, 64), window=9, delta=False, on_tensors=True), "sm_89", {}),
    (AttentionGradient((1, 2, 70, 20, 128, 128), causal=0, results=("dK", "dV")), "sm_120a", {}),
    (AttentionGradient((1, 2, 70, 90, 64, 64), causal=0, window=30), "sm_90a", {}),
    (AttentionGradient((1, 1, 66, 70, 128, 64), "f16", delta=False), "sm_90a", {}),
    (AttentionGradient((1, 1, 66, 40, 200, 256), causal=3), "sm_90a", {}),
    (AttentionGradient((2, 2, 37, 50, 24, 40), "f16", documents=True), "sm_80", {}),
    (AttentionGradient((1, 2, 70, 140, 64, 64), causal=60, documents=True), "sm_90a", {}),
    (AttentionGradient((2, 2, 45, 43, 64, 64), window=9, delta=False, on_tensors=True, documents=True), "sm_89", {}),
    (AttentionGradient((1, 2, 70, 140, 64, 64), mask="bmn"), "sm_90a", {}),
    (AttentionGradient((2, 2, 45, 70, 24, 40), "f16", mask="bgmn"), "sm_80", {}),
    (AttentionGradient((2, 1, 66, 75, 128, 64), mask="bn", causal=20, delta=False, on_tensors=True), "sm_90a", {}),
    (AttentionGradient((1, 1, 66, 40, 200, 256), mask="m", documents=True), "sm_90a", {}),
    (AttentionGradient((1, 2, 40, 140, 64, 64)), "sm_90a", {"cta": (64, 64, 64), "mma": "m64n64k16", "stages": 3}),
    (AttentionGradient((1, 2, 70, 140, 128, 72), causal=60, documents=True, results=("dQ",)), "sm_90a", {}),
    (AttentionGradient((1, 1, 70, 200, 128, 128), results=("dQ",)), "sm_90a", {"stages": 4}),
    (AttentionGradient((1, 2, 200, 70, 64, 64), causal=9), "sm_90a", {"cta": (192, 64, 64), "mma": "m64n64k16"}),
    (AttentionGradient((2, 3, 37, 50, 24, 40), causal=15, rounded=True), "sm_80", {}),
    (AttentionGradient((2, 1, 70, 50, 64, 64), "f16", on_tensors=True, rounded=True), "sm_90a", {}),
    (AttentionGradient((1, 2, 45, 43, 64, 64), "f16", cap=2.0, slopes=True, causal=3), "sm_80", {}),
    (AttentionGradient((2, 2, 45, 70, 24, 40), "f16", slopes=True), "sm_80", {}),
    (AttentionGradient((1, 2, 45, 70, 24, 40), "f16", chosen="bmn", window=20, causal=30), "sm_80", {}),
    (AttentionGradient((1, 2, 70, 140, 64, 64), cap=2.0, slopes=True, causal=80), "sm_90a", {}),
    (AttentionGradient((1, 2, 70, 140, 128, 128), cap=2.0, documents=True), "sm_90a", {}),
    (AttentionGradient((1, 2, 70, 140, 128, 128), slopes=True, causal=80), "sm_90a", {}),
    (AttentionGradient((1, 1, 70, 90, 64, 64), cap=2.0, mask="bn", chosen="mn", delta=False), "sm_120a", {}),
)


@pytest.mark.sampled(24)
@pytest.mark.parametrize(("asked", "target", "schedule"), FORMS, ids=str)
def test_gradients_are_those_of_float64(asked: AttentionGradient, target: str, schedule: dict[str, Any]) -> None:
    """Silent under all checks, too."""
    assert wrong(asked, target, checks="all", **schedule) == ""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_the_forward_pass_leaves_what_gradients_need(target: str) -> None:
    """One kernel makes O and the logarithms of sums, which are within 2^-20."""
    asked = AttentionGradient((1, 2, 70, 90, 64, 64), causal=2, delta=False)
    instance, kernel = problem(asked), compile(asked.forward, target)
    named = dict(zip(asked.inputs, instance.arguments, strict=False))
    o, lse = (np.full_like(named[name], 7.0) for name in ("O", "lse"))
    kernel(*(named[name] for name in "QKV"), o, lse, device="interp", checks="all")
    assert len(kernel.launches) == 1
    assert np.abs(lse - named["lse"]).max() <= 2.0**-20 * np.abs(named["lse"]).max()
    assert np.abs(o.astype(np.float64) - named["O"].astype(np.float64)).max() <= 2.0**-6


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    "fields", [{}, {"on_tensors": True}, {"mask": "bgmn"}, {"mask": "n"}, {"cap": 9.0}, {"slopes": True, "chosen": "m"}]
)
@pytest.mark.parametrize("width", [64, 128, 256])
def test_kernels(width: int, fields: dict[str, Any]) -> None:
    """One for dQ, one for dK and dV where a thread has registers for both, and for what slopes are computed of."""
    asked = AttentionGradient((2, 2, 300, 200, width, width), **fields)
    with remarks() as heard:
        kernel = asked.compile("sm_90a")
    together = width <= 64 or (width == 128 and "cap" not in fields)
    assert len(kernel.launches) == (2 if together else 3)
    assert not [str(one) for one in heard if "not fused" in str(one)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("on_tensors", [False, True])
def test_sums_that_are_rounded_behind_are_rounded_by_the_kernels(heads: int, on_tensors: bool) -> None:
    """Front ends write f32 sums, and round them after each product; of a group of one head they drop the loop."""
    asked = AttentionGradient((2, heads, 70, 90, 64, 64), causal=0, on_tensors=on_tensors, rounded=True)
    assert len(asked.compile("sm_90a").launches) == 2


def test_sums_that_are_a_result_too_are_stored() -> None:
    """The rounded ones are made of them by a kernel of its own."""
    asked = AttentionGradient((1, 2, 70, 90, 64, 64), rounded=True)
    text = asked.mlir.replace("  %dQ_wide = memref.alloc() : memref<1x2x70x64xf32>\n", "")
    instance, wide = problem(asked), np.full((1, 2, 70, 64), 7.0, np.float32)
    kernel = compile(text.replace("%dQ: ", "%dQ_wide: memref<1x2x70x64xf32>, %dQ: "), "sm_80")
    *inputs, narrow, _, _ = instance.arguments
    kernel(*inputs, wide, *instance.arguments[-3:], device="interp", checks="all")
    assert len(kernel.launches) == 3
    assert instance.wrong() == ""
    assert (wide.astype(narrow.dtype) == narrow).all()


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("queries", "results", "rows", "ctas", "registers"),
    [(197, ("dQ",), (64, 64), 3, 136), (197, ("dK", "dV"), (64, 80), 2, 232), (256, ("dK", "dV"), (64, 64), 2, 232)],
)
def test_ctas_of_short_sequences_share_an_sm(
    queries: int, results: tuple[str, ...], rows: tuple[int, int], ctas: int, registers: int
) -> None:
    """As many as have registers and memory: 65,536 and 228 KB."""
    kernel = AttentionGradient((1, 2, queries, queries, 64, 64), results=results).compile("sm_90a")
    launch, schedule = kernel.launches[-1], kernel.schedule[-1]
    assert schedule is not None
    assert schedule.cta[:2] == rows
    assert f".minnctapersm {ctas}" in kernel.ptx
    assert f"setmaxnreg.inc.sync.aligned.u32 {registers}" in kernel.ptx
    assert ctas * 128 * (24 + registers) <= 65_536
    assert ctas * (launch.shared + 1024) <= 228 * 1024


def test_long_sequences_have_three_warpgroups() -> None:
    """A tile that 192 rows share is read a third as often."""
    kernel = AttentionGradient((1, 2, 4096, 4096, 64, 64), results=("dQ",)).compile("sm_90a")
    schedule = kernel.schedule[-1]
    assert schedule is not None
    assert schedule.cta == (192, 64, 64)


STEP = re.compile(r"wgmma\.(commit|wait_group)\S* ?(\d?)|ex2|wgmma\.mma_async\S+ \{%f\d+.*?\}, (\{%r)?")


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("results", "stages", "rotated"), [(("dQ",), 3, True), (("dQ",), 2, False), (("dK", "dV"), 3, False)]
)
def test_products_of_the_last_keys_run_beside_scores(results: tuple[str, ...], stages: int, rotated: bool) -> None:
    """A turn starts S, dP and dS K of the keys before, and waits for S, dP and dS K in this order."""
    asked = AttentionGradient((1, 1, 130, 300, 128, 128), "bf16", results=results)
    text = asked.compile("sm_90a", stages=stages).ptx
    loops = [each.partition("_end:")[0] for each in text.split("// K loop")[1:]]
    steps = [step + pending for step, pending, _ in STEP.findall(loops[-2 if rotated else -1]) if step]
    assert (steps == ["commit"] * 3 + ["wait_group2", "wait_group1", "wait_group0"]) == rotated


CONTROLS = re.compile(r"\.entry (\w+)|griddepcontrol\.(\w+)")


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("width", "documents", "controls"),
    [
        (64, False, [[], ["launch_dependents"], ["wait"]]),
        (64, True, [[], [], ["launch_dependents"], [], ["wait"]]),
        (256, False, [[], ["launch_dependents"], ["launch_dependents", "wait"], ["wait"]]),
    ],
)
def test_launches_that_do_not_depend_on_each_other_overlap(
    width: int, documents: bool, controls: list[list[str]]
) -> None:
    """The kernel of delta ends before that of dQ begins, which dK and dV follow without waiting until their end."""
    asked = AttentionGradient((2, 2, 300, 200, width, width), delta=False, documents=documents)
    kernel = asked.compile("sm_90a")
    waits = dict[str, list[str]]()
    for name, control in CONTROLS.findall(kernel.ptx):
        last = waits.setdefault(name, []) if name else [*waits.values()][-1]
        last += [control] if control else []
    assert list(waits.values()) == controls
    for name, ptx in kernel.binary.kernels.items():
        entry = kernel.entries[name]
        assert (entry.parameters, entry.directives) == (ptx.parameters, ptx.directives)
        assert [x.opcode for x in instructions(entry.body or ())] == ["griddepcontrol.wait"] * ("wait" in waits[name])
    if documents:
        names = [launch.kernel for launch in kernel.launches]
        assert names == ["gradient", "gradient_spans", "gradient_spans_1", "gradient_1", "gradient_2"]


def test_launches_that_depend_on_each_other_do_not_overlap() -> None:
    """dK of the rows that dQ is written to; and by `mma.sync`, whose CTAs share an SM."""
    maps = ["m, d", "n, d", "n, e", "m, e"]
    loops = [f"affine_map<(h, m, n, d, e) -> (h, {at})>" for at in maps]
    rows = ["affine_map<(h, m, n, d, e) -> (h, m)>"] * 2
    matrix, row = "memref<2x256x64xf16>", "memref<2x256xf32>"

    def text(second: str) -> str:
        def gradient(q: str, to: str, along: str) -> str:
            result = f"affine_map<(h, m, n, d, e) -> (h, {along}, d)>"
            return f"""warp.attention_gradient {q}, %k, %k, %q, %r, %r into {to} {{scale = 1.0 : f32,
              indexing_maps = [{", ".join([*loops, *rows, result])}]}}
              : {", ".join([matrix] * 4)}, {row}, {row} into {matrix}"""

        return f"""func.func @f(%q: {matrix}, %k: {matrix}, %r: {row}, %dq: {matrix}, %dk: {matrix}) {{
          {gradient("%q", "%dq", "m")}
          {gradient(second, "%dk", "n")}
          return
        }}"""

    assert compile(text("%q"), "sm_90a").ptx.count("griddepcontrol") == 2
    assert "launch_dependents" not in compile(text("%dq"), "sm_90a").ptx
    assert "launch_dependents" not in compile(text("%q"), "sm_90").ptx


def test_columns_of_other_documents_are_not_read() -> None:
    """NaN in tiles of keys whose numbers are beyond those of the queries."""
    asked = AttentionGradient((1, 1, 70, 200, 32, 32), documents=True)
    instance = problem(asked)
    arguments = dict(zip(asked.inputs, instance.arguments, strict=False))
    last = int(arguments["of_m"].max())
    arguments["of_n"][0, 128:] = last + 1
    arguments["K"][0, 128:] = arguments["V"][0, 128:] = np.nan
    kernel = asked.compile("sm_80")
    kernel(*instance.arguments, device="interp")
    results = [result.astype(np.float32) for result in instance.arguments[-3:]]
    assert not any(np.isnan(result).any() for result in results)
    assert not any(result[0, 128:].any() for result in results[1:])
    assert len(kernel.launches) == 4


def test_heads_that_are_summed_over_have_the_same_documents() -> None:
    """dK of a group of heads has the queries of each: one range for all."""
    maps = ["m, d", "n, d", "n, e", "m, e", "m", "m", "n, d"]
    places = ", ".join(f"affine_map<(h, m, n, d, e) -> ({'' if at.startswith('n') else 'h, '}{at})>" for at in maps)
    text = f"""func.func @f(%q: memref<2x32x16xf16>, %k: memref<48x16xf16>, %r: memref<2x32xf32>, %m: memref<2x32xi32>,
        %n: memref<48xi32>, %dk: memref<48x16xf16>) {{
      warp.attention_gradient %q, %k, %k, %q, %r, %r into %dk {{scale = 1.0 : f32, indexing_maps = [{places}],
        documents_maps = [affine_map<(h, m, n, d, e) -> (h, m)>, affine_map<(h, m, n, d, e) -> (n)>]}}
        : memref<2x32x16xf16>, memref<48x16xf16>, memref<48x16xf16>, memref<2x32x16xf16>, memref<2x32xf32>,
          memref<2x32xf32> into memref<48x16xf16> documents %m, %n : memref<2x32xi32>, memref<48xi32>
      return
    }}"""
    with pytest.raises(CompileError, match="sums over heads that have documents of their own"):
        compile(text, "sm_80")


DECLINED = (
    ("%2 = arith.mulf %1, %scale : f32", "%2 = arith.mulf %1, %x1 : f32", "dS is a function of another product"),
    ("%2 = arith.mulf %1, %scale : f32", "%2 = arith.addf %1, %scale : f32", "P is known"),
    ("%2 = arith.mulf %1, %scale : f32", "%2 = arith.mulf %1, %1 : f32", "P is known"),
    ("= arith.subf %x1, %x2 : f32", "= arith.addf %x1, %x2 : f32", "P is known"),
    ("%r = arith.truncf %x0 :", "%z = arith.mulf %x0, %scale : f32\n%r = arith.truncf %z :", "P is scaled"),
    (
        "%p = arith.subf %s0, %x1 : f32",
        "%p = arith.addf %s0, %x1 : f32",
        "P is no exponential of a score less a number",
    ),
)


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("written", "instead", "reason"), DECLINED)
def test_what_is_not_a_gradient_is_said(written: str, instead: str, reason: str) -> None:
    text = AttentionGradient((1, 1, 20, 20, 16, 16), delta=True).mlir
    assert written in text
    with remarks() as heard:
        compile(text.replace(written, instead), "sm_80")
    assert any(reason in str(one) for one in heard)


def test_functions_of_elements_that_have_no_registers_are_said() -> None:
    """Numbers of f64 in memory, beside scores of f32."""
    text = AttentionGradient((1, 2, 20, 30, 32, 32), "f16", mask="mn").mlir
    text = text.replace("memref<20x30xf16>", "memref<20x30xf64>").replace("%x2: f16", "%x2: f64")
    text = text.replace("%wide = arith.extf %x2 : f16 to f32", "%wide = arith.truncf %x2 : f64 to f32")
    with remarks() as heard:
        kernel = compile(text, "sm_80")
    assert len(kernel.launches) > 3
    assert any("its scores are a function of elements of f64" in str(one) for one in heard)


def test_a_product_whose_result_has_no_dimensions_is_no_gradient() -> None:
    text = """
    func.func @f(%Q: memref<37x16xf16>, %K: memref<16x43xf16>, %S: memref<37x43xf32>, %x: memref<29xf16>,
                 %y: memref<29xf16>, %z: memref<f32>) {
      %zero = arith.constant 0.0 : f32
      linalg.fill ins(%zero : f32) outs(%S : memref<37x43xf32>)
      linalg.matmul ins(%Q, %K : memref<37x16xf16>, memref<16x43xf16>) outs(%S : memref<37x43xf32>)
      linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
          outs(%S : memref<37x43xf32>) {
      ^bb0(%s: f32):
        %e = math.exp %s : f32
        linalg.yield %e : f32
      }
      linalg.fill ins(%zero : f32) outs(%z : memref<f32>)
      linalg.generic {indexing_maps = [affine_map<(k) -> (k)>, affine_map<(k) -> (k)>, affine_map<(k) -> ()>],
          iterator_types = ["reduction"]} ins(%x, %y : memref<29xf16>, memref<29xf16>) outs(%z : memref<f32>) {
      ^bb0(%a: f16, %b: f16, %c: f32):
        %u = arith.extf %a : f16 to f32
        %v = arith.extf %b : f16 to f32
        %p = arith.mulf %u, %v : f32
        %t = arith.addf %c, %p : f32
        linalg.yield %t : f32
      }
      return
    }"""
    draw = np.random.default_rng().standard_normal
    q, k, x, y = (draw(shape).astype(np.float16) for shape in ((37, 16), (16, 43), (29,), (29,)))
    scores, total = np.full((37, 43), 9, np.float32), np.full((), 9, np.float32)
    compile(text, target="sm_80", cache=False)(q, k, scores, x, y, total, device="interp", checks="all")
    assert abs(total - x.astype(float) @ y.astype(float)) <= 1e-5 * (abs(x.astype(float)) @ abs(y.astype(float)))
    exact = np.exp(q.astype(float) @ k.astype(float))
    assert np.all(abs(scores - exact) <= 1e-4 * exact)


def test_queries_of_a_turn_leave_registers_to_a_bias() -> None:
    for mask, queries in (("bn", 64), ("bmn", 48)):
        asked = AttentionGradient((1, 1, 256, 256, 128, 128), mask=mask, results=("dK", "dV"))
        schedule = compile(asked.mlir, "sm_90a").schedule[-1]
        assert schedule is not None
        assert schedule.cta == (128, queries, 128)
