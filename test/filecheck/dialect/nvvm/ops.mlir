// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

// CHECK: llvm.func @registers()
llvm.func @registers() {
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.tid.x : i32
  %0 = nvvm.read.ptx.sreg.tid.x : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.tid.y range <i32, 0, 64> : i32
  %1 = nvvm.read.ptx.sreg.tid.y range <i32, 0, 64> : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.tid.z : i32
  %2 = nvvm.read.ptx.sreg.tid.z : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.ntid.x : i32
  %3 = nvvm.read.ptx.sreg.ntid.x : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.ntid.y : i32
  %4 = nvvm.read.ptx.sreg.ntid.y : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.ntid.z : i32
  %5 = nvvm.read.ptx.sreg.ntid.z : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.ctaid.x : i32
  %6 = nvvm.read.ptx.sreg.ctaid.x : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.ctaid.y : i32
  %7 = nvvm.read.ptx.sreg.ctaid.y : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.ctaid.z : i32
  %8 = nvvm.read.ptx.sreg.ctaid.z : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.nctaid.x : i32
  %9 = nvvm.read.ptx.sreg.nctaid.x : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.nctaid.y : i32
  %10 = nvvm.read.ptx.sreg.nctaid.y : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.nctaid.z : i32
  %11 = nvvm.read.ptx.sreg.nctaid.z : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.clusterid.x : i32
  %12 = nvvm.read.ptx.sreg.clusterid.x : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.clusterid.y : i32
  %13 = nvvm.read.ptx.sreg.clusterid.y : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.clusterid.z : i32
  %14 = nvvm.read.ptx.sreg.clusterid.z : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.nclusterid.x : i32
  %15 = nvvm.read.ptx.sreg.nclusterid.x : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.nclusterid.y : i32
  %16 = nvvm.read.ptx.sreg.nclusterid.y : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.nclusterid.z : i32
  %17 = nvvm.read.ptx.sreg.nclusterid.z : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.cluster.ctaid.x : i32
  %18 = nvvm.read.ptx.sreg.cluster.ctaid.x : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.cluster.ctaid.y : i32
  %19 = nvvm.read.ptx.sreg.cluster.ctaid.y : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.cluster.ctaid.z : i32
  %20 = nvvm.read.ptx.sreg.cluster.ctaid.z : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.cluster.nctaid.x : i32
  %21 = nvvm.read.ptx.sreg.cluster.nctaid.x : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.cluster.nctaid.y : i32
  %22 = nvvm.read.ptx.sreg.cluster.nctaid.y : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.cluster.nctaid.z : i32
  %23 = nvvm.read.ptx.sreg.cluster.nctaid.z : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.smid : i32
  %24 = nvvm.read.ptx.sreg.smid : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.clock : i32
  %25 = nvvm.read.ptx.sreg.clock : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.laneid range <i32, 0, 32> : i32
  %26 = nvvm.read.ptx.sreg.laneid range <i32, 0, 32> : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.warpid : i32
  %27 = nvvm.read.ptx.sreg.warpid : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.nwarpid : i32
  %28 = nvvm.read.ptx.sreg.nwarpid : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.nsmid : i32
  %29 = nvvm.read.ptx.sreg.nsmid : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.gridid : i32
  %30 = nvvm.read.ptx.sreg.gridid : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.cluster.ctarank : i32
  %31 = nvvm.read.ptx.sreg.cluster.ctarank : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.cluster.nctarank : i32
  %32 = nvvm.read.ptx.sreg.cluster.nctarank : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.lanemask.eq : i32
  %33 = nvvm.read.ptx.sreg.lanemask.eq : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.lanemask.le : i32
  %34 = nvvm.read.ptx.sreg.lanemask.le : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.lanemask.lt : i32
  %35 = nvvm.read.ptx.sreg.lanemask.lt : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.lanemask.ge : i32
  %36 = nvvm.read.ptx.sreg.lanemask.ge : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.lanemask.gt : i32
  %37 = nvvm.read.ptx.sreg.lanemask.gt : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.clock64 : i64
  %38 = nvvm.read.ptx.sreg.clock64 : i64
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.globaltimer.lo : i32
  %39 = nvvm.read.ptx.sreg.globaltimer.lo : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.globaltimer : i64
  %40 = nvvm.read.ptx.sreg.globaltimer : i64
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.total.smem.size : i32
  %41 = nvvm.read.ptx.sreg.total.smem.size : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.dynamic.smem.size : i32
  %42 = nvvm.read.ptx.sreg.dynamic.smem.size : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.aggr.smem.size : i32
  %43 = nvvm.read.ptx.sreg.aggr.smem.size : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg0 : i32
  %44 = nvvm.read.ptx.sreg.envreg0 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg1 : i32
  %45 = nvvm.read.ptx.sreg.envreg1 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg2 : i32
  %46 = nvvm.read.ptx.sreg.envreg2 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg3 : i32
  %47 = nvvm.read.ptx.sreg.envreg3 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg4 : i32
  %48 = nvvm.read.ptx.sreg.envreg4 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg5 : i32
  %49 = nvvm.read.ptx.sreg.envreg5 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg6 : i32
  %50 = nvvm.read.ptx.sreg.envreg6 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg7 : i32
  %51 = nvvm.read.ptx.sreg.envreg7 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg8 : i32
  %52 = nvvm.read.ptx.sreg.envreg8 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg9 : i32
  %53 = nvvm.read.ptx.sreg.envreg9 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg10 : i32
  %54 = nvvm.read.ptx.sreg.envreg10 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg11 : i32
  %55 = nvvm.read.ptx.sreg.envreg11 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg12 : i32
  %56 = nvvm.read.ptx.sreg.envreg12 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg13 : i32
  %57 = nvvm.read.ptx.sreg.envreg13 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg14 : i32
  %58 = nvvm.read.ptx.sreg.envreg14 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg15 : i32
  %59 = nvvm.read.ptx.sreg.envreg15 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg16 : i32
  %60 = nvvm.read.ptx.sreg.envreg16 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg17 : i32
  %61 = nvvm.read.ptx.sreg.envreg17 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg18 : i32
  %62 = nvvm.read.ptx.sreg.envreg18 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg19 : i32
  %63 = nvvm.read.ptx.sreg.envreg19 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg20 : i32
  %64 = nvvm.read.ptx.sreg.envreg20 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg21 : i32
  %65 = nvvm.read.ptx.sreg.envreg21 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg22 : i32
  %66 = nvvm.read.ptx.sreg.envreg22 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg23 : i32
  %67 = nvvm.read.ptx.sreg.envreg23 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg24 : i32
  %68 = nvvm.read.ptx.sreg.envreg24 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg25 : i32
  %69 = nvvm.read.ptx.sreg.envreg25 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg26 : i32
  %70 = nvvm.read.ptx.sreg.envreg26 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg27 : i32
  %71 = nvvm.read.ptx.sreg.envreg27 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg28 : i32
  %72 = nvvm.read.ptx.sreg.envreg28 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg29 : i32
  %73 = nvvm.read.ptx.sreg.envreg29 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg30 : i32
  %74 = nvvm.read.ptx.sreg.envreg30 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.envreg31 : i32
  %75 = nvvm.read.ptx.sreg.envreg31 : i32
  // CHECK: {{%\S+}} = nvvm.read.ptx.sreg.warpsize : i32
  %76 = nvvm.read.ptx.sreg.warpsize : i32
  llvm.return
}

llvm.func @operations(%p: !llvm.ptr<3>, %c: !llvm.ptr<7>, %g: !llvm.ptr<1>, %q: !llvm.ptr, %i: i32, %w: i64, %b: i1, %h: i16, %x: f32,
                      %s: !llvm.struct<(f32, f32, f32, f32)>) {
  // CHECK: {{%\S+}} = nvvm.mbarrier.try_wait %p, %i : !llvm.ptr<3>, i32 -> i1
  %r0 = nvvm.mbarrier.try_wait %p, %i : !llvm.ptr<3>, i32 -> i1
  // CHECK: {{%\S+}} = nvvm.mbarrier.test.wait %p, %i : !llvm.ptr<3>, i32 -> i1
  %r1 = nvvm.mbarrier.test.wait %p, %i : !llvm.ptr<3>, i32 -> i1
  // CHECK: {{%\S+}} = nvvm.mbarrier.test.wait %p, %w : !llvm.ptr<3>, i64 -> i1
  %r2 = nvvm.mbarrier.test.wait %p, %w : !llvm.ptr<3>, i64 -> i1
  // CHECK: nvvm.mbarrier.try_wait.parity %p, %i, %i : !llvm.ptr<3>, i32, i32
  nvvm.mbarrier.try_wait.parity %p, %i, %i : !llvm.ptr<3>, i32, i32
  // CHECK: nvvm.mbarrier.init %p, %i : !llvm.ptr<3>, i32
  nvvm.mbarrier.init %p, %i : !llvm.ptr<3>, i32
  // CHECK: nvvm.mbarrier.init %p, %i, predicate = %b : !llvm.ptr<3>, i32, i1
  nvvm.mbarrier.init %p, %i, predicate = %b : !llvm.ptr<3>, i32, i1
  // CHECK: nvvm.mbarrier.inval %p : !llvm.ptr<3>
  nvvm.mbarrier.inval %p : !llvm.ptr<3>
  // CHECK: {{%\S+}} = nvvm.mbarrier.arrive %p : !llvm.ptr<3> -> i64
  %r3 = nvvm.mbarrier.arrive %p : !llvm.ptr<3> -> i64
  // CHECK: {{%\S+}} = nvvm.mbarrier.arrive %p, %i : !llvm.ptr<3> -> i64
  %r4 = nvvm.mbarrier.arrive %p, %i : !llvm.ptr<3> -> i64
  // CHECK: nvvm.mbarrier.arrive %c : !llvm.ptr<7>
  nvvm.mbarrier.arrive %c : !llvm.ptr<7>
  // CHECK: {{%\S+}} = nvvm.mbarrier.arrive.nocomplete %p, %i : !llvm.ptr<3>, i32 -> i64
  %r5 = nvvm.mbarrier.arrive.nocomplete %p, %i : !llvm.ptr<3>, i32 -> i64
  // CHECK: {{%\S+}} = nvvm.mbarrier.arrive.expect_tx %p, %i : !llvm.ptr<3>, i32 -> i64
  %r6 = nvvm.mbarrier.arrive.expect_tx %p, %i : !llvm.ptr<3>, i32 -> i64
  // CHECK: nvvm.mbarrier.arrive.expect_tx %p, %i, predicate = %b : !llvm.ptr<3>, i32, i1
  nvvm.mbarrier.arrive.expect_tx %p, %i, predicate = %b : !llvm.ptr<3>, i32, i1
  // CHECK: nvvm.cp.async.mbarrier.arrive %p {noinc = true} : !llvm.ptr<3>
  nvvm.cp.async.mbarrier.arrive %p {noinc = true} : !llvm.ptr<3>
  // CHECK: nvvm.cp.async.shared.global %p, %g, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
  nvvm.cp.async.shared.global %p, %g, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
  // CHECK: nvvm.cp.async.shared.global %p, %g, 8, cache = ca, %i : !llvm.ptr<3>, !llvm.ptr<1>, i32
  nvvm.cp.async.shared.global %p, %g, 8, cache = ca, %i : !llvm.ptr<3>, !llvm.ptr<1>, i32
  // CHECK: nvvm.cp.async.commit.group
  nvvm.cp.async.commit.group
  // CHECK: nvvm.cp.async.wait.group 1
  nvvm.cp.async.wait.group 1
  // CHECK: {{%\S+}} = nvvm.mapa %p, %i : !llvm.ptr<3> -> !llvm.ptr<7>
  %r7 = nvvm.mapa %p, %i : !llvm.ptr<3> -> !llvm.ptr<7>
  // CHECK: {{%\S+}} = nvvm.elect.sync -> i1
  %r8 = nvvm.elect.sync -> i1
  // CHECK: {{%\S+}} = nvvm.elect.sync %i -> i1
  %r9 = nvvm.elect.sync %i -> i1
  // CHECK: nvvm.barrier0
  nvvm.barrier0
  // CHECK: nvvm.barrier id = %i number_of_threads = %i
  nvvm.barrier id = %i number_of_threads = %i
  // CHECK: {{%\S+}} = nvvm.barrier #nvvm.reduction<or> %i -> i32
  %r10 = nvvm.barrier #nvvm.reduction<or> %i -> i32
  // CHECK: nvvm.barrier.arrive id = %i number_of_threads = %i
  nvvm.barrier.arrive id = %i number_of_threads = %i
  // CHECK: nvvm.bar.warp.sync %i : i32
  nvvm.bar.warp.sync %i : i32
  // CHECK: nvvm.cluster.arrive
  nvvm.cluster.arrive
  // CHECK: nvvm.cluster.arrive.relaxed {aligned}
  nvvm.cluster.arrive.relaxed {aligned}
  // CHECK: nvvm.cluster.wait {aligned}
  nvvm.cluster.wait {aligned}
  // CHECK: nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
  nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
  // CHECK: nvvm.fence.mbarrier.init
  nvvm.fence.mbarrier.init
  // CHECK: nvvm.fence.sc.cluster
  nvvm.fence.sc.cluster
  // CHECK: nvvm.memory.barrier <gpu>
  nvvm.memory.barrier <gpu>
  // CHECK: nvvm.setmaxregister increase 232
  nvvm.setmaxregister increase 232
  // CHECK: nvvm.griddepcontrol wait
  nvvm.griddepcontrol wait
  // CHECK: {{%\S+}} = nvvm.prmt <default> %i, %i, %i : i32
  %r11 = nvvm.prmt <default> %i, %i, %i : i32
  // CHECK: nvvm.prefetch level = L2, %g : !llvm.ptr<1>
  nvvm.prefetch level = L2, %g : !llvm.ptr<1>
  // CHECK: {{%\S+}} = llvm.addrspacecast %g : !llvm.ptr<1> to !llvm.ptr{{$}}
  %generic = llvm.addrspacecast %g : !llvm.ptr<1> to !llvm.ptr<0>
  // CHECK: {{%\S+}} = llvm.mlir.poison : !llvm.struct<(i32, !llvm.array<2 x i32>)>
  %any = llvm.mlir.poison : !llvm.struct<(i32, array<2 x i32>)>
  // CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global %c, %q, %p, box[%i, %i] : !llvm.ptr<7>, !llvm.ptr
  nvvm.cp.async.bulk.tensor.shared.cluster.global %c, %q, %p, box[%i, %i] : !llvm.ptr<7>, !llvm.ptr
  // CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global %p, %q, %p, box[%i, %i] {isCTAOnly = true} : !llvm.ptr<3>, !llvm.ptr
  nvvm.cp.async.bulk.tensor.shared.cluster.global %p, %q, %p, box[%i, %i] {isCTAOnly = true} : !llvm.ptr<3>, !llvm.ptr
  // CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global %c, %q, %p, box[%i, %i] multicast_mask = %h : !llvm.ptr<7>, !llvm.ptr
  nvvm.cp.async.bulk.tensor.shared.cluster.global %c, %q, %p, box[%i, %i] multicast_mask = %h : !llvm.ptr<7>, !llvm.ptr
  // CHECK: nvvm.cp.async.bulk.tensor.global.shared.cta %q, %p, box[%i, %i] : !llvm.ptr, !llvm.ptr<3>
  nvvm.cp.async.bulk.tensor.global.shared.cta %q, %p, box[%i, %i] : !llvm.ptr, !llvm.ptr<3>
  // CHECK: nvvm.cp.async.bulk.commit.group
  nvvm.cp.async.bulk.commit.group
  // CHECK: nvvm.cp.async.bulk.wait_group 1 {read}
  nvvm.cp.async.bulk.wait_group 1 {read}
  // CHECK: nvvm.wgmma.fence.aligned
  nvvm.wgmma.fence.aligned
  // CHECK: nvvm.wgmma.commit.group.sync.aligned
  nvvm.wgmma.commit.group.sync.aligned
  // CHECK: nvvm.wgmma.wait.group.sync.aligned 1
  nvvm.wgmma.wait.group.sync.aligned 1
  // CHECK: {{%\S+}} = nvvm.wgmma.mma_async %w, %w, %s, <m = 64, n = 8, k = 16>, D[<f32>, <one>], A[<bf16>, <one>, <row>], B[<bf16>, <neg>, <col>] : !llvm.struct<(f32, f32, f32, f32)> -> !llvm.struct<(f32, f32, f32, f32)>
  %r12 = nvvm.wgmma.mma_async %w, %w, %s, <m = 64, n = 8, k = 16>, D [<f32>, <one>], A [<bf16>, <one>, <row>], B [<bf16>, <neg>, <col>] : !llvm.struct<(f32, f32, f32, f32)> -> !llvm.struct<(f32, f32, f32, f32)>
  // CHECK: {{%\S+}} = nvvm.mma.sync A[%i, %i] B[%i] C[%x, %x, %x, %x] {layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>, multiplicandAPtxType = #nvvm.mma_type<tf32>, multiplicandBPtxType = #nvvm.mma_type<tf32>, shape = #nvvm.shape<m = 16, n = 8, k = 4>} : (i32, i32, f32) -> !llvm.struct<(f32, f32, f32, f32)>
  %r13 = nvvm.mma.sync A[%i, %i] B[%i] C[%x, %x, %x, %x] {layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>, multiplicandAPtxType = #nvvm.mma_type<tf32>, multiplicandBPtxType = #nvvm.mma_type<tf32>, shape = #nvvm.shape<m = 16, n = 8, k = 4>} : (i32, i32, f32) -> !llvm.struct<(f32, f32, f32, f32)>
  // CHECK: {{%\S+}} = nvvm.ldmatrix %p {eltType = #nvvm.ld_st_matrix_elt_type<b16>, layout = #nvvm.mma_layout<row>, num = 2 : i32, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>} : (!llvm.ptr<3>) -> !llvm.struct<(i32, i32)>
  %r14 = nvvm.ldmatrix %p {eltType = #nvvm.ld_st_matrix_elt_type<b16>, layout = #nvvm.mma_layout<row>, num = 2 : i32, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>} : (!llvm.ptr<3>) -> !llvm.struct<(i32, i32)>
  // CHECK: nvvm.stmatrix %p, %i, %i {eltType = #nvvm.ld_st_matrix_elt_type<b16>, layout = #nvvm.mma_layout<col>, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>} : !llvm.ptr<3>, i32, i32
  nvvm.stmatrix %p, %i, %i {eltType = #nvvm.ld_st_matrix_elt_type<b16>, layout = #nvvm.mma_layout<col>, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>} : !llvm.ptr<3>, i32, i32
  // CHECK: {{%\S+}} = nvvm.rcp.approx.ftz.f %x : f32
  %r15 = nvvm.rcp.approx.ftz.f %x : f32
  // CHECK: {{%\S+}} = nvvm.shfl.sync bfly %i, %x, %i, %i : f32 -> f32
  %r16 = nvvm.shfl.sync bfly %i, %x, %i, %i : f32 -> f32
  // CHECK: {{%\S+}} = nvvm.vote.sync ballot %i, %b -> i32
  %r17 = nvvm.vote.sync ballot %i, %b -> i32
  // CHECK: {{%\S+}} = nvvm.redux.sync umax %i, %i : i32 -> i32
  %r18 = nvvm.redux.sync umax %i, %i : i32 -> i32
  // CHECK: nvvm.breakpoint
  nvvm.breakpoint
  // CHECK: nvvm.exit
  nvvm.exit
  llvm.return
}
