// target=sm_100a cta=128,64,256 mma=m128n32k64 ctas=2

func.func @f(%A: memref<140x320xf4E2M1FN>, %SA: memref<140x20xf8E4M3FN>, %B: memref<90x320xf4E2M1FN>, %SB: memref<90x20xf8E4M3FN>, %C: memref<140x90xf32>) {
  %a = warp.scaled %A, %SA : memref<140x320xf4E2M1FN>, memref<140x20xf8E4M3FN>
  %b = warp.scaled %B, %SB : memref<90x320xf4E2M1FN>, memref<90x20xf8E4M3FN>
  warp.matmul mxf4nvf4 e2m1 x e2m1 %a, %b init 0.0 : f32 into %C
    maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
    : !warp.operand<memref<140x320xf4E2M1FN>>, !warp.operand<memref<90x320xf4E2M1FN>>, memref<140x90xf32>
  return
}
