// RUN: warploom-opt %s -p warp-expand | filecheck %s
// RUN: warploom-opt %s -p warp-expand,convert-warp-to-ptx -t ptx | filecheck %s --check-prefix=PTX

!whole = !warp.fragment<acc, 32x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
!part = !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
!all = !warp.fragment<acc, 64x8xf64, [c1 c2 r0 r1 r2 | c0 r3]>
!quarter = !warp.fragment<acc, 16x8xf64, [c1 c2 r0 r1 r2 | c0 r3]>

builtin.module attributes {warp.target = #warp.target<sm_80>} {
"gpu.module"() <{sym_name = "kernels"}> ({
// Two slices of two warps each.
// CHECK-LABEL: memref<32x8xf32>) kernel
"gpu.func"() <{function_type = (memref<32x8xf32>) -> (), kernel}> ({
^bb0(%D: memref<32x8xf32>):
  %zero = arith.constant 0 : index
  // CHECK: %[[ACC:\w+]] = warp.constant
  // CHECK: %[[S:\w+]] = memref.alloc
  %acc = warp.constant 1.0 : f32 : !whole
  %s = memref.alloc() : memref<4x128xf32, 3>
  // CHECK-NEXT: %[[WARP:\w+]] = gpu.subgroup_id
  // CHECK:      %[[SLICE:\w+]] = arith.divui %[[WARP]], %{{.*}} : index
  // CHECK-NEXT: %[[POSITION:\w+]] = arith.remui %[[WARP]], %{{.*}} : index
  // CHECK-NEXT: %[[UPPER:\w+]] = warp.subfragment %[[ACC]][0, 0]
  // CHECK-NEXT: %[[LOWER:\w+]] = warp.subfragment %[[ACC]][16, 0]
  // CHECK:      %[[SENT:\w+]] = arith.cmpi ne, %[[SLICE]], %{{.*}} : index
  // CHECK-NEXT: warp.store %[[UPPER]], %[[S]][%[[POSITION]], %{{.*}}] if %[[SENT]] {registers = "vectors"} :
  // CHECK:      warp.store %[[LOWER]], %[[S]][%{{.*}}, %{{.*}}] if %
  // CHECK-NEXT: gpu.barrier
  // CHECK-NEXT: %[[SECOND:\w+]] = arith.cmpi eq, %[[SLICE]], %{{.*}} : index
  // CHECK-NEXT: %[[OWN:\w+]] = arith.select %[[SECOND]], %[[LOWER]], %[[UPPER]] : !warp.fragment
  // CHECK:      %[[GOT:\w+]] = warp.load %[[S]]
  // CHECK-NEXT: %[[SUM:\w+]] = warp.elementwise add %[[OWN]], %[[GOT]]
  // CHECK-NEXT: warp.store %[[SUM]]
  // PTX-LABEL: .entry k(
  // PTX:       setp.ne.s32 [[P:%p[0-9]+]], {{.*}}, 0;
  // PTX:       @[[P]] st.shared.v4.f32
  // PTX:       @%p{{[0-9]+}} st.shared.v4.f32
  // PTX-NEXT:  bar.sync 0;
  // PTX:       selp.f32
  // PTX:       ld.shared.v4.f32 {[[GOT:%f[0-9]+]],
  // PTX-NEXT:  add.rn.f32 %f{{[0-9]+}}, %f{{[0-9]+}}, [[GOT]];
  %part = warp.sum_sliced_k %acc via %s : !whole, memref<4x128xf32, 3> -> !part
  warp.store %part, %D[%zero, %zero] : !part, memref<32x8xf32>
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 128, 1, 1>} : () -> ()

// Of four slices, each adds the sums of pairs. Slot x - 1 holds the part of the slice whose number differs in the bits x.
// CHECK-LABEL: memref<16x8xf64>) kernel
"gpu.func"() <{function_type = (memref<16x8xf64>) -> (), kernel}> ({
^bb0(%D: memref<16x8xf64>):
  %zero = arith.constant 0 : index
  %acc = warp.constant 1.0 : f64 : !all
  %s = memref.alloc() : memref<4x384xf64, 3>
  // CHECK:       %[[FIRST:\w+]] = arith.subi %[[SLICE:\w+]], %{{.*}} : index
  // CHECK:       warp.store
  // CHECK:       %[[OTHER:\w+]] = arith.xori %[[SLICE]], %{{.*}} : index
  // CHECK-NEXT:  %[[SLOT:\w+]] = arith.subi %[[OTHER]], %{{.*}} : index
  // CHECK:       arith.muli %[[SLOT]], %{{.*}} : index
  // CHECK-COUNT-3: warp.store
  // CHECK-COUNT-2: arith.select {{.*}} : !warp.fragment
  // CHECK:       %[[OWN:\w+]] = arith.select {{.*}} : !warp.fragment
  // CHECK:       %[[A:\w+]] = warp.load
  // CHECK-NEXT:  %[[LOW:\w+]] = warp.elementwise add %[[OWN]], %[[A]]
  // CHECK:       %[[B:\w+]] = warp.load
  // CHECK:       %[[C:\w+]] = warp.load
  // CHECK-NEXT:  %[[HIGH:\w+]] = warp.elementwise add %[[B]], %[[C]]
  // CHECK-NEXT:  warp.elementwise add %[[LOW]], %[[HIGH]]
  // PTX-LABEL: .entry four(
  // PTX:       @%p{{[0-9]+}} st.shared.v2.f64
  // PTX:       selp.f64
  // PTX:       add.rn.f64
  %part = warp.sum_sliced_k %acc via %s : !all, memref<4x384xf64, 3> -> !quarter
  warp.store %part, %D[%zero, %zero] : !quarter, memref<16x8xf64>
  "gpu.return"() : () -> ()
}) {sym_name = "four", gpu.known_block_size = array<i32: 128, 1, 1>} : () -> ()
}) : () -> ()
}
