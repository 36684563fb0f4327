// RUN: warploom-opt %s --split-input-file --verify-diagnostics

!pairs = !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>

// expected-error-re @+2 {{warp.convert_layout: expected only the layout and the operand to change, got !warp.fragment<acc, 16x8xf32, {{.*}}> to !warp.fragment<acc, 16x16xf32,}}
func.func @larger(%c: !pairs, %s: memref<4x128xf32, 3>) {
  %r = warp.convert_layout %c via %s : !pairs via memref<4x128xf32, 3> to !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

!bytes = !warp.fragment<acc, 16x8xi8, [c1 c2 r0 r1 r2 | c0 r3]>

// expected-error @+2 {{warp.convert_layout: expected elements of 16, 32 or 64 bits, got s8}}
func.func @narrow(%c: !bytes, %s: memref<4x128xf32, 3>) {
  %r = warp.convert_layout %c via %s : !bytes via memref<4x128xf32, 3> to !warp.fragment<acc, 16x8xi8, [c2 r0 r1 r2 r3 | c0 c1]>
  return
}

// -----

!pairs = !warp.fragment<acc, 16x32xf32, [c2 c3 c4 r0 r1 | c0 c1 r2 r3]>

// expected-error @+2 {{warp.convert_layout: expected base tiles of the result to consist of base tiles of the operand, got 16x8 and 16x32}}
func.func @smaller(%c: !pairs, %s: memref<4x512xf32, 3>) {
  %r = warp.convert_layout %c via %s : !pairs via memref<4x512xf32, 3> to !warp.fragment<acc, 16x32xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

!pairs = !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>
!rows = !warp.fragment<acc, 16x16xf32, [c2 c3 r0 r1 r2 | c0 c1 r3]>

// expected-error @+2 {{warp.convert_layout: expected shared memory with a row of 1024 bytes, or more in multiples of 128, for each warp, got memref<4x128xf32, 3 : i64>}}
func.func @small(%c: !pairs, %s: memref<4x128xf32, 3>) {
  %r = warp.convert_layout %c via %s : !pairs via memref<4x128xf32, 3> to !rows
  return
}

// -----

!pairs = !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>
!rows = !warp.fragment<acc, 16x16xf32, [c2 c3 r0 r1 r2 | c0 c1 r3]>

// expected-error @+2 {{warp.convert_layout: expected shared memory with a row of 1024 bytes, or more in multiples of 128, for each warp, got memref<4x256xf32>}}
func.func @global(%c: !pairs, %s: memref<4x256xf32>) {
  %r = warp.convert_layout %c via %s : !pairs via memref<4x256xf32> to !rows
  return
}

// -----

!rows = !warp.fragment<acc, 64x64xf32, [c2 c3 c4 c5 r2 | c0 c1 r3 r4 r5 | r0 r1]>

// expected-error @+2 {{warp.convert_layout: expected the warps to keep their rows, got !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]> to !warp.fragment<acc, 64x64xf32, [c2 c3 c4 c5 r2 | c0 c1 r3 r4 r5 | r0 r1]>}}
func.func @warpgroup(%c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %s: memref<4x4096xf32, 3>) {
  %r = warp.convert_layout %c via %s : !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]> via memref<4x4096xf32, 3> to !rows
  return
}
