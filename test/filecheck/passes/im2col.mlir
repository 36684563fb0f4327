// RUN: warploom-opt %s -p warp-set-target,warp-bufferize,warp-raise-matmul,warp-fold-fill,warp-fuse-epilogue,warp-im2col | filecheck %s
// RUN: warploom-opt %s -p warp-set-target,warp-bufferize,warp-raise-matmul,warp-fold-fill,warp-fuse-epilogue,warp-im2col | warploom-opt | filecheck %s
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80},warp-bufferize,warp-raise-matmul,warp-im2col" | filecheck %s --check-prefix=ROWS
// RUN: warploom-opt %s -p warp-set-target,warp-bufferize,warp-raise-matmul,warp-im2col --remarks 2>&1 | filecheck %s --check-prefix=REMARK
// RUN: warploom-opt %s -p "warploom-schedule,warp-lay-out,warp-outline,warp-stage,warp-fragments,warp-epilogue,warp-specialise" | filecheck %s --check-prefix=COPIES

#id = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>

// The zeros around the images are in no memory; each pixel of the result is a row.
// CHECK-LABEL: func.func @padded
// CHECK-NOT:     memref.alloc
// CHECK:         %[[A:\w+]] = warp.im2col %X taps [3, 3] pixels [7, 4] steps [1, 2] dilations [1, 1] low [1, 1] {joined} : memref<2x7x7x64xbf16> -> memref<56x576xbf16, strided<[128, 1]>>
// CHECK:         %[[B:\w+]] = memref.collapse_shape %W {{\[\[}}0 : i64, 1 : i64, 2 : i64], [3 : i64]]
// CHECK:         %[[D:\w+]] = memref.collapse_shape %{{.*}} {{\[\[}}0 : i64, 1 : i64, 2 : i64], [3 : i64]] : memref<2x7x4x96xbf16> into memref<56x96xbf16>
// CHECK:         warp.matmul bf16 x bf16 %[[A]], %[[B]] init 0.000000e+00 : bf16 into %[[D]] : memref<56x576xbf16, strided<[128, 1]>>, memref<576x96xbf16>, memref<56x96xbf16>
// ROWS-LABEL:  func.func @padded
// ROWS:          warp.window
// ROWS-NOT:      warp.im2col
// COPIES-LABEL: gpu.func @padded
// COPIES:       warp.tensor_load %A_map[%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}] offsets[%{{.*}}, %{{.*}}] to %{{.*}} : !warp.tensor_map<64x64xbf16, swizzle 128, im2col 4> to
func.func @padded(%X: tensor<2x7x7x64xbf16>, %W: tensor<3x3x64x96xbf16>) -> tensor<2x7x4x96xbf16> {
  %z = arith.constant 0.0 : bf16
  %p = tensor.pad %X low[0, 1, 1, 0] high[0, 1, 1, 0] {
  ^bb0(%i: index, %j: index, %k: index, %l: index):
    tensor.yield %z : bf16
  } : tensor<2x7x7x64xbf16> to tensor<2x9x9x64xbf16>
  %e = tensor.empty() : tensor<2x7x4x96xbf16>
  %f = linalg.fill ins(%z : bf16) outs(%e : tensor<2x7x4x96xbf16>) -> tensor<2x7x4x96xbf16>
  %c = linalg.conv_2d_nhwc_hwcf {strides = dense<[1, 2]> : tensor<2xi64>, dilations = dense<1> : tensor<2xi64>}
      ins(%p, %W : tensor<2x9x9x64xbf16>, tensor<3x3x64x96xbf16>) outs(%f : tensor<2x7x4x96xbf16>) -> tensor<2x7x4x96xbf16>
  return %c : tensor<2x7x4x96xbf16>
}

// Images that are written where zeros are around them are written to memory of their own instead: here the copy of what
// is overwritten behind it, below what another product makes.
// CHECK-LABEL: func.func @overwritten
// CHECK:         %[[Q:\w+]] = memref.alloc() : memref<1x4x4x64xbf16>
// CHECK-NEXT:    linalg.copy ins(%X : {{.*}}) outs(%[[Q]]
// CHECK-NEXT:    linalg.fill ins(%z : bf16) outs(%X
// CHECK-NEXT:    warp.im2col %[[Q]] {{.*}} low [1, 1] {joined} : memref<1x4x4x64xbf16>
func.func @overwritten(%X: memref<1x4x4x64xbf16>, %W: memref<3x3x64x64xbf16>, %Y: memref<1x4x4x64xbf16>) {
  %z = arith.constant 0.0 : bf16
  %P = memref.alloc() : memref<1x6x6x64xbf16>
  linalg.fill ins(%z : bf16) outs(%P : memref<1x6x6x64xbf16>)
  %S = memref.subview %P[0, 1, 1, 0] [1, 4, 4, 64] [1, 1, 1, 1] : memref<1x6x6x64xbf16> to memref<1x4x4x64xbf16, strided<[2304, 384, 64, 1], offset: 448>>
  linalg.copy ins(%X : memref<1x4x4x64xbf16>) outs(%S : memref<1x4x4x64xbf16, strided<[2304, 384, 64, 1], offset: 448>>)
  linalg.fill ins(%z : bf16) outs(%X : memref<1x4x4x64xbf16>)
  linalg.conv_2d_nhwc_hwcf ins(%P, %W : memref<1x6x6x64xbf16>, memref<3x3x64x64xbf16>) outs(%Y : memref<1x4x4x64xbf16>)
  return
}

// CHECK-LABEL: func.func @chained
// CHECK-NOT:     linalg
// CHECK:         %[[Q:\w+]] = memref.alloc() : memref<1x4x4x64xbf16>
// CHECK:         warp.im2col %X {{.*}} low [1, 1] {joined}
// CHECK:         %[[D:\w+]] = memref.collapse_shape %[[Q]]
// CHECK:         warp.matmul {{.*}} into %[[D]]
// CHECK:         warp.im2col %[[Q]] {{.*}} low [1, 1] {joined}
func.func @chained(%X: memref<1x4x4x64xbf16>, %W: memref<3x3x64x64xbf16>, %Y: memref<1x4x4x64xbf16>) {
  %z = arith.constant 0.0 : bf16
  %P = memref.alloc() : memref<1x6x6x64xbf16>
  linalg.fill ins(%z : bf16) outs(%P : memref<1x6x6x64xbf16>)
  %S = memref.subview %P[0, 1, 1, 0] [1, 4, 4, 64] [1, 1, 1, 1] : memref<1x6x6x64xbf16> to memref<1x4x4x64xbf16, strided<[2304, 384, 64, 1], offset: 448>>
  linalg.copy ins(%X : memref<1x4x4x64xbf16>) outs(%S : memref<1x4x4x64xbf16, strided<[2304, 384, 64, 1], offset: 448>>)
  %Q = memref.alloc() : memref<1x6x6x64xbf16>
  linalg.fill ins(%z : bf16) outs(%Q : memref<1x6x6x64xbf16>)
  %T = memref.subview %Q[0, 1, 1, 0] [1, 4, 4, 64] [1, 1, 1, 1] : memref<1x6x6x64xbf16> to memref<1x4x4x64xbf16, strided<[2304, 384, 64, 1], offset: 448>>
  linalg.fill ins(%z : bf16) outs(%T : memref<1x4x4x64xbf16, strided<[2304, 384, 64, 1], offset: 448>>)
  linalg.conv_2d_nhwc_hwcf ins(%P, %W : memref<1x6x6x64xbf16>, memref<3x3x64x64xbf16>) outs(%T : memref<1x4x4x64xbf16, strided<[2304, 384, 64, 1], offset: 448>>)
  linalg.fill ins(%z : bf16) outs(%Y : memref<1x4x4x64xbf16>)
  linalg.conv_2d_nhwc_hwcf ins(%Q, %W : memref<1x6x6x64xbf16>, memref<3x3x64x64xbf16>) outs(%Y : memref<1x4x4x64xbf16>)
  return
}

// Channels in rows of 24 bytes are no place for a box: they are copied to rows of 32.
// CHECK-LABEL: func.func @narrow
// CHECK:         %[[R:\w+]] = memref.alloc() : memref<1x6x6x16xbf16>
// CHECK:         %[[X:\w+]] = memref.subview %[[R]][0, 0, 0, 0] [1, 6, 6, 12]
// CHECK:         linalg.copy ins(%X : memref<1x6x6x12xbf16>) outs(%[[X]]
// CHECK:         warp.im2col %[[X]] taps [3, 3]
func.func @narrow(%X: memref<1x6x6x12xbf16>, %W: memref<3x3x12x64xbf16>, %Y: memref<1x4x4x64xbf16>) {
  linalg.conv_2d_nhwc_hwcf ins(%X, %W : memref<1x6x6x12xbf16>, memref<3x3x12x64xbf16>) outs(%Y : memref<1x4x4x64xbf16>)
  return
}

// A copy steps over no more than eight pixels.
// CHECK-LABEL: func.func @far
// CHECK-NOT:     warp.im2col
// REMARK: warp-im2col: it stays a product in each row of pixels: a copy steps over at most 8 pixels
func.func @far(%X: memref<1x12x12x64xbf16>, %W: memref<3x3x64x64xbf16>, %Y: memref<1x2x2x64xbf16>) {
  linalg.conv_2d_nhwc_hwcf {strides = dense<[9, 9]> : tensor<2xi64>} ins(%X, %W : memref<1x12x12x64xbf16>, memref<3x3x64x64xbf16>) outs(%Y : memref<1x2x2x64xbf16>)
  return
}

// The matrices of taps whose channels are no whole boxes stay apart, for zeros to stand behind the channels of each.
// CHECK-LABEL: func.func @apart
// CHECK:         %[[A:\w+]] = warp.im2col %X taps [2, 1] pixels [5, 6] steps [1, 1] dilations [1, 1] low [0, 0] : memref<1x6x6x40xbf16> -> memref<2x1x30x40xbf16, strided<[240, 40, 40, 1]>>
// CHECK:         warp.matmul bf16 x bf16 %[[A]], %W {{.*}} maps [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d4, d3)>, affine_map<(d0, d1, d2, d3, d4) -> (d2, d3)>]
func.func @apart(%X: memref<1x6x6x40xbf16>, %W: memref<2x1x40x64xbf16>, %Y: memref<1x5x6x64xbf16>) {
  linalg.conv_2d_nhwc_hwcf ins(%X, %W : memref<1x6x6x40xbf16>, memref<2x1x40x64xbf16>) outs(%Y : memref<1x5x6x64xbf16>)
  return
}

// The gradient of a filter sums over all pixels; its columns are those of all taps.
// CHECK-LABEL: func.func @by_weights
// CHECK:         %[[B:\w+]] = warp.im2col %X taps [3, 3] pixels [4, 4] steps [1, 1] dilations [1, 1] low [0, 0] {joined} : memref<1x6x6x64xbf16> -> memref<16x576xbf16, strided<[64, 1]>>
// CHECK:         warp.matmul bf16 x bf16 %{{.*}}, %[[B]] {{.*}} maps [affine_map<(d0, d1, d2) -> (d2, d0)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>] : memref<16x32xbf16>, memref<16x576xbf16, strided<[64, 1]>>, memref<32x576xf32>
func.func @by_weights(%X: memref<1x6x6x64xbf16>, %G: memref<1x4x4x32xbf16>, %W: memref<32x3x3x64xf32>) {
  linalg.generic {indexing_maps = [
        affine_map<(f, r, s, c, n, h, w) -> (n, h + r, w + s, c)>, affine_map<(f, r, s, c, n, h, w) -> (n, h, w, f)>,
        affine_map<(f, r, s, c, n, h, w) -> (f, r, s, c)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%X, %G : memref<1x6x6x64xbf16>, memref<1x4x4x32xbf16>) outs(%W : memref<32x3x3x64xf32>) {
  ^bb0(%x: bf16, %g: bf16, %old: f32):
    %0 = arith.extf %x : bf16 to f32
    %1 = arith.extf %g : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %old, %2 : f32
    linalg.yield %3 : f32
  }
  return
}

// What adds to the zeros around which it lies needs them.
// CHECK-LABEL: func.func @added
// CHECK:         %[[P:\w+]] = memref.alloc() : memref<1x6x6x64xbf16>
// CHECK:         warp.matmul {{.*}} plus %[[S:\w+]] into %[[S]]
// CHECK:         warp.im2col %[[P]] {{.*}} low [0, 0] {joined}
func.func @added(%X: memref<1x6x6x64xbf16>, %W: memref<3x3x64x64xbf16>, %Y: memref<1x4x4x64xbf16>) {
  %z = arith.constant 0.0 : bf16
  %P = memref.alloc() : memref<1x6x6x64xbf16>
  linalg.fill ins(%z : bf16) outs(%P : memref<1x6x6x64xbf16>)
  %S = memref.subview %P[0, 1, 1, 0] [1, 4, 4, 64] [1, 1, 1, 1] : memref<1x6x6x64xbf16> to memref<1x4x4x64xbf16, strided<[2304, 384, 64, 1], offset: 448>>
  linalg.conv_2d_nhwc_hwcf ins(%X, %W : memref<1x6x6x64xbf16>, memref<3x3x64x64xbf16>) outs(%S : memref<1x4x4x64xbf16, strided<[2304, 384, 64, 1], offset: 448>>)
  linalg.conv_2d_nhwc_hwcf ins(%P, %W : memref<1x6x6x64xbf16>, memref<3x3x64x64xbf16>) outs(%Y : memref<1x4x4x64xbf16>)
  return
}

// Groups of 64 channels are matrices of a batch; of four channels, 16 are one group, with zeros in its filter.
// CHECK-LABEL: func.func @groups
// CHECK:         %[[X:\w+]] = memref.collapse_shape %X
// CHECK:         warp.im2col %[[X]] taps [3, 2] pixels [4, 6] {{.*}} {joined, groups = 2 : i64} : memref<1x6x7x128xbf16> -> memref<2x24x384xbf16, strided<[64, 128, 1]>>
// CHECK:         %[[F:\w+]] = memref.alloc() : memref<1x64x3x2x64xbf16>
// CHECK:         arith.select
// CHECK:         warp.im2col %{{.*}} taps [3, 2] {{.*}} {joined} : memref<1x6x7x64xbf16> -> memref<24x384xbf16, strided<[64, 1]>>
// CHECK-NEXT:    memref.collapse_shape %[[F]]
func.func @groups(%X: memref<1x6x7x2x64xbf16>, %V: memref<2x64x3x2x64xbf16>, %Y: memref<1x4x6x2x64xf32>,
                  %S: memref<1x6x7x16x4xbf16>, %W: memref<16x4x3x2x4xbf16>, %Z: memref<1x4x6x16x4xf32>) {
  linalg.conv_2d_nhwgc_gfhwc ins(%X, %V : memref<1x6x7x2x64xbf16>, memref<2x64x3x2x64xbf16>) outs(%Y : memref<1x4x6x2x64xf32>)
  linalg.conv_2d_nhwgc_gfhwc ins(%S, %W : memref<1x6x7x16x4xbf16>, memref<16x4x3x2x4xbf16>) outs(%Z : memref<1x4x6x16x4xf32>)
  return
}
