// RUN: not warploom-opt %s -p "warp-set-target{arch=sm_80},warp-schedule{cta=32,16,64}" 2>&1 | filecheck %s --check-prefix=DEEP
// RUN: not warploom-opt %s -p "warp-set-target{arch=sm_80},warp-schedule{split_k=2 ctas=4}" 2>&1 | filecheck %s --check-prefix=FIELD
// RUN: not warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-schedule{stages=20}" 2>&1 | filecheck %s --check-prefix=SHARED
// RUN: not warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-schedule{consumers=pingpong}" 2>&1 | filecheck %s --check-prefix=TURNS
// RUN: not warploom-opt %s -p "warp-set-target{arch=sm_75},warp-schedule" 2>&1 | filecheck %s --check-prefix=TARGET
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-schedule" | filecheck %s --check-prefix=DEFAULT

// DEEP:    error: schedule: a CTA tile is as deep as Q, 128, and a warp's or a warpgroup's tile as wide as a CTA tile; got cta = 32x16x64, warp = 16x16
// FIELD:   error: schedule: the gradient of an attention has no choice of split_k, ctas
// SHARED:  error: schedule: the tiles that stay, 20 stages of the others and the results take {{[0-9]+}} bytes of shared memory, sm_90a has 232448 for a CTA; use fewer stages or a smaller tile
// TURNS:   error: schedule: consumers = pingpong: warpgroups do not take turns for gradients
// TARGET:  error: warp.attention_gradient is lowered for sm_80 and later; the target is sm_75
// DEFAULT: #warp.schedule<cta = 128x64x128, warp = 64x64, mma = m64n64k16, stages = 3
func.func @f(%q: memref<100x128xf16>, %k: memref<90x128xf16>, %r: memref<100xf32>) {
  warp.attention_gradient %q, %k, %k, %q, %r, %r into %k, %k {scale = 1.0 : f32, indexing_maps = [affine_map<(m, n, d, e) -> (m, d)>, affine_map<(m, n, d, e) -> (n, d)>, affine_map<(m, n, d, e) -> (n, e)>, affine_map<(m, n, d, e) -> (m, e)>, affine_map<(m, n, d, e) -> (m)>, affine_map<(m, n, d, e) -> (m)>, affine_map<(m, n, d, e) -> (n, d)>, affine_map<(m, n, d, e) -> (n, e)>]} : memref<100x128xf16>, memref<90x128xf16>, memref<90x128xf16>, memref<100x128xf16>, memref<100xf32>, memref<100xf32> into memref<90x128xf16>, memref<90x128xf16>
  return
}
