// target=sm_90a cta=16,32,64 warp=16,16 sliced_k=4 stages=2

#kn = affine_map<(k, n) -> (k, n)>
#s = affine_map<(k, n) -> (n)>
func.func @f(%A: memref<21x64xf16>, %Q: memref<64x48xi8>, %S: memref<48xf16>, %C: memref<21x48xf32>) {
  %zero = arith.constant 0.0 : f32
  %W = memref.alloc() : memref<64x48xf16>
  linalg.generic {indexing_maps = [#kn, #s, #kn], iterator_types = ["parallel", "parallel"]}
      ins(%Q, %S : memref<64x48xi8>, memref<48xf16>) outs(%W : memref<64x48xf16>) {
  ^bb0(%q: i8, %s: f16, %old: f16):
    %0 = arith.sitofp %q : i8 to f16
    %w = arith.mulf %s, %0 : f16
    linalg.yield %w : f16
  }
  
  linalg.matmul ins(%A, %W : memref<21x64xf16>, memref<64x48xf16>) outs(%C : memref<21x48xf32>)
  memref.dealloc %W : memref<64x48xf16>
  return
}
