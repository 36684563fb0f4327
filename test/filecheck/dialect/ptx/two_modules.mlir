// RUN: warploom-opt %s -t "ptx{module=second}" | filecheck %s
// RUN: warploom-opt %s -t ptx --verify-diagnostics

// CHECK: .target sm_90
// expected-error @unknown {{expected one ptx.module to print, found 2: @first, @second; select one with module=NAME}}
ptx.module @first version "8.0" target "sm_80" address_size 64 {
}
ptx.module @second version "8.0" target "sm_90" address_size 64 {
}
