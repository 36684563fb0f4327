// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

!acc = !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
!b = !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>
!half = memref<32x64xf16, #warp.swizzle<128>, 3>
!bytes = memref<32x64xi8, #warp.swizzle<64>, 3>

// CHECK-LABEL: func.func @stmatrix
// CHECK: warp.store %d, %s[%i, %i] {matrices = "x2"} : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<32x64xf16, #warp.swizzle<128>, 3 : i64>
// CHECK: warp.store %d, %s[%i, %i] {note, matrices = "x1.trans", swapped} :
// GENERIC-LABEL: "stmatrix"
// GENERIC: "warp.store"(%d, %s, %i, %i) <{matrices = "x2", {{.*}}}>
// GENERIC: "warp.store"(%d, %s, %i, %i) <{matrices = "x1.trans", swapped, {{.*}}}> {note}
func.func @stmatrix(%d: !acc, %s: !half, %i: index) {
  warp.store %d, %s[%i, %i] {matrices = "x2"} : !acc, !half
  warp.store %d, %s[%i, %i] {matrices = "x1.trans", note, swapped} : !acc, !half
  return
}

// Bytes: rows of 16 bytes as they are; 16x16 matrices with trans; packed elements that get a byte each.
// CHECK-LABEL: func.func @bytes
// CHECK: warp.load %s[%i, %i] {matrices = "x4"} : {{.*}} -> !warp.fragment<a, 16x32xi8, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>
// CHECK: warp.load %s[%i, %i] {matrices = "x2.trans"} : {{.*}} -> !warp.fragment<b, 32x16xi8, [r2 r3 c0 c1 c2 | r0 r1 r4]>
// CHECK: warp.load %s[%i, %i] {matrices = "x4.b6x16_p32"} : {{.*}} -> !warp.fragment<a, 16x32xf6E3M2FN, [c2 c3 r0 r1 r2 | c0 c1 r3 c4], bytes>
// CHECK: warp.load %s[%i, %i] {matrices = "x2.b4x16_p64", swapped} : {{.*}} -> !warp.fragment<b, 32x8xf4E2M1FN, [r2 r3 c0 c1 c2 | r0 r1 r4], bytes>
// CHECK: warp.store %c, %s[%i, %i] {matrices = "x1.trans", swapped} : !warp.fragment<acc, 16x8xi8, [c1 c2 r0 r1 r2 | c0 r3]>
// GENERIC-LABEL: "bytes"
// GENERIC: "warp.load"(%s, %i, %i) <{matrices = "x4.b6x16_p32"}>
// GENERIC: "warp.load"(%s, %i, %i) <{matrices = "x2.b4x16_p64", swapped}>
func.func @bytes(%s: !bytes, %i: index, %c: !warp.fragment<acc, 16x8xi8, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %0 = warp.load %s[%i, %i] {matrices = "x4"} : !bytes -> !warp.fragment<a, 16x32xi8, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>
  %1 = warp.load %s[%i, %i] {matrices = "x2.trans"} : !bytes -> !warp.fragment<b, 32x16xi8, [r2 r3 c0 c1 c2 | r0 r1 r4]>
  %2 = warp.load %s[%i, %i] {matrices = "x4.b6x16_p32"} : !bytes -> !warp.fragment<a, 16x32xf6E3M2FN, [c2 c3 r0 r1 r2 | c0 c1 r3 c4], bytes>
  %3 = warp.load %s[%i, %i] {matrices = "x2.b4x16_p64", swapped} : !bytes -> !warp.fragment<b, 32x8xf4E2M1FN, [r2 r3 c0 c1 c2 | r0 r1 r4], bytes>
  warp.store %c, %s[%i, %i] {matrices = "x1.trans", swapped} : !warp.fragment<acc, 16x8xi8, [c1 c2 r0 r1 r2 | c0 r3]>, !bytes
  return
}

// CHECK-LABEL: func.func @words
// CHECK: %e = warp.load %m[%i, %i] {registers = "vectors"} : memref<4x32xi32> -> !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>
// CHECK: warp.store %e, %m[%i, %i] {note, registers = "vectors"} : !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>, memref<4x32xi32>
// GENERIC-LABEL: "words"
// GENERIC: "warp.load"(%m, %i, %i) <{registers = "vectors"}> :
// GENERIC: "warp.store"(%e, %m, %i, %i) <{{.*}}registers = "vectors"{{.*}}> {note}
func.func @words(%m: memref<4x32xi32>, %i: index) {
  %e = warp.load %m[%i, %i] {registers = "vectors"} : memref<4x32xi32> -> !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>
  warp.store %e, %m[%i, %i] {registers = "vectors", note} : !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>, memref<4x32xi32>
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
