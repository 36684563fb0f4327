// One kernel for all sizes. Rows of A, B and C are promised to have a multiple of 8 elements, so that they are copied
// 16 bytes at a time; without the promise the kernel takes any size, element by element.
//   warploom run examples/dynamic_matmul.mlir --in A=random:100x72 --in B=random:72x136 --device interp --check
func.func @dynamic_matmul(%A: memref<?x?xf16> {warp.divisible = 8 : i64}, %B: memref<?x?xf16> {warp.divisible = 8 : i64},
                          %C: memref<?x?xf32> {warp.divisible = 8 : i64}) {
  linalg.matmul ins(%A, %B : memref<?x?xf16>, memref<?x?xf16>) outs(%C : memref<?x?xf32>)
  return
}
