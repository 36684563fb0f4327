// RUN: warploom-opt %s --split-input-file --verify-diagnostics

!whole = !warp.fragment<acc, 32x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
!part = !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>

// expected-error-re @+2 {{warp.sum_sliced_k: expected the rows of !warp.fragment<acc, 32x8xf32, {{.*}}> in equal parts, got !warp.fragment<acc, 16x16xf32,}}
func.func @columns(%c: !whole, %s: memref<4x128xf32, 3>) {
  %p = warp.sum_sliced_k %c via %s : !whole, memref<4x128xf32, 3> -> !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error-re @+2 {{warp.sum_sliced_k: the 3 x 1 base tiles of !warp.fragment<acc, 48x8xf32, {{.*}}> cannot be divided among 2 slices}}
func.func @uneven(%c: !warp.fragment<acc, 48x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %s: memref<4x128xf32, 3>) {
  %p = warp.sum_sliced_k %c via %s : !warp.fragment<acc, 48x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<4x128xf32, 3> -> !warp.fragment<acc, 24x8xf32, [c1 c2 r0 r1 r2 | c0]>
  return
}

// -----

!whole = !warp.fragment<acc, 32x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
!part = !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>

// expected-error @+2 {{warp.sum_sliced_k: expected shared memory with a row of 128 registers for each warp of 2 slices, got memref<4x64xf32, 3 : i64>}}
func.func @small(%c: !whole, %s: memref<4x64xf32, 3>) {
  %p = warp.sum_sliced_k %c via %s : !whole, memref<4x64xf32, 3> -> !part
  return
}

// -----

!whole = !warp.fragment<acc, 32x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
!part = !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>

// expected-error @+2 {{warp.sum_sliced_k: expected shared memory with a row of 128 registers for each warp of 2 slices, got memref<4x128xf32>}}
func.func @global(%c: !whole, %s: memref<4x128xf32>) {
  %p = warp.sum_sliced_k %c via %s : !whole, memref<4x128xf32> -> !part
  return
}

// -----

!whole = !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>
!part = !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>

// expected-error-re @+2 {{warp.sum_sliced_k: expected more slices than the 2 parts of !warp.fragment<acc, 16x16xf32, {{.*}}>, got 2}}
func.func @not_more(%c: !whole, %s: memref<2x128xf32, 3>) {
  %p = warp.sum_sliced_k %c via %s {slices = 2 : i64} : !whole, memref<2x128xf32, 3> -> !part
  return
}

// -----

!whole = !warp.fragment<acc, 16x24xf32, [c1 c2 r0 r1 r2 | c0 r3]>
!part = !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>

// expected-error-re @+2 {{warp.sum_sliced_k: the 1 x 3 base tiles of !warp.fragment<acc, 16x24xf32, {{.*}}> cannot be divided among 4 slices}}
func.func @no_multiple(%c: !whole, %s: memref<3x384xf32, 3>) {
  %p = warp.sum_sliced_k %c via %s {slices = 4 : i64} : !whole, memref<3x384xf32, 3> -> !part
  return
}

// -----

!whole = !warp.fragment<acc, 48x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
!part = !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>

// expected-error @+2 {{warp.sum_sliced_k: expected a power of two of slices, got 3}}
func.func @no_power_of_two(%c: !whole, %s: memref<3x256xf32, 3>) {
  %p = warp.sum_sliced_k %c via %s : !whole, memref<3x256xf32, 3> -> !part
  return
}
