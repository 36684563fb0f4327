// RUN: warploom-opt %s -p convert-warp-to-ptx -t ptx | filecheck %s

// Each operation is one instruction for each register of a fragment: an f32, or a pair of 16-bit elements.

builtin.module attributes {warp.target = #warp.target<sm_90>} {
"gpu.module"() <{sym_name = "kernels"}> ({

  // CHECK-LABEL: .visible .entry f32(
  // CHECK:       add.rn.f32 %f{{[0-9]+}}, %f{{[0-9]+}}, %f{{[0-9]+}};
  // CHECK-NEXT:  add.rn.f32 %f{{[0-9]+}}, %f{{[0-9]+}}, %f{{[0-9]+}};
  // CHECK-NEXT:  add.rn.f32 %f{{[0-9]+}}, %f{{[0-9]+}}, %f{{[0-9]+}};
  // CHECK-NEXT:  add.rn.f32 %f{{[0-9]+}}, %f{{[0-9]+}}, %f{{[0-9]+}};
  // CHECK-NEXT:  sub.rn.f32 %f{{[0-9]+}}, %f{{[0-9]+}}, %f{{[0-9]+}};
  // CHECK-NEXT:  sub.rn.f32 %f{{[0-9]+}}, %f{{[0-9]+}}, %f{{[0-9]+}};
  // CHECK-NEXT:  sub.rn.f32 %f{{[0-9]+}}, %f{{[0-9]+}}, %f{{[0-9]+}};
  // CHECK-NEXT:  sub.rn.f32 %f{{[0-9]+}}, %f{{[0-9]+}}, %f{{[0-9]+}};
  // CHECK-NEXT:  mul.rn.f32 %f{{[0-9]+}}, %f{{[0-9]+}}, %f{{[0-9]+}};
  // CHECK-NEXT:  mul.rn.f32 %f{{[0-9]+}}, %f{{[0-9]+}}, %f{{[0-9]+}};
  // CHECK-NEXT:  mul.rn.f32 %f{{[0-9]+}}, %f{{[0-9]+}}, %f{{[0-9]+}};
  // CHECK-NEXT:  mul.rn.f32 %f{{[0-9]+}}, %f{{[0-9]+}}, %f{{[0-9]+}};
  // CHECK-NEXT:  max.f32 %f{{[0-9]+}}, %f{{[0-9]+}}, %f{{[0-9]+}};
  // CHECK-NEXT:  max.f32 %f{{[0-9]+}}, %f{{[0-9]+}}, %f{{[0-9]+}};
  // CHECK-NEXT:  max.f32 %f{{[0-9]+}}, %f{{[0-9]+}}, %f{{[0-9]+}};
  // CHECK-NEXT:  max.f32 %f{{[0-9]+}}, %f{{[0-9]+}}, %f{{[0-9]+}};
  // CHECK-NEXT:  min.f32 %f{{[0-9]+}}, %f{{[0-9]+}}, %f{{[0-9]+}};
  // CHECK-NEXT:  min.f32 %f{{[0-9]+}}, %f{{[0-9]+}}, %f{{[0-9]+}};
  // CHECK-NEXT:  min.f32 %f{{[0-9]+}}, %f{{[0-9]+}}, %f{{[0-9]+}};
  // CHECK-NEXT:  min.f32 %f{{[0-9]+}}, %f{{[0-9]+}}, %f{{[0-9]+}};
  // CHECK-NEXT:  neg.f32 %f{{[0-9]+}}, %f{{[0-9]+}};
  // CHECK-NEXT:  neg.f32 %f{{[0-9]+}}, %f{{[0-9]+}};
  // CHECK-NEXT:  neg.f32 %f{{[0-9]+}}, %f{{[0-9]+}};
  // CHECK-NEXT:  neg.f32 %f{{[0-9]+}}, %f{{[0-9]+}};
  "gpu.func"() <{function_type = (memref<16x8xf32>, memref<16x8xf32>) -> (), kernel}> ({
  ^bb0(%X: memref<16x8xf32>, %Y: memref<16x8xf32>):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] {in_bounds = [true, true]} : memref<16x8xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %y = warp.load %Y[%c0, %c0] {in_bounds = [true, true]} : memref<16x8xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %add = warp.elementwise add %x, %y : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %sub = warp.elementwise sub %add, %y : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %mul = warp.elementwise mul %sub, %y : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %max = warp.elementwise max %mul, %y : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %min = warp.elementwise min %max, %y : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %neg = warp.elementwise neg %min : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %neg, %Y[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xf32>
    "gpu.return"() : () -> ()
  }) {sym_name = "f32", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // CHECK-LABEL: .visible .entry f16(
  // CHECK:       add.rn.f16x2 %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}};
  // CHECK-NEXT:  add.rn.f16x2 %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}};
  // CHECK-NEXT:  sub.rn.f16x2 %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}};
  // CHECK-NEXT:  sub.rn.f16x2 %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}};
  // CHECK-NEXT:  mul.rn.f16x2 %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}};
  // CHECK-NEXT:  mul.rn.f16x2 %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}};
  // CHECK-NEXT:  max.f16x2 %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}};
  // CHECK-NEXT:  max.f16x2 %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}};
  // CHECK-NEXT:  min.f16x2 %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}};
  // CHECK-NEXT:  min.f16x2 %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}};
  // CHECK-NEXT:  neg.f16x2 %r{{[0-9]+}}, %r{{[0-9]+}};
  // CHECK-NEXT:  neg.f16x2 %r{{[0-9]+}}, %r{{[0-9]+}};
  "gpu.func"() <{function_type = (memref<16x8xf16>, memref<16x8xf16>) -> (), kernel}> ({
  ^bb0(%X: memref<16x8xf16>, %Y: memref<16x8xf16>):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] {in_bounds = [true, true]} : memref<16x8xf16> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
    %y = warp.load %Y[%c0, %c0] {in_bounds = [true, true]} : memref<16x8xf16> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
    %add = warp.elementwise add %x, %y : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
    %sub = warp.elementwise sub %add, %y : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
    %mul = warp.elementwise mul %sub, %y : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
    %max = warp.elementwise max %mul, %y : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
    %min = warp.elementwise min %max, %y : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
    %neg = warp.elementwise neg %min : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %neg, %Y[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xf16>
    "gpu.return"() : () -> ()
  }) {sym_name = "f16", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // CHECK-LABEL: .visible .entry bf16(
  // CHECK:       add.rn.bf16x2 %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}};
  // CHECK-NEXT:  add.rn.bf16x2 %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}};
  // CHECK-NEXT:  sub.rn.bf16x2 %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}};
  // CHECK-NEXT:  sub.rn.bf16x2 %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}};
  // CHECK-NEXT:  mul.rn.bf16x2 %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}};
  // CHECK-NEXT:  mul.rn.bf16x2 %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}};
  // CHECK-NEXT:  max.bf16x2 %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}};
  // CHECK-NEXT:  max.bf16x2 %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}};
  // CHECK-NEXT:  min.bf16x2 %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}};
  // CHECK-NEXT:  min.bf16x2 %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}};
  // CHECK-NEXT:  neg.bf16x2 %r{{[0-9]+}}, %r{{[0-9]+}};
  // CHECK-NEXT:  neg.bf16x2 %r{{[0-9]+}}, %r{{[0-9]+}};
  "gpu.func"() <{function_type = (memref<16x8xbf16>, memref<16x8xbf16>) -> (), kernel}> ({
  ^bb0(%X: memref<16x8xbf16>, %Y: memref<16x8xbf16>):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] {in_bounds = [true, true]} : memref<16x8xbf16> -> !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>
    %y = warp.load %Y[%c0, %c0] {in_bounds = [true, true]} : memref<16x8xbf16> -> !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>
    %add = warp.elementwise add %x, %y : !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>
    %sub = warp.elementwise sub %add, %y : !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>
    %mul = warp.elementwise mul %sub, %y : !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>
    %max = warp.elementwise max %mul, %y : !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>
    %min = warp.elementwise min %max, %y : !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>
    %neg = warp.elementwise neg %min : !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %neg, %Y[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xbf16>
    "gpu.return"() : () -> ()
  }) {sym_name = "bf16", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

}) : () -> ()
}
