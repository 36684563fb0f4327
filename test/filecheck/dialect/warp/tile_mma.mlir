// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

!acc = !warp.fragment<acc, 32x32xf32, [c1 c2 r0 r1 r2 | c0 r3]>

// Groups along k of integers that are converted have scales in memory, and the K tile begins at k and n of it.
// CHECK-LABEL: func.func @groups
func.func @groups(%A: memref<64x64xf16, 3>, %B: memref<64x64xi8, 3>, %S: memref<8x96xf32>, %z: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %C: memref<64x96xf32>, %k: index) {
  %b = warp.stored %B as s8 : memref<64x64xi8, 3>
  // CHECK: warp.tile_mma %A, %b, %z part[%k, %k, %k] {types = ["f16", "f16"], group = 32 : i64} : {{.*}} times %S[%k, %k] : memref<8x96xf32>
  %d = warp.tile_mma %A, %b, %z part [%k, %k, %k] {types = ["f16", "f16"], group = 32 : i64}
    : memref<64x64xf16, 3>, !warp.operand<memref<64x64xi8, 3>>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]> times %S[%k, %k] : memref<8x96xf32>
  warp.epilogue %d into %C[%k, %k] : !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<64x96xf32>
  return
}

// A part of a warp; operands have the tiles of metadata and of scales.
// CHECK-LABEL: func.func @parts
func.func @parts(%P: !warp.fragment<a, 32x64xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %A: memref<64x32xf16, 3>, %B: memref<64x64xf16, 3>, %E: memref<4x64xi32, 3>, %X: memref<64x64xf4E2M1FN, 3>,
                 %SX: memref<64x2xf8E8M0FNU, 3>, %acc: !acc, %m: index) {
  // CHECK-NEXT: %s = warp.sparse %A, %E {padded} : memref<64x32xf16, 3 : i64>, memref<4x64xi32, 3 : i64>
  %s = warp.sparse %A, %E {padded} : memref<64x32xf16, 3>, memref<4x64xi32, 3>
  // CHECK-NEXT: warp.tile_mma %s, %B, %acc part[%m, %m, %m] {types = ["f16", "f16"]} : !warp.operand<memref<64x32xf16, 3 : i64>>, memref<64x64xf16, 3 : i64>, !warp.fragment<
  %1 = warp.tile_mma %s, %B, %acc part [%m, %m, %m] {types = ["f16", "f16"]}
    : !warp.operand<memref<64x32xf16, 3>>, memref<64x64xf16, 3>, !acc
  // CHECK-NEXT: warp.tile_mma %P, %B, %acc part[%m, %m, %m] {types = ["f16", "f16"]} : !warp.fragment<a, 32x64xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, memref<64x64xf16, 3 : i64>, !warp.fragment<
  %held = warp.tile_mma %P, %B, %acc part [%m, %m, %m] {types = ["f16", "f16"]}
    : !warp.fragment<a, 32x64xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, memref<64x64xf16, 3>, !acc
  // CHECK-NEXT: %x = warp.scaled %X, %SX : memref<64x64xf4E2M1FN, 3 : i64>, memref<64x2xf8E8M0FNU, 3 : i64>
  %x = warp.scaled %X, %SX : memref<64x64xf4E2M1FN, 3>, memref<64x2xf8E8M0FNU, 3>
  // CHECK-NEXT: warp.tile_mma %x, %x, %{{.*}} part[%m, %m, %m] {{{.*}}transposed_b{{.*}}} : !warp.operand<memref<64x64xf4E2M1FN, 3 : i64>>, !warp.operand<memref<64x64xf4E2M1FN, 3 : i64>>, !warp.fragment<
  %2 = warp.tile_mma %x, %x, %1 part [%m, %m, %m] {types = ["e2m1", "e2m1"], kind = "mxf4", transposed_b}
    : !warp.operand<memref<64x64xf4E2M1FN, 3>>, !warp.operand<memref<64x64xf4E2M1FN, 3>>, !acc
  return
}

// CHECK-LABEL: func.func @epilogue
func.func @epilogue(%acc: !acc, %C: memref<96x64xf16>, %D: memref<96x64xf32>, %bias: memref<64xf32>, %x: f32, %m: index) {
  // CHECK-NEXT: %epilogue = warp.pointwise %bias, %D, %x maps [affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ()>] : memref<64xf32>, memref<96x64xf32>, f32 (%a: f32, %b: f32, %c: f32, %d: f32) {
  // CHECK-NEXT:   %row = warp.index 0 : i32
  // CHECK-NEXT:   %r = arith.sitofp %row : i32 to f32
  // CHECK-NEXT:   %s = arith.addf %r, %b : f32
  // CHECK-NEXT:   warp.yield %s : f32
  // CHECK-NEXT: }
  // CHECK-NEXT: warp.epilogue %acc plus %C into %D[%m, %m] through %epilogue {in_bounds = [true, true]} : !warp.fragment<{{.*}}>, memref<96x64xf32> plus memref<96x64xf16>
  %epilogue = warp.pointwise %bias, %D, %x maps [affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> ()>] : memref<64xf32>, memref<96x64xf32>, f32 (%a: f32, %b: f32, %c: f32, %d: f32) {
    %row = warp.index 0 : i32
    %r = arith.sitofp %row : i32 to f32
    %s = arith.addf %r, %b : f32
    warp.yield %s : f32
  }
  warp.epilogue %acc plus %C into %D[%m, %m] through %epilogue {in_bounds = [true, true]}
    : !acc, memref<96x64xf32> plus memref<96x64xf16>
  return
}
