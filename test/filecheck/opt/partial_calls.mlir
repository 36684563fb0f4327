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
