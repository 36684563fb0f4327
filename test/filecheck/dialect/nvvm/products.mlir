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

// CHECK: nvvm.mma.sp.block_scale A[%a] B[%a] C[%c] sparseMetadata[%m] selector[%m] scaleA[%m, %i, %i] scaleB[%m, %i, %i] {blockScaleFormat = #nvvm.block_scale_format<ue8m0>, kind = #nvvm.block_scale_kind<mxf4>, orderedMetadata, scaleVecSize = #nvvm.scale_vec_size<x2>, shape = #nvvm.shape<m = 16, n = 8, k = 128>}
gpu.module @other {
}

func.func @scaled(%a: vector<4xi32>, %c: vector<4xf32>, %m: i32, %i: i16) {
  %0 = nvvm.mma.sp.block_scale A[%a] B[%a] C[%c] sparseMetadata[%m] selector[%m] scaleA[%m, %i, %i] scaleB[%m, %i, %i]
    {blockScaleFormat = #nvvm.block_scale_format<ue8m0>, kind = #nvvm.block_scale_kind<mxf4>, orderedMetadata,
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

// CHECK: nvvm.match.sync any %c, %c : i32 -> i32
gpu.module @carried {
  llvm.func @k(%c: i32) attributes {nvvm.kernel} {
    // expected-error @+1 {{nvvm.match.sync is not lowered: it is read and printed, but stands for no instruction here}}
    %1 = nvvm.match.sync any %c, %c : i32 -> i32
    llvm.return
  }
}
