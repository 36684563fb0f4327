// RUN: warploom-opt %s -p warp-set-target{arch=sm_90a},warp-raise-matmul,warp-fold-fill,warp-fuse-epilogue,warp-schedule,warp-outline,warp-tile | filecheck %s

// Parts that share nothing: side by side, and every other row.
// CHECK-LABEL: func.func @apart
// CHECK-NOT:     warp.disjoint
// CHECK:         gpu.launch_func
// CHECK-NOT:     warp.disjoint
// CHECK:         gpu.launch_func
func.func @apart(%m: memref<128x128xf16>) {
  %x = memref.subview %m[0, 0] [64, 64] [2, 1] : memref<128x128xf16> to memref<64x64xf16, strided<[256, 1]>>
  %y = memref.subview %m[1, 0] [64, 64] [2, 1] : memref<128x128xf16> to memref<64x64xf16, strided<[256, 1], offset: 128>>
  %z = memref.subview %m[0, 64] [64, 64] [1, 1] : memref<128x128xf16> to memref<64x64xf16, strided<[128, 1], offset: 64>>
  linalg.matmul ins(%x, %y : memref<64x64xf16, strided<[256, 1]>>, memref<64x64xf16, strided<[256, 1], offset: 128>>)
    outs(%z : memref<64x64xf16, strided<[128, 1], offset: 64>>)
  linalg.copy ins(%x : memref<64x64xf16, strided<[256, 1]>>) outs(%y : memref<64x64xf16, strided<[256, 1], offset: 128>>)
  return
}

// In place, element by element, also through another view of the same elements.
// CHECK-LABEL: func.func @in_place
// CHECK-NOT:     warp.disjoint
// CHECK:         gpu.launch_func
func.func @in_place(%m: memref<64x64xf32>) {
  %x = memref.subview %m[0, 0] [64, 64] [1, 1] : memref<64x64xf32> to memref<64x64xf32, strided<[64, 1]>>
  linalg.exp ins(%x : memref<64x64xf32, strided<[64, 1]>>) outs(%m : memref<64x64xf32>)
  return
}

// What only a call knows is asked once, before the launch; folding and fusing go past it.
// CHECK-LABEL: func.func @unknown
// CHECK:         warp.disjoint %y, %x : memref<?x?xf16, strided<[?, 1], offset: ?>>, memref<?x?xf16, strided<[?, 1]>>
// CHECK-NOT:     warp.disjoint
// CHECK-COUNT-2: gpu.launch_func
// CHECK-NOT:     gpu.launch_func
// CHECK:         return
func.func @unknown(%m: memref<?x?xf16>, %b: memref<?x?xf16>, %d: memref<64x64xf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %zero = arith.constant 0.0 : f16
  %rows = memref.dim %m, %c0 : memref<?x?xf16>
  %n = memref.dim %m, %c1 : memref<?x?xf16>
  %half = arith.divui %rows, %c2 : index
  %x = memref.subview %m[0, 0] [%half, %n] [1, 1] : memref<?x?xf16> to memref<?x?xf16, strided<[?, 1]>>
  %y = memref.subview %m[%half, 0] [%half, %n] [1, 1] : memref<?x?xf16> to memref<?x?xf16, strided<[?, 1], offset: ?>>
  %t = memref.alloc() : memref<64x64xf16>
  linalg.matmul ins(%d, %d : memref<64x64xf16>, memref<64x64xf16>) outs(%t : memref<64x64xf16>)
  linalg.fill ins(%zero : f16) outs(%y : memref<?x?xf16, strided<[?, 1], offset: ?>>)
  linalg.matmul ins(%x, %b : memref<?x?xf16, strided<[?, 1]>>, memref<?x?xf16>)
    outs(%y : memref<?x?xf16, strided<[?, 1], offset: ?>>)
  linalg.exp ins(%t : memref<64x64xf16>) outs(%t : memref<64x64xf16>)
  return
}

// CHECK-LABEL: func.func @unknown_elements
// CHECK:         warp.disjoint %y, %x or_same : memref<?x?xf32, strided<[?, 1], offset: ?>>, memref<?x?xf32, strided<[?, 1]>>
// CHECK:         gpu.launch_func
func.func @unknown_elements(%m: memref<?x?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %rows = memref.dim %m, %c0 : memref<?x?xf32>
  %n = memref.dim %m, %c1 : memref<?x?xf32>
  %half = arith.divui %rows, %c2 : index
  %x = memref.subview %m[0, 0] [%half, %n] [1, 1] : memref<?x?xf32> to memref<?x?xf32, strided<[?, 1]>>
  %y = memref.subview %m[%half, 0] [%half, %n] [1, 1] : memref<?x?xf32> to memref<?x?xf32, strided<[?, 1], offset: ?>>
  linalg.exp ins(%x : memref<?x?xf32, strided<[?, 1]>>) outs(%y : memref<?x?xf32, strided<[?, 1], offset: ?>>)
  return
}
