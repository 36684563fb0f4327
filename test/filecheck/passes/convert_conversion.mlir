// RUN: warploom-opt %s -p convert-warp-to-ptx -t ptx | filecheck %s

// By way of f32, which holds each 16-bit type exactly; the higher element of a pair comes first in cvt.

builtin.module attributes {warp.target = #warp.target<sm_80>} {
"gpu.module"() <{sym_name = "kernels"}> ({

  // CHECK-LABEL: .visible .entry f32_to_f32(
  // CHECK-NOT:   cvt.{{[rf]}}
  "gpu.func"() <{function_type = (memref<16x8xf32>, memref<16x8xf32>) -> (), kernel}> ({
  ^bb0(%X: memref<16x8xf32>, %Y: memref<16x8xf32>):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] {in_bounds = [true, true]} : memref<16x8xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %y = warp.convert %x : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %y, %Y[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xf32>
    "gpu.return"() : () -> ()
  }) {sym_name = "f32_to_f32", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // CHECK-LABEL: .visible .entry f32_to_f16(
  // CHECK:       cvt.rn.f16x2.f32 %r{{[0-9]+}}, %f{{[0-9]+}}, %f{{[0-9]+}};
  "gpu.func"() <{function_type = (memref<16x8xf32>, memref<16x8xf16>) -> (), kernel}> ({
  ^bb0(%X: memref<16x8xf32>, %Y: memref<16x8xf16>):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] {in_bounds = [true, true]} : memref<16x8xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %y = warp.convert %x : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %y, %Y[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xf16>
    "gpu.return"() : () -> ()
  }) {sym_name = "f32_to_f16", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // CHECK-LABEL: .visible .entry f32_to_bf16(
  // CHECK:       cvt.rn.bf16x2.f32 %r{{[0-9]+}}, %f{{[0-9]+}}, %f{{[0-9]+}};
  "gpu.func"() <{function_type = (memref<16x8xf32>, memref<16x8xbf16>) -> (), kernel}> ({
  ^bb0(%X: memref<16x8xf32>, %Y: memref<16x8xbf16>):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] {in_bounds = [true, true]} : memref<16x8xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %y = warp.convert %x : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %y, %Y[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xbf16>
    "gpu.return"() : () -> ()
  }) {sym_name = "f32_to_bf16", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // CHECK-LABEL: .visible .entry f16_to_f32(
  // CHECK:       mov.b32 {%h{{[0-9]+}}, %h{{[0-9]+}}}, %r{{[0-9]+}};
  // CHECK-NEXT:  cvt.f32.f16 %f{{[0-9]+}}, %h{{[0-9]+}};
  // CHECK-NEXT:  cvt.f32.f16 %f{{[0-9]+}}, %h{{[0-9]+}};
  "gpu.func"() <{function_type = (memref<16x8xf16>, memref<16x8xf32>) -> (), kernel}> ({
  ^bb0(%X: memref<16x8xf16>, %Y: memref<16x8xf32>):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] {in_bounds = [true, true]} : memref<16x8xf16> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
    %y = warp.convert %x : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %y, %Y[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xf32>
    "gpu.return"() : () -> ()
  }) {sym_name = "f16_to_f32", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // CHECK-LABEL: .visible .entry f16_to_f16(
  // CHECK-NOT:   cvt.{{[rf]}}
  "gpu.func"() <{function_type = (memref<16x8xf16>, memref<16x8xf16>) -> (), kernel}> ({
  ^bb0(%X: memref<16x8xf16>, %Y: memref<16x8xf16>):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] {in_bounds = [true, true]} : memref<16x8xf16> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
    %y = warp.convert %x : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %y, %Y[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xf16>
    "gpu.return"() : () -> ()
  }) {sym_name = "f16_to_f16", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // CHECK-LABEL: .visible .entry f16_to_bf16(
  // CHECK:       mov.b32 {%h{{[0-9]+}}, %h{{[0-9]+}}}, %r{{[0-9]+}};
  // CHECK-NEXT:  cvt.f32.f16 %f{{[0-9]+}}, %h{{[0-9]+}};
  // CHECK-NEXT:  cvt.f32.f16 %f{{[0-9]+}}, %h{{[0-9]+}};
  // CHECK:       cvt.rn.bf16x2.f32 %r{{[0-9]+}}, %f{{[0-9]+}}, %f{{[0-9]+}};
  "gpu.func"() <{function_type = (memref<16x8xf16>, memref<16x8xbf16>) -> (), kernel}> ({
  ^bb0(%X: memref<16x8xf16>, %Y: memref<16x8xbf16>):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] {in_bounds = [true, true]} : memref<16x8xf16> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
    %y = warp.convert %x : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %y, %Y[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xbf16>
    "gpu.return"() : () -> ()
  }) {sym_name = "f16_to_bf16", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // CHECK-LABEL: .visible .entry bf16_to_f32(
  // CHECK:       shl.b32 %r[[L:[0-9]+]], %r[[P:[0-9]+]], 16;
  // CHECK-NEXT:  mov.b32 %f{{[0-9]+}}, %r[[L]];
  // CHECK-NEXT:  and.b32 %r[[H:[0-9]+]], %r[[P]], 0xFFFF0000;
  // CHECK-NEXT:  mov.b32 %f{{[0-9]+}}, %r[[H]];
  "gpu.func"() <{function_type = (memref<16x8xbf16>, memref<16x8xf32>) -> (), kernel}> ({
  ^bb0(%X: memref<16x8xbf16>, %Y: memref<16x8xf32>):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] {in_bounds = [true, true]} : memref<16x8xbf16> -> !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>
    %y = warp.convert %x : !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %y, %Y[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xf32>
    "gpu.return"() : () -> ()
  }) {sym_name = "bf16_to_f32", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // CHECK-LABEL: .visible .entry bf16_to_f16(
  // CHECK:       shl.b32 %r[[L:[0-9]+]], %r[[P:[0-9]+]], 16;
  // CHECK-NEXT:  mov.b32 %f{{[0-9]+}}, %r[[L]];
  // CHECK-NEXT:  and.b32 %r[[H:[0-9]+]], %r[[P]], 0xFFFF0000;
  // CHECK-NEXT:  mov.b32 %f{{[0-9]+}}, %r[[H]];
  // CHECK:       cvt.rn.f16x2.f32 %r{{[0-9]+}}, %f{{[0-9]+}}, %f{{[0-9]+}};
  "gpu.func"() <{function_type = (memref<16x8xbf16>, memref<16x8xf16>) -> (), kernel}> ({
  ^bb0(%X: memref<16x8xbf16>, %Y: memref<16x8xf16>):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] {in_bounds = [true, true]} : memref<16x8xbf16> -> !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>
    %y = warp.convert %x : !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %y, %Y[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xf16>
    "gpu.return"() : () -> ()
  }) {sym_name = "bf16_to_f16", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // CHECK-LABEL: .visible .entry bf16_to_bf16(
  // CHECK-NOT:   cvt.{{[rf]}}
  "gpu.func"() <{function_type = (memref<16x8xbf16>, memref<16x8xbf16>) -> (), kernel}> ({
  ^bb0(%X: memref<16x8xbf16>, %Y: memref<16x8xbf16>):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] {in_bounds = [true, true]} : memref<16x8xbf16> -> !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>
    %y = warp.convert %x : !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %y, %Y[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xbf16>
    "gpu.return"() : () -> ()
  }) {sym_name = "bf16_to_bf16", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

}) : () -> ()
}
