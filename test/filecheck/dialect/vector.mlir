// Operations that move elements of vectors, and printing, as upstream writes them; integers of vectors in other widths.

// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

func.func @moves(%a: vector<4x6xf32>, %b: vector<2x3xf32>, %i: vector<4xi8>, %t: tensor<3xi32>) {
  // CHECK: vector.shape_cast %a : vector<4x6xf32> to vector<24xf32>
  %0 = vector.shape_cast %a : vector<4x6xf32> to vector<24xf32>
  // CHECK: vector.transpose %a, [1, 0] : vector<4x6xf32> to vector<6x4xf32>
  %1 = vector.transpose %a, [1, 0] : vector<4x6xf32> to vector<6x4xf32>
  // CHECK: vector.extract_strided_slice %a {offsets = [0 : i64, 1 : i64], sizes = [2 : i64, 3 : i64], strides = [1 : i64, 1 : i64]} : vector<4x6xf32> to vector<2x3xf32>
  %2 = vector.extract_strided_slice %a {offsets = [0, 1], sizes = [2, 3], strides = [1, 1]} : vector<4x6xf32> to vector<2x3xf32>
  // CHECK: vector.insert_strided_slice %b, %a {offsets = [1 : i64, 2 : i64], strides = [1 : i64, 1 : i64]} : vector<2x3xf32> into vector<4x6xf32>
  %3 = vector.insert_strided_slice %b, %a {offsets = [1, 2], strides = [1, 1]} : vector<2x3xf32> into vector<4x6xf32>
  // CHECK: vector.constant_mask [2, 3] : vector<4x6xi1>
  %4 = vector.constant_mask [2, 3] : vector<4x6xi1>
  // CHECK: vector.step : vector<8xindex>
  %5 = vector.step : vector<8xindex>
  // CHECK: vector.print %{{.*}} : vector<4x6xf32>
  vector.print %3 : vector<4x6xf32>
  // CHECK: vector.print str "done"
  vector.print str "done"
  // CHECK: arith.extsi %i : vector<4xi8> to vector<4xi32>
  %6 = arith.extsi %i : vector<4xi8> to vector<4xi32>
  // CHECK: arith.trunci %{{.*}} : vector<4xi32> to vector<4xi16>
  %7 = arith.trunci %6 : vector<4xi32> to vector<4xi16>
  // CHECK: arith.index_cast %t : tensor<3xi32> to tensor<3xindex>
  %8 = arith.index_cast %t : tensor<3xi32> to tensor<3xindex>
  return
}
