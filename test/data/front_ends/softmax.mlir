#mn = affine_map<(m, n) -> (m, n)>
#m = affine_map<(m, n) -> (m)>
#m0 = affine_map<(m, n) -> (m, 0)>
func.func @softmax(%x: tensor<9x37xf32>) -> tensor<9x37xf32> {
  %zero = arith.constant 0.0 : f32
  %least = arith.constant 0xFF800000 : f32
  %no = arith.constant 0 : i64
  %tz = tensor.empty() : tensor<9x1xf32>
  %z = linalg.fill ins(%zero : f32) outs(%tz : tensor<9x1xf32>) -> tensor<9x1xf32>
  %tlow = tensor.empty() : tensor<9xf32>
  %low = linalg.fill ins(%least : f32) outs(%tlow : tensor<9xf32>) -> tensor<9xf32>
  %ei = tensor.empty() : tensor<9xi64>
  %first = linalg.fill ins(%no : i64) outs(%ei : tensor<9xi64>) -> tensor<9xi64>
  %max:2 = linalg.generic {indexing_maps = [#mn, #m, #m], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<9x37xf32>) outs(%low, %first : tensor<9xf32>, tensor<9xi64>) {
  ^bb0(%i: f32, %o: f32, %at: i64):
    %n = linalg.index 1 : index
    %n64 = arith.index_cast %n : index to i64
    %larger = arith.maximumf %i, %o : f32
    %is = arith.cmpf ogt, %i, %o : f32
    %where = arith.select %is, %n64, %at : i64
    linalg.yield %larger, %where : f32, i64
  } -> (tensor<9xf32>, tensor<9xi64>)
  %wide = tensor.expand_shape %max#0 [[0, 1]] output_shape [9, 1] : tensor<9xf32> into tensor<9x1xf32>
  %e = tensor.empty() : tensor<9x37xf32>
  %exp = linalg.generic {indexing_maps = [#mn, #m0, #mn], iterator_types = ["parallel", "parallel"]} ins(%x, %wide : tensor<9x37xf32>, tensor<9x1xf32>) outs(%e : tensor<9x37xf32>) {
  ^bb0(%i: f32, %m: f32, %o: f32):
    %d = arith.subf %i, %m : f32
    %y = math.exp %d : f32
    linalg.yield %y : f32
  } -> tensor<9x37xf32>
  %sum = linalg.generic {indexing_maps = [#mn, #m0], iterator_types = ["parallel", "reduction"]} ins(%exp : tensor<9x37xf32>) outs(%z : tensor<9x1xf32>) {
  ^bb0(%i: f32, %o: f32):
    %y = arith.addf %i, %o : f32
    linalg.yield %y : f32
  } -> tensor<9x1xf32>
  %r = linalg.generic {indexing_maps = [#mn, #m0, #mn], iterator_types = ["parallel", "parallel"]} ins(%exp, %sum : tensor<9x37xf32>, tensor<9x1xf32>) outs(%e : tensor<9x37xf32>) {
  ^bb0(%i: f32, %s: f32, %o: f32):
    %y = arith.divf %i, %s : f32
    linalg.yield %y : f32
  } -> tensor<9x37xf32>
  return %r : tensor<9x37xf32>
}
