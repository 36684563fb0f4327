// RUN: warploom-opt %s -p "warp-set-target{arch=sm_75},warp-schedule" | filecheck %s

// sm_75 has the shorter instruction only, and 64 KiB of shared memory.
// CHECK: #warp.schedule<cta = {{.*}}, mma = m16n8k8, stages = {{.*}}, swizzle = 128, group = 8, accumulate = f32>
func.func @f(%a: memref<4096x4096xf16>, %b: memref<4096x4096xf16>, %c: memref<4096x4096xf32>) {
  linalg.matmul ins(%a, %b : memref<4096x4096xf16>, memref<4096x4096xf16>) outs(%c : memref<4096x4096xf32>)
  return
}
