// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{Expected one of 'a', 'acc', 'b' as the fragment's role}}
func.func @role(%a: !warp.opaque<d, m16n16k16, f16, row>) {
  
  return
}

// -----

// expected-error @below {{Expected one of 'col', 'row' as the layout in memory}}
func.func @layout_word(%a: !warp.opaque<a, m16n16k16, f16, rows>) {
  
  return
}

// -----

// expected-error @below {{expected the layout row or col, got ''}}
func.func @no_layout(%a: !warp.opaque<a, m16n16k16, f16>) {
  
  return
}

// -----

// expected-error @below {{expected no layout of an accumulator, got 'row'}}
func.func @layout_of_acc(%a: !warp.opaque<acc, m16n16k16, f16, row>) {
  
  return
}

// -----

// expected-error @below {{wmma has no fragment a, m16n16k8, f16, row; the nearest are a, m16n16k16, f16, row; }}
func.func @shape(%a: !warp.opaque<a, m16n16k8, f16, row>) {
  
  return
}

// -----

// expected-error @below {{wmma has no fragment acc, m16n16k16, bf16; the nearest are acc, m16n16k16, f16; acc, m16n16k16, f32; acc, m16n16k16, s32}}
func.func @accumulator(%a: !warp.opaque<acc, m16n16k16, bf16>) {
  
  return
}

// -----

// expected-error @below {{wmma has no fragment a, m8n8k32, s4, col; the nearest are a, m8n8k32, s4, row; }}
func.func @columns(%a: !warp.opaque<a, m8n8k32, i4, col>) {
  
  return
}

// -----

// expected-error @below {{expected an element type of a matrix instruction, got index}}
func.func @index_type(%a: !warp.opaque<a, m16n16k16, index, row>) {
  
  return
}

// -----

// expected-error @+2 {{warp.load: expected memory of the fragment's element type f16, got f32}}
func.func @element(%m: memref<64x64xf32>, %i: index) {
  %x = warp.load %m[%i, %i] : memref<64x64xf32> -> !warp.opaque<a, m16n16k16, f16, row>
  return
}

// -----

// expected-error @+2 {{warp.load: expected one index for each of the 2 dimensions of the memref, got 1}}
func.func @indices(%m: memref<64x64xf16>, %i: index) {
  %x = warp.load %m[%i] : memref<64x64xf16> -> !warp.opaque<a, m16n16k16, f16, row>
  return
}

// -----

// expected-error @+2 {{warp.load: wmma.load reads global or shared memory (memory space 0 or 3), got memref<64x64xf16, 5 : i64>}}
func.func @space(%m: memref<64x64xf16, 5>, %i: index) {
  %x = warp.load %m[%i, %i] : memref<64x64xf16, 5> -> !warp.opaque<a, m16n16k16, f16, row>
  return
}

// -----

// expected-error @+2 {{warp.load: expected rows of at least 16 elements in memory, got 8 in memref<64x8xf16>}}
func.func @stride(%m: memref<64x8xf16>, %i: index) {
  %x = warp.load %m[%i, %i] : memref<64x8xf16> -> !warp.opaque<a, m16n16k16, f16, row>
  return
}

// -----

// expected-error @+2 {{warp.load: expected each row of memory to start at a multiple of 32 bytes, the size of the fragment in a lane; rows of memref<64x24xf16> are 48 bytes}}
func.func @alignment(%m: memref<64x24xf16>, %i: index) {
  %x = warp.load %m[%i, %i] : memref<64x24xf16> -> !warp.opaque<a, m16n16k16, f16, row>
  return
}

// -----

// expected-error @+2 {{warp.load: the type of A says its layout; swapped is for accumulators}}
func.func @col_of_a(%m: memref<64x64xf16>, %i: index) {
  %x = warp.load %m[%i, %i] {swapped} : memref<64x64xf16> -> !warp.opaque<a, m16n16k16, f16, row>
  return
}

// -----

// expected-error @+3 {{warp.load: wmma.load.a.sync.aligned.row.m8n8k4.global.f64 needs sm_80 or later, the module's target is sm_75}}
builtin.module attributes {warp.target = #warp.target<sm_75>} {
func.func @load_target(%m: memref<64x64xf64>, %i: index) {
  %x = warp.load %m[%i, %i] : memref<64x64xf64> -> !warp.opaque<a, m8n8k4, f64, row>
  return
}
}

// -----

// expected-error @+2 {{warp.store: wmma.store writes accumulators, got !warp.opaque<a, m16n16k16, f16, row>}}
func.func @store_of_a(%d: !warp.opaque<a, m16n16k16, f16, row>, %m: memref<64x64xf16>, %i: index) {
  warp.store %d, %m[%i, %i] : !warp.opaque<a, m16n16k16, f16, row>, memref<64x64xf16>
  return
}

// -----

// expected-error @+2 {{warp.store: expected rows of at least 16 elements in memory, got 8 in memref<64x8xf32>}}
func.func @store_stride(%d: !warp.opaque<acc, m16n16k16, f32>, %m: memref<64x8xf32>, %i: index) {
  warp.store %d, %m[%i, %i] : !warp.opaque<acc, m16n16k16, f32>, memref<64x8xf32>
  return
}

// -----

// expected-error @+3 {{warp.store: wmma.store.d.sync.aligned.col.m8n8k4.shared.f64 needs sm_80 or later, the module's target is sm_75}}
builtin.module attributes {warp.target = #warp.target<sm_75>} {
func.func @store_target(%d: !warp.opaque<acc, m8n8k4, f64>, %m: memref<64x64xf64, 3>, %i: index) {
  warp.store %d, %m[%i, %i] {swapped} : !warp.opaque<acc, m8n8k4, f64>, memref<64x64xf64, 3>
  return
}
}

// -----

// expected-error @+2 {{warp.wmma.mma: expected A to be a fragment of role a, got !warp.opaque<b, m16n16k16, f16, col>}}
func.func @role_of_a(%a: !warp.opaque<b, m16n16k16, f16, col>, %b: !warp.opaque<b, m16n16k16, f16, col>, %c: !warp.opaque<acc, m16n16k16, f32>) {
  %d = warp.wmma.mma %a, %b, %c : !warp.opaque<b, m16n16k16, f16, col>, !warp.opaque<b, m16n16k16, f16, col>, !warp.opaque<acc, m16n16k16, f32>
  return
}

// -----

// expected-error @+2 {{warp.wmma.mma: expected fragments of one shape, got m16n16k16, m32n8k16, m16n16k16, m16n16k16}}
func.func @shapes(%a: !warp.opaque<a, m16n16k16, f16, row>, %b: !warp.opaque<b, m32n8k16, f16, col>, %c: !warp.opaque<acc, m16n16k16, f32>) {
  %d = warp.wmma.mma %a, %b, %c : !warp.opaque<a, m16n16k16, f16, row>, !warp.opaque<b, m32n8k16, f16, col>, !warp.opaque<acc, m16n16k16, f32>
  return
}

// -----

// expected-error @+2 {{warp.wmma.mma: the ISA has no wmma.mma m16n16k16 row.col satfinite f16 x f16 -> f32; the nearest are m16n16k16 row.col f16 x f16 -> f32, }}
func.func @saturated(%a: !warp.opaque<a, m16n16k16, f16, row>, %b: !warp.opaque<b, m16n16k16, f16, col>, %c: !warp.opaque<acc, m16n16k16, f32>) {
  %d = warp.wmma.mma satfinite %a, %b, %c : !warp.opaque<a, m16n16k16, f16, row>, !warp.opaque<b, m16n16k16, f16, col>, !warp.opaque<acc, m16n16k16, f32>
  return
}

// -----

// expected-error @+2 {{warp.wmma.mma: the ISA has no wmma.mma m16n16k16 row.col f16 x bf16 -> f32; the nearest are m16n16k16 row.col f16 x f16 -> f32, }}
func.func @mixed(%a: !warp.opaque<a, m16n16k16, f16, row>, %b: !warp.opaque<b, m16n16k16, bf16, col>, %c: !warp.opaque<acc, m16n16k16, f32>) {
  %d = warp.wmma.mma %a, %b, %c : !warp.opaque<a, m16n16k16, f16, row>, !warp.opaque<b, m16n16k16, bf16, col>, !warp.opaque<acc, m16n16k16, f32>
  return
}

// -----

// expected-error @+3 {{warp.wmma.mma: wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.bf16.f32 needs sm_80 or later, the module's target is sm_75}}
builtin.module attributes {warp.target = #warp.target<sm_75>} {
func.func @mma_target(%a: !warp.opaque<a, m16n16k16, bf16, row>, %b: !warp.opaque<b, m16n16k16, bf16, col>, %c: !warp.opaque<acc, m16n16k16, f32>) {
  %d = warp.wmma.mma %a, %b, %c : !warp.opaque<a, m16n16k16, bf16, row>, !warp.opaque<b, m16n16k16, bf16, col>, !warp.opaque<acc, m16n16k16, f32>
  return
}
}

// -----

// expected-error @+2 {{expected 3 operands and 3 types, got 2 and 2}}
func.func @operands(%a: !warp.opaque<a, m16n16k16, f16, row>, %b: !warp.opaque<b, m16n16k16, f16, col>) {
  %d = warp.wmma.mma %a, %b : !warp.opaque<a, m16n16k16, f16, row>, !warp.opaque<b, m16n16k16, f16, col>
  return
}

// -----

// expected-error @+3 {{should be of base attribute warp.fragment}}
func.func @elementwise(%c: !warp.opaque<acc, m16n16k16, f32>) {
  %d = warp.elementwise neg %c : !warp.opaque<acc, m16n16k16, f32> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{should be of base attribute warp.opaque}}
func.func @not_opaque(%a: !warp.opaque<a, m16n16k16, f16, row>, %b: !warp.opaque<b, m16n16k16, f16, col>, %c: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %d = warp.wmma.mma %a, %b, %c : !warp.opaque<a, m16n16k16, f16, row>, !warp.opaque<b, m16n16k16, f16, col>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.load: an opaque fragment is read by wmma: all of it, in no other order}}
func.func @in_bounds(%m: memref<64x64xf16>, %i: index) {
  %x = warp.load %m[%i, %i] {in_bounds = [true, true]} : memref<64x64xf16> -> !warp.opaque<a, m16n16k16, f16, row>
  return
}
