// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s

// Conversions with what MLIR says beside them.
// CHECK-LABEL: func.func @conversions(
func.func @conversions(%x: f32, %v: vector<4xf32>) {
  // CHECK: %[[H:.*]] = arith.truncf %x : f32 to f16
  // GENERIC: "arith.truncf"(%{{.*}}) : (f32) -> f16
  %h = arith.truncf %x : f32 to f16
  // CHECK: arith.extf %[[H]] : f16 to f32
  %w = arith.extf %h : f16 to f32
  // CHECK: %[[C:.*]] = arith.truncf %x fastmath<contract> : f32 to bf16
  // GENERIC: "arith.truncf"(%{{.*}}) <{fastmath = #arith.fastmath<contract>}> : (f32) -> bf16
  %c = arith.truncf %x fastmath<contract> : f32 to bf16
  // CHECK: arith.extf %[[C]] fastmath<nnan,contract> : bf16 to f32
  %d = arith.extf %c fastmath<nnan,contract> : bf16 to f32
  // CHECK: arith.truncf %x to_nearest_even fastmath<fast> {a = 1 : i32} : f32 to f8E5M2
  // GENERIC: "arith.truncf"(%{{.*}}) <{roundingmode = 0 : i32, fastmath = #arith.fastmath<fast>}> {a = 1 : i32}
  %e = arith.truncf %x to_nearest_even fastmath<fast> {a = 1 : i32} : f32 to f8E5M2
  // CHECK: arith.truncf %x to_nearest_even : f32 to f16
  %f = arith.truncf %x to_nearest_even : f32 to f16
  // CHECK: arith.truncf %v : vector<4xf32> to vector<4xf16>
  %g = arith.truncf %v : vector<4xf32> to vector<4xf16>
  return
}

// CHECK-LABEL: func.func @indices(
func.func @indices(%i: i8, %n: index, %v: vector<4xi16>) -> tensor<?x4xindex> {
  // CHECK: arith.index_castui %i : i8 to index
  // GENERIC: "arith.index_castui"(%i) : (i8) -> index
  %a = arith.index_castui %i : i8 to index
  // CHECK: arith.index_castui %v : vector<4xi16> to vector<4xindex>
  %b = arith.index_castui %v : vector<4xi16> to vector<4xindex>
  // CHECK: tensor.generate %n {
  // CHECK-NEXT: ^{{.*}}(%j: index, %k: index):
  // CHECK-NEXT: tensor.yield %j : index
  // CHECK-NEXT: } : tensor<?x4xindex>
  %t = tensor.generate %n {
  ^bb0(%j: index, %k: index):
    tensor.yield %j : index
  } : tensor<?x4xindex>
  return %t : tensor<?x4xindex>
}
