// RUN: not warploom-opt %s -p "warp-schedule{stages=40 cta=64,64,64}" 2>&1 | filecheck %s --check-prefix=SHARED
// RUN: not warploom-opt %s -p "warp-set-target{arch=sm_80},warp-schedule{cta=128,128,64 stages=6}" 2>&1 | filecheck %s --check-prefix=SM80
// RUN: not warploom-opt %s -p "warp-set-target{arch=sm_120a},warp-schedule{cta=128,128,64 stages=4}" 2>&1 | filecheck %s --check-prefix=SM120
// RUN: not warploom-opt %s -p "warp-schedule{cta=128,128,32 warp=128,128}" 2>&1 | filecheck %s --check-prefix=LANE
// RUN: not warploom-opt %s -p "warp-schedule{cta=512,256,32 warp=64,64 stages=1}" 2>&1 | filecheck %s --check-prefix=SM
// RUN: not warploom-opt %s -p "warp-schedule{cta=64,64,24 warp=32,32}" 2>&1 | filecheck %s --check-prefix=MULTIPLE
// RUN: not warploom-opt %s -p "warp-schedule{cta=24,24,16}" 2>&1 | filecheck %s --check-prefix=FITTING
// RUN: not warploom-opt %s -p "warp-schedule{cta=128,128,32 warp=48,64}" 2>&1 | filecheck %s --check-prefix=DIVIDE
// RUN: not warploom-opt %s -p "warp-schedule{cta=256,128,16 warp=16,8}" 2>&1 | filecheck %s --check-prefix=THREADS
// RUN: not warploom-opt %s -p "warp-schedule{swizzle=48}" 2>&1 | filecheck %s --check-prefix=SWIZZLE
// RUN: not warploom-opt %s -p "warp-schedule{stages=0}" 2>&1 | filecheck %s --check-prefix=STAGES
// RUN: not warploom-opt %s -p "warp-schedule{group=0}" 2>&1 | filecheck %s --check-prefix=GROUP
// RUN: not warploom-opt %s -p "warp-schedule{group=2147483648}" 2>&1 | filecheck %s --check-prefix=GROUPS
// RUN: not warploom-opt %s -p "warp-schedule{ctas=2147483648}" 2>&1 | filecheck %s --check-prefix=CTAS
// RUN: not warploom-opt %s -p "warp-schedule{cta=64,64,64 sliced_k=3}" 2>&1 | filecheck %s --check-prefix=SLICES
// RUN: not warploom-opt %s -p "warp-schedule{cta=48,48,64 warp=48,48 sliced_k=2}" 2>&1 | filecheck %s --check-prefix=SLICES48
// RUN: not warploom-opt %s -p "warp-schedule{pack=c}" 2>&1 | filecheck %s --check-prefix=PACK
// RUN: not warploom-opt %s -p "warp-schedule{fp8_as=f32}" 2>&1 | filecheck %s --check-prefix=WIDEN
// RUN: not warploom-opt %s -p "warp-schedule{fp8_as=f16}" 2>&1 | filecheck %s --check-prefix=HALVES
// RUN: not warploom-opt %s -p "warp-schedule{order=columns}" 2>&1 | filecheck %s --check-prefix=ORDER
// RUN: not warploom-opt %s -p "warp-schedule{edges=outside}" 2>&1 | filecheck %s --check-prefix=EDGES
// RUN: not warploom-opt %s -p "warp-schedule{add_c=never}" 2>&1 | filecheck %s --check-prefix=ADD
// RUN: not warploom-opt %s -p "warp-schedule{split_k=2 add_c=last}" 2>&1 | filecheck %s --check-prefix=PARTS
// RUN: not warploom-opt %s -p "warp-schedule{access=2}" 2>&1 | filecheck %s --check-prefix=ACCESS
// RUN: not warploom-opt %s -p "warp-schedule{cta=0,64,64}" 2>&1 | filecheck %s --check-prefix=POSITIVE
// RUN: not warploom-opt %s -p "warp-schedule{accumulate=f64}" 2>&1 | filecheck %s --check-prefix=ACCUMULATE
// RUN: not warploom-opt %s -p "warp-schedule{mma=m16n8k32 cta=64,64,64}" 2>&1 | filecheck %s --check-prefix=SHAPE
// RUN: not warploom-opt %s -p "warp-set-target{arch=sm_75},warp-schedule{mma=m16n8k16 cta=64,64,64}" 2>&1 | filecheck %s --check-prefix=TARGET
// RUN: not warploom-opt %s -p "warp-schedule{mma=16x8x16}" 2>&1 | filecheck %s --check-prefix=SPELLING
// RUN: not warploom-opt %s -p "warp-schedule{cta=64,64}" 2>&1 | filecheck %s --check-prefix=COUNT
// RUN: not warploom-opt %s -p "warp-schedule{depth=3}" 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not warploom-opt %s -p "warp-schedule{stages=two}" 2>&1 | filecheck %s --check-prefix=NUMBER

builtin.module attributes {warp.target = #warp.target<sm_90a>} {
// SHARED: schedule_options.mlir:{{[0-9]+}}:3: error: schedule: 40 stages of (64, 64, 64) take 640.625 KiB of shared memory, sm_90a has 227 KiB for a CTA; use fewer stages or a smaller tile
// SM80: error: schedule: 6 stages of (128, 128, 64) take 192 KiB of shared memory, sm_80 has 163 KiB for a CTA; use fewer stages or a smaller tile
// SM120: error: schedule: 4 stages of (128, 128, 64) take 128 KiB of shared memory, sm_120a has 99 KiB for a CTA; use fewer stages or a smaller tile
// LANE: error: schedule: a warp tile of 128x128 takes about {{[0-9]+}} registers a lane, there are 255; use a smaller warp tile
// SM: error: schedule: 32 warps of 64x64 take about {{[0-9]+}} registers, an SM of sm_90a has 65536; use fewer warps or a smaller warp tile
// MULTIPLE: error: schedule: cta and warp must be multiples of mma = m16n8k16, got 24 along K (the next multiple is 32): cta = 64x64x24, warp = 32x32
// FITTING: error: schedule: cta and warp must be multiples of mma = m16n8k16, got 24 along M (the next multiple is 32): cta = 24x24x16, warp = 24x8
// DIVIDE: error: schedule: warp must divide cta, got 48 against 128 along M: cta = 128x128x32, warp = 48x64
// THREADS: error: schedule: a CTA has at most 1024 threads, 256 warps take 8192; enlarge warp or reduce cta: cta = 256x128x16, warp = 16x8
// SWIZZLE: error: schedule: swizzle must be one of 16, 32, 64, 128, got 48
// STAGES: error: schedule: stages must be 1 to 1024, got 0
// GROUP: error: schedule: group must be 1 to 2147483647, got 0
// GROUPS: error: schedule: group must be 1 to 2147483647, got 2147483648
// CTAS: error: schedule: ctas must be 0 to 2147483647, got 2147483648
// SLICES: error: schedule: sliced_k must divide the 4 steps of m16n8k16 in a K tile of 64, got cta = 64x64x64, warp = 32x32, sliced_k = 3
// SLICES48: error: schedule: sliced_k = 2, split_k = 1: the 3 x 6 base tiles of !warp.fragment<acc, 48x48xf32, {{.*}}> cannot be divided among 2 slices
// PACK: error: schedule: pack must be one of none, a, b, ab, got c
// WIDEN: error: schedule: fp8_as must be one of none, f16, got f32
// HALVES: error: schedule: fp8_as = f16: operands that are dense 8-bit floats are widened, not those of f16 x f16
// ORDER: error: schedule: order must be one of serpentine, rows, got columns
// EDGES: error: schedule: edges must be one of inside, predicated, got outside
// ADD: error: schedule: add_c must be one of auto, first, last, got never
// PARTS: error: schedule: add_c = last: of a K that is sliced or split, C is added where partial sums meet
// ACCESS: error: schedule: access must be one of 16, 8, 4, got 2
// POSITIVE: error: schedule: cta must be numbers of at least 1, got 0x64x64
// ACCUMULATE: error: schedule: sm_90a has no mma for f16 x f16 accumulated in f64
// SHAPE: error: schedule: sm_90a has no mma m16n8k32 for f16 x f16 accumulated in f32; it has m16n8k8, m16n8k16
// TARGET: error: schedule: sm_75 has no mma m16n8k16 for f16 x f16 accumulated in f32; it has m16n8k8
// SPELLING: error: schedule: schedule option mma: expected a shape such as m16n8k16, got '16x8x16'
// COUNT: error: schedule: schedule option cta: expected 3 numbers, got '64x64'
// UNKNOWN: error: pass 'warp-schedule' has no option 'depth'; its options are cta, warp, mma, stages, swizzle, group, accumulate
// NUMBER: error: pass 'warp-schedule', option stages: expected int, got 'two'
func.func @f(%a: memref<4096x4096xf16>, %b: memref<4096x4096xf16>, %c: memref<4096x4096xf32>) {
  linalg.matmul ins(%a, %b : memref<4096x4096xf16>, memref<4096x4096xf16>) outs(%c : memref<4096x4096xf32>)
  return
}
}
