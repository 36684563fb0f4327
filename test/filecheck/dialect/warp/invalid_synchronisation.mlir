// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{warp.arrive_last: expected counters of i32, got memref<3xi64>}}
func.func @wide(%counters: memref<3xi64>, %i: index) {
  %last = warp.arrive_last %counters[%i] of %i : memref<3xi64>
  return
}

// -----

// expected-error @+2 {{warp.arrive_last: expected counters in global memory, of 1 known dimension, got memref<3xi32, 3 : i64>}}
func.func @shared(%counters: memref<3xi32, 3>, %i: index) {
  %last = warp.arrive_last %counters[%i] of %i : memref<3xi32, 3>
  return
}

// -----

// expected-error @+2 {{warp.barrier: expected the number of a barrier and its threads, or neither}}
func.func @no_threads(%i: index) {
  warp.barrier cta[%i]
  return
}

// -----

// expected-error @+2 {{warp.barrier: expected whole warps, 32 to 1024 threads, got 33}}
func.func @odd_threads(%i: index) {
  warp.barrier cta[%i] {threads = 33 : i64}
  return
}

// -----

// expected-error @+2 {{warp.barrier: expected the number of a barrier; gpu.barrier is that of all threads}}
func.func @no_number() {
  warp.barrier cta
  return
}

// -----

// expected-error @+2 {{warp.barrier: expected a scope of cta, cluster, got 'grid'}}
func.func @scope() {
  warp.barrier grid
  return
}

// -----

// expected-error @+2 {{warp.barrier: a barrier of a cta has no 'mbarriers'}}
func.func @mbarriers_of_a_cta(%i: index) {
  warp.barrier cta[%i] {threads = 64 : i64, mbarriers}
  return
}

// -----

// expected-error @+2 {{warp.barrier: expected one of arrive, wait, got arrive and wait}}
func.func @halves() {
  warp.barrier cluster {arrive, wait}
  return
}

// -----

// expected-error @+2 {{warp.commit: expected a group of cp_async, bulk, wgmma, launches, got 'mma'}}
func.func @group() {
  warp.commit mma
  return
}

// -----

// expected-error @+2 {{warp.wait: only groups of bulk take 'read', got cp_async}}
func.func @read() {
  warp.wait cp_async 0 {read}
  return
}

// -----

// expected-error @+2 {{warp.fence: expected a fence of wgmma, async_proxy, before_thread_sync, after_thread_sync, arithmetic, got 'mma'}}
func.func @fence() {
  warp.fence mma
  return
}

// -----

// expected-error @+2 {{warp.arrive: expected one of copies, products, bytes, got copies and bytes}}
func.func @copies_and_bytes(%b: !warp.barriers<1>, %i: index) {
  warp.arrive %b[%i] {copies, bytes = 16 : i64} : !warp.barriers<1>
  return
}
