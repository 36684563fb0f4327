// Attention with a causal mask, of two heads with 150 queries and keys of 64 columns, in ordinary linalg on tensors. It
// becomes one kernel, warp.attention, which keeps the scores in registers; docs/attention.md has the levels. Run it:
//
//   warploom run examples/attention.mlir --device interp --check

!matrix = tensor<2x150x64xbf16>
!scores = tensor<2x150x150xf32>

#qk = [affine_map<(h, m, n, d) -> (h, m, d)>, affine_map<(h, m, n, d) -> (h, n, d)>, affine_map<(h, m, n, d) -> (h, m, n)>]
#all = affine_map<(h, m, n) -> (h, m, n)>

func.func @attention(%Q: !matrix, %K: !matrix, %V: !matrix) -> !matrix {
  %zero = arith.constant 0.0 : f32
  %nothing = arith.constant 0.0 : bf16
  %minus_infinity = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %scores = tensor.empty() : !scores

  // S = Q K^T
  %cleared = linalg.fill ins(%zero : f32) outs(%scores : !scores) -> !scores
  %S = linalg.batch_matmul indexing_maps = #qk ins(%Q, %K : !matrix, !matrix) outs(%cleared : !scores) -> !scores

  // Scaled, and minus infinity where a key comes after the query.
  %masked = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%S : !scores) outs(%scores : !scores) {
  ^bb0(%s: f32, %old: f32):
    %m = linalg.index 1 : index
    %n = linalg.index 2 : index
    %after = arith.cmpi sgt, %n, %m : index
    %scaled = arith.mulf %s, %scale : f32
    %x = arith.select %after, %minus_infinity, %scaled : f32
    linalg.yield %x : f32
  } -> !scores

  // O = softmax(S) V
  %P = linalg.softmax dimension(2) ins(%masked : !scores) outs(%scores : !scores) -> !scores
  %empty = tensor.empty() : tensor<2x150x150xbf16>
  %narrow = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%P : !scores) outs(%empty : tensor<2x150x150xbf16>) {
  ^bb0(%p: f32, %old: bf16):
    %0 = arith.truncf %p : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<2x150x150xbf16>
  %result = tensor.empty() : !matrix
  %start = linalg.fill ins(%nothing : bf16) outs(%result : !matrix) -> !matrix
  %O = linalg.batch_matmul ins(%narrow, %V : tensor<2x150x150xbf16>, !matrix) outs(%start : !matrix) -> !matrix
  return %O : !matrix
}
