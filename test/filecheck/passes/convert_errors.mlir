// RUN: warploom-opt %s -p convert-warp-to-ptx --split-input-file --verify-diagnostics

// expected-error @+2 {{expected a target on the module; run warp-set-target{arch=sm_90a} first}}
builtin.module {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<64x64xf32>) -> (), kernel}> ({
  ^bb0(%C: memref<64x64xf32>):
    %c0 = arith.constant 0 : index
    
    "gpu.return"() : () -> ()
  }) {sym_name = "no_target", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+3 {{expected gpu.known_block_size on the kernel: gpu.all_reduce depends on it}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<64x64xf32>) -> (), kernel}> ({
  ^bb0(%C: memref<64x64xf32>):
    %c0 = arith.constant 0 : i32
    %sum = gpu.all_reduce add %c0 {} : (i32) -> (i32)
    "gpu.return"() : () -> ()
  }) {sym_name = "no_block"} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+3 {{expected a block of whole warps along x, at most 1024 threads, got 33 x 1 x 1}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<64x64xf32>) -> (), kernel}> ({
  ^bb0(%C: memref<64x64xf32>):
    warp.commit cp_async
    "gpu.return"() : () -> ()
  }) {sym_name = "part_of_a_warp", gpu.known_block_size = array<i32: 33, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+3 {{expected a block of whole warps along x, at most 1024 threads, got 2048 x 1 x 1}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<64x64xf32>) -> (), kernel}> ({
  ^bb0(%C: memref<64x64xf32>):
    %c0 = arith.constant 0 : index
    
    "gpu.return"() : () -> ()
  }) {sym_name = "many_threads", gpu.known_block_size = array<i32: 2048, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+3 {{expected a block of whole warps along x, at most 1024 threads, got 32 x 2 x 1}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<64x64xf32>) -> (), kernel}> ({
  ^bb0(%C: memref<64x64xf32>):
    "warp.fence"() <{before = "async_proxy"}> : () -> ()
    
    "gpu.return"() : () -> ()
  }) {sym_name = "two_dimensions", gpu.known_block_size = array<i32: 32, 2, 1>} : () -> ()
}) : () -> ()
}

// -----

builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<64x64xf32>) -> (), kernel}> ({
  ^bb0(%C: memref<64x64xf32>):
    // expected-error @below {{cannot make nvvm.setmaxregister of setmaxnreg.inc.sync.aligned.u32: operand n: expected a multiple of 8 from 24 to 256, got 100}}
    "nvvm.setmaxregister"() <{action = #nvvm<action increase>, regCount = 100 : i32}> : () -> ()
    "gpu.return"() : () -> ()
  }) {sym_name = "registers", gpu.known_block_size = array<i32: 128, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+3 {{expected a block of whole warps along x, at most 1024 threads, got 0 x 1 x 1}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<64x64xf32>) -> (), kernel}> ({
  ^bb0(%C: memref<64x64xf32>):
    %c0 = arith.constant 0 : index
    
    "gpu.return"() : () -> ()
  }) {sym_name = "no_threads", gpu.known_block_size = array<i32: 0, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+3 {{expected kernel arguments to be memrefs or numbers of f32, f64, f16, bf16, i1, i8, i16, i32, i64, index, got i48}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (i48) -> (), kernel}> ({
  ^bb0(%x: i48):
    %c0 = arith.constant 0 : index
    
    "gpu.return"() : () -> ()
  }) {sym_name = "scalar_argument", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+8 {{warp.copy takes rows whose elements are neighbours in memory, got memref<16x16xf16, strided<[1, 16], offset: ?>>}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<16x16xf16>) -> (), kernel}> ({
  ^bb0(%x: memref<16x16xf16>):
    %c0 = arith.constant 0 : index
    %t = memref.alloc() : memref<16x16xf16, 3>
    %turned = warp.matrix %x[column, row] : memref<16x16xf16> -> memref<16x16xf16, strided<[1, 16], offset: ?>>
    warp.copy %turned[%c0, %c0] to %t[] : memref<16x16xf16, strided<[1, 16], offset: ?>> to memref<16x16xf16, 3>
    "gpu.return"() : () -> ()
  }) {sym_name = "turned", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+3 {{expected an element type of a matrix instruction, or i16, i64, index, got memref<4x4xi128>}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<4x4xi128>) -> (), kernel}> ({
  ^bb0(%x: memref<4x4xi128>):
    %c0 = arith.constant 0 : index
    
    "gpu.return"() : () -> ()
  }) {sym_name = "element_type", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+3 {{indices and rows must stay below 2^31 elements and bytes, got memref<4x2000000000xf16>}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<4x2000000000xf16>) -> (), kernel}> ({
  ^bb0(%x: memref<4x2000000000xf16>):
    %c0 = arith.constant 0 : index
    
    "gpu.return"() : () -> ()
  }) {sym_name = "long_rows", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+6 {{arith.constant is lowered for vectors of whole registers, got vector<3xf16>}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<64x64xf32>) -> (), kernel}> ({
  ^bb0(%C: memref<64x64xf32>):
    %c0 = arith.constant 0 : index
    %x = arith.constant dense<1.0> : vector<3xf16>
    "gpu.return"() : () -> ()
  }) {sym_name = "float_constant", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+6 {{indices are 32-bit, got 3000000000}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<64x64xf32>) -> (), kernel}> ({
  ^bb0(%C: memref<64x64xf32>):
    %c0 = arith.constant 0 : index
    %x = arith.constant 3000000000 : index
    "gpu.return"() : () -> ()
  }) {sym_name = "large_constant", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+6 {{gpu.rotate is not lowered to PTX inside a kernel}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<64x64xf32>) -> (), kernel}> ({
  ^bb0(%C: memref<64x64xf32>):
    %x = arith.constant 1.0 : f32
    %y, %in = gpu.rotate %x, 1, 16 : f32
    "gpu.return"() : () -> ()
  }) {sym_name = "operation", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+6 {{expected an index, got !warp.barriers<2>}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<64x64xf32>) -> (), kernel}> ({
  ^bb0(%C: memref<64x64xf32>):
    %c0 = arith.constant 0 : index
    %x = warp.make_barriers {arrivals = 4 : i64} : !warp.barriers<2>
    %p = arith.cmpi eq, %c0, %c0 : index
    %y = arith.select %p, %x, %x : !warp.barriers<2>
    "gpu.return"() : () -> ()
  }) {sym_name = "select_of_barriers", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+6 {{expected a shared-memory tile of 2 dimensions, or 3 with stages, got memref<8x8xf16>}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<64x64xf32>) -> (), kernel}> ({
  ^bb0(%C: memref<64x64xf32>):
    %c0 = arith.constant 0 : index
    %x = memref.alloc() : memref<8x8xf16>
    "gpu.return"() : () -> ()
  }) {sym_name = "global_tile", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+6 {{expected a shared-memory tile of 2 dimensions, or 3 with stages, got memref<8xf16, 3 : i64>}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<64x64xf32>) -> (), kernel}> ({
  ^bb0(%C: memref<64x64xf32>):
    %c0 = arith.constant 0 : index
    %x = memref.alloc() : memref<8xf16, 3>
    "gpu.return"() : () -> ()
  }) {sym_name = "rank_of_a_tile", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+6 {{expected a shared-memory tile of 2 dimensions, or 3 with stages, got memref<?x8xf16, 3 : i64>}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<64x64xf32>) -> (), kernel}> ({
  ^bb0(%C: memref<64x64xf32>):
    %c0 = arith.constant 0 : index
    %x = memref.alloc(%c0) : memref<?x8xf16, 3>
    "gpu.return"() : () -> ()
  }) {sym_name = "dynamic_tile", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+6 {{expected lines of whole 32-byte panels, got 48 bytes in memref<8x24xf16, #warp.swizzle<32>, 3 : i64>}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<64x64xf32>) -> (), kernel}> ({
  ^bb0(%C: memref<64x64xf32>):
    %c0 = arith.constant 0 : index
    %x = memref.alloc() : memref<8x24xf16, #warp.swizzle<32>, 3>
    "gpu.return"() : () -> ()
  }) {sym_name = "panels", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+6 {{expected lines of whole 16-byte panels, got 8 bytes in memref<8x4xf16, 3 : i64>}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<64x64xf32>) -> (), kernel}> ({
  ^bb0(%C: memref<64x64xf32>):
    %c0 = arith.constant 0 : index
    %x = memref.alloc() : memref<8x4xf16, 3>
    "gpu.return"() : () -> ()
  }) {sym_name = "chunks", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+3 {{the kernel takes 512 KiB of shared memory, sm_90a has 227 KiB for a CTA}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<64x64xf32>) -> (), kernel}> ({
  ^bb0(%C: memref<64x64xf32>):
    %c0 = arith.constant 0 : index
    %x = memref.alloc() : memref<4096x64xf16, 3>
    "gpu.return"() : () -> ()
  }) {sym_name = "shared_memory", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+3 {{the kernel takes 128 KiB of shared memory, sm_120a has 99 KiB for a CTA}}
builtin.module attributes {warp.target = #warp.target<sm_120a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<64x64xf32>) -> (), kernel}> ({
  ^bb0(%C: memref<64x64xf32>):
    %c0 = arith.constant 0 : index
    %x = memref.alloc() : memref<1024x64xf16, 3>
    "gpu.return"() : () -> ()
  }) {sym_name = "shared_memory_of_sm_120a", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+3 {{expected kernel arguments in global memory, strided, got memref<32x32xf16, 3 : i64>}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<32x32xf16, 3>) -> (), kernel}> ({
  ^bb0(%x: memref<32x32xf16, 3>):
    %c0 = arith.constant 0 : index
    %a = warp.load %x[%c0, %c0] {matrices = "x4"} : memref<32x32xf16, 3> -> !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
    "gpu.return"() : () -> ()
  }) {sym_name = "ldmatrix_from_an_argument", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+3 {{expected kernel arguments in global memory, strided, got memref<32x32xf16, 3 : i64>}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<32x32xf16, 3>, memref<32x32xf16>) -> (), kernel}> ({
  ^bb0(%x: memref<32x32xf16, 3>, %y: memref<32x32xf16>):
    %c0 = arith.constant 0 : index
    warp.copy %y[%c0, %c0] to %x[] : memref<32x32xf16> to memref<32x32xf16, 3>
    "gpu.return"() : () -> ()
  }) {sym_name = "copy_to_an_argument", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+3 {{expected gpu.func in a module of kernels, got func.func}}
builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  func.func private @helper() -> ()
}) : () -> ()
}

// -----

// expected-error @+7 {{warp.elementwise takes max.f16x2, which needs sm_80 or later; the target is sm_75}}
builtin.module attributes {warp.target = #warp.target<sm_75>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<16x8xf16>) -> (), kernel}> ({
  ^bb0(%x: memref<16x8xf16>):
    %c0 = arith.constant 0 : index
    %x1 = warp.load %x[%c0, %c0] : memref<16x8xf16> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
    %y = warp.elementwise max %x1, %x1 : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %y, %x[%c0, %c0] : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xf16>
    "gpu.return"() : () -> ()
  }) {sym_name = "maximum_of_f16", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+7 {{warp.elementwise takes add.rn.bf16x2, which needs sm_90 or later; the target is sm_80}}
builtin.module attributes {warp.target = #warp.target<sm_80>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<16x8xbf16>) -> (), kernel}> ({
  ^bb0(%x: memref<16x8xbf16>):
    %c0 = arith.constant 0 : index
    %x1 = warp.load %x[%c0, %c0] : memref<16x8xbf16> -> !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>
    %y = warp.elementwise add %x1, %x1 : !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %y, %x[%c0, %c0] : !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xbf16>
    "gpu.return"() : () -> ()
  }) {sym_name = "sum_of_bf16", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+7 {{warp.convert takes cvt.rn.bf16.f32, which needs sm_80 or later; the target is sm_75}}
builtin.module attributes {warp.target = #warp.target<sm_75>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<16x8xf32>, memref<16x8xbf16>) -> (), kernel}> ({
  ^bb0(%x: memref<16x8xf32>, %y: memref<16x8xbf16>):
    %c0 = arith.constant 0 : index
    %x1 = warp.load %x[%c0, %c0] : memref<16x8xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
    %z = warp.convert %x1 : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>
    warp.store %z, %y[%c0, %c0] : !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>, memref<16x8xbf16>
    "gpu.return"() : () -> ()
  }) {sym_name = "conversion_to_bf16", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+7 {{warp.convert takes cvt.rn.f16x2.e4m3x2, which needs sm_89 or later; the target is sm_80}}
builtin.module attributes {warp.target = #warp.target<sm_80>} {
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = () -> (), kernel}> ({
    %c0 = arith.constant 0 : index
    %s = memref.alloc() : memref<16x32xf8E4M3FN, #warp.swizzle<32>, 3>
    %x = warp.load %s[%c0, %c0] {matrices = "x4"} : memref<16x32xf8E4M3FN, #warp.swizzle<32>, 3> -> !warp.fragment<a, 16x32xf8E4M3FN, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>
    %y = warp.convert %x : !warp.fragment<a, 16x32xf8E4M3FN, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]> to !warp.fragment<a, 16x32xf16, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>
    "gpu.return"() : () -> ()
  }) {sym_name = "widening", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+6 {{expected at least 2048 bytes of dynamic shared memory for the kernel's tiles, got 1024}}
builtin.module attributes {warp.target = #warp.target<sm_90a>, gpu.container_module} {
func.func @launch(%c: memref<64x64xf32>) {
  %one = arith.constant 1 : index
  %threads = arith.constant 32 : index
  %shared = arith.constant 1024 : i32
  "gpu.launch_func"(%one, %one, %one, %threads, %one, %one, %shared, %c) <{kernel = @kernels::@small_launch, operandSegmentSizes = array<i32: 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 0>}> : (index, index, index, index, index, index, i32, memref<64x64xf32>) -> ()
  return
}
"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<64x64xf32>) -> (), kernel}> ({
  ^bb0(%C: memref<64x64xf32>):
    %c0 = arith.constant 0 : index
    %x = memref.alloc() : memref<16x64xf16, 3>
    "gpu.return"() : () -> ()
  }) {sym_name = "small_launch", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}

// -----

// expected-error @+6 {{warp.pack takes matrices of static size, without gaps, at multiples of 4 bytes, got memref<5x7xf16, strided<[8, 1]>>}}
builtin.module attributes {warp.target = #warp.target<sm_80>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = (memref<5x7xf16, strided<[8, 1]>>, memref<8x8xf16>) -> (), kernel}> ({
^bb0(%A: memref<5x7xf16, strided<[8, 1]>>, %W: memref<8x8xf16>):
  %zero = arith.constant 0 : index
  warp.pack %A to %W share %zero {shares = 1 : i64} : memref<5x7xf16, strided<[8, 1]>> to memref<8x8xf16>
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}
