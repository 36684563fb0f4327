// RUN: warploom-opt %s --split-input-file --verify-diagnostics 2>&1 | filecheck %s

!matrix = !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>
!column = !warp.fragment<acc, 16x1xf32, [x0 x1 r0 r1 r2 | r3]>

// CHECK: error: warp.reduce: expected add, max, min, got sub
func.func @kind(%x: !matrix) {
  %0 = warp.reduce sub %x : !matrix to !column
  return
}

// -----

// CHECK: error: warp.reduce: expected elements of 32 bits, got !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
func.func @narrow(%x: !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %0 = warp.reduce add %x : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x1xf16, [x0 x1 r0 r1 r2 | r3]>
  return
}

// -----

!matrix = !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>

// CHECK: error: warp.reduce: expected a result of !warp.fragment<acc, 16x1xf32, [x0 x1 r0 r1 r2 | r3]> or !warp.fragment<acc, 16x4xf32, [c0 c1 r0 r1 r2 | r3]>, got !warp.fragment<acc, 16x1xf32, [r0 r1 r2 x0 x1 | r3]>
func.func @lanes(%x: !matrix) {
  %0 = warp.reduce max %x : !matrix to !warp.fragment<acc, 16x1xf32, [r0 r1 r2 x0 x1 | r3]>
  return
}

// -----

!matrix = !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>

// CHECK: error: warp.broadcast: expected a column !warp.fragment<acc, 16x1xf32, [x0 x1 r0 r1 r2 | r3]>, got !warp.fragment<acc, 16x4xf32, [c0 c1 r0 r1 r2 | r3]>
func.func @parts(%x: !warp.fragment<acc, 16x4xf32, [c0 c1 r0 r1 r2 | r3]>) {
  %0 = warp.broadcast %x : !warp.fragment<acc, 16x4xf32, [c0 c1 r0 r1 r2 | r3]> to !matrix
  return
}

// -----

// CHECK: error: warp.step: expected numbers of rows or columns, got 'lanes'
func.func @axis(%i: index) {
  %0 = warp.step lanes %i : !warp.fragment<acc, 16x64xi32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// CHECK: error: warp.step: expected elements of i32, got !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>
func.func @numbers(%i: index) {
  %0 = warp.step rows %i : !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// CHECK: error: warp.convert_layout: expected only the layout and the operand to change, got !warp.fragment<acc, 16x8xf32, {{.*}}> to !warp.fragment<acc, 16x16xf32, {{.*}}>
func.func @shape(%x: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %0 = warp.convert_layout %x : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// CHECK: error: warp.convert_layout: expected only the layout and the operand to change, got !warp.fragment<acc, 16x8xf16, {{.*}}> to !warp.fragment<acc, 16x8xbf16, {{.*}}>
func.func @type(%x: !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %0 = warp.convert_layout %x : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// CHECK: error: warp.convert_layout: expected the warps to keep their rows, got
func.func @warps(%x: !warp.fragment<acc, 64x8xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>) {
  %0 = warp.convert_layout %x : !warp.fragment<acc, 64x8xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]> to !warp.fragment<acc, 64x8xf32, [c1 c2 r0 r1 r4 | c0 r5 | r3 r2]>
  return
}
