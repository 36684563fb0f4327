// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{linalg.matmul: expected A's second dimension and B's first to agree (k), got 192 and 190}}
func.func @depth(%a: memref<256x192xf16>, %b: memref<190x320xf16>, %c: memref<256x320xf32>) {
  linalg.matmul ins(%a, %b : memref<256x192xf16>, memref<190x320xf16>) outs(%c : memref<256x320xf32>)
  return
}

// -----

// expected-error @+2 {{linalg.matmul: expected A's first dimension and C's first to agree (m), got 4 and 5}}
func.func @rows(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<5x6xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<5x6xf32>)
  return
}

// -----

// expected-error @+2 {{linalg.matmul: expected B's second dimension and C's second to agree (n), got 6 and 7}}
func.func @columns(%a: tensor<4x?xf16>, %b: tensor<5x6xf16>, %c: tensor<?x7xf32>) -> tensor<?x7xf32> {
  %r = linalg.matmul ins(%a, %b : tensor<4x?xf16>, tensor<5x6xf16>) outs(%c : tensor<?x7xf32>) -> tensor<?x7xf32>
  return %r : tensor<?x7xf32>
}

// -----

// expected-error @+2 {{linalg.matmul: expected A's second dimension and B's second to agree (k), got 5 and 6}}
func.func @depth_transposed(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x5xf32>) {
  linalg.matmul
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x5xf32>)
  return
}

// -----

// expected-error @+2 {{expected A to be of rank 2, got rank 3 (memref<1x4x5xf16>)}}
func.func @rank(%a: memref<1x4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : memref<1x4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// -----

// expected-error @+2 {{expected B to be a memref or tensor of floats or integers, got f16}}
func.func @scalar(%a: memref<4x5xf16>, %b: f16, %c: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xf16>, f16) outs(%c : memref<4x6xf32>)
  return
}

// -----

// expected-error @+2 {{expected A to be a memref or tensor of floats or integers, got memref<4x5xindex>}}
func.func @index(%a: memref<4x5xindex>, %b: memref<5x6xindex>, %c: memref<4x6xindex>) {
  linalg.matmul ins(%a, %b : memref<4x5xindex>, memref<5x6xindex>) outs(%c : memref<4x6xindex>)
  return
}

// -----

// expected-error @+2 {{expected A, B and C to be all memrefs or all tensors, got tensor<4x5xf16>, tensor<5x6xf16>, memref<4x6xf32>}}
func.func @kinds(%a: tensor<4x5xf16>, %b: tensor<5x6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : tensor<4x5xf16>, tensor<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// -----

// expected-error @+2 {{expected two operands in ins(...) and one in outs(...), got 1 and 1}}
func.func @one_input(%a: memref<4x5xf16>, %c: memref<4x6xf32>) {
  linalg.matmul ins(%a : memref<4x5xf16>) outs(%c : memref<4x6xf32>)
  return
}

// -----

// expected-error @+2 {{expected a type for each of 2 operands, got 1}}
func.func @one_type(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xf16>) outs(%c : memref<4x6xf32>)
  return
}

// -----

// expected-error @+3 {{'outs' expected}}
func.func @no_output(%a: memref<4x5xf16>, %b: memref<5x6xf16>) {
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>)
  return
}

// -----

// expected-error @+2 {{linalg.matmul: expected no result, as C is a memref and is written in place, got tensor<4x6xf32>}}
func.func @memref_result(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  %r = linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

// expected-error @+2 {{linalg.matmul: expected one result of C's type tensor<4x6xf32>, got none}}
func.func @tensor_result(%a: tensor<4x5xf16>, %b: tensor<5x6xf16>, %c: tensor<4x6xf32>) {
  linalg.matmul ins(%a, %b : tensor<4x5xf16>, tensor<5x6xf16>) outs(%c : tensor<4x6xf32>)
  return
}

// -----

// expected-error @+2 {{linalg.matmul: expected three indexing_maps, one each for A, B and C, got 2}}
func.func @two_maps(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>]
      ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// -----

// expected-error @+2 {{linalg.matmul: expected the indexing map of B to be (d0, d1, d2) -> (d2, d1) or (d0, d1, d2) -> (d1, d2) or (d0, d1, d2) -> (d2), got (d0, d1, d2) -> (d1)}}
func.func @broadcast(%a: memref<4x5xf16>, %b: memref<6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : memref<4x5xf16>, memref<6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// -----

// expected-error @+2 {{linalg.matmul: expected the indexing map of C to be (d0, d1, d2) -> (d0, d1), got (d0, d1, d2) -> (d1, d0)}}
func.func @transposed_c(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<6x4xf32>) {
  linalg.matmul
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (n, m)>]
      ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<6x4xf32>)
  return
}

// -----

// expected-error-re @+2 {{linalg.matmul: expected the indexing map of A to be {{.*}}, got (d0, d1, d2) -> ((d0 + d2), d2)}}
func.func @expression(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul
      indexing_maps = [affine_map<(m, n, k) -> (m + k, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// -----

// expected-error @+2 {{expected indexing_maps to be a list of affine maps, got [1 : i64]}}
func.func @not_maps(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul indexing_maps = [1]
      ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// -----

// expected-error @+2 {{linalg.matmul: expected the body to extend A and B to C's type, multiply, and add to C; another body is written as linalg.generic}}
func.func @body(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf16>) {
  "linalg.matmul"(%a, %b, %c) <{operandSegmentSizes = array<i32: 2, 1>,
    indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]}> ({
  ^bb0(%x: f16, %y: f16, %z: f16):
    %0 = arith.subf %x, %y : f16
    %1 = arith.addf %0, %z : f16
    linalg.yield %1 : f16
  }) : (memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf16>) -> ()
  return
}

// -----

// expected-error @+2 {{linalg.matmul: expected two operands in ins(...) and one in outs(...), got 1 and 2}}
func.func @generic_operands(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf16>) {
  "linalg.matmul"(%a, %b, %c) <{operandSegmentSizes = array<i32: 1, 2>,
    indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]}> ({
  ^bb0(%x: f16, %y: f16, %z: f16):
    linalg.yield %z : f16
  }) : (memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf16>) -> ()
  return
}

// -----

// expected-error @+2 {{linalg.matmul: Expected operandSegmentSizes property}}
func.func @generic_segments(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf16>) {
  "linalg.matmul"(%a, %b, %c) <{
    indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]}> ({
  ^bb0(%x: f16, %y: f16, %z: f16):
    linalg.yield %z : f16
  }) : (memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf16>) -> ()
  return
}

// -----

// expected-error @+2 {{linalg.matmul_transpose_b: expected A's second dimension and B's second to agree (k), got 5 and 6}}
func.func @depth_of_transpose_b(%a: memref<4x5xf16>, %b: memref<7x6xf16>, %c: memref<4x7xf32>) {
  linalg.matmul_transpose_b ins(%a, %b : memref<4x5xf16>, memref<7x6xf16>) outs(%c : memref<4x7xf32>)
  return
}

// -----

// expected-error @+2 {{linalg.matmul_transpose_a: expected the indexing map of A to be (d0, d1, d2) -> (d2, d0), got (d0, d1, d2) -> (d0, d2)}}
func.func @maps_of_transpose_a(%a: memref<4x5xf16>, %b: memref<5x7xf16>, %c: memref<4x7xf32>) {
  linalg.matmul_transpose_a
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : memref<4x5xf16>, memref<5x7xf16>) outs(%c : memref<4x7xf32>)
  return
}

// -----

// expected-error @+2 {{linalg.batch_matmul: expected A's first dimension and B's first to agree (b), got 2 and 3}}
func.func @batches(%a: memref<2x4x5xf16>, %b: memref<3x5x7xf16>, %c: memref<2x4x7xf32>) {
  linalg.batch_matmul ins(%a, %b : memref<2x4x5xf16>, memref<3x5x7xf16>) outs(%c : memref<2x4x7xf32>)
  return
}

// -----

// expected-error @+2 {{linalg.batch_matmul: expected A to be of rank 3, got rank 2 (memref<4x5xf16>)}}
func.func @no_batch(%a: memref<4x5xf16>, %b: memref<3x5x7xf16>, %c: memref<3x4x7xf32>) {
  linalg.batch_matmul ins(%a, %b : memref<4x5xf16>, memref<3x5x7xf16>) outs(%c : memref<3x4x7xf32>)
  return
}

// -----

// expected-error @+2 {{expected cast to be #linalg.type_fn<cast_signed> or <cast_unsigned>, got "unsigned"}}
func.func @cast(%a: memref<4x5xi8>, %b: memref<5x7xi8>, %c: memref<4x7xi32>) {
  linalg.matmul {cast = "unsigned"} ins(%a, %b : memref<4x5xi8>, memref<5x7xi8>) outs(%c : memref<4x7xi32>)
  return
}

// -----

// expected-error @+2 {{linalg.matmul: expected the body to extend A and B to C's type, multiply, and add to C}}
func.func @cast_of_another_body(%a: memref<4x5xi8>, %b: memref<5x7xi8>, %c: memref<4x7xi32>) {
  "linalg.matmul"(%a, %b, %c) <{operandSegmentSizes = array<i32: 2, 1>, cast = #linalg.type_fn<cast_unsigned>,
    indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]}> ({
  ^bb0(%x: i8, %y: i8, %z: i32):
    %0 = arith.extsi %x : i8 to i32
    %1 = arith.extui %y : i8 to i32
    %2 = arith.muli %0, %1 : i32
    %3 = arith.addi %2, %z : i32
    linalg.yield %3 : i32
  }) : (memref<4x5xi8>, memref<5x7xi8>, memref<4x7xi32>) -> ()
  return
}
