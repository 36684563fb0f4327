// RUN: warploom-opt %s --split-input-file --verify-diagnostics

func.func @made_elsewhere(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>, %f: !warp.pointwise) {
  // expected-error @below {{expected a function of elements from warp.pointwise, got a block argument}}
  warp.matmul f16 x f16 %a, %b init 0.0 : f32 into %c through %f : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32>
  return
}

// -----

func.func @no_argument(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  // expected-error @below {{expected a region of one block that takes an element}}
  %epilogue = warp.pointwise () {
    %0 = arith.constant 0.0 : f32
    warp.yield %0 : f32
  }
  warp.matmul f16 x f16 %a, %b plus %c into %c through %epilogue : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32> plus memref<4x6xf32>
  return
}

// -----

func.func @no_yield(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  // expected-error @below {{expected one block that ends with warp.yield}}
  %epilogue = warp.pointwise (%x: f32) {
    linalg.yield %x : f32
  }
  warp.matmul f16 x f16 %a, %b plus %c into %c through %epilogue : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32> plus memref<4x6xf32>
  return
}

// -----

func.func @element_types(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>, %x: f32) {
  // expected-error @below {{expected a region on elements (f32, f32), got (f32, f16)}}
  %epilogue = warp.pointwise %x maps [affine_map<(m, n, k) -> ()>] : f32 (%p: f32, %q: f16) {
    warp.yield %p : f32
  }
  warp.matmul f16 x f16 %a, %b plus %c into %c through %epilogue
      : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32> plus memref<4x6xf32>
  return
}

// -----

func.func @yielded_type(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  // expected-error @+4 {{expected elements of f32 from warp.pointwise, got f16}}
  %epilogue = warp.pointwise (%x: f16) {
    warp.yield %x : f16
  }
  warp.matmul f16 x f16 %a, %b plus %c into %c through %epilogue : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32> plus memref<4x6xf32>
  return
}

// -----

func.func @effects(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  // expected-error @below {{expected arithmetic on elements and warp.yield, got memref.alloc}}
  %epilogue = warp.pointwise (%x: f32) {
    %0 = memref.alloc() : memref<4xf32>
    warp.yield %x : f32
  }
  warp.matmul f16 x f16 %a, %b plus %c into %c through %epilogue : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32> plus memref<4x6xf32>
  return
}

// -----

func.func @from_outside(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>, %y: f32) {
  // expected-error @below {{Operation using value defined out of its IsolatedFromAbove parent}}
  %epilogue = warp.pointwise (%x: f32) {
    warp.yield %y : f32
  }
  warp.matmul f16 x f16 %a, %b plus %c into %c through %epilogue : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32> plus memref<4x6xf32>
  return
}

// -----

func.func @initial_type(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  // expected-error @+5 {{expected an initial value of the type that the epilogue takes, got f32}}
  %epilogue = warp.pointwise (%x: f16) {
    %0 = arith.extf %x : f16 to f32
    warp.yield %0 : f32
  }
  warp.matmul f16 x f16 %a, %b init 0.0 : f32 into %c through %epilogue : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32>
  return
}

// -----

func.func @maps(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>, %y: f32) {
  // expected-error @below {{expected a map of each of 1 operands, got 0}}
  %epilogue = warp.pointwise %y : f32 (%x: f32, %z: f32) {
    warp.yield %z : f32
  }
  warp.matmul f16 x f16 %a, %b plus %c into %c through %epilogue : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32> plus memref<4x6xf32>
  return
}

// -----

func.func @along_k(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>, %y: memref<5xf32>) {
  // expected-error @+4 {{expected epilogue operand 0 to be indexed by some of d0, d1, got (d0, d1, d2) -> (d2)}}
  %epilogue = warp.pointwise %y maps [affine_map<(m, n, k) -> (k)>] : memref<5xf32> (%x: f32, %z: f32) {
    warp.yield %z : f32
  }
  warp.matmul f16 x f16 %a, %b plus %c into %c through %epilogue
      : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32> plus memref<4x6xf32>
  return
}

// -----

func.func @rank(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>, %y: memref<4x6xf32>) {
  // expected-error @+4 {{expected epilogue operand 0 of rank 1, got memref<4x6xf32>}}
  %epilogue = warp.pointwise %y maps [affine_map<(m, n, k) -> (n)>] : memref<4x6xf32> (%x: f32, %z: f32) {
    warp.yield %z : f32
  }
  warp.matmul f16 x f16 %a, %b plus %c into %c through %epilogue
      : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32> plus memref<4x6xf32>
  return
}

// -----

func.func @size(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>, %y: memref<4xf32>) {
  // expected-error @+4 {{expected B and epilogue operand 0 to agree on n, got 6 and 4}}
  %epilogue = warp.pointwise %y maps [affine_map<(m, n, k) -> (n)>] : memref<4xf32> (%x: f32, %z: f32) {
    warp.yield %z : f32
  }
  warp.matmul f16 x f16 %a, %b plus %c into %c through %epilogue
      : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32> plus memref<4x6xf32>
  return
}

// -----

func.func @d_turned(%a: memref<6x5xf16>, %b: memref<5x6xf16>, %c: memref<6x6xf32>) {
  // expected-error @+4 {{expected D as an epilogue operand to be indexed as D is}}
  %epilogue = warp.pointwise %c maps [affine_map<(m, n, k) -> (n, m)>] : memref<6x6xf32> (%x: f32, %z: f32) {
    warp.yield %z : f32
  }
  warp.matmul f16 x f16 %a, %b plus %c into %c through %epilogue
      : memref<6x5xf16>, memref<5x6xf16>, memref<6x6xf32> plus memref<6x6xf32>
  return
}

// -----

func.func @index_of_k(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  // expected-error @+7 {{expected the index of a loop that elements run along, 0, 1, got 2}}
  %epilogue = warp.pointwise (%x: f32) {
    %k = warp.index 2 : i32
    %0 = arith.sitofp %k : i32 to f32
    %1 = arith.addf %x, %0 : f32
    warp.yield %1 : f32
  }
  warp.matmul f16 x f16 %a, %b plus %c into %c through %epilogue : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32> plus memref<4x6xf32>
  return
}
