// What fits is lowered; operations of unknown dialects, other functions and what has no kernel stay, with a remark.

// RUN: warploom-opt %s -p 'warploom{target=sm_80}' --allow-unregistered-dialect --remarks 2>&1 | filecheck %s
// RUN: not warploom-opt %s -p 'warploom{target=sm_80}' --allow-unregistered-dialect --full-conversion 2>&1 | filecheck %s --check-prefix=FULL
// FULL: partial.mlir:[[# @LINE + 53]]:3: error: tensor.concat is not lowered: tensor.concat on tensors is not bufferised

// CHECK-DAG: partial.mlir:[[# @LINE + 37]]:3: remark: partial-conversion: linalg.add stays as it is: linalg.add on elements of i64 has no kernel of its own
// CHECK-DAG: partial.mlir:[[# @LINE + 50]]:3: remark: partial-conversion: tensor.concat stays as it is: tensor.concat on tensors is not bufferised
// CHECK-DAG: remark: partial-conversion: foreign.init stays as it is: its dialect is not known
// CHECK-DAG: remark: partial-conversion: foreign.write stays as it is: its dialect is not known

// Host code without anything to lower.
// CHECK:      func.func @host(%a: memref<4xf32>) {
// CHECK-NEXT:   "foreign.init"(%a) {size = 4 : i64} : (memref<4xf32>) -> ()
// CHECK-NEXT:   func.return
func.func @host(%a: memref<4xf32>) {
  "foreign.init"(%a) {size = 4 : i64} : (memref<4xf32>) -> ()
  return
}

// CHECK:      func.func @branches
// CHECK-NEXT:   cf.cond_br
func.func @branches(%a: memref<4xf32>, %c: i1) {
  cf.cond_br %c, ^a, ^b
^a:
  return
^b:
  return
}

// An unknown operation may write what is filled before it, and reads what is computed before it.
// CHECK:      func.func @between
// CHECK:        gpu.launch_func @kernels::@between blocks
// CHECK:        "foreign.write"(%C)
// CHECK:        gpu.launch_func @kernels::@between_1 blocks
// CHECK-NEXT:   linalg.add ins(%i, %i : memref<3xi64>, memref<3xi64>) outs(%o : memref<3xi64>)
// CHECK-NEXT:   func.return
func.func @between(
    %A: memref<40x48xf16>, %B: memref<48x56xf16>, %C: memref<40x56xf32>, %i: memref<3xi64>, %o: memref<3xi64>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%C : memref<40x56xf32>)
  "foreign.write"(%C) : (memref<40x56xf32>) -> ()
  linalg.matmul ins(%A, %B : memref<40x48xf16>, memref<48x56xf16>) outs(%C : memref<40x56xf32>)
  linalg.add ins(%i, %i : memref<3xi64>, memref<3xi64>) outs(%o : memref<3xi64>)
  return
}

// On tensors, what stays takes tensors of memory, and its results become memory.
// CHECK:      func.func @tensors(%x: memref<3x5xf32>, %[[r:\w+]]: memref<6x5xf32>) {
// CHECK:        gpu.launch_func @kernels::@tensors blocks
// CHECK:        %[[t:\w+]] = bufferization.to_tensor %{{\w+}} restrict
// CHECK:        %[[c:\w+]] = tensor.concat dim(0)
// CHECK-NEXT:   bufferization.to_buffer %[[c]]
// CHECK:        gpu.launch_func @kernels::@tensors_1
func.func @tensors(%x: tensor<3x5xf32>) -> tensor<6x5xf32> {
  %e = tensor.empty() : tensor<3x5xf32>
  %y = linalg.exp ins(%x : tensor<3x5xf32>) outs(%e : tensor<3x5xf32>) -> tensor<3x5xf32>
  %c = tensor.concat dim(0) %x, %y : (tensor<3x5xf32>, tensor<3x5xf32>) -> tensor<6x5xf32>
  %o = tensor.empty() : tensor<6x5xf32>
  %r = linalg.exp ins(%c : tensor<6x5xf32>) outs(%o : tensor<6x5xf32>) -> tensor<6x5xf32>
  return %r : tensor<6x5xf32>
}

// CHECK: ptx.module @kernels
