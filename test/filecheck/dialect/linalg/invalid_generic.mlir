// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{expected indexing_maps and iterator_types, or an alias of them}}
func.func @nothing(%a: memref<4xf32>) {
  linalg.generic outs(%a : memref<4xf32>) {
  ^bb0(%x: f32):
    linalg.yield %x : f32
  }
  return
}

// -----

// expected-error @+2 {{expected indexing_maps to be a list of affine maps, got none}}
func.func @no_maps(%a: memref<4xf32>) {
  linalg.generic {iterator_types = ["parallel"]} outs(%a : memref<4xf32>) {
  ^bb0(%x: f32):
    linalg.yield %x : f32
  }
  return
}

// -----

// expected-error @+2 {{expected iterator_types to be a list of parallel, reduction, window, got ["sideways"]}}
func.func @kinds(%a: memref<4xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["sideways"]} outs(%a : memref<4xf32>) {
  ^bb0(%x: f32):
    linalg.yield %x : f32
  }
  return
}

// -----

// expected-error @+2 {{expected a type for each of 2 operands, got 1}}
func.func @types(%a: memref<4xf32>, %b: memref<4xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%a, %b : memref<4xf32>) {
  ^bb0(%x: f32, %y: f32):
    linalg.yield %x : f32
  }
  return
}

// -----

// expected-error @+2 {{expected the body to yield f32, an element of each output, got f32, f32}}
func.func @yields(%a: memref<4xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%a : memref<4xf32>) {
  ^bb0(%x: f32):
    linalg.yield %x, %x : f32, f32
  }
  return
}
