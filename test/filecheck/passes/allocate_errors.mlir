// RUN: warploom-opt %s -p warp-allocate --split-input-file --verify-diagnostics

builtin.module {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = () -> (), kernel}> ({
    // expected-error @below {{expected warp.offset to be a multiple of 1024, got 512 : i64}}
    %a = memref.alloc() {warp.offset = 512 : i64} : memref<16x64xf16, #warp.swizzle<128>, 3>
    "gpu.return"() : () -> ()
  }) {sym_name = "k", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

builtin.module {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = () -> (), kernel}> ({
    // expected-error @below {{expected warp.offset to be a multiple of 8, got "here"}}
    %a = warp.make_barriers {arrivals = 1 : i64, warp.offset = "here"} : !warp.barriers<6>
    "gpu.return"() : () -> ()
  }) {sym_name = "k", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}
