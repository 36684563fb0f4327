// RUN: warploom-opt %s | filecheck %s

func.func @f(%n: index, %s: index) {
  // CHECK: %{{.*}}, %{{.*}}, %{{.*}} = affine.delinearize_index %n into (%s, 3, 4) : index, index, index
  %i:3 = affine.delinearize_index %n into (%s, 3, 4) : index, index, index
  // CHECK-NEXT: %{{.*}}, %{{.*}} = affine.delinearize_index %n into (4) : index, index
  %j:2 = affine.delinearize_index %n into (4) : index, index
  // CHECK-NEXT: affine.linearize_index disjoint [%{{.*}}, %{{.*}}] by (%s, 4) : index
  %k = affine.linearize_index disjoint [%j#0, %j#1] by (%s, 4) : index
  // CHECK-NEXT: affine.max affine_map<(d0)[s0] -> (d0, s0)> (%{{.*}})[%s]
  %m = affine.max affine_map<(d0)[s0] -> (d0, s0)>(%k)[%s]
  return
}
