#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> ()>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map5 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
module {
  func.func @main(%arg0: tensor<2x2x16x16xf16>, %arg1: tensor<2x2x16x16xf16>, %arg2: tensor<2x2x16x16xf16>, %arg3: tensor<16x16xi1>) -> tensor<2x2x16x16xf16> {
    %cst = arith.constant 0.000000e+00 : f32
    %c0_i64 = arith.constant 0 : i64
    %cst_0 = arith.constant 0xFF800000 : f32
    %true = arith.constant true
    %cst_1 = arith.constant dense<0.000000e+00> : tensor<2x2x16x16xf32>
    %cst_2 = arith.constant 0xFFF0000000000000 : f64
    %cst_3 = arith.constant dense<0xFC00> : tensor<f16>
    %cst_4 = arith.constant dense<0.000000e+00> : tensor<f16>
    %cst_5 = arith.constant 5.000000e-01 : f32
    %0 = tensor.empty() : tensor<16x16xf16>
    %1 = linalg.generic {indexing_maps = [#map, #map1, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%arg3, %cst_4, %cst_3 : tensor<16x16xi1>, tensor<f16>, tensor<f16>) outs(%0 : tensor<16x16xf16>) {
    ^bb0(%in: i1, %in_11: f16, %in_12: f16, %out: f16):
      %32 = arith.select %in, %in_11, %in_12 : f16
      linalg.yield %32 : f16
    } -> tensor<16x16xf16>
    %2 = tensor.empty() : tensor<2x2x16x16xf32>
    %3 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%arg0 : tensor<2x2x16x16xf16>) outs(%2 : tensor<2x2x16x16xf32>) {
    ^bb0(%in: f16, %out: f32):
      %32 = arith.extf %in : f16 to f32
      linalg.yield %32 : f32
    } -> tensor<2x2x16x16xf32>
    %4 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%arg1 : tensor<2x2x16x16xf16>) outs(%2 : tensor<2x2x16x16xf32>) {
    ^bb0(%in: f16, %out: f32):
      %32 = arith.extf %in : f16 to f32
      linalg.yield %32 : f32
    } -> tensor<2x2x16x16xf32>
    %5 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%arg2 : tensor<2x2x16x16xf16>) outs(%2 : tensor<2x2x16x16xf32>) {
    ^bb0(%in: f16, %out: f32):
      %32 = arith.extf %in : f16 to f32
      linalg.yield %32 : f32
    } -> tensor<2x2x16x16xf32>
    %6 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%3 : tensor<2x2x16x16xf32>) outs(%2 : tensor<2x2x16x16xf32>) {
    ^bb0(%in: f32, %out: f32):
      %32 = arith.mulf %in, %cst_5 : f32
      linalg.yield %32 : f32
    } -> tensor<2x2x16x16xf32>
    %transposed = linalg.transpose ins(%4 : tensor<2x2x16x16xf32>) outs(%2 : tensor<2x2x16x16xf32>) permutation = [0, 1, 3, 2] 
    %7 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%transposed : tensor<2x2x16x16xf32>) outs(%2 : tensor<2x2x16x16xf32>) {
    ^bb0(%in: f32, %out: f32):
      %32 = arith.mulf %in, %cst_5 : f32
      linalg.yield %32 : f32
    } -> tensor<2x2x16x16xf32>
    %collapsed = tensor.collapse_shape %6 [[0, 1], [2], [3]] : tensor<2x2x16x16xf32> into tensor<4x16x16xf32>
    %collapsed_6 = tensor.collapse_shape %7 [[0, 1], [2], [3]] : tensor<2x2x16x16xf32> into tensor<4x16x16xf32>
    %8 = tensor.empty() : tensor<4x16x16xf32>
    %9 = linalg.fill ins(%cst : f32) outs(%8 : tensor<4x16x16xf32>) -> tensor<4x16x16xf32>
    %10 = linalg.batch_matmul ins(%collapsed, %collapsed_6 : tensor<4x16x16xf32>, tensor<4x16x16xf32>) outs(%9 : tensor<4x16x16xf32>) -> tensor<4x16x16xf32>
    %expanded = tensor.expand_shape %10 [[0, 1], [2], [3]] output_shape [2, 2, 16, 16] : tensor<4x16x16xf32> into tensor<2x2x16x16xf32>
    %11 = linalg.generic {indexing_maps = [#map2, #map3, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded, %1 : tensor<2x2x16x16xf32>, tensor<16x16xf16>) outs(%2 : tensor<2x2x16x16xf32>) {
    ^bb0(%in: f32, %in_11: f16, %out: f32):
      %32 = arith.extf %in_11 : f16 to f32
      %33 = arith.addf %in, %32 : f32
      linalg.yield %33 : f32
    } -> tensor<2x2x16x16xf32>
    %12 = tensor.empty() : tensor<2x2x16xi64>
    %13 = linalg.fill ins(%c0_i64 : i64) outs(%12 : tensor<2x2x16xi64>) -> tensor<2x2x16xi64>
    %14 = tensor.empty() : tensor<2x2x16xf32>
    %15 = linalg.fill ins(%cst_0 : f32) outs(%14 : tensor<2x2x16xf32>) -> tensor<2x2x16xf32>
    %16:2 = linalg.generic {indexing_maps = [#map2, #map4, #map4], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%11 : tensor<2x2x16x16xf32>) outs(%15, %13 : tensor<2x2x16xf32>, tensor<2x2x16xi64>) {
    ^bb0(%in: f32, %out: f32, %out_11: i64):
      %32 = linalg.index 3 : index
      %33 = arith.index_cast %32 : index to i64
      %34 = arith.maximumf %in, %out : f32
      %35 = arith.cmpf ogt, %in, %out : f32
      %36 = arith.select %35, %33, %out_11 : i64
      linalg.yield %34, %36 : f32, i64
    } -> (tensor<2x2x16xf32>, tensor<2x2x16xi64>)
    %expanded_7 = tensor.expand_shape %16#0 [[0], [1], [2, 3]] output_shape [2, 2, 16, 1] : tensor<2x2x16xf32> into tensor<2x2x16x1xf32>
    %17 = linalg.generic {indexing_maps = [#map2, #map5, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%11, %expanded_7 : tensor<2x2x16x16xf32>, tensor<2x2x16x1xf32>) outs(%2 : tensor<2x2x16x16xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %32 = arith.subf %in, %in_11 : f32
      linalg.yield %32 : f32
    } -> tensor<2x2x16x16xf32>
    %18 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%17 : tensor<2x2x16x16xf32>) outs(%2 : tensor<2x2x16x16xf32>) {
    ^bb0(%in: f32, %out: f32):
      %32 = math.exp %in : f32
      linalg.yield %32 : f32
    } -> tensor<2x2x16x16xf32>
    %19 = tensor.empty() : tensor<2x2x16x1xf32>
    %20 = linalg.fill ins(%cst : f32) outs(%19 : tensor<2x2x16x1xf32>) -> tensor<2x2x16x1xf32>
    %21 = linalg.generic {indexing_maps = [#map2, #map5], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%18 : tensor<2x2x16x16xf32>) outs(%20 : tensor<2x2x16x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %32 = arith.addf %in, %out : f32
      linalg.yield %32 : f32
    } -> tensor<2x2x16x1xf32>
    %22 = linalg.generic {indexing_maps = [#map2, #map5, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%18, %21 : tensor<2x2x16x16xf32>, tensor<2x2x16x1xf32>) outs(%2 : tensor<2x2x16x16xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %32 = arith.divf %in, %in_11 : f32
      linalg.yield %32 : f32
    } -> tensor<2x2x16x16xf32>
    %23 = tensor.empty() : tensor<2x2x16x16xi1>
    %24 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%11 : tensor<2x2x16x16xf32>) outs(%23 : tensor<2x2x16x16xi1>) {
    ^bb0(%in: f32, %out: i1):
      %32 = arith.extf %in : f32 to f64
      %33 = arith.cmpf oeq, %32, %cst_2 : f64
      linalg.yield %33 : i1
    } -> tensor<2x2x16x16xi1>
    %25 = tensor.empty() : tensor<2x2x16x1xi1>
    %26 = linalg.fill ins(%true : i1) outs(%25 : tensor<2x2x16x1xi1>) -> tensor<2x2x16x1xi1>
    %27 = linalg.generic {indexing_maps = [#map2, #map5], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%24 : tensor<2x2x16x16xi1>) outs(%26 : tensor<2x2x16x1xi1>) {
    ^bb0(%in: i1, %out: i1):
      %32 = arith.andi %in, %out : i1
      linalg.yield %32 : i1
    } -> tensor<2x2x16x1xi1>
    %28 = linalg.generic {indexing_maps = [#map5, #map2, #map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%27, %cst_1, %22 : tensor<2x2x16x1xi1>, tensor<2x2x16x16xf32>, tensor<2x2x16x16xf32>) outs(%2 : tensor<2x2x16x16xf32>) {
    ^bb0(%in: i1, %in_11: f32, %in_12: f32, %out: f32):
      %32 = arith.select %in, %in_11, %in_12 : f32
      linalg.yield %32 : f32
    } -> tensor<2x2x16x16xf32>
    %collapsed_8 = tensor.collapse_shape %28 [[0, 1], [2], [3]] : tensor<2x2x16x16xf32> into tensor<4x16x16xf32>
    %collapsed_9 = tensor.collapse_shape %5 [[0, 1], [2], [3]] : tensor<2x2x16x16xf32> into tensor<4x16x16xf32>
    %29 = linalg.batch_matmul ins(%collapsed_8, %collapsed_9 : tensor<4x16x16xf32>, tensor<4x16x16xf32>) outs(%9 : tensor<4x16x16xf32>) -> tensor<4x16x16xf32>
    %expanded_10 = tensor.expand_shape %29 [[0, 1], [2], [3]] output_shape [2, 2, 16, 16] : tensor<4x16x16xf32> into tensor<2x2x16x16xf32>
    %30 = tensor.empty() : tensor<2x2x16x16xf16>
    %31 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded_10 : tensor<2x2x16x16xf32>) outs(%30 : tensor<2x2x16x16xf16>) {
    ^bb0(%in: f32, %out: f16):
      %32 = arith.truncf %in : f32 to f16
      linalg.yield %32 : f16
    } -> tensor<2x2x16x16xf16>
    return %31 : tensor<2x2x16x16xf16>
  }
}
