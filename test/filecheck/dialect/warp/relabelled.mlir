// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

!a = !warp.fragment<a, 16x32xi8, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>
!raw = !warp.fragment<b, 32x16xi8, [r2 r3 c1 c2 c3 | c0 r1 r0 r4]>
!b = !warp.fragment<b, 32x16xi8, [r2 r3 c1 c2 c3 | r0 r1 r4 c0]>
!acc = !warp.fragment<acc, 16x16xi32, [c2 c3 r0 r1 r2 | c1 r3 c0]>
!d = !warp.fragment<b, 16x8xf64, [r1 r2 c2 c0 c1 | r0 r3]>
!bytes = memref<32x16xi8, #warp.swizzle<16, skip 1>, 3>
!doubles = memref<2x8x16xf64, #warp.swizzle<128>, 3>

// CHECK-LABEL: func.func @bytes
// CHECK: %r = warp.load %s[%i, %i] {matrices = "x4.trans.b16"} : memref<32x16xi8, #warp.swizzle<16, skip 1>, 3 : i64> -> !warp.fragment<b, 32x16xi8, [r2 r3 c1 c2 c3 | c0 r1 r0 r4]>
// CHECK: %b = warp.convert_layout %r : !warp.fragment<b, 32x16xi8, [r2 r3 c1 c2 c3 | c0 r1 r0 r4]> to !warp.fragment<b, 32x16xi8, [r2 r3 c1 c2 c3 | r0 r1 r4 c0]>
// CHECK: %d = warp.mma m16n8k32 %a, %b, %c :
// GENERIC-LABEL: "bytes"
// GENERIC: "warp.load"(%s, %i, %i) <{matrices = "x4.trans.b16"}>
// GENERIC: "warp.convert_layout"(%r) : (!warp.fragment<b, 32x16xi8, [r2 r3 c1 c2 c3 | c0 r1 r0 r4]>) -> !warp.fragment<b, 32x16xi8, [r2 r3 c1 c2 c3 | r0 r1 r4 c0]>
func.func @bytes(%s: !bytes, %i: index, %a: !a, %c: !acc) {
  %r = warp.load %s[%i, %i] {matrices = "x4.trans.b16"} : !bytes -> !raw
  %b = warp.convert_layout %r : !raw to !b
  %d = warp.mma m16n8k32 %a, %b, %c : !a, !b, !acc
  return
}

// CHECK-LABEL: func.func @doubles
// CHECK: %b = warp.load %s[%i, %i, %i] {swapped} : memref<2x8x16xf64, #warp.swizzle<128>, 3 : i64> -> !warp.fragment<b, 16x8xf64, [r1 r2 c2 c0 c1 | r0 r3]>
// GENERIC-LABEL: "doubles"
// GENERIC: "warp.load"(%s, %i, %i, %i) <{swapped}>
func.func @doubles(%s: !doubles, %i: index) {
  %b = warp.load %s[%i, %i, %i] {swapped} : !doubles -> !d
  return
}
