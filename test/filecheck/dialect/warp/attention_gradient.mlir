// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s

#q = affine_map<(b, g, m, n, d, e) -> (b, g, m, d)>
#k = affine_map<(b, g, m, n, d, e) -> (b, n, d)>
#v = affine_map<(b, g, m, n, d, e) -> (b, n, e)>
#o = affine_map<(b, g, m, n, d, e) -> (b, g, m, e)>
#row = affine_map<(b, g, m, n, d, e) -> (b, g, m)>

// Two heads share K and V: dK and dV are summed over both.
// CHECK: warp.attention_gradient %q, %k, %v, %do, %lse, %delta into %dk, %dv {scale = 5.000000e-01 : f32, diagonal = 3 : i64, window = 9 : i64, indexing_maps = [{{.*}}]} : memref<1x2x8x16xf16>, memref<1x9x16xf16>, memref<1x9x24xf16>, memref<1x2x8x24xf16>, memref<1x2x8xf32>, memref<1x2x8xf32> into memref<1x9x16xf16>, memref<1x9x24xf32>
// CHECK: warp.attention_gradient %q, %k, %v, %do, %lse, %delta into %dq
func.func @f(%q: memref<1x2x8x16xf16>, %k: memref<1x9x16xf16>, %v: memref<1x9x24xf16>, %do: memref<1x2x8x24xf16>, %lse: memref<1x2x8xf32>, %delta: memref<1x2x8xf32>, %dq: memref<1x2x8x16xf16>, %dk: memref<1x9x16xf16>, %dv: memref<1x9x24xf32>) {
  warp.attention_gradient %q, %k, %v, %do, %lse, %delta into %dk, %dv {scale = 0.5 : f32, diagonal = 3 : i64, window = 9 : i64, indexing_maps = [#q, #k, #v, #o, #row, #row, #k, #v]} : memref<1x2x8x16xf16>, memref<1x9x16xf16>, memref<1x9x24xf16>, memref<1x2x8x24xf16>, memref<1x2x8xf32>, memref<1x2x8xf32> into memref<1x9x16xf16>, memref<1x9x24xf32>
  warp.attention_gradient %q, %k, %v, %do, %lse, %delta into %dq {scale = 0.5 : f32, indexing_maps = [#q, #k, #v, #o, #row, #row, #q]} : memref<1x2x8x16xf16>, memref<1x9x16xf16>, memref<1x9x24xf16>, memref<1x2x8x24xf16>, memref<1x2x8xf32>, memref<1x2x8xf32> into memref<1x2x8x16xf16>
  return
}

// With numbers of documents of queries and of keys.
// CHECK: warp.attention_gradient %q, %q, %q, %q, %r, %r into %dq {scale = 5.000000e-01 : f32, documents_maps = [{{.*}}], indexing_maps = [{{.*}}]} : {{.*}} into memref<8x16xf16> documents %m, %n : memref<8xi32>, memref<8xi32>
func.func @documents(%q: memref<8x16xf16>, %r: memref<8xf32>, %m: memref<8xi32>, %n: memref<8xi32>, %dq: memref<8x16xf16>) {
  warp.attention_gradient %q, %q, %q, %q, %r, %r into %dq {scale = 0.5 : f32, documents_maps = [affine_map<(m, n, d, e) -> (m)>, affine_map<(m, n, d, e) -> (n)>], indexing_maps = [affine_map<(m, n, d, e) -> (m, d)>, affine_map<(m, n, d, e) -> (n, d)>, affine_map<(m, n, d, e) -> (n, e)>, affine_map<(m, n, d, e) -> (m, e)>, affine_map<(m, n, d, e) -> (m)>, affine_map<(m, n, d, e) -> (m)>, affine_map<(m, n, d, e) -> (m, d)>]} : memref<8x16xf16>, memref<8x16xf16>, memref<8x16xf16>, memref<8x16xf16>, memref<8xf32>, memref<8xf32> into memref<8x16xf16> documents %m, %n : memref<8xi32>, memref<8xi32>
  return
}

// With a mask along keys that is added to scores, and a function that makes dS of them.
// CHECK: warp.attention_gradient %q, %q, %q, %q, %r, %r into %dq scores %f slopes %g {scale = 1.000000e+00 : f32, indexing_maps = [{{.*}}]} : memref<8x16xf16>, {{.*}}, memref<8xf32> into memref<8x16xf16>
func.func @functions(%q: memref<8x16xf16>, %r: memref<8xf32>, %mask: memref<8xbf16>, %dq: memref<8x16xf16>) {
  %f = warp.pointwise %mask maps [affine_map<(m, n, d, e) -> (n)>] : memref<8xbf16> (%s: f32, %x: bf16) {
    %wide = arith.extf %x : bf16 to f32
    %y = arith.addf %s, %wide : f32
    warp.yield %y : f32
  }
  %g = warp.pointwise (%s: f32, %x: f32) {
    %y = arith.mulf %s, %x : f32
    warp.yield %y : f32
  }
  warp.attention_gradient %q, %q, %q, %q, %r, %r into %dq scores %f slopes %g {scale = 1.0 : f32, indexing_maps = [affine_map<(m, n, d, e) -> (m, d)>, affine_map<(m, n, d, e) -> (n, d)>, affine_map<(m, n, d, e) -> (n, e)>, affine_map<(m, n, d, e) -> (m, e)>, affine_map<(m, n, d, e) -> (m)>, affine_map<(m, n, d, e) -> (m)>, affine_map<(m, n, d, e) -> (m, d)>]} : memref<8x16xf16>, memref<8x16xf16>, memref<8x16xf16>, memref<8x16xf16>, memref<8xf32>, memref<8xf32> into memref<8x16xf16>
  return
}

// What it needs, from the forward pass.
// CHECK: warp.attention %q, %k, %v into %o {scale = 5.000000e-01 : f32, lse_map = affine_map<{{.*}}>, indexing_maps = [{{.*}}]} : memref<1x2x8x16xf16>, memref<1x9x16xf16>, memref<1x9x24xf16>, memref<1x2x8x24xf16> lse %lse : memref<1x2x8xf32>
func.func @forward(%q: memref<1x2x8x16xf16>, %k: memref<1x9x16xf16>, %v: memref<1x9x24xf16>, %o: memref<1x2x8x24xf16>, %lse: memref<1x2x8xf32>) {
  warp.attention %q, %k, %v into %o {scale = 0.5 : f32, lse_map = #row, indexing_maps = [#q, #k, #v, #o]} : memref<1x2x8x16xf16>, memref<1x9x16xf16>, memref<1x9x24xf16>, memref<1x2x8x24xf16> lse %lse : memref<1x2x8xf32>
  return
}
