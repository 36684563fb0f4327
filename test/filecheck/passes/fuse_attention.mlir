// RUN: warploom-opt %s -p warp-bufferize,warp-fuse-attention | filecheck %s
// RUN: warploom-opt %s --remarks -p warp-bufferize,warp-fuse-attention -o /dev/null 2>&1 | filecheck %s --check-prefix=SILENT --allow-empty
// SILENT-NOT: {{remark: [a-z-]+: [^[]}}

#mn = affine_map<(m, n) -> (m, n)>
#m = affine_map<(m, n) -> (m)>
#qk = [affine_map<(m, n, d) -> (m, d)>, affine_map<(m, n, d) -> (n, d)>, affine_map<(m, n, d) -> (m, n)>]

// On tensors, op by op: the scores, the largest of each row, exponentials, their sums, the quotients as f16.
// CHECK-LABEL: func.func @tensors(
// CHECK-SAME:    %q: memref<40x64xf16>, %k: memref<70x64xf16>, %v: memref<70x32xf16>
// CHECK-NOT:     linalg.generic
// CHECK:         warp.attention %q, %k, %v into %{{.*}} {scale = 1.250000e-01 : f32,
// CHECK-SAME:      indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d2)>, affine_map<(d0, d1, d2, d3) -> (d1, d2)>, affine_map<(d0, d1, d2, d3) -> (d1, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d3)>]}
// CHECK-SAME:      : memref<40x64xf16>, memref<70x64xf16>, memref<70x32xf16>, memref<40x32xf16>
// CHECK-NEXT:    return
func.func @tensors(%q: tensor<40x64xf16>, %k: tensor<70x64xf16>, %v: tensor<70x32xf16>) -> tensor<40x32xf16> {
  %zero = arith.constant 0.0 : f32
  %nothing = arith.constant 0.0 : f16
  %low = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %0 = tensor.empty() : tensor<40x70xf32>
  %1 = linalg.fill ins(%zero : f32) outs(%0 : tensor<40x70xf32>) -> tensor<40x70xf32>
  %2 = linalg.matmul indexing_maps = #qk ins(%q, %k : tensor<40x64xf16>, tensor<70x64xf16>) outs(%1 : tensor<40x70xf32>) -> tensor<40x70xf32>
  %s = linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%2 : tensor<40x70xf32>) outs(%0 : tensor<40x70xf32>) {
  ^bb0(%x: f32, %old: f32):
    %y = arith.mulf %x, %scale : f32
    linalg.yield %y : f32
  } -> tensor<40x70xf32>
  %3 = tensor.empty() : tensor<40xf32>
  %4 = linalg.fill ins(%low : f32) outs(%3 : tensor<40xf32>) -> tensor<40xf32>
  %largest = linalg.generic {indexing_maps = [#mn, #m], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<40x70xf32>) outs(%4 : tensor<40xf32>) {
  ^bb0(%x: f32, %old: f32):
    %y = arith.maximumf %x, %old : f32
    linalg.yield %y : f32
  } -> tensor<40xf32>
  %e = linalg.generic {indexing_maps = [#mn, #m, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%s, %largest : tensor<40x70xf32>, tensor<40xf32>) outs(%0 : tensor<40x70xf32>) {
  ^bb0(%x: f32, %y: f32, %old: f32):
    %z = arith.subf %x, %y : f32
    %w = math.exp %z : f32
    linalg.yield %w : f32
  } -> tensor<40x70xf32>
  %5 = linalg.fill ins(%zero : f32) outs(%3 : tensor<40xf32>) -> tensor<40xf32>
  %sum = linalg.generic {indexing_maps = [#mn, #m], iterator_types = ["parallel", "reduction"]}
      ins(%e : tensor<40x70xf32>) outs(%5 : tensor<40xf32>) {
  ^bb0(%x: f32, %old: f32):
    %y = arith.addf %x, %old : f32
    linalg.yield %y : f32
  } -> tensor<40xf32>
  %6 = tensor.empty() : tensor<40x70xf16>
  %p = linalg.generic {indexing_maps = [#mn, #m, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%e, %sum : tensor<40x70xf32>, tensor<40xf32>) outs(%6 : tensor<40x70xf16>) {
  ^bb0(%x: f32, %y: f32, %old: f16):
    %z = arith.divf %x, %y : f32
    %w = arith.truncf %z : f32 to f16
    linalg.yield %w : f16
  } -> tensor<40x70xf16>
  %7 = tensor.empty() : tensor<40x32xf16>
  %8 = linalg.fill ins(%nothing : f16) outs(%7 : tensor<40x32xf16>) -> tensor<40x32xf16>
  %o = linalg.matmul ins(%p, %v : tensor<40x70xf16>, tensor<70x32xf16>) outs(%8 : tensor<40x32xf16>) -> tensor<40x32xf16>
  return %o : tensor<40x32xf16>
}

// On memory, with `linalg.softmax`, in place of the scores; a comparison of indices is the diagonal. A bias and a mask
// of every other head are operands of the region on scores.
// CHECK-LABEL: func.func @memory(
// CHECK-NOT:     memref.alloc
// CHECK:         %[[F:.*]] = warp.pointwise %bias maps [affine_map<(d0, d1, d2, d3, d4, d5) -> (d1, d3)>] : memref<3x70xbf16> (%[[S:.*]]: f32, %[[B:.*]]: bf16) {
// CHECK-NEXT:      %[[W:.*]] = arith.extf %[[B]] : bf16 to f32
// CHECK:           %[[R:.*]] = arith.addf %[[S]], %[[W]] : f32
// CHECK-NEXT:      warp.yield %[[R]] : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    warp.attention %q, %k, %v into %o scores %[[F]] {scale = 5.000000e-01 : f32, diagonal = 30 : i64,
// CHECK-SAME:      affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d4)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d3, d4)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d3, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d5)>]}
// CHECK-NEXT:    return
func.func @memory(%q: memref<2x3x40x64xbf16>, %k: memref<2x70x64xbf16>, %v: memref<2x70x64xbf16>, %bias: memref<3x70xbf16>, %o: memref<2x3x40x64xf32>) {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %half = arith.constant 0.5 : f32
  %s = memref.alloc() : memref<2x3x40x70xf32>
  %h = memref.alloc() : memref<2x3x40x70xbf16>
  linalg.fill ins(%zero : f32) outs(%s : memref<2x3x40x70xf32>)
  linalg.generic {indexing_maps = [affine_map<(b, h, m, n, d) -> (b, h, m, d)>, affine_map<(b, h, m, n, d) -> (b, n, d)>, affine_map<(b, h, m, n, d) -> (b, h, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : memref<2x3x40x64xbf16>, memref<2x70x64xbf16>) outs(%s : memref<2x3x40x70xf32>) {
  ^bb0(%x: bf16, %y: bf16, %c: f32):
    %0 = arith.extf %x : bf16 to f32
    %1 = arith.extf %y : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %c, %2 : f32
    linalg.yield %3 : f32
  }
  linalg.generic {indexing_maps = [affine_map<(b, h, m, n) -> (b, h, m, n)>, affine_map<(b, h, m, n) -> (h, n)>, affine_map<(b, h, m, n) -> (b, h, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%s, %bias : memref<2x3x40x70xf32>, memref<3x70xbf16>) outs(%s : memref<2x3x40x70xf32>) {
  ^bb0(%x: f32, %b: bf16, %old: f32):
    %c30 = arith.constant 30 : index
    %i = linalg.index 2 : index
    %j = linalg.index 3 : index
    %last = arith.addi %i, %c30 : index
    %seen = arith.cmpi sle, %j, %last : index
    %wide = arith.extf %b : bf16 to f32
    %sum = arith.addf %x, %wide : f32
    %scaled = arith.mulf %half, %sum : f32
    %masked = arith.select %seen, %scaled, %low : f32
    linalg.yield %masked : f32
  }
  linalg.softmax dimension(3) ins(%s : memref<2x3x40x70xf32>) outs(%s : memref<2x3x40x70xf32>)
  linalg.generic {indexing_maps = [affine_map<(b, h, m, n) -> (b, h, m, n)>, affine_map<(b, h, m, n) -> (b, h, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%s : memref<2x3x40x70xf32>) outs(%h : memref<2x3x40x70xbf16>) {
  ^bb0(%x: f32, %old: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  }
  linalg.fill ins(%zero : f32) outs(%o : memref<2x3x40x64xf32>)
  linalg.generic {indexing_maps = [affine_map<(b, h, m, e, n) -> (b, h, m, n)>, affine_map<(b, h, m, e, n) -> (b, n, e)>, affine_map<(b, h, m, e, n) -> (b, h, m, e)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%h, %v : memref<2x3x40x70xbf16>, memref<2x70x64xbf16>) outs(%o : memref<2x3x40x64xf32>) {
  ^bb0(%x: bf16, %y: bf16, %c: f32):
    %0 = arith.extf %x : bf16 to f32
    %1 = arith.extf %y : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %c, %2 : f32
    linalg.yield %3 : f32
  }
  memref.dealloc %s : memref<2x3x40x70xf32>
  return
}
