// Floats of four bits with a scale for each sixteen of a row of A, or of a column of B: NVFP4.
//
// C = (A * scales) * (B * scales). Targets of sm_120a have the instruction; without such a GPU it runs on the CPU:
//   warploom run examples/block_scaled_matmul.mlir --target sm_120a --device interp --check

func.func @nvfp4(%A: memref<100x320xf4E2M1FN>, %scalesA: memref<100x20xf8E4M3FN>,
                 %B: memref<75x320xf4E2M1FN>, %scalesB: memref<75x20xf8E4M3FN>, %C: memref<100x75xf32>) {
  %a = warp.scaled %A, %scalesA : memref<100x320xf4E2M1FN>, memref<100x20xf8E4M3FN>
  %b = warp.scaled %B, %scalesB : memref<75x320xf4E2M1FN>, memref<75x20xf8E4M3FN>
  warp.matmul mxf4nvf4 e2m1 x e2m1 %a, %b init 0.0 : f32 into %C
    maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
    : !warp.operand<memref<100x320xf4E2M1FN>>, !warp.operand<memref<75x320xf4E2M1FN>>, memref<100x75xf32>
  return
}
