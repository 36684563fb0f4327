// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

!acc = !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
!b = !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>
!half = memref<32x64xf16, #warp.swizzle<128>, 3>
!bytes = memref<32x64xi8, #warp.swizzle<64>, 3>

// CHECK-LABEL: func.func @stmatrix
// CHECK: warp.stmatrix x2 %d, %s[%i, %i] : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<32x64xf16, #warp.swizzle<128>, 3 : i64>
// CHECK: warp.stmatrix x1 trans swapped %d, %s[%i, %i] {note} :
// GENERIC-LABEL: "stmatrix"
// GENERIC: "warp.stmatrix"(%d, %s, %i, %i) <{count = 2 : i64}>
// GENERIC: "warp.stmatrix"(%d, %s, %i, %i) <{count = 1 : i64, trans, swapped}> {note}
func.func @stmatrix(%d: !acc, %s: !half, %i: index) {
  warp.stmatrix x2 %d, %s[%i, %i] : !acc, !half
  warp.stmatrix x1 trans swapped %d, %s[%i, %i] {note} : !acc, !half
  return
}

// Bytes: rows of 16 bytes as they are; 16x16 matrices with trans; packed elements that get a byte each.
// CHECK-LABEL: func.func @bytes
// CHECK: warp.ldmatrix x4 %s[%i, %i] : {{.*}} -> !warp.fragment<a, 16x32xi8, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>
// CHECK: warp.ldmatrix x2 trans %s[%i, %i] : {{.*}} -> !warp.fragment<b, 32x16xi8, [r2 r3 c0 c1 c2 | r0 r1 r4]>
// CHECK: warp.ldmatrix x4 b6x16_p32 %s[%i, %i] : {{.*}} -> !warp.fragment<a, 16x32xf6E3M2FN, [c2 c3 r0 r1 r2 | c0 c1 r3 c4], bytes>
// CHECK: warp.ldmatrix x2 swapped b4x16_p64 %s[%i, %i] : {{.*}} -> !warp.fragment<b, 32x8xf4E2M1FN, [r2 r3 c0 c1 c2 | r0 r1 r4], bytes>
// CHECK: warp.stmatrix x1 trans swapped %c, %s[%i, %i] : !warp.fragment<acc, 16x8xi8, [c1 c2 r0 r1 r2 | c0 r3]>
// GENERIC-LABEL: "bytes"
// GENERIC: "warp.ldmatrix"(%s, %i, %i) <{count = 4 : i64, packed = "b6x16_p32"}>
// GENERIC: "warp.ldmatrix"(%s, %i, %i) <{count = 2 : i64, swapped, packed = "b4x16_p64"}>
func.func @bytes(%s: !bytes, %i: index, %c: !warp.fragment<acc, 16x8xi8, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %0 = warp.ldmatrix x4 %s[%i, %i] : !bytes -> !warp.fragment<a, 16x32xi8, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>
  %1 = warp.ldmatrix x2 trans %s[%i, %i] : !bytes -> !warp.fragment<b, 32x16xi8, [r2 r3 c0 c1 c2 | r0 r1 r4]>
  %2 = warp.ldmatrix x4 b6x16_p32 %s[%i, %i] : !bytes -> !warp.fragment<a, 16x32xf6E3M2FN, [c2 c3 r0 r1 r2 | c0 c1 r3 c4], bytes>
  %3 = warp.ldmatrix x2 swapped b4x16_p64 %s[%i, %i] : !bytes -> !warp.fragment<b, 32x8xf4E2M1FN, [r2 r3 c0 c1 c2 | r0 r1 r4], bytes>
  warp.stmatrix x1 trans swapped %c, %s[%i, %i] : !warp.fragment<acc, 16x8xi8, [c1 c2 r0 r1 r2 | c0 r3]>, !bytes
  return
}

// CHECK-LABEL: func.func @words
// CHECK: %e = warp.load %m[%i, %i] {registers = "lanes"} : memref<4x32xi32> -> !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>
// CHECK: warp.store %e, %m[%i, %i] {note, registers = "lanes"} : !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>, memref<4x32xi32>
// GENERIC-LABEL: "words"
// GENERIC: "warp.load"(%m, %i, %i) <{registers = "lanes"}> :
// GENERIC: "warp.store"(%e, %m, %i, %i) <{{.*}}registers = "lanes"{{.*}}> {note}
func.func @words(%m: memref<4x32xi32>, %i: index) {
  %e = warp.load %m[%i, %i] {registers = "lanes"} : memref<4x32xi32> -> !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>
  warp.store %e, %m[%i, %i] {registers = "lanes", note} : !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>, memref<4x32xi32>
  return
}

// CHECK-LABEL: func.func @constants
// CHECK: warp.constant -3 : i8 :
// CHECK: warp.constant 200 : ui8 :
// CHECK: warp.constant 1.500000e+00 : f64 :
func.func @constants() {
  %0 = warp.constant -3 : i8 : !warp.fragment<a, 16x32xi8, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>
  %1 = warp.constant 200 : ui8 : !warp.fragment<a, 16x32xui8, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>
  %2 = warp.constant 1.5 : f64 : !warp.fragment<acc, 8x8xf64, [c1 c2 r0 r1 r2 | c0]>
  return
}
