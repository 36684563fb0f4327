// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

!acc = !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>

// CHECK-LABEL: func.func @registers
// CHECK: warp.store %x, %m[%i, %j] {registers = "vectors"} : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<4x256xf32, 3 : i64>
// CHECK: warp.store %x, %m[%i, %j] if %p {registers = "vectors"} : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<4x256xf32, 3 : i64>
// CHECK: %y = warp.load %m[%i, %j] {registers = "vectors"} : memref<4x256xf32, 3 : i64> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
func.func @registers(%x: !acc, %m: memref<4x256xf32, 3>, %i: index, %j: index, %p: i1) {
  warp.store %x, %m[%i, %j] {registers = "vectors"} : !acc, memref<4x256xf32, 3>
  warp.store %x, %m[%i, %j] if %p {registers = "vectors"} : !acc, memref<4x256xf32, 3>
  %y = warp.load %m[%i, %j] {registers = "vectors"} : memref<4x256xf32, 3> -> !acc
  return
}
