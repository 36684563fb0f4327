"""Strategies: what steps match and change, what the example strategies compute, and errors of steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import DiagnosticException

from warploom.dialect.schedule import Schedule
from warploom.passes.diagnostics import remarks
from warploom.passes.linalg.raise_matmul import raise_product
from warploom.passes.strategy.handle import Handle, StepError
from warploom.passes.strategy.transform import apply_strategy
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import Kernel, compile, fastest

EXAMPLES = Path(__file__).parents[2] / "examples" / "strategies"

PRODUCTS = """
func.func @first(%A: memref<64x32xf16>, %B: memref<32x96xf16>, %C: memref<64x96xf32>) {
  linalg.matmul ins(%A, %B : memref<64x32xf16>, memref<32x96xf16>) outs(%C : memref<64x96xf32>)
  return
}
func.func @second(%A: memref<?x48xbf16>, %W: memref<48x16xbf16>, %C: memref<?x16xf32>) {
  linalg.matmul ins(%A, %W : memref<?x48xbf16>, memref<48x16xbf16>) outs(%C : memref<?x16xf32>)
  return
}
"""

CHAIN = """
func.func @f(%a: memref<96x32xf16>, %b: memref<32x24xf16>, %c: memref<96x24xf16>) {
  %zero = arith.constant 0.0 : f16
  %t = memref.alloc() : memref<96x24xf16>
  linalg.fill ins(%zero : f16) outs(%c : memref<96x24xf16>)
  linalg.add ins(%c, %c : memref<96x24xf16>, memref<96x24xf16>) outs(%t : memref<96x24xf16>)
  linalg.matmul ins(%a, %b : memref<96x32xf16>, memref<32x24xf16>) outs(%t : memref<96x24xf16>)
  linalg.exp ins(%t : memref<96x24xf16>) outs(%c : memref<96x24xf16>)
  memref.dealloc %t : memref<96x24xf16>
  return
}
"""


def module_of(text: str) -> ModuleOp:
    return parse_mlir(make_context(), text, "program.mlir")


def handle_of(text: str) -> Handle:
    """A handle of a module, which it keeps as it is."""
    handles: list[Handle] = []
    apply_strategy(make_context(), module_of(text), handles.append)
    return handles[0]


def schedule_of(kernel: Kernel) -> Schedule:
    """The schedule of the first launch."""
    schedule = kernel.schedule[0]
    assert schedule is not None
    return schedule


def float16(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) / 4).astype(np.float16)


@pytest.mark.parametrize(
    ("facts", "matched"),
    [
        ({}, 2),
        ({"m": 64}, 1),
        ({"m": "..100"}, 1),  # a size that a call says is in no range
        ({"k": "32..48"}, 2),
        ({"n": "17..", "k": "..32"}, 1),
        ({"types": ["bf16"]}, 1),
        ({"in": "second"}, 1),
        ({"name": "W"}, 1),
        ({"batch": 1}, 2),
        ({"m": 65}, 0),
    ],
)
def test_facts(facts: dict[str, object], matched: int) -> None:
    assert len(handle_of(PRODUCTS).match("linalg.matmul").where(**facts)) == matched


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda m: m.match("linalg.fill").set(stages=2), "set does not apply: no operation matches"),
        (lambda m: m.match("func.return").set(stages=2), "expected a product or an attention, got func.return, at "),
        (lambda m: m.match("linalg.matmul").set(depth=2), "unknown schedule option 'depth'"),
        (lambda m: m.match("linalg.matmul").where(m="a"), "m: expected a number or a range such as 64..256, got 'a'"),
        (lambda m: m.match("linalg.matmul").where(depth=1), "unknown fact 'depth'; known: m, n, k, batch, types"),
        (lambda m: m.match("linalg.matmul").tile(1, 1, 1, 1), "linalg.matmul has 3 loops, got sizes 1, 1, 1, 1"),
        (lambda m: m.match("linalg.matmul").run("warp-stage"), "expected the module, functions or kernels, got linalg"),
        (lambda m: m.run("warp-nothing"), "warp-nothing"),
        (lambda m: m.run("warp-outline"), "program.mlir:3:3: error: expected a schedule on warp.matmul"),
        (lambda m: m.rewrite("Nothing"), "there is no pattern Nothing; there are "),
        (lambda m: m.alternatives(lambda s: s.match("x").set()), "none of 1 applies (1: set does not apply: no op"),
    ],
)
def test_steps_that_do_not_apply(step: object, message: str) -> None:
    with pytest.raises(StepError) as raised:
        step(handle_of(PRODUCTS))  # pyright: ignore[reportCallIssue]
    assert message in str(raised.value)


def test_a_handle_of_what_was_replaced_is_refused() -> None:
    module = handle_of(PRODUCTS)
    product = module.match("linalg.matmul").where(m=64)
    product.tile(32)
    with pytest.raises(StepError, match="is not there any more"):
        product.set(stages=2)


SIDE_BY_SIDE = """
  %m = transform.merge_handles %a, %a : !transform.any_op
  %r = transform.foreach %m, %a : !transform.any_op, !transform.any_op -> !transform.any_op {
  ^bb0(%x: !transform.any_op, %y: !transform.any_op):
    %fields1 = transform.param.constant #warp.schedule<stages = 2> -> !transform.any_param
    transform.annotate %x "warp.schedule" = %fields1 : !transform.any_op, !transform.any_param
    transform.yield %y : !transform.any_op
  }
  %fields2 = transform.param.constant #warp.schedule<warp = 32x32> -> !transform.any_param
  transform.annotate %r "warp.schedule" = %fields2 : !transform.any_op, !transform.any_param"""


def parsed(steps: str) -> ModuleOp:
    """A strategy that begins with all products of the module."""
    return parse_mlir(
        make_context(),
        f"""module attributes {{transform.with_named_sequence}} {{
  transform.named_sequence @__transform_main(%module: !transform.any_op) {{
    %a = transform.structured.match ops{{["linalg.matmul"]}} in %module : (!transform.any_op) -> !transform.any_op
{steps}
    transform.yield
  }}
}}""",
    )


def test_handles_side_by_side_and_merged() -> None:
    module = parse_mlir(make_context(), PRODUCTS)
    apply_strategy(make_context(), module, parsed(SIDE_BY_SIDE))
    assert str(module).count("#warp.schedule<warp = 32x32, stages = 2>") == 2


def test_a_step_that_is_read_and_printed_alone_is_refused_where_it_stands() -> None:
    steps = "    transform.structured.vectorize %a vector_sizes [8, 4] : !transform.any_op"
    with pytest.raises(DiagnosticException, match=r":4:5.*transform\.structured\.vectorize is no step"):
        apply_strategy(make_context(), parse_mlir(make_context(), PRODUCTS), parsed(steps))


def test_passes_and_patterns_change_a_part_alone() -> None:
    module = handle_of(PRODUCTS)
    first = next(iter(module.match("func.func")))
    first.run("warp-raise-matmul")
    assert [op.name for op in module.match("warp.matmul", "linalg.matmul").ops] == ["warp.matmul", "linalg.matmul"]
    assert [str(op.properties["sym_name"]) for op in module.match("func.func").ops] == ['"first"', '"second"']
    module.match("func.func").where(**{"in": "second"}).rewrite(raise_product)
    assert not module.match("linalg.matmul").ops


def test_alternatives_undo_what_does_not_apply() -> None:
    module = handle_of(PRODUCTS)
    before = str(module.ops[0])

    def tries(scope: Handle) -> None:
        scope.match("linalg.matmul").where(m=64).tile(32)
        scope.match("linalg.fill").set(stages=2)

    with remarks(chosen=True) as said:
        module.alternatives(tries, lambda scope: None)
    assert str(module.ops[0]) == before
    assert any("alternative 1 of 2 does not apply: set does not apply: no operation matches" in line for line in said)


@pytest.mark.parametrize("rows", [32, 36])
def test_tiles_and_fused_producers_compute_the_same(rows: int) -> None:
    """The last tile of 36 rows has 24."""

    def strategy(module: Handle) -> None:
        _, (loop, *_) = module.match("linalg.exp").tile(rows)
        module.match("linalg.matmul").fuse_into(loop)
        module.match("linalg.add").fuse_into(loop)
        assert [op.parent_op() for op in module.match("linalg.matmul", "linalg.add", "linalg.exp").ops] == [
            loop.ops[0]
        ] * 3
        with pytest.raises(StepError, match="its result lies in memory that others see"):
            module.match("linalg.fill").fuse_into(loop)

    rng = np.random.default_rng(3)
    a, b, c = float16(rng, 96, 32), float16(rng, 32, 24), np.full((96, 24), np.nan, np.float16)
    compile(CHAIN, "sm_80", strategy=strategy)(a, b, c, device="interp", checks="all")
    exact = np.exp((a.astype(np.float64) @ b.astype(np.float64)).astype(np.float16).astype(np.float64))
    assert np.abs(c - exact).max() < 4e-3  # half a unit of f16 at 2 to 4, and of the exponent


def test_stream_k() -> None:
    kernel = compile(EXAMPLES / "product.mlir", "sm_90a", strategy=EXAMPLES / "stream_k.mlir")
    rng = np.random.default_rng(2)
    a, b, c = float16(rng, 512, 256), float16(rng, 256, 64), np.full((512, 64), np.nan, np.float32)
    kernel(a, b, c, device="interp", checks="all")
    assert (kernel.plan.launches[0].grid, schedule_of(kernel).shares_tail) == ((3, 1, 1), True)
    exact, sizes = a.astype(np.float64) @ b.astype(np.float64), np.abs(a).astype(np.float64) @ np.abs(b).astype(float)
    assert (np.abs(c - exact) <= 256 * 2**-23 * sizes).all()


def test_the_fastest_of_all_alternatives() -> None:
    def strategy(module: Handle) -> None:
        product = module.match("linalg.matmul").where(m=64)
        product.alternatives(lambda p: p.set(stages=0), lambda p: p.set(stages=3), lambda p: p.set(stages=2))
        product.alternatives(lambda p: p.set(group=1), lambda p: p.set(group=2))

    measured: list[tuple[int, int]] = []

    def measure(kernel: Kernel) -> float:
        measured.append((schedule_of(kernel).stages, schedule_of(kernel).group))
        return -measured[-1][1] + measured[-1][0]

    kernel, choices = fastest(PRODUCTS, strategy, measure, "sm_80", name="first")
    assert sorted(measured) == [(2, 1), (2, 2), (3, 1), (3, 2)]
    assert choices == (2, 1)
    assert (schedule_of(kernel).stages, schedule_of(kernel).group) == (2, 2)
