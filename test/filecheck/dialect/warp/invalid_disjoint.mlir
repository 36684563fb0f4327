// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{warp.disjoint: expected two views of one memory, got elements of f32 and f16}}
func.func @types(%x: memref<64xf32>, %y: memref<64xf16>) {
  warp.disjoint %x, %y : memref<64xf32>, memref<64xf16>
  return
}
