// What single fields of a schedule change.
// RUN: warploom-opt %s -t ptx -p "warploom{target=sm_90a cta=32,16,16 warp=32,16 stages=2}" | filecheck %s --check-prefix=SERPENTINE
// RUN: warploom-opt %s -t ptx -p "warploom{target=sm_90a cta=32,16,16 warp=32,16 stages=2 order=rows}" | filecheck %s --check-prefix=ROWS
// RUN: warploom-opt %s -t ptx -p "warploom{target=sm_90a cta=32,16,16 warp=32,16 stages=2 access=8}" | filecheck %s --check-prefix=ACCESS
// RUN: warploom-opt %s -t ptx -p "warploom{target=sm_90a cta=32,16,16 warp=32,16 stages=2 registers=96}" | filecheck %s --check-prefix=REGISTERS
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-fold-fill,warp-schedule{cta=32,16,16 warp=32,16 stages=2},warp-outline,warp-tile" | filecheck %s --check-prefix=INSIDE
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-fold-fill,warp-schedule{cta=32,16,16 warp=32,16 stages=2 edges=predicated},warp-outline,warp-tile" | filecheck %s --check-prefix=PREDICATED

// The second row of instructions goes back, to the B that was read last; or forth again.
// SERPENTINE-LABEL: .visible .entry
// SERPENTINE-NOT:  .maxnreg
// SERPENTINE-NOT:  order =
// SERPENTINE-NOT:  access =
// SERPENTINE:      cp.async.cg.shared.global [{{.*}}], [{{.*}}], 16, {{.*}};
// SERPENTINE:      mma.sync{{.*}} {%r[[A0:[0-9]+]], {{.*}}}, {%r[[B0:[0-9]+]], %r{{[0-9]+}}}, {{.*}};
// SERPENTINE-NEXT: mma.sync{{.*}} {%r[[A0]], {{.*}}}, {%r[[B1:[0-9]+]], %r{{[0-9]+}}}, {{.*}};
// SERPENTINE-NEXT: mma.sync{{.*}} {%r[[A1:[0-9]+]], {{.*}}}, {%r[[B1]], %r{{[0-9]+}}}, {{.*}};
// SERPENTINE-NEXT: mma.sync{{.*}} {%r[[A1]], {{.*}}}, {%r[[B0]], %r{{[0-9]+}}}, {{.*}};
// ROWS-LABEL: .visible .entry
// ROWS:       accumulate = f32, order = rows
// ROWS:       mma.sync{{.*}} {%r[[A0:[0-9]+]], {{.*}}}, {%r[[B0:[0-9]+]], %r{{[0-9]+}}}, {{.*}};
// ROWS-NEXT:  mma.sync{{.*}} {%r[[A0]], {{.*}}}, {%r[[B1:[0-9]+]], %r{{[0-9]+}}}, {{.*}};
// ROWS-NEXT:  mma.sync{{.*}} {%r[[A1:[0-9]+]], {{.*}}}, {%r[[B0]], %r{{[0-9]+}}}, {{.*}};
// ROWS-NEXT:  mma.sync{{.*}} {%r[[A1]], {{.*}}}, {%r[[B1]], %r{{[0-9]+}}}, {{.*}};

// ACCESS-LABEL: .visible .entry
// ACCESS:       accumulate = f32, access = 8
// ACCESS-NOT:   cp.async.cg
// ACCESS:       cp.async.ca.shared.global [{{.*}}], [{{.*}}], 8, {{.*}};
// ACCESS-NOT:   cp.async.cg
// ACCESS:       ret;

// REGISTERS-LABEL: .visible .entry
// REGISTERS:       .reqntid 32, 1, 1
// REGISTERS-NEXT:  .maxnreg 96
// REGISTERS:       accumulate = f32, registers = 96

// The last tiles start at row 8 and column 8; or copies and stores have bounds.
// INSIDE-LABEL: gpu.module
// INSIDE:       warp.copy %A[{{.*}}] {in_bounds = [true, true]} : memref<40x32xf16>
// INSIDE:       warp.copy %B[{{.*}}] {in_bounds = [true, true]} : memref<32x24xf16>
// INSIDE:       warp.store {{.*}} {in_bounds = [true, true]}
// PREDICATED-LABEL: gpu.module
// PREDICATED-NOT:   arith.minui
// PREDICATED:       warp.copy %A[{{.*}}] {in_bounds = [false, true]} : memref<40x32xf16>
// PREDICATED:       warp.copy %B[{{.*}}] {in_bounds = [true, false]} : memref<32x24xf16>
// PREDICATED-NOT:   in_bounds
// PREDICATED:       warp.store
func.func @f(%a: memref<40x32xf16>, %b: memref<32x24xf16>, %c: memref<40x24xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%c : memref<40x24xf32>)
  linalg.matmul ins(%a, %b : memref<40x32xf16>, memref<32x24xf16>) outs(%c : memref<40x24xf32>)
  return
}
