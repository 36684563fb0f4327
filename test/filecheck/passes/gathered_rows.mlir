// RUN: warploom-opt %s -p warp-fuse-rows | filecheck %s

// Rows that a table says are inputs of rows, unless their memory is overwritten in between.

#mn = affine_map<(m, n) -> (m, n)>
#m = affine_map<(m, n) -> (m)>

// CHECK-LABEL: func.func @gathered
// CHECK-NOT:     linalg.generic
// CHECK:         warp.rows %t, %tokens into %s {indexing_maps = [affine_map<(d0, d1)[s0] -> (s0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0)>]}
// CHECK:           warp.yield %{{.*}}, %{{.*}} : f32, i32
func.func @gathered(%tokens: memref<4xi32>, %t: memref<5x64xf32>, %s: memref<4xf32>) {
  %zero = arith.constant 0.0 : f32
  %h = memref.alloc() : memref<4x64xf32>
  linalg.generic {indexing_maps = [#m, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%tokens : memref<4xi32>) outs(%h : memref<4x64xf32>) {
  ^bb0(%token: i32, %old: f32):
    %i = arith.index_cast %token : i32 to index
    %j = linalg.index 1 : index
    %a = memref.load %t[%i, %j] : memref<5x64xf32>
    linalg.yield %a : f32
  }
  linalg.fill ins(%zero : f32) outs(%s : memref<4xf32>)
  linalg.generic {indexing_maps = [#mn, #m], iterator_types = ["parallel", "reduction"]}
      ins(%h : memref<4x64xf32>) outs(%s : memref<4xf32>) {
  ^bb0(%a: f32, %total: f32):
    %0 = arith.addf %total, %a : f32
    linalg.yield %0 : f32
  }
  return
}

// CHECK-LABEL: func.func @overwritten
// CHECK:         linalg.generic
// CHECK:         linalg.fill
// CHECK:         warp.rows %h into %s
func.func @overwritten(%tokens: memref<4xi32>, %t: memref<5x64xf32>, %s: memref<4xf32>) {
  %zero = arith.constant 0.0 : f32
  %h = memref.alloc() : memref<4x64xf32>
  linalg.generic {indexing_maps = [#m, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%tokens : memref<4xi32>) outs(%h : memref<4x64xf32>) {
  ^bb0(%token: i32, %old: f32):
    %i = arith.index_cast %token : i32 to index
    %j = linalg.index 1 : index
    %a = memref.load %t[%i, %j] : memref<5x64xf32>
    linalg.yield %a : f32
  }
  linalg.fill ins(%zero : f32) outs(%t : memref<5x64xf32>)
  linalg.fill ins(%zero : f32) outs(%s : memref<4xf32>)
  linalg.generic {indexing_maps = [#mn, #m], iterator_types = ["parallel", "reduction"]}
      ins(%h : memref<4x64xf32>) outs(%s : memref<4xf32>) {
  ^bb0(%a: f32, %total: f32):
    %0 = arith.addf %total, %a : f32
    linalg.yield %0 : f32
  }
  return
}
