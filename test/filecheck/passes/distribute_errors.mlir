// RUN: warploom-opt %s -p warp-distribute --split-input-file --verify-diagnostics | filecheck %s

#s = #warp.schedule<cta = 32x32x32, warp = 16x16, mma = m16n8k16, stages = 1, swizzle = 128, group = 1, accumulate = f32>

// expected-error @+3 {{expected a schedule on warp.tile_mma; run warp-schedule first}}
func.func @no_schedule(%A: memref<32x32xf16, 3>) {
  %z = warp.constant 0.0 : f32 : !warp.cta_tile<32x32xf32>
  %d = warp.tile_mma %A, %A, %z {types = ["f16", "f16"]} : memref<32x32xf16, 3>, memref<32x32xf16, 3>, !warp.cta_tile<32x32xf32>
  return
}

// -----

#s = #warp.schedule<cta = 32x32x32, warp = 16x16, mma = m16n8k16, stages = 1, swizzle = 128, group = 1, accumulate = f32>

// expected-error @+5 {{func.call cannot take a tile of sums that warps are to have parts of}}
func.func private @elsewhere(!warp.cta_tile<32x32xf32>)
func.func @taken(%A: memref<32x32xf16, 3>) {
  %z = warp.constant 0.0 : f32 : !warp.cta_tile<32x32xf32>
  %d = warp.tile_mma %A, %A, %z {types = ["f16", "f16"], warp.schedule = #s} : memref<32x32xf16, 3>, memref<32x32xf16, 3>, !warp.cta_tile<32x32xf32>
  func.call @elsewhere(%d) : (!warp.cta_tile<32x32xf32>) -> ()
  return
}

// -----

#s = #warp.schedule<cta = 32x32x32, warp = 16x16, mma = m16n8k16, stages = 1, swizzle = 128, group = 1, accumulate = f32>

// expected-error @+3 {{func.call cannot make a tile of sums that warps are to have parts of}}
func.func private @elsewhere() -> !warp.cta_tile<32x32xf32>
func.func @made(%A: memref<32x32xf16, 3>) {
  %z = func.call @elsewhere() : () -> !warp.cta_tile<32x32xf32>
  %d = warp.tile_mma %A, %A, %z {types = ["f16", "f16"], warp.schedule = #s} : memref<32x32xf16, 3>, memref<32x32xf16, 3>, !warp.cta_tile<32x32xf32>
  return
}

// -----

#s = #warp.schedule<cta = 32x32x32, warp = 16x16, mma = m16n8k16, stages = 1, swizzle = 128, group = 1, accumulate = f32>

// expected-error @+2 {{expected sums of a loop, or of none, to give warps their parts of}}
func.func @argument(%A: memref<32x32xf16, 3>, %z: !warp.cta_tile<32x32xf32>) {
  %d = warp.tile_mma %A, %A, %z {types = ["f16", "f16"], warp.schedule = #s} : memref<32x32xf16, 3>, memref<32x32xf16, 3>, !warp.cta_tile<32x32xf32>
  return
}

// -----

#s = #warp.schedule<cta = 32x32x32, warp = 16x16, mma = m16n8k16, stages = 1, swizzle = 128, group = 1, accumulate = f32>
#t = #warp.schedule<cta = 32x32x32, warp = 16x32, mma = m16n8k16, stages = 1, swizzle = 128, group = 1, accumulate = f32>

// expected-error @+4 {{expected sums that warps hold as another product of them does, as !warp.fragment<acc, 16x}}
func.func @two_schedules(%A: memref<32x32xf16, 3>) {
  %z = warp.constant 0.0 : f32 : !warp.cta_tile<32x32xf32>
  %d = warp.tile_mma %A, %A, %z {types = ["f16", "f16"], warp.schedule = #s} : memref<32x32xf16, 3>, memref<32x32xf16, 3>, !warp.cta_tile<32x32xf32>
  %e = warp.tile_mma %A, %A, %d {types = ["f16", "f16"], warp.schedule = #t} : memref<32x32xf16, 3>, memref<32x32xf16, 3>, !warp.cta_tile<32x32xf32>
  return
}

// -----

#s = #warp.schedule<cta = 32x32x32, warp = 16x16, mma = m16n8k16, stages = 1, swizzle = 128, group = 1, accumulate = f32>

// expected-error @+4 {{expected the place of a tile in memory to be computed before its sums start}}
func.func @late(%A: memref<32x32xf16, 3>, %D: memref<64x64xf32>, %i: index) {
  %z = warp.constant 0.0 : f32 : !warp.cta_tile<32x32xf32>
  %d = warp.tile_mma %A, %A, %z {types = ["f16", "f16"], warp.schedule = #s} : memref<32x32xf16, 3>, memref<32x32xf16, 3>, !warp.cta_tile<32x32xf32>
  %m = arith.addi %i, %i : index
  warp.epilogue %d into %D[%m, %i] {warp.schedule = #s} : !warp.cta_tile<32x32xf32>, memref<64x64xf32>
  return
}

// -----

#s = #warp.schedule<cta = 32x32x32, warp = 16x16, mma = m16n8k16, stages = 1, swizzle = 128, group = 1, accumulate = f32>

// Two products of one tile of sums, and the sums in two places.
// CHECK: func.func @two(
// CHECK: %[[C:\w+]] = warp.load %D
// CHECK: %[[D:\w+]] = warp.tile_mma %A, %A, %[[C]] part
// CHECK: %[[E:\w+]] = warp.tile_mma %A, %A, %[[D]] part
// CHECK: warp.epilogue %[[D]] into %D
// CHECK: warp.epilogue %[[E]] into %E
func.func @two(%A: memref<32x32xf16, 3>, %D: memref<64x64xf32>, %E: memref<64x64xf16>, %m: index) {
  %z = warp.load %D[%m, %m] : memref<64x64xf32> -> !warp.cta_tile<32x32xf32>
  %d = warp.tile_mma %A, %A, %z {types = ["f16", "f16"], warp.schedule = #s} : memref<32x32xf16, 3>, memref<32x32xf16, 3>, !warp.cta_tile<32x32xf32>
  %e = warp.tile_mma %A, %A, %d {types = ["f16", "f16"], warp.schedule = #s} : memref<32x32xf16, 3>, memref<32x32xf16, 3>, !warp.cta_tile<32x32xf32>
  warp.epilogue %d into %D[%m, %m] {warp.schedule = #s} : !warp.cta_tile<32x32xf32>, memref<64x64xf32>
  warp.epilogue %e into %E[%m, %m] {warp.schedule = #s} : !warp.cta_tile<32x32xf32>, memref<64x64xf16>
  return
}
