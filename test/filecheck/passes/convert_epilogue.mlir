// RUN: warploom-opt %s -p convert-warp-to-ptx -t ptx | filecheck %s

builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({

  // A lane holds two columns of rows r and r + 8: one load of two elements; the number is a parameter. Two results are
  // rounded and packed by one instruction.
  // CHECK-LABEL: .visible .entry bias(
  // CHECK:         .param .u64 .ptr .global .align 16 bias_V,
  // CHECK-NEXT:    .param .f32 bias_s
  // CHECK:         ld.global.v2.f32 {%[[X0:f[0-9]+]], %[[X1:f[0-9]+]]}, [%rd{{[0-9]+}}];
  // CHECK-NEXT:    ld.global.v2.f32 {%[[X2:f[0-9]+]], %[[X3:f[0-9]+]]}, [%rd{{[0-9]+}}+512];
  // CHECK:         ld.global.v2.f32 {%[[B0:f[0-9]+]], %[[B1:f[0-9]+]]}, [%rd{{[0-9]+}}];
  // CHECK-NEXT:    fma.rn.f32 %[[Y0:f[0-9]+]], %[[X0]], %[[S:f[0-9]+]], %[[B0]];
  // CHECK-NEXT:    fma.rn.f32 %[[Y1:f[0-9]+]], %[[X1]], %[[S]], %[[B1]];
  // CHECK-NEXT:    cvt.rn.bf16x2.f32 %[[P0:r[0-9]+]], %[[Y1]], %[[Y0]];
  // CHECK-NEXT:    fma.rn.f32 %[[Y2:f[0-9]+]], %[[X2]], %[[S]], %[[B0]];
  // CHECK-NEXT:    fma.rn.f32 %[[Y3:f[0-9]+]], %[[X3]], %[[S]], %[[B1]];
  // CHECK-NEXT:    cvt.rn.bf16x2.f32 %[[P1:r[0-9]+]], %[[Y3]], %[[Y2]];
  // CHECK:         st.global.b32 [%rd{{[0-9]+}}], %[[P0]];
  // CHECK-NEXT:    st.global.b32 [%rd{{[0-9]+}}+256], %[[P1]];
  "gpu.func"() <{function_type = (memref<16x16xf32>, memref<16x16xbf16>, memref<16xf32>, f32) -> (), kernel}> ({
  ^bb0(%X: memref<16x16xf32>, %Y: memref<16x16xbf16>, %V: memref<16xf32>, %s: f32):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] {in_bounds = [true, true]} : memref<16x16xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %b = warp.load %V[%c0] {in_bounds = [true, true], along = "columns"} : memref<16xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %y = warp.map %x, %b, %s : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, f32 -> !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]> (%e: f32, %f: f32, %g: f32) {
      %0 = math.fma %e, %g, %f : f32
      %1 = arith.truncf %0 : f32 to bf16
      %unused = math.tanh %0 : f32
      warp.yield %1 : bf16
    }
    warp.store %y, %Y[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x16xbf16>
    "gpu.return"() : () -> ()
  }) {sym_name = "bias", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // Along the rows there are two elements a lane, each used twice; beyond the end of the vector they are zero.
  // CHECK-LABEL: .visible .entry rows(
  // CHECK:         mov.f32 %[[R0:f[0-9]+]], 0f00000000;
  // CHECK-NEXT:    @%p{{[0-9]+}} ld.global.f32 %[[R0]], [%rd{{[0-9]+}}];
  // CHECK:         mov.f32 %[[R1:f[0-9]+]], 0f00000000;
  // CHECK-NEXT:    @%p{{[0-9]+}} ld.global.f32 %[[R1]], [%rd{{[0-9]+}}+32];
  // CHECK-NEXT:    max.NaN.f32 %f{{[0-9]+}}, %[[R0]], 0f00000000;
  // CHECK-NEXT:    mov.f32
  // CHECK-NEXT:    mov.f32
  // CHECK-NEXT:    max.NaN.f32 %f{{[0-9]+}}, %[[R1]], 0f00000000;
  "gpu.func"() <{function_type = (memref<16x8xf32>, memref<10xf32>) -> (), kernel}> ({
  ^bb0(%Y: memref<16x8xf32>, %V: memref<10xf32>):
    %c0 = arith.constant 0 : index
    %b = warp.load %V[%c0] {along = "rows"} : memref<10xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %y = warp.map %b : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> (%e: f32) {
      %z = arith.constant 0.0 : f32
      %0 = arith.maximumf %e, %z : f32
      warp.yield %0 : f32
    }
    warp.store %y, %Y[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xf32>
    "gpu.return"() : () -> ()
  }) {sym_name = "rows", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // Two elements of a row are the same half of the vector, and two rows the same pair of bytes: each is loaded once.
  // CHECK-LABEL: .visible .entry halves(
  // CHECK-NOT:     mul.wide.s32 %rd{{[0-9]+}}, %r{{[0-9]+}}, 0;
  // CHECK:         ld.global.b16 %[[H0:h[0-9]+]], [%[[V:rd[0-9]+]]];
  // CHECK-NEXT:    mov.b32 %r{{[0-9]+}}, {%[[H0]], %[[H0]]};
  // CHECK-NEXT:    ld.global.b16 %[[H1:h[0-9]+]], [%[[V]]+16];
  // CHECK-NEXT:    mov.b32 %r{{[0-9]+}}, {%[[H1]], %[[H1]]};
  // CHECK:         ld.global.b16 %[[B:h[0-9]+]], [%rd{{[0-9]+}}];
  // CHECK-NEXT:    mov.b32 %r{{[0-9]+}}, {%[[B]], %[[B]]};
  // CHECK-NOT:     ld.global
  "gpu.func"() <{function_type = (memref<16x8xf16>, memref<16xf16>, memref<16x8xi8>, memref<8xi8>) -> (), kernel}> ({
  ^bb0(%Y: memref<16x8xf16>, %V: memref<16xf16>, %Z: memref<16x8xi8>, %W: memref<8xi8>):
    %c0 = arith.constant 0 : index
    %b = warp.load %V[%c0] {in_bounds = [true, true], along = "rows"} : memref<16xf16> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
    %w = warp.load %W[%c0] {in_bounds = [true, true], along = "columns"} : memref<8xi8> -> !warp.fragment<acc, 16x8xi8, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %b, %Y[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xf16>
    warp.store %w, %Z[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x8xi8, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xi8>
    "gpu.return"() : () -> ()
  }) {sym_name = "halves", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // Functions may be approximated where the operation says so.
  // CHECK-LABEL: .visible .entry fast(
  // CHECK:         tanh.approx.f32
  // CHECK-NEXT:    mul.rn.f32
  // CHECK-NEXT:    ex2.approx.ftz.f32
  // CHECK-NEXT:    lg2.approx.ftz.f32
  // CHECK-NEXT:    mul.rn.f32
  // CHECK-NEXT:    sqrt.approx.ftz.f32
  // CHECK-NEXT:    rsqrt.approx.ftz.f32
  // CHECK-NEXT:    div.approx.ftz.f32
  "gpu.func"() <{function_type = (memref<16x8xf32>) -> (), kernel}> ({
  ^bb0(%Y: memref<16x8xf32>):
    %c0 = arith.constant 0 : index
    %x = warp.load %Y[%c0, %c0] {in_bounds = [true, true]} : memref<16x8xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %y = warp.map %x : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> (%e: f32) {
      %0 = math.tanh %e fastmath<afn> : f32
      %1 = math.exp %0 fastmath<fast> : f32
      %2 = math.log %1 fastmath<afn> : f32
      %3 = math.sqrt %2 fastmath<afn> : f32
      %4 = math.rsqrt %3 fastmath<afn> : f32
      %5 = arith.divf %4, %e fastmath<afn> : f32
      warp.yield %5 : f32
    }
    warp.store %y, %Y[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xf32>
    "gpu.return"() : () -> ()
  }) {sym_name = "fast", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // The first register of powers is by exponentials, the second by the polynomial, whose numbers are f16 before anything
  // else; 2^n is a shift of the last bits of 1024 + n.
  // CHECK-LABEL: .visible .entry powers(
  // CHECK:         add.rn.f32 %[[M:f[0-9]+]], %[[B:f[0-9]+]], 0f41300000;
  // CHECK:         fma.rn.f32 %[[Z0:f[0-9]+]], %f4, 0f3E000000, %[[M]];
  // CHECK-NEXT:    fma.rn.f32 %[[Z1:f[0-9]+]], %f5, 0f3E000000, %[[M]];
  // CHECK-NEXT:    cvt.rn.relu.f16x2.f32 %[[Z:r[0-9]+]], %[[Z1]], %[[Z0]];
  // CHECK:         fma.rn.f32 %[[E0:f[0-9]+]], %f0, 0f3E000000, %[[B]];
  // CHECK-NEXT:    fma.rn.f32 %[[E1:f[0-9]+]], %f1, 0f3E000000, %[[B]];
  // CHECK-NEXT:    ex2.approx.ftz.f32 %[[P0:f[0-9]+]], %[[E0]];
  // CHECK-NEXT:    ex2.approx.ftz.f32 %[[P1:f[0-9]+]], %[[E1]];
  // CHECK-NEXT:    cvt.rn.satfinite.e4m3x2.f32 %h0, %[[P1]], %[[P0]];
  // CHECK:         add.rn.f16x2 %[[T:r[0-9]+]], %[[Z]], %{{r[0-9]+}};
  // CHECK-NEXT:    add.rn.f16x2 %[[N:r[0-9]+]], %[[T]], %{{r[0-9]+}};
  // CHECK-NEXT:    sub.rn.f16x2 %[[F:r[0-9]+]], %[[Z]], %[[N]];
  // CHECK-NEXT:    and.b32 %[[BITS:r[0-9]+]], %[[T]], 0x001F001F;
  // CHECK-NEXT:    shl.b32 %[[SCALE:r[0-9]+]], %[[BITS]], 10;
  // CHECK-NEXT:    fma.rn.f16x2 %[[G:r[0-9]+]], %[[F]],
  // CHECK-NEXT:    fma.rn.f16x2 %[[H:r[0-9]+]], %[[F]], %[[G]],
  // CHECK-NEXT:    mul.rn.f16x2 %[[P:r[0-9]+]], %[[H]], %[[SCALE]];
  // CHECK-NEXT:    cvt.rn.satfinite.e4m3x2.f16x2 %h2, %[[P]];
  "gpu.func"() <{function_type = (memref<16x32xf32>, memref<16x1xf32>) -> (), kernel}> ({
  ^bb0(%X: memref<16x32xf32>, %M: memref<16x1xf32>):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] {in_bounds = [true, true]} : memref<16x32xf32> -> !warp.fragment<acc, 16x32xf32, [c1 c2 r0 r1 r2 | c0 r3 c3 c4]>
    %m = warp.reduce max %x : !warp.fragment<acc, 16x32xf32, [c1 c2 r0 r1 r2 | c0 r3 c3 c4]> to !warp.fragment<acc, 16x1xf32, [x0 x1 r0 r1 r2 | r3]>
    %p = warp.convert %x powers %m {factor = 0.125 : f32} : !warp.fragment<acc, 16x32xf32, [c1 c2 r0 r1 r2 | c0 r3 c3 c4]>, !warp.fragment<acc, 16x1xf32, [x0 x1 r0 r1 r2 | r3]> to !warp.fragment<acc, 16x32xf8E4M3FN, [c1 c2 r0 r1 r2 | c0 r3 c3 c4]>
    %s = memref.alloc() : memref<1x128xf32, 3>
    warp.store %p, %s[%c0, %c0] {registers = "vectors"} : !warp.fragment<acc, 16x32xf8E4M3FN, [c1 c2 r0 r1 r2 | c0 r3 c3 c4]>, memref<1x128xf32, 3>
    "gpu.return"() : () -> ()
  }) {sym_name = "powers", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

}) : () -> ()
}
