// target=sm_90a cta=64,128,64 mma=m64n64k16 in_registers=b

#mn = affine_map<(m, n) -> (m, n)>
#n = affine_map<(m, n) -> (n)>
#m = affine_map<(m, n) -> (m)>
func.func @f(%A: memref<70x80xbf16>, %B: memref<80x80xi8>, %D: memref<70x80xbf16>) {
  
  %W = warp.stored %B as s8 minus -5 : memref<80x80xi8>
  warp.matmul bf16 x bf16 %A, %W init 0.0 : bf16 into %D
      maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      : memref<70x80xbf16>, !warp.operand<memref<80x80xi8>>, memref<70x80xbf16>
  
  return
}
