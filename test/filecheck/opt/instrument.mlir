// Pipelines in upstream's form, printing by name and on change, statistics, a timing tree, remarks as data.

// RUN: warploom-opt %s --pass-pipeline='builtin.module(warp-set-target{arch=sm_80}, warp-raise-matmul, func.func(warp-fold-fill), warp-schedule{stages=2})' --mlir-pass-statistics 2>&1 | filecheck %s --check-prefix=STATISTICS
// STATISTICS:      stages = 2
// STATISTICS:      Pass statistics report
// STATISTICS:      'warp-raise-matmul'
// STATISTICS-NEXT:   (S)     1 RaiseProduct
// STATISTICS-NEXT: 'warp-fold-fill'
// STATISTICS-NEXT:   (S)     1 FoldFill
// STATISTICS-NEXT: 'warp-schedule'

// RUN: warploom-opt %s -p warp-fuse-rows,warp-raise-matmul,warp-fold-fill --mlir-print-ir-before=warp-fold-fill --mlir-print-ir-after=warp-raise-matmul -o /dev/null 2>&1 | filecheck %s --check-prefix=NAMED
// NAMED-NOT: fuse-rows
// NAMED:     // -----// IR Dump After RaiseMatmulPass (warp-raise-matmul) //----- //
// NAMED:       warp.matmul
// NAMED:     // -----// IR Dump Before FoldFillPass (warp-fold-fill) //----- //
// NAMED-NOT: IR Dump

// RUN: warploom-opt %s -p warp-fuse-rows,warp-raise-matmul,warp-fuse-weights,warp-fold-fill --mlir-print-ir-after-change -o /dev/null 2>&1 | filecheck %s --check-prefix=CHANGED
// CHANGED-NOT: warp-fuse-rows
// CHANGED:     IR Dump After RaiseMatmulPass
// CHANGED-NOT: warp-fuse-weights
// CHANGED:     IR Dump After FoldFillPass
// CHANGED-NOT: IR Dump

// RUN: warploom-opt %s -p 'warp-set-target{arch=sm_80},warploom-schedule' --mlir-timing --verify-each=false -o /dev/null 2>&1 | filecheck %s --check-prefix=TIMING
// TIMING:      Execution time report
// TIMING-NEXT: ===
// TIMING-NEXT: Total Execution Time: {{[0-9.]+}} seconds
// TIMING:      {{[0-9.]+ \( *[0-9.]+%\)  \(parse\)}}
// TIMING:      {{%\)  warp-set-target$}}
// TIMING-NEXT: {{%\)  warploom-schedule$}}
// TIMING-NEXT: {{%\)    [a-z]}}
// TIMING:      {{%\)    warp-schedule$}}
// TIMING:      {{\(100.0%\)  Total$}}

// RUN: warploom-opt %s -p 'warploom-schedule{target=sm_80}' --remarks-format=json -o /dev/null 2>&1 | filecheck %s --check-prefix=JSON
// JSON-DAG: {"kind": "chosen", "pass": "warp-raise-matmul", "message": "linalg.matmul is a product of f16 x f16 on tensor cores", "file": "{{.*}}instrument.mlir", "line": [[# @LINE + 16]], "column": 3}
// JSON-DAG: {"kind": "chosen", "pass": "warp-fold-fill", "message": "the product starts from it", "file": "{{.*}}", "line": [[# @LINE + 14]], "column": 3}
// JSON-DAG: {"kind": "chosen", "pass": "warp-schedule", "message": "cta = {{.*}}
// JSON-DAG: {"kind": "declined", "pass": "warp-fold-fill", "message": "it is not folded{{.*}}: linalg.fill between its operations uses its result"

// RUN: warploom-opt %s -p 'warp-raise-matmul' --remarks-format=yaml -o /dev/null 2>&1 | filecheck %s --check-prefix=YAML
// YAML:      ---
// YAML-NEXT: kind: "chosen"
// YAML-NEXT: pass: "warp-raise-matmul"
// YAML-NEXT: message: "linalg.matmul is a product of f16 x f16 on tensor cores"
// YAML-NEXT: file: "{{.*}}instrument.mlir"

func.func @f(%A: memref<32x48xf16>, %B: memref<48x24xf16>, %C: memref<32x24xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%C : memref<32x24xf32>)
  linalg.fill ins(%zero : f32) outs(%C : memref<32x24xf32>)
  linalg.matmul ins(%A, %B : memref<32x48xf16>, memref<48x24xf16>) outs(%C : memref<32x24xf32>)
  return
}
