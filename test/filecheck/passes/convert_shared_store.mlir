// RUN: warploom-opt %s -p convert-warp-to-ptx -t ptx | filecheck %s

// Each lane writes what it holds, neighbours of a row together, where the swizzle of the tile puts them.
// CHECK: warp.store
// CHECK: st.shared.v2.f32 [%r{{[0-9]+}}+1024], {%f0, %f1};
// CHECK: st.shared.v2.f32 [%r{{[0-9]+}}+2048], {%f2, %f3};
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<16x8xf32>) -> (), kernel}> ({
  ^bb0(%C: memref<16x8xf32>):
    %c0 = arith.constant 0 : index
    %c8 = arith.constant 8 : index
    %s = memref.alloc() : memref<32x32xf32, #warp.swizzle<128>, 3>
    %x = warp.load %C[%c0, %c0] : memref<16x8xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %x, %s[%c8, %c0] : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<32x32xf32, #warp.swizzle<128>, 3>
    "gpu.return"() : () -> ()
  }) {sym_name = "k", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}
