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

// expected-error @+2 {{warp.attention_gradient: expected a mask of f16, bf16 or f32, got i8}}
func.func @mask_of_bytes(%q: memref<8x16xf16>, %r: memref<8xf32>, %mask: memref<8x8xi8>) {
  warp.attention_gradient %q, %q, %q, %q, %r, %r, %mask into %q {scale = 0.5 : f32, indexing_maps = [#q, #k, affine_map<(m, n, d, e) -> (n, e)>, affine_map<(m, n, d, e) -> (m, e)>, #row, #row, affine_map<(m, n, d, e) -> (m, n)>, #q]} : memref<8x16xf16>, memref<8x16xf16>, memref<8x16xf16>, memref<8x16xf16>, memref<8xf32>, memref<8xf32>, memref<8x8xi8> into memref<8x16xf16>
  return
}

// -----

#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>
#row = affine_map<(m, n, d, e) -> (m)>

// expected-error @+2 {{warp.attention_gradient: expected the mask to be indexed by some of d0, d1, got (d0, d1, d2, d3) -> (d0, d2)}}
func.func @mask_of_columns(%q: memref<8x16xf16>, %r: memref<8xf32>, %mask: memref<8x16xf16>) {
  warp.attention_gradient %q, %q, %q, %q, %r, %r, %mask into %q {scale = 0.5 : f32, indexing_maps = [#q, #k, affine_map<(m, n, d, e) -> (n, e)>, affine_map<(m, n, d, e) -> (m, e)>, #row, #row, #q, #q]} : memref<8x16xf16>, memref<8x16xf16>, memref<8x16xf16>, memref<8x16xf16>, memref<8xf32>, memref<8xf32>, memref<8x16xf16> into memref<8x16xf16>
  return
}
