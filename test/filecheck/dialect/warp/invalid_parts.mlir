// RUN: warploom-opt %s --split-input-file --verify-diagnostics

!acc = !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>

// expected-error @+2 {{warp.store_part: expected rows of memory that hold a 16x8 fragment of f32 for each warp, got memref<6x200xf32>}}
func.func @uneven(%acc: !acc, %parts: memref<6x200xf32>, %slot: index) {
  warp.store_part %acc, %parts[%slot] : !acc, memref<6x200xf32>
  return
}

// -----

!acc = !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>

// expected-error @+2 {{warp.store_part: expected rows of memory that hold a 16x8 fragment of f32 for each warp, got memref<6x256xf16>}}
func.func @other_elements(%acc: !acc, %parts: memref<6x256xf16>, %slot: index) {
  warp.store_part %acc, %parts[%slot] : !acc, memref<6x256xf16>
  return
}

// -----

!acc = !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>

// expected-error @+2 {{warp.store_part: expected a row for each part in global memory, of 2 known dimensions, got memref<6x256xf32, 3}}
func.func @shared(%acc: !acc, %parts: memref<6x256xf32, 3>, %slot: index) {
  warp.store_part %acc, %parts[%slot] : !acc, memref<6x256xf32, 3>
  return
}

// -----

!acc = !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
!wide = !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>

// expected-error-re @+2 {{warp.add_parts: expected the sum to be !warp.fragment<acc, 16x8xf32, {{.*}}>, got !warp.fragment<acc, 16x16xf32,}}
func.func @another_sum(%acc: !acc, %parts: memref<6x256xf32>, %slot: index) {
  %sum = warp.add_parts %acc, %parts[%slot] x %slot : !acc, memref<6x256xf32> -> !wide
  return
}

// -----

// expected-error @+2 {{warp.arrive_last: expected counters of i32, got memref<3xi64>}}
func.func @long_counters(%counters: memref<3xi64>, %tile: index) {
  %last = warp.arrive_last %counters[%tile] of %tile : memref<3xi64>
  return
}

// -----

// expected-error @+2 {{warp.arrive_last: expected counters in global memory, of 1 known dimension, got memref<?xi32>}}
func.func @any_counters(%counters: memref<?xi32>, %tile: index) {
  %last = warp.arrive_last %counters[%tile] of %tile : memref<?xi32>
  return
}
