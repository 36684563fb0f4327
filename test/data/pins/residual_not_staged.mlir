// target=sm_90a cta=128,256,64 mma=m64n256k16 stages=3

#mn = affine_map<(m, n) -> (m, n)>
func.func @f(%A: memref<256x256xbf16>, %B: memref<256x256xbf16>, %R: memref<256x256xbf16>, %S: memref<256x256xbf16>, %D: memref<256x256xbf16>) {
  %zero = arith.constant 0.0 : f32
  %T = memref.alloc() : memref<256x256xf32>
  linalg.fill ins(%zero : f32) outs(%T : memref<256x256xf32>)
  linalg.matmul ins(%A, %B : memref<256x256xbf16>, memref<256x256xbf16>) outs(%T : memref<256x256xf32>)
  linalg.generic {indexing_maps = [#mn, #mn, #mn, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%T, %R, %S : memref<256x256xf32>, memref<256x256xbf16>, memref<256x256xbf16>) outs(%D : memref<256x256xbf16>) {
  ^bb0(%p: f32, %r: bf16, %s: bf16, %old: bf16):
    %both = arith.addf %r, %s : bf16
    %wide = arith.extf %both : bf16 to f32
    %sum = arith.addf %p, %wide : f32
    %y = arith.truncf %sum : f32 to bf16
    linalg.yield %y : bf16
  }
  memref.dealloc %T : memref<256x256xf32>
  return
}
