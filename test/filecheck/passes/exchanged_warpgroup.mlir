// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-schedule{mma=m64n64k16 cta=64,128,64 in_registers=b},warp-outline,warp-tile" | filecheck %s --check-prefix=PLAIN
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-schedule{mma=m64n64k16 cta=64,128,64 in_registers=b},warp-outline,warp-tile,warp-specialise,warp-synchronise" | filecheck %s
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-schedule{mma=m64n64k16 cta=64,128,64 in_registers=b},warp-outline,warp-tile,warp-specialise,warp-allocate,convert-warp-to-ptx" -t ptx | filecheck %s --check-prefix=TEXT

func.func @f(%A: memref<200x144xbf16>, %Q: memref<144x272xi8>, %C: memref<200x272xbf16>) {
  %W = warp.stored %Q as s8 : memref<144x272xi8>
  warp.matmul bf16 x bf16 %A, %W init 0.0 : bf16 into %C
    : memref<200x144xbf16>, !warp.operand<memref<144x272xi8>>, memref<200x272xbf16>
  return
}

// A warpgroup has 64 columns of D, as the transpose that its instructions compute. B^T of a K tile is loaded at once,
// and converted step by step, to 2^-6 of what it is; each step is a group of its own, and those of three others go on
// meanwhile.
// PLAIN: scf.for %{{.*}} iter_args(%{{.*}}) -> (!warp.fragment<acc, 64x64xf32, [r1 r2 c1 c2 c3 | r0 c0 | c4 c5]>)
// PLAIN: [[HELD:%[0-9]+]] = warp.load {{.*}} {matrices = "x4.trans.b16", swapped} {{.*}}-> !warp.fragment<a, 64x64xi8, [c1 c2 r1 r2 r3 | r0 c0 c3 | r4 r5]>
// PLAIN-NEXT: warp.wait wgmma 3
// PLAIN-NEXT: [[STEP:%[0-9]+]] = warp.subfragment [[HELD]][0, 0]
// PLAIN-NEXT: [[B:%[0-9]+]] = warp.convert [[STEP]] {stored = "s8"} : {{.*}} to !warp.fragment<a, 64x16xbf16, [c1 c2 r1 r2 r3 | c0 r0 c3 | r4 r5]>
// PLAIN-NEXT: [[SMALLER:%[0-9]+]] = warp.elementwise mul [[B]], {{.*}}
// PLAIN-NEXT: warp.fence wgmma
// PLAIN-NEXT: warp.wgmma [[SMALLER]], {{.*}} {transposed}
// PLAIN-NEXT: warp.commit wgmma
// PLAIN-NEXT: warp.wait wgmma 3
// PLAIN: warp.wait wgmma 0
// PLAIN: warp.elementwise mul {{.*}}!warp.fragment<acc, 64x64xf32

// The last of the waits within a turn says that the stage of the turn before has been read.
// CHECK: warp.await %full
// CHECK: warp.load {{.*}}matrices = "x4.trans.b16", swapped
// CHECK-COUNT-4: warp.wait wgmma 3
// CHECK-NEXT: arith.cmpi ne
// CHECK: warp.arrive %empty
// CHECK: warp.wgmma {{.*}} {transposed}
// CHECK-NEXT: warp.commit wgmma
// CHECK-NOT: warp.wait wgmma
// CHECK: scf.yield
// CHECK: warp.wait wgmma 0
// CHECK: warp.tensor_store

// TEXT: ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16
// TEXT: wgmma.wait_group.sync.aligned 3;
// TEXT: wgmma.fence.sync.aligned;
// TEXT: wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%f0, {{.*}}}, {%r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}}}, %rd{{[0-9]+}}, 1, 1, 1, 0;
