// RUN: warploom-opt %s -p convert-warp-to-ptx -t ptx | filecheck %s

builtin.module attributes {warp.target = #warp.target<sm_80>} {
"gpu.module"() <{sym_name = "kernels"}> ({
// Rows of 14 bytes, in 16 of the destination. The matrix ends with one element behind its last whole word.
"gpu.func"() <{function_type = (memref<5x7xf16>, memref<8x8xf16>) -> (), kernel}> ({
^bb0(%A: memref<5x7xf16>, %W: memref<8x8xf16>):
  %zero = arith.constant 0 : index
  // CHECK-LABEL: .entry odd
  // CHECK-COUNT-5: ld.global.b32
  // CHECK-COUNT-4: shf.r.wrap.b32
  // CHECK:         st.global.v4.b32
  // What is stored only where it is read need not be zero elsewhere.
  // CHECK-NOT:     mov.b16
  // CHECK:         ld.global.b16 [[E:%h[0-9]+]], [%{{.*}}+68];
  // CHECK-NEXT:    st.global.b16 [%{{.*}}+76], [[E]];
  warp.pack %A to %W share %zero {shares = 1 : i64} : memref<5x7xf16> to memref<8x8xf16>
  "gpu.return"() : () -> ()
}) {sym_name = "odd", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

// Rows of whole chunks are copied as they are.
"gpu.func"() <{function_type = (memref<4x64xi8>, memref<4x64xi8>) -> (), kernel}> ({
^bb0(%A: memref<4x64xi8>, %W: memref<4x64xi8>):
  // CHECK-LABEL: .entry whole
  // CHECK-COUNT-4: ld.global.b32
  // CHECK-NOT:     shf.r
  // CHECK:         st.global.v4.b32
  %zero = arith.constant 0 : index
  warp.pack %A to %W share %zero {shares = 1 : i64} : memref<4x64xi8> to memref<4x64xi8>
  "gpu.return"() : () -> ()
}) {sym_name = "whole", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}
