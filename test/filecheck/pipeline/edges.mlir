// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80},warp-fold-fill,warp-schedule,warp-outline,warp-tile,warp-pipeline,warp-expand,convert-warp-to-ptx" -t ptx | filecheck %s
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80},warp-fold-fill,warp-schedule,warp-outline,warp-tile" | warploom-opt -p warp-pipeline,warp-expand,convert-warp-to-ptx -t ptx | filecheck %s

// Sizes that are multiples of nothing: C is read and written element by element, each predicated.
// CHECK-LABEL: .visible .entry odd(
// CHECK:         @%p{{[0-9]+}} ld.global.f32
// CHECK:         loop_1:
// CHECK:         mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
// CHECK:         @%p{{[0-9]+}} st.global.f32
// CHECK:         ret;
func.func @odd(%A: memref<100x53xbf16>, %B: memref<53x77xbf16>, %C: memref<100x77xf32>) {
  linalg.matmul ins(%A, %B : memref<100x53xbf16>, memref<53x77xbf16>) outs(%C : memref<100x77xf32>)
  return
}

// A 16-bit result starts from zero, is accumulated in f32 and rounded once; then lanes take 16 bytes of a row each.
// CHECK-LABEL: .visible .entry narrow(
// CHECK-NOT:     ld.global.b32
// CHECK:         mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
// CHECK:         cvt.rn.f16x2.f32
// CHECK:         st.shared.b32
// CHECK:         bar.warp.sync -1
// CHECK:         ld.shared.v4.b32
// CHECK:         st.global.v4.b32
// CHECK:         ret;
func.func @narrow(%A: memref<512x512xf16>, %B: memref<512x512xf16>, %C: memref<512x512xf16>) {
  %z = arith.constant 0.0 : f16
  linalg.fill ins(%z : f16) outs(%C : memref<512x512xf16>)
  linalg.matmul ins(%A, %B : memref<512x512xf16>, memref<512x512xf16>) outs(%C : memref<512x512xf16>)
  return
}

// CHECK-LABEL: .visible .entry transposed(
// CHECK:         ldmatrix.sync.aligned.m8n8.x{{[124]}}.trans.shared.b16
// CHECK:         ldmatrix.sync.aligned.m8n8.x{{[124]}}.shared.b16
// CHECK:         ret;
func.func @transposed(%A: memref<64x32xf16>, %B: memref<48x64xf16>, %C: memref<32x48xf32>) {
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%A, %B : memref<64x32xf16>, memref<48x64xf16>) outs(%C : memref<32x48xf32>)
  return
}
