// target=sm_90a cta=16,64,128 warp=16,64 sliced_k=2 stages=2

func.func @f(%A: memref<18x192xbf16>, %B: memref<56x192xi4>, %S: memref<56x3xf32>, %D: memref<18x56xf32>) {
  %W = warp.stored %B as u4 minus 3 times %S : memref<56x192xi4>, memref<56x3xf32>
  warp.matmul bf16 x bf16 %A, %W init 0.0 : f32 into %D
      maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
            affine_map<(m, n, k) -> (m, n)>]
      : memref<18x192xbf16>, !warp.operand<memref<56x192xi4>>, memref<18x56xf32>
  return
}
