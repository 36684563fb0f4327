// More CTAs, or more rows in a group, than there are tiles: as many as there are, with a remark where sizes are known.
// RUN: warploom-opt %s -p "warp-schedule{cta=128,128,32 ctas=100000 group=100000},warp-outline,warp-stage,warp-fragments,warp-persist" | filecheck %s
// RUN: warploom-opt %s --remarks -o /dev/null -p "warp-schedule{cta=128,128,32 ctas=100000 group=100000},warp-outline,warp-stage,warp-fragments,warp-persist" 2>&1 | filecheck %s --check-prefix=MORE
// RUN: warploom-opt %s --remarks -o /dev/null -p "warp-schedule{cta=128,128,32 ctas=16 group=4},warp-outline,warp-stage,warp-fragments,warp-persist" 2>&1 | filecheck %s --check-prefix=EXACT
// RUN: warploom-opt %s --remarks -o /dev/null -p warp-schedule 2>&1 | filecheck %s --check-prefix=EXACT --allow-empty
// EXACT-NOT: {{(group|ctas) = [0-9]+:}}

builtin.module attributes {warp.target = #warp.target<sm_80>} {
// MORE-DAG: schedule_clamped.mlir:[[# @LINE + 4]]:3: remark: warp-schedule: group = 100000: the rows of CTA tiles are 4, which make one group
// MORE-DAG: schedule_clamped.mlir:[[# @LINE + 3]]:3: remark: warp-persist: ctas = 100000: there are 16 tiles, and as many CTAs are launched
// CHECK-LABEL: func.func @static
func.func @static(%A: memref<512x128xf16>, %B: memref<128x512xf16>, %C: memref<512x512xf32>) {
  linalg.matmul ins(%A, %B : memref<512x128xf16>, memref<128x512xf16>) outs(%C : memref<512x512xf32>)
  return
}
// CHECK: %[[CTAS:\w+]] = arith.constant 16 : index
// CHECK: gpu.launch_func @kernels::@static blocks in (%[[CTAS]],

// Tiles that the host counts at run time say nothing.
// CHECK-LABEL: func.func @dynamic
// CHECK: arith.minui
func.func @dynamic(%A: memref<?x128xf16>, %B: memref<128x512xf16>, %C: memref<?x512xf32>) {
  linalg.matmul ins(%A, %B : memref<?x128xf16>, memref<128x512xf16>) outs(%C : memref<?x512xf32>)
  return
}
}
