// RUN: warploom-opt %s -p warp-expand | filecheck %s
// RUN: warploom-opt %s -p warp-expand | warploom-opt | filecheck %s
// RUN: warploom-opt %s -p warp-expand --print-op-generic | warploom-opt | filecheck %s
// RUN: warploom-opt %s -p warp-expand,convert-warp-to-ptx -t ptx | filecheck %s --check-prefix=PTX

!pairs = !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>
!rows = !warp.fragment<acc, 16x64xf32, [c2 c3 c4 c5 r0 | c0 c1 r1 r2 r3]>

// CHECK:      %x = warp.load %X
// CHECK-NEXT: %[[MINE:\w+]] = warp.own_row %s : memref<2x1024xf32, 3 : i64> -> memref<1024xf32, 3 : i64>
// CHECK-NEXT: warp.barrier warp
// CHECK-NEXT: warp.store_banked %x, %[[MINE]] {other = #warp.layout<c2 c3 c4 c5 r0 | c0 c1 r1 r2 r3>} : !warp.fragment<{{.*}}>, memref<1024xf32, 3 : i64>
// CHECK-NEXT: warp.barrier warp
// CHECK-NEXT: %[[ROWS:\w+]] = warp.load_banked %[[MINE]] {other = #warp.layout<c1 c2 r0 r1 r2 | c0 r3>} : memref<1024xf32, 3 : i64> -> !warp.fragment<acc, 16x64xf32, [c2 c3 c4 c5 r0 | c0 c1 r1 r2 r3]>
// CHECK-NEXT: warp.store %[[ROWS]], %Y

// PTX:            bar.warp.sync
// PTX-COUNT-16:   st.shared.v2.f32
// PTX:            bar.warp.sync
// PTX-COUNT-8:    ld.shared.v4.f32
// PTX:            st.global.v4.f32
builtin.module attributes {warp.target = #warp.target<sm_80>} {
  gpu.module @kernels {
    gpu.func @k(%X: memref<16x64xf32>, %Y: memref<16x64xf32>) kernel attributes {gpu.known_block_size = array<i32: 64, 1, 1>} {
      %z = arith.constant 0 : index
      %s = memref.alloc() : memref<2x1024xf32, 3>
      %x = warp.load %X[%z, %z] {in_bounds = [true, true]} : memref<16x64xf32> -> !pairs
      %y = warp.exchange %x via %s : !pairs, memref<2x1024xf32, 3> -> !rows
      warp.store %y, %Y[%z, %z] {in_bounds = [true, true]} : !rows, memref<16x64xf32>
      gpu.return
    }
  }
}
