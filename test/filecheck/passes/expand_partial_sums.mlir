// RUN: warploom-opt %s -p warp-expand | filecheck %s

!acc = !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>

builtin.module {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = (memref<16x16xf32>, memref<6x256xf32>, memref<3xi32>) -> (), kernel}> ({
^bb0(%D: memref<16x16xf32>, %parts: memref<6x256xf32>, %counters: memref<3xi32>):
  %tile = "gpu.block_id"() <{dimension = #gpu<dim x>}> : () -> index
  %part = "gpu.block_id"() <{dimension = #gpu<dim z>}> : () -> index
  %zero = arith.constant 0 : index
  %two = arith.constant 2 : index
  // CHECK:      %acc = warp.constant
  %acc = warp.constant 1.0 : f32 : !acc
  // CHECK-NEXT: %[[WARP:\w+]] = gpu.subgroup_id
  // CHECK:      %[[OWN:\w+]] = arith.muli %[[WARP]], %{{.*}} : index
  // CHECK-NEXT: warp.store %acc, %parts[%part, %[[OWN]]] {registers = "vectors"} :
  warp.store_part %acc, %parts[%part] : !acc, memref<6x256xf32>
  // CHECK:      %[[LIMIT:\w+]] = arith.constant 1 : index
  // CHECK:      gpu.barrier
  // CHECK-NEXT: %[[FIRST:\w+]] = arith.cmpi eq
  // CHECK-NEXT: %[[SEEN:\w+]] = warp.atomic_inc %counters[%tile] to %[[LIMIT]] if %[[FIRST]] : memref<3xi32>
  // CHECK-NEXT: %[[FULL:\w+]] = arith.cmpi eq, %[[SEEN]], %[[LIMIT]] : index
  // CHECK-NEXT: %[[MINE:\w+]] = arith.andi %[[FULL]], %[[FIRST]] : i1
  // CHECK-NEXT: %last = warp.barrier cta any %[[MINE]] -> i1
  %last = warp.arrive_last %counters[%tile] of %two : memref<3xi32>
  // CHECK-NEXT: scf.if %last
  scf.if %last {
    // CHECK:      %[[A:\w+]] = warp.load %parts[%zero, %
    // CHECK-NEXT: %[[S:\w+]] = warp.elementwise add %acc, %[[A]] :
    // CHECK:      %[[B:\w+]] = warp.load %parts[%
    // CHECK-NEXT: %sum = warp.elementwise add %[[S]], %[[B]] :
    %sum = warp.add_parts %acc, %parts[%zero] x %two : !acc, memref<6x256xf32> -> !acc
    // CHECK:      %[[SUM:\w+]] = scf.for %[[I:\w+]] = %{{.*}} to %part step %{{.*}} iter_args(%[[T:\w+]] = %sum)
    // CHECK-NEXT: %[[ROW:\w+]] = arith.addi %two, %[[I]] : index
    // CHECK-NEXT: %[[C:\w+]] = warp.load %parts[%[[ROW]], %
    // CHECK-NEXT: %[[N:\w+]] = warp.elementwise add %[[T]], %[[C]] :
    // CHECK-NEXT: scf.yield %[[N]]
    %more = warp.add_parts %sum, %parts[%two] x %part : !acc, memref<6x256xf32> -> !acc
    warp.store %more, %D[%zero, %zero] {in_bounds = [true, true]} : !acc, memref<16x16xf32>
  }
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 64, 1, 1>} : () -> ()
}) : () -> ()
}
