// RUN: warploom-opt %s -p warp-tile | filecheck %s

builtin.module attributes {warp.target = #warp.target<sm_80>} {

// K is cut by looking at A and B in another shape; each part goes to its own matrix of scratch memory.
// CHECK-LABEL: func.func @few(%A: memref<32x256xf16>, %B: memref<256x64xf16>, %C: memref<32x64xf32>)
// CHECK:         %[[PARTS:\w+]] = memref.alloc() : memref<4x32x64xf32>
// CHECK:         %[[A:\w+]] = memref.expand_shape %A {{.*}} : memref<32x256xf16> into memref<32x4x64xf16>
// CHECK:         %[[B:\w+]] = memref.expand_shape %B {{.*}} : memref<256x64xf16> into memref<4x64x64xf16>
// CHECK:         "gpu.launch_func"({{.*}}, %[[A]], %[[B]], %[[PARTS]]) <{kernel = @kernels::@few,
// CHECK:         "gpu.launch_func"({{.*}}, %[[PARTS]], %C) <{kernel = @kernels::@few_sum,
// CHECK:         memref.dealloc %[[PARTS]]
func.func @few(%A: memref<32x256xf16>, %B: memref<256x64xf16>, %C: memref<32x64xf32>) {
  warp.matmul f16 x f16 %A, %B init 0.0 : f32 into %C
      {warp.schedule = #warp.schedule<cta = 32x32x32, warp = 16x16, mma = m16n8k16, stages = 2, swizzle = 128, group = 8, accumulate = f32, split_k = 4>}
      : memref<32x256xf16>, memref<256x64xf16>, memref<32x64xf32>
  return
}

// CHECK:         %[[PART:\w+]] = "gpu.block_id"() <{dimension = #gpu<dim z>}>
// CHECK:         warp.matrix %A[row, %[[PART]], column] : memref<32x4x64xf16>
// CHECK:         warp.matrix %B[%[[PART]], row, column] : memref<4x64x64xf16>
// CHECK:         sym_name = "few"
// The parts are added in their order.
// CHECK:         %[[ZERO:\w+]] = warp.constant 0.000000e+00
// CHECK:         %[[P0:\w+]] = warp.load
// CHECK:         %[[S0:\w+]] = warp.elementwise add %[[ZERO]], %[[P0]]
// CHECK-COUNT-3: warp.elementwise add
// CHECK:         warp.store
// CHECK:         sym_name = "few_sum"
}
