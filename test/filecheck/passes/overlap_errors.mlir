// RUN: warploom-opt %s -p warp-set-target{arch=sm_90a},warp-raise-matmul --split-input-file --verify-diagnostics

// expected-error @+2 {{linalg.matmul: an input (%a) and the result (%a) share elements, which some threads would write before others have read them; write to other memory}}
func.func @a(%a: memref<512x512xf16>, %b: memref<512x512xf16>) {
  linalg.matmul ins(%a, %b : memref<512x512xf16>, memref<512x512xf16>) outs(%a : memref<512x512xf16>)
  return
}

// -----

// expected-error @+2 {{linalg.matmul: an input (%a) and the result (%a) share elements}}
func.func @b(%a: memref<512x512xf16>, %b: memref<512x512xf16>) {
  linalg.matmul ins(%b, %a : memref<512x512xf16>, memref<512x512xf16>) outs(%a : memref<512x512xf16>)
  return
}

// -----

// A fill of the result first changes nothing about that.
// expected-error @+4 {{linalg.matmul: an input (%a) and the result (%a) share elements}}
func.func @both(%a: memref<512x512xf16>) {
  %z = arith.constant 0.0 : f16
  linalg.fill ins(%z : f16) outs(%a : memref<512x512xf16>)
  linalg.matmul ins(%a, %a : memref<512x512xf16>, memref<512x512xf16>) outs(%a : memref<512x512xf16>)
  return
}

// -----

// One row of 64 is in both.
// expected-error @+4 {{linalg.matmul: an input (%x) and the result (%y) share elements}}
func.func @rows(%m: memref<128x64xf16>, %b: memref<64x64xf16>) {
  %x = memref.subview %m[0, 0] [64, 64] [1, 1] : memref<128x64xf16> to memref<64x64xf16, strided<[64, 1]>>
  %y = memref.subview %m[63, 0] [64, 64] [1, 1] : memref<128x64xf16> to memref<64x64xf16, strided<[64, 1], offset: 4032>>
  linalg.matmul ins(%x, %b : memref<64x64xf16, strided<[64, 1]>>, memref<64x64xf16>) outs(%y : memref<64x64xf16, strided<[64, 1], offset: 4032>>)
  return
}

// -----

// So is one corner, of a batch seen in another shape.
// expected-error @+6 {{linalg.batch_matmul: an input (%y) and the result (%z) share elements}}
func.func @corner(%m: memref<8x64x64xf16>, %a: memref<3x33x32xf16>) {
  %w = memref.collapse_shape %m [[0, 1], [2]] : memref<8x64x64xf16> into memref<512x64xf16>
  %v = memref.expand_shape %w [[0, 1], [2]] output_shape [8, 64, 64] : memref<512x64xf16> into memref<8x64x64xf16>
  %y = memref.subview %m[0, 0, 0] [3, 32, 33] [1, 1, 1] : memref<8x64x64xf16> to memref<3x32x33xf16, strided<[4096, 64, 1]>>
  %z = memref.subview %v[2, 31, 31] [3, 33, 33] [1, 1, 1] : memref<8x64x64xf16> to memref<3x33x33xf16, strided<[4096, 64, 1], offset: 10207>>
  linalg.batch_matmul ins(%a, %y : memref<3x33x32xf16>, memref<3x32x33xf16, strided<[4096, 64, 1]>>) outs(%z : memref<3x33x33xf16, strided<[4096, 64, 1], offset: 10207>>)
  return
}

// -----

// All of a memory in another shape, of any size.
// expected-error @+2 {{linalg.matvec: an input (%x) and the result (%x) share elements}}
func.func @vector(%a: memref<?x?xf16>, %x: memref<?xf16>) {
  linalg.matvec ins(%a, %x : memref<?x?xf16>, memref<?xf16>) outs(%x : memref<?xf16>)
  return
}
