// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{Expected one of 'a', 'acc', 'b', 'meta', 'scale' as the fragment's role}}
func.func @role(%x: !warp.fragment<c, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>) {
  return
}

// -----

// expected-error @below {{expected an element type of a matrix instruction, got index}}
func.func @element_type(%x: !warp.fragment<a, 16x16xindex, [c1 c2 r0 r1 r2 | c0 r3 c3]>) {
  return
}

// -----

// expected-error @below {{expected a fragment of whole 16x16 tiles, got 24x16}}
func.func @partial_tile(%x: !warp.fragment<a, 24x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>) {
  return
}

// -----

// expected-error @below {{expected a fragment of whole 16x16 tiles, got 0x16}}
func.func @empty(%x: !warp.fragment<a, 0x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>) {
  return
}

// -----

// expected-error-re @below {{expected a fragment of whole 16x16 tiles, got -{{[0-9]+}}x16}}
func.func @dynamic(%x: !warp.fragment<a, ?x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>) {
  return
}

// -----

// expected-error @below {{expected a base tile that fills whole 32-bit registers, the layout gives each lane 1 x f16}}
func.func @half_a_register(%x: !warp.fragment<a, 8x4xf16, [c0 c1 r0 r1 r2 |]>) {
  return
}

// -----

// expected-error @below {{expected a fragment of rank 2, got rank 3}}
func.func @rank(%x: !warp.fragment<a, 1x16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>) {
  return
}

// -----

// expected-error @below {{a warp has 5 lane bits, the layout 'c1 c2 r0 r1 | c0 r2' gives 4}}
func.func @lane_bits(%x: !warp.fragment<a, 8x8xf16, [c1 c2 r0 r1 | c0 r2]>) {
  return
}

// -----

// expected-error @below {{the layout 'c1 c2 r0 r1 r2 | c0 r2' must carry each row bit once, got bits [0, 1, 2, 2]}}
func.func @row_bit_twice(%x: !warp.fragment<a, 8x8xf16, [c1 c2 r0 r1 r2 | c0 r2]>) {
  return
}

// -----

// expected-error @below {{the layout 'c1 c2 r0 r1 r2 | r3' must carry each column bit once, got bits [1, 2]}}
func.func @column_bit_missing() attributes {layout = #warp.layout<c1 c2 r0 r1 r2 | r3>} {
  return
}

// -----

// expected-error @below {{expected a layout bit such as r0 or c3, got 'k0'}}
func.func @layout_bit() attributes {layout = #warp.layout<k0 c2 r0 r1 r2 | c0>} {
  return
}

// -----

// expected-error @below {{a warp has 5 lane bits, the layout 'c1 c2 r0 r1 r2 c0 |' gives 6}}
func.func @no_bar() attributes {layout = #warp.layout<c1 c2 r0 r1 r2 c0>} {
  return
}

// -----

// expected-error @below {{expected a swizzle of 4, 16, 32, 64, 128 bytes, got 48}}
func.func @swizzle(%x: memref<8x24xf16, #warp.swizzle<48>, 3>) {
  return
}

// -----

// expected-error-re @below {{unknown target 'sm_91'; known targets: sm_70, {{.*}}sm_90, sm_90a}}
builtin.module @target attributes {warp.target = #warp.target<sm_91>} {}

// -----

// expected-error @below {{unknown target 'hopper' (a target is written like sm_90a); known targets:}}
builtin.module @target_word attributes {warp.target = #warp.target<hopper>} {}

// -----

// expected-error @below {{sync must be one of barrier, mbarrier, got never}}
func.func @schedule_in_part() attributes {s = #warp.schedule<cta = 16x8x16, sync = never>} {
  return
}

// -----

// expected-error @below {{unknown schedule option 'depth'; known: cta, warp, mma, stages, swizzle, group, accumulate}}
func.func @schedule_field_unknown() attributes {s = #warp.schedule<cta = 16x8x16, warp = 16x8, mma = m16n8k16, stages = 1, swizzle = 128, group = 8, accumulate = f32, depth = 3>} {
  return
}

// -----

// expected-error @below {{schedule option warp: expected 2 numbers, got}}
func.func @schedule_sizes() attributes {s = #warp.schedule<cta = 16x8x16, warp = 16x8x16, mma = m16n8k16, stages = 1, swizzle = 128, group = 8, accumulate = f32>} {
  return
}

// -----

// expected-error @below {{schedule option mma: expected a shape such as m16n8k16, got 'm16n8'}}
func.func @schedule_instruction() attributes {s = #warp.schedule<cta = 16x8x16, warp = 16x8, mma = m16n8, stages = 1, swizzle = 128, group = 8, accumulate = f32>} {
  return
}

// -----

// expected-error @below {{cta must be numbers of at least 1, got 16x8x0}}
func.func @schedule_no_depth() attributes {s = #warp.schedule<cta = 16x8x0, warp = 16x8, mma = m16n8k16, stages = 1, swizzle = 128, group = 8, accumulate = f32>} {
  return
}

// -----

// expected-error @below {{warp must divide cta, got 16 against 24 along N}}
func.func @schedule_warp() attributes {s = #warp.schedule<cta = 16x24x16, warp = 16x16, mma = m16n8k16, stages = 1, swizzle = 128, group = 8, accumulate = f32>} {
  return
}

// -----

// expected-error @below {{cta and warp must be multiples of mma = m16n8k16, got 24 along K (the next multiple is 32)}}
func.func @schedule_multiple() attributes {s = #warp.schedule<cta = 16x8x24, warp = 16x8, mma = m16n8k16, stages = 1, swizzle = 128, group = 8, accumulate = f32>} {
  return
}

// -----

// expected-error @below {{a CTA has at most 1024 threads, 36 warps take 1152; enlarge warp or reduce cta: cta = 96x48x16, warp = 16x8}}
func.func @schedule_threads() attributes {s = #warp.schedule<cta = 96x48x16, warp = 16x8, mma = m16n8k16, stages = 1, swizzle = 128, group = 8, accumulate = f32>} {
  return
}

// -----

// expected-error @below {{stages must be 1 to 1024, got 0}}
func.func @schedule_stages() attributes {s = #warp.schedule<cta = 16x8x16, warp = 16x8, mma = m16n8k16, stages = 0, swizzle = 128, group = 8, accumulate = f32>} {
  return
}

// -----

// expected-error @below {{swizzle must be one of 16, 32, 64, 128, got 8}}
func.func @schedule_swizzle() attributes {s = #warp.schedule<cta = 16x8x16, warp = 16x8, mma = m16n8k16, stages = 1, swizzle = 8, group = 8, accumulate = f32>} {
  return
}

// -----

// expected-error @below {{group must be 1 to 2147483647, got 0}}
func.func @schedule_group() attributes {s = #warp.schedule<cta = 16x8x16, warp = 16x8, mma = m16n8k16, stages = 1, swizzle = 128, group = 0, accumulate = f32>} {
  return
}

// -----

// expected-error @+2 {{Expected `add`, `sub`, `mul`, `max`, `min`, `maximum`, `minimum`, or `neg`.}}
func.func @kind(%x: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %0 = warp.elementwise div %x, %x : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}
