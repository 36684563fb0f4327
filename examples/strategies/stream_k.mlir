// Stream-K for products whose tiles are no multiple of the CTAs that run at the same time: each CTA goes from tile to
// tile, and the tiles behind the last whole set are shared, with a part of K for each of two CTAs.
//
//   warploom-opt product.mlir --transform stream_k.mlir -p 'warploom{target=sm_90a}' -t ptx
module attributes {transform.with_named_sequence} {
  // Products of f16 with few tiles and a K that is long enough to be shared.
  transform.named_sequence @stream_k(%product: !transform.any_op {transform.consumed}) {
    transform.alternatives %product : !transform.any_op {
    ^bb0(%p: !transform.any_op):
      %tall = transform.structured.match attributes {warp.where = {m = "256..", k = "256.."}} in %p : (!transform.any_op) -> !transform.any_op
      %fields = transform.param.constant #warp.schedule<mma = m64n64k16, cta = 128x64x64, ctas = 3, split_k = 2> -> !transform.any_param
      transform.annotate %tall "warp.schedule" = %fields : !transform.any_op, !transform.any_param
    }, {
    ^bb0(%p: !transform.any_op):
      %fields = transform.param.constant #warp.schedule<split_k = 2> -> !transform.any_param
      transform.annotate %p "warp.schedule" = %fields : !transform.any_op, !transform.any_param
    }
    transform.yield
  }

  transform.named_sequence @__transform_main(%module: !transform.any_op) {
    %halves = transform.structured.match ops{["linalg.matmul"]} attributes {warp.where = {types = [f16, f16]}} in %module : (!transform.any_op) -> !transform.any_op
    transform.foreach %halves : !transform.any_op {
    ^bb0(%product: !transform.any_op):
      transform.include @stream_k failures(propagate) (%product) : (!transform.any_op) -> ()
    }
    transform.yield
  }
}
