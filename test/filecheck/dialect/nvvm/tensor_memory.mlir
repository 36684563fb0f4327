// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s
// RUN: warploom-opt %s -p 'warp-set-target{arch=sm_100a},convert-warp-to-ptx' -t ptx | filecheck %s --check-prefix=PTX

// PTX: .version 8.8
gpu.module @m {
  llvm.func @k(%s: !llvm.ptr<3>, %g: !llvm.ptr, %n: i32, %d: i64, %m: i16) attributes {nvvm.kernel} {
    %two = llvm.mlir.constant(2 : i64) : i64
    %b = llvm.trunc %m : i16 to i8
    %f = llvm.trunc %n : i32 to i1
    // CHECK: nvvm.tcgen05.alloc %s, %n : !llvm.ptr<3>, i32
    // PTX: tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [{{%r\d+}}], {{%r\d+}};
    nvvm.tcgen05.alloc %s, %n : !llvm.ptr<3>, i32
    // CHECK: nvvm.tcgen05.alloc %g, %n : !llvm.ptr, i32
    // PTX: tcgen05.alloc.cta_group::1.sync.aligned.b32 [{{%rd\d+}}], {{%r\d+}};
    nvvm.tcgen05.alloc %g, %n : !llvm.ptr, i32
    // CHECK: nvvm.tcgen05.relinquish_alloc_permit
    // PTX: tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
    nvvm.tcgen05.relinquish_alloc_permit
    %t = llvm.load %s : !llvm.ptr<3> -> !llvm.ptr<6>
    // CHECK: nvvm.tcgen05.fence <before>
    // PTX: tcgen05.fence::before_thread_sync;
    nvvm.tcgen05.fence <before>
    // CHECK: nvvm.tcgen05.fence <after>
    // PTX: tcgen05.fence::after_thread_sync;
    nvvm.tcgen05.fence <after>
    // CHECK: nvvm.tcgen05.shift %t : !llvm.ptr<6>
    // PTX: tcgen05.shift.cta_group::1.down [{{%r\d+}}];
    nvvm.tcgen05.shift %t : !llvm.ptr<6>
    // CHECK: nvvm.tcgen05.cp %t, %d {shape = #nvvm.tcgen05_cp_shape<shape_128x256b>}
    // PTX: tcgen05.cp.cta_group::1.128x256b [{{%r\d+}}], {{%rd\d+}};
    nvvm.tcgen05.cp %t, %d {shape = #nvvm.tcgen05_cp_shape<shape_128x256b>}
    // CHECK: nvvm.tcgen05.cp %t, %d {multicast = #nvvm.tcgen05_cp_multicast<warpx2_01_23>, shape = #nvvm.tcgen05_cp_shape<shape_64x128b>, srcFormat = #nvvm.tcgen05_cp_src_fmt<b6x16_p32>}
    // PTX: tcgen05.cp.cta_group::1.64x128b.warpx2::01_23.b8x16.b6x16_p32 [{{%r\d+}}], {{%rd\d+}};
    nvvm.tcgen05.cp %t, %d {multicast = #nvvm.tcgen05_cp_multicast<warpx2_01_23>, shape = #nvvm.tcgen05_cp_shape<shape_64x128b>, srcFormat = #nvvm.tcgen05_cp_src_fmt<b6x16_p32>}
    // CHECK: {{%\S+}} = nvvm.tcgen05.mma_smem_desc(%n, %n, %n, %b, %f, %b) : (i32, i32, i32, i8, i1, i8) -> i64
    // PTX: bfi.b64 {{%rd\d+}}, {{%rd\d+}}, 70368744177664, 0, 14;
    // PTX: bfi.b64 {{%rd\d+}}, {{%rd\d+}}, {{%rd\d+}}, 16, 14;
    // PTX: bfi.b64 {{%rd\d+}}, {{%rd\d+}}, {{%rd\d+}}, 32, 14;
    // PTX: bfi.b64 {{%rd\d+}}, {{%rd\d+}}, {{%rd\d+}}, 49, 3;
    // PTX: bfi.b64 {{%rd\d+}}, {{%rd\d+}}, {{%rd\d+}}, 52, 1;
    // PTX: bfi.b64 {{%rd\d+}}, {{%rd\d+}}, {{%rd\d+}}, 61, 3;
    %x = nvvm.tcgen05.mma_smem_desc(%n, %n, %n, %b, %f, %b) : (i32, i32, i32, i8, i1, i8) -> i64
    // CHECK: {{%\S+}} = nvvm.tcgen05.ld %t {shape = #nvvm.tcgen05_ldst_shape<shape_16x128b>} : vector<4xi32>
    // PTX: tcgen05.ld.sync.aligned.16x128b.x2.b32 {{{%r\d+}}, {{%r\d+}}, {{%r\d+}}, {{%r\d+}}}, [{{%r\d+}}];
    %v = nvvm.tcgen05.ld %t {shape = #nvvm.tcgen05_ldst_shape<shape_16x128b>} : vector<4xi32>
    // CHECK: {{%\S+}} = nvvm.tcgen05.ld %t, %two pack {shape = #nvvm.tcgen05_ldst_shape<shape_16x32bx2>} : i32
    // PTX: tcgen05.ld.sync.aligned.16x32bx2.x1.pack::16b.b32 {{{%r\d+}}}, [{{%r\d+}}], 2;
    %one = nvvm.tcgen05.ld %t, %two pack {shape = #nvvm.tcgen05_ldst_shape<shape_16x32bx2>} : i32
    // CHECK: nvvm.tcgen05.wait <load>
    // PTX: tcgen05.wait::ld.sync.aligned;
    nvvm.tcgen05.wait <load>
    // CHECK: nvvm.tcgen05.st %t, %v unpack {shape = #nvvm.tcgen05_ldst_shape<shape_32x32b>} : vector<4xi32>
    // PTX: tcgen05.st.sync.aligned.32x32b.x4.unpack::16b.b32 [{{%r\d+}}], {{{%r\d+}}, {{%r\d+}}, {{%r\d+}}, {{%r\d+}}};
    nvvm.tcgen05.st %t, %v unpack {shape = #nvvm.tcgen05_ldst_shape<shape_32x32b>} : vector<4xi32>
    // CHECK: nvvm.tcgen05.wait <store>
    // PTX: tcgen05.wait::st.sync.aligned;
    nvvm.tcgen05.wait <store>
    // CHECK: nvvm.tcgen05.mma %t, %x, %d, %n, %f {ctaGroup = #nvvm.cta_group<cta_1>, kind = #nvvm.tcgen05_mma_kind<f8f6f4>} : (!llvm.ptr<6>, i64, i64, i32, i1)
    // PTX: tcgen05.mma.cta_group::1.kind::f8f6f4.collector::a::discard [{{%r\d+}}], {{%rd\d+}}, {{%rd\d+}}, {{%r\d+}}, {{%p\d+}};
    nvvm.tcgen05.mma %t, %x, %d, %n, %f {ctaGroup = #nvvm.cta_group<cta_1>, kind = #nvvm.tcgen05_mma_kind<f8f6f4>} : (!llvm.ptr<6>, i64, i64, i32, i1)
    // CHECK: nvvm.tcgen05.mma %t, %t, %d, %n, %f scale = %two mask = %v {aShift, collectorOp = #nvvm.tcgen05_mma_collectorop<lastuse>, ctaGroup = #nvvm.cta_group<cta_1>, kind = #nvvm.tcgen05_mma_kind<f16>} : (!llvm.ptr<6>, !llvm.ptr<6>, i64, i32, i1, i64, vector<4xi32>)
    // PTX: tcgen05.mma.cta_group::1.kind::f16.ashift.collector::a::lastuse [{{%r\d+}}], [{{%r\d+}}], {{%rd\d+}}, {{%r\d+}}, {{{%r\d+}}, {{%r\d+}}, {{%r\d+}}, {{%r\d+}}}, {{%p\d+}}, 2;
    nvvm.tcgen05.mma %t, %t, %d, %n, %f scale = %two mask = %v {aShift, collectorOp = #nvvm.tcgen05_mma_collectorop<lastuse>, ctaGroup = #nvvm.cta_group<cta_1>, kind = #nvvm.tcgen05_mma_kind<f16>} : (!llvm.ptr<6>, !llvm.ptr<6>, i64, i32, i1, i64, vector<4xi32>)
    // CHECK: nvvm.tcgen05.mma.sp %t, %x, %d, %n, %f, %t {ctaGroup = #nvvm.cta_group<cta_1>, kind = #nvvm.tcgen05_mma_kind<i8>} : (!llvm.ptr<6>, i64, i64, i32, i1, !llvm.ptr<6>)
    // PTX: tcgen05.mma.sp.cta_group::1.kind::i8.collector::a::discard [{{%r\d+}}], {{%rd\d+}}, {{%rd\d+}}, [{{%r\d+}}], {{%r\d+}}, {{%p\d+}};
    nvvm.tcgen05.mma.sp %t, %x, %d, %n, %f, %t {ctaGroup = #nvvm.cta_group<cta_1>, kind = #nvvm.tcgen05_mma_kind<i8>} : (!llvm.ptr<6>, i64, i64, i32, i1, !llvm.ptr<6>)
    // CHECK: nvvm.tcgen05.mma.block_scale %t, %x, %d, %n, %f, %t, %t {blockScale = #nvvm.tcgen05_mma_block_scale<block32>, ctaGroup = #nvvm.cta_group<cta_1>, kind = #nvvm.block_scale_kind<mxf8f6f4>} : (!llvm.ptr<6>, i64, i64, i32, i1, !llvm.ptr<6>, !llvm.ptr<6>)
    // PTX: tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.block32.collector::a::discard [{{%r\d+}}], {{%rd\d+}}, {{%rd\d+}}, {{%r\d+}}, [{{%r\d+}}], [{{%r\d+}}], {{%p\d+}};
    nvvm.tcgen05.mma.block_scale %t, %x, %d, %n, %f, %t, %t {blockScale = #nvvm.tcgen05_mma_block_scale<block32>, ctaGroup = #nvvm.cta_group<cta_1>, kind = #nvvm.block_scale_kind<mxf8f6f4>} : (!llvm.ptr<6>, i64, i64, i32, i1, !llvm.ptr<6>, !llvm.ptr<6>)
    // CHECK: nvvm.tcgen05.mma.sp.block_scale %t, %t, %d, %n, %f, %t, %t, %t {collectorOp = #nvvm.tcgen05_mma_collectorop<fill>, ctaGroup = #nvvm.cta_group<cta_1>, blockScale = #nvvm.tcgen05_mma_block_scale<block16>, kind = #nvvm.block_scale_kind<mxf4nvf4>} : (!llvm.ptr<6>, !llvm.ptr<6>, i64, i32, i1, !llvm.ptr<6>, !llvm.ptr<6>, !llvm.ptr<6>)
    // PTX: tcgen05.mma.sp.cta_group::1.kind::mxf4nvf4.block_scale.block16.collector::a::fill [{{%r\d+}}], [{{%r\d+}}], {{%rd\d+}}, [{{%r\d+}}], {{%r\d+}}, [{{%r\d+}}], [{{%r\d+}}], {{%p\d+}};
    nvvm.tcgen05.mma.sp.block_scale %t, %t, %d, %n, %f, %t, %t, %t {collectorOp = #nvvm.tcgen05_mma_collectorop<fill>, ctaGroup = #nvvm.cta_group<cta_1>, blockScale = #nvvm.tcgen05_mma_block_scale<block16>, kind = #nvvm.block_scale_kind<mxf4nvf4>} : (!llvm.ptr<6>, !llvm.ptr<6>, i64, i32, i1, !llvm.ptr<6>, !llvm.ptr<6>, !llvm.ptr<6>)
    // CHECK: nvvm.tcgen05.mma.ws %t, %x, %d, %n, %f, %d {collectorBBuffer = #nvvm.tcgen05_mma_collectorb<b2>, collectorOp = #nvvm.tcgen05_mma_collectorop<use>, kind = #nvvm.tcgen05_mma_kind<tf32>} : (!llvm.ptr<6>, i64, i64, i32, i1, i64)
    // PTX: tcgen05.mma.ws.cta_group::1.kind::tf32.collector::b2::use [{{%r\d+}}], {{%rd\d+}}, {{%rd\d+}}, {{%r\d+}}, {{%p\d+}}, {{%rd\d+}};
    nvvm.tcgen05.mma.ws %t, %x, %d, %n, %f, %d {collectorBBuffer = #nvvm.tcgen05_mma_collectorb<b2>, collectorOp = #nvvm.tcgen05_mma_collectorop<use>, kind = #nvvm.tcgen05_mma_kind<tf32>} : (!llvm.ptr<6>, i64, i64, i32, i1, i64)
    // CHECK: nvvm.tcgen05.mma.ws.sp %t, %t, %d, %n, %f, %t {kind = #nvvm.tcgen05_mma_kind<f16>} : (!llvm.ptr<6>, !llvm.ptr<6>, i64, i32, i1, !llvm.ptr<6>)
    // PTX: tcgen05.mma.ws.sp.cta_group::1.kind::f16.collector::b0::discard [{{%r\d+}}], [{{%r\d+}}], {{%rd\d+}}, [{{%r\d+}}], {{%r\d+}}, {{%p\d+}};
    nvvm.tcgen05.mma.ws.sp %t, %t, %d, %n, %f, %t {kind = #nvvm.tcgen05_mma_kind<f16>} : (!llvm.ptr<6>, !llvm.ptr<6>, i64, i32, i1, !llvm.ptr<6>)
    // CHECK: nvvm.tcgen05.commit %s : !llvm.ptr<3>
    // PTX: tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [{{%r\d+}}];
    nvvm.tcgen05.commit %s : !llvm.ptr<3>
    // CHECK: nvvm.tcgen05.commit %g, multicast_mask = %m : !llvm.ptr, i16
    // PTX: tcgen05.commit.cta_group::1.mbarrier::arrive::one.multicast::cluster.b64 [{{%rd\d+}}], {{%h\d+}};
    nvvm.tcgen05.commit %g, multicast_mask = %m : !llvm.ptr, i16
    // CHECK: nvvm.tcgen05.dealloc %t, %n : !llvm.ptr<6>, i32
    // PTX: tcgen05.dealloc.cta_group::1.sync.aligned.b32 {{%r\d+}}, {{%r\d+}};
    nvvm.tcgen05.dealloc %t, %n : !llvm.ptr<6>, i32
    llvm.return
  }
}
