// RUN: warploom-opt %s -p warp-expand | filecheck %s
// RUN: warploom-opt %s -p warp-expand,convert-warp-to-ptx -t ptx | filecheck %s --check-prefix=PTX

builtin.module attributes {warp.target = #warp.target<sm_80>} {
"gpu.module"() <{sym_name = "kernels"}> ({
// Rows of 14 bytes, in 16 of the destination. The matrix ends with one element behind its last whole word.
// CHECK-LABEL: @odd
"gpu.func"() <{function_type = (memref<5x7xf16>, memref<8x8xf16>) -> (), kernel}> ({
^bb0(%A: memref<5x7xf16>, %W: memref<8x8xf16>):
  %zero = arith.constant 0 : index
  // CHECK:      %[[THREAD:\w+]] = gpu.thread_id x
  // CHECK:      %[[NUMBER:\w+]] = arith.addi %{{.*}}, %[[THREAD]]
  // CHECK:      %[[TAKEN:\w+]] = arith.cmpi slt, %[[NUMBER]], %{{.*}} : index
  // CHECK:      %[[EXCESS:\w+]] = arith.remui %{{.*}}, %{{.*}} : index
  // CHECK:      %[[ROWS:\w+]] = arith.cmpi slt, %[[NUMBER]], %{{.*}} : index
  // CHECK-NEXT: %[[HELD:\w+]] = arith.andi %[[TAKEN]], %[[ROWS]] : i1
  // CHECK:      %[[INSIDE:\w+]] = arith.andi %[[HELD]], %{{.*}} : i1
  // CHECK-NEXT: %[[W0:\w+]] = warp.load_bits %A[%[[NUMBER]], %[[EXCESS]]] if %[[INSIDE]] {strides = array<i64: 14, -1>} : memref<5x7xf16> -> i32
  // CHECK:      %[[W1:\w+]] = warp.load_bits %A{{.*}} {strides = array<i64: 14, -1>, offset = 4 : i64}
  // CHECK-COUNT-3: warp.load_bits %A
  // CHECK:      warp.funnel_shift %[[W0]], %[[W1]] by %[[BITS:\w+]]
  // CHECK-NEXT: warp.funnel_shift %[[W1]], %{{.*}} by %[[BITS]]
  // CHECK:      %[[LAST:\w+]] = arith.andi %{{.*}}, %{{.*}} : i32
  // CHECK-NEXT: warp.store_bits %{{.*}}, %{{.*}}, %{{.*}}, %[[LAST]] to %W[%[[NUMBER]]] if %[[TAKEN]] {strides = array<i64: 16>}
  // CHECK:      %[[END:\w+]] = arith.cmpi eq, %[[NUMBER]], %{{.*}} : index
  // CHECK-NEXT: %[[E:\w+]] = warp.load_bits %A[] if %[[END]] {strides = array<i64>, offset = 68 : i64} : memref<5x7xf16> -> i16
  // CHECK-NEXT: warp.store_bits %[[E]] to %W[] if %[[END]] {strides = array<i64>, offset = 76 : i64} : i16 to memref<8x8xf16>
  // CHECK-NOT:  warp.pack
  // PTX-LABEL: .entry odd
  // PTX-COUNT-5: ld.global.b32
  // PTX-COUNT-4: shf.r.wrap.b32
  // PTX:         st.global.v4.b32
  // What is stored only where it is read need not be zero elsewhere.
  // PTX-NOT:     mov.b16
  // PTX:         ld.global.b16 [[E:%h[0-9]+]], [%{{.*}}+68];
  // PTX-NEXT:    st.global.b16 [%{{.*}}+76], [[E]];
  warp.pack %A to %W share %zero {shares = 1 : i64} : memref<5x7xf16> to memref<8x8xf16>
  "gpu.return"() : () -> ()
}) {sym_name = "odd", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

// Rows of whole chunks are copied as they are.
// CHECK-LABEL: @whole
"gpu.func"() <{function_type = (memref<4x64xi8>, memref<4x64xi8>) -> (), kernel}> ({
^bb0(%A: memref<4x64xi8>, %W: memref<4x64xi8>):
  %zero = arith.constant 0 : index
  // CHECK-COUNT-4: warp.load_bits %A
  // CHECK-NOT:     warp.funnel_shift
  // CHECK:         warp.store_bits
  warp.pack %A to %W share %zero {shares = 1 : i64} : memref<4x64xi8> to memref<4x64xi8>
  "gpu.return"() : () -> ()
}) {sym_name = "whole", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

// A constant is stored, and a value that another thread may need is zero where nothing is read.
// CHECK-LABEL: @bits
"gpu.func"() <{function_type = (memref<4x64xi8>) -> (), kernel}> ({
^bb0(%A: memref<4x64xi8>):
  %lane = "gpu.lane_id"() : () -> index
  %four = arith.constant 4 : index
  %some = arith.cmpi slt, %lane, %four : index
  %seven = arith.constant 7 : i32
  // PTX-LABEL: .entry bits
  // PTX:       mov.b32 [[W:%r[0-9]+]], 0;
  // PTX-NEXT:  @%p{{.*}} ld.global.b32 [[W]], [%{{.*}}];
  // PTX:       mov.b32 [[SEVEN:%r[0-9]+]], 7;
  // PTX-NEXT:  st.global.v2.b32 [%{{.*}}], {[[W]], [[SEVEN]]};
  %w = warp.load_bits %A[%lane] if %some {strides = array<i64: 4>} : memref<4x64xi8> -> i32
  warp.store_bits %w, %seven to %A[%lane] {strides = array<i64: 8>} : i32, i32 to memref<4x64xi8>
  "gpu.return"() : () -> ()
}) {sym_name = "bits", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}
