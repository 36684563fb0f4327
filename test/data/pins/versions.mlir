// target=sm_80 stages=3 in=A=random:65x40 in=B=random:40x72 in=bias=random:72 in=D=random:65x72

func.func @f(%A: memref<?x?xbf16> {warp.divisible = 8 : i64}, %B: memref<?x?xbf16> {warp.divisible = 8 : i64}, %bias: memref<?xf32>, %D: memref<?x?xf32> {warp.divisible = 8 : i64}) {
      %zero = arith.constant 0.0 : f32
      linalg.fill ins(%zero : f32) outs(%D : memref<?x?xf32>)
      linalg.matmul ins(%A, %B : memref<?x?xbf16>, memref<?x?xbf16>) outs(%D : memref<?x?xf32>)
      linalg.generic {indexing_maps = [affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>],
                       iterator_types = ["parallel", "parallel"]} ins(%bias : memref<?xf32>) outs(%D : memref<?x?xf32>) {
      ^bb0(%b: f32, %x: f32):
        %sum = arith.addf %x, %b : f32
        %y = arith.maximumf %sum, %zero : f32
        linalg.yield %y : f32
      }
      return
    }
