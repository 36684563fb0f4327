// RUN: warploom-opt %s -p "warp-fuse-epilogue{approximate=true}" | filecheck %s

// Functions and quotients may be approximated; sums and products are what they were.
// CHECK:      arith.mulf %product, %product : f32
// CHECK-NEXT: math.tanh {{.*}} fastmath<afn> : f32
// CHECK-NEXT: math.exp {{.*}} fastmath<{{.*}}nnan{{.*}}afn{{.*}}> : f32
// CHECK-NEXT: arith.divf {{.*}} fastmath<afn> : f32
func.func @f(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]} outs(%c : memref<4x6xf32>) {
  ^bb0(%x: f32):
    %0 = arith.mulf %x, %x : f32
    %1 = math.tanh %0 : f32
    %2 = math.exp %1 fastmath<nnan> : f32
    %3 = arith.divf %2, %x : f32
    linalg.yield %3 : f32
  }
  return
}
