// RUN: warploom-opt %s --split-input-file --verify-diagnostics | filecheck %s
// RUN: not warploom-opt %s --split-input-file 2>&1 | filecheck %s --check-prefix=FIRST

// A part that is wrong does not keep the next from being read, and lines are counted from the file's start.

// CHECK: func.func @good
// FIRST: func.func @good
func.func @good() {
  return
}

// -----

// CHECK-NOT: @unknown
// FIRST:      split.mlir:19:3: error: Operation nowhere.to_be_found is not registered
// FIRST-NEXT:   nowhere.to_be_found
func.func @unknown() {
  // expected-error @below {{Operation nowhere.to_be_found is not registered}}
  nowhere.to_be_found () : () -> ()
}

// -----

// CHECK-NOT: @wrong
// FIRST-NOT: @wrong
func.func @wrong(%a: i32) -> i32 {
  %0 = "arith.constant"() <{value = 1 : i32}> : () -> i32
  // expected-error @below {{arith.addf: }}
  %b = "arith.addf"(%a, %0) <{fastmath = #arith.fastmath<none>}> : (i32, i32) -> i32
  return %b : i32
}

// -----

// CHECK: func.func @last
func.func @last() {
  return
}
