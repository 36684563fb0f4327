// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80},warp-raise-matmul" | filecheck %s --check-prefix=RAISED
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80},warp-schedule{cta=16,8,16 stages=1},warp-outline,warp-tile" | filecheck %s
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80},warp-schedule{cta=16,8,16 stages=1},warp-outline,warp-tile" | warploom-opt | filecheck %s
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80},warp-schedule{cta=16,8,16 stages=1},warp-outline,warp-tile,convert-warp-to-ptx" -t ptx | filecheck %s --check-prefix=PTX

// The 4 tiles of a matrix of the batch follow each other; one B for all of it.
// RAISED-LABEL: func.func @batch
// RAISED-NEXT:    warp.matmul f16 x f16 %A, %B plus %C into %C maps [affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>, affine_map<(d0, d1, d2, d3) -> (d3, d2)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>] :
// CHECK-LABEL: func.func @batch
// CHECK-DAG:     %[[CTAS:\w+]] = arith.constant 24 : index
// CHECK-DAG:     %[[ONE:\w+]] = arith.constant 1 : index
// CHECK:         gpu.launch_func @{{.*}} blocks in (%[[CTAS]], %[[ONE]], %[[ONE]])
func.func @batch(%A: memref<6x32x24xf16>, %B: memref<24x16xf16>, %C: memref<6x32x16xf32>) {
  linalg.batch_matmul
      indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (k, n)>, affine_map<(b, m, n, k) -> (b, m, n)>]
      ins(%A, %B : memref<6x32x24xf16>, memref<24x16xf16>) outs(%C : memref<6x32x16xf32>)
  return
}

// A result that lies column by column is that of the transposed product, row by row.
// RAISED-LABEL: func.func @columns
// RAISED-NEXT:    warp.matmul f16 x f16 %B, %A plus %C into %C maps [affine_map<(d0, d1, d2) -> (d2, d0)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d1, d0)>] :
func.func @columns(%A: memref<32x24xf16, strided<[40, 1], offset: 8>>, %B: memref<24x16xf16>, %C: memref<32x16xf32, strided<[1, 32]>>) {
  linalg.matmul ins(%A, %B : memref<32x24xf16, strided<[40, 1], offset: 8>>, memref<24x16xf16>) outs(%C : memref<32x16xf32, strided<[1, 32]>>)
  return
}

// CHECK:      gpu.func @{{.*}}: memref<6x32x24xf16>, %{{.*}}: memref<24x16xf16>, %{{.*}}: memref<6x32x16xf32>) kernel
// CHECK:        %[[X:\w+]] = gpu.block_id x
// CHECK:        arith.remui %[[X]], %{{\w+}}
// CHECK:        %[[Z:\w+]] = arith.divui %[[X]], %{{\w+}}
// CHECK-NEXT:   %[[A:\w+]] = warp.matrix %A[%[[Z]], row, column] : memref<6x32x24xf16> -> memref<32x24xf16, strided<[24, 1], offset: ?>>
// CHECK-NEXT:   %[[C:\w+]] = warp.matrix %C[%[[Z]], row, column] : memref<6x32x16xf32> -> memref<32x16xf32, strided<[16, 1], offset: ?>>
// CHECK:        warp.copy %[[A]][
// CHECK:        warp.copy %B[
// CHECK:        warp.store %{{\w+}}, %[[C]][
// CHECK:      gpu.func @{{.*}}: memref<24x16xf16>, %{{.*}}: memref<32x24xf16, strided<[40, 1], offset: 8>>, %{{.*}}: memref<32x16xf32, strided<[1, 32]>>) kernel
// CHECK:        gpu.block_id x
// CHECK-NEXT:   warp.matrix %C[column, row] : memref<32x16xf32, strided<[1, 32]>> -> memref<16x32xf32, strided<[32, 1], offset: ?>>

// The address of a matrix is computed in 64 bits; the offset of a layout says how the argument is aligned.
// PTX-LABEL: .entry batch(
// PTX:         mov.u32 %[[X:r[0-9]+]], %ctaid.x;
// PTX:         shr.u32 %[[Z:r[0-9]+]], %[[X]], 2;
// PTX:         cvt.u64.u32 %[[W:rd[0-9]+]], %[[Z]];
// PTX:         mul.lo.s64 %{{rd[0-9]+}}, %[[W]], 1536;
// PTX-LABEL: .entry columns(
// PTX-DAG:     .param .u64 .ptr .global .align 16 columns_A
// PTX-DAG:     .param .u64 .ptr .global .align 16 columns_B
