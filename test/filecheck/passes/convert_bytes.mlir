// RUN: warploom-opt %s -p convert-warp-to-ptx -t ptx | filecheck %s

// Each of four lanes with the same integers converts a byte of every word: those of two words come to both halves of a
// register, of which the upper one has the second integer 4 bits further up.

builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({

  // CHECK-LABEL: .visible .entry halves(
  // CHECK:       ld.shared.v4.b32 {[[A:%r[0-9]+]], [[B:%r[0-9]+]], %r{{[0-9]+}}, %r{{[0-9]+}}}, [%r{{[0-9]+}}];
  // CHECK:       and.b32 [[LANE:%r[0-9]+]], %r{{[0-9]+}}, 3;
  // CHECK:       mad.lo.u32 [[BYTES:%r[0-9]+]], [[LANE]], 4369, 16448;
  // CHECK:       prmt.b32 [[BOTH:%r[0-9]+]], [[A]], [[B]], [[BYTES]];
  // CHECK:       mov.b32 [[MAGIC:%r[0-9]+]], 0x64806408;
  // CHECK-NEXT:  lop3.b32 [[FLOATS:%r[0-9]+]], [[BOTH]], 0x00F0000F, [[MAGIC]], 0x6A;
  // CHECK-NEXT:  mov.b32 [[FACTORS:%r[0-9]+]], 0x2C003C00;
  // CHECK-NEXT:  mov.b32 [[LESS:%r[0-9]+]], 0xD480E408;
  // CHECK-NEXT:  fma.rn.f16x2 %r{{[0-9]+}}, [[FLOATS]], [[FACTORS]], [[LESS]];
  // CHECK:       shr.b32 %r{{[0-9]+}}, [[BOTH]], 8;
  "gpu.func"() <{function_type = (memref<16x32xf16>) -> (), kernel}> ({
  ^bb0(%Y: memref<16x32xf16>):
    %c0 = arith.constant 0 : index
    %T = memref.alloc() : memref<16x32xi4, #warp.swizzle<16>, 3>
    %x = warp.load %T[%c0, %c0] : memref<16x32xi4, #warp.swizzle<16>, 3> -> !warp.fragment<a, 16x32xi4, [x0 x1 r0 r1 r2 | c0 c1 c2 c3 c4 r3]>
    %y = warp.convert %x {stored = "s4"} : !warp.fragment<a, 16x32xi4, [x0 x1 r0 r1 r2 | c0 c1 c2 c3 c4 r3]> to !warp.fragment<a, 16x32xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
    warp.store %y, %Y[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<a, 16x32xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, memref<16x32xf16>
    "gpu.return"() : () -> ()
  }) {sym_name = "halves", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}
