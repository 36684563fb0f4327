// Bits against bits: how many differ between each row of A and each row of B, as in a search for nearest codes.
// Eight elements lie in a byte, the first in its lowest bit; `and` in place of `xor` counts those that both have.
//   warploom run examples/binary_matmul.mlir --device interp --check

func.func @distances(%A: memref<100x1000xi1>, %B: memref<75x1000xi1>, %C: memref<100x75xi32>) {
  warp.matmul xor b1 x b1 %A, %B init 0 : i32 into %C
    maps [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
    : memref<100x1000xi1>, memref<75x1000xi1>, memref<100x75xi32>
  return
}
