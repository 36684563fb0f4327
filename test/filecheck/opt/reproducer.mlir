// Where a pass fails, the IR before the pipeline, or before that pass alone, and the pipeline are written; both fail again.

// RUN: not warploom-opt %s -p 'warp-set-target{arch=sm_80},warp-raise-matmul,warp-schedule' --mlir-pass-pipeline-crash-reproducer=%t.mlir --mlir-print-ir-after-failure 2>&1 | filecheck %s
// CHECK: // -----// IR Dump After SchedulePass (warp-schedule) Failed //----- //
// CHECK: // wrote {{.*}}.mlir; warploom-opt --run-reproducer {{.*}}.mlir runs it
// CHECK: reproducer.mlir:[[# @LINE + 18]]:3: error: no instruction multiplies f32 x f32

// RUN: filecheck %s --check-prefix=WRITTEN --input-file=%t.mlir
// WRITTEN-NOT: warp.target
// WRITTEN:     linalg.matmul
// WRITTEN:     mlir_reproducer: {
// WRITTEN-NEXT:  pipeline: "builtin.module(warp-set-target{arch=\"sm_80\"},warp-raise-matmul,warp-schedule

// RUN: not warploom-opt --run-reproducer %t.mlir 2>&1 | filecheck %s --check-prefix=AGAIN
// AGAIN: error: no instruction multiplies f32 x f32

// RUN: not warploom-opt %s -p 'warp-set-target{arch=sm_80},warp-raise-matmul,warp-schedule' --mlir-pass-pipeline-crash-reproducer=%t.local.mlir --mlir-pass-pipeline-local-reproducer -o /dev/null
// RUN: filecheck %s --check-prefix=LOCAL --input-file=%t.local.mlir
// LOCAL: warp.target = #warp.target<sm_80>
// LOCAL: pipeline: "builtin.module(warp-schedule
// RUN: not warploom-opt --run-reproducer %t.local.mlir 2>&1 | filecheck %s --check-prefix=AGAIN

func.func @f(%A: memref<32x48xf32>, %B: memref<48x24xf32>, %C: memref<32x24xf32>) {
  linalg.matmul ins(%A, %B : memref<32x48xf32>, memref<48x24xf32>) outs(%C : memref<32x24xf32>)
  return
}
