// D = gelu(A B + bias), bf16: a product in f32, a bias for each column, and gelu by tanh, rounded once. Both operations after
// the product are fused into its kernel; the temporary %T is never stored. docs/epilogues.md says what else can be.
#mn = affine_map<(m, n) -> (m, n)>
#n = affine_map<(m, n) -> (n)>

func.func @matmul_bias_gelu(%A: memref<200x300xbf16>, %B: memref<300x250xbf16>, %bias: memref<250xf32>,
                            %D: memref<200x250xbf16>) {
  %zero = arith.constant 0.0 : f32
  %T = memref.alloc() : memref<200x250xf32>
  linalg.fill ins(%zero : f32) outs(%T : memref<200x250xf32>)
  linalg.matmul ins(%A, %B : memref<200x300xbf16>, memref<300x250xbf16>) outs(%T : memref<200x250xf32>)
  linalg.generic {indexing_maps = [#n, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%bias : memref<250xf32>) outs(%T : memref<200x250xf32>) {
  ^bb0(%b: f32, %x: f32):
    %sum = arith.addf %x, %b : f32
    linalg.yield %sum : f32
  }
  linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%T : memref<200x250xf32>) outs(%D : memref<200x250xbf16>) {
  ^bb0(%x: f32, %old: bf16):
    %c0 = arith.constant 0.7978845608 : f32  // sqrt(2 / pi)
    %c1 = arith.constant 0.044715 : f32
    %half = arith.constant 0.5 : f32
    %one = arith.constant 1.0 : f32
    %0 = arith.mulf %x, %x : f32
    %1 = arith.mulf %0, %c1 : f32
    %2 = math.fma %1, %x, %x : f32
    %3 = arith.mulf %2, %c0 : f32
    %4 = math.tanh %3 : f32
    %5 = arith.addf %4, %one : f32
    %6 = arith.mulf %x, %half : f32
    %7 = arith.mulf %6, %5 : f32
    %8 = arith.truncf %7 : f32 to bf16
    linalg.yield %8 : bf16
  }
  memref.dealloc %T : memref<200x250xf32>
  return
}
