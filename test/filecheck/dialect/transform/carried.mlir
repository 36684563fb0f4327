// Steps that no strategy applies are read, and printed as they are written; what lies between words is a space.
// RUN: warploom-opt %s | warploom-opt | filecheck %s

// CHECK:      %{{.*}} = transform.get_parent_op %{{.*}} {isolated_from_above} : (!transform.any_op) -> !transform.any_op
// CHECK-NEXT: transform.apply_patterns to %{{.*}} {
// CHECK-NEXT:   transform.apply_patterns.vector.lower_masked_transfers
// CHECK-NEXT:   transform.apply_patterns.vector.transfer_to_scf max_transfer_rank = 1
// CHECK-NEXT: } : !transform.any_op
// CHECK-NEXT: transform.param.constant 8 : i64 -> !transform.param<i64>
// CHECK-NEXT: transform.structured.pad %{{.*}} pad_to_multiple_of [4, %{{.*}}] { padding_values = [0.0 : f32], padding_dimensions = [0, 1] } : (!transform.any_op, 
// CHECK:      transform.structured.multitile_sizes %{{.*}} { dimension = 0, target_size = 3 } : (!transform.any_op) -> !transform.any_op
// CHECK:      transform.structured.replace %{{.*}} {
// CHECK-NEXT:   builtin.module {
// CHECK:      } : (!transform.any_op) -> !transform.any_op
#rows = affine_map<(i, j) -> (j, i)>
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["linalg.matmul"]} in %m : (!transform.any_op) -> !transform.any_op
    %f = transform.get_parent_op %0 {isolated_from_above} : (!transform.any_op) -> !transform.any_op
    transform.apply_patterns to %f {
      transform.apply_patterns.vector.lower_masked_transfers
      transform.apply_patterns.vector.transfer_to_scf max_transfer_rank = 1
    } : !transform.any_op
    %c = transform.param.constant 8 : i64 -> !transform.param<i64>
    %p:3 = transform.structured.pad %0 pad_to_multiple_of [4, %c] {
      padding_values = [0.0 : f32],  // of each operand
      padding_dimensions = [0, 1]
    } : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op, !transform.any_op)
    %low, %high, %split = transform.structured.multitile_sizes %f { dimension = 0, target_size = 3 } : (!transform.any_op) -> !transform.any_op
    transform.debug.emit_remark_at %low, "here,  or there" : !transform.any_op
    %r = transform.structured.replace %high {
      builtin.module {
        func.func @g() {
          return
        }
      }
    } : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}
