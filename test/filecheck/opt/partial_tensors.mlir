// Functions that stay, and what they hold.

// RUN: warploom-opt %s -p 'warploom{target=sm_80}' --allow-unregistered-dialect --remarks 2>&1 | filecheck %s

// CHECK:      remark: partial-conversion: func.func stays as it is: expected tensors of known rank alone
// CHECK:      remark: partial-conversion: func.func stays as it is: a function that stays calls it
// CHECK-NEXT: remark: partial-conversion: foreign.compare stays as it is: expected elements of whole bytes, as they are in memory, got tensor<4xi1>
// CHECK-NEXT: remark: partial-conversion: linalg.generic stays as it is: foreign.half is not lowered
// CHECK-NEXT: remark: partial-conversion: linalg.generic stays as it is: expected elements of whole bytes

// What a function that stays calls keeps the types that it is called with.
// CHECK:      func.func @unranked
// CHECK:        %row = func.call @rows(%x) : (tensor<8xf32>) -> tensor<8xf32>
// CHECK:        func.call @unranked_elsewhere(%any) : (tensor<*xf32>) -> ()
// CHECK:      func.func @rows(%x: tensor<8xf32>) -> tensor<8xf32>
func.func private @unranked_elsewhere(tensor<*xf32>)
func.func @unranked(%x: tensor<8xf32>) {
  %row = call @rows(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %any = tensor.cast %row : tensor<8xf32> to tensor<*xf32>
  call @unranked_elsewhere(%any) : (tensor<*xf32>) -> ()
  return
}
func.func @rows(%x: tensor<8xf32>) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<8xf32>
  %y = linalg.exp ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// Conditions are bytes in memory, of which a tensor of another dialect says nothing.
// CHECK:      func.func @conditions(%x: tensor<4xf32>) -> tensor<4xi1> {
func.func @conditions(%x: tensor<4xf32>) -> tensor<4xi1> {
  %c = "foreign.compare"(%x) : (tensor<4xf32>) -> tensor<4xi1>
  return %c : tensor<4xi1>
}

// What stands aside is called by its own name where a function stays for it.
// CHECK:      func.func @of_conditions
// CHECK:        %c = linalg.generic
func.func @of_conditions(%x: tensor<4xf32>) -> tensor<4xi1> {
  %e = tensor.empty() : tensor<4xi1>
  %c = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<4xf32>) outs(%e : tensor<4xi1>) {
  ^bb0(%a: f32, %o: i1):
    %b = "foreign.half"(%a) : (f32) -> f32
    %t = arith.cmpf ogt, %b, %a : f32
    linalg.yield %t : i1
  } -> tensor<4xi1>
  return %c : tensor<4xi1>
}
