"""Warp specialisation in `warp`: branches by role and elected lanes, lowered and run under all checks."""

from __future__ import annotations

import numpy as np
import pytest
from lowered import lowered_text

from warploom.runtime import TensorMap, check_ptx, load_ptx
from warploom.runtime.interp.watch.findings import CheckError

STAGES, STEPS, N = 2, 5, 40
KERNEL = """
!acc = !warp.fragment<acc, 64x40xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
!a = memref<2x64x64xf16, #warp.swizzle<128>, 3>
!b = memref<2x40x64xf16, #warp.swizzle<128>, 3>
!map_a = !warp.tensor_map<64x64xf16, swizzle 128>
!map_b = !warp.tensor_map<40x64xf16, swizzle 128>
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = (!map_a, !map_b, memref<64x40xf32>) -> (), kernel}> ({
^bb0(%A: !map_a, %B: !map_b, %C: memref<64x40xf32>):
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %c16 = arith.constant 16 : index
  %c32 = arith.constant 32 : index
  %c48 = arith.constant 48 : index
  %c64 = arith.constant 64 : index
  %steps = arith.constant 5 : index
  %As = memref.alloc() : !a
  %Bs = memref.alloc() : !b
  %full = warp.make_barriers {arrivals = 1 : i64} : !warp.barriers<2>
  %empty = warp.make_barriers {arrivals = 4 : i64} : !warp.barriers<2>
  warp.fence async_proxy
  "gpu.barrier"() : () -> ()
  %warp = "gpu.subgroup_id"() : () -> index
  %producer = arith.cmpi uge, %warp, %c4 : index
  scf.if %producer {
    nvvm.setmaxregister decrease 24
    %first = arith.cmpi eq, %warp, %c4 : index
    scf.if %first {
      %chosen = nvvm.elect.sync -> i1
      scf.if %chosen {
        scf.for %i = %c0 to %steps step %c1 {
          %s = arith.remui %i, %c2 : index
          %turn = arith.divui %i, %c2 : index
          %phase = arith.addi %turn, %c1 : index
          %parity = arith.remui %phase, %c2 : index
          %k = arith.muli %i, %c64 : index
          %wait = arith.cmpi uge, %i, %c2 : index
          scf.if %wait {
            warp.await %empty[%s] parity %parity : !warp.barriers<2>
          }
          warp.arrive %full[%s] {bytes = 13312 : i64} : !warp.barriers<2>
          warp.tensor_load %A[%c0, %k] to %As[%s, %c0, %c0], %full[%s] : !map_a to !a, !warp.barriers<2>
          warp.tensor_load %B[%c0, %k] to %Bs[%s, %c0, %c0], %full[%s] : !map_b to !b, !warp.barriers<2>
        }
      }
    }
  } else {
    nvvm.setmaxregister increase 240
    %zero = warp.constant 0.0 : f32 : !acc
    %sum = scf.for %i = %c0 to %steps step %c1 iter_args(%c = %zero) -> (!acc) {
      %s = arith.remui %i, %c2 : index
      %turn = arith.divui %i, %c2 : index
      %parity = arith.remui %turn, %c2 : index
      warp.await %full[%s] parity %parity : !warp.barriers<2>
      warp.fence wgmma
      %d0 = warp.wgmma %As[%s, %c0, %c0], %Bs[%s, %c0, %c0], %c : !a, !b, !acc
      %d1 = warp.wgmma %As[%s, %c0, %c16], %Bs[%s, %c0, %c16], %d0 : !a, !b, !acc
      %d2 = warp.wgmma %As[%s, %c0, %c32], %Bs[%s, %c0, %c32], %d1 : !a, !b, !acc
      %d3 = warp.wgmma %As[%s, %c0, %c48], %Bs[%s, %c0, %c48], %d2 : !a, !b, !acc
      warp.commit wgmma
      RELEASE
      scf.yield %d3 : !acc
    }
    warp.store %sum, %C[%c0, %c0] {in_bounds = [true, true]} : !acc, memref<64x40xf32>
  }
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 256, 1, 1>} : () -> ()
}) : () -> ()
}
"""
WAIT, ARRIVE = "warp.wait wgmma 0", "warp.arrive %empty[%s] : !warp.barriers<2>"


def run(*release: str) -> tuple[np.ndarray, np.ndarray]:
    """What the kernel computes, and what it should."""
    ptx = lowered_text(KERNEL.replace("RELEASE", "\n".join(release)))
    assert check_ptx(ptx) == []
    random = np.random.default_rng(11)
    a, b = (random.standard_normal((rows, 64 * STEPS)).astype(np.float16) for rows in (64, N))
    c = np.full((64, N), np.nan, np.float32)
    maps = [TensorMap(m, (len(m), 64), swizzle=128) for m in (a, b)]
    load_ptx(ptx, "k.ptx").launch("k", 1, 256, [*maps, c], shared=40000, device="interp", checks="all")
    return c, a.astype(np.float64) @ b.astype(np.float64).T


def test_producer_and_consumers() -> None:
    computed, expected = run(WAIT, ARRIVE)
    # 320 products below 16 in magnitude, each sum rounded to 24 bits
    assert np.max(np.abs(computed - expected)) < 320 * 16 * 2**-23


def test_a_stage_that_is_released_too_early_is_found() -> None:
    with pytest.raises(CheckError, match="wgmma"):
        run(ARRIVE, WAIT)


CLUSTER = """
!acc = !warp.fragment<acc, 64x48xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
!a = memref<2x64x64xf16, #warp.swizzle<128>, 3>
!b = memref<2x48x64xf16, #warp.swizzle<128>, 3>
!map_a = !warp.tensor_map<64x64xf16, swizzle 128>
!map_b = !warp.tensor_map<24x64xf16, swizzle 128>
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = (!map_a, !map_b, memref<256x48xf32>) -> (), kernel}> ({
^bb0(%A: !map_a, %B: !map_b, %C: memref<256x48xf32>):
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c16 = arith.constant 16 : index
  %c24 = arith.constant 24 : index
  %c32 = arith.constant 32 : index
  %c48 = arith.constant 48 : index
  %c64 = arith.constant 64 : index
  %steps = arith.constant 5 : index
  %As = memref.alloc() : !a
  %Bs = memref.alloc() : !b
  %full = warp.make_barriers {arrivals = 1 : i64} : !warp.barriers<2>
  %empty = warp.make_barriers {arrivals = 2 : i64} : !warp.barriers<2>
  warp.fence async_proxy
  warp.barrier cluster {arrive}
  %warp = "gpu.subgroup_id"() : () -> index
  %block = "gpu.block_id"() <{dimension = #gpu<dim x>}> : () -> index
  %row = arith.muli %block, %c64 : index
  %rank = gpu.cluster_block_id x
  %share = arith.muli %rank, %c24 : index
  warp.barrier cluster {wait}
  %producer = arith.cmpi uge, %warp, %c4 : index
  scf.if %producer {
    %chosen = nvvm.elect.sync -> i1
    %fifth = arith.cmpi eq, %warp, %c4 : index
    %mine = arith.andi %chosen, %fifth : i1
    scf.if %mine {
      scf.for %i = %c0 to %steps step %c1 {
        %s = arith.remui %i, %c2 : index
        %turn = arith.divui %i, %c2 : index
        %phase = arith.addi %turn, %c1 : index
        %parity = arith.remui %phase, %c2 : index
        %k = arith.muli %i, %c64 : index
        warp.await %empty[%s] parity %parity : !warp.barriers<2>
        warp.arrive %full[%s] {bytes = 14336 : i64} : !warp.barriers<2>
        warp.tensor_load %A[%row, %k] to %As[%s, %c0, %c0], %full[%s] : !map_a to !a, !warp.barriers<2>
        warp.tensor_load %B[%share, %k] to %Bs[%s, %share, %c0], %full[%s] multicast %c3 :
          !map_b to !b, !warp.barriers<2>
      }
    }
  } else {
    %zero = warp.constant 0.0 : f32 : !acc
    %first = arith.cmpi eq, %warp, %c0 : index
    %sum = scf.for %i = %c0 to %steps step %c1 iter_args(%c = %zero) -> (!acc) {
      %s = arith.remui %i, %c2 : index
      %turn = arith.divui %i, %c2 : index
      %parity = arith.remui %turn, %c2 : index
      warp.await %full[%s] parity %parity : !warp.barriers<2>
      warp.fence wgmma
      %d0 = warp.wgmma %As[%s, %c0, %c0], %Bs[%s, %c0, %c0], %c : !a, !b, !acc
      %d1 = warp.wgmma %As[%s, %c0, %c16], %Bs[%s, %c0, %c16], %d0 : !a, !b, !acc
      %d2 = warp.wgmma %As[%s, %c0, %c32], %Bs[%s, %c0, %c32], %d1 : !a, !b, !acc
      %d3 = warp.wgmma %As[%s, %c0, %c48], %Bs[%s, %c0, %c48], %d2 : !a, !b, !acc
      warp.commit wgmma
      warp.wait wgmma 0
      warp.barrier cta[%c1] {threads = 128 : i64}
      scf.if %first {
        RELEASE
      }
      scf.yield %d3 : !acc
    }
    warp.store %sum, %C[%row, %c0] {in_bounds = [true, true]} : !acc, memref<256x48xf32>
  }
  warp.barrier cluster
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 256, 1, 1>, gpu.known_cluster_size = array<i32: 2, 1, 1>} :
  () -> ()
}) : () -> ()
}
"""
BOTH = "scf.for %cta = %c0 to %c2 step %c1 { warp.arrive %empty[%s] at %cta : !warp.barriers<2> }"
TWICE = "warp.arrive %empty[%s] at %rank : !warp.barriers<2>\nwarp.arrive %empty[%s] : !warp.barriers<2>"


def run_cluster(release: str) -> tuple[np.ndarray, np.ndarray]:
    """Two clusters of two CTAs, each of which copies its half of B to both."""
    ptx = lowered_text(CLUSTER.replace("RELEASE", release))
    assert check_ptx(ptx) == []
    random = np.random.default_rng(12)
    a, b = (random.standard_normal((rows, 64 * STEPS)).astype(np.float16) for rows in (256, 48))
    c = np.full((256, 48), np.nan, np.float32)
    maps = [TensorMap(a, (64, 64), swizzle=128), TensorMap(b, (24, 64), swizzle=128)]
    load_ptx(ptx, "k.ptx").launch("k", 4, 256, [*maps, c], shared=40000, device="interp", checks="all")
    return c, a.astype(np.float64) @ b.astype(np.float64).T


def test_a_cluster_shares_its_operands() -> None:
    computed, expected = run_cluster(BOTH)
    assert np.max(np.abs(computed - expected)) < 320 * 16 * 2**-23


def test_a_stage_that_is_released_to_one_cta_twice_is_found() -> None:
    with pytest.raises(CheckError, match="wgmma"):
        run_cluster(TWICE)
