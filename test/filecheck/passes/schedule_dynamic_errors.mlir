// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80},warp-schedule{pack=a}" --split-input-file --verify-diagnostics

// expected-error @+2 {{schedule: pack = a: packing takes a single matrix of static size without gaps, got memref<?x64xf16>}}
func.func @dynamic(%a: memref<?x64xf16>, %b: memref<64x64xf16>, %c: memref<?x64xf32>) {
  linalg.matmul ins(%a, %b : memref<?x64xf16>, memref<64x64xf16>) outs(%c : memref<?x64xf32>)
  return
}

// -----

// expected-error @+2 {{schedule: pack = a: packing takes a single matrix of static size without gaps, got memref<2x64x64xf16>}}
func.func @batch(%a: memref<2x64x64xf16>, %b: memref<2x64x64xf16>, %c: memref<2x64x64xf32>) {
  linalg.batch_matmul ins(%a, %b : memref<2x64x64xf16>, memref<2x64x64xf16>) outs(%c : memref<2x64x64xf32>)
  return
}

// -----

// expected-error @+2 {{schedule: pack = a: packing takes a single matrix of static size without gaps, got memref<64x64xf16, strided<[72, 1]>>}}
func.func @strided(%a: memref<64x64xf16, strided<[72, 1]>>, %b: memref<64x64xf16>, %c: memref<64x64xf32>) {
  linalg.matmul ins(%a, %b : memref<64x64xf16, strided<[72, 1]>>, memref<64x64xf16>) outs(%c : memref<64x64xf32>)
  return
}
