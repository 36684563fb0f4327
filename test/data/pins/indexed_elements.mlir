// target=sm_90a

func.func @f(%D: memref<2x7x33xi8>) {
  linalg.generic {indexing_maps = [affine_map<(n, b, m) -> (b, m, n)>],
                  iterator_types = ["parallel", "parallel", "parallel"]} outs(%D : memref<2x7x33xi8>) {
  ^bb0(%old: i8):
    %n = linalg.index 0 : index
    %b = linalg.index 1 : index
    %m = linalg.index 2 : index
    %four = arith.constant 4 : index
    %five = arith.constant 5 : index
    %quotient = arith.divui %n, %four : index
    %rest = arith.remui %n, %five : index
    %0 = arith.muli %b, %five : index
    %1 = arith.addi %0, %m : index
    %2 = arith.muli %1, %quotient : index
    %3 = arith.subi %2, %rest : index
    %4 = arith.index_cast %3 : index to i8
    linalg.yield %4 : i8
  }
  return
}
