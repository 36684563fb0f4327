// RUN: warploom-opt %s -p warp-set-target{arch=sm_90a},warp-raise-matmul,warp-fold-fill,warp-schedule,warp-outline,warp-tile --split-input-file --verify-diagnostics

// Shifted by one row.
// expected-error @+4 {{linalg.copy: an input (%x) and the output (%y) share elements, which some threads would write before others have read them; write to other memory}}
func.func @shifted(%m: memref<65x64xf32>) {
  %x = memref.subview %m[0, 0] [64, 64] [1, 1] : memref<65x64xf32> to memref<64x64xf32, strided<[64, 1]>>
  %y = memref.subview %m[1, 0] [64, 64] [1, 1] : memref<65x64xf32> to memref<64x64xf32, strided<[64, 1], offset: 64>>
  linalg.copy ins(%x : memref<64x64xf32, strided<[64, 1]>>) outs(%y : memref<64x64xf32, strided<[64, 1], offset: 64>>)
  return
}

// -----

// expected-error @+3 {{linalg.transpose: an input (%x) and the output (%m) share elements}}
func.func @transposed(%m: memref<64x64xf32>) {
  %x = memref.subview %m[0, 0] [64, 64] [1, 1] : memref<64x64xf32> to memref<64x64xf32, strided<[64, 1]>>
  linalg.transpose ins(%x : memref<64x64xf32, strided<[64, 1]>>) outs(%m : memref<64x64xf32>) permutation = [1, 0]
  return
}

// -----

// One row of the output is added to all.
// expected-error @+3 {{linalg.generic: an input (%row) and the output (%m) share elements}}
func.func @row(%m: memref<64x64xf32>) {
  %row = memref.subview %m[5, 0] [1, 64] [1, 1] : memref<64x64xf32> to memref<64xf32, strided<[1], offset: 320>>
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%row : memref<64xf32, strided<[1], offset: 320>>) outs(%m : memref<64x64xf32>) {
  ^bb0(%x: f32, %y: f32):
    %0 = arith.addf %x, %y : f32
    linalg.yield %0 : f32
  }
  return
}

// -----

// A copy that shares elements with what it is copied to is not folded into the product.
// expected-error @+4 {{linalg.copy: an input (%x) and the output (%y) share elements}}
func.func @copied(%m: memref<65x64xf32>, %a: memref<64x64xf16>) {
  %x = memref.subview %m[0, 0] [64, 64] [1, 1] : memref<65x64xf32> to memref<64x64xf32, strided<[64, 1], offset: ?>>
  %y = memref.subview %m[1, 0] [64, 64] [1, 1] : memref<65x64xf32> to memref<64x64xf32, strided<[64, 1], offset: ?>>
  linalg.copy ins(%x : memref<64x64xf32, strided<[64, 1], offset: ?>>) outs(%y : memref<64x64xf32, strided<[64, 1], offset: ?>>)
  linalg.matmul ins(%a, %a : memref<64x64xf16>, memref<64x64xf16>) outs(%y : memref<64x64xf32, strided<[64, 1], offset: ?>>)
  return
}

// -----

// expected-error @+2 {{warp.matmul: A (%a) and the result (%a) share elements}}
func.func @product(%a: memref<64x64xf16>, %b: memref<64x64xf16>) {
  warp.matmul f16 x f16 %a, %b init 0.0 : f16 into %a : memref<64x64xf16>, memref<64x64xf16>, memref<64x64xf16>
  return
}

// -----

// expected-error @+8 {{warp.matmul: an input of the epilogue (%row) and the result (%d) share elements}}
func.func @epilogue(%a: memref<64x64xf16>, %b: memref<64x64xf16>, %d: memref<64x64xf16>) {
  %row = memref.subview %d[5, 0] [1, 64] [1, 1] : memref<64x64xf16> to memref<64xf16, strided<[1], offset: 320>>
  %epilogue = warp.pointwise %row maps [affine_map<(m, n, k) -> (n)>] : memref<64xf16, strided<[1], offset: 320>> (%x: f32, %y: f16) {
    %0 = arith.truncf %x : f32 to f16
    %1 = arith.addf %0, %y : f16
    warp.yield %1 : f16
  }
  warp.matmul f16 x f16 %a, %b init 0.0 : f32 into %d through %epilogue
      : memref<64x64xf16>, memref<64x64xf16>, memref<64x64xf16>
  return
}
