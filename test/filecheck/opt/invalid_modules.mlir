// RUN: warploom-opt %s --split-input-file --verify-diagnostics -p 'warploom{target=sm_90a}' -o /dev/null

func.func @used_before(%A: memref<16xf32>) {
  // expected-error@+1 {{operand #1 does not dominate this use}}
  %y = memref.load %A[%x] : memref<16xf32>
  %x = arith.constant 0 : index
  return
}

// -----

func.func @used_by_itself(%x: f32) {
  // expected-error@+1 {{operand #1 does not dominate this use}}
  %y = arith.addf %x, %y : f32
  return
}

// -----

func.func @used_outside(%n: index) {
  %zero = arith.constant 0 : index
  // expected-error@+1 {{operand #0 does not dominate this use}}
  %y = arith.addi %x, %zero : index
  scf.for %i = %zero to %n step %n {
    %x = arith.addi %i, %n : index
  }
  return
}

// -----

func.func @other_branch(%c: i1, %n: index) {
  cf.cond_br %c, ^bb1, ^bb2
^bb1:
  %x = arith.addi %n, %n : index
  cf.br ^bb3
^bb2:
  cf.br ^bb3
^bb3:
  // expected-error@+1 {{operand #0 does not dominate this use}}
  %y = arith.addi %x, %n : index
  return
}

// -----

// A block dominates those that only it leads to, and what is in their regions.
func.func @dominated(%c: i1, %n: index) {
  %x = arith.addi %n, %n : index
  cf.br ^bb1
^bb1:
  scf.for %i = %n to %n step %n {
    %y = arith.addi %x, %i : index
  }
  cf.cond_br %c, ^bb2, ^bb3
^bb2:
  cf.br ^bb3
^bb3:
  %z = arith.addi %x, %n : index
  return
}

// -----

func.func @slices(%A: memref<10x6xf16>) {
  // expected-error@+1 {{expected 2 offset values, got 1}}
  %B = memref.subview %A[2] [8] [1] : memref<10x6xf16> to memref<8x6xf16, strided<[6, 1], offset: 12>>
  return
}

// -----

func.func @put(%A: tensor<8xf16>, %B: tensor<10x8xf16>, %i: index) -> tensor<10x8xf16> {
  // expected-error@+1 {{expected 2 size values, got 1}}
  %C = tensor.insert_slice %A into %B[%i, 0] [8] [1, 1] : tensor<8xf16> into tensor<10x8xf16>
  return %C : tensor<10x8xf16>
}

// -----

func.func @divided_by_zero(%A: memref<5x5xf16>, %B: memref<5x6xf16>) {
  // expected-error@+1 {{linalg.generic: ZeroDivisionError: integer division or modulo by zero}}
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i floordiv 0, j)>, affine_map<(i, j) -> (i, j)>],
                  iterator_types = ["parallel", "parallel"]}
      ins(%A : memref<5x5xf16>) outs(%B : memref<5x6xf16>) {
  ^bb0(%x: f16, %o: f16):
    linalg.yield %x : f16
  }
  return
}

// -----

func.func @indices(%x: tensor<4xindex>) -> tensor<4xindex> {
  // expected-error@+1 {{expected elements that are floats or integers, got memref<4xindex>}}
  return %x : tensor<4xindex>
}

// -----

func.func @pages(%x: memref<?x64xf16>, %t: memref<?xi64>) {
  // expected-error@+1 {{expected dimensions of the result for those of}}
  %rows = warp.paged %x by %t {along = array<i64: 0, 1>, table_along = array<i64>, page = 255 : i64} : memref<?x64xf16>, memref<?xi64> -> memref<?x64xf16, strided<[64, 1]>>
  return
}

// -----

// A constant vector of a function on the host is left as it is.
func.func @vector(%x: memref<32xf32>, %i: index) {
  %c = arith.constant dense<1.0> : vector<32xf32>
  vector.store %c, %x[%i] : memref<32xf32>, vector<32xf32>
  return
}

// -----

func.func @stages(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  // expected-error@+1 {{stages must be 1 to 1024, got 5000000000}}
  linalg.matmul {warp.schedule = #warp.schedule<cta = 16x8x16, warp = 16x8, mma = m16n8k16, stages = 5000000000, swizzle = 128, group = 1, accumulate = f32>}
    ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}

// -----

ptx.module @registers version "8.0" target "sm_80" address_size 64 {
  ptx.func entry visible @k() {
    // expected-error@+1 {{expected at most 1048576 registers of one name, got 2147483648}}
    %x, %y = ptx.reg b32 "%b32"<2147483648>
  }
}

// -----

// expected-error@+1 {{expected a constant of at most 2147483648 bytes, got 8589934592}}
"builtin.unrealized_conversion_cast"() {value = dense<1.0> : tensor<2147483648xf32>} : () -> ()

// -----

func.func @part(%A: tensor<4x6x16x32xi8>, %B: tensor<4x6x16x32xi8>) -> tensor<4x6x16x32xi8> {
  // expected-error@+1 {{expected a part with the sizes of the slice, got tensor<4x6x16x32xi8>}}
  %C = tensor.insert_slice %A into %B[0, 0, 0, 0] [4, 6, 16, 100] [1, 1, 1, 1] : tensor<4x6x16x32xi8> into tensor<4x6x16x32xi8>
  return %C : tensor<4x6x16x32xi8>
}

// -----

func.func @reduced(%A: memref<10x6x1xf16>, %n: index) {
  %B = memref.subview %A[2, 0, 0] [1, %n, 1] [1, 1, 1] : memref<10x6x1xf16> to memref<?xf16, strided<[1], offset: 12>>
  %C = memref.subview %A[2, 0, 0] [1, 6, 1] [1, 1, 1] : memref<10x6x1xf16> to memref<1x6xf16, strided<[6, 1], offset: 12>>
  return
}

// -----

func.func @constant() -> tensor<2xindex> {
  // expected-error@+1 {{expected elements that are floats or integers, got memref<2xindex>}}
  %c = arith.constant dense<[0, 1]> : tensor<2xindex>
  return %c : tensor<2xindex>
}

// -----

func.func @least() {
  // expected-error@+1 {{affine.min: expected a map with results, got () -> ()}}
  %0 = affine.min affine_map<() -> ()> ()
  return
}

// -----

func.func @launch(%x: memref<4xf32>) {
  %one = arith.constant 1 : index
  %many = arith.constant 5000000000 : index
  // expected-error@+1 {{expected 1 to 1024 threads along each dimension of a CTA, got [5000000000, 1, 1]}}
  gpu.launch blocks(%a, %b, %c) in (%d = %one, %e = %one, %f = %one) threads(%g, %h, %i) in (%j = %many, %k = %one, %l = %one) {
    gpu.terminator
  }
  return
}

// -----

// Functions of vectors in code of the host are left as they are.
func.func @vectors(%x: memref<4xi32>, %i: index) {
  %v = vector.load %x[%i] : memref<4xi32>, vector<4xi32>
  %y = math.absi %v : vector<4xi32>
  vector.store %y, %x[%i] : memref<4xi32>, vector<4xi32>
  return
}
