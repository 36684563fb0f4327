// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s

#maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>]
#trait = {indexing_maps = #maps, iterator_types = ["parallel"], doc = "negation"}

// CHECK-LABEL: func.func @alias
// CHECK-NEXT:    linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"], doc = "negation"} ins(%a : memref<4xf32>) outs(%b : memref<4xf32>) attrs = {tag} {
func.func @alias(%a: memref<4xf32>, %b: memref<4xf32>) {
  linalg.generic #trait ins(%a : memref<4xf32>) outs(%b : memref<4xf32>) attrs = {tag} {
  ^bb0(%x: f32, %y: f32):
    %z = arith.negf %x : f32
    linalg.yield %z : f32
  }
  return
}

// CHECK-LABEL: func.func @results
// CHECK:         -> (tensor<4xf32>, tensor<4xf32>)
func.func @results(%a: tensor<4xf32>, %b: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0, %1 = linalg.generic #trait outs(%a, %b : tensor<4xf32>, tensor<4xf32>) {
  ^bb0(%x: f32, %y: f32):
    linalg.yield %y, %x : f32, f32
  } -> (tensor<4xf32>, tensor<4xf32>)
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}
