// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-fold-fill,warp-schedule{mma=m64n128k32 cta=128,128,64},warp-outline,warp-tile" | filecheck %s --check-prefix=PLAIN
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-fold-fill,warp-schedule{mma=m64n128k32 cta=128,128,64},warp-outline,warp-tile,warp-specialise,warp-synchronise" | filecheck %s
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-fold-fill,warp-schedule{mma=m64n128k32 cta=128,128,64},warp-outline,warp-tile,warp-specialise,warp-allocate,convert-warp-to-ptx" -t ptx | filecheck %s --check-prefix=TEXT

func.func @f(%A: memref<200x144xbf16>, %E: memref<13x160xi32>, %B: memref<288x264xbf16>, %C: memref<200x264xbf16>) {
  %zero = arith.constant 0.0 : bf16
  linalg.fill ins(%zero : bf16) outs(%C : memref<200x264xbf16>)
  linalg.matmul {warp.metadata = 1} ins(%A, %B : memref<200x144xbf16>, memref<288x264xbf16>) outs(%C : memref<200x264xbf16>)
  return
}

// A row of metadata has the words of 16 rows; tiles of it have eight, after which a swizzle begins anew.
// PLAIN: memref.alloc() : memref<128x32xbf16, #warp.swizzle<64>, 3 : i64>
// PLAIN: [[META:%[0-9]+]] = memref.alloc() : memref<8x32xi32, #warp.swizzle<128>, 3 : i64>
// PLAIN: scf.for
// PLAIN: warp.copy %A
// PLAIN: warp.copy %B
// PLAIN: warp.copy %E{{.*}} to [[META]]
// One word has the metadata of both steps of a K tile; it is there before their products begin.
// PLAIN: [[WORDS:%[0-9]+]] = warp.load [[META]]{{.*}} {registers = "tiles", padded} : {{.*}} -> !warp.fragment<meta, 64x
// PLAIN-NEXT: warp.fence wgmma
// PLAIN: warp.wgmma %{{.*}} sparse [[WORDS]] {mn_major_b, selector = 0 : i64}
// PLAIN: warp.wgmma %{{.*}} sparse [[WORDS]] {mn_major_b, selector = 1 : i64}
// PLAIN-NOT: warp.load
// PLAIN: warp.commit wgmma

// The producer brings a panel of metadata beside A and two of B.
// CHECK: warp.encode_tensor_map %E [0, 1] : memref<13x160xi32> to !warp.tensor_map<8x32xi32, swizzle 128>
// CHECK: warp.arrive %full{{.*}} {bytes = 25600 : i64}
// CHECK: warp.tensor_load %A_map
// CHECK-COUNT-2: warp.tensor_load %B_map
// CHECK: warp.tensor_load %E_map
// Products read metadata until they are done, so none of them runs while the next is loaded.
// CHECK: warp.await %full
// CHECK: [[NOW:%[0-9]+]] = warp.load %{{.*}} : memref<{{[0-9]+}}x8x32xi32
// CHECK-NEXT: warp.fence wgmma
// CHECK-COUNT-2: warp.wgmma %{{.*}} sparse [[NOW]]
// CHECK: warp.wait wgmma 0
// CHECK-NEXT: warp.arrive %empty
// CHECK-NOT: warp.wait wgmma

// TEXT: ld.shared.b32 [[R:%r[0-9]+]]
// TEXT: selp.b32 [[R]], 0x44444444, [[R]],
// TEXT: wgmma.mma_async.sp.sync.aligned.m64n128k32.f32.bf16.bf16 {{.*}}, [[R]], 0, 1, 1, 1, 0, 1;
// TEXT: wgmma.mma_async.sp.sync.aligned.m64n128k32.f32.bf16.bf16 {{.*}}, [[R]], 1, 1, 1, 1, 0, 1;
