// The standard pipeline by name: every stage runs, is printed and is verified as if it were named itself.
// RUN: warploom-opt %s --print-between-passes -p warploom{target=sm_80} 2>&1 | filecheck %s --check-prefix=STAGES
// RUN: warploom-opt %s -t ptx -p "warploom{target=sm_80 stages=2 cta=16,16,32 warp=16,16}" | filecheck %s --check-prefix=PTX
// RUN: warploom-opt %s -p "warploom{target=sm_80},canonicalize" | filecheck %s --check-prefix=MORE
// RUN: not warploom-opt %s -p warploom{target=sm_11} 2>&1 | filecheck %s --check-prefix=TARGET
// RUN: not warploom-opt %s -p warploom{depth=3} 2>&1 | filecheck %s --check-prefix=OPTION
// STAGES: // -----// IR Dump After {{[A-Za-z0-9]+}} (warp-set-target) //----- //
// STAGES: // -----// IR Dump After {{[A-Za-z0-9]+}} (warp-bufferize) //----- //
// STAGES: // -----// IR Dump After {{[A-Za-z0-9]+}} (warp-raise-matmul) //----- //
// STAGES: // -----// IR Dump After {{[A-Za-z0-9]+}} (warp-fold-fill) //----- //
// STAGES: // -----// IR Dump After {{[A-Za-z0-9]+}} (warp-fuse-epilogue) //----- //
// STAGES: // -----// IR Dump After {{[A-Za-z0-9]+}} (warp-schedule) //----- //
// STAGES: // -----// IR Dump After {{[A-Za-z0-9]+}} (warp-outline) //----- //
// STAGES: // -----// IR Dump After {{[A-Za-z0-9]+}} (warp-stage) //----- //
// STAGES: // -----// IR Dump After {{[A-Za-z0-9]+}} (warp-fragments) //----- //
// STAGES: // -----// IR Dump After {{[A-Za-z0-9]+}} (warp-epilogue) //----- //
// STAGES: // -----// IR Dump After {{[A-Za-z0-9]+}} (warp-pack) //----- //
// STAGES: // -----// IR Dump After {{[A-Za-z0-9]+}} (warp-split-k) //----- //
// STAGES: // -----// IR Dump After {{[A-Za-z0-9]+}} (warp-persist) //----- //
// STAGES: // -----// IR Dump After {{[A-Za-z0-9]+}} (warp-fp8-as-f16) //----- //
// STAGES: // -----// IR Dump After {{[A-Za-z0-9]+}} (warp-pipeline) //----- //
// STAGES: // -----// IR Dump After {{[A-Za-z0-9]+}} (warp-synchronise) //----- //
// STAGES: // -----// IR Dump After {{[A-Za-z0-9]+}} (warp-expand) //----- //
// STAGES: // -----// IR Dump After {{[A-Za-z0-9]+}} (warp-allocate) //----- //
// STAGES: ptx.module
// PTX: .target sm_80
// PTX: // schedule: cta = 16x16x32, warp = 16x16, mma = m16n8k16, stages = 2,
// MORE: ptx.module
// TARGET: error: unknown target 'sm_11'
// OPTION: error: pass 'warploom' has no option 'depth'; its options are cta, warp, {{.*}}target, tf32
func.func @f(%A: memref<32x64xf16>, %B: memref<64x32xf16>, %C: memref<32x32xf32>) {
  linalg.matmul ins(%A, %B : memref<32x64xf16>, memref<64x32xf16>) outs(%C : memref<32x32xf32>)
  return
}
