// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80},warp-outline,warp-tile" | filecheck %s
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80},warp-outline,warp-tile" | warploom-opt | filecheck %s
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80},warp-outline,warp-tile,convert-warp-to-ptx" -t ptx | filecheck %s --check-prefix=PTX

// A matrix without gaps is a row; four warps of 512 elements take a CTA's part.
// CHECK-LABEL: func.func @cleared(
// CHECK:         %[[ROW:.*]] = memref.collapse_shape %Y {{\[\[}}0 : i64, 1 : i64]] : memref<64x100xf32> into memref<6400xf32>
// CHECK:         gpu.launch_func @kernels::@cleared{{.*}} blocks in ({{.*}}) args({{.*}}%[[ROW]] : {{.*}})
func.func @cleared(%Y: memref<64x100xf32>) {
  %z = arith.constant 0.5 : f32
  linalg.fill ins(%z : f32) outs(%Y : memref<64x100xf32>)
  return
}

// A vector repeats; the transposed input shares sectors of eight rows.
// CHECK-LABEL: func.func @turned(
func.func @turned(%X: memref<64x48xf32>, %v: memref<64xf32>, %Y: memref<48x64xf32>) {
  linalg.generic {indexing_maps = [affine_map<(m, n) -> (n, m)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%X, %v : memref<64x48xf32>, memref<64xf32>) outs(%Y : memref<48x64xf32>) {
  ^bb0(%x: f32, %w: f32, %old: f32):
    %0 = arith.addf %x, %w : f32
    linalg.yield %0 : f32
  }
  return
}

// Sizes are taken from the output; what the caller promises widens accesses.
// CHECK-LABEL: func.func @unknown(
// CHECK:         memref.dim %Y
// CHECK:         memref.dim %Y
func.func @unknown(%s: f16, %Y: memref<?x?xf16> {warp.divisible = 8 : i64}) {
  linalg.fill ins(%s : f16) outs(%Y : memref<?x?xf16>)
  return
}

// CHECK-LABEL: @kernels
// CHECK:         gpu.func @cleared{{.*}}(%Y: memref<6400xf32>) kernel attributes {{{.*}} warp.computes = "linalg.fill, tiles of 1x512 for each warp"
// CHECK:           %Y_1 = warp.matrix %Y[column] : memref<6400xf32> -> memref<?x6400xf32, strided<[0, 1], offset: ?>>
// CHECK:           %[[C:.*]] = warp.constant 5.000000e-01 : f32 : !warp.fragment<acc, 1x512xf32, [c2 c3 c4 c5 c6 | c0 c1]>
// CHECK-NEXT:      warp.store %[[C]], %Y_1[{{.*}}] {in_bounds = [true, false]}
// CHECK:         gpu.func @turned{{.*}}(%X: memref<64x48xf32>, %v: memref<64xf32>, %Y: memref<48x64xf32>) kernel
// CHECK:           warp.matrix %X[column, row] : memref<64x48xf32> -> memref<48x64xf32, strided<[1, 48], offset: ?>>
// CHECK:           warp.matrix %v[column] : memref<64xf32> -> memref<?x64xf32, strided<[0, 1], offset: ?>>
// CHECK:           warp.load {{.*}} -> !warp.fragment<acc, 32x16xf32, [c2 c3 r0 r1 r2 | c0 c1]>
// CHECK:           warp.map
// CHECK:         gpu.func @unknown{{.*}}(%s: f16, %Y: memref<?x?xf16>) kernel
// CHECK:           warp.map %s : f16 -> !warp.fragment<acc, 2x256xf16, [c3 c4 c5 c6 c7 | c0 c1 c2]> (%{{.*}}: f16) {

// PTX-LABEL: .visible .entry cleared(
// PTX:         // linalg.fill, tiles of 1x512 for each warp
// PTX:         // warp.store: fragment acc 1x512 to Y
// PTX:         st.global.v4.f32
// PTX-LABEL: .visible .entry turned(
// PTX:         // linalg.generic, tiles of 32x16 for each warp
// PTX:         ld.global.f32
// The vector is loaded once for all rows of the tile.
// PTX:         ld.global.v4.f32
// PTX-NOT:     ld.global.v4.f32
// PTX:         st.global.v4.f32
// PTX-LABEL: .visible .entry unknown(
// PTX:         st.global.v4.b32
