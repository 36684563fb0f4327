// A strategy with a step that only upstream has stays, and the program beside it is lowered.

// RUN: warploom-opt %s -p 'warploom{target=sm_80}' --allow-unregistered-dialect --remarks 2>&1 | filecheck %s
// RUN: not warploom-opt %s -p 'warploom{target=sm_80}' 2>&1 | filecheck %s --check-prefix=ERROR

// CHECK:      partial_strategy.mlir:[[# @LINE + 17]]:5: remark: partial-conversion: transform.structured.vectorize_children_and_apply_patterns stays as it is:
// ERROR:      partial_strategy.mlir:[[# @LINE + 16]]:5: error: transform.structured.vectorize_children_and_apply_patterns is no step

// CHECK:      func.func @product
// CHECK:        gpu.launch_func @kernels::@product
func.func @product(%a: memref<32x48xf16>, %b: memref<48x16xf16>, %c: memref<32x16xf32>) {
  linalg.matmul ins(%a, %b : memref<32x48xf16>, memref<48x16xf16>) outs(%c : memref<32x16xf32>)
  return
}

// CHECK:      ptx.module @kernels
// CHECK:      builtin.module attributes {transform.with_named_sequence} {
// CHECK:        transform.named_sequence @__transform_main
// CHECK:        transform.named_sequence @other
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op) {
    %f = transform.structured.match ops{["func.func"]} in %m : (!transform.any_op) -> !transform.any_op
    %g = transform.structured.vectorize_children_and_apply_patterns %f : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
  transform.named_sequence @other(%m: !transform.any_op) {
    transform.yield
  }
}
