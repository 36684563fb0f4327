// target=sm_100a cta=128,128,128 mma=m128n64k32 cluster=2,1
func.func @f(%A: memref<272x384xf6E2M3FN>, %B: memref<144x384xf4E2M1FN>, %C: memref<272x144xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%C : memref<272x144xf32>)
  linalg.matmul_transpose_b ins(%A, %B : memref<272x384xf6E2M3FN>, memref<144x384xf4E2M1FN>)
    outs(%C : memref<272x144xf32>)
  return
}
