// target=sm_90a

func.func @f(%A: tensor<6x8xf16>, %B: tensor<8x5xf16>, %C: tensor<6x5xf32>) -> tensor<6x5xf32> {
      %z = arith.constant 0.0 : f32
      %e = bufferization.alloc_tensor() copy(%C) : tensor<6x5xf32>
      
      %r = linalg.matmul ins(%A, %B : tensor<6x8xf16>, tensor<8x5xf16>) outs(%e : tensor<6x5xf32>)
        -> tensor<6x5xf32>
      return %r : tensor<6x5xf32> }
