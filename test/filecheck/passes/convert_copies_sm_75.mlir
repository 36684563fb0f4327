// RUN: warploom-opt %s -p convert-warp-to-ptx -t ptx | filecheck %s

// Before sm_80 every copy goes through registers, and there is nothing to wait for.

builtin.module attributes {warp.target = #warp.target<sm_75>} {
"gpu.module"() <{sym_name = "kernels"}> ({

  // CHECK-LABEL: .visible .entry inside(
  // CHECK-NOT:   cp.async
  // CHECK:       ld.global.v4.b32
  // CHECK-NEXT:  st.shared.v4.b32
  // CHECK-NOT:   cp.async
  // CHECK:       ret;
  "gpu.func"() <{function_type = (memref<8x64xf16>) -> (), kernel}> ({
  ^bb0(%A: memref<8x64xf16>):
    %c0 = arith.constant 0 : index
    %s = memref.alloc() : memref<8x64xf16, #warp.swizzle<128>, 3>
    warp.copy %A[%c0, %c0] to %s[] {async, in_bounds = [true, true]} : memref<8x64xf16> to memref<8x64xf16, #warp.swizzle<128>, 3>
    warp.commit cp_async
    warp.wait cp_async 0
    "gpu.return"() : () -> ()
  }) {sym_name = "inside", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

  // CHECK-LABEL: .visible .entry edges(
  // CHECK-NOT:   cp.async
  // CHECK:       mov.b32 %r[[Z:[0-9]+]], 0;
  // CHECK-NEXT:  mov.b32 %r[[Y:[0-9]+]], 0;
  // CHECK-NEXT:  @%p{{[0-9]+}} ld.global.v2.b32 {%r[[Z]], %r[[Y]]}, [%rd{{.*}}];
  // CHECK-NEXT:  st.shared.v2.b32 [%r{{.*}}], {%r[[Z]], %r[[Y]]};
  // CHECK-NOT:   cp.async
  // CHECK:       ret;
  "gpu.func"() <{function_type = (memref<8x36xf16>) -> (), kernel}> ({
  ^bb0(%A: memref<8x36xf16>):
    %c0 = arith.constant 0 : index
    %s = memref.alloc() : memref<8x64xf16, #warp.swizzle<128>, 3>
    warp.copy %A[%c0, %c0] to %s[] {async} : memref<8x36xf16> to memref<8x64xf16, #warp.swizzle<128>, 3>
    warp.commit cp_async
    warp.wait cp_async 0
    "gpu.return"() : () -> ()
  }) {sym_name = "edges", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()

}) : () -> ()
}
