"""Views of tensors and memory: what is read, written and returned is where the program says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from view_programs import KINDS, outcome

from warploom.runtime import compile

Array = np.ndarray[Any, np.dtype[np.float32]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_drawn_programs_of_views_are_right(kind: str, first: int) -> None:
    outcomes = [outcome(number, kind) for number in range(first, first + 20)]
    assert [f"{each.reason}\n{each.text}" for each in outcomes if each.kind == "wrong"] == []
    refused = {each.reason for each in outcomes if each.kind == "refused"}
    assert all("launches no kernel" in reason for reason in refused), refused


PROGRAMS: dict[str, tuple[str, tuple[tuple[int, ...], ...], Callable[..., Sequence[Array]]]] = {
    "a part of an argument, returned in another shape": (
        """func.func @f(%x: tensor<7x6x5xf32>) -> tensor<7x2x3xf32> {
  %p = tensor.extract_slice %x[0, 0, 1] [7, 6, 1] [1, 1, 1] : tensor<7x6x5xf32> to tensor<7x6xf32>
  %r = tensor.expand_shape %p [[0], [1, 2]] output_shape [7, 2, 3] : tensor<7x6xf32> into tensor<7x2x3xf32>
  return %r : tensor<7x2x3xf32>
}""",
        ((7, 6, 5),),
        lambda x: [x[:, :, 1].reshape(7, 2, 3)],
    ),
    "a part put into an argument": (
        """func.func @f(%x: tensor<5x3xf32>, %y: tensor<7x9xf32>) -> tensor<7x9xf32> {
  %e = tensor.empty() : tensor<5x3xf32>
  %a = linalg.abs ins(%x : tensor<5x3xf32>) outs(%e : tensor<5x3xf32>) -> tensor<5x3xf32>
  %r = tensor.insert_slice %a into %y[1, 2] [5, 3] [1, 1] : tensor<5x3xf32> into tensor<7x9xf32>
  return %r : tensor<7x9xf32>
}""",
        ((5, 3), (7, 9)),
        lambda x, y: [np.vstack([y[:1], np.hstack([y[1:6, :2], np.abs(x), y[1:6, 5:]]), y[6:]])],
    ),
    "memory that is read in two orders, of sizes that are alike": (
        """func.func @f(%x: memref<9x9x9xf32>, %o: memref<9x9x9xf32>) {
  linalg.generic {
      indexing_maps = [affine_map<(i, j, k) -> (i, j, k)>, affine_map<(i, j, k) -> (k, i, j)>,
        affine_map<(i, j, k) -> (i, j, k)>],
      iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%x, %x : memref<9x9x9xf32>, memref<9x9x9xf32>) outs(%o : memref<9x9x9xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  }
  return
}""",
        ((9, 9, 9),),
        lambda x: [x + x.transpose(1, 2, 0)],
    ),
    "rows that are stored where later ones replace a part": (
        """func.func @f(%x: memref<6x7xf32>, %o: memref<6xf32>) {
  %z = arith.constant 0.0 : f32
  %t = memref.alloc() : memref<6xf32>
  linalg.fill ins(%z : f32) outs(%t : memref<6xf32>)
  linalg.reduce { arith.addf } ins(%x : memref<6x7xf32>) outs(%t : memref<6xf32>) dimensions = [1]
  %u = memref.alloc() : memref<6xf32>
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
    ins(%t : memref<6xf32>) outs(%u : memref<6xf32>) {
  ^bb0(%a: f32, %b: f32):
    %m = arith.mulf %a, %a : f32
    linalg.yield %m : f32
  }
  linalg.copy ins(%t : memref<6xf32>) outs(%o : memref<6xf32>)
  %v = memref.subview %o[0] [6] [1] : memref<6xf32> to memref<6xf32, strided<[1]>>
  linalg.copy ins(%u : memref<6xf32>) outs(%v : memref<6xf32, strided<[1]>>)
  return
}""",
        ((6, 7),),
        lambda x: [x.sum(1) ** 2],
    ),
    "rows moved down within their memory, through other memory": (
        """func.func @f(%o: memref<9x8xf32>) {
  %t = memref.alloc() : memref<8x8xf32>
  %a = memref.subview %o[0, 0] [8, 8] [1, 1] : memref<9x8xf32> to memref<8x8xf32, strided<[8, 1]>>
  %b = memref.subview %o[1, 0] [8, 8] [1, 1] : memref<9x8xf32> to memref<8x8xf32, strided<[8, 1], offset: 8>>
  linalg.copy ins(%a : memref<8x8xf32, strided<[8, 1]>>) outs(%t : memref<8x8xf32>)
  linalg.exp ins(%t : memref<8x8xf32>) outs(%b : memref<8x8xf32, strided<[8, 1], offset: 8>>)
  return
}""",
        (),
        list,
    ),
    "a size that only a call knows, split into an unknown inner one": (
        """func.func @f(%x: tensor<?x?x9xf32>) -> tensor<2x?x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %m = tensor.dim %x, %c0 : tensor<?x?x9xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?x9xf32>
  %p = tensor.extract_slice %x[0, 0, 0] [%m, %n, 8] [1, 1, 1] : tensor<?x?x9xf32> to tensor<?x?x8xf32>
  %h = arith.divui %n, %c2 : index
  %s = tensor.expand_shape %p [[0], [1, 2], [3]] output_shape [%m, 2, %h, 8]
    : tensor<?x?x8xf32> into tensor<?x2x?x8xf32>
  %e = tensor.empty(%h) : tensor<2x?x8xf32>
  %z = arith.constant 0.0 : f32
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<2x?x8xf32>) -> tensor<2x?x8xf32>
  %r = linalg.reduce { arith.addf } ins(%s : tensor<?x2x?x8xf32>) outs(%f : tensor<2x?x8xf32>) dimensions = [0]
  return %r : tensor<2x?x8xf32>
}""",
        ((5, 6, 9),),
        lambda x: [x[:, :, :8].reshape(5, 2, 3, 8).sum(0)],
    ),
    "fewer rows than an unknown number": (
        """func.func @f(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %c2000 = arith.constant 2000 : index
  %m = tensor.dim %x, %c0 : tensor<?x8xf32>
  %n = arith.subi %m, %c2000 : index
  %p = tensor.extract_slice %x[1, 0] [%n, 8] [1, 1] : tensor<?x8xf32> to tensor<?x8xf32>
  %r = tensor.concat dim(0) %p, %x : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}""",
        ((2009, 8),),
        lambda x: [np.vstack([x[1:-1999], x])],
    ),
}
"""Programs that were wrong, or refused, with the shapes of their inputs and what numpy makes of these."""


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_what_views_of_memory_give(name: str, target: str) -> None:
    text, shapes, reference = PROGRAMS[name]
    random, kernel = np.random.default_rng(), compile(text, target, cache=False)
    inputs = [random.integers(-8, 9, shape).astype(np.float32) for shape in shapes]
    if not inputs:  # a function that changes its argument
        memory = random.integers(-8, 9, (9, 8)).astype(np.float32)
        expected = np.vstack([memory[:1], np.exp(memory[:-1])])
        kernel(memory, device="interp")
        np.testing.assert_allclose(memory, expected, rtol=1e-6)
        return
    before = [array.copy() for array in inputs]
    expected = reference(*inputs)
    results = [np.full(array.shape, np.nan, np.float32) for array in expected]
    kernel(*inputs, *results, device="interp")
    for result, array in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, array)
    for array, old in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(array, old)
