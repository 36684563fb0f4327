// RUN: warploom-opt %s -p warp-raise-matmul,warp-fold-fill,warp-fuse-weights,warp-fuse-epilogue | filecheck %s
// RUN: warploom-opt %s -p warp-raise-matmul,warp-fold-fill,warp-fuse-weights | warploom-opt -p warp-fuse-epilogue | filecheck %s
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-raise-matmul,warp-fold-fill,warp-fuse-weights,warp-fuse-epilogue,warp-schedule{cta=16,64,64 warp=16,32 stages=1},warp-outline,warp-tile" | filecheck %s --check-prefix=TILED

#nk = affine_map<(n, k) -> (n, k)>
#n = affine_map<(n, k) -> (n)>
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
#mn = affine_map<(m, n) -> (m, n)>

// The converted weights are nowhere; the scale, and what comes after, are the epilogue, for the rounding may be left out.
// CHECK-LABEL: func.func @scaled
// CHECK-NOT:     memref.alloc
// CHECK-NOT:     linalg
// CHECK:         %Q_stored = warp.stored %Q as u4 minus 8 : memref<64x128xi4>
// CHECK-NEXT:    %[[F:\w+]] = warp.pointwise %S maps [affine_map<(d0, d1, d2) -> (d1)>] : {{.*}} (%product: f32, %[[S:\w+]]: bf16) {
// CHECK-NEXT:      %[[W:\w+]] = arith.extf %[[S]] : bf16 to f32
// CHECK-NEXT:      %[[P:\w+]] = arith.mulf %product, %[[W]] : f32
// CHECK-NEXT:      %[[T:\w+]] = arith.truncf %[[P]] : f32 to bf16
// CHECK-NEXT:      %[[E:\w+]] = math.exp %[[T]] : bf16
// CHECK-NEXT:      warp.yield %[[E]] : bf16
// CHECK-NEXT:    }
// CHECK-NEXT:    warp.matmul bf16 x bf16 %A, %Q_stored init 0.000000e+00 : f32 into %C through %[[F]]

// A lane multiplies the eight neighbours that a register of B has, first those half a register apart; A is loaded by lanes
// and brought to the same order. Rows that are read at once lie in different banks.
// TILED-LABEL: gpu.func @scaled
// TILED:         warp.copy %B[{{.*}}] to %[[B:\w+]][] {{.*}} : memref<64x128xi4> to memref<64x64xi4, #warp.swizzle<32>, 3 : i64>
// TILED:         %[[A:\w+]] = warp.load {{.*}} -> !warp.fragment<a, 16x32xbf16, [c3 c4 r2 r1 r0 | c0 c1 c2 r3]>
// TILED:         warp.convert_layout %[[A]] : {{.*}} to !warp.fragment<a, 16x32xbf16, [c3 c4 r2 r1 r0 | c2 r3 c0 c1]>
// TILED:         %[[R:\w+]] = warp.load %[[B]]{{.*}} {matrices = "x4", swapped} {{.*}}-> !warp.fragment<b, 32x32xi4, [r3 r4 c0 c1 c2 | r0 r1 r2]>
// TILED:         warp.convert %[[R]] {stored = "u4", zero = 8 : i64} : {{.*}} to !warp.fragment<b, 32x32xbf16, [r3 r4 c0 c1 c2 | r2 r0 r1]>
// TILED:         warp.mma m16n8k16
func.func @scaled(%A: memref<16x128xbf16>, %Q: memref<64x128xi4>, %S: memref<64xbf16>, %C: memref<16x64xbf16>) {
  %zero = arith.constant 0.0 : bf16
  %W = memref.alloc() : memref<64x128xbf16>
  linalg.generic {indexing_maps = [#nk, #n, #nk], iterator_types = ["parallel", "parallel"]}
      ins(%Q, %S : memref<64x128xi4>, memref<64xbf16>) outs(%W : memref<64x128xbf16>) {
  ^bb0(%q: i4, %s: bf16, %old: bf16):
    %wide = arith.extui %q : i4 to i32
    %eight = arith.constant 8 : i32
    %0 = arith.subi %wide, %eight : i32
    %1 = arith.sitofp %0 : i32 to bf16
    %2 = arith.mulf %1, %s fastmath<contract> : bf16
    linalg.yield %2 : bf16
  }
  linalg.fill ins(%zero : bf16) outs(%C : memref<16x64xbf16>)
  linalg.matmul indexing_maps = [#a, #b, #c] ins(%A, %W : memref<16x128xbf16>, memref<64x128xbf16>) outs(%C : memref<16x64xbf16>)
  linalg.exp ins(%C : memref<16x64xbf16>) outs(%C : memref<16x64xbf16>)
  return
}

// Scales of groups along k are multiplied with the sums of their groups; others stay in the epilogue.
// CHECK-LABEL: func.func @groups
// CHECK-NOT:     memref.alloc
// CHECK:         %[[W:\w+]] = warp.stored %Q as s4 times %S : memref<128x64xi4>, memref<2x64xf16>
// CHECK-NEXT:    warp.matmul f16 x f16 %A, %[[W]] plus %C into %C : memref<16x128xf16>, !warp.operand<memref<128x64xi4>>, memref<16x64xf32> plus memref<16x64xf32>
// TILED-LABEL: gpu.func @groups
// TILED:         warp.copy %SG[{{.*}}] to %[[S:\w+]][] {{.*}} : memref<2x64xf16> to memref<2x64xf16, #warp.swizzle<16>, 3 : i64>
// TILED-NEXT:    gpu.barrier
// TILED:         scf.for
// TILED:           warp.load %[[S]][{{.*}}] {along = "columns"} : memref<2x64xf16, #warp.swizzle<16>, 3 : i64> -> !warp.fragment<acc,
// TILED:           warp.mma m16n8k16
// TILED:           warp.map
func.func @groups(%A: memref<16x128xf16>, %Q: memref<128x64xi4>, %S: memref<2x64xf16>, %C: memref<16x64xf32>) {
  %W = memref.alloc() : memref<128x64xf16>
  linalg.generic {indexing_maps = [#mn, affine_map<(k, n) -> (k floordiv 64, n)>, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%Q, %S : memref<128x64xi4>, memref<2x64xf16>) outs(%W : memref<128x64xf16>) {
  ^bb0(%q: i4, %s: f16, %old: f16):
    %0 = arith.sitofp %q : i4 to f16
    %1 = arith.mulf %0, %s fastmath<contract> : f16
    linalg.yield %1 : f16
  }
  linalg.matmul ins(%A, %W : memref<16x128xf16>, memref<128x64xf16>) outs(%C : memref<16x64xf32>)
  return
}

// What is rounded after it is scaled is so before the product; the scales of columns are those of one group.
// CHECK-LABEL: func.func @rounded
// CHECK:         %[[S:\w+]] = memref.expand_shape %S
// CHECK:         %Q_stored = warp.stored %Q as s8 rounded times %[[S]] : memref<64x128xi8>, memref<64x1xbf16>
// CHECK-NEXT:    warp.matmul bf16 x bf16 %A, %Q_stored plus %C into %C maps
// TILED-LABEL: gpu.func @rounded
// TILED:         %[[S:\w+]] = warp.load {{.*}}along = "columns"{{.*}} -> !warp.fragment<b, 16x32xbf16,
// TILED:         scf.for
// TILED:           %[[W:\w+]] = warp.convert {{.*}}stored = "s8"
// TILED-NEXT:      %[[SMALL:\w+]] = warp.elementwise mul %[[W]], %{{.*}} :
// TILED-NEXT:      warp.elementwise mul %[[SMALL]], %[[S]] :
func.func @rounded(%A: memref<16x128xbf16>, %Q: memref<64x128xi8>, %S: memref<64xbf16>, %C: memref<16x64xf32>) {
  %W = memref.alloc() : memref<64x128xbf16>
  linalg.generic {indexing_maps = [#nk, #n, #nk], iterator_types = ["parallel", "parallel"]}
      ins(%Q, %S : memref<64x128xi8>, memref<64xbf16>) outs(%W : memref<64x128xbf16>) {
  ^bb0(%q: i8, %s: bf16, %old: bf16):
    %0 = arith.sitofp %q : i8 to bf16
    %1 = arith.mulf %0, %s : bf16
    linalg.yield %1 : bf16
  }
  linalg.matmul indexing_maps = [#a, #b, #c] ins(%A, %W : memref<16x128xbf16>, memref<64x128xbf16>) outs(%C : memref<16x64xf32>)
  return
}

// Without a scale the product goes on adding to C; so does one of floats and integers that linalg writes.
// CHECK-LABEL: func.func @plain
// CHECK-NEXT:    %Q_stored = warp.stored %Q as s8 : memref<32x16xi8>
// CHECK-NEXT:    warp.matmul f16 x f16 %A, %Q_stored plus %C into %C : memref<16x32xf16>, !warp.operand<memref<32x16xi8>>, memref<16x16xf32> plus memref<16x16xf32>
// CHECK-NEXT:    %[[U:\w+]] = warp.stored %Q as u8 : memref<32x16xi8>
// CHECK-NEXT:    warp.matmul f16 x f16 %A, %[[U]] plus %C into %C : memref<16x32xf16>, !warp.operand<memref<32x16xi8>>, memref<16x16xf32> plus memref<16x16xf32>
func.func @plain(%A: memref<16x32xf16>, %Q: memref<32x16xi8>, %C: memref<16x16xf32>) {
  %W = memref.alloc() : memref<32x16xf16>
  linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%Q : memref<32x16xi8>) outs(%W : memref<32x16xf16>) {
  ^bb0(%q: i8, %old: f16):
    %0 = arith.sitofp %q : i8 to f16
    linalg.yield %0 : f16
  }
  linalg.matmul ins(%A, %W : memref<16x32xf16>, memref<32x16xf16>) outs(%C : memref<16x16xf32>)
  linalg.matmul {cast = #linalg.type_fn<cast_unsigned>} ins(%A, %Q : memref<16x32xf16>, memref<32x16xi8>) outs(%C : memref<16x16xf32>)
  return
}
