"""Operations that read one value twice, one behind another: each value is looked at once, not once for each path."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from xdsl.dialects import arith
from xdsl.dialects.builtin import bf16
from xdsl.dialects.test import TestOp

from warploom.passes.linalg.element_expressions import ROUNDED, ElementExpression
from warploom.runtime import compile

COUNT = 16
MODULE = """
#e = affine_map<(d0, d1) -> (d0, d1)>
#r = affine_map<(d0, d1) -> (d0)>
#v = affine_map<(d0) -> (d0)>
func.func @f(%x: tensor<9x64x{type}>, %n: f32) -> tensor<9xf32> {{
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<9xf32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<9xf32>) -> tensor<9xf32>
  %sum = linalg.generic {{indexing_maps = [#e, #r], iterator_types = ["parallel", "reduction"]}}
      ins(%x : tensor<9x64x{type}>) outs(%start : tensor<9xf32>) {{
  ^bb0(%a: {type}, %b: f32):
{body}    %total = arith.addf %last, %b : f32
    linalg.yield %total : f32
  }} -> tensor<9xf32>
  %result = linalg.generic {{indexing_maps = [#v, #v], iterator_types = ["parallel"]}}
      ins(%sum : tensor<9xf32>) outs(%empty : tensor<9xf32>) {{
  ^bb0(%a: f32, %b: f32):
{behind}    linalg.yield %scaled : f32
  }} -> tensor<9xf32>
  return %result : tensor<9xf32>
}}
"""


def calls(run: Callable[[], object], most: int = sys.maxsize) -> int:
    """How many Python functions are called. More than `most` are an error."""
    count = 0

    def counted(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"
        if count > most:
            sys.setprofile(None)
            raise AssertionError(f"more than {most} calls")

    sys.setprofile(counted)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def chain(name: str, first: str, kind: str, count: int) -> str:
    values = [first, *(f"%{name}{i}" for i in range(count))]
    return "".join(f"    {b} = {name} {a}, {a} : {kind}\n" for a, b in itertools.pairwise(values))


def module(case: str, count: int) -> str:
    """A sum of rows, with a chain of `count` operations in the elements that are added, or behind the sum."""
    kind, body, behind = "f32", "    %last = arith.negf %a : f32\n", "    %scaled = arith.negf %a : f32\n"
    if case == "numbers":
        body = chain("arith.addf", "%n", "f32", count) + f"    %last = arith.mulf %a, %arith.addf{count - 1} : f32\n"
    elif case == "indices":
        body = "    %d = linalg.index 1 : index\n    %i = arith.index_cast %d : index to i32\n"
        body += chain("arith.addi", "%i", "i32", count)
        body += f"    %j = arith.sitofp %arith.addi{count - 1} : i32 to f32\n    %last = arith.mulf %a, %j : f32\n"
    elif case == "columns":
        behind = chain("arith.addf", "%a", "f32", count) + f"    %scaled = arith.negf %arith.addf{count - 1} : f32\n"
    else:
        kind, body = "bf16", chain("arith.maximumf", "%a", "bf16", count)
        body += f"    %last = arith.extf %arith.maximumf{count - 1} : bf16 to f32\n"
    return MODULE.format(type=kind, body=body, behind=behind)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", ["numbers", "indices", "columns", "elements of 16 bits"])
def test_time_to_compile_does_not_double_with_each_operation(case: str) -> None:
    compile(module(case, 1), target="sm_90a")  # imports what it needs
    few = calls(lambda: compile(module(case, COUNT // 2), target="sm_90a"))
    calls(lambda: compile(module(case, COUNT), target="sm_90a"), 4 * few)


def test_expressions_are_walked_once() -> None:
    value = TestOp(result_types=[bf16]).res[0]
    load = ElementExpression("outside", value=value)
    element = load
    for _ in range(100):
        element = ElementExpression("op", "arith.maximumf", (element, element), op=arith.MaximumfOp(value, value))
    rounded = ElementExpression("op", ROUNDED, (load,), type=bf16)
    assert element.rounded(bf16) is element
    assert not ElementExpression("op", "arith.addf", (element, rounded)).is_of(bf16)
    assert element.memories([]) == {load: value}
    assert element.memories([load]) == {}
    assert list(element.leaves("outside")) == [load]
