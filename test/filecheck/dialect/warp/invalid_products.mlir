// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{warp.mma: the ISA has no mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32; the nearest are mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32,}}
func.func @saturated_float(%a: !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %b: !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = warp.mma m16n8k16 %a, %b, %c {satfinite} : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.mma: the ISA has no mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32.xor; the nearest are mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32,}}
func.func @bit_operation(%a: !warp.fragment<a, 16x32xi8, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>, %b: !warp.fragment<b, 32x8xi8, [r2 r3 c0 c1 c2 | r0 r1 r4]>, %c: !warp.fragment<acc, 16x8xi32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = warp.mma m16n8k32 %a, %b, %c {bit_op = "xor"} : !warp.fragment<a, 16x32xi8, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>, !warp.fragment<b, 32x8xi8, [r2 r3 c0 c1 c2 | r0 r1 r4]>, !warp.fragment<acc, 16x8xi32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.mma: the ISA has no mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32; the nearest are mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f32,}}
func.func @layouts(%a: !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %b: !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = warp.mma m16n8k16 %a, %b, %c {layouts = "col.row"} : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.mma: the ISA has no mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.f32.e3m2.e4m3.f32; the nearest are mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e3m2.e4m3.f32,}}
func.func @without_scales(%a: !warp.fragment<a, 16x32xf6E3M2FN, [c2 c3 r0 r1 r2 | c0 c1 r3 c4], bytes>, %b: !warp.fragment<b, 32x8xf8E4M3FN, [r2 r3 c0 c1 c2 | r0 r1 r4]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = warp.mma m16n8k32 %a, %b, %c {kind = "mxf8f6f4"} : !warp.fragment<a, 16x32xf6E3M2FN, [c2 c3 r0 r1 r2 | c0 c1 r3 c4], bytes>, !warp.fragment<b, 32x8xf8E4M3FN, [r2 r3 c0 c1 c2 | r0 r1 r4]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.mma: the ISA has no mma.sync.aligned.m16n8k64.row.col.kind::mxf4.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3; the nearest are mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3,}}
func.func @scales_of_another_kind(%a: !warp.fragment<a, 16x64xf4E2M1FN, [c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5]>, %b: !warp.fragment<b, 64x8xf4E2M1FN, [r3 r4 c0 c1 c2 | r0 r1 r2 r5]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %s: !warp.fragment<scale, 16x4xf8E4M3FN, [r3 t0 r0 r1 r2 | c0 c1]>, %t: !warp.fragment<scale, 16x4xf8E4M3FN, [r3 t0 r0 r1 r2 | c0 c1]>) {
  %d = warp.mma m16n8k64 %a, %b, %c scaled %s, %t {kind = "mxf4", selectors = array<i64: 0, 0, 0, 0>} : !warp.fragment<a, 16x64xf4E2M1FN, [c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5]>, !warp.fragment<b, 64x8xf4E2M1FN, [r3 r4 c0 c1 c2 | r0 r1 r2 r5]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> scaled !warp.fragment<scale, 16x4xf8E4M3FN, [r3 t0 r0 r1 r2 | c0 c1]>, !warp.fragment<scale, 16x4xf8E4M3FN, [r3 t0 r0 r1 r2 | c0 c1]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected matrix A of m16n8k32 e3m2 to be 4 x b32 per lane in layout [c2 c3 r0 r1 r2 | c0 c1 r3 c4], bytes, got 3 in [c2 c3 r0 r1 r2 | c0 c1 r3 c4]}}
func.func @without_bytes(%a: !warp.fragment<a, 16x32xf6E3M2FN, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>, %b: !warp.fragment<b, 32x8xf8E4M3FN, [r2 r3 c0 c1 c2 | r0 r1 r4]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = warp.mma m16n8k32 %a, %b, %c {kind = "f8f6f4"} : !warp.fragment<a, 16x32xf6E3M2FN, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>, !warp.fragment<b, 32x8xf8E4M3FN, [r2 r3 c0 c1 c2 | r0 r1 r4]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected matrix A of m8n8k4 f64 to be 1 x b64 per lane in layout [c0 c1 r0 r1 r2 |], got 1 in [r0 r1 r2 c0 c1 |]}}
func.func @double(%a: !warp.fragment<a, 8x4xf64, [r0 r1 r2 c0 c1 |]>, %b: !warp.fragment<b, 4x8xf64, [r0 r1 c0 c1 c2 |]>, %c: !warp.fragment<acc, 8x8xf64, [c1 c2 r0 r1 r2 | c0]>) {
  %d = warp.mma m8n8k4 %a, %b, %c : !warp.fragment<a, 8x4xf64, [r0 r1 r2 c0 c1 |]>, !warp.fragment<b, 4x8xf64, [r0 r1 c0 c1 c2 |]>, !warp.fragment<acc, 8x8xf64, [c1 c2 r0 r1 r2 | c0]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected D to be !warp.fragment<acc, 8x8xf32, [r0 c1 q0 q1 r2 | c0 r1 c2]>, got !warp.fragment<acc, 8x8xf32, [c1 c2 r0 r1 r2 | c0]>}}
func.func @result_in_another_layout(%a: !warp.fragment<a, 8x4xf16, [r0 r1 q0 q1 r2 | c0 c1]>, %b: !warp.fragment<b, 4x8xf16, [c0 c1 q0 q1 c2 | r0 r1]>, %c: !warp.fragment<acc, 8x8xf16, [r0 r1 q0 q1 r2 | c0 c1 c2]>) {
  %d = warp.mma m8n8k4 %a, %b, %c : !warp.fragment<a, 8x4xf16, [r0 r1 q0 q1 r2 | c0 c1]>, !warp.fragment<b, 4x8xf16, [c0 c1 q0 q1 c2 | r0 r1]>, !warp.fragment<acc, 8x8xf16, [r0 r1 q0 q1 r2 | c0 c1 c2]> -> !warp.fragment<acc, 8x8xf32, [c1 c2 r0 r1 r2 | c0]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected one step along k where C and D have different types, got 2}}
func.func @two_steps(%a: !warp.fragment<a, 8x8xf16, [r0 r1 q0 q1 r2 | c0 c1]>, %b: !warp.fragment<b, 8x8xf16, [c0 c1 q0 q1 c2 | r0 r1]>, %c: !warp.fragment<acc, 8x8xf16, [r0 r1 q0 q1 r2 | c0 c1 c2]>) {
  %d = warp.mma m8n8k4 %a, %b, %c : !warp.fragment<a, 8x8xf16, [r0 r1 q0 q1 r2 | c0 c1]>, !warp.fragment<b, 8x8xf16, [c0 c1 q0 q1 c2 | r0 r1]>, !warp.fragment<acc, 8x8xf16, [r0 r1 q0 q1 r2 | c0 c1 c2]> -> !warp.fragment<acc, 8x8xf32, [r0 c1 q0 q1 r2 | c0 r1 c2]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected the scales of A to be !warp.fragment<scale, 16x2xf8E8M0FNU, [r3 t0 r0 r1 r2 | c0 b0]>, got !warp.fragment<scale, 32x2xf8E8M0FNU, [r3 t0 r0 r1 r2 | c0 b0]>}}
func.func @scales_of_more_rows(%a: !warp.fragment<a, 16x64xf4E2M1FN, [c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5]>, %b: !warp.fragment<b, 64x8xf4E2M1FN, [r3 r4 c0 c1 c2 | r0 r1 r2 r5]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %s: !warp.fragment<scale, 32x2xf8E8M0FNU, [r3 t0 r0 r1 r2 | c0 b0]>, %t: !warp.fragment<scale, 2x8xf8E8M0FNU, [t0 t1 c0 c1 c2 | r0 b0]>) {
  %d = warp.mma m16n8k64 %a, %b, %c scaled %s, %t {kind = "mxf4", selectors = array<i64: 0, 0, 0, 0>} : !warp.fragment<a, 16x64xf4E2M1FN, [c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5]>, !warp.fragment<b, 64x8xf4E2M1FN, [r3 r4 c0 c1 c2 | r0 r1 r2 r5]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> scaled !warp.fragment<scale, 32x2xf8E8M0FNU, [r3 t0 r0 r1 r2 | c0 b0]>, !warp.fragment<scale, 2x8xf8E8M0FNU, [t0 t1 c0 c1 c2 | r0 b0]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected the scales of B to be !warp.fragment<scale, 2x8xf8E8M0FNU, [t0 t1 c0 c1 c2 | r0 b0]>, got !warp.fragment<scale, 16x2xf8E8M0FNU, [r3 t0 r0 r1 r2 | c0 b0]>}}
func.func @scales_of_b(%a: !warp.fragment<a, 16x64xf4E2M1FN, [c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5]>, %b: !warp.fragment<b, 64x8xf4E2M1FN, [r3 r4 c0 c1 c2 | r0 r1 r2 r5]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %s: !warp.fragment<scale, 16x2xf8E8M0FNU, [r3 t0 r0 r1 r2 | c0 b0]>, %t: !warp.fragment<scale, 16x2xf8E8M0FNU, [r3 t0 r0 r1 r2 | c0 b0]>) {
  %d = warp.mma m16n8k64 %a, %b, %c scaled %s, %t {kind = "mxf4", selectors = array<i64: 0, 0, 0, 0>} : !warp.fragment<a, 16x64xf4E2M1FN, [c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5]>, !warp.fragment<b, 64x8xf4E2M1FN, [r3 r4 c0 c1 c2 | r0 r1 r2 r5]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> scaled !warp.fragment<scale, 16x2xf8E8M0FNU, [r3 t0 r0 r1 r2 | c0 b0]>, !warp.fragment<scale, 16x2xf8E8M0FNU, [r3 t0 r0 r1 r2 | c0 b0]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected byte-id-a 0, 2 for 2 scales, got 1}}
func.func @byte_id(%a: !warp.fragment<a, 16x64xf4E2M1FN, [c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5]>, %b: !warp.fragment<b, 64x8xf4E2M1FN, [r3 r4 c0 c1 c2 | r0 r1 r2 r5]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %s: !warp.fragment<scale, 16x2xf8E8M0FNU, [r3 t0 r0 r1 r2 | c0 b0]>, %t: !warp.fragment<scale, 2x8xf8E8M0FNU, [t0 t1 c0 c1 c2 | r0 b0]>) {
  %d = warp.mma m16n8k64 %a, %b, %c scaled %s, %t {kind = "mxf4", selectors = array<i64: 1, 0, 0, 0>} : !warp.fragment<a, 16x64xf4E2M1FN, [c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5]>, !warp.fragment<b, 64x8xf4E2M1FN, [r3 r4 c0 c1 c2 | r0 r1 r2 r5]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> scaled !warp.fragment<scale, 16x2xf8E8M0FNU, [r3 t0 r0 r1 r2 | c0 b0]>, !warp.fragment<scale, 2x8xf8E8M0FNU, [t0 t1 c0 c1 c2 | r0 b0]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected thread-id-a 0, 1 for 2 scales, got 2}}
func.func @thread_id_of_a(%a: !warp.fragment<a, 16x64xf4E2M1FN, [c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5]>, %b: !warp.fragment<b, 64x8xf4E2M1FN, [r3 r4 c0 c1 c2 | r0 r1 r2 r5]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %s: !warp.fragment<scale, 16x2xf8E8M0FNU, [r3 t0 r0 r1 r2 | c0 b0]>, %t: !warp.fragment<scale, 2x8xf8E8M0FNU, [t0 t1 c0 c1 c2 | r0 b0]>) {
  %d = warp.mma m16n8k64 %a, %b, %c scaled %s, %t {kind = "mxf4", selectors = array<i64: 0, 2, 0, 0>} : !warp.fragment<a, 16x64xf4E2M1FN, [c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5]>, !warp.fragment<b, 64x8xf4E2M1FN, [r3 r4 c0 c1 c2 | r0 r1 r2 r5]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> scaled !warp.fragment<scale, 16x2xf8E8M0FNU, [r3 t0 r0 r1 r2 | c0 b0]>, !warp.fragment<scale, 2x8xf8E8M0FNU, [t0 t1 c0 c1 c2 | r0 b0]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected thread-id-b 0, 1, 2, 3 for 2 scales, got 4}}
func.func @thread_id_of_b(%a: !warp.fragment<a, 16x64xf4E2M1FN, [c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5]>, %b: !warp.fragment<b, 64x8xf4E2M1FN, [r3 r4 c0 c1 c2 | r0 r1 r2 r5]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %s: !warp.fragment<scale, 16x2xf8E8M0FNU, [r3 t0 r0 r1 r2 | c0 b0]>, %t: !warp.fragment<scale, 2x8xf8E8M0FNU, [t0 t1 c0 c1 c2 | r0 b0]>) {
  %d = warp.mma m16n8k64 %a, %b, %c scaled %s, %t {kind = "mxf4", selectors = array<i64: 0, 0, 2, 4>} : !warp.fragment<a, 16x64xf4E2M1FN, [c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5]>, !warp.fragment<b, 64x8xf4E2M1FN, [r3 r4 c0 c1 c2 | r0 r1 r2 r5]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> scaled !warp.fragment<scale, 16x2xf8E8M0FNU, [r3 t0 r0 r1 r2 | c0 b0]>, !warp.fragment<scale, 2x8xf8E8M0FNU, [t0 t1 c0 c1 c2 | r0 b0]>
  return
}

// -----

// expected-error @+2 {{warp.mma: mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0 takes scales of A and of B, with a byte-id and a thread-id each}}
func.func @one_scale(%a: !warp.fragment<a, 16x64xf4E2M1FN, [c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5]>, %b: !warp.fragment<b, 64x8xf4E2M1FN, [r3 r4 c0 c1 c2 | r0 r1 r2 r5]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %s: !warp.fragment<scale, 16x2xf8E8M0FNU, [r3 t0 r0 r1 r2 | c0 b0]>) {
  %d = warp.mma m16n8k64 %a, %b, %c scaled %s {kind = "mxf4", selectors = array<i64: 0, 0>} : !warp.fragment<a, 16x64xf4E2M1FN, [c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5]>, !warp.fragment<b, 64x8xf4E2M1FN, [r3 r4 c0 c1 c2 | r0 r1 r2 r5]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> scaled !warp.fragment<scale, 16x2xf8E8M0FNU, [r3 t0 r0 r1 r2 | c0 b0]>
  return
}

// -----

// expected-error @+2 {{warp.mma: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 has no scales to select}}
func.func @selectors_without_scales(%a: !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %b: !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = "warp.mma"(%a, %b, %c) <{shape = "m16n8k16", selectors = array<i64: 0, 0, 0, 0>, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>}> : (!warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+3 {{warp.mma: mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0 needs sm_120a, or the sm_120f family from PTX 8.8, the module's target is sm_100a}}
builtin.module attributes {warp.target = #warp.target<sm_100a>} {
func.func @family(%a: !warp.fragment<a, 16x64xf4E2M1FN, [c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5]>, %b: !warp.fragment<b, 64x8xf4E2M1FN, [r3 r4 c0 c1 c2 | r0 r1 r2 r5]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %s: !warp.fragment<scale, 16x2xf8E8M0FNU, [r3 t0 r0 r1 r2 | c0 b0]>, %t: !warp.fragment<scale, 2x8xf8E8M0FNU, [t0 t1 c0 c1 c2 | r0 b0]>) {
  %d = warp.mma m16n8k64 %a, %b, %c scaled %s, %t {kind = "mxf4", selectors = array<i64: 0, 0, 0, 0>} : !warp.fragment<a, 16x64xf4E2M1FN, [c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5]>, !warp.fragment<b, 64x8xf4E2M1FN, [r3 r4 c0 c1 c2 | r0 r1 r2 r5]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> scaled !warp.fragment<scale, 16x2xf8E8M0FNU, [r3 t0 r0 r1 r2 | c0 b0]>, !warp.fragment<scale, 2x8xf8E8M0FNU, [t0 t1 c0 c1 c2 | r0 b0]>
  return
}
}

// -----

// expected-error @+2 {{warp.mma: the ISA has no mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.f16.f16.f32; the nearest are mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32,}}
func.func @shape(%a: !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %b: !warp.fragment<b, 32x8xf16, [r1 r2 c0 c1 c2 | r0 r3 r4]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %e: !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>) {
  %d = warp.mma m16n8k64 %a, %b, %c sparse %e {ordered, selector = 0 : i64} : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 32x8xf16, [r1 r2 c0 c1 c2 | r0 r3 r4]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> sparse !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected A m x k/2, B k x n and C m x n, got 16x16, 64x8 and 16x8}}
func.func @dense_b(%a: !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %b: !warp.fragment<b, 64x8xf16, [r1 r2 c0 c1 c2 | r0 r3 r4]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %e: !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>) {
  %d = warp.mma m16n8k32 %a, %b, %c sparse %e {ordered, selector = 0 : i64} : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 64x8xf16, [r1 r2 c0 c1 c2 | r0 r3 r4]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> sparse !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected the metadata to be !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>, got !warp.fragment<meta, 16x4xi4, [f0 f1 r0 r1 r2 | c0 c1 r3]>}}
func.func @metadata(%a: !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %b: !warp.fragment<b, 32x8xf16, [r1 r2 c0 c1 c2 | r0 r3 r4]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %e: !warp.fragment<meta, 16x4xi4, [f0 f1 r0 r1 r2 | c0 c1 r3]>) {
  %d = warp.mma m16n8k32 %a, %b, %c sparse %e {ordered, selector = 0 : i64} : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 32x8xf16, [r1 r2 c0 c1 c2 | r0 r3 r4]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> sparse !warp.fragment<meta, 16x4xi4, [f0 f1 r0 r1 r2 | c0 c1 r3]>
  return
}

// -----

// expected-error @+2 {{warp.mma: expected a sparsity selector of 0 or 1 for mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32, got 2}}
func.func @selector(%a: !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %b: !warp.fragment<b, 32x8xf16, [r1 r2 c0 c1 c2 | r0 r3 r4]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %e: !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>) {
  %d = warp.mma m16n8k32 %a, %b, %c sparse %e {ordered, selector = 2 : i64} : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 32x8xf16, [r1 r2 c0 c1 c2 | r0 r3 r4]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> sparse !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>
  return
}

// -----

// expected-error @+3 {{warp.mma: mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 needs sm_80 or later, the module's target is sm_75}}
builtin.module attributes {warp.target = #warp.target<sm_75>} {
func.func @sparse_target(%a: !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, %b: !warp.fragment<b, 32x8xf16, [r1 r2 c0 c1 c2 | r0 r3 r4]>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %e: !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>) {
  %d = warp.mma m16n8k32 %a, %b, %c sparse %e {selector = 0 : i64} : !warp.fragment<a, 16x16xf16, [c1 c2 r0 r1 r2 | c0 r3 c3]>, !warp.fragment<b, 32x8xf16, [r1 r2 c0 c1 c2 | r0 r3 r4]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> sparse !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>
  return
}
}

// -----

// expected-error @below {{expected elements of 4 or 6 floating-point bits in bytes, got s4}}
func.func @bytes_of_integers(%a: !warp.fragment<a, 16x32xi4, [c2 c3 r0 r1 r2 | c0 c1 r3 c4], bytes>) {
  
  return
}

// -----

// expected-error @below {{the word for elements that have a byte each}}
func.func @another_word(%a: !warp.fragment<a, 16x32xi4, [c2 c3 r0 r1 r2 | c0 c1 r3 c4], nibbles>) {
  
  return
}

// -----

// expected-error @+2 {{warp.mma: expected thread-id-b 0, 2 for 2 scales, got 1}}
func.func @thread_id_of_tiles(%a: !warp.fragment<a, 16x64xf4E2M1FN, [c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5]>, %b: !warp.fragment<b, 64x16xf4E2M1FN, [r3 r4 c0 c1 c2 | r0 r1 r2 r5]>, %c: !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %s: !warp.fragment<scale, 16x2xf8E8M0FNU, [r3 t0 r0 r1 r2 | c0 b0]>, %t: !warp.fragment<scale, 2x16xf8E8M0FNU, [c3 t0 c0 c1 c2 | r0 b0]>) {
  %d = warp.mma m16n8k64 %a, %b, %c scaled %s, %t {kind = "mxf4", selectors = array<i64: 0, 0, 2, 1>} : !warp.fragment<a, 16x64xf4E2M1FN, [c3 c4 r0 r1 r2 | c0 c1 c2 r3 c5]>, !warp.fragment<b, 64x16xf4E2M1FN, [r3 r4 c0 c1 c2 | r0 r1 r2 r5]>, !warp.fragment<acc, 16x16xf32, [c1 c2 r0 r1 r2 | c0 r3]> scaled !warp.fragment<scale, 16x2xf8E8M0FNU, [r3 t0 r0 r1 r2 | c0 b0]>, !warp.fragment<scale, 2x16xf8E8M0FNU, [c3 t0 c0 c1 c2 | r0 b0]>
  return
}
