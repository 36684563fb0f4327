// RUN: warploom-opt %s --split-input-file --verify-diagnostics

#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>
#v = affine_map<(m, n, d, e) -> (n, e)>
#o = affine_map<(m, n, d, e) -> (m, e)>

// expected-error @+2 {{warp.attention: expected maps of Q, K, V and O, got 3}}
func.func @maps(%q: memref<32x64xf16>, %k: memref<48x64xf16>, %v: memref<48x16xf16>, %o: memref<32x16xf16>) {
  warp.attention %q, %k, %v into %o {scale = 1.0 : f32, indexing_maps = [#q, #k, #v]} : memref<32x64xf16>, memref<48x64xf16>, memref<48x16xf16>, memref<32x16xf16>
  return
}

// -----

#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>
#v = affine_map<(m, n, d, e) -> (n, e)>
#o = affine_map<(m, n, d, e) -> (m, e)>

// expected-error @+2 {{warp.attention: expected Q, K and V of f16, of bf16, or of f8E4M3FN, got f16, bf16, f16}}
func.func @types(%q: memref<32x64xf16>, %k: memref<48x64xbf16>, %v: memref<48x16xf16>, %o: memref<32x16xf16>) {
  warp.attention %q, %k, %v into %o {scale = 1.0 : f32, indexing_maps = [#q, #k, #v, #o]} : memref<32x64xf16>, memref<48x64xbf16>, memref<48x16xf16>, memref<32x16xf16>
  return
}

// -----

#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>
#v = affine_map<(m, n, d, e) -> (n, e)>
#o = affine_map<(m, n, d, e) -> (m, e)>

// expected-error @+2 {{warp.attention: expected O of f16 or f32, got bf16}}
func.func @result(%q: memref<32x64xf16>, %k: memref<48x64xf16>, %v: memref<48x16xf16>, %o: memref<32x16xbf16>) {
  warp.attention %q, %k, %v into %o {scale = 1.0 : f32, indexing_maps = [#q, #k, #v, #o]} : memref<32x64xf16>, memref<48x64xf16>, memref<48x16xf16>, memref<32x16xbf16>
  return
}

// -----

#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (m, n)>
#v = affine_map<(m, n, d, e) -> (n, e)>
#o = affine_map<(m, n, d, e) -> (m, e)>

// expected-error @+2 {{warp.attention: expected K to be indexed by d1 and d2, got (d0, d1, d2, d3) -> (d0, d1)}}
func.func @indexed(%q: memref<32x64xf16>, %k: memref<32x48xf16>, %v: memref<48x16xf16>, %o: memref<32x16xf16>) {
  warp.attention %q, %k, %v into %o {scale = 1.0 : f32, indexing_maps = [#q, #k, #v, #o]} : memref<32x64xf16>, memref<32x48xf16>, memref<48x16xf16>, memref<32x16xf16>
  return
}

// -----

#q = affine_map<(b, m, n, d, e) -> (b, m, d)>
#k = affine_map<(b, m, n, d, e) -> (b, n, d)>
#v = affine_map<(b, m, n, d, e) -> (b, n, e)>
#o = affine_map<(b, m, n, d, e) -> (m, e)>

// expected-error @+2 {{warp.attention: expected O to be indexed by every loop of the batch, got (d0, d1, d2, d3, d4) -> (d1, d4)}}
func.func @batch(%q: memref<2x32x64xf16>, %k: memref<2x48x64xf16>, %v: memref<2x48x16xf16>, %o: memref<32x16xf16>) {
  warp.attention %q, %k, %v into %o {scale = 1.0 : f32, indexing_maps = [#q, #k, #v, #o]} : memref<2x32x64xf16>, memref<2x48x64xf16>, memref<2x48x16xf16>, memref<32x16xf16>
  return
}

// -----

#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>
#v = affine_map<(m, n, d, e) -> (n, e)>
#o = affine_map<(m, n, d, e) -> (m, e)>

// expected-error @+2 {{warp.attention: expected K and V to agree on d1, got 48 and 50}}
func.func @sizes(%q: memref<32x64xf16>, %k: memref<48x64xf16>, %v: memref<50x16xf16>, %o: memref<32x16xf16>) {
  warp.attention %q, %k, %v into %o {scale = 1.0 : f32, indexing_maps = [#q, #k, #v, #o]} : memref<32x64xf16>, memref<48x64xf16>, memref<50x16xf16>, memref<32x16xf16>
  return
}

// -----

#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>
#v = affine_map<(m, n, d, e) -> (n, e)>
#o = affine_map<(m, n, d, e) -> (m, e)>

// expected-error @+2 {{warp.attention: expected Q of rank 2, got memref<1x32x64xf16>}}
func.func @rank(%q: memref<1x32x64xf16>, %k: memref<48x64xf16>, %v: memref<48x16xf16>, %o: memref<32x16xf16>) {
  warp.attention %q, %k, %v into %o {scale = 1.0 : f32, indexing_maps = [#q, #k, #v, #o]} : memref<1x32x64xf16>, memref<48x64xf16>, memref<48x16xf16>, memref<32x16xf16>
  return
}

// -----

#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>
#v = affine_map<(m, n, d, e) -> (n, e)>
#o = affine_map<(m, n, d, e) -> (m, e)>

// expected-error @+5 {{warp.attention: expected score operand 0 to be indexed by some of d0, d1, got (d0, d1, d2, d3) -> (d0, d2)}}
func.func @score_operand(%q: memref<32x64xf16>, %k: memref<48x64xf16>, %v: memref<48x16xf16>, %x: memref<32x64xf32>, %o: memref<32x16xf16>) {
  %f = warp.pointwise %x maps [#q] : memref<32x64xf32> (%s: f32, %b: f32) {
    warp.yield %s : f32
  }
  warp.attention %q, %k, %v into %o scores %f {scale = 1.0 : f32, indexing_maps = [#q, #k, #v, #o]}
    : memref<32x64xf16>, memref<48x64xf16>, memref<48x16xf16>, memref<32x16xf16>
  return
}

// -----

#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>
#v = affine_map<(m, n, d, e) -> (n, e)>
#o = affine_map<(m, n, d, e) -> (m, e)>

// expected-error @+6 {{warp.attention: expected the index of a loop that elements run along, 0, 1, got 2}}
func.func @index(%q: memref<32x64xf16>, %k: memref<48x64xf16>, %v: memref<48x16xf16>, %o: memref<32x16xf16>) {
  %f = warp.pointwise (%s: f32) {
    %d = warp.index 2 : i32
    warp.yield %s : f32
  }
  warp.attention %q, %k, %v into %o scores %f {scale = 1.0 : f32, indexing_maps = [#q, #k, #v, #o]}
    : memref<32x64xf16>, memref<48x64xf16>, memref<48x16xf16>, memref<32x16xf16>
  return
}

// -----

#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>
#v = affine_map<(m, n, d, e) -> (n, e)>
#o = affine_map<(m, n, d, e) -> (m, e)>

// expected-error @+6 {{warp.attention: expected scores of f32 to be taken, got f16}}
func.func @region(%q: memref<32x64xf16>, %k: memref<48x64xf16>, %v: memref<48x16xf16>, %o: memref<32x16xf16>) {
  %f = warp.pointwise (%s: f16) {
    %0 = arith.extf %s : f16 to f32
    warp.yield %0 : f32
  }
  warp.attention %q, %k, %v into %o scores %f {scale = 1.0 : f32, indexing_maps = [#q, #k, #v, #o]}
    : memref<32x64xf16>, memref<48x64xf16>, memref<48x16xf16>, memref<32x16xf16>
  return
}

// -----

#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>
#v = affine_map<(m, n, d, e) -> (n, e)>
#o = affine_map<(m, n, d, e) -> (m, e)>

// expected-error @+2 {{warp.attention: expected the row of a tile of O, or [row, tile, part] with memory for sums, states and counters, got 2 indices and 0 parts}}
func.func @tile(%q: memref<32x64xf16>, %k: memref<48x64xf16>, %v: memref<48x16xf16>, %o: memref<32x16xf16>, %i: index) {
  warp.attention %q, %k, %v into %o tile %i, %i {scale = 1.0 : f32, indexing_maps = [#q, #k, #v, #o]} : memref<32x64xf16>, memref<48x64xf16>, memref<48x16xf16>, memref<32x16xf16>
  return
}

// -----

#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>
#v = affine_map<(m, n, d, e) -> (n, e)>
#o = affine_map<(m, n, d, e) -> (m, e)>

// expected-error @+2 {{warp.attention: expected lengths to be indexed by loops of the batch, got (d0, d1, d2, d3) -> (d0)}}
func.func @lengths(%q: memref<32x64xf16>, %k: memref<48x64xf16>, %v: memref<48x16xf16>, %o: memref<32x16xf16>, %l: memref<32xi32>) {
  warp.attention %q, %k, %v into %o {scale = 1.0 : f32, lengths_map = affine_map<(m, n, d, e) -> (m)>, indexing_maps = [#q, #k, #v, #o]} : memref<32x64xf16>, memref<48x64xf16>, memref<48x16xf16>, memref<32x16xf16> lengths %l : memref<32xi32>
  return
}

// -----

#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>
#v = affine_map<(m, n, d, e) -> (n, e)>
#o = affine_map<(m, n, d, e) -> (m, e)>

// expected-error @+2 {{warp.attention: expected lengths in memory of i32 with a map of the loops that index it}}
func.func @no_map(%q: memref<32x64xf16>, %k: memref<48x64xf16>, %v: memref<48x16xf16>, %o: memref<32x16xf16>, %l: memref<i32>) {
  warp.attention %q, %k, %v into %o {scale = 1.0 : f32, indexing_maps = [#q, #k, #v, #o]} : memref<32x64xf16>, memref<48x64xf16>, memref<48x16xf16>, memref<32x16xf16> lengths %l : memref<i32>
  return
}

// -----

#q = affine_map<(b, m, n, d, e) -> (b, m, d)>
#k = affine_map<(b, m, n, d, e) -> (b, n, d)>
#v = affine_map<(b, m, n, d, e) -> (b, n, e)>
#o = affine_map<(b, m, n, d, e) -> (b, m, e)>

// expected-error @+2 {{warp.attention: expected sinks to be indexed by loops of the batch and m, got (d0, d1, d2, d3, d4) -> (d2)}}
func.func @sinks(%q: memref<2x32x64xf16>, %k: memref<2x48x64xf16>, %v: memref<2x48x16xf16>, %o: memref<2x32x16xf16>, %s: memref<48xf32>) {
  warp.attention %q, %k, %v into %o {scale = 1.0 : f32, indexing_maps = [#q, #k, #v, #o], sinks_map = affine_map<(b, m, n, d, e) -> (n)>} : memref<2x32x64xf16>, memref<2x48x64xf16>, memref<2x48x16xf16>, memref<2x32x16xf16> sinks %s : memref<48xf32>
  return
}

// -----

#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>
#v = affine_map<(m, n, d, e) -> (n, e)>
#o = affine_map<(m, n, d, e) -> (m, e)>

// expected-error @+2 {{warp.attention: expected documents in memory of i32 along d1, got memref<48xf32>}}
func.func @documents(%q: memref<32x64xf16>, %k: memref<48x64xf16>, %v: memref<48x16xf16>, %o: memref<32x16xf16>, %m: memref<32xi32>, %n: memref<48xf32>) {
  warp.attention %q, %k, %v into %o {scale = 1.0 : f32, indexing_maps = [#q, #k, #v, #o], documents_maps = [affine_map<(m, n, d, e) -> (m)>, affine_map<(m, n, d, e) -> (n)>]} : memref<32x64xf16>, memref<48x64xf16>, memref<48x16xf16>, memref<32x16xf16> documents %m, %n : memref<32xi32>, memref<48xf32>
  return
}

// -----

#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>
#v = affine_map<(m, n, d, e) -> (n, e)>
#o = affine_map<(m, n, d, e) -> (m, e)>

// expected-error @+2 {{warp.attention: expected the ends of groups as a vector of i32 of static size, got memref<?xi32>}}
func.func @ends(%q: memref<32x64xf16>, %k: memref<32x64xf16>, %v: memref<32x16xf16>, %o: memref<32x16xf16>, %e: memref<?xi32>) {
  warp.attention %q, %k, %v into %o {scale = 1.0 : f32, indexing_maps = [#q, #k, #v, #o]} : memref<32x64xf16>, memref<32x64xf16>, memref<32x16xf16>, memref<32x16xf16> grouped %e : memref<?xi32>
  return
}

// -----

#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>
#v = affine_map<(m, n, d, e) -> (n, e)>
#o = affine_map<(m, n, d, e) -> (m, e)>

// expected-error @+2 {{warp.attention: expected a scale above 0, got 0}}
func.func @scale(%q: memref<32x64xf16>, %k: memref<48x64xf16>, %v: memref<48x16xf16>, %o: memref<32x16xf16>) {
  warp.attention %q, %k, %v into %o {scale = 0.0 : f32, indexing_maps = [#q, #k, #v, #o]} : memref<32x64xf16>, memref<48x64xf16>, memref<48x16xf16>, memref<32x16xf16>
  return
}
