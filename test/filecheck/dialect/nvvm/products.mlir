// RUN: warploom-opt %s --split-input-file | filecheck %s
// RUN: warploom-opt %s --split-input-file -p 'warp-set-target{arch=sm_80},convert-warp-to-ptx' -t ptx --verify-diagnostics | filecheck %s --check-prefix=PTX

// CHECK: nvvm.mma.sp.sync A[%a, %a] B[%b, %b] C[%c, %c] sparseMetadata[%m] selector[%s] {shape = #nvvm.shape<m = 16, n = 8, k = 16>}
// PTX: mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r{{.*}}}, {%r{{.*}}}, {%r{{.*}}}, {%r{{.*}}}, %r{{[0-9]+}}, 0;
gpu.module @sparse {
  llvm.func @k(%a: vector<2xf16>, %b: vector<2xf16>, %c: vector<2xf16>, %m: i32) attributes {nvvm.kernel} {
    %s = llvm.mlir.constant(0 : i32) : i32
    %0 = nvvm.mma.sp.sync A[%a, %a] B[%b, %b] C[%c, %c] sparseMetadata[%m] selector[%s]
      {shape = #nvvm.shape<m = 16, n = 8, k = 16>}
      : (vector<2xf16>, vector<2xf16>, vector<2xf16>) -> !llvm.struct<(vector<2xf16>, vector<2xf16>)>
    llvm.return
  }
}

// -----

// CHECK: nvvm.mma.sp.block_scale A[%a] B[%a] C[%c] sparseMetadata[%m] selector[%m] scaleA[%m, %i, %i] scaleB[%m, %i, %i] {blockScaleFormat = #nvvm.block_scale_format<ue8m0>, kind = #nvvm.block_scale_kind<mxf4>, multiplicandAPtxType = #nvvm.mma_type<e2m1>, multiplicandBPtxType = #nvvm.mma_type<e2m1>, orderedMetadata, scaleVecSize = #nvvm.scale_vec_size<x2>, shape = #nvvm.shape<m = 16, n = 8, k = 128>}
gpu.module @other {
}

func.func @scaled(%a: vector<4xi32>, %c: vector<4xf32>, %m: i32, %i: i16) {
  %0 = nvvm.mma.sp.block_scale A[%a] B[%a] C[%c] sparseMetadata[%m] selector[%m] scaleA[%m, %i, %i] scaleB[%m, %i, %i]
    {blockScaleFormat = #nvvm.block_scale_format<ue8m0>, kind = #nvvm.block_scale_kind<mxf4>,
     multiplicandAPtxType = #nvvm.mma_type<e2m1>, multiplicandBPtxType = #nvvm.mma_type<e2m1>, orderedMetadata,
     scaleVecSize = #nvvm.scale_vec_size<x2>, shape = #nvvm.shape<m = 16, n = 8, k = 128>}
    : (vector<4xi32>, vector<4xi32>, vector<4xf32>) -> !llvm.struct<(vector<4xf32>)>
  return
}

// -----

// CHECK: nvvm.dot.accumulate.2way %a <signed>, %b <unsigned>, %c {b_hi = true} : vector<2xi16>, vector<4xi8>
// PTX: dp2a.hi.s32.u32
gpu.module @dot {
  llvm.func @k(%a: vector<2xi16>, %b: vector<4xi8>, %c: i32) attributes {nvvm.kernel} {
    %0 = nvvm.dot.accumulate.2way %a <signed>, %b <unsigned>, %c {b_hi = true} : vector<2xi16>, vector<4xi8>
    llvm.return
  }
}

// -----

// CHECK: nvvm.redux.sync fmin %x, %c : f32 -> f32
gpu.module @later {
  llvm.func @k(%c: i32, %x: f32) attributes {nvvm.kernel} {
    // expected-error @+1 {{nvvm.redux.sync takes redux.sync.min.f32}}
    %1 = nvvm.redux.sync fmin %x, %c : f32 -> f32
    llvm.return
  }
}

// -----

// CHECK: nvvm.mma.block_scale A[%a] B[%b] C[%c] scaleA[%m, %i, %i] scaleB[%m, %i, %i]
// CHECK: nvvm.wmma.load %p, %m
// CHECK: nvvm.wmma.mma %x, %x, %x
// CHECK: nvvm.wmma.store %p, %m, %x
// CHECK: nvvm.dot.accumulate.4way %v <unsigned>, %v <signed>, %m : vector<4xi8>, vector<4xi8>
// CHECK: nvvm.st.bulk %p, size = %s : !llvm.ptr<3>
gpu.module @another {
}

func.func @carried(%a: vector<4xi32>, %b: vector<2xi32>, %c: vector<4xf32>, %m: i32, %i: i16, %p: !llvm.ptr<3>, %x: i32,
                   %v: vector<4xi8>, %s: i64) {
  %0 = nvvm.mma.block_scale A[%a] B[%b] C[%c] scaleA[%m, %i, %i] scaleB[%m, %i, %i] {blockScaleFormat = #nvvm.block_scale_format<ue8m0>, kind = #nvvm.block_scale_kind<mxf8f6f4>, multiplicandAPtxType = #nvvm.mma_type<e4m3>, multiplicandBPtxType = #nvvm.mma_type<e4m3>, scaleVecSize = #nvvm.scale_vec_size<x1>, shape = #nvvm.shape<m = 16, n = 8, k = 32>} : (vector<4xi32>, vector<2xi32>, vector<4xf32>) -> !llvm.struct<(vector<4xf32>)>
  %1 = nvvm.wmma.load %p, %m {eltype = #nvvm.mma_type<tf32>, frag = #nvvm.mma_frag<a>, k = 8 : i32, layout = #nvvm.mma_layout<row>, m = 16 : i32, n = 16 : i32} : (!llvm.ptr<3>) -> !llvm.struct<(i32, i32, i32, i32)>
  %2 = nvvm.wmma.mma %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x {eltypeA = #nvvm.mma_type<s8>, eltypeB = #nvvm.mma_type<s32>, k = 16 : i32, layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<row>, m = 16 : i32, n = 16 : i32} : (i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32) -> !llvm.struct<(i32, i32, i32, i32, i32, i32, i32, i32)>
  nvvm.wmma.store %p, %m, %x, %x, %x, %x, %x, %x, %x, %x {eltype = #nvvm.mma_type<s32>, k = 16 : i32, layout = #nvvm.mma_layout<row>, m = 16 : i32, n = 16 : i32} : !llvm.ptr<3>, i32, i32, i32, i32, i32, i32, i32, i32
  %3 = nvvm.dot.accumulate.4way %v <unsigned>, %v <signed>, %m : vector<4xi8>, vector<4xi8>
  nvvm.st.bulk %p, size = %s : !llvm.ptr<3>
  return
}
