"""`-t upstream`: levels above PTX as upstream `mlir-opt` reads them, and what it prints as we read it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pytest
from upstream import ABSENT, mlir_opt, piped
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.utils.arg_spec import parse_pipeline
from xdsl.utils.exceptions import ParseError

from warploom.dialect.ptx.ops import print_ptx
from warploom.dialect.ptx.printer import ptx_module
from warploom.passes.diagnostics import describe, location_of
from warploom.passes.opt import UpstreamTarget
from warploom.passes.pipeline import lower, standard_pipeline
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import compile

EXAMPLES = Path(__file__).parents[2] / "examples"
FRAGMENTS = "warploom-schedule{target=sm_120a},warploom-tile"
LEVELS = {
    "schedule": "warploom-schedule{target=sm_120a}",
    "fragments": FRAGMENTS,
    "allocated": f"{FRAGMENTS},warp-pipeline,warp-expand,warp-allocate",
}


def printed(example: str, level: str) -> str:
    ctx, out = make_context(), StringIO()
    module = parse_mlir(ctx, (EXAMPLES / example).read_text())
    lower(module, ctx, LEVELS[level])
    before = str(module)
    UpstreamTarget().emit(ctx, module, out)
    assert str(module) == before
    return out.getvalue()


@pytest.mark.skipif(mlir_opt() is None, reason=ABSENT)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("example", ["matmul_bias_gelu.mlir", "dynamic_matmul.mlir", "block_scaled_matmul.mlir"])
def test_mlir_opt_reads_and_verifies_it(example: str, level: str) -> None:
    command = [mlir_opt() or "", "--allow-unregistered-dialect"]
    done = subprocess.run(command, input=printed(example, level), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    wanted = '"warp.matmul"' if level == "schedule" else '"warp.mma'
    assert wanted in done.stdout
    assert ("gpu.func" in done.stdout) == (level != "schedule")


def test_the_swizzle_of_a_tile_is_said_by_what_makes_it() -> None:
    text = printed("matmul_bias_gelu.mlir", "fragments")
    made = re.findall(r'"memref\.alloc".*bf16.*', text)
    assert made
    for line in made:
        assert re.search(r"warp\.layout = #warp\.swizzle<\d+>.* -> memref<[\dx]+xbf16, 3 : i64>$", line)
    assert re.findall(r"memref<[^>]*#", text) == []


def test_this_compiler_reads_it_too() -> None:
    parse_mlir(make_context(), printed("matmul_bias_gelu.mlir", "schedule")).verify()


DEBUG = """#before = loc("a.py":1:2)
module {
  func.func @f(%A: memref<4x4xf32> loc(#arg), %B: memref<4x4xf32> loc("a.py":3:4)) {
    linalg.exp ins(%A : memref<4x4xf32>) outs(%B : memref<4x4xf32>) loc(LOCATION)
    return loc(#before)
  } loc(#function)
} loc(#loc)
#loc = loc(unknown)
#arg = loc("a.py":3:3)
#inner = loc("b.py":7:8)
#named = loc("exp"(#inner))
#called = loc(callsite(#inner at #before))
#several = loc(fused<"pass">[#loc, #named])
#range = loc("b.py":9:1 to 10:4)
#columns = loc("b.py":9:2 to :4)
#function = loc("a.py":2:1)
"""


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("#inner", "b.py:7:8"),
        ("#before", "a.py:1:2"),
        ("#named", "b.py:7:8"),
        ("#called", "b.py:7:8"),
        ("#several", "b.py:7:8"),
        ("#range", "b.py:9:1"),
        ("#columns", "b.py:9:2"),
        ('callsite("g"(#inner) at unknown)', "b.py:7:8"),
        ("callsite(unknown at #columns)", "b.py:9:2"),
        ('"name"', "a.py:2:1"),
        ("#loc", "text.mlir:4:5"),
        ("unknown", "text.mlir:4:5"),
    ],
)
def test_aliases_of_locations_may_come_after_their_use(location: str, place: str) -> None:
    module = parse_mlir(make_context(), DEBUG.replace("LOCATION", location), "text.mlir")
    (exp,) = (op for op in module.walk() if op.name == "linalg.exp")
    function = exp.parent_op()
    assert function is not None
    assert (location_of(exp), location_of(function)) == (place, "a.py:2:1")
    assert str(function.regions[0].block.args[0].location) == 'loc("a.py":3:3)'


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("#nowhere", "text.mlir:4:73: error: undefined symbol alias '#nowhere'"),
        ("#number", "text.mlir:4:73: error: expected the alias of a location, got #number"),
        ("#late", "text.mlir:4:73: error: expected the alias of a location, got #late"),
        ("7", "text.mlir:4:73: error: Unexpected location syntax."),
    ],
)
def test_what_is_no_location(location: str, message: str) -> None:
    text = f"#number = 7 : i32\n{DEBUG[DEBUG.index('module') :].replace('LOCATION', location)}#late = 8 : i32\n"
    text = text.replace("#before", "unknown")
    with pytest.raises(ParseError) as caught:
        parse_mlir(make_context(), text, "text.mlir")
    assert describe(caught.value).startswith(message)


@pytest.mark.skipif(mlir_opt() is None, reason=ABSENT)
@pytest.mark.parametrize("form", [(), ("--mlir-print-op-generic",), ("--mlir-print-local-scope",)])
@pytest.mark.parametrize("example", ["matmul_bias_gelu.mlir", "dynamic_matmul.mlir", "matmul.mlir"])
def test_debug_information_of_mlir_opt_is_read(example: str, form: tuple[str, ...]) -> None:
    file = EXAMPLES / example
    command = [mlir_opt() or "", "--mlir-print-debuginfo", *form, str(file)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    module, own = parse_mlir(make_context(), text), parse_mlir(make_context(), file.read_text(), str(file))
    places = [
        [location_of(op) for op in m.walk() if isinstance(op.parent_op(), FuncOp) and not op.results]
        for m in (module, own)
    ]
    assert places[0] == places[1] != []


@pytest.mark.skipif(mlir_opt() is None, reason=ABSENT)
def test_named_operations_that_are_not_known_are_read_as_generic_ones() -> None:
    text = """func.func @f(%m: f64, %s: i32, %C: memref<8x8xf32>) {
      linalg.fill_rng_2d ins(%m, %m, %s : f64, f64, i32) outs(%C : memref<8x8xf32>)
      return
    }"""
    with pytest.raises(ParseError, match=r"linalg\.fill_rng_2d is not registered"):
        parse_mlir(make_context(), text)
    command = [mlir_opt() or "", "--linalg-generalize-named-ops"]
    generic = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    assert compile(generic).plan.launches


OWN_TEXT = Path(__file__).parents[1] / "filecheck" / "dialect"


@pytest.mark.skipif(mlir_opt() is None, reason=ABSENT)
@pytest.mark.parametrize(
    "file", ["gpu/host", "gpu/async", "nvgpu/roundtrip", "nvvm/products", "nvvm/ops", "transform/carried"]
)
def test_mlir_opt_prints_the_same_of_our_text_as_of_the_original(file: str) -> None:
    for text in (OWN_TEXT / f"{file}.mlir").read_text().split("// -----"):
        command = ("mlir-opt", "--allow-unregistered-dialect", "-")
        assert piped(str(parse_mlir(make_context(), text)), command) == piped(text, command)


def ptx_of(module: ModuleOp, ctx: Context, passes: Sequence[str]) -> str:
    lower(module, ctx, ",".join(passes))
    return print_ptx(ptx_module(module))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("example", "target"), [("block_scaled_matmul", "sm_120a"), ("batch_matmul", "sm_90a")])
def test_the_same_ptx_comes_of_what_is_given_back_after_each_pass(example: str, target: str) -> None:
    """By `mlir-opt`, or without one by this compiler's own reader alone."""
    ctx, source = make_context(), (EXAMPLES / f"{example}.mlir").read_text()
    passes = [str(spec) for spec in parse_pipeline(standard_pipeline(target))]
    straight = ptx_of(parse_mlir(ctx, source), ctx, passes)
    module, texts = parse_mlir(ctx, source), dict[str, list[str]]()
    for i, each in enumerate(passes[:-1]):
        lower(module, ctx, each)
        out = StringIO()
        UpstreamTarget().emit(ctx, module, out)
        texts[out.getvalue()] = passes[i + 1 :]
    assert len(texts) > 8
    for text, rest in texts.items():
        back = piped(text, ("mlir-opt", "--allow-unregistered-dialect")) if mlir_opt() else text
        assert ptx_of(parse_mlir(ctx, back), ctx, rest) == straight, rest[0]


def test_shared_memory_without_a_layout_is_in_rows() -> None:
    module = parse_mlir(make_context(), printed("matmul_bias_gelu.mlir", "fragments").replace("warp.layout", "other"))
    made = [op.results[0].type for op in module.walk() if op.name == "memref.alloc"]
    assert made
    assert all("swizzle" not in str(kind) for kind in made)


@pytest.mark.skipif(mlir_opt() is None, reason=ABSENT)
def test_mlir_opt_gives_strategies_back(tmp_path: Path) -> None:
    folder = EXAMPLES / "strategies"
    returned = tmp_path / "strategy.mlir"
    returned.write_text(piped((folder / "stream_k.mlir").read_text(), ("mlir-opt", "--allow-unregistered-dialect")))
    kernels = [
        compile(folder / "product.mlir", "sm_90a", strategy=path, cache=False)
        for path in (folder / "stream_k.mlir", returned)
    ]
    assert kernels[0].ptx == kernels[1].ptx
    plain = compile(folder / "product.mlir", "sm_90a", cache=False)
    assert kernels[0].schedule != plain.schedule
