#mn = affine_map<(m, n) -> (m, n)>
#n = affine_map<(m, n) -> (n)>
func.func @linear(%x: tensor<19x24xf16>, %w: tensor<13x24xf16>, %bias: tensor<13xf16>) -> tensor<19x13xf16> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<24x13xf16>
  %t = linalg.transpose ins(%w : tensor<13x24xf16>) outs(%e : tensor<24x13xf16>) permutation = [1, 0]
  %ea = tensor.empty() : tensor<19x24xf32>
  %a = linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<19x24xf16>) outs(%ea : tensor<19x24xf32>) {
  ^bb0(%i: f16, %o: f32):
    %y = arith.extf %i : f16 to f32
    linalg.yield %y : f32
  } -> tensor<19x24xf32>
  %eb = tensor.empty() : tensor<24x13xf32>
  %b = linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]} ins(%t : tensor<24x13xf16>) outs(%eb : tensor<24x13xf32>) {
  ^bb0(%i: f16, %o: f32):
    %y = arith.extf %i : f16 to f32
    linalg.yield %y : f32
  } -> tensor<24x13xf32>
  %tz = tensor.empty() : tensor<19x13xf32>
  %z = linalg.fill ins(%zero : f32) outs(%tz : tensor<19x13xf32>) -> tensor<19x13xf32>
  %p = linalg.matmul ins(%a, %b : tensor<19x24xf32>, tensor<24x13xf32>) outs(%z : tensor<19x13xf32>)
      -> tensor<19x13xf32>
  %o = tensor.empty() : tensor<19x13xf16>
  %r = linalg.generic {indexing_maps = [#mn, #n, #mn], iterator_types = ["parallel", "parallel"]} ins(%p, %bias : tensor<19x13xf32>, tensor<13xf16>) outs(%o : tensor<19x13xf16>) {
  ^bb0(%i: f32, %c: f16, %old: f16):
    %f = arith.extf %c : f16 to f32
    %s = arith.addf %i, %f : f32
    %h = arith.truncf %s : f32 to f16
    linalg.yield %h : f16
  } -> tensor<19x13xf16>
  return %r : tensor<19x13xf16>
}
