// RUN: warploom-opt %s --split-input-file --verify-diagnostics 2>&1 | filecheck %s

func.func @extras_without_epilogue(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>, %x: f32) {
  // CHECK: expected epilogue operands only with an epilogue, got 1
  warp.matmul f16 x f16 %a, %b init 0.0 : f32 into %c with %x
      maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>, affine_map<(m, n, k) -> ()>]
      : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32>, f32
  return
}

// -----

func.func @no_argument(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  // CHECK: expected an epilogue of one block that takes the element of the product
  warp.matmul f16 x f16 %a, %b plus %c into %c : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32>, memref<4x6xf32> epilogue() {
    %0 = arith.constant 0.0 : f32
    warp.yield %0 : f32
  }
  return
}

// -----

func.func @no_yield(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  // CHECK: expected one block that ends with warp.yield
  warp.matmul f16 x f16 %a, %b plus %c into %c : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32>, memref<4x6xf32> epilogue(%x: f32) {
    linalg.yield %x : f32
  }
  return
}

// -----

func.func @element_types(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>, %x: f32) {
  // CHECK: expected a region on elements (f32, f32), got (f32, f16)
  warp.matmul f16 x f16 %a, %b plus %c into %c with %x
      maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>, affine_map<(m, n, k) -> ()>]
      : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32>, memref<4x6xf32>, f32 epilogue(%p: f32, %q: f16) {
    warp.yield %p : f32
  }
  return
}

// -----

func.func @yielded_type(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  // CHECK: expected warp.yield of an element of type f32, got f16
  warp.matmul f16 x f16 %a, %b plus %c into %c : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32>, memref<4x6xf32> epilogue(%x: f16) {
    warp.yield %x : f16
  }
  return
}

// -----

func.func @effects(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  // CHECK: expected arithmetic on elements and warp.yield, got memref.alloc
  warp.matmul f16 x f16 %a, %b plus %c into %c : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32>, memref<4x6xf32> epilogue(%x: f32) {
    %0 = memref.alloc() : memref<4xf32>
    warp.yield %x : f32
  }
  return
}

// -----

func.func @from_outside(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>, %y: f32) {
  // CHECK: Operation using value defined out of its IsolatedFromAbove parent
  warp.matmul f16 x f16 %a, %b plus %c into %c : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32>, memref<4x6xf32> epilogue(%x: f32) {
    warp.yield %y : f32
  }
  return
}

// -----

func.func @initial_type(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  // CHECK: expected an initial value of the type that the epilogue takes, got f32
  warp.matmul f16 x f16 %a, %b init 0.0 : f32 into %c : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32> epilogue(%x: f16) {
    %0 = arith.extf %x : f16 to f32
    warp.yield %0 : f32
  }
  return
}

// -----

func.func @maps(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>, %y: f32) {
  // CHECK: expected indexing maps of A, B and D and 1 epilogue operands, got 3
  warp.matmul f16 x f16 %a, %b plus %c into %c with %y : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32>, memref<4x6xf32>, f32 epilogue(%x: f32, %z: f32) {
    warp.yield %z : f32
  }
  return
}

// -----

func.func @along_k(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>, %y: memref<5xf32>) {
  // CHECK: expected epilogue operand 0 to be indexed by some of d0, d1, got (d0, d1, d2) -> (d2)
  warp.matmul f16 x f16 %a, %b plus %c into %c with %y
      maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>, affine_map<(m, n, k) -> (k)>]
      : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32>, memref<4x6xf32>, memref<5xf32> epilogue(%x: f32, %z: f32) {
    warp.yield %z : f32
  }
  return
}

// -----

func.func @rank(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>, %y: memref<4x6xf32>) {
  // CHECK: expected epilogue operand 0 of rank 1, got memref<4x6xf32>
  warp.matmul f16 x f16 %a, %b plus %c into %c with %y
      maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>, affine_map<(m, n, k) -> (n)>]
      : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32>, memref<4x6xf32>, memref<4x6xf32> epilogue(%x: f32, %z: f32) {
    warp.yield %z : f32
  }
  return
}

// -----

func.func @size(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>, %y: memref<4xf32>) {
  // CHECK: expected B and epilogue operand 0 to agree on n, got 6 and 4
  warp.matmul f16 x f16 %a, %b plus %c into %c with %y
      maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>, affine_map<(m, n, k) -> (n)>]
      : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32>, memref<4x6xf32>, memref<4xf32> epilogue(%x: f32, %z: f32) {
    warp.yield %z : f32
  }
  return
}

// -----

func.func @d_turned(%a: memref<6x5xf16>, %b: memref<5x6xf16>, %c: memref<6x6xf32>) {
  // CHECK: expected D as an epilogue operand to be indexed as D is
  warp.matmul f16 x f16 %a, %b plus %c into %c with %c
      maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>, affine_map<(m, n, k) -> (n, m)>]
      : memref<6x5xf16>, memref<5x6xf16>, memref<6x6xf32>, memref<6x6xf32>, memref<6x6xf32> epilogue(%x: f32, %z: f32) {
    warp.yield %z : f32
  }
  return
}

// -----

func.func @index_of_k(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  // CHECK: expected the index of a loop that elements run along, 0, 1, got 2
  warp.matmul f16 x f16 %a, %b plus %c into %c : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32>, memref<4x6xf32> epilogue(%x: f32) {
    %k = warp.index 2 : i32
    %0 = arith.sitofp %k : i32 to f32
    %1 = arith.addf %x, %0 : f32
    warp.yield %1 : f32
  }
  return
}
