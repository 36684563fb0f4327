// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

// CHECK-LABEL: func.func @groups
// CHECK:         %group, %first = warp.find_group %ends[%tile] rows 128 x %across : memref<8xi32>
// CHECK-NEXT:    %part = warp.matrix %A[row, column] part[%group, %first] : memref<96x32xf16> -> memref<?x32xf16, strided<[32, 1], offset: ?>>
// CHECK-NEXT:    %map = warp.encode_tensor_map %A [0, 1] parts 0 : memref<96x32xf16> to !warp.tensor_map<1x1x64x32xf16, swizzle 64>
func.func @groups(%ends: memref<8xi32>, %tile: index, %across: index, %A: memref<96x32xf16>) {
  %group, %first = warp.find_group %ends[%tile] rows 128 x %across : memref<8xi32>
  %part = warp.matrix %A[row, column] part [%group, %first] : memref<96x32xf16> -> memref<?x32xf16, strided<[32, 1], offset: ?>>
  %map = warp.encode_tensor_map %A [0, 1] parts 0 : memref<96x32xf16> to !warp.tensor_map<1x1x64x32xf16, swizzle 64>
  return
}

// CHECK-LABEL: func.func @products
// CHECK:         warp.matmul f16 x f16 %A, %B init 0.000000e+00 : f32 into %D grouped by %ends maps [{{.*}}] : memref<96x32xf16>, memref<8x32x64xf16>, memref<96x64xf32> grouped memref<8xi32>
// CHECK-NEXT:    warp.matmul f16 x f16 %A, %X init 0.000000e+00 : f32 into %W grouped by %ends maps [{{.*}}] : memref<96x32xf16>, memref<96x64xf16>, memref<8x32x64xf32> grouped memref<8xi32>
func.func @products(%ends: memref<8xi32>, %A: memref<96x32xf16>, %B: memref<8x32x64xf16>, %D: memref<96x64xf32>, %X: memref<96x64xf16>, %W: memref<8x32x64xf32>) {
  warp.matmul f16 x f16 %A, %B init 0.0 : f32 into %D grouped by %ends
    maps [affine_map<(g, m, n, k) -> (m, k)>, affine_map<(g, m, n, k) -> (g, k, n)>, affine_map<(g, m, n, k) -> (m, n)>]
    : memref<96x32xf16>, memref<8x32x64xf16>, memref<96x64xf32> grouped memref<8xi32>
  warp.matmul f16 x f16 %A, %X init 0.0 : f32 into %W grouped by %ends
    maps [affine_map<(g, m, n, k) -> (k, m)>, affine_map<(g, m, n, k) -> (k, n)>, affine_map<(g, m, n, k) -> (g, m, n)>]
    : memref<96x32xf16>, memref<96x64xf16>, memref<8x32x64xf32> grouped memref<8xi32>
  return
}

// CHECK-LABEL: func.func @blocks
// CHECK:         %a = warp.scaled %A, %SA {across} : memref<64x256xf8E4M3FN>, memref<2x64xf32>
// CHECK-NEXT:    %b = warp.scaled %B, %SB : memref<128x256xf8E4M3FN>, memref<1x2xf32>
// CHECK-NEXT:    warp.matmul e4m3 x e4m3 %a, %b init 0.000000e+00 : f32 into %D maps
func.func @blocks(%A: memref<64x256xf8E4M3FN>, %SA: memref<2x64xf32>, %B: memref<128x256xf8E4M3FN>, %SB: memref<1x2xf32>, %D: memref<64x128xf32>) {
  %a = warp.scaled %A, %SA {across} : memref<64x256xf8E4M3FN>, memref<2x64xf32>
  %b = warp.scaled %B, %SB : memref<128x256xf8E4M3FN>, memref<1x2xf32>
  warp.matmul e4m3 x e4m3 %a, %b init 0.0 : f32 into %D
    maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
    : !warp.operand<memref<64x256xf8E4M3FN>>, !warp.operand<memref<128x256xf8E4M3FN>>, memref<64x128xf32>
  return
}
