// RUN: warploom-opt %s -p 'warp-set-target{arch=sm_100a},convert-warp-to-ptx' -t ptx | filecheck %s
// RUN: warploom-opt %s | warploom-opt -p 'warp-set-target{arch=sm_100a},convert-warp-to-ptx' -t ptx | filecheck %s

// CHECK: ld.param.u8 {{%h\d+}}, [k_param_3];
// CHECK: vote.sync.ballot.b32 {{%r\d+}}, {{%p\d+}}, {{%r\d+}};
// CHECK: redux.sync.min.abs.f32 {{%f\d+}}, {{%f\d+}}, {{%r\d+}};
// CHECK: redux.sync.max.abs.NaN.f32 {{%f\d+}}, {{%f\d+}}, {{%r\d+}};
// CHECK: redux.sync.add.s32 {{%r\d+}}, {{%r\d+}}, {{%r\d+}};
// CHECK: match.any.sync.b32 {{%r\d+}}, {{%r\d+}}, {{%r\d+}};
// CHECK: match.all.sync.b64 {{%r\d+}}|{{%p\d+}}, 64, {{%r\d+}};
// CHECK: mapa.shared::cluster.u32 {{%r\d+}}, {{%r\d+}}, {{%r\d+}};
// CHECK: mapa.u64 {{%rd\d+}}, {{%rd\d+}}, {{%r\d+}};
// CHECK: st.bulk.weak.shared::cta [{{%r\d+}}], 64, 0;
// CHECK: st.bulk.weak [{{%rd\d+}}], 64, 0;
// CHECK: prefetch.global.L2::evict_last [{{%rd\d+}}];
// CHECK: prefetchu.L1 [{{%rd\d+}}];
// CHECK: prefetch.param.tensormap [{{%rd\d+}}];

gpu.module @m {
llvm.func @k(%p: !llvm.ptr, %i: i32, %f: f32, %b: i1, %s: !llvm.ptr<3>) attributes {nvvm.kernel} {
  %z = llvm.mlir.constant(64 : i64) : i64
  %o = nvvm.vote.sync ballot %i, %b -> i32
  %1 = nvvm.redux.sync fmin %f, %i {abs = true} : f32 -> f32
  %2 = nvvm.redux.sync fmax %f, %i {abs = true, nan = true} : f32 -> f32
  %3 = nvvm.redux.sync add %i, %i : i32 -> i32
  %4 = nvvm.match.sync any %i, %i : i32 -> i32
  %5 = nvvm.match.sync all %i, %z : i64 -> !llvm.struct<(i32, i1)>
  %6 = nvvm.mapa %s, %i : !llvm.ptr<3> -> !llvm.ptr<7>
  %7 = nvvm.mapa %p, %i : !llvm.ptr -> !llvm.ptr
  nvvm.st.bulk %s, size = %z : !llvm.ptr<3>
  nvvm.st.bulk %p, size = %z : !llvm.ptr
  %g = llvm.addrspacecast %p : !llvm.ptr to !llvm.ptr<1>
  nvvm.prefetch level = L2, evict_priority = evict_last, %g : !llvm.ptr<1>
  nvvm.prefetch level = L1 uniform, %p : !llvm.ptr<0>
  nvvm.prefetch tensormap in_param_space, %p : !llvm.ptr
  llvm.return
}}
