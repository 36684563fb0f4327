// target=sm_90a in=x=random:5x40 in=w=random:40 in=b=random:40 in=y=random:5x40

#mn = affine_map<(m, n) -> (m, n)>
#m = affine_map<(m, n) -> (m)>
#n = affine_map<(m, n) -> (n)>
#row = affine_map<(m) -> (m)>
func.func @f(%x: memref<?x?xbf16>, %w: memref<?xbf16>, %b: memref<?xf32>, %s: f32, %y: memref<?x?xbf16>) {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %length = arith.constant 40.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %rows = memref.dim %x, %c0 : memref<?x?xbf16>
  %columns = memref.dim %x, %c1 : memref<?x?xbf16>
  %total = memref.alloc(%rows) : memref<?xf32>
  %apart = memref.alloc(%rows, %columns) : memref<?x?xf32>
  linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%x : memref<?x?xbf16>) outs(%apart : memref<?x?xf32>) {
  ^bb0(%a: bf16, %old: f32):
    %r = arith.extf %a : bf16 to f32
    linalg.yield %r : f32
  }

  linalg.fill ins(%zero : f32) outs(%total : memref<?xf32>)
  linalg.generic {indexing_maps = [#mn, #m], iterator_types = ["parallel", "reduction"]}
      ins(%apart : memref<?x?xf32>) outs(%total : memref<?xf32>) {
  ^bb0(%a: f32, %old: f32):
    %0 = arith.mulf %a, %a : f32
    %r = arith.addf %old, %0 : f32
    linalg.yield %r : f32
  }
  linalg.generic {indexing_maps = [#row], iterator_types = ["parallel"]} outs(%total : memref<?xf32>) {
  ^bb0(%sum: f32):
    %0 = arith.divf %sum, %length : f32
    %1 = arith.addf %0, %s : f32
    %r = math.rsqrt %1 : f32
    linalg.yield %r : f32
  }
  linalg.generic {indexing_maps = [#mn, #m, #n, #n, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%apart, %total, %w, %b : memref<?x?xf32>, memref<?xf32>, memref<?xbf16>, memref<?xf32>)
      outs(%y : memref<?x?xbf16>) {
  ^bb0(%a: f32, %scale: f32, %weight: bf16, %bias: f32, %old: bf16):
    %0 = arith.mulf %a, %scale : f32
    %1 = arith.extf %weight : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %2, %bias : f32
    %r = arith.truncf %3 : f32 to bf16
    linalg.yield %r : bf16
  }
  return
}
