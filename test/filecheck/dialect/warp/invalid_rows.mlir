// RUN: warploom-opt %s --split-input-file --verify-diagnostics

!matrix = !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>
!column = !warp.fragment<acc, 16x1xf32, [x0 x1 r0 r1 r2 | r3]>

// expected-error @+2 {{warp.reduce: expected add, mul, max, min, maximum, minimum, got sub}}
func.func @kind(%x: !matrix) {
  %0 = warp.reduce sub %x : !matrix to !column
  return
}

// -----

!matrix = !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>
!column = !warp.fragment<acc, 16x1xf32, [x0 x1 r0 r1 r2 | r3]>

// expected-error @+2 {{warp.reduce: expected max of a fragment of f32 where positive, got add of !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>}}
func.func @positive(%x: !matrix) {
  %0 = warp.reduce add positive %x : !matrix to !column
  return
}

// -----

// expected-error @+2 {{warp.reduce: expected elements of 32 or 64 bits, got !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>}}
func.func @narrow(%x: !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %0 = warp.reduce add %x : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x1xf16, [x0 x1 r0 r1 r2 | r3]>
  return
}

// -----

!matrix = !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>

// expected-error @+2 {{warp.reduce: expected a result of !warp.fragment<acc, 16x1xf32, [x0 x1 r0 r1 r2 | r3]> or !warp.fragment<acc, 16x4xf32, [c0 c1 r0 r1 r2 | r3]>, got !warp.fragment<acc, 16x1xf32, [r0 r1 r2 x0 x1 | r3]>}}
func.func @lanes(%x: !matrix) {
  %0 = warp.reduce max %x : !matrix to !warp.fragment<acc, 16x1xf32, [r0 r1 r2 x0 x1 | r3]>
  return
}

// -----

!matrix = !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>

// expected-error @+2 {{warp.map: expected fragments that differ only in their elements, or columns of them of 32 or 64 bits, got !warp.fragment<acc, 16x4xf32, [c0 c1 r0 r1 r2 | r3]>}}
func.func @parts(%x: !warp.fragment<acc, 16x4xf32, [c0 c1 r0 r1 r2 | r3]>) {
  %0 = warp.map %x : !warp.fragment<acc, 16x4xf32, [c0 c1 r0 r1 r2 | r3]> -> !matrix (%e: f32) {
    warp.yield %e : f32
  }
  return
}

// -----

// expected-error @+2 {{warp.index: expected 0, the loop along rows, or 1, that along columns, got 2}}
func.func @axis(%i: index) {
  %0 = warp.index 2 from %i : !warp.fragment<acc, 16x64xi32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.index: expected elements of i32, got !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>}}
func.func @numbers(%i: index) {
  %0 = warp.index 0 from %i : !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error-re @+2 {{warp.convert_layout: expected only the layout and the operand to change, got !warp.fragment<acc, 16x8xf32, {{.*}}> to !warp.fragment<acc, 16x16xf32, {{.*}}>}}
func.func @shape(%x: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %0 = warp.convert_layout %x : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error-re @+2 {{warp.convert_layout: expected only the layout and the operand to change, got !warp.fragment<acc, 16x8xf16, {{.*}}> to !warp.fragment<acc, 16x8xbf16, {{.*}}>}}
func.func @type(%x: !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %0 = warp.convert_layout %x : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x8xbf16, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.convert_layout: expected the warps to keep their rows, got}}
func.func @warps(%x: !warp.fragment<acc, 64x8xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]>) {
  %0 = warp.convert_layout %x : !warp.fragment<acc, 64x8xf32, [c1 c2 r0 r1 r2 | c0 r3 | r4 r5]> to !warp.fragment<acc, 64x8xf32, [c1 c2 r0 r1 r4 | c0 r5 | r3 r2]>
  return
}

// -----

#mn = affine_map<(m, n) -> (m, n)>

// expected-error @+4 {{warp.reduce: expected add, mul, max, min, maximum, minimum, got neg}}
func.func @across(%x: memref<4x8xf32>, %y: memref<4x8xf32>) {
  warp.rows %x into %y {indexing_maps = [#mn, #mn]} : memref<4x8xf32> into memref<4x8xf32> {
  ^bb0(%a: f32):
    %0 = warp.reduce neg %a : f32 to f32
    warp.yield %0 : f32
  }
  return
}

// -----

#mn = affine_map<(m, n) -> (m, n)>

// expected-error @+2 {{warp.rows: expected a map of each input and of the output, got 1}}
func.func @maps(%x: memref<4x8xf32>, %y: memref<4x8xf32>) {
  warp.rows %x into %y {indexing_maps = [#mn]} : memref<4x8xf32> into memref<4x8xf32> {
  ^bb0(%a: f32):
    warp.yield %a : f32
  }
  return
}

// -----

#mn = affine_map<(m, n) -> (m, n)>
#nm = affine_map<(m, n) -> (n, m)>

// expected-error @+2 {{warp.rows: expected the output to be indexed by all loops, or all but the last, got (d0, d1) -> (d1, d0)}}
func.func @output(%x: memref<4x8xf32>, %y: memref<8x4xf32>) {
  warp.rows %x into %y {indexing_maps = [#mn, #nm]} : memref<4x8xf32> into memref<8x4xf32> {
  ^bb0(%a: f32):
    warp.yield %a : f32
  }
  return
}

// -----

#mn = affine_map<(m, n) -> (m, n)>
#m = affine_map<(m, n) -> (m)>

// expected-error @+2 {{warp.rows: expected input 0 and the output to agree on d0, got 4 and 5}}
func.func @sizes(%x: memref<4x8xf32>, %y: memref<5xf32>) {
  warp.rows %x into %y {indexing_maps = [#mn, #m]} : memref<4x8xf32> into memref<5xf32> {
  ^bb0(%a: f32):
    %0 = warp.reduce add %a : f32 to f32
    warp.yield %0 : f32
  }
  return
}

// -----

#mn = affine_map<(m, n) -> (m, n)>
#m = affine_map<(m, n) -> (m)>

// expected-error @+2 {{warp.rows: expected an input that is indexed by d1}}
func.func @no_row(%x: memref<4xf32>, %y: memref<4xf32>) {
  warp.rows %x into %y {indexing_maps = [#m, #m]} : memref<4xf32> into memref<4xf32> {
  ^bb0(%a: f32):
    warp.yield %a : f32
  }
  return
}

// -----

#mn = affine_map<(m, n) -> (m, n)>

// expected-error @+2 {{warp.rows: expected elements of f16, bf16 or f32, got f64}}
func.func @wide(%x: memref<4x8xf64>, %y: memref<4x8xf64>) {
  warp.rows %x into %y {indexing_maps = [#mn, #mn]} : memref<4x8xf64> into memref<4x8xf64> {
  ^bb0(%a: f64):
    warp.yield %a : f64
  }
  return
}

// -----

#mn = affine_map<(m, n) -> (m, n)>
#mm = affine_map<(m, n) -> (m, m)>

// expected-error @+2 {{warp.rows: expected input 0 to be indexed by some of d0, d1, each once, got (d0, d1) -> (d0, d0)}}
func.func @twice(%x: memref<4x4xf32>, %y: memref<4x4xf32>) {
  warp.rows %x into %y {indexing_maps = [#mm, #mn]} : memref<4x4xf32> into memref<4x4xf32> {
  ^bb0(%a: f32):
    warp.yield %a : f32
  }
  return
}

// -----

#mn = affine_map<(m, n) -> (m, n)>
#m = affine_map<(m, n) -> (m)>

// expected-error @+2 {{warp.rows: expected warp.yield of elements of types f32, f32, got f32}}
func.func @results(%x: memref<4x8xf32>, %y: memref<4x8xf32>, %s: memref<4xf32>) {
  warp.rows %x into %y, %s {indexing_maps = [#mn, #mn, #m]} : memref<4x8xf32> into memref<4x8xf32>, memref<4xf32> {
  ^bb0(%a: f32):
    warp.yield %a : f32
  }
  return
}

// -----

#mn = affine_map<(m, n) -> (m, n)>
#apart = affine_map<(m, n) -> (m mod 3, n)>

// expected-error @+2 {{warp.rows: expected the output to be indexed by all loops, or all but the last, got (d0, d1) -> ((d0 mod 3), d1)}}
func.func @other_sums(%x: memref<4x8xf32>, %y: memref<2x8xf32>) {
  warp.rows %x into %y {indexing_maps = [#mn, #apart]} : memref<4x8xf32> into memref<2x8xf32> {
  ^bb0(%a: f32):
    warp.yield %a : f32
  }
  return
}

// -----

#mn = affine_map<(m, n) -> (m, n)>
#tn = affine_map<(m, n)[t] -> (t, n)>

// expected-error @+2 {{warp.rows: expected input 0 to be indexed by some of d0, d1, got (d0, d1)[s0] -> (s0, d1)}}
func.func @no_number(%x: memref<4x8xf32>, %y: memref<4x8xf32>) {
  warp.rows %x into %y {indexing_maps = [#tn, #mn]} : memref<4x8xf32> into memref<4x8xf32> {
  ^bb0(%a: f32):
    warp.yield %a : f32
  }
  return
}

// -----

#mn = affine_map<(m, n) -> (m, n)>
#tn = affine_map<(m, n)[t] -> (t, n)>

// expected-error @+2 {{warp.rows: expected numbers of rows of i32 or i64, got f32}}
func.func @no_integer(%x: memref<4x8xf32>, %y: memref<4x8xf32>) {
  warp.rows %x into %y {indexing_maps = [#tn, #mn]} : memref<4x8xf32> into memref<4x8xf32> {
  ^bb0(%a: f32):
    warp.yield %a, %a : f32, f32
  }
  return
}

// -----

!lanes = !warp.fragment<acc, 16x8xf32, [c2 c1 r0 r1 r2 | c0 r3]>

// expected-error @+2 {{warp.scan: expected columns that lanes hold in order, of 32 or 64 bits, got !warp.fragment<acc, 16x8xf32, [c2 c1 r0 r1 r2 | c0 r3]>}}
func.func @order(%x: !lanes) {
  %0 = warp.scan add %x : !lanes to !lanes
  return
}

// -----

!matrix = !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>

// expected-error @+2 {{warp.scan: expected a start of !warp.fragment<acc, 16x1xf32, [x0 x1 r0 r1 r2 | r3]>, got !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>}}
func.func @start(%x: !matrix) {
  %0 = warp.scan add %x from %x : !matrix : !matrix to !matrix
  return
}

// -----

// expected-error @+2 {{warp.scan: expected an element of f32 or f64 alone, got f16}}
func.func @element(%x: f16) {
  %0 = warp.scan add %x : f16 to f16
  return
}
