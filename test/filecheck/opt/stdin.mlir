// RUN: warploom-opt < %s | filecheck %s
// RUN: warploom-opt %s -o %t
// RUN: filecheck %s < %t
// RUN: not warploom-opt %s --no-implicit-module 2>&1 | filecheck %s --check-prefix=STRICT

// CHECK: func.func @f
// STRICT: stdin.mlir:1:1: error: builtin.module operation expected
func.func @f() {
  return
}
