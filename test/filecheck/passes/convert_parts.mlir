// RUN: warploom-opt %s -p convert-warp-to-ptx -t ptx | filecheck %s

builtin.module attributes {warp.target = #warp.target<sm_80>} {
"gpu.module"() <{sym_name = "kernels"}> ({
// CHECK-LABEL: .entry k(
"gpu.func"() <{function_type = (memref<3xi32>) -> (), kernel}> ({
^bb0(%counters: memref<3xi32>):
  %tile = gpu.block_id x
  %two = arith.constant 2 : index
  // Everything is written; thread 0 counts the CTA in, and resets after the last.
  // CHECK:      bar.sync 0;
  // CHECK-NEXT: setp.eq.s32 [[FIRST:%p[0-9]+]], [[TID:%r[0-9]+]], 0;
  // CHECK-NEXT: mul.wide.s32 {{.*}}, 4;
  // CHECK-NEXT: add.s64 [[COUNTER:%rd[0-9]+]], {{.*}};
  // CHECK-NEXT: // warp.arrive_last: counters
  // CHECK-NEXT: mov.b32 [[SEEN:%r[0-9]+]], 0;
  // CHECK-NEXT: @[[FIRST]] atom.acq_rel.gpu.global.inc.u32 [[SEEN]], [[[COUNTER]]], 1;
  // CHECK-NEXT: setp.eq.s32 [[FULL:%p[0-9]+]], [[SEEN]], 1;
  // CHECK-NEXT: and.pred [[MINE:%p[0-9]+]], [[FULL]], [[FIRST]];
  // CHECK-NEXT: bar.red.or.pred [[LAST:%p[0-9]+]], 0, [[MINE]];
  %last = warp.arrive_last %counters[%tile] of %two : memref<3xi32>
  // CHECK:      @![[LAST]] bra
  scf.if %last {
    gpu.barrier
  }
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 64, 1, 1>} : () -> ()

// How many there are may be known only then; some warps meet at a barrier of their own.
// CHECK-LABEL: .entry counted(
"gpu.func"() <{function_type = (memref<3xi32>) -> (), kernel}> ({
^bb0(%counters: memref<3xi32>):
  %count = gpu.block_id x
  %zero = arith.constant 0 : index
  %two = arith.constant 2 : index
  %warp = gpu.subgroup_id : index
  %early = arith.cmpi slt, %warp, %two : index
  scf.if %early {
    // CHECK:      add.s32 [[LIMIT:%r[0-9]+]], %r{{[0-9]+}}, -1;
    // CHECK:      bar.sync 7, 64;
    // CHECK:      atom.acq_rel.gpu.global.inc.u32 [[SEEN:%r[0-9]+]], [%rd{{[0-9]+}}], [[LIMIT]];
    // CHECK-NEXT: setp.eq.s32 %p{{[0-9]+}}, [[SEEN]], [[LIMIT]];
    // CHECK:      bar.red.or.pred %p{{[0-9]+}}, 7, 64, %p{{[0-9]+}};
    %last = warp.arrive_last %counters[%zero] of %count : memref<3xi32>
    scf.if %last {
      gpu.barrier
    }
    // In a loop over tiles, all warps go on as a whole.
    scf.for %tile = %zero to %two step %two {
      // CHECK:      bar.red.or.pred [[LAST:%p[0-9]+]], 7, 64, %p{{[0-9]+}};
      // CHECK-NEXT: vote.sync.any.pred [[ANY:%p[0-9]+]], [[LAST]], 0xFFFFFFFF;
      // CHECK:      @![[ANY]] bra
      %last_of_tile = warp.arrive_last %counters[%zero] of %count : memref<3xi32>
      scf.if %last_of_tile {
        gpu.barrier
      }
    }
  } {warp.warps = 2 : i64}
  "gpu.return"() : () -> ()
}) {sym_name = "counted", gpu.known_block_size = array<i32: 96, 1, 1>} : () -> ()
}) : () -> ()
}
