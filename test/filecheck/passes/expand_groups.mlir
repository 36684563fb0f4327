// RUN: warploom-opt -p warp-expand %s | filecheck %s

// CHECK-LABEL: gpu.func @tiles
// CHECK:         scf.for
// CHECK-NEXT:      memref.load %ends
// CHECK:           arith.select
// CHECK:           scf.yield
// CHECK-NOT:     warp.
gpu.module @kernels {
  gpu.func @tiles(%ends: memref<8xi32>) kernel {
    %tile = gpu.block_id x
    %across = arith.constant 3 : index
    %group, %first = warp.find_group %ends[%tile] rows 128 x %across : memref<8xi32>
    gpu.return
  }
}
