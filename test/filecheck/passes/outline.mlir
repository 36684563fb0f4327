// RUN: warploom-opt %s -p warp-outline | filecheck %s
// RUN: warploom-opt %s -p warp-outline | warploom-opt | filecheck %s
// RUN: warploom-opt %s -p warp-outline | warploom-opt --print-op-generic | warploom-opt | filecheck %s
// RUN: warploom-opt %s -p warp-outline,warp-outline | filecheck %s

builtin.module attributes {warp.target = #warp.target<sm_80>} {

// A CTA for each tile, 9 x 3 of them; the last ones start where they end with the matrix. In the kernel the product is still an operation on memory, of one tile; what
// stands around it, such as an epilogue, goes along.
// CHECK-LABEL: func.func @edges(%A: memref<270x70xf16>, %B: memref<70x80xf16>, %C: memref<270x80xf32>, %x: memref<80xf32>)
// CHECK-DAG:     %[[CTAS:\w+]] = arith.constant 27 : index
// CHECK:         gpu.launch_func @kernels::@edges blocks in (%[[CTAS]], {{.*}}) args(%A : {{.*}}, %B : {{.*}}, %C : {{.*}}, %x : {{.*}})
// CHECK-NOT:     warp.matmul
// CHECK:         return
func.func @edges(%A: memref<270x70xf16>, %B: memref<70x80xf16>, %C: memref<270x80xf32>, %x: memref<80xf32>) {
  %epilogue = warp.pointwise %x maps [affine_map<(m, n, k) -> (n)>] : memref<80xf32> (%p: f32, %b: f32) {
    %s = arith.addf %p, %b : f32
    warp.yield %s : f32
  }
  warp.matmul f16 x f16 %A, %B init 0.0 : f32 into %C through %epilogue
      {warp.schedule = #warp.schedule<cta = 32x32x32, warp = 16x16, mma = m16n8k16, stages = 2, swizzle = 128, group = 8, accumulate = f32>}
      : memref<270x70xf16>, memref<70x80xf16>, memref<270x80xf32>
  return
}

// One matrix of a batch, B as it lies: its columns are rows of memory. 24 rows take two tiles of 16, of which the second
// starts where it ends with the matrix.
// CHECK-LABEL: func.func @batch
// CHECK-DAG:     %[[CTAS:\w+]] = arith.constant 12 : index
// CHECK-DAG:     %[[ONE:\w+]] = arith.constant 1 : index
// CHECK:         gpu.launch_func @{{.*}} blocks in (%[[CTAS]], %[[ONE]], %[[ONE]])
func.func @batch(%A: memref<6x24x32xf16>, %B: memref<6x32x8xf16, strided<[256, 1, 32]>>, %C: memref<6x24x8xf32>) {
  warp.matmul f16 x f16 %A, %B init 0.0 : f32 into %C
      maps [affine_map<(d, m, n, k) -> (d, m, k)>, affine_map<(d, m, n, k) -> (d, k, n)>, affine_map<(d, m, n, k) -> (d, m, n)>]
      {warp.schedule = #warp.schedule<cta = 16x8x16, warp = 16x8, mma = m16n8k16, stages = 1, swizzle = 128, group = 1, accumulate = f32>}
      : memref<6x24x32xf16>, memref<6x32x8xf16, strided<[256, 1, 32]>>, memref<6x24x8xf32>
  return
}

// CHECK:      gpu.func @edges(%A: memref<270x70xf16>, %B: memref<70x80xf16>, %C: memref<270x80xf32>, %X0: memref<80xf32>) kernel
// CHECK-NEXT:   gpu.block_id x
// CHECK:        %[[LAST_M:\w+]] = arith.constant 238 : index
// CHECK-NEXT:   %[[M:\w+]] = arith.minui %{{\w+}}, %[[LAST_M]]
// CHECK:        %[[LAST_N:\w+]] = arith.constant 48 : index
// CHECK-NEXT:   %[[N:\w+]] = arith.minui %{{\w+}}, %[[LAST_N]]
// CHECK-NEXT:   %epilogue = warp.pointwise %X0 maps [affine_map<(d0, d1, d2) -> (d1)>] : memref<80xf32> (%p: f32, %b: f32) {
// CHECK-NEXT:     arith.addf
// CHECK-NEXT:     warp.yield
// CHECK-NEXT:   }
// CHECK-NEXT:   warp.matmul f16 x f16 %A, %B init 0.000000e+00 : f32 into %C through %epilogue tile[%[[M]], %[[N]]] {warp.schedule = {{.*}}} : memref<270x70xf16>, memref<70x80xf16>, memref<270x80xf32>
// CHECK-NEXT:   gpu.return

// CHECK:      gpu.func @batch(
// CHECK:        %[[X:\w+]] = gpu.block_id x
// CHECK:        %[[Z:\w+]] = arith.divui %[[X]], %{{\w+}}
// CHECK-NEXT:   %[[A:\w+]] = warp.matrix %A[%[[Z]], row, column]
// CHECK-NEXT:   %[[B:\w+]] = warp.matrix %B[%[[Z]], column, row] : {{.*}} -> memref<8x32xf16, strided<[32, 1], offset: ?>>
// CHECK-NEXT:   %[[C:\w+]] = warp.matrix %C[%[[Z]], row, column]
// CHECK:        %[[LAST:\w+]] = arith.constant 8 : index
// CHECK:        %[[M:\w+]] = arith.minui %{{\w+}}, %[[LAST]]
// CHECK:        warp.matmul f16 x f16 %[[A]], %[[B]] init {{.*}} into %[[C]] tile[%[[M]], %{{\w+}}] maps [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>]
}
