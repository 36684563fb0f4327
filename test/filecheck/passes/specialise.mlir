// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-fold-fill,warp-schedule{mma=m64n128k16 cta=128,128,64 ctas=2},warp-outline,warp-tile,warp-persist" | filecheck %s --check-prefix=PLAIN
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-fold-fill,warp-schedule{mma=m64n128k16 cta=128,128,64 ctas=2},warp-outline,warp-tile,warp-persist,warp-specialise,warp-synchronise" | filecheck %s
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-fold-fill,warp-schedule{mma=m64n128k16 cta=128,128,64 ctas=2},warp-outline,warp-tile,warp-persist" | warploom-opt -p "warp-specialise,warp-allocate,convert-warp-to-ptx" -t ptx | filecheck %s --check-prefix=TEXT

func.func @f(%A: memref<200x136xbf16>, %B: memref<136x264xbf16>, %C: memref<200x264xbf16>) {
  %zero = arith.constant 0.0 : bf16
  linalg.fill ins(%zero : bf16) outs(%C : memref<200x264xbf16>)
  linalg.matmul ins(%A, %B : memref<200x136xbf16>, memref<136x264xbf16>) outs(%C : memref<200x264xbf16>)
  return
}

// The plain loop: everybody copies, waits, multiplies, waits.
// PLAIN: scf.for
// PLAIN: scf.for
// PLAIN: warp.copy %A
// PLAIN: warp.copy %B
// PLAIN: warp.fence async_proxy
// PLAIN-NEXT: gpu.barrier
// PLAIN-NEXT: warp.fence wgmma
// PLAIN-COUNT-4: warp.wgmma %
// PLAIN: warp.commit wgmma
// PLAIN-NEXT: warp.wait wgmma 0
// PLAIN-NEXT: gpu.barrier
// PLAIN: warp.store

// The host encodes maps, and gives the kernel a warpgroup more.
// CHECK: warp.encode_tensor_map %A [0, 1] : memref<200x136xbf16> to !warp.tensor_map<128x64xbf16, swizzle 128>
// CHECK: warp.encode_tensor_map %B [0, 1] : memref<136x264xbf16> to !warp.tensor_map<64x64xbf16, swizzle 128>
// CHECK: warp.encode_tensor_map %C [0, 1] : memref<200x264xbf16> to !warp.tensor_map<64x64xbf16, swizzle 128>
// CHECK: gpu.func @f(%A_map{{.*}}, %B_map{{.*}}, %C_map
// CHECK: warp.make_barriers {arrivals = 1 : i64} : !warp.barriers<[[STAGES:[0-9]+]]>
// CHECK: warp.make_barriers {arrivals = 8 : i64} : !warp.barriers<[[STAGES]]>
// One lane of the producer copies what has been read,
// CHECK: scf.if
// CHECK: nvvm.setmaxregister decrease 40
// CHECK: nvvm.elect.sync -> i1
// CHECK: scf.for
// CHECK: scf.for
// CHECK: warp.await %empty
// CHECK: warp.arrive %full{{.*}} {bytes = 32768 : i64}
// CHECK: warp.tensor_load %A_map
// CHECK-COUNT-2: warp.tensor_load %B_map
// and consumers multiply what has come, a K tile behind.
// CHECK: scf.if
// CHECK: nvvm.setmaxregister increase 232
// CHECK: warp.await %full
// CHECK-NEXT: warp.fence wgmma
// CHECK-COUNT-4: warp.wgmma %
// which is none in the first turn.
// CHECK: warp.wait wgmma 1
// CHECK-NEXT: [[READ:%[0-9]+]] = arith.cmpi ne, %
// CHECK-NEXT: scf.if [[READ]] {
// CHECK-NEXT: warp.arrive %empty
// CHECK: warp.wait wgmma 0
// CHECK-NEXT: [[LAST:%[0-9]+]] = arith.cmpi ne, %
// CHECK-NEXT: scf.if [[LAST]] {
// CHECK-NEXT: warp.arrive %empty
// Results go by way of shared memory, a panel at a time.
// CHECK: warp.wait bulk 1 {each_warpgroup, read}
// CHECK-NEXT: warp.barrier cta
// CHECK: warp.store {{.*}}matrices = "x4"
// CHECK-NEXT: warp.fence async_proxy
// CHECK-NEXT: warp.barrier cta
// CHECK: warp.tensor_store
// CHECK: warp.commit bulk
// CHECK: warp.wait bulk 0 {

// TEXT: .reqntid 384, 1, 1
// TEXT: setmaxnreg.dec.sync.aligned.u32 40;
// TEXT: cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
// TEXT: setmaxnreg.inc.sync.aligned.u32 232;
// TEXT: wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16
// TEXT: cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group
