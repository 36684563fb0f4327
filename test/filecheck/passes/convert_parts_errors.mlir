// RUN: warploom-opt %s -p warp-expand,convert-warp-to-ptx --split-input-file --verify-diagnostics

!acc = !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>

// expected-error @+7 {{expected rows of 512 bytes, the fragments of 32 threads, got memref<6x256xf32>}}
builtin.module attributes {warp.target = #warp.target<sm_80>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = (memref<6x256xf32>) -> (), kernel}> ({
^bb0(%parts: memref<6x256xf32>):
  %zero = arith.constant 0 : index
  %acc = warp.constant 1.0 : f32 : !acc
  warp.store_part %acc, %parts[%zero] : !acc, memref<6x256xf32>
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

!acc = !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>

// expected-error @+7 {{warp.add_parts adds f32, f64, f16, s32, got !warp.fragment<acc, 16x8xbf16,}}
builtin.module attributes {warp.target = #warp.target<sm_80>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = (memref<6x128xbf16>) -> (), kernel}> ({
^bb0(%parts: memref<6x128xbf16>):
  %zero = arith.constant 0 : index
  %acc = warp.constant 1.0 : bf16 : !acc
  %sum = warp.add_parts %acc, %parts[%zero] x %zero : !acc, memref<6x128xbf16> -> !acc
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}
