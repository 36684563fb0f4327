// RUN: warploom-opt %s -p convert-warp-to-ptx -t ptx | filecheck %s

!acc = !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>

builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = (memref<32x16xf32>) -> (), kernel}> ({
^bb0(%C: memref<32x16xf32>):
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %two = arith.constant 2 : index
  %eight = arith.constant 8 : index
  %sixteen = arith.constant 16 : index
  %warp = "gpu.subgroup_id"() : () -> index
  %block = "gpu.block_id"() <{dimension = #gpu<dim x>}> : () -> index
  // CHECK: shr.u32 [[WARP:%r[0-9]+]], %r{{[0-9]+}}, 5;
  // CHECK: mov.u32 [[BLOCK:%r[0-9]+]], %ctaid.x;
  // CHECK: setp.lt.u32 [[LOW:%p[0-9]+]], [[WARP]], 1;
  %low = arith.cmpi ult, %warp, %one : index
  // CHECK-NEXT: setp.eq.s32 [[THIRD:%p[0-9]+]], [[WARP]], 2;
  %third = arith.cmpi eq, %warp, %two : index
  // CHECK-NEXT: or.pred [[EITHER:%p[0-9]+]], [[LOW]], [[THIRD]];
  %either = arith.ori %low, %third : i1
  // What does not depend on the way goes before the branch.
  // CHECK-NEXT: shl.b32 [[EIGHTFOLD:%r[0-9]+]], [[BLOCK]], 3;
  // CHECK: @![[EITHER]] bra [[OTHERWISE:otherwise_[0-9]+]];
  %sum, %column, %done = scf.if %either -> (!acc, index, i1) {
    // CHECK-NEXT: mov.f32 [[X:%f[0-9]+]], 0f3F800000;
    %a = warp.constant 1.0 : f32 : !acc
    %at = arith.muli %block, %eight : index
    // CHECK: @![[LOW]] bra [[INNER:skipped_[0-9]+]];
    scf.if %low {
      // CHECK: st.global
      // CHECK: [[INNER]]:
      warp.store %a, %C[%sixteen, %zero] {in_bounds = [true, true]} : !acc, memref<32x16xf32>
    }
    // CHECK-NEXT: mov.f32 [[SUM:%f[0-9]+]], [[X]];
    // CHECK-COUNT-3: mov.f32
    // CHECK-NEXT: mov.b32 [[COLUMN:%r[0-9]+]], [[EIGHTFOLD]];
    // CHECK-NEXT: mov.pred [[DONE:%p[0-9]+]], [[LOW]];
    // CHECK-NEXT: bra [[END:met_[0-9]+]];
    scf.yield %a, %at, %low : !acc, index, i1
  } else {
    // CHECK-NEXT: [[OTHERWISE]]:
    // CHECK: not.pred [[NOT:%p[0-9]+]], [[THIRD]];
    // CHECK-NEXT: mov.f32 [[SUM]],
    // CHECK: mov.b32 [[COLUMN]], 0;
    // CHECK-NEXT: mov.pred [[DONE]], [[NOT]];
    // CHECK-NEXT: [[END]]:
    %b = warp.constant 2.0 : f32 : !acc
    %true = arith.constant true
    %not = arith.xori %third, %true : i1
    scf.yield %b, %zero, %not : !acc, index, i1
  }
  // CHECK: @![[DONE]] bra
  scf.if %done {
    // CHECK: st.global.v2.f32 [%rd{{[0-9]+}}], {[[SUM]],
    warp.store %sum, %C[%zero, %column] {in_bounds = [true, true]} : !acc, memref<32x16xf32>
  }
  "gpu.return"() : () -> ()
}) {sym_name = "branches", gpu.known_block_size = array<i32: 128, 1, 1>} : () -> ()

// CHECK-LABEL: .entry elected(
"gpu.func"() <{function_type = () -> (), kernel}> ({
^bb0():
  %zero = arith.constant 0 : index
  %warp = "gpu.subgroup_id"() : () -> index
  %first = arith.cmpi eq, %warp, %zero : index
  %full = warp.make_barriers {arrivals = 1 : i64} : !warp.barriers<1>
  "gpu.barrier"() : () -> ()
  // CHECK: elect.sync _|[[CHOSEN:%p[0-9]+]], 0xFFFFFFFF;
  %chosen = nvvm.elect.sync -> i1
  // CHECK-NEXT: and.pred [[MINE:%p[0-9]+]], [[FIRST:%p[0-9]+]], [[CHOSEN]];
  %mine = arith.andi %first, %chosen : i1
  // CHECK-NEXT: @![[MINE]] bra [[END:skipped_[0-9]+]];
  scf.if %mine {
    // CHECK-NEXT: mbarrier.arrive.expect_tx.shared::cta.b64 _, [{{.*}}], 16;
    warp.arrive %full[%zero] {bytes = 16 : i64} : !warp.barriers<1>
    // CHECK-NEXT: mbarrier.arrive.shared.b64 _, [{{.*}}];
    warp.arrive %full[%zero] : !warp.barriers<1>
  }
  // CHECK-NEXT: [[END]]:
  // CHECK-NEXT: bar.warp.sync 0xFFFFFFFF;
  // A condition that is known leaves one way.
  // CHECK-NEXT: bar.sync 0;
  // CHECK-NEXT: ret;
  %known = arith.cmpi slt, %zero, %zero : index
  %x = scf.if %known -> (index) {
    warp.fence wgmma
    scf.yield %warp : index
  } else {
    "gpu.barrier"() : () -> ()
    scf.yield %zero : index
  }
  "gpu.return"() : () -> ()
}) {sym_name = "elected", gpu.known_block_size = array<i32: 128, 1, 1>} : () -> ()
}) : () -> ()
}
