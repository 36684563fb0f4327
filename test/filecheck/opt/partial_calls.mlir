// A function that another module has keeps its declaration, and calls of it stay.

// RUN: warploom-opt %s -p 'warploom{target=sm_80}' --allow-unregistered-dialect --remarks 2>&1 | filecheck %s
// RUN: not warploom-opt %s -p 'warploom{target=sm_80}' --allow-unregistered-dialect --full-conversion 2>&1 | filecheck %s --check-prefix=FULL
// FULL: partial_calls.mlir:14:3: error: func.call is not lowered: expected @elsewhere to be a function of the module

// CHECK:      partial_calls.mlir:14:3: remark: partial-conversion: func.call stays as it is: expected @elsewhere to be
// CHECK:      func.func private @elsewhere(memref<4xf32>) -> ()
// CHECK:      gpu.launch_func @kernels::@caller
// CHECK-NEXT: func.call @elsewhere(%a) : (memref<4xf32>) -> ()
func.func private @elsewhere(memref<4xf32>)
func.func @caller(%a: memref<4xf32>) {
  linalg.exp ins(%a : memref<4xf32>) outs(%a : memref<4xf32>)
  call @elsewhere(%a) : (memref<4xf32>) -> ()
  return
}

// What stays in a function stays where that is called, too.
// CHECK:      func.func @product
// CHECK:      linalg.matmul ins(%a, %b : memref<8x8xf32>, memref<8x8xf32>) outs(%c : memref<8x8xf32>)
// CHECK:      func.func @calls_product
// CHECK:      linalg.matmul ins(%a, %b : memref<8x8xf32>, memref<8x8xf32>) outs(%c : memref<8x8xf32>)
func.func @product(%a: memref<8x8xf32>, %b: memref<8x8xf32>, %c: memref<8x8xf32>) {
  linalg.matmul ins(%a, %b : memref<8x8xf32>, memref<8x8xf32>) outs(%c : memref<8x8xf32>)
  return
}
func.func @calls_product(%a: memref<8x8xf32>, %b: memref<8x8xf32>, %c: memref<8x8xf32>) {
  call @product(%a, %b, %c) : (memref<8x8xf32>, memref<8x8xf32>, memref<8x8xf32>) -> ()
  return
}
