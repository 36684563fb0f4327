// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+2 {{warp.constant: expected a value of the element type f32, got f16}}
func.func @constant_element() {
  %z = warp.constant 0.0 : f16 : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.constant: expected a value of the element type f32, got i32}}
func.func @constant_integer() {
  %z = warp.constant 0 : i32 : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.elementwise: expected 2 operand(s) for add, got 1}}
func.func @one_operand(%x: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %r = warp.elementwise add %x : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.elementwise: expected an operation on each element, got maximum, which takes rows together}}
func.func @maximum(%x: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %r = warp.elementwise maximum %x, %x : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.elementwise: expected 1 operand(s) for neg, got 2}}
func.func @two_operands(%x: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %r = warp.elementwise neg %x, %x : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.elementwise: expected 2 operand(s) for max, got 0}}
func.func @no_operands() {
  %r = "warp.elementwise"() <{kind = #warp<kind max>}> : () -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.elementwise: expected operands of the result's type !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, got !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>}}
func.func @types(%x: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, %y: !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %r = warp.elementwise mul %x, %y : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.elementwise: expected operands of the result's type !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>, got !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>}}
func.func @result(%x: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %r = warp.elementwise sub %x, %x : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>, !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> -> !warp.fragment<acc, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.convert: expected only the element type to change, got !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 32x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>}}
func.func @convert_shape(%x: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %r = warp.convert %x : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 32x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.convert: expected only the element type to change, got !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<a, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>}}
func.func @convert_role(%x: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %r = warp.convert %x : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<a, 16x8xf16, [c1 c2 r0 r1 r2 | c0 r3]>
  return
}

// -----

// expected-error @+2 {{warp.convert: expected only the element type to change, got !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>}}
func.func @convert_layout(%x: !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>) {
  %r = warp.convert %x : !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]> to !warp.fragment<acc, 16x8xf16, [r1 r2 c0 c1 c2 | r0 r3]>
  return
}

// -----

// Elements stay in their lane, whatever their order.
// expected-error @+2 {{warp.convert: expected only the element type to change, got !warp.fragment<b, 16x8xi8, [r2 r3 c0 c1 c2 | r0 r1]> to !warp.fragment<b, 16x8xf16, [r1 r3 c0 c1 c2 | r0 r2]>}}
func.func @convert_lanes(%x: !warp.fragment<b, 16x8xi8, [r2 r3 c0 c1 c2 | r0 r1]>) {
  %r = warp.convert %x {stored = "s8"} : !warp.fragment<b, 16x8xi8, [r2 r3 c0 c1 c2 | r0 r1]> to !warp.fragment<b, 16x8xf16, [r1 r3 c0 c1 c2 | r0 r2]>
  return
}

// -----

// Of lanes with copies each converts the byte of a word with its number.
// expected-error @+2 {{warp.convert: expected only the element type to change, got !warp.fragment<a, 16x32xi4, [x0 x1 r0 r1 r2 | c0 c1 c2 c3 c4 r3]> to !warp.fragment<a, 16x32xf16, [c1 c3 r0 r1 r2 | c0 r3 c2]>}}
func.func @convert_bytes(%x: !warp.fragment<a, 16x32xi4, [x0 x1 r0 r1 r2 | c0 c1 c2 c3 c4 r3]>) {
  %r = warp.convert %x {stored = "s4"} : !warp.fragment<a, 16x32xi4, [x0 x1 r0 r1 r2 | c0 c1 c2 c3 c4 r3]> to !warp.fragment<a, 16x32xf16, [c1 c3 r0 r1 r2 | c0 r3 c2]>
  return
}
