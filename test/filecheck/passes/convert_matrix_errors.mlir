// RUN: warploom-opt %s -p convert-warp-to-ptx --split-input-file --verify-diagnostics

// expected-error @+7 {{warp.load of s4 takes two neighbours of a row side by side, got [c0 c4 r0 r1 r2 | c1 c2 c3 r3 c5]}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({

  "gpu.func"() <{function_type = (memref<16x64xi4>) -> (), kernel}> ({
  ^bb0(%A: memref<16x64xi4>):
    %c0 = arith.constant 0 : index
    %a = warp.load %A[%c0, %c0] : memref<16x64xi4> -> !warp.fragment<a, 16x64xi4, [c0 c4 r0 r1 r2 | c1 c2 c3 r3 c5]>
    "gpu.return"() : () -> ()
  }) {sym_name = "nibbles", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+7 {{warp.load moves whole bytes, got memref<16x256xi1>; packed elements move as registers}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({

  "gpu.func"() <{function_type = (memref<16x256xi1>) -> (), kernel}> ({
  ^bb0(%A: memref<16x256xi1>):
    %c0 = arith.constant 0 : index
    %a = warp.load %A[%c0, %c0] : memref<16x256xi1> -> !warp.fragment<a, 16x256xi1, [c5 c6 r0 r1 r2 | c0 c1 c2 c3 c4 r3 c7]>
    "gpu.return"() : () -> ()
  }) {sym_name = "bits", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+7 {{expected lines of whole 16-byte panels, got 12 bytes in memref<16x24xi4, 3 : i64>}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({

  "gpu.func"() <{function_type = () -> (), kernel}> ({
  ^bb0():
    %c0 = arith.constant 0 : index
    %s = memref.alloc() : memref<16x24xi4, 3>
    "gpu.return"() : () -> ()
  }) {sym_name = "shared_nibbles", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+8 {{warp.elementwise is lowered for f16, bf16 and f32, got s32}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({

  "gpu.func"() <{function_type = (memref<1x128xi32>) -> (), kernel}> ({
  ^bb0(%C: memref<1x128xi32>):
    %c0 = arith.constant 0 : index
    %x = warp.load %C[%c0, %c0] {registers = "vectors"} : memref<1x128xi32> -> !warp.fragment<acc, 16x8xi32, [c1 c2 r0 r1 r2 | c0 r3]>
    %y = warp.elementwise mul %x, %x : !warp.fragment<acc, 16x8xi32, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xi32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xi32, [c1 c2 r0 r1 r2 | c0 r3]>
    "gpu.return"() : () -> ()
  }) {sym_name = "integer_arithmetic", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+8 {{warp.convert is lowered for f16, bf16 and f32, got s32}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({

  "gpu.func"() <{function_type = (memref<1x128xi32>) -> (), kernel}> ({
  ^bb0(%C: memref<1x128xi32>):
    %c0 = arith.constant 0 : index
    %x = warp.load %C[%c0, %c0] {registers = "vectors"} : memref<1x128xi32> -> !warp.fragment<acc, 16x8xi32, [c1 c2 r0 r1 r2 | c0 r3]>
    %y = warp.convert %x : !warp.fragment<acc, 16x8xi32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    "gpu.return"() : () -> ()
  }) {sym_name = "integer_conversion", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+10 {{stmatrix writes rows of 16 bytes from multiples of 16 bytes, got column 4}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({

  "gpu.func"() <{function_type = (memref<1x128xi32>) -> (), kernel}> ({
  ^bb0(%D: memref<1x128xi32>):
    %c0 = arith.constant 0 : index
    %c4 = arith.constant 4 : index
    %s = memref.alloc() : memref<16x64xf16, #warp.swizzle<128>, 3>
    %d = warp.load %D[%c0, %c0] {registers = "vectors"} : memref<1x128xi32> -> !warp.fragment<acc, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %d, %s[%c0, %c4] {matrices = "x4"} : !warp.fragment<acc, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x64xf16, #warp.swizzle<128>, 3>
    "gpu.return"() : () -> ()
  }) {sym_name = "store_column", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+8 {{a vector of powers of two is lowered where only floats of 4 bits are multiplied by it}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({

  "gpu.func"() <{function_type = () -> (), kernel}> ({
  ^bb0():
    %c0 = arith.constant 0 : index
    %s = memref.alloc() : memref<1x64xf8E8M0FNU, #warp.swizzle<16>, 3>
    %x = warp.load %s[%c0, %c0] {along = "rows"} : memref<1x64xf8E8M0FNU, #warp.swizzle<16>, 3> -> !warp.fragment<acc, 16x8xbf16, [c0 c1 c2 r0 r1 | r2 r3]>
    %y = warp.elementwise mul %x, %x : !warp.fragment<acc, 16x8xbf16, [c0 c1 c2 r0 r1 | r2 r3]>, !warp.fragment<acc, 16x8xbf16, [c0 c1 c2 r0 r1 | r2 r3]> -> !warp.fragment<acc, 16x8xbf16, [c0 c1 c2 r0 r1 | r2 r3]>
    "gpu.return"() : () -> ()
  }) {sym_name = "powers", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}
