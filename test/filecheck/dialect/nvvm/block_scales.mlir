// RUN: warploom-opt %s -p 'warp-set-target{arch=sm_120a},convert-warp-to-ptx' -t ptx | filecheck %s
// RUN: warploom-opt %s | warploom-opt -p 'warp-set-target{arch=sm_120a},convert-warp-to-ptx' -t ptx | filecheck %s

// CHECK: mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e2m1.f32.ue8m0{{ .*}}, {0, 1}, {{.*}}, {0, 1};
// CHECK: mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3{{ .*}}, {0, 1}, {{.*}}, {0, 1};

gpu.module @m {
llvm.func @k(%p: !llvm.ptr, %i: i32, %f: f32) attributes {nvvm.kernel} {
  %z = llvm.mlir.constant(0 : i32) : i32
  %c0 = llvm.mlir.constant(0 : i16) : i16
  %c1 = llvm.mlir.constant(1 : i16) : i16
  %r = nvvm.mma.block_scale A[%i, %i, %i, %i] B[%i, %i] C[%f, %f, %f, %f] scaleA[%i, %c0, %c1] scaleB[%i, %c0, %c1] {blockScaleFormat = #nvvm.block_scale_format<ue8m0>, kind = #nvvm.block_scale_kind<mxf8f6f4>, multiplicandAPtxType = #nvvm.mma_type<e4m3>, multiplicandBPtxType = #nvvm.mma_type<e2m1>, scaleVecSize = #nvvm.scale_vec_size<x1>, shape = #nvvm.shape<m = 16, n = 8, k = 32>} : (i32, i32, f32) -> !llvm.struct<(f32, f32, f32, f32)>
  %q = nvvm.mma.sp.block_scale A[%i, %i, %i, %i] B[%i, %i, %i, %i] C[%f, %f, %f, %f] sparseMetadata[%i] selector[%z] scaleA[%i, %c0, %c1] scaleB[%i, %c0, %c1] {orderedMetadata, blockScaleFormat = #nvvm.block_scale_format<ue4m3>, kind = #nvvm.block_scale_kind<mxf4nvf4>, multiplicandAPtxType = #nvvm.mma_type<e2m1>, multiplicandBPtxType = #nvvm.mma_type<e2m1>, scaleVecSize = #nvvm.scale_vec_size<x4>, shape = #nvvm.shape<m = 16, n = 8, k = 128>} : (i32, i32, f32) -> !llvm.struct<(f32, f32, f32, f32)>
  %e = llvm.extractvalue %r[0] : !llvm.struct<(f32, f32, f32, f32)>
  llvm.store %e, %p : f32, !llvm.ptr
  %e1 = llvm.extractvalue %q[0] : !llvm.struct<(f32, f32, f32, f32)>
  llvm.store %e1, %p : f32, !llvm.ptr
  llvm.return
}}
