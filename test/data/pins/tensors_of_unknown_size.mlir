// target=sm_90a cta=32,32,32 stages=2 in=A=random:33x64 in=B=random:64x17 in=r=random:33x17

func.func @f(%A: tensor<?x64xf16>, %B: tensor<64x?xf16>) -> tensor<?x?xf32> {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %A, %c0 : tensor<?x64xf16>
  %n = tensor.dim %B, %c1 : tensor<64x?xf16>
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %p = linalg.matmul ins(%A, %B : tensor<?x64xf16>, tensor<64x?xf16>) outs(%f : tensor<?x?xf32>) -> tensor<?x?xf32>
  %again = tensor.dim %e, %c0 : tensor<?x?xf32>
  %g = tensor.empty(%again, %n) : tensor<?x?xf32>
  %r = linalg.exp ins(%p : tensor<?x?xf32>) outs(%g : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}
