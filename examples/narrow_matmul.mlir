// Weights of four bits, two of them in a byte, times activations of eight: C = A * B, where B is stored by columns.
//
// Targets of sm_120a have the instruction. Without such a GPU the product runs on the CPU:
//   warploom run examples/narrow_matmul.mlir --target sm_120a --device interp --check

func.func @narrow(%A: memref<100x200xf8E4M3FN>, %B: memref<75x200xf4E2M1FN>, %C: memref<100x75xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%C : memref<100x75xf32>)
  linalg.matmul_transpose_b ins(%A, %B : memref<100x200xf8E4M3FN>, memref<75x200xf4E2M1FN>)
                            outs(%C : memref<100x75xf32>)
  return
}
