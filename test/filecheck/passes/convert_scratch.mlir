// RUN: warploom-opt %s -p convert-warp-to-ptx -t ptx | filecheck %s

!pairs = !warp.fragment<acc, 16x64xf32, [c1 c2 r0 r1 r2 | c0 r3]>
!rows = !warp.fragment<acc, 16x64xf32, [c2 c3 c4 c5 r0 | c0 c1 r1 r2 r3]>

// CHECK:            bar.warp.sync
// CHECK-COUNT-16:   st.shared.v2.f32
// CHECK:            bar.warp.sync
// CHECK-COUNT-8:    ld.shared.v4.f32
// CHECK:            st.global.v4.f32
builtin.module attributes {warp.target = #warp.target<sm_80>} {
  gpu.module @kernels {
    gpu.func @k(%X: memref<16x64xf32>, %Y: memref<16x64xf32>) kernel attributes {known_block_size = array<i32: 64, 1, 1>} {
      %z = arith.constant 0 : index
      %s = memref.alloc() : memref<2x1024xf32, 3>
      %x = warp.load %X[%z, %z] {in_bounds = [true, true]} : memref<16x64xf32> -> !pairs
      %y = warp.convert_layout %x via %s : !pairs via memref<2x1024xf32, 3> to !rows
      warp.store %y, %Y[%z, %z] {in_bounds = [true, true]} : !rows, memref<16x64xf32>
      gpu.return
    }
  }
}
