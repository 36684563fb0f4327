// RUN: warploom-opt %s -p warp-outline,warp-tile | filecheck %s
// RUN: warploom-opt %s -p warp-outline,warp-tile | warploom-opt | filecheck %s

builtin.module attributes {warp.target = #warp.target<sm_80>} {

// CHECK: builtin.module attributes {warp.target = #warp.target<sm_80>, gpu.container_module} {

// The launch: 9 x 3 tiles of 32x32 make 27 CTAs of 4 warps. How much shared memory they take, warp-allocate says.
// CHECK-LABEL: func.func @edges(%A: memref<270x70xf16>, %B: memref<70x80xf16>, %C: memref<270x80xf32>)
// CHECK-DAG:     %[[CTAS:\w+]] = arith.constant 27 : index
// CHECK-DAG:     %[[ONE:\w+]] = arith.constant 1 : index
// CHECK-DAG:     %[[THREADS:\w+]] = arith.constant 128 : index
// CHECK:         gpu.launch_func @kernels::@edges blocks in (%[[CTAS]], %[[ONE]], %[[ONE]]) threads in (%[[THREADS]], %[[ONE]], %[[ONE]]) args(%A : {{.*}}, %B : {{.*}}, %C : {{.*}})
// CHECK-NOT:     linalg
// CHECK:         return
func.func @edges(%A: memref<270x70xf16>, %B: memref<70x80xf16>, %C: memref<270x80xf32>) {
  linalg.matmul {warp.schedule = #warp.schedule<cta = 32x32x32, warp = 16x16, mma = m16n8k16, stages = 2, swizzle = 128, group = 8, accumulate = f32>}
      ins(%A, %B : memref<270x70xf16>, memref<70x80xf16>) outs(%C : memref<270x80xf32>)
  return
}

func.func @transposed(%A: memref<64x32xf16>, %B: memref<64x64xf16>, %C: memref<32x64xf16>) {
  warp.matmul f16 x f16 %A, %B init 0.5 : f16 into %C
      maps [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      {warp.schedule = #warp.schedule<cta = 32x64x16, warp = 32x64, mma = m16n8k8, stages = 1, swizzle = 128, group = 1, accumulate = f32>}
      : memref<64x32xf16>, memref<64x64xf16>, memref<32x64xf16>
  return
}

func.func @twice(%A: memref<16x16xbf16>, %B: memref<16x8xbf16>, %C: memref<16x8xbf16>) {
  linalg.matmul {warp.schedule = #warp.schedule<cta = 16x8x16, warp = 16x8, mma = m16n8k16, stages = 1, swizzle = 128, group = 1, accumulate = f32>}
      ins(%A, %B : memref<16x16xbf16>, memref<16x8xbf16>) outs(%C : memref<16x8xbf16>)
  linalg.matmul {warp.schedule = #warp.schedule<cta = 16x8x16, warp = 16x8, mma = m16n8k16, stages = 1, swizzle = 128, group = 1, accumulate = f32>}
      ins(%A, %B : memref<16x16xbf16>, memref<16x8xbf16>) outs(%C : memref<16x8xbf16>)
  return
}

// The kernel: what C holds is loaded, with bounds, and added to.
// CHECK:      gpu.module @kernels {
// CHECK-NEXT:   gpu.func @edges(%A: memref<270x70xf16>, %B: memref<70x80xf16>, %C: memref<270x80xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>, warp.schedule = #warp.schedule<cta = 32x32x32,
// CHECK:          gpu.block_id x
// CHECK:          arith.minui
// CHECK:          %[[A:\w+]] = memref.alloc() : memref<32x32xf16, #warp.swizzle<64>, 3 : i64>
// CHECK:          %[[B:\w+]] = memref.alloc() : memref<32x32xf16, #warp.swizzle<64>, 3 : i64>
// CHECK:          gpu.subgroup_id
// CHECK:          %[[HELD:\w+]] = warp.load %C[{{.*}}] : memref<270x80xf32> -> !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>
// CHECK:          %[[D:\w+]] = scf.for %[[K:\w+]] = {{.*}} iter_args(%[[ACC:\w+]] = %[[HELD]])
// CHECK-NEXT:       warp.copy %A[{{.*}}, %[[K]]] to %[[A]][] : memref<270x70xf16>
// CHECK-NEXT:       warp.copy %B[%[[K]], {{.*}}] to %[[B]][] : memref<70x80xf16>
// CHECK-NEXT:       gpu.barrier
// CHECK-NEXT:       %[[A0:\w+]] = warp.load %[[A]][{{.*}}] {matrices = "x4"} : {{.*}} -> !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
// CHECK-NEXT:       %[[B0:\w+]] = warp.load %[[B]][{{.*}}] {matrices = "x4.trans"} : {{.*}} -> !warp.fragment<b, 16x16xf16, [r1 r2 c0 c1 c2 | r0 r3]>
// CHECK-NEXT:       %[[D0:\w+]] = warp.mma m16n8k16 %[[A0]], %[[B0]], %[[ACC]]
// CHECK-NEXT:       %[[A1:\w+]] = warp.load %[[A]]{{.*}} {matrices = "x4"}
// CHECK-NEXT:       %[[B1:\w+]] = warp.load %[[B]]{{.*}} {matrices = "x4.trans"}
// CHECK-NEXT:       %[[D1:\w+]] = warp.mma m16n8k16 %[[A1]], %[[B1]], %[[D0]]
// CHECK-NEXT:       gpu.barrier
// CHECK-NEXT:       scf.yield %[[D1]]
// CHECK:          warp.store %[[D]], %C[{{.*}}] : !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<270x80xf32>
// CHECK-NEXT:     gpu.return

// Transposed operands lie in shared memory as they do in global memory; `ldmatrix` turns them.
// Everything inside, so nothing is predicated; one warp needs no number; the result is rounded once.
// CHECK:        gpu.func @transposed({{.*}}: memref<64x32xf16>, %{{.*}}: memref<64x64xf16>, %{{.*}}: memref<32x64xf16>) kernel
// CHECK:          %[[A:\w+]] = memref.alloc() : memref<16x32xf16, #warp.swizzle<64>, 3 : i64>
// CHECK:          %[[B:\w+]] = memref.alloc() : memref<64x16xf16, #warp.swizzle<32>, 3 : i64>
// CHECK-NOT:      gpu.subgroup_id
// CHECK:          warp.constant 5.000000e-01 : f32 : !warp.fragment<acc, 32x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>
// CHECK:          scf.for %[[K:\w+]] =
// CHECK-NEXT:       warp.copy %A[%[[K]], {{.*}}] to %[[A]][] {in_bounds = [true, true]}
// CHECK-NEXT:       warp.copy %B[{{.*}}, %[[K]]] to %[[B]][] {in_bounds = [true, true]}
// CHECK:            warp.load %[[A]][{{.*}}] {matrices = "x4.trans", swapped} : {{.*}} -> !warp.fragment<a, 32x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
// CHECK-NEXT:       warp.load %[[B]][{{.*}}] {matrices = "x4", swapped} : {{.*}} -> !warp.fragment<b, 8x64xf16, [r1 r2 c0 c1 c2 | r0]>
// CHECK-NEXT:       warp.mma m16n8k8
// CHECK:          %[[H:\w+]] = warp.convert {{.*}} : !warp.fragment<acc, 32x64xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 32x64xf16, [c1 c2 r0 r1 r2 | c0 r3]>
// CHECK-NEXT:     warp.store %[[H]], %C[{{.*}}] {in_bounds = [true, true]}

// CHECK:        gpu.func @twice(
// CHECK:        %[[BF:\w+]] = warp.load %C[{{.*}}] {in_bounds = [true, true]} : memref<16x8xbf16> -> !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>
// CHECK-NEXT:   warp.convert %[[BF]] : {{.*}} to !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
// CHECK:        gpu.func @twice_1(
}
