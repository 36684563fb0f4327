// RUN: warploom-opt %s -p convert-warp-to-ptx -t ptx | filecheck %s

builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({

  // A lane holds pairs of a row of A and moves them together; elements of B lie a row apart and move alone.
  // CHECK-LABEL: .visible .entry global(
  // CHECK:       ld.global.b32 %r[[A0:[0-9]+]], [%rd[[AT:[0-9]+]]];
  // CHECK-NEXT:  ld.global.b32 %r[[A1:[0-9]+]], [%rd[[AT]]+256];
  // CHECK-NEXT:  ld.global.b32 %r[[A2:[0-9]+]], [%rd[[AT]]+16];
  // CHECK-NEXT:  ld.global.b32 %r[[A3:[0-9]+]], [%rd[[AT]]+272];
  // CHECK:       ld.global.b16 %h[[B0:[0-9]+]], [%rd[[BT:[0-9]+]]];
  // CHECK-NEXT:  ld.global.b16 %h[[B1:[0-9]+]], [%rd[[BT]]+16];
  // CHECK-NEXT:  mov.b32 %r[[B01:[0-9]+]], {%h[[B0]], %h[[B1]]};
  // CHECK-NEXT:  ld.global.b16 %h[[B2:[0-9]+]], [%rd[[BT]]+128];
  // CHECK-NEXT:  ld.global.b16 %h[[B3:[0-9]+]], [%rd[[BT]]+144];
  // CHECK-NEXT:  mov.b32 %r[[B23:[0-9]+]], {%h[[B2]], %h[[B3]]};
  // CHECK:       mov.f32 %f0, 0f3F800000;
  // CHECK:       mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r[[A0]], %r[[A1]], %r[[A2]], %r[[A3]]}, {%r[[B01]], %r[[B23]]}, {%f0, %f1, %f2, %f3};
  // CHECK:       st.global.v2.f32 [%rd[[CT:[0-9]+]]], {%f0, %f1};
  // CHECK-NEXT:  st.global.v2.f32 [%rd[[CT]]+256], {%f2, %f3};
  // CHECK-NEXT:  ret;
  "gpu.func"() <{function_type = (memref<16x16xf16>, memref<16x8xf16>, memref<16x8xf32>) -> (), kernel}> ({
  ^bb0(%A: memref<16x16xf16>, %B: memref<16x8xf16>, %C: memref<16x8xf32>):
    %c0 = arith.constant 0 : index
    %a = warp.load %A[%c0, %c0] {in_bounds = [true, true]} : memref<16x16xf16> -> !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
    %b = warp.load %B[%c0, %c0] {in_bounds = [true, true]} : memref<16x8xf16> -> !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>
    %c = warp.constant 1.0 : f32 : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %d = warp.mma m16n8k16 %a, %b, %c : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %d, %C[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xf32>
    "gpu.return"() : () -> ()
  }) {sym_name = "global", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // 16 x 128 bytes by 32 threads of 16 bytes are 4 copies, B takes 2 and starts after the two stages of A.
  // CHECK-LABEL: .visible .entry shared(
  // CHECK:       mov.u32 %r[[BASE:[0-9]+]], shared_tiles;
  // CHECK:       cp.async.cg.shared.global [%r{{.*}}], [%rd{{.*}}], 16;
  // CHECK:       cp.async.cg.shared.global [%r{{.*}}], [%rd{{.*}}], 16;
  // CHECK:       cp.async.cg.shared.global [%r{{.*}}], [%rd{{.*}}], 16;
  // CHECK:       cp.async.cg.shared.global [%r{{.*}}], [%rd{{.*}}], 16;
  // CHECK:       add.s32 %r{{[0-9]+}}, %r[[BASE]], 4096;
  // CHECK:       cp.async.cg.shared.global [%r{{.*}}], [%rd{{.*}}], 16;
  // CHECK:       cp.async.cg.shared.global [%r{{.*}}], [%rd{{.*}}], 16;
  // CHECK-NEXT:  cp.async.commit_group;
  // CHECK-NEXT:  cp.async.wait_group 0;
  // CHECK-NEXT:  bar.sync 0;
  // CHECK:       xor.b32 %r[[AA:[0-9]+]], %r{{[0-9]+}}, 32;
  // CHECK:       ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}}}, [%r[[AA]]{{.*}}];
  // CHECK:       xor.b32 %r[[BB:[0-9]+]], %r{{[0-9]+}}, 32;
  // CHECK:       ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r{{[0-9]+}}, %r{{[0-9]+}}}, [%r[[BB]]{{.*}}];
  // CHECK:       mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
  // CHECK:       ret;
  "gpu.func"() <{function_type = (memref<16x64xf16>, memref<8x64xf16>, memref<16x8xf32>) -> (), kernel}> ({
  ^bb0(%A: memref<16x64xf16>, %B: memref<8x64xf16>, %C: memref<16x8xf32>):
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c16 = arith.constant 16 : index
    %sa = memref.alloc() : memref<2x16x64xf16, #warp.swizzle<128>, 3>
    %sb = memref.alloc() : memref<2x8x64xf16, #warp.swizzle<128>, 3>
    warp.copy %A[%c0, %c0] to %sa[%c1] {async, in_bounds = [true, true]} : memref<16x64xf16> to memref<2x16x64xf16, #warp.swizzle<128>, 3>
    warp.copy %B[%c0, %c0] to %sb[%c1] {async, in_bounds = [true, true]} : memref<8x64xf16> to memref<2x8x64xf16, #warp.swizzle<128>, 3>
    warp.commit cp_async
    warp.wait cp_async 0
    "gpu.barrier"() : () -> ()
    %a = warp.load %sa[%c1, %c0, %c16] {matrices = "x4"} : memref<2x16x64xf16, #warp.swizzle<128>, 3> -> !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
    %b = warp.load %sb[%c1, %c0, %c16] {matrices = "x4", swapped} : memref<2x8x64xf16, #warp.swizzle<128>, 3> -> !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>
    %c = warp.constant 0.0 : f32 : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %d = warp.mma m16n8k16 %a, %b, %c : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %d, %C[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xf32>
    "gpu.return"() : () -> ()
  }) {sym_name = "shared", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

}) : () -> ()
}
