// RUN: warploom-opt %s --split-input-file --verify-diagnostics -p convert-warp-to-ptx | filecheck %s

builtin.module attributes {warp.target = #warp.target<sm_90>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = () -> (), kernel}> ({
^bb0():
  %i = arith.constant 0 : index
  %four = arith.constant 4 : index
  // CHECK: sm_90 has no wgmma_fence; sm_90a has it
  warp.wgmma_fence
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 128, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

builtin.module attributes {warp.target = #warp.target<sm_80>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = () -> (), kernel}> ({
^bb0():
  %i = arith.constant 0 : index
  %four = arith.constant 4 : index
  // CHECK: sm_80 has no cluster_barrier; sm_90 and later have it
  warp.cluster_barrier
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 128, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = () -> (), kernel}> ({
^bb0():
  %i = arith.constant 0 : index
  %four = arith.constant 4 : index
  // CHECK: expected whole warpgroups of 128 threads, the kernel has 96 threads
  warp.wgmma_commit
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 96, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = () -> (), kernel}> ({
^bb0():
  %i = arith.constant 0 : index
  %four = arith.constant 4 : index
  // CHECK: an operand of warp.wgmma begins at a row that is a multiple of 8, got 4
  %A = memref.alloc() : memref<64x64xf16, #warp.swizzle<128>, 3>
  %c = warp.constant 0.0 : f32 : !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  %d = warp.wgmma %A[%four, %i], %A[%i, %i], %c : memref<64x64xf16, #warp.swizzle<128>, 3>, memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 128, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = () -> (), kernel}> ({
^bb0():
  %i = arith.constant 0 : index
  %four = arith.constant 4 : index
  // CHECK: an operand of warp.wgmma begins at a column that is a multiple of 16, got 4
  %A = memref.alloc() : memref<64x64xf16, #warp.swizzle<128>, 3>
  %c = warp.constant 0.0 : f32 : !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  %d = warp.wgmma %A[%i, %four], %A[%i, %i], %c : memref<64x64xf16, #warp.swizzle<128>, 3>, memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 128, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = () -> (), kernel}> ({
^bb0():
  %i = arith.constant 0 : index
  %four = arith.constant 4 : index
  // CHECK: C of warp.wgmma is written while the product runs: nothing else may use it
  %A = memref.alloc() : memref<64x64xf16, #warp.swizzle<128>, 3>
  %c = warp.constant 0.0 : f32 : !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  %d = warp.wgmma %A[%i, %i], %A[%i, %i], %c : memref<64x64xf16, #warp.swizzle<128>, 3>, memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  %e = warp.wgmma %A[%i, %i], %A[%i, %i], %c : memref<64x64xf16, #warp.swizzle<128>, 3>, memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 128, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = () -> (), kernel}> ({
^bb0():
  %i = arith.constant 0 : index
  %four = arith.constant 4 : index
  // CHECK: expected one of the 128 threads of the kernel, got thread 128
  %b = warp.make_barriers {arrivals = 1 : i64} : !warp.barriers<1>
  warp.expect %b[%i] {bytes = 16 : i64, by = 128 : i64} : !warp.barriers<1>
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 128, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = (!warp.tensor_map<64x64xf16, swizzle 128>) -> (), kernel}> ({
^bb0(%m: !warp.tensor_map<64x64xf16, swizzle 128>):
  %i = arith.constant 0 : index
  %four = arith.constant 4 : index
  // CHECK: a box begins at a row of the tile that is a multiple of 8, got 4
  %A = memref.alloc() : memref<64x64xf16, #warp.swizzle<128>, 3>
  warp.tensor_store %A[%four, %i] to %m[%i, %i] : memref<64x64xf16, #warp.swizzle<128>, 3> to !warp.tensor_map<64x64xf16, swizzle 128>
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 128, 1, 1>} : () -> ()
}) : () -> ()
}
