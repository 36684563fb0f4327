// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

!a = !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
!b = !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>
!acc = !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
!half = !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
!shared = memref<2x32x64xf16, #warp.swizzle<128>, 3 : i64>

// CHECK-LABEL: func.func @mma
// CHECK-SAME: (%a: !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %b: !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>)
// CHECK: %d = warp.mma m16n8k16 %a, %b, %c : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
// GENERIC-LABEL: "mma"
// GENERIC: %d = "warp.mma"(%a, %b, %c) <{shape = "m16n8k16", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>}> : (!warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
func.func @mma(%a: !a, %b: !b, %c: !acc) {
  %d = warp.mma m16n8k16 %a, %b, %c : !a, !b, !acc
  return
}

// CHECK-LABEL: func.func @mma_of_many_tiles
// CHECK: %d = warp.mma m16n8k8 %a, %b, %c {note = "kept"} : !warp.fragment<a, 32x16xbf16, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<b, 16x24xbf16, [r1 r2 c0 c1 c2 | r0]>, !warp.fragment<acc, 32x24xf32, [c1 c2 r0 r1 r2 | c0 r3]>
// GENERIC-LABEL: "mma_of_many_tiles"
// GENERIC: "warp.mma"(%a, %b, %c) <{shape = "m16n8k8", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>}> {note = "kept"}
func.func @mma_of_many_tiles(%a: !warp.fragment<a, 32x16xbf16, [c1 c2 r0 r1 r2 | c0 r3]>, %b: !warp.fragment<b, 16x24xbf16, [r1 r2 c0 c1 c2 | r0]>, %c: !warp.fragment<acc, 32x24xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = warp.mma m16n8k8 %a, %b, %c {note = "kept"} : !warp.fragment<a, 32x16xbf16, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<b, 16x24xbf16, [r1 r2 c0 c1 c2 | r0]>, !warp.fragment<acc, 32x24xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// CHECK-LABEL: func.func @ldmatrix
// CHECK: %x4 = warp.load %s[%i, %i, %i] {matrices = "x4"} : memref<2x32x64xf16, #warp.swizzle<128>, 3 : i64> -> !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
// CHECK: %x2 = warp.load %s[%i, %i, %i] {matrices = "x2.trans"} : memref<2x32x64xf16, #warp.swizzle<128>, 3 : i64> -> !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>
// CHECK: %x1 = warp.load %s[%i, %i, %i] {note, matrices = "x1", swapped} : memref<2x32x64xf16, #warp.swizzle<128>, 3 : i64> -> !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>
// CHECK: %both = warp.load %s[%i, %i, %i] {matrices = "x4.trans", swapped} : memref<2x32x64xf16, #warp.swizzle<128>, 3 : i64> -> !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
// GENERIC-LABEL: "ldmatrix"
// GENERIC: "warp.load"(%s, %i, %i, %i) <{matrices = "x4"}>
// GENERIC: "warp.load"(%s, %i, %i, %i) <{matrices = "x2.trans"}>
// GENERIC: "warp.load"(%s, %i, %i, %i) <{matrices = "x1", swapped}> {note}
// GENERIC: "warp.load"(%s, %i, %i, %i) <{matrices = "x4.trans", swapped}>
func.func @ldmatrix(%s: !shared, %i: index) {
  %x4 = warp.load %s[%i, %i, %i] {matrices = "x4"} : !shared -> !a
  %x2 = warp.load %s[%i, %i, %i] {matrices = "x2.trans"} : !shared -> !b
  %x1 = warp.load %s[%i, %i, %i] {matrices = "x1", note, swapped} : !shared -> !b
  %both = warp.load %s[%i, %i, %i] {matrices = "x4.trans", swapped} : !shared -> !a
  return
}

// CHECK-LABEL: func.func @load_and_store
// CHECK: %x = warp.load %c[%i, %i] : memref<100x77xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
// CHECK: %y = warp.load %c[%i, %i] {in_bounds = [true, false]} : memref<100x77xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
// CHECK: warp.prefetch %c[%i, %i] {in_bounds = [true, false]} : memref<100x77xf32> as <acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
// CHECK: warp.store %x, %c[%i, %i] : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<100x77xf32>
// CHECK: warp.store %y, %c[%i, %i] {in_bounds = [true, true]} : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<100x77xf32>
// CHECK: warp.store %y, %c[%i, %i] {within} : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<100x77xf32>
// GENERIC-LABEL: "load_and_store"
// GENERIC: "warp.load"(%c, %i, %i) : (memref<100x77xf32>, index, index) -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
// GENERIC: "warp.load"(%c, %i, %i) <{in_bounds = [true, false]}>
// GENERIC: "warp.store"(%x, %c, %i, %i) <{operandSegmentSizes = array<i32: 1, 1, 2, 0, 0, 0, 0>}> : (!warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<100x77xf32>, index, index) -> ()
// GENERIC: "warp.store"(%y, %c, %i, %i) <{in_bounds = [true, true]{{.*}}}>
func.func @load_and_store(%c: memref<100x77xf32>, %i: index) {
  %x = warp.load %c[%i, %i] : memref<100x77xf32> -> !acc
  %y = warp.load %c[%i, %i] {in_bounds = [true, false]} : memref<100x77xf32> -> !acc
  warp.prefetch %c[%i, %i] {in_bounds = [true, false]} : memref<100x77xf32> as <acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  warp.store %x, %c[%i, %i] : !acc, memref<100x77xf32>
  warp.store %y, %c[%i, %i] {in_bounds = [true, true]} : !acc, memref<100x77xf32>
  warp.store %y, %c[%i, %i] {within} : !acc, memref<100x77xf32>
  return
}

// CHECK-LABEL: func.func @arithmetic
// CHECK: %z = warp.constant 0.000000e+00 : f32 : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
// CHECK: %h = warp.constant 1.500000e+00 : f16 : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
// CHECK: %0 = warp.elementwise add %x, %z : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
// CHECK: %1 = warp.elementwise sub %x, %z :
// CHECK: %2 = warp.elementwise mul %x, %z :
// CHECK: %3 = warp.elementwise max %x, %z :
// CHECK: %4 = warp.elementwise min %x, %z :
// CHECK: %5 = warp.elementwise neg %x : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
// CHECK: %6 = warp.convert %x : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
// GENERIC-LABEL: "arithmetic"
// GENERIC: %z = "warp.constant"() <{value = 0.000000e+00 : f32}> : () -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
// GENERIC: "warp.elementwise"(%x, %z) <{kind = #warp<kind add>}>
// GENERIC: "warp.elementwise"(%x) <{kind = #warp<kind neg>}>
// GENERIC: "warp.convert"(%x) : (!warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
func.func @arithmetic(%x: !acc) {
  %z = warp.constant 0.0 : f32 : !acc
  %h = warp.constant 1.5 : f16 : !half
  %0 = warp.elementwise add %x, %z : !acc, !acc -> !acc
  %1 = warp.elementwise sub %x, %z : !acc, !acc -> !acc
  %2 = warp.elementwise mul %x, %z : !acc, !acc -> !acc
  %3 = warp.elementwise max %x, %z : !acc, !acc -> !acc
  %4 = warp.elementwise min %x, %z : !acc, !acc -> !acc
  %5 = warp.elementwise neg %x : !acc -> !acc
  %6 = warp.convert %x : !acc to !half
  return
}

// CHECK-LABEL: func.func @copies
// CHECK: warp.copy %g[%i, %i] to %s[%i] {async, in_bounds = [false, true]} : memref<100x77xf16> to memref<2x32x64xf16, #warp.swizzle<128>, 3 : i64>
// CHECK: warp.copy %g[%i, %i] to %t[] : memref<100x77xf16> to memref<8x8xf16, #warp.swizzle<16>, 3 : i64>
// CHECK: warp.copy %g[%i, %i] to %t[] until %i {in_bounds = [false, true]} : memref<100x77xf16> to memref<8x8xf16, #warp.swizzle<16>, 3 : i64>
// CHECK: warp.copy %g[%i, %i] to %t[] at[%i] {padded = array<i64: -11, 1, 1, 8, 100>} : memref<100x77xf16> to memref<8x8xf16, #warp.swizzle<16>, 3 : i64>
// CHECK: warp.copy %g[%i, %i] to %t[] {part = array<i64: 1, 2, 1>} : memref<100x77xf16> to memref<8x8xf16, #warp.swizzle<16>, 3 : i64>
// CHECK: warp.copy %g[%i, %i] to %t[] {part = array<i64: 1, 2>} : memref<100x77xf16> to memref<8x8xf16, #warp.swizzle<16>, 3 : i64>
// CHECK: warp.copy %g[%i, %i] to %t[] {part = array<i64: 1, 4, 0, 2>} : memref<100x77xf16> to memref<8x8xf16, #warp.swizzle<16>, 3 : i64>
// CHECK: warp.commit cp_async
// CHECK: warp.wait cp_async 0
// CHECK: warp.wait cp_async 2 {note}
// GENERIC-LABEL: "copies"
// GENERIC: "warp.copy"(%g, %i, %i, %s, %i) <{async, in_bounds = [false, true], operandSegmentSizes = array<i32: 1, 2, 1, 1, 0, 0>}>
// GENERIC: "warp.copy"(%g, %i, %i, %t) <{operandSegmentSizes = array<i32: 1, 2, 1, 0, 0, 0>}>
// GENERIC: "warp.commit"() <{group = "cp_async"}> : () -> ()
// GENERIC: "warp.wait"() <{group = "cp_async", pending = 0 : i64}> : () -> ()
// GENERIC: "warp.wait"() <{group = "cp_async", pending = 2 : i64}> {note}
func.func @copies(%g: memref<100x77xf16>, %s: !shared, %t: memref<8x8xf16, #warp.swizzle<16>, 3 : i64>, %i: index) {
  warp.copy %g[%i, %i] to %s[%i] {async, in_bounds = [false, true]} : memref<100x77xf16> to !shared
  warp.copy %g[%i, %i] to %t[] : memref<100x77xf16> to memref<8x8xf16, #warp.swizzle<16>, 3 : i64>
  warp.copy %g[%i, %i] to %t[] until %i {in_bounds = [false, true]} : memref<100x77xf16> to memref<8x8xf16, #warp.swizzle<16>, 3 : i64>
  warp.copy %g[%i, %i] to %t[] at [%i] {padded = array<i64: -11, 1, 1, 8, 100>} : memref<100x77xf16> to memref<8x8xf16, #warp.swizzle<16>, 3>
  warp.copy %g[%i, %i] to %t[] {part = array<i64: 1, 2, 1>} : memref<100x77xf16> to memref<8x8xf16, #warp.swizzle<16>, 3>
  warp.copy %g[%i, %i] to %t[] {part = array<i64: 1, 2>} : memref<100x77xf16> to memref<8x8xf16, #warp.swizzle<16>, 3 : i64>
  warp.copy %g[%i, %i] to %t[] {part = array<i64: 1, 4, 0, 2>} : memref<100x77xf16> to memref<8x8xf16, #warp.swizzle<16>, 3 : i64>
  warp.commit cp_async
  warp.wait cp_async 0
  warp.wait cp_async 2 {note}
  return
}

// CHECK-LABEL: func.func @pack
// CHECK: warp.pack %a to %w share %i {shares = 3 : i64} : memref<5x7xbf16> to memref<8x16xbf16>
// GENERIC-LABEL: "pack"
// GENERIC: "warp.pack"(%a, %w, %i) <{shares = 3 : i64}>
func.func @pack(%a: memref<5x7xbf16>, %w: memref<8x16xbf16>, %i: index) {
  warp.pack %a to %w share %i {shares = 3 : i64} : memref<5x7xbf16> to memref<8x16xbf16>
  return
}

// CHECK-LABEL: func.func @padded
// CHECK: warp.pack %a to %w share %i {shares = 3 : i64, packed = "b6x16_p32"} : memref<5x7xf6E2M3FN> to memref<8x16xf6E2M3FN>
// CHECK: %m = warp.encode_tensor_map %b [0, 1] : memref<64x256xf4E2M1FN> to !warp.tensor_map<8x128xf4E2M1FN, swizzle 128>
func.func @padded(%a: memref<5x7xf6E2M3FN>, %w: memref<8x16xf6E2M3FN>, %b: memref<64x256xf4E2M1FN>, %i: index) {
  warp.pack %a to %w share %i {shares = 3 : i64, packed = "b6x16_p32"} : memref<5x7xf6E2M3FN> to memref<8x16xf6E2M3FN>
  %m = warp.encode_tensor_map %b [0, 1] : memref<64x256xf4E2M1FN> to !warp.tensor_map<8x128xf4E2M1FN, swizzle 128>
  return
}

// CHECK-LABEL: func.func @exchange
// CHECK: %r = warp.convert_layout %c via %s : !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]> via memref<4x1024xf32, 3 : i64> to !warp.fragment<acc, 16x64xf32, [c2 c3 c4 c5 r0 | c0 c1 r1 r2 r3]>
// GENERIC-LABEL: "exchange"
// GENERIC: %r = "warp.convert_layout"(%c, %s)
func.func @exchange(%c: !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %s: memref<4x1024xf32, 3 : i64>) {
  %r = warp.convert_layout %c via %s : !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]> via memref<4x1024xf32, 3 : i64> to !warp.fragment<acc, 16x64xf32, [c2 c3 c4 c5 r0 | c0 c1 r1 r2 r3]>
  return
}

// CHECK-LABEL: func.func @paired
// CHECK: %w = warp.paired %b, %e : memref<8x6xf16>, memref<8x6xf16>
// CHECK: warp.matmul f16 x f16 %a, %w init 0.000000e+00 : f32 into %c through %f : memref<4x8xf16>, !warp.operand<memref<8x6xf16>>, memref<4x6xf32>
func.func @paired(%a: memref<4x8xf16>, %b: memref<8x6xf16>, %e: memref<8x6xf16>, %c: memref<4x6xf32>) {
  %w = warp.paired %b, %e : memref<8x6xf16>, memref<8x6xf16>
  %f = warp.pointwise (%x: f32, %y: f32) {
    %s = arith.mulf %x, %y : f32
    warp.yield %s : f32
  }
  warp.matmul f16 x f16 %a, %w init 0.0 : f32 into %c through %f : memref<4x8xf16>, !warp.operand<memref<8x6xf16>>, memref<4x6xf32>
  return
}
