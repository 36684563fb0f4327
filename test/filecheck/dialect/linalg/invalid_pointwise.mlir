// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{expected an operation on elements, got 'arith.nothing'}}
func.func @unknown(%a: memref<4xf32>, %b: memref<4xf32>) {
  linalg.map {arith.nothing} ins(%a : memref<4xf32>) outs(%b : memref<4xf32>)
  return
}

// -----

// expected-error @+2 {{expected one operand in outs(...), got 0}}
func.func @no_output(%a: memref<4xf32>, %b: memref<4xf32>) {
  linalg.map {arith.negf} ins(%a : memref<4xf32>)
  return
}

// -----

// expected-error @+2 {{expected a #linalg.elementwise_kind, and one operand in outs(...)}}
func.func @no_kind(%a: memref<4xf32>, %b: memref<4xf32>) {
  linalg.elementwise kind=1 ins(%a : memref<4xf32>) outs(%b : memref<4xf32>)
  return
}

// -----

// expected-error @+2 {{expected 2 inputs of add, got 1}}
func.func @inputs(%a: memref<4xf32>, %b: memref<4xf32>) {
  linalg.elementwise kind=#linalg.elementwise_kind<add> ins(%a : memref<4xf32>) outs(%b : memref<4xf32>)
  return
}

// -----

// expected-error @+2 {{expected exp of floats, got i32}}
func.func @integers(%a: memref<4xi32>, %b: memref<4xi32>) {
  linalg.elementwise kind=#linalg.elementwise_kind<exp> ins(%a : memref<4xi32>) outs(%b : memref<4xi32>)
  return
}

// -----

// expected-error @+2 {{linalg.elementwise: expected operand #0 of rank 1 to match the result count of indexing_map #0, 2}}
func.func @maps(%a: memref<4xf32>, %b: memref<4xf32>) {
  linalg.elementwise kind=#linalg.elementwise_kind<exp> indexing_maps = [affine_map<(i) -> (i, i)>, affine_map<(i) -> (i)>] ins(%a : memref<4xf32>) outs(%b : memref<4xf32>)
  return
}

// -----

// expected-error @+2 {{linalg.map: expected the body to yield f32, an element of each output, got i32}}
func.func @yields(%a: memref<4xf32>) {
  linalg.map outs(%a : memref<4xf32>) (%x: f32) {
    %0 = arith.constant 1 : i32
    linalg.yield %0 : i32
  }
  return
}
