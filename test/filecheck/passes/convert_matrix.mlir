// RUN: warploom-opt %s --split-input-file -p convert-warp-to-ptx -t ptx | filecheck %s

// Words lie as registers do: a lane's four are one access.
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  // CHECK: .version 8.5
  // CHECK-LABEL: .visible .entry sparse(
  // CHECK: ld.global.v4.b32 {%r[[A0:[0-9]+]], %r[[A1:[0-9]+]], %r[[A2:[0-9]+]], %r[[A3:[0-9]+]]}, [%rd{{[0-9]+}}];
  // CHECK: ld.global.v4.b32 {%r[[B0:[0-9]+]], %r[[B1:[0-9]+]], %r[[B2:[0-9]+]], %r[[B3:[0-9]+]]}, [%rd{{[0-9]+}}];
  // CHECK: ld.global.b32 %r[[E:[0-9]+]], [%rd{{[0-9]+}}];
  // CHECK: mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r[[A0]], %r[[A1]], %r[[A2]], %r[[A3]]}, {%r[[B0]], %r[[B1]], %r[[B2]], %r[[B3]]}, {%f0, %f1, %f2, %f3}, %r[[E]], 1;
  "gpu.func"() <{function_type = (memref<1x128xi32>, memref<1x128xi32>, memref<4x32xi32>, memref<16x8xf32>) -> (), kernel}> ({
  ^bb0(%A: memref<1x128xi32>, %B: memref<1x128xi32>, %E: memref<4x32xi32>, %C: memref<16x8xf32>):
    %c0 = arith.constant 0 : index
    %a = warp.load %A[%c0, %c0] {registers = "vectors"} : memref<1x128xi32> -> !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
    %b = warp.load %B[%c0, %c0] {registers = "vectors"} : memref<1x128xi32> -> !warp.fragment<b, 32x8xf16, [r1 r2 c0 c1 c2 | r0 r3 r4]>
    %e = warp.load %E[%c0, %c0] {registers = "vectors"} : memref<4x32xi32> -> !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>
    %c = warp.constant 0.0 : f32 : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %d = warp.mma m16n8k32 %a, %b, %c sparse %e {ordered, selector = 1 : i64} : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 32x8xf16, [r1 r2 c0 c1 c2 | r0 r3 r4]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> sparse !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>
    warp.store %d, %C[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xf32>
    "gpu.return"() : () -> ()
  }) {sym_name = "sparse", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// Two instructions: each row of tiles of A has scales of its own, B's are shared.
builtin.module attributes {warp.target = #warp.target<sm_120a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  // CHECK: .version 8.7
  // CHECK-LABEL: .visible .entry scaled(
  // CHECK: ld.global.v2.b32 {%r[[S0:[0-9]+]], %r[[S1:[0-9]+]]}, [%rd{{[0-9]+}}];
  // CHECK: ld.global.v2.b32 {%r[[S0:[0-9]+]], %r[[S1:[0-9]+]]}, [%rd{{[0-9]+}}];
  // CHECK: ld.global.b32 %r[[T:[0-9]+]], [%rd{{[0-9]+}}];
  // CHECK: mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0 {%f0, %f1, %f2, %f3}, {{.*}}, {%f0, %f1, %f2, %f3}, %r[[S0]], {0, 1}, %r[[T]], {2, 3};
  // CHECK-NEXT: mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0 {%f4, %f5, %f6, %f7}, {{.*}}, {%f4, %f5, %f6, %f7}, %r[[S1]], {0, 1}, %r[[T]], {2, 3};
  "gpu.func"() <{function_type = (memref<1x256xi32>, memref<1x64xi32>, memref<1x64xi32>, memref<1x32xi32>, memref<32x8xf32>) -> (), kernel}> ({
  ^bb0(%A: memref<1x256xi32>, %B: memref<1x64xi32>, %SA: memref<1x64xi32>, %SB: memref<1x32xi32>, %C: memref<32x8xf32>):
    %c0 = arith.constant 0 : index
    %a = warp.load %A[%c0, %c0] {registers = "vectors"} : memref<1x256xi32> -> !warp.fragment<a, 32x64xf4E2M1FN, [c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5]>
    %b = warp.load %B[%c0, %c0] {registers = "vectors"} : memref<1x64xi32> -> !warp.fragment<b, 64x8xf4E2M1FN, [r3 r4 c0 c1 c2 | r0 r1 r2 r5]>
    %sa = warp.load %SA[%c0, %c0] {registers = "vectors"} : memref<1x64xi32> -> !warp.fragment<scale, 32x2xf8E8M0FNU, [r3 t0 r0 r1 r2 | c0 b0]>
    %sb = warp.load %SB[%c0, %c0] {registers = "vectors"} : memref<1x32xi32> -> !warp.fragment<scale, 2x8xf8E8M0FNU, [t0 t1 c0 c1 c2 | r0 b0]>
    %c = warp.constant 0.0 : f32 : !warp.fragment<acc, 32x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %d = warp.mma m16n8k64 %a, %b, %c scaled %sa, %sb {kind = "mxf4", selectors = array<i64: 0, 1, 2, 3>} : !warp.fragment<a, 32x64xf4E2M1FN, [c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5]>, !warp.fragment<b, 64x8xf4E2M1FN, [r3 r4 c0 c1 c2 | r0 r1 r2 r5]>, !warp.fragment<acc, 32x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> scaled !warp.fragment<scale, 32x2xf8E8M0FNU, [r3 t0 r0 r1 r2 | c0 b0]>, !warp.fragment<scale, 2x8xf8E8M0FNU, [t0 t1 c0 c1 c2 | r0 b0]>
    warp.store %d, %C[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 32x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<32x8xf32>
    "gpu.return"() : () -> ()
  }) {sym_name = "scaled", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// Double precision lives in 64-bit registers.
builtin.module attributes {warp.target = #warp.target<sm_80>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  // CHECK-LABEL: .visible .entry double(
  // CHECK: .reg .f64 %d<4>;
  // CHECK: ld.global.f64 %d0, [%rd{{[0-9]+}}];
  // CHECK: ld.global.f64 %d1, [%rd{{[0-9]+}}];
  // CHECK: mov.f64 %d2, 0d3FF8000000000000;
  // CHECK: mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64.rz {%d2, %d3}, {%d0}, {%d1}, {%d2, %d3};
  // CHECK: st.global.v2.f64 [%rd{{[0-9]+}}], {%d2, %d3};
  "gpu.func"() <{function_type = (memref<8x4xf64>, memref<4x8xf64>, memref<8x8xf64>) -> (), kernel}> ({
  ^bb0(%A: memref<8x4xf64>, %B: memref<4x8xf64>, %C: memref<8x8xf64>):
    %c0 = arith.constant 0 : index
    %a = warp.load %A[%c0, %c0] {in_bounds = [true, true]} : memref<8x4xf64> -> !warp.fragment<a, 8x4xf64, [c0 c1 r0 r1 r2 |]>
    %b = warp.load %B[%c0, %c0] {in_bounds = [true, true]} : memref<4x8xf64> -> !warp.fragment<b, 4x8xf64, [r0 r1 c0 c1 c2 |]>
    %c = warp.constant 1.5 : f64 : !warp.fragment<acc, 8x8xf64, [c1 c2 r0 r1 r2 | c0]>
    %d = warp.mma m8n8k4 %a, %b, %c {rounding = "rz"} : !warp.fragment<a, 8x4xf64, [c0 c1 r0 r1 r2 |]>, !warp.fragment<b, 4x8xf64, [r0 r1 c0 c1 c2 |]>, !warp.fragment<acc, 8x8xf64, [c1 c2 r0 r1 r2 | c0]>
    warp.store %d, %C[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 8x8xf64, [c1 c2 r0 r1 r2 | c0]>, memref<8x8xf64>
    "gpu.return"() : () -> ()
  }) {sym_name = "double", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// D of another type than C has registers of its own.
builtin.module attributes {warp.target = #warp.target<sm_75>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  // CHECK-LABEL: .visible .entry four_products(
  // CHECK: mov.b32 %r[[C:[0-9]+]], 0x3C003C00;
  // CHECK: mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f16 {%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, {%r{{[0-9]+}}, %r{{[0-9]+}}}, {%r{{[0-9]+}}, %r{{[0-9]+}}}, {%r[[C]], 
  // CHECK: st.global.v4.f32 [%rd[[D:[0-9]+]]], {%f0, %f1, %f2, %f3};
  // CHECK-NEXT: st.global.v4.f32 [%rd[[D]]+512], {%f4, %f5, %f6, %f7};
  "gpu.func"() <{function_type = (memref<1x64xi32>, memref<1x64xi32>, memref<1x256xi32>) -> (), kernel}> ({
  ^bb0(%A: memref<1x64xi32>, %B: memref<1x64xi32>, %D: memref<1x256xi32>):
    %c0 = arith.constant 0 : index
    %a = warp.load %A[%c0, %c0] {registers = "vectors"} : memref<1x64xi32> -> !warp.fragment<a, 8x4xf16, [r0 r1 q0 q1 r2 | c0 c1]>
    %b = warp.load %B[%c0, %c0] {registers = "vectors"} : memref<1x64xi32> -> !warp.fragment<b, 4x8xf16, [c0 c1 q0 q1 c2 | r0 r1]>
    %c = warp.constant 1.0 : f16 : !warp.fragment<acc, 8x8xf16, [r0 r1 q0 q1 r2 | c0 c1 c2]>
    %d = warp.mma m8n8k4 %a, %b, %c : !warp.fragment<a, 8x4xf16, [r0 r1 q0 q1 r2 | c0 c1]>, !warp.fragment<b, 4x8xf16, [c0 c1 q0 q1 c2 | r0 r1]>, !warp.fragment<acc, 8x8xf16, [r0 r1 q0 q1 r2 | c0 c1 c2]> -> !warp.fragment<acc, 8x8xf32, [r0 c1 q0 q1 r2 | c0 r1 c2]>
    warp.store %d, %D[%c0, %c0] {registers = "vectors"} : !warp.fragment<acc, 8x8xf32, [r0 c1 q0 q1 r2 | c0 r1 c2]>, memref<1x256xi32>
    "gpu.return"() : () -> ()
  }) {sym_name = "four_products", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// Bytes: 16 of them are a row of ldmatrix; lane 8j + i gives the address of row i of matrix j.
builtin.module attributes {warp.target = #warp.target<sm_80>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  // CHECK-LABEL: .visible .entry integers(
  // CHECK: ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r[[A0:[0-9]+]], %r[[A1:[0-9]+]], %r[[A2:[0-9]+]], %r[[A3:[0-9]+]]}, [%r{{[0-9]+}}];
  // CHECK: ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r[[B0:[0-9]+]], %r[[B1:[0-9]+]]}, [%r{{[0-9]+}}];
  // CHECK: ld.global.v2.b32 {%r[[C0:[0-9]+]], %r[[C1:[0-9]+]]},
  // CHECK: mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32 {%r[[C0]], {{.*}}}, {%r[[A0]], %r[[A1]], %r[[A2]], %r[[A3]]}, {%r[[B0]], %r[[B1]]}, {%r[[C0]],
  // CHECK: st.global.v2.b32
  "gpu.func"() <{function_type = (memref<16x8xi32>) -> (), kernel}> ({
  ^bb0(%C: memref<16x8xi32>):
    %c0 = arith.constant 0 : index
    %s = memref.alloc() : memref<32x64xi8, #warp.swizzle<64>, 3>
    %t = memref.alloc() : memref<32x64xui8, #warp.swizzle<64>, 3>
    %a = warp.load %s[%c0, %c0] {matrices = "x4"} : memref<32x64xi8, #warp.swizzle<64>, 3> -> !warp.fragment<a, 16x32xi8, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>
    %b = warp.load %t[%c0, %c0] {matrices = "x2", swapped} : memref<32x64xui8, #warp.swizzle<64>, 3> -> !warp.fragment<b, 32x8xui8, [r2 r3 c0 c1 c2 | r0 r1 r4]>
    %c = warp.load %C[%c0, %c0] {in_bounds = [true, true]} : memref<16x8xi32> -> !warp.fragment<acc, 16x8xi32, [c1 c2 r0 r1 r2 | c0 r3]>
    %d = warp.mma m16n8k32 %a, %b, %c {satfinite} : !warp.fragment<a, 16x32xi8, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>, !warp.fragment<b, 32x8xui8, [r2 r3 c0 c1 c2 | r0 r1 r4]>, !warp.fragment<acc, 16x8xi32, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %d, %C[%c0, %c0] {in_bounds = [true, true]} : !warp.fragment<acc, 16x8xi32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xi32>
    "gpu.return"() : () -> ()
  }) {sym_name = "integers", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// 4-bit elements arrive in the low bits of their bytes, products want them in the middle. A 16x16 matrix is two
// registers of different tiles.
builtin.module attributes {warp.target = #warp.target<sm_120a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  // CHECK-LABEL: .visible .entry packed(
  // CHECK: ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.b4x16_p64 {%r[[P0:[0-9]+]], {{.*}}},
  // CHECK-NEXT: shl.b32 %r[[P0]], %r[[P0]], 2;
  // CHECK: ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8 {%r[[B0:[0-9]+]], %r[[B2:[0-9]+]], %r[[B1:[0-9]+]], %r[[B3:[0-9]+]]},
  // CHECK: st.global.v4.b32 [%rd{{[0-9]+}}], {%r[[B0]], %r[[B1]], %r[[B2]], %r[[B3]]};
  // CHECK: stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%r{{[0-9]+}}], {%r{{[0-9]+}}};
  "gpu.func"() <{function_type = (memref<1x128xi32>, memref<1x32xi32>) -> (), kernel}> ({
  ^bb0(%D: memref<1x128xi32>, %O: memref<1x32xi32>):
    %c0 = arith.constant 0 : index
    %s = memref.alloc() : memref<32x64xi8, #warp.swizzle<64>, 3>
    %a = warp.load %s[%c0, %c0] {matrices = "x4.b4x16_p64"} : memref<32x64xi8, #warp.swizzle<64>, 3> -> !warp.fragment<a, 16x32xf4E2M1FN, [c2 c3 r0 r1 r2 | c0 c1 r3 c4], bytes>
    warp.store %a, %D[%c0, %c0] {registers = "vectors"} : !warp.fragment<a, 16x32xf4E2M1FN, [c2 c3 r0 r1 r2 | c0 c1 r3 c4], bytes>, memref<1x128xi32>
    %b = warp.load %s[%c0, %c0] {matrices = "x2.trans"} : memref<32x64xi8, #warp.swizzle<64>, 3> -> !warp.fragment<b, 32x16xi8, [r2 r3 c0 c1 c2 | r0 r1 r4]>
    warp.store %b, %D[%c0, %c0] {registers = "vectors"} : !warp.fragment<b, 32x16xi8, [r2 r3 c0 c1 c2 | r0 r1 r4]>, memref<1x128xi32>
    %o = warp.load %O[%c0, %c0] {registers = "vectors"} : memref<1x32xi32> -> !warp.fragment<acc, 16x8xi8, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %o, %s[%c0, %c0] {matrices = "x1.trans", swapped} : !warp.fragment<acc, 16x8xi8, [c1 c2 r0 r1 r2 | c0 r3]>, memref<32x64xi8, #warp.swizzle<64>, 3>
    "gpu.return"() : () -> ()
  }) {sym_name = "packed", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// stmatrix, and blocks transposed among the lanes.
builtin.module attributes {warp.target = #warp.target<sm_90>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  // CHECK-LABEL: .visible .entry stored(
  // CHECK: ld.global.v4.b32 {%r[[D0:[0-9]+]], %r[[D1:[0-9]+]], %r[[D2:[0-9]+]], %r[[D3:[0-9]+]]}
  // CHECK: stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r{{[0-9]+}}], {%r[[D0]], %r[[D1]], %r[[D2]], %r[[D3]]};
  // CHECK: movmatrix.sync.aligned.m8n8.trans.b16 %r[[T0:[0-9]+]], %r[[D0]];
  // CHECK-NEXT: movmatrix.sync.aligned.m8n8.trans.b16 %r[[T1:[0-9]+]], %r[[D1]];
  "gpu.func"() <{function_type = (memref<1x128xi32>) -> (), kernel}> ({
  ^bb0(%D: memref<1x128xi32>):
    %c0 = arith.constant 0 : index
    %s = memref.alloc() : memref<16x64xf16, #warp.swizzle<128>, 3>
    %d = warp.load %D[%c0, %c0] {registers = "vectors"} : memref<1x128xi32> -> !warp.fragment<acc, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %d, %s[%c0, %c0] {matrices = "x4"} : !warp.fragment<acc, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x64xf16, #warp.swizzle<128>, 3>
    %t = warp.convert_layout %d : !warp.fragment<acc, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<b, 16x16xf16, [r1 r2 c0 c1 c2 | r0 r3]>
    warp.store %t, %D[%c0, %c0] {registers = "vectors"} : !warp.fragment<b, 16x16xf16, [r1 r2 c0 c1 c2 | r0 r3]>, memref<1x128xi32>
    "gpu.return"() : () -> ()
  }) {sym_name = "stored", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}
