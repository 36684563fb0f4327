// What fits is lowered; operations of unknown dialects, other functions and what has no kernel stay, with a remark.

// RUN: warploom-opt %s -p 'warploom{target=sm_80}' --allow-unregistered-dialect --remarks 2>&1 | filecheck %s
// RUN: not warploom-opt %s -p 'warploom{target=sm_80}' --allow-unregistered-dialect --full-conversion 2>&1 | filecheck %s --check-prefix=FULL
// FULL: partial.mlir:[[# @LINE + 41]]:3: error: linalg.add is not lowered: expected an element type

// CHECK-DAG: partial.mlir:[[# @LINE + 39]]:3: remark: partial-conversion: linalg.add stays as it is: expected an element type of a matrix instruction, or i16, i64, index, got memref<3xi128>
// CHECK-DAG: partial.mlir:[[# @LINE + 54]]:3: remark: partial-conversion: linalg.generic stays as it is: foreign.half is not lowered to PTX inside a kernel
// CHECK-DAG: remark: partial-conversion: foreign.init stays as it is: its dialect is not known
// CHECK-DAG: remark: partial-conversion: foreign.write stays as it is: its dialect is not known

#n = affine_map<(d0) -> (d0)>

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
// CHECK-NEXT:   linalg.add ins(%i, %i : memref<3xi128>, memref<3xi128>) outs(%o : memref<3xi128>)
// CHECK-NEXT:   func.return
func.func @between(
    %A: memref<40x48xf16>, %B: memref<48x56xf16>, %C: memref<40x56xf32>, %i: memref<3xi128>, %o: memref<3xi128>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%C : memref<40x56xf32>)
  "foreign.write"(%C) : (memref<40x56xf32>) -> ()
  linalg.matmul ins(%A, %B : memref<40x48xf16>, memref<48x56xf16>) outs(%C : memref<40x56xf32>)
  linalg.add ins(%i, %i : memref<3xi128>, memref<3xi128>) outs(%o : memref<3xi128>)
  return
}

// On tensors, what stays takes tensors of memory, and its results become memory.
// CHECK:      func.func @tensors(%x: memref<7xf32>, %at: memref<5xi32>, %[[r:\w+]]: memref<5xf32>) {
// CHECK:        gpu.launch_func @kernels::@tensors blocks
// CHECK:        %[[t:\w+]] = bufferization.to_tensor %{{\w+}} restrict
// CHECK:        %[[g:\w+]] = linalg.generic
// CHECK:          tensor.extract
// CHECK:        bufferization.to_buffer %[[g]]
// CHECK:        gpu.launch_func @kernels::@tensors_1
func.func @tensors(%x: tensor<7xf32>, %at: tensor<5xi32>) -> tensor<5xf32> {
  %e = tensor.empty() : tensor<7xf32>
  %y = linalg.exp ins(%x : tensor<7xf32>) outs(%e : tensor<7xf32>) -> tensor<7xf32>
  %o = tensor.empty() : tensor<5xf32>
  %g = linalg.generic {indexing_maps = [#n, #n], iterator_types = ["parallel"]}
      ins(%at : tensor<5xi32>) outs(%o : tensor<5xf32>) {
  ^bb0(%i: i32, %old: f32):
    %n = arith.index_cast %i : i32 to index
    %z = tensor.extract %y[%n] : tensor<7xf32>
    %a = "foreign.half"(%z) : (f32) -> f32
    linalg.yield %a : f32
  } -> tensor<5xf32>
  %r = linalg.exp ins(%g : tensor<5xf32>) outs(%o : tensor<5xf32>) -> tensor<5xf32>
  return %r : tensor<5xf32>
}

// CHECK: ptx.module @kernels
