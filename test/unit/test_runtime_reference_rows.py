"""Reductions, indices and softmax in the float64 reference, and attention held against it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from attentions import Attention
from xdsl.dialects.func import FuncOp

from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime.arguments.dtypes import DTYPES
from warploom.runtime.base.errors import HostError
from warploom.runtime.cli.command import main
from warploom.runtime.plan import host
from warploom.runtime.reference.functions import compare, evaluate

EXAMPLE = Path(__file__).parents[2] / "examples" / "attention.mlir"

ROWS = """
func.func @f(%x: memref<5x7x{kind}>, %y: memref<5x{kind}>) {{
  linalg.generic {{indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m)>],
      iterator_types = ["parallel", "reduction"]}} ins(%x : memref<5x7x{kind}>) outs(%y : memref<5x{kind}>) {{
  ^bb0(%a: {kind}, %b: {kind}):
    {body}
    linalg.yield %r : {kind}
  }}
  return
}}
"""


def function(text: str) -> FuncOp:
    return host.choose(parse_mlir(make_context(), text, "r.mlir"), None)


@pytest.mark.parametrize(
    ("kind", "body", "by"),
    [
        ("f32", "%r = arith.addf %a, %b : f32", np.add),
        ("f32", "%r = arith.mulf %b, %a : f32", np.multiply),
        ("f16", "%r = arith.maximumf %a, %b : f16", np.maximum),
        ("bf16", "%r = arith.minnumf %b, %a : bf16", np.fmin),
        ("i32", "%r = arith.addi %a, %b : i32", np.add),
        ("i32", "%r = arith.maxsi %a, %b : i32", np.maximum),
    ],
)
def test_rows_are_reduced_onto_what_is_there(kind: str, body: str, by: np.ufunc) -> None:
    random, dtype = np.random.default_rng(), DTYPES[kind]
    x, y = ((8 * random.standard_normal(shape)).astype(dtype) for shape in ((5, 7), (5,)))
    expected = evaluate(function(ROWS.format(kind=kind, body=body)), [x, y])[1]
    wide = [array.astype(np.float64) for array in (x, y)]
    wanted = by(by.reduce(wide[0], axis=1), wide[1])
    np.testing.assert_allclose(expected.value, wanted, rtol=1e-12)
    assert compare(expected, wanted.astype(dtype)).ok
    assert not compare(expected, (wanted * 1.5 + 1).astype(dtype)).ok


def test_elements_of_rows_may_be_computed_first() -> None:
    body = "%i = linalg.index 1 : index %j = arith.index_cast %i : index to i32 %k = arith.sitofp %j : i32 to f32 " \
           "%v = arith.mulf %a, %k : f32 %r = arith.addf %b, %v : f32"  # fmt: skip
    x, y = np.ones((5, 7), np.float32), np.zeros(5, np.float32)
    expected = evaluate(function(ROWS.format(kind="f32", body=body)), [x, y])[1]
    assert (expected.value == 21).all()
    assert (expected.error > 0).all()


def test_what_is_no_reduction_is_named() -> None:
    body = "%v = arith.addf %a, %b : f32 %r = arith.addf %v, %b : f32"
    with pytest.raises(HostError, match=r"no float64 reference for linalg\.generic; --check knows .* reduce"):
        evaluate(function(ROWS.format(kind="f32", body=body)), [np.ones((5, 7), np.float32), np.zeros(5, np.float32)])


def test_attention_is_checked_as_it_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On memory too, with a softcap and numbers of loops."""
    asked = Attention((20, 33, 32, 16), softmax="behind", function="alibi", causal=3, on_memory=True)
    (path := tmp_path / "attention.mlir").write_text(asked.mlir)
    for file in (str(EXAMPLE), str(path)):
        assert main(["run", file, "--device", "interp", "--check", "--target", "sm_80", "--no-cache"]) == 0
        assert "within the bound (K + 2) 2^-23" in capsys.readouterr().out
