// RUN: warploom-opt %s -p convert-warp-to-ptx -t ptx | filecheck %s

builtin.module attributes {warp.target = #warp.target<sm_80>} {
"gpu.module"() <{sym_name = "kernels"}> ({

  // One instruction for each pair of base tiles, rows of tiles back and forth.
  // CHECK-LABEL: .visible .entry tiles(
  // CHECK:       mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}
  // CHECK-NEXT:  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f4, %f5, %f6, %f7}
  // CHECK-NEXT:  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f12, %f13, %f14, %f15}
  // CHECK-NEXT:  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f8, %f9, %f10, %f11}
  "gpu.func"() <{function_type = (memref<32x16xf16>, memref<16x16xf16>, memref<32x16xf32>) -> (), kernel}> ({
  ^bb0(%A: memref<32x16xf16>, %B: memref<16x16xf16>, %C: memref<32x16xf32>):
    %c0 = arith.constant 0 : index
    %a = warp.load %A[%c0, %c0] {in_bounds = [true, true]} : memref<32x16xf16> -> !warp.fragment<a, 32x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
    %b = warp.load %B[%c0, %c0] {in_bounds = [true, true]} : memref<16x16xf16> -> !warp.fragment<b, 16x16xf16, [r1 r2 c0 c1 c2 | r0 r3]>
    %c = warp.load %C[%c0, %c0] {in_bounds = [true, true]} : memref<32x16xf32> -> !warp.fragment<acc, 32x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %d = warp.mma m16n8k16 %a, %b, %c : !warp.fragment<a, 32x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 16x16xf16, [r1 r2 c0 c1 c2 | r0 r3]>, !warp.fragment<acc, 32x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %d, %C[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 32x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<32x16xf32>
    "gpu.return"() : () -> ()
  }) {sym_name = "tiles", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // C is read again, so the product goes to a copy of it.
  // CHECK-LABEL: .visible .entry kept(
  // CHECK:       mov.f32 %f[[D0:[0-9]+]], %f[[C0:[0-9]+]];
  // CHECK-NEXT:  mov.f32 %f[[D1:[0-9]+]], %f[[C1:[0-9]+]];
  // CHECK-NEXT:  mov.f32 %f[[D2:[0-9]+]], %f[[C2:[0-9]+]];
  // CHECK-NEXT:  mov.f32 %f[[D3:[0-9]+]], %f[[C3:[0-9]+]];
  // CHECK:       mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f[[D0]], %f[[D1]], %f[[D2]], %f[[D3]]}, {{.*}}, {%f[[D0]], %f[[D1]], %f[[D2]], %f[[D3]]};
  // CHECK-NEXT:  sub.rn.f32 %f{{[0-9]+}}, %f[[D0]], %f[[C0]];
  "gpu.func"() <{function_type = (memref<16x16xf16>, memref<16x8xf16>, memref<16x8xf32>) -> (), kernel}> ({
  ^bb0(%A: memref<16x16xf16>, %B: memref<16x8xf16>, %C: memref<16x8xf32>):
    %c0 = arith.constant 0 : index
    %a = warp.load %A[%c0, %c0] {in_bounds = [true, true]} : memref<16x16xf16> -> !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
    %b = warp.load %B[%c0, %c0] {in_bounds = [true, true]} : memref<16x8xf16> -> !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>
    %c = warp.load %C[%c0, %c0] {in_bounds = [true, true]} : memref<16x8xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %d = warp.mma m16n8k16 %a, %b, %c : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %e = warp.elementwise sub %d, %c : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %e, %C[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xf32>
    "gpu.return"() : () -> ()
  }) {sym_name = "kept", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // Rows of 7 elements leave no pair aligned: each moves alone, zero where it lies outside.
  // CHECK-LABEL: .visible .entry odd_edges(
  // CHECK:       mov.f32 %f0, 0f00000000;
  // CHECK-NEXT:  @%p{{[0-9]+}} ld.global.f32 %f0, [
  // CHECK:       mov.f32 %f1, 0f00000000;
  // CHECK-NEXT:  @%p{{[0-9]+}} ld.global.f32 %f1, [
  // CHECK:       mov.f32 %f2, 0f00000000;
  // CHECK-NEXT:  @%p{{[0-9]+}} ld.global.f32 %f2, [
  // CHECK:       mov.f32 %f3, 0f00000000;
  // CHECK-NEXT:  @%p{{[0-9]+}} ld.global.f32 %f3, [
  // CHECK:       @%p{{[0-9]+}} st.global.f32 [%rd{{[0-9]+}}{{.*}}], %f0;
  // CHECK:       @%p{{[0-9]+}} st.global.f32 [%rd{{[0-9]+}}{{.*}}], %f1;
  // CHECK:       @%p{{[0-9]+}} st.global.f32 [%rd{{[0-9]+}}{{.*}}], %f2;
  // CHECK:       @%p{{[0-9]+}} st.global.f32 [%rd{{[0-9]+}}{{.*}}], %f3;
  // CHECK-NEXT:  ret;
  "gpu.func"() <{function_type = (memref<13x7xf32>) -> (), kernel}> ({
  ^bb0(%X: memref<13x7xf32>):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] : memref<13x7xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %x, %X[%c0, %c0] : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<13x7xf32>
    "gpu.return"() : () -> ()
  }) {sym_name = "odd_edges", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // Accumulators stay in their registers through the loop; what does not change in it is computed before.
  // CHECK-LABEL: .visible .entry loop(
  // CHECK:       mul.wide.s32
  // CHECK:       mov.b32 %r[[K:[0-9]+]], 0;
  // CHECK-NEXT:  loop_1:
  // CHECK-NOT:   shr.u32
  // CHECK:       mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {{.*}}, {%f0, %f1, %f2, %f3};
  // CHECK-NEXT:  add.s32 %r[[K]], %r[[K]], 16;
  // CHECK-NEXT:  setp.lt.s32 %p[[MORE:[0-9]+]], %r[[K]], 64;
  // CHECK-NEXT:  @%p[[MORE]] bra loop_1;
  // CHECK-NEXT:  loop_1_end:
  // CHECK:       st.global.v2.f32 [%rd{{[0-9]+}}], {%f0, %f1};
  "gpu.func"() <{function_type = (memref<16x64xf16>, memref<64x8xf16>, memref<16x8xf32>) -> (), kernel}> ({
  ^bb0(%A: memref<16x64xf16>, %B: memref<64x8xf16>, %C: memref<16x8xf32>):
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c16 = arith.constant 16 : index
    %c64 = arith.constant 64 : index
    %zero = warp.constant 0.0 : f32 : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %d = scf.for %k = %c0 to %c64 step %c16 iter_args(%c = %zero) -> (!warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
      %a = warp.load %A[%c0, %k] {in_bounds = [true, true]} : memref<16x64xf16> -> !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
      %b = warp.load %B[%k, %c0] {in_bounds = [true, true]} : memref<64x8xf16> -> !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>
      %e = warp.mma m16n8k16 %a, %b, %c : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
      scf.yield %e : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    }
    warp.store %d, %C[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xf32>
    "gpu.return"() : () -> ()
  }) {sym_name = "loop", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // Bounds that are not known take a look before the first turn.
  // CHECK-LABEL: .visible .entry bounds(
  // CHECK:       mov.u32 %r[[N:[0-9]+]], %ctaid.y;
  // CHECK:       setp.ge.s32 %p[[NONE:[0-9]+]], %r[[N]], 16;
  // CHECK-NEXT:  @%p[[NONE]] bra loop_1_end;
  // CHECK-NEXT:  loop_1:
  // CHECK:       bra loop_1;
  // CHECK-NEXT:  loop_1_end:
  // CHECK-NEXT:  ret;
  "gpu.func"() <{function_type = (memref<16x8xf32>) -> (), kernel}> ({
  ^bb0(%C: memref<16x8xf32>):
    %c0 = arith.constant 0 : index
    %n = "gpu.block_id"() <{dimension = #gpu<dim y>}> : () -> index
    %c1 = arith.constant 1 : index
    %c16 = arith.constant 16 : index
    %zero = warp.constant 0.0 : f32 : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    scf.for %k = %n to %c16 step %c1 {
      warp.store %zero, %C[%k, %c0] : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xf32>
    }
    "gpu.return"() : () -> ()
  }) {sym_name = "bounds", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

}) : () -> ()
}
