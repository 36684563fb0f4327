// RUN: warploom-opt %s --split-input-file --verify-diagnostics -p convert-warp-to-ptx

builtin.module attributes {warp.target = #warp.target<sm_90>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = () -> (), kernel}> ({
^bb0():
  %i = arith.constant 0 : index
  %four = arith.constant 4 : index
  // expected-error @below {{warp.fence takes wgmma.fence.sync.aligned, which needs sm_90a; the target is sm_90}}
  warp.fence wgmma
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
  // expected-error @below {{warp.barrier takes barrier.cluster.arrive.aligned, which needs sm_90 or later; the target is sm_80}}
  warp.barrier cluster
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
  // expected-error @below {{expected whole warpgroups of 128 threads, the kernel has 96 threads}}
  warp.commit wgmma
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
  // expected-error @+3 {{an operand of warp.wgmma begins at a row that is a multiple of 8, got 4}}
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
  // expected-error @+3 {{an operand of warp.wgmma begins at a column that is a multiple of 16, got 4}}
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
  // expected-error @+3 {{C of warp.wgmma is written while the product runs: nothing else may use it}}
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
  // expected-error @+2 {{expected one of the 128 threads of the kernel, got thread 128}}
  %b = warp.make_barriers {arrivals = 1 : i64} : !warp.barriers<1>
  warp.arrive %b[%i] {bytes = 16 : i64, by = 128 : i64} : !warp.barriers<1>
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 128, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = (!warp.tensor_map<64x32xf16, swizzle 64>) -> (), kernel}> ({
^bb0(%m: !warp.tensor_map<64x32xf16, swizzle 64>):
  %i = arith.constant 0 : index
  %three = arith.constant 3 : index
  // expected-error @+2 {{a box begins at a row of the tile that is a multiple of 2, got 3}}
  %A = memref.alloc() : memref<64x32xf16, #warp.swizzle<64>, 3>
  warp.tensor_store %A[%three, %i] to %m[%i, %i] : memref<64x32xf16, #warp.swizzle<64>, 3> to !warp.tensor_map<64x32xf16, swizzle 64>
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
  %many = arith.constant 65536 : index
  // expected-error @below {{expected a barrier from 1 to 15, got 0; gpu.barrier is the first}}
  warp.barrier cta[%i] {threads = 64 : i64}
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
  %many = arith.constant 65536 : index
  // expected-error @+2 {{expected at most the 128 threads of the kernel, got 256}}
  %n = arith.constant 1 : index
  warp.barrier cta[%n] {threads = 256 : i64}
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
  %many = arith.constant 65536 : index
  // expected-error @+2 {{warp.arrive takes mapa.shared::cluster.u32, which needs sm_90 or later; the target is sm_80}}
  %b = warp.make_barriers {arrivals = 1 : i64} : !warp.barriers<1>
  warp.arrive %b[%i] at %i : !warp.barriers<1>
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
  %many = arith.constant 65536 : index
  // expected-error @below {{gpu.cluster_block_id takes %cluster_ctaid.x, which needs sm_90 or later; the target is sm_80}}
  %r = gpu.cluster_block_id x
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
  %many = arith.constant 65536 : index
  // expected-error @+3 {{expected a bit for each of 1 to 16 CTAs of a cluster, got 0x10000}}
  %b = warp.make_barriers {arrivals = 1 : i64} : !warp.barriers<1>
  %A = memref.alloc() : memref<64x64xf16, #warp.swizzle<128>, 3>
  warp.tensor_load %m[%i, %i] to %A[%i, %i], %b[%i] multicast %many : !warp.tensor_map<64x64xf16, swizzle 128> to memref<64x64xf16, #warp.swizzle<128>, 3>, !warp.barriers<1>
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
  %many = arith.constant 65536 : index
  // expected-error @-4 {{expected gpu.known_cluster_size to be array<i32: x, y, z> of 1 to 16 CTAs, got array<i32: 2, 0, 1>}}
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 128, 1, 1>, gpu.known_cluster_size = array<i32: 2, 0, 1>} : () -> ()
}) : () -> ()
}

// -----

builtin.module attributes {warp.target = #warp.target<sm_80>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = () -> (), kernel}> ({
^bb0():
  %i = arith.constant 0 : index
  %many = arith.constant 65536 : index
  // expected-error @-4 {{sm_80 has no clusters; sm_90 and later have them}}
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 128, 1, 1>, gpu.known_cluster_size = array<i32: 2, 1, 1>} : () -> ()
}) : () -> ()
}
