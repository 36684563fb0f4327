#id = affine_map<(a, b, c, d) -> (a, b, c, d)>
#row = affine_map<(a, b, c, d) -> (a, b, c)>
#kept = affine_map<(a, b, c, d) -> (a, b, c, 0)>
func.func @f(%q: tensor<1x2x?x16xf16>, %k: tensor<1x2x16x?xf16>, %v: tensor<1x2x?x16xf16>) -> tensor<1x2x?x16xf16> {
  %two = arith.constant 2 : index
  %zero = arith.constant 0.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %half = arith.constant 0.5 : f32
  %m = tensor.dim %q, %two : tensor<1x2x?x16xf16>
  %n = tensor.dim %v, %two : tensor<1x2x?x16xf16>
  %qe = tensor.empty(%m) : tensor<1x2x?x16xf32>
  %qs = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%q : tensor<1x2x?x16xf16>) outs(%qe : tensor<1x2x?x16xf32>) {
  ^bb0(%x: f16, %o: f32):
    %0 = arith.extf %x : f16 to f32
    %1 = arith.mulf %0, %half : f32
    linalg.yield %1 : f32
  } -> tensor<1x2x?x16xf32>
  %ke = tensor.empty(%n) : tensor<1x2x16x?xf32>
  %ks = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%k : tensor<1x2x16x?xf16>) outs(%ke : tensor<1x2x16x?xf32>) {
  ^bb0(%x: f16, %o: f32):
    %0 = arith.extf %x : f16 to f32
    %1 = arith.mulf %0, %half : f32
    linalg.yield %1 : f32
  } -> tensor<1x2x16x?xf32>
  %qc = tensor.collapse_shape %qs [[0, 1], [2], [3]] : tensor<1x2x?x16xf32> into tensor<2x?x16xf32>
  %kc = tensor.collapse_shape %ks [[0, 1], [2], [3]] : tensor<1x2x16x?xf32> into tensor<2x16x?xf32>
  %se = tensor.empty(%m, %n) : tensor<2x?x?xf32>
  %sz = linalg.fill ins(%zero : f32) outs(%se : tensor<2x?x?xf32>) -> tensor<2x?x?xf32>
  %sc = linalg.batch_matmul ins(%qc, %kc : tensor<2x?x16xf32>, tensor<2x16x?xf32>)
      outs(%sz : tensor<2x?x?xf32>) -> tensor<2x?x?xf32>
  %s = tensor.expand_shape %sc [[0, 1], [2], [3]] output_shape [1, 2, %m, %n]
      : tensor<2x?x?xf32> into tensor<1x2x?x?xf32>
  %le = tensor.empty(%m) : tensor<1x2x?xf32>
  %ll = linalg.fill ins(%lowest : f32) outs(%le : tensor<1x2x?xf32>) -> tensor<1x2x?xf32>
  %lr = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%s : tensor<1x2x?x?xf32>) outs(%ll : tensor<1x2x?xf32>) {
  ^bb0(%x: f32, %o: f32):
    %0 = arith.maximumf %x, %o : f32
    linalg.yield %0 : f32
  } -> tensor<1x2x?xf32>
  %l = tensor.expand_shape %lr [[0], [1], [2, 3]] output_shape [1, 2, %m, 1]
      : tensor<1x2x?xf32> into tensor<1x2x?x1xf32>
  %we = tensor.empty(%m, %n) : tensor<1x2x?x?xf32>
  %e = linalg.generic {indexing_maps = [#id, #kept, #id],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%s, %l : tensor<1x2x?x?xf32>, tensor<1x2x?x1xf32>) outs(%we : tensor<1x2x?x?xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %0 = arith.subf %x, %y : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<1x2x?x?xf32>
  %te = tensor.empty(%m) : tensor<1x2x?x1xf32>
  %tz = linalg.fill ins(%zero : f32) outs(%te : tensor<1x2x?x1xf32>) -> tensor<1x2x?x1xf32>
  %t = linalg.generic {indexing_maps = [#id, #kept], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%e : tensor<1x2x?x?xf32>) outs(%tz : tensor<1x2x?x1xf32>) {
  ^bb0(%x: f32, %o: f32):
    %0 = arith.addf %x, %o : f32
    linalg.yield %0 : f32
  } -> tensor<1x2x?x1xf32>
  %p = linalg.generic {indexing_maps = [#id, #kept, #id],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%e, %t : tensor<1x2x?x?xf32>, tensor<1x2x?x1xf32>) outs(%we : tensor<1x2x?x?xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %0 = arith.divf %x, %y : f32
    linalg.yield %0 : f32
  } -> tensor<1x2x?x?xf32>
  %ve = tensor.empty(%n) : tensor<1x2x?x16xf32>
  %vx = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%v : tensor<1x2x?x16xf16>) outs(%ve : tensor<1x2x?x16xf32>) {
  ^bb0(%x: f16, %o: f32):
    %0 = arith.extf %x : f16 to f32
    linalg.yield %0 : f32
  } -> tensor<1x2x?x16xf32>
  %pc = tensor.collapse_shape %p [[0, 1], [2], [3]] : tensor<1x2x?x?xf32> into tensor<2x?x?xf32>
  %vc = tensor.collapse_shape %vx [[0, 1], [2], [3]] : tensor<1x2x?x16xf32> into tensor<2x?x16xf32>
  %oe = tensor.empty(%m) : tensor<2x?x16xf32>
  %oz = linalg.fill ins(%zero : f32) outs(%oe : tensor<2x?x16xf32>) -> tensor<2x?x16xf32>
  %oc = linalg.batch_matmul ins(%pc, %vc : tensor<2x?x?xf32>, tensor<2x?x16xf32>)
      outs(%oz : tensor<2x?x16xf32>) -> tensor<2x?x16xf32>
  %of = tensor.expand_shape %oc [[0, 1], [2], [3]] output_shape [1, 2, %m, 16]
      : tensor<2x?x16xf32> into tensor<1x2x?x16xf32>
  %re = tensor.empty(%m) : tensor<1x2x?x16xf16>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%of : tensor<1x2x?x16xf32>) outs(%re : tensor<1x2x?x16xf16>) {
  ^bb0(%x: f32, %o: f16):
    %0 = arith.truncf %x : f32 to f16
    linalg.yield %0 : f16
  } -> tensor<1x2x?x16xf16>
  return %r : tensor<1x2x?x16xf16>
}
