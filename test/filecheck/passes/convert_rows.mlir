// RUN: warploom-opt %s -p convert-warp-to-ptx -t ptx | filecheck %s

// Rows taken together and spread out, and fragments in other layouts.

builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({

  // Both halves of what a lane has, then lanes that differ in one bit; broadcasting takes nothing.
  // CHECK-LABEL: .visible .entry whole(
  // CHECK:       // warp.reduce: max of rows of 16x16
  // CHECK-NEXT:  max.f32 %[[A:f[0-9]+]], %f0, %f4;
  // CHECK-NEXT:  max.f32 %[[B:f[0-9]+]], %f1, %f5;
  // CHECK-NEXT:  max.f32 %[[C:f[0-9]+]], %[[A]], %[[B]];
  // CHECK-COUNT-3: max.f32
  // CHECK-NEXT:  shfl.sync.bfly.b32 %[[D:f[0-9]+]], %[[C]], 1, 0x1F, 0xFFFFFFFF;
  // CHECK-NEXT:  max.f32 %[[E:f[0-9]+]], %[[C]], %[[D]];
  // CHECK:       shfl.sync.bfly.b32 %[[F:f[0-9]+]], %[[E]], 2, 0x1F, 0xFFFFFFFF;
  // CHECK-NEXT:  max.f32 %[[G:f[0-9]+]], %[[E]], %[[F]];
  // CHECK:       st.global.v2.f32 [%{{rd[0-9]+}}], {%[[G]], %[[G]]};
  "gpu.func"() <{function_type = (memref<16x16xf32>, memref<16x16xf32>) -> (), kernel}> ({
  ^bb0(%X: memref<16x16xf32>, %Y: memref<16x16xf32>):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] {in_bounds = [true, true]} : memref<16x16xf32> -> !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %m = warp.reduce max %x : !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x1xf32, [x0 x1 r0 r1 r2 | r3]>
    %y = warp.map %m : !warp.fragment<acc, 16x1xf32, [x0 x1 r0 r1 r2 | r3]> -> !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]> (%e: f32) {
      warp.yield %e : f32
    }
    warp.store %y, %Y[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x16xf32>
    "gpu.return"() : () -> ()
  }) {sym_name = "whole", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // Neighbours in a lane, then the lanes before it, each of whose sums has what the row begins with.
  // CHECK-LABEL: .visible .entry scanned(
  // CHECK:       // warp.scan: add of rows of 16x16
  // CHECK:       add.rn.f32 %[[A:f[0-9]+]], %f0, %f1;
  // CHECK:       shfl.sync.up.b32 %[[B:f[0-9]+]], %[[A]], 1, 0, 0xFFFFFFFF;
  // CHECK-NEXT:  setp.ge.s32 %[[P:p[0-9]+]], %[[LANE:r[0-9]+]], 1;
  // CHECK-NEXT:  selp.f32 %[[C:f[0-9]+]], %[[B]], 0f00000000, %[[P]];
  // CHECK-NEXT:  add.rn.f32 %[[D:f[0-9]+]], %[[A]], %[[C]];
  // CHECK:       shfl.sync.up.b32 %{{f[0-9]+}}, %[[D]], 2, 0, 0xFFFFFFFF;
  // CHECK-NEXT:  setp.ge.s32 %{{p[0-9]+}}, %[[LANE]], 2;
  // CHECK:       add.rn.f32 %[[ALL:f[0-9]+]], %[[D]], %{{f[0-9]+}};
  // CHECK:       shfl.sync.up.b32 %{{f[0-9]+}}, %[[ALL]], 1, 0, 0xFFFFFFFF;
  // CHECK:       add.rn.f32 %[[S:f[0-9]+]], %{{f[0-9]+}}, %{{f[0-9]+}};
  // CHECK:       add.rn.f32 %[[Y:f[0-9]+]], %[[S]], %f0;
  // CHECK:       st.global.v2.f32 [%{{rd[0-9]+}}], {%[[Y]],
  "gpu.func"() <{function_type = (memref<16x16xf32>, memref<16x16xf32>) -> (), kernel}> ({
  ^bb0(%X: memref<16x16xf32>, %Y: memref<16x16xf32>):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] {in_bounds = [true, true]} : memref<16x16xf32> -> !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %b = warp.reduce add %x : !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x1xf32, [x0 x1 r0 r1 r2 | r3]>
    %y = warp.scan add %x from %b : !warp.fragment<acc, 16x1xf32, [x0 x1 r0 r1 r2 | r3]> : !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %y, %Y[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x16xf32>
    "gpu.return"() : () -> ()
  }) {sym_name = "scanned", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // Bits as integers, then again as numbers where a row has none above zero.
  // CHECK-LABEL: .visible .entry positive(
  // CHECK:       mov.b32 %[[A:r[0-9]+]], %f0;
  // CHECK:       max.s32 %[[B:r[0-9]+]], %[[A]], %{{r[0-9]+}};
  // CHECK:       mov.b32 %[[M:f[0-9]+]], %{{r[0-9]+}};
  // CHECK:       or.b32 %[[S:r[0-9]+]], %{{r[0-9]+}}, %{{r[0-9]+}};
  // CHECK-NEXT:  setp.lt.s32 %[[P:p[0-9]+]], %[[S]], 0;
  // CHECK-NEXT:  vote.sync.any.pred %[[V:p[0-9]+]], %[[P]], 0xFFFFFFFF;
  // CHECK-NEXT:  @!%[[V]] bra [[L:skipped_[0-9]+]];
  // CHECK-COUNT-8: max.f32
  // CHECK:       mov.f32 %[[M]], %{{f[0-9]+}};
  // CHECK:       [[L]]:
  "gpu.func"() <{function_type = (memref<16x16xf32>, memref<16x16xf32>) -> (), kernel}> ({
  ^bb0(%X: memref<16x16xf32>, %Y: memref<16x16xf32>):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] {in_bounds = [true, true]} : memref<16x16xf32> -> !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %m = warp.reduce max positive %x : !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x1xf32, [x0 x1 r0 r1 r2 | r3]>
    %y = warp.map %m : !warp.fragment<acc, 16x1xf32, [x0 x1 r0 r1 r2 | r3]> -> !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]> (%e: f32) {
      warp.yield %e : f32
    }
    warp.store %y, %Y[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x16xf32>
    "gpu.return"() : () -> ()
  }) {sym_name = "positive", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // Parts take no exchange between lanes; columns are counted from 64.
  // CHECK-LABEL: .visible .entry parts(
  // CHECK:       // warp.reduce: add of rows of 16x16
  // CHECK-COUNT-6: add.s32
  // CHECK-NEXT:  // warp.reduce: add of rows of 16x4
  // CHECK-NEXT:  shfl.sync.bfly.b32
  // CHECK:       add.s32 %[[J:r[0-9]+]], %{{r[0-9]+}}, 64;
  // CHECK-NEXT:  add.s32 %{{r[0-9]+}}, %[[J]], 0;
  // CHECK-NEXT:  add.s32 %{{r[0-9]+}}, %[[J]], 1;
  // CHECK-NEXT:  add.s32 %{{r[0-9]+}}, %[[J]], 8;
  // CHECK-NEXT:  add.s32 %{{r[0-9]+}}, %[[J]], 9;
  "gpu.func"() <{function_type = (memref<16x16xi32>, memref<16x16xi32>) -> (), kernel}> ({
  ^bb0(%X: memref<16x16xi32>, %Y: memref<16x16xi32>):
    %i = arith.constant 64 : index
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] {in_bounds = [true, true]} : memref<16x16xi32> -> !warp.fragment<acc, 16x16xi32, [c1 c2 r0 r1 r2 | c0 r3]>
    %p = warp.reduce add %x : !warp.fragment<acc, 16x16xi32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x4xi32, [c0 c1 r0 r1 r2 | r3]>
    %m = warp.reduce add %p : !warp.fragment<acc, 16x4xi32, [c0 c1 r0 r1 r2 | r3]> to !warp.fragment<acc, 16x1xi32, [x0 x1 r0 r1 r2 | r3]>
    %y = warp.map %m : !warp.fragment<acc, 16x1xi32, [x0 x1 r0 r1 r2 | r3]> -> !warp.fragment<acc, 16x16xi32, [c1 c2 r0 r1 r2 | c0 r3]> (%e: i32) {
      warp.yield %e : i32
    }
    %j = warp.index 1 from %i : !warp.fragment<acc, 16x16xi32, [c1 c2 r0 r1 r2 | c0 r3]>
    %z = warp.map %y, %j : !warp.fragment<acc, 16x16xi32, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x16xi32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x16xi32, [c1 c2 r0 r1 r2 | c0 r3]> (%a: i32, %b: i32) {
      %0 = arith.addi %a, %b : i32
      warp.yield %0 : i32
    }
    warp.store %z, %Y[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x16xi32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x16xi32>
    "gpu.return"() : () -> ()
  }) {sym_name = "parts", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // An accumulator as operand A: the same registers.
  // CHECK-LABEL: .visible .entry renamed(
  // CHECK:       ld.global.b32 %[[A:r[0-9]+]], [%[[X:rd[0-9]+]]];
  // CHECK-NEXT:  ld.global.b32 %[[B:r[0-9]+]], [%[[X]]+256];
  // CHECK-NOT:   convert_layout
  // CHECK:       st.global.b32 [%[[Y:rd[0-9]+]]], %[[A]];
  // CHECK-NEXT:  st.global.b32 [%[[Y]]+256], %[[B]];
  "gpu.func"() <{function_type = (memref<16x16xf16>, memref<16x16xf16>) -> (), kernel}> ({
  ^bb0(%X: memref<16x16xf16>, %Y: memref<16x16xf16>):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] {in_bounds = [true, true]} : memref<16x16xf16> -> !warp.fragment<acc, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3]>
    %a = warp.convert_layout %x : !warp.fragment<acc, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
    warp.store %a, %Y[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, memref<16x16xf16>
    "gpu.return"() : () -> ()
  }) {sym_name = "renamed", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // CHECK-LABEL: .visible .entry transposed(
  // CHECK:       // warp.convert_layout: 
  // CHECK-NEXT:  movmatrix.sync.aligned.m8n8.trans.b16
  "gpu.func"() <{function_type = (memref<8x8xf16>, memref<8x8xf16>) -> (), kernel}> ({
  ^bb0(%X: memref<8x8xf16>, %Y: memref<8x8xf16>):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] {in_bounds = [true, true]} : memref<8x8xf16> -> !warp.fragment<acc, 8x8xf16, [c1 c2 r0 r1 r2 | c0]>
    %a = warp.convert_layout %x : !warp.fragment<acc, 8x8xf16, [c1 c2 r0 r1 r2 | c0]> to !warp.fragment<acc, 8x8xf16, [r1 r2 c0 c1 c2 | r0]>
    warp.store %a, %Y[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 8x8xf16, [r1 r2 c0 c1 c2 | r0]>, memref<8x8xf16>
    "gpu.return"() : () -> ()
  }) {sym_name = "transposed", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // One bit of the element for one of the lane: half of the registers cross, and the lane's bit says which.
  // CHECK-LABEL: .visible .entry exchanged(
  // CHECK:       // warp.convert_layout: 
  // CHECK:       setp.ne.s32 %[[P:p[0-9]+]],
  // CHECK-NEXT:  selp.f32 %[[KEPT:f[0-9]+]], %f1, %f0, %[[P]];
  // CHECK-NEXT:  selp.f32 %[[SENT:f[0-9]+]], %f0, %f1, %[[P]];
  // CHECK-NEXT:  shfl.sync.bfly.b32 %[[GOT:f[0-9]+]], %[[SENT]], 1, 0x1F, 0xFFFFFFFF;
  // CHECK-NEXT:  selp.f32 %{{f[0-9]+}}, %[[GOT]], %[[KEPT]], %[[P]];
  // CHECK-NEXT:  selp.f32 %{{f[0-9]+}}, %[[KEPT]], %[[GOT]], %[[P]];
  // CHECK-NEXT:  // warp.store
  "gpu.func"() <{function_type = (memref<8x8xf32>, memref<8x8xf32>) -> (), kernel}> ({
  ^bb0(%X: memref<8x8xf32>, %Y: memref<8x8xf32>):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] {in_bounds = [true, true]} : memref<8x8xf32> -> !warp.fragment<acc, 8x8xf32, [c1 c2 r0 r1 r2 | c0]>
    %a = warp.convert_layout %x : !warp.fragment<acc, 8x8xf32, [c1 c2 r0 r1 r2 | c0]> to !warp.fragment<acc, 8x8xf32, [c0 c2 r0 r1 r2 | c1]>
    warp.store %a, %Y[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 8x8xf32, [c0 c2 r0 r1 r2 | c1]>, memref<8x8xf32>
    "gpu.return"() : () -> ()
  }) {sym_name = "exchanged", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}
