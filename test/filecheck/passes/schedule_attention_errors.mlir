// RUN: not warploom-opt %s -p "warp-set-target{arch=sm_80},warp-schedule{cta=32,16}" 2>&1 | filecheck %s --check-prefix=NUMBERS
// RUN: not warploom-opt %s -p "warp-set-target{arch=sm_80},warp-schedule{cta=32,16,64}" 2>&1 | filecheck %s --check-prefix=DEEP
// RUN: not warploom-opt %s -p "warp-set-target{arch=sm_80},warp-schedule{split_k=2 ctas=4}" 2>&1 | filecheck %s --check-prefix=FIELD
// RUN: not warploom-opt %s -p "warp-set-target{arch=sm_89},warp-schedule{stages=20}" 2>&1 | filecheck %s --check-prefix=SHARED
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_89},warp-schedule{stages=11}" | filecheck %s --check-prefix=FOLLOWS
// RUN: not warploom-opt %s -p "warp-set-target{arch=sm_89},warp-schedule{staging=8}" 2>&1 | filecheck %s --check-prefix=STRIPS
// RUN: not warploom-opt %s -p "warp-set-target{arch=sm_89},warp-schedule{group=4 promote=f32 mma=m16n8k16}" 2>&1 | filecheck %s --check-prefix=NOTHING
// RUN: not warploom-opt %s -p "warp-set-target{arch=sm_89},warp-schedule{consumers=pingpong}" 2>&1 | filecheck %s --check-prefix=TURNS
// RUN: not warploom-opt %s -p "warp-set-target{arch=sm_80},warp-schedule{cta=16,64,32 warp=16,16}" 2>&1 | filecheck %s --check-prefix=SLICES
// RUN: not warploom-opt %s -p "warp-set-target{arch=sm_75},warp-schedule" 2>&1 | filecheck %s --check-prefix=TARGET

#q = affine_map<(m, n, d, e) -> (m, d)>
#k = affine_map<(m, n, d, e) -> (n, d)>
#v = affine_map<(m, n, d, e) -> (n, e)>
#o = affine_map<(m, n, d, e) -> (m, e)>

// NUMBERS: error: schedule: schedule option cta: expected 3 numbers, got '32x16'
// DEEP:    error: schedule: a CTA tile is as deep as Q, 32, and a warp's or a warpgroup's tile as wide as a CTA tile; got cta = 32x16x64, warp = 32x16
// FIELD:   error: schedule: split_k = 2: keys are split among warps that multiply fragments, one tile for each CTA
// SLICES:  error: schedule: 4 warps that share keys store 16 columns of O or more each
// SHARED:  error: schedule: the tiles that stay, 20 stages of the others and the results take 172032 bytes of shared memory, sm_89 has 101376 for a CTA; use fewer stages or a smaller tile
// NOTHING: error: schedule: an attention has no choice of group, promote
// TURNS:   error: schedule: consumers = pingpong is for products of warpgroups, got mma
// STRIPS:  error: schedule: staging must be a multiple of the 16 rows of a base tile, got 8
// O is staged where there is room.
// FOLLOWS-NOT: staging
// FOLLOWS: #warp.schedule<cta = 128x64x32, warp = 32x64, mma = m16n8k16, stages = 11, swizzle = 128, group = 8, accumulate = f32, edges = predicated>
// TARGET:  error: warp.attention is lowered for sm_80 and later; the target is sm_75
func.func @f(%q: memref<100x32xf16>, %k: memref<50x32xf16>, %v: memref<50x32xf16>, %o: memref<100x32xf16>) {
  warp.attention %q, %k, %v into %o {scale = 1.0 : f32, indexing_maps = [#q, #k, #v, #o]} : memref<100x32xf16>, memref<50x32xf16>, memref<50x32xf16>, memref<100x32xf16>
  return
}
