// RUN: warploom-opt %s --split-input-file --verify-diagnostics

#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>
#row = affine_map<(m, n, d, e) -> (m)>

// expected-error @+2 {{warp.attention_gradient: expected maps of dQ, dK, dV, or of dK and dV, got those of dK, dK}}
func.func @twice(%q: memref<8x16xf16>, %r: memref<8xf32>) {
  warp.attention_gradient %q, %q, %q, %q, %r, %r into %q, %q {scale = 0.5 : f32, indexing_maps = [#q, #k, affine_map<(m, n, d, e) -> (n, e)>, affine_map<(m, n, d, e) -> (m, e)>, #row, #row, #k, #k]} : memref<8x16xf16>, memref<8x16xf16>, memref<8x16xf16>, memref<8x16xf16>, memref<8xf32>, memref<8xf32> into memref<8x16xf16>, memref<8x16xf16>
  return
}

// -----

#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>

// expected-error @+2 {{warp.attention_gradient: expected lse to be indexed by d0, got (d0, d1, d2, d3) -> ()}}
func.func @number(%q: memref<8x16xf16>, %r: memref<f32>) {
  warp.attention_gradient %q, %q, %q, %q, %r, %r into %q {scale = 0.5 : f32, indexing_maps = [#q, #k, affine_map<(m, n, d, e) -> (n, e)>, affine_map<(m, n, d, e) -> (m, e)>, affine_map<(m, n, d, e) -> ()>, affine_map<(m, n, d, e) -> ()>, #q]} : memref<8x16xf16>, memref<8x16xf16>, memref<8x16xf16>, memref<8x16xf16>, memref<f32>, memref<f32> into memref<8x16xf16>
  return
}

// -----

#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>
#row = affine_map<(m, n, d, e) -> (m)>

// expected-error @+2 {{warp.attention_gradient: expected lse and delta of f32, got f16 and f16}}
func.func @halves(%q: memref<8x16xf16>, %r: memref<8xf16>) {
  warp.attention_gradient %q, %q, %q, %q, %r, %r into %q {scale = 0.5 : f32, indexing_maps = [#q, #k, affine_map<(m, n, d, e) -> (n, e)>, affine_map<(m, n, d, e) -> (m, e)>, #row, #row, #q]} : memref<8x16xf16>, memref<8x16xf16>, memref<8x16xf16>, memref<8x16xf16>, memref<8xf16>, memref<8xf16> into memref<8x16xf16>
  return
}

// -----

#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>

// expected-error @+2 {{warp.attention: expected lse to be indexed by all loops of the batch and m, got (d0, d1, d2, d3) -> (d1)}}
func.func @keys(%q: memref<8x16xf16>, %r: memref<8xf32>) {
  warp.attention %q, %q, %q into %q {scale = 0.5 : f32, lse_map = affine_map<(m, n, d, e) -> (n)>, indexing_maps = [#q, #k, affine_map<(m, n, d, e) -> (n, e)>, affine_map<(m, n, d, e) -> (m, e)>]} : memref<8x16xf16>, memref<8x16xf16>, memref<8x16xf16>, memref<8x16xf16> lse %r : memref<8xf32>
  return
}

// -----

#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>
#row = affine_map<(m, n, d, e) -> (m)>

// expected-error @+2 {{warp.attention_gradient: expected documents of queries and of keys, with a map each, got 1 and 0}}
func.func @documents(%q: memref<8x16xf16>, %r: memref<8xf32>, %n: memref<8xi32>) {
  warp.attention_gradient %q, %q, %q, %q, %r, %r into %q {scale = 0.5 : f32, indexing_maps = [#q, #k, affine_map<(m, n, d, e) -> (n, e)>, affine_map<(m, n, d, e) -> (m, e)>, #row, #row, #q]} : memref<8x16xf16>, memref<8x16xf16>, memref<8x16xf16>, memref<8x16xf16>, memref<8xf32>, memref<8xf32> into memref<8x16xf16> documents %n : memref<8xi32>
  return
}

// -----

#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>
#row = affine_map<(m, n, d, e) -> (m)>

// expected-error @+5 {{warp.attention_gradient: expected slopes of f32 to be taken, got f32}}
func.func @slopes_of_scores(%q: memref<8x16xf16>, %r: memref<8xf32>) {
  %f = warp.pointwise (%s: f32) {
    warp.yield %s : f32
  }
  warp.attention_gradient %q, %q, %q, %q, %r, %r into %q slopes %f {scale = 0.5 : f32, indexing_maps = [#q, #k, affine_map<(m, n, d, e) -> (n, e)>, affine_map<(m, n, d, e) -> (m, e)>, #row, #row, #q]} : memref<8x16xf16>, memref<8x16xf16>, memref<8x16xf16>, memref<8x16xf16>, memref<8xf32>, memref<8xf32> into memref<8x16xf16>
  return
}

// -----

#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>
#row = affine_map<(m, n, d, e) -> (m)>

// expected-error @+6 {{warp.attention_gradient: expected score operand 0 to be indexed by some of d0, d1, got (d0, d1, d2, d3) -> (d0, d2)}}
func.func @mask_of_columns(%q: memref<8x16xf16>, %r: memref<8xf32>, %mask: memref<8x16xf32>) {
  %f = warp.pointwise %mask maps [affine_map<(m, n, d, e) -> (m, d)>] : memref<8x16xf32> (%s: f32, %x: f32) {
    %y = arith.addf %s, %x : f32
    warp.yield %y : f32
  }
  warp.attention_gradient %q, %q, %q, %q, %r, %r into %q scores %f {scale = 0.5 : f32, indexing_maps = [#q, #k, affine_map<(m, n, d, e) -> (n, e)>, affine_map<(m, n, d, e) -> (m, e)>, #row, #row, #q]} : memref<8x16xf16>, memref<8x16xf16>, memref<8x16xf16>, memref<8x16xf16>, memref<8xf32>, memref<8xf32> into memref<8x16xf16>
  return
}
