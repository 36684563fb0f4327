// RUN: warploom-opt %s -p warp-set-target{arch=sm_80},warp-bufferize,warp-fuse-rows | filecheck %s
// RUN: warploom-opt %s -p warp-set-target{arch=sm_80},warp-bufferize,warp-fuse-elementwise | filecheck %s --check-prefix=ELEMENTS
// RUN: warploom-opt %s --remarks -p warp-set-target{arch=sm_80},warp-bufferize,warp-fuse-rows -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK
// RUN: warploom-opt %s -p warp-set-target{arch=sm_80},warp-bufferize,warp-fuse-rows | warploom-opt | filecheck %s --check-prefix=AGAIN
// RUN: warploom-opt %s -p warp-set-target{arch=sm_80},warp-bufferize,warp-fuse-rows,warp-raise-matmul,warp-fold-fill,warp-fuse-epilogue,warp-schedule,warp-outline | filecheck %s --check-prefix=KERNEL

#mn = affine_map<(m, n) -> (m, n)>
#m = affine_map<(m, n) -> (m)>

// AGAIN: warp.reduce maximum

// REMARK: fuse_rows.mlir:[[# @LINE + 30]]:3: remark: warp-fuse-rows: it is not fused with operations on the same rows: linalg.fill between its operations writes what it reads

// One operation, and no temporaries.
// CHECK-LABEL: func.func @softmax(
// CHECK-NOT:     memref.alloc
// CHECK:         warp.rows %x into %y {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>]}
// CHECK-NEXT:    ^bb0(%[[A:.*]]: f32):
// CHECK-NEXT:      %[[M:.*]] = warp.reduce maximum %[[A]] : f32 to f32
// CHECK-NEXT:      %[[D:.*]] = arith.subf %[[A]], %[[M]] : f32
// CHECK-NEXT:      %[[E:.*]] = math.exp %[[D]] : f32
// CHECK-NEXT:      %[[L:.*]] = warp.reduce add %[[E]] : f32 to f32
// CHECK-NEXT:      %[[Y:.*]] = arith.divf %[[E]], %[[L]] : f32
// CHECK-NEXT:      warp.yield %[[Y]] : f32
// CHECK-NOT:     linalg
func.func @softmax(%x: memref<2x64x100xf32>, %y: memref<2x64x100xf32>) {
  linalg.softmax dimension(2) ins(%x : memref<2x64x100xf32>) outs(%y : memref<2x64x100xf32>)
  return
}

// What is written in between keeps operations apart.
// CHECK-LABEL: func.func @between(
// CHECK:         linalg.exp ins(%x {{.*}} outs(%[[T:.*]] :
// CHECK-NEXT:    linalg.fill {{.*}} outs(%x
// CHECK-NEXT:    warp.rows %[[T]] into %s
func.func @between(%x: memref<64x100xf32>, %y: memref<64x100xf32>, %s: memref<64xf32>) {
  %zero = arith.constant 0.0 : f32
  %t = memref.alloc() : memref<64x100xf32>
  linalg.exp ins(%x : memref<64x100xf32>) outs(%t : memref<64x100xf32>)
  linalg.fill ins(%zero : f32) outs(%x : memref<64x100xf32>)
  linalg.fill ins(%zero : f32) outs(%s : memref<64xf32>)
  linalg.reduce ins(%t : memref<64x100xf32>) outs(%s : memref<64xf32>) dimensions = [1] (%a: f32, %b: f32) {
    %0 = arith.addf %a, %b : f32
    linalg.yield %0 : f32
  }
  return
}

// The product is read where it is; the sums are a second result.
// CHECK-LABEL: func.func @sums(
// CHECK:         linalg.matmul
// CHECK:         warp.rows %[[T:.*]] into %y, %s {{.*}} : memref<64x100xf32> into memref<64x100xf32>, memref<64xf32> {
// CHECK:           %[[S:.*]] = warp.reduce add
// CHECK:           %[[Q:.*]] = arith.divf %{{.*}}, %[[S]]
// CHECK-NEXT:      warp.yield %[[Q]], %[[S]] : f32, f32
// CHECK-NOT:     linalg.generic
func.func @sums(%a: memref<64x32xf16>, %b: memref<32x100xf16>, %s: memref<64xf32>, %y: memref<64x100xf32>) {
  %zero = arith.constant 0.0 : f32
  %t = memref.alloc() : memref<64x100xf32>
  linalg.fill ins(%zero : f32) outs(%t : memref<64x100xf32>)
  linalg.matmul ins(%a, %b : memref<64x32xf16>, memref<32x100xf16>) outs(%t : memref<64x100xf32>)
  linalg.fill ins(%zero : f32) outs(%s : memref<64xf32>)
  linalg.reduce ins(%t : memref<64x100xf32>) outs(%s : memref<64xf32>) dimensions = [1] (%p: f32, %q: f32) {
    %0 = arith.addf %p, %q : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#mn, #m, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%t, %s : memref<64x100xf32>, memref<64xf32>) outs(%y : memref<64x100xf32>) {
  ^bb0(%p: f32, %q: f32, %old: f32):
    %0 = arith.divf %p, %q : f32
    linalg.yield %0 : f32
  }
  return
}

// Elements that take no more memory to compute again than to read are not stored for a second kernel.

// CHECK-LABEL: func.func @again
// CHECK-NOT: memref.alloc
// CHECK: warp.rows %x into %rows
// CHECK-NOT: memref.alloc
// CHECK: warp.rows %x into %columns
func.func @again(%x: memref<48x40xbf16>, %rows: memref<48xf32>, %columns: memref<40xf32>) {
  %zero = arith.constant 0.0 : f32
  %two = memref.alloc() : memref<48x40xf32>
  linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>],
                  iterator_types = ["parallel", "parallel"]}
      ins(%x : memref<48x40xbf16>) outs(%two : memref<48x40xf32>) {
  ^bb0(%a: bf16, %old: f32):
    %w = arith.extf %a : bf16 to f32
    %s = arith.mulf %w, %w : f32
    linalg.yield %s : f32
  }
  linalg.fill ins(%zero : f32) outs(%rows : memref<48xf32>)
  linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m)>],
                  iterator_types = ["parallel", "reduction"]}
      ins(%two : memref<48x40xf32>) outs(%rows : memref<48xf32>) {
  ^bb0(%a: f32, %old: f32):
    %s = arith.addf %old, %a : f32
    linalg.yield %s : f32
  }
  linalg.fill ins(%zero : f32) outs(%columns : memref<40xf32>)
  linalg.generic {indexing_maps = [affine_map<(n, m) -> (m, n)>, affine_map<(n, m) -> (n)>],
                  iterator_types = ["parallel", "reduction"]}
      ins(%two : memref<48x40xf32>) outs(%columns : memref<40xf32>) {
  ^bb0(%a: f32, %old: f32):
    %s = arith.addf %old, %a : f32
    linalg.yield %s : f32
  }
  return
}

// What follows a part that both results need is a result of the same kernel.
// ELEMENTS-LABEL: func.func @gate(
// ELEMENTS:         warp.rows %b, %a into %z, %y {{.*}}
// ELEMENTS:           %[[E:.*]] = math.exp
// ELEMENTS-NEXT:      %[[Z:.*]] = arith.addf %{{.*}}, %[[E]]
// ELEMENTS-NEXT:      %[[Y:.*]] = arith.mulf %{{.*}}, %[[E]]
// ELEMENTS-NEXT:      warp.yield %[[Z]], %[[Y]] : f32, f32
// ELEMENTS-NOT:     linalg
func.func @gate(%a: memref<64x100xf32>, %b: memref<64x100xf32>, %y: memref<64x100xf32>, %z: memref<64x100xf32>) {
  %t = memref.alloc() : memref<64x100xf32>
  linalg.exp ins(%a : memref<64x100xf32>) outs(%t : memref<64x100xf32>)
  linalg.mul ins(%b, %t : memref<64x100xf32>, memref<64x100xf32>) outs(%y : memref<64x100xf32>)
  linalg.add ins(%b, %t : memref<64x100xf32>, memref<64x100xf32>) outs(%z : memref<64x100xf32>)
  return
}

// Both loops over rows are one; a row of 100 takes a warp, and what is behind its end counts for nothing.
// KERNEL:      gpu.func @softmax(%x: memref<128x100xf32>, %y: memref<128x100xf32>) kernel attributes {{.*}}warp.computes = "warp.rows, tiles of 1x128 for each warp"
// KERNEL:        %[[X:.*]] = warp.load %{{.*}} {in_bounds = [true, false]} : {{.*}} -> !warp.fragment<acc, 1x128xf32, [c2 c3 c4 c5 c6 | c0 c1]>
// KERNEL:        %[[J:.*]] = warp.index 1 from
// KERNEL-NEXT:   %[[IN:.*]] = warp.map %[[X]], %[[J]]
// KERNEL:        %[[M:.*]] = warp.reduce maximum %[[IN]] : !warp.fragment<acc, 1x128xf32, [c2 c3 c4 c5 c6 | c0 c1]> to !warp.fragment<acc, 1x1xf32, [x0 x1 x2 x3 x4 |]>
// KERNEL-NEXT:   %[[E:.*]] = warp.map %[[X]], %[[M]]
// KERNEL:        warp.reduce add
// KERNEL:        warp.store
// KERNEL-NOT:    warp.load
// KERNEL:        gpu.return
