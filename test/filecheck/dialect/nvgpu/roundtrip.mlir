// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

!bar = !nvgpu.mbarrier.group<memorySpace = #gpu.address_space<workgroup>, num_barriers = 4>
!tok = !nvgpu.mbarrier.token
!map = !nvgpu.tensormap.descriptor<tensor = memref<64x64xf16, 3>, swizzle = swizzle_128b, l2promo = none, oob = nan, interleave = none>
!map2 = !nvgpu.tensormap.descriptor<tensor = memref<64x64xf16, 3>, swizzle = none, l2promo = l2promo_128b, oob = zero, interleave = interleave_16b>
func.func @f(%src: memref<128x128xf32>, %dst: memref<3x16x128xf32, 3>, %i: index, %p: i1, %m: !map, %s: memref<64x64xf16,3>, %mask: i16, %m2: !map2, %u: memref<*xf16>, %out: memref<64x64xf32>) {
  // CHECK: nvgpu.device_async_copy %{{[a-z0-9_]+}}[%{{[a-z0-9_]+}}, %{{[a-z0-9_]+}}], %{{[a-z0-9_]+}}[%{{[a-z0-9_]+}}, %{{[a-z0-9_]+}}, %{{[a-z0-9_]+}}], 4, %{{[a-z0-9_]+}} {bypassL1} : memref<128x128xf32> to memref<3x16x128xf32, 3 : i64>
  %0 = nvgpu.device_async_copy %src[%i, %i], %dst[%i, %i, %i], 4, %i {bypassL1} : memref<128x128xf32> to memref<3x16x128xf32, 3>
  // CHECK: nvgpu.device_async_create_group %{{[a-z0-9_]+}}
  %1 = nvgpu.device_async_create_group %0
  // CHECK: nvgpu.device_async_wait %{{[a-z0-9_]+}} {numGroups = 1 : i32}
  nvgpu.device_async_wait %1 {numGroups = 1 : i32}
  // CHECK: nvgpu.mbarrier.create -> <memorySpace = #gpu.address_space<workgroup>, num_barriers = 4>
  %b = nvgpu.mbarrier.create -> !bar
  // CHECK: nvgpu.mbarrier.init %{{[a-z0-9_]+}}[%{{[a-z0-9_]+}}], %{{[a-z0-9_]+}}, predicate = %{{[a-z0-9_]+}} : <memorySpace = #gpu.address_space<workgroup>, num_barriers = 4>
  nvgpu.mbarrier.init %b[%i], %i, predicate = %p : !bar
  // CHECK: nvgpu.mbarrier.init %{{[a-z0-9_]+}}[%{{[a-z0-9_]+}}], %{{[a-z0-9_]+}} : <memorySpace = #gpu.address_space<workgroup>, num_barriers = 4>
  nvgpu.mbarrier.init %b[%i], %i : !bar
  // CHECK: nvgpu.mbarrier.arrive %{{[a-z0-9_]+}}[%{{[a-z0-9_]+}}] : <memorySpace = #gpu.address_space<workgroup>, num_barriers = 4> -> !nvgpu.mbarrier.token
  %t = nvgpu.mbarrier.arrive %b[%i] : !bar -> !tok
  // CHECK: nvgpu.mbarrier.arrive.nocomplete %{{[a-z0-9_]+}}[%{{[a-z0-9_]+}}], %{{[a-z0-9_]+}} : <memorySpace = #gpu.address_space<workgroup>, num_barriers = 4> -> !nvgpu.mbarrier.token
  %t2 = nvgpu.mbarrier.arrive.nocomplete %b[%i], %i : !bar -> !tok
  // CHECK: nvgpu.mbarrier.test.wait %{{[a-z0-9_]+}}[%{{[a-z0-9_]+}}], %{{[a-z0-9_]+}} : <memorySpace = #gpu.address_space<workgroup>, num_barriers = 4>, !nvgpu.mbarrier.token
  %w = nvgpu.mbarrier.test.wait %b[%i], %t : !bar, !tok
  // CHECK: nvgpu.mbarrier.arrive.expect_tx %{{[a-z0-9_]+}}[%{{[a-z0-9_]+}}], %{{[a-z0-9_]+}}, predicate = %{{[a-z0-9_]+}} : <memorySpace = #gpu.address_space<workgroup>, num_barriers = 4>
  nvgpu.mbarrier.arrive.expect_tx %b[%i], %i, predicate = %p : !bar
  // CHECK: nvgpu.mbarrier.try_wait.parity %{{[a-z0-9_]+}}[%{{[a-z0-9_]+}}], %{{[a-z0-9_]+}}, %{{[a-z0-9_]+}} : <memorySpace = #gpu.address_space<workgroup>, num_barriers = 4>
  nvgpu.mbarrier.try_wait.parity %b[%i], %p, %i : !bar
  // CHECK: nvgpu.mbarrier.get %{{[a-z0-9_]+}}[%{{[a-z0-9_]+}}] : <memorySpace = #gpu.address_space<workgroup>, num_barriers = 4> -> i64
  %g = nvgpu.mbarrier.get %b[%i] : !bar -> i64
  // CHECK: nvgpu.tma.fence.descriptor %{{[a-z0-9_]+}} : <tensor = memref<64x64xf16, 3 : i64>, swizzle = swizzle_128b, l2promo = none, oob = nan, interleave = none>
  nvgpu.tma.fence.descriptor %m : !map
  // CHECK: nvgpu.tma.prefetch.descriptor %{{[a-z0-9_]+}}, predicate = %{{[a-z0-9_]+}} : <tensor = memref<64x64xf16, 3 : i64>, swizzle = swizzle_128b, l2promo = none, oob = nan, interleave = none>
  nvgpu.tma.prefetch.descriptor %m, predicate = %p : !map
  // CHECK: nvgpu.tma.prefetch.descriptor %{{[a-z0-9_]+}} : <tensor = memref<64x64xf16, 3 : i64>, swizzle = none, l2promo = l2promo_128b, oob = zero, interleave = interleave_16b>
  nvgpu.tma.prefetch.descriptor %m2 : !map2
  // CHECK: nvgpu.tma.async.load %{{[a-z0-9_]+}}[%{{[a-z0-9_]+}}, %{{[a-z0-9_]+}}], %{{[a-z0-9_]+}}[%{{[a-z0-9_]+}}] to %{{[a-z0-9_]+}} multicast_mask = %{{[a-z0-9_]+}}, predicate = %{{[a-z0-9_]+}} : <tensor = memref<64x64xf16, 3 : i64>, swizzle = swizzle_128b, l2promo = none, oob = nan, interleave = none>, <memorySpace = #gpu.address_space<workgroup>, num_barriers = 4> -> memref<64x64xf16, 3 : i64>
  nvgpu.tma.async.load %m[%i, %i], %b[%i] to %s multicast_mask = %mask, predicate = %p : !map, !bar -> memref<64x64xf16, 3>
  // CHECK: nvgpu.tma.async.load %{{[a-z0-9_]+}}[%{{[a-z0-9_]+}}, %{{[a-z0-9_]+}}], %{{[a-z0-9_]+}}[%{{[a-z0-9_]+}}] to %{{[a-z0-9_]+}} : <tensor = memref<64x64xf16, 3 : i64>, swizzle = swizzle_128b, l2promo = none, oob = nan, interleave = none>, <memorySpace = #gpu.address_space<workgroup>, num_barriers = 4> -> memref<64x64xf16, 3 : i64>
  nvgpu.tma.async.load %m[%i, %i], %b[%i] to %s : !map, !bar -> memref<64x64xf16, 3>
  // CHECK: nvgpu.tma.async.store %{{[a-z0-9_]+}} to %{{[a-z0-9_]+}}[%{{[a-z0-9_]+}}, %{{[a-z0-9_]+}}], predicate = %{{[a-z0-9_]+}} : memref<64x64xf16, 3 : i64> -> <tensor = memref<64x64xf16, 3 : i64>, swizzle = swizzle_128b, l2promo = none, oob = nan, interleave = none>
  nvgpu.tma.async.store %s to %m[%i, %i], predicate = %p : memref<64x64xf16, 3> -> !map
  // CHECK: nvgpu.tma.create.descriptor %{{[a-z0-9_]+}} box[%{{[a-z0-9_]+}}, %{{[a-z0-9_]+}}] : memref<*xf16> -> <tensor = memref<64x64xf16, 3 : i64>, swizzle = swizzle_128b, l2promo = none, oob = nan, interleave = none>
  %mm = nvgpu.tma.create.descriptor %u box[%i, %i] : memref<*xf16> -> !map
  // CHECK: nvgpu.warpgroup.generate.descriptor %{{[a-z0-9_]+}}, %{{[a-z0-9_]+}} : memref<64x64xf16, 3 : i64>, <tensor = memref<64x64xf16, 3 : i64>, swizzle = swizzle_128b, l2promo = none, oob = nan, interleave = none> -> <tensor = memref<64x64xf16, 3 : i64>>
  %d = nvgpu.warpgroup.generate.descriptor %s, %m : memref<64x64xf16, 3>, !map -> !nvgpu.warpgroup.descriptor<tensor = memref<64x64xf16, 3>>
  // CHECK: nvgpu.warpgroup.mma.init.accumulator -> <fragmented = vector<64x64xf32>>
  %c = nvgpu.warpgroup.mma.init.accumulator -> !nvgpu.warpgroup.accumulator<fragmented = vector<64x64xf32>>
  // CHECK: nvgpu.warpgroup.mma %{{[a-z0-9_]+}}, %{{[a-z0-9_]+}}, %{{[a-z0-9_]+}} {transposeB} : <tensor = memref<64x64xf16, 3 : i64>>, <tensor = memref<64x64xf16, 3 : i64>>, <fragmented = vector<64x64xf32>> -> <fragmented = vector<64x64xf32>>
  %e = nvgpu.warpgroup.mma %d, %d, %c {transposeB} : !nvgpu.warpgroup.descriptor<tensor = memref<64x64xf16, 3>>, !nvgpu.warpgroup.descriptor<tensor = memref<64x64xf16, 3>>, !nvgpu.warpgroup.accumulator<fragmented = vector<64x64xf32>> -> !nvgpu.warpgroup.accumulator<fragmented = vector<64x64xf32>>
  // CHECK: nvgpu.warpgroup.mma.store %{{[a-z0-9_]+}}, %{{[a-z0-9_]+}} : <fragmented = vector<64x64xf32>> to memref<64x64xf32>
  nvgpu.warpgroup.mma.store %e, %out : !nvgpu.warpgroup.accumulator<fragmented = vector<64x64xf32>> to memref<64x64xf32>
  return
}
func.func @g(%v: vector<4xf32>, %a: vector<4x2xf16>, %bb: vector<4x2xf16>, %cc: vector<2x2xf16>, %meta: vector<2xi16>, %s: memref<64x64xf16, 3>, %i: index) {
  // CHECK: nvgpu.rcp %{{[a-z0-9_]+}} {rounding = approx, ftz} : vector<4xf32>
  %r = nvgpu.rcp %v {rounding = approx, ftz} : vector<4xf32>
  // CHECK: nvgpu.mma.sp.sync(%{{[a-z0-9_]+}}, %{{[a-z0-9_]+}}, %{{[a-z0-9_]+}}) metadata(%{{[a-z0-9_]+}}) {mmaShape = [16 : i64, 8 : i64, 32 : i64], sparsitySelector = 1 : i32} : (vector<4x2xf16>, vector<4x2xf16>, vector<2x2xf16>) -> vector<2x2xf16>
  %d = nvgpu.mma.sp.sync(%a, %bb, %cc) metadata(%meta) {mmaShape = [16, 8, 32], sparsitySelector = 1 : i32} : (vector<4x2xf16>, vector<4x2xf16>, vector<2x2xf16>) -> vector<2x2xf16>
  // CHECK: nvgpu.mma.sync(%{{[a-z0-9_]+}}, %{{[a-z0-9_]+}}, %{{[a-z0-9_]+}}) {mmaShape = [16 : i64, 8 : i64, 16 : i64]} : (vector<4x2xf16>, vector<2x2xf16>, vector<2x2xf16>) -> vector<2x2xf16>
  %dense = nvgpu.mma.sync(%a, %cc, %cc) {mmaShape = [16, 8, 16]} : (vector<4x2xf16>, vector<2x2xf16>, vector<2x2xf16>) -> vector<2x2xf16>
  // CHECK: nvgpu.ldmatrix %{{[a-z0-9_]+}}[%{{[a-z0-9_]+}}, %{{[a-z0-9_]+}}] {numTiles = 4 : i32, transpose = false} : memref<64x64xf16, 3 : i64> -> vector<4x2xf16>
  %l = nvgpu.ldmatrix %s[%i, %i] {numTiles = 4 : i32, transpose = false} : memref<64x64xf16, 3> -> vector<4x2xf16>
  return
}
