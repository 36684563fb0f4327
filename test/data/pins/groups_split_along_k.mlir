// target=sm_90a cta=16,64,32 warp=16,32 stages=2 split_k=3

func.func @f(%A: memref<18x192xf16>, %B: memref<192x56xi4>, %S: memref<3x56xf16>, %D: memref<18x56xf32>) {
  %W = warp.stored %B as u4 minus 3 times %S : memref<192x56xi4>, memref<3x56xf16>
  warp.matmul f16 x f16 %A, %W init 0.0 : f32 into %D
      maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>,
            affine_map<(m, n, k) -> (m, n)>]
      : memref<18x192xf16>, !warp.operand<memref<192x56xi4>>, memref<18x56xf32>
  return
}
