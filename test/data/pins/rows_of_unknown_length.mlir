// target=sm_90 in=A=random:70x4096 in=B=random:4096x45

func.func @f(%A: memref<?x4096xf16> {warp.divisible = 1 : i64}, %B: memref<4096x?xf16> {warp.divisible = 1 : i64}, %C: memref<?x?xf32> {warp.divisible = 1 : i64}) {
      linalg.matmul ins(%A, %B : memref<?x4096xf16>, memref<4096x?xf16>) outs(%C : memref<?x?xf32>) return }
