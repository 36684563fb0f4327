// RUN: warploom-opt %s --split-input-file --verify-diagnostics

!pairs = !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>

// expected-error-re @+2 {{warp.exchange: expected only the layout to change, got !warp.fragment<acc, 16x8xf32, {{.*}}> to !warp.fragment<acc, 16x16xf32,}}
func.func @larger(%c: !pairs, %s: memref<4x128xf32, 3>) {
  %r = warp.exchange %c via %s : !pairs, memref<4x128xf32, 3> -> !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

!bytes = !warp.fragment<acc, 16x8xi8, [c1 c2 r0 r1 r2 | c0 r3]>

// expected-error @+2 {{warp.exchange: expected elements of 16, 32 or 64 bits, got s8}}
func.func @narrow(%c: !bytes, %s: memref<4x128xf32, 3>) {
  %r = warp.exchange %c via %s : !bytes, memref<4x128xf32, 3> -> !warp.fragment<acc, 16x8xi8, [c2 r0 r1 r2 r3 | c0 c1]>
  return
}

// -----

!pairs = !warp.fragment<acc, 16x32xf32, [c2 c3 c4 r0 r1 | c0 c1 r2 r3]>

// expected-error @+2 {{warp.exchange: expected base tiles of the result to consist of base tiles of the operand, got 16x8 and 16x32}}
func.func @smaller(%c: !pairs, %s: memref<4x512xf32, 3>) {
  %r = warp.exchange %c via %s : !pairs, memref<4x512xf32, 3> -> !warp.fragment<acc, 16x32xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

!pairs = !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>
!rows = !warp.fragment<acc, 16x16xf32, [c2 c3 r0 r1 r2 | c0 c1 r3]>

// expected-error @+2 {{warp.exchange: expected shared memory with a row of 1024 bytes, or more in multiples of 128, for each warp, got memref<4x128xf32, 3 : i64>}}
func.func @small(%c: !pairs, %s: memref<4x128xf32, 3>) {
  %r = warp.exchange %c via %s : !pairs, memref<4x128xf32, 3> -> !rows
  return
}

// -----

!pairs = !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>
!rows = !warp.fragment<acc, 16x16xf32, [c2 c3 r0 r1 r2 | c0 c1 r3]>

// expected-error @+2 {{warp.exchange: expected shared memory with a row of 1024 bytes, or more in multiples of 128, for each warp, got memref<4x256xf32>}}
func.func @global(%c: !pairs, %s: memref<4x256xf32>) {
  %r = warp.exchange %c via %s : !pairs, memref<4x256xf32> -> !rows
  return
}

// -----

!rows = !warp.fragment<acc, 64x64xf32, [c2 c3 c4 c5 r0 | c0 c1 r1 r2 r3 | r4 r5]>

// expected-error @+2 {{warp.exchange: expected a fragment that one warp holds, got that of 4 warps !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>}}
func.func @warpgroup(%c: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, %s: memref<4x4096xf32, 3>) {
  %r = warp.exchange %c via %s : !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>, memref<4x4096xf32, 3> -> !rows
  return
}

// -----

// expected-error @+2 {{warp.own_row: expected a row of shared memory that has one for each warp, got memref<128xf32, 3 : i64> of memref<4x256xf32, 3 : i64>}}
func.func @row(%s: memref<4x256xf32, 3>) {
  %r = warp.own_row %s : memref<4x256xf32, 3> -> memref<128xf32, 3>
  return
}

// -----

// expected-error @+2 {{warp.own_row: expected a row of shared memory that has one for each warp, got memref<256xf32> of memref<4x256xf32>}}
func.func @global(%s: memref<4x256xf32>) {
  %r = warp.own_row %s : memref<4x256xf32> -> memref<256xf32>
  return
}

// -----

!pairs = !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>

// expected-error @+2 {{warp.store_banked: expected 1024 bytes or more of shared memory, got memref<128xf32, 3 : i64>}}
func.func @short(%c: !pairs, %r: memref<128xf32, 3>) {
  warp.store_banked %c, %r {other = #warp.layout<c2 c3 r0 r1 r2 | c0 c1 r3>} : !pairs, memref<128xf32, 3>
  return
}

// -----

!pairs = !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>

// expected-error @+2 {{warp.load_banked: expected base tiles of the result to consist of base tiles of the operand, got 16x8 and 16x16}}
func.func @tiles(%r: memref<256xf32, 3>) {
  %c = warp.load_banked %r {other = #warp.layout<c2 c3 r0 r1 r2 | c0 c1 r3>} : memref<256xf32, 3> -> !pairs
  return
}
