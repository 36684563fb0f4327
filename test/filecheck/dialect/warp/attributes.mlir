// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

// CHECK: builtin.module attributes {warp.target = #warp.target<sm_90a>} {
builtin.module attributes {warp.target = #warp.target<sm_90a>} {

// CHECK-LABEL: func.func @attributes
// CHECK-SAME: layout = #warp.layout<c1 c2 r0 r1 r2 | c0 r3 c3>
// CHECK-SAME: no_element_bits = #warp.layout<c0 c1 r0 r1 r2 |>
// CHECK-SAME: kind = #warp<kind add>
// CHECK-SAME: swizzles = [#warp.swizzle<16>, #warp.swizzle<32>, #warp.swizzle<64>, #warp.swizzle<128>]
// CHECK-SAME: schedule = #warp.schedule<cta = 128x256x64, warp = 64x64, mma = m16n8k16, stages = 4, swizzle = 128, group = 8, accumulate = f32>
// CHECK-SAME: reordered = #warp.schedule<cta = 16x8x8, warp = 16x8, mma = m16n8k8, stages = 1, swizzle = 16, group = 1, accumulate = f16>
// CHECK-SAME: targets = [#warp.target<sm_75>, #warp.target<sm_80>, #warp.target<sm_100f>, #warp.target<sm_120a>]
func.func @attributes() attributes {
  layout = #warp.layout<c1 c2 r0 r1 r2|c0 r3 c3>,
  no_element_bits = #warp.layout<c0 c1 r0 r1 r2 |>,
  kind = #warp.kind add,
  swizzles = [#warp.swizzle<16>, #warp.swizzle<32>, #warp.swizzle<64>, #warp.swizzle<128>],
  schedule = #warp.schedule<cta = 128x256x64, warp = 64x64, mma = m16n8k16, stages = 4, swizzle = 128, group = 8, accumulate = f32>,
  reordered = #warp.schedule<accumulate = f16, group = 1, swizzle = 16, stages = 1, mma = m16n8k8, warp = 16x8, cta = 16x8x8>,
  targets = [#warp.target<sm_75>, #warp.target<sm_80>, #warp.target<sm_100f>, #warp.target<sm_120a>]
} {
  return
}

// CHECK-LABEL: func.func @fragments
// CHECK-SAME: %a: !warp.fragment<a, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>
// CHECK-SAME: %b: !warp.fragment<b, 16x64xbf16, [r1 r2 c0 c1 c2 | r0 r3]>
// CHECK-SAME: %acc: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>
// CHECK-SAME: %word: !warp.fragment<acc, 8x4xf32, [c0 c1 r0 r1 r2 |]>
func.func @fragments(%a: !warp.fragment<a, 64x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>,
                     %b: !warp.fragment<b, 16x64xbf16, [r1 r2 c0 c1 c2 | r0 r3]>,
                     %acc: !warp.fragment<acc, 64x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>,
                     %word: !warp.fragment<acc, 8x4xf32, [c0 c1 r0 r1 r2 |]>) {
  return
}

}
