// target=sm_90a

#kn = affine_map<(k, n) -> (k, n)>
#s = affine_map<(k, n) -> (n)>
func.func @f(%A: memref<21x64xf16>, %Q: memref<64x48xi8>, %S: memref<48xf16>, %C: memref<21x48xf32>) {
  %zero = arith.constant 0.0 : f32
  %W = memref.alloc() : memref<64x48xf16>
  linalg.generic {indexing_maps = [#kn, #s, #kn], iterator_types = ["parallel", "parallel"]}
      ins(%Q, %S : memref<64x48xi8>, memref<48xf16>) outs(%W : memref<64x48xf16>) {
  ^bb0(%q: i8, %s: f16, %old: f16):
    %wide = arith.extui %q : i8 to i32
    %point = arith.constant 128 : i32
    %0 = arith.subi %wide, %point : i32
    %1 = arith.sitofp %0 : i32 to f32
    %2 = arith.extf %s : f16 to f32
    %half = arith.constant 0.5 : f32
    %3 = arith.mulf %2, %half fastmath<contract> : f32
    %4 = arith.mulf %1, %half fastmath<contract> : f32
    %5 = arith.mulf %4, %2 fastmath<contract> : f32
    %w = arith.truncf %5 fastmath<contract> : f32 to f16
    linalg.yield %w : f16
  }
  linalg.fill ins(%zero : f32) outs(%C : memref<21x48xf32>)
  linalg.matmul ins(%A, %W : memref<21x64xf16>, memref<64x48xf16>) outs(%C : memref<21x48xf32>)
  memref.dealloc %W : memref<64x48xf16>
  return
}
