// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error-re @+2 {{warp.store: expected rows of at least 512 bytes, a warp's registers of !warp.fragment<acc, 16x8xf32, {{.*}}>, got memref<4x64xf32>}}
func.func @short_rows(%x: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %m: memref<4x64xf32>, %i: index) {
  warp.store %x, %m[%i, %i] {registers = "vectors"} : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, memref<4x64xf32>
  return
}

// -----

// expected-error @+2 {{warp.load: expected memory of 2 dimensions and whole bytes, got memref<1x1x512xf32>}}
func.func @rank(%m: memref<1x1x512xf32>, %i: index) {
  %x = warp.load %m[%i, %i, %i] {registers = "vectors"} : memref<1x1x512xf32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}
