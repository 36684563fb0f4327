// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80},warp-schedule{cta=32,16,16 stages=1},warp-outline,warp-tile" | filecheck %s
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80},warp-schedule{cta=32,16,16 stages=1},warp-outline,warp-tile" | warploom-opt | filecheck %s
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80},warp-schedule{cta=32,16,16 stages=1},warp-outline,warp-tile,convert-warp-to-ptx" -t ptx | filecheck %s --check-prefix=PTX

// The host computes the grid; the kernel takes what it needs from its arguments.
// CHECK-LABEL: func.func @f
// CHECK-DAG:     %[[M:\w+]] = memref.dim %A
// CHECK-DAG:     %[[N:\w+]] = memref.dim %B
// CHECK:         %[[CTAS:\w+]] = arith.muli
// CHECK:         gpu.launch_func @{{.*}} blocks in (%[[CTAS]],
func.func @f(%A: memref<?x64xf16>, %B: memref<64x?xf16> {warp.divisible = 8 : i64}, %C: memref<?x?xf32, strided<[?, 1], offset: ?>>) {
  linalg.matmul ins(%A, %B : memref<?x64xf16>, memref<64x?xf16>) outs(%C : memref<?x?xf32, strided<[?, 1], offset: ?>>)
  return
}

// What the sizes are divisible by decides what needs a bound: rows of B are whole, columns are not known to be.
// CHECK:        gpu.func @{{.*}}(%A: memref<?x64xf16>, %B: memref<64x?xf16>, %C: {{.*}}) kernel attributes {{{.*}} warp.divisible = [1 : i64, 8 : i64, 1 : i64]
// CHECK:          memref.dim %A
// CHECK:          warp.copy %A[{{.*}}] to {{.*}} {in_bounds = [false, true]}
// CHECK:          warp.copy %B[{{.*}}] to {{.*}} {in_bounds = [true, false]}

// Sizes, then strides, come after the address. Rows of B are copied in chunks of 16 bytes.
// PTX:      .param .u64 .ptr .global .align 16 f_A,
// PTX-NEXT: .param .u32 f_A_size0,
// PTX-NEXT: .param .u64 .ptr .global .align 16 f_B,
// PTX-NEXT: .param .u32 f_B_size1,
// PTX-NEXT: .param .u64 .ptr .global .align 4 f_C,
// PTX-NEXT: .param .u32 f_C_size0,
// PTX-NEXT: .param .u32 f_C_size1,
// PTX-NEXT: .param .u64 f_C_stride0
// PTX:      ld.global.v4.b32
