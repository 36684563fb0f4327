// RUN: warploom-opt %s -p warp-expand --split-input-file --verify-diagnostics

!whole = !warp.fragment<acc, 32x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
!part = !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>

// expected-error @+6 {{expected a row of memory for each of 2 warps, got memref<4x128xf32, 3 : i64>}}
builtin.module {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = () -> (), kernel}> ({
  %acc = warp.constant 1.0 : f32 : !whole
  %s = memref.alloc() : memref<4x128xf32, 3>
  %part = warp.sum_sliced_k %acc via %s : !whole, memref<4x128xf32, 3> -> !part
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 64, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

!whole = !warp.fragment<acc, 32x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>
!part = !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>

// expected-error @+6 {{warp.sum_sliced_k adds f32, f64, f16, s32, got bf16}}
builtin.module {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = () -> (), kernel}> ({
  %acc = warp.constant 1.0 : bf16 : !whole
  %s = memref.alloc() : memref<2x64xf32, 3>
  %part = warp.sum_sliced_k %acc via %s : !whole, memref<2x64xf32, 3> -> !part
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 64, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

!whole = !warp.fragment<acc, 32x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
!part = !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>

// expected-error @+2 {{warp.sum_sliced_k is expanded in kernels with gpu.known_block_size}}
func.func @nowhere(%acc: !whole, %s: memref<4x128xf32, 3>) {
  %part = warp.sum_sliced_k %acc via %s : !whole, memref<4x128xf32, 3> -> !part
  return
}
