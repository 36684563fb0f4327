// RUN: warploom-opt %s -p convert-warp-to-ptx -t ptx | filecheck %s

builtin.module attributes {warp.target = #warp.target<sm_90>} {
"gpu.module"() <{sym_name = "kernels"}> ({

  // Whole tiles of 16-byte pieces: two for each of 32 threads.
  // CHECK-LABEL: .visible .entry inside(
  // CHECK:       cp.async.cg.shared.global [%r{{.*}}], [%rd{{.*}}], 16;
  // CHECK:       cp.async.cg.shared.global [%r{{.*}}], [%rd{{.*}}], 16;
  // CHECK-NEXT:  cp.async.commit_group;
  // CHECK-NEXT:  cp.async.wait_group 0;
  "gpu.func"() <{function_type = (memref<8x64xf16>) -> (), kernel}> ({
  ^bb0(%A: memref<8x64xf16>):
    %c0 = arith.constant 0 : index
    %s = memref.alloc() : memref<8x64xf16, #warp.swizzle<128>, 3>
    warp.copy %A[%c0, %c0] to %s[] {async, in_bounds = [true, true]} : memref<8x64xf16> to memref<8x64xf16, #warp.swizzle<128>, 3>
    warp.commit cp_async
    warp.wait cp_async 0
    "gpu.return"() : () -> ()
  }) {sym_name = "inside", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // Two of four parts of the rows, from the second on: four rows, from the third of the tile on.
  // CHECK-LABEL: .visible .entry parts(
  // CHECK:       add.s32 %{{r[0-9]+}}, %r1, 2;
  // CHECK:       cp.async.cg.shared.global [%{{r[0-9]+}}], [%{{rd[0-9]+}}], 16;
  // CHECK-NEXT:  cp.async.commit_group;
  "gpu.func"() <{function_type = (memref<4x64xf16>) -> (), kernel}> ({
  ^bb0(%A: memref<4x64xf16>):
    %c0 = arith.constant 0 : index
    %s = memref.alloc() : memref<8x64xf16, #warp.swizzle<128>, 3>
    warp.copy %A[%c0, %c0] to %s[] {async, in_bounds = [true, true], part = array<i64: 1, 4, 0, 2>} : memref<4x64xf16> to memref<8x64xf16, #warp.swizzle<128>, 3>
    warp.commit cp_async
    "gpu.return"() : () -> ()
  }) {sym_name = "parts", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // What may lie outside is copied as zeros: the count of bytes read is 16 or 0.
  // CHECK-LABEL: .visible .entry edges(
  // CHECK:       selp.b32 %r[[N:[0-9]+]], 16, 0, %p{{[0-9]+}};
  // CHECK:       cp.async.cg.shared.global [%r{{.*}}], [%rd{{.*}}], 16, %r[[N]];
  "gpu.func"() <{function_type = (memref<5x40xf16>) -> (), kernel}> ({
  ^bb0(%A: memref<5x40xf16>):
    %c0 = arith.constant 0 : index
    %s = memref.alloc() : memref<8x64xf16, #warp.swizzle<128>, 3>
    warp.copy %A[%c0, %c0] to %s[] {async} : memref<5x40xf16> to memref<8x64xf16, #warp.swizzle<128>, 3>
    warp.commit cp_async
    warp.wait cp_async 0
    "gpu.return"() : () -> ()
  }) {sym_name = "edges", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // Rows of 36 elements, 72 bytes, allow pieces of 8 bytes, those of 34 of 4; .cg is for 16 only.
  // CHECK-LABEL: .visible .entry eight(
  // CHECK-NOT:   cp.async.cg
  // CHECK:       cp.async.ca.shared.global [%r{{.*}}], [%rd{{.*}}], 8, %r{{[0-9]+}};
  // CHECK-NOT:   cp.async.cg
  // CHECK:       cp.async.commit_group;
  // CHECK-LABEL: .visible .entry four(
  // CHECK-NOT:   cp.async.cg
  // CHECK:       cp.async.ca.shared.global [%r{{.*}}], [%rd{{.*}}], 4, %r{{[0-9]+}};
  // CHECK-NOT:   cp.async.cg
  // CHECK:       cp.async.commit_group;
  "gpu.func"() <{function_type = (memref<8x36xf16>) -> (), kernel}> ({
  ^bb0(%A: memref<8x36xf16>):
    %c0 = arith.constant 0 : index
    %s = memref.alloc() : memref<8x64xf16, #warp.swizzle<128>, 3>
    warp.copy %A[%c0, %c0] to %s[] {async} : memref<8x36xf16> to memref<8x64xf16, #warp.swizzle<128>, 3>
    warp.commit cp_async
    warp.wait cp_async 0
    "gpu.return"() : () -> ()
  }) {sym_name = "eight", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  "gpu.func"() <{function_type = (memref<8x34xf16>) -> (), kernel}> ({
  ^bb0(%A: memref<8x34xf16>):
    %c0 = arith.constant 0 : index
    %s = memref.alloc() : memref<8x64xf16, #warp.swizzle<128>, 3>
    warp.copy %A[%c0, %c0] to %s[] {async} : memref<8x34xf16> to memref<8x64xf16, #warp.swizzle<128>, 3>
    warp.commit cp_async
    warp.wait cp_async 0
    "gpu.return"() : () -> ()
  }) {sym_name = "four", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // Odd rows leave single elements, which go through registers.
  // CHECK-LABEL: .visible .entry odd(
  // CHECK-NOT:   cp.async.c{{[ag]}}
  // CHECK:       mov.b16 %h[[V:[0-9]+]], 0;
  // CHECK:       @%p{{[0-9]+}} ld.global.b16 %h[[V]], [%rd{{.*}}];
  // CHECK-NEXT:  st.shared.b16 [%r{{.*}}], %h[[V]];
  // CHECK-NOT:   cp.async.c{{[ag]}}
  // CHECK:       cp.async.commit_group;
  "gpu.func"() <{function_type = (memref<8x33xf16>) -> (), kernel}> ({
  ^bb0(%A: memref<8x33xf16>):
    %c0 = arith.constant 0 : index
    %s = memref.alloc() : memref<8x64xf16, #warp.swizzle<128>, 3>
    warp.copy %A[%c0, %c0] to %s[] {async} : memref<8x33xf16> to memref<8x64xf16, #warp.swizzle<128>, 3>
    warp.commit cp_async
    warp.wait cp_async 0
    "gpu.return"() : () -> ()
  }) {sym_name = "odd", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // Without async, too.
  // CHECK-LABEL: .visible .entry plain(
  // CHECK-NOT:   cp.async.c{{[ag]}}
  // CHECK:       ld.global.v4.b32 {%r[[A:[0-9]+]], %r[[B:[0-9]+]], %r[[CC:[0-9]+]], %r[[D:[0-9]+]]}, [%rd{{.*}}];
  // CHECK-NEXT:  st.shared.v4.b32 [%r{{.*}}], {%r[[A]], %r[[B]], %r[[CC]], %r[[D]]};
  // CHECK-NOT:   cp.async.c{{[ag]}}
  // CHECK:       cp.async.commit_group;
  "gpu.func"() <{function_type = (memref<8x64xf16>) -> (), kernel}> ({
  ^bb0(%A: memref<8x64xf16>):
    %c0 = arith.constant 0 : index
    %s = memref.alloc() : memref<8x64xf16, #warp.swizzle<128>, 3>
    warp.copy %A[%c0, %c0] to %s[] {in_bounds = [true, true]} : memref<8x64xf16> to memref<8x64xf16, #warp.swizzle<128>, 3>
    warp.commit cp_async
    warp.wait cp_async 0
    "gpu.return"() : () -> ()
  }) {sym_name = "plain", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // More threads than pieces: those without one do nothing.
  // CHECK-LABEL: .visible .entry few(
  // CHECK:       setp.lt.s32 %p[[TAKEN:[0-9]+]], %r{{[0-9]+}}, 64;
  // CHECK:       @%p[[TAKEN]] cp.async.cg.shared.global [%r{{.*}}], [%rd{{.*}}], 16;
  // CHECK:       cp.async.commit_group;
  "gpu.func"() <{function_type = (memref<8x64xf16>) -> (), kernel}> ({
  ^bb0(%A: memref<8x64xf16>):
    %c0 = arith.constant 0 : index
    %s = memref.alloc() : memref<8x64xf16, #warp.swizzle<128>, 3>
    warp.copy %A[%c0, %c0] to %s[] {async, in_bounds = [true, true]} : memref<8x64xf16> to memref<8x64xf16, #warp.swizzle<128>, 3>
    warp.commit cp_async
    warp.wait cp_async 0
    "gpu.return"() : () -> ()
  }) {sym_name = "few", gpu.known_block_size = array<i32: 128, 1, 1>} : () -> ()

  // A column that is a multiple of 4 elements allows pieces of 8 bytes whatever the rows allow.
  // CHECK-LABEL: .visible .entry column(
  // CHECK-NOT:   cp.async.cg
  // CHECK:       cp.async.ca.shared.global [%r{{.*}}], [%rd{{.*}}], 8
  // CHECK-NOT:   cp.async.cg
  // CHECK:       cp.async.commit_group;
  "gpu.func"() <{function_type = (memref<8x256xf16>) -> (), kernel}> ({
  ^bb0(%A: memref<8x256xf16>):
    %c0 = arith.constant 0 : index
    %c4 = arith.constant 4 : index
    %s = memref.alloc() : memref<8x64xf16, #warp.swizzle<128>, 3>
    warp.copy %A[%c0, %c4] to %s[] {async} : memref<8x256xf16> to memref<8x64xf16, #warp.swizzle<128>, 3>
    warp.commit cp_async
    warp.wait cp_async 0
    "gpu.return"() : () -> ()
  }) {sym_name = "column", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

}) : () -> ()
}
