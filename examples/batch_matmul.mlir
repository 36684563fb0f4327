// Six products at once, B stored transposed; the grid's z is the batch.
//   warploom run examples/batch_matmul.mlir --device interp --check
func.func @batch_matmul(%A: memref<6x48x40xf16>, %B: memref<6x56x40xf16>, %C: memref<6x48x56xf32>) {
  linalg.batch_matmul_transpose_b
      ins(%A, %B : memref<6x48x40xf16>, memref<6x56x40xf16>) outs(%C : memref<6x48x56xf32>)
  return
}
