// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{warp.mma: the ISA has no mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32; the nearest are mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32,}}
func.func @shape(%a: !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %b: !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = warp.mma m16n8k32 %a, %b, %c : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.mma: the ISA has no mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16; the nearest are mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32,}}
func.func @accumulator(%a: !warp.fragment<a, 16x16xbf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %b: !warp.fragment<b, 16x8xbf16, [r1 r2 c0 c1 c2 | r0 r3]>, %c: !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = warp.mma m16n8k16 %a, %b, %c : !warp.fragment<a, 16x16xbf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 16x8xbf16, [r1 r2 c0 c1 c2 | r0 r3]>, !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.mma: the ISA has no mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32; the nearest are mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32,}}
func.func @mixed(%a: !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %b: !warp.fragment<b, 16x8xbf16, [r1 r2 c0 c1 c2 | r0 r3]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = warp.mma m16n8k16 %a, %b, %c : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 16x8xbf16, [r1 r2 c0 c1 c2 | r0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected a shape such as m16n8k16, got 'm16n8'}}
func.func @shape_text(%a: !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %b: !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = warp.mma m16n8 %a, %b, %c : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected A to be a fragment of role a, got acc}}
func.func @role_of_a(%a: !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, %b: !warp.fragment<b, 8x8xf16, [r1 r2 c0 c1 c2 | r0]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = warp.mma m16n8k8 %a, %b, %c : !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<b, 8x8xf16, [r1 r2 c0 c1 c2 | r0]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected B to be a fragment of role b, got a}}
func.func @role_of_b(%a: !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %b: !warp.fragment<a, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = warp.mma m16n8k16 %a, %b, %c : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<a, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected C to be a fragment of role acc, got b}}
func.func @role_of_c(%a: !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %b: !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, %c: !warp.fragment<b, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = warp.mma m16n8k16 %a, %b, %c : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, !warp.fragment<b, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected matrix A of m16n8k16 f16 to be 4 x b32 per lane in layout [c1 c2 r0 r1 r2 | c0 r3 c3], got 2 in [c1 c2 r0 r1 r2 | c0 r3]}}
func.func @registers_of_a(%a: !warp.fragment<a, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, %b: !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = warp.mma m16n8k16 %a, %b, %c : !warp.fragment<a, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected matrix B of m16n8k16 f16 to be 2 x b32 per lane in layout [r1 r2 c0 c1 c2 | r0 r3], got 2 in [c1 c2 r0 r1 r2 | c0 r3]}}
func.func @layout_of_b(%a: !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %b: !warp.fragment<b, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = warp.mma m16n8k16 %a, %b, %c : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected matrix C of m16n8k16 f32 to be 4 x b32 per lane in layout [c1 c2 r0 r1 r2 | c0 r3], got 4 in [r1 r2 c0 c1 c2 | r0 r3]}}
func.func @layout_of_c(%a: !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %b: !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, %c: !warp.fragment<acc, 16x8xf32, [r1 r2 c0 c1 c2 | r0 r3]>) {
  %d = warp.mma m16n8k16 %a, %b, %c : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, !warp.fragment<acc, 16x8xf32, [r1 r2 c0 c1 c2 | r0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected A m x k, B k x n and C m x n, got 16x16, 32x8 and 16x8}}
func.func @depth(%a: !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %b: !warp.fragment<b, 32x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = warp.mma m16n8k16 %a, %b, %c : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 32x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected A m x k, B k x n and C m x n, got 16x16, 16x8 and 32x8}}
func.func @rows(%a: !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %b: !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, %c: !warp.fragment<acc, 32x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = warp.mma m16n8k16 %a, %b, %c : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, !warp.fragment<acc, 32x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected A m x k, B k x n and C m x n, got 16x16, 16x16 and 16x8}}
func.func @columns(%a: !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %b: !warp.fragment<b, 16x16xf16, [r1 r2 c0 c1 c2 | r0 r3]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = warp.mma m16n8k16 %a, %b, %c : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 16x16xf16, [r1 r2 c0 c1 c2 | r0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected D of the type of C, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, got !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>}}
func.func @result(%a: !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %b: !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = "warp.mma"(%a, %b, %c) <{shape = "m16n8k16", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>}> : (!warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+3 {{warp.mma: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 needs sm_80 or later, the module's target is sm_75}}
builtin.module attributes {warp.target = #warp.target<sm_75>} {
func.func @target(%a: !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %b: !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = warp.mma m16n8k16 %a, %b, %c : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}
}

// -----

// expected-error @+3 {{Expected ','}}
func.func @types(%a: !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %b: !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = warp.mma m16n8k16 %a, %b, %c : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>
  return
}

// -----

// expected-error @+2 {{f32 should be of base attribute warp.fragment}}
func.func @fragments(%a: f32, %b: f32, %c: f32) {
  %d = warp.mma m16n8k16 %a, %b, %c : f32, f32, f32
  return
}
