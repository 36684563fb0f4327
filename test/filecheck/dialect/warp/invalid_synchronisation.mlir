// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{warp.atomic_inc: expected counters of i32, got memref<3xi64>}}
func.func @wide(%counters: memref<3xi64>, %i: index, %p: i1) {
  %seen = warp.atomic_inc %counters[%i] to %i if %p : memref<3xi64>
  return
}

// -----

// expected-error @+2 {{warp.atomic_inc: expected counters in global memory, of 1 known dimension, got memref<3xi32, 3 : i64>}}
func.func @shared(%counters: memref<3xi32, 3>, %i: index, %p: i1) {
  %seen = warp.atomic_inc %counters[%i] to %i if %p : memref<3xi32, 3>
  return
}

// -----

// expected-error @+2 {{warp.barrier_any: expected the number of a barrier and its threads, or neither}}
func.func @no_threads(%p: i1) {
  %any = warp.barrier_any %p {number = 7 : i64}
  return
}

// -----

// expected-error @+2 {{warp.barrier_any: expected a barrier from 1 to 15, got 0; without a number it is that of all threads}}
func.func @all_threads(%p: i1) {
  %any = warp.barrier_any %p {number = 0 : i64, threads = 256 : i64}
  return
}

// -----

// expected-error @+2 {{warp.barrier_any: expected whole warps, 32 to 1024 threads, got 33}}
func.func @odd_threads(%p: i1) {
  %any = warp.barrier_any %p {number = 7 : i64, threads = 33 : i64}
  return
}
