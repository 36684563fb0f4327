// target=sm_90a

func.func @f(%A: memref<33x17xf16>, %B: memref<5x7x3xi8>, %C: memref<64xf8E5M2>, %s: f32,
                           %D: memref<9x6xf32>, %E: memref<12x12xbf16>) {
      %half = arith.constant -1.5 : f16
      %seven = arith.constant 7 : i8
      %eighth = arith.constant 0.125 : f8E5M2
      %third = arith.constant 0.1 : f32
      linalg.fill ins(%half : f16) outs(%A : memref<33x17xf16>)
      linalg.fill ins(%seven : i8) outs(%B : memref<5x7x3xi8>)
      linalg.fill ins(%eighth : f8E5M2) outs(%C : memref<64xf8E5M2>)
      linalg.fill ins(%s : f32) outs(%D : memref<9x6xf32>)
      linalg.fill ins(%third : f32) outs(%E : memref<12x12xbf16>)
      return
    }
