"""Elementwise operations on tensors become one where one alone reads the other."""

from __future__ import annotations

import pytest

from warploom.passes.linalg.tensors import fuse_elementwise
from warploom.passes.universe import make_context, parse_mlir

SAME, TURNED = "affine_map<(i, j) -> (i, j)>", "affine_map<(i, j) -> (j, i)>"


def operation(name: str, source: str, body: str, map_: str = SAME) -> str:
    return f"""
    %{name}_empty = tensor.empty() : tensor<4x4xf32>
    %{name} = linalg.generic {{indexing_maps = [{map_}, {SAME}], iterator_types = ["parallel", "parallel"]}}
      ins({source} : tensor<4x4xf32>) outs(%{name}_empty : tensor<4x4xf32>) {{
    ^bb0(%x: f32, %old: f32):
      {body}
    }} -> tensor<4x4xf32>"""


EXPONENTIAL = "%y = math.exp %x : f32 linalg.yield %y : f32"
DOUBLED = "%y = arith.addf %x, %x : f32 linalg.yield %y : f32"
COPIED = "linalg.yield %x : f32"


def fused(operations: str, result: str = "%last") -> str:
    text = f"""func.func @f(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {{{operations}
    return {result} : tensor<4x4xf32>
    }}"""
    module = parse_mlir(make_context(), text, "f.mlir")
    fuse_elementwise(module)
    module.verify()
    return str(module)


@pytest.mark.parametrize("first", [EXPONENTIAL, COPIED])
def test_a_chain_becomes_one_operation(first: str) -> None:
    text = fused(
        operation("first", "%a", first) + operation("second", "%first", DOUBLED) + operation("last", "%second", COPIED)
    )
    assert (text.count("linalg.generic"), text.count("tensor.empty")) == (1, 1)
    assert (text.count("math.exp"), text.count("arith.addf")) == (int(first == EXPONENTIAL), 1)


def test_what_is_read_twice_or_in_another_order_stays() -> None:
    first = operation("first", "%a", EXPONENTIAL)
    assert fused(first + operation("last", "%first", DOUBLED, TURNED)).count("linalg.generic") == 2
    twice = operation("other", "%first", DOUBLED) + operation("last", "%first", DOUBLED)
    assert fused(first + twice, "%other").count("linalg.generic") == 3


def test_a_tensor_of_one_number_becomes_the_number() -> None:
    """Unless nothing else is read."""
    number = """
    %c = arith.constant 2.0 : f32
    %filled_empty = tensor.empty() : tensor<4x4xf32>
    %filled = linalg.fill ins(%c : f32) outs(%filled_empty : tensor<4x4xf32>) -> tensor<4x4xf32>"""
    sum_ = (
        operation("last", "%filled", DOUBLED)
        .replace(f"[{SAME}, {SAME}]", f"[{SAME}, {SAME}, {SAME}]")
        .replace("ins(%filled : tensor<4x4xf32>)", "ins(%filled, %a : tensor<4x4xf32>, tensor<4x4xf32>)")
        .replace("^bb0(%x: f32, %old: f32)", "^bb0(%x: f32, %z: f32, %old: f32)")
        .replace("arith.addf %x, %x", "arith.addf %x, %z")
    )
    text = fused(number + sum_)
    assert "linalg.fill" not in text
    assert text.count("arith.constant") == 1
    assert "linalg.fill" in fused(number + operation("last", "%filled", DOUBLED))
