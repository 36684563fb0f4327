// A strategy in the module: it is printed and read back, applied after the target is set, and erased.
// RUN: warploom-opt %s | warploom-opt | filecheck %s --check-prefix=TEXT
// RUN: warploom-opt %s -p "warploom-schedule{target=sm_80}" --remarks 2>&1 | filecheck %s
// RUN: warploom-opt %s -p "warp-transform{choose=2}" --remarks 2>&1 | filecheck %s --check-prefix=LAST
// RUN: not warploom-opt %s -p "warp-transform{choose=0}" 2>&1 | filecheck %s --check-prefix=FIRST

// TEXT:      transform.alternatives %s : !transform.any_op {
// TEXT-NEXT:   ^{{.*}}(%{{.*}}: !transform.any_op):
// TEXT:      }, {
// TEXT:      transform.foreach %{{.*}} : !transform.any_op {
// TEXT:      transform.include @narrow failures(suppress) (%m) : (!transform.any_op) -> ()

// CHECK: alternative 1 of 3 does not apply: {{.*}}linalg.matmul has 3 loops, got sizes 8, 8, 8, 8, {{.*}}strategy.mlir:[[# @LINE + 38]]:3
// CHECK: remark: warp-transform: [chosen] alternative 2 of 3
// CHECK: strategy.mlir:[[# @LINE + 31]]:5: remark: warp-transform: @narrow stops: {{.*}}transform.annotate does not apply: no operation matches
// CHECK:     #warp.schedule<cta = 32x32x32, warp = {{.*}}, stages = 2,
// LAST:      linalg.matmul {warp.schedule = #warp.schedule<stages = 4>}
// FIRST:     error: transform.alternatives does not apply: none of 3 applies (1:
module attributes {transform.with_named_sequence} {
  transform.named_sequence @narrow(%s: !transform.any_op) {
    %p = transform.structured.match ops{["linalg.batch_matmul"]} in %s : (!transform.any_op) -> !transform.any_op
    %fields1 = transform.param.constant #warp.schedule<stages = 1> -> !transform.any_param
    transform.annotate %p "warp.schedule" = %fields1 : !transform.any_op, !transform.any_param
    transform.yield
  }
  transform.named_sequence @__transform_main(%m: !transform.any_op) {
    %s = transform.structured.match ops{["func.func"]} in %m : (!transform.any_op) -> !transform.any_op
    transform.alternatives %s : !transform.any_op {
    ^bb0(%f: !transform.any_op):
      %p = transform.structured.match ops{["linalg.matmul"]} in %f : (!transform.any_op) -> !transform.any_op
      %t, %l:4 = transform.structured.tile_using_for %p tile_sizes [8, 8, 8, 8] : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op)
    }, {
    ^bb0(%f: !transform.any_op):
      %p = transform.structured.match ops{["linalg.matmul"]} in %f : (!transform.any_op) -> !transform.any_op
      transform.foreach %p : !transform.any_op {
      ^bb0(%one: !transform.any_op):
        %fields2 = transform.param.constant #warp.schedule<cta = 32x32x32, stages = 2> -> !transform.any_param
        transform.annotate %one "warp.schedule" = %fields2 : !transform.any_op, !transform.any_param
      }
    }, {
    ^bb0(%f: !transform.any_op):
      %p = transform.structured.match interface{LinalgOp} in %f : (!transform.any_op) -> !transform.any_op
      %fields3 = transform.param.constant #warp.schedule<stages = 4> -> !transform.any_param
      transform.annotate %p "warp.schedule" = %fields3 : !transform.any_op, !transform.any_param
    }
    transform.include @narrow failures(suppress) (%m) : (!transform.any_op) -> ()
    transform.yield
  }
}
func.func @f(%a: memref<64x64xf16>, %b: memref<64x64xf16>, %c: memref<64x64xf32>) {
  linalg.matmul ins(%a, %b : memref<64x64xf16>, memref<64x64xf16>) outs(%c : memref<64x64xf32>)
  return
}
