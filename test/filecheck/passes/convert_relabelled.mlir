// RUN: warploom-opt %s -p convert-warp-to-ptx -t ptx | filecheck %s

!a = !warp.fragment<a, 16x32xi8, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>
!raw = !warp.fragment<b, 32x16xi8, [r2 r3 c1 c2 c3 | c0 r1 r0 r4]>
!b = !warp.fragment<b, 32x16xi8, [r2 r3 c1 c2 c3 | r0 r1 r4 c0]>
!acc = !warp.fragment<acc, 16x16xi32, [c2 c3 r0 r1 r2 | c1 r3 c0]>
!ordered = !warp.fragment<acc, 16x16xi32, [c2 c3 r0 r1 r2 | c0 c1 r3]>
!f64 = !warp.fragment<b, 16x8xf64, [r1 r2 c2 c0 c1 | r0 r3]>
!tf32 = !warp.fragment<b, 8x32xtf32, [r0 r1 c4 c2 c3 | r2 c0 c1]>

builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({

  // Two tiles of B: even columns first, then odd ones. C in the order of memory takes no instruction.
  // CHECK-LABEL: .visible .entry bytes(
  // CHECK:       ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r[[R0:[0-9]+]], %r[[R1:[0-9]+]], %r[[R2:[0-9]+]], %r[[R3:[0-9]+]]}
  // CHECK:       prmt.b32 %r[[B0:[0-9]+]], %r[[R0]], %r[[R1]], 0x6240;
  // CHECK-NEXT:  prmt.b32 %r[[B1:[0-9]+]], %r[[R2]], %r[[R3]], 0x6240;
  // CHECK-NEXT:  prmt.b32 %r[[B2:[0-9]+]], %r[[R0]], %r[[R1]], 0x7351;
  // CHECK-NEXT:  prmt.b32 %r[[B3:[0-9]+]], %r[[R2]], %r[[R3]], 0x7351;
  // CHECK:       mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {[[C0:%r[0-9]+]], [[C1:%r[0-9]+]], {{.*}}}, {{.*}}, {%r[[B0]], %r[[B1]]}
  // CHECK-NEXT:  mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {[[C4:%r[0-9]+]], [[C5:%r[0-9]+]], {{.*}}}, {{.*}}, {%r[[B2]], %r[[B3]]}
  // CHECK-NOT:   mov
  // CHECK:       st.global.v4.b32 {{.*}}, {[[C0]], [[C4]], [[C1]], [[C5]]};
  "gpu.func"() <{function_type = (memref<32x16xi8>, memref<16x16xi32>) -> (), kernel}> ({
  ^bb0(%B: memref<32x16xi8>, %C: memref<16x16xi32>):
    %c0 = arith.constant 0 : index
    %s = memref.alloc() : memref<32x16xi8, #warp.swizzle<16, skip 1>, 3>
    warp.copy %B[%c0, %c0] to %s[] : memref<32x16xi8> to memref<32x16xi8, #warp.swizzle<16, skip 1>, 3>
    %a = warp.constant 1 : i8 : !a
    %c = warp.constant 0 : i32 : !acc
    %r = warp.load %s[%c0, %c0] {matrices = "x4.trans.b16"} : memref<32x16xi8, #warp.swizzle<16, skip 1>, 3> -> !raw
    %b = warp.convert_layout %r : !raw to !b
    %d = warp.mma m16n8k32 %a, %b, %c : !a, !b, !acc
    %e = warp.convert_layout %d : !acc to !ordered
    warp.store %e, %C[%c0, %c0] {in_bounds = [true, true]} : !ordered, memref<16x16xi32>
    "gpu.return"() : () -> ()
  }) {sym_name = "bytes", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // CHECK-LABEL: .visible .entry vectors(
  // CHECK:       ld.shared.v2.f64 {%d0, %d1}
  // CHECK:       ld.shared.v2.f64 {%d2, %d3}
  // CHECK-NOT:   ld.shared.v2
  // CHECK:       ld.shared.v4.b32 {%r[[W0:[0-9]+]], %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}}}
  // CHECK:       ld.shared.v4.b32 {%r[[W4:[0-9]+]], %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}}}
  // CHECK:       mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {{.*}}, {%r[[W0]], %r[[W4]]}
  "gpu.func"() <{function_type = (memref<16x16xf64>) -> (), kernel}> ({
  ^bb0(%D: memref<16x16xf64>):
    %c0 = arith.constant 0 : index
    %s = memref.alloc() : memref<16x16xf64, #warp.swizzle<128>, 3>
    %x = warp.load %s[%c0, %c0] {swapped} : memref<16x16xf64, #warp.swizzle<128>, 3> -> !f64
    %t = memref.alloc() : memref<8x32xtf32, #warp.swizzle<128>, 3>
    %y = warp.load %t[%c0, %c0] : memref<8x32xtf32, #warp.swizzle<128>, 3> -> !tf32
    %a = warp.constant 1.0 : tf32 : !warp.fragment<a, 16x8xtf32, [c0 c1 r0 r1 r2 | r3 c2]>
    %c = warp.constant 1.0 : f32 : !warp.fragment<acc, 16x32xf32, [c2 c3 r0 r1 r2 | c4 r3 c0 c1]>
    %d = warp.mma m16n8k8 %a, %y, %c : !warp.fragment<a, 16x8xtf32, [c0 c1 r0 r1 r2 | r3 c2]>, !tf32, !warp.fragment<acc, 16x32xf32, [c2 c3 r0 r1 r2 | c4 r3 c0 c1]>
    "gpu.return"() : () -> ()
  }) {sym_name = "vectors", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}
