// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

// CHECK-LABEL: func.func @bias_scale_residual
func.func @bias_scale_residual(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %x: memref<6xf32>, %alpha: f32, %c: memref<4x6xbf16>, %d: memref<4x6xf16>) {
  // CHECK-NEXT: %f = warp.pointwise %x, %alpha, %c maps
  // CHECK-SAME: [affine_map<(d0, d1, d2) -> (d1)>, affine_map<(d0, d1, d2) -> ()>, affine_map<(d0, d1, d2) -> (d0, d1)>]
  // CHECK-SAME: {tag} : memref<6xf32>, f32, memref<4x6xbf16> (%p: f32, %q: f32, %s: f32, %r: bf16) {
  // CHECK-NEXT:   %0 = arith.addf %p, %q : f32
  // CHECK-NEXT:   %1 = arith.mulf %0, %s : f32
  // CHECK-NEXT:   %2 = arith.extf %r : bf16 to f32
  // CHECK-NEXT:   %3 = arith.addf %1, %2 : f32
  // CHECK-NEXT:   %4 = arith.truncf %3 : f32 to f16
  // CHECK-NEXT:   warp.yield %4 : f16
  // CHECK-NEXT: }
  %f = warp.pointwise %x, %alpha, %c maps [affine_map<(m, n, k) -> (n)>, affine_map<(m, n, k) -> ()>, affine_map<(m, n, k) -> (m, n)>] {tag}
      : memref<6xf32>, f32, memref<4x6xbf16> (%p: f32, %q: f32, %s: f32, %r: bf16) {
    %0 = arith.addf %p, %q : f32
    %1 = arith.mulf %0, %s : f32
    %2 = arith.extf %r : bf16 to f32
    %3 = arith.addf %1, %2 : f32
    %4 = arith.truncf %3 : f32 to f16
    warp.yield %4 : f16
  }
  // CHECK-NEXT: warp.matmul f16 x f16 %a, %b init 0.000000e+00 : f32 into %d through %f {note} : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf16>
  warp.matmul f16 x f16 %a, %b init 0.0 : f32 into %d through %f {note} : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf16>
  return
}

// D as an epilogue operand; an epilogue without epilogue operands, for two products.
// CHECK-LABEL: func.func @others
func.func @others(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  // CHECK-NEXT: %f = warp.pointwise %c maps [affine_map<(d0, d1, d2) -> (d0, d1)>] : memref<4x6xf32> (%p: f16, %q: f32) {
  %f = warp.pointwise %c maps [affine_map<(m, n, k) -> (m, n)>] : memref<4x6xf32> (%p: f16, %q: f32) {
    warp.yield %q : f32
  }
  // CHECK: warp.matmul f16 x f16 %a, %b init 0.000000e+00 : f16 into %c through %f :
  warp.matmul f16 x f16 %a, %b init 0.0 : f16 into %c through %f : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32>
  // CHECK-NEXT: %g = warp.pointwise (%{{.*}}: f32) {
  %g = warp.pointwise (%p: f32) {
    %0 = arith.negf %p : f32
    warp.yield %0 : f32
  }
  // CHECK: warp.matmul f16 x f16 %a, %b plus %c into %c through %g : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32> plus memref<4x6xf32>
  warp.matmul f16 x f16 %a, %b plus %c into %c through %g : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32> plus memref<4x6xf32>
  // CHECK-NEXT: warp.matmul f16 x f16 %a, %b plus %c into %c through %g :
  warp.matmul f16 x f16 %a, %b plus %c into %c through %g : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32> plus memref<4x6xf32>
  return
}
