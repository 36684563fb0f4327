// RUN: warploom-opt %s -p warp-raise-matmul | filecheck %s --check-prefix=RAISED
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-schedule{cta=32,32,64 warp=16,16},warp-outline,warp-tile" | filecheck %s --check-prefix=TILED
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-schedule{cta=32,32,64 warp=16,16},warp-outline,warp-tile,warp-pipeline,warp-synchronise" | warploom-opt | filecheck %s --check-prefix=PIPELINED

// RAISED: %A_sparse = warp.sparse %A, %E : memref<100x96xf16>, memref<7x96xi32>
// RAISED-NEXT: warp.matmul f16 x f16 %A_sparse, %B plus %C into %C : !warp.operand<memref<100x96xf16>>, memref<192x320xf16>, memref<100x320xf32> plus memref<100x320xf32>

// The metadata of 32 rows and 64 columns is 2 x 32 words; each step takes it with the next selector.
// TILED:      gpu.launch_func {{.*}} args(%A : {{.*}}, %E : {{.*}}, %B : {{.*}}, %C : {{.*}})
// TILED:      memref.alloc() : memref<32x32xf16, #warp.swizzle<64>, 3 : i64>
// TILED:      %[[E:\w+]] = memref.alloc() : memref<2x32xi32, #warp.swizzle<128>, 3 : i64>
// TILED:      scf.for
// TILED:        warp.copy %E[{{.*}}] to %[[E]][] {in_bounds = [false, true]} : memref<7x96xi32>
// TILED:        %[[M:\w+]] = warp.load %[[E]][{{.*}}] {registers = "tiles", padded} : memref<2x32xi32, #warp.swizzle<128>, 3 : i64> -> !warp.fragment<meta, 16x8xi4, [c2 f0 r0 r1 r2 | c0 c1 r3]>
// TILED-NEXT:   warp.mma m16n8k32 {{.*}} sparse %[[M]] {ordered, selector = 0 : i64}
// TILED:        warp.mma m16n8k32 {{.*}} {ordered, selector = 1 : i64}

// PIPELINED:    warp.copy %E[{{.*}}] {async
// PIPELINED:    scf.for
// PIPELINED:      warp.load %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}] {registers = "tiles", padded} : memref<{{[0-9]}}x2x32xi32, {{.*}}
// PIPELINED:      warp.copy %E[{{.*}}] {async
// PIPELINED:      warp.mma m16n8k32 {{.*}}ordered
func.func @f(%A: memref<100x96xf16>, %E: memref<7x96xi32>, %B: memref<192x320xf16>, %C: memref<100x320xf32>) {
  linalg.matmul {warp.metadata = 1} ins(%A, %B : memref<100x96xf16>, memref<192x320xf16>) outs(%C : memref<100x320xf32>)
  return
}
