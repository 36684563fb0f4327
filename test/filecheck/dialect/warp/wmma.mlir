// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

!a = !warp.opaque<a, m16n16k16, f16, row>
!b = !warp.opaque<b, m16n16k16, f16, col>
!half = !warp.opaque<acc, m16n16k16, f16>
!float = !warp.opaque<acc, m16n16k16, f32>

// CHECK-LABEL: func.func @memory
// CHECK: %a = warp.load %A[%i, %i] : memref<64x64xf16> -> !warp.opaque<a, m16n16k16, f16, row>
// CHECK: %s = warp.load %S[%i, %i] {note} : memref<64x64xf16, 3 : i64> -> !warp.opaque<b, m16n16k16, f16, col>
// CHECK: %c = warp.load %C[%i, %i] {swapped} : memref<64x64xf32> -> !warp.opaque<acc, m16n16k16, f32>
// CHECK: warp.store %c, %C[%i, %i] : !warp.opaque<acc, m16n16k16, f32>, memref<64x64xf32>
// CHECK: warp.store %c, %C[%i, %i] {note, swapped} : !warp.opaque<acc, m16n16k16, f32>, memref<64x64xf32>
// GENERIC-LABEL: "memory"
// GENERIC: "warp.load"(%A, %i, %i) : (memref<64x64xf16>, index, index) -> !warp.opaque<a, m16n16k16, f16, row>
// GENERIC: "warp.load"(%C, %i, %i) <{swapped}>
// GENERIC: "warp.store"(%c, %C, %i, %i) <{swapped, {{.*}}}> {note}
func.func @memory(%A: memref<64x64xf16>, %S: memref<64x64xf16, 3>, %C: memref<64x64xf32>, %i: index) {
  %a = warp.load %A[%i, %i] : memref<64x64xf16> -> !a
  %s = warp.load %S[%i, %i] {note} : memref<64x64xf16, 3> -> !b
  %c = warp.load %C[%i, %i] {swapped} : memref<64x64xf32> -> !float
  warp.store %c, %C[%i, %i] : !float, memref<64x64xf32>
  warp.store %c, %C[%i, %i] {note, swapped} : !float, memref<64x64xf32>
  return
}

// CHECK-LABEL: func.func @products
// CHECK: %d = warp.wmma.mma %a, %b, %c : !warp.opaque<a, m16n16k16, f16, row>, !warp.opaque<b, m16n16k16, f16, col>, !warp.opaque<acc, m16n16k16, f32>
// CHECK: %e = warp.wmma.mma %a, %b, %h {note} : {{.*}}, !warp.opaque<acc, m16n16k16, f16> -> !warp.opaque<acc, m16n16k16, f32>
// GENERIC-LABEL: "products"
// GENERIC: "warp.wmma.mma"(%a, %b, %c) :
func.func @products(%a: !a, %b: !b, %c: !float, %h: !half) {
  %d = warp.wmma.mma %a, %b, %c : !a, !b, !float
  %e = warp.wmma.mma %a, %b, %h {note} : !a, !b, !half -> !float
  return
}

// CHECK-LABEL: func.func @words
// CHECK: warp.wmma.mma satfinite %a, %b, %c :
// CHECK: warp.wmma.mma rm %x, %y, %z :
// CHECK: warp.wmma.mma xor %p, %q, %r :
// GENERIC-LABEL: "words"
// GENERIC: "warp.wmma.mma"(%a, %b, %c) <{satfinite}>
// GENERIC: "warp.wmma.mma"(%x, %y, %z) <{rounding = "rm"}>
// GENERIC: "warp.wmma.mma"(%p, %q, %r) <{bit_op = "xor"}>
func.func @words(
    %a: !warp.opaque<a, m32n8k16, ui8, row>, %b: !warp.opaque<b, m32n8k16, ui8, row>, %c: !warp.opaque<acc, m32n8k16, i32>,
    %x: !warp.opaque<a, m8n8k4, f64, row>, %y: !warp.opaque<b, m8n8k4, f64, row>, %z: !warp.opaque<acc, m8n8k4, f64>,
    %p: !warp.opaque<a, m8n8k128, i1, row>, %q: !warp.opaque<b, m8n8k128, i1, col>, %r: !warp.opaque<acc, m8n8k128, i32>) {
  %0 = warp.wmma.mma satfinite %a, %b, %c : !warp.opaque<a, m32n8k16, ui8, row>, !warp.opaque<b, m32n8k16, ui8, row>, !warp.opaque<acc, m32n8k16, i32>
  %1 = warp.wmma.mma rm %x, %y, %z : !warp.opaque<a, m8n8k4, f64, row>, !warp.opaque<b, m8n8k4, f64, row>, !warp.opaque<acc, m8n8k4, f64>
  %2 = warp.wmma.mma xor %p, %q, %r : !warp.opaque<a, m8n8k128, i1, row>, !warp.opaque<b, m8n8k128, i1, col>, !warp.opaque<acc, m8n8k128, i32>
  return
}
