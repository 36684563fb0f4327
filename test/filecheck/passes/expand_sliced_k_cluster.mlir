// RUN: warploom-opt %s -p warp-expand | filecheck %s
// RUN: warploom-opt %s -p warp-expand,convert-warp-to-ptx -t ptx | filecheck %s --check-prefix=PTX

// Two slices are the CTAs of a cluster along z, of two along x: each of its four warps has a row of its CTA's memory.
!whole = !warp.fragment<acc, 32x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>
!part = !warp.fragment<acc, 16x8xf32, [c1 c2 r0 r1 r2 | c0 r3]>

builtin.module attributes {warp.target = #warp.target<sm_90a>} {
"gpu.module"() <{sym_name = "kernels"}> ({
"gpu.func"() <{function_type = (memref<32x8xf32>) -> (), kernel}> ({
^bb0(%D: memref<32x8xf32>):
  %zero = arith.constant 0 : index
  // CHECK: %[[ACC:\w+]] = warp.constant
  // CHECK: %[[S:\w+]] = memref.alloc
  %acc = warp.constant 1.0 : f32 : !whole
  %s = memref.alloc() : memref<4x128xf32, 3>
  // CHECK-NEXT: %[[WARP:\w+]] = gpu.subgroup_id
  // CHECK:      %[[SLICE:\w+]] = gpu.cluster_block_id z
  // CHECK-NEXT: %[[CTA:\w+]] = gpu.cluster_block_id x
  // CHECK-NEXT: %[[UPPER:\w+]] = warp.subfragment %[[ACC]][0, 0]
  // CHECK-NEXT: %[[LOWER:\w+]] = warp.subfragment %[[ACC]][16, 0]
  // CHECK:      %[[SENT:\w+]] = arith.cmpi ne, %[[SLICE]], %{{.*}} : index
  // CHECK:      warp.store %[[UPPER]], %[[S]][%[[WARP]], %{{.*}}] if %[[SENT]] at %[[CTA]] {registers = "vectors"} :
  // CHECK:      %[[OTHER:\w+]] = arith.addi %[[CTA]], %{{.*}} : index
  // CHECK:      warp.store %[[LOWER]], %[[S]][%[[WARP]], %{{.*}}] if %{{.*}} at %[[OTHER]] {registers = "vectors"} :
  // CHECK-NEXT: warp.barrier cluster
  // CHECK:      %[[GOT:\w+]] = warp.load %[[S]][%[[WARP]], %{{.*}}] {registers = "vectors"}
  // CHECK-NEXT: warp.elementwise add %{{.*}}, %[[GOT]]
  // PTX:       .reqnctapercluster 2, 1, 2
  // PTX:       mapa.shared::cluster.u32 [[THERE:%r[0-9]+]],
  // PTX:       @%p{{[0-9]+}} st.shared::cluster.v4.f32 {{\[}}[[THERE]]],
  // PTX:       barrier.cluster.arrive.aligned;
  // PTX-NEXT:  barrier.cluster.wait.aligned;
  // PTX:       ld.shared.v4.f32
  %part = warp.sum_sliced_k %acc via %s {cluster = 2 : i64} : !whole, memref<4x128xf32, 3> -> !part
  warp.store %part, %D[%zero, %zero] : !part, memref<32x8xf32>
  "gpu.return"() : () -> ()
}) {sym_name = "k", gpu.known_block_size = array<i32: 128, 1, 1>, gpu.known_cluster_size = array<i32: 2, 1, 2>} : () -> ()
}) : () -> ()
}
