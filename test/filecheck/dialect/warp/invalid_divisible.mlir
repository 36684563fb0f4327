// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{warp.is_divisible: expected a divisor of 1 or more, got 0}}
func.func @none(%x: memref<?x?xbf16>) {
  %0 = warp.is_divisible %x by 0 : memref<?x?xbf16>
  return
}

// -----

// expected-error @+2 {{warp.is_divisible: expected a divisor of 1 or more, got -8}}
func.func @negative(%x: memref<?x?xbf16>) {
  %0 = warp.is_divisible %x by -8 : memref<?x?xbf16>
  return
}
