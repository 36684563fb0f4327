// RUN: warploom-opt %s | filecheck %s --check-prefix=LINALG
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-raise-matmul" | filecheck %s --check-prefix=RAISED
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-raise-matmul,warp-fold-fill" | filecheck %s --check-prefix=FOLDED
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-raise-matmul,warp-fold-fill,warp-schedule{mma=m16n8k16}" | filecheck %s --check-prefix=SCHEDULED
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-raise-matmul,warp-fold-fill,warp-schedule{mma=m16n8k16},warp-outline,warp-tile" | filecheck %s --check-prefix=TILED
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-raise-matmul,warp-fold-fill,warp-schedule{mma=m16n8k16},warp-outline,warp-tile,warp-pipeline,warp-synchronise" | filecheck %s --check-prefix=PIPELINED
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-raise-matmul,warp-fold-fill,warp-schedule{mma=m16n8k16},warp-outline,warp-tile,warp-pipeline,convert-warp-to-ptx" | filecheck %s --check-prefix=PTX
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_90a},warp-raise-matmul,warp-fold-fill,warp-schedule{mma=m16n8k16},warp-outline,warp-tile,warp-pipeline,convert-warp-to-ptx" -t ptx | filecheck %s --check-prefix=TEXT

// LINALG:      linalg.fill
// LINALG-NEXT: linalg.matmul ins(%A, %B

// RAISED:      linalg.fill
// RAISED-NEXT: warp.matmul f16 x f16 %A, %B plus %C into %C : memref<256x192xf16>, memref<192x320xf16>, memref<256x320xf32> plus memref<256x320xf32>

// FOLDED:      builtin.module attributes {warp.target = #warp.target<sm_90a>} {
// FOLDED-NOT:  linalg.fill
// FOLDED:      warp.matmul f16 x f16 %A, %B init 0.000000e+00 : f32 into %C : memref<256x192xf16>

// SCHEDULED:   warp.matmul f16 x f16 %A, %B init 0.000000e+00 : f32 into %C {warp.schedule = #warp.schedule<cta = {{.*}}, accumulate = f32>} : memref<256x192xf16>

// TILED:       gpu.container_module
// TILED:       func.func @matmul
// TILED:         gpu.launch_func @kernels::@matmul blocks in ({{.*}}) args(%A : {{.*}}, %B : {{.*}}, %C : {{.*}})
// TILED-NOT:   linalg
// TILED:       gpu.module @kernels {
// TILED:         gpu.func @matmul({{.*}}) kernel attributes {known_block_size = array<i32: {{[0-9]+}}, 1, 1>, warp.schedule =
// TILED:       warp.constant 0.000000e+00 : f32
// TILED:       scf.for
// TILED:         warp.copy %A
// TILED:         warp.copy %B
// TILED:         gpu.barrier
// TILED:         warp.load {{.*}}matrices = "x4"
// TILED:         warp.load {{.*}}matrices = "x4.trans"
// TILED:         warp.mma m16n8k16
// TILED:         scf.yield
// TILED:       warp.store

// PIPELINED:     warp.copy %A[{{.*}} {async
// PIPELINED:     warp.commit cp_async
// PIPELINED:     warp.wait cp_async
// PIPELINED:     warp.load {{.*}}matrices
// PIPELINED:     scf.for
// PIPELINED:       warp.copy %A[{{.*}} {async
// PIPELINED:       warp.commit cp_async
// PIPELINED:       warp.wait cp_async
// PIPELINED:       gpu.barrier
// PIPELINED:       warp.mma
// PIPELINED:       scf.yield
// PIPELINED:     warp.store

// PTX:         gpu.launch_func
// PTX:         ptx.module @kernels version "8.0" target "sm_90a" address_size 64 {
// PTX-NEXT:      ptx.var ".extern .shared .align 1024 .b8 shared_tiles[]"
// PTX-NEXT:      ptx.func entry visible @matmul(".param .u64 .ptr .global .align 16 matmul_A"
// PTX-SAME:      warp.schedule = #warp.schedule<
// PTX-NOT:       warp.mma
// PTX:           ptx.inst cp.async.cg.shared.global
// PTX:           ptx.label
// PTX:           ptx.inst ldmatrix.sync.aligned.m8n8.x4.shared.b16
// PTX:           ptx.inst mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
// PTX:           ptx.inst st.global.v2.f32
// PTX:           ptx.inst ret

// TEXT:        .version 8.0
// TEXT-NEXT:   .target sm_90a
// TEXT-NEXT:   .address_size 64
// TEXT:        .extern .shared .align 1024 .b8 shared_tiles[];
// TEXT:        .visible .entry matmul(
// TEXT-NEXT:       .param .u64 .ptr .global .align 16 matmul_A,
// TEXT-NEXT:       .param .u64 .ptr .global .align 16 matmul_B,
// TEXT-NEXT:       .param .u64 .ptr .global .align 16 matmul_C
// TEXT-NEXT:   )
// TEXT-NEXT:   .reqntid {{[0-9]+}}, 1, 1
// TEXT:            cp.async.cg.shared.global
// TEXT:            cp.async.commit_group;
// TEXT:            cp.async.wait_group
// TEXT:            bar.sync 0;
// TEXT:        loop_1:
// TEXT:            mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
// TEXT:            bra loop_1;
// TEXT:            st.global.v2.f32
// TEXT:            ret;
func.func @matmul(%A: memref<256x192xf16>, %B: memref<192x320xf16>, %C: memref<256x320xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%C : memref<256x320xf32>)
  linalg.matmul ins(%A, %B : memref<256x192xf16>, memref<192x320xf16>) outs(%C : memref<256x320xf32>)
  return
}
