// What passes leave as it is, they say on stderr when asked: where, and why.
// RUN: warploom-opt %s --remarks -p warp-fold-fill,warp-fuse-epilogue,warp-schedule{stages=1},warp-outline,warp-tile,warp-pipeline -o /dev/null 2>&1 | filecheck %s
// RUN: warploom-opt %s -p warp-fold-fill,warp-fuse-epilogue -o /dev/null 2>&1 | filecheck %s --check-prefix=SILENT --allow-empty
// SILENT-NOT: remark

#mn = affine_map<(m, n) -> (m, n)>
#nm = affine_map<(m, n) -> (n, m)>
builtin.module attributes {warp.target = #warp.target<sm_80>} {

func.func @f(%A: memref<32x32xf16>, %B: memref<32x32xf16>, %C: memref<32x32xf32>, %D: memref<32x32xf32>, %x: f32) {
  %zero = arith.constant 0.0 : f32
  // CHECK-DAG: remarks.mlir:[[# @LINE + 1]]:3: remark: warp-fold-fill: it is not folded into the product that adds to what it writes: linalg.fill between its operations uses its result
  linalg.fill ins(%zero : f32) outs(%C : memref<32x32xf32>)
  linalg.fill ins(%zero : f32) outs(%C : memref<32x32xf32>)
  // CHECK-DAG: remarks.mlir:[[# @LINE + 1]]:3: remark: warp-pipeline: copies do not run ahead: stages = 1, so that no copy can run ahead
  linalg.matmul ins(%A, %B : memref<32x32xf16>, memref<32x32xf16>) outs(%C : memref<32x32xf32>)
  // CHECK-DAG: remarks.mlir:[[# @LINE + 1]]:3: remark: warp-fuse-epilogue: it is not fused with the product whose result it reads: it reads the product's result in another order than it is written
  linalg.generic {indexing_maps = [#nm, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%C : memref<32x32xf32>) outs(%D : memref<32x32xf32>) {
  ^bb0(%c: f32, %d: f32):
    linalg.yield %c : f32
  }
  return
}

func.func @within(%A: memref<32x32xf16>, %m: memref<64x32xf32>) {
  %x = memref.subview %m[0, 0] [32, 32] [1, 1] : memref<64x32xf32> to memref<32x32xf32, strided<[32, 1], offset: ?>>
  %y = memref.subview %m[32, 0] [32, 32] [1, 1] : memref<64x32xf32> to memref<32x32xf32, strided<[32, 1], offset: ?>>
  // CHECK-DAG: remarks.mlir:[[# @LINE + 1]]:3: remark: warp-fold-fill: it is not folded into the product that adds to what it writes: it copies within one memory
  linalg.copy ins(%x : memref<32x32xf32, strided<[32, 1], offset: ?>>) outs(%y : memref<32x32xf32, strided<[32, 1], offset: ?>>)
  linalg.matmul ins(%A, %A : memref<32x32xf16>, memref<32x32xf16>) outs(%y : memref<32x32xf32, strided<[32, 1], offset: ?>>)
  return
}
}
