// RUN: warploom-opt %s -p warp-allocate | filecheck %s
// RUN: warploom-opt %s -p warp-allocate | warploom-opt -p warp-allocate | filecheck %s
// RUN: warploom-opt %s -t ptx -p convert-warp-to-ptx | filecheck %s --check-prefix=PTX

// Tiles start at multiples of 1024 bytes and barriers at multiples of 8, one behind the other in order; a launch that
// says nothing gives as much as there is.
builtin.module attributes {warp.target = #warp.target<sm_90a>, gpu.container_module} {

// CHECK-LABEL: func.func @host
// CHECK:         %[[BYTES:\w+]] = arith.constant 5168 : i32
// CHECK-NEXT:    gpu.launch_func @kernels::@k blocks in (%one, %one, %one) threads in (%threads, %one, %one) dynamic_shared_memory_size %[[BYTES]] args(%c : {{.*}})
// A launch that gives more keeps it.
// CHECK-NEXT:    gpu.launch_func @kernels::@k blocks in (%one, %one, %one) threads in (%threads, %one, %one) dynamic_shared_memory_size %more args(%c : {{.*}})
// CHECK-NEXT:    return
func.func @host(%c: memref<64x64xf32>) {
  %one = arith.constant 1 : index
  %threads = arith.constant 32 : index
  %more = arith.constant 9000 : i32
  "gpu.launch_func"(%one, %one, %one, %threads, %one, %one, %c) <{kernel = @kernels::@k, operandSegmentSizes = array<i32: 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 0>}> : (index, index, index, index, index, index, memref<64x64xf32>) -> ()
  "gpu.launch_func"(%one, %one, %one, %threads, %one, %one, %more, %c) <{kernel = @kernels::@k, operandSegmentSizes = array<i32: 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 0>}> : (index, index, index, index, index, index, i32, memref<64x64xf32>) -> ()
  return
}

"gpu.module"() <{sym_name = "kernels"}> ({
  "gpu.func"() <{function_type = (memref<64x64xf32>) -> (), kernel}> ({
  ^bb0(%c: memref<64x64xf32>):
    // CHECK: memref.alloc() {warp.offset = 0 : i64} : memref<16x64xf16
    %a = memref.alloc() : memref<16x64xf16, #warp.swizzle<128>, 3>
    // CHECK: memref.alloc() {warp.offset = 2048 : i64} : memref<8x8xf32
    %b = memref.alloc() : memref<8x8xf32, 3>
    // CHECK: warp.make_barriers {warp.offset = 2304 : i64, arrivals = 1 : i64} : !warp.barriers<3>
    %full = warp.make_barriers {arrivals = 1 : i64} : !warp.barriers<3>
    // CHECK: memref.alloc() {warp.offset = 3072 : i64} : memref<2x16x32xi8
    %d = memref.alloc() : memref<2x16x32xi8, #warp.swizzle<32>, 3>
    // Used after %a: what is given is kept.
    // CHECK: memref.alloc() {warp.offset = 1024 : i64} : memref<16x32xi8
    %e = memref.alloc() {warp.offset = 1024 : i64} : memref<16x32xi8, #warp.swizzle<32>, 3>
    // CHECK: memref.alloc() {warp.offset = 4096 : i64} : memref<32x32xi8
    %f = memref.alloc() : memref<32x32xi8, #warp.swizzle<32>, 3>
    // CHECK: warp.make_barriers {warp.offset = 5120 : i64, arrivals = 1 : i64} : !warp.barriers<6>
    // PTX: mbarrier.init.shared.b64 [%r{{[0-9]+}}+2304], 1;
    // PTX: mbarrier.init.shared.b64 [%r{{[0-9]+}}+5120], 1;
    %empty = warp.make_barriers {arrivals = 1 : i64} : !warp.barriers<6>
    "gpu.return"() : () -> ()
  }) {sym_name = "k", gpu.known_block_size = array<i32: 32, 1, 1>} : () -> ()
}) : () -> ()
}
