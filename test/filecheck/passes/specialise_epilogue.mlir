// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-fold-fill,warp-fuse-epilogue,warp-schedule{mma=m64n128k16 cta=128,128,64 ctas=2},warp-outline,warp-tile,warp-persist,warp-specialise" | filecheck %s
// RUN: warploom-opt %s -p "warploom{mma=m64n128k16 cta=128,128,64 ctas=2 target=sm_90a}" -t ptx | filecheck %s --check-prefix=TEXT

#mn = affine_map<(m, n) -> (m, n)>
#n = affine_map<(m, n) -> (n)>
func.func @f(%A: memref<200x520xbf16>, %B: memref<520x264xbf16>, %bias: memref<264xf32>, %R: memref<200x264xbf16>, %D: memref<200x264xbf16>) {
  %zero = arith.constant 0.0 : f32
  %T = memref.alloc() : memref<200x264xf32>
  linalg.fill ins(%zero : f32) outs(%T : memref<200x264xf32>)
  linalg.matmul ins(%A, %B : memref<200x520xbf16>, memref<520x264xbf16>) outs(%T : memref<200x264xf32>)
  linalg.generic {indexing_maps = [#mn, #n, #mn, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%T, %bias, %R : memref<200x264xf32>, memref<264xf32>, memref<200x264xbf16>) outs(%D : memref<200x264xbf16>) {
  ^bb0(%p: f32, %b: f32, %r: bf16, %old: bf16):
    %x = arith.addf %p, %b : f32
    %w = arith.extf %r : bf16 to f32
    %s = arith.addf %x, %w : f32
    %y = arith.truncf %s : f32 to bf16
    linalg.yield %y : bf16
  }
  memref.dealloc %T : memref<200x264xf32>
  return
}

// Four K tiles before the last one the residual is asked for, both panels of it,
// CHECK: warp.await %full
// CHECK: warp.wgmma_wait {pending = 1 : i64}
// CHECK: [[LEFT:%[0-9]+]] = arith.divui
// CHECK-NEXT: [[NOW:%[0-9]+]] = arith.cmpi eq, [[LEFT]], %
// CHECK-NEXT: scf.if [[NOW]] {
// CHECK-NEXT: warp.prefetch [[R:%[A-Z]+[0-9]*]][%{{[0-9]+}}, %{{[0-9]+}}]
// CHECK-SAME: as <acc, 64x64xbf16
// CHECK: warp.prefetch [[R]]
// CHECK: }
// CHECK: scf.yield
// and while the last products run, bias and residual of the first panels are loaded;
// CHECK: warp.load_vector columns
// CHECK-NEXT: warp.load [[R]]
// CHECK: warp.load_vector columns
// CHECK-NEXT: warp.load [[R]]
// CHECK: warp.wgmma_wait {pending = 0 : i64}
// CHECK-NOT: warp.load
// CHECK: warp.tensor_store

// TEXT: prefetch.global.L2 [%rd{{[0-9]+}}];
// TEXT: ld.global.v2.f32
// TEXT: ld.global.b32
// TEXT: wgmma.wait_group.sync.aligned 0;
