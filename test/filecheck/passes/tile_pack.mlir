// RUN: warploom-opt %s -p warp-outline,warp-tile,warp-pack | filecheck %s
// RUN: warploom-opt %s -p warp-outline,warp-tile,warp-pack,warp-pipeline,warp-expand,convert-warp-to-ptx | filecheck %s --check-prefix=PTX
// RUN: warploom-opt %s --remarks -p warp-outline,warp-pack -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK

// REMARK: tile_pack.mlir:{{[0-9]+}}:3: remark: warp-pack: operands stay as they lie: packing takes tiles that are copied

builtin.module attributes {warp.target = #warp.target<sm_80>} {

// Scratch memory of whole tiles; one kernel packs both operands, A as it lies: k down the rows.
// CHECK-LABEL: func.func @odd(%A: memref<53x33xf16>, %B: memref<53x77xf16>, %C: memref<33x77xf32>)
// CHECK:         %[[A:\w+]] = memref.alloc() : memref<64x64xf16>
// CHECK:         %[[B:\w+]] = memref.alloc() : memref<64x96xf16>
// CHECK:         gpu.launch_func @kernels::@odd_pack blocks in ({{.*}}) args(%A : {{.*}}, %[[A]] : {{.*}}, %B : {{.*}}, %[[B]] : {{.*}})
// CHECK:         gpu.launch_func @kernels::@odd blocks in ({{.*}}) args(%[[A]] : {{.*}}, %[[B]] : {{.*}}, %C : {{.*}})
// CHECK-DAG:     memref.dealloc %[[A]]
// CHECK-DAG:     memref.dealloc %[[B]]
// CHECK:         return
func.func @odd(%A: memref<53x33xf16>, %B: memref<53x77xf16>, %C: memref<33x77xf32>) {
  warp.matmul f16 x f16 %A, %B init 0.0 : f32 into %C
      maps [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
      {warp.schedule = #warp.schedule<cta = 32x32x32, warp = 16x16, mma = m16n8k16, stages = 2, swizzle = 128, group = 8, accumulate = f32, pack = ab>}
      : memref<53x33xf16>, memref<53x77xf16>, memref<33x77xf32>
  return
}

// CHECK:         gpu.func @odd_pack(
// CHECK:         %[[CTA:\w+]] = gpu.block_id
// CHECK-NEXT:    warp.pack %A to %A_packed share %[[CTA]] {shares = 2 : i64} : memref<53x33xf16> to memref<64x64xf16>
// CHECK-NEXT:    warp.pack %B to %B_packed share %[[CTA]] {shares = 2 : i64} : memref<53x77xf16> to memref<64x96xf16>
// What is packed needs no bounds.
// CHECK:         warp.copy %A_packed{{.*}} {in_bounds = [true, true]} : memref<64x64xf16> to
// CHECK:         warp.copy %B_packed{{.*}} {in_bounds = [true, true]} : memref<64x96xf16> to

// Rows of 66 bytes: five words, each pair shifted together; 16 aligned bytes are written.
// PTX-LABEL:     odd_pack
// PTX-COUNT-5:   ld.global.b32
// PTX-COUNT-4:   shf.r.wrap.b32
// PTX:           st.global.v4.b32
}
