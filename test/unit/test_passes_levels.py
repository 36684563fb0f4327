"""Every level between the passes is text that can be read again, and leads to the same PTX."""

from __future__ import annotations

from functools import cache
from io import StringIO
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.printer import Printer

from warploom.dialect.index import PASSES
from warploom.dialect.ptx.printer import PtxTarget
from warploom.passes.pipeline import STANDARD, Pipeline, lower, standard_pipeline
from warploom.passes.universe import WARPLOOM_UNIVERSE, make_context, parse_mlir

PRODUCT = """
func.func @f(%A: memref<{m}x{k}x{a}>, %B: memref<{k}x{n}x{a}>, %C: memref<{m}x{n}x{c}>) {{
  %z = arith.constant 0.5 : {c}
  linalg.fill ins(%z : {c}) outs(%C : memref<{m}x{n}x{c}>)
  linalg.matmul ins(%A, %B : memref<{m}x{k}x{a}>, memref<{k}x{n}x{a}>) outs(%C : memref<{m}x{n}x{c}>)
  return
}}
"""
TRANSPOSED = """
func.func @f(%A: memref<70x40xf16>, %B: memref<33x70xf16>, %C: memref<40x33xf16>) {
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%A, %B : memref<70x40xf16>, memref<33x70xf16>) outs(%C : memref<40x33xf16>)
  return
}
"""  # noqa: E501
EXAMPLES = Path(__file__).parents[2] / "examples"
SOURCES = {
    "f16": PRODUCT.format(m=256, n=320, k=192, a="f16", c="f32"),
    "bf16 edges": PRODUCT.format(m=100, n=77, k=53, a="bf16", c="bf16"),
    "one": PRODUCT.format(m=1, n=1, k=1, a="f16", c="f16"),
    "transposed": TRANSPOSED,
    **{
        name: (EXAMPLES / f"{name}.mlir").read_text(encoding="utf-8")
        for name in ("binary_matmul", "narrow_matmul", "block_scaled_matmul")
    },
}
TARGETS = {
    "f16": "sm_90a",
    "bf16 edges": "sm_80",
    "one": "sm_75",
    "transposed": "sm_120a",
    "binary_matmul": "sm_80",
    "narrow_matmul": "sm_120a",
    "block_scaled_matmul": "sm_120a",
}


def text_of(module: ModuleOp, *, generic: bool = False) -> str:
    out = StringIO()
    Printer(out, print_generic_format=generic).print_op(module)
    return out.getvalue()


def lowered(text: str, pipeline: str) -> ModuleOp:
    ctx = make_context()
    module = parse_mlir(ctx, text)
    lower(module, ctx, pipeline)
    return module


def ptx_of(module: ModuleOp) -> str:
    out = StringIO()
    PtxTarget().emit(make_context(), module, out)
    return out.getvalue()


@cache
def stages(name: str) -> list[str]:
    """The standard pipeline's passes."""
    return standard_pipeline(TARGETS[name]).split(",")


@cache
def at_once(name: str) -> tuple[str, str]:
    """The PTX after all passes, and the last level."""
    done = lowered(SOURCES[name], ",".join(stages(name)))
    return ptx_of(done), text_of(done)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", SOURCES)
def test_every_level_can_be_read_and_continued(name: str) -> None:
    """Each pass gives the same text to a module that was printed and read before it as to one that never was.

    So any level, read alone, leads to what all passes at once lead to. A level that a pass leaves as it was is not read
    once more.
    """
    ctx = make_context()
    through = again = parse_mlir(ctx, SOURCES[name])
    before, read = "", 0
    for one in stages(name):
        if (text := text_of(through)) != before:
            generic = text_of(through, generic=True)
            assert text_of(lowered(generic, ""), generic=True) == generic
            again, before, read = lowered(text if read % 2 else generic, ""), text, read + 1
            assert text_of(again) == text
        lower(again, make_context(), one)
        lower(through, ctx, one)
        assert text_of(again) == text_of(through), one
    assert ptx_of(through) == at_once(name)[0]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SOURCES)
def test_a_second_run_of_the_last_level_changes_nothing(name: str) -> None:
    ptx, text = at_once(name)
    again = lowered(text, "warp-fold-fill,warp-pipeline,convert-warp-to-ptx")
    assert ptx_of(again) == ptx


UPSTREAM = ("convert-vector-to-warp", "convert-warp-to-nvvm")


def passes_alone() -> list[str]:
    """Every pass that stands for no others, but those that come from upstream's dialects or leave `ptx` for them."""
    passes = WARPLOOM_UNIVERSE.all_passes.items()
    return [name for name, one in passes if not issubclass(one(), Pipeline) and name not in UPSTREAM]


def test_the_standard_pipeline_names_every_pass_once() -> None:
    names = [word.partition("{")[0] for word in STANDARD.split(",")]
    assert names == passes_alone()


def test_the_standard_pipeline_has_a_name() -> None:
    named = lowered(SOURCES["f16"], "warploom{target=sm_80 stages=2}")
    assert ptx_of(named) == ptx_of(lowered(SOURCES["f16"], standard_pipeline("sm_80", {"stages": 2})))
    assert ptx_of(lowered(SOURCES["f16"], "warploom")) == ptx_of(lowered(SOURCES["f16"], STANDARD))


def test_schedule_options_are_spelled() -> None:
    options = {"cta": (128, 64, 32), "warp": "64x32", "mma": "m16n8k16", "stages": 3, "accumulate": "f32"}
    pipeline = standard_pipeline("sm_80", options)
    assert "warp-set-target{arch=sm_80}," in pipeline
    assert ",warp-schedule{cta=128,64,32 warp=64,32 mma=m16n8k16 stages=3 accumulate=f32}," in pipeline
    lowered(SOURCES["f16"], pipeline)


def test_phases_are_reported_in_order() -> None:
    """Passes that a module has nothing for are left out; only those that say what they need can be."""
    seen: list[tuple[str, float]] = []
    ctx = make_context()
    lower(parse_mlir(ctx, SOURCES["one"]), ctx, STANDARD, lambda name, seconds: seen.append((name, seconds)))
    run = [name for name, _ in seen if name != "verify"]
    assert run == [name for name in passes_alone() if name in run]
    assert set(passes_alone()) - set(run) <= {name for name, (_, _, *needs) in PASSES.items() if needs}
    assert {"warp-raise-matmul", "warp-stage", "convert-warp-to-ptx"} <= set(run)
    assert seen[-1][0] == "verify"
    assert all(seconds >= 0 for _, seconds in seen)


LAYERS = """
#all = affine_map<(m, n) -> (m, n)>
func.func @f(%A: memref<64x64xbf16>, %W: memref<64x64x{weight}>, %H: memref<64x64xbf16>, %D: memref<64x64xf32>) {{
  %z = arith.constant 0.0 : f32
  %w = memref.alloc() : memref<64x64xbf16>
  linalg.generic {{indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}}
      ins(%W : memref<64x64x{weight}>) outs(%w : memref<64x64xbf16>) {{
  ^bb0(%q: {weight}, %o: bf16):
    %x = {conversion} %q : {weight} to bf16
    linalg.yield %x : bf16
  }}
  %t = memref.alloc() : memref<64x64xf32>
  linalg.fill ins(%z : f32) outs(%t : memref<64x64xf32>)
  linalg.matmul ins(%A, %w : memref<64x64xbf16>, memref<64x64xbf16>) outs(%t : memref<64x64xf32>)
  linalg.generic {{indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}}
      ins(%t : memref<64x64xf32>) outs(%H : memref<64x64xbf16>) {{
  ^bb0(%x: f32, %o: bf16):
    %r = arith.maximumf %x, %z : f32
    %h = arith.truncf %r : f32 to bf16
    linalg.yield %h : bf16
  }}
  linalg.fill ins(%z : f32) outs(%D : memref<64x64xf32>)
  linalg.matmul ins(%H, %A : memref<64x64xbf16>, memref<64x64xbf16>) outs(%D : memref<64x64xf32>)
  return
}}
"""
"""Two products, the first with weights that are converted."""

FUSED = {
    "attention": ((EXAMPLES / "attention.mlir").read_text(encoding="utf-8"), {"warp-fuse-attention"}),
    "gelu": ((EXAMPLES / "matmul_bias_gelu.mlir").read_text(encoding="utf-8"), set[str]()),
    "integers": (LAYERS.format(weight="i8", conversion="arith.sitofp"), {"warp-fuse-weights"}),
    "floats": (LAYERS.format(weight="f32", conversion="arith.truncf"), set[str]()),
}


@pytest.mark.parametrize("name", FUSED)
def test_passes_that_are_left_out_would_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a pass needs is what it could change a module by: with all passes the PTX is the same."""
    text, needed = FUSED[name]
    ctx, run = make_context(), set[str]()
    lower(parse_mlir(ctx, text), ctx, standard_pipeline("sm_90a"), lambda name, _: run.add(name))
    assert run & {"warp-fuse-attention", "warp-fuse-weights"} == needed
    expected = ptx_of(lowered(text, standard_pipeline("sm_90a")))
    for each, (module, kind, *_) in PASSES.items():
        monkeypatch.setitem(PASSES, each, (module, kind))  # pyright: ignore[reportArgumentType]
    assert ptx_of(lowered(text, standard_pipeline("sm_90a"))) == expected
