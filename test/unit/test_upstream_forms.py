"""Programs as upstream and front ends write them, run on the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from warploom.runtime import CompileError, compile, load_kernels

THREADS = """\
gpu.module @m {
  gpu.func @number(%out: memref<?xi32>) kernel {
    %c2 = arith.constant 2 : index
    %x = gpu.thread_id x
    %y = gpu.thread_id y
    %z = gpu.thread_id z
    %nx = gpu.block_dim x
    %ny = gpu.block_dim y
    %zy = arith.muli %z, %ny : index
    %row = arith.addi %zy, %y : index
    %start = arith.muli %row, %nx : index
    %at = arith.addi %start, %x : index
    %lane = gpu.lane_id
    %warp = gpu.subgroup_id : index
    %c100 = arith.constant 100 : index
    %high = arith.muli %warp, %c100 : index
    %both = arith.addi %high, %lane : index
    %word = arith.index_cast %both : index to i32
    memref.store %word, %out[%at] : memref<?xi32>
    gpu.return
  }
  gpu.func @swapped(%x: memref<?xf32>, %y: memref<?xf32>) kernel {
    %t = gpu.thread_id x
    %one = arith.constant 1 : i32
    %width = arith.constant WIDTH : i32
    %v = memref.load %x[%t] : memref<?xf32>
    %w, %valid = gpu.shuffle xor %v, %one, %width : f32
    memref.store %w, %y[%t] : memref<?xf32>
    gpu.return
  }
}
"""


@pytest.mark.parametrize("block", [(7, 5, 3), (64, 1, 1), (3, 1, 40)])
def test_threads_of_a_kernel_without_a_block_size(block: tuple[int, int, int]) -> None:
    module = load_kernels(THREADS.replace("WIDTH", "32"))
    assert ".reqntid" not in module.text
    threads = int(np.prod(block))
    out = np.full(threads, -1, np.int32)
    module.launch("number", 1, block, [out, threads], device="interp")
    numbers = np.arange(threads)
    assert np.array_equal(out, numbers // 32 * 100 + numbers % 32)


def test_whole_warps_exchange_without_a_block_size() -> None:
    x = np.random.default_rng(5).standard_normal(96).astype(np.float32)
    y = np.zeros_like(x)
    load_kernels(THREADS.replace("WIDTH", "32")).launch("swapped", 1, 96, [x, 96, y, 96], device="interp")
    assert np.array_equal(y.reshape(-1, 2), x.reshape(-1, 2)[:, ::-1])


def test_parts_of_a_warp_need_the_block_size() -> None:
    text = THREADS.replace("WIDTH", "16")
    with pytest.raises(CompileError, match=r"27:5: error: expected gpu\.shuffle of all 32 lanes, or gpu\.known_block"):
        load_kernels(text)
    assert ".reqntid 64" in load_kernels(text, block=64).text


SCALARS = """\
func.func @sum(%x: tensor<f32>, %y: tensor<1x1xf32>) -> tensor<1x1xf32> {
  %e = tensor.expand_shape %x [] output_shape [1, 1] : tensor<f32> into tensor<1x1xf32>
  %o = tensor.empty() : tensor<1x1xf32>
  %s = linalg.add ins(%e, %y : tensor<1x1xf32>, tensor<1x1xf32>) outs(%o : tensor<1x1xf32>) -> tensor<1x1xf32>
  return %s : tensor<1x1xf32>
}
"""


def test_a_number_as_a_matrix_of_one_element() -> None:
    x, y = np.array(2.5, np.float32), np.array([[4.25]], np.float32)
    total = np.zeros((1, 1), np.float32)
    compile(SCALARS)(x, y, total, device="interp")
    assert total == x + y


def test_two_elements_of_a_number() -> None:
    text = """func.func @two(%x: tensor<f32>) -> tensor<1x2xf32> {
  %e = tensor.expand_shape %x [] output_shape [1, 2] : tensor<f32> into tensor<1x2xf32>
  return %e : tensor<1x2xf32>
}
"""
    with pytest.raises(CompileError, match=r"2:3: error: .*reassociation dimensions \(0\) to equal the expanded"):
        compile(text)


ROUNDS = 40
HASH = """\
func.func @hash(%x: tensor<37xi32>, %k: tensor<37xi32>) -> tensor<37xi32> {{
  %e = tensor.empty() : tensor<37xi32>
  %h = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]}} ins(%x, %k : tensor<37xi32>, tensor<37xi32>) outs(%e : tensor<37xi32>) {{
  ^bb0(%v0: i32, %k0: i32, %o: i32):
    %left = arith.constant 13 : i32
    %right = arith.constant 19 : i32
{}    linalg.yield %v{} : i32
  }} -> tensor<37xi32>
  return %h : tensor<37xi32>
}}
"""
ROUND = """\
    %a{0} = arith.shli %v{0}, %left : i32
    %b{0} = arith.shrui %v{0}, %right : i32
    %c{0} = arith.ori %a{0}, %b{0} : i32
    %v{1} = arith.xori %c{0}, %k0 : i32
"""


def test_elements_that_many_rounds_use_twice() -> None:
    """As the random numbers of JAX: a tree of what each round uses twice would have 2^40 leaves."""
    random = np.random.default_rng(9)
    x, k = (random.integers(0, 1 << 32, 37, np.uint32) for _ in range(2))
    out = np.zeros(37, np.int32)
    text = HASH.format("".join(ROUND.format(i, i + 1) for i in range(ROUNDS)), ROUNDS)
    compile(text)(x.view(np.int32), k.view(np.int32), out, device="interp")
    for _ in range(ROUNDS):
        x = (x << np.uint32(13) | x >> np.uint32(19)) ^ k
    assert np.array_equal(out.view(np.uint32), x)
