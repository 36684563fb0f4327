// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{warp.matmul: '9' is no type of the ISA that A could be multiplied as}}
func.func @f(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  "warp.matmul"(%a, %b, %c, %c) <{types = ["9", "f16"], indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], operandSegmentSizes = array<i32: 1, 1, 0, 0, 1, 1, 0>}> : (memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32>, memref<4x6xf32>) -> ()
  return
}

// -----

// expected-error @+2 {{warp.matmul: memref<4x5xf16> cannot be multiplied as bf16}}
func.func @f(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  warp.matmul bf16 x f16 %a, %b init 0.0 : f32 into %c : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32>
  return
}

// -----

// expected-error @+2 {{warp.matmul: expected A and B to agree on k, got 5 and 7}}
func.func @f(%a: memref<4x5xf16>, %b: memref<7x6xf16>, %c: memref<4x6xf32>) {
  warp.matmul f16 x f16 %a, %b init 0.0 : f32 into %c : memref<4x5xf16>, memref<7x6xf16>, memref<4x6xf32>
  return
}

// -----

// expected-error @+2 {{warp.matmul: expected B to be indexed by d2 and d1, got (d0, d1, d2) -> (d0, d1)}}
func.func @f(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  warp.matmul f16 x f16 %a, %b init 0.0 : f32 into %c maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (m, n)>, affine_map<(m, n, k) -> (m, n)>] : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32>
  return
}

// -----

// expected-error @+2 {{warp.matmul: expected an initial value of D's element type, got f16}}
func.func @f(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  warp.matmul f16 x f16 %a, %b init 0.0 : f16 into %c : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32>
  return
}

// -----

// expected-error @+2 {{warp.matmul: expected C of the shape of D, got memref<4x7xf32> and memref<4x6xf32>}}
func.func @f(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x7xf32>, %d: memref<4x6xf32>) {
  warp.matmul f16 x f16 %a, %b plus %c into %d : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32> plus memref<4x7xf32>
  return
}

// -----

// expected-error @+2 {{warp.matmul: expected the product to start either from C or from a constant}}
func.func @f(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  warp.matmul f16 x f16 %a, %b into %c : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32>
  return
}

// -----

// expected-error @+3 {{Expected ','}}
func.func @f(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  warp.matmul f16 x f16 %a, %b init 0.0 : f32 into %c : memref<4x5xf16>, memref<5x6xf16>
  return
}

// -----

// expected-error @+2 {{warp.matmul: expected xor or and before b1 x b1, and only there, got b1 x b1}}
func.func @bits(%a: memref<4x5xi1>, %b: memref<5x6xi1>, %c: memref<4x6xi32>) {
  warp.matmul b1 x b1 %a, %b init 0 : i32 into %c : memref<4x5xi1>, memref<5x6xi1>, memref<4x6xi32>
  return
}

// -----

// expected-error @+2 {{warp.matmul: expected xor or and before b1 x b1, and only there, got s8 x s8}}
func.func @no_bits(%a: memref<4x5xi8>, %b: memref<5x6xi8>, %c: memref<4x6xi32>) {
  warp.matmul xor s8 x s8 %a, %b init 0 : i32 into %c : memref<4x5xi8>, memref<5x6xi8>, memref<4x6xi32>
  return
}

// -----

// expected-error @+2 {{warp.matmul: expected the operation on single bits to be xor or and, got 'or'}}
func.func @operation(%a: memref<4x5xi1>, %b: memref<5x6xi1>, %c: memref<4x6xi32>) {
  "warp.matmul"(%a, %b, %c, %c) <{types = ["b1", "b1"], bit_op = "or", indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], operandSegmentSizes = array<i32: 1, 1, 0, 0, 1, 1, 0>}> : (memref<4x5xi1>, memref<5x6xi1>, memref<4x6xi32>, memref<4x6xi32>) -> ()
  return
}

// -----

func.func @converted_to_f32(%a: memref<4x5xf32>, %b: memref<5x6xi8>, %c: memref<4x6xf32>) {
  // expected-error @+2 {{expected s8, u8, s4, u4 multiplied as f16 or bf16, those of 4 bits as s8 or e4m3 too, got s8 as tf32}}
  %w = warp.stored %b as s8 : memref<5x6xi8>
  warp.matmul tf32 x tf32 %a, %w plus %c into %c : memref<4x5xf32>, !warp.operand<memref<5x6xi8>>, memref<4x6xf32> plus memref<4x6xf32>
  return
}

// -----

func.func @other_integers(%a: memref<4x5xf16>, %b: memref<5x6xi8>, %c: memref<4x6xf32>) {
  // expected-error @+2 {{expected memory of 4-bit integers for s4}}
  %w = warp.stored %b as s4 : memref<5x6xi8>
  warp.matmul f16 x f16 %a, %w plus %c into %c : memref<4x5xf16>, !warp.operand<memref<5x6xi8>>, memref<4x6xf32> plus memref<4x6xf32>
  return
}

// -----

func.func @far_zero(%a: memref<4x5xf16>, %b: memref<5x6xi8>, %c: memref<4x6xf32>) {
  // expected-error @+2 {{expected a zero point from -128 to 127, got 200}}
  %w = warp.stored %b as s8 minus 200 : memref<5x6xi8>
  warp.matmul f16 x f16 %a, %w plus %c into %c : memref<4x5xf16>, !warp.operand<memref<5x6xi8>>, memref<4x6xf32> plus memref<4x6xf32>
  return
}

// -----

func.func @sparse_b(%a: memref<4x5xf16>, %e: memref<1x32xi32>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  // expected-error @+2 {{warp.matmul: expected no B of the form warp.sparse}}
  %s = warp.sparse %b, %e : memref<5x6xf16>, memref<1x32xi32>
  warp.matmul f16 x f16 %a, %s plus %c into %c : memref<4x5xf16>, !warp.operand<memref<5x6xf16>>, memref<4x6xf32> plus memref<4x6xf32>
  return
}

// -----

// expected-error @+2 {{warp.matmul: expected A from an operation that says its form, such as warp.sparse, got a block argument}}
func.func @no_form(%a: !warp.operand<memref<4x5xf16>>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  warp.matmul f16 x f16 %a, %b plus %c into %c : !warp.operand<memref<4x5xf16>>, memref<5x6xf16>, memref<4x6xf32> plus memref<4x6xf32>
  return
}

// -----

func.func @few_words(%a: memref<100x96xf16>, %e: memref<7x64xi32>, %b: memref<192x320xf16>, %c: memref<100x320xf32>) {
  // expected-error @+2 {{warp.matmul: expected metadata of 7x96 words for a sparse A of 100x192 f16, got memref<7x64xi32>}}
  %s = warp.sparse %a, %e : memref<100x96xf16>, memref<7x64xi32>
  warp.matmul f16 x f16 %s, %b plus %c into %c : !warp.operand<memref<100x96xf16>>, memref<192x320xf16>, memref<100x320xf32> plus memref<100x320xf32>
  return
}

// -----

// expected-error @+2 {{warp.sparse: expected the metadata of A as words of i32, got memref<7x64xi16>}}
func.func @words(%a: memref<100x96xf16>, %e: memref<7x64xi16>) {
  %s = warp.sparse %a, %e : memref<100x96xf16>, memref<7x64xi16>
  return
}

// -----

// expected-error @+2 {{i32 should be of base attribute memref}}
func.func @no_memory(%a: i32) {
  %s = warp.stored %a as s8 : i32
  return
}

// -----

func.func @scales_of_integers(%a: memref<4x64xf16>, %b: memref<64x6xi8>, %s: memref<2x6xi32>, %c: memref<4x6xf32>) {
  // expected-error @+2 {{expected scales of groups as a matrix of floats for one B of integers, got memref<2x6xi32>}}
  %w = warp.stored %b as s8 times %s : memref<64x6xi8>, memref<2x6xi32>
  warp.matmul f16 x f16 %a, %w plus %c into %c : memref<4x64xf16>, !warp.operand<memref<64x6xi8>>, memref<4x6xf32> plus memref<4x6xf32>
  return
}

// -----

func.func @odd_groups(%a: memref<4x64xf16>, %b: memref<64x6xi8>, %s: memref<3x6xf16>, %c: memref<4x6xf32>) {
  // expected-error @+2 {{expected 6 columns of scales of groups that divide k of 64, got memref<3x6xf16>}}
  %w = warp.stored %b as s8 times %s : memref<64x6xi8>, memref<3x6xf16>
  warp.matmul f16 x f16 %a, %w plus %c into %c : memref<4x64xf16>, !warp.operand<memref<64x6xi8>>, memref<4x6xf32> plus memref<4x6xf32>
  return
}

// -----

func.func @rounded(%a: memref<4x64xf16>, %b: memref<64x6xi8>, %s: memref<1x6xf32>, %c: memref<4x6xf32>) {
  // expected-error @+2 {{expected scales of f16, to which products with them are rounded, got memref<1x6xf32>}}
  %w = warp.stored %b as s8 rounded times %s : memref<64x6xi8>, memref<1x6xf32>
  warp.matmul f16 x f16 %a, %w plus %c into %c : memref<4x64xf16>, !warp.operand<memref<64x6xi8>>, memref<4x6xf32> plus memref<4x6xf32>
  return
}

// -----

func.func @unscaled(%a: memref<4x64xf16>, %b: memref<64x6xi8>, %c: memref<4x6xf32>) {
  // expected-error @+2 {{expected scales that integers are rounded with: `rounded times %scales`}}
  %w = warp.stored %b as s8 rounded : memref<64x6xi8>
  warp.matmul f16 x f16 %a, %w plus %c into %c : memref<4x64xf16>, !warp.operand<memref<64x6xi8>>, memref<4x6xf32> plus memref<4x6xf32>
  return
}

// -----

// expected-error @+3 {{expected the type of c, which is given}}
func.func @f(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  warp.matmul f16 x f16 %a, %b plus %c into %c : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32>
  return
}

// -----

// expected-error @+2 {{expected no type of c, which is not given}}
func.func @f(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  warp.matmul f16 x f16 %a, %b init 0.0 : f32 into %c : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32> plus memref<4x6xf32>
  return
}

// -----

// expected-error @+2 {{warp.matmul: expected indexing maps of A, B and D, got 2}}
func.func @f(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  warp.matmul f16 x f16 %a, %b init 0.0 : f32 into %c maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>]
    : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32>
  return
}

// -----

func.func @paired_unlike(%a: memref<4x8xf16>, %b: memref<8x6xf16>, %e: memref<8x7xf16>, %c: memref<4x6xf32>) {
  // expected-error @+1 {{warp.paired: expected two matrices that lie alike, got memref<8x6xf16> and memref<8x7xf16>}}
  %w = warp.paired %b, %e : memref<8x6xf16>, memref<8x7xf16>
  return
}

// -----

func.func @paired_without_a_function(%a: memref<4x8xf16>, %b: memref<8x6xf16>, %e: memref<8x6xf16>, %c: memref<4x6xf32>) {
  %w = warp.paired %b, %e : memref<8x6xf16>, memref<8x6xf16>
  // expected-error @+1 {{warp.matmul: expected an epilogue of 2 products, got one of 1}}
  warp.matmul f16 x f16 %a, %w init 0.0 : f32 into %c : memref<4x8xf16>, !warp.operand<memref<8x6xf16>>, memref<4x6xf32>
  return
}

// -----

func.func @paired_from_c(%a: memref<4x8xf16>, %b: memref<8x6xf16>, %e: memref<8x6xf16>, %c: memref<4x6xf32>) {
  %w = warp.paired %b, %e : memref<8x6xf16>, memref<8x6xf16>
  %f = warp.pointwise (%x: f32, %y: f32) {
    %s = arith.mulf %x, %y : f32
    warp.yield %s : f32
  }
  // expected-error @+1 {{warp.matmul: expected two products to start from a constant, got C}}
  warp.matmul f16 x f16 %a, %w plus %c into %c through %f : memref<4x8xf16>, !warp.operand<memref<8x6xf16>>, memref<4x6xf32> plus memref<4x6xf32>
  return
}

// -----

func.func @three_products(%a: memref<4x8xf16>) {
  // expected-error @+1 {{warp.pointwise: expected a function of one element or of two, got 3}}
  %f = warp.pointwise (%x: f32, %y: f32, %z: f32) {
    %s = arith.mulf %x, %y : f32
    warp.yield %s : f32
  }
  return
}
