// RUN: warploom-opt %s -p "warp-set-target{arch=sm_120a},warp-schedule{cta=32,16,512 warp=16,16 stages=3},warp-outline,warp-tile,warp-pipeline,warp-synchronise" | filecheck %s
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_120a},warp-schedule{cta=32,16,512 warp=16,16 stages=3},warp-outline,warp-tile" --print-op-generic | warploom-opt -p warp-pipeline,warp-synchronise | filecheck %s
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_120a},warp-schedule{cta=32,16,512 warp=16,16 stages=3},warp-outline,warp-tile,warp-pipeline,convert-warp-to-ptx" -t ptx | filecheck %s --check-prefix PTX

// Bits go the way of every other type whose neighbours along k are neighbours in memory.
// CHECK: gpu.func
// CHECK: warp.copy %A[%{{.*}}, %{{.*}}] to %[[A:.*]][%{{.*}}] {async, in_bounds = [true, true]} : memref<64x1024xi1> to memref<3x32x512xi1, #warp.swizzle<64>, 3 : i64>
// CHECK: warp.load %[[A]][{{.*}}] {matrices = "x4"} : {{.*}} -> !warp.fragment<a, 16x256xi1, [c5 c6 r0 r1 r2 | c0 c1 c2 c3 c4 r3 c7]>
// CHECK: warp.mma m16n8k256 %{{.*}} {bit_op = "and"} : !warp.fragment<a, 16x256xi1, {{.*}}>, !warp.fragment<b, 256x16xi1, {{.*}}>, !warp.fragment<acc, 16x16xi32, {{.*}}>
// PTX-LABEL: .entry bits(
// PTX: // warp.copy: a 32x512 tile of A to stage 0
// PTX: // warp.mma: multiply 16x16x256 with m16n8k256
// PTX: mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc
func.func @bits(%A: memref<64x1024xi1>, %B: memref<32x1024xi1>, %C: memref<64x32xi32>) {
  warp.matmul and b1 x b1 %A, %B init 0 : i32 into %C
    maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
    : memref<64x1024xi1>, memref<32x1024xi1>, memref<64x32xi32>
  return
}

// Elements of 4 bits are spread over bytes on the way to shared memory, those of 6 bits have one each in memory.
// CHECK: gpu.func
// CHECK: warp.copy %A[%{{.*}}, %{{.*}}] to %[[A:.*]][%{{.*}}] {async, in_bounds = [true, true], packed = "b4x16_p64"} : memref<64x1024xf4E2M1FN> to memref<3x32x512xi8, #warp.swizzle<128>, 3 : i64>
// CHECK: warp.copy %B[%{{.*}}, %{{.*}}] to %[[B:.*]][%{{.*}}] {async, in_bounds = [true, true]} : memref<32x1024xf6E3M2FN> to memref<3x16x512xf6E3M2FN, #warp.swizzle<128>, 3 : i64>
// CHECK: warp.load %[[A]][{{.*}}] {matrices = "x4.b4x16_p64"} : {{.*}} -> !warp.fragment<a, 16x32xf4E2M1FN, [c2 c3 r0 r1 r2 | c0 c1 r3 c4], bytes>
// CHECK: warp.load %[[B]][{{.*}}] {matrices = "x4", swapped} : {{.*}} -> !warp.fragment<b, 32x16xf6E3M2FN, [r2 r3 c0 c1 c2 | r0 r1 r4], bytes>
// CHECK: warp.mma m16n8k32 {{.*}} {kind = "f8f6f4"}
// PTX-LABEL: .entry floats(
// PTX: // warp.copy: a 32x512 tile of A to stage 0
// PTX: cp.async.ca.shared.global [{{.*}}], [{{.*}}], 8
// PTX: ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.b4x16_p64
// PTX: mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32
func.func @floats(%A: memref<64x1024xf4E2M1FN>, %B: memref<32x1024xf6E3M2FN>, %C: memref<64x32xf32>) {
  linalg.matmul_transpose_b ins(%A, %B : memref<64x1024xf4E2M1FN>, memref<32x1024xf6E3M2FN>) outs(%C : memref<64x32xf32>)
  return
}

// Words of four scales, copied beside A and B, serve two steps of the instruction; its tiles share them.
// CHECK: gpu.func
// CHECK: warp.copy %SA[%{{.*}}, %{{.*}}] to %[[SA:.*]][%{{.*}}] {async, in_bounds = [true, true]} : memref<64x32xf8E8M0FNU> to memref<3x32x16xf8E8M0FNU, #warp.swizzle<4>, 3 : i64>
// CHECK: warp.copy %SB[%{{.*}}, %{{.*}}] to %[[SB:.*]][%{{.*}}] {async, in_bounds = [true, true]} : memref<32x32xf8E8M0FNU> to memref<3x16x16xf8E8M0FNU, #warp.swizzle<4>, 3 : i64>
// CHECK: warp.load %[[SA]][{{.*}}] : {{.*}} -> !warp.fragment<scale, 16x2xf8E8M0FNU, [r3 t0 r0 r1 r2 | c0 b0]>
// CHECK: warp.load %[[SB]][{{.*}}] {swapped} : {{.*}} -> !warp.fragment<scale, 2x16xf8E8M0FNU, [c3 t0 c0 c1 c2 | r0 b0]>
// CHECK: warp.mma m16n8k64 {{.*}} scaled %[[W:\w+]], %[[V:\w+]] {kind = "mxf4", selectors = array<i64: 0, 0, 0, 0>}
// CHECK: warp.mma m16n8k64 {{.*}} scaled %[[W]], %[[V]] {kind = "mxf4", selectors = array<i64: 2, 0, 2, 0>}
// PTX-LABEL: .entry scaled(
// PTX: // warp.copy: a 32x16 tile of SA to stage 0
// PTX: // warp.load: fragment scale 16x2 from stage 0
// PTX: ld.shared.b32
// PTX: mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0 {{.*}}, {0, 0}, {{.*}}, {0, 1};
func.func @scaled(%A: memref<64x1024xf4E2M1FN>, %B: memref<32x1024xf4E2M1FN>, %SA: memref<64x32xf8E8M0FNU>, %SB: memref<32x32xf8E8M0FNU>, %C: memref<64x32xf32>) {
  %a = warp.scaled %A, %SA : memref<64x1024xf4E2M1FN>, memref<64x32xf8E8M0FNU>
  %b = warp.scaled %B, %SB : memref<32x1024xf4E2M1FN>, memref<32x32xf8E8M0FNU>
  warp.matmul mxf4 e2m1 x e2m1 %a, %b init 0.0 : f32 into %C
    maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
    : !warp.operand<memref<64x1024xf4E2M1FN>>, !warp.operand<memref<32x1024xf4E2M1FN>>, memref<64x32xf32>
  return
}
