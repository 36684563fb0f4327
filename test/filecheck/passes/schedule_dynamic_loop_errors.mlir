// RUN: not warploom-opt %s -p "warp-set-target{arch=sm_80},warp-schedule{cta=64,64,32 ctas=8}" 2>&1 | filecheck %s
// RUN: not warploom-opt %s -p "warp-set-target{arch=sm_80},warp-schedule{cta=64,64,32 unroll=4}" 2>&1 | filecheck %s

// RUN: not warploom-opt %s -p "warp-set-target{arch=sm_80},warp-schedule{cta=64,64,32 split_k=4}" 2>&1 | filecheck %s --check-prefix=PARTS

// PARTS: error: schedule: split_k = 4: it needs static sizes; M, N or K is dynamic
// CHECK: error: schedule: unroll and ctas take a K that is known, got A of memref<64x?xf16>
func.func @dynamic(%a: memref<64x?xf16>, %b: memref<?x64xf16>, %c: memref<64x64xf32>) {
  linalg.matmul ins(%a, %b : memref<64x?xf16>, memref<?x64xf16>) outs(%c : memref<64x64xf32>)
  return
}
