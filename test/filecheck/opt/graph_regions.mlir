// RUN: warploom-opt %s --allow-unregistered-dialect | filecheck %s

// Regions of operations that are not registered may be graphs, whose values have no order.
// CHECK: "test.use"(%x)
"test.graph"() ({
  %y = "test.use"(%x) : (index) -> index
  %x = "test.use"(%y) : (index) -> index
}) : () -> ()
