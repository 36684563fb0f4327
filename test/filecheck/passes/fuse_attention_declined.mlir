// RUN: warploom-opt %s --remarks -p warp-bufferize,warp-fuse-attention -o /dev/null 2>&1 | filecheck %s
// RUN: warploom-opt %s -p warp-bufferize,warp-fuse-attention | filecheck %s --check-prefix=IR
// IR-NOT: warp.attention

// What is nearly attention stays as it is, and a remark says why.

#mn = affine_map<(m, n) -> (m, n)>
#m = affine_map<(m, n) -> (m)>
#qk = [affine_map<(m, n, d) -> (m, d)>, affine_map<(m, n, d) -> (n, d)>, affine_map<(m, n, d) -> (m, n)>]

// The scores are a result too.
func.func @scores_used(%q: memref<32x64xf16>, %k: memref<48x64xf16>, %v: memref<48x64xf16>, %o: memref<32x64xf16>, %other: memref<32x48xf32>) {
  %zero = arith.constant 0.0 : f32
  %nothing = arith.constant 0.0 : f16
  %s = memref.alloc() : memref<32x48xf32>
  %e = memref.alloc() : memref<32x48xf32>
  %h = memref.alloc() : memref<32x48xf16>
  linalg.fill ins(%zero : f32) outs(%s : memref<32x48xf32>)
  linalg.matmul indexing_maps = #qk ins(%q, %k : memref<32x64xf16>, memref<48x64xf16>) outs(%s : memref<32x48xf32>)
  linalg.softmax dimension(1) ins(%s : memref<32x48xf32>) outs(%e : memref<32x48xf32>)
  linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]} ins(%e : memref<32x48xf32>) outs(%h : memref<32x48xf16>) {
  ^bb0(%x: f32, %old: f16):
    %0 = arith.truncf %x : f32 to f16
    linalg.yield %0 : f16
  }
  linalg.fill ins(%nothing : f16) outs(%o : memref<32x64xf16>)
  // CHECK-DAG: declined.mlir:[[# @LINE + 1]]:3: remark: warp-fuse-attention: it is not fused into an attention: others use the scores too, or what becomes of them
  linalg.matmul ins(%h, %v : memref<32x48xf16>, memref<48x64xf16>) outs(%o : memref<32x64xf16>)
  linalg.copy ins(%s : memref<32x48xf32>) outs(%other : memref<32x48xf32>)
  return
}

// What is divided by is the sum of other numbers.
func.func @sum_of_scores(%q: memref<32x64xf16>, %k: memref<48x64xf16>, %v: memref<48x64xf16>, %o: memref<32x64xf16>) {
  %zero = arith.constant 0.0 : f32
  %nothing = arith.constant 0.0 : f16
  %low = arith.constant 0xFF800000 : f32
  %s = memref.alloc() : memref<32x48xf32>
  %e = memref.alloc() : memref<32x48xf32>
  %h = memref.alloc() : memref<32x48xf16>
  %largest = memref.alloc() : memref<32xf32>
  %total = memref.alloc() : memref<32xf32>
  linalg.fill ins(%zero : f32) outs(%s : memref<32x48xf32>)
  linalg.matmul indexing_maps = #qk ins(%q, %k : memref<32x64xf16>, memref<48x64xf16>) outs(%s : memref<32x48xf32>)
  linalg.fill ins(%low : f32) outs(%largest : memref<32xf32>)
  linalg.generic {indexing_maps = [#mn, #m], iterator_types = ["parallel", "reduction"]} ins(%s : memref<32x48xf32>) outs(%largest : memref<32xf32>) {
  ^bb0(%x: f32, %old: f32):
    %0 = arith.maximumf %x, %old : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#mn, #m, #mn], iterator_types = ["parallel", "parallel"]} ins(%s, %largest : memref<32x48xf32>, memref<32xf32>) outs(%e : memref<32x48xf32>) {
  ^bb0(%x: f32, %y: f32, %old: f32):
    %0 = arith.subf %x, %y : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  }
  linalg.fill ins(%zero : f32) outs(%total : memref<32xf32>)
  linalg.generic {indexing_maps = [#mn, #m], iterator_types = ["parallel", "reduction"]} ins(%s : memref<32x48xf32>) outs(%total : memref<32xf32>) {
  ^bb0(%x: f32, %old: f32):
    %0 = arith.addf %x, %old : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#mn, #m, #mn], iterator_types = ["parallel", "parallel"]} ins(%e, %total : memref<32x48xf32>, memref<32xf32>) outs(%h : memref<32x48xf16>) {
  ^bb0(%x: f32, %y: f32, %old: f16):
    %0 = arith.divf %x, %y : f32
    %1 = arith.truncf %0 : f32 to f16
    linalg.yield %1 : f16
  }
  linalg.fill ins(%nothing : f16) outs(%o : memref<32x64xf16>)
  // CHECK-DAG: declined.mlir:[[# @LINE + 1]]:3: remark: warp-fuse-attention: it is not fused into an attention: what P is divided by is not the sum of each row of it
  linalg.matmul ins(%h, %v : memref<32x48xf16>, memref<48x64xf16>) outs(%o : memref<32x64xf16>)
  return
}

// Nothing is subtracted.
func.func @no_maximum(%q: memref<32x64xf16>, %k: memref<48x64xf16>, %v: memref<48x64xf16>, %o: memref<32x64xf16>) {
  %zero = arith.constant 0.0 : f32
  %nothing = arith.constant 0.0 : f16
  %low = arith.constant 0xFF800000 : f32
  %s = memref.alloc() : memref<32x48xf32>
  %e = memref.alloc() : memref<32x48xf32>
  %h = memref.alloc() : memref<32x48xf16>
  %largest = memref.alloc() : memref<32xf32>
  %total = memref.alloc() : memref<32xf32>
  linalg.fill ins(%zero : f32) outs(%s : memref<32x48xf32>)
  linalg.matmul indexing_maps = #qk ins(%q, %k : memref<32x64xf16>, memref<48x64xf16>) outs(%s : memref<32x48xf32>)
  linalg.fill ins(%low : f32) outs(%largest : memref<32xf32>)
  linalg.generic {indexing_maps = [#mn, #m], iterator_types = ["parallel", "reduction"]} ins(%s : memref<32x48xf32>) outs(%largest : memref<32xf32>) {
  ^bb0(%x: f32, %old: f32):
    %0 = arith.maximumf %x, %old : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#mn, #m, #mn], iterator_types = ["parallel", "parallel"]} ins(%s, %largest : memref<32x48xf32>, memref<32xf32>) outs(%e : memref<32x48xf32>) {
  ^bb0(%x: f32, %y: f32, %old: f32):
    %1 = math.exp %x : f32
    linalg.yield %1 : f32
  }
  linalg.fill ins(%zero : f32) outs(%total : memref<32xf32>)
  linalg.generic {indexing_maps = [#mn, #m], iterator_types = ["parallel", "reduction"]} ins(%e : memref<32x48xf32>) outs(%total : memref<32xf32>) {
  ^bb0(%x: f32, %old: f32):
    %0 = arith.addf %x, %old : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#mn, #m, #mn], iterator_types = ["parallel", "parallel"]} ins(%e, %total : memref<32x48xf32>, memref<32xf32>) outs(%h : memref<32x48xf16>) {
  ^bb0(%x: f32, %y: f32, %old: f16):
    %0 = arith.divf %x, %y : f32
    %1 = arith.truncf %0 : f32 to f16
    linalg.yield %1 : f16
  }
  linalg.fill ins(%nothing : f16) outs(%o : memref<32x64xf16>)
  // CHECK-DAG: declined.mlir:[[# @LINE + 1]]:3: remark: warp-fuse-attention: it is not fused into an attention: the exponent is no score less the largest of its row
  linalg.matmul ins(%h, %v : memref<32x48xf16>, memref<48x64xf16>) outs(%o : memref<32x64xf16>)
  return
}

// Something else is subtracted.
func.func @other_maximum(%q: memref<32x64xf16>, %k: memref<48x64xf16>, %v: memref<48x64xf16>, %o: memref<32x64xf16>, %g: memref<32xf32>) {
  %zero = arith.constant 0.0 : f32
  %nothing = arith.constant 0.0 : f16
  %low = arith.constant 0xFF800000 : f32
  %s = memref.alloc() : memref<32x48xf32>
  %e = memref.alloc() : memref<32x48xf32>
  %h = memref.alloc() : memref<32x48xf16>
  %largest = memref.alloc() : memref<32xf32>
  %total = memref.alloc() : memref<32xf32>
  linalg.fill ins(%zero : f32) outs(%s : memref<32x48xf32>)
  linalg.matmul indexing_maps = #qk ins(%q, %k : memref<32x64xf16>, memref<48x64xf16>) outs(%s : memref<32x48xf32>)
  linalg.fill ins(%low : f32) outs(%largest : memref<32xf32>)
  linalg.generic {indexing_maps = [#mn, #m], iterator_types = ["parallel", "reduction"]} ins(%s : memref<32x48xf32>) outs(%largest : memref<32xf32>) {
  ^bb0(%x: f32, %old: f32):
    %0 = arith.maximumf %x, %old : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#mn, #m, #mn], iterator_types = ["parallel", "parallel"]} ins(%s, %largest : memref<32x48xf32>, memref<32xf32>) outs(%e : memref<32x48xf32>) {
  ^bb0(%x: f32, %y: f32, %old: f32):
    %0 = arith.addf %y, %y : f32
    %2 = arith.subf %x, %0 : f32
    %1 = math.exp %2 : f32
    linalg.yield %1 : f32
  }
  linalg.fill ins(%zero : f32) outs(%total : memref<32xf32>)
  linalg.generic {indexing_maps = [#mn, #m], iterator_types = ["parallel", "reduction"]} ins(%e : memref<32x48xf32>) outs(%total : memref<32xf32>) {
  ^bb0(%x: f32, %old: f32):
    %0 = arith.addf %x, %old : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#mn, #m, #mn], iterator_types = ["parallel", "parallel"]} ins(%e, %total : memref<32x48xf32>, memref<32xf32>) outs(%h : memref<32x48xf16>) {
  ^bb0(%x: f32, %y: f32, %old: f16):
    %0 = arith.divf %x, %y : f32
    %1 = arith.truncf %0 : f32 to f16
    linalg.yield %1 : f16
  }
  linalg.fill ins(%nothing : f16) outs(%o : memref<32x64xf16>)
  // CHECK-DAG: declined.mlir:[[# @LINE + 1]]:3: remark: warp-fuse-attention: it is not fused into an attention: what is subtracted in the exponent is not the largest score of each row
  linalg.matmul ins(%h, %v : memref<32x48xf16>, memref<48x64xf16>) outs(%o : memref<32x64xf16>)
  return
}

// Scores are the sum of two products.
func.func @two_products(%q: memref<32x64xf16>, %k: memref<48x64xf16>, %v: memref<48x64xf16>, %o: memref<32x64xf16>, %r: memref<32x64xf16>) {
  %zero = arith.constant 0.0 : f32
  %nothing = arith.constant 0.0 : f16
  %s = memref.alloc() : memref<32x48xf32>
  %e = memref.alloc() : memref<32x48xf32>
  %h = memref.alloc() : memref<32x48xf16>
  linalg.fill ins(%zero : f32) outs(%s : memref<32x48xf32>)
  linalg.matmul indexing_maps = #qk ins(%q, %k : memref<32x64xf16>, memref<48x64xf16>) outs(%s : memref<32x48xf32>)
  %t = memref.alloc() : memref<32x48xf32>
  linalg.fill ins(%zero : f32) outs(%t : memref<32x48xf32>)
  linalg.matmul indexing_maps = #qk ins(%r, %k : memref<32x64xf16>, memref<48x64xf16>) outs(%t : memref<32x48xf32>)
  linalg.generic {indexing_maps = [#mn, #mn, #mn], iterator_types = ["parallel", "parallel"]} ins(%s, %t : memref<32x48xf32>, memref<32x48xf32>) outs(%s : memref<32x48xf32>) {
  ^bb0(%x: f32, %y: f32, %old: f32):
    %0 = arith.addf %x, %y : f32
    linalg.yield %0 : f32
  }
  linalg.softmax dimension(1) ins(%s : memref<32x48xf32>) outs(%e : memref<32x48xf32>)
  linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]} ins(%e : memref<32x48xf32>) outs(%h : memref<32x48xf16>) {
  ^bb0(%x: f32, %old: f16):
    %0 = arith.truncf %x : f32 to f16
    linalg.yield %0 : f16
  }
  linalg.fill ins(%nothing : f16) outs(%o : memref<32x64xf16>)
  // CHECK-DAG: declined.mlir:[[# @LINE + 1]]:3: remark: warp-fuse-attention: it is not fused into an attention: scores depend on several products
  linalg.matmul ins(%h, %v : memref<32x48xf16>, memref<48x64xf16>) outs(%o : memref<32x64xf16>)
  return
}

// K changes after the scores are computed.
func.func @written_between(%q: memref<32x64xf16>, %k: memref<48x64xf16>, %v: memref<48x64xf16>, %o: memref<32x64xf16>) {
  %zero = arith.constant 0.0 : f32
  %nothing = arith.constant 0.0 : f16
  %s = memref.alloc() : memref<32x48xf32>
  %e = memref.alloc() : memref<32x48xf32>
  %h = memref.alloc() : memref<32x48xf16>
  linalg.fill ins(%zero : f32) outs(%s : memref<32x48xf32>)
  linalg.matmul indexing_maps = #qk ins(%q, %k : memref<32x64xf16>, memref<48x64xf16>) outs(%s : memref<32x48xf32>)
  linalg.softmax dimension(1) ins(%s : memref<32x48xf32>) outs(%e : memref<32x48xf32>)
  linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]} ins(%e : memref<32x48xf32>) outs(%h : memref<32x48xf16>) {
  ^bb0(%x: f32, %old: f16):
    %0 = arith.truncf %x : f32 to f16
    linalg.yield %0 : f16
  }
  linalg.fill ins(%nothing : f16) outs(%k : memref<48x64xf16>)
  linalg.fill ins(%nothing : f16) outs(%o : memref<32x64xf16>)
  // CHECK-DAG: declined.mlir:[[# @LINE + 1]]:3: remark: warp-fuse-attention: it is not fused into an attention: linalg.fill between its operations writes what it reads
  linalg.matmul ins(%h, %v : memref<32x48xf16>, memref<48x64xf16>) outs(%o : memref<32x64xf16>)
  return
}

// An element of V is written, which is not followed.
func.func @unknown_between(%q: memref<32x64xf16>, %k: memref<48x64xf16>, %v: memref<48x64xf16>, %o: memref<32x64xf16>) {
  %zero = arith.constant 0.0 : f32
  %nothing = arith.constant 0.0 : f16
  %s = memref.alloc() : memref<32x48xf32>
  %e = memref.alloc() : memref<32x48xf32>
  %h = memref.alloc() : memref<32x48xf16>
  linalg.fill ins(%zero : f32) outs(%s : memref<32x48xf32>)
  linalg.matmul indexing_maps = #qk ins(%q, %k : memref<32x64xf16>, memref<48x64xf16>) outs(%s : memref<32x48xf32>)
  linalg.softmax dimension(1) ins(%s : memref<32x48xf32>) outs(%e : memref<32x48xf32>)
  linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]} ins(%e : memref<32x48xf32>) outs(%h : memref<32x48xf16>) {
  ^bb0(%x: f32, %old: f16):
    %0 = arith.truncf %x : f32 to f16
    linalg.yield %0 : f16
  }
  %c0 = arith.constant 0 : index
  memref.store %nothing, %v[%c0, %c0] : memref<48x64xf16>
  linalg.fill ins(%nothing : f16) outs(%o : memref<32x64xf16>)
  // CHECK-DAG: declined.mlir:[[# @LINE + 1]]:3: remark: warp-fuse-attention: it is not fused into an attention: memref.store stands between its operations, and may touch any memory
  linalg.matmul ins(%h, %v : memref<32x48xf16>, memref<48x64xf16>) outs(%o : memref<32x64xf16>)
  return
}

// The result is read before it is written.
func.func @result_between(%q: memref<32x64xf16>, %k: memref<48x64xf16>, %v: memref<48x64xf16>, %o: memref<32x64xf16>, %other: memref<32x64xf16>) {
  %zero = arith.constant 0.0 : f32
  %nothing = arith.constant 0.0 : f16
  %s = memref.alloc() : memref<32x48xf32>
  %e = memref.alloc() : memref<32x48xf32>
  %h = memref.alloc() : memref<32x48xf16>
  linalg.fill ins(%zero : f32) outs(%s : memref<32x48xf32>)
  linalg.matmul indexing_maps = #qk ins(%q, %k : memref<32x64xf16>, memref<48x64xf16>) outs(%s : memref<32x48xf32>)
  linalg.softmax dimension(1) ins(%s : memref<32x48xf32>) outs(%e : memref<32x48xf32>)
  linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]} ins(%e : memref<32x48xf32>) outs(%h : memref<32x48xf16>) {
  ^bb0(%x: f32, %old: f16):
    %0 = arith.truncf %x : f32 to f16
    linalg.yield %0 : f16
  }
  linalg.copy ins(%o : memref<32x64xf16>) outs(%other : memref<32x64xf16>)
  linalg.fill ins(%nothing : f16) outs(%o : memref<32x64xf16>)
  // CHECK-DAG: declined.mlir:[[# @LINE + 1]]:3: remark: warp-fuse-attention: it is not fused into an attention: linalg.copy between its operations uses its result
  linalg.matmul ins(%h, %v : memref<32x48xf16>, memref<48x64xf16>) outs(%o : memref<32x64xf16>)
  return
}

// The second product adds to what is there.
func.func @added(%q: memref<32x64xf16>, %k: memref<48x64xf16>, %v: memref<48x64xf16>, %o: memref<32x64xf16>) {
  %zero = arith.constant 0.0 : f32
  %nothing = arith.constant 0.0 : f16
  %s = memref.alloc() : memref<32x48xf32>
  %e = memref.alloc() : memref<32x48xf32>
  %h = memref.alloc() : memref<32x48xf16>
  linalg.fill ins(%zero : f32) outs(%s : memref<32x48xf32>)
  linalg.matmul indexing_maps = #qk ins(%q, %k : memref<32x64xf16>, memref<48x64xf16>) outs(%s : memref<32x48xf32>)
  linalg.softmax dimension(1) ins(%s : memref<32x48xf32>) outs(%e : memref<32x48xf32>)
  linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]} ins(%e : memref<32x48xf32>) outs(%h : memref<32x48xf16>) {
  ^bb0(%x: f32, %old: f16):
    %0 = arith.truncf %x : f32 to f16
    linalg.yield %0 : f16
  }
  // CHECK-DAG: declined.mlir:[[# @LINE + 1]]:3: remark: warp-fuse-attention: it is not fused into an attention: its result does not start from zero
  linalg.matmul ins(%h, %v : memref<32x48xf16>, memref<48x64xf16>) outs(%o : memref<32x64xf16>)
  return
}

// The result takes the place of Q.
func.func @in_place(%q: memref<32x64xf16>, %k: memref<48x64xf16>, %v: memref<48x64xf16>, %o: memref<32x64xf16>) {
  %zero = arith.constant 0.0 : f32
  %nothing = arith.constant 0.0 : f16
  %s = memref.alloc() : memref<32x48xf32>
  %e = memref.alloc() : memref<32x48xf32>
  %h = memref.alloc() : memref<32x48xf16>
  linalg.fill ins(%zero : f32) outs(%s : memref<32x48xf32>)
  linalg.matmul indexing_maps = #qk ins(%q, %k : memref<32x64xf16>, memref<48x64xf16>) outs(%s : memref<32x48xf32>)
  linalg.softmax dimension(1) ins(%s : memref<32x48xf32>) outs(%e : memref<32x48xf32>)
  linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]} ins(%e : memref<32x48xf32>) outs(%h : memref<32x48xf16>) {
  ^bb0(%x: f32, %old: f16):
    %0 = arith.truncf %x : f32 to f16
    linalg.yield %0 : f16
  }
  linalg.fill ins(%nothing : f16) outs(%q : memref<32x64xf16>)
  // CHECK-DAG: declined.mlir:[[# @LINE + 1]]:3: remark: warp-fuse-attention: it is not fused into an attention: its result is where Q, K or V is
  linalg.matmul ins(%h, %v : memref<32x48xf16>, memref<48x64xf16>) outs(%q : memref<32x64xf16>)
  return
}

// No instruction multiplies f32.
func.func @whole(%q: memref<32x64xf32>, %k: memref<48x64xf32>, %v: memref<48x64xf32>, %o: memref<32x64xf32>) {
  %zero = arith.constant 0.0 : f32
  %nothing = arith.constant 0.0 : f32
  %s = memref.alloc() : memref<32x48xf32>
  %e = memref.alloc() : memref<32x48xf32>
  linalg.fill ins(%zero : f32) outs(%s : memref<32x48xf32>)
  linalg.matmul indexing_maps = #qk ins(%q, %k : memref<32x64xf32>, memref<48x64xf32>) outs(%s : memref<32x48xf32>)
  linalg.softmax dimension(1) ins(%s : memref<32x48xf32>) outs(%e : memref<32x48xf32>)
  linalg.fill ins(%nothing : f32) outs(%o : memref<32x64xf32>)
  // CHECK-DAG: declined.mlir:[[# @LINE + 1]]:3: remark: warp-fuse-attention: it is not fused into an attention: expected Q, K and V of f16, of bf16, or of f8E4M3FN, got f32, f32, f32
  linalg.matmul ins(%e, %v : memref<32x48xf32>, memref<48x64xf32>) outs(%o : memref<32x64xf32>)
  return
}

func.func private @unknown()
