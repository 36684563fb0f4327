// RUN: warploom-opt %s -p warp-fold-fill,warp-fuse-epilogue | filecheck %s
// RUN: warploom-opt %s -p warp-fold-fill,warp-fuse-epilogue | warploom-opt -p warp-fuse-epilogue | filecheck %s

#mn = affine_map<(m, n) -> (m, n)>
#nm = affine_map<(m, n) -> (n, m)>
#m = affine_map<(m, n) -> (m)>
#n = affine_map<(m, n) -> (n)>
#s = affine_map<(m, n) -> ()>

// The temporary disappears; constants and numbers from outside come along; the second operation joins the first.
// CHECK-LABEL: func.func @chain
// CHECK-NOT:     memref.alloc
// CHECK-NOT:     linalg
// CHECK:         %[[E:\w+]] = warp.pointwise %bias, %alpha maps [affine_map<(d0, d1, d2) -> (d1)>, affine_map<(d0, d1, d2) -> ()>]
// CHECK-SAME:      : memref<6xf32>, f32 (%product: f32, %[[B:\w+]]: f32, %[[A:\w+]]: f32) {
// CHECK-NEXT:      %[[S:\w+]] = arith.addf %product, %[[B]] : f32
// CHECK-NEXT:      %[[H:\w+]] = arith.constant 5.000000e-01 : f32
// CHECK-NEXT:      %[[T:\w+]] = arith.mulf %[[S]], %[[H]] : f32
// CHECK-NEXT:      %[[U:\w+]] = arith.mulf %[[T]], %[[A]] : f32
// CHECK-NEXT:      %[[Y:\w+]] = arith.truncf %[[U]] : f32 to f16
// CHECK-NEXT:      warp.yield %[[Y]] : f16
// CHECK-NEXT:    }
// CHECK-NEXT:    warp.matmul f16 x f16 %a, %b init 0.000000e+00 : f32 into %d through %[[E]] : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf16>
// CHECK-NEXT:    return
func.func @chain(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %bias: memref<6xf32>, %alpha: f32, %d: memref<4x6xf16>) {
  %z = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %t = memref.alloc() : memref<4x6xf32>
  linalg.fill ins(%z : f32) outs(%t : memref<4x6xf32>)
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%t : memref<4x6xf32>)
  %u = memref.alloc() : memref<4x6xf32>
  linalg.generic {indexing_maps = [#mn, #n, #mn], iterator_types = ["parallel", "parallel"]} ins(%t, %bias : memref<4x6xf32>, memref<6xf32>) outs(%u : memref<4x6xf32>) {
  ^bb0(%x: f32, %y: f32, %old: f32):
    %0 = arith.addf %x, %y : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]} ins(%u : memref<4x6xf32>) outs(%d : memref<4x6xf16>) {
  ^bb0(%x: f32, %old: f16):
    %0 = arith.mulf %x, %half : f32
    %1 = arith.mulf %0, %alpha : f32
    %2 = arith.truncf %1 : f32 to f16
    linalg.yield %2 : f16
  }
  memref.dealloc %t : memref<4x6xf32>
  memref.dealloc %u : memref<4x6xf32>
  return
}

// In place, by a named operation; the product and C as they were; the vector runs along the rows.
// CHECK-LABEL: func.func @in_place
// CHECK-NEXT:    %[[E:\w+]] = warp.pointwise %r {{.*}} (%product: f32, %{{.*}}: f32) {
// CHECK-NEXT:      arith.addf
// CHECK-NEXT:      warp.yield
// CHECK-NEXT:    }
// CHECK-NEXT:    warp.matmul f16 x f16 %a, %b plus %c into %c through %[[E]]
// CHECK-NEXT:    %[[E2:\w+]] = warp.pointwise %v maps [affine_map<(d0, d1, d2) -> (d0)>]
// CHECK:         warp.matmul f16 x f16 %a, %b plus %c into %c through %[[E2]]
func.func @in_place(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>, %r: memref<4x6xf32>, %v: memref<4xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  linalg.add ins(%c, %r : memref<4x6xf32>, memref<4x6xf32>) outs(%c : memref<4x6xf32>)
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  linalg.generic {indexing_maps = [#m, #mn], iterator_types = ["parallel", "parallel"]} ins(%v : memref<4xf32>) outs(%c : memref<4x6xf32>) {
  ^bb0(%y: f32, %x: f32):
    %0 = arith.subf %x, %y : f32
    linalg.yield %0 : f32
  }
  return
}

// What stands between and touches other memory stays in front.
// CHECK-LABEL: func.func @others_between
// CHECK:         linalg.exp ins(%r
// CHECK:         %[[E:\w+]] = warp.pointwise %r
// CHECK:         warp.matmul f16 x f16 %a, %b plus %c into %c through %[[E]]
// CHECK-NOT:     linalg
// CHECK:         return
func.func @others_between(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>, %r: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  linalg.exp ins(%r : memref<4x6xf32>) outs(%r : memref<4x6xf32>)
  linalg.mul ins(%c, %r : memref<4x6xf32>, memref<4x6xf32>) outs(%c : memref<4x6xf32>)
  return
}

// An output that is read: its old elements are an input.
// CHECK-LABEL: func.func @accumulates
// CHECK:         %[[E:\w+]] = warp.pointwise %d
// CHECK:         warp.matmul f16 x f16 %a, %b init 0.000000e+00 : f32 into %d through %[[E]]
func.func @accumulates(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %d: memref<4x6xf32>) {
  %z = arith.constant 0.0 : f32
  %t = memref.alloc() : memref<4x6xf32>
  linalg.fill ins(%z : f32) outs(%t : memref<4x6xf32>)
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%t : memref<4x6xf32>)
  linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]} ins(%t : memref<4x6xf32>) outs(%d : memref<4x6xf32>) {
  ^bb0(%x: f32, %old: f32):
    %0 = arith.addf %x, %old : f32
    linalg.yield %0 : f32
  }
  return
}

// Two products into one result: the second, of another A, takes the first as an input.
// CHECK-LABEL: func.func @gated
// CHECK:         %[[T:\w+]] = memref.alloc
// CHECK:         warp.matmul f16 x f16 %a, %b init 0.000000e+00 : f32 into %[[T]] :
// CHECK:         %[[E:\w+]] = warp.pointwise %[[T]]
// CHECK:         warp.matmul f16 x f16 %a2, %b2 init 0.000000e+00 : f32 into %d through %[[E]]
func.func @gated(%a: memref<4x5xf16>, %a2: memref<4x5xf16>, %b: memref<5x6xf16>, %b2: memref<5x6xf16>, %d: memref<4x6xf32>) {
  %z = arith.constant 0.0 : f32
  %t = memref.alloc() : memref<4x6xf32>
  %u = memref.alloc() : memref<4x6xf32>
  linalg.fill ins(%z : f32) outs(%t : memref<4x6xf32>)
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%t : memref<4x6xf32>)
  linalg.fill ins(%z : f32) outs(%u : memref<4x6xf32>)
  linalg.matmul ins(%a2, %b2 : memref<4x5xf16>, memref<5x6xf16>) outs(%u : memref<4x6xf32>)
  linalg.mul ins(%t, %u : memref<4x6xf32>, memref<4x6xf32>) outs(%d : memref<4x6xf32>)
  memref.dealloc %t : memref<4x6xf32>
  memref.dealloc %u : memref<4x6xf32>
  return
}

// Nothing below is fused.

// The caller sees the product as well.
// CHECK-LABEL: func.func @observable
// CHECK:         warp.matmul f16 x f16 %a, %b plus %c into %c :
// CHECK-NEXT:    linalg.exp
func.func @observable(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>, %d: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  linalg.exp ins(%c : memref<4x6xf32>) outs(%d : memref<4x6xf32>)
  return
}

// The temporary is read again.
// CHECK-LABEL: func.func @read_twice
// CHECK:         warp.matmul f16 x f16 %a, %b init 0.000000e+00 : f32 into %t :
// CHECK-NEXT:    linalg.exp
// CHECK:         linalg.add
func.func @read_twice(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %d: memref<4x6xf32>) {
  %z = arith.constant 0.0 : f32
  %t = memref.alloc() : memref<4x6xf32>
  linalg.fill ins(%z : f32) outs(%t : memref<4x6xf32>)
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%t : memref<4x6xf32>)
  linalg.exp ins(%t : memref<4x6xf32>) outs(%d : memref<4x6xf32>)
  linalg.add ins(%t, %d : memref<4x6xf32>, memref<4x6xf32>) outs(%d : memref<4x6xf32>)
  return
}

// A is written in between.
// CHECK-LABEL: func.func @operand_written
// CHECK:         warp.matmul {{.*}} plus %c into %c :
// CHECK-NEXT:    linalg.add
// CHECK:         linalg.exp
func.func @operand_written(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  linalg.add ins(%a, %a : memref<4x5xf16>, memref<4x5xf16>) outs(%a : memref<4x5xf16>)
  linalg.exp ins(%c : memref<4x6xf32>) outs(%c : memref<4x6xf32>)
  return
}

// Somebody else's effects are in between.
// CHECK-LABEL: func.func @unknown
// CHECK:         warp.matmul {{.*}} plus %c into %c :
// CHECK-NEXT:    func.call
// CHECK:         linalg.exp
func.func @unknown(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  func.call @observer() : () -> ()
  linalg.exp ins(%c : memref<4x6xf32>) outs(%c : memref<4x6xf32>)
  return
}
func.func private @observer() -> ()

// The output is A, which other tiles are still reading.
// CHECK-LABEL: func.func @into_a
// CHECK:         warp.matmul
// CHECK-NEXT:    linalg.generic
func.func @into_a(%a: memref<6x6xf16>, %b: memref<6x6xf16>) {
  %z = arith.constant 0.0 : f16
  %t = memref.alloc() : memref<6x6xf16>
  linalg.fill ins(%z : f16) outs(%t : memref<6x6xf16>)
  linalg.matmul ins(%a, %b : memref<6x6xf16>, memref<6x6xf16>) outs(%t : memref<6x6xf16>)
  linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]} ins(%t : memref<6x6xf16>) outs(%a : memref<6x6xf16>) {
  ^bb0(%x: f16, %old: f16):
    linalg.yield %x : f16
  }
  return
}

// The transposed product is not fused; another input may lie by columns first, and an element may know its row.
// CHECK-LABEL: func.func @other_maps
// CHECK:         warp.matmul {{.*}} into %c :
// CHECK-NEXT:    linalg.generic
// CHECK:         warp.pointwise %r maps [affine_map<(d0, d1, d2) -> (d1, d0)>]
// CHECK:         warp.matmul {{.*}} into %c through
// CHECK:         warp.pointwise (
// CHECK-NEXT:      %[[I:\w+]] = warp.index 0 : i32
// CHECK-NEXT:      arith.sitofp %[[I]] : i32 to f32
// CHECK:         warp.matmul {{.*}} into %c through
func.func @other_maps(%a: memref<6x6xf16>, %b: memref<6x6xf16>, %c: memref<6x6xf32>, %r: memref<6x6xf32>) {
  linalg.matmul ins(%a, %b : memref<6x6xf16>, memref<6x6xf16>) outs(%c : memref<6x6xf32>)
  linalg.generic {indexing_maps = [#nm, #mn], iterator_types = ["parallel", "parallel"]} ins(%c : memref<6x6xf32>) outs(%r : memref<6x6xf32>) {
  ^bb0(%x: f32, %y: f32):
    linalg.yield %x : f32
  }
  linalg.matmul ins(%a, %b : memref<6x6xf16>, memref<6x6xf16>) outs(%c : memref<6x6xf32>)
  linalg.generic {indexing_maps = [#nm, #mn], iterator_types = ["parallel", "parallel"]} ins(%r : memref<6x6xf32>) outs(%c : memref<6x6xf32>) {
  ^bb0(%x: f32, %y: f32):
    %0 = arith.addf %x, %y : f32
    linalg.yield %0 : f32
  }
  linalg.matmul ins(%a, %b : memref<6x6xf16>, memref<6x6xf16>) outs(%c : memref<6x6xf32>)
  linalg.generic {indexing_maps = [#mn], iterator_types = ["parallel", "parallel"]} outs(%c : memref<6x6xf32>) {
  ^bb0(%x: f32):
    %i = linalg.index 0 : index
    %0 = arith.index_cast %i : index to i32
    %1 = arith.sitofp %0 : i32 to f32
    %2 = arith.addf %x, %1 : f32
    linalg.yield %2 : f32
  }
  return
}
