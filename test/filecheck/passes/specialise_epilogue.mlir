// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-fold-fill,warp-fuse-epilogue,warp-schedule{mma=m64n128k16 cta=128,128,64 ctas=2},warp-outline,warp-tile,warp-persist,warp-specialise,warp-synchronise" | filecheck %s
// RUN: warploom-opt %s -p "warploom{mma=m64n128k16 cta=128,128,64 ctas=2 target=sm_90a}" -t ptx | filecheck %s --check-prefix=TEXT
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-fold-fill,warp-fuse-epilogue,warp-schedule{mma=m64n128k16 cta=128,128,64 ctas=2 staging=0},warp-outline,warp-tile,warp-persist,warp-specialise,warp-synchronise" | filecheck %s --check-prefix=LANES

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

// The producer copies the residual behind the K tiles, to two stages: two panels of two warpgroups to each.
// CHECK: %full = warp.make_barriers
// CHECK: warp.arrive %full{{.*}} {bytes = 32768 : i64}
// CHECK: scf.yield
// CHECK: warp.await %empty[[[STAGE:%[0-9]+]]]
// CHECK-NEXT: warp.arrive %full[[[STAGE]]] {bytes = 16384 : i64}
// CHECK-COUNT-2: warp.tensor_load [[R:%[A-Z]+[0-9]*]]_map{{.*}}, %full[[[STAGE]]] : !warp.tensor_map<64x64xbf16, swizzle 128>
// CHECK: warp.await %empty
// CHECK-NEXT: warp.arrive %full{{.*}} {bytes = 16384 : i64}
// CHECK-COUNT-2: warp.tensor_load [[R]]_map
// CHECK-NOT: warp.tensor_load
// While the last products run, the bias is loaded;
// CHECK: warp.load %{{.*}}along = "columns"
// CHECK: warp.wait wgmma 0
// then a stage with panels is waited for, which are read to lie as the sums do. When they have been used, it is empty.
// CHECK: warp.await %full[[[FULL:%[0-9]+]]]
// CHECK-NEXT: [[PANEL:%[0-9]+]] = warp.load %{{[0-9]+}}[[[FULL]], %{{[0-9]+}}, %{{[0-9]+}}] {matrices = "x4"}
// CHECK-SAME: -> !warp.fragment<acc, 64x64xbf16
// CHECK: warp.await %full[[[NEXT:%[0-9]+]]]
// CHECK-NEXT: warp.load {{.*}}matrices
// CHECK: warp.map %{{[0-9]+}}, %{{[0-9]+}}, [[PANEL]]
// CHECK: warp.arrive %empty[[[FULL]]]
// CHECK: warp.tensor_store
// CHECK: warp.arrive %empty[[[NEXT]]]
// CHECK: warp.tensor_store

// TEXT: ldmatrix.sync.aligned.m8n8.x4.shared.b16
// TEXT-NOT: ld.global.b32

// Where D is not staged, each lane loads. Four K tiles before the last one it asks for all panels, here of 32 columns,
// LANES: warp.await %full
// LANES: warp.wait wgmma 1
// LANES: [[LEFT:%[0-9]+]] = arith.divui
// LANES-NEXT: [[NOW:%[0-9]+]] = arith.cmpi eq, [[LEFT]], %
// LANES-NEXT: scf.if [[NOW]] {
// LANES-NEXT: warp.prefetch [[R:%[A-Z]+[0-9]*]][%{{[0-9]+}}, %{{[0-9]+}}]
// LANES-SAME: as <acc, 64x32xbf16
// LANES: warp.prefetch [[R]]
// LANES: }
// LANES: scf.yield
// and while the last products run, bias and residual of the first panels are loaded.
// LANES: warp.load %{{.*}}along = "columns"
// LANES-NEXT: warp.load [[R]]
// LANES: warp.load %{{.*}}along = "columns"
// LANES-NEXT: warp.load [[R]]
// LANES: warp.wait wgmma 0
// LANES: warp.store
