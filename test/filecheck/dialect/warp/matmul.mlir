// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

// CHECK-LABEL: func.func @products
func.func @products(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %bt: memref<6x5xf16>, %c: memref<4x6xf32>, %d: memref<4x6xf16>) {
  // CHECK-NEXT: warp.matmul f16 x f16 %a, %b init 0.000000e+00 : f32 into %c : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32>
  warp.matmul f16 x f16 %a, %b init 0.0 : f32 into %c : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32>
  // CHECK-NEXT: warp.matmul f16 x f16 %a, %b plus %c into %c {note} : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32> plus memref<4x6xf32>
  warp.matmul f16 x f16 %a, %b plus %c into %c {note} : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf32> plus memref<4x6xf32>
  // CHECK-NEXT: warp.matmul f16 x f16 %a, %b plus %c into %d : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf16> plus memref<4x6xf32>
  warp.matmul f16 x f16 %a, %b plus %c into %d : memref<4x5xf16>, memref<5x6xf16>, memref<4x6xf16> plus memref<4x6xf32>
  // CHECK-NEXT: warp.matmul f16 x f16 %a, %bt plus %c into %c maps [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] : memref<4x5xf16>, memref<6x5xf16>, memref<4x6xf32> plus memref<4x6xf32>
  warp.matmul f16 x f16 %a, %bt plus %c into %c maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] : memref<4x5xf16>, memref<6x5xf16>, memref<4x6xf32> plus memref<4x6xf32>
  return
}

// CHECK-LABEL: func.func @bits
func.func @bits(%a: memref<4x64xi1>, %b: memref<6x64xi1>, %c: memref<4x6xi32>) {
  // CHECK-NEXT: warp.matmul xor b1 x b1 %a, %b init 0 : i32 into %c maps [{{.*}}] : memref<4x64xi1>, memref<6x64xi1>, memref<4x6xi32>
  warp.matmul xor b1 x b1 %a, %b init 0 : i32 into %c maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] : memref<4x64xi1>, memref<6x64xi1>, memref<4x6xi32>
  // CHECK-NEXT: warp.matmul and b1 x b1 %a, %b plus %c into %c maps
  warp.matmul and b1 x b1 %a, %b plus %c into %c maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] : memref<4x64xi1>, memref<6x64xi1>, memref<4x6xi32> plus memref<4x6xi32>
  return
}

// CHECK-LABEL: func.func @kind
func.func @kind(%a: memref<4x64xf8E4M3FN>, %b: memref<64x6xf6E3M2FN>, %c: memref<4x6xf32>) {
  // CHECK-NEXT: warp.matmul f8f6f4 e4m3 x e3m2 %a, %b plus %c into %c : memref<4x64xf8E4M3FN>, memref<64x6xf6E3M2FN>, memref<4x6xf32> plus memref<4x6xf32>
  warp.matmul f8f6f4 e4m3 x e3m2 %a, %b plus %c into %c : memref<4x64xf8E4M3FN>, memref<64x6xf6E3M2FN>, memref<4x6xf32> plus memref<4x6xf32>
  // CHECK-NEXT: warp.matmul e4m3 x e3m2 %a, %b plus %c into %c
  warp.matmul e4m3 x e3m2 %a, %b plus %c into %c : memref<4x64xf8E4M3FN>, memref<64x6xf6E3M2FN>, memref<4x6xf32> plus memref<4x6xf32>
  return
}

// CHECK-LABEL: func.func @scaled
func.func @scaled(%a: memref<4x80xf4E2M1FN>, %b: memref<6x80xf4E2M1FN>, %sa: memref<4x5xf8E4M3FN>, %sb: memref<6x5xf8E4M3FN>, %c: memref<4x6xf32>) {
  // CHECK-NEXT: %x = warp.scaled %a, %sa : memref<4x80xf4E2M1FN>, memref<4x5xf8E4M3FN>
  %x = warp.scaled %a, %sa : memref<4x80xf4E2M1FN>, memref<4x5xf8E4M3FN>
  // CHECK-NEXT: %y = warp.scaled %b, %sb : memref<6x80xf4E2M1FN>, memref<6x5xf8E4M3FN>
  %y = warp.scaled %b, %sb : memref<6x80xf4E2M1FN>, memref<6x5xf8E4M3FN>
  // CHECK-NEXT: warp.matmul mxf4nvf4 e2m1 x e2m1 %x, %y plus %c into %c maps [{{.*}}] : !warp.operand<memref<4x80xf4E2M1FN>>, !warp.operand<memref<6x80xf4E2M1FN>>, memref<4x6xf32> plus memref<4x6xf32>
  warp.matmul mxf4nvf4 e2m1 x e2m1 %x, %y plus %c into %c maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>] : !warp.operand<memref<4x80xf4E2M1FN>>, !warp.operand<memref<6x80xf4E2M1FN>>, memref<4x6xf32> plus memref<4x6xf32>
  return
}

// CHECK-LABEL: func.func @sparse
func.func @sparse(%a: memref<100x96xf16>, %e: memref<7x96xi32>, %b: memref<192x320xf16>, %c: memref<100x320xf32>) {
  // CHECK-NEXT: %s = warp.sparse %a, %e : memref<100x96xf16>, memref<7x96xi32>
  %s = warp.sparse %a, %e : memref<100x96xf16>, memref<7x96xi32>
  // CHECK-NEXT: warp.matmul f16 x f16 %s, %b init 0.000000e+00 : f32 into %c : !warp.operand<memref<100x96xf16>>, memref<192x320xf16>, memref<100x320xf32>
  warp.matmul f16 x f16 %s, %b init 0.0 : f32 into %c : !warp.operand<memref<100x96xf16>>, memref<192x320xf16>, memref<100x320xf32>
  return
}

// CHECK-LABEL: func.func @stored
func.func @stored(%a: memref<4x5xbf16>, %q: memref<5x6xi4>, %s: memref<1x6xbf16>, %c: memref<4x6xf32>) {
  // CHECK-NEXT: %w = warp.stored %q as u4 minus 8 : memref<5x6xi4>
  %w = warp.stored %q as u4 minus 8 : memref<5x6xi4>
  // CHECK-NEXT: %v = warp.stored %q as s4 {note} : memref<5x6xi4>
  %v = warp.stored %q as s4 {note} : memref<5x6xi4>
  // CHECK-NEXT: %r = warp.stored %q as s4 minus 2 rounded times %s : memref<5x6xi4>, memref<1x6xbf16>
  %r = warp.stored %q as s4 minus 2 rounded times %s : memref<5x6xi4>, memref<1x6xbf16>
  // CHECK-NEXT: warp.matmul bf16 x bf16 %a, %w plus %c into %c : memref<4x5xbf16>, !warp.operand<memref<5x6xi4>>, memref<4x6xf32> plus memref<4x6xf32>
  warp.matmul bf16 x bf16 %a, %w plus %c into %c : memref<4x5xbf16>, !warp.operand<memref<5x6xi4>>, memref<4x6xf32> plus memref<4x6xf32>
  return
}
