// RUN: warploom-opt %s -p warp-expand,convert-warp-to-ptx -t ptx | filecheck %s

!acc = !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>

builtin.module attributes {warp.target = #warp.target<sm_80>} {
"gpu.module"() <{sym_name = "kernels"}> ({
// CHECK-LABEL: .entry k(
"gpu.func"() <{function_type = (memref<16x16xf32>, memref<6x256xf32>, memref<3xi32>) -> (), kernel}> ({
^bb0(%D: memref<16x16xf32>, %parts: memref<6x256xf32>, %counters: memref<3xi32>):
  %tile = "gpu.block_id"() <{dimension = #gpu<dim x>}> : () -> index
  %part = "gpu.block_id"() <{dimension = #gpu<dim z>}> : () -> index
  %zero = arith.constant 0 : index
  %two = arith.constant 2 : index
  %acc = warp.constant 1.0 : f32 : !acc
  // A warp's registers lie behind those of the warps before it, 16 bytes of each lane at a time.
  // CHECK:      shl.b32 [[OWN:%r[0-9]+]], %r{{[0-9]+}}, 7;
  // CHECK-NEXT: // warp.store: registers of acc 16x8 to parts
  // CHECK-NEXT: mul.wide.s32 [[ROW:%rd[0-9]+]], %r{{[0-9]+}}, 1024;
  // CHECK:      mul.wide.s32 {{.*}}, [[OWN]], 4;
  // CHECK:      mul.wide.s32 [[MINE:%rd[0-9]+]], [[LANE:%r[0-9]+]], 16;
  // CHECK:      st.global.v4.f32 [%rd{{[0-9]+}}], {%f0, %f1, %f2, %f3};
  warp.store_part %acc, %parts[%part] : !acc, memref<6x256xf32>
  // Everything is written; thread 0 counts the CTA in, and resets after the last.
  // CHECK-NEXT: bar.sync 0;
  // CHECK-NEXT: setp.eq.s32 [[FIRST:%p[0-9]+]], [[TID:%r[0-9]+]], 0;
  // CHECK-NEXT: mul.wide.s32 {{.*}}, 4;
  // CHECK-NEXT: add.s64 [[COUNTER:%rd[0-9]+]], {{.*}};
  // CHECK-NEXT: // warp.atomic_inc: counters
  // CHECK-NEXT: mov.b32 [[SEEN:%r[0-9]+]], 0;
  // CHECK-NEXT: @[[FIRST]] atom.acq_rel.gpu.global.inc.u32 [[SEEN]], [[[COUNTER]]], 1;
  // CHECK-NEXT: setp.eq.s32 [[FULL:%p[0-9]+]], [[SEEN]], 1;
  // CHECK-NEXT: and.pred [[MINE:%p[0-9]+]], [[FULL]], [[FIRST]];
  // CHECK-NEXT: bar.red.or.pred [[LAST:%p[0-9]+]], 0, [[MINE]];
  %last = warp.arrive_last %counters[%tile] of %two : memref<3xi32>
  // CHECK:      @![[LAST]] bra [[END:skipped_[0-9]+]];
  scf.if %last {
    %start = warp.constant 0.0 : f32 : !acc
    // CHECK:      // warp.load: registers of acc 16x8 from parts
    // CHECK-NEXT: ld.global.v4.f32 {[[A:%f[0-9]+]], {{.*}}}, [[[AT:%rd[0-9]+]]];
    // CHECK-NEXT: add.rn.f32 [[S:%f[0-9]+]], %f{{[0-9]+}}, [[A]];
    // CHECK-COUNT-3: add.rn.f32
    // CHECK:      ld.global.v4.f32 {[[B:%f[0-9]+]], {{.*}}}, [[[AT]]+1024];
    // CHECK-NEXT: add.rn.f32 %f{{[0-9]+}}, [[S]], [[B]];
    %sum = warp.add_parts %start, %parts[%zero] x %two : !acc, memref<6x256xf32> -> !acc
    // CHECK:      st.global.v2.f32
    warp.store %sum, %D[%zero, %zero] {in_bounds = [true, true]} : !acc, memref<16x16xf32>
  }
  // CHECK:      [[END]]:
  // CHECK-NEXT: ret;
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 64, 1, 1>} : () -> ()

// How many there are may be known only then.
// CHECK-LABEL: .entry counted(
"gpu.func"() <{function_type = (memref<16x16xf32>, memref<6x256xf32>, memref<3xi32>) -> (), kernel}> ({
^bb0(%D: memref<16x16xf32>, %parts: memref<6x256xf32>, %counters: memref<3xi32>):
  %count = "gpu.block_id"() <{dimension = #gpu<dim x>}> : () -> index
  %zero = arith.constant 0 : index
  %acc = warp.constant 1.0 : f32 : !acc
  // CHECK:      add.s32 [[LIMIT:%r[0-9]+]], [[COUNT:%r[0-9]+]], -1;
  // CHECK:      atom.acq_rel.gpu.global.inc.u32 [[SEEN:%r[0-9]+]], [%rd{{[0-9]+}}], [[LIMIT]];
  // CHECK-NEXT: setp.eq.s32 %p{{[0-9]+}}, [[SEEN]], [[LIMIT]];
  %last = warp.arrive_last %counters[%zero] of %count : memref<3xi32>
  // CHECK:      // part loop, step 1
  // CHECK:      ld.global.v4.f32 {[[A:%f[0-9]+]], {{.*}}}
  // CHECK-NEXT: add.rn.f32 [[S:%f[0-9]+]], [[S]], [[A]];
  // CHECK-NOT:  mov
  // CHECK:      setp.lt.s32 %p{{[0-9]+}}, %r{{[0-9]+}}, [[COUNT]];
  %sum = warp.add_parts %acc, %parts[%zero] x %count : !acc, memref<6x256xf32> -> !acc
  warp.store %sum, %D[%zero, %zero] {in_bounds = [true, true]} : !acc, memref<16x16xf32>
  "gpu.return"() : () -> ()
}) {sym_name = "counted", gpu.known_block_size = array<i32: 64, 1, 1>} : () -> ()
}) : () -> ()
}
