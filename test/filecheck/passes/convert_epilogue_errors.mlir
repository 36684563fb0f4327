// RUN: warploom-opt %s -p convert-warp-to-ptx --split-input-file --verify-diagnostics

// expected-error @+8 {{llvm.add is not lowered on elements; these are: arith.addf,}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<16x8xi32>, memref<16x8xi32>) -> (), kernel}> ({
  ^bb0(%X: memref<16x8xi32>, %Y: memref<16x8xi32>):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] : memref<16x8xi32> -> !warp.fragment<acc, 16x8xi32, [c1 c2 r0 r1 r2 | c0 r3]>
    %y = warp.map %x : !warp.fragment<acc, 16x8xi32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xi32, [c1 c2 r0 r1 r2 | c0 r3]> (%e: i32) {
      %0 = llvm.add %e, %e : i32
      warp.yield %0 : i32
    }
    warp.store %y, %Y[%c0, %c0] : !warp.fragment<acc, 16x8xi32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xi32>
    "gpu.return"() : () -> ()
  }) {sym_name = "k", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+8 {{math.fma on elements of f16 is not lowered; on f32 and f64 it is}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<16x8xf16>, memref<16x8xf16>) -> (), kernel}> ({
  ^bb0(%X: memref<16x8xf16>, %Y: memref<16x8xf16>):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] : memref<16x8xf16> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
    %y = warp.map %x : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]> (%e: f16) {
      %0 = math.fma %e, %e, %e : f16
      warp.yield %0 : f16
    }
    warp.store %y, %Y[%c0, %c0] : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xf16>
    "gpu.return"() : () -> ()
  }) {sym_name = "k", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+8 {{arith.extf on elements of f128 is not lowered; f32, f64, f16, bf16, i1, i4, i8, i16, i32, i64 are}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<16x8xf32>, memref<16x8xf32>) -> (), kernel}> ({
  ^bb0(%X: memref<16x8xf32>, %Y: memref<16x8xf32>):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] : memref<16x8xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %y = warp.map %x : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> (%e: f32) {
      %0 = arith.extf %e : f32 to f128
      %1 = arith.truncf %0 : f128 to f32
      warp.yield %1 : f32
    }
    warp.store %y, %Y[%c0, %c0] : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xf32>
    "gpu.return"() : () -> ()
  }) {sym_name = "k", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+8 {{arith.maximumf takes max.NaN.f32, which needs sm_80 or later; the target is sm_75}}
builtin.module attributes {warp.target = #warp.target<sm_75>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<16x8xf32>, memref<16x8xf32>) -> (), kernel}> ({
  ^bb0(%X: memref<16x8xf32>, %Y: memref<16x8xf32>):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] : memref<16x8xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %y = warp.map %x : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> (%e: f32) {
      %0 = arith.maximumf %e, %e : f32
      warp.yield %0 : f32
    }
    warp.store %y, %Y[%c0, %c0] : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xf32>
    "gpu.return"() : () -> ()
  }) {sym_name = "k", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+7 {{warp.map takes cvt.rn.satfinite.e4m3x2.f32, which needs sm_89 or later; the target is sm_80}}
builtin.module attributes {warp.target = #warp.target<sm_80>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<16x8xf32>, memref<16x8xf8E4M3FN>) -> (), kernel}> ({
  ^bb0(%X: memref<16x8xf32>, %Y: memref<16x8xf8E4M3FN>):
    %c0 = arith.constant 0 : index
    %x = warp.load %X[%c0, %c0] : memref<16x8xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %y = warp.map %x : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf8E4M3FN, [c1 c2 r0 r1 r2 | c0 r3]> (%e: f32) {
      %0 = arith.truncf %e : f32 to f8E4M3FN
      warp.yield %0 : f8E4M3FN
    }
    warp.store %y, %Y[%c0, %c0] : !warp.fragment<acc, 16x8xf8E4M3FN, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xf8E4M3FN>
    "gpu.return"() : () -> ()
  }) {sym_name = "k", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}
