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

  // Of many groups, a loop over tiles carries where the last search ended.
  // CHECK-LABEL: gpu.func @loop
  // CHECK:         scf.for %tile = {{.*}} iter_args(%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %[[TILES:[^ ]*]] = %{{.*}})
  // CHECK:           arith.cmpi ult, %{{.*}}, %[[TILES]]
  // CHECK:           %[[FOUND:.*]], %[[BEGIN:.*]], %[[FIRST:.*]], %{{.*}}, %{{.*}} = scf.while
  // CHECK:           scf.yield %[[FOUND]], %[[BEGIN]], %[[FIRST]]
  gpu.func @loop(%ends: memref<64xi32>, %tiles: index) kernel {
    %one = arith.constant 1 : index
    scf.for %tile = %one to %tiles step %one {
      %group, %first = warp.find_group %ends[%tile] rows 128 x %one : memref<64xi32>
    }
    gpu.return
  }
}
