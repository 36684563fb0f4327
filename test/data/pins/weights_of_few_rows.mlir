// target=sm_90a cta=16,64,256 mma=m64n16k16 in_registers=b sliced_k=2

func.func @f(%A: memref<12x832xbf16>, %B: memref<136x832xi4>, %S: memref<136x13xbf16>, %D: memref<12x136xbf16>) {
  %W = warp.stored %B as u4 minus 8 rounded times %S : memref<136x832xi4>, memref<136x13xbf16>
  warp.matmul bf16 x bf16 %A, %W init 0.0 : bf16 into %D
      maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      : memref<12x832xbf16>, !warp.operand<memref<136x832xi4>>, memref<12x136xbf16>
  return
}
