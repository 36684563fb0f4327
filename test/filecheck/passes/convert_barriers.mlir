// RUN: warploom-opt %s -p convert-warp-to-ptx -t ptx | filecheck %s
// RUN: warploom-opt %s -p "warp-set-target{arch=sm_80},convert-warp-to-ptx" -t ptx | filecheck %s --check-prefix=SM80

builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = (memref<64x64xf16>) -> (), kernel}> ({
^bb0(%A: memref<64x64xf16>):
  %stage = "gpu.block_id"() <{dimension = #gpu<dim x>}> : () -> index
  %one = arith.constant 1 : index
  // CHECK: // 4 barriers of 64 arrivals
  // One thread makes them, at addresses that are known.
  // CHECK: setp.ne.s32 [[OTHER:%p[0-9]+]], [[TID:%r[0-9]+]], 0;
  // CHECK-NEXT: @[[OTHER]] bra [[MADE:made_[0-9]+]];
  // CHECK-NEXT: mbarrier.init.shared.b64 [[[BASE:%r[0-9]+]]], 64;
  // CHECK-NEXT: mbarrier.init.shared.b64 [[[BASE]]+8], 64;
  // CHECK-COUNT-2: mbarrier.init.shared.b64
  // CHECK-NEXT: [[MADE]]:
  %full = warp.make_barriers {arrivals = 64 : i64} : !warp.barriers<4>
  // CHECK: @[[OTHER]] bra [[MADE:made_[0-9]+]];
  // CHECK-NEXT: mbarrier.init.shared.b64 [[[BASE]]+32], 2;
  // CHECK-COUNT-3: mbarrier.init.shared.b64
  // CHECK-NEXT: [[MADE]]:
  %empty = warp.make_barriers {arrivals = 2 : i64} : !warp.barriers<4>
  // CHECK-NEXT: bar.sync 0;
  "gpu.barrier"() : () -> ()
  // CHECK: cp.async.mbarrier.arrive.noinc.shared.b64 [%r{{[0-9]+}}];
  warp.arrive %full[%stage] {copies} : !warp.barriers<4>
  // CHECK: setp.eq.s32 [[FIRST:%p[0-9]+]], %r{{[0-9]+}}, 0;
  // CHECK-NEXT: @[[FIRST]] mbarrier.arrive.shared.b64 _, [%r{{[0-9]+}}+40];
  warp.arrive %empty[%one] : !warp.barriers<4>
  // CHECK-NEXT: [[AGAIN:wait_[0-9]+]]:
  // CHECK-NEXT: mbarrier.try_wait.parity.shared.b64 [[ENDED:%p[0-9]+]], [%r{{[0-9]+}}], %r{{[0-9]+}};
  // CHECK-NEXT: @![[ENDED]] bra [[AGAIN]];
  // SM80: mbarrier.test_wait.parity.shared.b64
  warp.await %full[%stage] parity %stage : !warp.barriers<4>
  // CHECK: mbarrier.try_wait.parity.shared.b64 %p{{[0-9]+}}, [%r{{[0-9]+}}+40], 1;
  warp.await %empty[%one] parity %one : !warp.barriers<4>
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 64, 1, 1>} : () -> ()
}) : () -> ()
}
