// RUN: warploom-opt %s --split-input-file -p "warp-set-target{arch=sm_90a},warp-raise-matmul,warp-fold-fill,warp-fuse-epilogue,warp-version" | filecheck %s
// RUN: warploom-opt %s --split-input-file -p "warp-set-target{arch=sm_90a},warp-raise-matmul,warp-fold-fill,warp-fuse-epilogue,warp-version,warp-version" | filecheck %s

// Rows that 16-byte accesses fit, as the call finds, and of these a few, a few tiles of results, and more. Of other rows,
// products along a long K are of copies.
// CHECK-LABEL: func.func @any
// CHECK:         %[[A:.*]] = warp.is_divisible %A by 8 : memref<?x?xbf16>
// CHECK-NEXT:    %[[B:.*]] = warp.is_divisible %B by 8 : memref<?x?xbf16>
// CHECK-NEXT:    %[[C:.*]] = warp.is_divisible %C by 4 : memref<?x?xf32>
// CHECK-NEXT:    %[[AB:.*]] = arith.andi %[[A]], %[[B]] : i1
// CHECK-NEXT:    %[[ALL:.*]] = arith.andi %[[AB]], %[[C]] : i1
// CHECK-NEXT:    scf.if %[[ALL]] {
// CHECK-NEXT:      %[[RA:.*]] = memref.cast %A {warp.divisible = 8 : i64}
// CHECK-NEXT:      %[[RB:.*]] = memref.cast %B {warp.divisible = 8 : i64}
// CHECK-NEXT:      %[[RC:.*]] = memref.cast %C {warp.divisible = 4 : i64}
// CHECK:           %[[M:.*]] = memref.dim %[[RC]], %{{.*}} : memref<?x?xf32>
// CHECK:           %[[FEW:.*]] = arith.cmpi ule, %[[M]], %{{.*}} : index
// CHECK-NEXT:      scf.if %[[FEW]] {
// CHECK-NEXT:        warp.matmul bf16 x bf16 %[[RA]], %[[RB]] init {{.*}} into %[[RC]] {warp.usual = array<i64: 64, 4088>}
// CHECK-NEXT:      } else {
// CHECK:             %[[MN:.*]] = arith.muli
// CHECK:             %[[SMALL:.*]] = arith.cmpi ule, %[[MN]], %{{.*}} : index
// CHECK-NEXT:        scf.if %[[SMALL]] {
// CHECK-NEXT:          warp.matmul {{.*}} {warp.usual = array<i64: 1273, 1274>}
// CHECK-NEXT:        } else {
// CHECK-NEXT:          warp.matmul bf16 x bf16 %[[RA]], %[[RB]] init {{.*}} into %[[RC]] {warp.usual = array<i64: 4095, 4088>} :
// CHECK-NEXT:        }
// CHECK-NEXT:      }
// CHECK-NEXT:    } else {
// CHECK:           %[[K:.*]] = memref.dim %B
// CHECK:           %[[PAYS:.*]] = arith.cmpi uge, %[[K]], %{{.*}} : index
// CHECK-NEXT:      scf.if %[[PAYS]] {
// CHECK:             %[[SA:.*]] = memref.alloc(%[[M2:.*]], %{{.*}}) : memref<?x?xbf16>
// CHECK:             %[[PA:.*]] = memref.subview %[[SA]][0, 0] [%[[M2]], %[[K2:.*]]] [1, 1]
// CHECK:             linalg.fill ins(%{{.*}}) outs(%[[SA]]
// CHECK-NEXT:        linalg.copy ins(%A : memref<?x?xbf16>) outs(%[[PA]]
// CHECK-NEXT:        %[[RSA:.*]] = memref.cast %[[SA]] {warp.divisible = 8 : i64}
// CHECK:             %[[RSB:.*]] = memref.cast %{{.*}} {warp.divisible = 8 : i64}
// CHECK:             %[[SC:.*]] = memref.alloc
// CHECK:             %[[PC:.*]] = memref.subview %[[SC]][0, 0] [%[[M2]], %{{.*}}] [1, 1]
// CHECK:             %[[RSC:.*]] = memref.cast %[[SC]] {warp.divisible = 8 : i64}
// CHECK-NEXT:        warp.matmul bf16 x bf16 %[[RSA]], %[[RSB]] init {{.*}} into %[[RSC]] {warp.usual = array<i64: 4095, 4095>} :
// CHECK:             linalg.copy ins(%[[PC]] {{.*}}) outs(%C : memref<?x?xf32>)
// CHECK-NEXT:        memref.dealloc %[[SC]]
// CHECK-NEXT:      } else {
// CHECK-NEXT:        warp.matmul bf16 x bf16 %A, %B init {{.*}} into %C {warp.usual = array<i64: 4095, 4095>} :
// CHECK-NEXT:      }
// CHECK-NEXT:    }
// CHECK-NEXT:    func.return
func.func @any(%A: memref<?x?xbf16>, %B: memref<?x?xbf16>, %C: memref<?x?xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%C : memref<?x?xf32>)
  linalg.matmul ins(%A, %B : memref<?x?xbf16>, memref<?x?xbf16>) outs(%C : memref<?x?xf32>)
  return
}

// -----

// What is promised is not asked.
// CHECK-LABEL: func.func @promised
// CHECK-NOT:     warp.is_divisible
// CHECK:         func.return
func.func @promised(%A: memref<?x?xbf16> {warp.divisible = 8 : i64}, %B: memref<?x?xbf16> {warp.divisible = 8 : i64}, %C: memref<?x?xf32> {warp.divisible = 8 : i64}) {
  linalg.matmul ins(%A, %B : memref<?x?xbf16>, memref<?x?xbf16>) outs(%C : memref<?x?xf32>)
  return
}

// -----

// Nor is what is known: rows of 4095 never fit, those of 4096 always do. An odd stride of A leaves B to ask about.
// CHECK-LABEL: func.func @known
// CHECK-NOT:     warp.is_divisible
// CHECK:         func.return
func.func @known(%A: memref<?x4095xbf16>, %B: memref<4095x4096xbf16>, %C: memref<?x4096xf32>) {
  linalg.matmul ins(%A, %B : memref<?x4095xbf16>, memref<4095x4096xbf16>) outs(%C : memref<?x4096xf32>)
  return
}

// -----

// CHECK-LABEL: func.func @static
// CHECK-NOT:     scf.if
// CHECK:         func.return
func.func @static(%A: memref<64x128xbf16>, %B: memref<128x64xbf16>, %C: memref<64x64xf32>) {
  linalg.matmul ins(%A, %B : memref<64x128xbf16>, memref<128x64xbf16>) outs(%C : memref<64x64xf32>)
  return
}

// -----

// A view at an offset that only a call knows is asked for its place. The epilogue and its operands come along.
// CHECK-LABEL: func.func @views
// CHECK:         warp.is_divisible %{{.*}} by 8 : memref<64x128xbf16, strided<[256, 1], offset: ?>>
// CHECK:         scf.if
// CHECK:           memref.cast %{{.*}} {warp.divisible
// CHECK:           %[[F:.*]] = warp.pointwise %bias
// CHECK:           warp.matmul {{.*}} through %[[F]]
// CHECK:         } else {
// CHECK:           warp.matmul {{.*}} through
// CHECK:         func.return
func.func @views(%A: memref<256x256xbf16>, %B: memref<128x64xbf16>, %bias: memref<64xf32>, %D: memref<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %n = memref.dim %bias, %c0 : memref<64xf32>
  %zero = arith.constant 0.0 : f32
  %part = memref.subview %A[%n, %n] [64, 128] [1, 1] : memref<256x256xbf16> to memref<64x128xbf16, strided<[256, 1], offset: ?>>
  %C = memref.alloc() : memref<64x64xf32>
  linalg.fill ins(%zero : f32) outs(%C : memref<64x64xf32>)
  linalg.matmul ins(%part, %B : memref<64x128xbf16, strided<[256, 1], offset: ?>>, memref<128x64xbf16>) outs(%C : memref<64x64xf32>)
  linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%C, %bias : memref<64x64xf32>, memref<64xf32>) outs(%D : memref<64x64xf32>) {
  ^bb0(%x: f32, %b: f32, %old: f32):
    %y = arith.addf %x, %b : f32
    linalg.yield %y : f32
  }
  return
}
