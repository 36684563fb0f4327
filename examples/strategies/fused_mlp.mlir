// Two layers in one kernel: a CTA computes 32 rows of the hidden layer, and then the same rows of the result, which it
// reads while they are in its caches. One launch in place of two, and nothing waits for the last CTA of the first.
//
//   warploom-opt mlp.mlir --transform fused_mlp.mlir -p 'warploom{target=sm_80}' -t ptx
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%module: !transform.any_op) {
    // CTAs of both products have the same rows and threads.
    %layers = transform.structured.match ops{["linalg.matmul"]} in %module : (!transform.any_op) -> !transform.any_op
    %fields = transform.param.constant #warp.schedule<cta = 32x48x32, warp = 16x24, stages = 2> -> !transform.any_param
    transform.annotate %layers "warp.schedule" = %fields : !transform.any_op, !transform.any_param

    // The activation becomes the epilogue of the first product; warp-schedule chooses the other fields.
    %scheduled = transform.apply_registered_pass "warploom-schedule" to %module : (!transform.any_op) -> !transform.any_op
    %products = transform.structured.match ops{["warp.matmul"]} in %scheduled : (!transform.any_op) -> !transform.any_op
    %fused = transform.apply_registered_pass "warp-fuse-products" to %products : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}
